//! What a model is asked: instructions, conversation, tools.

use dormouse_ports::model::{Block, CompletionRequest, Content, Message};

use super::compact;
use super::environment::instructions;
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
    messages.extend(repaired(shown));
    if let Some(reminder) = parts.agent.system_reminder.as_deref().filter(|_| parts.name != parts.agent.name) {
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

/// `messages` without system messages in between, and with a result behind every call of a tool: a turn of the same
/// session may have ended between the two.
fn repaired(messages: Vec<Message>) -> Vec<Message> {
    let mut repaired: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if let Message::Tool { tool_call_id, .. } = &message {
            let before = open.len();
            open.retain(|id| id != tool_call_id);
            // A result without a call is refused as well.
            if open.len() < before {
                repaired.push(message);
            }
            continue;
        }
        repaired.extend(open.drain(..).map(|id| Message::tool(id, NO_RESULT)));
        match message {
            Message::System { .. } => {}
            Message::Assistant(answer) => {
                open = answer.tool_calls.iter().map(|call| call.id.clone()).collect();
                repaired.push(Message::Assistant(answer));
            }
            other @ (Message::User { .. } | Message::Tool { .. }) => repaired.push(other),
        }
    }
    repaired.extend(open.drain(..).map(|id| Message::tool(id, NO_RESULT)));
    repaired
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Map;
    use dormouse_ports::model::{AssistantMessage, ToolCall};

    use super::*;

    #[test]
    fn every_call_has_a_result_and_every_result_a_call() {
        let calls = AssistantMessage {
            tool_calls: vec![ToolCall::new("1", "a", Map::new()), ToolCall::new("2", "b", Map::new())],
            ..AssistantMessage::default()
        };
        let messages = vec![
            Message::user("hello"),
            Message::Assistant(calls),
            Message::tool("2", "two"),
            Message::user("and?"),
            Message::tool("9", "of nothing"),
        ];
        let expected = vec![
            messages[0].clone(),
            messages[1].clone(),
            messages[2].clone(),
            Message::tool("1", NO_RESULT),
            messages[3].clone(),
        ];
        assert_eq!(repaired(messages), expected);
    }
}
