use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::PartVisibility;
use crate::envelope::{Envelope, Map};
use crate::id::MemoryId;

/// Scope of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum MemoryScope {
    /// A persona's.
    Persona,
    /// A session's.
    Session,
    /// A workspace's.
    Workspace,
    /// A tenant's.
    Tenant,
}

/// Content that is remembered: text, or an object, which may be a part that refers to an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "text or an object")]
#[schemars(inline)]
pub enum MemoryContent {
    /// Text.
    Text(String),
    /// Anything else.
    Object(Map),
}

/// Knowledge that outlives a task and is kept apart from transcripts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<MemoryId>,
    /// Scope of the memory.
    pub scope: MemoryScope,
    /// The id of that persona, session, workspace or tenant.
    pub owner_id: String,
    /// Content that is remembered.
    pub content: MemoryContent,
    /// Origin.
    pub provenance: Map,
    /// Instant after which it may be forgotten.
    pub expires_at: Option<Timestamp>,
    /// Reference of its embedding.
    pub embedding_ref: Option<String>,
    /// Visibility.
    #[serde(default)]
    pub visibility: PartVisibility,
    /// Policy by which it is redacted.
    #[serde(default)]
    pub redaction_policy: Map,
    /// From 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: Option<Number>,
}

/// Creates a memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateMemoryRequest {
    /// Scope of the memory.
    pub scope: MemoryScope,
    /// The id of that persona, session, workspace or tenant.
    pub owner_id: String,
    /// Content that is remembered. The contract allows any JSON here, but only text and objects can be read back.
    #[schemars(with = "Value")]
    pub content: MemoryContent,
    /// Origin.
    pub provenance: Map,
    /// Is kept with the memory.
    #[serde(default)]
    pub metadata: Map,
}
