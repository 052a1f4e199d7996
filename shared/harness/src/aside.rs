//! What kills its workers is put aside, whole, so that it keeps nobody from working; a person may let it be tried again,
//! or cancel it. Until then it stays, however long that takes.
//!
//! Each claim counts as an attempt until the invocation gets further. A worker that gives its claim back, or leaves it to
//! another one, lives: its attempt is taken back. What remains are workers that died, or that never came to an end.

use dormouse_ports::{
    Category, Claim, ClaimOutcome, ClaimRequest, CommitError, FailureRecord, InvocationId, InvocationRecord,
    InvocationStatus, InvocationWrite, StoreError,
};

use crate::signal::{store_failed, unknown};
use crate::{Harness, TurnError};

impl Harness {
    /// As the engine's claim, but for an invocation of which as many workers died as may: that one is put aside, and
    /// answered as ended.
    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.engine().claim(request).await?;
        match outcome {
            ClaimOutcome::Granted(record) => match &record.status {
                InvocationStatus::Resuming(claim) if claim.attempts > self.config().most_attempts => {
                    let claim = claim.clone();
                    self.put_aside(*record, claim).await
                }
                InvocationStatus::Resuming(_)
                | InvocationStatus::Suspended
                | InvocationStatus::Completed { .. }
                | InvocationStatus::Errored(_)
                | InvocationStatus::Canceled(_) => Ok(ClaimOutcome::Granted(record)),
            },
            ClaimOutcome::Missing
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::Gathering(_)
            | ClaimOutcome::Settled(_) => Ok(outcome),
        }
    }

    async fn put_aside(&self, record: InvocationRecord, claim: Claim) -> Result<ClaimOutcome, StoreError> {
        let (id, died) = (&record.paused.invocation_id, claim.attempts - 1);
        let message = format!(
            "{died} workers in a row died of it or never came to an end: it is put aside and is not tried again by itself; \
             when the cause is repaired, `dormouse retry {id}` lets it go on"
        );
        tracing::error!(invocation_id = %id, graph = record.paused.graph, attempts = died, "put aside: {message}");
        let failure = FailureRecord { category: Category::AttemptsExhausted, message };
        let paused = Box::new(record.paused.clone());
        let write = InvocationWrite::PutAside { paused, owner: claim.owner.clone(), failure: failure.clone() };
        match self.commit(write).await {
            Ok(()) => {
                let status = InvocationStatus::Errored(failure);
                Ok(ClaimOutcome::Settled(Box::new(InvocationRecord { status, ..record })))
            }
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Lets an invocation that was put aside go on with what it was to go on with, and calls for a worker. Attempts are
    /// counted from the beginning.
    ///
    /// # Errors
    /// `not_found`; `suspension_record_invalid` when it is not put aside; `outcome_unknown` when the store did not say
    /// whether it was done.
    pub async fn retry(&self, id: &InvocationId) -> Result<(), TurnError> {
        let Some(record) = self.load_invocation(id).await? else {
            return Err(TurnError::new(Category::NotFound, format!("there is no invocation {id}")));
        };
        let not_aside = || {
            let message = "the invocation is not put aside: there is nothing to try again";
            TurnError::new(Category::SuspensionRecordInvalid, message).of(id)
        };
        if !is_put_aside(&record) {
            return Err(not_aside());
        }
        match self.commit(InvocationWrite::Retry { paused: Box::new(record.paused) }).await {
            Ok(()) => {}
            Err(CommitError::Store(error)) => return Err(store_failed(error).of(id)),
            Err(error @ CommitError::Unknown(_)) => return Err(unknown(&error).of(id)),
            Err(_) => return Err(not_aside()),
        }
        if let Err(error) = self.call_for_work(id).await {
            tracing::warn!(%error, invocation_id = %id, "nobody was called for it; the next sweep finds it");
        }
        Ok(())
    }
}

/// Whether an invocation was put aside, because every worker that took it up died or never came to an end.
pub fn is_put_aside(record: &InvocationRecord) -> bool {
    matches!(&record.status, InvocationStatus::Errored(failure) if failure.category == Category::AttemptsExhausted)
}
