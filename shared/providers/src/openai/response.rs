use dormouse_ports::Map;
use dormouse_ports::model::{Block, DeltaKind, FinishReason, Usage};
use serde_json::{Value, json};

use crate::canonical::canonical;
use crate::judge::{arguments, counter};
use crate::wire::{Called, Malformed, ReadAnswer};

/// Names under which servers show reasoning (§8.1.6).
pub(super) const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Name under which a router shows reasoning in the parts in which it wants it back, signed or sealed as they may be.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Name under which a model says why it does not answer.
pub(super) const REFUSAL: &str = "refusal";

/// Reads an answer (§8.1.2), with the parts of its reasoning where these go back.
pub(super) fn decode(body: &Value, with_details: bool) -> Result<ReadAnswer, Malformed> {
    let choices = body.get("choices").and_then(Value::as_array);
    let choices = choices.ok_or_else(|| Malformed::new("`choices` is no list"))?;
    let is_first = |choice: &&Value| choice.get("index").and_then(Value::as_u64) == Some(0);
    let choice = choices.iter().find(is_first).or_else(|| choices.first());
    let choice = choice.ok_or_else(|| Malformed::new("`choices` is empty"))?;
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or_else(|| Malformed::new("`choices[0].message` is missing"))?;
    let finish = finish_reason(choice.get("finish_reason").and_then(Value::as_str));
    let thought = REASONING.iter().find_map(|name| thinking(message.get(*name)));
    let details = message.get(REASONING_DETAILS).filter(|_| with_details);
    let mut blocks: Vec<_> = detailed(thought, details).into_iter().collect();
    blocks.extend(texts(message.get("content"))?);
    let refusal = message.get(REFUSAL).and_then(Value::as_str).filter(|text| !text.is_empty());
    blocks.extend(refusal.map(Block::text));
    let mut calls: Vec<Called> = match message.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => calls.iter().map(|c| call(c, finish)).collect::<Result<_, _>>()?,
        Some(_) => return Err(Malformed::new("`tool_calls` is no list")),
    };
    if let Some(older) = older_call(message) {
        calls.push(call(&older, finish)?);
    }
    let is_refused = refusal.is_some() && finish != FinishReason::Error;
    let finish = if is_refused { FinishReason::ContentFilter } else { finish };
    // Moonshot's streams have the counters in the choice.
    let counters = [body.get("usage"), choice.get("usage")].into_iter().flatten().find(|counters| counters.is_object());
    Ok(ReadAnswer { blocks, calls, finish, usage: usage(counters) })
}

fn thinking(value: Option<&Value>) -> Option<Block> {
    let text = value.and_then(Value::as_str).filter(|text| !text.is_empty())?;
    Some(Block::Thinking { text: text.to_owned(), signature: None })
}

/// `thought` with the `details` that go back in its place.
fn detailed(thought: Option<Block>, details: Option<&Value>) -> Option<Block> {
    let has_parts = |details: &&Value| details.as_array().is_some_and(|parts| !parts.is_empty());
    let Some(details) = details.filter(has_parts) else { return thought };
    let kept = canonical(details.clone()).to_string();
    Some(match thought {
        Some(Block::Thinking { text, .. }) => Block::Thinking { text, signature: Some(kept) },
        Some(_) | None => Block::RedactedThinking { data: kept },
    })
}

fn texts(content: Option<&Value>) -> Result<Vec<Block>, Malformed> {
    match content {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(content @ (Value::String(_) | Value::Array(_))) => {
            let block = |(kind, text): (DeltaKind, &str)| match kind {
                DeltaKind::Content => Block::text(text),
                DeltaKind::Reasoning => Block::Thinking { text: text.to_owned(), signature: None },
            };
            Ok(pieces(content).into_iter().filter(|(_, text)| !text.is_empty()).map(block).collect())
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(Malformed::new("`content` is no text")),
    }
}

/// The call of `message`, or a piece of it, in the form before `tool_calls`, which some servers give alone. Others have an empty one, or
/// the same call in both.
pub(super) fn older_call(message: &Value) -> Option<Value> {
    let function = message.get("function_call")?;
    let has = |field: &str| function.get(field).is_some_and(|value| !value.is_null() && value != "");
    let has_calls = message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    (!has_calls && (has("name") || has("arguments"))).then(|| json!({ "index": 0, "function": function }))
}

/// The texts of `content`, which is one, or a list of parts of which some are thoughts.
pub(super) fn pieces(content: &Value) -> Vec<(DeltaKind, &str)> {
    match content {
        Value::String(text) => vec![(DeltaKind::Content, text)],
        Value::Array(parts) => parts.iter().flat_map(part).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn part(part: &Value) -> Vec<(DeltaKind, &str)> {
    match part.get("thinking") {
        Some(thoughts) => pieces(thoughts).into_iter().map(|(_, text)| (DeltaKind::Reasoning, text)).collect(),
        None => part.get("text").and_then(Value::as_str).map(|text| (DeltaKind::Content, text)).into_iter().collect(),
    }
}

/// Reads a call. Of an answer that ended in an error, the part that is there is taken (§3).
fn call(call: &Value, finish: FinishReason) -> Result<Called, Malformed> {
    let function = call.get("function").unwrap_or(&Value::Null);
    let text = |value: Option<&Value>, what: &str| match value.and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None if finish == FinishReason::Error => Ok(String::new()),
        None => Err(Malformed(format!("a call of a tool has no {what}"))),
    };
    Ok(Called {
        id: call.get("id").and_then(Value::as_str).unwrap_or_default().to_owned(),
        name: text(function.get("name"), "`function.name`")?,
        arguments: match function.get("arguments") {
            Some(Value::String(text)) if text.is_empty() && finish == FinishReason::Error => {
                Err("they are empty".to_owned())
            }
            Some(Value::String(text)) => arguments(text),
            Some(Value::Object(arguments)) => Ok(arguments.clone()),
            Some(Value::Null) if finish != FinishReason::Error => Ok(Map::new()),
            _ => Err("there are none".to_owned()),
        },
        signature: None,
    })
}

fn finish_reason(name: Option<&str>) -> FinishReason {
    match name {
        Some("stop") => FinishReason::Stop,
        // The second is Mistral's, where the window of the model is full.
        Some("length" | "model_length") => FinishReason::Length,
        Some("tool_calls" | "function_call") => FinishReason::ToolCalls,
        Some("content_filter") => FinishReason::ContentFilter,
        Some(_) | None => FinishReason::Error,
    }
}

fn usage(usage: Option<&Value>) -> Usage {
    let count = |name: &str| counter(usage.and_then(|usage| usage.get(name)));
    Usage {
        prompt_tokens: count("prompt_tokens"),
        completion_tokens: count("completion_tokens"),
        total_tokens: count("total_tokens"),
        // The second is Moonshot's.
        cached_tokens: counter(usage.and_then(|usage| usage.pointer("/prompt_tokens_details/cached_tokens")))
            .or_else(|| count("cached_tokens")),
        cache_creation_tokens: None,
    }
}
