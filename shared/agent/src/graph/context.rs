//! What a model is asked: instructions, conversation, tools.

use std::collections::BTreeMap;

use super::compact;
use super::environment::instructions;
use super::open::{Told, callers, standing};
use super::parts::AgentParts;
use super::run::AgentRun;
use super::toolset::Toolset;
use dormouse_ports::Map;
use dormouse_ports::model::{Block, CompletionRequest, Content, Message};

/// Text of a result that is missing in a conversation: a model refuses a call without one.
const NO_RESULT: &str = "no result was recorded for this call";

/// The request of the next step.
pub(crate) fn request(parts: &AgentParts, run: &AgentRun, tools: &Toolset<'_>) -> CompletionRequest {
    composed(parts, run, tools, compact::shown(run))
}

/// The same of the conversation `shown`, each result of which stands behind its call.
pub(crate) fn composed(
    parts: &AgentParts,
    run: &AgentRun,
    tools: &Toolset<'_>,
    shown: Vec<Message>,
) -> CompletionRequest {
    let mut messages = vec![Message::system(instructions(parts, run))];
    messages.extend(shown);
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

/// `messages`, each with the mark of its run, without system messages in between, and with the results of calls of tools right
/// behind what called them: other runs of the session may have said something between the two. A call without a result has
/// one that says how `open` calls stand; a result without a call is left out, which providers refuse as well.
pub(crate) fn repaired<'m>(messages: impl IntoIterator<Item = (Message, Option<&'m str>)>, open: &Map) -> Vec<Message> {
    let messages: Vec<(Message, Option<&str>)> = messages.into_iter().collect();
    let callers = callers(messages.iter().map(|(message, run)| Told::of(message, *run)));
    let mut results: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
    let mut others = Vec::new();
    for (at, ((message, run), caller)) in messages.into_iter().zip(callers).enumerate() {
        match (message, caller) {
            (message @ Message::Tool { .. }, Some(caller)) => results.entry(caller).or_default().push(message),
            (Message::Tool { .. } | Message::System { .. }, _) => {}
            (message @ (Message::User { .. } | Message::Assistant(_)), _) => others.push((at, message, run)),
        }
    }
    let mut repaired = Vec::new();
    for (at, message, run) in others {
        let results = results.remove(&at).unwrap_or_default();
        let missing: Vec<Message> = match &message {
            Message::Assistant(answer) => {
                let is_result =
                    |result: &Message, id: &str| matches!(Told::of(result, run), Told::Result(_, of) if of == id);
                let has_result = |id: &str| results.iter().any(|result| is_result(result, id));
                let without = answer.tool_calls.iter().filter(|call| !has_result(&call.id));
                let told = |id: &str| standing(open, run, id).unwrap_or(NO_RESULT).to_owned();
                without.map(|call| Message::tool(call.id.clone(), told(&call.id))).collect()
            }
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => Vec::new(),
        };
        repaired.push(message);
        repaired.extend(results.into_iter().chain(missing));
    }
    repaired
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

    fn of_one(messages: Vec<Message>, open: &Map) -> Vec<Message> {
        repaired(messages.into_iter().map(|message| (message, None)), open)
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
        assert_eq!(of_one(messages, &open), expected);
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
        assert_eq!(of_one(messages, &Map::new()), expected);
    }

    #[test]
    fn of_calls_with_one_id_each_has_the_result_of_its_run_in_whatever_order_these_came() {
        let (first, second) = (Message::tool("0", "of the first"), Message::tool("0", "of the second"));
        for results in [[(&first, "a"), (&second, "b")], [(&second, "b"), (&first, "a")]] {
            let calls = [(asks(&["0"]), Some("a")), (asks(&["0"]), Some("b"))];
            let results = results.map(|(message, run)| (message.clone(), Some(run)));
            let expected = [asks(&["0"]), first.clone(), asks(&["0"]), second.clone()];
            assert_eq!(repaired(calls.into_iter().chain(results), &Map::new()), expected);
        }
        let open = json!({ "a": { "0": "the first waits" } }).as_object().cloned().expect("an object");
        let told = repaired([(asks(&["0"]), Some("a")), (asks(&["0"]), Some("b")), (second.clone(), Some("b"))], &open);
        assert_eq!(told, [asks(&["0"]), Message::tool("0", "the first waits"), asks(&["0"]), second]);
    }

    #[test]
    fn a_call_of_a_run_that_is_not_known_has_the_result_of_its_id() {
        let open = json!({ "1": "it waits" }).as_object().cloned().expect("an object");
        for (by, of) in [(None, Some("a")), (Some("a"), None), (None, None)] {
            let told = repaired([(asks(&["0", "1"]), by), (Message::tool("0", "zero"), of)], &open);
            assert_eq!(told, [asks(&["0", "1"]), Message::tool("0", "zero"), Message::tool("1", "it waits")]);
        }
        let open = json!({ "a": { "1": "it waits" } }).as_object().cloned().expect("an object");
        let told = repaired([(asks(&["1"]), None), (asks(&["1"]), Some("b"))], &open);
        assert_eq!(told[1], Message::tool("1", "it waits"));
        assert_eq!(told[3], Message::tool("1", NO_RESULT), "it is of another run");
    }
}
