//! Meaning of the error codes of the services, for all of them alike.

use std::error::Error;
use std::fmt::Debug;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use dormouse_ports::SubscriptionError;

/// Effect of trying again, and the party that has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// No party: a later attempt may succeed. It may also be that this one did.
    Transient,
    /// The operator who deploys: the role may not do it, or the resource of the action does not exist.
    Denied,
    /// The caller: the service will never do it as asked.
    Refused,
}

const TRANSIENT: &[&str] = &[
    "ConcurrentModificationException",
    "InternalException",
    "InternalFailure",
    "InternalServerError",
    "InternalServerException",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceQuotaExceededException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
    "TransactionInProgressException",
];

const DENIED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorizedForSourceException",
    "ResourceNotFoundException",
    "UnrecognizedClientException",
];

/// Codes of credentials whose time is over: those of S3, SQS and STS, and those of the others.
const EXPIRED: &[&str] = &["ExpiredToken", "ExpiredTokenException"];

/// What a service says with `code`, and the remedy where only whoever began the process has one.
pub fn with_remedy(code: &str, message: &str) -> String {
    match EXPIRED.contains(&code) {
        true => format!(
            "{message}: begin again with new credentials; those of a profile are had with eval \"$(aws configure \
             export-credentials --format env)\""
        ),
        false => message.to_owned(),
    }
}

/// The kind of `code`; one that is in neither list is judged by the status of the response.
pub(crate) fn kind_of(code: &str, status: u16) -> RefusalKind {
    if TRANSIENT.contains(&code) {
        RefusalKind::Transient
    } else if DENIED.contains(&code) || EXPIRED.contains(&code) {
        RefusalKind::Denied
    } else {
        match status {
            401 | 403 => RefusalKind::Denied,
            429 | 500.. => RefusalKind::Transient,
            _ => RefusalKind::Refused,
        }
    }
}

/// The kind of an answer that names no code: it was cut on its way, or comes from a server in between. It is unknown if
/// the action was done.
fn kind_without_code(status: u16) -> RefusalKind {
    match status {
        401 | 403 => RefusalKind::Denied,
        _ => RefusalKind::Transient,
    }
}

/// The kind of `error` for `action` on `resource`, and a sentence that names both.
pub(crate) fn refusal<E>(action: &str, resource: &str, error: &SdkError<E, HttpResponse>) -> (RefusalKind, String)
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let Some(answer) = error.as_service_error() {
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        let Some(code) = answer.code() else {
            let sentence = format!("{action} on {resource}: an answer {status} that says nothing: {}", reasons(error));
            return (kind_without_code(status), sentence);
        };
        let message = with_remedy(code, answer.message().unwrap_or("no message"));
        return (kind_of(code, status), format!("{action} on {resource}: {code}: {message}"));
    }
    let is_ours = matches!(error, SdkError::ConstructionFailure(_));
    let is_forbidden = matches!(error, SdkError::DispatchFailure(failure) if failure.is_user());
    let kind = match (is_ours, is_forbidden) {
        (true, _) => RefusalKind::Refused,
        (_, true) => RefusalKind::Denied,
        (false, false) => RefusalKind::Transient,
    };
    (kind, format!("{action} on {resource}: {}", reasons(error)))
}

/// The same as an error of registering wake-ups.
pub(crate) fn subscription_error((kind, sentence): (RefusalKind, String)) -> SubscriptionError {
    match kind {
        RefusalKind::Transient => SubscriptionError::Unavailable(sentence),
        RefusalKind::Denied => SubscriptionError::Denied(sentence),
        RefusalKind::Refused => SubscriptionError::Rejected(sentence),
    }
}

/// The error and its causes, in one line.
fn reasons(error: &dyn Error) -> String {
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
    use super::*;

    #[test]
    fn throttling_conflicts_and_server_errors_pass() {
        for (code, status) in [("ThrottlingException", 400), ("TransactionConflictException", 400), ("Odd", 503)] {
            assert_eq!(kind_of(code, status), RefusalKind::Transient, "{code}");
        }
        assert_eq!(kind_of("Odd", 429), RefusalKind::Transient);
    }

    #[test]
    fn roles_and_resources_are_for_the_deployment() {
        for (code, status) in [("AccessDeniedException", 400), ("ResourceNotFoundException", 400), ("Odd", 403)] {
            assert_eq!(kind_of(code, status), RefusalKind::Denied, "{code}");
        }
    }

    #[test]
    fn credentials_that_have_expired_are_told_with_what_helps() {
        for code in ["ExpiredToken", "ExpiredTokenException"] {
            assert_eq!(kind_of(code, 400), RefusalKind::Denied, "{code}");
            let told = with_remedy(code, "The provided token has expired.");
            assert!(told.starts_with("The provided token") && told.contains("export-credentials"), "{told}");
        }
        assert_eq!(with_remedy("AccessDenied", "Access Denied"), "Access Denied");
    }

    #[test]
    fn an_answer_that_was_cut_says_nothing() {
        assert_eq!(
            [200, 400, 403].map(kind_without_code),
            [RefusalKind::Transient, RefusalKind::Transient, RefusalKind::Denied]
        );
    }

    #[test]
    fn anything_else_is_the_callers_fault() {
        assert_eq!(kind_of("ValidationException", 400), RefusalKind::Refused);
    }
}
