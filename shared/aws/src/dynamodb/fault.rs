//! What an error of the SDK means here.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use dormouse_ports::StoreError;

use crate::refusal::{Kind, refusal};

/// Why an attempt gave no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// Another attempt may succeed. Nobody knows whether this one did.
    Passing(StoreError),
    /// Another attempt may succeed. This one did nothing.
    Busy(StoreError),
    /// No other attempt will succeed.
    Lasting(StoreError),
}

/// What `error` means for `action` on `table`.
pub(super) fn fault<E>(action: &str, table: &str, error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let (kind, sentence) = refusal(action, &format!("table {table}"), error);
    match kind {
        Kind::Passing if is_busy(error) => Fault::Busy(StoreError::Unavailable(sentence)),
        Kind::Passing => Fault::Passing(StoreError::Unavailable(sentence)),
        Kind::Denied => Fault::Lasting(StoreError::Denied(sentence)),
        Kind::Refused => Fault::Lasting(StoreError::Invalid(sentence)),
    }
}

/// What the service says before it does anything.
const BUSY: &[&str] = &[
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
];

fn is_busy<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.as_service_error().and_then(ProvideErrorMetadata::code).is_some_and(|code| BUSY.contains(&code))
}
