//! Another try for an invocation that was put aside.

use dormouse_ports::{Category, CommitError, InvocationId, InvocationWrite};

use crate::call::call_for_work;
use crate::error::{TurnError, store_failed, unknown};
use crate::records::is_put_aside;
use crate::worker::Worker;

/// Lets an invocation that was put aside go on with what it was to go on with, and calls for a worker. Attempts are
/// counted from the beginning.
///
/// # Errors
/// `not_found`; `suspension_record_invalid` when it is not put aside; `outcome_unknown` when the store did not report
/// whether it was done.
pub(crate) async fn retry(worker: &Worker, id: &InvocationId) -> Result<(), TurnError> {
    let Some(record) = worker.records.load(id).await? else {
        return Err(TurnError::new(Category::NotFound, format!("there is no invocation {id}")));
    };
    let not_aside = || {
        let message = "the invocation is not put aside: there is nothing to try again";
        TurnError::new(Category::SuspensionRecordInvalid, message).of(id)
    };
    if !is_put_aside(&record) {
        return Err(not_aside());
    }
    match worker.records.commit(InvocationWrite::Retry { paused: Box::new(record.paused) }).await {
        Ok(()) => {}
        Err(CommitError::Store(error)) => return Err(store_failed(error).of(id)),
        Err(error @ CommitError::Unknown(_)) => return Err(unknown(&error).of(id)),
        Err(_) => return Err(not_aside()),
    }
    if let Err(error) = call_for_work(&*worker.bus, id).await {
        tracing::warn!(
            %error, invocation_id = %id,
            "no worker could be called for the accepted input; the next sweep calls one"
        );
    }
    Ok(())
}
