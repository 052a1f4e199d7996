use dormouse_ports::Map;
use dormouse_ports::model::{Block, FinishReason, Usage};
use serde_json::Value;

use crate::judge::counter;
use crate::wire::{Called, Malformed, ReadAnswer};

/// Reads an answer.
pub(super) fn decode(body: &Value) -> Result<ReadAnswer, Malformed> {
    let entries = body.pointer("/output/message/content").and_then(Value::as_array);
    let entries = entries.ok_or_else(|| Malformed::new("`output.message.content` is no list"))?;
    let finish = finish_reason(body.get("stopReason").and_then(Value::as_str));
    let mut blocks = Vec::new();
    let mut calls = Vec::new();
    for entry in entries {
        blocks.extend(block(entry));
        if let Some(call) = entry.get("toolUse").filter(|call| !call.is_null()) {
            calls.push(called(call, finish)?);
        }
    }
    Ok(ReadAnswer { blocks, calls, finish, usage: usage(body.get("usage")) })
}

fn block(entry: &Value) -> Option<Block> {
    let text = |place: &str| entry.pointer(place).and_then(Value::as_str);
    if let Some(text) = text("/text") {
        return (!text.is_empty()).then(|| Block::text(text));
    }
    if let Some(reasoning) = text("/reasoningContent/reasoningText/text") {
        let signature = text("/reasoningContent/reasoningText/signature").filter(|signature| !signature.is_empty());
        let (text, signature) = (reasoning.to_owned(), signature.map(str::to_owned));
        // One that has neither words nor a signature could not stand in a conversation.
        return (!text.is_empty() || signature.is_some()).then_some(Block::Thinking { text, signature });
    }
    text("/reasoningContent/redactedContent").map(|data| Block::RedactedThinking { data: data.to_owned() })
}

fn called(call: &Value, finish: FinishReason) -> Result<Called, Malformed> {
    let text = |name: &str| match call.get(name).and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None if finish == FinishReason::Error => Ok(String::new()),
        None => Err(Malformed(format!("a call of a tool has no `{name}`"))),
    };
    Ok(Called {
        id: call.get("toolUseId").and_then(Value::as_str).unwrap_or_default().to_owned(),
        name: text("name")?,
        arguments: match call.get("input") {
            Some(Value::Object(input)) => Ok(input.clone()),
            None | Some(Value::Null) if finish != FinishReason::Error => Ok(Map::new()),
            _ => Err("they are no JSON object".to_owned()),
        },
        signature: None,
    })
}

fn finish_reason(name: Option<&str>) -> FinishReason {
    match name {
        Some("end_turn" | "stop_sequence") => FinishReason::Stop,
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("tool_use") => FinishReason::ToolCalls,
        Some("guardrail_intervened" | "content_filtered") => FinishReason::ContentFilter,
        Some(_) | None => FinishReason::Error,
    }
}

fn usage(usage: Option<&Value>) -> Usage {
    let count = |name: &str| counter(usage.and_then(|usage| usage.get(name)));
    Usage {
        prompt_tokens: count("inputTokens"),
        completion_tokens: count("outputTokens"),
        total_tokens: count("totalTokens"),
        cached_tokens: count("cacheReadInputTokens"),
        cache_creation_tokens: count("cacheWriteInputTokens"),
    }
}
