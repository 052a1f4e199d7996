//! What a server tells about itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Named, Object};
use crate::{PROTOCOL_FAMILY, PROTOCOL_VERSION};

/// Which versions and transports a server speaks.
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
    /// What works here. A flag that is true makes clients use it.
    pub capabilities: TransportCapabilities,
}

impl Discovery {
    /// What a server with these capabilities says.
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

/// Whether the server is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Whether it is.
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
    /// What carries the protocol.
    pub adapter: String,
    /// Where the files of workspaces are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workspace_root: Option<String>,
    /// How many sessions there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub session_count: Option<u64>,
    /// How many tasks there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub task_count: Option<u64>,
    /// What the server can do.
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
    /// What it is.
    pub description: String,
}

/// Everything that a server can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilitySummary {
    /// Always `capability_summary`.
    pub object: Object<CapabilitySummary>,
    /// What it can do.
    pub capabilities: Vec<Capability>,
}

impl Named for CapabilitySummary {
    const OBJECT: &'static str = "capability_summary";
}
