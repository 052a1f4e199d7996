use dormouse_ports::model::{Block, FinishReason, Usage};
use serde_json::Value;

use super::own_name;
use crate::judge::counter;
use crate::wire::{Called, Malformed, ReadAnswer};

/// Reads an answer (§8.3.2).
pub(super) fn decode(body: &Value) -> Result<ReadAnswer, Malformed> {
    let usage = usage(body.get("usageMetadata"));
    let candidates = body.get("candidates").and_then(Value::as_array);
    let Some(candidate) = candidates.and_then(|all| all.first()).filter(|first| first.is_object()) else {
        // The question itself was blocked.
        return match body.pointer("/promptFeedback/blockReason") {
            Some(reason) if !reason.is_null() => {
                Ok(ReadAnswer { blocks: Vec::new(), calls: Vec::new(), finish: FinishReason::ContentFilter, usage })
            }
            Some(_) | None => Err(Malformed::new("there are no `candidates`")),
        };
    };
    let parts = match candidate.pointer("/content/parts") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(parts)) => parts.as_slice(),
        Some(_) => return Err(Malformed::new("`content.parts` is no list")),
    };
    let blocks = parts.iter().filter_map(block).collect();
    let call = |part: &Value| part.get("functionCall").filter(|call| !call.is_null()).map(|call| called(call, part));
    let calls: Vec<Called> = parts.iter().filter_map(call).collect();
    let finish = match candidate.get("finishReason").and_then(Value::as_str) {
        _ if !calls.is_empty() => FinishReason::ToolCalls,
        word => word.map_or(FinishReason::Error, FinishReason::of_gemini),
    };
    Ok(ReadAnswer { blocks, calls, finish, usage })
}

fn block(part: &Value) -> Option<Block> {
    let text = part.get("text").and_then(Value::as_str)?.to_owned();
    let signature = signature(part);
    let is_thought = part.get("thought") == Some(&Value::Bool(true));
    // A signature may come alone; it goes back in its place.
    (!text.is_empty() || signature.is_some()).then_some(match is_thought {
        true => Block::Thinking { text, signature },
        false => Block::Text { text, signature },
    })
}

fn signature(part: &Value) -> Option<String> {
    let signature = part.get("thoughtSignature").and_then(Value::as_str);
    signature.filter(|signature| !signature.is_empty()).map(str::to_owned)
}

fn called(call: &Value, part: &Value) -> Called {
    Called {
        id: call.get("id").and_then(Value::as_str).unwrap_or_default().to_owned(),
        name: own_name(call.get("name").and_then(Value::as_str).unwrap_or_default()).to_owned(),
        arguments: match call.get("args") {
            Some(Value::Object(arguments)) => Ok(arguments.clone()),
            None | Some(Value::Null) => Ok(dormouse_ports::Map::new()),
            Some(_) => Err("they are no JSON object".to_owned()),
        },
        signature: signature(part),
    }
}

fn usage(usage: Option<&Value>) -> Usage {
    let count = |name: &str| counter(usage.and_then(|usage| usage.get(name)));
    Usage {
        prompt_tokens: count("promptTokenCount"),
        completion_tokens: count("candidatesTokenCount"),
        total_tokens: count("totalTokenCount"),
        cached_tokens: count("cachedContentTokenCount"),
        cache_creation_tokens: None,
    }
}
