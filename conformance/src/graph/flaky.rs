//! Nodes that fail by plan (conformance-adapter §5.1, failure mocks).

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use dormouse_engine::State;
use dormouse_ports::{Category, Map};
use indexmap::IndexMap;
use serde_json::Value;

use super::Stage;
use super::instance::instances;
use super::middleware::Layer;
use super::raised::Raised;
use crate::Failure;
use crate::directives::Directives;

/// A plan of failures and the update that stands at its end.
#[derive(Clone, Debug)]
pub(super) struct Flaky {
    plan: Plan,
    success: Map,
    /// Middleware that stands inside of the mock.
    pub(super) layers: Vec<Layer>,
}

#[derive(Clone, Debug)]
enum Plan {
    /// One entry per attempt; those behind the end succeed.
    Sequence(Vec<Option<Raised>>),
    /// The instance with this item fails always.
    WithItem(i64, Raised),
    /// Each instance fails its first attempts.
    FirstAttempts(usize, Raised),
    /// These instances fail in the first invocation, those in every one.
    Instances { first: Vec<usize>, always: Vec<usize>, error: Raised },
    /// So many attempts of the first invocation fail, and so many of a later one.
    Invocations { first: usize, later: usize, error: Raised },
}

/// The kinds of mocks.
pub(super) const KINDS: &[&str] =
    &["flaky", "flaky_by_index", "flaky_per_index", "flaky_instance_only", "flaky_resume_aware"];

impl Flaky {
    pub(super) fn read(kind: &str, mut given: Directives<'_>) -> Result<Self, Failure> {
        let layers = Layer::read_list(&mut given, "middleware")?;
        let mut success = Map::new();
        for key in ["success_update", "on_success", "success_compute"] {
            success.extend(given.mapping(key)?.cloned().unwrap_or_default());
        }
        let plan = match kind {
            "flaky" => sequence(&mut given)?,
            "flaky_by_index" => by_index(&mut given)?,
            "flaky_instance_only" => {
                let times = count(&mut given, "fail_count_per_instance")?.unwrap_or(1);
                Plan::FirstAttempts(times, error(&mut given)?)
            }
            "flaky_per_index" => Plan::Instances {
                first: indices(&mut given, "fail_first_run_indices")?,
                always: indices(&mut given, "always_fail_indices")?,
                error: error(&mut given)?,
            },
            _ => Plan::Invocations {
                first: count(&mut given, "fail_first_invocation_count")?.unwrap_or_default(),
                later: count(&mut given, "fail_resumed_invocation_count")?.unwrap_or_default(),
                error: error(&mut given)?,
            },
        };
        given.done()?;
        Ok(Self { plan, success, layers })
    }

    /// What the next call does.
    pub(super) fn call(&self, counts: &Counts, stage: &Stage, state: &State) -> Result<Map, Raised> {
        stage.ledger.write(|pages| pages.flaky_calls += 1);
        let is_first = stage.round.load(Ordering::Relaxed) == 0;
        let failure = match &self.plan {
            Plan::Sequence(entries) => entries.get(counts.next(stage, &[])).cloned().flatten(),
            Plan::WithItem(item, error) => (item_of(state) == Some(*item)).then(|| error.clone()),
            Plan::FirstAttempts(times, error) => (counts.next(stage, &instances()) < *times).then(|| error.clone()),
            Plan::Instances { first, always, error } => {
                let index = instances().last().copied().unwrap_or_default();
                ((is_first && first.contains(&index)) || always.contains(&index)).then(|| error.clone())
            }
            Plan::Invocations { first, later, error } => {
                let times = if is_first { *first } else { *later };
                (counts.next(stage, &[]) < times).then(|| error.clone())
            }
        };
        failure.map_or_else(|| Ok(from_state(&self.success, state)), Err)
    }
}

fn sequence(given: &mut Directives<'_>) -> Result<Plan, Failure> {
    if given.flag("fail_first_invocation_only")? == Some(true) {
        let error = Raised { message: FAILED.to_owned(), ..Raised::read_fields(given)? };
        return Ok(Plan::Invocations { first: usize::MAX, later: 0, error });
    }
    if let Some(times) = count(given, "fail_count")? {
        return Ok(Plan::FirstAttempts(times, error(given)?));
    }
    let mut entries = Vec::new();
    for (at, entry) in given.list("failure_sequence")? {
        entries.push(if entry.is_null() { None } else { Some(Raised::read(&at, entry)?) });
    }
    Ok(Plan::Sequence(entries))
}

fn by_index(given: &mut Directives<'_>) -> Result<Plan, Failure> {
    let item = given.integer("fail_when_idx")?;
    let times = count(given, "fail_count_per_idx")?;
    let error = error(given)?;
    match (item, times) {
        (Some(item), _) => Ok(Plan::WithItem(item, error)),
        (None, Some(times)) => Ok(Plan::FirstAttempts(times, error)),
        (None, None) => Err(Failure::invalid("flaky_by_index needs fail_when_idx or fail_count_per_idx")),
    }
}

const FAILED: &str = "the mock failed by plan";

/// The error of a mock that names at most a category.
fn error(given: &mut Directives<'_>) -> Result<Raised, Failure> {
    let mut error = Raised { message: FAILED.to_owned(), ..Raised::read_fields(given)? };
    error.category.get_or_insert(Category::ProviderUnavailable);
    Ok(error)
}

fn count(given: &mut Directives<'_>, key: &str) -> Result<Option<usize>, Failure> {
    Ok(given.integer(key)?.map(|number| usize::try_from(number).unwrap_or_default()))
}

fn indices(given: &mut Directives<'_>, key: &str) -> Result<Vec<usize>, Failure> {
    let numbers = given.list(key)?.into_iter();
    Ok(numbers.filter_map(|(_, number)| usize::try_from(number.as_u64()?).ok()).collect())
}

/// The first number of the state, which is where a fan-out puts an instance's item.
pub(super) fn item_of(state: &State) -> Option<i64> {
    state.iter().find_map(|(_, value)| value.as_i64())
}

/// Strings that name a field of the state stand for its value (conformance-adapter §5.1).
pub(super) fn from_state(fields: &Map, state: &State) -> Map {
    let value = |value: &Value| value.as_str().and_then(|name| state.get(name)).unwrap_or(value).clone();
    fields.iter().map(|(field, given)| (field.clone(), value(given))).collect()
}

/// How often a mock was called, apart for each invocation and each fan-out instance.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<(usize, IndexMap<Vec<usize>, usize>)>);

impl Counts {
    /// The number of calls so far.
    fn next(&self, stage: &Stage, of: &[usize]) -> usize {
        let round = stage.round.load(Ordering::Relaxed);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.0 != round {
            *counts = (round, IndexMap::new());
        }
        let count = counts.1.entry(of.to_vec()).or_default();
        *count += 1;
        *count - 1
    }
}
