//! Information of a server about itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Named, Object};
use crate::{PROTOCOL_FAMILY, PROTOCOL_VERSION};

/// Versions and transports that a server speaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Discovery {
    /// Always `protocol_discovery`.
    pub object: Object<Discovery>,
    /// Always `harn_agents_protocol`.
    #[schemars(extend("enum" = [PROTOCOL_FAMILY]))]
    pub protocol_family: String,
    /// The version to use.
    #[schemars(extend("enum" = [PROTOCOL_VERSION]))]
    pub current_version: String,
    /// All versions that are understood.
    pub supported_versions: Vec<String>,
    /// Capabilities here. A flag that is true makes clients use it.
    pub capabilities: TransportCapabilities,
}

impl Discovery {
    /// Discovery of a server with these capabilities.
    pub fn new(capabilities: TransportCapabilities) -> Self {
        Self {
            object: Object::new(),
            protocol_family: PROTOCOL_FAMILY.to_owned(),
            current_version: PROTOCOL_VERSION.to_owned(),
            supported_versions: vec![PROTOCOL_VERSION.to_owned()],
            capabilities,
        }
    }
}

impl Named for Discovery {
    const OBJECT: &'static str = "protocol_discovery";
}

/// Transports and levels that work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct TransportCapabilities {
    /// Requests and answers.
    pub rest: bool,
    /// Server-sent events.
    pub sse: bool,
    /// WebSockets.
    pub websocket: bool,
    /// Receipts.
    pub receipts: bool,
    /// Replay.
    pub replay: bool,
}

/// Health of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// True if it is.
    pub ok: bool,
    /// The same as a word.
    pub status: String,
    /// The version of the server.
    pub version: String,
}

/// The versions of server and protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeVersion {
    /// Always `version`.
    pub object: Object<RuntimeVersion>,
    /// The version of the server.
    pub version: String,
    /// The version of the protocol.
    pub protocol_version: String,
}

impl Named for RuntimeVersion {
    const OBJECT: &'static str = "version";
}

/// Facts about the process that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeMetadata {
    /// Always `runtime`.
    pub object: Object<RuntimeMetadata>,
    /// The version of the server.
    pub version: String,
    /// The version of the protocol.
    pub protocol_version: String,
    /// Adapter that carries the protocol.
    pub adapter: String,
    /// Location of the files of workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workspace_root: Option<String>,
    /// Number of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub session_count: Option<u64>,
    /// Number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub task_count: Option<u64>,
    /// Capabilities of the server.
    pub capabilities: Vec<Capability>,
}

impl Named for RuntimeMetadata {
    const OBJECT: &'static str = "runtime";
}

/// Something that a server can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capability {
    /// Names it.
    pub id: String,
    /// Kind.
    pub description: String,
}

/// Everything that a server can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilitySummary {
    /// Always `capability_summary`.
    pub object: Object<CapabilitySummary>,
    /// Capabilities.
    pub capabilities: Vec<Capability>,
}

impl Named for CapabilitySummary {
    const OBJECT: &'static str = "capability_summary";
}
