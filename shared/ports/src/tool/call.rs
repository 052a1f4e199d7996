use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::SideEffects;
use crate::{Map, SignalId};

/// A call of a tool, with everything that the source needs to make it once.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The id that the model gave to the call; unique in its message.
    pub id: String,
    /// Name of the tool in its source, without the source's prefix.
    pub name: String,
    /// The arguments; they have been checked against the tool's schema.
    pub arguments: Map,
    /// Names this call among all calls of all time, and stays the same when a call is made again: sources pass it on
    /// where the other side recognises such keys.
    pub idempotency_key: String,
    /// Where the outcome may be sent later. `None` when a pending call cannot be waited for: the source then waits
    /// itself or fails.
    pub callback: Option<Callback>,
    /// Answer to the [`InputRequest`](crate::tool::InputRequest) of an earlier attempt of the same call.
    pub input: Option<InputAnswer>,
    /// The [`Pending::state`](crate::tool::Pending::state) of an earlier attempt of the same call: the source says how that
    /// work stands, and begins nothing.
    pub pending: Option<Value>,
    /// Notes of earlier calls of the same source in this session ([`ToolOutput::notes`](crate::tool::ToolOutput)).
    pub notes: Map,
    /// Instant at which the dispatcher stops waiting; it then drops the future, which must cancel the work.
    pub deadline: Option<Timestamp>,
    /// Where the source notes what the call does outside.
    pub effects: SideEffects,
}

impl ToolCall {
    /// A call without callback, input or deadline.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map) -> Self {
        let id = id.into();
        Self {
            idempotency_key: id.clone(),
            id,
            name: name.into(),
            arguments,
            callback: None,
            input: None,
            pending: None,
            notes: Map::new(),
            deadline: None,
            effects: SideEffects::default(),
        }
    }
}

/// Where the outcome of a pending call is sent: the address takes one POST with a JSON object, a tool's output or any
/// other object.
#[derive(Clone, PartialEq, Eq)]
pub struct Callback {
    /// Address with a token that grants one answer to this call, and nothing else: a secret.
    pub url: String,
    /// The signal that the answer becomes. It is derived from the call and stays the same when the call is made again.
    pub signal_id: SignalId,
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").field("url", &"[redacted]").field("signal_id", &self.signal_id).finish()
    }
}

/// Answer of a person to the question of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct InputAnswer {
    /// The fields that were asked for; `None` when the person declined to answer.
    pub content: Option<Map>,
    /// The [`InputRequest::state`](crate::tool::InputRequest::state) of the question, verbatim.
    pub state: Value,
}
