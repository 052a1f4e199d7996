//! Going to sleep: pause, session, signal and pending row in one commit (suspension §3, §8.6).

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    AnswerRule, Category, Claim, Commit, CommitError, Due, DueAction, EarlySignal, FanIn, InvocationLimits,
    InvocationRecord, InvocationStatus, InvocationWrite, Journal, Map, PauseEnd, PausedInvocation, SignalDescriptor,
    SuspendFrom, limits,
};
use jiff::Timestamp;

use super::call::{LeaseTerms, Suspended};
use super::early;
use super::engine::Engine;
use super::pause::NewPause;
use super::record::RunContext;
use super::session::{PendingSave, uncommitted};
use crate::EngineError;

/// Duration for which a pause that is born claimed stays so, when the caller gave none.
pub(super) const DEFAULT_CLAIM: Duration = Duration::from_secs(30);

/// Facts about the invocation before this pause.
pub(super) struct Before {
    pub(super) carried: Map,
    /// A digest of its caller and request.
    pub(super) request_digest: Option<String>,
    /// The tenant whose keys bring signals to it.
    pub(super) tenant: Option<String>,
    /// Terms under which the caller would go on at once, if the signal is there already.
    pub(super) claim: Option<LeaseTerms>,
    /// The pause out of which it was resumed.
    pub(super) previous: Option<Box<PausedInvocation>>,
}

/// Writes the pause of an invocation that is under way.
pub(super) async fn persist(
    at: RunContext<'_>,
    pause: &Arc<NewPause>,
    before: Before,
) -> Result<Suspended, EngineError> {
    let RunContext { engine, graph, run } = at;
    let mut paused = describe(at, pause, &before)?;
    let journal = run.journal.at_pause(&pause.recorded)?;
    if let Some(checkpoints) = &run.checkpoints {
        paused.suspended_at = checkpoints.now().await;
    }
    engine.prepare(&paused).await?;
    let from = match &before.previous {
        None => SuspendFrom::Fresh,
        Some(previous) => {
            let owner = before.claim.as_ref().map(|terms| terms.owner.clone());
            let owner = owner.unwrap_or_else(|| engine.ports().ids.fresh().into());
            SuspendFrom::Claimed { owner, previous: previous.clone() }
        }
    };
    let mut claim = None;
    let mut early = Vec::new();
    let mut tries = paused.waits().count() + 1;
    let session_version = loop {
        tries -= 1;
        let sleep = Sleep { paused: &paused, from: &from, claim: claim.as_ref(), early: &early, journal: &journal };
        match write(at, pause, &sleep).await {
            Ok(version) => break version,
            // Each of its signals may come while what came before is being taken up.
            Err(CommitError::SignalBuffered(_)) if tries > 0 => {
                let taken = early::take_up(engine, graph, &mut paused).await;
                let taken = taken.map_err(|error| failed(error.into()))?;
                claim = taken.payload.map(|payload| claim_at_birth(engine, before.claim.as_ref(), payload));
                early = taken.early;
            }
            Err(error) => return Err(run.watch.explain(error, failed).await),
        }
    };
    let arrived = claim.map(|claim| {
        paused.session_version = session_version;
        let status = InvocationStatus::Resuming(claim);
        let stored = run.growing().stored;
        Box::new(InvocationRecord { status, paused: paused.clone(), stored, saved: None })
    });
    Ok(outcome(paused, pause, before.carried, arrived))
}

/// The record of the pause.
fn describe(at: RunContext<'_>, pause: &NewPause, before: &Before) -> Result<PausedInvocation, EngineError> {
    let RunContext { engine, graph, run } = at;
    let now = engine.ports().clock.now();
    let unfit = |reason| {
        let of = format!("node `{}` of graph `{}`", pause.asked_by.join("."), graph.name());
        let message =
            format!("{of}: the wait for signal `{}` cannot be arranged: {reason}", pause.descriptor.signal_id);
        EngineError::new(Category::HarnessSignalSubscriptionFailed, message)
    };
    let wake = engine.ports().planner.plan(&pause.descriptor, now).map_err(unfit)?;
    let fan_in = engine.ports().planner.expects(&pause.descriptor).map_err(unfit)?;
    check_receivers(fan_in.as_ref(), &pause.descriptor, pause).map_err(unfit)?;
    let previous = before.previous.as_deref();
    let is_no_further = |previous: &&PausedInvocation| previous.descriptor.progress() == pause.descriptor.progress();
    let in_a_row = previous.filter(is_no_further).map_or(0, |previous| previous.self_wakes);
    let self_wakes = self_wakes(wake.due.as_ref(), now, in_a_row);
    let generation = previous.map_or(0, |previous| previous.generation) + 1;
    within_limits(engine.limits(), generation, self_wakes)?;
    let mut states: Vec<Map> = pause.states.iter().map(crate::State::to_map).collect();
    Ok(PausedInvocation {
        invocation_id: run.identity.invocation_id.clone(),
        correlation_id: run.identity.correlation_id.clone(),
        session_id: run.identity.session_id.clone(),
        graph: graph.name().to_owned(),
        graph_digest: graph.digest().to_owned(),
        generation,
        descriptor: pause.descriptor.clone(),
        wake,
        fan_in,
        self_wakes,
        state: states.pop().unwrap_or_default().into(),
        parent_states: states,
        under_way: false,
        namespace: pause.namespace.clone(),
        suspended_at_node: pause.asked_by.clone(),
        completed_positions: run.completed_positions(),
        step: run.next_step(),
        suspended_step: pause.step,
        attempt_index: pause.attempt_index,
        outer_attempts: pause.outer_attempts.clone(),
        schema_version: graph.schema().version().to_owned(),
        session_version: None,
        metadata: run.view.identity().metadata.clone(),
        carried: before.carried.clone(),
        request_digest: before.request_digest.clone(),
        tenant: before.tenant.clone(),
        begun_for: run.identity.begun_for.clone(),
        trace_context: run.identity.trace_context.clone(),
        suspended_at: now,
        answered: None,
        resolution: None,
        before: previous.and_then(PauseEnd::of),
    })
}

/// Refuses a wait with an answer that names a field that the innermost graph does not have: the answer's data would be
/// lost.
fn check_receivers(fan_in: Option<&FanIn>, descriptor: &SignalDescriptor, pause: &NewPause) -> Result<(), String> {
    let rule = AnswerRule::of(descriptor)?;
    let receivers: Vec<&str> = match fan_in {
        Some(fan_in) => vec![fan_in.into.as_str()],
        None => rule.fields().collect(),
    };
    let is_known = |field: &&str| pause.states.last().is_some_and(|state| state.get(field).is_some());
    match receivers.into_iter().find(|field| !is_known(field)) {
        Some(field) => Err(format!("the state has no field `{field}` to receive the answer")),
        None => Ok(()),
    }
}

/// Number of pauses in a row that wake by themselves at once, with one that wakes at `due`.
fn self_wakes(due: Option<&Due>, now: Timestamp, before: u32) -> u32 {
    match due {
        Some(Due { at, action: DueAction::Resume(_), .. }) if *at < now + limits::AT_ONCE => before + 1,
        Some(_) | None => 0,
    }
}

fn within_limits(limits: InvocationLimits, generation: u64, self_wakes: u32) -> Result<(), EngineError> {
    let refuse = |message: String| Err(EngineError::new(Category::LimitExceeded, message));
    if generation > limits.pauses {
        let most = limits.pauses;
        return refuse(format!("the invocation has slept {most} times, which is the limit; begin another one instead"));
    }
    if self_wakes > limits.self_wakes {
        let most = limits.self_wakes;
        let advice = "sleep longer, or wait for something from outside";
        return refuse(format!(
            "the invocation woke itself at once {most} times in a row, which is the limit; {advice}"
        ));
    }
    Ok(())
}

/// Record of a pause beside the session, to be written.
struct Sleep<'a> {
    paused: &'a PausedInvocation,
    from: &'a SuspendFrom,
    claim: Option<&'a Claim>,
    early: &'a [EarlySignal],
    journal: &'a Journal,
}

/// Writes the pause; returns the version of the session that it was given.
async fn write(at: RunContext<'_>, pause: &NewPause, sleep: &Sleep<'_>) -> Result<Option<u64>, CommitError> {
    let RunContext { engine, run, .. } = at;
    let Sleep { paused, from, claim, early, journal } = *sleep;
    let suspend = |session_version: Option<u64>| InvocationWrite::Suspend {
        paused: Box::new(PausedInvocation { session_version, ..paused.clone() }),
        from: from.clone(),
        claim: claim.cloned(),
        early: early.to_vec(),
    };
    match &run.session {
        Some(session) => {
            let suspend = |version| Some(suspend(Some(version)));
            let save = PendingSave { state: pause.states.first(), release: true, journal };
            session.commit(save, suspend).await.map(Some)
        }
        None => {
            let invocation = Some(suspend(None));
            let journal = journal.clone();
            let commit = Commit { invocation, journal, growing: run.growing(), ..engine.blank_commit() };
            engine.write(&commit).await.map(|()| None)
        }
    }
}

fn claim_at_birth(engine: &Engine, terms: Option<&LeaseTerms>, payload: Map) -> Claim {
    let (owner, duration) = match terms {
        Some(terms) => (terms.owner.clone(), terms.duration),
        None => (engine.ports().ids.fresh().into(), DEFAULT_CLAIM),
    };
    Claim { owner, until: engine.ports().clock.now() + duration, payload, attempts: 1, taken_over: false }
}

fn failed(error: CommitError) -> EngineError {
    uncommitted(error, Category::SuspensionPersistenceFailed)
}

fn outcome(
    paused: PausedInvocation,
    pause: &NewPause,
    carried: Map,
    arrived: Option<Box<InvocationRecord>>,
) -> Suspended {
    Suspended {
        invocation_id: paused.invocation_id,
        correlation_id: paused.correlation_id,
        session_id: paused.session_id,
        generation: paused.generation,
        state: pause.states.first().cloned().unwrap_or_default(),
        descriptor: paused.descriptor,
        wake: paused.wake,
        fan_in: paused.fan_in,
        node_name: pause.asked_by.last().cloned().unwrap_or_else(|| "".into()),
        namespace: paused.suspended_at_node,
        carried,
        arrived,
    }
}
