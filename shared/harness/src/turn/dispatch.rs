//! The way of a transmission through the harness, and of a signal to its invocation (harness §3).

use dormouse_ports::{Category, Map, RESOLUTION};

use super::correlate::{correlate, correlate_event, unfit_event};
use super::deliver::deliver;
use super::delivery::{Addressee, Delivery};
use super::due::fall_due;
use super::start::start;
use crate::error::{TurnError, bounded};
use crate::outcome::TurnOutcome;
use crate::transmission::{DispatchPath, SignalOrigin, Transmission, Trigger};
use crate::worker::Worker;

/// Runs the turn of `transmission`, which was classified as `path`.
pub(crate) async fn dispatch(
    worker: &Worker,
    transmission: Transmission,
    path: DispatchPath,
) -> Result<TurnOutcome, TurnError> {
    match path {
        DispatchPath::SignalResume => signal(worker, transmission).await,
        DispatchPath::Stateless if transmission.is_signal() => signal(worker, transmission).await,
        DispatchPath::Stateless | DispatchPath::NewSession | DispatchPath::ExistingSession => {
            start(worker, transmission, None).await
        }
    }
}

async fn signal(worker: &Worker, transmission: Transmission) -> Result<TurnOutcome, TurnError> {
    let budget = worker.budget(transmission.time_left);
    let mut payload = transmission.signal_payload.unwrap_or_default();
    let size = check_size(worker, &payload);
    if let (Err(error), Some(signal_id), SignalOrigin::Event(event)) =
        (&size, &transmission.signal_id, &transmission.origin)
    {
        return Err(unfit_event(worker, signal_id, event, error.clone()).await);
    }
    size?;
    // A signal cannot say that time decided.
    payload.shift_remove(RESOLUTION);
    match (transmission.trigger, transmission.invocation_id, transmission.signal_id) {
        (Trigger::Due, Some(id), _) => fall_due(worker, id, transmission.generation, transmission.due_at, budget).await,
        (Trigger::Signal, Some(invocation_id), _) => {
            let (generation, trigger) = (transmission.generation, Trigger::Signal);
            let part = transmission.part.map_or(Addressee::Pause, Addressee::Part);
            deliver(worker, Delivery { invocation_id, generation, part, payload, budget, trigger }).await
        }
        (_, None, Some(signal_id)) => match transmission.origin {
            SignalOrigin::Sent => correlate(worker, signal_id, payload, budget).await,
            SignalOrigin::Event(event) => {
                match correlate_event(worker, signal_id.clone(), event.clone(), payload, budget).await {
                    Err(error) if error.is_unfit() => Err(unfit_event(worker, &signal_id, &event, error).await),
                    turn => turn,
                }
            }
        },
        (_, None, None) => {
            let message = "a signal must name an invocation_id or a signal_id";
            Err(TurnError::new(Category::HarnessSignalCorrelationFailed, message))
        }
    }
}

fn check_size(worker: &Worker, payload: &Map) -> Result<(), TurnError> {
    bounded("the payload", payload)?;
    let unreadable = |error: serde_json::Error| TurnError::new(Category::RequestInvalid, error.to_string());
    let (size, limit) = (serde_json::to_vec(payload).map_err(unreadable)?.len(), worker.config.signal_payload);
    if size <= limit {
        return Ok(());
    }
    let advice = "keep the data elsewhere and send a reference";
    let message = format!("the payload has {size} bytes; the limit is {limit} bytes: {advice}");
    Err(TurnError::new(Category::RequestTooLarge, message))
}
