//! Delivering a signal to its invocation (harness §3.3, §6).

use dormouse_ports::{Category, ClaimOutcome, ClaimRequest, InvocationRecord, InvocationStatus, Map};

use super::accepted::{WhenSessionBusy, begin};
use super::answers::{ClaimProposal, FanInStep, answer_to, gather};
use super::delivery::{FoundDelivery, SignalTarget};
use super::resume::{PayloadAck, continue_claimed};
use crate::error::{TurnError, store_failed};
use crate::outcome::TurnOutcome;
use crate::transmission::Trigger;
use crate::worker::Worker;

/// Claims the invocation and continues it; while another delivery has it, looks again until that one is done.
pub(super) async fn deliver(worker: &Worker, delivery: FoundDelivery<'_>) -> Result<TurnOutcome, TurnError> {
    let id = delivery.invocation_id.clone();
    let mut backoff = worker.backoff();
    let mut bid = ClaimProposal { payload: delivery.payload.clone(), answered: None };
    loop {
        if let Some(left) = left_to_a_worker(worker, &delivery).await? {
            let told = answer_to(*left, delivery.generation, &delivery.part, &delivery.payload);
            let is_by_name = matches!(delivery.part, SignalTarget::Signal(_));
            if !is_by_name || !told.came_too_late() {
                return Ok(told);
            }
            // A signal that came too late for that pause may be for the next one, to which the worker comes.
            if delivery.budget.is_over() {
                let message = "a worker goes on with the invocation; send it again";
                return Err(TurnError::new(Category::ResumeInProgress, message).of(&id));
            }
            backoff.pause().await;
            continue;
        }
        let lease = delivery.budget.lease();
        let request = ClaimRequest {
            invocation_id: id.clone(),
            generation: delivery.generation,
            owner: lease.owner,
            now: worker.now(),
            until: worker.now() + lease.duration,
            past: None,
            payload: Some(bid.payload.clone()),
            answered: bid.answered,
        };
        match worker.records.claim(&request).await.map_err(store_failed)? {
            ClaimOutcome::Granted(record) if !record.paused.has_begun() => {
                // It had not begun; the signal is for a pause that it may come to.
                begin(worker, record, delivery.budget, WhenSessionBusy::Wait).await.map_err(|error| error.of(&id))?;
            }
            ClaimOutcome::Granted(record) => {
                let accepted = PayloadAck::of(&record);
                let is_another = !goes_on_with(&record, &bid.payload);
                match continue_claimed(worker, record, delivery.budget, accepted).await {
                    // The payload that a dead worker had left does not fit and is forgotten; ours was not looked at
                    // yet.
                    Err(error) if is_another && is_misfit(&error) => {}
                    // The payload that it had left was another answer, which counts: the next look shows so for ours.
                    Ok(_) if is_another && delivery.generation.is_some() => {}
                    turn => return turn.map_err(|error| error.of(&id)),
                }
            }
            ClaimOutcome::NotFound => {
                let message = format!("there is no paused invocation {id}");
                return Err(TurnError::new(Category::HarnessSignalCorrelationFailed, message));
            }
            ClaimOutcome::AwaitingMoreSignals(_) if delivery.budget.is_over() => {
                let message = "other answers keep coming; send it again";
                return Err(TurnError::new(Category::ResumeInProgress, message).of(&id));
            }
            ClaimOutcome::AwaitingMoreSignals(record) => {
                match gather(worker, *record, &delivery).await.map_err(|error| error.of(&id))? {
                    FanInStep::Told(turn) => return Ok(turn),
                    FanInStep::Claims(next) => bid = next,
                }
            }
            ClaimOutcome::NotClaimable(record) => {
                return Ok(answer_to(*record, delivery.generation, &delivery.part, &delivery.payload));
            }
            ClaimOutcome::Held { .. } if delivery.trigger == Trigger::Signal && !delivery.budget.is_over() => {
                backoff.pause().await;
            }
            ClaimOutcome::Held { until } => {
                let message = format!("another delivery is resuming the invocation until {until}; ask again then");
                return Err(TurnError::new(Category::ResumeInProgress, message).of(&id));
            }
        }
    }
}

/// The invocation, where the pause of `delivery` is over and the rest of the work behind it was left to a worker that is called
/// and has not come yet. Whoever waits for a request has no time for that: what took longer would be cut.
async fn left_to_a_worker(
    worker: &Worker,
    delivery: &FoundDelivery<'_>,
) -> Result<Option<Box<InvocationRecord>>, TurnError> {
    if delivery.trigger != Trigger::Signal || !delivery.budget.is_short() {
        return Ok(None);
    }
    let record = worker.records.load(&delivery.invocation_id).await?;
    Ok(record.filter(|record| {
        let is_left = record.paused.under_way && matches!(record.status, InvocationStatus::Accepted { .. });
        is_left && delivery.generation == Some(record.paused.generation)
    }))
}

/// True if what goes on in `record`, which is claimed, goes on with `payload`.
fn goes_on_with(record: &InvocationRecord, payload: &Map) -> bool {
    let is_it = matches!(&record.status, InvocationStatus::Resuming(claim) if claim.payload == *payload);
    is_it && !record.paused.under_way
}

fn is_misfit(error: &TurnError) -> bool {
    error.category == Category::SuspensionResumePayloadInvalid
}
