//! Offers and limits of a server that clients can only read: skills, tools, connectors, quotas.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::envelope::{Envelope, Map, Nullable, Object};
use crate::id::{ConnectorId, PersonaId, QuotaId, ReceiptId, SessionId, SkillId, ToolId, WorkspaceId};

/// Something that can be called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<SkillId>,
    /// The name to call it by.
    pub name: String,
    /// Description.
    pub description: String,
    /// The JSON Schema of what it takes.
    #[schemars(with = "Nullable<Map>")]
    pub input_schema: Option<Map>,
    /// The JSON Schema of what it gives.
    #[schemars(with = "Nullable<Map>")]
    pub output_schema: Option<Map>,
    /// Origin.
    pub source: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Capabilities that it needs.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// True if each call has to be approved.
    #[serde(default)]
    pub requires_approval: bool,
    /// True if it will go away.
    #[serde(default)]
    pub deprecated: bool,
}

/// A tool of the server itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Names it.
    pub id: ToolId,
    /// Always `tool`.
    pub object: Object<ToolId>,
    /// The name to call it by.
    pub name: String,
    /// Description.
    pub description: String,
    /// The JSON Schema of what it takes.
    pub input_schema: Map,
    /// The JSON Schema of what it gives.
    pub output_schema: Map,
}

/// Status of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum ConnectorStatus {
    /// It does.
    Active,
    /// It was stopped by an operator.
    Paused,
    /// It is broken.
    Failed,
    /// It was switched off.
    Disabled,
}

/// Turns what happens elsewhere into tasks, events or messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connector {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<ConnectorId>,
    /// Provider of the events.
    pub provider: String,
    /// Workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// Status.
    pub status: ConnectorStatus,
    /// The events that it can emit.
    pub event_kinds: Vec<String>,
    /// Policy by which it recognises deliveries that it saw before.
    #[serde(default)]
    pub dedupe_policy: Map,
    /// Authentication of the connector; never a secret.
    #[serde(default)]
    pub auth: Map,
    /// Webhook by which it is notified.
    #[serde(default)]
    pub webhook: Map,
    /// Polling by which it asks.
    #[serde(default)]
    pub polling: Map,
    /// The persona that gets its tasks.
    pub target_persona_id: Option<PersonaId>,
    /// The session that gets its messages.
    pub target_session_id: Option<SessionId>,
}

/// Scope that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum QuotaScope {
    /// A persona.
    Persona,
    /// A workspace.
    Workspace,
    /// A tenant.
    Tenant,
    /// An organisation.
    Organization,
}

/// A ceiling of spend, tokens, runtime or requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<QuotaId>,
    /// Scope that it limits.
    pub scope: QuotaScope,
    /// The ceilings by name.
    pub limits: BTreeMap<String, Number>,
    /// Amounts that are used up, by the same names.
    pub usage: BTreeMap<String, Number>,
    /// Instant at which the usage starts again.
    pub reset_at: Option<Timestamp>,
    /// True if work is refused beyond it.
    #[serde(default = "yes")]
    pub hard_limit: bool,
    /// True if a notification is sent beyond it.
    #[serde(default)]
    pub soft_limit: bool,
    /// Reason for which nothing is left.
    pub exhaustion_reason: Option<String>,
    /// The receipt that counted last.
    pub last_receipt_id: Option<ReceiptId>,
}

fn yes() -> bool {
    true
}
