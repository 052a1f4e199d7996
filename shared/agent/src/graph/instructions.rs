//! The instructions of an agent as the prompt of its calls: what those who look at a call know it by (prompt-management §12).

use std::future::Future;

use dormouse_engine::{ActivePrompt, operations_are_observed, under_prompt};
use dormouse_ports::model::{CompletionRequest, Message};

use super::digest;
use super::parts::AgentParts;

/// Where the instructions come from.
const LABEL: &str = "workspace";
/// Digits of a digest that tell one version from another.
const VERSION: usize = 12;

/// Does `work`, in which the agent's model is sent `request`.
pub(crate) async fn under<T>(parts: &AgentParts, request: &CompletionRequest, work: impl Future<Output = T>) -> T {
    if operations_are_observed() { under_prompt(identity(parts, request), work).await } else { work.await }
}

fn identity(parts: &AgentParts, request: &CompletionRequest) -> ActivePrompt {
    let system = request.messages.iter().find_map(|message| match message {
        Message::System { content } => Some(content.as_bytes()),
        Message::User { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
    });
    let template_hash = digest::of_bytes(parts.agent.prompt.as_bytes());
    ActivePrompt {
        name: parts.agent.name.clone(),
        version: template_hash.chars().take(VERSION).collect(),
        label: LABEL.to_owned(),
        template_hash,
        rendered_hash: digest::of_bytes(system.unwrap_or_default()),
        ..ActivePrompt::default()
    }
}
