use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Artifact, Failure, Message};
use crate::envelope::{Envelope, Map};
use crate::id::{OutcomeId, ReceiptId, TaskId};

/// End of a task. Not spelled like the status of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum OutcomeStatus {
    /// Of a task that completed.
    Succeeded,
    /// Of a task that failed.
    Failed,
    /// Of a task that was canceled.
    Canceled,
}

/// Report for a person about a task that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<OutcomeId>,
    /// The task.
    pub task_id: TaskId,
    /// Final state.
    pub status: OutcomeStatus,
    /// The result in a few words.
    pub summary: String,
    /// Last messages of the agent.
    #[serde(default)]
    pub messages: Vec<Message>,
    /// Artifacts that it made.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// Work that it handed on.
    #[serde(default)]
    pub handoffs: Vec<Map>,
    /// Its receipt.
    pub receipt_id: Option<ReceiptId>,
    /// Failure, if it failed.
    pub failure: Option<Failure>,
    /// Cost.
    #[serde(default)]
    pub cost: Map,
    /// Metrics.
    #[serde(default)]
    pub metrics: Map,
}
