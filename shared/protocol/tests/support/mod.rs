//! Tools of both comparisons of schemas: samples made of a schema, and each type by its name.

use dormouse_protocol::event::Event;
use dormouse_protocol::receipt::*;
use dormouse_protocol::replay::*;
use dormouse_protocol::resource::*;
use dormouse_protocol::{ErrorResponse, List, PageInfo, ResourcePointer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Reads a value as a type of ours and writes it again.
pub(crate) type RoundTrip = fn(Value) -> Result<Value, String>;

fn round_trip<T: Serialize + DeserializeOwned>(value: Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(value).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

macro_rules! types {
    ($($name:literal $type:ty;)*) => { &[$(($name, round_trip::<$type>),)*] };
}

/// Every component of the document that is an object, and how it is read and written.
pub(crate) const TYPES: &[(&str, RoundTrip)] = types! {
    "A2aAgentCapabilities" A2aAgentCapabilities;
    "A2aAgentCard" A2aAgentCard;
    "A2aAgentCardSignature" A2aAgentCardSignature;
    "A2aAgentInterface" A2aAgentInterface;
    "A2aAgentProvider" A2aAgentProvider;
    "A2aAgentSkill" A2aAgentSkill;
    "AppendMessageRequest" AppendMessageRequest;
    "AppendTaskMessageRequest" AppendTaskMessageRequest;
    "Artifact" Artifact;
    "ArtifactList" List<Artifact>;
    "Branch" Branch;
    "BranchList" List<Branch>;
    "CancelTaskRequest" CancelTaskRequest;
    "Capability" Capability;
    "CapabilitySummary" CapabilitySummary;
    "CardSignature" CardSignature;
    "Connector" Connector;
    "ConnectorList" List<Connector>;
    "CreateBranchRequest" CreateBranchRequest;
    "CreateConnectorRequest" CreateConnectorRequest;
    "CreateMemoryRequest" CreateMemoryRequest;
    "CreatePersonaRequest" CreatePersonaRequest;
    "CreateQuotaRequest" CreateQuotaRequest;
    "CreateSessionRequest" CreateSessionRequest;
    "CreateVaultRequest" CreateVaultRequest;
    "CreateWebhookRequest" CreateWebhookRequest;
    "ReorderQueueRequest" ReorderQueueRequest;
    "SessionQueue" SessionQueue;
    "WorkspaceDeletion" WorkspaceDeletion;
    "CreateWorkspaceRequest" CreateWorkspaceRequest;
    "Discovery" Discovery;
    "Error" dormouse_protocol::error::ErrorBody;
    "ErrorResponse" ErrorResponse;
    "Event" Event;
    "EventList" List<Event>;
    "Failure" Failure;
    "ForkSessionRequest" ForkSessionRequest;
    "HarnAgentCard" HarnAgentCard;
    "HarnAgentInterface" HarnAgentInterface;
    "Health" Health;
    "Memory" Memory;
    "MemoryList" List<Memory>;
    "Message" Message;
    "MessageInput" MessageInput;
    "MessageList" List<Message>;
    "Outcome" Outcome;
    "OutcomeList" List<Outcome>;
    "PageInfo" PageInfo;
    "Part" Part;
    "PermissionRequest" PermissionRequest;
    "PermissionRequestList" List<PermissionRequest>;
    "PermissionResponseRequest" PermissionResponseRequest;
    "Persona" Persona;
    "PersonaList" List<Persona>;
    "Quota" Quota;
    "QuotaList" List<Quota>;
    "Receipt" Receipt;
    "ReceiptList" List<Receipt>;
    "ReceiptVerification" ReceiptVerification;
    "ReceiptWireEnvelope" ReceiptWireEnvelope;
    "RegisterArtifactRequest" RegisterArtifactRequest;
    "ReplayEventMetadata" ReplayEventMetadata;
    "ReplayOverride" ReplayOverride;
    "ReplayTaskRequest" ReplayTaskRequest;
    "ResourcePointer" ResourcePointer;
    "RuntimeMetadata" RuntimeMetadata;
    "RuntimeVersion" RuntimeVersion;
    "Session" Session;
    "SessionList" List<Session>;
    "Skill" Skill;
    "SkillList" List<Skill>;
    "SubmitTaskRequest" SubmitTaskRequest;
    "Task" Task;
    "TaskList" List<Task>;
    "TaskStatus" TaskStatus;
    "Tool" Tool;
    "ToolList" List<Tool>;
    "TruncateSessionRequest" TruncateSessionRequest;
    "TruncateSessionResponse" TruncateSessionResponse;
    "UpdateConnectorRequest" UpdateConnectorRequest;
    "UpdatePersonaRequest" UpdatePersonaRequest;
    "UpdateQuotaRequest" UpdateQuotaRequest;
    "UpdateSessionRequest" UpdateSessionRequest;
    "UpdateWorkspaceRequest" UpdateWorkspaceRequest;
    "Vault" Vault;
    "VaultList" List<Vault>;
    "VerifyReceiptRequest" VerifyReceiptRequest;
    "Webhook" Webhook;
    "WebhookList" List<Webhook>;
    "Workspace" Workspace;
    "WorkspaceFile" WorkspaceFile;
    "WorkspaceFileEntry" WorkspaceFileEntry;
    "WorkspaceFileListing" WorkspaceFileListing;
    "WorkspaceList" List<Workspace>;
    "WriteWorkspaceFileRequest" WriteWorkspaceFileRequest;
};

/// The part of `document` that `reference` names.
pub(crate) fn resolve<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let found = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
    found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

/// Values that fit `schema`: all alternatives, each property present and absent, all of them present in the first.
pub(crate) fn samples(document: &Value, schema: &Value) -> Vec<Value> {
    let Some(schema) = schema.as_object() else { return vec![json!("anything")] };
    let again = |schema: &Value| samples(document, schema);
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return again(resolve(document, reference));
    }
    if let Some(alternatives) = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array) {
        return alternatives.iter().flat_map(again).collect();
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        return again(&merged(document, parts));
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.clone();
    }
    if let Some(word) = schema.get("const") {
        return vec![word.clone()];
    }
    match schema.get("type") {
        None => vec![json!("anything")],
        Some(Value::Array(types)) => types
            .iter()
            .flat_map(|kind| {
                let mut one = schema.clone();
                one.insert("type".to_owned(), kind.clone());
                again(&Value::Object(one))
            })
            .collect(),
        Some(kind) => match kind.as_str().unwrap_or_default() {
            "object" => objects(document, schema),
            "array" => {
                let elements = schema.get("items").map(again).unwrap_or_default();
                let none = (!schema.contains_key("minItems")).then(Vec::new);
                std::iter::once(elements).chain(none).map(Value::Array).collect()
            }
            "string" => vec![text(schema).into()],
            "integer" => vec![schema.get("minimum").cloned().unwrap_or_else(|| json!(7))],
            "number" => vec![json!(0.5), json!(1)],
            "boolean" => vec![json!(true), json!(false)],
            "null" => vec![Value::Null],
            other => panic!("no sample of type {other}"),
        },
    }
}

fn text(schema: &Map<String, Value>) -> String {
    let digits = "0123456789abcdef".repeat(4);
    match (schema.get("format").and_then(Value::as_str), schema.get("pattern").and_then(Value::as_str)) {
        (Some("date-time"), _) => "2026-04-25T19:00:00Z".to_owned(),
        (Some("uri"), _) => "https://example.org/a".to_owned(),
        (_, Some("^[a-fA-F0-9]{64}$")) => digits,
        (_, Some("^sha256:[0-9a-f]{64}$")) => format!("sha256:{digits}"),
        (_, Some(other)) => panic!("no sample of {other}"),
        (_, None) => "text".to_owned(),
    }
}

fn objects(document: &Value, schema: &Map<String, Value>) -> Vec<Value> {
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let choices: Vec<(String, Vec<Value>)> =
        properties.iter().map(|(name, schema)| (name.clone(), samples(document, schema))).collect();
    let first = |choices: &[Value]| choices.first().cloned().unwrap_or_default();
    let mut full: Map<String, Value> = choices.iter().map(|(name, values)| (name.clone(), first(values))).collect();
    if properties.is_empty() {
        let more = schema.get("additionalProperties").map(|schema| samples(document, schema)).unwrap_or_default();
        full.insert("key".to_owned(), first(&more));
    }
    let minimal: Map<String, Value> =
        full.iter().filter(|(name, _)| required.contains(&json!(name))).map(|(n, v)| (n.clone(), v.clone())).collect();
    let mut all = vec![full.clone(), minimal];
    for (name, values) in choices {
        all.extend(values.into_iter().skip(1).map(|value| {
            let mut other = full.clone();
            other.insert(name.clone(), value);
            other
        }));
    }
    all.into_iter().map(Value::Object).collect()
}

/// One object schema with everything that the parts of an `allOf` ask for; later parts narrow earlier ones.
pub(crate) fn merged(document: &Value, parts: &[Value]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for part in parts {
        let part = part.get("$ref").and_then(Value::as_str).map_or(part, |reference| resolve(document, reference));
        let whole = part.get("allOf").and_then(Value::as_array).map(|parts| merged(document, parts));
        let part = whole.as_ref().unwrap_or(part);
        properties.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        required.extend(part.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// Compiles the component `name` of `document`.
pub(crate) fn validator(document: &Value, name: &str) -> jsonschema::Validator {
    let root = json!({"$ref": format!("#/components/schemas/{name}"), "components": document["components"]});
    jsonschema::options().should_validate_formats(true).build(&root).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Says where `written` lacks something that `read` had, or has it otherwise.
pub(crate) fn lost(read: &Value, written: &Value, path: &str) -> Option<String> {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            read.iter().find_map(|(name, value)| match written.get(name) {
                Some(written) => lost(value, written, &format!("{path}/{name}")),
                None if value.is_null() => None,
                None => Some(format!("{path}/{name} is gone")),
            })
        }
        (Value::Array(read), Value::Array(written)) if read.len() == written.len() => {
            read.iter().zip(written).enumerate().find_map(|(at, (a, b))| lost(a, b, &format!("{path}/{at}")))
        }
        (read, written) if read == written => None,
        (read, written) => Some(format!("{path}: {read} became {written}")),
    }
}
