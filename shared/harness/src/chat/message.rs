use dormouse_ports::Map;
use serde_json::Value;

/// One message of a conversation, in the shape of llm-provider §3.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatMessage(Map);

impl ChatMessage {
    /// A message of `role` with text as its content.
    pub fn text(role: &str, content: impl Into<String>) -> Self {
        let mut message = Map::new();
        message.insert("role".to_owned(), role.into());
        message.insert("content".to_owned(), content.into().into());
        Self(message)
    }

    /// Takes any JSON as a message without looking at it; [`validate`](Self::validate) looks.
    pub fn unchecked(value: Value) -> Self {
        match value {
            Value::Object(message) => Self(message),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Self(Map::from_iter([("content".to_owned(), other)]))
            }
        }
    }

    /// The message as JSON.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// The message as JSON.
    pub fn as_map(&self) -> &Map {
        &self.0
    }

    /// Checks role, content and tool fields against each other (harness-chat §3.1).
    ///
    /// # Errors
    /// A sentence that names the mistake.
    pub fn validate(&self) -> Result<(), String> {
        match self.0.get("role").and_then(Value::as_str) {
            Some("system") => self.without(&["tool_calls", "tool_call_id"]).and_then(|()| self.string_content()),
            Some("user") => {
                self.without(&["tool_calls", "tool_call_id"]).and_then(|()| self.content(&["text", "image"]))
            }
            Some("assistant") => self.without(&["tool_call_id"]).and_then(|()| self.assistant()),
            Some("tool") => self.without(&["tool_calls"]).and_then(|()| self.tool()),
            Some(other) => Err(format!("the role must be system, user, assistant or tool, not {other:?}")),
            None => Err("a message needs a role: system, user, assistant or tool".to_owned()),
        }
    }

    fn without(&self, fields: &[&str]) -> Result<(), String> {
        let given = fields.iter().find(|field| self.0.get(**field).is_some_and(|value| !value.is_null()));
        given.map_or(Ok(()), |field| Err(format!("a message of this role has no {field}")))
    }

    fn string_content(&self) -> Result<(), String> {
        match self.0.get("content").and_then(Value::as_str) {
            Some(text) if !text.is_empty() => Ok(()),
            _ => Err("the content must be a string that is not empty".to_owned()),
        }
    }

    fn content(&self, block_types: &[&str]) -> Result<(), String> {
        match self.0.get("content") {
            Some(Value::Array(blocks)) if !blocks.is_empty() => {
                blocks.iter().try_for_each(|block| check_block(block, block_types))
            }
            Some(Value::Array(_)) => Err("the content must have at least one block".to_owned()),
            _ => self.string_content(),
        }
    }

    fn assistant(&self) -> Result<(), String> {
        let calls = match self.0.get("tool_calls") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(calls)) => calls,
            Some(_) => return Err("tool_calls must be a list".to_owned()),
        };
        for call in calls {
            for field in ["id", "name"] {
                check_text(call, field, "a tool call")?;
            }
            if !call.get("arguments").is_some_and(|a| a.is_object() || a.is_null()) {
                return Err("a tool call needs arguments: a mapping".to_owned());
            }
        }
        let is_empty = match self.0.get("content") {
            None | Some(Value::Null) => true,
            Some(content) => content.as_str() == Some("") || content.as_array().is_some_and(Vec::is_empty),
        };
        if is_empty && !calls.is_empty() {
            return Ok(());
        }
        self.content(&["text", "thinking", "redacted_thinking"])
    }

    fn tool(&self) -> Result<(), String> {
        match self.0.get("tool_call_id").and_then(Value::as_str) {
            Some(id) if !id.is_empty() => {}
            _ => return Err("a tool message needs the tool_call_id of the call that it answers".to_owned()),
        }
        let text = self.0.get("content").is_some_and(Value::is_string);
        text.then_some(()).ok_or_else(|| "the content of a tool message must be a string".to_owned())
    }
}

fn check_block(block: &Value, allowed: &[&str]) -> Result<(), String> {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    if !allowed.contains(&kind) {
        return Err(format!("a content block of this role must be one of {}, not {kind:?}", allowed.join(", ")));
    }
    match kind {
        "text" | "thinking" => check_text(block, "text", "a content block"),
        "redacted_thinking" => check_text(block, "data", "a redacted block"),
        _ => check_image(block),
    }
}

/// How closely an image is to be looked at.
const DETAILS: [&str; 3] = ["auto", "low", "high"];

fn check_image(block: &Value) -> Result<(), String> {
    let detail = block.get("detail").filter(|detail| !detail.is_null());
    if detail.is_some_and(|detail| detail.as_str().is_none_or(|detail| !DETAILS.contains(&detail))) {
        return Err(format!("detail of an image must be one of {}", DETAILS.join(", ")));
    }
    let source = block.get("source").unwrap_or(&Value::Null);
    match source.get("type").and_then(Value::as_str) {
        Some("url") => check_text(source, "url", "an image source"),
        Some("inline") => {
            check_text(source, "base64_data", "an inline image")?;
            check_text(block, "media_type", "an inline image")?;
            match block.get("media_type").and_then(Value::as_str) {
                Some(media_type) if media_type.starts_with("image/") => Ok(()),
                Some(_) | None => Err("media_type of an inline image must be one of image/…".to_owned()),
            }
        }
        _ => Err("an image needs a source of type url or inline".to_owned()),
    }
}

fn check_text(value: &Value, field: &str, what: &str) -> Result<(), String> {
    match value.get(field).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(()),
        _ => Err(format!("{what} needs {field}: a string that is not empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn well_formed_messages_pass() {
        for message in [
            json!({ "role": "system", "content": "Be kind." }),
            json!({ "role": "user", "content": "Hello" }),
            json!({ "role": "user", "content": [
                { "type": "text", "text": "What is this?" },
                { "type": "image", "source": { "type": "url", "url": "https://example.com/a.png" } },
                { "type": "image", "source": { "type": "inline", "base64_data": "AA" }, "media_type": "image/png",
                    "detail": "low" },
            ] }),
            json!({ "role": "assistant", "content": [], "tool_calls": [{ "id": "c", "name": "n", "arguments": {} }] }),
            json!({ "role": "tool", "content": "", "tool_call_id": "c" }),
        ] {
            assert_eq!(ChatMessage::unchecked(message.clone()).validate(), Ok(()), "{message}");
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        for message in [
            json!("Hello"),
            json!({ "role": "robot", "content": "Hello" }),
            json!({ "role": "user", "content": "" }),
            json!({ "role": "user", "content": [] }),
            json!({ "role": "user", "content": "x", "tool_calls": [] }),
            json!({ "role": "user", "content": [{ "type": "thinking", "text": "hm" }] }),
            json!({ "role": "user", "content": [{ "type": "image", "source": { "type": "inline", "base64_data": "AA" } }] }),
            json!({ "role": "user", "content": [{ "type": "image", "media_type": "text/html",
                "source": { "type": "inline", "base64_data": "AA" } }] }),
            json!({ "role": "user", "content": [{ "type": "image", "detail": "ultra",
                "source": { "type": "url", "url": "https://example.com/a.png" } }] }),
            json!({ "role": "assistant", "content": "" }),
            json!({ "role": "assistant", "content": [{ "type": "image", "source": { "type": "url", "url": "u" } }] }),
            json!({ "role": "tool", "content": "x" }),
            json!({ "role": "tool", "content": [], "tool_call_id": "c" }),
        ] {
            assert!(ChatMessage::unchecked(message.clone()).validate().is_err(), "{message}");
        }
    }
}
