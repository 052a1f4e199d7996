//! Refusals of requests: codes, their classes, their statuses, and the envelope on the wire.

mod code;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PROTOCOL_VERSION;
pub use code::{ErrorCode, ErrorType};

use crate::envelope::{Map, present};
use crate::operation::Operation;

/// The longest message and the longest name of a parameter, in characters. Longer ones are cut.
const MAX_MESSAGE: usize = 300;

/// A refusal. Its message is short, one line, and never repeats a value that the client sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ProtocolError {
    code: ErrorCode,
    /// Status of HTTP where the narrative's table has none.
    http: Option<u16>,
    message: String,
    param: Option<String>,
    details: Box<Map>,
    header: Option<(&'static str, String)>,
}

impl ProtocolError {
    /// A refusal with `code`; what would begin a line or steer a terminal in `message` becomes `?`.
    pub fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        let message = plain(message.as_ref());
        Self { code, http: None, message, param: None, details: Box::default(), header: None }
    }

    /// The field, parameter or header `param` is missing or has a value that it cannot have.
    pub fn invalid(param: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self { param: Some(plain(param.as_ref())), ..Self::new(ErrorCode::InvalidRequest, message) }
    }

    /// There is no `object` of that id, as far as the caller may know.
    pub fn not_found(object: &str) -> Self {
        Self::new(ErrorCode::ResourceNotFound, format!("there is no such {object}"))
    }

    /// No operation has this path.
    pub fn no_such_route() -> Self {
        Self::new(ErrorCode::ResourceNotFound, "no operation has this path")
    }

    /// The path has operations, but none with this method.
    pub fn method_not_allowed(allowed: &[&str]) -> Self {
        let allowed = allowed.join(", ");
        let refusal = Self::new(ErrorCode::InvalidRequest, format!("this path takes {allowed}"));
        Self { http: Some(405), header: Some(("allow", allowed)), ..refusal }
    }

    /// The operation is part of the protocol, but not offered here.
    pub fn not_implemented(operation: Operation) -> Self {
        let spec = operation.spec();
        let message = format!("this server does not offer {}", spec.id);
        let refusal = Self::new(ErrorCode::InvalidRequest, message).with_detail("operation", spec.id);
        Self { http: Some(501), ..refusal }.with_detail("level", spec.level.as_str())
    }

    /// The body is not JSON by its content type.
    pub fn unsupported_media_type() -> Self {
        let refusal = Self::invalid("content-type", "the body must be application/json");
        Self { http: Some(415), ..refusal }
    }

    /// The body is compressed, which nobody takes apart here (RFC 9110 §15.5.16).
    pub fn unsupported_coding() -> Self {
        let refusal = Self::invalid("content-encoding", "send the body as it is, neither compressed nor encoded");
        Self { http: Some(415), header: Some(("accept-encoding", "identity".to_owned())), ..refusal }
    }

    /// The write is to be done on the condition of `header`, and none is checked.
    pub fn unchecked_condition(header: &str) -> Self {
        let refusal =
            Self::invalid(header, "writes are done on no condition: read again, and send it without this header");
        Self { http: Some(412), ..refusal }
    }

    /// The body is longer than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let refusal = Self::new(ErrorCode::PayloadTooLarge, format!("at most {limit} bytes are taken"));
        refusal.with_detail("limit_bytes", limit)
    }

    /// The JSON is beyond the bounds of what is taken.
    pub fn too_complex(excess: dormouse_json::Excess) -> Self {
        match excess {
            dormouse_json::Excess::Depth(limit) => {
                let refusal = Self::new(ErrorCode::InvalidRequest, excess.to_string());
                refusal.with_detail("limit_levels", limit)
            }
            dormouse_json::Excess::Values(limit) => {
                let refusal = Self::new(ErrorCode::PayloadTooLarge, excess.to_string());
                refusal.with_detail("limit_values", limit)
            }
            dormouse_json::Excess::Name => Self::new(ErrorCode::InvalidRequest, excess.to_string()),
        }
    }

    /// The version header is missing or names a version that is not spoken here.
    pub fn unsupported_version() -> Self {
        let refusal = Self::new(
            ErrorCode::UnsupportedProtocolVersion,
            format!("send {}: {PROTOCOL_VERSION}", crate::request::VERSION_HEADER),
        );
        let refusal = refusal.with_detail("supported_versions", vec![PROTOCOL_VERSION]);
        let upgrade = Some(("upgrade", format!("Harn-Agents-Protocol/{PROTOCOL_VERSION}")));
        Self { param: Some(crate::request::VERSION_HEADER.to_owned()), header: upgrade, ..refusal }
    }

    /// The caller did not prove who it is: it showed nothing, or what it `showed` is no key or token of ours (RFC 6750 §3.1). The
    /// address `metadata` tells whose tokens are taken, where tokens of issuers are (RFC 9728 §5.1).
    pub fn unauthenticated(showed: bool, metadata: Option<&str>) -> Self {
        let refusal = Self::new(ErrorCode::Unauthenticated, "send a valid key as a bearer token");
        let error = showed.then(|| "error=\"invalid_token\"".to_owned());
        let metadata = metadata.map(|address| format!("resource_metadata=\"{address}\""));
        let said: Vec<String> = error.into_iter().chain(metadata).collect();
        let challenge = format!("Bearer {}", said.join(", "));
        Self { header: Some(("www-authenticate", challenge.trim_end().to_owned())), ..refusal }
    }

    /// The key was used with another body.
    pub fn idempotency_key_reused() -> Self {
        let refusal = Self::new(ErrorCode::IdempotencyKeyReused, "the key was used with another body");
        Self { param: Some(crate::request::IDEMPOTENCY_HEADER.to_owned()), ..refusal }
    }

    /// The history behind `param` is not kept any more, or never was here.
    pub fn cursor_expired(param: &str) -> Self {
        let refusal = Self::new(ErrorCode::CursorExpired, "the history that this cursor points into is gone");
        Self { param: Some(param.to_owned()), ..refusal }
    }

    /// The same request can work after `seconds`.
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { header: Some(("retry-after", seconds.to_string())), ..self }
    }

    /// Adds one detail for programs.
    pub fn with_detail(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Error.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.http.unwrap_or_else(|| self.code.status())
    }

    /// The field, parameter or header that is wrong.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A header that belongs to the answer: `allow`, `retry-after`, `upgrade` or `www-authenticate`.
    pub fn header(&self) -> Option<(&'static str, &str)> {
        self.header.as_ref().map(|(name, value)| (*name, value.as_str()))
    }

    /// The body of the answer to the request called `request_id`.
    pub fn into_response(self, request_id: impl Into<String>) -> ErrorResponse {
        let Self { code, message, param, details, .. } = self;
        let class = code.class();
        ErrorResponse {
            error: ErrorBody {
                code,
                message,
                class,
                param,
                request_id: Some(request_id.into()),
                details: Some(*details),
            },
        }
    }
}

/// One line of a length that is acceptable in a log.
fn plain(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}');
    text.chars().map(|c| if steers(c) { '?' } else { c }).take(MAX_MESSAGE).collect()
}

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorResponse {
    /// Error.
    pub error: ErrorBody,
}

/// Error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// The class of the code.
    #[serde(rename = "type")]
    pub class: ErrorType,
    /// The field, parameter or header that is wrong.
    pub param: Option<String>,
    /// Names the request in the logs of the server.
    pub request_id: Option<String>,
    /// More, for programs.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub details: Option<Map>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_envelope() {
        let refusal = ProtocolError::invalid("limit", "expected 1 to 200");
        assert_eq!(refusal.status(), 400);
        let expected = serde_json::json!({"error": {
            "code": "invalid_request", "message": "expected 1 to 200", "type": "request_error", "param": "limit",
            "request_id": "req_1", "details": {},
        }});
        assert_eq!(serde_json::to_value(refusal.into_response("req_1")).expect("JSON"), expected);
    }

    #[test]
    fn messages_are_short_lines_with_names_as_they_are() {
        let text = "\u{fc}ber\nall\u{2028}\u{1b}[1m ".to_owned() + &"x".repeat(1_000);
        let refusal = ProtocolError::new(ErrorCode::Conflict, text);
        assert!(refusal.message().starts_with("\u{fc}ber?all??[1m xxx"), "{refusal}");
        assert_eq!(refusal.message().chars().count(), MAX_MESSAGE);
        let param = "metadata.\u{e9}";
        assert_eq!(ProtocolError::invalid(param, "expected text").param(), Some(param));
    }

    #[test]
    fn http_has_statuses_that_the_table_has_not() {
        let wrong_method = ProtocolError::method_not_allowed(&["GET", "POST"]);
        assert_eq!((wrong_method.status(), wrong_method.header()), (405, Some(("allow", "GET, POST"))));
        assert_eq!(ProtocolError::unsupported_media_type().status(), 415);
        assert_eq!(ProtocolError::unsupported_coding().status(), 415);
        assert_eq!(ProtocolError::unchecked_condition("if-match").status(), 412);
        let refusal = ProtocolError::not_implemented(Operation::ReplayTask);
        assert_eq!((refusal.status(), refusal.code()), (501, ErrorCode::InvalidRequest));
        assert_eq!(refusal.message(), "this server does not offer replayTask");
    }
}
