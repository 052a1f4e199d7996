//! Taking up work that was accepted, or left by a worker that died.

use std::time::Duration;

use dormouse_ports::{ClaimOutcome, ClaimRequest, InvocationId, Map};

use super::accepted::{WhenSessionBusy, begin};
use super::resume::{PayloadAck, continue_claimed};
use crate::budget::Budget;
use crate::error::{TurnError, store_failed};
use crate::outcome::{Turn, TurnOutcome};
use crate::transmission::{Callback, DispatchPath, FreshTurn, Transmission, TransmissionKind};
use crate::turn_span::in_span;
use crate::worker::Worker;

/// Takes over the claim of a worker that died, or that had a wrong clock, in that pause or the current one, with the
/// payload that it had accepted. `None` when there is no such claim any more, or not yet.
pub(crate) async fn take_over(
    worker: &Worker,
    id: &InvocationId,
    generation: Option<u64>,
    budget: Budget<'_>,
) -> Result<Option<TurnOutcome>, TurnError> {
    let request = takeover_of(worker, id, generation, budget);
    match worker.records.claim(&request).await.map_err(store_failed)? {
        ClaimOutcome::Granted(record) if !record.paused.has_begun() => {
            begin(worker, record, budget, WhenSessionBusy::Requeue).await.map(Some)
        }
        ClaimOutcome::Granted(record) => continue_claimed(worker, record, budget, PayloadAck::Sent).await.map(Some),
        ClaimOutcome::NotFound
        | ClaimOutcome::Held { .. }
        | ClaimOutcome::AwaitingMoreSignals(_)
        | ClaimOutcome::NotClaimable(_) => Ok(None),
    }
}

/// Does the work that was accepted for the invocation `id` and that no worker does yet: begins it, or goes on with its
/// input. Stale when there is nothing to do, or another worker is at it. While another turn of the session runs it
/// waits, and gives the work back when its time is over.
pub(crate) async fn take_up(worker: &Worker, id: &InvocationId, time_left: Option<Duration>) -> Turn {
    let budget = worker.budget(time_left);
    let request = takeover_of(worker, id, None, budget);
    let record = match worker.records.claim(&request).await {
        Ok(ClaimOutcome::Granted(record)) => record,
        Ok(
            ClaimOutcome::NotFound
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::AwaitingMoreSignals(_)
            | ClaimOutcome::NotClaimable(_),
        ) => {
            return Turn { path: None, outcome: TurnOutcome::Stale { invocation_id: id.clone() } };
        }
        Err(error) => return Turn { path: None, outcome: store_failed(error).of(id).into() },
    };
    let begins = !record.paused.has_begun();
    let sessioned = record.paused.session_id.is_some();
    let path = match (begins, sessioned) {
        (false, _) => DispatchPath::SignalResume,
        (true, true) => DispatchPath::ExistingSession,
        (true, false) => DispatchPath::Stateless,
    };
    let kind = match begins {
        true => TransmissionKind::Fresh(Box::new(FreshTurn {
            session_id: record.paused.session_id.clone(),
            invocation_id: Some(id.clone()),
            correlation_id: Some(record.paused.correlation_id.clone()),
            ..FreshTurn::new(record.paused.graph.clone(), Map::new())
        })),
        false => TransmissionKind::Callback(Callback::new(id.clone(), None, Map::new())),
    };
    let transmission = Transmission { kind, time_left };
    let work = async {
        let turn = match begins {
            true => begin(worker, record, budget, WhenSessionBusy::Wait).await,
            false => continue_claimed(worker, record, budget, PayloadAck::Sent).await,
        };
        turn.map_err(|error| error.of(id))
    };
    let tracer = worker.config.turn_tracer.as_ref();
    Turn { path: Some(path), outcome: in_span(tracer, &transmission, path, Box::pin(work)).await }
}

/// Request for a claim that is out of time, with the payload that it stored.
fn takeover_of(worker: &Worker, id: &InvocationId, generation: Option<u64>, budget: Budget<'_>) -> ClaimRequest {
    let lease = budget.lease();
    let now = worker.now();
    let until = worker.now() + lease.duration;
    ClaimRequest {
        invocation_id: id.clone(),
        generation,
        owner: lease.owner,
        now,
        until,
        past: None,
        payload: None,
        answered: None,
    }
}
