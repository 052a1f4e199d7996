use dormouse_ports::Map;
use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use crate::wire::{Assembler, Emit, Malformed, StreamFault, StreamProgress};

/// Puts the answers of a stream together, each of which has some parts.
#[derive(Debug, Default)]
pub(super) struct GeminiChunks {
    /// Fields of the answers; the last value of each.
    root: Map,
    candidate: Map,
    role: Option<Value>,
    parts: Vec<Value>,
    has_begun: bool,
}

impl Assembler for GeminiChunks {
    fn take(&mut self, _: &str, data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault> {
        let Value::Object(answer) = data else {
            return Err(StreamFault::Malformed(Malformed::new("a piece is no object")));
        };
        if answer.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamFault::Reported(Value::Object(answer)));
        }
        for (name, value) in answer {
            match (name.as_str(), value) {
                // It says nothing, as one that is missing.
                (_, Value::Null) => {}
                ("candidates", Value::Array(candidates)) => {
                    let is_first = |one: &Value| one.get("index").and_then(Value::as_u64).unwrap_or_default() == 0;
                    candidates.into_iter().find(is_first).into_iter().for_each(|first| self.candidate(first, emit));
                }
                (_, value) => {
                    self.root.insert(name, value);
                }
            }
        }
        Ok(StreamProgress::More)
    }

    fn whole(self: Box<Self>, failed: Option<Value>) -> Value {
        let mut root = self.root;
        let mut candidate = self.candidate;
        if self.has_begun {
            let role = self.role.unwrap_or_else(|| Value::from("model"));
            candidate.insert("content".to_owned(), json!({ "role": role, "parts": self.parts }));
        }
        if let Some(mut failed) = failed {
            candidate.insert("finishReason".to_owned(), Value::from("OTHER"));
            root.insert("error".to_owned(), failed["error"].take());
        }
        if !candidate.is_empty() {
            root.insert("candidates".to_owned(), json!([candidate]));
        }
        Value::Object(root)
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn is_complete(&self) -> bool {
        let is_blocked = |feedback: &Value| feedback.get("blockReason").is_some_and(|reason| !reason.is_null());
        self.candidate.contains_key("finishReason") || self.root.get("promptFeedback").is_some_and(is_blocked)
    }
}

impl GeminiChunks {
    fn candidate(&mut self, candidate: Value, emit: &mut Emit<'_>) {
        let Value::Object(candidate) = candidate else { return };
        // What is empty says nothing either, such as the reason to stop of a piece behind the one that has it.
        for (name, mut value) in candidate.into_iter().filter(|(_, value)| !value.is_null() && *value != "") {
            if name != "content" {
                self.candidate.insert(name, value);
                continue;
            }
            self.has_begun = true;
            self.role = value.get("role").cloned().or(self.role.take());
            if let Some(Value::Array(parts)) = value.get_mut("parts").map(Value::take) {
                parts.into_iter().for_each(|part| self.part(part, emit));
            }
        }
    }

    fn part(&mut self, part: Value, emit: &mut Emit<'_>) {
        let is_thought = |part: &Value| part.get("thought") == Some(&Value::Bool(true));
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            emit(if is_thought(&part) { DeltaKind::Reasoning } else { DeltaKind::Content }, text);
            if let Some(last) =
                self.parts.last_mut().filter(|last| is_open(last) && is_thought(last) == is_thought(&part))
            {
                extend(last, text, signature(&part));
                return;
            }
        }
        self.parts.push(part);
    }
}

/// True for a text that may go on: a signature ends its part.
fn is_open(part: &Value) -> bool {
    part.get("text").is_some_and(Value::is_string) && signature(part).is_none()
}

fn signature(part: &Value) -> Option<&Value> {
    part.get("thoughtSignature").filter(|signature| !signature.is_null())
}

fn extend(part: &mut Value, text: &str, signature: Option<&Value>) {
    if let Some(Value::String(known)) = part.get_mut("text") {
        known.push_str(text);
    }
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.clone();
    }
}
