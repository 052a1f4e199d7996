//! The session store after an invocation (conformance-adapter §5.6).

use dormouse_ports::{Map, SessionRecord};
use serde_json::Value;

use super::outcome::contains;
use super::{differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::{End, Evidence};

pub(super) fn no_load(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    holds(expected, seen.calls.session_loads == 0, || format!("{} loads", seen.calls.session_loads))
}

pub(super) fn no_save(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    holds(expected, seen.calls.session_saves == 0, || format!("{} saves", seen.calls.session_saves))
}

/// Saves that a node asked for by itself do not count against it when the invocation errored.
pub(super) fn no_save_at_end(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let by_nodes = matches!(seen.end, End::Errored(_));
    holds(expected, seen.calls.session_saves == 0 || by_nodes, || format!("{} saves", seen.calls.session_saves))
}

pub(super) fn untouched(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let calls = seen.calls.session_loads + seen.calls.session_saves;
    holds(expected, calls == 0, || format!("{calls} calls"))
}

fn holds(expected: &Value, is_so: bool, tell: impl FnOnce() -> String) -> Result<(), Failure> {
    if expected.as_bool() == Some(is_so) { Ok(()) } else { Err(differs(expected, tell())) }
}

pub(super) fn load_calls(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &seen.calls.session_loads.into(), seen)
}

pub(super) fn save_calls(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &seen.calls.session_saves.into(), seen)
}

pub(super) fn store_after(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("store_after", expected)?;
    if let Some(id) = expected.text("load_returns_none_for_session_id")?
        && let Some(Some(record)) = seen.sessions.get(id)
    {
        return Err(differs(format!("no session `{id}`"), Value::Object(record.state.clone())));
    }
    let id = expected.text("load_returns_for_session_id")?;
    let record = match id {
        None => seen.saved_session(),
        Some(id) => Some(
            seen.sessions.get(id).and_then(Option::as_ref).ok_or_else(|| differs(format!("session `{id}`"), "none"))?,
        ),
    };
    if let Some(state) = expected.given("loaded_state") {
        same(state, &state_of(record), seen)?;
    }
    if let Some(version) = expected.given("loaded_schema_version") {
        same(version, &record.map_or(Value::Null, |record| record.schema_version.as_str().into()), seen)?;
    }
    expected.done()
}

pub(super) fn saved(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("saved_session_assertions", expected)?;
    let record = match expected.text("session_id")? {
        Some(id) => seen.sessions.get(id).and_then(Option::as_ref),
        None => seen.saved_session(),
    };
    let record = record.ok_or_else(|| differs("a saved session", "none"))?;
    if let Some(state) = expected.given("state") {
        same(state, &Value::Object(record.state.clone()), seen)?;
    }
    if let Some(some) = expected.mapping("state_includes")? {
        contains(some, &record.state, seen)?;
    }
    for field in expected.texts("excludes_fields")?.unwrap_or_default() {
        if record.state.contains_key(&field) {
            return Err(differs(format!("a record without `{field}`"), Value::Object(record.state.clone())));
        }
    }
    if let Some(version) = expected.given("schema_version") {
        same(version, &record.schema_version.as_str().into(), seen)?;
    }
    if let Some(version) = expected.given("version") {
        same(version, &record.version.into(), seen)?;
    }
    expected.done()
}

/// What was loaded at entry. A record of another schema version was migrated on its way, so the state at entry tells.
pub(super) fn loaded(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let record = seen.calls.loaded.as_ref();
    let was_migrated = record.is_some_and(|record| record.schema_version != seen.schema_version);
    match expected.as_object().filter(|_| was_migrated) {
        Some(fields) => contains(fields, &entry_state(seen), seen),
        None => same(expected, &state_of(record), seen),
    }
}

/// `loaded_invoke_state_for_FIELD`: the field as the first node saw it.
pub(crate) fn entry_field(field: &str, expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &entry_state(seen).get(field).cloned().unwrap_or_default(), seen)
}

fn entry_state(seen: &Evidence) -> Map {
    seen.ran(false).next().map_or_else(Map::new, |ran| ran.pre_state.to_map())
}

fn state_of(record: Option<&SessionRecord>) -> Value {
    record.map_or(Value::Null, |record| Value::Object(record.state.clone()))
}
