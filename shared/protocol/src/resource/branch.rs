use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Map};
use crate::id::{BranchId, SessionId, TaskId, WorkspaceId};

/// Kind of thing that a branch is an alternative of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum BranchKind {
    /// A workspace.
    Workspace,
    /// A transcript.
    Session,
    /// The work of a task.
    Task,
    /// A hosted copy.
    Sandbox,
}

/// Marks an alternative path of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Branch {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<BranchId>,
    /// Workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// Kind of thing that it is an alternative of.
    pub kind: BranchKind,
    /// Base that it starts from.
    pub base_ref: String,
    /// The branch that it starts from.
    pub parent_branch_id: Option<BranchId>,
    /// Its session.
    pub session_id: Option<SessionId>,
    /// Its task.
    pub task_id: Option<TaskId>,
    /// Location of its files.
    pub worktree_uri: Option<String>,
    /// The actor that made it.
    pub created_by: Option<String>,
    /// The branch that took it in.
    pub merged_into: Option<BranchId>,
}

/// Creates a branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateBranchRequest {
    /// Kind of thing that it is an alternative of.
    pub kind: BranchKind,
    /// Base that it starts from.
    pub base_ref: String,
    /// The branch that it starts from.
    pub parent_branch_id: Option<BranchId>,
    /// Its task.
    pub task_id: Option<TaskId>,
    /// Is kept with the branch.
    #[serde(default)]
    pub metadata: Map,
}
