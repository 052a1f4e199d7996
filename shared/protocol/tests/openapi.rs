//! The document that is served describes what the types write.

mod support;

use std::collections::BTreeSet;

use dormouse_protocol::Operation;
use dormouse_protocol::openapi::{DocumentInfo, document, make};
use serde_json::{Value, json};
use support::{TYPES, lost, samples, validator};

const ABOUT: DocumentInfo<'_> = DocumentInfo { title: "Dormouse", description: "Agents that sleep for free." };

fn served() -> Value {
    document(ABOUT)
}

#[test]
fn what_is_served_is_what_the_types_make() {
    let (served, made) = (served(), make(ABOUT));
    for place in ["/paths", "/components/schemas"] {
        let [served, made] =
            [&served, &made].map(|document| document.pointer(place).and_then(Value::as_object).expect("a part of it"));
        let fresh = |name: &&String| served.get(*name) != made.get(*name);
        let changed: Vec<&String> = made.keys().chain(served.keys()).filter(fresh).collect();
        assert!(changed.is_empty(), "not stored as they are now, run `make record-openapi`: {changed:?}");
    }
    assert_eq!(served.to_string(), made.to_string(), "run `make record-openapi`");
}

#[test]
fn every_type_reads_and_writes_what_its_schema_says() {
    let document = served();
    for (name, round_trip) in TYPES {
        let Some(schema) = document["components"]["schemas"].get(name) else { continue };
        let validator = validator(&document, name);
        for sample in samples(&document, schema) {
            assert!(validator.is_valid(&sample), "{name}: the sample does not fit: {sample}");
            let written = round_trip(sample.clone()).unwrap_or_else(|error| panic!("{name}: {error}: {sample}"));
            assert_eq!(lost(&sample, &written, name), None);
            let faults: Vec<String> =
                validator.iter_errors(&written).map(|error| format!("{}: {error}", error.instance_path())).collect();
            assert!(faults.is_empty(), "{name}: {faults:?}: {written}");
        }
    }
}

#[test]
fn every_component_is_a_type_that_is_tried() {
    let document = served();
    let components: BTreeSet<&str> =
        document["components"]["schemas"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let tried: BTreeSet<&str> = TYPES.iter().map(|(name, _)| *name).collect();
    // Parts of a card that clients of A2A 0.3 read, and of a webhook: written by types that are tried.
    let inside = BTreeSet::from(["A2aTransport", "WebhookFormat"]);
    assert_eq!(components.difference(&tried).copied().collect::<BTreeSet<_>>(), inside);
    assert_eq!(tried.difference(&components).copied().collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn every_operation_is_in_the_document_once() {
    let document = served();
    let paths = document["paths"].as_object().expect("paths");
    let described: Vec<&str> = paths
        .values()
        .flat_map(|methods| methods.as_object().into_iter().flatten())
        .filter_map(|(_, described)| described["operationId"].as_str())
        .collect();
    let ids: BTreeSet<&str> = Operation::ALL.iter().map(|operation| operation.spec().id).collect();
    assert_eq!(described.len(), Operation::ALL.len());
    assert_eq!(described.into_iter().collect::<BTreeSet<_>>(), ids);
}

#[test]
fn the_words_of_a_status_in_a_query_are_named() {
    let document = served();
    for path in ["/v1/permission-requests", "/v1/tasks/{task_id}/permission-requests"] {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().expect("parameters");
        let status = parameters.iter().find(|parameter| parameter["name"] == "status").expect("a status");
        assert_eq!(status["schema"], json!({ "type": "string", "enum": ["pending", "approved", "denied"] }), "{path}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(elements) => elements.iter().for_each(|value| walk(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = served();
    let mut references = Vec::new();
    walk(&document, &mut references);
    assert!(references.len() > 100, "{}", references.len());
    for reference in references {
        support::resolve(&document, reference);
    }
}
