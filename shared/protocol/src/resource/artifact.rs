use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::PartVisibility;
use crate::envelope::{Envelope, Map, Nullable};
use crate::id::{ArtifactId, ReceiptId, SessionId, TaskId, WorkspaceId};

/// Kind of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ArtifactKind {
    /// A file.
    File,
    /// Changes to apply.
    Patch,
    /// A picture.
    Image,
    /// A log.
    Log,
    /// Changes to look at.
    Diff,
    /// A receipt.
    Receipt,
    /// A snapshot.
    Snapshot,
    /// A data set.
    Dataset,
    /// Something else.
    Other,
}

/// A SHA-256 in 64 hexadecimal digits, without a prefix (receipts write theirs with one). Kept in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Sha256Hex(String);

impl Sha256Hex {
    /// `None` if `text` is not 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Sha256Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &"64 hexadecimal digits"))
    }
}

impl JsonSchema for Sha256Hex {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Sha256Hex".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-fA-F0-9]{64}$" })
    }
}

/// Durable content that messages, outcomes and receipts refer to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<ArtifactId>,
    /// Kind.
    pub kind: ArtifactKind,
    /// Its media type.
    pub mime_type: String,
    /// Location of its bytes; null if only this API gives them.
    #[schemars(with = "Nullable<String>", extend("format" = "uri-reference"))]
    pub uri: Option<String>,
    /// Visibility.
    pub visibility: PartVisibility,
    /// The hash of its bytes, if they are stable.
    #[schemars(with = "Nullable<Sha256Hex>")]
    pub sha256: Option<Sha256Hex>,
    /// Workspace that it belongs to.
    pub workspace_id: Option<WorkspaceId>,
    /// Its session.
    pub session_id: Option<SessionId>,
    /// The task that made it.
    pub task_id: Option<TaskId>,
    /// The receipt that names it.
    pub receipt_id: Option<ReceiptId>,
}

/// Registers an artifact whose bytes are elsewhere, or will be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterArtifactRequest {
    /// Kind.
    pub kind: ArtifactKind,
    /// Its media type.
    pub mime_type: String,
    /// Location of its bytes.
    pub uri: Option<String>,
    /// Visibility.
    pub visibility: PartVisibility,
    /// The hash of its bytes.
    pub sha256: Option<Sha256Hex>,
    /// Workspace that it belongs to.
    pub workspace_id: Option<WorkspaceId>,
    /// Its session.
    pub session_id: Option<SessionId>,
    /// The task that made it.
    pub task_id: Option<TaskId>,
    /// Is kept with the artifact.
    #[serde(default)]
    pub metadata: Map,
}
