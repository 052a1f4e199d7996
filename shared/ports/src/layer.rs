//! Stores over stores.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    BufferOutcome, BufferedSignal, Cancellation, ClaimOutcome, ClaimRequest, Collected, Commit, CommitError, Edition,
    Glance, InvocationId, InvocationRecord, LeaseRequest, LoadedInvocation, LoadedSession, Page, ParkedRow,
    PausedInvocation, PendingRow, RuleEntry, SessionFilter, SessionId, SessionSummary, ShapeId, SignalId, SignalRecord,
    StateStore, StoreError, Surroundings, Upkeep,
};

macro_rules! layer {
    ($($method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {
        /// A [`StateStore`] over another one: every method does what it does below, except for those that it has of its
        /// own. The methods are those of [`StateStore`], which every layer is.
        #[async_trait]
        pub trait StoreLayer: Send + Sync {
            /// The store below.
            fn below(&self) -> &dyn StateStore;

            $(
                #[doc = concat!("[`StateStore::", stringify!($method), "`], below unless a layer says otherwise.")]
                ///
                /// # Errors
                /// Those of the store below.
                async fn $method(&self, $($name: $type),*) -> $result {
                    self.below().$method($($name),*).await
                }
            )*
        }

        #[async_trait]
        impl<L: StoreLayer> StateStore for L {
            $(
                async fn $method(&self, $($name: $type),*) -> $result {
                    StoreLayer::$method(self, $($name),*).await
                }
            )*
        }
    };
}

layer! {
    load_session(id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError>;
    delete_session(id: &SessionId) -> Result<(), StoreError>;
    list_sessions(filter: &SessionFilter, cursor: Option<&str>) -> Result<Page<SessionSummary>, StoreError>;
    load_invocation(id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError>;
    load_invocations(ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError>;
    surroundings(paused: &[&PausedInvocation], now: Timestamp) -> Result<Vec<Surroundings>, StoreError>;
    cancellation(id: &InvocationId) -> Result<Option<Cancellation>, StoreError>;
    claim(request: &ClaimRequest) -> Result<ClaimOutcome, StoreError>;
    commit(commit: &Commit) -> Result<(), CommitError>;
    load_signal(id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError>;
    buffer_signal(id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError>;
    list_pending(due_by: Option<Timestamp>, cursor: Option<&str>) -> Result<Page<PendingRow>, StoreError>;
    glance(ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError>;
    dead_claims(now: Timestamp) -> Result<Vec<InvocationId>, StoreError>;
    put_aside() -> Result<Vec<InvocationId>, StoreError>;
    pending_row(paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError>;
    list_parked(cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError>;
    sweep_position(lane: &str) -> Result<Option<String>, StoreError>;
    collect(now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError>;
    touch_rule(shape: &ShapeId, fresh: &Edition, now: Timestamp) -> Result<RuleEntry, StoreError>;
    rule_entries() -> Result<Vec<RuleEntry>, StoreError>;
    upkeep(upkeep: &Upkeep) -> Result<(), StoreError>;
}
