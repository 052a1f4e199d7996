//! Waking up: overlay the payload, go on where the pause was, and end the claim (suspension §6, §7).

use std::sync::Arc;

use dormouse_ports::{Category, Claim, CommitError, FailureRecord, InvocationWrite, Map, PausedInvocation};

use super::engine::{AfterError, Engine, LeaseTerms, Outcome, Resume, is_transient, registered};
use super::finish::completed;
use super::pause::{self, Before};
use super::record::Run;
use super::session::{SessionRun, save_failed};
use super::walk::{End, From, ResumePoint, Walk};
use crate::ambient::Identity;
use crate::{CompiledGraph, EngineError, State};

pub(super) async fn claimed(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    paused: PausedInvocation,
    claim: Claim,
    call: Resume,
) -> Result<Outcome, EngineError> {
    let states = match prepare(graph, &paused, claim.payload.clone()) {
        Ok(states) => states,
        Err(error) => {
            give_back(engine, &paused, &claim).await;
            return Err(error);
        }
    };
    let identity = Arc::new(Identity {
        invocation_id: paused.invocation_id.clone(),
        correlation_id: paused.correlation_id.clone(),
        session_id: paused.session_id.clone(),
        metadata: paused.metadata.clone(),
    });
    let session = SessionRun::of_pause(engine, graph, &paused);
    let run = Run::begin(engine, graph, identity, session, registered(call.observers))
        .continuing(paused.step, &paused.completed_positions);
    let ended = continue_walk(graph, &run, &paused, states).await;
    let terms = LeaseTerms { owner: claim.owner.clone(), duration: call.claim.duration };
    let finished = match ended {
        Ok(End::Completed(state)) => complete(engine, &run, &paused, &claim, state).await,
        Ok(End::Paused(next)) => {
            let before = Before {
                carried: paused.carried.clone(),
                claim: Some(terms),
                previous: Some(Box::new(paused.clone())),
            };
            pause::persist(engine, graph, &run, &next, before).await.map(|s| Outcome::Suspended(Box::new(s)))
        }
        Err(error) => Err(error),
    };
    if let Err(error) = &finished {
        end_badly(engine, &paused, &claim, error, (call.after_error)(error)).await;
    }
    finished
}

/// The states of all active graphs, outermost first, with the payload laid over the innermost one.
fn prepare(graph: &CompiledGraph, paused: &PausedInvocation, payload: Map) -> Result<Vec<State>, EngineError> {
    let declared = graph.schema().version();
    if paused.schema_version != declared {
        let message = format!(
            "the invocation sleeps with state of schema version `{}`, graph `{}` is at `{declared}`",
            paused.schema_version,
            graph.name()
        );
        return Err(EngineError::new(Category::SuspensionRecordInvalid, message));
    }
    let innermost = innermost(graph, paused)?;
    let mut state = paused.state.clone();
    state.extend(innermost.schema().only_declared(payload));
    let state = State::from(state);
    innermost
        .schema()
        .validate(&state)
        .map_err(|reason| EngineError::new(Category::SuspensionResumePayloadInvalid, reason))?;
    Ok(paused.parent_states.iter().cloned().map(State::from).chain([state]).collect())
}

fn innermost<'g>(graph: &'g CompiledGraph, paused: &PausedInvocation) -> Result<&'g CompiledGraph, EngineError> {
    let containing = paused.namespace.split_last().map_or(&[][..], |(_, containing)| containing);
    containing.iter().try_fold(graph, |graph, name| {
        graph.inner(name).ok_or_else(|| {
            let message = format!("the invocation sleeps inside node `{name}`, which is not a subgraph any more");
            EngineError::new(Category::SuspensionRecordInvalid, message)
        })
    })
}

async fn continue_walk(
    graph: &Arc<CompiledGraph>,
    run: &Run,
    paused: &PausedInvocation,
    mut states: Vec<State>,
) -> Result<End, EngineError> {
    let outermost = states.remove(0);
    let point = ResumePoint {
        path: paused.namespace.clone(),
        inner_states: states,
        node_completed: paused.node_completed(),
        attempt_index: paused.attempt_index,
        step: paused.suspended_step,
    };
    Walk::outermost(run, graph).walk(outermost, From::Pause(point)).await
}

async fn complete(
    engine: &Engine,
    run: &Run,
    paused: &PausedInvocation,
    claim: &Claim,
    state: State,
) -> Result<Outcome, EngineError> {
    let write = || InvocationWrite::Complete {
        paused: Box::new(paused.clone()),
        owner: claim.owner.clone(),
        state: state.to_map(),
    };
    let written = match &run.session {
        Some(session) => {
            let saved = session.auto_saves().then_some(&state);
            match saved {
                Some(_) => session.commit(saved, false, |_| Some(write())).await,
                None => engine.ports().store.commit(&engine.commit(None, Some(write()))).await,
            }
        }
        None => engine.ports().store.commit(&engine.commit(None, Some(write()))).await,
    };
    written.map_err(|error| not_finished(run, error))?;
    Ok(completed(run, state, paused.carried.clone()))
}

fn not_finished(run: &Run, error: CommitError) -> EngineError {
    if run.session.is_some() {
        return save_failed(error);
    }
    let transient = matches!(&error, CommitError::Store(error) if is_transient(error));
    EngineError::new(Category::SuspensionPersistenceFailed, error.to_string()).transient_if(transient)
}

/// Ends the claim after an error: the invocation sleeps on, or is over. When even that cannot be written, the claim
/// ends by itself and the payload that it holds is delivered again.
async fn end_badly(engine: &Engine, paused: &PausedInvocation, claim: &Claim, error: &EngineError, after: AfterError) {
    match after {
        AfterError::End => {}
        AfterError::GiveBack => return give_back(engine, paused, claim).await,
        AfterError::KeepClaim => return,
    }
    let failure = FailureRecord { category: error.derived_category().clone(), message: error.message().to_owned() };
    let write = InvocationWrite::Fail { paused: Box::new(paused.clone()), owner: Some(claim.owner.clone()), failure };
    end_claim(engine, paused, write).await;
}

async fn give_back(engine: &Engine, paused: &PausedInvocation, claim: &Claim) {
    let write = InvocationWrite::Release {
        invocation_id: paused.invocation_id.clone(),
        generation: paused.generation,
        owner: claim.owner.clone(),
    };
    end_claim(engine, paused, write).await;
}

async fn end_claim(engine: &Engine, paused: &PausedInvocation, write: InvocationWrite) {
    if let Err(error) = engine.ports().store.commit(&engine.commit(None, Some(write))).await {
        tracing::warn!(%error, invocation_id = %paused.invocation_id, "a claim was not ended; it ends by itself");
    }
}
