use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quota, Skill};
use crate::envelope::{Envelope, Map};
use crate::id::{AgentCardId, PersonaId};

/// Offer of a server, for clients of this protocol; the card of A2A is inside.
///
/// The word in `object` is `agent_card`, as clients in use expect, and not the one that the contract has. For the same
/// reason the interfaces are there twice, as `interfaces` and as `harn_interfaces`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HarnAgentCard {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<AgentCardId>,
    /// For people.
    pub name: String,
    /// Description of the agent.
    pub description: String,
    /// The version of this protocol.
    pub protocol_version: String,
    /// The same agent for clients of A2A.
    pub a2a_card: A2aAgentCard,
    /// Skills that can be called.
    pub skills: Vec<Skill>,
    /// Interfaces at which the agent can be reached.
    #[serde(default)]
    pub harn_interfaces: Vec<HarnAgentInterface>,
    /// The same as `harn_interfaces`.
    #[serde(default)]
    pub interfaces: Vec<HarnAgentInterface>,
    /// Personas that are offered.
    #[serde(default)]
    pub persona_ids: Vec<PersonaId>,
    /// Capabilities of the server.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Schemes by which callers authenticate.
    #[serde(default)]
    pub auth_schemes: Vec<String>,
    /// Policy for receipts of tasks.
    pub receipt_policy: Option<String>,
    /// Quotas that apply to all callers.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// Provider.
    #[serde(default)]
    pub provider: Map,
    /// Public address for people.
    #[schemars(extend("format" = "uri"))]
    pub public_url: Option<String>,
    /// Proves the card. One without a signature states nothing about rights.
    pub signature: Option<CardSignature>,
}

/// Transport of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HarnTransport {
    /// Requests and answers.
    Rest,
    /// Server-sent events.
    Sse,
    /// WebSockets.
    #[serde(rename = "websocket")]
    WebSocket,
    /// A2A.
    A2a,
    /// MCP.
    Mcp,
    /// ACP.
    Acp,
}

/// Interface at which an agent can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HarnAgentInterface {
    /// Transport.
    pub transport: HarnTransport,
    /// Location.
    #[schemars(extend("format" = "uri-reference"))]
    pub url: String,
}

/// Signature of a card or of a receipt's envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardSignature {
    /// Algorithm by which it was made.
    pub algorithm: String,
    /// With which key.
    pub key_id: String,
    /// The signature.
    pub value: String,
}

/// An agent card of A2A that carries the names of both generations: `preferredTransport` and `additionalInterfaces` of
/// A2A 0.3, and `supportedInterfaces`, which the contract requires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2aAgentCard {
    /// For people.
    pub name: String,
    /// Description of the agent.
    pub description: String,
    /// Interfaces at which it can be reached; at least one.
    #[schemars(length(min = 1))]
    pub supported_interfaces: Vec<A2aAgentInterface>,
    /// The version of A2A, for clients of 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Address at which it can be reached, for clients of 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Transport of `url`, for clients of 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_transport: Option<String>,
    /// Further ways, for clients of 0.3.
    #[serde(default)]
    pub additional_interfaces: Vec<A2aTransport>,
    /// Provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "A2aAgentProvider")]
    pub provider: Option<A2aAgentProvider>,
    /// The version of the agent.
    pub version: String,
    /// Address of its documentation for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub documentation_url: Option<String>,
    /// Supported capabilities of A2A.
    pub capabilities: A2aAgentCapabilities,
    /// Schemes by which callers authenticate, by name.
    #[serde(default)]
    pub security_schemes: BTreeMap<String, Map>,
    /// Schemes that are needed.
    #[serde(default)]
    pub security: Vec<BTreeMap<String, Vec<String>>>,
    /// True if callers who proved themselves are given a card when they ask for one, for clients of 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_authenticated_extended_card: Option<bool>,
    /// Media types that it takes.
    pub default_input_modes: Vec<String>,
    /// Media types that it gives.
    pub default_output_modes: Vec<String>,
    /// Capabilities.
    pub skills: Vec<A2aAgentSkill>,
    /// Prove the card.
    #[serde(default)]
    pub signatures: Vec<A2aAgentCardSignature>,
    /// A picture of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub icon_url: Option<String>,
}

/// Interface at which an agent can be reached, in A2A 1.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2aAgentInterface {
    /// Address.
    #[schemars(extend("format" = "uri"))]
    pub url: String,
    /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of another binding.
    pub protocol_binding: String,
    /// Tenant that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The version of A2A.
    pub protocol_version: String,
}

/// Interface at which an agent can be reached, in A2A 0.3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct A2aTransport {
    /// Address.
    pub url: String,
    /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of another binding.
    pub transport: String,
}

/// Provider of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct A2aAgentProvider {
    /// Its name.
    pub organization: String,
    /// Its site.
    #[schemars(extend("format" = "uri"))]
    pub url: String,
}

/// Supported capabilities of A2A.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct A2aAgentCapabilities {
    /// Streams.
    pub streaming: bool,
    /// Notifications.
    pub push_notifications: bool,
    /// Extensions.
    pub extensions: Vec<Map>,
    /// A card that only callers who proved themselves see.
    pub extended_agent_card: bool,
}

/// Skill of an agent, for clients of A2A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2aAgentSkill {
    /// Names it.
    pub id: String,
    /// For people.
    pub name: String,
    /// Description.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Example requests.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Media types that it takes.
    #[serde(default)]
    pub input_modes: Vec<String>,
    /// Media types that it gives.
    #[serde(default)]
    pub output_modes: Vec<String>,
    /// Security schemes of the card that are needed.
    #[serde(default)]
    pub security: Vec<BTreeMap<String, Vec<String>>>,
    /// The JSON Schema of what it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Map>,
}

/// Proves a card of A2A (a JSON Web Signature).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct A2aAgentCardSignature {
    /// The protected header.
    pub protected: String,
    /// The signature.
    pub signature: String,
    /// The open header.
    #[serde(default)]
    pub header: Map,
}
