//! Errors (conformance-adapter §5.8, §5.13).

use dormouse_ports::Category;
use serde_json::Value;

use super::outcome::contains;
use super::{differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::{Evidence, SeenError, Stage};

pub(super) fn error(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let Some(error) = seen.end.error() else { return Err(differs(expected, seen.end.tell())) };
    if let Value::String(category) = expected {
        return category_is(category, error);
    }
    let mut expected = Directives::new("error", expected)?;
    if let Some(category) = expected.text("category")? {
        category_is(category, error)?;
    }
    if let Some(node) = expected.given("raised_from") {
        same(node, &error.node.as_deref().map_or(Value::Null, Value::from), seen)?;
    }
    if let Some(message) = expected.given("message") {
        same(message, &error.message.as_str().into(), seen)?;
    }
    if let Some(state) = expected.given("recoverable_state") {
        self::state(state, seen)?;
    }
    if let Some(category) = expected.text("fan_out_category")? {
        category_is(category, error)?;
    }
    // What `carries` lists, in the spelling without it.
    for key in ["branch_name", "field", "reducer", "node"] {
        if let Some(wanted) = expected.given(key) {
            same(wanted, &exposed(error, key), seen).map_err(|failure| failure.within(key))?;
        }
    }
    if let Some(message) = expected.text("cause_message")?
        && !error.causes.iter().any(|cause| cause == message)
    {
        return Err(differs(format!("a cause {message:?}"), format!("{:?}", error.causes)));
    }
    if let Some(count) = expected.given("flaky_call_count") {
        super::records::flaky_calls(count, seen)?;
    }
    if let Some(is_transient) = expected.flag("transient")?
        && is_transient != error.transient
    {
        return Err(differs(format!("transient: {is_transient}"), error.transient));
    }
    if let Some(order) = expected.given("execution_order") {
        super::outcome::execution_order(order, seen)?;
    }
    if let Some(stage) = expected.text("raised_at")? {
        raised_at(stage, seen.stage)?;
    }
    if let Some(carries) = expected.nested("carries")? {
        carried(carries, error, seen)?;
    }
    if let Some(cause) = expected.nested("cause")? {
        caused(cause, error)?;
    }
    expected.done()
}

/// The category at whichever time it comes up: registration, compilation or resume.
pub(super) fn ambiguity(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    match seen.end.error() {
        Some(error) => category_is(expected.as_str().unwrap_or_default(), error),
        None => Err(differs(expected, seen.end.tell())),
    }
}

pub(super) fn compile_error(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    match (seen.end.error(), seen.stage) {
        (Some(error), Stage::Compilation) => category_is(expected.as_str().unwrap_or_default(), error),
        (_, Stage::Compilation | Stage::Registration | Stage::Invocation) => {
            Err(differs(format!("compile error {expected}"), "a graph that compiles"))
        }
    }
}

/// A node's error has two names: that of the carrier, `node_exception`, and that of what it carries.
pub(crate) fn category_is(expected: &str, error: &SeenError) -> Result<(), Failure> {
    if error.category.as_str() == expected || error.derived.as_str() == expected {
        return Ok(());
    }
    Err(differs(expected, format!("{} ({})", error.derived, error.message)))
}

fn raised_at(expected: &str, stage: Stage) -> Result<(), Failure> {
    let holds = match expected {
        "registration" => stage == Stage::Registration,
        "compile" | "compilation" => stage != Stage::Invocation,
        "load" | "invoke" | "invocation" | "runtime" => stage == Stage::Invocation,
        other => return Err(Failure::missing(format!("`raised_at: {other}`"))),
    };
    if holds { Ok(()) } else { Err(differs(format!("raised at {expected}"), format!("raised at {stage:?}"))) }
}

/// A field that the error exposes; null where it does not.
fn exposed(error: &SeenError, name: &str) -> Value {
    match name {
        "message" | "error_message" => Value::from(error.message.as_str()),
        "node" | "node_name" if !error.details.contains_key(name) => {
            error.node.as_deref().map_or(Value::Null, Value::from)
        }
        name => error.details.get(name).cloned().unwrap_or_default(),
    }
}

/// Fields that the error exposes: exactly, by presence (`_present`) or in part (`_mentions`).
fn carried(mut expected: Directives<'_>, error: &SeenError, seen: &Evidence) -> Result<(), Failure> {
    let field = |name: &str| exposed(error, name);
    for key in expected.unread() {
        let value = expected.require(key)?;
        if let Some(name) = key.strip_suffix("_present") {
            let is_present = !field(name).is_null();
            if value.as_bool() != Some(is_present) {
                return Err(differs(format!("{key}: {value}"), is_present));
            }
        } else if let Some(name) = key.strip_suffix("_count").filter(|_| !error.details.contains_key(key)) {
            let count = field(name).as_array().map_or(0, Vec::len);
            same(value, &count.into(), seen).map_err(|failure| failure.within(key))?;
        } else if let Some(name) = key.strip_suffix("_mentions") {
            let actual = field(name);
            if !actual.as_str().unwrap_or_default().contains(value.as_str().unwrap_or_default()) {
                return Err(differs(format!("{key}: {value}"), actual));
            }
        } else {
            let actual = field(key);
            match (value, &actual) {
                (Value::Object(some), Value::Object(all)) => contains(some, all, seen)?,
                _ => same(value, &actual, seen).map_err(|failure| failure.within(key))?,
            }
        }
    }
    Ok(())
}

/// The kind of a foreign error is how its text begins.
fn caused(mut expected: Directives<'_>, error: &SeenError) -> Result<(), Failure> {
    let cause = error.cause.as_deref().unwrap_or_default();
    let kind = expected.text("exception_type")?.or(expected.text("kind")?);
    let message = expected.text("message")?;
    expected.done()?;
    let begins = kind.is_none_or(|kind| cause.starts_with(kind));
    if begins && message.is_none_or(|message| cause.contains(message)) {
        return Ok(());
    }
    Err(differs(format!("a cause {} {}", kind.unwrap_or_default(), message.unwrap_or_default()), format!("{cause:?}")))
}

pub(super) fn state(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let state = seen.end.error().and_then(|error| error.state.clone());
    same(expected, &state.map_or(Value::Null, Value::Object), seen)
}

pub(super) fn none(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    if expected.as_bool() == Some(seen.end.error().is_none()) {
        Ok(())
    } else {
        Err(differs("no error", seen.end.tell()))
    }
}

/// `invoke()` refused its arguments, before anything ran.
pub(super) fn refused(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let is_so = seen.end.error().is_some_and(|error| error.node.is_none()) && seen.pages.ran.is_empty();
    same(expected, &is_so.into(), seen)
}

/// A node failed at what it called, and raised that.
pub(super) fn refused_in_a_node(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let failed = |error: &SeenError| error.category == Category::NodeException && error.node.is_some();
    same(expected, &seen.end.error().is_some_and(failed).into(), seen)
}
