//! What a fixture's own middleware, mocks and callbacks wrote down.

use dormouse_engine::{NodeEvent, Phase};
use serde_json::Value;

use super::outcome::contains;
use super::{differs, entries, events, items, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// The calls of a callback, in order: of each only the fields that the fixture names.
pub(super) fn captured(name: &str, expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let records = seen.pages.records.get(name).map_or(&[][..], Vec::as_slice);
    listed(expected, records, seen)
}

/// The same, for each recording layer by its name.
pub(super) fn traces(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    for (name, expected) in entries(expected)? {
        captured(name, expected, seen).map_err(|failure| failure.within(name))?;
    }
    Ok(())
}

fn listed(expected: &Value, records: &[Value], seen: &Evidence) -> Result<(), Failure> {
    let wanted = items(expected)?;
    if wanted.len() != records.len() {
        return Err(differs(expected, Value::from(records)));
    }
    for (wanted, record) in wanted.iter().zip(records) {
        match (wanted, record) {
            (Value::Object(some), Value::Object(all)) => contains(some, all, seen)?,
            (wanted, record) => same(wanted, record, seen)?,
        }
    }
    Ok(())
}

pub(super) fn flaky_calls(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &seen.pages.flaky_calls.into(), seen)
}

pub(super) fn concurrency(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut expected = Directives::new("concurrency_invariant", expected)?;
    let most = expected.integer("max_in_flight")?.unwrap_or(i64::MAX);
    expected.done()?;
    let seen = i64::try_from(seen.pages.most_in_flight).unwrap_or(i64::MAX);
    if seen <= most { Ok(()) } else { Err(differs(format!("at most {most} in flight"), seen)) }
}

/// Some completed event is like this one.
pub(super) fn observer_event(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut last = Err(differs(expected, "no completed event"));
    for event in all(seen).filter(|event| event.phase == Phase::Completed) {
        let mut wanted = Directives::new("expected_observer_event", expected)?;
        let is_absent = wanted.flag("error_absent")?;
        last = events::matches(wanted, event, seen);
        if last.is_ok() && is_absent.is_none_or(|absent| absent == event.error.is_none()) {
            return Ok(());
        }
    }
    last.and(Err(differs(expected, "events with errors")))
}

/// Exactly these events, in this order.
pub(super) fn attempt_events(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let wanted = items(expected)?;
    let told: Vec<&NodeEvent> = all(seen).collect();
    if wanted.len() != told.len() {
        return Err(differs(format!("{} events", wanted.len()), told.len()));
    }
    wanted.iter().zip(told).try_for_each(|(wanted, event)| {
        events::matches(Directives::new("expected_attempt_events", wanted)?, event, seen)
    })
}

pub(super) fn successful_attempt(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let succeeded = all(seen).filter(|event| event.phase == Phase::Completed && event.error.is_none()).last();
    same(expected, &succeeded.map_or(Value::Null, |event| event.attempt_index.into()), seen)
}

fn all(seen: &Evidence) -> impl Iterator<Item = &NodeEvent> {
    seen.pages.delivered.iter().map(|delivered| &delivered.event)
}
