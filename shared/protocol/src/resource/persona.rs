use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Map, present};
use crate::id::{PersonaId, QuotaId};

/// Degree to which an agent may act by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AutonomyTier {
    /// Watch only.
    Shadow,
    /// Propose.
    Suggest,
    /// Act after an approval.
    ActWithApproval,
    /// Act.
    ActAuto,
}

/// Policy for receipts of the tasks of a persona.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ReceiptPolicy {
    /// Always.
    Required,
    /// On request.
    Optional,
    /// Never.
    Disabled,
}

/// A durable role: what runs, what it may do and what it owes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Persona {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<PersonaId>,
    /// For people.
    pub name: String,
    /// The version of its contract.
    pub version: String,
    /// Workflow that runs.
    pub entry_workflow: String,
    /// Responsibility.
    pub description: String,
    /// Degree to which it may act by itself.
    pub autonomy_tier: AutonomyTier,
    /// Policy for receipts of its tasks.
    pub receipt_policy: ReceiptPolicy,
    /// Tools that it may use.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Capabilities.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Triggers that start it.
    #[serde(default)]
    pub triggers: Vec<Map>,
    /// Schedules by which it starts by itself.
    #[serde(default)]
    pub schedules: Vec<Map>,
    /// To whom it hands on.
    #[serde(default)]
    pub handoffs: Vec<String>,
    /// Context that it is given.
    #[serde(default)]
    pub context_packs: Vec<String>,
    /// Evaluations of it.
    #[serde(default)]
    pub evals: Vec<String>,
    /// Owner.
    pub owner: Option<String>,
    /// Models that it may use.
    #[serde(default)]
    pub model_policy: Map,
    /// Policy for the rollout of new versions.
    #[serde(default)]
    pub rollout_policy: Map,
    /// Quota that it counts against.
    pub quota_id: Option<QuotaId>,
}

/// Creates or imports a persona.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreatePersonaRequest {
    /// Origin of its module.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub module_ref: Option<String>,
    /// For people.
    pub name: String,
    /// The version of its contract.
    pub version: String,
    /// Workflow that runs.
    pub entry_workflow: String,
    /// Responsibility.
    pub description: String,
    /// Degree to which it may act by itself.
    pub autonomy_tier: AutonomyTier,
    /// Policy for receipts of its tasks.
    pub receipt_policy: ReceiptPolicy,
    /// Is kept with the persona.
    #[serde(default)]
    pub metadata: Map,
}

/// Changes a persona; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdatePersonaRequest {
    /// Responsibility.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub description: Option<String>,
    /// Policy for receipts of its tasks.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReceiptPolicy")]
    pub receipt_policy: Option<ReceiptPolicy>,
    /// `Some(None)` takes the quota away.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<QuotaId>")]
    pub quota_id: Option<Option<QuotaId>>,
    /// Replaces the metadata.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub metadata: Option<Map>,
}
