//! Bodies of our own operations: what the contract lets clients read only, they can create and change by these.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::{ConnectorStatus, QuotaScope, Task};
use crate::envelope::{Envelope, Map, Named, Object, present};
use crate::id::{PersonaId, SessionId, TaskId, WebhookId, WorkspaceId};

/// Creates a quota.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateQuotaRequest {
    /// Scope that it limits.
    pub scope: QuotaScope,
    /// The persona, workspace or tenant that counts against it from now on.
    pub owner_id: Option<String>,
    /// The ceilings by name: `tasks`, `concurrent_tasks`, `tokens`, `cost_micros`, `active_ms`. What is not named is counted and not limited.
    pub limits: BTreeMap<String, Number>,
    /// Seconds after which the usage starts again; never without them.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub period_seconds: Option<u64>,
    /// True if work is refused beyond it.
    #[serde(default = "yes")]
    pub hard_limit: bool,
    /// Is kept with the quota.
    #[serde(default)]
    pub metadata: Map,
}

/// Changes a quota; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateQuotaRequest {
    /// Replaces all ceilings. What was used counts against the new ones.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, Number>")]
    pub limits: Option<BTreeMap<String, Number>>,
    /// True if work is refused beyond it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub hard_limit: Option<bool>,
    /// Replaces the metadata.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub metadata: Option<Map>,
}

/// Creates a connector that is notified by webhooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateConnectorRequest {
    /// Provider of the events, for people.
    pub provider: String,
    /// Workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// Proof of its deliveries: `scheme`, and by `vault_id` and `secrets` where the secrets are. Never a secret.
    pub auth: Map,
    /// Use of a delivery: `kind` (`task`, `message`, `answer` or `model`) and what of the body it is made of.
    pub mapping: Map,
    /// The events that it takes, as the provider calls them; all without any.
    #[serde(default)]
    pub event_kinds: Vec<String>,
    /// Policy by which it recognises deliveries that it saw before: `keep_hours`.
    #[serde(default)]
    pub dedupe_policy: Map,
    /// The persona that gets its tasks.
    pub target_persona_id: Option<PersonaId>,
    /// The session that gets its tasks and messages.
    pub target_session_id: SessionId,
    /// Is kept with the connector.
    #[serde(default)]
    pub metadata: Map,
}

/// Changes a connector; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateConnectorRequest {
    /// Status.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ConnectorStatus")]
    pub status: Option<ConnectorStatus>,
    /// Replaces the proof of its deliveries.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub auth: Option<Map>,
    /// Replaces the metadata.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub metadata: Option<Map>,
}

/// A webhook: where events of a session are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Webhook {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<WebhookId>,
    /// Its session.
    pub session_id: SessionId,
    /// The task whose events are sent; those of all without one.
    pub task_id: Option<TaskId>,
    /// Address to which they are sent.
    pub url: String,
    /// Kinds of the events that are sent.
    pub events: Vec<String>,
    /// Form in which they are sent.
    pub format: WebhookFormat,
    /// The key of its signatures, `whsec_` and Base64. Only the answer that creates it has it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub secret: Option<String>,
}

/// Form in which events are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookFormat {
    /// `type`, `timestamp`, and the event as `data`.
    #[default]
    Standard,
    /// A task of A2A 0.3.0 with its status.
    A2a,
}

/// Creates a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateWebhookRequest {
    /// Address to which events are sent, `https`.
    pub url: String,
    /// The task whose events are sent; those of all of the session without one.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TaskId")]
    pub task_id: Option<TaskId>,
    /// Kinds of the events that are sent; without any, that a task asks or has ended.
    #[serde(default)]
    pub events: Vec<String>,
    /// Form in which they are sent.
    #[serde(default)]
    pub format: WebhookFormat,
    /// Is sent along as `x-a2a-notification-token`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub token: Option<String>,
}

/// The tasks of a session that wait for their turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionQueue {
    /// The session.
    pub session_id: SessionId,
    /// The tasks that work at present; the queue waits for them.
    pub working: Vec<TaskId>,
    /// The queued tasks, which are all `SUBMITTED`, in the order in which they will begin.
    pub data: Vec<Task>,
}

/// What one request to delete a workspace has deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceDeletion {
    /// Always `workspace.delete_result`.
    pub object: Object<WorkspaceDeletion>,
    /// The workspace, which is not there any more.
    pub workspace_id: WorkspaceId,
    /// Number of its sessions that are deleted by this request.
    pub sessions: u64,
    /// Number of the tasks among them that had not ended and were canceled by it.
    pub canceled_tasks: u64,
    /// Number of other things in it that are deleted by this request: tasks, artifacts, branches, memories, connectors,
    /// vaults and requests for permissions.
    pub others: u64,
    /// False if there was more than one request deletes: the same request goes on.
    pub complete: bool,
}

impl Named for WorkspaceDeletion {
    const OBJECT: &'static str = "workspace.delete_result";
}

/// Puts a queue in another order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReorderQueueRequest {
    /// All queued tasks, in the order in which they shall begin.
    pub task_ids: Vec<TaskId>,
}

fn yes() -> bool {
    true
}
