use std::sync::Arc;

use async_trait::async_trait;
use dormouse_aws::DynamoDbStateStore;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, InvocationStatus,
    LeaseRequest, LoadedSession, Page, SessionFilter, SessionId, SessionSummary, Sessions, SignalId, SignalRecord,
    Signals, StoreError, TurnStore,
};
use jiff::Timestamp;

use super::intent::Intent;
use super::sim_ports::SimPorts;

/// The store of a process whose every request is a ticket; each is known by the call that it is for.
pub(crate) struct Observed {
    pub(crate) store: DynamoDbStateStore,
    pub(crate) sim_ports: Arc<SimPorts>,
}

impl From<Observed> for TurnStore {
    fn from(observed: Observed) -> Self {
        let store = Arc::new(observed.store.clone());
        let observed = Arc::new(observed);
        Self { sessions: observed.clone(), signals: observed.clone(), commits: observed, ..store.into() }
    }
}

#[async_trait]
impl Sessions for Observed {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        let Some(lease) = lease else { return self.store.load_session(id, None).await };
        let request = LeaseRequest { until: self.sim_ports.end(lease.until), ..lease.clone() };
        let intent = Intent::Lease { session: id.clone(), request: request.clone() };
        self.sim_ports.within(intent, self.store.load_session(id, Some(&request))).await
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
}

#[async_trait]
impl Commits for Observed {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let request = ClaimRequest { until: self.sim_ports.end(request.until), ..request.clone() };
        let outcome =
            self.sim_ports.within(Intent::Claim { request: request.clone() }, self.store.claim(&request)).await;
        if let Ok(ClaimOutcome::Granted(record)) = &outcome
            && let InvocationStatus::Resuming(claim) = &record.status
            && claim.owner != request.owner
        {
            let id = &request.invocation_id;
            let owner = &claim.owner;
            self.sim_ports
                .accuse("one claim at a time", format!("{id} is claimed by {owner}, and was granted again"))
                .await;
        }
        outcome
    }

    /// A bug may write it in two halves.
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let halves = super::planted::torn(self.sim_ports.planted(), commit);
        let (first, second) = halves.map_or_else(|| (commit.clone(), None), |(first, second)| (first, Some(second)));
        for half in std::iter::once(first).chain(second) {
            self.sim_ports.within(Intent::Commit { commit: Box::new(half.clone()) }, self.store.commit(&half)).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Signals for Observed {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        self.store.load_signal(id, now).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        let intent = Intent::Buffer { id: id.clone(), signal: signal.clone() };
        self.sim_ports.within(intent, self.store.buffer_signal(id, signal)).await
    }
}
