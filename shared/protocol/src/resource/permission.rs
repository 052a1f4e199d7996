use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{Envelope, Map, present};
use crate::id::{PermissionRequestId, SessionId, TaskId};

/// Status of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PermissionStatus {
    /// Not yet.
    Pending,
    /// Yes.
    Approved,
    /// No.
    Denied,
}

impl PermissionStatus {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Approved, Self::Denied];
}

/// Requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PermissionSource {
    /// An editor's agent protocol.
    Acp,
    /// A task that waits for a person.
    Hitl,
}

/// Request of a task for a permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PermissionRequest {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<PermissionRequestId>,
    /// The session that it comes from.
    pub session_id: Option<SessionId>,
    /// The task that waits.
    pub task_id: Option<TaskId>,
    /// Status.
    pub status: PermissionStatus,
    /// Requester.
    pub source: PermissionSource,
    /// Action that is asked for.
    #[serde(default)]
    pub action: Value,
    /// The question as it was asked.
    pub request: Value,
    /// The answer as it was given.
    #[serde(default)]
    pub response: Value,
}

/// A word for yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PermissionAnswer {
    /// Yes.
    Approved,
    /// Yes.
    Approve,
    /// Yes.
    Selected,
    /// No.
    Denied,
    /// No.
    Deny,
    /// No.
    Rejected,
}

/// Answers a request for a permission.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PermissionResponseRequest {
    /// Yes or no; `outcome` and `answer` must not say the opposite.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub approved: Option<bool>,
    /// The same as a word.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PermissionAnswer")]
    pub outcome: Option<PermissionAnswer>,
    /// The answer, where yes and no are not enough.
    #[serde(default)]
    pub answer: Value,
    /// Reviewer.
    pub reviewer: Option<String>,
    /// Reason.
    pub reason: Option<String>,
    /// Is kept with the answer.
    #[serde(default)]
    pub metadata: Map,
}

impl PermissionAnswer {
    /// True for a yes.
    pub fn is_yes(self) -> bool {
        match self {
            Self::Approved | Self::Approve | Self::Selected => true,
            Self::Denied | Self::Deny | Self::Rejected => false,
        }
    }
}

impl PermissionResponseRequest {
    /// True if the answer is yes; `None` if it is neither yes nor no.
    pub fn is_approval(&self) -> Option<bool> {
        self.approved.or_else(|| self.outcome.map(PermissionAnswer::is_yes))
    }
}
