//! Notes for the doctor of input that came for a pause and did not fit.

use std::time::Duration;

use dormouse_ports::{InvocationId, unfit_note};

use crate::error::TurnError;
use crate::worker::Worker;

/// Time for which it is remembered that an event did not fit.
const NOTED: Duration = Duration::from_secs(90 * 24 * 3600);

/// Notes for the doctor that an input came for a pause and did not fit.
pub(super) async fn note_unfit(worker: &Worker, id: &InvocationId, generation: u64, error: &TurnError) {
    let note = format!("{}: {}", worker.now(), error.message);
    let name = unfit_note(id, generation);
    let until = worker.now() + NOTED;
    if let Err(failed) = worker.store().notes.keep_note(&name, Some(&note), Some(until)).await {
        tracing::warn!(
            %failed, invocation_id = %id,
            "the note that an event did not fit its wait was not written; the doctor will not show it"
        );
    }
}
