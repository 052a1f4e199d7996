//! The store of a case, watched: it counts what is asked of it and fails where the fixture says so.

mod backend;
mod checkpoints;
mod faults;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_aws::RandomIds;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Collected, Commit, CommitError, Glance, GrowingLists,
    IdSource, InvocationId, InvocationRecord, InvocationWrite, LeaseRequest, LoadedSession, Map, Page, ParkedRow,
    PausedInvocation, PendingRow, SessionExpectation, SessionFilter, SessionId, SessionRecord, SessionSummary,
    SessionWrite, SignalId, SignalRecord, StateStore, StoreError, Upkeep,
};
use jiff::Timestamp;

pub(crate) use backend::Keeping;
pub use backend::{Backends, PortKind};
pub(crate) use checkpoints::{Crash, WatchedCheckpointer};
pub(crate) use faults::Faults;

/// What was asked of the store during one invocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) session_loads: usize,
    pub(crate) session_saves: usize,
    /// Which session was loaded last, and what was found.
    pub(crate) loaded_id: Option<SessionId>,
    pub(crate) loaded: Option<SessionRecord>,
    /// The last claim of a paused invocation.
    pub(crate) claim: Option<ClaimRequest>,
}

/// A [`StateStore`] in front of the one under test.
pub(crate) struct WatchedStore {
    inner: Arc<dyn StateStore>,
    faults: Faults,
    calls: Mutex<Calls>,
}

impl fmt::Debug for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedStore").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl WatchedStore {
    pub(crate) fn new(inner: Arc<dyn StateStore>, faults: Faults) -> Self {
        Self { inner, faults, calls: Mutex::default() }
    }

    /// The calls since the last time.
    pub(crate) fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.lock())
    }

    /// Writes a session record without being counted.
    pub(crate) async fn seed_session(&self, id: &SessionId, state: Map, version: String) -> Result<(), String> {
        let session = SessionWrite {
            session_id: id.clone(),
            save: Some((state, version)),
            expect: SessionExpectation::Any,
            lease: None,
            release: false,
        };
        let now = Timestamp::constant(1_799_999_999, 0);
        let commit = Commit {
            id: RandomIds.fresh(),
            now,
            session: Some(session),
            invocation: None,
            growing: GrowingLists::default(),
        };
        self.inner.commit(&commit).await.map_err(|error| error.to_string())
    }

    /// Reads a session record without being counted.
    pub(crate) async fn session(&self, id: &SessionId) -> Result<Option<SessionRecord>, String> {
        self.inner.load_session(id, None).await.map(|loaded| loaded.record).map_err(|error| error.to_string())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StateStore for WatchedStore {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        {
            let mut calls = self.lock();
            calls.session_loads += 1;
            calls.loaded_id = Some(id.clone());
        }
        self.faults.on_load()?;
        let loaded = self.inner.load_session(id, lease).await?;
        self.lock().loaded.clone_from(&loaded.record);
        Ok(loaded)
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.inner.delete_session(id).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        self.inner.list_sessions(filter, cursor).await
    }

    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.inner.load_invocation(id).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.lock().claim = Some(request.clone());
        self.inner.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        if commit.session.as_ref().is_some_and(|session| session.save.is_some()) {
            self.lock().session_saves += 1;
            self.faults.on_save()?;
        }
        if matches!(commit.invocation, Some(InvocationWrite::Suspend { .. })) {
            self.faults.on_suspend()?;
        }
        self.inner.commit(commit).await
    }

    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        self.inner.load_signal(id, now).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        self.inner.buffer_signal(id, signal).await
    }

    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        self.inner.list_pending(due_by, cursor).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError> {
        self.inner.glance(ids).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.inner.dead_claims(now).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.inner.pending_row(paused).await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.inner.list_parked(cursor).await
    }

    async fn sweep_position(&self, lane: &str) -> Result<Option<String>, StoreError> {
        self.inner.sweep_position(lane).await
    }

    async fn collect(&self, now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError> {
        self.inner.collect(now, cursor).await
    }

    async fn upkeep(&self, upkeep: &Upkeep) -> Result<(), StoreError> {
        self.inner.upkeep(upkeep).await
    }
}
