//! Content in attributes (observability §5.5.1, §5.5.5).

use dormouse_ports::model::{CompletionRequest, Response, ToolCall};
use serde_json::{Value, json};

use super::AttributeList;
use crate::canonical::canonical;

/// The most bytes of each attribute of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLimit(usize);

impl PayloadLimit {
    /// The least that it may be: below it there would be hardly anything but the mark of the cut.
    pub const LEAST: usize = 256;

    /// That many bytes; `None` below [`LEAST`](Self::LEAST).
    pub fn new(bytes: usize) -> Option<Self> {
        (bytes >= Self::LEAST).then_some(Self(bytes))
    }

    /// `text` within the limit, cut between two characters and marked where it is longer.
    pub(super) fn cut(self, text: String) -> String {
        if text.len() <= self.0 {
            return text;
        }
        let mark = format!("…[truncated, {} bytes total]", text.len());
        let end = text.floor_char_boundary(self.0 - mark.len());
        format!("{}{mark}", &text[..end])
    }
}

impl Default for PayloadLimit {
    /// 64 KiB.
    fn default() -> Self {
        Self(65_536)
    }
}

pub(super) fn input(list: &mut AttributeList, request: &CompletionRequest, limit: PayloadLimit) {
    let messages = request.messages.iter().map(|message| redacted(serde_json::to_value(message).unwrap_or_default()));
    let messages: Value = messages.collect();
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

/// A message without the bytes of its inline images.
fn redacted(mut message: Value) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_says_how_long_it_was() {
        let limit = PayloadLimit::new(256).expect("a limit");
        let text = "ä".repeat(300);
        let cut = limit.cut(text);
        assert!(cut.len() <= 256 && cut.len() >= 255, "{}", cut.len());
        assert!(cut.ends_with("ä…[truncated, 600 bytes total]"), "{cut}");
        assert_eq!(limit.cut("a".repeat(256)).len(), 256);
        assert_eq!(PayloadLimit::new(255), None);
    }
}
