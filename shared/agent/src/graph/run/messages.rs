//! Messages of a conversation: results of calls as they are kept, and what a model is shown.

use dormouse_ports::Unmarked;
use dormouse_ports::model::Message;
use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, MapDeserializer};
use serde_json::{Value, json};

use super::PlannedCall;
use crate::graph::images::IMAGES;
use crate::graph::model::conversational;
use crate::graph::open::run_of;

/// Field of the result of a call that failed. Models are told by its text.
const IS_ERROR: &str = "is_error";

/// Field of the result of a call whose arguments a person changed: what they became, as JSON. Models are told it behind the
/// text.
const EDITED: &str = "edited";
/// Bytes of that.
const MOST_EDITED: usize = 8 * 1024;

/// The message of a conversation with the result of `call`, which is `text`.
pub(crate) fn result_message(call: &PlannedCall, text: &str, is_error: bool) -> Value {
    let mut message = json!({ "role": "tool", "content": text, "tool_call_id": call.id });
    if is_error {
        message[IS_ERROR] = true.into();
    }
    if call.edited {
        message[EDITED] = conversational(&json!(call.arguments).to_string(), MOST_EDITED).into();
    }
    if !call.images.is_empty() {
        message[IMAGES] = json!(call.images);
    }
    message
}

/// Messages of a conversation as a model is shown them, each with the mark of its run. One that cannot be read is left out,
/// and an answer in which a model said nothing, which providers refuse.
pub(crate) fn as_shown<'m>(
    messages: impl IntoIterator<Item = &'m Value>,
) -> impl Iterator<Item = (Message, Option<&'m str>)> {
    let told = messages.into_iter().filter(|message| !says_nothing(message));
    told.filter_map(|message| Some((read(message)?, run_of(message))))
}

/// A message of a conversation without what only its session knows of it; `None` where it is none.
pub(crate) fn read(message: &Value) -> Option<Message> {
    let fields = Unmarked(message).fields().filter(|(name, _)| ![IS_ERROR, EDITED].contains(name));
    let fields = fields.map(|(name, value)| (BorrowedStrDeserializer::<serde_json::Error>::new(name), value));
    let mut read = Message::deserialize(MapDeserializer::new(fields)).ok()?;
    if let (Message::Tool { content, .. }, Some(edited)) = (&mut read, message[EDITED].as_str()) {
        content.push_str(&format!("\n[a person changed the arguments of this call; they became {edited}]"));
    }
    Some(read)
}

/// True for an answer without words and calls, such as one that was cut while the model thought.
fn says_nothing(message: &Value) -> bool {
    let is_thought = |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_thought),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    message["role"] == "assistant" && is_empty(&message["content"]) && is_empty(&message["tool_calls"])
}
