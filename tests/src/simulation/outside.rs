use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Event, InvocationId,
    InvocationRecord, Invocations, Journal, LeaseRequest, LoadedSession, Page, PendingRow, Records, Registration,
    RuleName, SessionFilter, SessionId, SessionSummary, Sessions, SignalId, SignalRecord, SignalState, Signals,
    Sleepers, StateStore, StoreError, Subscription,
};
use futures::FutureExt;
use jiff::Timestamp;

use super::dynamodb::Engine;
use super::intent::Intent;

use super::history::{Call, History};
use super::planted::{self, LyingStore, PlantedBug};
use super::services::Services;
use super::{Options, Store};
use crate::in_process::Body;

/// What is stored, for who wants to see it at once.
pub(crate) trait Truth: StateStore + Records {}

impl<T: StateStore + Records> Truth for T {}

/// Everything that outlives a process: the store, the services, and a witness of all that happens there.
pub(crate) struct Outside {
    /// The store in memory, where that is used.
    pub(crate) store: Arc<LyingStore>,
    /// The database, where that is used.
    pub(crate) database: Option<Engine>,
    /// Whichever of them is used.
    pub(crate) truth: Arc<dyn Truth>,
    /// The commits that have happened in the database.
    done: BTreeSet<String>,
    pub(crate) services: Services,
    pub(crate) history: History,
}

/// What `future`, which waits for nobody, comes to.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a store in memory answers at once")
}

impl Outside {
    /// An outside in which nothing has happened.
    pub(crate) fn new(options: &Options) -> Self {
        let store = Arc::new(LyingStore::new(options.planted));
        let database = (options.store == Store::DynamoDb).then(|| Engine::new(options.planted));
        let truth: Arc<dyn Truth> = match &database {
            Some(engine) => Arc::new(engine.truth()),
            None => store.clone(),
        };
        let services = Services::new(options.planted);
        let mut history = History::new(database.is_some());
        history.published.hasty = options.planted == Some(PlantedBug::ReadUnsettled);
        Self { store, database, truth, done: BTreeSet::new(), services, history }
    }

    /// Does a request to the database, and shows the witness the call that it completes.
    ///
    /// # Panics
    /// When there is no database.
    pub(crate) fn ask_dynamodb(
        &mut self,
        operation: &'static str,
        body: &[u8],
        intent: Option<&Intent>,
    ) -> (u16, Body) {
        let database = self.database.as_ref().expect("a run on the database");
        let answer = database.serve(operation, body);
        let writes = WRITES.contains(&operation);
        let done = answer.0 == 200;
        let truth = self.truth.clone();
        let apart = writes && !is_what_counts(operation, body);
        match intent {
            _ if !writes => {}
            _ if apart && done && operation == "DeleteItem" => self.history.saw_removal(),
            _ if apart => {}
            Some(Intent::Lease { session, request }) => {
                self.history.saw(&*truth, Call::Lease { session, request, granted: done });
            }
            Some(Intent::Claim { request }) => {
                let record = at_once(truth.load_invocation(&request.invocation_id)).ok().flatten();
                let granted = record.filter(|_| done).map(|record| ClaimOutcome::Granted(Box::new(record)));
                let outcome = granted.unwrap_or(ClaimOutcome::NotFound);
                self.history.saw(&*truth, Call::Claim { request, outcome: &outcome });
            }
            // The answer to a transaction that is sent again tells of the first time. A write of one item happens again.
            Some(Intent::Commit { commit })
                if done && !self.done.insert(commit.id.clone()) && operation == "TransactWriteItems" => {}
            Some(Intent::Commit { commit }) => self.history.saw(&*truth, Call::Commit { commit, done }),
            Some(Intent::Buffer { id, signal }) => {
                let state =
                    at_once(truth.load_signal(id, signal.received_at)).ok().flatten().map(|record| record.state);
                let parked = matches!(&state, Some(SignalState::Buffered(found)) if found == signal);
                let outcome = match done && parked {
                    true => BufferOutcome::Buffered { expires_at: signal.expires_at },
                    false => BufferOutcome::Changed,
                };
                self.history.saw(&*truth, Call::Buffer { id, signal, outcome: &outcome });
            }
            None => {}
        }
        answer
    }

    /// Takes `event` to whoever has a rule for it.
    pub(crate) fn publish(&mut self, event: Event) {
        self.services.publish(event, |id| self.history.waits_for(id));
    }

    /// Announces what it is time for.
    pub(crate) fn announce(&mut self, elapsed: Duration) {
        self.services.announce(elapsed, |id| self.history.waits_for(id));
    }

    /// Takes note of a wait.
    pub(crate) fn subscribe(&mut self, subscription: &Subscription) -> Registration {
        self.services.subscribe(subscription, |id| self.history.waits_for(id))
    }

    /// Removes a rule from the bus.
    pub(crate) fn remove_rule(&mut self, name: &RuleName) {
        self.services.remove_rule(name, |id| self.history.waits_for(id));
    }

    /// Whether there is a rule that nobody relies on.
    pub(crate) fn has_idle_rule(&self) -> bool {
        self.services.has_idle_rule(|id| self.history.waits_for(id))
    }

    /// Looks for damage that removals have done.
    pub(crate) fn look_for_damage(&mut self) {
        self.history.look_for_damage(&*self.truth);
    }

    /// Writes what was there before the run.
    ///
    /// # Panics
    /// When it cannot be written.
    pub(crate) fn know(&mut self, id: String, now: Timestamp, journal: Journal) {
        let commit = Commit { journal, ..Commit::new(id, now) };
        at_once(self.truth.commit(&commit)).expect("an empty store takes it");
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
            self.history.saw(&*self.store, Call::Lease { session: id, request, granted });
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
            self.history.saw(&*self.store, Call::Claim { request, outcome });
        }
        outcome
    }

    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        let result = at_once(self.store.commit(commit));
        self.history.saw(&*self.store, Call::Commit { commit, done: result.is_ok() });
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
            self.history.saw(&*self.store, Call::Buffer { id, signal, outcome });
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

/// The requests that write.
const WRITES: [&str; 4] = ["PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"];

/// Whether the request does what its call is for, and is not about what lies apart and is referred to. A transaction may hold
/// references to what lies apart, but is never about that.
pub(crate) fn is_what_counts(operation: &str, body: &[u8]) -> bool {
    WRITES.contains(&operation) && (operation == "TransactWriteItems" || !planted::lies_apart(body))
}
