//! A store for one run, in memory: it keeps what a replay does, and nothing of it reaches any other store.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, InvocationId,
    InvocationRecord, InvocationSummary, InvocationWrite, Invocations, JournalEntry, LeaseRequest, LoadedSession, Map,
    Notes, Page, PausedInvocation, RuleEntries, RuleEntry, RuleIncarnation, RuleUpdate, SessionFilter, SessionId,
    SessionSummary, Sessions, ShapeId, SignalId, SignalRecord, Signals, StoreError, TurnStore,
};
use jiff::Timestamp;

/// What one commit of the run would have written.
#[derive(Clone, Debug, Default)]
pub(super) struct RunCommit {
    /// Entries that its nodes recorded.
    pub(super) entries: Vec<JournalEntry>,
    /// The state of the outermost graph; `None` where it is not told.
    pub(super) state: Option<Map>,
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct OneRun(Mutex<RunRecord>);

#[derive(Debug, Default)]
struct RunRecord {
    written: Vec<RunCommit>,
    paused: Option<PausedInvocation>,
}

impl OneRun {
    /// What was written so far.
    pub(super) fn written(&self) -> Vec<RunCommit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).written.clone()
    }

    /// The pause that was written last.
    pub(super) fn paused(&self) -> Option<PausedInvocation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).paused.clone()
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
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let entries = commit.journal.recorded.as_ref().map(|recorded| recorded.entries.clone()).unwrap_or_default();
        kept.written.push(RunCommit { entries, state });
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
