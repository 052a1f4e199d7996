//! Waking up: overlay the payload, go on where the pause was, and end the claim (suspension §6, §7).

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    Answered, Category, Claim, Commit, CommitError, FailureRecord, InvocationWrite, Map, PausedInvocation, Resolution,
    StoredList,
};

use super::answer;
use super::engine::{AfterError, Engine, LeaseTerms, Outcome, Resume, registered};
use super::finish::completed;
use super::journal::HeldClaim;
use super::pause::{self, Before};
use super::record::Run;
use super::restore;
use super::session::{SessionRun, save_failed, uncommitted};
use super::upgrade;
use super::walk::{End, From, ResumePoint, Walk};
use crate::ambient::{self, Identity};
use crate::graph::Migrated;
use crate::observe::ResumedFrom;
use crate::{CompiledGraph, EngineError, State};

pub(super) async fn claimed(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    paused: PausedInvocation,
    stored: Vec<StoredList>,
    claim: Claim,
    call: Resume,
) -> Result<Outcome, EngineError> {
    let (paused, states) = match prepare(graph, &paused, claim.payload.clone()) {
        Ok(prepared) => prepared,
        // The payload that was accepted waits for a worker that may take the pause up.
        Err(error)
            if *error.category() == Category::SuspensionPinned
                && (call.after_error)(&error) == AfterError::KeepClaim =>
        {
            let _ = end_claim(engine, &paused, alone(engine, keep(&paused, &claim))).await;
            return Err(error);
        }
        Err(error) => {
            // Refused or not, the claim ends: what it was refused for is in the log.
            let _ = end_claim(engine, &paused, alone(engine, release(&paused, &claim))).await;
            return Err(error);
        }
    };
    let observers = registered(call.observers);
    let identity = Arc::new(Identity {
        invocation_id: paused.invocation_id.clone(),
        correlation_id: paused.correlation_id.clone(),
        session_id: paused.session_id.clone(),
        metadata: paused.metadata.clone(),
        trace_context: graph.trace_context(&observers),
    });
    let from = ResumedFrom { generation: paused.generation, trace_context: paused.trace_context.clone() };
    let start = engine.start_of(graph, &identity, Some(from));
    let session = SessionRun::of_pause(engine, graph, &paused, &stored);
    let mut run = Run::begin(engine, graph, start, session, observers)
        .continuing(paused.step, &paused.completed_positions)
        .grown_from(stored)
        .under(HeldClaim { generation: paused.generation, owner: claim.owner.clone() });
    if let Some(checkpoints) = &mut run.checkpoints {
        checkpoints.not_before(paused.suspended_at);
    }
    let going_on = go_on(engine, graph, &run, &paused, &claim, call.claim.duration, states);
    let work = Box::pin(async {
        match going_on.await {
            Ok(outcome) => Ok(outcome),
            // Whoever canceled it has ended the claim.
            Err(error) if *error.category() == Category::InvocationCanceled => Err(error),
            Err(error) => {
                let after = (call.after_error)(&error);
                Err(end_badly(engine, &run, &paused, &claim, error, after).await)
            }
        }
    });
    let finished = ambient::within(&identity, work).await;
    run.end(&finished);
    finished
}

/// Walks on from the pause and ends the claim with what came of it.
async fn go_on(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    run: &Run,
    paused: &PausedInvocation,
    claim: &Claim,
    claimed_for: Duration,
    states: Vec<State>,
) -> Result<Outcome, EngineError> {
    let ended = continue_walk(graph, run, paused, states).await;
    let terms = LeaseTerms { owner: claim.owner.clone(), duration: claimed_for };
    match ended {
        Ok(End::Completed(state)) => complete(engine, run, paused, claim, state).await,
        Ok(End::Paused(next)) => {
            let before = Before {
                carried: paused.carried.clone(),
                request_digest: paused.request_digest.clone(),
                claim: Some(terms),
                previous: Some(Box::new(paused.clone())),
            };
            pause::persist(engine, graph, run, &next, before).await.map(|s| Outcome::Suspended(Box::new(s)))
        }
        Err(error) => Err(error),
    }
}

/// The pause in the present schema version, with what ends it, and the states of all active graphs, outermost first, with the payload laid
/// over the innermost one.
pub(super) fn prepare(
    graph: &CompiledGraph,
    paused: &PausedInvocation,
    payload: Map,
) -> Result<(PausedInvocation, Vec<State>), EngineError> {
    upgrade::admit(graph, paused)?;
    let mut paused = restored(graph, paused)?;
    let resolution = Resolution::of(&payload);
    // A default that time decides, and answers that were gathered, are the graph's own or were admitted before.
    let is_answer = resolution == Resolution::Signalled && paused.fan_in.is_none();
    paused.answered = match &paused.fan_in {
        Some(fan_in) => Some(Answered::by_parts(&payload, &fan_in.into)),
        None => is_answer.then(|| Answered::with(&payload)),
    };
    let payload = if is_answer { answer::placed(&paused, payload)? } else { payload };
    let payload = resolution.mark(payload);
    paused.resolution = Some(resolution);
    let innermost = innermost(graph, &paused)?;
    let mut state = paused.state.clone();
    state.extend(innermost.schema().only_declared(payload));
    let state = innermost.schema().owned(State::from(state));
    innermost
        .schema()
        .validate(&state)
        .map_err(|reason| EngineError::new(Category::SuspensionResumePayloadInvalid, reason))?;
    let states = paused.parent_states.iter().cloned().map(State::from).chain([state]).collect();
    Ok((paused, states))
}

/// `paused` in the present schema version, whose place is still there.
pub(super) fn restored(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<PausedInvocation, EngineError> {
    let paused = migrated(graph, paused)?;
    let containing = innermost(graph, &paused)?;
    match paused.namespace.last() {
        Some(node) if containing.index_of(node).is_none() => {
            let message =
                format!("the invocation sleeps at node `{node}`, which graph `{}` has no more", containing.name());
            Err(EngineError::new(Category::SuspensionRecordInvalid, message))
        }
        Some(_) | None => Ok(paused),
    }
}

/// `paused` with its states brought to the declared schema version by the migrations of checkpoints.
fn migrated(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<PausedInvocation, EngineError> {
    let (mut paused, declared) = (paused.clone(), graph.schema().version());
    if paused.schema_version == declared {
        return Ok(paused);
    }
    let invalid = |reason| EngineError::new(Category::SuspensionRecordInvalid, reason);
    let stored = paused.parent_states.into_iter().chain([paused.state]).collect();
    let stored = graph.migrations().migrate(Migrated::Pause, stored, (&paused.schema_version, declared))?;
    let graphs = restore::graphs(graph, &paused.namespace).map_err(invalid)?;
    let mut states: Vec<Map> = restore::states(&graphs, stored).map_err(invalid)?.iter().map(State::to_map).collect();
    paused.state = states.pop().unwrap_or_default();
    paused.parent_states = states;
    paused.schema_version = declared.to_owned();
    Ok(paused)
}

fn innermost<'g>(graph: &'g CompiledGraph, paused: &PausedInvocation) -> Result<&'g CompiledGraph, EngineError> {
    let graphs = restore::graphs(graph, &paused.namespace);
    let graphs = graphs.map_err(|reason| EngineError::new(Category::SuspensionRecordInvalid, reason))?;
    Ok(graphs.last().copied().unwrap_or(graph))
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
        outer_attempts: paused.outer_attempts.clone(),
        step: Some(paused.suspended_step),
    };
    Walk::outermost(run, graph).walk(outermost, From::Pause(point)).await
}

/// Ends the claim with the final state; a lease of the session is given back in the same step.
pub(super) async fn complete(
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
    let journal = run.journal.at_end();
    let written = match &run.session {
        Some(session) if session.auto_saves() || session.holds_lease() => {
            let saved = session.auto_saves().then_some(&state);
            session.commit(saved, true, &journal, |_| Some(write())).await.map(|_| ())
        }
        Some(_) | None => {
            let (invocation, growing) = (Some(write()), run.growing());
            engine.write(&Commit { invocation, journal, growing, ..engine.blank_commit() }).await
        }
    };
    if let Err(error) = written {
        return Err(run.watch.explain(error, |error| not_finished(run, error)).await);
    }
    Ok(completed(run, state, paused.carried.clone(), paused.resolution))
}

fn not_finished(run: &Run, error: CommitError) -> EngineError {
    match run.session {
        Some(_) => save_failed(error),
        None => uncommitted(error, Category::SuspensionPersistenceFailed),
    }
}

/// Ends the claim after an error: the invocation sleeps on, or is over. When even that cannot be written, the claim
/// ends by itself and the payload that it holds is delivered again: an end that nobody knows of is none, so that the
/// error counts as transient then.
pub(super) async fn end_badly(
    engine: &Engine,
    run: &Run,
    paused: &PausedInvocation,
    claim: &Claim,
    error: EngineError,
    after: AfterError,
) -> EngineError {
    let (commit, lasting) = match after {
        AfterError::KeepClaim => (alone(engine, keep(paused, claim)), false),
        AfterError::GiveBack => (alone(engine, release(paused, claim)), false),
        AfterError::End => {
            let (category, message) = (error.derived_category().clone(), error.message().to_owned());
            let failure = FailureRecord { category, message };
            let (paused, owner) = (Box::new(paused.clone()), Some(claim.owner.clone()));
            let fail = alone(engine, InvocationWrite::Fail { paused, owner, failure });
            // What nodes did that completed before the one that failed, has happened.
            (Commit { journal: run.journal.at_end(), ..fail }, true)
        }
    };
    match end_claim(engine, paused, commit).await {
        Ok(()) => error,
        Err(refused) => run.watch.explain(refused, |_| if lasting { error.transient_if(true) } else { error }).await,
    }
}

/// The claim stays for whoever takes it over; that its worker lives is written down.
fn keep(paused: &PausedInvocation, claim: &Claim) -> InvocationWrite {
    InvocationWrite::Keep {
        invocation_id: paused.invocation_id.clone(),
        generation: paused.generation,
        owner: claim.owner.clone(),
    }
}

fn release(paused: &PausedInvocation, claim: &Claim) -> InvocationWrite {
    InvocationWrite::Release {
        invocation_id: paused.invocation_id.clone(),
        generation: paused.generation,
        owner: claim.owner.clone(),
    }
}

/// A commit of `write` and nothing else.
fn alone(engine: &Engine, write: InvocationWrite) -> Commit {
    Commit { invocation: Some(write), ..engine.blank_commit() }
}

async fn end_claim(engine: &Engine, paused: &PausedInvocation, commit: Commit) -> Result<(), CommitError> {
    let written = engine.write(&commit).await;
    if let Err(error) = &written {
        tracing::warn!(%error, invocation_id = %paused.invocation_id, "a claim was not ended; it ends by itself");
    }
    written
}
