//! Work that is accepted now and done later: the checks before, the call for a worker, and the take-up.
//!
//! A caller that accepts work writes it down, by [`InvocationWrite::Accept`] or [`InvocationWrite::Deliver`] in a
//! commit of its own, and [calls](crate::WorkCall) for a worker. The call may be lost: the sweep calls for work that no
//! worker has taken up.

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{AfterError, Begin, Carry, CompiledGraph, EngineError, Invocation, Outcome};
use dormouse_ports::{
    Category, Due, DueAction, FailureRecord, InvocationRecord, InvocationStatus, InvocationWrite, Map,
    PausedInvocation, RESOLUTION, WakePlan,
};

use super::resume::finish;
use super::start::session_of;
use crate::admission::AdmissionWait;
use crate::budget::Budget;
use crate::chat::carry_of;
use crate::error::TurnError;
use crate::outcome::TurnOutcome;
use crate::registry::VersionedGraph;
use crate::transmission::FreshTurn;
use crate::worker::Worker;

/// Reaction of a worker while another turn of the session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenSessionBusy {
    /// It waits, as a fresh turn does.
    Wait,
    /// It goes on to other work, and comes again.
    Requeue,
}

/// Checks that the fresh `turn` could begin, and gives the record of generation 0 with which it is
/// [accepted](InvocationWrite::Accept): under the ids that it names, or fresh ones. It falls due at once, so that a
/// sweep that comes by calls for it. It changes nothing.
///
/// # Errors
/// `graph_unknown`, and the errors with which the turn would be refused before any node runs.
pub(crate) async fn accept(worker: &Worker, turn: FreshTurn) -> Result<PausedInvocation, TurnError> {
    let begun = worker.graphs.begun(&turn.graph, turn.version.as_deref()).await?;
    accept_in(worker, turn, begun).await
}

/// The same in the graph `current`.
///
/// # Errors
/// The errors with which the turn would be refused before any node runs.
pub(crate) async fn accept_in(
    worker: &Worker,
    turn: FreshTurn,
    current: VersionedGraph,
) -> Result<PausedInvocation, TurnError> {
    let graph = &current.graph;
    graph.check_inputs(&turn.state)?;
    let session_id = session_of(worker, &turn);
    let FreshTurn { state, metadata, invocation_id, correlation_id, request_digest, tenant, .. } = turn;
    let call = Invocation { state, session_id, metadata: current.noted_in(metadata), ..Invocation::default() };
    worker.engine.admit(graph, &call).await?;
    let Invocation { state, session_id, metadata, .. } = call;
    let ids = &worker.ports().ids;
    let now = worker.now();
    let due = Due::first(now, DueAction::Resume(Map::new()));
    Ok(PausedInvocation {
        correlation_id: correlation_id.unwrap_or_else(|| ids.fresh()),
        session_id,
        graph_digest: graph.digest().to_owned(),
        wake: WakePlan { due: Some(due), ..WakePlan::default() },
        state: state.into(),
        schema_version: graph.schema().version().to_owned(),
        metadata,
        request_digest,
        tenant: worker.signalled_by(&current, tenant.clone()),
        begun_for: tenant,
        ..PausedInvocation::before_first_pause(invocation_id.unwrap_or_else(|| ids.fresh().into()), graph.name(), now)
    })
}

/// Checks that `payload` could resume `paused`, and returns the payload to [deliver](InvocationWrite::Deliver): without
/// the fields that only the harness sets. It changes nothing.
///
/// # Errors
/// `request_invalid` when the pause waits for several signals ([`part_input`](super::answers::part_input));
/// `graph_unknown`, `suspension_resume_payload_invalid`, or any other error with which a resume would be refused.
pub(crate) async fn input(worker: &Worker, paused: &PausedInvocation, mut payload: Map) -> Result<Map, TurnError> {
    payload.shift_remove(RESOLUTION);
    if paused.fan_in.is_some() {
        let message = "it waits for several answers; send each of them to the address of its own part";
        return Err(TurnError::new(Category::RequestInvalid, message).of(&paused.invocation_id));
    }
    let graph = worker.graph_of(paused).await.map_err(|error| error.of(&paused.invocation_id))?;
    graph.takes(paused, &payload).map_err(|error| TurnError::from(error).of(&paused.invocation_id))?;
    Ok(payload)
}

/// Begins an accepted invocation that we have claimed.
pub(super) async fn begin(
    worker: &Worker,
    record: Box<InvocationRecord>,
    budget: Budget<'_>,
    patience: WhenSessionBusy,
) -> Result<TurnOutcome, TurnError> {
    let graph = match worker.graph_of(&record.paused).await {
        Ok(graph) => graph,
        Err(error) => {
            worker.records.give_back(&record).await;
            return Err(error);
        }
    };
    if let Err(error) = worker.stand_rules_of(&graph).await {
        worker.records.give_back(&record).await;
        return Err(error);
    }
    let outcome = match begin_alone(worker, &graph, &record, budget, patience).await {
        Ok(outcome) => finish(worker, &graph, outcome, budget).await,
        Err(error) => Err(error),
    };
    let outcome = outcome.map_err(|error| error.in_correlation(&record.paused.correlation_id))?;
    Ok(outcome.in_session(record.paused.session_id))
}

/// Runs it alone in its session. A run that takes longer than a turn may is over; one that had to wait for the
/// session gets another turn.
async fn begin_alone(
    worker: &Worker,
    graph: &Arc<CompiledGraph>,
    record: &InvocationRecord,
    budget: Budget<'_>,
    patience: WhenSessionBusy,
) -> Result<Outcome, TurnError> {
    let carry = carry_of(graph);
    let began = budget.left();
    let longest = match patience {
        WhenSessionBusy::Wait => began / 2,
        WhenSessionBusy::Requeue => Duration::ZERO,
    };
    let wait = AdmissionWait { longest, refusable: false };
    let _first = match worker.lines.session(record.paused.session_id.as_ref(), wait).await {
        Ok(first) => first,
        Err(error) => {
            worker.records.give_back(record).await;
            return Err(error);
        }
    };
    let mut waited = budget.left() + worker.config.poll_interval < began;
    let mut backoff = worker.backoff();
    loop {
        match begin_once(worker, graph, record, budget, carry.clone()).await {
            Err(error) if error.category == Category::SessionLeaseHeld => {
                if patience == WhenSessionBusy::Requeue || budget.is_over() {
                    worker.records.give_back(record).await;
                    return Err(error);
                }
                waited = true;
                backoff.pause().await;
            }
            Err(error) if error.category == Category::TurnDeadlineExceeded && waited => {
                worker.records.give_back(record).await;
                return Err(error);
            }
            Err(error) if error.category == Category::TurnDeadlineExceeded => {
                return Err(fail_claimed(worker, record, error).await);
            }
            outcome => return outcome,
        }
    }
}

/// The end of the invocation is reported as such: nothing is left to try again.
async fn begin_once(
    worker: &Worker,
    graph: &Arc<CompiledGraph>,
    record: &InvocationRecord,
    budget: Budget<'_>,
    carry: Option<Carry>,
) -> Result<Outcome, TurnError> {
    let call = Begin {
        carry,
        claim: budget.lease(),
        observers: Vec::new(),
        after_error: |error| if is_port_busy(error) { AfterError::KeepClaim } else { AfterError::End },
    };
    let work = worker.engine.begin_claimed(graph, Box::new(record.clone()), call);
    let outcome = budget.within(async {
        match work.await {
            // That its session was changed ends what may not be carried over onto that.
            Err(error) if !is_port_busy(&error) || graph.is_overtaken(error.derived_category()) => {
                Ok(Err(TurnError::ended(failure_of(&error), &record.paused)))
            }
            Err(error) => Err(error),
            Ok(outcome) => Ok(Ok(outcome)),
        }
    });
    outcome.await?
}

async fn fail_claimed(worker: &Worker, record: &InvocationRecord, error: TurnError) -> TurnError {
    let InvocationStatus::Resuming(claim) = &record.status else { return error };
    let failure = FailureRecord { category: error.category.clone(), message: error.message.clone() };
    let paused = Box::new(record.paused.clone());
    let owner = Some(claim.owner.clone());
    match worker.records.commit(InvocationWrite::Fail { paused, owner, failure: failure.clone() }).await {
        Ok(()) => TurnError::ended(failure, &record.paused),
        Err(refused) => {
            tracing::warn!(
                %refused,
                "the worker could not end an invocation that ran out of time; \
                 its claim expires and the sweep takes it over"
            );
            error
        }
    }
}

/// True if the run failed on something around it and not by itself: the next one may get further. A lost race for a session
/// counts where it is that of the run: one that a node raised may be lost each time.
fn is_port_busy(error: &EngineError) -> bool {
    error.is_transient() || [Category::SessionLeaseHeld, Category::SessionWriteConflict].contains(error.category())
}

fn failure_of(error: &EngineError) -> FailureRecord {
    FailureRecord { category: error.derived_category().clone(), message: error.message().to_owned() }
}
