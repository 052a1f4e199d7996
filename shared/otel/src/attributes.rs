//! The attributes of the specification (observability §5).

use std::sync::Arc;

use dormouse_engine::{Identity, NodeEvent, ObservedError, Operation};
use dormouse_ports::{AttributeValue, Category, InvocationId, Map, SessionId, SignalDescriptor};
use opentelemetry::{Array, KeyValue, StringValue, Value};

use crate::place::{EnteredNode, SpanPlace};

/// Value of `openarmature.implementation.name` (§5.1).
pub const IMPLEMENTATION: &str = "openarmature-rust";

/// Version of the implemented specification (§5.1). Its text names no version of its own, only the proposals that it
/// contains; the newest, 0115, is version 0.109.0 according to the reference implementation's manifest.
pub const SPEC_VERSION: &str = "0.109.0";

const BRANCH_NAME: &str = "openarmature.node.branch_name";
pub(crate) const SIGNAL_ID: &str = "openarmature.suspension.signal_id";
pub(crate) const OUTCOME: &str = "openarmature.outcome";
pub(crate) const ERROR_CATEGORY: &str = "openarmature.error.category";

/// Attributes of every span of an invocation (§5.6).
pub(crate) fn cross_cutting(identity: &Identity) -> Vec<KeyValue> {
    let mut all = vec![KeyValue::new("openarmature.correlation_id", identity.correlation_id.clone())];
    if let Some(session_id) = &identity.session_id {
        all.push(session(session_id));
    }
    all.extend(user(&identity.metadata));
    all
}

/// The most entries of the caller's metadata that are attributes. A span takes 128, and those of its outcome come last: a caller
/// with many would be one whose failures nobody finds.
const MOST_OF_USER: usize = 96;

/// Caller-supplied metadata (§5.6).
pub(crate) fn user(metadata: &Map) -> Vec<KeyValue> {
    flattened("openarmature.user", metadata.iter().take(MOST_OF_USER))
}

pub(crate) fn session(session_id: &SessionId) -> KeyValue {
    KeyValue::new("openarmature.session_id", session_id.as_str().to_owned())
}

pub(crate) fn invocation_id(invocation_id: &InvocationId) -> KeyValue {
    KeyValue::new("openarmature.invocation_id", invocation_id.as_str().to_owned())
}

/// Further attributes of the invocation span (§5.1).
pub(crate) fn invocation(identity: &Identity, entry_node: &str) -> Vec<KeyValue> {
    vec![
        invocation_id(&identity.invocation_id),
        KeyValue::new("openarmature.graph.entry_node", entry_node.to_owned()),
        KeyValue::new("openarmature.graph.spec_version", SPEC_VERSION),
        KeyValue::new("openarmature.implementation.name", IMPLEMENTATION),
        KeyValue::new("openarmature.implementation.version", env!("CARGO_PKG_VERSION")),
    ]
}

/// Further attributes of a node span (§5.2), and its position in fan-outs and branches (§5.4, §5.7).
pub(crate) fn node(event: &NodeEvent) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("openarmature.node.name", event.node_name.to_string()),
        KeyValue::new("openarmature.node.namespace", names(&event.namespace)),
        KeyValue::new("openarmature.node.step", i64::try_from(event.step).unwrap_or(i64::MAX)),
        KeyValue::new("openarmature.node.attempt_index", i64::from(event.attempt_index)),
    ];
    all.extend(event.fan_out_index.map(fan_out_index));
    all.extend(event.branch_name.as_ref().map(|name| KeyValue::new(BRANCH_NAME, name.to_string())));
    all
}

/// Attributes of the span of an operation within a node (§5.5), besides those of every span.
pub(crate) fn operation(operation: &Operation) -> Vec<KeyValue> {
    let own = operation.attributes.iter().map(|(name, value)| KeyValue::new(*name, of_port(value)));
    let filed = operation.attributes.iter().any(|(name, _)| *name == ERROR_CATEGORY);
    let category = operation.error.as_ref().filter(|_| !filed).and_then(|error| error.category.as_ref());
    own.chain(category.map(|category| KeyValue::new(ERROR_CATEGORY, category.as_str().to_owned()))).collect()
}

fn of_port(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => text.clone().into(),
        AttributeValue::Texts(texts) => {
            Value::Array(Array::String(texts.iter().cloned().map(StringValue::from).collect()))
        }
        AttributeValue::Flag(flag) => (*flag).into(),
        AttributeValue::Integer(number) => (*number).into(),
        AttributeValue::Number(number) => (*number).into(),
    }
}

/// Further attributes of the span of a subgraph, a fan-out instance or a branch (§5.3, §5.4, §5.7).
pub(crate) fn entered(entered: &EnteredNode) -> Vec<KeyValue> {
    let subgraph = entered.entry.graph.as_deref().map_or("", |graph| &*graph.name);
    let node = entered.node.to_string();
    match (entered.fan_out_index, &entered.branch) {
        (Some(index), _) => {
            vec![fan_out_index(index), KeyValue::new("openarmature.fan_out.parent_node_name", node)]
        }
        (None, Some(branch)) => vec![
            KeyValue::new(BRANCH_NAME, branch.to_string()),
            KeyValue::new("openarmature.parallel_branches.parent_node_name", node),
        ],
        (None, None) => vec![
            KeyValue::new("openarmature.node.name", node),
            KeyValue::new("openarmature.subgraph.name", subgraph.to_owned()),
        ],
    }
}

/// Further attributes of the span of a fan-out node or a parallel-branches node (§5.4, §5.7).
pub(crate) fn dispatcher(event: &NodeEvent) -> Vec<KeyValue> {
    let mut all = Vec::new();
    if let Some(config) = &event.fan_out_config {
        let concurrency = config.concurrency.map_or(0, count);
        all.push(KeyValue::new("openarmature.fan_out.item_count", count(config.item_count)));
        all.push(KeyValue::new("openarmature.fan_out.concurrency", concurrency));
        all.push(KeyValue::new("openarmature.fan_out.error_policy", config.error_policy));
    }
    if let Some(config) = &event.parallel_branches_config {
        all.push(KeyValue::new("openarmature.parallel_branches.branch_count", count(config.branch_count)));
        all.push(KeyValue::new("openarmature.parallel_branches.error_policy", config.error_policy));
    }
    all
}

/// The category that a failed node is filed under (§5.2): that which its body raised, where it named one; of a branch
/// that is a plain call and of every other place the category of graph-engine §4.
pub(crate) fn category<'e>(place: &SpanPlace, error: &'e ObservedError) -> &'e Category {
    match place {
        SpanPlace::Node { .. } if error.category == Category::NodeException => &error.derived_category,
        SpanPlace::Node { .. } | SpanPlace::Inside(_) => &error.category,
    }
}

fn fan_out_index(index: u32) -> KeyValue {
    KeyValue::new("openarmature.node.fan_out_index", i64::from(index))
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Names of sentences for people in what a pause says of itself.
const TOLD: [&str; 2] = ["description", "reason"];

/// Further attributes of the span of a suspending node (§5.8).
pub(crate) fn suspension(descriptor: &SignalDescriptor) -> Vec<KeyValue> {
    let signal_id = descriptor.signal_id.as_str().to_owned();
    // What is nested may be content, such as the arguments of a call that is to be approved, and so may the question to a
    // person, which says what a tool answered, and the words of a provider that could not be asked (§5.8 leaves all free).
    let plain = descriptor.metadata.iter().flatten();
    let plain = plain.filter(|(name, value)| !TOLD.contains(&name.as_str()) && !is_nested(value));
    let metadata = flattened("openarmature.suspension.metadata", plain);
    [KeyValue::new(SIGNAL_ID, signal_id)].into_iter().chain(metadata).collect()
}

/// An array of names.
fn names(names: &[Arc<str>]) -> Value {
    Value::Array(Array::String(names.iter().map(|name| StringValue::from(name.to_string())).collect()))
}

fn is_nested(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Object(_) => true,
        serde_json::Value::Array(items) => items.iter().any(|item| item.is_object() || item.is_array()),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => false,
    }
}

/// Each of `entries` as an attribute of its own. A value that is no scalar and no array of one type becomes its JSON;
/// null is left out.
fn flattened<'m>(
    prefix: &str,
    entries: impl IntoIterator<Item = (&'m String, &'m serde_json::Value)>,
) -> Vec<KeyValue> {
    let attribute = |(key, value)| Some(KeyValue::new(format!("{prefix}.{key}"), self::value(value)?));
    entries.into_iter().filter_map(attribute).collect()
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
    fn all<'j, T>(items: &'j [serde_json::Value], one: impl Fn(&'j serde_json::Value) -> Option<T>) -> Option<Vec<T>> {
        items.iter().map(one).collect()
    }
    let strings = || all(items, |item| item.as_str().map(|text| StringValue::from(text.to_owned())));
    let array = strings().map(Array::String).or_else(|| all(items, serde_json::Value::as_bool).map(Array::Bool));
    let array = array.or_else(|| all(items, serde_json::Value::as_i64).map(Array::I64));
    array.or_else(|| all(items, serde_json::Value::as_f64).map(Array::F64))
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
