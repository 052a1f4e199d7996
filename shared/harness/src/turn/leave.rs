//! Leaving a signal to others: who waits for it has it, and goes on with another worker.

use dormouse_ports::{Category, InvocationStatus, InvocationWrite, Map, PausedInvocation, SignalId, SignalState};

use super::accepted::input;
use super::answers::part_input;
use super::correlate::{Said, keep, known_state};
use crate::budget::Budget;
use crate::error::{TurnError, is_written};
use crate::worker::Worker;

/// Gives `payload` to the invocation that waits for `signal_id`, and runs no turn of it. Where none waits yet the signal is
/// kept; while another worker has the invocation, this waits until it sleeps or needs the signal no more.
pub(super) async fn leave(
    worker: &Worker,
    signal_id: &SignalId,
    payload: &Map,
    budget: Budget<'_>,
) -> Result<(), TurnError> {
    let mut backoff = worker.backoff();
    loop {
        let (invocation_id, generation) = match known_state(worker, signal_id).await? {
            Some(SignalState::Waiting { invocation_id, generation }) => (invocation_id, generation),
            Some(SignalState::Delivered { .. }) => return Ok(()),
            Some(SignalState::Buffered(_)) | None => {
                match keep(worker, signal_id, signal_id, Said { payload, sender: None }, budget).await? {
                    Some(_) => return Ok(()),
                    None => continue,
                }
            }
        };
        let record = worker.records.load(&invocation_id).await?;
        let sleeping = record.filter(|record| record.status == InvocationStatus::Suspended);
        if let Some(record) = sleeping.filter(|record| record.paused.generation == generation) {
            let Some(write) = write(worker, &record.paused, signal_id, payload).await? else { return Ok(()) };
            if is_written(worker.records.commit(write).await)? {
                return Ok(());
            }
        }
        if budget.is_over() {
            let message = "another delivery is resuming the invocation; send the signal again";
            return Err(TurnError::new(Category::ResumeInProgress, message).of(&invocation_id));
        }
        backoff.pause().await;
    }
}

/// The write by which `paused` has the signal; `None` where it has it already.
async fn write(
    worker: &Worker,
    paused: &PausedInvocation,
    signal_id: &SignalId,
    payload: &Map,
) -> Result<Option<InvocationWrite>, TurnError> {
    let part = paused.fan_in.as_ref().and_then(|fan_in| Some((fan_in, fan_in.part_of(signal_id)?)));
    match part {
        Some((fan_in, part)) if fan_in.has_answered(part) => Ok(None),
        Some((_, part)) => part_input(worker, paused, part, payload.clone()).await.map(Some),
        None => {
            let payload = input(worker, paused, payload.clone()).await?;
            let (invocation_id, generation) = (paused.invocation_id.clone(), paused.generation);
            Ok(Some(InvocationWrite::Deliver { invocation_id, generation, answered: None, payload }))
        }
    }
}
