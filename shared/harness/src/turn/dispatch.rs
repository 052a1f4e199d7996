//! The way of a transmission through the harness, and of a signal to its invocation (harness §3).

use std::time::Duration;

use dormouse_ports::{Category, Map, RESOLUTION, SignalId};

use super::correlate::{Sender, correlate, correlate_event, unfit_event};
use super::deliver::deliver;
use super::delivery::{FoundDelivery, SignalTarget};
use super::due::fall_due;
use super::leave::leave;
use super::start::start;
use crate::budget::Budget;
use crate::error::{TurnError, bounded};
use crate::outcome::TurnOutcome;
use crate::transmission::{Callback, Signal, SignalOrigin, Transmission, TransmissionKind, Trigger, Wakeup};
use crate::worker::Worker;

/// Runs the turn of `transmission`.
pub(crate) async fn dispatch(worker: &Worker, transmission: Transmission) -> Result<TurnOutcome, TurnError> {
    let Transmission { kind, time_left } = transmission;
    match kind {
        TransmissionKind::Fresh(turn) => start(worker, *turn, time_left, None).await,
        TransmissionKind::Callback(Callback { invocation_id, generation, part, payload }) => {
            let payload = checked(worker, payload)?;
            let budget = worker.budget(time_left);
            let trigger = Trigger::Signal;
            let part = part.map_or(SignalTarget::Pause, SignalTarget::Part);
            deliver(worker, FoundDelivery { invocation_id, generation, part, payload, budget, trigger }).await
        }
        TransmissionKind::Signal(signal) => signalled(worker, signal, worker.budget(time_left)).await,
        TransmissionKind::Wakeup(Wakeup { invocation_id, generation, due_at }) => {
            fall_due(worker, invocation_id, generation, due_at, worker.budget(time_left)).await
        }
    }
}

async fn signalled(worker: &Worker, signal: Signal, budget: Budget<'_>) -> Result<TurnOutcome, TurnError> {
    let Signal { signal_id, origin, payload } = signal;
    match origin {
        SignalOrigin::Sent => correlate(worker, signal_id, None, checked(worker, payload)?, budget).await,
        SignalOrigin::Tenant { tenant, actor, credential } => {
            let sender = Sender { tenant: &tenant, actor: &actor, credential: &credential };
            correlate(worker, signal_id, Some(sender), checked(worker, payload)?, budget).await
        }
        SignalOrigin::Event(event) => {
            let payload = match checked(worker, payload) {
                Ok(payload) => payload,
                Err(error) => return Err(unfit_event(worker, &signal_id, &event, error).await),
            };
            match correlate_event(worker, signal_id.clone(), event.clone(), payload, budget).await {
                Err(error) if error.is_unfit() => Err(unfit_event(worker, &signal_id, &event, error).await),
                turn => turn,
            }
        }
    }
}

/// Gives the signal `signal_id` to whoever waits for it, who goes on with another worker; no turn runs here.
pub(crate) async fn leave_signal(
    worker: &Worker,
    signal_id: &SignalId,
    payload: Map,
    time_left: Option<Duration>,
) -> Result<(), TurnError> {
    leave(worker, signal_id, &checked(worker, payload)?, worker.budget(time_left)).await
}

/// The payload of a signal, which cannot claim that time decided.
fn checked(worker: &Worker, mut payload: Map) -> Result<Map, TurnError> {
    check_size(worker, &payload)?;
    payload.shift_remove(RESOLUTION);
    Ok(payload)
}

fn check_size(worker: &Worker, payload: &Map) -> Result<(), TurnError> {
    bounded("the payload", payload)?;
    let unreadable = |error: serde_json::Error| TurnError::new(Category::RequestInvalid, error.to_string());
    let size = serde_json::to_vec(payload).map_err(unreadable)?.len();
    let limit = worker.config.signal_payload;
    if size <= limit {
        return Ok(());
    }
    let advice = "keep the data elsewhere and send a reference";
    let message = format!("the payload has {size} bytes; the limit is {limit} bytes: {advice}");
    Err(TurnError::new(Category::RequestTooLarge, message))
}
