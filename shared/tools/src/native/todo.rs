use dormouse_ports::Map;
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use super::{tool, wrong};

/// Bytes of JSON of a list: a session keeps no notes over 64 KiB, and the files that were read are among them.
const MOST_BYTES: usize = 24 << 10;

pub(super) fn spec() -> ToolSpec {
    let item = json!({
        "type": "object",
        "properties": {
            "content": { "type": "string", "minLength": 1, "maxLength": 500 },
            "status": { "enum": ["pending", "in_progress", "completed"] }
        },
        "required": ["content", "status"]
    });
    let properties = json!({ "todos": { "type": "array", "maxItems": 100, "items": item } });
    let description = "Keeps the list of what is to be done in this session. Each call writes the whole list.";
    // It changes nothing but the session, and the same call again changes nothing.
    let mut spec = tool("TodoWrite", description, Effect::Safe, properties, &["todos"]);
    spec.annotations.idempotent = Some(true);
    spec
}

pub(super) fn call(call: &ToolCall) -> Result<ToolOutput, ToolError> {
    let todos = call.arguments.get("todos").cloned().unwrap_or_else(|| json!([]));
    let size = todos.to_string().len();
    if size > MOST_BYTES {
        return Err(wrong(format!(
            "the list has {size} bytes, and may have {MOST_BYTES}: it stays as it was; write shorter entries, or fewer"
        )));
    }
    let lines = todos.as_array().into_iter().flatten().map(line);
    let shown = lines.collect::<Vec<_>>().join("\n");
    let shown = if shown.is_empty() { "the list is empty".to_owned() } else { shown };
    Ok(ToolOutput::text(shown).noting(Map::from_iter([("todos".to_owned(), todos)])))
}

fn line(todo: &Value) -> String {
    let mark = match todo["status"].as_str() {
        Some("completed") => "x",
        Some("in_progress") => "~",
        Some(_) | None => " ",
    };
    format!("[{mark}] {}", todo["content"].as_str().unwrap_or_default())
}
