//! What a summary of a conversation is made of: its older messages, in lines.

use serde_json::Value;

use super::compact::current;
use super::model::conversational;
use super::open::{Told, run_of, standing};
use super::run::AgentRun;

/// Characters of one message that the summary is made of.
pub(super) const LONGEST_LINE: usize = 4000;

/// What the summary is made of: the summary before it and the messages behind that, the newest of them where they are
/// too many.
pub(super) fn told(run: &AgentRun, cut: usize, room: usize) -> String {
    let before = current(run);
    let from = before.map_or(0, |compaction| compaction.upto);
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for message in run.messages[from..cut].iter().rev() {
        let line = line(run, message);
        length += line.len();
        if length > room {
            lines.push("[older messages are left out]".to_owned());
            break;
        }
        lines.push(line);
    }
    lines.extend(before.map(|compaction| format!("summary so far: {}", compaction.summary)));
    lines.reverse();
    lines.join("\n\n")
}

fn line(run: &AgentRun, message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or_default();
    let content = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        blocks @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => blocks.to_string(),
    };
    let mut line = format!("{role}: {content}");
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let name = call["name"].as_str().unwrap_or_default();
        line.push_str(&format!("\n{role} calls {name} with {}", call["arguments"]));
        if let Some(standing) = call["id"].as_str().and_then(|id| open_standing(run, run_of(message), id)) {
            line.push_str(&format!(" ({standing})"));
        }
    }
    conversational(&line, LONGEST_LINE)
}

/// How the call `id` of the run with the mark `by` stands, where it has no result yet.
fn open_standing<'r>(run: &'r AgentRun, by: Option<&str>, id: &str) -> Option<&'r str> {
    let is_result =
        |message: &Value| matches!(Told::of_value(message), Told::Result(of, call) if call == id && of == by);
    standing(&run.unanswered, by, id).filter(|_| !run.messages.iter().any(is_result))
}
