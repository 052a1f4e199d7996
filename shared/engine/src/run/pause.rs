//! Going to sleep: pause, session, signal and pending row in one commit (suspension §3, §8.6).

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    Category, Claim, CommitError, InvocationRecord, InvocationStatus, InvocationWrite, Map, PausedInvocation,
    SuspendFrom,
};

use super::engine::{Engine, LeaseTerms, Suspended};
use super::pausing::Pause;
use super::record::Run;
use super::session::uncommitted;
use crate::{CompiledGraph, EngineError};

/// How long a pause that is born claimed stays so, when the caller did not say.
const DEFAULT_CLAIM: Duration = Duration::from_secs(30);

/// What the invocation was before this pause.
pub(super) struct Before {
    pub(super) carried: Map,
    /// Terms under which the caller would go on at once, if the signal is there already.
    pub(super) claim: Option<LeaseTerms>,
    /// The pause out of which it was resumed.
    pub(super) previous: Option<Box<PausedInvocation>>,
}

pub(super) async fn persist(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    run: &Run,
    pause: &Arc<Pause>,
    before: Before,
) -> Result<Suspended, EngineError> {
    let mut paused = describe(engine, graph, run, pause, &before)?;
    if let Some(checkpoints) = &run.checkpoints {
        paused.suspended_at = checkpoints.now().await;
    }
    let from = match &before.previous {
        None => SuspendFrom::Fresh,
        Some(previous) => {
            let owner = before.claim.as_ref().map(|terms| terms.owner.clone());
            let owner = owner.unwrap_or_else(|| engine.ports().ids.fresh().into());
            SuspendFrom::Claimed { owner, previous: previous.clone() }
        }
    };
    let mut arrived = None;
    if let Err(error) = write(engine, run, pause, &paused, &from, None).await {
        let CommitError::SignalBuffered(signal) = error else { return Err(failed(error)) };
        let claim = claim_at_birth(engine, before.claim, signal.payload);
        paused.session_version = write(engine, run, pause, &paused, &from, Some(&claim)).await.map_err(failed)?;
        arrived = Some(Box::new(InvocationRecord {
            status: InvocationStatus::Resuming(claim),
            paused: paused.clone(),
            stored: run.growing().stored,
        }));
    }
    Ok(outcome(paused, pause, before.carried, arrived))
}

/// The record of the pause.
fn describe(
    engine: &Engine,
    graph: &CompiledGraph,
    run: &Run,
    pause: &Pause,
    before: &Before,
) -> Result<PausedInvocation, EngineError> {
    let now = engine.ports().clock.now();
    let wake = engine.ports().planner.plan(&pause.descriptor, now).map_err(|reason| {
        let message = format!("the wait for signal `{}` cannot be arranged: {reason}", pause.descriptor.signal_id);
        EngineError::new(Category::HarnessSignalSubscriptionFailed, message)
    })?;
    let mut states: Vec<Map> = pause.states.iter().map(crate::State::to_map).collect();
    Ok(PausedInvocation {
        invocation_id: run.identity.invocation_id.clone(),
        correlation_id: run.identity.correlation_id.clone(),
        session_id: run.identity.session_id.clone(),
        graph: graph.name().to_owned(),
        graph_digest: graph.digest().to_owned(),
        generation: before.previous.as_ref().map_or(0, |previous| previous.generation) + 1,
        descriptor: pause.descriptor.clone(),
        wake,
        state: states.pop().unwrap_or_default(),
        parent_states: states,
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
        trace_context: run.identity.trace_context.clone(),
        suspended_at: now,
        resolution: None,
    })
}

/// Writes the pause; returns the version of the session that it was given.
async fn write(
    engine: &Engine,
    run: &Run,
    pause: &Pause,
    paused: &PausedInvocation,
    from: &SuspendFrom,
    claim: Option<&Claim>,
) -> Result<Option<u64>, CommitError> {
    let suspend = |session_version: Option<u64>| InvocationWrite::Suspend {
        paused: Box::new(PausedInvocation { session_version, ..paused.clone() }),
        from: from.clone(),
        claim: claim.cloned(),
    };
    match &run.session {
        Some(session) => {
            session.commit(pause.states.first(), true, |version| Some(suspend(Some(version)))).await.map(Some)
        }
        None => {
            let commit = engine.commit(None, Some(suspend(None)), run.growing());
            engine.ports().store.commit(&commit).await.map(|()| None)
        }
    }
}

fn claim_at_birth(engine: &Engine, terms: Option<LeaseTerms>, payload: Map) -> Claim {
    let (owner, duration) = match terms {
        Some(terms) => (terms.owner, terms.duration),
        None => (engine.ports().ids.fresh().into(), DEFAULT_CLAIM),
    };
    Claim { owner, until: engine.ports().clock.now() + duration, payload }
}

fn failed(error: CommitError) -> EngineError {
    uncommitted(error, Category::SuspensionPersistenceFailed)
}

fn outcome(paused: PausedInvocation, pause: &Pause, carried: Map, arrived: Option<Box<InvocationRecord>>) -> Suspended {
    Suspended {
        invocation_id: paused.invocation_id,
        correlation_id: paused.correlation_id,
        session_id: paused.session_id,
        generation: paused.generation,
        state: pause.states.first().cloned().unwrap_or_default(),
        descriptor: paused.descriptor,
        wake: paused.wake,
        node_name: pause.asked_by.last().cloned().unwrap_or_else(|| "".into()),
        namespace: paused.suspended_at_node,
        carried,
        arrived,
    }
}
