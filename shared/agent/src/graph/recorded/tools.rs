//! Tools as they were listed and answered.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::tool::{InputRequest, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use serde::Deserialize;
use serde_json::Value;

use super::RecordedClock;
use super::past::{Past, PastOutcome};
use crate::memory;

/// What the model is told of an error begins so, and is told again of one that is repeated.
const ERROR: &str = "error: ";

/// A source whose tools answer as they did in the run.
pub(super) struct RecordedTools {
    pub(super) name: String,
    pub(super) source: Arc<dyn ToolSource>,
    pub(super) past: Arc<Past>,
    pub(super) clock: Arc<RecordedClock>,
}

impl std::fmt::Debug for RecordedTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordedTools").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolSource for RecordedTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        if let Some(listed) = self.past.listed(&self.name) {
            return Vec::deserialize(listed).map_err(|error| ToolError::permanent(error.to_string()));
        }
        if self.source.lists_offline() {
            return self.source.list().await;
        }
        if let Some(error) = self.past.not_listed(&self.name) {
            return Err(error);
        }
        let key = format!("host:tools:{}", self.name);
        self.past.material.lack("host_fact", key, "which tools the server offered was not recorded");
        Err(ToolError::permanent("the tools of the source were not recorded"))
    }

    async fn left_out(&self) -> Vec<(String, String)> {
        match self.source.lists_offline() {
            true => self.source.left_out().await,
            false => self.past.left_out(&self.name),
        }
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let past = self.past.take_outcome(&call.id);
        self.clock.pass_beside(past.as_ref().map_or(0, |past| past.duration_ms));
        let (outcome, effects) = past.map(|past| (past.outcome, past.effects)).unzip();
        let tool = format!("tool:{}", call.id);
        let mcp = format!("mcp:{}:{}", self.name, call.id);
        let overrides = &self.past.material.overrides;
        if let Some(value) = overrides.get(&tool).or_else(|| overrides.get(&mcp)) {
            return Ok(ToolReply::Done(replaced(value)));
        }
        if self.name == memory::SOURCE {
            // It reaches nothing outside, and what it notes is told in the next request.
            return self.source.call(call).await;
        }
        call.effects.repeat(effects.unwrap_or_default());
        let lacks = |reason: &str| {
            self.past.material.lack("tool_result", tool.clone(), reason);
            ToolError::permanent(format!("`{tool}` is not recorded: {reason}"))
        };
        match outcome {
            Some(PastOutcome::Answered { text: Some(text), is_error, whole, images }) => {
                Ok(ToolReply::Done(ToolOutput { images, ..repeated(&text, is_error, whole) }))
            }
            Some(PastOutcome::Answered { text: None, .. }) => {
                Err(lacks("its result is not in the record of the run any more"))
            }
            Some(PastOutcome::Pending(pending)) => Ok(ToolReply::Pending(pending)),
            // Earlier versions took each answer, whether it fits or not.
            Some(PastOutcome::Asking(request)) => Ok(ToolReply::InputRequired(match self.past.has_refused(&call.id) {
                true => request,
                false => InputRequest { schema: Map::new(), ..request },
            })),
            Some(PastOutcome::Uncertain(message)) => Err(ToolError::permanent(message).maybe_done()),
            Some(PastOutcome::Unknown) => Err(lacks("it did not end at once, and how was not recorded")),
            None => Err(lacks("the call was not made then")),
        }
    }

    /// What the run took of what was told: without the secrets of then, which stand in what is told again. Where something else
    /// is told, that is taken.
    fn masked(&self, call_id: &str, output: ToolOutput) -> ToolOutput {
        let is_replaced = self.past.material.overrides.keys().any(|key| key.starts_with("event:"));
        match self.past.take_later(call_id).filter(|_| !is_replaced) {
            Some(PastOutcome::Answered { text: Some(text), is_error, whole, images }) => {
                ToolOutput { images, ..repeated(&text, is_error, whole) }
            }
            Some(
                PastOutcome::Answered { text: None, .. }
                | PastOutcome::Pending(_)
                | PastOutcome::Asking(_)
                | PastOutcome::Uncertain(_)
                | PastOutcome::Unknown,
            )
            | None => self.source.masked(call_id, output),
        }
    }
}

fn replaced(value: &Value) -> ToolOutput {
    match value {
        Value::String(text) => ToolOutput::text(text.as_str()),
        Value::Object(fields) if fields.get("content").is_some_and(Value::is_array) => {
            ToolOutput::deserialize(value).unwrap_or_else(|_| ToolOutput::value(value.clone()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            ToolOutput::value(value.clone())
        }
    }
}

/// The output of which the model was shown `text`. Of one that was cut, the part that was not kept is made up of
/// blanks: only its length shows.
fn repeated(text: &str, is_error: bool, whole: Option<String>) -> ToolOutput {
    let text = match cut_from(text) {
        Some((shown, length)) => {
            let mut output = whole.filter(|whole| whole.starts_with(shown)).unwrap_or_else(|| shown.to_owned());
            output.extend(std::iter::repeat_n(' ', length.saturating_sub(output.len())));
            output
        }
        None => text.to_owned(),
    };
    match is_error {
        true => ToolOutput::error(text.strip_prefix(ERROR).unwrap_or(&text)),
        false => ToolOutput::text(text),
    }
}

/// The beginning that was shown of an output that was cut, and the length of all of it.
fn cut_from(text: &str) -> Option<(&str, usize)> {
    let (shown, note) = text.rsplit_once("\n[cut: ")?;
    let numbers = note.strip_suffix(" bytes are shown; ask for less at a time]")?;
    let (_, length) = numbers.split_once(" of ")?;
    Some((shown, length.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dormouse_ports::{PastEnd, PastEntry, ReplayMaterial};
    use futures::executor::block_on;
    use serde_json::json;

    use super::*;

    fn entry(kind: &str, payload: &Value, material: &Value) -> PastEntry {
        let fields = |value: &Value| value.as_object().cloned().expect("an object");
        let (payload, material) = (fields(payload), fields(material));
        PastEntry { event_id: "e1".to_owned(), kind: kind.to_owned(), payload, material }
    }

    #[test]
    fn an_answer_that_was_taken_though_it_does_not_fit_is_taken_again() {
        let schema = json!({ "required": ["color"] }).as_object().cloned().expect("an object");
        let request = InputRequest { message: "Which?".to_owned(), schema, state: Value::Null };
        let asks = entry(
            "vendor.dormouse.tool_asks",
            &json!({ "tool_call_id": "c1", "message": "Which?" }),
            &json!({ "request": request }),
        );
        let unfit = |id: &str| {
            let payload = json!({ "tool_call_id": id, "decision": "unfit" });
            entry("vendor.dormouse.tool_decided", &payload, &json!({}))
        };
        let open = InputRequest { schema: Map::new(), ..request.clone() };
        for (refused, asked) in [("c1", request), ("c2", open)] {
            let mut material = ReplayMaterial::new(jiff::Timestamp::UNIX_EPOCH, Map::new(), PastEnd::Completed);
            material.entries = vec![asks.clone(), unfit(refused)];
            let past = Arc::new(Past::of(Arc::new(material)));
            let clock = Arc::new(RecordedClock::new(&past, Duration::ZERO));
            let tools = RecordedTools { name: "box".to_owned(), source: Arc::new(memory::SessionMemory), past, clock };
            let reply = block_on(tools.call(&ToolCall::new("c1", "paint", Map::new())));
            assert_eq!(reply, Ok(ToolReply::InputRequired(asked)), "{refused}");
        }
    }
}
