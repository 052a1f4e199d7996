use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_json::{ENTRY, ReadError, measure};
use dormouse_ports::tool::{Pending, ToolCall, ToolContent, ToolError, ToolOutput, ToolReply};
use dormouse_ports::{FetchError, FetchResponse};
use futures::TryStreamExt;
use serde_json::Value;

use super::HttpTool;
use crate::failure::unanswered;
use crate::text::{charset, cut, in_utf8};

/// The most bytes of an error's text that are shown.
const MOST_SHOWN: usize = 8 * 1024;

/// Outcome of `call`.
pub(super) async fn read(tool: &HttpTool, call: &ToolCall, response: FetchResponse) -> Result<ToolReply, ToolError> {
    let status = response.status;
    let location = response.header("location").map(str::to_owned);
    let content_type = response.header("content-type").unwrap_or_default().to_owned();
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if status == 202 {
        return pending(call, location);
    }
    match body(response).await {
        Ok(body) => judge(status, &media_type, location, &in_utf8(body, charset(&content_type).as_deref())),
        Err(FetchError::TooLarge(most)) if status < 400 => Ok(done(ToolOutput::error(format!(
            "the call was made, and its answer is larger than the {most} bytes that `{}` may return; ask for less",
            tool.spec.name
        )))),
        Err(error) => Err(unanswered(&error).maybe_done()),
    }
}

async fn body(mut response: FetchResponse) -> Result<Vec<u8>, FetchError> {
    let mut body = Vec::new();
    while let Some(piece) = response.body.try_next().await? {
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// The other side has taken the call and answers at the callback.
fn pending(call: &ToolCall, location: Option<String>) -> Result<ToolReply, ToolError> {
    match call.callback {
        Some(_) => Ok(ToolReply::Pending(Pending { reference: location, ..Pending::default() })),
        None => Err(ToolError::permanent(
            "the tool answered that it will be done later (202), and there is nobody to wait for that here",
        )
        .maybe_done()),
    }
}

fn judge(status: u16, media_type: &str, location: Option<String>, body: &[u8]) -> Result<ToolReply, ToolError> {
    let said = || cut(&String::from_utf8_lossy(body), MOST_SHOWN);
    match status {
        200..=299 => Ok(done(output(media_type, body))),
        300..=399 => Err(ToolError::permanent(format!(
            "the tool's address answers {status} and leads to {}; set the address that is meant",
            location.as_deref().map_or("another one", |location| location.split(['?', '#']).next().unwrap_or_default())
        ))),
        401 | 403 => Err(ToolError::denied(format!(
            "the tool's address answers {status}: set the header that grants access, and see that its secret is valid"
        ))),
        429 => Err(ToolError::transient(format!("the tool answers {status}: {}", said()))),
        400..=499 if status != 408 => Ok(done(ToolOutput::error(format!("The tool answered {status}. {}", said())))),
        // A gateway says 408, too, of a server that works on the request.
        _ => Err(ToolError::transient(format!("the tool answers {status}: {}", said())).maybe_done()),
    }
}

fn done(output: ToolOutput) -> ToolReply {
    ToolReply::Done(output)
}

fn output(media_type: &str, body: &[u8]) -> ToolOutput {
    if body.is_empty() {
        return ToolOutput::text("Done; the tool answered nothing more.");
    }
    if media_type.starts_with("image/") {
        let image = ToolContent::Image { data: STANDARD.encode(body), media_type: media_type.to_owned() };
        return ToolOutput { content: vec![image], ..ToolOutput::default() };
    }
    let is_json = media_type == "application/json" || media_type.ends_with("+json");
    if is_json {
        // A name that could not be read again is found in the value alone, and ends a run whose state has it.
        let taken = dormouse_json::read::<Value>(body, ENTRY).and_then(|value| {
            measure(&value, ENTRY)?;
            Ok(value)
        });
        match taken {
            Ok(value) => return ToolOutput::value(value),
            Err(ReadError::Excess(excess)) => {
                return ToolOutput::error(format!("The call was made, and its answer cannot be taken: {excess}"));
            }
            // It says that it is JSON, and is none: it is shown as it stands.
            Err(ReadError::Json(_)) => (),
        }
    }
    match std::str::from_utf8(body) {
        Ok(text) => ToolOutput::text(text),
        Err(_) => {
            ToolOutput::text(format!("Done; the answer is {} bytes of {media_type}, which is no text.", body.len()))
        }
    }
}
