//! Stores over stores.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    BufferOutcome, BufferedSignal, Cancellation, ClaimOutcome, ClaimRequest, Collected, Commit, CommitError, Commits,
    Diagnostics, Edition, Glance, InvocationId, InvocationRecord, Invocations, LeaseRequest, LoadedInvocation,
    LoadedSession, Maintenance, Page, ParkedRow, PausedInvocation, PendingRow, RuleEntries, RuleEntry, SessionFilter,
    SessionId, SessionSummary, Sessions, ShapeId, SignalId, SignalRecord, Signals, Sleepers, StateStore, StoreError,
    Surroundings, Upkeep,
};

macro_rules! layer {
    ($($port:ident { $($method:ident($($name:ident: $type:ty),*) -> $result:ty;)* })*) => {
        /// A [`StateStore`] over another one: every method does what it does below, except for those that it has of its
        /// own. The methods are those of the ports of [`StateStore`], which every layer is.
        #[async_trait]
        pub trait StoreLayer: Send + Sync {
            /// The store below.
            fn below(&self) -> &dyn StateStore;

            $($(
                #[doc = concat!("[`", stringify!($port), "::", stringify!($method), "`], below unless a layer says otherwise.")]
                ///
                /// # Errors
                /// Those of the store below.
                async fn $method(&self, $($name: $type),*) -> $result {
                    self.below().$method($($name),*).await
                }
            )*)*
        }

        $(
            #[async_trait]
            impl<L: StoreLayer> $port for L {
                $(
                    async fn $method(&self, $($name: $type),*) -> $result {
                        StoreLayer::$method(self, $($name),*).await
                    }
                )*
            }
        )*
    };
}

layer! {
    Sessions {
        load_session(id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError>;
        delete_session(id: &SessionId) -> Result<(), StoreError>;
        list_sessions(filter: &SessionFilter, cursor: Option<&str>) -> Result<Page<SessionSummary>, StoreError>;
    }
    Invocations {
        load_invocation(id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError>;
        load_invocations(ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError>;
        cancellation(id: &InvocationId) -> Result<Option<Cancellation>, StoreError>;
        glance(ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError>;
    }
    Signals {
        load_signal(id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError>;
        buffer_signal(id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError>;
    }
    Commits {
        claim(request: &ClaimRequest) -> Result<ClaimOutcome, StoreError>;
        commit(commit: &Commit) -> Result<(), CommitError>;
    }
    Sleepers {
        list_pending(due_by: Option<Timestamp>, cursor: Option<&str>) -> Result<Page<PendingRow>, StoreError>;
        pending_row(paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError>;
        dead_claims(now: Timestamp) -> Result<Vec<InvocationId>, StoreError>;
        put_aside() -> Result<Vec<InvocationId>, StoreError>;
        list_parked(cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError>;
    }
    RuleEntries {
        touch_rule(shape: &ShapeId, fresh: &Edition, now: Timestamp) -> Result<RuleEntry, StoreError>;
        rule_entries() -> Result<Vec<RuleEntry>, StoreError>;
    }
    Maintenance {
        sweep_position(lane: &str) -> Result<Option<String>, StoreError>;
        upkeep(upkeep: &Upkeep) -> Result<(), StoreError>;
        collect(now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError>;
    }
    Diagnostics {
        surroundings(paused: &[&PausedInvocation], now: Timestamp) -> Result<Vec<Surroundings>, StoreError>;
    }
}
