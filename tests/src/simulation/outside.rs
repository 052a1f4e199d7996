use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, GrowingLists, InvocationId,
    InvocationRecord, Journal, LeaseRequest, LoadedSession, Page, PendingRow, SessionFilter, SessionId, SessionSummary,
    SignalId, SignalRecord, StateStore, StoreError,
};
use futures::FutureExt;
use jiff::Timestamp;

use super::planted::LyingStore;
use super::services::Services;
use super::witness::{Call, Witness};

/// Everything that outlives a process: the store, the services, and a witness of all that happens there.
pub(crate) struct Outside {
    pub(crate) store: LyingStore,
    pub(crate) services: Services,
    pub(crate) witness: Witness,
}

/// What `future`, which waits for nobody, comes to.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a store in memory answers at once")
}

impl Outside {
    /// Writes what was there before the run.
    ///
    /// # Panics
    /// When it cannot be written.
    pub(crate) fn know(&mut self, id: String, now: Timestamp, journal: Journal) {
        let commit = Commit { id, now, session: None, invocation: None, journal, growing: GrowingLists::default() };
        at_once(self.store.commit(&commit)).expect("an empty store takes it");
    }
}

/// The calls on the store. Those that change something are told to the witness.
impl Outside {
    pub(crate) fn load_session(
        &mut self,
        id: &SessionId,
        lease: Option<&LeaseRequest>,
    ) -> Result<LoadedSession, StoreError> {
        let loaded = at_once(self.store.load_session(id, lease));
        if let Some(request) = lease {
            let granted = loaded.as_ref().is_ok_and(|loaded| loaded.lease.is_some());
            self.witness.saw(&self.store, Call::Lease { session: id, request, granted });
        }
        loaded
    }

    pub(crate) fn delete_session(&mut self, id: &SessionId) -> Result<(), StoreError> {
        at_once(self.store.delete_session(id))
    }

    pub(crate) fn list_sessions(
        &mut self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        at_once(self.store.list_sessions(filter, cursor))
    }

    pub(crate) fn load_invocation(&mut self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        at_once(self.store.load_invocation(id))
    }

    pub(crate) fn claim(&mut self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let outcome = at_once(self.store.claim(request));
        if let Ok(outcome) = &outcome {
            self.witness.saw(&self.store, Call::Claim { request, outcome });
        }
        outcome
    }

    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        let result = at_once(self.store.commit(commit));
        self.witness.saw(&self.store, Call::Commit { commit, done: result.is_ok() });
        result
    }

    pub(crate) fn load_signal(&mut self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        at_once(self.store.load_signal(id, now))
    }

    pub(crate) fn buffer_signal(
        &mut self,
        id: &SignalId,
        signal: &BufferedSignal,
    ) -> Result<BufferOutcome, StoreError> {
        let outcome = at_once(self.store.buffer_signal(id, signal));
        if let Ok(outcome) = &outcome {
            self.witness.saw(&self.store, Call::Buffer { id, signal, outcome });
        }
        outcome
    }

    pub(crate) fn list_pending(
        &mut self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        at_once(self.store.list_pending(due_by, cursor))
    }
}
