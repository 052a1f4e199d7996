//! What a resumed run did and did not do again, and how it relates to the run before (conformance-adapter §5.8, §5.9).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Plain, differs, same};
use crate::Failure;
use crate::evidence::{Earlier, Evidence};
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
    let again: Vec<&str> =
        names(expected).into_iter().filter(|name| seen.pages.ran.iter().any(|ran| ran.node == *name)).collect();
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
    let wanted = expected.as_array().into_iter().flatten().filter_map(Value::as_u64);
    let again: Vec<u64> = wanted.filter(|index| executed(seen).any(|ran| ran as u64 == *index)).collect();
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
        "last_saved_at_monotonic_across_saves" => |expected, seen| {
            let times = seen.saves.iter().map(|record| record.last_saved_at);
            is(expected, times.is_sorted_by(|a, b| a < b))
        },
        "invocation_id_is_uuidv4" => |_, seen| same(&"<uuid>".into(), &text(seen.invocation_id.as_ref()), seen),
        "first_run_invocation_id" => {
            |expected, seen| same(expected, &first(seen, |run| run.invocation_id.as_ref()), seen)
        }
        "first_run_correlation_id" => {
            |expected, seen| same(expected, &first(seen, |run| run.correlation_id.as_ref()), seen)
        }
        "resumed_run_correlation_id" => |expected, seen| same(expected, &text(seen.correlation_id.as_ref()), seen),
        "first_run_correlation_id_is_uuidv4" => {
            |_, seen| same(&"<uuid>".into(), &first(seen, |run| run.correlation_id.as_ref()), seen)
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

fn is(expected: &Value, actual: bool) -> Result<(), Failure> {
    if expected.as_bool() == Some(actual) { Ok(()) } else { Err(differs(expected, actual)) }
}
