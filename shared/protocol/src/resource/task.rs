use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Message, MessageInput};
use crate::envelope::{Envelope, Map, present};
use crate::id::{BranchId, OutcomeId, PersonaId, QuotaId, ReceiptId, SessionId, TaskId, WorkspaceId};

/// Status of a task in its life; [`TaskStatus::step`] defines what may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskStatus {
    /// Durably accepted.
    Submitted,
    /// A turn runs, or is about to.
    Working,
    /// Suspended until a client sends input.
    InputRequired,
    /// Suspended until a client approves, or connects an account.
    AuthRequired,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Called off; nothing replaces this.
    Canceled,
}

/// A unit of agent work: the client's view of one invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<TaskId>,
    /// The session that it works in.
    pub session_id: SessionId,
    /// The workspace of that session.
    pub workspace_id: WorkspaceId,
    /// Status in its life.
    pub status: TaskStatus,
    /// Input that it was given.
    pub input: TaskInput,
    /// The actor or connector that submitted it.
    pub created_by: String,
    /// The persona that does the work.
    pub persona_id: Option<PersonaId>,
    /// The branch that it works on.
    pub branch_id: Option<BranchId>,
    /// The task that this one replays, or that delegated it.
    pub parent_task_id: Option<TaskId>,
    /// The agent that does the work.
    pub assigned_agent_id: Option<String>,
    /// Its receipt.
    pub receipt_id: Option<ReceiptId>,
    /// Its outcome, as soon as it ended.
    pub outcome_id: Option<OutcomeId>,
    /// The quota that it counts against.
    pub quota_id: Option<QuotaId>,
    /// Instant at which it began to work.
    pub started_at: Option<Timestamp>,
    /// Instant at which it completed or failed. A canceled task has none.
    pub completed_at: Option<Timestamp>,
    /// Instant at which it was canceled.
    pub canceled_at: Option<Timestamp>,
    /// Failure, if it failed.
    pub failure: Option<Failure>,
}

impl Task {
    /// A task as it is when it was accepted at `at`, with nothing that it does not need.
    pub fn submitted(
        id: TaskId,
        (workspace_id, session_id): (WorkspaceId, SessionId),
        input: TaskInput,
        created_by: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        Self {
            envelope: Envelope::new(id, at),
            session_id,
            workspace_id,
            status: TaskStatus::Submitted,
            input,
            created_by: created_by.into(),
            persona_id: None,
            branch_id: None,
            parent_task_id: None,
            assigned_agent_id: None,
            receipt_id: None,
            outcome_id: None,
            quota_id: None,
            started_at: None,
            completed_at: None,
            canceled_at: None,
            failure: None,
        }
    }
}

/// Input of a task: a message of its session, or a structured payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a message or an object")]
#[schemars(inline)]
pub enum TaskInput {
    /// A message.
    Message(Box<Message>),
    /// A structured payload.
    Payload(Map),
}

/// Input of a client for a new task. An object that is no complete message is a structured payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a message or an object")]
#[schemars(inline)]
pub enum SubmitInput {
    /// A message, which is appended to the session.
    Message(MessageInput),
    /// A structured payload.
    Payload(Map),
}

/// Submits a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitTaskRequest {
    /// The session to work in. Required on `/v1/tasks`; on the path of a session it must name that one, if given.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SessionId")]
    pub session_id: Option<SessionId>,
    /// The workspace of that session, if given.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WorkspaceId")]
    pub workspace_id: Option<WorkspaceId>,
    /// The persona that shall do the work; otherwise that of the session.
    pub persona_id: Option<PersonaId>,
    /// The branch to work on.
    pub branch_id: Option<BranchId>,
    /// The task that delegates this one.
    pub parent_task_id: Option<TaskId>,
    /// Input of the task.
    pub input: SubmitInput,
    /// Is kept with the task.
    #[serde(default)]
    pub metadata: Map,
}

/// Cancels a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelTaskRequest {
    /// Reason.
    pub reason: Option<String>,
}

/// Error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// More, for programs.
    #[serde(default)]
    pub details: Map,
}
