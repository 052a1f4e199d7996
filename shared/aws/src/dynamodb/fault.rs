//! What an error of the SDK means here.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use dormouse_ports::StoreError;

/// Why an attempt gave no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// Another attempt may succeed. Nobody knows whether this one did.
    Passing(StoreError),
    /// No other attempt will succeed.
    Lasting(StoreError),
}

const PASSING: &[&str] = &[
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
];

const DENIED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
];

/// What `error` means for `action` on `table`.
pub(super) fn fault<E>(action: &str, table: &str, error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    if let Some(answer) = error.as_service_error() {
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        return answered(action, table, answer, status);
    }
    let sentence = format!("{action} on table {table}: {}", reasons(error));
    if matches!(error, SdkError::ConstructionFailure(_)) {
        return Fault::Lasting(StoreError::Invalid(sentence));
    }
    if matches!(error, SdkError::DispatchFailure(failure) if failure.is_user()) {
        return Fault::Lasting(StoreError::Denied(sentence));
    }
    Fault::Passing(StoreError::Unavailable(sentence))
}

fn answered(action: &str, table: &str, error: &impl ProvideErrorMetadata, status: u16) -> Fault {
    let code = error.code().unwrap_or("unknown error");
    let sentence = format!("{action} on table {table}: {code}: {}", error.message().unwrap_or("no message"));
    if PASSING.contains(&code) || status >= 500 {
        return Fault::Passing(StoreError::Unavailable(sentence));
    }
    if DENIED.contains(&code) || code == "ResourceNotFoundException" {
        return Fault::Lasting(StoreError::Denied(sentence));
    }
    Fault::Lasting(StoreError::Invalid(sentence))
}

/// The error and what caused it, in one line.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        sentence = format!("{sentence}: {error}");
        cause = error.source();
    }
    sentence
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ErrorMetadata;

    use super::*;

    fn meaning(code: &str, status: u16) -> Fault {
        answered("UpdateItem", "dormouse", &ErrorMetadata::builder().code(code).message("why").build(), status)
    }

    #[test]
    fn throttling_conflicts_and_server_errors_pass() {
        for (code, status) in [("ThrottlingException", 400), ("TransactionConflictException", 400), ("Odd", 503)] {
            assert!(matches!(meaning(code, status), Fault::Passing(StoreError::Unavailable(_))), "{code}");
        }
    }

    #[test]
    fn a_refusal_names_action_and_table() {
        let Fault::Lasting(StoreError::Denied(sentence)) = meaning("AccessDeniedException", 400) else {
            panic!("not denied")
        };
        assert_eq!(sentence, "UpdateItem on table dormouse: AccessDeniedException: why");
    }

    #[test]
    fn anything_else_is_the_callers_fault() {
        assert!(matches!(meaning("ValidationException", 400), Fault::Lasting(StoreError::Invalid(_))));
    }
}
