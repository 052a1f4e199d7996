//! Running a fan-out node: one instance per item, several at once, merged in order (pipeline-utilities §9).

use std::sync::Arc;

use dormouse_ports::{Category, InstanceProgress, InstanceState, JournalEntry, Map};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::attempts::AttemptConfig;
use super::child::{Child, ChildEnd, PartWork, no_suspension};
use super::dispatch::Dispatch;
use super::lineage::Boundary;
use super::pause::{Contained, DescriptorPart, NewPause, SuspendRefusal};
use super::progress::{Contribution, Ticket};
use super::slot::SuspendRequest;
use super::walk::Around;
use crate::ambient;
use crate::graph::{Amount, ErrorPolicy, FanOut, OnEmpty};
use crate::observe::FanOutConfig;
use crate::{NodeError, Reducer, State, StateSchema, Update};

/// Instances of a fan-out over a count. All of them have a state before the first one runs.
const MOST_INSTANCES: usize = 100_000;

/// End of an instance.
enum InstanceEnd {
    Contributed {
        contribution: Contribution,
        recorded: Vec<JournalEntry>,
    },
    /// It failed, and the fan-out fails with it.
    Failed(NodeError),
    Paused(Arc<NewPause>),
    Refused(Arc<SuspendRefusal>),
}

/// A fan-out with its numbers known.
struct Resolved {
    states: Vec<State>,
    concurrency: Option<usize>,
}

/// Context that all instances of one execution of a fan-out share.
struct Instances<'f> {
    fan_out: &'f FanOut,
    around: &'f Around,
    /// Names the execution, where progress is saved.
    ticket: Option<Ticket>,
}

impl Dispatch<'_> {
    pub(super) async fn fan_out(&self, fan_out: &FanOut, state: State) -> Result<Update, NodeError> {
        let resolved = resolve(fan_out, &state);
        if let Ok(resolved) = &resolved {
            let config = FanOutConfig {
                item_count: resolved.states.len(),
                concurrency: resolved.concurrency,
                error_policy: fan_out.error_policy.as_str(),
                parent_node_name: self.name.clone(),
            };
            self.attempts.resolved(AttemptConfig { fan_out: Some(Arc::new(config)), ..AttemptConfig::default() });
        }
        let work = async {
            let resolved = resolved?;
            if resolved.states.is_empty() && fan_out.on_empty == OnEmpty::Raise {
                let message = format!("the fan-out `{}` has no instances", self.name);
                return Err(NodeError::new(message).with_category(Category::FanOutEmpty));
            }
            let around = self.around(state.clone());
            let contributions = self.instances(fan_out, resolved, &around).await?;
            Ok(fan_in(fan_out, self.walk.graph.schema(), contributions))
        };
        self.attempt(state.clone(), work).await
    }

    /// Runs all instances and returns their contributions in order.
    async fn instances(
        &self,
        fan_out: &FanOut,
        resolved: Resolved,
        around: &Around,
    ) -> Result<Vec<Contribution>, NodeError> {
        let most = resolved.concurrency.unwrap_or(usize::MAX);
        let (ticket, mut contributions) = match self.begin_instances(fan_out, resolved.states.len()) {
            Ok(begun) => begun,
            Err(refusal) => return self.stop_by(SuspendRequest::Refused(refusal)).await,
        };
        let all = Instances { fan_out, around, ticket };
        let start = |(index, state): (usize, State)| self.instance(&all, index, state);
        let waiting: Vec<_> =
            resolved.states.into_iter().enumerate().filter(|(index, _)| contributions[*index].is_none()).collect();
        let mut waiting = waiting.into_iter();
        let mut running: FuturesUnordered<_> = waiting.by_ref().take(most).map(start).collect();
        let mut recorded = vec![Vec::new(); contributions.len()];
        // Nothing may be awaited in this loop: an instance that is just being saved would wait for ever.
        while let Some((index, end)) = running.next().await {
            match end {
                InstanceEnd::Contributed { contribution, recorded: own } => {
                    contributions[index] = Some(contribution);
                    recorded[index] = own;
                }
                InstanceEnd::Failed(error) => return Err(error.wrapped()),
                InstanceEnd::Refused(refusal) => return self.stop_by(SuspendRequest::Refused(refusal)).await,
                InstanceEnd::Paused(pause) => {
                    let done = contributions.into_iter().flatten().collect();
                    let partial = fan_in(fan_out, self.walk.graph.schema(), done);
                    let part = DescriptorPart { key: "fan_out_index", value: index.into() };
                    let recorded = recorded.concat();
                    let contained = Contained { pause, partial, recorded, part };
                    return self.stop_by(SuspendRequest::Contained(Box::new(contained))).await;
                }
            }
            running.extend(waiting.next().map(start));
        }
        ambient::adopt(recorded.concat());
        Ok(contributions.into_iter().flatten().collect())
    }

    /// Runs one instance to its end, which is saved before any other part sees it.
    async fn instance(&self, all: &Instances<'_>, index: usize, state: State) -> (usize, InstanceEnd) {
        let Instances { fan_out, around, ticket } = *all;
        let contribution = |end: &State| contribution(fan_out, end);
        let child = Child {
            dispatch: self,
            work: PartWork::Graph { graph: &fan_out.graph, contribution: &contribution },
            middleware: &fan_out.middleware,
            boundary: Boundary::Instance(number(index)),
            around,
            no_suspension: no_suspension(fan_out.error_policy),
            ticket,
        };
        let (contribution, recorded) = match child.run(state).await {
            ChildEnd::Done { update, recorded } => (Ok(update), recorded),
            ChildEnd::Failed(error) if fan_out.error_policy == ErrorPolicy::FailFast => {
                return (index, InstanceEnd::Failed(error));
            }
            ChildEnd::Failed(error) => (Err(error_record("fan_out_index", index.to_string(), &error)), Vec::new()),
            ChildEnd::Refused(refusal) => return (index, InstanceEnd::Refused(refusal)),
            ChildEnd::Paused(pause) => return (index, InstanceEnd::Paused(pause)),
        };
        match self.end_instance(all, number(index), &contribution).await {
            Ok(()) => (index, InstanceEnd::Contributed { contribution, recorded }),
            Err(refusal) => (index, InstanceEnd::Refused(refusal)),
        }
    }

    /// Contributions of the instances before a crash; no entry has the place of each one that is to run.
    fn begin_instances(&self, fan_out: &FanOut, count: usize) -> Result<StartedFanOut, Arc<SuspendRefusal>> {
        let Some(checkpoints) = self.checkpoints() else {
            return Ok((None, vec![None; count]));
        };
        let key = self.fan_out_key();
        let step = self.walk.run.next_step();
        let (ticket, instances) = checkpoints.progress.begin(&key, count, step).map_err(|saved| {
            let reason = format!("the fan-out `{}` has {count} instances, its checkpoint {saved}", self.name);
            Arc::new(SuspendRefusal::new(Category::CheckpointRecordInvalid, reason))
        })?;
        Ok((Some(ticket), instances.into_iter().map(|saved| taken_up(fan_out, saved)).collect()))
    }

    async fn end_instance(
        &self,
        all: &Instances<'_>,
        index: u32,
        contribution: &Contribution,
    ) -> Result<(), Arc<SuspendRefusal>> {
        let (Some(checkpoints), Some(ticket)) = (&self.walk.run.checkpoints, all.ticket) else { return Ok(()) };
        checkpoints.progress.contributed(ticket, index, put_down(all.fan_out, contribution));
        self.save_contribution(all.around.own()).await
    }
}

/// The execution of a fan-out as its progress knows it, and what is contributed already.
type StartedFanOut = (Option<Ticket>, Vec<Option<Contribution>>);

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// `contribution` as it is saved.
fn put_down(fan_out: &FanOut, contribution: &Contribution) -> InstanceProgress {
    let completed = InstanceProgress { state: InstanceState::Completed, ..InstanceProgress::not_started() };
    match contribution {
        Err(record) => InstanceProgress { result: record.clone(), result_is_error: true, ..completed },
        Ok(update) => {
            let value = |field: &Arc<str>| update.get(field).cloned().unwrap_or_default();
            let extras = fan_out.extra_outputs.iter().map(|(_, from)| (from.to_string(), value(from)));
            let result = fan_out.collect_field.as_ref().map(value).unwrap_or_default();
            InstanceProgress { result, extra_outputs: extras.collect(), ..completed }
        }
    }
}

/// Contribution of `saved`, if it is completed.
fn taken_up(fan_out: &FanOut, saved: InstanceProgress) -> Option<Contribution> {
    match (saved.state, saved.result_is_error) {
        (InstanceState::InFlight | InstanceState::NotStarted, _) => None,
        (InstanceState::Completed, true) => Some(Err(saved.result)),
        (InstanceState::Completed, false) => {
            let extras = Update::from(saved.extra_outputs);
            Some(Ok(fan_out
                .collect_field
                .iter()
                .fold(extras, |update, field| update.with(field.clone(), saved.result.clone()))))
        }
    }
}

/// Resolves the number of instances, the states in which they start, and the number that run at once (§9.1, §9.2).
fn resolve(fan_out: &FanOut, parent: &State) -> Result<Resolved, NodeError> {
    let items = match (&fan_out.items_field, &fan_out.count) {
        (Some(field), _) => match parent.get(field) {
            Some(Value::Array(items)) => items.iter().cloned().map(Some).collect(),
            Some(_) | None => {
                let message = format!("field `{field}` holds no list of items");
                return Err(NodeError::new(message).with_category(Category::FanOutFieldNotList));
            }
        },
        (None, count) => vec![None; instance_count(count.as_ref(), parent)?],
    };
    let states = items.into_iter().map(|item| entry_state(fan_out, parent, item)).collect();
    Ok(Resolved { states, concurrency: concurrency(fan_out.concurrency.as_ref(), parent)? })
}

fn instance_count(count: Option<&Amount>, parent: &State) -> Result<usize, NodeError> {
    let count = count.map_or(Ok(None), |count| count.resolve(parent))?;
    let number = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= MOST_INSTANCES);
    number.ok_or_else(|| {
        let count = count.map_or_else(|| "none".to_owned(), |count| count.to_string());
        let message = format!("a fan-out's count must be a number from 0 to {MOST_INSTANCES}, and is {count}");
        NodeError::new(message).with_category(Category::FanOutInvalidCount)
    })
}

fn concurrency(amount: Option<&Amount>, parent: &State) -> Result<Option<usize>, NodeError> {
    let Some(most) = amount.map_or(Ok(None), |amount| amount.resolve(parent))? else { return Ok(None) };
    match usize::try_from(most) {
        Ok(most) if most > 0 => Ok(Some(most)),
        Ok(_) | Err(_) => {
            let message = format!("a fan-out's concurrency must be positive, and is {most}");
            Err(NodeError::new(message).with_category(Category::FanOutInvalidConcurrency))
        }
    }
}

fn entry_state(fan_out: &FanOut, parent: &State, item: Option<Value>) -> State {
    let mut state = fan_out.graph.schema().defaults();
    for (field, from) in &fan_out.inputs {
        if let Some(value) = parent.shared(from) {
            state.set(field, value.clone());
        }
    }
    if let (Some(field), Some(item)) = (&fan_out.item_field, item) {
        state.set(field, Arc::new(item));
    }
    state
}

/// Contribution of a finished instance, by the names of its own fields.
fn contribution(fan_out: &FanOut, end: &State) -> Update {
    let fields = fan_out.collect_field.iter().chain(fan_out.extra_outputs.iter().map(|(_, from)| from));
    fields.filter_map(|field| Some((field.clone(), end.get(field)?.clone()))).collect()
}

/// Merges the contributions in the order of their instances (§9.3, §9.4). A degraded instance that leaves a field out
/// contributes null for it.
fn fan_in(fan_out: &FanOut, schema: &StateSchema, contributions: Vec<Contribution>) -> Update {
    let count = contributions.len();
    let mut collected = Vec::new();
    let mut errors = Vec::new();
    let mut extras = Update::none();
    for contribution in contributions {
        match contribution {
            Ok(update) => {
                let value = |field: &Arc<str>| update.get(field).cloned().unwrap_or_default();
                collected.extend(fan_out.collect_field.as_ref().map(value));
                for (field, from) in &fan_out.extra_outputs {
                    let value = as_update(schema, field, value(from));
                    extras = extras.then(Update::none().with(field.clone(), value));
                }
            }
            Err(record) => errors.push(record),
        }
    }
    let mut update = Update::none();
    if let Some(target) = &fan_out.target_field {
        update = update.with(target.clone(), collected);
    }
    if let (Some(field), false) = (&fan_out.errors_field, errors.is_empty()) {
        update = update.with(field.clone(), errors);
    }
    if let Some(field) = &fan_out.count_field {
        update = update.with(field.clone(), count);
    }
    update.then(extras)
}

/// One instance's value as an update of the parent's `field`: where its reducer extends a list, a single value is one
/// item (§9.3).
fn as_update(schema: &StateSchema, field: &str, value: Value) -> Value {
    match schema.get(field).map(|(_, declared)| &declared.reducer) {
        Some(Reducer::Append | Reducer::BoundedAppend { .. } | Reducer::DedupeAppend { .. }) if !value.is_array() => {
            Value::Array(vec![value])
        }
        Some(_) | None => value,
    }
}

/// Record of a failed part under the `collect` policy: its name, and the category under which it failed.
pub(super) fn error_record(key: &str, part: String, error: &NodeError) -> Value {
    let mut record = Map::new();
    record.insert(key.to_owned(), part.into());
    record.insert("category".to_owned(), error.surface().as_str().into());
    record.into()
}
