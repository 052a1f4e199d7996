use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{InvocationId, Map, NodePosition, Page, StoreError};

/// Store for the progress of running invocations, so that another process can go on after a crash (pipeline-utilities
/// §10.1).
///
/// Records hold state as JSON, independent of any Rust type: every backend can have its records migrated (§10.12.1).
#[async_trait]
pub trait Checkpointer: Send + Sync {
    /// Replaces the latest record of the invocation. Once this returns, [`load`](Self::load) gives this record or a
    /// later one, except for what `source` allows to be held back.
    ///
    /// Saves of one invocation come one after the other, with growing `last_saved_at`. A record that is not later than
    /// the stored one came too late and changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the record was, or may have been, not kept.
    async fn save(&self, record: &CheckpointRecord, source: SaveSource) -> Result<(), StoreError>;

    /// The latest record of `id`, as it was saved.
    ///
    /// # Errors
    /// [`StoreError`] when the backend did not answer.
    async fn load(&self, id: &InvocationId) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Lists invocations that pass `filter`, page by page, in an order of the backend's choice; `cursor` comes from the
    /// page before.
    ///
    /// # Errors
    /// [`StoreError`] when the backend did not answer or the cursor is not one of its own.
    async fn list(
        &self,
        filter: &CheckpointFilter,
        cursor: Option<&str>,
    ) -> Result<Page<CheckpointSummary>, StoreError>;

    /// Removes the record of `id`; removing what is not there succeeds.
    ///
    /// # Errors
    /// [`StoreError`] when the backend did not answer.
    async fn delete(&self, id: &InvocationId) -> Result<(), StoreError>;
}

/// Origin of the `completed` event that a save follows (pipeline-utilities §10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveSource {
    /// A node outside of every fan-out instance. The record must be durable when the save returns.
    Node,
    /// A node inside a fan-out instance, or the end of such an instance. A backend that documents it may hold the
    /// record back for a while; a crash costs only that the instances run again (§10.11.4).
    FanOutInternal,
    /// A fan-out node as a whole. The record must be durable when the save returns; it contains everything that was
    /// held back.
    FanOutNode,
}

/// Progress of an invocation (pipeline-utilities §10.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// The invocation. A resumed one has an id of its own (§10.4).
    pub invocation_id: InvocationId,
    /// Joins all attempts at the same work.
    pub correlation_id: String,
    /// Name of the graph that runs.
    #[serde(default)]
    pub graph: String,
    /// State of the graph in which the save point lies, after the merge: the innermost active one.
    pub state: Map,
    /// States of the graphs around it, outermost first.
    #[serde(default)]
    pub parent_states: Vec<Map>,
    /// The save point. A record without one is resumed behind the last of its completed positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<SavePoint>,
    /// Nodes that finished, in order; captured failures are not among them.
    #[serde(default)]
    pub completed_positions: Vec<NodePosition>,
    /// The fan-outs that are running; empty when none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fan_out_progress: Vec<FanOutProgress>,
    /// Instant of the save; grows from save to save of an invocation.
    pub last_saved_at: Timestamp,
    /// Version of the declared schema of the outermost state; empty when none was declared.
    pub schema_version: String,
    /// Version of the session record that the invocation had last read or written; absent without a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_version: Option<u64>,
}

impl CheckpointRecord {
    /// The state of the outermost graph.
    pub fn outermost_state(&self) -> &Map {
        self.parent_states.first().unwrap_or(&self.state)
    }

    /// Its entry in a listing.
    pub fn summary(&self) -> CheckpointSummary {
        CheckpointSummary {
            invocation_id: self.invocation_id.clone(),
            correlation_id: self.correlation_id.clone(),
            graph: self.graph.clone(),
            last_saved_at: self.last_saved_at,
            completed_node_count: self.completed_positions.len(),
        }
    }
}

/// The node with the event that caused a save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavePoint {
    /// Path from the outermost graph to the node, its own name last: one longer than `parent_states`.
    pub path: Vec<Arc<str>>,
    /// True if the node's update is part of the state. Otherwise the node failed and runs again.
    pub merged: bool,
}

/// Progress of one execution of a fan-out node (pipeline-utilities §10.11). Namespace, name and lineage together
/// identify it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FanOutProgress {
    /// Path of the graph that contains the fan-out node.
    pub namespace: Vec<Arc<str>>,
    /// Name of the fan-out node in that graph.
    pub fan_out_node_name: Arc<str>,
    /// The fan-out instances inside of which it runs, outermost first; empty for one that is not nested.
    #[serde(default)]
    pub enclosing_fan_out_lineage: Vec<FanOutInstance>,
    /// Number of times that the enclosing instance had run the same node before: a loop may come by more than once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub visit: u32,
    /// Number of instances.
    pub instance_count: usize,
    /// One entry per instance, by index.
    pub instances: Vec<InstanceProgress>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One instance of one fan-out node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FanOutInstance {
    /// Path of the graph that contains the fan-out node.
    pub namespace: Vec<Arc<str>>,
    /// Name of the fan-out node in that graph.
    pub fan_out_node_name: Arc<str>,
    /// Index of the instance.
    pub fan_out_index: u32,
}

/// Progress of one fan-out instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceProgress {
    /// State of its execution.
    pub state: InstanceState,
    /// Its contribution; meaningful when it is completed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
    /// Its contribution beside that, by the names of its own fields.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra_outputs: Map,
    /// True if the contribution is an error that a collecting fan-out recorded; only for a completed instance.
    #[serde(default)]
    pub result_is_error: bool,
    /// Nodes that finished inside of it while it is in flight. For people only: it starts over when resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed_inner_positions: Vec<NodePosition>,
}

impl InstanceProgress {
    /// An instance that was not dispatched yet.
    pub fn not_started() -> Self {
        Self {
            state: InstanceState::NotStarted,
            result: Value::Null,
            extra_outputs: Map::new(),
            result_is_error: false,
            completed_inner_positions: Vec::new(),
        }
    }
}

/// State of the execution of a fan-out instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Its contribution is recorded: it never runs again.
    Completed,
    /// It began and did not contribute.
    InFlight,
    /// It did not begin.
    NotStarted,
}

/// Selection of the checkpoints to list; every condition that is present must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFilter {
    /// Only invocations with this correlation id.
    pub correlation_id: Option<String>,
    /// Only invocations of this graph.
    pub graph: Option<String>,
    /// Only invocations last saved after this instant.
    pub saved_after: Option<Timestamp>,
}

/// Entry of a checkpoint in a listing: never with its state (pipeline-utilities §10.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSummary {
    /// The invocation.
    pub invocation_id: InvocationId,
    /// Correlation id of the invocation.
    pub correlation_id: String,
    /// Name of the graph that runs.
    pub graph: String,
    /// Instant of its last save.
    pub last_saved_at: Timestamp,
    /// Number of nodes that had finished.
    pub completed_node_count: usize,
}
