//! Content in attributes (observability §5.5.1, §5.5.5).

use dormouse_ports::PayloadLimit;
use dormouse_ports::model::{CompletionRequest, Message, Response, ToolCall};
use serde_json::{Value, json};

use super::AttributeList;
use crate::canonical::canonical;

pub(super) fn input(list: &mut AttributeList, request: &CompletionRequest, limit: PayloadLimit) {
    let messages: Value = request.messages.iter().map(redacted).collect();
    list.text("openarmature.llm.input.messages", &limit.cut(canonical(messages).to_string()));
    if !request.config.extras.is_empty() {
        let extras = canonical(Value::Object(request.config.extras.clone())).to_string();
        list.text("openarmature.llm.request.extras", &limit.cut(extras));
    }
}

pub(super) fn output(list: &mut AttributeList, response: &Response, limit: PayloadLimit) {
    let content = response.message.content.as_text();
    if !content.is_empty() {
        list.text("openarmature.llm.output.content", &limit.cut(content));
    }
    if !response.message.tool_calls.is_empty() {
        let calls: Value = response.message.tool_calls.iter().map(call).collect();
        list.text("openarmature.llm.output.tool_calls", &limit.cut(canonical(calls).to_string()));
    }
}

fn call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}

/// The JSON of a message, without the bytes of its inline images.
pub(crate) fn redacted(message: &Message) -> Value {
    let mut message = serde_json::to_value(message).unwrap_or_default();
    for field in ["content", "images"] {
        let blocks = message.get_mut(field).and_then(Value::as_array_mut);
        for block in blocks.into_iter().flatten() {
            let length = block.pointer("/source/base64_data").and_then(Value::as_str).map(str::len);
            if let Some(length) = length {
                block["source"] = json!({ "type": "inline_redacted", "byte_count": length });
            }
        }
    }
    message
}
