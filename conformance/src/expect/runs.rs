//! What a resumed run did and did not do again, and how it relates to the run before (conformance-adapter §5.8, §5.9).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Plain, differs, items, same};
use crate::Failure;
use crate::evidence::{Earlier, End, Evidence};
use crate::ledger::Ran;
use crate::matching::equal;

/// The nodes that hold no graphs, in the order in which they ran.
pub(super) fn nodes_executed(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let wanted: Vec<&str> = names(expected);
    let counts = |ran: &&Ran| !ran.holds_graph || wanted.contains(&ran.node.as_str());
    let ran: Vec<&str> = seen.pages.ran.iter().filter(counts).map(|ran| ran.node.as_str()).collect();
    if ran == wanted { Ok(()) } else { Err(differs(expected, format!("{ran:?}"))) }
}

pub(super) fn nodes_skipped(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let mut again = Vec::new();
    for name in items(expected)? {
        let name = name.as_str().filter(|name| seen.names.nodes.contains(*name));
        let name = name.ok_or_else(|| Failure::invalid(format!("there is no such node in {expected}")))?;
        again.extend(seen.pages.ran.iter().any(|ran| ran.node == name).then_some(name));
    }
    if again.is_empty() { Ok(()) } else { Err(differs("nodes that do not run again", format!("{again:?}"))) }
}

fn names(expected: &Value) -> Vec<&str> {
    expected.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(super) fn instances_executed(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let ran: BTreeSet<usize> = executed(seen).collect();
    same(expected, &ran.into_iter().map(Value::from).collect(), seen)
}

pub(super) fn instances_skipped(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let before = seen.earlier.iter().filter_map(|run| run.checkpoint.as_ref()).flat_map(|c| &c.fan_out_progress);
    let count = before.map(|progress| progress.instances.len() as u64).max().unwrap_or_default();
    let mut again = Vec::new();
    for index in items(expected)? {
        let index = index.as_u64().filter(|index| *index < count);
        let index = index.ok_or_else(|| Failure::invalid(format!("of {expected} not all are instances")))?;
        again.extend(executed(seen).any(|ran| ran as u64 == index).then_some(index));
    }
    if again.is_empty() { Ok(()) } else { Err(differs("instances that do not run again", format!("{again:?}"))) }
}

/// The instances of fan-outs that are not inside of others.
fn executed(seen: &Evidence) -> impl Iterator<Item = usize> {
    let outermost = seen.pages.instances.iter().filter(|instance| instance.chain.len() == 1);
    outermost.filter_map(|instance| instance.chain.first().copied())
}

pub(super) fn migrations(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    same(expected, &Value::from(seen.pages.migrations.clone()), seen)
}

/// Invariants that can be told from outside; all others are private to their fixture.
pub(super) fn invariant(name: &str) -> Option<Plain<Evidence>> {
    Some(match name {
        "save_count" => |expected, seen| same(expected, &seen.saves.len().into(), seen),
        "migration_count" | "migration_invocation_count" => {
            |expected, seen| same(expected, &seen.pages.migrations.len().into(), seen)
        }
        "migration_order_matches_chain" => |expected, seen| {
            let ran: Vec<_> = seen.pages.migrations.iter().filter_map(|step| step.split_once("->")).collect();
            is(expected, !ran.is_empty() && ran.windows(2).all(|pair| pair[0].1 == pair[1].0))
        },
        "node_never_invoked" | "no_invoke_attempted" => |expected, seen| is(expected, seen.pages.ran.is_empty()),
        "drain_returned_within_timeout" => |expected, seen| is(expected, drained_in_time(seen)),
        // It is still told of what happens after a drain that gave up.
        "workers_not_cancelled_on_per_invocation_drain_timeout" => {
            |expected, seen| is(expected, matches!(seen.end, End::Completed { .. }) && !seen.pages.delivered.is_empty())
        }
        "last_saved_at_monotonic_across_saves" => |expected, seen| {
            let times = seen.saves.iter().map(|record| record.last_saved_at);
            is(expected, times.is_sorted_by(|a, b| a < b))
        },
        "invocation_id_is_uuidv4" => |expected, seen| is_uuid(expected, &text(seen.invocation_id.as_ref()), seen),
        "first_run_invocation_id" => {
            |expected, seen| same(expected, &first(seen, |run| run.invocation_id.as_ref()), seen)
        }
        "first_run_correlation_id" => {
            |expected, seen| same(expected, &first(seen, |run| run.correlation_id.as_ref()), seen)
        }
        "resumed_run_correlation_id" => |expected, seen| same(expected, &text(seen.correlation_id.as_ref()), seen),
        "first_run_correlation_id_is_uuidv4" => {
            |expected, seen| is_uuid(expected, &first(seen, |run| run.correlation_id.as_ref()), seen)
        }
        "resumed_run_invocation_id_is_fresh_uuidv4" => |expected, seen| {
            same(&"<uuid>".into(), &text(seen.invocation_id.as_ref()), seen)?;
            differ(expected, seen)
        },
        "first_and_resumed_invocation_ids_differ" | "resumed_invocation_id_differs_from_original" => differ,
        "correlation_id_uniform_across_both_runs"
        | "resumed_run_correlation_id_matches_first"
        | "resumed_correlation_id_matches_original"
        | "no_new_correlation_id_generated_on_resume" => |expected, seen| {
            let before = first(seen, |run| run.correlation_id.as_ref());
            is(expected, equal(&before, &text(seen.correlation_id.as_ref())))
        },
        "saved_record_correlation_id" => |expected, seen| {
            let record = seen.earlier.first().and_then(|run| run.checkpoint.as_ref());
            same(expected, &text(record.map(|record| &record.correlation_id)), seen)
        },
        "error_category_not" => |expected, seen| {
            let category = seen.end.error().map_or("", |error| error.category.as_str());
            if names(expected).contains(&category) {
                Err(differs(format!("none of {expected}"), category))
            } else {
                Ok(())
            }
        },
        _ => return None,
    })
}

/// Whether every drain with a timeout returned in time; there must have been one.
fn drained_in_time(seen: &Evidence) -> bool {
    let mut all = seen.earlier.iter().flat_map(|run| &run.drains).chain(&seen.pages.drains).peekable();
    all.peek().is_some() && all.all(|in_time| *in_time)
}

fn differ(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let before = first(seen, |run| run.invocation_id.as_ref());
    is(expected, !equal(&before, &text(seen.invocation_id.as_ref())))
}

fn first(seen: &Evidence, id: fn(&Earlier) -> Option<&String>) -> Value {
    text(seen.earlier.first().and_then(id))
}

fn text(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| text.as_str().into())
}

fn is_uuid(expected: &Value, actual: &Value, seen: &Evidence) -> Result<(), Failure> {
    is(expected, same(&"<uuid>".into(), actual, seen).is_ok())
}

fn is(expected: &Value, actual: bool) -> Result<(), Failure> {
    if expected.as_bool() == Some(actual) { Ok(()) } else { Err(differs(expected, actual)) }
}
