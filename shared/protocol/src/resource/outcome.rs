use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Artifact, Failure, Message};
use crate::envelope::{Envelope, Map};
use crate::id::{OutcomeId, ReceiptId, TaskId};

/// How a task ended. Not spelled like the status of the task.
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

/// What a person is told about a task that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// What all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<OutcomeId>,
    /// The task.
    pub task_id: TaskId,
    /// How it ended.
    pub status: OutcomeStatus,
    /// The result in a few words.
    pub summary: String,
    /// What the agent said in the end.
    #[serde(default)]
    pub messages: Vec<Message>,
    /// What it made.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// What it handed on.
    #[serde(default)]
    pub handoffs: Vec<Map>,
    /// Its receipt.
    pub receipt_id: Option<ReceiptId>,
    /// What went wrong, if it failed.
    pub failure: Option<Failure>,
    /// What it cost.
    #[serde(default)]
    pub cost: Map,
    /// What was measured.
    #[serde(default)]
    pub metrics: Map,
}
