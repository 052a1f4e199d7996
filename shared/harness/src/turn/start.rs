//! Fresh turns: dispatch paths 3.0, 3.1 and 3.2.

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{Carry, CompiledGraph, Invocation, Sending};
use dormouse_ports::{Category, InvocationId, InvocationRecord, InvocationStage, InvocationStatus, SessionId};

use super::resume::finish;
use crate::admission::AdmissionWait;
use crate::budget::Budget;
use crate::error::{TurnError, bounded};
use crate::mode::Mode;
use crate::outcome::TurnOutcome;
use crate::transmission::FreshTurn;
use crate::worker::Worker;

/// A fresh turn (dispatch paths 3.0 to 3.2), which keeps the data that `carry` makes of its first state.
pub(crate) async fn start(
    worker: &Worker,
    turn: FreshTurn,
    time_left: Option<Duration>,
    carry: Option<Carry>,
) -> Result<TurnOutcome, TurnError> {
    let current = worker.graphs.begun(&turn.graph, turn.version.as_deref()).await?;
    let turn = FreshTurn { metadata: current.noted_in(turn.metadata), ..turn };
    let signalled_by = worker.signalled_by(&current, turn.tenant.clone());
    let graph = current.graph;
    graph.check_inputs(&turn.state)?;
    bounded("the state", &turn.state)?;
    let given = turn.invocation_id.clone();
    let sending = Sending::begin();
    let outcome = sending.over(start_once(worker, graph, (turn, signalled_by), worker.budget(time_left), carry)).await;
    outcome.map_err(|error| TurnError {
        // A caller that names the invocation gets its outcome, however often it asks.
        in_doubt: given.is_none() && (error.in_doubt || sending.may_have_written()),
        ..error
    })
}

async fn start_once(
    worker: &Worker,
    graph: Arc<CompiledGraph>,
    (turn, signalled_by): (FreshTurn, Option<String>),
    budget: Budget<'_>,
    carry: Option<Carry>,
) -> Result<TurnOutcome, TurnError> {
    let given = turn.invocation_id.clone();
    // Of those that name the same id one runs its nodes; the others get its outcome.
    let _only = worker.lines.chosen(given.as_ref(), wait(budget)).await?;
    let asked = (graph.name(), budget.is_short());
    if let Some(id) = &given {
        let answer = match &turn.earlier_id {
            Some(earlier) => either_answer(worker, (id, earlier), asked, &turn).await?,
            None => earlier_answer(worker, id, asked, turn.request_digest.as_deref()).await?,
        };
        if let Some(earlier) = answer {
            return Ok(earlier);
        }
    }
    worker.stand_rules_of(&graph).await?;
    let session_id = session_of(worker, &turn);
    let invocation_id = given.clone().unwrap_or_else(|| worker.ports().ids.fresh().into());
    let correlation_id = turn.correlation_id.unwrap_or_else(|| worker.ports().ids.fresh());
    let named = |error: TurnError| error.of(&invocation_id).in_correlation(&correlation_id);
    let call = Invocation {
        state: turn.state,
        session_id: session_id.clone(),
        invocation_id: Some(invocation_id.clone()),
        correlation_id: Some(correlation_id.clone()),
        metadata: turn.metadata,
        carry,
        request_digest: turn.request_digest.clone(),
        tenant: signalled_by,
        begun_for: turn.tenant,
        cancelable: given.is_some(),
        ..Invocation::default()
    };
    let outcome = match invoke_alone(worker, &graph, call, budget).await {
        Err(error) if may_be_stored(&error, given.is_some()) => {
            let id = &invocation_id;
            return match earlier_answer(worker, id, asked, turn.request_digest.as_deref()).await {
                Ok(found) => found.ok_or_else(|| named(error)),
                Err(_) if error.category == Category::OutcomeUnknown => Err(named(error)),
                Err(failed) => Err(failed),
            };
        }
        outcome => outcome.map_err(named)?,
    };
    let outcome = finish(worker, &graph, outcome, budget).await.map_err(named)?;
    Ok(outcome.in_session(session_id))
}

/// Runs the call alone in its session: while another turn of it runs, this one waits.
async fn invoke_alone(
    worker: &Worker,
    graph: &Arc<CompiledGraph>,
    call: Invocation,
    budget: Budget<'_>,
) -> Result<dormouse_engine::Outcome, TurnError> {
    let _first = worker.lines.session(call.session_id.as_ref(), wait(budget)).await?;
    let mut backoff = worker.backoff();
    loop {
        let attempt = Invocation { lease: Some(budget.lease()), ..call.clone() };
        let result = budget.within(worker.engine.invoke(graph, attempt)).await;
        match result {
            Err(error) if error.category == Category::SessionLeaseHeld && !budget.is_over() => {
                backoff.pause().await;
            }
            result => return result,
        }
    }
}

/// Time for which a fresh turn waits for others of this process.
fn wait(budget: Budget<'_>) -> AdmissionWait {
    AdmissionWait { longest: budget.left() / 2, refusable: true }
}

pub(super) fn session_of(worker: &Worker, turn: &FreshTurn) -> Option<SessionId> {
    match worker.config.mode {
        Mode::Stateless => None,
        Mode::Sessioned => {
            let fresh = || worker.ports().ids.fresh().into();
            Some(turn.session_id.clone().unwrap_or_else(fresh))
        }
    }
}

/// The answer that a turn of this id got before, as far as anything of it was written.
async fn earlier_answer(
    worker: &Worker,
    id: &InvocationId,
    asked: (&str, bool),
    request_digest: Option<&str>,
) -> Result<Option<TurnOutcome>, TurnError> {
    match worker.records.load(id).await? {
        Some(record) => answer_of(*record, asked, request_digest).map(Some),
        None => Ok(None),
    }
}

/// The same of this id or of the one that it had in `earlier` versions, where others may have given it to another request: one
/// of other tenants counts for nothing.
async fn either_answer(
    worker: &Worker,
    (id, earlier): (&InvocationId, &InvocationId),
    asked: (&str, bool),
    turn: &FreshTurn,
) -> Result<Option<TurnOutcome>, TurnError> {
    let request_digest = turn.request_digest.as_deref();
    let mut found = worker.records.load_both(id, earlier).await?;
    let counts = |record: &InvocationRecord| {
        let is_same = request_digest.is_some() && record.paused.request_digest.as_deref() == request_digest;
        let of = record.paused.begun_for.as_ref().or(record.paused.tenant.as_ref());
        let is_theirs = of.is_some() && of == turn.tenant.as_ref();
        is_same || is_theirs || record.paused.stage() == InvocationStage::CanceledAhead
    };
    let record = found[0].take().or_else(|| found[1].take().filter(counts));
    record.map(|record| answer_of(record, asked, request_digest)).transpose()
}

/// The answer that `record` gives to a turn of its id, of `graph`, for which a request may wait that `is_short`.
fn answer_of(
    record: InvocationRecord,
    (graph, is_short): (&str, bool),
    request_digest: Option<&str>,
) -> Result<TurnOutcome, TurnError> {
    let id = &record.paused.invocation_id;
    let forestalled = record.paused.stage() == InvocationStage::CanceledAhead;
    if request_digest.is_some() && record.paused.request_digest.as_deref() != request_digest && !forestalled {
        let message = "this id belongs to another request; choose another one";
        return Err(TurnError::new(Category::InvocationIdInUse, message));
    }
    if record.paused.graph != graph && !forestalled {
        let message = format!("invocation {id} belongs to another graph; choose another invocation_id");
        return Err(TurnError::new(Category::RequestInvalid, message));
    }
    // Such a turn leaves the rest to a worker behind its first step, with an answer that this request gets, too.
    let is_left = is_short && record.paused.under_way;
    if !record.paused.has_paused()
        && !is_left
        && matches!(record.status, InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_))
    {
        let message = format!("invocation {id} was accepted before and has not slept yet; ask for it");
        return Err(TurnError::new(Category::ResumeInProgress, message));
    }
    Ok(TurnOutcome::stored(record))
}

/// True if a record may hold the outcome of a turn that failed: the same request, delivered twice, may have ended or
/// been suspended on another worker meanwhile, or this one may have unnoticed.
fn may_be_stored(error: &TurnError, given: bool) -> bool {
    let refused = [Category::SuspensionPersistenceFailed, Category::SignalIdInUse, Category::SessionSaveFailed];
    let refused = refused.contains(&error.category);
    error.category == Category::OutcomeUnknown || (given && refused)
}
