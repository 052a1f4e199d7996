//! What observers were told, and how draining ended (conformance-adapter §5.8, §5.9).

use dormouse_engine::{DrainSummary, NodeEvent, Phases};
use serde_json::{Value, json};

use super::{differs, entries, events, invariants, items, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;
use crate::ledger::Drained;
use crate::observers::OWN;

/// The exact sequence per observer; of each event only the fields that the fixture names.
pub(super) fn events(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    if expected.is_array() {
        // Without a name: what the runner's own observer was told.
        return sequence("observer_events", expected, seen.events(OWN), seen);
    }
    let mut by_observer = Directives::new("observer_events", expected)?;
    for observer in by_observer.unread() {
        if !seen.names.observers.contains(observer) {
            return Err(Failure::invalid(format!("there is no observer `{observer}`")));
        }
        sequence(observer, by_observer.require(observer)?, seen.events(observer), seen)?;
    }
    by_observer.done()
}

fn sequence<'e>(
    at: &str,
    expected: &Value,
    told: impl Iterator<Item = &'e NodeEvent>,
    seen: &Evidence,
) -> Result<(), Failure> {
    let wanted = items(expected)?;
    let told: Vec<&NodeEvent> = told.collect();
    for (index, wanted) in wanted.iter().enumerate() {
        let event = told.get(index).ok_or_else(|| differs(wanted, format!("only {} events", told.len())))?;
        events::matches(Directives::new(format!("{at}[{index}]"), wanted)?, event, seen)?;
    }
    if told.len() > wanted.len() {
        return Err(differs(format!("{} events", wanted.len()), told.len()));
    }
    Ok(())
}

/// What each draining node was told.
pub(super) fn node_drains(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    for (node, expected) in entries(expected)? {
        let drained = drained(node, seen)?;
        summary(expected, drained.summary).map_err(|failure| failure.within(node))?;
    }
    Ok(())
}

/// What an observer had been told when the node's drain returned.
pub(super) fn node_snapshots(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    for_snapshots(expected, seen, |at, expected, told| sequence(at, expected, told.iter(), seen))
}

pub(super) fn node_snapshot_invariants(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    for_snapshots(expected, seen, |_, expected, told| {
        invariants::hold(expected, &told.iter().collect::<Vec<_>>(), seen)
    })
}

fn for_snapshots(
    expected: &Value,
    seen: &Evidence,
    check: impl Fn(&str, &Value, &[NodeEvent]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (node, by_observer) in entries(expected)? {
        let drained = drained(node, seen)?;
        for (observer, expected) in entries(by_observer)? {
            if drained.observer.as_ref() != Some(observer) {
                return Err(Failure::invalid(format!("node `{node}` takes no snapshot of `{observer}`")));
            }
            check(observer, expected, &drained.events).map_err(|failure| failure.within(node))?;
        }
    }
    Ok(())
}

fn drained<'e>(node: &str, seen: &'e Evidence) -> Result<&'e Drained, Failure> {
    seen.pages.drained.get(node).ok_or_else(|| differs(format!("node `{node}` to drain"), "no drain"))
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
    summary(expected, seen.drain)
}

fn summary(expected: &Value, actual: DrainSummary) -> Result<(), Failure> {
    let mut expected = Directives::new("drain summary", expected)?;
    let reached = expected.flag("timeout_reached")?;
    let exactly = expected.integer("undelivered_count")?;
    let at_least = expected.integer("undelivered_count_min")?;
    expected.done()?;
    let count = i64::try_from(actual.undelivered_count).unwrap_or(i64::MAX);
    let holds = reached.is_none_or(|reached| reached == actual.timeout_reached)
        && exactly.is_none_or(|exactly| exactly == count)
        && at_least.is_none_or(|at_least| count >= at_least);
    if holds { Ok(()) } else { Err(differs("the drain summary", format!("{actual:?}"))) }
}

/// Whether registering for no phases at all is refused.
pub(super) fn empty_phases(expected: &Value, _: &Evidence) -> Result<(), Failure> {
    let is_refused = Phases::of([]).is_err();
    if expected.as_bool() == Some(is_refused) { Ok(()) } else { Err(differs(expected, is_refused)) }
}
