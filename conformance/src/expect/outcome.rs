//! How the invocation ended and what ran (conformance-adapter §5.8).

use dormouse_ports::Map;
use serde_json::Value;

use super::{differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::{End, Evidence};

pub(super) fn kind(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    match expected.as_str() {
        Some(kind) if kind == seen.end.kind().as_str() => Ok(()),
        Some(kind @ ("completed" | "suspended" | "errored")) => Err(differs(kind, seen.end.tell())),
        _ => Err(Failure::invalid(format!("outcome must be completed, suspended or errored, not {expected}"))),
    }
}

pub(super) fn final_state(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    match &seen.end {
        End::Completed { state } => {
            let mut state = state.clone();
            state.extend(seen.pages.beside.clone());
            let expected = lengths(expected, &mut state)?;
            same(&expected, &Value::Object(state), seen)
        }
        End::Suspended { .. } | End::Errored(_) | End::Crashed | End::Idle(_) => {
            Err(differs("a final state", seen.end.tell()))
        }
    }
}

/// Checks and takes out `FIELD_list_length`, which stands for a field of which only the length is known.
fn lengths(expected: &Value, state: &mut Map) -> Result<Value, Failure> {
    let mut expected = expected.clone();
    let Some(fields) = expected.as_object_mut() else { return Ok(expected) };
    let names: Vec<String> = fields.keys().filter(|key| key.ends_with(LENGTH)).cloned().collect();
    for name in names.into_iter().filter(|name| !state.contains_key(name)).collect::<Vec<_>>() {
        let field = name.trim_end_matches(LENGTH);
        let length = state.shift_remove(field).and_then(|list| list.as_array().map(Vec::len));
        let wanted = fields.shift_remove(&name).unwrap_or_default();
        if wanted.as_u64() != length.map(|length| length as u64) {
            return Err(differs(format!("{wanted} items in `{field}`"), format!("{length:?}")));
        }
    }
    Ok(expected)
}

const LENGTH: &str = "_list_length";

pub(super) fn suspended_state(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let (state, _, _) = pause(seen)?;
    same(expected, &Value::Object(state.clone()), seen)
}

pub(super) fn descriptor(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let (_, descriptor, _) = pause(seen)?;
    descriptor_matches(expected, descriptor, seen)
}

/// A descriptor: its id, and its metadata in full or in part.
pub(crate) fn descriptor_matches(
    expected: &Value,
    descriptor: &dormouse_ports::SignalDescriptor,
    seen: &Evidence,
) -> Result<(), Failure> {
    let mut expected = Directives::new("descriptor", expected)?;
    let metadata = Value::Object(descriptor.metadata.clone().unwrap_or_default());
    if let Some(signal_id) = expected.given("signal_id") {
        same(signal_id, &descriptor.signal_id.as_str().into(), seen)?;
    }
    if let Some(all) = expected.given("metadata") {
        same(all, &metadata, seen)?;
    }
    if let Some(some) = expected.mapping("metadata_includes")? {
        contains(some, metadata.as_object().unwrap_or(&Map::new()), seen)?;
    }
    expected.done()
}

pub(super) fn suspending_node(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let (_, _, node) = pause(seen)?;
    same(expected, &node.into(), seen)
}

fn pause(seen: &Evidence) -> Result<(&Map, &dormouse_ports::SignalDescriptor, &str), Failure> {
    match &seen.end {
        End::Suspended { state, descriptor, node } => Ok((state, descriptor, node)),
        End::Completed { .. } | End::Errored(_) | End::Crashed | End::Idle(_) => {
            Err(differs("a suspension", seen.end.tell()))
        }
    }
}

/// Every key of `expected` with its value.
pub(crate) fn contains(expected: &Map, actual: &Map, seen: &Evidence) -> Result<(), Failure> {
    let expected = seen.past.resolve_map(expected)?;
    if seen.bindings.contains(&expected, actual) {
        return Ok(());
    }
    Err(differs(Value::Object(expected), Value::Object(actual.clone())))
}

pub(super) fn execution_order(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let ran = seen.ran(false).map(|ran| Value::from(ran.node.as_str())).collect::<Vec<_>>();
    same(expected, &Value::Array(ran), seen)
}

pub(super) fn middleware_log(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &Value::from(seen.pages.middleware.clone()), seen)
}

pub(super) fn invocation_id(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &identity(seen.invocation_id.as_ref()), seen)
}

pub(super) fn correlation_id(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &identity(seen.correlation_id.as_ref()), seen)
}

fn identity(id: Option<&String>) -> Value {
    id.map_or(Value::Null, |id| Value::from(id.as_str()))
}

/// The state in which the first graph inside of the outermost one began.
pub(super) fn inner_pre_state(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let first = seen.ran(true).next().map_or(Value::Null, |ran| Value::Object(ran.pre_state.to_map()));
    same(expected, &first, seen)
}

pub(super) fn inner_pre_states(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let states = seen.ran(true).map(|ran| Value::Object(ran.pre_state.to_map())).collect::<Vec<_>>();
    same(expected, &Value::Array(states), seen)
}

/// The paused record, which is kept whether or not checkpoints are.
pub(super) fn checkpointer(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("checkpointer_assertions", expected)?;
    let exists = expected.flag("paused_invocation_record_exists")?;
    let record_type = expected.text("record_type")?;
    expected.done()?;
    if exists.is_some_and(|exists| exists != seen.is_asleep()) {
        return Err(differs(format!("paused record: {exists:?}"), seen.is_asleep()));
    }
    match record_type {
        None => Ok(()),
        Some("suspended") if seen.is_asleep() => Ok(()),
        Some(other) => {
            Err(differs(format!("a record of type `{other}`"), if seen.is_asleep() { "suspended" } else { "none" }))
        }
    }
}

/// One name: it is among the warnings. A list: those and no others.
pub(super) fn compile_warning(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let name = |warning: &String| warning.split(':').next().unwrap_or_default().to_owned();
    let mut warned: Vec<String> = seen.warnings.iter().map(name).collect();
    warned.sort();
    warned.dedup();
    let exact = expected.is_array();
    let names = expected.as_array().map_or(std::slice::from_ref(expected), Vec::as_slice);
    let mut wanted: Vec<String> = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    wanted.sort();
    let holds = if exact { wanted == warned } else { wanted.iter().all(|name| warned.contains(name)) };
    if holds { Ok(()) } else { Err(differs(expected, format!("{:?}", seen.warnings))) }
}
