//! What observers were told, and how draining ended (conformance-adapter §5.8, §5.9).

use std::collections::HashSet;

use dormouse_engine::{NodeEvent, Phase, State};
use dormouse_ports::Map;
use serde_json::{Value, json};

use super::{differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

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
];

/// The exact sequence per observer; of each event only the fields that the fixture names.
pub(super) fn events(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut by_observer = Directives::new("observer_events", expected)?;
    for observer in by_observer.unread() {
        let wanted = by_observer.list(observer)?;
        let told: Vec<Map> = seen.events(observer).map(event_map).collect();
        for (index, (at, wanted)) in wanted.iter().enumerate() {
            let event = told.get(index).ok_or_else(|| differs(wanted, format!("only {} events", told.len())))?;
            event_matches(Directives::new(at, wanted)?, event, seen)?;
        }
        if told.len() > wanted.len() {
            return Err(differs(format!("{} events", wanted.len()), Value::from_iter(told)));
        }
    }
    Ok(())
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

fn event_map(event: &NodeEvent) -> Map {
    let state = |state: &State| Value::Object(state.to_map());
    let mut map = Map::new();
    map.insert("step".into(), event.step.into());
    map.insert("phase".into(), event.phase.as_str().into());
    map.insert("node_name".into(), (*event.node_name).into());
    map.insert("namespace".into(), event.namespace.iter().map(|name| Value::from(&**name)).collect());
    map.insert("attempt_index".into(), event.attempt_index.into());
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
    map
}

pub(super) fn delivery_order(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let order = seen.pages.delivered.iter().map(|delivered| {
        json!({
            "observer": delivered.observer,
            "step": delivered.event.step,
            "phase": delivered.event.phase.as_str(),
        })
    });
    same(expected, &order.collect(), seen)
}

pub(super) fn drain_summary(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("drain_summary", expected)?;
    let reached = expected.flag("timeout_reached")?;
    let exactly = expected.integer("undelivered_count")?;
    let at_least = expected.integer("undelivered_count_min")?;
    expected.done()?;
    let count = i64::try_from(seen.drain.undelivered_count).unwrap_or(i64::MAX);
    let holds = reached.is_none_or(|reached| reached == seen.drain.timeout_reached)
        && exactly.is_none_or(|exactly| exactly == count)
        && at_least.is_none_or(|at_least| count >= at_least);
    if holds { Ok(()) } else { Err(differs("the drain summary", format!("{:?}", seen.drain))) }
}

/// Named predicates over the events of all observers. One that is not known fails: it would pass unseen otherwise.
pub(super) fn invariants(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let expected = Directives::new("observer_event_invariants", expected)?;
    let mut expected = expected;
    for name in expected.unread() {
        let Some(actual) = predicate(name, seen) else { continue };
        same(expected.require(name)?, &actual, seen).map_err(|failure| failure.within(name))?;
    }
    expected.done()
}

fn predicate(name: &str, seen: &Evidence) -> Option<Value> {
    let events: Vec<&NodeEvent> = seen.pages.delivered.iter().map(|delivered| &delivered.event).collect();
    let suspended: Vec<&&NodeEvent> = events.iter().filter(|event| event.phase == Phase::Suspended).collect();
    let value = match name {
        "no_completed_event_for_suspending_node" => suspended.iter().all(|pause| !completes(&events, pause)).into(),
        "suspended_event_carries_descriptor" => {
            (!suspended.is_empty() && suspended.iter().all(|event| event.descriptor.is_some())).into()
        }
        "started_followed_by_suspended_in_order" => suspended.iter().all(|pause| starts_before(&events, pause)).into(),
        "inner_event_count" => inner(&events).count().into(),
        "inner_event_identities_unique" => {
            let identity = |event: &NodeEvent| (event.namespace.clone(), event.attempt_index, event.phase, event.step);
            let mut identities = HashSet::new();
            inner(&events).all(|event| identities.insert(identity(event))).into()
        }
        other => {
            let node = other.strip_suffix("_node_events_count")?;
            events.iter().filter(|event| &*event.node_name == node).count().into()
        }
    };
    Some(value)
}

fn inner<'e>(events: &'e [&'e NodeEvent]) -> impl Iterator<Item = &'e NodeEvent> {
    events.iter().copied().filter(|event| event.namespace.len() > 1)
}

fn completes(events: &[&NodeEvent], pause: &NodeEvent) -> bool {
    events
        .iter()
        .any(|event| event.phase == Phase::Completed && event.namespace == pause.namespace && event.step == pause.step)
}

fn starts_before(events: &[&NodeEvent], pause: &NodeEvent) -> bool {
    let same_node = |event: &&&NodeEvent| event.namespace == pause.namespace && event.step == pause.step;
    let phases: Vec<Phase> = events.iter().filter(same_node).map(|event| event.phase).collect();
    phases.chunks(2).all(|pair| pair == [Phase::Started, Phase::Suspended])
}
