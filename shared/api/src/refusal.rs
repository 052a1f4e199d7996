//! Errors that clients receive for failures behind the operations. The reasons go to the log.

use std::fmt::Display;

use dormouse_harness::{Bucket, TurnError};
use dormouse_ports::{Category, SignerError, StoreError};
use dormouse_protocol::{ErrorCode, ProtocolError};

/// Number of seconds after which a request that found the store busy may come again.
const SOON: u32 = 1;

/// Checks that `text`, the field `param`, has from 1 to `most` characters and none of control.
pub(crate) fn check_line(param: &str, text: &str, most: usize) -> Result<(), ProtocolError> {
    let is_line = !text.trim().is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control);
    if is_line {
        return Ok(());
    }
    Err(ProtocolError::invalid(param, format!("expected 1 to {most} characters on one line")))
}

/// Checks that `text`, the field `param`, has at most `most` characters.
pub(crate) fn check_length(param: &str, text: &str, most: usize) -> Result<(), ProtocolError> {
    if text.chars().count() <= most {
        return Ok(());
    }
    Err(ProtocolError::invalid(param, format!("expected at most {most} characters")))
}

/// Something is wrong with the server.
pub(crate) fn internal(reason: &dyn Display) -> ProtocolError {
    tracing::error!(%reason, "an operation failed");
    ProtocolError::new(ErrorCode::InternalError, "the server failed")
}

/// The store did not do what it was asked.
pub(crate) fn store(error: StoreError) -> ProtocolError {
    match error {
        StoreError::Unavailable(reason) => {
            tracing::warn!(%reason, "the store does not answer");
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the store does not answer").retry_after(SOON)
        }
        StoreError::TooLarge { limit, .. } => ProtocolError::too_large(limit),
        StoreError::TooComplex { excess, .. } => ProtocolError::too_complex(excess),
        StoreError::LeaseHeld { .. } => busy(),
        StoreError::Denied(_) | StoreError::Corrupt(_) | StoreError::Invalid(_) => internal(&error),
    }
}

/// A receipt was not signed, so what it belongs to is not written.
#[derive(Debug)]
pub(crate) enum UnsignedError {
    /// The key did not sign.
    Key(SignerError),
    /// The receipt could not be made.
    Receipt(ProtocolError),
}

impl From<SignerError> for UnsignedError {
    fn from(error: SignerError) -> Self {
        Self::Key(error)
    }
}

impl From<ProtocolError> for UnsignedError {
    fn from(error: ProtocolError) -> Self {
        Self::Receipt(error)
    }
}

impl From<UnsignedError> for ProtocolError {
    fn from(error: UnsignedError) -> Self {
        match error {
            UnsignedError::Key(SignerError::Unavailable(reason)) => {
                tracing::warn!(%reason, "the key that signs receipts does not answer");
                let message = "the key that signs receipts does not answer; nothing was written";
                Self::new(ErrorCode::ServiceUnavailable, message).retry_after(SOON)
            }
            UnsignedError::Key(error @ SignerError::Refused(_)) => internal(&error),
            UnsignedError::Receipt(error) => error,
        }
    }
}

/// The same for who writes a commit: the key counts as a part of what keeps it.
pub(crate) fn unsigned(error: UnsignedError) -> StoreError {
    match error {
        UnsignedError::Key(error @ SignerError::Unavailable(_)) => StoreError::Unavailable(error.to_string()),
        UnsignedError::Key(error @ SignerError::Refused(_)) => StoreError::Denied(error.to_string()),
        UnsignedError::Receipt(error) => StoreError::Corrupt(error.to_string()),
    }
}

/// It is not known whether the store did what it was asked. Only a caller that may repeat the request by a key is asked
/// to.
pub(crate) fn unknown(reason: &str, repeatable: bool) -> ProtocolError {
    tracing::warn!(%reason, repeatable, "the store did not say what came of a commit");
    if repeatable {
        return ProtocolError::new(ErrorCode::ServiceUnavailable, "the store does not answer").retry_after(SOON);
    }
    let message = "the store did not say whether it was written; look before sending it again";
    ProtocolError::new(ErrorCode::DeadlineExceeded, message)
}

/// Other writers changed the same resource at every attempt.
pub(crate) fn busy() -> ProtocolError {
    let refusal = ProtocolError::new(ErrorCode::ResourceLocked, "others are changing the resource; send it again");
    refusal.retry_after(SOON)
}

/// The agents of a source are not known now.
pub(crate) fn agents_away(reason: &dyn Display) -> ProtocolError {
    tracing::warn!(%reason, "the published agents cannot be loaded");
    ProtocolError::new(ErrorCode::ServiceUnavailable, "the published agents cannot be loaded now").retry_after(SOON)
}

/// The resource is in another state than the request needs.
pub(crate) fn conflict(message: &str) -> ProtocolError {
    ProtocolError::new(ErrorCode::Conflict, message)
}

/// The step is not allowed from where the resource is.
pub(crate) fn transition(message: &str) -> ProtocolError {
    ProtocolError::new(ErrorCode::InvalidStateTransition, message)
}

/// The harness did not take the answer that a client sent in `param` to a task that sleeps. Where the agent of the task is not
/// served, or not as it takes the task up, nothing is wrong with the answer.
pub(crate) fn unanswered(param: &str, error: TurnError) -> ProtocolError {
    let of_agent = [
        Category::GraphUnknown,
        Category::ProviderUnavailable,
        Category::SuspensionPinned,
        Category::SuspensionRecordInvalid,
    ];
    if !of_agent.contains(&error.category) {
        return refused(param, error);
    }
    tracing::warn!(%error.message, "a task cannot be answered now: its agent is not served as it was");
    let message = "the agent of the task is not served now, or not as it was: the task sleeps on; answer it later";
    ProtocolError::new(ErrorCode::ServiceUnavailable, message).retry_after(SOON)
}

/// The harness did not take what a client sent in `param`.
pub(crate) fn refused(param: &str, error: TurnError) -> ProtocolError {
    match error.bucket {
        Bucket::UserCorrectable => ProtocolError::invalid(param, error.message),
        Bucket::RetryableTransient => {
            tracing::warn!(%error.message, "the harness is busy");
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the server is busy").retry_after(SOON)
        }
        Bucket::SessionTerminating => internal(&error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_no_version_of_its_agent_takes_now_is_not_wrong() {
        for category in [Category::GraphUnknown, Category::SuspensionPinned, Category::SuspensionRecordInvalid] {
            let refusal = unanswered("message.parts", TurnError::new(category, "the graph has no node `ask` more"));
            assert_eq!(refusal.code(), ErrorCode::ServiceUnavailable);
            assert!(refusal.message().contains("the task sleeps on"), "{}", refusal.message());
        }
        let misfit = TurnError::new(Category::SuspensionResumePayloadInvalid, "`amount` is no number");
        assert_eq!(unanswered("message.parts", misfit).code(), ErrorCode::InvalidRequest);
    }
}
