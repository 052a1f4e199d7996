use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Map, Named, Nullable, Object, present};
use crate::id::{BranchId, ConnectorId, QuotaId, WorkspaceId};

/// The boundary of files, tools, secrets, sessions and their records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workspace {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<WorkspaceId>,
    /// For people.
    pub name: String,
    /// Its logical root.
    pub root: String,
    /// The branch that work is on unless it names another.
    #[schemars(with = "Nullable<BranchId>")]
    pub default_branch_id: Option<BranchId>,
    /// Host.
    pub host: Option<String>,
    /// Its repository.
    pub repository: Option<String>,
    /// Tenant that owns it.
    pub tenant_id: Option<String>,
    /// Capabilities in it.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Connectors that bring work in.
    #[serde(default)]
    pub connectors: Vec<ConnectorId>,
    /// Quota that it counts against.
    pub quota_id: Option<QuotaId>,
}

/// Creates a workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateWorkspaceRequest {
    /// For people.
    pub name: String,
    /// Its logical root.
    pub root: String,
    /// The image of its sandbox.
    pub image: Option<String>,
    /// Packages of its sandbox.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Network that its sandbox may reach.
    #[serde(default)]
    pub network_policy: Map,
    /// Backend that runs its sandbox.
    pub sandbox_backend: Option<String>,
    /// Is kept with the workspace.
    #[serde(default)]
    pub metadata: Map,
    /// Of Dormouse: the template with whose files it begins.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("x-extension" = true))]
    pub template: Option<String>,
    /// Of Dormouse: texts of files with which it begins, by their paths; each stands in the place of one of the template.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>", extend("x-extension" = true))]
    pub files: Option<BTreeMap<String, String>>,
}

/// Changes a workspace; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateWorkspaceRequest {
    /// For people.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name: Option<String>,
    /// Capabilities in it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub capabilities: Option<Vec<String>>,
    /// `Some(None)` takes the quota away.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<QuotaId>")]
    pub quota_id: Option<Option<QuotaId>>,
    /// Replaces the metadata.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub metadata: Option<Map>,
}

/// Kind of thing that a path of a workspace names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FileEntryKind {
    /// A file.
    File,
    /// A folder.
    Directory,
}

/// One line of a folder's listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceFileEntry {
    /// The last part of the path.
    pub name: String,
    /// Relative to the root.
    pub path: String,
    /// Kind.
    pub kind: FileEntryKind,
    /// In bytes.
    pub size: u64,
}

/// A folder of a workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceFileListing {
    /// Always `file_listing`.
    pub object: Object<WorkspaceFileListing>,
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Relative to the root.
    pub path: String,
    /// Entries of the folder.
    pub entries: Vec<WorkspaceFileEntry>,
}

impl Named for WorkspaceFileListing {
    const OBJECT: &'static str = "file_listing";
}

/// Encoding of the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum FileEncoding {
    /// As text.
    #[serde(rename = "utf-8")]
    Utf8,
}

/// A file of a workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceFile {
    /// Always `file`.
    pub object: Object<WorkspaceFile>,
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Relative to the root.
    pub path: String,
    /// Encoding of the content.
    pub encoding: FileEncoding,
    /// The content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub content: Option<String>,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub bytes: Option<u64>,
}

impl Named for WorkspaceFile {
    const OBJECT: &'static str = "file";
}

/// Result of reading a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum WorkspaceFileRead {
    /// The path names a file.
    File(WorkspaceFile),
    /// The path names a folder.
    Listing(WorkspaceFileListing),
}

/// Writes a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WriteWorkspaceFileRequest {
    /// Relative to the root; comes before the path in the query.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path: Option<String>,
    /// The content.
    pub content: String,
    /// Is kept with the file.
    #[serde(default)]
    pub metadata: Map,
}
