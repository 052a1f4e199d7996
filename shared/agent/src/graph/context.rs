//! What a model is asked: instructions, conversation, tools.

use std::collections::BTreeMap;

use dormouse_ports::Map;
use dormouse_ports::model::{Block, CompletionRequest, Content, Message};
use serde_json::Value;

use super::compact;
use super::environment::instructions;
use super::open::{Told, callers};
use super::parts::AgentParts;
use super::run::AgentRun;
use super::toolset::Toolset;

/// Text of a result that is missing in a conversation: a model refuses a call without one.
const NO_RESULT: &str = "no result was recorded for this call";

/// The request of the next step.
pub(crate) fn request(parts: &AgentParts, run: &AgentRun, tools: &Toolset<'_>) -> CompletionRequest {
    composed(parts, run, tools, compact::shown(run))
}

/// The same of the conversation `shown`.
pub(crate) fn composed(
    parts: &AgentParts,
    run: &AgentRun,
    tools: &Toolset<'_>,
    shown: Vec<Message>,
) -> CompletionRequest {
    let mut messages = vec![Message::system(instructions(parts, run))];
    messages.extend(repaired(shown, &run.unanswered));
    if let Some(reminder) = parts.agent.system_reminder.as_deref().filter(|_| run.takes_over) {
        remind(&mut messages, reminder);
    }
    CompletionRequest {
        messages,
        tools: tools.for_model(),
        config: parts.model.config.clone(),
        stream: parts.deltas.is_some() && parts.model.background.is_none(),
        ..CompletionRequest::default()
    }
}

/// Puts the reminder of an agent that took over before what the user said last.
fn remind(messages: &mut [Message], reminder: &str) {
    let last = messages.iter_mut().rev().find_map(|message| match message {
        Message::User { content } => Some(content),
        Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
    });
    let text = format!("<system_reminder>\n{reminder}\n</system_reminder>\n");
    match last {
        Some(Content::Text(said)) => said.insert_str(0, &text),
        Some(Content::Blocks(blocks)) => blocks.insert(0, Block::text(text)),
        None => {}
    }
}

/// `messages` without system messages in between, and with the results of calls of tools right behind what called them: other
/// runs of the session may have said something between the two. A call without a result has one that says how `open` calls
/// stand; a result without a call is left out, which providers refuse as well.
fn repaired(messages: Vec<Message>, open: &Map) -> Vec<Message> {
    let callers = callers(messages.iter().map(Told::of));
    let mut results: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
    let mut others = Vec::new();
    for (at, (message, caller)) in messages.into_iter().zip(callers).enumerate() {
        match (message, caller) {
            (message @ Message::Tool { .. }, Some(caller)) => results.entry(caller).or_default().push(message),
            (Message::Tool { .. } | Message::System { .. }, _) => {}
            (message @ (Message::User { .. } | Message::Assistant(_)), _) => others.push((at, message)),
        }
    }
    let mut repaired = Vec::new();
    for (at, message) in others {
        let results = results.remove(&at).unwrap_or_default();
        let missing: Vec<Message> = match &message {
            Message::Assistant(answer) => {
                let has_result = |id: &str| results.iter().any(|result| Told::of(result).is_result_of(id));
                let without = answer.tool_calls.iter().filter(|call| !has_result(&call.id));
                without.map(|call| Message::tool(call.id.clone(), standing(open, &call.id))).collect()
            }
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => Vec::new(),
        };
        repaired.push(message);
        repaired.extend(results.into_iter().chain(missing));
    }
    repaired
}

/// What is said of the call `id`, which has no result.
fn standing<'o>(open: &'o Map, id: &str) -> &'o str {
    open.get(id).and_then(Value::as_str).unwrap_or(NO_RESULT)
}

#[cfg(test)]
mod tests {
    use dormouse_ports::model::{AssistantMessage, ToolCall};
    use serde_json::json;

    use super::*;

    fn asks(ids: &[&str]) -> Message {
        let tool_calls = ids.iter().map(|id| ToolCall::new(*id, "a", Map::new())).collect();
        Message::Assistant(AssistantMessage { tool_calls, ..AssistantMessage::default() })
    }

    #[test]
    fn every_call_has_a_result_and_every_result_a_call() {
        let messages = vec![
            Message::user("hello"),
            asks(&["1", "2", "3"]),
            Message::tool("2", "two"),
            Message::user("and?"),
            Message::tool("9", "of nothing"),
        ];
        let open = json!({ "3": "it waits" }).as_object().cloned().expect("an object");
        let expected = vec![
            messages[0].clone(),
            messages[1].clone(),
            messages[2].clone(),
            Message::tool("1", NO_RESULT),
            Message::tool("3", "it waits"),
            messages[3].clone(),
        ];
        assert_eq!(repaired(messages, &open), expected);
    }

    #[test]
    fn a_result_stands_behind_its_call_whatever_other_runs_said_before_it_came() {
        let messages = vec![
            Message::user("first"),
            asks(&["1", "2"]),
            Message::user("second"),
            asks(&["1"]),
            Message::tool("1", "of the second"),
            Message::assistant("second done"),
            Message::tool("1", "of the first"),
            Message::tool("2", "two"),
            Message::assistant("first done"),
        ];
        let order = [0, 1, 6, 7, 2, 3, 4, 5, 8];
        let expected: Vec<Message> = order.map(|at| messages[at].clone()).into();
        assert_eq!(repaired(messages, &Map::new()), expected);
    }
}
