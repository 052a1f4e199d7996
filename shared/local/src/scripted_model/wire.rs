//! Answers in the form of the wire.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use super::script::{ScriptedFault, ScriptedReply, ScriptedTurn};

/// An answer in one piece.
pub(super) fn whole(request: &Value, turn: ScriptedTurn) -> Response {
    let ScriptedReply::Answer { reasoning, text, calls } = &turn.reply else { return Response::default() };
    let mut message = json!({ "role": "assistant", "content": content(text) });
    if !reasoning.is_empty() {
        message["reasoning_content"] = Value::from(reasoning.as_str());
    }
    if !calls.is_empty() {
        let calls = calls.iter().enumerate().map(|(index, (name, arguments))| {
            let function = json!({ "name": name, "arguments": arguments });
            json!({ "id": call_id(request, index), "type": "function", "function": function })
        });
        message["tool_calls"] = calls.collect();
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish(calls) });
    let body = json!({
        "id": "scripted",
        "object": "chat.completion",
        "model": request["model"],
        "choices": [choice],
        "usage": usage(request, reasoning, text, calls),
    });
    let body = body.to_string();
    let half = body.len() / 2;
    let pieces = match turn.fault {
        None => vec![StreamPiece::Text(body)],
        Some(ScriptedFault::HangUp { .. }) => vec![StreamPiece::Text(body[..half].to_owned()), StreamPiece::HangUp],
        Some(ScriptedFault::Garbage { .. }) => vec![StreamPiece::Text(body[..half].to_owned())],
        Some(ScriptedFault::Silence { .. }) => vec![StreamPiece::Text(body[..half].to_owned()), StreamPiece::Silence],
    };
    answer("application/json", paced(pieces, Duration::ZERO))
}

/// An answer as a stream of events: words of the text one by one, arguments in two halves.
pub(super) fn streamed(request: &Value, turn: ScriptedTurn) -> Response {
    let ScriptedReply::Answer { reasoning, text, calls } = &turn.reply else { return Response::default() };
    let mut deltas = Vec::new();
    deltas.extend(words(reasoning).map(|word| json!({ "reasoning_content": word })));
    deltas.extend(words(text).map(|word| json!({ "content": word })));
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let half = arguments.floor_char_boundary(arguments.len() / 2);
        let begun = json!({ "name": name, "arguments": arguments[..half] });
        let id = call_id(request, index);
        deltas.push(json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": begun }] }));
        deltas.push(json!({ "tool_calls": [{ "index": index, "function": { "arguments": arguments[half..] } }] }));
    }
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        json!({ "id": "scripted", "object": "chat.completion.chunk", "model": request["model"], "choices": [choice] })
    };
    let mut pieces: Vec<_> = deltas.into_iter().map(|delta| StreamPiece::event(chunk(delta, Value::Null))).collect();
    pieces.push(StreamPiece::event(chunk(json!({}), finish(calls).into())));
    let usage = usage(request, reasoning, text, calls);
    pieces.push(StreamPiece::event(json!({ "id": "scripted", "choices": [], "usage": usage })));
    pieces.push(StreamPiece::Text("data: [DONE]\n\n".to_owned()));
    cut(&mut pieces, turn.fault);
    answer("text/event-stream", paced(pieces, turn.pace))
}

#[derive(Clone, Debug)]
enum StreamPiece {
    Text(String),
    HangUp,
    Silence,
}

impl StreamPiece {
    fn event(data: Value) -> Self {
        Self::Text(format!("data: {data}\n\n"))
    }
}

fn cut(pieces: &mut Vec<StreamPiece>, fault: Option<ScriptedFault>) {
    let Some(fault) = fault else { return };
    let (after, last) = match fault {
        ScriptedFault::HangUp { after } => (after, StreamPiece::HangUp),
        ScriptedFault::Silence { after } => (after, StreamPiece::Silence),
        ScriptedFault::Garbage { after } => (after, StreamPiece::Text("data: {\"choices\": [\n\n".to_owned())),
    };
    pieces.truncate(after);
    pieces.push(last);
}

fn paced(pieces: Vec<StreamPiece>, pace: Duration) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    stream::iter(pieces).then(move |piece| async move {
        tokio::time::sleep(pace).await;
        match piece {
            StreamPiece::Text(text) => Ok(Bytes::from(text)),
            StreamPiece::HangUp => {
                // What was written before shall arrive before the connection breaks.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err(std::io::Error::other("the script has it hang up"))
            }
            StreamPiece::Silence => std::future::pending().await,
        }
    })
}

fn answer(kind: &'static str, pieces: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Response {
    ([("content-type", kind)], Body::from_stream(pieces)).into_response()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

fn content(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

fn finish(calls: &[(String, String)]) -> &'static str {
    if calls.is_empty() { "stop" } else { "tool_calls" }
}

/// An id that no earlier call of the conversation has.
fn call_id(request: &Value, index: usize) -> String {
    let messages = request["messages"].as_array().map_or(0, Vec::len);
    format!("call_{messages}_{index}")
}

/// A token is a word here.
fn usage(request: &Value, reasoning: &str, text: &str, calls: &[(String, String)]) -> Value {
    let count = |text: &str| text.split_whitespace().count();
    let prompt = count(&request["messages"].to_string());
    let completion = count(reasoning) + count(text) + calls.len();
    json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
}
