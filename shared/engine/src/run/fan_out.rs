//! Running a fan-out node: one instance per item, several at once, merged in order (pipeline-utilities §9).

use std::sync::Arc;

use dormouse_ports::{Category, Map};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::attempts::Config;
use super::child::{Child, PartEnd, PartWork, no_suspension};
use super::dispatch::Dispatch;
use super::pausing::Contained;
use super::record::Boundary;
use super::slot::Wish;
use crate::graph::{Amount, ErrorPolicy, FanOut, OnEmpty};
use crate::observe::FanOutConfig;
use crate::{NodeError, State, Update};

/// What an instance contributed: what came of it, or why it failed.
type Contribution = Result<Update, NodeError>;

/// A fan-out whose numbers are known.
struct Resolved {
    states: Vec<State>,
    concurrency: Option<usize>,
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
            self.attempts.resolved(Config { fan_out: Some(Arc::new(config)), ..Config::default() });
        }
        let work = async {
            let resolved = resolved?;
            if resolved.states.is_empty() && fan_out.on_empty == OnEmpty::Raise {
                let message = format!("the fan-out `{}` has no instances", self.name);
                return Err(NodeError::new(message).with_category(Category::FanOutEmpty));
            }
            let contributions = self.instances(fan_out, resolved, &state).await?;
            Ok(fan_in(fan_out, contributions))
        };
        self.attempt(state.clone(), work).await
    }

    /// Runs all instances and returns their contributions in order.
    async fn instances(
        &self,
        fan_out: &FanOut,
        resolved: Resolved,
        snapshot: &State,
    ) -> Result<Vec<Contribution>, NodeError> {
        let total = resolved.states.len();
        let most = resolved.concurrency.unwrap_or(usize::MAX);
        let contribution = |end: &State| contribution(fan_out, end);
        let start = |(index, state): (usize, State)| self.instance(fan_out, &contribution, snapshot, index, state);
        let mut waiting = resolved.states.into_iter().enumerate();
        let mut running: FuturesUnordered<_> = waiting.by_ref().take(most).map(start).collect();
        let mut contributions: Vec<Option<Contribution>> = Vec::new();
        contributions.resize_with(total, || None);
        while let Some((index, end)) = running.next().await {
            match end {
                PartEnd::Done(update) => contributions[index] = Some(Ok(update)),
                PartEnd::Failed(error) if fan_out.error_policy == ErrorPolicy::FailFast => return Err(error.wrapped()),
                PartEnd::Failed(error) => contributions[index] = Some(Err(error)),
                PartEnd::Refused(refusal) => return self.stop_by(Wish::Refused(refusal)).await,
                PartEnd::Paused(pause) => {
                    let partial = fan_in(fan_out, contributions.into_iter().flatten().collect());
                    let contained = Contained { pause, partial, part: ("fan_out_index", index.into()) };
                    return self.stop_by(Wish::Contained(Box::new(contained))).await;
                }
            }
            running.extend(waiting.next().map(start));
        }
        Ok(contributions.into_iter().flatten().collect())
    }

    async fn instance(
        &self,
        fan_out: &FanOut,
        contribution: &(dyn Fn(&State) -> Update + Send + Sync),
        snapshot: &State,
        index: usize,
        state: State,
    ) -> (usize, PartEnd) {
        let child = Child {
            dispatch: self,
            work: PartWork::Graph { graph: &fan_out.graph, contribution },
            middleware: &fan_out.middleware,
            boundary: Boundary::Instance(u32::try_from(index).unwrap_or(u32::MAX)),
            snapshot,
            no_suspension: no_suspension(fan_out.error_policy),
            slot: Arc::default(),
        };
        (index, child.run(state).await)
    }
}

/// How many instances there are, in which states they start, and how many run at once (§9.1, §9.2).
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
    count.and_then(|count| usize::try_from(count).ok()).ok_or_else(|| {
        let message = format!("a fan-out's count must not be negative, and is {count:?}");
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

/// What a finished instance contributes, by the names of its own fields.
fn contribution(fan_out: &FanOut, end: &State) -> Update {
    let fields = fan_out.collect_field.iter().chain(fan_out.extra_outputs.iter().map(|(_, from)| from));
    fields.filter_map(|field| Some((field.clone(), end.get(field)?.clone()))).collect()
}

/// Merges the contributions in the order of their instances (§9.3, §9.4). A degraded instance that leaves a field out
/// contributes null for it.
fn fan_in(fan_out: &FanOut, contributions: Vec<Contribution>) -> Update {
    let count = contributions.len();
    let (mut collected, mut errors, mut extras) = (Vec::new(), Vec::new(), Update::none());
    for (index, contribution) in contributions.into_iter().enumerate() {
        match contribution {
            Ok(update) => {
                let value = |field: &Arc<str>| update.get(field).cloned().unwrap_or_default();
                collected.extend(fan_out.collect_field.as_ref().map(value));
                for (field, from) in &fan_out.extra_outputs {
                    extras = extras.then(Update::none().with(field.clone(), value(from)));
                }
            }
            Err(error) => errors.push(error_record("fan_out_index", index.to_string(), &error)),
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

/// How a failed part is recorded under the `collect` policy: its name, and the category under which it failed.
pub(super) fn error_record(key: &str, part: String, error: &NodeError) -> Value {
    let mut record = Map::new();
    record.insert(key.to_owned(), part.into());
    record.insert("category".to_owned(), error.surface().as_str().into());
    record.into()
}
