//! The store of a case, watched: it counts what is asked of it and fails where the fixture says so.

mod backend;
mod checkpoints;
mod faults;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, GrowingLists, IdSource, InvocationWrite, Invocations,
    Journal, LeaseRequest, LoadedSession, Map, Page, SessionExpectation, SessionFilter, SessionId, SessionRecord,
    SessionSummary, SessionWrite, Sessions, StateStore, StoreError, TurnStore,
};
use dormouse_system::RandomIds;
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

/// The sessions and the commits of the store under test.
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
            save: Some((state.into(), version)),
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
            journal: Journal::default(),
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

    /// The store with this before it.
    pub(crate) fn turns(self: &Arc<Self>) -> TurnStore {
        TurnStore { sessions: self.clone(), commits: self.clone(), ..self.inner.clone().into() }
    }

    /// What is read of the invocations.
    pub(crate) fn invocations(&self) -> &dyn Invocations {
        &*self.inner
    }
}

#[async_trait]
impl Sessions for WatchedStore {
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
}

#[async_trait]
impl Commits for WatchedStore {
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
}
