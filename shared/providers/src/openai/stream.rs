use std::collections::BTreeMap;

use dormouse_ports::Map;
use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use super::response::REASONING;
use crate::wire::{Assembler, Emit, Malformed, StreamFault, StreamProgress};

/// Puts the chunks of a completion together (§8.1.6).
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// Fields of the chunks themselves; the last value of each.
    root: Map,
    /// Other fields of the choice, such as `logprobs`.
    choice: Map,
    content: Option<String>,
    /// Reasoning, and the name under which it comes.
    reasoning: Option<(&'static str, String)>,
    calls: BTreeMap<u64, GrowingCall>,
    finish_reason: Option<Value>,
    has_begun: bool,
}

#[derive(Debug, Default)]
struct GrowingCall {
    id: Value,
    name: Value,
    arguments: String,
}

impl Assembler for Chunks {
    fn take(&mut self, _: &str, data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault> {
        let Value::Object(chunk) = data else {
            return Err(StreamFault::Malformed(Malformed::new("a chunk is no object")));
        };
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamFault::Reported(Value::Object(chunk)));
        }
        for (name, value) in chunk {
            match (name.as_str(), value) {
                ("choices", Value::Array(choices)) => {
                    choices.into_iter().take(1).for_each(|choice| self.choice(choice, emit));
                }
                ("choices", _) => return Err(StreamFault::Malformed(Malformed::new("`choices` is no list"))),
                // Chunks before the last may say that there is none yet.
                ("usage", Value::Null) => {}
                (_, value) => {
                    self.root.insert(name, value);
                }
            }
        }
        Ok(StreamProgress::More)
    }

    fn whole(self: Box<Self>, failed: Option<Value>) -> Value {
        let mut root = self.root.clone();
        root.insert("object".to_owned(), Value::from("chat.completion"));
        root.insert("choices".to_owned(), json!([self.whole_choice(failed.is_some())]));
        if let Some(Value::Object(mut failed)) = failed {
            root.insert("error".to_owned(), failed.shift_remove("error").unwrap_or_default());
        }
        Value::Object(root)
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }
}

impl Chunks {
    fn choice(&mut self, choice: Value, emit: &mut Emit<'_>) {
        let Value::Object(choice) = choice else { return };
        for (name, value) in choice {
            match (name.as_str(), value) {
                ("delta", delta) => self.delta(&delta, emit),
                ("finish_reason", Value::Null) => {}
                ("finish_reason", reason) => self.finish_reason = Some(reason),
                (_, value) => {
                    self.choice.insert(name, value);
                }
            }
        }
    }

    fn delta(&mut self, delta: &Value, emit: &mut Emit<'_>) {
        self.has_begun = true;
        for name in REASONING {
            if let Some(text) = delta.get(name).and_then(Value::as_str) {
                let (_, reasoning) = self.reasoning.get_or_insert_with(|| (name, String::new()));
                reasoning.push_str(text);
                emit(DeltaKind::Reasoning, text);
                break;
            }
        }
        if let Some(text) = delta.get("content").and_then(Value::as_str) {
            self.content.get_or_insert_default().push_str(text);
            emit(DeltaKind::Content, text);
        }
        for (position, call) in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.call(position, call);
        }
    }

    /// Pieces of one call have its index; servers that send whole calls may leave it out.
    fn call(&mut self, position: usize, piece: &Value) {
        let index = piece.get("index").and_then(Value::as_u64).unwrap_or_else(|| {
            let known = self.calls.iter().find(|(_, call)| Some(&call.id) == piece.get("id")).map(|(index, _)| *index);
            known.unwrap_or_else(|| self.calls.len().max(position) as u64)
        });
        let call = self.calls.entry(index).or_default();
        let function = piece.get("function").unwrap_or(&Value::Null);
        set(&mut call.id, piece.get("id"));
        set(&mut call.name, function.get("name"));
        match function.get("arguments") {
            Some(Value::String(text)) => call.arguments.push_str(text),
            Some(whole @ Value::Object(_)) => call.arguments.push_str(&whole.to_string()),
            _ => {}
        }
    }

    fn whole_choice(self, failed: bool) -> Value {
        let mut choice = self.choice;
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), self.content.map_or(Value::Null, Value::from));
        if let Some((name, reasoning)) = self.reasoning {
            message.insert(name.to_owned(), Value::from(reasoning));
        }
        if !self.calls.is_empty() {
            let calls: Vec<_> = self.calls.into_values().map(GrowingCall::whole).collect();
            message.insert("tool_calls".to_owned(), Value::from(calls));
        }
        choice.insert("message".to_owned(), Value::Object(message));
        let reason = if failed { Value::from("error") } else { self.finish_reason.unwrap_or_default() };
        choice.insert("finish_reason".to_owned(), reason);
        Value::Object(choice)
    }
}

impl GrowingCall {
    fn whole(self) -> Value {
        let function = json!({ "name": self.name, "arguments": self.arguments });
        json!({ "id": self.id, "type": "function", "function": function })
    }
}

/// The first text counts: some servers repeat it empty.
fn set(known: &mut Value, piece: Option<&Value>) {
    if let (Value::Null, Some(text @ Value::String(_))) = (&*known, piece) {
        *known = text.clone();
    }
}
