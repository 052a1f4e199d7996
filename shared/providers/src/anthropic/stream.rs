use std::collections::BTreeMap;

use dormouse_ports::Map;
use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use crate::wire::{Assembler, Emit, Malformed, StreamFault, StreamProgress, is_bare_error};

/// Puts the events of a message together.
#[derive(Debug, Default)]
pub(super) struct AnthropicEvents {
    message: Map,
    /// By index, and by how often that began before.
    entries: BTreeMap<(u64, u64), GrowingContent>,
    is_complete: bool,
}

/// An entry of content, and the text of its input so far.
#[derive(Debug, Default)]
struct GrowingContent {
    fields: Map,
    input: String,
}

impl Assembler for AnthropicEvents {
    fn take(&mut self, name: &str, mut data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault> {
        let kind = data.get("type").and_then(Value::as_str).unwrap_or(name).to_owned();
        let index = data.get("index").and_then(Value::as_u64).unwrap_or_default();
        match kind.as_str() {
            "message_start" => {
                let Value::Object(message) = data["message"].take() else {
                    return Err(malformed("the stream begins without a message"));
                };
                self.message = message;
            }
            "content_block_start" => {
                let Value::Object(fields) = data["content_block"].take() else {
                    return Err(malformed("an entry of content begins without one"));
                };
                let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
                match text("type") {
                    "text" => emit(DeltaKind::Content, text("text")),
                    "thinking" => emit(DeltaKind::Reasoning, text("thinking")),
                    _ => {}
                }
                let again = self.last(index).map_or(0, |(_, again)| again + 1);
                self.entries.insert((index, again), GrowingContent { fields, input: String::new() });
            }
            "content_block_delta" => {
                let entry = self.last(index).and_then(|place| self.entries.get_mut(&place));
                let entry = entry.ok_or_else(|| malformed("a piece of no entry of content"))?;
                entry.add(&data["delta"], emit);
            }
            "message_delta" => self.message_delta(&data),
            "message_stop" => return Ok(StreamProgress::Done),
            "error" => return Err(StreamFault::Reported(data)),
            _ if is_bare_error(&data) => return Err(StreamFault::Reported(data)),
            _ => {}
        }
        Ok(StreamProgress::More)
    }

    fn whole(self: Box<Self>, failed: Option<Value>) -> Value {
        let mut message = self.message;
        let entries: Vec<_> = self.entries.into_values().map(GrowingContent::whole).collect();
        message.insert("content".to_owned(), Value::from(entries));
        if let Some(mut failed) = failed {
            message.insert("stop_reason".to_owned(), Value::from("error"));
            message.insert("error".to_owned(), failed["error"].take());
        }
        Value::Object(message)
    }

    fn has_begun(&self) -> bool {
        !self.entries.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl AnthropicEvents {
    /// Place of the entry that began last under `index`.
    fn last(&self, index: u64) -> Option<(u64, u64)> {
        self.entries.range((index, 0)..=(index, u64::MAX)).next_back().map(|(place, _)| *place)
    }

    /// Why it ended, and counters that replace those of the start.
    fn message_delta(&mut self, data: &Value) {
        for (name, value) in data["delta"].as_object().into_iter().flatten() {
            self.is_complete |= name == "stop_reason" && !value.is_null();
            self.message.insert(name.clone(), value.clone());
        }
        let usage = self.message.entry("usage").or_insert(Value::Null);
        if usage.is_null() {
            *usage = json!({});
        }
        if let (Some(usage), Some(counters)) = (usage.as_object_mut(), data["usage"].as_object()) {
            // One that is null says nothing new.
            let told = counters.iter().filter(|(_, count)| !count.is_null());
            usage.extend(told.map(|(name, count)| (name.clone(), count.clone())));
        }
    }
}

impl GrowingContent {
    fn add(&mut self, delta: &Value, emit: &mut Emit<'_>) {
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        match delta.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text_delta" => {
                self.append("text", text("text"));
                emit(DeltaKind::Content, text("text"));
            }
            "thinking_delta" => {
                self.append("thinking", text("thinking"));
                emit(DeltaKind::Reasoning, text("thinking"));
            }
            "signature_delta" => self.append("signature", text("signature")),
            "input_json_delta" => self.input.push_str(text("partial_json")),
            _ => {}
        }
    }

    fn append(&mut self, name: &str, text: &str) {
        match self.fields.get_mut(name) {
            Some(Value::String(known)) => known.push_str(text),
            _ => {
                self.fields.insert(name.to_owned(), Value::from(text));
            }
        }
    }

    /// An input that is no JSON stays a text: it is not taken for arguments.
    fn whole(mut self) -> Value {
        if !self.input.is_empty() {
            let input = dormouse_json::read(self.input.as_bytes(), dormouse_json::ENTRY);
            self.fields.insert("input".to_owned(), input.unwrap_or(Value::String(self.input)));
        }
        Value::Object(self.fields)
    }
}

fn malformed(what: &str) -> StreamFault {
    StreamFault::Malformed(Malformed::new(what))
}
