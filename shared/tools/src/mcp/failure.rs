//! What failures of a conversation mean for a call.

use std::error::Error;
use std::io;

use dormouse_ports::tool::{ToolError, ToolErrorKind, ToolOutput, ToolReply};
use rmcp::ServiceError;
use rmcp::model::{CustomResult, ErrorCode, ErrorData, ServerResult};
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::http::{HttpFailure, TOO_LARGE};
use crate::failure::{unanswered, unresolved};
use crate::text::cut;

/// Bytes of what a server says with an error.
const MOST_SHOWN: usize = 2 * 1024;

type HttpError = StreamableHttpError<HttpFailure>;

/// The error of a conversation that could not be begun: no call was made.
#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK may add variants, and all others mean the same")]
pub(super) fn not_begun(error: &ClientInitializeError) -> ToolError {
    let failed = match error {
        ClientInitializeError::TransportError { error, .. } => transport(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_begun(fallback),
        ClientInitializeError::ConnectionClosed(_) => {
            ToolError::transient("it closed the connection before the conversation had begun")
        }
        ClientInitializeError::JsonRpcError(error) => {
            ToolError::permanent(format!("it refuses to begin: {}", cut(&error.to_string(), MOST_SHOWN)))
        }
        ClientInitializeError::ExpectedInitResult(Some(ServerResult::CustomResult(CustomResult(said)))) => {
            ToolError::permanent(format!(
                "what it answers to `initialize` cannot be taken: {}; it says {}",
                wrong_in(said),
                cut(&said.to_string(), 300)
            ))
        }
        other => ToolError::permanent(format!(
            "it does not begin as the protocol says; check that the address is that of an MCP server: {}",
            cut(&other.to_string(), MOST_SHOWN)
        )),
    };
    ToolError { uncertain: false, ..failed }
}

/// What is wrong with `said` as the answer to `initialize`.
fn wrong_in(said: &Value) -> &'static str {
    let server = &said["serverInfo"];
    if !said["protocolVersion"].is_string() {
        "it has no text as its `protocolVersion`, such as `2025-11-25`"
    } else if !said["capabilities"].is_object() {
        "it has no object as its `capabilities`"
    } else if !server["name"].is_string() || !server["version"].is_string() {
        "it has no `serverInfo` with a `name` and a `version`"
    } else {
        "one of its fields is not as the protocol has it"
    }
}

/// The error of a request that was sent, or was to be.
#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK may add variants, and all others mean the same")]
pub(super) fn unfinished(error: &ServiceError) -> ToolError {
    match error {
        ServiceError::TransportSend(error) => transport(error.error.as_ref()),
        ServiceError::TransportClosed => {
            ToolError::transient("the connection was closed before it answered").maybe_done()
        }
        ServiceError::McpError(error) => {
            ToolError::permanent(format!("it answers with an error: {}", shown(error))).maybe_done()
        }
        other => {
            ToolError::permanent(format!("it answers with something else than the protocol says: {other}")).maybe_done()
        }
    }
}

/// Outcome of a call that the server itself answers with an error.
///
/// # Errors
/// The model can mend the call, or it cannot be mended.
pub(super) fn refused(error: &ErrorData) -> Result<ToolReply, ToolError> {
    match error.code {
        ErrorCode::INVALID_PARAMS => Err(ToolError::new(ToolErrorKind::InvalidArguments, shown(error))),
        ErrorCode::METHOD_NOT_FOUND if wants_task(error) => Err(ToolError::permanent(format!(
            "it takes calls of this tool only as tasks of the protocol version 2025-11-25, which are not spoken here: no call of \
             it will succeed. It says: {}",
            shown(error)
        ))),
        ErrorCode::METHOD_NOT_FOUND => {
            Err(ToolError::permanent(format!("it takes no calls of tools: {}", shown(error))))
        }
        TOO_LARGE => Ok(too_large(&error.message)),
        _ => Ok(ToolReply::Done(ToolOutput::error(format!("The MCP server answered with an error: {}", shown(error))))),
    }
}

/// True for the words with which servers refuse a call of a tool with `execution: {taskSupport: required}`, which the SDK does
/// not read from their lists.
fn wants_task(error: &ErrorData) -> bool {
    let said = error.message.to_ascii_lowercase();
    said.contains("requires task") || said.contains("tasksupport")
}

/// The outcome of a call with an answer that is too large to be taken.
pub(super) fn too_large(message: &str) -> ToolReply {
    ToolReply::Done(ToolOutput::error(format!("The call was made, and {message}. Ask for less.")))
}

/// True if the server has forgotten the conversation and did nothing with the request.
pub(super) fn is_expired(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    matches!(find::<HttpError>(error.error.as_ref()), Some(StreamableHttpError::SessionExpired))
}

fn shown(error: &ErrorData) -> String {
    cut(&error.to_string(), MOST_SHOWN)
}

/// The error of type `E` among `error` and its causes.
fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

fn transport(error: &(dyn Error + 'static)) -> ToolError {
    if let Some(error) = find::<HttpError>(error) {
        return http(error);
    }
    match find::<io::Error>(error) {
        Some(error) => ToolError::transient(format!("its process does not take the request: {error}")).maybe_done(),
        None => ToolError::transient(format!("the request could not be sent: {error}")).maybe_done(),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK may add variants, and all others mean the same")]
fn http(error: &HttpError) -> ToolError {
    match error {
        StreamableHttpError::Client(failure) => client(failure),
        StreamableHttpError::HttpStatus(status) if status.status == 429 => ToolError::transient(format!(
            "it takes no more requests now (HTTP 429, retry after {})",
            status.retry_after.as_deref().unwrap_or("some time")
        )),
        StreamableHttpError::HttpStatus(status) => {
            let after = status.retry_after.as_deref().map(|after| format!(", retry after {}", cut(after, 100)));
            ToolError::transient(format!("it answers HTTP {}{}", status.status, after.unwrap_or_default())).maybe_done()
        }
        StreamableHttpError::AuthRequired(challenge) => unauthorized(&challenge.www_authenticate_header),
        StreamableHttpError::SessionExpired => ToolError::transient("it has forgotten the conversation"),
        StreamableHttpError::Sse(error) => ToolError::transient(format!("its answer broke off: {error}")).maybe_done(),
        other => ToolError::permanent(format!(
            "it does not answer as the protocol says; check that the address is that of an MCP server: {}",
            cut(&other.to_string(), MOST_SHOWN)
        ))
        .maybe_done(),
    }
}

fn client(failure: &HttpFailure) -> ToolError {
    match failure {
        HttpFailure::Fetch(error) => unanswered(error),
        HttpFailure::Value(error) => unresolved(error),
        HttpFailure::Token(error) => error.clone(),
        HttpFailure::Redirect { status, location } => ToolError::permanent(format!(
            "it answers HTTP {status} and leads to {location}, which is not followed; set the address that \
             is meant as its `url` in `tools/settings.yaml`"
        )),
        HttpFailure::Status { status, said } if (400..500).contains(status) && *status != 408 => ToolError::permanent(
            format!("it answers HTTP {status}; check that the address is that of an MCP server: {said}"),
        ),
        HttpFailure::Status { status, said } => {
            ToolError::transient(format!("it answers HTTP {status}: {said}")).maybe_done()
        }
    }
}

/// The server wants another token, or one at all.
fn unauthorized(challenge: &str) -> ToolError {
    ToolError::denied(format!(
        "it asks for authorization, or does not accept the one that it was shown ({challenge}). Set a header \
         `authorization: Bearer ${{secrets.NAME}}` with a token that it accepts, or `oauth` with `token_url`, `client_id` and \
         `client_secret` or `refresh_token`, and the `scope` that it asks for: nobody can sign in while an agent runs"
    ))
}

#[cfg(test)]
mod tests {
    use rmcp::transport::streamable_http_client::HttpStatusError;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_the_answer_that_begins_a_conversation_is_told() {
        let server = json!({ "name": "a", "version": "1" });
        for (said, wrong) in [
            (json!({ "capabilities": {}, "serverInfo": server }), "`protocolVersion`"),
            (json!({ "protocolVersion": 7, "capabilities": {}, "serverInfo": server }), "`protocolVersion`"),
            (json!({ "protocolVersion": "2025-06-18", "serverInfo": server }), "`capabilities`"),
            (json!({ "protocolVersion": "2025-06-18", "capabilities": {} }), "`serverInfo`"),
            (
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": 7 }, "serverInfo": server }),
                "fields",
            ),
        ] {
            let shown = said.to_string();
            let result = ServerResult::CustomResult(CustomResult(said));
            let error = not_begun(&ClientInitializeError::ExpectedInitResult(Some(result)));
            assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
            assert!(error.message.contains(wrong) && error.message.ends_with(&shown), "{error}");
        }
    }

    #[test]
    fn when_it_may_be_tried_again_is_told() {
        for (status, uncertain) in [(429, false), (503, true)] {
            let error = http(&StreamableHttpError::HttpStatus(HttpStatusError::new(status, Some("30".to_owned()))));
            assert!(error.message.contains(&status.to_string()) && error.message.contains("retry after 30"), "{error}");
            assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, uncertain), "{error}");
        }
    }

    #[test]
    fn a_server_that_was_not_waited_for_may_have_made_the_call() {
        for (status, kind, uncertain) in [
            (404, ToolErrorKind::Permanent, false),
            (408, ToolErrorKind::Transient, true),
            (504, ToolErrorKind::Transient, true),
        ] {
            let error = client(&HttpFailure::Status { status, said: "why".to_owned() });
            assert_eq!((error.kind, error.uncertain), (kind, uncertain), "{error}");
        }
    }

    #[test]
    fn a_tool_that_is_called_as_a_task_alone_is_told_from_a_server_without_tools() {
        let told = |message: &str| {
            let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message.to_owned(), None);
            let error = refused(&error).expect_err("it is refused");
            assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
            error.message
        };
        for said in [
            "Tool dig requires task augmentation (taskSupport: 'required')",
            "This tool requires task-augmented invocation",
        ] {
            let told = told(said);
            assert!(told.starts_with("it takes calls of this tool only as tasks") && told.contains(said), "{told}");
        }
        assert!(told("tools/call").starts_with("it takes no calls of tools: -32601: tools/call"));
    }
}
