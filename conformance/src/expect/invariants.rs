//! Named predicates over events (conformance-adapter §5.9). One that is not known fails: it would pass unseen
//! otherwise.

use std::collections::{HashMap, HashSet};

use dormouse_engine::{NodeEvent, Phase};
use serde_json::{Value, json};

use super::same;
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

type Events<'e> = [&'e NodeEvent];

/// Over the events of all observers.
pub(super) fn of_all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let events: Vec<&NodeEvent> = seen.pages.delivered.iter().map(|delivered| &delivered.event).collect();
    hold(expected, &events, seen)
}

pub(super) fn hold(expected: &Value, events: &Events<'_>, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("observer_event_invariants", expected)?;
    for name in expected.unread() {
        let wanted = expected.given(name).unwrap_or(&Value::Null);
        let found = general(name, wanted, events).or_else(|| lineage(name, events)).or_else(|| of_node(name, events));
        let Some(actual) = found else { return Err(Failure::DirectiveUnknown(format!("invariant `{name}`"))) };
        let (wanted, actual) =
            if name.ends_with("_seen") { (sorted(wanted), sorted(&actual)) } else { (wanted.clone(), actual) };
        same(&wanted, &actual, seen).map_err(|failure| failure.within(name))?;
    }
    expected.done()
}

/// What was seen has no order.
fn sorted(value: &Value) -> Value {
    let Some(items) = value.as_array() else { return value.clone() };
    let mut items = items.clone();
    items.sort_by_key(ToString::to_string);
    items.dedup();
    Value::Array(items)
}

fn general(name: &str, wanted: &Value, events: &Events<'_>) -> Option<Value> {
    let suspended: Vec<_> = events.iter().filter(|event| event.phase == Phase::Suspended).collect();
    Some(match name {
        "no_completed_event_for_suspending_node" => suspended.iter().all(|pause| !completes(events, pause)).into(),
        "suspended_event_carries_descriptor" => {
            (!suspended.is_empty() && suspended.iter().all(|event| event.descriptor.is_some())).into()
        }
        "started_followed_by_suspended_in_order" => suspended.iter().all(|pause| starts_before(events, pause)).into(),
        "inner_event_count" => inner(events).count().into(),
        "inner_event_identities_unique" => unique(inner(events), |event| {
            json!([path(event), event.fan_out_index, branch(event), event.attempt_index, event.phase.as_str()])
        }),
        "outermost_events_have_no_branch_name" => {
            let nodes = wanted.get("nodes").and_then(Value::as_array).cloned().unwrap_or_default();
            let of = |event: &&&NodeEvent| nodes.iter().any(|node| node == &*event.node_name);
            held(wanted, events.iter().filter(of).all(|event| event.branch_name.is_none()))
        }
        "inner_events_carry_correct_branch_name" => {
            let right = |event: &NodeEvent| wanted.get(&*event.node_name).is_none_or(|name| *name == branch(event));
            held(wanted, inner(events).all(right))
        }
        _ => return None,
    })
}

/// What a predicate with parameters is compared to.
fn held(wanted: &Value, holds: bool) -> Value {
    if holds { wanted.clone() } else { Value::Bool(false) }
}

fn lineage(name: &str, events: &Events<'_>) -> Option<Value> {
    let indices = |events: &mut dyn Iterator<Item = &NodeEvent>| {
        events.filter_map(|e| e.fan_out_index).map(Value::from).collect()
    };
    let in_fan_out = || inner(events).filter(|event| event.fan_out_index.is_some());
    let plain = || inner(events).filter(|event| in_fan_out().all(|other| other.branch_name != event.branch_name));
    Some(match name {
        "inner_fan_out_indices_seen" | "fan_out_indices_seen" => indices(&mut inner(events)),
        "fan_out_inner_fan_out_indices_seen" => indices(&mut in_fan_out()),
        "inner_attempt_indices_seen" | "inner_events_attempt_indices_seen" => {
            inner(events).map(|event| Value::from(event.attempt_index)).collect()
        }
        "inner_branch_names_seen" => inner(events).map(branch).filter(|name| !name.is_null()).collect(),
        "inner_events_have_fan_out_index" => inner(events).all(|event| event.fan_out_index.is_some()).into(),
        "inner_event_pair_count_per_instance" => per_instance(events),
        "branch_started_event_order" => {
            let started = inner(events).filter(|event| event.phase == Phase::Started).map(branch);
            let mut seen = Vec::new();
            started.for_each(|name| {
                if !seen.contains(&name) {
                    seen.push(name);
                }
            });
            Value::Array(seen)
        }
        "fan_out_inner_events_carry_both_branch_name_and_fan_out_index" => {
            (in_fan_out().count() > 0 && in_fan_out().all(|event| event.branch_name.is_some())).into()
        }
        "fan_out_inner_branch_name_seen" => only(in_fan_out().map(branch)),
        "plain_inner_events_carry_branch_name_but_no_fan_out_index" => (plain().count() > 0
            && plain().all(|event| event.branch_name.is_some() && event.fan_out_index.is_none()))
        .into(),
        "plain_inner_branch_name_seen" => only(plain().map(branch)),
        _ => return None,
    })
}

/// `NODE_…` and `NODE_node_…`.
fn of_node(name: &str, events: &Events<'_>) -> Option<Value> {
    type Predicate = fn(&[&NodeEvent]) -> Value;
    const PREDICATES: &[(&str, Predicate)] = &[
        ("_events_count", |own| own.len().into()),
        ("_scalar_branch_name_absent", |own| own.iter().all(|event| event.branch_name.is_none()).into()),
        ("_branch_name_absent", |own| own.iter().all(|event| event.branch_name.is_none()).into()),
        ("_fan_out_index_absent", |own| own.iter().all(|event| event.fan_out_index.is_none()).into()),
        ("_fan_out_index_chain_empty", |own| own.iter().all(|event| event.fan_out_index_chain.is_empty()).into()),
        ("_branch_name_chain_empty", |own| own.iter().all(|event| event.branch_name_chain.is_empty()).into()),
        ("_fan_out_index_chains_seen", |own| own.iter().map(|event| json!(event.fan_out_index_chain)).collect()),
        ("_branch_name_chains_seen", |own| own.iter().map(|event| branches(event)).collect()),
        ("_scalar_fan_out_index_equals_innermost_chain_element", |own| {
            let innermost = |event: &NodeEvent| event.fan_out_index_chain.iter().rev().find_map(|index| *index);
            own.iter().all(|event| event.fan_out_index == innermost(event)).into()
        }),
        ("_scalar_branch_name_equals_innermost_chain_element", |own| {
            let innermost = |event: &NodeEvent| event.branch_name_chain.iter().rev().find_map(Clone::clone);
            own.iter().all(|event| event.branch_name == innermost(event)).into()
        }),
        ("_event_identities_unique_by_chain", |own| {
            unique(own.iter().copied(), |event| {
                let chains = (json!(event.fan_out_index_chain), branches(event));
                json!([path(event), chains.0, chains.1, event.attempt_index, event.phase.as_str()])
            })
        }),
        ("_scalar_fan_out_index_not_unique_across_outer_instances", |own| {
            let scalars: HashSet<_> = own.iter().map(|event| event.fan_out_index).collect();
            let chains: HashSet<_> = own.iter().map(|event| &event.fan_out_index_chain).collect();
            (scalars.len() < chains.len()).into()
        }),
        ("_started_present", |own| own.iter().any(|event| event.phase == Phase::Started).into()),
        ("_completed_present", |own| own.iter().any(|event| event.phase == Phase::Completed).into()),
    ];
    let (node, predicate) = PREDICATES.iter().find_map(|(suffix, holds)| Some((name.strip_suffix(suffix)?, holds)))?;
    let is = |name: &str| events.iter().any(|event| &*event.node_name == name);
    let node = if is(node) { node } else { node.strip_suffix("_node").unwrap_or(node) };
    let own: Vec<&NodeEvent> = events.iter().copied().filter(|event| &*event.node_name == node).collect();
    Some(predicate(&own))
}

fn inner<'e>(events: &'e Events<'e>) -> impl Iterator<Item = &'e NodeEvent> {
    events.iter().copied().filter(|event| event.namespace.len() > 1)
}

fn branch(event: &NodeEvent) -> Value {
    event.branch_name.as_ref().map_or(Value::Null, |name| (**name).into())
}

fn branches(event: &NodeEvent) -> Value {
    event.branch_name_chain.iter().map(|name| name.as_ref().map_or(Value::Null, |name| (**name).into())).collect()
}

fn path(event: &NodeEvent) -> Value {
    event.namespace.iter().map(|name| Value::from(&**name)).collect()
}

/// The one value that there is.
fn only(values: impl Iterator<Item = Value>) -> Value {
    let all = sorted(&values.collect());
    match all.as_array().map(Vec::as_slice) {
        Some([one]) => one.clone(),
        _ => all,
    }
}

fn unique<'e>(mut events: impl Iterator<Item = &'e NodeEvent>, identity: impl Fn(&NodeEvent) -> Value) -> Value {
    let mut identities = HashSet::new();
    events.all(|event| identities.insert(identity(event).to_string())).into()
}

/// How many events each instance has, if all have as many.
fn per_instance(events: &Events<'_>) -> Value {
    let mut counts: HashMap<_, usize> = HashMap::new();
    inner(events).for_each(|event| *counts.entry(event.fan_out_index).or_default() += 1);
    let counts: HashSet<usize> = counts.into_values().collect();
    match counts.into_iter().collect::<Vec<_>>()[..] {
        [count] => count.into(),
        _ => Value::Null,
    }
}

fn completes(events: &Events<'_>, pause: &NodeEvent) -> bool {
    let same = |event: &&&NodeEvent| event.namespace == pause.namespace && event.step == pause.step;
    events.iter().filter(same).any(|event| event.phase == Phase::Completed)
}

fn starts_before(events: &Events<'_>, pause: &NodeEvent) -> bool {
    let same = |event: &&&NodeEvent| event.namespace == pause.namespace && event.step == pause.step;
    let phases: Vec<Phase> = events.iter().filter(same).map(|event| event.phase).collect();
    phases.chunks(2).all(|pair| pair == [Phase::Started, Phase::Suspended])
}
