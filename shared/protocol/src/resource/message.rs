use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Part;
use crate::envelope::{Envelope, Map};
use crate::id::{MessageId, SessionId, TaskId};

/// Role of the author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Role {
    /// The person or program that uses the agent.
    User,
    /// The model.
    Assistant,
    /// Instructions.
    System,
    /// A tool.
    Tool,
    /// Another agent, or the harness.
    Agent,
}

/// A turn of a conversation, or an update by the agent that clients can see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<MessageId>,
    /// The session that it belongs to; it is part of the transcript.
    pub session_id: Option<SessionId>,
    /// The task that it was sent to or by.
    pub task_id: Option<TaskId>,
    /// Role of the author.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<Part>,
}

/// A message as a client sends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageInput {
    /// Role of the author.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<Part>,
    /// Is kept with the message.
    #[serde(default)]
    pub metadata: Map,
}

impl MessageInput {
    /// Public text from the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![Part::text(text)], metadata: Map::new() }
    }
}

/// Appends to a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppendMessageRequest {
    /// Message to append.
    pub message: MessageInput,
}

/// Purpose of a message to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TaskMessageKind {
    /// The input that the task waits for.
    Input,
    /// Something that the task did not ask for.
    Interrupt,
    /// The answer to a request for an approval.
    ToolConfirmation,
}

/// Sends input, an interruption or a confirmation to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppendTaskMessageRequest {
    /// Purpose of the message.
    pub kind: TaskMessageKind,
    /// Message to send.
    pub message: MessageInput,
}
