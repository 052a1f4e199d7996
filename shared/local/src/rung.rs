//! A store that tells the streams of its process what was appended.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_api::Bell;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Cancellation, ClaimOutcome, ClaimRequest, Collected, Commit, CommitError, Glance,
    InvocationId, InvocationRecord, LeaseRequest, LoadedSession, Page, ParkedRow, PausedInvocation, PendingRow,
    SessionFilter, SessionId, SessionSummary, SignalId, SignalRecord, StateStore, StoreError, Upkeep,
};
use jiff::Timestamp;

/// Does what the store within does, and rings for each stream that a commit appended to.
pub(crate) struct Rung {
    store: Arc<dyn StateStore>,
    bell: Bell,
}

impl Rung {
    pub(crate) fn new(store: Arc<dyn StateStore>, bell: Bell) -> Self {
        Self { store, bell }
    }
}

#[async_trait]
impl StateStore for Rung {
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.store.commit(commit).await?;
        commit.journal.appends.iter().for_each(|append| self.bell.ring(&append.stream));
        Ok(())
    }

    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        self.store.load_session(id, lease).await
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.store.delete_session(id).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        self.store.list_sessions(filter, cursor).await
    }

    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.store.load_invocation(id).await
    }

    async fn cancellation(&self, id: &InvocationId) -> Result<Option<Cancellation>, StoreError> {
        self.store.cancellation(id).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        self.store.load_signal(id, now).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        self.store.buffer_signal(id, signal).await
    }

    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        self.store.list_pending(due_by, cursor).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError> {
        self.store.glance(ids).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.store.pending_row(paused).await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.store.list_parked(cursor).await
    }

    async fn sweep_position(&self, lane: &str) -> Result<Option<String>, StoreError> {
        self.store.sweep_position(lane).await
    }

    async fn upkeep(&self, upkeep: &Upkeep) -> Result<(), StoreError> {
        self.store.upkeep(upkeep).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.store.dead_claims(now).await
    }

    async fn collect(&self, now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError> {
        self.store.collect(now, cursor).await
    }
}
