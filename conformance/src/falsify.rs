//! Fixtures made false: what the runner itself is tested with. An expectation that does not hold must fail its case, and
//! so must one that the runner does not know.

use dormouse_ports::Map;
use serde_json::Value;

use crate::fixture::Case;
use crate::spec::Spec;
use crate::{expect, models};

/// What no engine does and no fixture expects.
const FALSE: &str = "what a dormouse never does";

/// Keys that hold further calls, turns or signals with expectations of their own.
const CONTAINERS: &[&str] =
    &["call", "calls", "invocations", "transmissions", "chat_turns", "signal_arrivals", "resume"];

/// What must not be, or not be more: another one, or more, is no less true.
const NEGATIVE: &[&str] = &[
    "attributes_absent",
    "error_category_not",
    "excludes_fields",
    "fields_absent_keys",
    "expected_wire_request_absent_keys",
    "llm_span_attributes_absent",
    "load_returns_none_for_session_id",
    "max_in_flight",
    "state_one_of",
];

/// Mappings of data: what stands in them are fields and names of the fixture's own.
const DATA: &[&str] = &[
    "initial_state",
    "caller_metadata",
    "signal_payload",
    "payload",
    "metadata",
    "update",
    "update_pure",
    "update_from_field",
    "augment_metadata",
    "concurrent_session_write",
    "success_update",
    "success_compute",
    "on_success",
    "degraded_update",
    "partial_update",
    "resume_with_modified_items",
    "resume_with_modified_state",
    "seeded_record",
    "seeded_session",
    "seeded_sessions",
    "user_message",
    "default",
    "body",
    "config",
    "headers",
    "messages",
    "per_attempt_override",
    "response_schema",
    "stream_body",
    "tool_choice",
    "tools",
    "arguments",
    "returns",
];

/// Ids that a call is given stand where assertions do.
const GIVEN: &[&str] = &["invocation_id", "correlation_id"];

impl Case {
    /// The case once for each way in which one of its expectations can be false: each value changed, each mapping and
    /// list with something in addition.
    pub fn falsified(&self) -> Vec<Self> {
        let mut changes = Vec::new();
        search(&self.source, &mut Vec::new(), &mut changes);
        changes.into_iter().filter_map(|change| self.with(change)).collect()
    }

    /// The case once for each of its mappings outside of expectations, with a key more that nobody knows.
    pub fn with_unknown_directives(&self) -> Vec<Self> {
        let mut changes = Vec::new();
        directives(&self.source, &mut Vec::new(), &mut changes);
        changes.into_iter().filter_map(|change| self.with(change)).collect()
    }

    /// The case with another value in one place.
    fn with(&self, (path, value): (Vec<Step>, Value)) -> Option<Self> {
        let mut source = Value::Object(self.source.clone());
        let told: Vec<String> = path.iter().map(Step::to_string).collect();
        let id = format!("{} with {} = {value}", self.id, told.join("."));
        *path.iter().try_fold(&mut source, |at, step| step.within(at))? = value;
        let Value::Object(source) = source else { return None };
        Some(Self { id, spec: Spec::read(&source), source })
    }

    /// Whether it can be read at all.
    pub fn is_known(&self) -> bool {
        self.spec.is_ok()
    }
}

/// A step on the way to a value.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Index(index) => index.fmt(f),
        }
    }
}

impl Step {
    fn within<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        match self {
            Self::Key(key) => value.get_mut(key),
            Self::Index(index) => value.get_mut(index),
        }
    }
}

type Changes = Vec<(Vec<Step>, Value)>;

/// Finds the expectations that stand in `map`, which is a case or a call in it.
fn search(map: &Map, path: &mut Vec<Step>, changes: &mut Changes) {
    for (key, value) in map {
        path.push(Step::Key(key.clone()));
        let is_container = CONTAINERS.contains(&key.as_str());
        if let (Some(block), "expected") = (value.as_object(), key.as_str()) {
            expectations(block, path, changes);
        } else if let (Some(block), "invariants") = (value.as_object(), key.as_str()) {
            invariants(block, path, changes);
        } else if let (Some(call), true) = (value.as_object(), is_container) {
            search(call, path, changes);
        } else if let (Some(calls), true) = (value.as_array(), is_container) {
            for (index, call) in calls.iter().enumerate() {
                path.push(Step::Index(index));
                search(call.as_object().unwrap_or(&Map::new()), path, changes);
                path.pop();
            }
        } else if is_assertion(key) && !GIVEN.contains(&key.as_str()) {
            change(value, path, changes);
        }
        path.pop();
    }
}

fn is_assertion(key: &str) -> bool {
    key.starts_with("expected_") || expect::turns::find(key).is_some() || expect::chat::find(key).is_some()
}

fn expectations(block: &Map, path: &mut Vec<Step>, changes: &mut Changes) {
    for (key, value) in block {
        path.push(Step::Key(key.clone()));
        match value.as_object().filter(|_| key == "invariants") {
            Some(block) => invariants(block, path, changes),
            None => change(value, path, changes),
        }
        path.pop();
    }
    in_addition(path, block, changes);
}

/// Those that are private to their fixture are told as unchecked, not checked.
fn invariants(block: &Map, path: &mut Vec<Step>, changes: &mut Changes) {
    for (name, value) in block.iter().filter(|(name, _)| is_checked(name)) {
        path.push(Step::Key(name.clone()));
        change(value, path, changes);
        path.pop();
    }
}

fn is_checked(name: &str) -> bool {
    expect::checks_invariant(name) || models::checks_invariant(name)
}

/// Changes `value` at `path`, or what is inside of it.
fn change(value: &Value, path: &mut Vec<Step>, changes: &mut Changes) {
    let is_negative = || path.iter().any(|step| matches!(step, Step::Key(key) if NEGATIVE.contains(&key.as_str())));
    match value {
        _ if is_negative() => {}
        Value::Null => changes.push((path.clone(), FALSE.into())),
        Value::Bool(flag) => changes.push((path.clone(), (!flag).into())),
        Value::Number(number) => {
            let other = number.as_i64().map_or_else(|| Value::from(-1001.5), |number| (number + 1001).into());
            changes.push((path.clone(), other));
        }
        Value::String(text) => changes.push((path.clone(), format!("{text} {FALSE}").into())),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Index(index));
                change(item, path, changes);
                path.pop();
            }
            let longer = items.iter().cloned().chain([FALSE.into()]).collect();
            changes.push((path.clone(), longer));
        }
        Value::Object(map) => {
            for (key, value) in map {
                path.push(Step::Key(key.clone()));
                change(value, path, changes);
                path.pop();
            }
            in_addition(path, map, changes);
        }
    }
}

/// One key more, which nobody knows.
fn in_addition(path: &[Step], map: &Map, changes: &mut Changes) {
    let mut more = map.clone();
    more.insert(FALSE.to_owned(), true.into());
    changes.push((path.to_vec(), Value::Object(more)));
}

/// Every mapping of directives in `map`, which stands at `path`.
fn directives(map: &Map, path: &mut Vec<Step>, changes: &mut Changes) {
    if !path.is_empty() {
        in_addition(path, map, changes);
    }
    for (key, value) in map {
        let is_told = key == "invariants" || key.starts_with("expected") || is_assertion(key);
        if is_told || DATA.contains(&key.as_str()) {
            continue;
        }
        path.push(Step::Key(key.clone()));
        inner_directives(value, path, changes);
        path.pop();
    }
}

fn inner_directives(value: &Value, path: &mut Vec<Step>, changes: &mut Changes) {
    match value {
        Value::Object(map) => directives(map, path, changes),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Index(index));
                inner_directives(item, path, changes);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
