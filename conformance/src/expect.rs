//! Assertions: one function per key, found by a table.

mod attributes;
pub(crate) mod chat;
mod checkpoints;
mod error;
pub(crate) mod events;
pub(crate) mod invariants;
mod isolation;
mod logs;
mod metrics;
mod observers;
mod outcome;
mod payload;
mod records;
mod runs;
mod sessions;
mod spans;
mod traces;
pub(crate) mod turns;
mod typed;

use dormouse_ports::Map;
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;
use crate::evidence::{End, Evidence};

/// Compares what a key of a fixture says with what happened.
pub(crate) type Check<E> = Box<dyn Fn(&Value, &E) -> Result<(), Failure> + Send + Sync>;

type Plain<E> = fn(&Value, &E) -> Result<(), Failure>;

/// What is expected of one invocation, turn or signal. Read in full before anything runs.
pub(crate) struct Expectations<E: 'static> {
    checks: Vec<(String, Value, Check<E>)>,
    /// Predicates under `invariants:`, which are private to their fixture and told as unchecked.
    pub(crate) unchecked: Vec<String>,
}

impl<E> Default for Expectations<E> {
    fn default() -> Self {
        Self { checks: Vec::new(), unchecked: Vec::new() }
    }
}

impl<E> Expectations<E> {
    /// Reads every assertion out of `given`: those that stand in it directly, and all of its `expected` block.
    /// Other keys of `given` stay unread.
    pub(crate) fn read(given: &mut Directives<'_>, find: fn(&str) -> Option<Check<E>>) -> Result<Self, Failure> {
        let mut expectations = Self::default();
        expectations.take(given, find)?;
        if let Some(mut expected) = given.nested("expected")? {
            expectations.take_block(&mut expected, find)?;
            expectations.take(&mut expected, find)?;
            expected.done()?;
        }
        Ok(expectations)
    }

    /// Takes what is an assertion only inside of an `expected` block, and elsewhere a declaration.
    fn take_block(&mut self, block: &mut Directives<'_>, find: fn(&str) -> Option<Check<E>>) -> Result<(), Failure> {
        for key in block.unread() {
            if let Some(check) = find(&format!("{EXPECTED}{key}")) {
                let value = block.require(key)?.clone();
                self.checks.push((key.to_owned(), value, check));
            }
        }
        Ok(())
    }

    fn take(&mut self, given: &mut Directives<'_>, find: fn(&str) -> Option<Check<E>>) -> Result<(), Failure> {
        for key in given.unread() {
            if let Some(check) = find(key) {
                let value = given.require(key)?.clone();
                self.checks.push((key.to_owned(), value, check));
            }
        }
        for (name, value) in given.mapping("invariants")?.into_iter().flatten() {
            match find(&format!("{INVARIANTS}{name}")) {
                Some(check) => self.checks.push((format!("{INVARIANTS}{name}"), value.clone(), check)),
                None => self.unchecked.push(name.clone()),
            }
        }
        Ok(())
    }

    /// Takes over the invariants of `other`.
    pub(crate) fn take_invariants(&mut self, other: &mut Self) {
        let all = std::mem::take(&mut other.checks);
        let (invariants, own) = all.into_iter().partition(|(key, _, _)| key.starts_with(INVARIANTS));
        other.checks = own;
        self.checks.extend::<Vec<_>>(invariants);
        self.unchecked.append(&mut other.unchecked);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.checks.is_empty()
    }

    pub(crate) fn expects(&self, key: &str) -> bool {
        self.checks.iter().any(|(name, _, _)| name == key)
    }

    /// As [`check`](Self::check); an error or a pause that nobody expects is a failure too.
    pub(crate) fn check_end(&self, end: &End, evidence: &E) -> Result<(), Failure> {
        let says = |keys: &[&str]| self.checks.iter().any(|(key, _, _)| keys.contains(&key.as_str()));
        let spans_say = || self.checks.iter().any(|(key, value, _)| spans::tell_of_failure(key, value));
        let is_surprise = match end {
            End::Completed { .. } => says(&["error", "expected_error", "final_state_at_error", "suspended_state"]),
            End::Suspended { .. } => !says(PAUSES),
            End::Errored(_) => !says(ERRORS) && !spans_say(),
            End::Crashed | End::Idle(_) => false,
        };
        let surprise = is_surprise.then(|| Failure::mismatch(format!("unexpected end: {}", end.tell())));
        Failure::all(surprise.into_iter().chain(self.check(evidence).err()).collect())
    }

    /// Holds every assertion against `evidence`.
    pub(crate) fn check(&self, evidence: &E) -> Result<(), Failure> {
        let check = |(key, value, check): &(String, Value, Check<E>)| {
            check(value, evidence).map_err(|failure| failure.within(key)).err()
        };
        Failure::all(self.checks.iter().filter_map(check).collect())
    }
}

/// How keys begin that are assertions only inside of an `expected` block.
const EXPECTED: &str = "expected.";

/// How the names of invariants begin where assertions are looked up.
const INVARIANTS: &str = "invariants.";

/// Keys by which a fixture says that it expects a pause.
const PAUSES: &[&str] =
    &["outcome", "invoke_outcome", "suspended_state", "descriptor", "suspending_node", "signal_descriptor"];

/// Keys by which a fixture says that it expects an error.
const ERRORS: &[&str] = &[
    "outcome",
    "invoke_outcome",
    "error",
    "expected_error",
    "first_run_expected_error",
    "expected_chain_ambiguity_error",
    "final_state_at_error",
    "error_category",
    "error_bucket",
    "invoke_rejects_at_api_boundary",
    "augment_rejects_at_call_site",
    "node_completed_event_carries_error",
];

/// Whether an invariant of that name is checked, and not only told.
pub(crate) fn checks_invariant(name: &str) -> bool {
    invocation(&format!("{INVARIANTS}{name}")).is_some()
}

/// The assertion of that name over an invocation.
pub(crate) fn invocation(key: &str) -> Option<Check<Evidence>> {
    if let Some(name) = key.strip_prefix(EXPECTED) {
        return (name == "observers").then(|| Box::new(typed::all) as Check<Evidence>);
    }
    if let Some(field) = key.strip_prefix("loaded_invoke_state_for_") {
        let field = field.to_owned();
        return Some(Box::new(move |expected, seen| sessions::entry_field(&field, expected, seen)));
    }
    if let Some(name) = key.strip_prefix(INVARIANTS) {
        let check = runs::invariant(name)
            .or_else(|| traces::invariant(name))
            .or_else(|| metrics::invariant(name))
            .or_else(|| spans::invariant(name))
            .or_else(|| typed::invariant(name));
        let check = check.map(|check| Box::new(check) as Check<Evidence>);
        // What stands elsewhere as an assertion of its own means the same here.
        return check.or_else(|| invariants::among_others(name)).or_else(|| invocation(name));
    }
    let has_own_check = ["trace_records", "session_records", "log_records"].contains(&key);
    if key.ends_with("_records") && !has_own_check {
        let name = key.to_owned();
        return Some(Box::new(move |expected, seen| records::captured(&name, expected, seen)));
    }
    let check: Plain<Evidence> = match key {
        "outcome" => outcome::kind,
        "final_state" | "expected_final_state" => outcome::final_state,
        "suspended_state" => outcome::suspended_state,
        "descriptor" => outcome::descriptor,
        "suspending_node" => outcome::suspending_node,
        "execution_order" => outcome::execution_order,
        "middleware_log_captured" => outcome::middleware_log,
        "invocation_id" => outcome::invocation_id,
        "correlation_id" => outcome::correlation_id,
        "inner_pre_state" => outcome::inner_pre_state,
        "instance_pre_states" => outcome::inner_pre_states,
        "checkpointer_assertions" => outcome::checkpointer,
        "expected_compile_warning" => outcome::compile_warning,
        "error" | "expected_error" | "first_run_expected_error" => error::error,
        "expected_chain_ambiguity_error" => error::ambiguity,
        "recoverable_state" => error::state,
        "expected_failure_isolation_event" => isolation::event,
        "no_failure_isolation_event" => isolation::no_event,
        "flaky_call_count" => records::flaky_calls,
        "trace_records" => records::traces,
        "concurrency_invariant" => records::concurrency,
        "expected_observer_event" => records::observer_event,
        "expected_attempt_events" => records::attempt_events,
        "successful_attempt_index_during_resume" => records::successful_attempt,
        "nodes_executed_during_resume" => runs::nodes_executed,
        "nodes_skipped_during_resume" => runs::nodes_skipped,
        "instances_executed_during_resume" => runs::instances_executed,
        "instances_skipped_during_resume" => runs::instances_skipped,
        "migrations_run" => runs::migrations,
        "checkpoint_saves" => checkpoints::saves,
        "every_save_assertions" => checkpoints::every_save,
        "latest_record_assertions" | "saved_record_assertions" => checkpoints::latest,
        "expected_compile_error" => error::compile_error,
        "final_state_at_error" => error::state,
        "no_propagated_error" => error::none,
        "no_session_load" => sessions::no_load,
        "no_session_save" => sessions::no_save,
        "no_auto_save_on_end" => sessions::no_save_at_end,
        "store_untouched" => sessions::untouched,
        "session_store_load_calls" => sessions::load_calls,
        "session_store_save_calls" => sessions::save_calls,
        "store_after" => sessions::store_after,
        "saved_session_assertions" => sessions::saved,
        "loaded_session_state" => sessions::loaded,
        "observer_events" | "final_accumulator_state" => observers::events,
        "node_completed_event_carries_error" => typed::node_failed,
        "observer_event_invariants" => invariants::of_all,
        "node_drain_summaries" => observers::node_drains,
        "node_accumulator_snapshots" => observers::node_snapshots,
        "node_accumulator_snapshot_invariants" => observers::node_snapshot_invariants,
        "empty_phases_raises_at_registration" => observers::empty_phases,
        "delivery_order" => observers::delivery_order,
        "drain_summary" => observers::drain_summary,
        "otel_spans" => spans::by_observer,
        "span_tree" => spans::all,
        "traces" => traces::all,
        "parent_trace" => traces::parent,
        "detached_trace_count" => traces::detached_count,
        "no_spans_emitted" => spans::none,
        "no_edge_spans" => spans::no_edges,
        "no_llm_provider_span" => spans::no_model,
        "llm_span_attributes" => spans::of_model,
        "llm_span_attributes_absent" => spans::not_of_model,
        "metrics" => metrics::all,
        "log_records" => logs::all,
        "invoke_rejects_at_api_boundary" => error::refused,
        "augment_rejects_at_call_site" => error::refused_in_a_node,
        // There is no client of Langfuse that could make any.
        "no_langfuse_observations_emitted" => |expected, seen| same(expected, &true.into(), seen),
        _ => return None,
    };
    Some(Box::new(check))
}

/// A failed comparison.
fn differs(expected: impl std::fmt::Display, actual: impl std::fmt::Display) -> Failure {
    Failure::mismatch(format!("expected {expected}, got {actual}"))
}

/// What must be a list.
fn items(expected: &Value) -> Result<&[Value], Failure> {
    let list = expected.as_array().map(Vec::as_slice);
    list.ok_or_else(|| Failure::invalid(format!("it must be a list, not {expected}")))
}

/// What must be a mapping.
fn entries(expected: &Value) -> Result<&Map, Failure> {
    expected.as_object().ok_or_else(|| Failure::invalid(format!("it must be a mapping, not {expected}")))
}

/// A mapping that must match another in full; tokens count.
fn same(expected: &Value, actual: &Value, evidence: &Evidence) -> Result<(), Failure> {
    let expected = evidence.past.resolve(expected)?;
    if evidence.bindings.matches(&expected, actual) { Ok(()) } else { Err(differs(&expected, actual)) }
}
