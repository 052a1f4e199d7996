//! Named predicates over events (conformance-adapter §5.9). Their names are read by a grammar: whose events, and what is
//! said of them. A name that it does not read is unknown, and so is one about a node that the fixture does not have: it
//! would pass unseen otherwise.

mod field;
mod predicate;
mod scope;

use std::collections::HashSet;

use dormouse_engine::NodeEvent;
use serde_json::Value;

use predicate::Predicate;
use scope::Scope;

use super::{Check, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

type Events<'e> = [&'e NodeEvent];

/// Over the events of the observer that is named, where each has predicates of its own; otherwise over those of all.
pub(super) fn of_all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let by_observer = expected.as_object().filter(|map| {
        let names = |(name, value): (&String, &Value)| value.is_object() && seen.events(name).next().is_some();
        !map.is_empty() && map.iter().all(names)
    });
    let Some(by_observer) = by_observer else { return hold(expected, &told(seen), seen) };
    for (observer, expected) in by_observer {
        let events: Vec<_> = seen.events(observer).collect();
        hold(expected, &events, seen).map_err(|failure| failure.within(observer))?;
    }
    Ok(())
}

/// What observers were told, each event once.
fn told(seen: &Evidence) -> Vec<&NodeEvent> {
    let mut known = HashSet::new();
    let events = seen.pages.delivered.iter().map(|delivered| &delivered.event);
    events.filter(|event| known.insert(predicate::identity(event))).collect()
}

pub(super) fn hold(expected: &Value, events: &Events<'_>, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("observer_event_invariants", expected)?;
    for name in expected.unread() {
        let wanted = expected.require(name)?;
        holds(name, wanted, events, seen).map_err(|failure| failure.within(name))?;
    }
    expected.done()
}

/// The predicate over events that stands as `name` among other invariants.
pub(super) fn among_others(name: &str) -> Option<Check<Evidence>> {
    let name = name.to_owned();
    read(&name, |_| true)?;
    Some(Box::new(move |wanted, seen| holds(&name, wanted, &told(seen), seen)))
}

/// Whether `name` is a predicate over events.
pub(crate) fn is_over_events(name: &str) -> bool {
    read(name, |_| true).is_some()
}

fn holds(name: &str, wanted: &Value, events: &Events<'_>, seen: &Evidence) -> Result<(), Failure> {
    let nodes: HashSet<&str> = events.iter().map(|event| &*event.node_name).collect();
    let is_node = |name: &str| nodes.contains(name) || seen.names.nodes.contains(name);
    let read = read(name, is_node);
    let (scope, predicate) = read.ok_or_else(|| Failure::DirectiveUnknown(format!("invariant `{name}`")))?;
    let own = scope.of(wanted, events, is_node)?;
    let actual = predicate.of(&scope, wanted, &own, events, is_node)?;
    let (wanted, actual) = match predicate.is_set() {
        true => (sorted(wanted), sorted(&actual)),
        false => (wanted.clone(), actual),
    };
    same(&wanted, &actual, seen)
}

/// Whose events, and what is said of them: the longest beginning that names events, with a rest that says something.
fn read(name: &str, is_node: impl Fn(&str) -> bool) -> Option<(Scope, Predicate)> {
    let breaks = name.match_indices('_').map(|(at, _)| at).rev();
    let split = breaks.map(|at| (&name[..at], &name[at + 1..])).chain([("", name)]);
    let mut readings =
        split.filter_map(|(whose, what)| Some((Scope::named(whose, &is_node)?, Predicate::named(what)?)));
    // There is no order among the events of one node.
    readings.find(|(scope, predicate)| !matches!((scope, predicate), (Scope::Node(_), Predicate::Order(_))))
}

/// What was seen has no order.
fn sorted(value: &Value) -> Value {
    let Some(items) = value.as_array() else { return value.clone() };
    let mut items = items.clone();
    items.sort_by_key(ToString::to_string);
    items.dedup();
    Value::Array(items)
}
