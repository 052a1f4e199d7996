//! The types, the table of operations and the document, compared with the published contract, one by one. Where the
//! contract is not at hand, the comparisons are reported as ignored.
//!
//! `oneOf` is read as `anyOf`: a message is also an object, so a strict reader would refuse the protocol's own bodies.

#![expect(clippy::disallowed_methods, reason = "the contract is a file")]
#![expect(clippy::unwrap_used, reason = "a contract that has not the shape of an OpenAPI document fails the test")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use dormouse_protocol::Scope;
use dormouse_protocol::openapi::{DocumentInfo, document};
use dormouse_protocol::receipt::wire::WireReceipt;
use dormouse_protocol::replay::ReplayTaskRequest;
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Serialize;
use serde_json::{Map, Value, json};
use support::{RoundTrip, TYPES, lost, merged, resolve, samples, validator};

/// Additions of ours to the contract, on purpose: the fields of A2A 0.3, the second spelling of the interfaces, and the
/// cursor of a stream as a parameter of its address.
const MORE: &[&str] = &[
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
    "interfaces",
];

/// Optional fields of ours in requests of the contract, each of which says that it is one.
const EXTENDED: &[&str] = &["files", "template"];

/// Components of our own operations, which the contract does not have.
const EXTENSIONS: &[&str] = &[
    "CreateConnectorRequest",
    "CreateQuotaRequest",
    "CreateWebhookRequest",
    "ReorderQueueRequest",
    "SessionQueue",
    "UpdateConnectorRequest",
    "UpdateQuotaRequest",
    "Webhook",
    "WebhookList",
    "WorkspaceDeletion",
];

/// Schemas of the contract that say nothing by themselves: each is compared inside of the types that use it.
const INSIDE: &[&str] = &[
    "A2aSecurityScheme",
    "ArtifactRefPart",
    "AutonomyTier",
    "EventStream",
    "FileRefPart",
    "ImageRefPart",
    "JsonObject",
    "JsonPart",
    "JsonValue",
    "Metadata",
    "PaginatedList",
    "PartInput",
    "PartVisibility",
    "ReplayMode",
    "ResourceEnvelope",
    "TextPart",
    "Timestamp",
    "ToolCallPart",
    "ToolResultPart",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/harn");
    let text = std::fs::read_to_string(folder.join("openapi.yaml"));
    let trials = match text {
        Ok(text) => trials(&any_of(serde_yaml_ng::from_str(&text).unwrap()), &folder),
        Err(_) => {
            let names = ["operations", "components", "receipts", "replays"];
            names.map(|name| Trial::test(name, || Ok(())).with_ignored_flag(true)).into()
        }
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(contract: &Value, folder: &Path) -> Vec<Trial> {
    let contract = Arc::new(contract.clone());
    let ours = Arc::new(document(DocumentInfo { title: "Dormouse", description: "" }));
    let mut trials = Vec::new();
    let names = |document: &Value| -> BTreeSet<(String, String)> {
        let paths = document["paths"].as_object().unwrap().iter();
        let pairs = paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
        });
        pairs.collect()
    };
    let theirs = names(&contract);
    let mut known = names(&ours);
    // Those of our own are marked.
    known.retain(|(path, method)| ours["paths"][path][method]["x-extension"] != true);
    trials.push(Trial::test("the same operations", {
        let theirs = theirs.clone();
        move || same("operations", &theirs, &known)
    }));
    for (path, method) in theirs {
        let contract = Arc::clone(&contract);
        let ours = Arc::clone(&ours);
        let name = format!("operation {} {path}", method.to_uppercase());
        trials.push(Trial::test(name, move || operation(&contract, &ours, &path, &method)));
    }
    let components: BTreeSet<String> = contract["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
    trials.push(Trial::test("every component is compared", move || {
        let compared = TYPES
            .iter()
            .filter(|(name, _)| !EXTENSIONS.contains(name))
            .map(|(name, _)| *name)
            .chain(INSIDE.iter().copied());
        same("components", &components, &compared.map(str::to_owned).collect())
    }));
    let flow = &contract["components"]["securitySchemes"]["oauth2ClientCredentials"]["flows"]["clientCredentials"];
    let scopes: Vec<String> = flow["scopes"].as_object().unwrap().keys().cloned().collect();
    trials.push(Trial::test("every scope is known", move || {
        none(scopes.into_iter().find(|scope| Scope::parse(scope).is_none()))
    }));
    for &(name, round_trip) in TYPES.iter().filter(|(name, _)| !EXTENSIONS.contains(name)) {
        let contract = Arc::clone(&contract);
        let ours = Arc::clone(&ours);
        trials.push(Trial::test(format!("component {name}"), move || component(&contract, &ours, name, round_trip)));
    }
    for file in ["receipts/task-receipt.json", "replay/task-replay-receipt.json"] {
        let schema = folder.join("receipts/receipt-2026-04-25.schema.json");
        let file = folder.join(file);
        let name = format!("receipt {}", file.file_stem().unwrap().to_string_lossy());
        trials.push(Trial::test(name, move || receipt(&schema, &file)));
    }
    let file = folder.join("replay/task-replay-request.json");
    trials.push(Trial::test("replay task-replay-request", move || {
        let sent = read(&file);
        let request: ReplayTaskRequest = serde_json::from_value(sent.clone())?;
        none(lost(&sent, &serde_json::to_value(&request)?, "request"))
    }));
    trials
}

fn operation(contract: &Value, ours: &Value, path: &str, method: &str) -> Result<(), Failed> {
    let theirs = &contract["paths"][path][method];
    let known = &ours["paths"][path][method];
    same("operationId", &theirs["operationId"], &known["operationId"])?;
    same("tags", &theirs["tags"], &known["tags"])?;
    same("security", &theirs.get("security"), &known.get("security"))?;
    let mut mine = parameters(ours, known);
    if path.ends_with("stream") {
        // Browsers cannot send the header when they open a stream; text while it comes is for who asks for it.
        mine.retain(|parameter| parameter["name"] != "after_event_id" && parameter["name"] != "deltas");
    }
    if path.starts_with("/v1/personas") || path.starts_with("/v1/tools") {
        // Files of a workspace declare personas, too, with their tools, for who asks for its own.
        mine.retain(|parameter| parameter["name"] != "workspace_id");
    }
    if path.ends_with("/permission-requests") {
        // Who answers wants those that wait.
        mine.retain(|parameter| parameter["name"] != "status");
    }
    same("parameters", &parameters(contract, theirs), &mine)?;
    let body = |document: &Value, operation: &Value| {
        let body = operation.get("requestBody")?;
        let required = body["required"].as_bool().unwrap_or_default();
        Some((required, canonical(document, &body["content"]["application/json"]["schema"])))
    };
    same("requestBody", &body(contract, theirs), &body(ours, known))?;
    let answers = |document: &Value, operation: &Value| -> Map<String, Value> {
        let answers = operation["responses"].as_object().unwrap().iter();
        let shape = |answer: &Value| {
            let answer = answer.get("$ref").map_or(answer, |to| resolve(document, to.as_str().unwrap()));
            let content = answer.get("content").and_then(Value::as_object).into_iter().flatten();
            content.map(|(kind, content)| json!([kind, canonical(document, &content["schema"])])).collect::<Value>()
        };
        answers.map(|(status, answer)| (status.clone(), shape(answer))).collect()
    };
    same("responses", &answers(contract, theirs), &answers(ours, known))
}

fn component(contract: &Value, ours: &Value, name: &str, round_trip: RoundTrip) -> Result<(), Failed> {
    let schemas = |document: &Value| document["components"]["schemas"].get(name).cloned();
    let (Some(theirs), Some(known)) = (schemas(contract), schemas(ours)) else {
        return Err(format!("{name} is missing").into());
    };
    same("schema", &canonical(contract, &theirs), &canonical(ours, &known))?;
    let validator = validator(contract, name);
    for sample in samples(contract, &theirs) {
        let mut read = sample;
        // The card's word is the one thing in which we follow the clients and not the contract.
        if name == "HarnAgentCard" {
            read["object"] = json!("agent_card");
        }
        let mut written = round_trip(read.clone()).map_err(|error| format!("{error}: {read}"))?;
        none(lost(&read, &written, name))?;
        if name == "HarnAgentCard" {
            written["object"] = json!("harn_agent_card");
        }
        none(validator.iter_errors(&written).next().map(|error| format!("{}: {error}", error.instance_path())))?;
    }
    Ok(())
}

fn receipt(schema: &Path, file: &Path) -> Result<(), Failed> {
    let issued = read(file);
    let receipt: WireReceipt = serde_json::from_value(issued.clone())?;
    let written = serde_json::to_value(&receipt)?;
    same("receipt", &issued, &written)?;
    let validator = jsonschema::validator_for(&read(schema))?;
    none(validator.iter_errors(&written).next().map(|error| error.to_string()))?;
    // Closed, and everything in it is needed.
    let mut open = issued.clone();
    open["surprise"] = json!(1);
    if serde_json::from_value::<WireReceipt>(open).is_ok() {
        return Err("a receipt with an unknown field was read".into());
    }
    for field in read(schema)["required"].as_array().unwrap() {
        let mut less = issued.as_object().unwrap().clone();
        less.remove(field.as_str().unwrap());
        if serde_json::from_value::<WireReceipt>(Value::Object(less)).is_ok() {
            return Err(format!("a receipt without {field} was read").into());
        }
    }
    Ok(())
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn same<T: PartialEq + Serialize>(what: &str, contract: &T, ours: &T) -> Result<(), Failed> {
    let contract = serde_json::to_value(contract)?;
    let ours = serde_json::to_value(ours)?;
    none(difference(&contract, &ours).map(|difference| format!("{what}{difference}")))
}

/// The first place at which two values differ, and what is there.
fn difference(contract: &Value, ours: &Value) -> Option<String> {
    match (contract, ours) {
        (Value::Object(contract), Value::Object(ours)) => {
            let names: BTreeSet<&String> = contract.keys().chain(ours.keys()).collect();
            names.into_iter().find_map(|name| {
                let pair =
                    |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_else(|| json!("(nothing)"));
                difference(&pair(contract), &pair(ours)).map(|inner| format!("/{name}{inner}"))
            })
        }
        (Value::Array(contract), Value::Array(ours)) if contract.len() == ours.len() => {
            let mut pairs = contract.iter().zip(ours).enumerate();
            pairs.find_map(|(at, (a, b))| difference(a, b).map(|inner| format!("/{at}{inner}")))
        }
        (contract, ours) if contract == ours => None,
        (contract, ours) => Some(format!("\n  contract: {contract}\n  ours:     {ours}")),
    }
}

fn none(fault: Option<String>) -> Result<(), Failed> {
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

/// The document with `anyOf` for every `oneOf`.
fn any_of(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.into_iter().map(|(name, value)| {
                let name = if name == "oneOf" { "anyOf".to_owned() } else { name };
                (name, any_of(value))
            });
            Value::Object(renamed.collect())
        }
        Value::Array(elements) => elements.into_iter().map(any_of).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

fn parameters(document: &Value, operation: &Value) -> Vec<Value> {
    let listed = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let mut all: Vec<Value> = listed
        .map(|parameter| {
            let parameter = parameter.get("$ref").map_or(parameter, |to| resolve(document, to.as_str().unwrap()));
            json!({
                "name": parameter["name"], "in": parameter["in"], "required": parameter["required"],
                "schema": parameter["schema"],
            })
        })
        .collect();
    all.sort_by_key(|parameter| (parameter["in"].to_string(), parameter["name"].to_string()));
    all
}

/// A schema in one of the many ways to write it: references resolved, annotations gone, `allOf` merged, nested and
/// type alternatives flat and sorted. Beside a plain object, further objects say nothing.
fn canonical(document: &Value, schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return json!({}) };
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return canonical(document, resolve(document, reference));
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        return canonical(document, &merged(document, parts));
    }
    let alternatives: Option<Vec<Value>> = match (schema.get("anyOf").or(schema.get("oneOf")), schema.get("type")) {
        (Some(Value::Array(alternatives)), _) => Some(alternatives.clone()),
        (_, Some(Value::Array(types))) => Some(
            types
                .iter()
                .map(|kind| match kind.as_str() {
                    Some("null") => json!({"type": "null"}),
                    _ => Value::Object(schema.clone().into_iter().chain([("type".to_owned(), kind.clone())]).collect()),
                })
                .collect(),
        ),
        _ => None,
    };
    if let Some(alternatives) = alternatives {
        let mut flat: Vec<Value> = alternatives
            .iter()
            .map(|schema| canonical(document, schema))
            .flat_map(|schema| match schema.get("anyOf").and_then(Value::as_array) {
                Some(inner) => inner.clone(),
                None => vec![schema],
            })
            .collect();
        let plain = json!({"type": "object"});
        if flat.contains(&plain) {
            flat.retain(|schema| schema["type"] != "object" || *schema == plain);
        }
        flat.sort_by_key(Value::to_string);
        flat.dedup();
        return if flat.len() == 1 { flat.remove(0) } else { json!({"anyOf": flat}) };
    }
    let mut plain = Map::new();
    for (name, value) in schema {
        match name.as_str() {
            "const" => plain.insert("enum".to_owned(), json!([value])),
            "enum" => plain.insert(name.clone(), sorted(value)),
            "required" if value != &json!([]) => plain.insert(name.clone(), sorted(value)),
            "properties" => {
                let known = value.as_object().unwrap().iter().filter(|(name, _)| {
                    if EXTENDED.contains(&name.as_str()) && schema["properties"][name]["x-extension"] == true {
                        return false;
                    }
                    let card = schema["properties"].get("a2a_card").or(schema["properties"].get("supportedInterfaces"));
                    card.is_none() || !MORE.contains(&name.as_str())
                });
                let properties: Map<String, Value> = known
                    .map(|(name, schema)| {
                        let schema = canonical(document, schema);
                        let card = schema == json!({"type": "string", "enum": ["agent_card"]});
                        (
                            name.clone(),
                            if card { json!({"type": "string", "enum": ["harn_agent_card"]}) } else { schema },
                        )
                    })
                    .collect();
                plain.insert(name.clone(), by_name(properties))
            }
            "additionalProperties" if value != &json!(true) => plain.insert(name.clone(), canonical(document, value)),
            "items" => plain.insert(name.clone(), canonical(document, value)),
            "format" if value != "uint64" => plain.insert(name.clone(), value.clone()),
            "type" | "pattern" | "minimum" | "maximum" | "minItems" | "minLength" | "maxLength" => {
                plain.insert(name.clone(), value.clone())
            }
            // Words for people, and `default`, which asks nothing of a value.
            _ => None,
        };
    }
    by_name(plain)
}

fn sorted(list: &Value) -> Value {
    let mut list = list.as_array().unwrap().clone();
    list.sort_by_key(Value::to_string);
    list.dedup();
    list.into()
}

fn by_name(fields: Map<String, Value>) -> Value {
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    Value::Object(fields.into_iter().collect())
}
