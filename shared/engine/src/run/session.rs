use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    Category, Commit, CommitError, GrowingLists, InvocationWrite, Journal, Lease, LeaseRequest, LoadedSession, Map,
    SessionExpectation, SessionId, SessionRecord, SessionWrite, SharedMap, StepWritten, StoreError, StoredList, limits,
};
use serde_json::Value;

use super::body::{SaveSession, Saver};
use super::call::LeaseTerms;
use super::engine::{Engine, is_transient};
use super::journal::SavedEntries;
use super::rebase::rebase;
use crate::state::MergeFailure;
use crate::{CompiledGraph, EngineError, NodeError, SessionConcurrency, State, StateSchema, Update, ambient};

/// Number of times that a commit is carried over onto a newer session record before it gives up. Each time another turn got
/// further: of several in one session the slowest loses many times in a row.
const REBASE_ATTEMPTS: u32 = 64;

/// The session of a running invocation.
pub(crate) struct SessionRun {
    engine: Engine,
    graph: Arc<CompiledGraph>,
    session_id: SessionId,
    lease: Option<Lease>,
    known: Mutex<KnownRecord>,
}

/// Terms on which a session is leased.
#[derive(Clone, Copy)]
pub(super) struct SessionTerms<'t> {
    pub(super) lease: &'t LeaseTerms,
    /// The tenant in whose name.
    pub(super) begun_for: Option<&'t str>,
}

/// What the store has of a paused invocation beside its record.
pub(super) struct StoredBeside<'p> {
    /// The lists that it keeps in pieces.
    pub(super) lists: &'p [StoredList],
    /// The state with which the session was saved last, where that is an earlier one.
    pub(super) saved: Option<&'p Map>,
}

/// Save of a session as part of a commit.
pub(super) struct PendingSave<'s> {
    /// The state that is saved, if one is.
    pub(super) state: Option<&'s State>,
    /// True if a lease is given back.
    pub(super) release: bool,
    /// Entries that nodes have recorded.
    pub(super) journal: &'s Journal,
}

/// Knowledge of the invocation about the stored record.
#[derive(Clone, Default)]
struct KnownRecord {
    version: u64,
    /// The session state at that version, in the present schema version.
    state: Option<SharedMap>,
    /// The session state from which this invocation started; differs from `state` once another turn has saved.
    base: Option<SharedMap>,
    /// The lists of all these that the store keeps in pieces.
    stored: Vec<StoredList>,
    /// True if steps of the invocation were only noted since its session was saved.
    lags: bool,
}

impl SessionRun {
    /// Loads the session, if the graph persists sessions and the call names one; else no store is touched
    /// (sessions §3, §6.1).
    pub(super) async fn open(
        engine: &Engine,
        graph: &Arc<CompiledGraph>,
        session_id: Option<&SessionId>,
        terms: Option<SessionTerms<'_>>,
    ) -> Result<Option<Arc<Self>>, EngineError> {
        let (Some(_), Some(session_id)) = (graph.sessions(), session_id) else { return Ok(None) };
        let LoadedSession { record, lease, stored, .. } = load(engine, session_id, terms).await.map_err(load_failed)?;
        let session = Self {
            engine: engine.clone(),
            graph: graph.clone(),
            session_id: session_id.clone(),
            lease,
            known: Mutex::default(),
        };
        match session.migrated(record, stored) {
            Ok(known) => *session.lock() = known,
            Err(error) => {
                session.release().await;
                return Err(error);
            }
        }
        Ok(Some(Arc::new(session)))
    }

    /// The session of a resumed invocation, as it was written together with the pause, or before.
    ///
    /// # Errors
    /// Where no save may come in between: `session_write_conflict` when one did, since what runs now could not be
    /// saved; `session_load_failed`.
    pub(super) async fn of_pause(
        engine: &Engine,
        graph: &Arc<CompiledGraph>,
        paused: &dormouse_ports::PausedInvocation,
        stored: StoredBeside<'_>,
    ) -> Result<Option<Arc<Self>>, EngineError> {
        let (Some(policy), Some(session_id), Some(version)) =
            (graph.sessions(), paused.session_id.clone(), paused.session_version)
        else {
            return Ok(None);
        };
        let state = SharedMap::from(policy.kept_of(stored.saved.unwrap_or(paused.outermost_state())));
        let lags = stored.saved.is_some();
        let stored = stored.lists.to_vec();
        let known = KnownRecord { version, base: Some(state.clone()), state: Some(state), stored, lags };
        let engine = engine.clone();
        let graph = graph.clone();
        let session = Self { engine, graph, session_id, lease: None, known: Mutex::new(known) };
        // What saves nothing at its end can end, whoever has saved since.
        if policy.is_optimistic() && session.auto_saves() {
            session.check_untouched().await?;
        }
        Ok(Some(Arc::new(session)))
    }

    /// Checks that the stored record is the one that is known.
    async fn check_untouched(&self) -> Result<(), EngineError> {
        let known = self.version();
        let loaded = self.engine.ports().store.sessions.load_session(&self.session_id, None).await;
        let version = loaded.map_err(load_failed)?.record.map_or(0, |record| record.version);
        if version == known {
            return Ok(());
        }
        let message = format!(
            "the session is at version {version}, the pause was saved with version {known}; what runs now could not be \
             saved any more"
        );
        Err(EngineError::new(Category::SessionWriteConflict, message))
    }

    fn migrated(&self, record: Option<SessionRecord>, stored: Vec<StoredList>) -> Result<KnownRecord, EngineError> {
        let (Some(record), Some(policy)) = (record, self.graph.sessions()) else { return Ok(KnownRecord::default()) };
        let state = policy.migrate(record.state, &record.schema_version, self.graph.schema().version())?;
        let state = SharedMap::from(policy.project(state));
        let base = Some(state.clone());
        Ok(KnownRecord { version: record.version, base, state: Some(state), stored, lags: false })
    }

    pub(super) fn initial_state(&self, given: Map) -> Result<State, EngineError> {
        initial_state(self.graph.schema(), self.lock().state.as_deref(), given)
    }

    /// The version that was read or written last; 0 where there was none.
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// True if going on from `version`, which an invocation knew before it crashed, would undo what others have saved
    /// since. Where the last write wins it may.
    pub(super) fn is_ahead_of(&self, version: u64) -> bool {
        self.concurrency() != SessionConcurrency::LastWriteWins && self.version() != version
    }

    /// The version that the record will have after the next save.
    pub(super) fn next_version(&self) -> u64 {
        self.lock().version + 1
    }

    /// Knowledge about the lists of the state that only grow.
    pub(super) fn growing(&self) -> GrowingLists {
        GrowingLists { fields: self.graph.schema().growing(), stored: self.lock().stored.clone() }
    }

    pub(super) fn auto_saves(&self) -> bool {
        self.graph.sessions().is_some_and(|policy| !policy.without_auto_save)
    }

    pub(super) fn holds_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Gives the lease back, if there is one; a failure only means that the lease ends by itself. Whether it was given
    /// back: then no commit that gives it back has happened before, and none under it can happen any more.
    pub(super) async fn release(&self) -> bool {
        if self.lease.is_none() {
            return false;
        }
        let commit = Commit { session: Some(self.write(None, true)), ..self.engine.blank_commit() };
        match self.engine.ports().store.commits.commit(&commit).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    %error, session_id = %self.session_id,
                    "the worker could not give the session's lease back; it expires"
                );
                false
            }
        }
    }

    /// Commits `invocation` together with `save`. When the session was changed meanwhile and the policy allows it, the
    /// save is carried over onto the newer record and tried again. Returns the version that `invocation` was given: the
    /// one of the record that holds `state`. Of a save that was carried over it is the one before, so that a turn that
    /// goes on from `state` finds a newer record and is carried over in turn. The record of a durable step that was only
    /// noted is the one before, too.
    pub(super) async fn commit(
        &self,
        save: PendingSave<'_>,
        invocation: impl Fn(u64) -> Option<InvocationWrite>,
    ) -> Result<u64, CommitError> {
        let PendingSave { state, release, journal } = save;
        let mine = state.map(|state| self.project(state));
        for _ in 0..REBASE_ATTEMPTS {
            let saved = mine.as_ref().map(|mine| self.rebased(mine));
            let version = if saved == mine { self.next_version() } else { self.lock().version };
            let write = self.write(saved, release);
            let commit = Commit {
                session: Some(write),
                invocation: invocation(version),
                journal: journal.clone(),
                growing: self.growing(),
                ..self.engine.blank_commit()
            };
            let written = if matches!(commit.invocation, Some(InvocationWrite::Progress { .. })) {
                self.engine.write_step(&commit).await
            } else {
                self.engine.write(&commit).await.map(|()| StepWritten::Whole)
            };
            match written {
                Ok(StepWritten::Noted) => {
                    let mut known = self.lock();
                    known.lags = true;
                    return Ok(known.version);
                }
                Ok(StepWritten::Whole) => {
                    if let Some((state, _)) = commit.session.and_then(|session| session.save) {
                        let mut known = self.lock();
                        known.version += 1;
                        (known.state, known.base, known.lags) = (Some(state), mine, false);
                    }
                    return Ok(version);
                }
                Err(CommitError::SessionConflict) if self.concurrency() == SessionConcurrency::Rebase => {
                    self.reload().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(CommitError::SessionConflict)
    }

    fn write(&self, state: Option<SharedMap>, release: bool) -> SessionWrite {
        let expect = match (self.concurrency(), &state) {
            (SessionConcurrency::LastWriteWins, _) | (_, None) => SessionExpectation::Any,
            (SessionConcurrency::Optimistic | SessionConcurrency::Rebase, Some(_)) => {
                SessionExpectation::Version(self.lock().version)
            }
        };
        SessionWrite {
            session_id: self.session_id.clone(),
            save: state.map(|state| (state, self.graph.schema().version().to_owned())),
            expect,
            lease: self.lease.clone(),
            release: release && self.lease.is_some(),
        }
    }

    fn concurrency(&self) -> SessionConcurrency {
        self.graph.sessions().map(|policy| policy.concurrency).unwrap_or_default()
    }

    fn project(&self, state: &State) -> SharedMap {
        self.graph.sessions().map_or_else(SharedMap::default, |policy| policy.shared_of(state))
    }

    fn rebased(&self, mine: &SharedMap) -> SharedMap {
        let known = self.lock();
        match (&known.base, &known.state) {
            (base, Some(theirs)) if base.as_ref() != Some(theirs) => {
                let is_by_entry = |name: &str| self.graph.sessions().is_some_and(|policy| policy.is_by_entry(name));
                rebase(self.graph.schema(), is_by_entry, [base.as_deref().unwrap_or(&Map::new()), mine, theirs]).into()
            }
            _ => mine.clone(),
        }
    }

    /// Reads the newest record, keeping the base and what is known to be stored of it.
    async fn reload(&self) -> Result<(), CommitError> {
        let loaded = self.engine.ports().store.sessions.load_session(&self.session_id, None).await?;
        let newest =
            self.migrated(loaded.record, loaded.stored).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let mut known = self.lock();
        known.stored.extend(newest.stored);
        (known.version, known.state) = (newest.version, newest.state);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, KnownRecord> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state in which an invocation starts: defaults, then the loaded session, then what the caller gave. Where a
/// session was loaded, given fields go through their reducers, so that a chat passes only its new message.
///
/// # Errors
/// Those of what was given; where what the session holds does not fit the schema, that, with the stored state.
pub(super) fn initial_state(schema: &StateSchema, loaded: Option<&Map>, given: Map) -> Result<State, EngineError> {
    begun(schema, loaded, given).map_err(|error| loaded.and_then(|loaded| misfit(schema, loaded)).unwrap_or(error))
}

fn begun(schema: &StateSchema, loaded: Option<&Map>, given: Map) -> Result<State, EngineError> {
    let invalid = |reason: String| EngineError::new(Category::StateValidationError, reason);
    let mut state = stored_state(schema, loaded);
    let is_loaded = |name: &str| loaded.is_some_and(|loaded| loaded.contains_key(name));
    let (merged, set): (Map, Map) = given.into_iter().partition(|(name, _)| is_loaded(name));
    for (name, value) in set {
        state.set(&name.into(), Arc::new(value));
    }
    schema.merge(&mut state, Update::from(merged)).map_err(|failure| match failure {
        MergeFailure::Undeclared(reason) => invalid(reason),
        MergeFailure::Reducer { field, reducer, reason } => {
            EngineError::new(Category::ReducerError, format!("field `{field}`, reducer {reducer}: {reason}"))
                .detail("field", &*field)
                .detail("reducer", &*reducer)
        }
    })?;
    schema.validate(&state).map_err(invalid)?;
    Ok(state)
}

fn stored_state(schema: &StateSchema, loaded: Option<&Map>) -> State {
    let mut state = schema.defaults();
    for (name, value) in loaded.into_iter().flatten() {
        state.set(&name.as_str().into(), Arc::new(value.clone()));
    }
    state
}

/// The error of a session that holds what does not fit the schema: only a turn that gives those fields anew, or what makes
/// them fit, can begin with it. Fields that lack a fitting default are left to who gives them.
fn misfit(schema: &StateSchema, loaded: &Map) -> Option<EngineError> {
    let stored = stored_state(schema, Some(loaded));
    let reason = schema.validate(&stored).err()?;
    let is_refused =
        |name: &str, value: &Value| schema.get(name).is_some_and(|(_, field)| !field.field_type.admits(value));
    let fits_empty = schema.validate(&schema.defaults()).is_ok();
    (fits_empty || loaded.iter().any(|(name, value)| is_refused(name, value))).then(|| {
        let message = format!(
            "what the session holds does not fit the state of the graph: {reason}; where that has changed, give the graph another \
             version, and its sessions a migration from the one before"
        );
        EngineError::new(Category::StateValidationError, message).with_state(&stored)
    })
}

/// Reads the session, and leases it on `terms`. A lease that lasts longer than any turn needs was given by a clock that
/// is wrong, and is passed over; it is compared with the present once it was read.
async fn load(engine: &Engine, id: &SessionId, terms: Option<SessionTerms<'_>>) -> Result<LoadedSession, StoreError> {
    let store = &engine.ports().store;
    let clock = &engine.ports().clock;
    let Some(SessionTerms { lease: terms, begun_for }) = terms else {
        return store.sessions.load_session(id, None).await;
    };
    let (owner, begun_for) = (terms.owner.clone(), begun_for.map(str::to_owned));
    let now = clock.now();
    let request = LeaseRequest { owner, now, until: now + terms.duration, past: None, begun_for };
    match store.sessions.load_session(id, Some(&request)).await {
        Err(StoreError::LeaseHeld { until }) if limits::lasts_too_long(until, clock.now()) => {
            let now = clock.now();
            let request = LeaseRequest { now, until: now + terms.duration, past: Some(until), ..request };
            store.sessions.load_session(id, Some(&request)).await
        }
        loaded => loaded,
    }
}

fn load_failed(error: StoreError) -> EngineError {
    let category = match error {
        StoreError::LeaseHeld { .. } => Category::SessionLeaseHeld,
        StoreError::Unavailable(_)
        | StoreError::Denied(_)
        | StoreError::Corrupt(_)
        | StoreError::TooLarge { .. }
        | StoreError::TooComplex { .. }
        | StoreError::Invalid(_) => Category::SessionLoadFailed,
    };
    EngineError::new(category, error.to_string()).transient_if(is_transient(&error))
}

/// The error of a save that did not happen, after the graph had ended or in its midst.
pub(super) fn save_failed(error: CommitError) -> EngineError {
    uncommitted(error, Category::SessionSaveFailed)
}

/// The error of a commit that did not happen: a lost race for the session, or else `otherwise`.
pub(super) fn uncommitted(error: CommitError, otherwise: Category) -> EngineError {
    let category = match &error {
        CommitError::SessionConflict | CommitError::LeaseLost => Category::SessionWriteConflict,
        CommitError::Store(StoreError::TooLarge { .. } | StoreError::TooComplex { .. }) => Category::RequestTooLarge,
        CommitError::Unknown(_) => Category::OutcomeUnknown,
        CommitError::SignalTaken { .. } => Category::SignalIdInUse,
        CommitError::InvocationConflict
        | CommitError::SignalBuffered(_)
        | CommitError::Journal(_)
        | CommitError::Said(_)
        | CommitError::Store(_) => otherwise,
    };
    let transient = match &error {
        CommitError::Store(error) => is_transient(error),
        CommitError::Journal(_) | CommitError::Said(_) | CommitError::Unknown(_) => true,
        CommitError::SessionConflict
        | CommitError::LeaseLost
        | CommitError::InvocationConflict
        | CommitError::SignalBuffered(_)
        | CommitError::SignalTaken { .. } => false,
    };
    EngineError::new(category, error.to_string()).transient_if(transient)
}

#[async_trait]
impl SaveSession for SessionRun {
    async fn save(&self, mut state: State, update: Update) -> Result<(), NodeError> {
        if let Err(MergeFailure::Undeclared(reason) | MergeFailure::Reducer { reason, .. }) =
            self.graph.schema().merge(&mut state, update)
        {
            return Err(NodeError::new(reason).with_category(Category::SessionSaveFailed));
        }
        let Some(mut entries) = SavedEntries::take() else { return Err(outside_of_nodes()) };
        // What takes the invocation over has to know that the session has its noted steps by then.
        let lags = self.lock().lags;
        let (journal, hold) = entries.write(lags);
        let save = PendingSave { state: Some(&state), release: false, journal: &journal };
        let saved = self.commit(save, |_| hold.clone()).await;
        match &saved {
            Ok(_) => entries.written(),
            // Where entries may have been written, the run does not go on.
            Err(error) if error.may_be_written() => drop(entries),
            Err(_) => entries.give_back(),
        }
        let error = saved.map(|_| ()).map_err(save_failed);
        error.map_err(|error| NodeError::new(error.message()).with_category(error.category().clone()))
    }
}

/// Saves the session from inside a node, as it would be after `update` (sessions §6.2). Without a session or a graph
/// that persists one, it does nothing.
///
/// # Errors
/// `session_save_failed` or `session_write_conflict`; the node may swallow it, try again or raise it. In a subgraph,
/// where no session is visible (§9.1), and outside of a node: a plain error.
pub async fn save_session(update: &Update) -> Result<(), NodeError> {
    let saver = ambient::look(|scope| scope.body.as_ref().map(|body| body.saver.clone()));
    let Some(saver) = saver.flatten() else {
        return Err(outside_of_nodes());
    };
    match saver {
        Saver::Session(session, state) => session.save(state, update.clone()).await,
        Saver::Unbound => Ok(()),
        Saver::Subgraph => Err(NodeError::new("a session is not visible inside a subgraph")),
    }
}

fn outside_of_nodes() -> NodeError {
    NodeError::new("save_session() was called outside of a node")
}
