use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Map, Nullable};
use crate::id::{VaultId, WorkspaceId};

/// A place for secrets. The resource never holds one, nor the name of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vault {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<VaultId>,
    /// Workspace that it belongs to; null if to the whole tenant.
    #[schemars(with = "Nullable<WorkspaceId>")]
    pub workspace_id: Option<WorkspaceId>,
    /// Provider that keeps the secrets.
    pub provider: String,
    /// Capabilities that may be used on them.
    pub capabilities: Vec<String>,
}

/// Creates or registers a vault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateVaultRequest {
    /// Workspace that it belongs to; null if to the whole tenant.
    pub workspace_id: Option<WorkspaceId>,
    /// Provider that keeps the secrets.
    pub provider: String,
    /// Capabilities that may be used on them.
    pub capabilities: Vec<String>,
    /// Is kept with the vault.
    #[serde(default)]
    pub metadata: Map,
}
