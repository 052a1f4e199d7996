//! Events as fixtures spell them (conformance-adapter §5.8, §7).

use dormouse_engine::{NodeEvent, State};
use dormouse_ports::Map;
use serde_json::{Value, json};

use super::same;
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;
use crate::typed::of_origin;

/// The fields of an event that a fixture may name. A field that the event does not have counts as null.
const FIELDS: &[&str] = &[
    "step",
    "phase",
    "node_name",
    "namespace",
    "attempt_index",
    "pre_state",
    "post_state",
    "parent_states",
    "error",
    "descriptor",
    "fan_out_index",
    "branch_name",
    "fan_out_index_chain",
    "branch_name_chain",
    "fan_out_config",
    "parallel_branches_config",
    "error_category",
];

/// Whether `event` is as `wanted` says; other keys of `wanted` are an error.
pub(super) fn matches(wanted: Directives<'_>, event: &NodeEvent, seen: &Evidence) -> Result<(), Failure> {
    event_matches(wanted, &event_map(event), seen)
}

fn event_matches(mut wanted: Directives<'_>, event: &Map, seen: &Evidence) -> Result<(), Failure> {
    for key in FIELDS {
        let Some(value) = wanted.get(key) else { continue };
        let actual = event.get(*key).cloned().unwrap_or_default();
        let actual = match (*key, value, &actual) {
            ("error", Value::String(_), Value::Object(error)) => error.get("category").cloned().unwrap_or_default(),
            ("error" | "descriptor", Value::Object(some), Value::Object(all)) => {
                Value::Object(all.iter().filter(|(key, _)| some.contains_key(*key)).map(clone_entry).collect())
            }
            _ => actual,
        };
        same(value, &actual, seen).map_err(|failure| failure.within(&format!("{}.{key}", wanted.at())))?;
    }
    wanted.done()
}

fn clone_entry((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

pub(crate) fn event_map(event: &NodeEvent) -> Map {
    let state = |state: &State| Value::Object(state.to_map());
    let mut map = of_origin(&event.origin());
    map.insert("step".into(), event.step.into());
    map.insert("phase".into(), event.phase.as_str().into());
    map.insert("node_name".into(), (*event.node_name).into());
    map.insert("pre_state".into(), state(&event.pre_state));
    map.insert("parent_states".into(), event.parent_states.iter().map(state).collect());
    if let Some(post) = &event.post_state {
        map.insert("post_state".into(), state(post));
    }
    if let Some(error) = &event.error {
        map.insert("error".into(), json!({"category": error.category, "message": error.message}));
    }
    if let Some(descriptor) = &event.descriptor {
        map.insert("descriptor".into(), json!(descriptor));
    }
    configs(event, &mut map);
    map
}

fn configs(event: &NodeEvent, map: &mut Map) {
    let name = |name: &std::sync::Arc<str>| Value::from(&**name);
    if let Some(error) = &event.error {
        map.insert("error_category".into(), json!(error.derived_category));
    }
    if let Some(config) = &event.fan_out_config {
        let config = json!({
            "item_count": config.item_count,
            "concurrency": config.concurrency,
            "error_policy": config.error_policy,
            "parent_node_name": &*config.parent_node_name,
        });
        map.insert("fan_out_config".into(), config);
    }
    if let Some(config) = &event.parallel_branches_config {
        let config = json!({
            "branch_names": config.branch_names.iter().map(name).collect::<Vec<_>>(),
            "branch_count": config.branch_count,
            "error_policy": config.error_policy,
            "parent_node_name": &*config.parent_node_name,
        });
        map.insert("parallel_branches_config".into(), config);
    }
}
