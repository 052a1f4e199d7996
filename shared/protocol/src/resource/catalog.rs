//! What a server offers and limits, and clients can only read: skills, tools, connectors, quotas.

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
    /// What all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<SkillId>,
    /// The name to call it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of what it takes.
    #[schemars(with = "Nullable<Map>")]
    pub input_schema: Option<Map>,
    /// The JSON Schema of what it gives.
    #[schemars(with = "Nullable<Map>")]
    pub output_schema: Option<Map>,
    /// Where it comes from.
    pub source: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// What it needs.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Whether somebody has to approve each call.
    #[serde(default)]
    pub requires_approval: bool,
    /// Whether it will go away.
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
    /// What it does.
    pub description: String,
    /// The JSON Schema of what it takes.
    pub input_schema: Map,
    /// The JSON Schema of what it gives.
    pub output_schema: Map,
}

/// Whether a connector works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum ConnectorStatus {
    /// It does.
    Active,
    /// Somebody stopped it.
    Paused,
    /// It is broken.
    Failed,
    /// It was switched off.
    Disabled,
}

/// Turns what happens elsewhere into tasks, events or messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connector {
    /// What all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<ConnectorId>,
    /// Where things happen.
    pub provider: String,
    /// Where it belongs.
    pub workspace_id: WorkspaceId,
    /// Whether it works.
    pub status: ConnectorStatus,
    /// The events that it can emit.
    pub event_kinds: Vec<String>,
    /// How it recognises what it saw before.
    #[serde(default)]
    pub dedupe_policy: Map,
    /// How it proves who it is; never a secret.
    #[serde(default)]
    pub auth: Map,
    /// How it is told.
    #[serde(default)]
    pub webhook: Map,
    /// How it asks.
    #[serde(default)]
    pub polling: Map,
    /// The persona that gets its tasks.
    pub target_persona_id: Option<PersonaId>,
    /// The session that gets its messages.
    pub target_session_id: Option<SessionId>,
}

/// Whom a quota limits.
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
    /// What all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<QuotaId>,
    /// Whom it limits.
    pub scope: QuotaScope,
    /// The ceilings by name.
    pub limits: BTreeMap<String, Number>,
    /// What is used up, by the same names.
    pub usage: BTreeMap<String, Number>,
    /// When the usage starts again.
    pub reset_at: Option<Timestamp>,
    /// Whether work is refused beyond it.
    #[serde(default = "yes")]
    pub hard_limit: bool,
    /// Whether somebody is told beyond it.
    #[serde(default)]
    pub soft_limit: bool,
    /// Why nothing is left.
    pub exhaustion_reason: Option<String>,
    /// The receipt that counted last.
    pub last_receipt_id: Option<ReceiptId>,
}

fn yes() -> bool {
    true
}
