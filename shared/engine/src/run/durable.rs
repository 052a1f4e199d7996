//! Durable steps: the outcome of a node is committed before the next one runs, and the run goes on.
//!
//! A worker that takes the invocation over after a crash goes on behind the last of them. The commit changes the item
//! of the invocation and what its lists have grown by, in one request; its pause, its signals and its pending row stay.
//! Finished positions before it are forgotten: the record stays as small as at the first step.
//!
//! An invocation whose id others know is claimed before its first node runs: of two workers that are given the same fresh
//! turn at once only one makes its first step.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    Category, Claim, Commit, CommitError, Due, DueAction, Hearing, InvocationRecord, InvocationStatus, InvocationWrite,
    Journal, Map, PausedInvocation, ProgressFrom, Said, WakePlan,
};

use super::call::{AfterError, Outcome, Suspended};
use super::exit::{Claimed, Exit, Own, Tenure};
use super::persist::DEFAULT_CLAIM;
use super::record::{Run, RunContext};
use super::session::{PendingSave, uncommitted};
use super::walk::Walk;
use crate::ambient::{TurnTime, turn_time};
use crate::{EngineError, State, Update};

/// A durable node of the outermost graph that completed.
pub(crate) struct StepEnd {
    pub(super) node: Arc<str>,
    /// The state with its update.
    pub(super) state: State,
    /// The node that its edge chose.
    pub(super) next: usize,
    /// What was said to the run meanwhile, as far as it is in the state.
    pub(super) heard: Vec<Said>,
}

/// A durable node of the outermost graph that completed and leads to the end.
pub(crate) struct LastStep {
    pub(super) node: Arc<str>,
    /// The state with its update.
    pub(super) state: State,
}

/// What follows the last step of a run.
pub(super) enum AfterLast {
    /// The run has ended.
    Ended(Outcome),
    /// Something was said to it, and it goes on: the step is not committed yet.
    GoesOn(StepEnd),
}

/// What follows a durable step.
pub(super) enum AfterStep {
    /// This worker goes on.
    GoOn { state: State, next: usize },
    /// Its time is over; another one goes on.
    HandedOver(Outcome),
}

impl Exit<'_> {
    /// Claims an invocation of which nothing is stored, before any of its nodes runs. Whoever takes the claim over begins
    /// anew, with the input `given`.
    ///
    /// # Errors
    /// `suspension_persistence_failed` when something is stored under its id by now; those of any commit.
    pub(super) async fn begin(&mut self, given: Map) -> Result<(), EngineError> {
        let Tenure::Own(own) = &self.tenure else { return Ok(()) };
        let RunContext { engine, run, .. } = self.at;
        let mut claimed = first_claim(own, self.at);
        claimed.paused.state = given.into();
        claimed.paused.metadata = run.view.identity().metadata.clone();
        claimed.paused.trace_context = run.identity.trace_context.clone();
        let paused = Box::new(claimed.paused.clone());
        let claim = Some(claimed.claim.clone());
        let invocation = Some(InvocationWrite::Progress { paused, from: ProgressFrom::Fresh, claim });
        match engine.write(&Commit { invocation, ..engine.blank_commit() }).await {
            Ok(()) => {
                run.journal.hold_on(claimed.held());
                self.tenure = Tenure::Claimed(Box::new(claimed));
                Ok(())
            }
            Err(error) => Err(self.not_progressed(Box::new(claimed), error).await),
        }
    }

    /// The error of a commit that was to give it the claim of `claimed`. Where that may have happened, it is left to the
    /// worker that takes the claim over.
    async fn not_progressed(&mut self, claimed: Box<Claimed>, error: CommitError) -> EngineError {
        if error.may_be_written() {
            self.tenure = Tenure::Claimed(claimed);
        }
        self.at.run.watch.explain(error, failed).await
    }

    /// Commits `step`; beyond `yields_at` on the monotonic clock, or at once where the turn is too short for its graph, the
    /// claim is left to another worker.
    /// Where something was said to the run meanwhile that it may hear, the step takes that in first.
    pub(super) async fn step(
        &mut self,
        mut step: StepEnd,
        yields_at: Option<Duration>,
    ) -> Result<AfterStep, EngineError> {
        let RunContext { engine, graph, run } = self.at;
        let keeps = run.journal.takes_keeping();
        let is_short = graph.leaves_short_turns() && turn_time().is_some_and(TurnTime::is_short);
        let yields = !keeps && yields_at.is_some_and(|at| is_short || engine.ports().clock.monotonic() >= at);
        run.forget_earlier_positions();
        let mut claimed = self.tenure.claimed(self.at);
        let from = match &self.tenure {
            Tenure::Own(_) => ProgressFrom::Fresh,
            Tenure::Claimed(_) => ProgressFrom::Claimed(claimed.claim.owner.clone()),
        };
        claimed.claim = Claim { payload: Map::new(), attempts: 1, taken_over: false, ..claimed.claim };
        let kept = (!yields).then(|| claimed.claim.clone());
        loop {
            step.state.keep_items(graph.schema().growing());
            claimed.paused = progressed(self.at, claimed.paused, &step);
            let change = self.hearing(&step.node, &step.state)?;
            let hearing = Hearing { is_open: change.is_some(), heard: step.heard.clone() };
            let (from, claim) = (from.clone(), kept.clone());
            let progress = StepProgress { paused: &claimed.paused, from, claim, hearing };
            match (write(self.at, &step.state, progress).await, change) {
                (Ok(version), _) => {
                    claimed.paused.session_version = version;
                    break;
                }
                (Err(CommitError::Said(said)), Some(change)) => self.hear(&mut step, *said, change)?,
                (Err(error), _) => return Err(self.not_progressed(claimed, error).await),
            }
        }
        run.journal.completed().take();
        if yields {
            return Ok(AfterStep::HandedOver(handed_over(run, *claimed, step.state)));
        }
        run.journal.hold_on(claimed.held());
        self.tenure = Tenure::Claimed(claimed);
        Ok(AfterStep::GoOn { state: step.state, next: step.next })
    }

    /// Ends the run behind its last step, unless something was said to it meanwhile that it may hear: then it goes on.
    pub(super) async fn last_step(&mut self, last: LastStep) -> Result<AfterLast, EngineError> {
        let LastStep { node, state } = last;
        let change = self.hearing(&node, &state)?;
        let hearing = Hearing { is_open: change.is_some(), heard: Vec::new() };
        match (self.try_complete(&state, hearing).await, change) {
            (Ok(()), _) => Ok(AfterLast::Ended(self.completed(state))),
            (Err(CommitError::Said(said)), Some(change)) => {
                if let Some(kind) = self.at.graph.ending() {
                    self.at.run.journal.completed().retract(kind);
                }
                let mut step = StepEnd { node, state, next: 0, heard: Vec::new() };
                self.hear(&mut step, *said, change)?;
                Ok(AfterLast::GoesOn(step))
            }
            (Err(error), _) => Err(self.not_completed(error).await),
        }
    }

    /// What changes in the state behind `node` where something is heard there; `None` where nothing may be.
    fn hearing(&self, node: &Arc<str>, state: &State) -> Result<Option<Update>, EngineError> {
        self.at.graph.hearing(state).map_err(|error| {
            EngineError::new(Category::NodeException, error.message()).caused_by(error).at(node, state)
        })
    }

    fn hear(&self, step: &mut StepEnd, said: Said, change: Update) -> Result<(), EngineError> {
        let walk = Walk::outermost(self.at.run, self.at.graph);
        step.next = walk.hear(step, &said, change)?;
        step.heard.push(said);
        Ok(())
    }
}

impl Tenure {
    /// The claim under which it runs, or will with its first durable step.
    fn claimed(&mut self, at: RunContext<'_>) -> Box<Claimed> {
        match self {
            Self::Own(own) => Box::new(first_claim(own, at)),
            Self::Claimed(claimed) => claimed.clone(),
        }
    }
}

/// The claim of an invocation of which nothing is stored yet. A failure that may pass leaves it to the next worker, as does a lost
/// race of its own for the session; one that a node raised may be lost each time.
fn first_claim(own: &Own, at: RunContext<'_>) -> Claimed {
    let ports = at.engine.ports();
    let now = at.engine.ports().clock.now();
    let due = Due::first(now, DueAction::Resume(Map::new()));
    let wake = WakePlan { due: Some(due), ..WakePlan::default() };
    let paused = PausedInvocation { wake, ..own.concluded(at) };
    let owner = own.lease.as_ref().map(|terms| terms.owner.clone());
    let owner = owner.unwrap_or_else(|| ports.ids.fresh().into());
    let held_for = own.lease.as_ref().map_or(DEFAULT_CLAIM, |terms| terms.duration);
    let claim = Claim { owner, until: now + held_for, payload: Map::new(), attempts: 1, taken_over: false };
    let after_error =
        |error: &EngineError| match error.is_transient() || *error.category() == Category::SessionWriteConflict {
            true => AfterError::KeepClaim,
            false => AfterError::End,
        };
    Claimed { paused, claim, held_for, after_error }
}

/// `base` at the place behind `step`.
fn progressed(at: RunContext<'_>, base: PausedInvocation, step: &StepEnd) -> PausedInvocation {
    let RunContext { graph, run, .. } = at;
    let completed_positions = run.completed_positions();
    let last = completed_positions.last();
    PausedInvocation {
        graph_digest: graph.digest().to_owned(),
        schema_version: graph.schema().version().to_owned(),
        state: step.state.to_shared(|_| true),
        parent_states: Vec::new(),
        under_way: true,
        namespace: vec![step.node.clone()],
        suspended_at_node: vec![step.node.clone()],
        suspended_step: last.map_or(0, |position| position.step),
        attempt_index: last.map_or(0, |position| position.attempt_index),
        outer_attempts: Vec::new(),
        step: run.next_step(),
        completed_positions,
        metadata: run.view.identity().metadata.clone(),
        trace_context: run.identity.trace_context.clone(),
        ..base
    }
}

struct StepProgress<'p> {
    paused: &'p PausedInvocation,
    from: ProgressFrom,
    claim: Option<Claim>,
    hearing: Hearing,
}

/// Writes the step, with the session as a pause does; returns the version of the session that holds its state.
async fn write(at: RunContext<'_>, state: &State, progress: StepProgress<'_>) -> Result<Option<u64>, CommitError> {
    let RunContext { engine, run, .. } = at;
    let StepProgress { paused, from, claim, hearing } = progress;
    let journal = Journal { hearing, ..run.journal.at_end() };
    let release = claim.is_none();
    let write = |session_version: Option<u64>| InvocationWrite::Progress {
        paused: Box::new(PausedInvocation { session_version, ..paused.clone() }),
        from: from.clone(),
        claim: claim.clone(),
    };
    match &run.session {
        Some(session) => {
            let save = PendingSave { state: Some(state), release, journal: &journal };
            session.commit(save, |version| Some(write(Some(version)))).await.map(Some)
        }
        None => {
            let invocation = Some(write(None));
            let growing = run.growing();
            engine.write(&Commit { invocation, journal, growing, ..engine.blank_commit() }).await.map(|()| None)
        }
    }
}

fn failed(error: CommitError) -> EngineError {
    uncommitted(error, Category::SuspensionPersistenceFailed)
}

/// The outcome of a run that leaves its rest as accepted work.
fn handed_over(run: &Run, claimed: Claimed, state: State) -> Outcome {
    let paused = claimed.paused;
    let status = InvocationStatus::Accepted { payload: Map::new() };
    let stored = run.growing().stored;
    let record = InvocationRecord { status, paused: paused.clone(), stored, saved: None };
    Outcome::Suspended(Box::new(Suspended {
        invocation_id: paused.invocation_id,
        correlation_id: paused.correlation_id,
        session_id: paused.session_id,
        generation: paused.generation,
        state,
        descriptor: paused.descriptor,
        wake: paused.wake,
        fan_in: None,
        node_name: paused.suspended_at_node.last().cloned().unwrap_or_else(|| "".into()),
        namespace: paused.suspended_at_node,
        carried: paused.carried,
        arrived: Some(Box::new(record)),
    }))
}
