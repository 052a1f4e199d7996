//! The meaning of the SDK's errors for the store.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use dormouse_ports::StoreError;

use crate::refusal::{RefusalKind, refusal};

/// Reason for which an attempt gave no answer.
#[derive(Debug)]
pub(super) enum RequestFault {
    /// Another attempt may succeed. It is unknown if this one did.
    Transient(StoreError),
    /// Another attempt may succeed. This one did nothing.
    Busy(StoreError),
    /// No other attempt will succeed.
    Permanent(StoreError),
}

/// The fault that `error` means for `action` on `table`.
pub(super) fn fault<E>(action: &str, table: &str, error: &SdkError<E, HttpResponse>) -> RequestFault
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let (kind, sentence) = refusal(action, &format!("table {table}"), error);
    match kind {
        RefusalKind::Transient if is_busy(error) => RequestFault::Busy(StoreError::Unavailable(sentence)),
        RefusalKind::Transient => RequestFault::Transient(StoreError::Unavailable(sentence)),
        RefusalKind::Denied => RequestFault::Permanent(StoreError::Denied(sentence)),
        RefusalKind::Refused => RequestFault::Permanent(StoreError::Invalid(sentence)),
    }
}

/// Codes of the service for requests that it has not begun.
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
