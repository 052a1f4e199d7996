//! The routes as a part of the OpenAPI document: what each takes and answers, and who may ask. Made from the list that
//! is served, and from the types that are read and written.

use dormouse_ports::Map;
use dormouse_ports::limits::ID;
use dormouse_protocol::Scope;
use dormouse_protocol::openapi;
use dormouse_protocol::request::IDEMPOTENCY_HEADER;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::protocol::Beside;
use crate::routes::{DescribedRoute, LISTED};
use crate::said::{FieldOmitted, TurnRefusal};
use crate::{App, Authorization};

/// Tag under which the routes are listed.
const TAG: &str = "Graphs and chat";
const DESCRIPTION: &str = "Graphs and chats without the protocol, and the addresses at which what sleeps is looked at, woken \
    and canceled. These routes want no version. Their refusals are {\"error\": {\"category\", \"bucket\", \"message\", …}}: \
    the bucket says what to do.";

pub(crate) use dormouse_protocol::operation::SchemaOf;

/// The schema of `T`, by its name where it has one.
pub(crate) fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Credential that a route demands.
#[derive(Debug)]
pub(crate) enum Asks {
    /// None: every caller may ask.
    Nothing,
    /// That of a caller who may begin turns, by the proof that this deployment asks for; a key needs these scopes.
    Principal(&'static [Scope]),
    /// The token of an address.
    Token,
    /// The token of an address, or the signal key.
    TokenOrSignalKey,
    /// The signal key, the token of the signal's own address, or a key of a tenant.
    SignalKey,
}

/// Response of these types, under a status.
pub(crate) struct Gives {
    pub(crate) status: u16,
    pub(crate) when: &'static str,
    pub(crate) types: &'static [SchemaOf],
    /// True if `location` names where to look.
    pub(crate) located: bool,
}

impl App {
    /// The routes that it serves, for the document of the server.
    pub(crate) fn described(&self) -> Beside {
        let mut described = DocumentBuilder {
            authorization: self.doorkeeper().authorization,
            graphs: self.graphs().offered_names().map(str::to_owned).collect(),
            requests: openapi::settings().for_deserialize().into_generator(),
            answers: openapi::settings().for_serialize().into_generator(),
        };
        described.answers.subschema_for::<FieldOmitted>();
        let mut paths = Map::new();
        for listed in &LISTED {
            let path = listed.path.split('?').next().unwrap_or_default();
            let methods = paths.entry(path).or_insert_with(|| json!({}));
            methods[listed.method.to_ascii_lowercase()] = described.operation(listed, path);
        }
        let schemas = described.requests.take_definitions(true).into_iter();
        let schemas: Map = schemas.chain(described.answers.take_definitions(true)).collect();
        let components = json!({ "schemas": schemas, "headers": headers(), "securitySchemes": schemes() });
        let components = components.as_object().cloned().unwrap_or_default();
        Beside { tag: TAG.to_owned(), description: DESCRIPTION.to_owned(), paths, components }
    }
}

struct DocumentBuilder {
    authorization: Authorization,
    graphs: Vec<String>,
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

impl DocumentBuilder {
    fn operation(&mut self, listed: &DescribedRoute, path: &str) -> Value {
        let mut described = json!({
            "operationId": listed.id,
            "summary": listed.does,
            "tags": [TAG],
            "security": self.security(&listed.asks),
        });
        if let (Asks::Principal(scopes), Authorization::Keys) = (&listed.asks, self.authorization) {
            described["x-scopes"] = scopes.iter().map(|scope| scope.as_str()).collect();
        }
        let parameters = self.parameters(listed, path);
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        if let Some(takes) = listed.takes {
            let schema = takes(&mut self.requests);
            described["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
        }
        described["responses"] = self.responses(listed).into();
        described
    }

    fn security(&self, asks: &Asks) -> Value {
        match (asks, self.authorization) {
            (Asks::Nothing, _) | (Asks::Principal(_), Authorization::None) => json!([]),
            (Asks::Principal(_), Authorization::Keys) => json!([{ "bearerAuth": [] }]),
            (Asks::Principal(_), Authorization::AwsIam) => json!([{ "signature": [] }]),
            (Asks::Token, _) => json!([{ "addressToken": [] }, { "addressBearer": [] }]),
            (Asks::TokenOrSignalKey, _) => {
                json!([{ "addressToken": [] }, { "addressBearer": [] }, { "signalKey": [] }])
            }
            (Asks::SignalKey, _) => json!([{ "signalKey": [] }, { "bearerAuth": [] }, { "addressToken": [] }]),
        }
    }

    fn parameters(&self, listed: &DescribedRoute, path: &str) -> Vec<Value> {
        let names = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let of_path = names.map(|name| {
            let schema = match name {
                "graph" => json!({ "type": "string", "enum": self.graphs }),
                "signal_id" => json!({ "type": "string", "minLength": 1, "maxLength": ID }),
                _ => json!({ "type": "string", "minLength": 1, "maxLength": ID, "pattern": "^[!-~]+$" }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        });
        let text = json!({ "type": "string" });
        let of_query = listed.query.iter().map(|(name, about)| {
            json!({ "name": name, "in": "query", "required": false, "description": about, "schema": text })
        });
        let key = json!({ "type": "string", "minLength": 1, "maxLength": 255 });
        let about = "The same request with the same key is answered again, and does nothing more.";
        let key = json!({
            "name": IDEMPOTENCY_HEADER, "in": "header", "required": false, "description": about, "schema": key,
        });
        of_path.chain(of_query).chain(listed.is_repeatable.then_some(key)).collect()
    }

    fn responses(&mut self, listed: &DescribedRoute) -> Map {
        let mut responses = Map::new();
        for gives in listed.gives {
            let mut headers = json!({ "x-request-id": { "$ref": "#/components/headers/RequestId" } });
            if gives.located {
                headers["location"] = json!({ "$ref": "#/components/headers/Location" });
            }
            let response = json!({
                "description": gives.when,
                "headers": headers,
                "content": { "application/json": { "schema": self.any_of(gives.types) } },
            });
            responses.insert(gives.status.to_string(), response);
        }
        let refuses: Vec<u16> =
            listed.refuses.iter().copied().filter(|status| self.is_possible(&listed.asks, *status)).collect();
        for status in refuses {
            let mut headers = json!({ "x-request-id": { "$ref": "#/components/headers/RequestId" } });
            if matches!(status, 429 | 503) {
                headers["retry-after"] = json!({ "$ref": "#/components/headers/RetryAfter" });
            }
            if matches!(status, 401 | 403) {
                headers["www-authenticate"] = json!({ "$ref": "#/components/headers/Challenge" });
            }
            let mut types: Vec<SchemaOf> = vec![schema::<TurnRefusal>];
            types.extend(listed.fails);
            let response = json!({
                "description": meaning(status),
                "headers": headers,
                "content": { "application/json": { "schema": self.any_of(&types) } },
            });
            responses.insert(status.to_string(), response);
        }
        responses
    }

    /// True if a route that may answer `status` does so in this deployment.
    fn is_possible(&self, asks: &Asks, status: u16) -> bool {
        match (asks, self.authorization) {
            (Asks::Principal(_), Authorization::None) => !matches!(status, 401 | 403),
            (Asks::Principal(_), Authorization::AwsIam) => status != 403,
            (Asks::Principal(_), Authorization::Keys)
            | (Asks::Nothing | Asks::Token | Asks::TokenOrSignalKey | Asks::SignalKey, _) => true,
        }
    }

    fn any_of(&mut self, types: &[SchemaOf]) -> Value {
        let schemas: Vec<Schema> = types.iter().map(|schema| schema(&mut self.answers)).collect();
        match schemas.as_slice() {
            [one] => json!(one),
            more => json!({ "anyOf": more }),
        }
    }
}

/// Meaning of a refusal with `status`, in all routes.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "It cannot be read, or is ambiguous.",
        401 => "The key is missing or wrong.",
        403 => "The key is not for this.",
        404 => "There is no such thing, or the token is not for it.",
        409 => {
            "The invocation is not asleep or was answered otherwise, the id or key belongs to another request, or another invocation waits for the signal."
        }
        410 => "It is over: the pause, its time, the address or the invocation.",
        413 => "The body, or the state that it makes, is too large.",
        415 => "The body is not said to be JSON.",
        422 => "It is well-formed and cannot be taken: send something else.",
        429 => "Too many turns of the session wait already: send it again later.",
        500 => "Somebody has to look at it.",
        502 => "A provider of models refused this deployment or answered nonsense.",
        503 => "It may work later: send the same again.",
        504 => "Something may have been written: look before sending it again.",
        _ => "It was refused.",
    }
}

fn headers() -> Value {
    let text = |about: &str| json!({ "description": about, "schema": { "type": "string" } });
    json!({
        "RequestId": text("The name of the request, as the log has it."),
        "Location": text("Where to look: the status_url."),
        "Challenge": text("What to prove who you are with."),
        "RetryAfter": { "description": "After how many seconds.", "schema": { "type": "integer", "minimum": 0 } },
    })
}

fn schemes() -> Value {
    json!({
        "signature": {
            "type": "apiKey", "in": "header", "name": "Authorization", "x-amazon-apigateway-authtype": "awsSigv4",
            "description": "A request that is signed for AWS (SigV4).",
        },
        "addressToken": {
            "type": "apiKey", "in": "query", "name": "token", "description": "The token of an address that an answer held.",
        },
        "addressBearer": { "type": "http", "scheme": "bearer", "description": "The same token, where it stands in no log." },
        "signalKey": { "type": "http", "scheme": "bearer", "description": "The key of whoever sends signals." },
    })
}
