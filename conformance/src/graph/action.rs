//! What a fixture's node does, in the order in which its directives stand (conformance-adapter §5.1, §8.3).

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{Node, NodeError, State, Update, current, save_session, suspend, suspend_and_rerun};
use dormouse_ports::{Category, Map, SignalDescriptor};
use serde_json::Value;

use super::Stage;
use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;

/// The directives of a node, in document order.
#[derive(Clone, Debug)]
pub(super) struct Actions(Vec<Action>);

#[derive(Clone, Debug)]
enum Action {
    Update(Map),
    /// Field, the field that it is read from, and what numbers are multiplied by.
    Compute(Vec<(String, String)>, i64),
    Raise {
        category: Option<Category>,
        message: String,
    },
    Suspend(SuspendSpec),
    /// Suspends where the condition holds; does the other actions elsewhere.
    SuspendIf(Condition, SuspendSpec, Actions),
    SaveSession,
    /// Another writer saves the session while this node runs.
    WriteSessionBehind(Map),
}

#[derive(Clone, Debug)]
enum Condition {
    FieldEquals(String, Value),
    /// The first number of the state, which is where a fan-out puts an instance's item.
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
                "update" | "update_pure" => actions.push(Action::Update(fields(node, key)?)),
                "update_from_field" => actions.extend(node.nested(key)?.map(compute).transpose()?),
                "raises" => actions.push(raise(node.require(key)?)?),
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
                "concurrent_session_write" => actions.push(Action::WriteSessionBehind(fields(node, key)?)),
                _ => {}
            }
        }
        Ok(Self(actions))
    }

    pub(super) fn node(&self, stage: &Stage) -> Arc<dyn Node> {
        Arc::new(ActingNode { actions: self.clone(), stage: stage.clone() })
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

fn raise(value: &Value) -> Result<Action, Failure> {
    if let Value::String(message) = value {
        return Ok(Action::Raise { category: None, message: message.clone() });
    }
    let mut given = Directives::new("raises", value)?;
    // Whatever a node raises is a node_exception; naming that names no category of its own.
    let category = given.text("category")?.filter(|name| *name != "node_exception").map(Category::from_name);
    let message = given.text("message")?.unwrap_or("the node raised").to_owned();
    given.done()?;
    Ok(Action::Raise { category, message })
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
            Self::ItemIndex(index) => state.iter().find_map(|(_, value)| value.as_i64()) == Some(*index),
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
}

#[async_trait]
impl Node for ActingNode {
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        let mut update = Map::new();
        let mut todo: Vec<&Action> = self.actions.0.iter().rev().collect();
        while let Some(action) = todo.pop() {
            match action {
                Action::Update(fields) => update.extend(fields.clone()),
                Action::Compute(pairs, multiplier) => {
                    update.extend(pairs.iter().map(|(to, from)| (to.clone(), product(&state, from, *multiplier))));
                }
                Action::Raise { category, message } => {
                    let error = NodeError::new(message);
                    return Err(category.iter().cloned().fold(error, NodeError::with_category));
                }
                Action::Suspend(wait) => return Err(wait.suspend().await),
                Action::SuspendIf(condition, wait, _) if condition.holds(&state) => return Err(wait.suspend().await),
                Action::SuspendIf(_, _, otherwise) => todo.extend(otherwise.0.iter().rev()),
                Action::SaveSession => save_session(&Update::from(update.clone())).await?,
                Action::WriteSessionBehind(saved) => self.write_session_behind(saved.clone()).await?,
            }
        }
        Ok(Update::from(update))
    }
}

impl ActingNode {
    async fn write_session_behind(&self, state: Map) -> Result<(), NodeError> {
        let session_id = current().and_then(|identity| identity.session_id.clone());
        let session_id = session_id.ok_or_else(|| NodeError::new("the invocation has no session"))?;
        self.stage.store.seed_session(&session_id, state, String::new()).await.map_err(NodeError::new)
    }
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
