//! The cards: what the server offers, for clients of the protocol and for those of A2A.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dormouse_protocol::envelope::{Envelope, Map};
use dormouse_protocol::id::{AgentCardId, SkillId};
use dormouse_protocol::resource::{
    A2aAgentCapabilities, A2aAgentCard, A2aAgentInterface, A2aAgentProvider, A2aAgentSkill, A2aTransport, AutonomyTier,
    HarnAgentCard, HarnAgentInterface, HarnTransport, Skill,
};
use dormouse_protocol::{PROTOCOL_VERSION, Scope};

use super::{AcceptedIssuer, ServerInfo};
use dormouse_api::{PersonaSpec, Receipts};
use dormouse_ports::SignerError;

const NAME: &str = "Dormouse";
const DESCRIPTION: &str = "Runs agents that sleep while they wait for a person, a job, an event or a clock.";
/// Binding that is spoken where A2A is not: this protocol. Bindings that are not of A2A itself go by their URI.
const BINDING: &str = "https://harnlang.com/spec/agents-protocol/v1";
const A2A_VERSION: &str = "0.3.0";
const JSON_RPC: &str = "JSONRPC";
/// The scheme of keys, which the card for clients of the protocol calls `bearer`.
const BEARER_AUTH: &str = "bearerAuth";

/// The card for clients of the protocol.
pub(super) fn harn(about: &ServerInfo) -> HarnAgentCard {
    let stream_url = about.stream_url.as_ref().unwrap_or(&about.base_url);
    let mut interfaces = vec![
        HarnAgentInterface { transport: HarnTransport::Rest, url: format!("{}/v1", about.base_url) },
        HarnAgentInterface { transport: HarnTransport::Sse, url: format!("{stream_url}/v1") },
    ];
    let own = about.sockets.then(|| format!("{}/v1", about.base_url.replacen("http", "ws", 1)));
    if let Some(url) = about.socket_url.clone().or(own) {
        interfaces.push(HarnAgentInterface { transport: HarnTransport::WebSocket, url });
    }
    HarnAgentCard {
        envelope: Envelope::new(AgentCardId::new("agent_card_dormouse"), about.since),
        name: NAME.to_owned(),
        description: DESCRIPTION.to_owned(),
        protocol_version: PROTOCOL_VERSION.to_owned(),
        a2a_card: a2a(about),
        skills: about.personas.iter().map(|spec| skill(spec, about)).collect(),
        harn_interfaces: interfaces.clone(),
        interfaces,
        persona_ids: about.personas.iter().map(PersonaSpec::persona_id).collect(),
        capabilities: about.abilities.described().map(|(id, _)| id.to_owned()).collect(),
        auth_schemes: auth_schemes(about),
        receipt_policy: Some(if about.abilities.receipts { "optional" } else { "disabled" }.to_owned()),
        quotas: Vec::new(),
        provider: Map::from_iter([("organization".to_owned(), NAME.into())]),
        public_url: Some(about.base_url.clone()),
        signature: None,
    }
}

/// The last card that was signed, and its signature. Anybody may read the card, and it is nearly always the same one: a key
/// service is not asked for each reader.
#[derive(Debug, Default)]
pub(crate) struct CardSignatures(Mutex<Option<(Vec<u8>, String)>>);

impl CardSignatures {
    /// The signature of `receipts` over `form`, the canonical form of a card.
    ///
    /// # Errors
    /// [`SignerError`] when the key does not sign.
    pub(super) async fn of(&self, receipts: &Receipts, form: Vec<u8>) -> Result<String, SignerError> {
        if let Some(signature) = self.known(&form) {
            return Ok(signature);
        }
        let signature = receipts.sign(&form).await?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((form, signature.clone()));
        Ok(signature)
    }

    fn known(&self, form: &[u8]) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(signed, _)| signed == form).map(|(_, signature)| signature.clone())
    }
}

/// The card for clients of A2A, with the names of both generations.
pub(super) fn a2a(about: &ServerInfo) -> A2aAgentCard {
    let (url, binding) = match about.abilities.a2a {
        true => (format!("{}{}", about.base_url, super::a2a::PATH), JSON_RPC),
        false => (format!("{}/v1", about.base_url), BINDING),
    };
    let schemes = security_schemes(about);
    // Any of them is enough: a key, or a token of one of the issuers.
    let security: Vec<_> = schemes.keys().map(|name| BTreeMap::from([(name.clone(), Vec::new())])).collect();
    A2aAgentCard {
        name: NAME.to_owned(),
        description: DESCRIPTION.to_owned(),
        supported_interfaces: vec![A2aAgentInterface {
            url: url.clone(),
            protocol_binding: binding.to_owned(),
            tenant: None,
            protocol_version: A2A_VERSION.to_owned(),
        }],
        protocol_version: Some(A2A_VERSION.to_owned()),
        url: Some(url.clone()),
        preferred_transport: Some(binding.to_owned()),
        additional_interfaces: vec![A2aTransport { url, transport: binding.to_owned() }],
        provider: Some(A2aAgentProvider { organization: NAME.to_owned(), url: about.base_url.clone() }),
        version: about.version.clone(),
        documentation_url: Some(format!("{}/docs", about.base_url)),
        capabilities: A2aAgentCapabilities {
            streaming: !about.abilities.a2a || about.a2a_streams,
            push_notifications: about.abilities.a2a && about.abilities.webhooks,
            extended_agent_card: about.abilities.a2a,
            ..A2aAgentCapabilities::default()
        },
        security: security.clone(),
        security_schemes: schemes,
        supports_authenticated_extended_card: Some(about.abilities.a2a),
        default_input_modes: modes(),
        default_output_modes: modes(),
        skills: about.personas.iter().map(|spec| a2a_skill(spec, &security)).collect(),
        signatures: Vec::new(),
        icon_url: None,
    }
}

/// How callers may prove who they are: by a key, or by a token of an issuer that is trusted. Both are sent as bearers.
fn security_schemes(about: &ServerInfo) -> BTreeMap<String, Map> {
    let scheme = |fields: [(&str, &str); 2]| fields.map(|(name, value)| (name.to_owned(), value.into()));
    let bearer = (BEARER_AUTH.to_owned(), Map::from_iter(scheme([("type", "http"), ("scheme", "bearer")])));
    let of_issuer = |(place, issuer): (usize, &AcceptedIssuer)| match &issuer.discovery {
        Some(url) => {
            let fields = scheme([("type", "openIdConnect"), ("openIdConnectUrl", url)]);
            (format!("openId{}", place + 1), Map::from_iter(fields))
        }
        // Nothing says that it publishes what it is.
        None => {
            let mut fields = Map::from_iter(scheme([("type", "http"), ("scheme", "bearer")]));
            fields.extend(scheme([("bearerFormat", "JWT"), ("description", &format!("a token of {}", issuer.name))]));
            (format!("token{}", place + 1), fields)
        }
    };
    about.issuers.iter().enumerate().map(of_issuer).chain([bearer]).collect()
}

/// The same by the names that the card of A2A gives them, the key first.
fn auth_schemes(about: &ServerInfo) -> Vec<String> {
    let schemes = security_schemes(about);
    let of_issuers = schemes.into_keys().filter(|name| name != BEARER_AUTH);
    ["bearer".to_owned()].into_iter().chain(of_issuers).collect()
}

fn skill(spec: &PersonaSpec, about: &ServerInfo) -> Skill {
    Skill {
        envelope: Envelope::new(SkillId::new(format!("skill_{}", spec.graph)), about.since),
        name: spec.graph.clone(),
        description: spec.description.clone(),
        input_schema: None,
        output_schema: None,
        source: None,
        version: None,
        capabilities: vec![Scope::TasksWrite.as_str().to_owned()],
        requires_approval: spec.autonomy_tier == AutonomyTier::ActWithApproval,
        deprecated: false,
    }
}

/// The media types of messages, either way.
fn modes() -> Vec<String> {
    vec!["application/json".to_owned(), "text/plain".to_owned()]
}

/// A persona as a skill. What it takes and demands is what the card does: an empty list in a skill would take its place.
fn a2a_skill(spec: &PersonaSpec, security: &[BTreeMap<String, Vec<String>>]) -> A2aAgentSkill {
    A2aAgentSkill {
        id: spec.graph.clone(),
        name: spec.graph.clone(),
        description: spec.description.clone(),
        tags: vec!["graph".to_owned()],
        examples: Vec::new(),
        input_modes: modes(),
        output_modes: modes(),
        security: security.to_vec(),
        input_schema: None,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_api::Abilities;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn about(issuers: &[(&str, Option<&str>)]) -> ServerInfo {
        ServerInfo {
            version: "1".to_owned(),
            base_url: "https://agents.example.com".to_owned(),
            stream_url: None,
            personas: Vec::new(),
            since: Timestamp::UNIX_EPOCH,
            abilities: Abilities { a2a: true, ..Abilities::default() },
            sockets: false,
            socket_url: None,
            a2a_streams: true,
            issuers: issuers.iter().map(|(name, url)| (*name, url.map(str::to_owned)).into()).collect(),
        }
    }

    #[test]
    fn callers_are_told_whose_tokens_are_taken() {
        let bearer = json!({ "type": "http", "scheme": "bearer" });
        let card = json!(a2a(&about(&[])));
        assert_eq!(card["securitySchemes"], json!({ "bearerAuth": bearer }));
        let url = "https://id.example.com/.well-known/openid-configuration";
        let card = json!(a2a(&about(&[("https://id.example.com/", Some(url)), ("https://keys.example.com", None)])));
        let description = "a token of https://keys.example.com";
        let expected = json!({
            "bearerAuth": bearer,
            "openId1": { "type": "openIdConnect", "openIdConnectUrl": url },
            "token2": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": description },
        });
        assert_eq!(card["securitySchemes"], expected);
        let named: Vec<Value> = ["bearerAuth", "openId1", "token2"].map(|name| json!({ name: [] })).to_vec();
        assert_eq!(card["security"], json!(named), "any of them is enough");
        let both = [("https://id.example.com/", Some(url)), ("https://keys.example.com", None)];
        assert_eq!(auth_schemes(&about(&both)), ["bearer", "openId1", "token2"], "the other card names the same");
        assert_eq!(card["capabilities"]["extendedAgentCard"], card["supportsAuthenticatedExtendedCard"]);
    }

    #[test]
    fn a_skill_takes_and_demands_what_the_card_does() {
        let spec = PersonaSpec::new("chat", "Talks.", AutonomyTier::ActWithApproval);
        let card = json!(a2a(&ServerInfo { personas: vec![spec], ..about(&[]) }));
        let skill = &card["skills"][0];
        assert_eq!(skill["inputModes"], card["defaultInputModes"]);
        assert_eq!(skill["outputModes"], card["defaultOutputModes"]);
        assert_eq!((&skill["security"], skill["security"].as_array().map(Vec::len)), (&card["security"], Some(1)));
    }
}
