use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use crate::wire::{Assembler, Emit, StreamFault, StreamProgress};

/// Events of a response: pieces for people, and at the end the response whole.
#[derive(Debug, Default)]
pub(crate) struct Events {
    text: String,
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
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.response = Some(data["response"].take());
                return Ok(StreamProgress::Done);
            }
            "error" => return Err(StreamFault::Reported(reported(data))),
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

/// Errors stand under `error`, or are the event itself.
fn reported(data: Value) -> Value {
    if data.get("error").is_some_and(Value::is_object) { data } else { json!({ "error": data }) }
}
