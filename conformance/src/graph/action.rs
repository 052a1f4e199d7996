//! What a fixture's node does, in the order in which its directives stand (conformance-adapter §5.1, §8.3).

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{Node, NodeError, State, Update, current, save_session, suspend, suspend_and_rerun};
use dormouse_ports::{Category, Map, SignalDescriptor};
use serde_json::Value;

use super::Stage;
use super::context::{LogSpec, augment, entries_of};
use super::fan_out::pairs;
use super::flaky::{self, Counts, Flaky, item_of};
use super::middleware::Layer;
use super::raised::Raised;
use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Drained;
use crate::matching::equal;
use crate::models::{ModelCallSpec, PromptUse, ToolCallSpec};
use crate::sessions::number;

/// The directives of a node, in document order.
#[derive(Clone, Debug)]
pub(super) struct Actions(Vec<Action>);

/// Draining from inside of a node (graph-engine §6, per-invocation drain).
#[derive(Clone, Debug)]
pub(super) struct DrainSpec {
    pub(super) timeout: Option<Duration>,
    /// The observer of which a snapshot is taken.
    pub(super) observer: Option<String>,
}

#[derive(Clone, Debug)]
enum Action {
    Update(Map),
    /// As `Update`, but a name of a field stands for its value where the text itself does not fit.
    UpdatePure(Map),
    /// Field, the field that it is read from, and what numbers are multiplied by.
    Compute(Vec<(String, String)>, i64),
    Raise(Raised),
    Fail(Box<Flaky>),
    Sleep(Duration),
    Drain(DrainSpec),
    Suspend(SuspendSpec),
    /// Suspends where the condition holds; does the other actions elsewhere.
    SuspendIf(Condition, SuspendSpec, Actions),
    SaveSession,
    Log(LogSpec),
    AugmentMetadata(Map),
    /// Key of the metadata, and the field that it is read from.
    AugmentFromField(Vec<(String, String)>),
    /// Into which field the metadata goes, as it is at this point.
    CaptureMetadata(String),
    /// Another writer saves the session while this node runs.
    WriteSessionBehind(Map),
    /// Calls of models that follow in the node are made with it.
    RenderPrompt(PromptUse),
    CallModel(ModelCallSpec),
    CallTool(Box<ToolCallSpec>),
}

#[derive(Clone, Debug)]
enum Condition {
    FieldEquals(String, Value),
    /// The item of the fan-out instance.
    ItemIndex(i64),
}

/// A call of `suspend()`.
#[derive(Clone, Debug)]
pub(super) struct SuspendSpec {
    pub(super) descriptor: SignalDescriptor,
    pub(super) node_completed: bool,
}

/// Reads a signal descriptor (suspension §4).
pub(crate) fn descriptor(mut wait: Directives<'_>) -> Result<SignalDescriptor, Failure> {
    let signal_id = wait.required_text("signal_id")?.into();
    let metadata = wait.mapping("metadata")?.cloned();
    wait.done()?;
    Ok(SignalDescriptor { signal_id, metadata })
}

impl Actions {
    /// Reads every directive of `node` that is an action; others stay unread.
    pub(super) fn read(node: &mut Directives<'_>) -> Result<Self, Failure> {
        let marked = node.flag("mark_node_completed")?;
        let mut actions = Vec::new();
        for key in node.unread() {
            match key {
                "update" => actions.push(Action::Update(fields(node, key)?)),
                "update_pure" => actions.push(Action::UpdatePure(fields(node, key)?)),
                "sleep_ms" => actions.extend(node.integer(key)?.map(millis).map(Action::Sleep)),
                "invoke_drain_events_for" => {
                    actions.extend(node.nested(key)?.map(DrainSpec::read).transpose()?.map(Action::Drain));
                }
                kind if flaky::KINDS.contains(&kind) => {
                    let mock = node.nested(kind)?.map(|mock| Flaky::read(kind, mock)).transpose()?;
                    actions.extend(mock.map(|mock| Action::Fail(Box::new(mock))));
                }
                "update_from_field" => actions.extend(node.nested(key)?.map(compute).transpose()?),
                "update_pure_from_state" => actions.extend(node.nested(key)?.map(operations).transpose()?),
                "raises" => {
                    let mut error = Raised::read(key, node.require(key)?)?;
                    if let Some(category) = node.text("error_category")? {
                        error.category = Some(Category::from_name(category));
                    }
                    actions.push(Action::Raise(error));
                }
                "suspend_with_descriptor" => {
                    let wait = node.nested(key)?.map(|wait| SuspendSpec::read(wait, marked)).transpose()?;
                    actions.extend(wait.map(Action::Suspend));
                }
                "conditional_suspend" => {
                    let beside = node.nested("on_other_indices")?;
                    let wait = node.nested(key)?.map(|wait| conditional(wait, beside, marked)).transpose()?;
                    actions.extend(wait);
                }
                "explicit_save_session" => {
                    actions.extend(node.flag(key)?.filter(|on| *on).map(|_| Action::SaveSession));
                }
                "emits_log" => {
                    actions.extend(node.given(key).map(|log| LogSpec::read(key, log)).transpose()?.map(Action::Log));
                }
                "augment_metadata" => actions.push(Action::AugmentMetadata(fields(node, key)?)),
                "augment_metadata_from_field" => {
                    actions.push(Action::AugmentFromField(pairs(node.nested(key)?)?));
                }
                "capture_invocation_metadata_into" => {
                    actions.extend(node.text(key)?.map(str::to_owned).map(Action::CaptureMetadata));
                }
                "renders_prompt" => {
                    actions.extend(node.text(key)?.map(PromptUse::one).map(Action::RenderPrompt));
                }
                "renders_prompt_group" => {
                    let member = node.nested(key)?.map(PromptUse::member).transpose()?;
                    actions.extend(member.map(Action::RenderPrompt));
                }
                "calls_llm" => {
                    let call = node.nested(key)?.map(ModelCallSpec::read).transpose()?;
                    actions.extend(call.map(Action::CallModel));
                }
                "calls_tool" => {
                    let call = node.nested(key)?.map(ToolCallSpec::read).transpose()?;
                    actions.extend(call.map(|call| Action::CallTool(Box::new(call))));
                }
                "concurrent_session_write" => actions.push(Action::WriteSessionBehind(fields(node, key)?)),
                _ => {}
            }
        }
        Ok(Self(actions))
    }

    pub(super) fn node(&self, name: &str, stage: &Stage) -> Arc<dyn Node> {
        Arc::new(ActingNode {
            actions: self.clone(),
            stage: stage.clone(),
            counts: Counts::default(),
            name: name.to_owned(),
        })
    }

    /// Middleware that stands inside of a directive.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let mut layers = Vec::new();
        for action in &self.0 {
            if let Action::Fail(mock) = action {
                layers.extend(mock.layers.iter().cloned());
            }
        }
        layers
    }
}

fn fields(node: &mut Directives<'_>, key: &str) -> Result<Map, Failure> {
    Ok(node.mapping(key)?.cloned().unwrap_or_default())
}

fn compute(mut given: Directives<'_>) -> Result<Action, Failure> {
    let multiplier = given.integer("multiplier")?.unwrap_or(1);
    let mut pairs = Vec::new();
    for to in given.unread() {
        pairs.push((to.to_owned(), given.required_text(to)?.to_owned()));
    }
    Ok(Action::Compute(pairs, multiplier))
}

/// `FIELD_times_NUMBER`, under the name of the field that it is for (conformance-adapter §5.1).
fn operations(given: Directives<'_>) -> Result<Action, Failure> {
    let pairs = pairs(Some(given))?;
    let read = |(to, name): &(String, String)| {
        let (from, factor) = name.rsplit_once("_times_")?;
        Some(((to.clone(), from.to_owned()), number(factor)?))
    };
    let unknown = || Failure::missing(format!("the operations {pairs:?}"));
    let (fields, factors): (Vec<_>, Vec<_>) =
        pairs.iter().map(read).collect::<Option<Vec<_>>>().ok_or_else(unknown)?.into_iter().unzip();
    match factors[..] {
        [factor, ref others @ ..] if others.iter().all(|other| *other == factor) => Ok(Action::Compute(fields, factor)),
        _ => Err(unknown()),
    }
}

fn millis(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

impl DrainSpec {
    fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let read = Self {
            timeout: given.seconds("timeout_seconds")?,
            observer: given.text("snapshot_observer")?.map(str::to_owned),
        };
        given.done()?;
        Ok(read)
    }
}

fn conditional(
    mut given: Directives<'_>,
    beside: Option<Directives<'_>>,
    marked: Option<bool>,
) -> Result<Action, Failure> {
    let condition = match given.integer("suspend_on_item_index")? {
        Some(index) => Condition::ItemIndex(index),
        None => Condition::FieldEquals(given.required_text("if_field")?.to_owned(), given.require("equals")?.clone()),
    };
    let marked = given.flag("mark_node_completed")?.or(marked);
    let wait = given.nested("descriptor")?.ok_or_else(|| Failure::invalid("conditional_suspend has no descriptor"))?;
    let wait = SuspendSpec::read(wait, marked)?;
    let otherwise = match given.nested("on_other_indices")?.or(beside) {
        None => Actions(Vec::new()),
        Some(mut others) => {
            let actions = Actions::read(&mut others)?;
            others.done()?;
            actions
        }
    };
    given.done()?;
    Ok(Action::SuspendIf(condition, wait, otherwise))
}

impl Condition {
    fn holds(&self, state: &State) -> bool {
        match self {
            Self::FieldEquals(field, value) => equal(value, state.get(field).unwrap_or(&Value::Null)),
            Self::ItemIndex(index) => item_of(state) == Some(*index),
        }
    }
}

impl SuspendSpec {
    async fn suspend(&self) -> NodeError {
        if self.node_completed {
            suspend(self.descriptor.clone()).await
        } else {
            suspend_and_rerun(self.descriptor.clone()).await
        }
    }
}

struct ActingNode {
    actions: Actions,
    stage: Stage,
    counts: Counts,
    /// The node's own name.
    name: String,
}

#[async_trait]
impl Node for ActingNode {
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        let mut update = Map::new();
        let mut prompt = None;
        let mut todo: Vec<&Action> = self.actions.0.iter().rev().collect();
        while let Some(action) = todo.pop() {
            match action {
                Action::Update(fields) => update.extend(fields.clone()),
                Action::Compute(pairs, multiplier) => {
                    update.extend(pairs.iter().map(|(to, from)| (to.clone(), product(&state, from, *multiplier))));
                }
                Action::UpdatePure(fields) => update.extend(literal(fields, &state)),
                Action::Raise(error) => return Err(error.error()),
                Action::Fail(mock) => {
                    let success = mock.call(&self.counts, &self.stage, &state);
                    update.extend(success.map_err(|error| error.error())?);
                }
                Action::Sleep(duration) => tokio::time::sleep(*duration).await,
                Action::Drain(drain) => self.drain(drain).await?,
                Action::Suspend(wait) => return Err(wait.suspend().await),
                Action::SuspendIf(condition, wait, _) if condition.holds(&state) => return Err(wait.suspend().await),
                Action::SuspendIf(_, _, otherwise) => todo.extend(otherwise.0.iter().rev()),
                Action::Log(log) => log.emit(),
                Action::AugmentMetadata(entries) => augment(entries.clone())?,
                Action::AugmentFromField(pairs) => augment(entries_of(pairs, &state))?,
                Action::CaptureMetadata(field) => {
                    let metadata = current().map(|identity| identity.metadata.clone()).unwrap_or_default();
                    update.insert(field.clone(), Value::Object(metadata));
                }
                Action::SaveSession => save_session(&Update::from(update.clone())).await?,
                Action::CallTool(call) => update.extend(call.call(&*self.stage.clock, self.stage.model.shown())?),
                Action::RenderPrompt(rendered) => prompt = Some(rendered),
                Action::CallModel(call) => update.extend(self.stage.model.call_under(prompt, call).await?),
                Action::WriteSessionBehind(saved) => self.write_session_behind(saved.clone()).await?,
            }
        }
        Ok(Update::from(update))
    }
}

impl ActingNode {
    /// Waits for what observers were not told yet, and notes what they had been told then.
    async fn drain(&self, drain: &DrainSpec) -> Result<(), NodeError> {
        let graph = self.stage.graph.get().and_then(Weak::upgrade);
        let graph = graph.ok_or_else(|| NodeError::new("the graph is gone"))?;
        let identity = current().ok_or_else(|| NodeError::new("a node runs inside of an invocation"))?;
        let draining = graph.drain_events_for(&*self.stage.clock, &identity.invocation_id, drain.timeout);
        let summary = self.stage.ledger.drained(drain.timeout, draining).await;
        let observer = drain.observer.clone();
        self.stage.ledger.write(|pages| {
            let told = pages.delivered.iter().filter(|delivered| Some(&delivered.observer) == observer.as_ref());
            let events = told.map(|delivered| delivered.event.clone()).collect();
            pages.drained.insert(self.name.clone(), Drained { summary, observer, events });
        });
        Ok(())
    }

    async fn write_session_behind(&self, state: Map) -> Result<(), NodeError> {
        let session_id = current().and_then(|identity| identity.session_id.clone());
        let session_id = session_id.ok_or_else(|| NodeError::new("the invocation has no session"))?;
        self.stage.store.seed_session(&session_id, state, String::new()).await.map_err(NodeError::new)
    }
}

/// A text that names a field and stands where no text may stand is read from that field.
fn literal(fields: &Map, state: &State) -> Map {
    let fits = |field: &str| state.get(field).is_none_or(|value| value.is_string() || value.is_null());
    let value = |(field, value): (&String, &Value)| {
        let named = value.as_str().and_then(|name| state.get(name)).filter(|_| !fits(field));
        (field.clone(), named.unwrap_or(value).clone())
    };
    fields.iter().map(value).collect()
}

fn product(state: &State, field: &str, multiplier: i64) -> Value {
    match state.get(field) {
        Some(value) if multiplier == 1 => value.clone(),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(number) => (number * multiplier).into(),
            None => number.as_f64().map_or(Value::Null, |number| (number * multiplier as f64).into()),
        },
        _ => Value::Null,
    }
}
