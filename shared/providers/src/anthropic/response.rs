use dormouse_ports::Map;
use dormouse_ports::model::{Block, FinishReason, Usage};
use serde_json::Value;

use crate::judge::counter;
use crate::wire::{Called, Malformed, ReadAnswer};

/// Reads an answer (§8.2.2).
pub(super) fn decode(body: &Value) -> Result<ReadAnswer, Malformed> {
    let entries = body.get("content").and_then(Value::as_array);
    let entries = entries.ok_or_else(|| Malformed::new("`content` is no list"))?;
    let finish = finish_reason(body.get("stop_reason").and_then(Value::as_str));
    let mut blocks = Vec::new();
    let mut calls = Vec::new();
    for entry in entries {
        match entry.get("type").and_then(Value::as_str) {
            Some("text") => blocks.extend(text(entry)?),
            Some("thinking") => blocks.extend(thinking(entry)?),
            Some("redacted_thinking") => blocks.push(Block::RedactedThinking { data: string(entry, "data")? }),
            Some("tool_use") => calls.push(tool_use(entry, finish)?),
            // Tools of the provider itself; they are in `raw`.
            Some(_) => {}
            None => return Err(Malformed::new("an entry of `content` has no `type`")),
        }
    }
    Ok(ReadAnswer { blocks, calls, finish, usage: usage(body.get("usage")) })
}

fn text(entry: &Value) -> Result<Option<Block>, Malformed> {
    let text = string(entry, "text")?;
    Ok((!text.is_empty()).then(|| Block::text(text)))
}

/// A thought; `None` of one that has neither words nor a signature, which could not stand in a conversation.
fn thinking(entry: &Value) -> Result<Option<Block>, Malformed> {
    let signature = entry.get("signature").and_then(Value::as_str).filter(|signature| !signature.is_empty());
    let (text, signature) = (string(entry, "thinking")?, signature.map(str::to_owned));
    Ok((!text.is_empty() || signature.is_some()).then_some(Block::Thinking { text, signature }))
}

fn tool_use(entry: &Value, finish: FinishReason) -> Result<Called, Malformed> {
    let text = |name| match string(entry, name) {
        Err(_) if finish == FinishReason::Error => Ok(String::new()),
        text => text,
    };
    Ok(Called {
        id: string(entry, "id").unwrap_or_default(),
        name: text("name")?,
        arguments: match entry.get("input") {
            Some(Value::Object(input)) => Ok(input.clone()),
            None | Some(Value::Null) if finish != FinishReason::Error => Ok(Map::new()),
            _ => Err("they are no JSON object".to_owned()),
        },
        signature: None,
    })
}

fn string(entry: &Value, name: &str) -> Result<String, Malformed> {
    let text = entry.get(name).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| Malformed(format!("an entry of `content` has no `{name}`")))
}

fn finish_reason(name: Option<&str>) -> FinishReason {
    match name {
        Some("end_turn" | "stop_sequence" | "pause_turn") => FinishReason::Stop,
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("tool_use") => FinishReason::ToolCalls,
        Some("refusal") => FinishReason::ContentFilter,
        Some(_) | None => FinishReason::Error,
    }
}

/// Counters of the cache that callers ask for are in `raw` only (§8.2.2).
fn usage(usage: Option<&Value>) -> Usage {
    let count = |name: &str| counter(usage.and_then(|usage| usage.get(name)));
    let prompt_tokens = count("input_tokens");
    let completion_tokens = count("output_tokens");
    let total_tokens = prompt_tokens.zip(completion_tokens).and_then(|(input, output)| input.checked_add(output));
    Usage { prompt_tokens, completion_tokens, total_tokens, ..Usage::default() }
}
