//! The OpenAPI 3.1 document, made from the table of operations and from the types.
//!
//! What is served is stored beside this file as it was made, and a test makes it anew: the code that makes it is a tenth of a
//! program that is started anew time and again, and makes the same each time. `make record-openapi` stores it.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::error::ErrorResponse;
use crate::operation::{Access, Input, Level, Output, Paging, Schemas, Spec};
use crate::request::{DEFAULT_LIMIT, IDEMPOTENCY_HEADER, LAST_EVENT_ID_HEADER, MAX_LIMIT, VERSION_HEADER};
use crate::resource::PermissionStatus;
use crate::{Map, Operation, PROTOCOL_VERSION};

/// Everything about a server that the document states and this crate cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentInfo<'a> {
    /// The name of the API.
    pub title: &'a str,
    /// Description, in a sentence or two.
    pub description: &'a str,
}

/// Settings by which the schemas of the document are made.
pub fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.transforms.push(Box::new(RecursiveTransform(words_as_enum)));
    })
}

/// The document as it was made, without the name and the description of a server.
const STORED: &str = include_str!("openapi.json");

/// The document.
pub fn document(about: DocumentInfo<'_>) -> Value {
    let mut document: Value = serde_json::from_str(STORED).unwrap_or_default();
    document["info"]["title"] = about.title.into();
    document["info"]["description"] = about.description.into();
    document
}

/// The document, made from the types: what has to be stored.
pub fn make(about: DocumentInfo<'_>) -> Value {
    let mut generator = settings().for_deserialize().into_generator();
    let error = generator.subschema_for::<ErrorResponse>();
    let mut paths = Map::new();
    let mut tags: Vec<&str> = Vec::new();
    for operation in Operation::ALL {
        let spec = operation.spec();
        if !tags.contains(&spec.tag) {
            tags.push(spec.tag);
        }
        let path = paths.entry(spec.path).or_insert_with(|| json!({}));
        path[spec.method.as_str().to_ascii_lowercase()] = describe(spec, operation.schemas(), &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "description": about.description,
            "version": PROTOCOL_VERSION,
        },
        "servers": [{"url": "/"}],
        "security": [{"bearerAuth": []}],
        "tags": tags.into_iter().map(|tag| json!({"name": tag})).collect::<Value>(),
        "paths": paths,
        "components": {
            "securitySchemes": {"bearerAuth": {"type": "http", "scheme": "bearer", "bearerFormat": "API key"}},
            "responses": {"Error": {
                "description": "A refusal or a failure.",
                "content": {"application/json": {"schema": error}},
            }},
            "schemas": generator.take_definitions(true),
        },
    })
}

fn describe(spec: &Spec, schemas: Schemas, generator: &mut SchemaGenerator) -> Value {
    let mut described = json!({
        "operationId": spec.id,
        "summary": spec.summary,
        "tags": [spec.tag],
        "x-level": spec.level.as_str(),
    });
    if spec.level == Level::Extension {
        described["x-extension"] = true.into();
    }
    match spec.access {
        Access::Public | Access::Signed => described["security"] = json!([]),
        Access::AnyKey => {}
        Access::Needs(scope) => described["x-scope"] = scope.as_str().into(),
    }
    let parameters = parameters(spec);
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(schema) = schemas.input {
        let required = spec.input == Input::Required;
        described["requestBody"] =
            json!({"required": required, "content": {"application/json": {"schema": schema(generator)}}});
    }
    let content = match spec.output {
        Output::Json(_) => json!({"application/json": {"schema": schemas.output.map(|schema| schema(generator))}}),
        Output::Stream => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        Output::Bytes => json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}),
        Output::Empty => json!({}),
    };
    let success = match spec.output {
        Output::Empty => json!({"description": "Done."}),
        Output::Json(_) | Output::Stream | Output::Bytes => json!({"description": "Done.", "content": content}),
    };
    let responses = Map::from_iter([
        (spec.output.status().to_string(), success),
        ("default".to_owned(), json!({"$ref": "#/components/responses/Error"})),
    ]);
    described["responses"] = responses.into();
    described
}

fn parameters(spec: &Spec) -> Vec<Value> {
    let text = json!({"type": "string"});
    let parameter = |place: &str, name: &str, required: bool, schema: &Value| json!({"name": name, "in": place, "required": required, "schema": schema});
    let mut all = Vec::new();
    if !matches!(spec.access, Access::Public | Access::Signed) {
        all.push(parameter("header", VERSION_HEADER, true, &json!({"type": "string", "enum": [PROTOCOL_VERSION]})));
    }
    let places = spec.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    all.extend(places.map(|name| parameter("path", name, true, &text)));
    if spec.method.is_write() && spec.access != Access::Signed {
        let key = json!({"type": "string", "minLength": 1, "maxLength": 255});
        all.push(parameter("header", IDEMPOTENCY_HEADER, false, &key));
    }
    let limit = json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT});
    let status = json!({"type": "string", "enum": PermissionStatus::ALL});
    let schema = |name: &str| match name {
        "limit" => &limit,
        "status" => &status,
        _ => &text,
    };
    all.extend(spec.parameters().map(|name| parameter("query", name, false, schema(name))));
    if spec.paging == Paging::Stream {
        all.push(parameter("header", LAST_EVENT_ID_HEADER, false, &text));
    }
    all
}

/// An `enum` for alternatives of which each is one word: it means the same, and generators of clients know it better.
fn words_as_enum(schema: &mut Schema) {
    let alternatives = schema.get("oneOf").and_then(Value::as_array);
    let words: Option<Vec<Value>> = alternatives
        .and_then(|all| all.iter().map(|one| one.get("const").filter(|word| word.is_string()).cloned()).collect());
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), words.into());
    }
}
