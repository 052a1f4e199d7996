//! Ids of calls, and the names of tools in calls, in the form that a wire takes.
//!
//! A conversation may have ids of another provider, which this one refuses. Those are sent under another name, the same for
//! the call and for its result, and for the same id always. Models call tools that do not exist, by names that no provider
//! takes back, such as `functions.search`.

use std::collections::BTreeSet;

use dormouse_ports::model::{CompletionRequest, Message, ToolCall};
use sha2::{Digest, Sha256};

/// Ids that a wire takes; an empty one is taken by none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRule {
    /// Bytes of the longest.
    pub(crate) longest: usize,
    /// Only ASCII letters and digits, `_` and `-`.
    pub(crate) is_plain: bool,
}

impl IdRule {
    /// Every id.
    pub(crate) const ANY: Self = Self { longest: usize::MAX, is_plain: false };

    fn takes(self, id: &str) -> bool {
        !id.is_empty() && id.len() <= self.longest && (!self.is_plain || id.bytes().all(is_plain))
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
            *id = digest.iter().take(12).fold("call_".to_owned(), |name, byte| format!("{name}{byte:02x}"));
        }
    }
}

/// Bytes of the longest name of a tool.
const LONGEST_NAME: usize = 64;

/// True if `request` has an earlier call of a tool that is not offered, by a name that providers refuse.
pub(crate) fn has_strange_names(request: &CompletionRequest) -> bool {
    let is_strange = |call: &ToolCall| !is_name(&call.name) && request.tools.iter().all(|tool| tool.name != call.name);
    request.messages.iter().any(|message| match message {
        Message::Assistant(message) => message.tool_calls.iter().any(is_strange),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => false,
    })
}

/// Gives those calls names that providers take. A tool that is offered keeps its name, in calls too.
pub(crate) fn tame_names(request: &mut CompletionRequest) {
    let offered: BTreeSet<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    for message in &mut request.messages {
        let Message::Assistant(message) = message else { continue };
        for call in &mut message.tool_calls {
            if !is_name(&call.name) && !offered.contains(call.name.as_str()) {
                call.name = tamed(&call.name);
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain)
}

fn tamed(name: &str) -> String {
    let plain = |c: char| if c.is_ascii() && is_plain(c as u8) { c } else { '_' };
    match name.trim() {
        "" => "unnamed".to_owned(),
        name => name.chars().take(LONGEST_NAME).map(plain).collect(),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
