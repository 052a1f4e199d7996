//! The attributes of the specification (observability §5).

use std::sync::Arc;

use dormouse_engine::{Identity, InvocationStart, NodeEvent};
use dormouse_ports::{Map, SignalDescriptor};
use opentelemetry::{Array, KeyValue, StringValue, Value};

/// What `openarmature.implementation.name` says (§5.1).
pub const IMPLEMENTATION: &str = "openarmature-rust";

/// Which specification is implemented (§5.1). Its text carries no version of its own, so this names the newest proposal
/// that it contains.
pub const SPEC_VERSION: &str = "proposal-0115";

pub(crate) const OUTCOME: &str = "openarmature.outcome";
pub(crate) const ERROR_CATEGORY: &str = "openarmature.error.category";

/// What every span of an invocation carries (§5.6).
pub(crate) fn cross_cutting(identity: &Identity) -> Vec<KeyValue> {
    let mut all = vec![KeyValue::new("openarmature.correlation_id", identity.correlation_id.clone())];
    if let Some(session_id) = &identity.session_id {
        all.push(KeyValue::new("openarmature.session_id", session_id.as_str().to_owned()));
    }
    all.extend(flattened("openarmature.user", &identity.metadata));
    all
}

/// What the invocation span carries besides (§5.1).
pub(crate) fn invocation(start: &InvocationStart) -> Vec<KeyValue> {
    vec![
        KeyValue::new("openarmature.invocation_id", start.identity.invocation_id.as_str().to_owned()),
        KeyValue::new("openarmature.graph.entry_node", start.entry_node.to_string()),
        KeyValue::new("openarmature.graph.spec_version", SPEC_VERSION),
        KeyValue::new("openarmature.implementation.name", IMPLEMENTATION),
        KeyValue::new("openarmature.implementation.version", env!("CARGO_PKG_VERSION")),
    ]
}

/// What a node span carries besides (§5.2).
pub(crate) fn node(event: &NodeEvent) -> Vec<KeyValue> {
    vec![
        KeyValue::new("openarmature.node.name", event.node_name.to_string()),
        KeyValue::new("openarmature.node.namespace", names(&event.namespace)),
        KeyValue::new("openarmature.node.step", i64::try_from(event.step).unwrap_or(i64::MAX)),
        KeyValue::new("openarmature.node.attempt_index", i64::from(event.attempt_index)),
    ]
}

/// What the span of a suspending node carries besides (§5.8).
pub(crate) fn suspension(descriptor: &SignalDescriptor) -> Vec<KeyValue> {
    let signal_id = descriptor.signal_id.as_str().to_owned();
    let metadata = descriptor.metadata.iter().flat_map(|map| flattened("openarmature.suspension.metadata", map));
    [KeyValue::new("openarmature.suspension.signal_id", signal_id)].into_iter().chain(metadata).collect()
}

/// An array of names.
fn names(names: &[Arc<str>]) -> Value {
    Value::Array(Array::String(names.iter().map(|name| StringValue::from(name.to_string())).collect()))
}

/// Each entry of `map` as an attribute of its own. What is no scalar and no array of one type becomes its JSON; null
/// is left out.
fn flattened(prefix: &str, map: &Map) -> Vec<KeyValue> {
    let attribute = |(key, value)| Some(KeyValue::new(format!("{prefix}.{key}"), self::value(value)?));
    map.iter().filter_map(attribute).collect()
}

fn value(value: &serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    Some(match value {
        Json::Null => return None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => number.as_i64().map(Value::I64).or_else(|| number.as_f64().map(Value::F64))?,
        Json::String(text) => Value::String(text.clone().into()),
        Json::Array(items) => array(items).map_or_else(|| Value::String(value.to_string().into()), Value::Array),
        Json::Object(_) => Value::String(value.to_string().into()),
    })
}

fn array(items: &[serde_json::Value]) -> Option<Array> {
    let strings = || items.iter().map(|item| item.as_str().map(|text| text.to_owned().into())).collect();
    let flags = || items.iter().map(serde_json::Value::as_bool).collect();
    let integers = || items.iter().map(serde_json::Value::as_i64).collect();
    let numbers = || items.iter().map(serde_json::Value::as_f64).collect();
    let array = strings().map(Array::String).or_else(|| flags().map(Array::Bool));
    array.or_else(|| integers().map(Array::I64)).or_else(|| numbers().map(Array::F64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_and_arrays_of_one_type_keep_their_type() {
        let kept = |given: serde_json::Value| value(&given);
        assert_eq!(kept(json!(true)), Some(Value::Bool(true)));
        assert_eq!(kept(json!(7)), Some(Value::I64(7)));
        assert_eq!(kept(json!(0.5)), Some(Value::F64(0.5)));
        assert_eq!(kept(json!([1, 2])), Some(Value::Array(Array::I64(vec![1, 2]))));
        assert_eq!(kept(json!([1, 0.5])), Some(Value::Array(Array::F64(vec![1.0, 0.5]))));
    }

    #[test]
    fn what_does_not_flatten_is_json_and_null_is_nothing() {
        assert_eq!(value(&json!({ "a": [1, "b"] })), Some(Value::String(r#"{"a":[1,"b"]}"#.into())));
        assert_eq!(value(&json!([1, "b"])), Some(Value::String(r#"[1,"b"]"#.into())));
        assert_eq!(value(&serde_json::Value::Null), None);
    }
}
