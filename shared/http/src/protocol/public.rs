use dormouse_protocol::envelope::{Map, Object};
use dormouse_protocol::openapi;
use dormouse_protocol::operation::{Access, Operation};
use dormouse_protocol::resource::{
    CardSignature, Discovery, HarnAgentCard, Health, RuntimeVersion, TransportCapabilities,
};
use dormouse_protocol::{ErrorCode, PROTOCOL_VERSION, ProtocolError, Scope};
use dormouse_receipts::canonical;
use jiff::Timestamp;
use serde_json::{Value, json};

use dormouse_api::{Abilities, Actor, PersonaSpec, is_offered};

use super::{Protocol, a2a, card, page};
use crate::{Content, Request, Response};

/// Path at which a person reads about the API.
const DOCS: &str = "/docs";
/// Path at which clients of A2A look for a card.
const A2A_CARD: &str = "/.well-known/agent-card.json";
/// Path of the public keys with which receipts can be verified.
const KEYS: &str = "/v1/keys";

/// Path at which clients read the issuers of accepted tokens (RFC 9728).
pub(super) const RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// Methods of resources that are only read.
const READ_ONLY: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// The answer to who asks what can be done.
pub(crate) fn options(methods: &[&str]) -> Response {
    Response::empty().header("allow", methods.join(", "))
}

/// What a server of this version says of its health.
pub(crate) fn health(version: &str) -> Value {
    json!(Health { ok: true, status: "ok".to_owned(), version: version.to_owned() })
}

/// The OpenAPI document of a server that serves routes `beside` the protocol.
fn document(about: &ServerInfo, beside: &[Beside]) -> Value {
    let mut document = openapi::document(openapi::DocumentInfo {
        title: "Dormouse",
        description: "Agents that sleep for free: sessions, tasks, and the events that tell what they did.",
    });
    let missing = Operation::ALL.iter().filter(|operation| !is_offered(**operation, about.abilities));
    for spec in missing.map(|operation| operation.spec()) {
        let described = &mut document["paths"][spec.path][spec.method.as_str().to_ascii_lowercase()];
        described[NOT_OFFERED] = true.into();
        described["description"] = "Not offered by this server: it answers 501.".into();
        described["responses"]["501"] = json!({ "$ref": "#/components/responses/Error" });
    }
    if about.abilities.receipts {
        document["paths"][KEYS] = described_keys();
    }
    for Beside { tag, description, paths, components } in beside {
        if let Some(tags) = document["tags"].as_array_mut() {
            tags.push(json!({ "name": tag, "description": description }));
        }
        add(&mut document["paths"], paths);
        for (name, section) in components.iter().filter_map(|(name, section)| Some((name, section.as_object()?))) {
            add(&mut document["components"][name], section);
        }
    }
    document
}

/// Adds `fields` to the object `to`, which none of them is in; it may be missing.
fn add(to: &mut Value, fields: &Map) {
    for (name, field) in fields {
        to[name] = field.clone();
    }
}

/// Marks an operation in the document that is part of the protocol and not offered here.
pub(super) const NOT_OFFERED: &str = "x-dormouse-not-offered";

/// The path of the public keys, in the document.
fn described_keys() -> Value {
    let key = json!({
        "type": "object",
        "required": ["id", "public_key"],
        "properties": {
            "id": { "type": "string" },
            "public_key": { "type": "string", "description": "`base64:` and the 32 bytes of an Ed25519 key." },
            "created_at": { "type": "string", "format": "date-time" },
            "retired_at": { "type": "string", "format": "date-time" },
            "revoked_at": { "type": "string", "format": "date-time" },
        },
    });
    let list = json!({
        "type": "object",
        "required": ["object", "data"],
        "properties": { "object": { "const": "receipt.keys" }, "data": { "type": "array", "items": key } },
    });
    let described = "The public keys with which receipts and the agent card are signed, former ones too.";
    json!({ "get": {
        "operationId": "listReceiptKeys",
        "summary": described,
        "tags": ["Receipts"],
        "x-dormouse-extension": true,
        "security": [],
        "responses": { "200": { "description": "Done.", "content": { "application/json": { "schema": list } } } },
    } })
}

/// Information that a server gives about itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerInfo {
    /// The version of the server.
    pub(crate) version: String,
    /// Prefix of its addresses, without a slash at the end.
    pub(crate) base_url: String,
    /// Prefix of the addresses of its streams, if they are served elsewhere.
    pub(crate) stream_url: Option<String>,
    /// Personas that can be given tasks; of a source of agents, none.
    pub(crate) personas: Vec<PersonaSpec>,
    /// Instant since which it is as it is.
    pub(crate) since: Timestamp,
    /// What it can do, where not every server can.
    pub(crate) abilities: Abilities,
    /// True if sockets can be opened at the paths of its streams.
    pub(crate) sockets: bool,
    /// The address at which they are opened instead.
    pub(crate) socket_url: Option<String>,
    /// True if A2A's streams come as they are written.
    pub(crate) a2a_streams: bool,
    /// The issuers of tokens that it takes.
    pub(crate) issuers: Vec<AcceptedIssuer>,
}

/// An issuer whose tokens a server takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedIssuer {
    /// Its name: the claim `iss` of its tokens.
    pub(crate) name: String,
    /// The address at which it publishes what it is, if its keys are found there.
    pub(crate) discovery: Option<String>,
}

impl From<(&str, Option<String>)> for AcceptedIssuer {
    fn from((name, discovery): (&str, Option<String>)) -> Self {
        Self { name: name.to_owned(), discovery }
    }
}

/// Routes beside those of the protocol, as a part of an OpenAPI document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The tag of all of them, and of nothing else.
    pub(crate) tag: String,
    /// Purpose of the routes.
    pub(crate) description: String,
    /// Their paths, none of which the protocol knows.
    pub(crate) paths: Map,
    /// Sections of components, none of which the protocol names.
    pub(crate) components: Map,
}

/// A server as it is described to who wants to use it.
pub(crate) struct DescribedServer {
    /// Its OpenAPI document.
    pub(crate) document: Value,
    /// Routes that it serves beside the protocol, which are in the document as well.
    pub(crate) beside: Vec<Beside>,
}

/// Describes a server, when its description is first asked for.
pub(crate) type Describe = Box<dyn FnOnce() -> DescribedServer + Send>;

impl DescribedServer {
    /// The server of `about`, which serves routes `beside` the protocol.
    pub(crate) fn of(about: &ServerInfo, beside: Vec<Beside>) -> Self {
        Self { document: document(about, &beside), beside }
    }
}

/// Refuses what needs agents that cannot be had now, for `reason`.
pub(crate) fn agents_away(reason: String) -> ProtocolError {
    tracing::warn!(reason, "the published agents cannot be loaded");
    ProtocolError::new(ErrorCode::ServiceUnavailable, "the published agents cannot be loaded now")
}

impl Protocol {
    /// The answer to a request that needs no key; `None` if it needs one.
    ///
    /// # Errors
    /// For a method that a public path does not take.
    pub(super) async fn public(&self, request: &Request) -> Result<Option<Response>, ProtocolError> {
        match (request.path.as_str(), request.method.as_str()) {
            (DOCS, "GET") => return Ok(Some(html(page::of(&self.described.document, &self.described.beside)))),
            (A2A_CARD, "GET") => return Ok(Some(Response::json(200, &json!(card::a2a(&self.about_now(None).await?))))),
            (RESOURCE, "GET") => return Ok(Some(Response::json(200, &self.protected_resource()))),
            (KEYS, "GET") if self.receipts.is_some() => return Ok(Some(Response::json(200, &self.public_keys()))),
            (DOCS | A2A_CARD | RESOURCE, "OPTIONS") => return Ok(Some(options(&READ_ONLY))),
            (KEYS, "OPTIONS") if self.receipts.is_some() => return Ok(Some(options(&READ_ONLY))),
            (KEYS, _) if self.receipts.is_some() => return Err(ProtocolError::method_not_allowed(&READ_ONLY)),
            (DOCS | A2A_CARD | RESOURCE, _) => return Err(ProtocolError::method_not_allowed(&READ_ONLY)),
            (a2a::PATH, "OPTIONS") if self.about.abilities.a2a => return Ok(Some(options(&a2a::METHODS))),
            (a2a::PATH, _) if self.about.abilities.a2a => return Ok(None),
            (path, "OPTIONS") => return Operation::methods(path).map(|methods| Some(options(&methods))),
            _ => {}
        }
        let operation = Operation::find(&request.method, &request.path)?.operation;
        if operation.spec().access != Access::Public {
            return Ok(None);
        }
        tracing::Span::current().record("operation", operation.spec().id);
        self.describe(operation).await.map(|value| Some(Response::json(200, &value)))
    }

    /// Issuers of accepted tokens, and how tokens are sent (RFC 9728 §2).
    fn protected_resource(&self) -> Value {
        json!({
            "resource": self.about.base_url,
            "authorization_servers": self.about.issuers.iter().map(|issuer| &issuer.name).collect::<Vec<_>>(),
            "scopes_supported": Scope::ALL.iter().map(|scope| scope.as_str()).collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
            "resource_name": "Dormouse",
            "resource_documentation": format!("{}{DOCS}", self.about.base_url),
        })
    }

    /// What the server says of itself, to `actor` or to everybody, with the agents that a source has now.
    pub(super) async fn about_now(&self, actor: Option<&Actor>) -> Result<ServerInfo, ProtocolError> {
        let personas = self.personas.shown_to(actor).await.map_err(agents_away)?;
        Ok(ServerInfo { personas, ..self.about.clone() })
    }

    /// The public keys.
    fn public_keys(&self) -> Value {
        let keys = self.receipts.as_ref().map(|receipts| receipts.keys().iter().collect::<Vec<_>>());
        json!({ "object": "receipt.keys", "data": keys.unwrap_or_default() })
    }

    /// `card` with the signature over its canonical form without one, where there is a key.
    async fn signed(&self, card: HarnAgentCard) -> Result<HarnAgentCard, ProtocolError> {
        let Some(receipts) = &self.receipts else { return Ok(card) };
        let mut form = json!(card);
        if let Some(fields) = form.as_object_mut() {
            fields.shift_remove("signature");
        }
        let form = canonical::bytes(&form).map_err(|flaw| {
            tracing::error!(%flaw, "the agent card has no canonical form, so it cannot be signed");
            ProtocolError::new(ErrorCode::InternalError, "the agent card cannot be signed")
        })?;
        let value = self.card_signatures.of(receipts, form).await.map_err(|error| {
            tracing::error!(%error, "the agent card cannot be signed");
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the agent card cannot be signed now")
        })?;
        let key_id = receipts.key_id().to_owned();
        let signature = CardSignature { algorithm: "ed25519".to_owned(), key_id, value };
        Ok(HarnAgentCard { signature: Some(signature), ..card })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the test goes through all public operations")]
    async fn describe(&self, operation: Operation) -> Result<Value, ProtocolError> {
        let about = &self.about;
        match operation {
            Operation::GetHealth => Ok(health(&about.version)),
            Operation::GetVersion => Ok(json!(RuntimeVersion {
                object: Object::new(),
                version: about.version.clone(),
                protocol_version: PROTOCOL_VERSION.to_owned(),
            })),
            Operation::GetOpenApiDocument => Ok(self.described.document.clone()),
            Operation::GetProtocolDiscovery => Ok(json!(Discovery::new(TransportCapabilities {
                rest: true,
                sse: true,
                receipts: about.abilities.receipts,
                replay: about.abilities.receipts,
                websocket: about.abilities.sockets,
            }))),
            Operation::GetAgentCard => {
                self.signed(card::harn(&self.about_now(None).await?)).await.map(|card| json!(card))
            }
            other => Err(ProtocolError::not_implemented(other)),
        }
    }
}

/// A page that loads nothing: no script, no font, no picture.
fn html(page: String) -> Response {
    Response::new(200, "text/html; charset=utf-8", Content::Whole(page.into_bytes())).header(
        "content-security-policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )
}
