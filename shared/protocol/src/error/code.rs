use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The class of an [`ErrorCode`], for clients that do not know the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ErrorType {
    /// The request is wrong.
    RequestError,
    /// The caller has to prove who it is.
    AuthError,
    /// The caller may not.
    PermissionError,
    /// There is no such thing for this caller.
    NotFoundError,
    /// The state is against it.
    ConflictError,
    /// Later.
    RateLimitError,
    /// Work of an agent failed. No refusal of a request has this type; failures of tasks can.
    RuntimeError,
    /// Something behind the server failed.
    UpstreamError,
    /// The server failed.
    ServerError,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal, $class:ident;)*) => {
        /// Error codes, for programs. The narrative closes this list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[schemars(inline)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl ErrorCode {
            /// All of them, in the order of the narrative.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The HTTP status that the narrative gives it.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// Its class.
            pub fn class(self) -> ErrorType {
                match self {
                    $(Self::$name => ErrorType::$class,)*
                }
            }
        }
    };
}

codes! {
    /// Shape or value of the request.
    InvalidRequest = "invalid_request", 400, RequestError;
    /// The step is not allowed from where the resource is.
    InvalidStateTransition = "invalid_state_transition", 400, RequestError;
    /// The caller is unknown.
    Unauthenticated = "unauthenticated", 401, AuthError;
    /// The actor may not do this.
    PermissionDenied = "permission_denied", 403, PermissionError;
    /// The resource is not there, or not for this actor.
    ResourceNotFound = "resource_not_found", 404, NotFoundError;
    /// The resource is in another state than the request needs.
    Conflict = "conflict", 409, ConflictError;
    /// The key came with another body before.
    IdempotencyKeyReused = "idempotency_key_reused", 409, ConflictError;
    /// The history that the cursor points into is gone.
    CursorExpired = "cursor_expired", 410, RequestError;
    /// The request or artifact is too large.
    PayloadTooLarge = "payload_too_large", 413, RequestError;
    /// A policy forbids it.
    PolicyViolation = "policy_violation", 422, PermissionError;
    /// Another actor holds the resource.
    ResourceLocked = "resource_locked", 423, ConflictError;
    /// The version header is missing or names another version.
    UnsupportedProtocolVersion = "unsupported_protocol_version", 426, RequestError;
    /// Too much, too fast.
    RateLimited = "rate_limited", 429, RateLimitError;
    /// The client hung up.
    ClientClosedRequest = "client_closed_request", 499, RequestError;
    /// A fault of the server.
    InternalError = "internal_error", 500, ServerError;
    /// Something that the server needs failed.
    UpstreamUnavailable = "upstream_unavailable", 502, UpstreamError;
    /// The server does not work now.
    ServiceUnavailable = "service_unavailable", 503, ServerError;
    /// It took too long.
    DeadlineExceeded = "deadline_exceeded", 504, ServerError;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
