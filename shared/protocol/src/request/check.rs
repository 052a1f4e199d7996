//! Rules of the contract for requests that types cannot express.

use super::body::{BESIDE, MAX_FILE_BYTES};
use crate::ProtocolError;
use crate::id::EventId;
use crate::receipt::VerifyReceiptRequest;
use crate::replay::{ReplayMode, ReplayTaskRequest};
use crate::resource::{
    AppendMessageRequest, AppendTaskMessageRequest, CancelTaskRequest, CreateBranchRequest, CreateConnectorRequest,
    CreateMemoryRequest, CreatePersonaRequest, CreateQuotaRequest, CreateSessionRequest, CreateVaultRequest,
    CreateWebhookRequest, CreateWorkspaceRequest, ForkSessionRequest, PermissionResponseRequest,
    RegisterArtifactRequest, ReorderQueueRequest, SubmitTaskRequest, TruncateSessionRequest, UpdateConnectorRequest,
    UpdatePersonaRequest, UpdateQuotaRequest, UpdateSessionRequest, UpdateWorkspaceRequest, WriteWorkspaceFileRequest,
};

/// The most messages that a session is created with: they are written in one transaction.
pub const MAX_INITIAL_MESSAGES: usize = 20;

/// The longest media type of an artifact, in bytes.
const MAX_MEDIA_TYPE: usize = 256;

/// The body of an operation.
pub trait OperationBody {
    /// Checks what the types of the fields cannot express.
    ///
    /// # Errors
    /// `invalid_request` with the path of the wrong field as its `param`.
    fn check(&self) -> Result<(), ProtocolError> {
        Ok(())
    }
}

impl OperationBody for AppendMessageRequest {}
impl OperationBody for CreateConnectorRequest {}
impl OperationBody for CreateQuotaRequest {}
impl OperationBody for CreateWebhookRequest {}
impl OperationBody for ReorderQueueRequest {}
impl OperationBody for UpdateConnectorRequest {}
impl OperationBody for UpdateQuotaRequest {}
impl OperationBody for AppendTaskMessageRequest {}
impl OperationBody for CancelTaskRequest {}
impl OperationBody for CreateBranchRequest {}
impl OperationBody for CreateMemoryRequest {}
impl OperationBody for CreatePersonaRequest {}
impl OperationBody for CreateVaultRequest {}
impl OperationBody for CreateWorkspaceRequest {}
impl OperationBody for ForkSessionRequest {}
impl OperationBody for SubmitTaskRequest {}
impl OperationBody for TruncateSessionRequest {}
impl OperationBody for UpdatePersonaRequest {}
impl OperationBody for UpdateSessionRequest {}
impl OperationBody for UpdateWorkspaceRequest {}
impl OperationBody for VerifyReceiptRequest {}

impl OperationBody for RegisterArtifactRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        if !is_media_type(&self.mime_type) {
            return Err(ProtocolError::invalid("mime_type", "expected a media type, as `text/plain` is one"));
        }
        let wrong = || ProtocolError::invalid("uri", "expected a URI or a relative reference");
        if self.uri.as_deref().is_none_or(is_uri_reference) { Ok(()) } else { Err(wrong()) }
    }
}

/// True if `text` is a media type as RFC 9110 spells them, which stands in a header of who gives the content.
fn is_media_type(text: &str) -> bool {
    let is_in_word = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_in_word);
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_essence = essence.trim_end().split_once('/').is_some_and(|(kind, of)| is_word(kind) && is_word(of));
    is_essence && parameters.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) && text.len() <= MAX_MEDIA_TYPE
}

/// True if `text` is a URI reference as RFC 3986 spells them: its characters, whole escapes, and a scheme where the
/// first segment has a colon.
fn is_uri_reference(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_escape = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    let is_allowed = |(at, byte): (usize, &u8)| match byte {
        b'%' => is_escape(at),
        b'#' => !bytes.get(at + 1..).unwrap_or_default().contains(&b'#'),
        other => other.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=".contains(other),
    };
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let has_scheme = first.split_once(':').is_none_or(|(scheme, _)| is_scheme(scheme));
    has_scheme && bytes.iter().enumerate().all(is_allowed)
}

impl OperationBody for WriteWorkspaceFileRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        // They are kept together.
        let metadata = dormouse_json::length(&self.metadata).unwrap_or(usize::MAX);
        let is_large = self.content.len() > MAX_FILE_BYTES || metadata > MAX_FILE_BYTES + BESIDE - self.content.len();
        if is_large { Err(ProtocolError::too_large(MAX_FILE_BYTES)) } else { Ok(()) }
    }
}

impl OperationBody for CreateSessionRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        if self.initial_messages.len() <= MAX_INITIAL_MESSAGES {
            return Ok(());
        }
        let message = format!("at most {MAX_INITIAL_MESSAGES} messages are taken; append the others");
        Err(ProtocolError::invalid("initial_messages", message))
    }
}

impl OperationBody for PermissionResponseRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        let says_something = self.is_approval().is_some() || !self.answer.is_null();
        let missing = || ProtocolError::invalid("approved", "say yes or no in approved or outcome, or give an answer");
        says_something.then_some(()).ok_or_else(missing)
    }
}

impl OperationBody for ReplayTaskRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        let by_event = self.checkpoint_event_id.as_ref().map(EventId::as_str);
        let by_id = self.checkpoint_id.as_deref();
        let named = by_event.map(|_| "checkpoint_event_id").or(by_id.map(|_| "checkpoint_id"));
        match (self.mode, named) {
            (ReplayMode::FromCheckpoint, None) => Err(ProtocolError::invalid(
                "checkpoint_id",
                "from_checkpoint needs a checkpoint_id or checkpoint_event_id",
            )),
            (ReplayMode::FromCheckpoint, Some(_)) if by_event.zip(by_id).is_some_and(|(event, id)| event != id) => {
                Err(ProtocolError::invalid(
                    "checkpoint_id",
                    "it names another event than checkpoint_event_id; send one of them",
                ))
            }
            (ReplayMode::Exact | ReplayMode::WithOverrides, Some(named)) => {
                Err(ProtocolError::invalid(named, "only a replay with the mode from_checkpoint begins behind an event"))
            }
            (ReplayMode::Exact, None) if !self.overrides.is_empty() => {
                Err(ProtocolError::invalid("override", "an exact replay replaces nothing"))
            }
            (ReplayMode::Exact | ReplayMode::WithOverrides, None) | (ReplayMode::FromCheckpoint, Some(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_what_a_header_may_have() {
        for good in
            ["text/plain", "image/svg+xml", "application/vnd.a.b-c", "text/plain; charset=\"utf-8\"", "a/b ;x=y"]
        {
            assert!(is_media_type(good), "{good}");
        }
        let long = format!("text/{}", "x".repeat(MAX_MEDIA_TYPE));
        for bad in
            ["", "text", "text/", "/plain", "a/b/c", "a b/c", "text/html\r\nx: y", "a/b; x=\n", "a/\u{e9}", &long]
        {
            assert!(!is_media_type(bad), "{bad:?}");
        }
    }

    #[test]
    fn uri_references_are_those_of_the_rfc() {
        for good in ["", "https://a.example/b%20c?d=e#f", "s3:bucket/key", "/a:b", "a/b:c", "?x:y", "data:,x"] {
            assert!(is_uri_reference(good), "{good}");
        }
        for bad in [":x", "1a:x", "a b", "%zz", "%2", "\u{e9}", "a#b#c", "a\nb", "<x>"] {
            assert!(!is_uri_reference(bad), "{bad}");
        }
    }
}
