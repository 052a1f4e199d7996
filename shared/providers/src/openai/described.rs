//! Descriptions of tools that are longer than OpenAI takes them.

use std::borrow::Cow;

use dormouse_ports::model::{CompletionRequest, Message};

/// Characters of a description beyond which OpenAI may refuse the request.
const LONGEST: usize = 1024;

/// The end of a description of which there is more.
const MORE: &str = " … (the whole description stands in the instructions)";

/// `request` with descriptions of tools that OpenAI takes. What is longer is told whole in the instructions.
pub(crate) fn within_limit(request: &CompletionRequest) -> Cow<'_, CompletionRequest> {
    if request.tools.iter().all(|tool| fits(&tool.description)) {
        return Cow::Borrowed(request);
    }
    let mut shorter = request.clone();
    let mut told = Vec::new();
    for tool in shorter.tools.iter_mut().filter(|tool| !fits(&tool.description)) {
        told.push(format!("<tool name=\"{}\">\n{}\n</tool>", tool.name, tool.description));
        let beginning: String = tool.description.chars().take(LONGEST - MORE.chars().count()).collect();
        tool.description = beginning + MORE;
    }
    let told = told.join("\n\n");
    match shorter.messages.first_mut() {
        Some(Message::System { content }) => *content = format!("{content}\n\n{told}"),
        Some(Message::User { .. } | Message::Assistant(_) | Message::Tool { .. }) | None => {
            shorter.messages.insert(0, Message::system(told));
        }
    }
    Cow::Owned(shorter)
}

fn fits(description: &str) -> bool {
    description.len() <= LONGEST || description.chars().count() <= LONGEST
}
