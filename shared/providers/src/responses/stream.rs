use std::collections::BTreeMap;

use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use crate::wire::{Assembler, Emit, StreamFault, StreamProgress, is_bare_error};

/// Events of a response: pieces for people, and at the end the response whole.
#[derive(Debug, Default)]
pub(crate) struct Events {
    text: String,
    /// Items that are whole, by their place.
    items: BTreeMap<u64, Value>,
    response: Option<Value>,
}

impl Assembler for Events {
    fn take(&mut self, name: &str, mut data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault> {
        let kind = data.get("type").and_then(Value::as_str).unwrap_or(name).to_owned();
        let delta = data.get("delta").and_then(Value::as_str).unwrap_or_default();
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.text.push_str(delta);
                emit(DeltaKind::Content, delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                emit(DeltaKind::Reasoning, delta);
            }
            "response.output_item.done" => {
                let place = data.get("output_index").and_then(Value::as_u64);
                self.items.insert(place.unwrap_or(self.items.len() as u64), data["item"].take());
            }
            "response.completed" | "response.incomplete" => {
                self.response = Some(self.with_items(data["response"].take()));
                return Ok(StreamProgress::Done);
            }
            "response.failed" => {
                self.response = Some(data["response"].take());
                return Ok(StreamProgress::Done);
            }
            "error" => return Err(StreamFault::Reported(reported(data))),
            _ if is_bare_error(&data) => return Err(StreamFault::Reported(data)),
            _ => {}
        }
        Ok(StreamProgress::More)
    }

    fn whole(self: Box<Self>, failed: Option<Value>) -> Value {
        if let Some(response) = self.response {
            return response;
        }
        let content = json!([{ "type": "output_text", "text": self.text }]);
        let output = json!([{ "type": "message", "role": "assistant", "content": content }]);
        let error = failed.and_then(|mut failed| failed.get_mut("error").map(Value::take));
        json!({ "object": "response", "status": "failed", "output": output, "error": error })
    }

    fn has_begun(&self) -> bool {
        !self.text.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.response.is_some()
    }
}

impl Events {
    /// `response` with the items that came, where a server does not say them again at the end.
    fn with_items(&mut self, mut response: Value) -> Value {
        let is_bare = response.get("output").is_none_or(|output| output.as_array().is_none_or(Vec::is_empty));
        if let Some(fields) = response.as_object_mut().filter(|_| is_bare && !self.items.is_empty()) {
            let items = std::mem::take(&mut self.items);
            fields.insert("output".to_owned(), items.into_values().collect());
        }
        response
    }
}

/// Errors stand under `error`, or are the event itself.
fn reported(data: Value) -> Value {
    if data.get("error").is_some_and(Value::is_object) { data } else { json!({ "error": data }) }
}
