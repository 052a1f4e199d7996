//! Events of failure isolation (pipeline-utilities §6.3).

use dormouse_engine::FailureIsolated;
use serde_json::{Map, Value, json};

use super::outcome::contains;
use super::{differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// Exactly one failure was isolated, and like this.
pub(super) fn event(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let told = told(seen);
    let [event] = told[..] else { return Err(differs("one isolated failure", told.len())) };
    let mut expected = Directives::new("failure isolation event", expected)?;
    if let Some(name) = expected.given("event_name") {
        same(name, &(*event.event_name).into(), seen)?;
    }
    if let Some(lineage) = expected.mapping("wrapped_node_lineage")? {
        contains(lineage, &lineage_of(event), seen)?;
    }
    if let Some(state) = expected.given("pre_state") {
        same(state, &Value::Object(event.pre_state.to_map()), seen)?;
    }
    if let Some(update) = expected.given("post_state") {
        let fields = event.post_state.iter().map(|(field, value)| (field.to_string(), value.clone()));
        same(update, &Value::Object(fields.collect()), seen)?;
    }
    if let Some(caught) = expected.nested("caught_exception")? {
        caught_is(caught, event, seen)?;
    }
    expected.done()
}

pub(super) fn no_event(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let is_none = told(seen).is_empty();
    if expected.as_bool() == Some(is_none) { Ok(()) } else { Err(differs("no isolated failure", "one")) }
}

/// What one observer was told: all of them are told the same.
fn told(seen: &Evidence) -> Vec<&FailureIsolated> {
    let all = &seen.pages.isolated;
    let first = all.first().map(|(observer, _)| observer);
    all.iter().filter(|(observer, _)| Some(observer) == first).map(|(_, event)| event).collect()
}

fn lineage_of(event: &FailureIsolated) -> Map<String, Value> {
    let mut lineage = Map::new();
    lineage.insert("namespace".into(), event.origin.namespace.iter().map(|name| Value::from(&**name)).collect());
    lineage.insert("attempt_index".into(), event.origin.attempt_index.into());
    lineage.insert("fan_out_index".into(), json!(event.origin.fan_out_index));
    let branch = event.origin.branch_name.as_ref().map_or(Value::Null, |name| Value::from(&**name));
    lineage.insert("branch_name".into(), branch);
    lineage
}

fn caught_is(mut expected: Directives<'_>, event: &FailureIsolated, seen: &Evidence) -> Result<(), Failure> {
    let caught = &event.caught;
    if let Some(category) = expected.get("category") {
        same(category, &json!(caught.derived), seen).map_err(|failure| failure.within("category"))?;
    }
    if let Some(message) = expected.given("message") {
        same(message, &caught.message.as_str().into(), seen)?;
    }
    let chain = expected.list("chain")?;
    if !chain.is_empty() && chain.len() != caught.chain.len() {
        return Err(differs(format!("{} links", chain.len()), format!("{:?}", caught.chain)));
    }
    for ((at, wanted), link) in chain.into_iter().zip(&caught.chain) {
        let actual = json!({"category": link.category, "message": link.message, "carrier": link.carrier});
        if let (Value::Object(wanted), Value::Object(actual)) = (wanted, &actual) {
            contains(wanted, actual, seen).map_err(|failure| failure.within(&at))?;
        }
    }
    expected.done()
}
