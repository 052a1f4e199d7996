//! Attributes of spans and log records (conformance-adapter §5.8, §5.10).

use dormouse_otel::IMPLEMENTATION;
use dormouse_ports::Map;
use opentelemetry::{Array, KeyValue, StringValue, Value as Attribute};
use serde_json::Value;

use super::{differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// Attributes as JSON.
pub(super) fn map<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> Map {
    attributes.into_iter().map(|attribute| (attribute.key.to_string(), json(&attribute.value))).collect()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is open, and has no more variants today")]
fn json(value: &Attribute) -> Value {
    match value {
        Attribute::Bool(value) => (*value).into(),
        Attribute::I64(value) => (*value).into(),
        Attribute::F64(value) => (*value).into(),
        Attribute::String(text) => text.as_str().into(),
        Attribute::Array(Array::Bool(items)) => items.clone().into(),
        Attribute::Array(Array::I64(items)) => items.clone().into(),
        Attribute::Array(Array::F64(items)) => items.clone().into(),
        Attribute::Array(Array::String(items)) => items.iter().map(StringValue::as_str).collect(),
        other => other.to_string().into(),
    }
}

/// Checks `attributes`, of which each must be there, and `attributes_absent`, of which none may be.
pub(super) fn check(expected: &mut Directives<'_>, actual: &Map, seen: &Evidence) -> Result<(), Failure> {
    for (key, wanted) in expected.mapping("attributes")?.into_iter().flatten() {
        let actual = actual.get(key).ok_or_else(|| differs(format!("attribute `{key}`"), "none"))?;
        matches(wanted, actual, seen).map_err(|failure| failure.within(key))?;
    }
    for key in expected.texts("attributes_present")?.unwrap_or_default() {
        if !actual.contains_key(&key) {
            return Err(differs(format!("attribute `{key}`"), "none"));
        }
    }
    for key in expected.texts("attributes_absent")?.unwrap_or_default() {
        if let Some(actual) = actual.get(&key) {
            return Err(differs(format!("no attribute `{key}`"), actual));
        }
    }
    Ok(())
}

/// A value, or a mapping of assertions about it.
fn matches(wanted: &Value, actual: &Value, seen: &Evidence) -> Result<(), Failure> {
    const ASSERTIONS: &[&str] = &["non_empty_string", "harness_parameterized"];
    let asserts = wanted.as_object().filter(|map| map.keys().all(|key| ASSERTIONS.contains(&key.as_str())));
    let Some(asserts) = asserts else { return same(wanted, actual, seen) };
    if asserts.get("non_empty_string") == Some(&Value::Bool(true)) {
        same(&"<any-string>".into(), actual, seen)?;
    }
    match asserts.get("harness_parameterized").and_then(Value::as_str) {
        None => Ok(()),
        Some("implementation_name") => same(&IMPLEMENTATION.into(), actual, seen),
        Some(other) => Err(Failure::missing(format!("the harness parameter `{other}`"))),
    }
}
