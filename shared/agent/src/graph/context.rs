//! What a model is asked: instructions, conversation, tools.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::compact;
use super::environment::instructions;
use super::open::{Told, callers, standing};
use super::parts::AgentParts;
use super::run::AgentRun;
use super::toolset::Toolset;
use dormouse_ports::Map;
use dormouse_ports::model::{Block, CompletionRequest, Content, Message, ToolCall};

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
    let instructions = Some(instructions(parts, run)).filter(|text| !text.trim().is_empty());
    let mut messages: Vec<Message> = instructions.into_iter().map(Message::system).chain(shown).collect();
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
    let text = format!("{}\n", self::reminder(reminder));
    match last {
        Some(Content::Text(said)) => said.insert_str(0, &text),
        Some(Content::Blocks(blocks)) => blocks.insert(0, Block::text(text)),
        None => {}
    }
}

/// `sent`, with what the model is told where its last answer could not be used. That is no part of what it is asked: digests and
/// replays are without it.
pub(crate) fn advised<'r>(mut sent: Cow<'r, CompletionRequest>, run: &AgentRun) -> Cow<'r, CompletionRequest> {
    if let Some(rest) = run.rest.as_ref().filter(|rest| !rest.advice.is_empty()) {
        sent.to_mut().messages.push(Message::user(reminder(&rest.advice)));
    }
    sent
}

/// What a model is told beside what its user says: a memory of the session, a word of whoever runs it.
fn reminder(text: &str) -> String {
    format!("<system_reminder>\n{text}\n</system_reminder>")
}

/// `messages`, each with the mark of its run, with what stands among them as a system message told in its place as a reminder
/// (wires have one system message, and that is the agent's), and with the results of calls of tools right behind what called
/// them: other runs of the session may have said something between the two. A call without a result has
/// one that says how `open` calls stand; a result without a call is left out, which providers refuse as well.
pub(crate) fn repaired<'m>(messages: impl IntoIterator<Item = (Message, Option<&'m str>)>, open: &Map) -> Vec<Message> {
    let messages: Vec<(Message, Option<&str>)> = messages.into_iter().collect();
    let callers = callers(messages.iter().map(|(message, run)| Told::of(message, *run)));
    let mut results: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
    let mut others = Vec::with_capacity(messages.len());
    for (at, ((message, run), caller)) in messages.into_iter().zip(callers).enumerate() {
        match (message, caller) {
            (message @ Message::Tool { .. }, Some(caller)) => results.entry(caller).or_default().push(message),
            (Message::Tool { .. }, _) => {}
            (Message::System { content }, _) => others.push((at, Message::user(reminder(&content)), run)),
            (message @ (Message::User { .. } | Message::Assistant(_)), _) => others.push((at, message, run)),
        }
    }
    let mut repaired = Vec::with_capacity(others.len());
    let mut names = Names::of(others.iter().map(|(_, message, _)| message));
    for (at, mut message, run) in others {
        let mut results = results.remove(&at).unwrap_or_default();
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
        results.extend(missing);
        names.tell_apart(&mut message, &mut results);
        repaired.push(message);
        repaired.extend(results);
    }
    repaired
}

/// Ids of the calls of a request. Models, and servers that give none, name the calls of several steps and runs alike, and not
/// every provider takes an id twice.
struct Names {
    /// All of them, as the conversation has them.
    all: BTreeSet<String>,
    /// Those that stand in the request so far.
    used: BTreeSet<String>,
    /// By ids that stand in it twice the number from which on a free one is looked for: all before it are taken.
    next: BTreeMap<String, u32>,
}

impl Names {
    fn of<'m>(messages: impl Iterator<Item = &'m Message>) -> Self {
        let all = messages.flat_map(calls_of).map(|call| call.id.clone()).collect();
        Self { all, used: BTreeSet::new(), next: BTreeMap::new() }
    }

    /// Gives the calls of `message` that have the id of an earlier message another one, and their `results` with them. It is
    /// the same in each request of the same conversation.
    fn tell_apart(&mut self, message: &mut Message, results: &mut [Message]) {
        let Message::Assistant(answer) = message else { return };
        let own: Vec<String> = answer.tool_calls.iter().map(|call| call.id.clone()).collect();
        for call in &mut answer.tool_calls {
            if !self.used.contains(&call.id) {
                continue;
            }
            let first = self.next.get(&call.id).copied().unwrap_or(2);
            let mut names = (first..).map(|number| (number, format!("{}-{number}", call.id)));
            let is_free = |name: &String| !self.all.contains(name) && !self.used.contains(name);
            let (number, name) = names.find(|(_, name)| is_free(name)).unwrap_or_default();
            self.next.insert(call.id.clone(), number.saturating_add(1));
            for result in results.iter_mut() {
                if let Message::Tool { tool_call_id, .. } = result
                    && *tool_call_id == call.id
                {
                    tool_call_id.clone_from(&name);
                }
            }
            self.used.insert(name.clone());
            call.id = name;
        }
        self.used.extend(own);
    }
}

fn calls_of(message: &Message) -> &[ToolCall] {
    match message {
        Message::Assistant(answer) => &answer.tool_calls,
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::model::AssistantMessage;
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
        let mut expected: Vec<Message> = order.map(|at| messages[at].clone()).into();
        (expected[5], expected[6]) = (asks(&["1-2"]), Message::tool("1-2", "of the second"));
        assert_eq!(of_one(messages, &Map::new()), expected);
    }

    #[test]
    fn of_calls_with_one_id_each_has_the_result_of_its_run_in_whatever_order_these_came() {
        let (first, second) = (Message::tool("0", "of the first"), Message::tool("0", "of the second"));
        for results in [[(&first, "a"), (&second, "b")], [(&second, "b"), (&first, "a")]] {
            let calls = [(asks(&["0"]), Some("a")), (asks(&["0"]), Some("b"))];
            let results = results.map(|(message, run)| (message.clone(), Some(run)));
            let expected = [asks(&["0"]), first.clone(), asks(&["0-2"]), Message::tool("0-2", "of the second")];
            assert_eq!(repaired(calls.into_iter().chain(results), &Map::new()), expected);
        }
        let open = json!({ "a": { "0": "the first waits" } }).as_object().cloned().expect("an object");
        let told = repaired([(asks(&["0"]), Some("a")), (asks(&["0"]), Some("b")), (second.clone(), Some("b"))], &open);
        let behind = Message::tool("0-2", "of the second");
        assert_eq!(told, [asks(&["0"]), Message::tool("0", "the first waits"), asks(&["0-2"]), behind]);
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
        assert_eq!(told[3], Message::tool("1-2", NO_RESULT), "it is of another run");
    }

    #[test]
    fn no_id_stands_twice_in_a_request_and_none_is_taken_from_another_call() {
        let steps = ["0", "0", "0-2", "0", "1"];
        let messages = steps.iter().flat_map(|id| [asks(&[id]), Message::tool(*id, format!("of {id}"))]);
        let messages: Vec<Message> = messages.collect();
        let told = of_one(messages.clone(), &Map::new());
        let named = ["0", "0-3", "0-2", "0-4", "1"];
        let expected = named.iter().zip(steps);
        let expected = expected.flat_map(|(id, was)| [asks(&[id]), Message::tool(*id, format!("of {was}"))]);
        assert_eq!(told, expected.collect::<Vec<_>>());
        assert_eq!(of_one(told.clone(), &Map::new()), told, "what is told apart stays as it is");
        let both = of_one(vec![asks(&["0"]), asks(&["0", "1"]), Message::tool("1", "one")], &Map::new());
        let ids: Vec<_> = both.iter().flat_map(calls_of).map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["0", "0-2", "1"]);
    }
}
