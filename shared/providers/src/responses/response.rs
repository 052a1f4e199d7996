use dormouse_ports::model::{Block, FinishReason, Usage};
use serde_json::Value;

use crate::canonical::canonical;
use crate::judge::{arguments, counter};
use crate::wire::{Called, Malformed, ReadAnswer};

/// Reads an answer that has ended.
pub(crate) fn decode(body: &Value) -> Result<ReadAnswer, Malformed> {
    let items = body.get("output").and_then(Value::as_array);
    let items = items.ok_or_else(|| Malformed::new("`output` is no list"))?;
    let has_failed = finish_reason(body, false) == FinishReason::Error;
    let mut blocks = Vec::new();
    let mut calls = Vec::new();
    let mut is_refused = false;
    for item in items {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    is_refused |= part.get("type").and_then(Value::as_str) == Some("refusal");
                    blocks.extend(text(part));
                }
            }
            Some("reasoning") => blocks.push(reasoning(item)),
            Some("function_call") => calls.push(called(item, blocks.len(), has_failed)?),
            // Tools of the provider itself; they are in `raw`.
            Some(_) => {}
            None => return Err(Malformed::new("an item of `output` has no `type`")),
        }
    }
    unsign_last(&mut calls, &blocks);
    let finish = match is_refused && !has_failed {
        true => FinishReason::ContentFilter,
        false => finish_reason(body, !calls.is_empty()),
    };
    Ok(ReadAnswer { blocks, calls, finish, usage: usage(body.get("usage")) })
}

fn text(part: &Value) -> Option<Block> {
    let text = ["text", "refusal"].iter().find_map(|name| part.get(*name).and_then(Value::as_str))?;
    (!text.is_empty()).then(|| Block::text(text))
}

/// The summary as text, or else the reasoning itself, which servers of open models show; and the whole item to be given back.
fn reasoning(item: &Value) -> Block {
    let text_in = |name: &str| {
        let parts = item.get(name).and_then(Value::as_array).into_iter().flatten();
        let texts: Vec<_> = parts.filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
        texts.join("\n\n")
    };
    let summary = text_in("summary");
    let text = if summary.is_empty() { text_in("content") } else { summary };
    let kept = canonical(item.clone()).to_string();
    if text.is_empty() {
        Block::RedactedThinking { data: kept }
    } else {
        Block::Thinking { text, signature: Some(kept) }
    }
}

/// Calls that come behind everything else stand there anyhow, and so do those of an answer without reasoning.
fn unsign_last(calls: &mut [Called], blocks: &[Block]) {
    let last = blocks.len().to_string();
    let is_free = !blocks.iter().any(Block::is_reasoning);
    for call in calls.iter_mut().filter(|call| is_free || call.signature.as_ref() == Some(&last)) {
        call.signature = None;
    }
}

/// A call behind so many blocks: their number stands for its signature. Of an answer that has failed, the part that is there is
/// taken (§3).
fn called(item: &Value, before: usize, has_failed: bool) -> Result<Called, Malformed> {
    let text = |name: &str| match item.get(name).and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None if has_failed => Ok(String::new()),
        None => Err(Malformed(format!("a call of a tool has no `{name}`"))),
    };
    Ok(Called {
        id: item.get("call_id").and_then(Value::as_str).unwrap_or_default().to_owned(),
        name: text("name")?,
        arguments: match item.get("arguments") {
            Some(Value::Object(arguments)) => Ok(arguments.clone()),
            Some(Value::Null) if !has_failed => Ok(dormouse_ports::Map::new()),
            _ => match text("arguments")? {
                nothing if nothing.is_empty() && has_failed => Err("they are empty".to_owned()),
                text => arguments(&text),
            },
        },
        signature: Some(before.to_string()),
    })
}

fn finish_reason(body: &Value, has_calls: bool) -> FinishReason {
    let reason = body.pointer("/incomplete_details/reason").and_then(Value::as_str);
    match (body.get("status").and_then(Value::as_str), reason) {
        (Some("completed"), _) if has_calls => FinishReason::ToolCalls,
        (Some("completed"), _) => FinishReason::Stop,
        (Some("incomplete"), Some("max_output_tokens")) => FinishReason::Length,
        (Some("incomplete"), Some("content_filter")) => FinishReason::ContentFilter,
        _ => FinishReason::Error,
    }
}

pub(super) fn usage(usage: Option<&Value>) -> Usage {
    let count = |name: &str| counter(usage.and_then(|usage| usage.get(name)));
    Usage {
        prompt_tokens: count("input_tokens"),
        completion_tokens: count("output_tokens"),
        total_tokens: count("total_tokens"),
        cached_tokens: counter(usage.and_then(|usage| usage.pointer("/input_tokens_details/cached_tokens"))),
        cache_creation_tokens: None,
    }
}
