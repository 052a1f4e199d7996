//! Checkpoint records (conformance-adapter §5.8; pipeline-utilities §10.2, §10.11).

use std::sync::Arc;

use dormouse_ports::{CheckpointRecord, FanOutProgress, Map};
use serde_json::{Value, json};

use super::outcome::contains;
use super::{differs, items, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// Every save in order, named by the node after which it was made.
pub(super) fn saves(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    if expected.is_u64() {
        return same(expected, &seen.saves.len().into(), seen);
    }
    let wanted = expected.as_array().ok_or_else(|| Failure::invalid("checkpoint_saves must be a list or a number"))?;
    if wanted.len() != seen.saves.len() {
        return Err(differs(format!("{} saves", wanted.len()), seen.saves.len()));
    }
    for (index, (wanted, record)) in wanted.iter().zip(&seen.saves).enumerate() {
        record_is(Directives::new(format!("[{index}]"), wanted)?, record, seen)?;
    }
    Ok(())
}

pub(super) fn every_save(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    if seen.saves.is_empty() {
        return Err(differs("saves", "none"));
    }
    seen.saves.iter().try_for_each(|record| record_is(Directives::new("save", expected)?, record, seen))
}

/// The record that is stored when the run is over.
pub(super) fn latest(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let record = seen.checkpoint.as_ref().ok_or_else(|| differs("a checkpoint", "none"))?;
    record_is(Directives::new("record", expected)?, record, seen)
}

fn record_is(mut expected: Directives<'_>, record: &CheckpointRecord, seen: &Evidence) -> Result<(), Failure> {
    for key in expected.unread() {
        let value = expected.require(key)?;
        field_is(key, value, record, seen).map_err(|failure| failure.within(key))?;
    }
    expected.done()
}

fn field_is(key: &str, expected: &Value, record: &CheckpointRecord, seen: &Evidence) -> Result<(), Failure> {
    let flag = |actual: bool| same(expected, &actual.into(), seen);
    match key {
        "after_node" => {
            let last = record.at.as_ref().and_then(|at| at.path.last());
            same(expected, &last.map_or(Value::Null, |name| (**name).into()), seen)
        }
        "completed_positions" => positions(expected, &json!(record.completed_positions), seen),
        "parent_states_present" => flag(!record.parent_states.is_empty()),
        // The outermost state has the fields of the outermost graph.
        "parent_states_outermost_first" => {
            let outermost = record.outermost_state();
            flag(seen.ran(false).next().is_none_or(|ran| ran.pre_state.to_map().keys().eq(outermost.keys())))
        }
        "fan_out_progress" if expected.is_null() => flag_empty(record),
        "fan_out_progress" => progress(expected, record, seen),
        "fan_out_node_in_completed_positions" => {
            let fan_outs = record.fan_out_progress.iter().map(|progress| &progress.fan_out_node_name);
            let completed =
                |name: &Arc<str>| record.completed_positions.iter().any(|position| position.node_name == *name);
            flag(fan_outs.into_iter().any(completed))
        }
        "last_saved_at" if expected == "<timestamp>" => Ok(()),
        "invocation_id" | "correlation_id" | "state" | "parent_states" | "schema_version" | "last_saved_at" => {
            same(expected, json!(record).get(key).unwrap_or(&Value::Null), seen)
        }
        other => Err(Failure::DirectiveUnknown(format!("`{other}` of a checkpoint"))),
    }
}

fn flag_empty(record: &CheckpointRecord) -> Result<(), Failure> {
    if record.fan_out_progress.is_empty() { Ok(()) } else { Err(differs("no fan-out progress", "some")) }
}

/// Positions in order: of each only the fields that the fixture names.
fn positions(expected: &Value, actual: &Value, seen: &Evidence) -> Result<(), Failure> {
    let wanted = items(expected)?;
    let empty = Vec::new();
    let actual = actual.as_array().unwrap_or(&empty);
    if wanted.len() != actual.len() {
        return Err(differs(expected, Value::from(actual.as_slice())));
    }
    wanted.iter().zip(actual).try_for_each(|(wanted, actual)| match (wanted, actual) {
        (Value::Object(some), Value::Object(all)) => contains(some, all, seen),
        (wanted, actual) => same(wanted, actual, seen),
    })
}

fn progress(expected: &Value, record: &CheckpointRecord, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("fan_out_progress", expected)?;
    for node in expected.unread() {
        let found = record.fan_out_progress.iter().find(|progress| &*progress.fan_out_node_name == node);
        let found = found.ok_or_else(|| differs(format!("progress of `{node}`"), "none"))?;
        if let Some(wanted) = expected.nested(node)? {
            progress_is(wanted, found, seen).map_err(|failure| failure.within(node))?;
        }
    }
    expected.done()
}

fn progress_is(mut expected: Directives<'_>, found: &FanOutProgress, seen: &Evidence) -> Result<(), Failure> {
    if let Some(count) = expected.given("instance_count") {
        same(count, &found.instance_count.into(), seen)?;
    }
    let instances = expected.list("instances")?;
    if !instances.is_empty() && instances.len() != found.instances.len() {
        return Err(differs(format!("{} instances", instances.len()), found.instances.len()));
    }
    for ((at, wanted), instance) in instances.into_iter().zip(&found.instances) {
        let Value::Object(actual) = json!(instance) else { continue };
        instance_is(Directives::new(at.as_str(), wanted)?, &actual, seen).map_err(|failure| failure.within(&at))?;
    }
    expected.done()
}

fn instance_is(mut expected: Directives<'_>, actual: &Map, seen: &Evidence) -> Result<(), Failure> {
    let null = Value::Null;
    if let Some(states) = expected.texts("state_one_of")?
        && !states.iter().any(|state| actual.get("state").is_some_and(|actual| actual == state))
    {
        return Err(differs(format!("one of {states:?}"), actual.get("state").unwrap_or(&null)));
    }
    if let Some(is_present) = expected.flag("result_present")?
        && is_present != actual.contains_key("result")
    {
        return Err(differs(format!("result_present: {is_present}"), !is_present));
    }
    if let Some(wanted) = expected.given("completed_inner_positions") {
        positions(wanted, actual.get("completed_inner_positions").unwrap_or(&null), seen)?;
    }
    for key in ["state", "result", "result_is_error"] {
        if let Some(wanted) = expected.get(key) {
            let actual = actual.get(key).unwrap_or(&null);
            same(wanted, &contribution(wanted, actual), seen).map_err(|failure| failure.within(key))?;
        }
    }
    expected.done()
}

/// A result holds all that an instance contributes; a fixture may name only the collected value.
fn contribution(wanted: &Value, actual: &Value) -> Value {
    match actual.as_object() {
        Some(all) if !wanted.is_object() => all.get("collect").or(all.values().next()).cloned().unwrap_or_default(),
        _ => actual.clone(),
    }
}
