//! What errors of the ports beneath mean for a call.

use dormouse_ports::tool::{ToolError, ToolErrorKind};
use dormouse_ports::{FetchError, SecretError};

/// The error of a call that was not made because a reference leads nowhere.
pub(crate) fn unresolved(error: &SecretError) -> ToolError {
    match error {
        SecretError::Missing(_) | SecretError::Unset(_) | SecretError::Denied(_) => {
            ToolError::denied(error.to_string())
        }
        SecretError::Unavailable(_) => ToolError::transient(error.to_string()),
    }
}

/// The error of a request that got no answer.
pub(crate) fn unanswered(error: &FetchError) -> ToolError {
    let kind = match error {
        FetchError::Dns(_) | FetchError::Connect(_) | FetchError::Tls(_) | FetchError::Closed(_) => {
            ToolErrorKind::Transient
        }
        FetchError::Timeout(_) => ToolErrorKind::TimedOut,
        FetchError::TooLarge(_) => ToolErrorKind::Permanent,
        FetchError::Denied(_) => ToolErrorKind::Denied,
    };
    let failed = ToolError::new(kind, error.to_string());
    if error.is_unsent() { failed } else { failed.maybe_done() }
}
