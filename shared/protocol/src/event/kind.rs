use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Kinds of events: the narrative's taxonomy.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
            /// A kind that the narrative does not have. Ours begin with `vendor.`.
            Other(String),
        }

        impl EventKind {
            /// All kinds of the narrative.
            pub const NAMED: &[Self] = &[$(Self::$name,)*];

            /// The name on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for EventKind {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$name,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

kinds! {
    /// A message of the user was appended to a session.
    UserMessage = "user.message",
    /// Input that a task waited for came.
    UserInputSubmitted = "user.input_submitted",
    /// The user approved, denied or changed what a tool shall do.
    UserToolConfirmation = "user.tool_confirmation",
    /// The user asked to cancel a task.
    UserCancelRequested = "user.cancel_requested",
    /// A message of the assistant or agent was appended.
    AgentMessage = "agent.message",
    /// A redacted summary of reasoning.
    AgentReasoningSummary = "agent.reasoning_summary",
    /// A model asked for a tool.
    AgentToolUse = "agent.tool_use",
    /// The agent got a tool's result.
    AgentToolResult = "agent.tool_result",
    /// The agent called a tool over MCP.
    AgentMcpToolUse = "agent.mcp_tool_use",
    /// Work was handed on.
    AgentHandoff = "agent.handoff",
    /// The run read a memory.
    AgentMemoryRead = "agent.memory_read",
    /// The run wrote a memory.
    AgentMemoryWrite = "agent.memory_write",
    /// A task was accepted.
    TaskSubmitted = "task.submitted",
    /// A task began to work.
    TaskStarted = "task.started",
    /// A task waits for input.
    TaskInputRequired = "task.input_required",
    /// A task waits for an approval or an account.
    TaskAuthRequired = "task.auth_required",
    /// A task ended well.
    TaskCompleted = "task.completed",
    /// A task ended badly.
    TaskFailed = "task.failed",
    /// A task was canceled.
    TaskCanceled = "task.canceled",
    /// A task changed its status in a way that has no name of its own: its wait is over.
    TaskStatusChanged = "task.status_changed",
    /// A session came to be.
    SessionCreated = "session.created",
    /// A session was closed.
    SessionClosed = "session.closed",
    /// A message was appended to a session, by neither user nor agent.
    SessionMessageAppended = "session.message_appended",
    /// A transcript was compacted.
    SessionCompacted = "session.compacted",
    /// A transcript was cut.
    SessionTruncated = "session.truncated",
    /// A session was forked.
    SessionThreadForked = "session.thread_forked",
    /// A fork came back.
    SessionThreadMerged = "session.thread_merged",
    /// A session was replayed.
    SessionReplayed = "session.replayed",
    /// A branch came to be.
    BranchCreated = "branch.created",
    /// A branch changed.
    BranchUpdated = "branch.updated",
    /// A branch was taken in.
    BranchMerged = "branch.merged",
    /// A branch was given up.
    BranchAbandoned = "branch.abandoned",
    /// An artifact came to be.
    ArtifactCreated = "artifact.created",
    /// An artifact changed.
    ArtifactUpdated = "artifact.updated",
    /// Something refers to an artifact.
    ArtifactLinked = "artifact.linked",
    /// The content of an artifact was taken out.
    ArtifactRedacted = "artifact.redacted",
    /// A span began.
    SpanStarted = "span.started",
    /// A span went on.
    SpanUpdated = "span.updated",
    /// A span ended well.
    SpanCompleted = "span.completed",
    /// A span ended badly.
    SpanFailed = "span.failed",
    /// A tool was asked for.
    ToolRequested = "tool.requested",
    /// A tool needs an approval.
    ToolApprovalRequired = "tool.approval_required",
    /// The approval was given.
    ToolApproved = "tool.approved",
    /// The approval was not given.
    ToolDenied = "tool.denied",
    /// A tool ended well.
    ToolCompleted = "tool.completed",
    /// A tool ended badly.
    ToolFailed = "tool.failed",
    /// A connector received a delivery.
    ConnectorDeliveryReceived = "connector.delivery_received",
    /// A connector received a delivery again.
    ConnectorDeliveryDeduped = "connector.delivery_deduped",
    /// A connector made sense of it.
    ConnectorNormalized = "connector.normalized",
    /// A connector submitted a task.
    ConnectorTaskSubmitted = "connector.task_submitted",
    /// A connector failed.
    ConnectorFailed = "connector.failed",
    /// A receipt was issued.
    ReceiptIssued = "receipt.issued",
    /// A receipt was found valid.
    ReceiptVerified = "receipt.verified",
    /// A receipt was found invalid.
    ReceiptVerificationFailed = "receipt.verification_failed",
    /// A replay began.
    ReplayStarted = "replay.started",
    /// A replay repeated an event.
    ReplayEventReplayed = "replay.event_replayed",
    /// A replay ended well.
    ReplayCompleted = "replay.completed",
    /// A replay ended badly.
    ReplayFailed = "replay.failed",
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(deserializer).map(|word| Self::from(&*word))
    }
}

impl JsonSchema for EventKind {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "EventKind".into()
    }

    /// Open, so that new kinds break no client.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
