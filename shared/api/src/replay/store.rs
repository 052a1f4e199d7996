//! A store for one run, in memory: it keeps what a replay does, and nothing of it reaches any other store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Hearing, InvocationId,
    InvocationRecord, InvocationSummary, InvocationWrite, Invocations, JournalEntry, LeaseRequest, LoadedSession, Map,
    Notes, Page, PastEntry, PausedInvocation, ReplayMaterial, RuleEntries, RuleEntry, RuleIncarnation, RuleUpdate,
    Said, SessionFilter, SessionId, SessionSummary, Sessions, ShapeId, SignalId, SignalRecord, Signals, StoreError,
    TurnStore,
};
use jiff::Timestamp;

use crate::conversation::{heard_entry, heard_then, joined, may_hear_at, tells_of_hearing};

/// Kind of what is missing where a run heard something that is not kept.
const HEARD_KIND: &str = "message";

/// What one commit of the run would have written.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCommit {
    /// Entries that its nodes recorded.
    pub(super) entries: Vec<JournalEntry>,
    /// The state of the outermost graph; `None` where it is not told.
    pub(super) state: Option<Map>,
    /// Number of the newest messages of that state that clients said while it ran.
    pub(super) heard: usize,
}

/// The store.
#[derive(Debug)]
pub(super) struct OneRun {
    material: Arc<ReplayMaterial>,
    record: Mutex<RunRecord>,
}

#[derive(Debug, Default)]
struct RunRecord {
    written: Vec<RunCommit>,
    paused: Option<PausedInvocation>,
}

impl OneRun {
    /// The store of a run on `material`.
    pub(super) fn on(material: Arc<ReplayMaterial>) -> Self {
        Self { material, record: Mutex::default() }
    }

    /// What was written so far.
    pub(super) fn written(&self) -> Vec<RunCommit> {
        self.lock().written.clone()
    }

    /// The pause that was written last.
    pub(super) fn paused(&self) -> Option<PausedInvocation> {
        self.lock().paused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, RunRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the run heard then where it has come to by `commit` with `recorded`, behind `before` other entries: behind all of it,
    /// or in the place of its end.
    fn said(&self, before: usize, recorded: &[JournalEntry], commit: &Commit) -> Option<Said> {
        let at = before + recorded.len();
        let is_it = |past: &&PastEntry| tells_of_hearing(past) && may_hear_at(past, commit);
        let past = |at: usize| self.material.entries.get(at).filter(is_it);
        let past = past(at).or_else(|| past(at.checked_sub(1).filter(|_| !recorded.is_empty())?))?;
        let said = heard_then(past);
        if said.is_none() {
            self.material.lack(HEARD_KIND, past.event_id.clone(), "what was said to the run was too much to be kept");
        }
        said
    }
}

/// The ports of `run` for an engine.
pub(super) fn ports_of(run: &Arc<OneRun>) -> TurnStore {
    TurnStore {
        sessions: run.clone(),
        invocations: run.clone(),
        signals: run.clone(),
        commits: run.clone(),
        rules: run.clone(),
        notes: run.clone(),
    }
}

#[async_trait]
impl Commits for OneRun {
    /// There is one worker, which holds the claim.
    async fn claim(&self, _: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        Ok(ClaimOutcome::NotFound)
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let mut kept = self.lock();
        let mut entries = commit.journal.recorded.as_ref().map(|recorded| recorded.entries.clone()).unwrap_or_default();
        let Hearing { is_open, heard } = &commit.journal.hearing;
        let before = kept.written.iter().map(|written| written.entries.len()).sum();
        if *is_open
            && heard.is_empty()
            && let Some(said) = self.said(before, &entries, commit)
        {
            return Err(CommitError::Said(Box::new(said)));
        }
        entries.extend(heard_entry(commit));
        let state = match &commit.invocation {
            Some(InvocationWrite::Suspend { paused, .. } | InvocationWrite::Progress { paused, .. }) => {
                kept.paused = Some((**paused).clone());
                Some(paused.outermost_state().clone())
            }
            Some(InvocationWrite::Complete { state, .. } | InvocationWrite::Conclude { state, .. }) => {
                Some(state.clone())
            }
            Some(
                InvocationWrite::Accept { .. }
                | InvocationWrite::Deliver { .. }
                | InvocationWrite::Fail { .. }
                | InvocationWrite::PutAside { .. }
                | InvocationWrite::Cancel { .. }
                | InvocationWrite::CancelBeforeStart { .. }
                | InvocationWrite::Advance { .. }
                | InvocationWrite::Answer { .. }
                | InvocationWrite::Release { .. }
                | InvocationWrite::AssertClaimed { .. }
                | InvocationWrite::Keep { .. }
                | InvocationWrite::Retry { .. },
            )
            | None => None,
        };
        kept.written.push(RunCommit { entries, state, heard: joined(heard).count() });
        Ok(())
    }
}

#[async_trait]
impl Invocations for OneRun {
    async fn load_invocation(&self, _: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        Ok(None)
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        Ok(vec![None; ids.len()])
    }
}

#[async_trait]
impl Sessions for OneRun {
    /// The replay is bound to no session.
    async fn load_session(&self, _: &SessionId, _: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        Err(outside("a session"))
    }

    async fn delete_session(&self, _: &SessionId) -> Result<(), StoreError> {
        Err(outside("a session"))
    }

    async fn list_sessions(&self, _: &SessionFilter, _: Option<&str>) -> Result<Page<SessionSummary>, StoreError> {
        Err(outside("sessions"))
    }
}

#[async_trait]
impl Signals for OneRun {
    async fn load_signal(&self, _: &SignalId, _: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        Ok(None)
    }

    async fn buffer_signal(&self, _: &SignalId, _: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        Err(outside("a signal"))
    }
}

#[async_trait]
impl RuleEntries for OneRun {
    async fn touch_rule(&self, _: &ShapeId, _: &RuleIncarnation, _: Timestamp) -> Result<RuleEntry, StoreError> {
        Err(outside("a rule"))
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        Ok(Vec::new())
    }

    async fn update_rule(&self, _: &RuleUpdate) -> Result<(), StoreError> {
        Err(outside("a rule"))
    }
}

#[async_trait]
impl Notes for OneRun {
    async fn note(&self, _: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    async fn keep_note(&self, _: &str, _: Option<&str>, _: Option<Timestamp>) -> Result<(), StoreError> {
        Err(outside("a note"))
    }
}

fn outside(what: &str) -> StoreError {
    StoreError::Denied(format!("a replay uses nothing but what was recorded, and {what} was not"))
}
