use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Map, present};
use crate::id::{PersonaId, QuotaId};

/// How much an agent may do by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AutonomyTier {
    /// Watch only.
    Shadow,
    /// Propose.
    Suggest,
    /// Act after somebody approved.
    ActWithApproval,
    /// Act.
    ActAuto,
}

/// Whether the tasks of a persona get receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ReceiptPolicy {
    /// Always.
    Required,
    /// When asked for.
    Optional,
    /// Never.
    Disabled,
}

/// A durable role: what runs, what it may do and what it owes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Persona {
    /// What all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<PersonaId>,
    /// For people.
    pub name: String,
    /// The version of its contract.
    pub version: String,
    /// What runs.
    pub entry_workflow: String,
    /// What it is responsible for.
    pub description: String,
    /// How much it may do by itself.
    pub autonomy_tier: AutonomyTier,
    /// Whether its tasks get receipts.
    pub receipt_policy: ReceiptPolicy,
    /// Tools that it may use.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What starts it.
    #[serde(default)]
    pub triggers: Vec<Map>,
    /// When it starts by itself.
    #[serde(default)]
    pub schedules: Vec<Map>,
    /// To whom it hands on.
    #[serde(default)]
    pub handoffs: Vec<String>,
    /// Context that it is given.
    #[serde(default)]
    pub context_packs: Vec<String>,
    /// How it is judged.
    #[serde(default)]
    pub evals: Vec<String>,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Which models it may use.
    #[serde(default)]
    pub model_policy: Map,
    /// How new versions come into use.
    #[serde(default)]
    pub rollout_policy: Map,
    /// What it counts against.
    pub quota_id: Option<QuotaId>,
}

/// Creates or imports a persona.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreatePersonaRequest {
    /// Where its module comes from.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub module_ref: Option<String>,
    /// For people.
    pub name: String,
    /// The version of its contract.
    pub version: String,
    /// What runs.
    pub entry_workflow: String,
    /// What it is responsible for.
    pub description: String,
    /// How much it may do by itself.
    pub autonomy_tier: AutonomyTier,
    /// Whether its tasks get receipts.
    pub receipt_policy: ReceiptPolicy,
    /// Is kept with the persona.
    #[serde(default)]
    pub metadata: Map,
}

/// Changes a persona; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdatePersonaRequest {
    /// What it is responsible for.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub description: Option<String>,
    /// Whether its tasks get receipts.
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
