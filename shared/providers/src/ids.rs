//! Ids of calls, and the names of tools in calls, in the form that a wire takes.
//!
//! A conversation may have ids of another provider, which this one refuses. Those are sent under another name, the same for
//! the call and for its result, and for the same id always. Models call tools that do not exist, by names that no provider
//! takes back, such as `functions.search`.

use dormouse_ports::model::{CompletionRequest, Message, Tool, ToolCall, is_wire_name, wire_name};
use sha2::{Digest, Sha256};

/// Ids that a wire takes; an empty one is taken by none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRule {
    /// Bytes of the longest.
    pub(crate) longest: usize,
    /// Only ASCII letters and digits, `_` and `-`.
    pub(crate) is_plain: bool,
    /// Only letters and digits, and as many as the longest has.
    pub(crate) is_exact: bool,
}

impl IdRule {
    /// Every id.
    pub(crate) const ANY: Self = Self { longest: usize::MAX, is_plain: false, is_exact: false };
    /// Those that Mistral takes.
    pub(crate) const OF_MISTRAL: Self = Self { longest: 9, is_plain: true, is_exact: true };

    fn takes(self, id: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || !self.is_exact && matches!(byte, b'_' | b'-');
        let has_length = if self.is_exact { id.len() == self.longest } else { id.len() <= self.longest };
        !id.is_empty() && has_length && (!self.is_plain || id.bytes().all(is_plain))
    }

    /// Ids in `request` that have to have another name.
    pub(crate) fn is_broken_by(self, request: &CompletionRequest) -> bool {
        request.messages.iter().any(|message| match message {
            Message::Assistant(message) => message.tool_calls.iter().any(|call| !self.takes(&call.id)),
            Message::Tool { tool_call_id, .. } => !self.takes(tool_call_id),
            Message::System { .. } | Message::User { .. } => false,
        })
    }

    /// Gives the ids of `request` names that the wire takes.
    pub(crate) fn apply(self, request: &mut CompletionRequest) {
        for message in &mut request.messages {
            match message {
                Message::Assistant(message) => message.tool_calls.iter_mut().for_each(|call| self.name(&mut call.id)),
                Message::Tool { tool_call_id, .. } => self.name(tool_call_id),
                Message::System { .. } | Message::User { .. } => {}
            }
        }
    }

    fn name(self, id: &mut String) {
        if !self.takes(id) {
            let digest = Sha256::digest(id.as_bytes());
            let begun = if self.is_exact { "" } else { "call_" };
            *id = digest.iter().take(12).fold(begun.to_owned(), |name, byte| format!("{name}{byte:02x}"));
            id.truncate(self.longest);
        }
    }
}

/// True if `request` has an earlier call of a tool that is not offered, by a name that providers refuse.
pub(crate) fn has_strange_names(request: &CompletionRequest) -> bool {
    request.messages.iter().any(|message| match message {
        Message::Assistant(message) => message.tool_calls.iter().any(|call| is_strange(call, &request.tools)),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => false,
    })
}

/// Gives those calls names that providers take. A tool that is offered keeps its name, in calls too.
pub(crate) fn tame_names(request: &mut CompletionRequest) {
    let CompletionRequest { messages, tools, .. } = request;
    for message in messages {
        let Message::Assistant(message) = message else { continue };
        for call in message.tool_calls.iter_mut().filter(|call| is_strange(call, tools)) {
            call.name = match call.name.trim() {
                "" => "unnamed".to_owned(),
                name => wire_name(name),
            };
        }
    }
}

fn is_strange(call: &ToolCall, offered: &[Tool]) -> bool {
    !is_wire_name(&call.name) && offered.iter().all(|tool| tool.name != call.name)
}
