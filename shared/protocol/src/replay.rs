//! Replay: a new task that runs on what another one recorded.

use std::borrow::Cow;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{Map, present};
use crate::id::{ArtifactId, EventId, TaskId};
use crate::receipt::wire::PrefixedSha256;
use crate::resource::PartVisibility;

/// Inputs that a replay may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ReplayMode {
    /// Only what was recorded; fails rather than ask a model, a tool, a vault, the clock or the host again.
    #[default]
    Exact,
    /// Recorded inputs, with some of them replaced.
    WithOverrides,
    /// The same from a recorded checkpoint on.
    FromCheckpoint,
}

/// Kind of input that an override replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ReplayOverrideKind {
    /// Response of a model.
    LlmProviderResponse,
    /// Result of a tool over MCP.
    McpToolReturn,
    /// A secret.
    SecretValue,
    /// A reading of the clock.
    Time,
    /// Fact supplied by the host.
    HostFact,
    /// Result of a tool.
    ToolResult,
    /// The payload of an event.
    EventPayload,
    /// A value in a checkpoint.
    CheckpointValue,
}

/// Replaces one thing that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayOverride {
    /// Kind of input that it replaces.
    pub kind: ReplayOverrideKind,
    /// The event that recorded it.
    pub event_id: Option<EventId>,
    /// Names what it replaces: a call, a secret, a reading.
    pub target: Option<String>,
    /// The replacement.
    #[serde(default)]
    pub value: Value,
    /// Artifact with the replacement, if it is large.
    pub artifact_id: Option<ArtifactId>,
    /// The hash of the replacement, with its prefix.
    pub sha256: Option<PrefixedSha256>,
    /// Visibility of the replacement.
    #[serde(default = "receipt_only")]
    pub visibility: PartVisibility,
    /// Reason.
    pub reason: Option<String>,
}

fn receipt_only() -> PartVisibility {
    PartVisibility::ReceiptOnly
}

/// Replays a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayTaskRequest {
    /// Inputs that the replay may use.
    #[serde(default)]
    pub mode: ReplayMode,
    /// Replacements by their keys, in the order in which they were given.
    #[serde(default, rename = "override")]
    #[schemars(with = "std::collections::BTreeMap<String, ReplayOverride>")]
    pub overrides: IndexMap<String, ReplayOverride>,
    /// Checkpoint to begin at; `from_checkpoint` needs this or `checkpoint_event_id`.
    pub checkpoint_id: Option<String>,
    /// The event at which to begin.
    pub checkpoint_event_id: Option<EventId>,
    /// Reason.
    pub reason: Option<String>,
    /// Is kept with the new task.
    #[serde(default)]
    pub metadata: Map,
}

/// Marks an event of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayEventMetadata {
    /// The task that was recorded.
    pub source_task_id: TaskId,
    /// The task that replays it.
    pub replay_task_id: TaskId,
    /// The event that was recorded.
    pub original_event_id: Option<EventId>,
    /// Cursor at which clients go on if ids are new.
    pub replay_cursor: Option<String>,
    /// Inputs that the replay may use.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReplayMode")]
    pub mode: Option<ReplayMode>,
    /// The key of the override that made this event.
    pub override_key: Option<String>,
    /// The delta of the receipt that reports it.
    pub receipt_delta_id: Option<String>,
}

impl JsonSchema for PrefixedSha256 {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PrefixedSha256".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}
