use std::collections::BTreeMap;

use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use crate::wire::{Assembler, Emit, StreamFault, StreamProgress, is_bare_error};

/// Events of a response: pieces for people, and at the end the response whole.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The words of the message under way.
    text: String,
    /// Items that are whole, by their place.
    items: BTreeMap<u64, Value>,
    /// Those that have only begun.
    begun: BTreeMap<u64, Value>,
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
            "response.output_item.added" => {
                if let Some((place, item)) = place_in(&data).zip(item_of(&mut data)) {
                    self.begun.insert(place, item);
                }
            }
            "response.output_item.done" => self.done(&mut data),
            "response.completed" | "response.incomplete" => {
                self.begun.clear();
                self.response = Some(self.with_items(data["response"].take()));
                return Ok(StreamProgress::Done);
            }
            "response.failed" => {
                self.response = Some(self.with_items(data["response"].take()));
                return Ok(StreamProgress::Done);
            }
            "error" => return Err(StreamFault::Reported(reported(data))),
            _ if is_bare_error(&data) => return Err(StreamFault::Reported(data)),
            _ => {}
        }
        Ok(StreamProgress::More)
    }

    fn whole(mut self: Box<Self>, failed: Option<Value>) -> Value {
        if let Some(response) = self.response.take() {
            return response;
        }
        let error = failed.and_then(|mut failed| failed.get_mut("error").map(Value::take));
        json!({ "object": "response", "status": "failed", "output": self.output(), "error": error })
    }

    fn has_begun(&self) -> bool {
        !(self.text.is_empty() && self.items.is_empty() && self.begun.is_empty())
    }

    fn is_complete(&self) -> bool {
        self.response.is_some()
    }
}

impl Events {
    fn done(&mut self, data: &mut Value) {
        let place = place_in(data).unwrap_or(self.items.len() as u64);
        let Some(item) = item_of(data) else { return };
        if item.get("type").and_then(Value::as_str) == Some("message") {
            self.text.clear();
        }
        self.begun.remove(&place);
        self.items.insert(place, item);
    }

    /// What has come: the items in their order, and the words behind them that are in none yet.
    fn output(&mut self) -> Vec<Value> {
        let mut items = std::mem::take(&mut self.begun);
        items.append(&mut self.items);
        let mut output: Vec<Value> = items.into_values().collect();
        if !self.text.is_empty() {
            let content = json!([{ "type": "output_text", "text": std::mem::take(&mut self.text) }]);
            output.push(json!({ "type": "message", "role": "assistant", "content": content }));
        }
        output
    }

    /// `response` with what came, where a server does not say it again at the end, or fails before that.
    fn with_items(&mut self, mut response: Value) -> Value {
        let is_bare = response.get("output").is_none_or(|output| output.as_array().is_none_or(Vec::is_empty));
        if let Some(fields) = response.as_object_mut().filter(|_| is_bare && self.has_begun()) {
            fields.insert("output".to_owned(), Value::from(self.output()));
        }
        response
    }
}

/// The place of an item among those of the answer.
fn place_in(data: &Value) -> Option<u64> {
    data.get("output_index").and_then(Value::as_u64)
}

fn item_of(data: &mut Value) -> Option<Value> {
    data.get_mut("item").map(Value::take).filter(Value::is_object)
}

/// Errors stand under `error`, or are the event itself.
fn reported(data: Value) -> Value {
    if data.get("error").is_some_and(Value::is_object) { data } else { json!({ "error": data }) }
}
