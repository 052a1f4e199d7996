use std::sync::Arc;
use std::sync::Mutex;

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Diagnostics, Garbage,
    GcReport, IndexRepair, InvocationId, InvocationRecord, InvocationSummary, Invocations, LeaseRequest, LoadedSession,
    Notes, Page, ParkedRow, PausedInvocation, PendingRow, PutAside, RuleEntries, RuleEntry, RuleIncarnation,
    RuleUpdate, SessionFilter, SessionId, SessionSummary, Sessions, ShapeId, SignalId, SignalRecord, Signals, Sleepers,
    StateStore, StoreError,
};
use jiff::Timestamp;

use crate::lock;

/// Effect on one call of a [`FaultyStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the call takes effect: the call never ends.
    DieBefore,
    /// The process dies after the call took effect: the call never ends.
    DieAfter,
    /// The call fails as unavailable and takes no effect.
    FailBefore,
    /// The call takes effect, but its answer is lost and reported as unavailable; of a commit, as unknown.
    FailAfter,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 4] = [Self::DieBefore, Self::DieAfter, Self::FailBefore, Self::FailAfter];
}

/// A store that breaks at one chosen call and works at all others.
pub struct FaultyStore {
    inner: Arc<dyn StateStore>,
    plan: Mutex<PlannedFault>,
}

#[derive(Default)]
struct PlannedFault {
    calls: usize,
    at: Option<(usize, Fault)>,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyStore").field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// A store that breaks nothing and counts its calls.
    pub fn sound(inner: Arc<dyn StateStore>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// A store that meets `fault` at its call number `call`, from 0.
    pub fn broken_at(inner: Arc<dyn StateStore>, call: usize, fault: Fault) -> Self {
        Self { inner, plan: Mutex::new(PlannedFault { calls: 0, at: Some((call, fault)) }) }
    }

    /// Number of calls so far.
    pub fn calls(&self) -> usize {
        lock(&self.plan).calls
    }

    /// True if the chosen call has come.
    pub fn has_struck(&self) -> bool {
        let plan = lock(&self.plan);
        plan.at.is_some_and(|(at, _)| plan.calls > at)
    }

    fn next(&self) -> Option<Fault> {
        let mut plan = lock(&self.plan);
        let call = plan.calls;
        plan.calls += 1;
        plan.at.filter(|(at, _)| *at == call).map(|(_, fault)| fault)
    }

    async fn meet<T, E: From<StoreError>>(&self, call: impl Future<Output = Result<T, E>> + Send) -> Result<T, E> {
        self.suffer(self.next(), call).await
    }

    async fn suffer<T, E: From<StoreError>>(
        &self,
        fault: Option<Fault>,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        let lost = || Err(StoreError::Unavailable("an injected fault".to_owned()).into());
        match fault {
            None => call.await,
            Some(Fault::FailBefore) => lost(),
            Some(Fault::DieBefore) => futures::future::pending().await,
            Some(Fault::FailAfter) => {
                let _ = call.await;
                lost()
            }
            Some(Fault::DieAfter) => {
                let _ = call.await;
                futures::future::pending().await
            }
        }
    }
}

#[async_trait]
impl Sessions for FaultyStore {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        self.meet(self.inner.load_session(id, lease)).await
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.meet(self.inner.delete_session(id)).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        self.meet(self.inner.list_sessions(filter, cursor)).await
    }
}

#[async_trait]
impl Invocations for FaultyStore {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.meet(self.inner.load_invocation(id)).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        self.meet(self.inner.glance(ids)).await
    }
}

#[async_trait]
impl Signals for FaultyStore {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        self.meet(self.inner.load_signal(id, now)).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        self.meet(self.inner.buffer_signal(id, signal)).await
    }
}

#[async_trait]
impl Commits for FaultyStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.meet(self.inner.claim(request)).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        match self.next() {
            Some(Fault::FailAfter) => {
                let _ = self.inner.commit(commit).await;
                Err(CommitError::Unknown("an injected fault".to_owned()))
            }
            fault => self.suffer(fault, self.inner.commit(commit)).await,
        }
    }
}

#[async_trait]
impl Sleepers for FaultyStore {
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        self.meet(self.inner.list_pending(due_by, cursor)).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.meet(self.inner.pending_row(paused)).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.meet(self.inner.dead_claims(now)).await
    }

    async fn put_aside(&self) -> Result<PutAside, StoreError> {
        self.meet(self.inner.put_aside()).await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.meet(self.inner.list_parked(cursor)).await
    }

    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        self.meet(self.inner.repair(repair)).await
    }
}

#[async_trait]
impl RuleEntries for FaultyStore {
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        self.meet(self.inner.touch_rule(shape, fresh, now)).await
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        self.meet(self.inner.rule_entries()).await
    }

    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        self.meet(self.inner.update_rule(update)).await
    }
}

#[async_trait]
impl Notes for FaultyStore {
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.meet(self.inner.note(name)).await
    }

    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError> {
        self.meet(self.inner.keep_note(name, text, until)).await
    }
}

#[async_trait]
impl Garbage for FaultyStore {
    async fn collect_garbage(&self, now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError> {
        self.meet(self.inner.collect_garbage(now, cursor)).await
    }
}

impl Diagnostics for FaultyStore {}
