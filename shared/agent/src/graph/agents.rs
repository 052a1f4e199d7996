//! The tools by which agents call agents: one hands the run over, the other asks an agent and waits for its answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::current;
use dormouse_ports::tool::{
    Effect, Pending, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec,
};
use dormouse_ports::{
    ChildError, ChildLink, ChildRuns, ChildStanding, ChildStart, InvocationId, Map, ParentLink, SessionId,
};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::names::{ASK, SWITCH};
use crate::workspace::AgentDefinition;

/// Name of the source of both, under which it is told of the run.
pub(crate) const SOURCE: &str = "agents";
/// The most agents above one that asks another.
const DEEPEST: u32 = 3;
/// Between the two parts of the end of a task_id, of which the second tells the agent that was asked.
const OF_AGENT: char = 'x';
/// After which time an agent that waits for another one looks whether that has ended without its being told.
const LOOKS: Duration = Duration::from_secs(15 * 60);

/// The agents that an agent may call.
#[derive(Clone, Debug, Default)]
pub struct Colleagues {
    /// Those that it may hand a run over to, with what they are for.
    pub switch: Vec<Colleague>,
    /// Those that it may ask.
    pub ask: Vec<Colleague>,
    /// Runs those that it asks.
    pub runs: Option<Arc<dyn ChildRuns>>,
    /// In a replay, the children that the run had.
    pub(crate) recorded: Option<Arc<[ChildLink]>>,
}

/// An agent that another one may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Colleague {
    /// Its name.
    pub name: String,
    /// Purpose of the agent.
    pub description: String,
    /// True if the run that asks it goes on meanwhile.
    pub background: bool,
}

impl From<&AgentDefinition> for Colleague {
    fn from(agent: &AgentDefinition) -> Self {
        Self { name: agent.name.clone(), description: agent.description.clone(), background: agent.background }
    }
}

/// Arguments with which a model asks an agent.
#[derive(Debug, Deserialize)]
struct AgentQuestion {
    prompt: String,
    #[serde(default)]
    subagent_name: Option<String>,
    #[serde(default)]
    task_id: Option<String>,
    #[serde(default)]
    run_in_background: bool,
}

/// What a run tells its own source of agents, in the place of notes.
pub(crate) fn facts(depth: u32) -> Map {
    Map::from_iter([("depth".to_owned(), depth.into())])
}

impl Colleagues {
    /// Those to which runs may be handed over, and those that may be asked once [`runs`](Self::runs) is set.
    pub fn new(switch: Vec<Colleague>, ask: Vec<Colleague>) -> Self {
        Self { switch, ask, ..Self::default() }
    }

    /// The child that the call of that `key` begins; `None` for a call that begins none. The same for the same call.
    pub(crate) fn child_of(&self, name: &str, arguments: &Map, key: &str) -> Option<ChildLink> {
        if name != ASK {
            return None;
        }
        match &self.recorded {
            None => self.child(arguments, key).ok(),
            Some(recorded) => {
                let id = child_id(&current()?.invocation_id, key);
                let known = recorded.iter().find(|child| child.invocation_id == id)?;
                Some(ChildLink { signal_id: key.into(), ..known.clone() })
            }
        }
    }

    fn child(&self, arguments: &Map, key: &str) -> Result<ChildLink, String> {
        let question = AgentQuestion::deserialize(arguments).map_err(|error| error.to_string())?;
        let identity = current().ok_or("an agent is asked inside a run only")?;
        let asker = identity.session_id.as_ref().map_or(identity.invocation_id.as_str(), SessionId::as_str);
        let of_asker = sessions_asked_by(asker);
        let name = question.subagent_name.as_deref();
        let (asked, session) = match question.task_id {
            Some(id) => match id.strip_prefix(&of_asker) {
                Some(own) => (self.asked_before(name, own)?, id),
                None => return Err(format!("this conversation has asked no agent under the task_id `{id}`")),
            },
            None => {
                let asked = self.asked(name)?;
                (asked, format!("{of_asker}{}{OF_AGENT}{}", hashed(key, 16), mark_of(asked)))
            }
        };
        Ok(ChildLink {
            invocation_id: child_id(&identity.invocation_id, key),
            session_id: session.into(),
            graph: asked.name.clone(),
            signal_id: key.into(),
            background: question.run_in_background || asked.background,
            ended: false,
        })
    }

    /// The agent that was asked under the task_id with this end, which `name` may name as well. Ids of earlier versions do not
    /// tell of the agent.
    fn asked_before(&self, name: Option<&str>, end: &str) -> Result<&Colleague, String> {
        let Some((_, mark)) = end.split_once(OF_AGENT) else { return self.asked(name) };
        let before = self.ask.iter().find(|one| mark_of(one) == mark);
        let before = before.ok_or("the agent that was asked under this task_id may not be asked any more")?;
        match name.filter(|name| **name != before.name) {
            None => Ok(before),
            Some(other) => Err(format!(
                "the task_id is of a conversation with `{}`, not with `{other}`: leave `subagent_name` out to go on with it, or \
                 `task_id` to begin another one",
                before.name
            )),
        }
    }

    fn asked(&self, name: Option<&str>) -> Result<&Colleague, String> {
        let names = || self.ask.iter().map(|one| format!("`{}`", one.name)).collect::<Vec<_>>().join(", ");
        match (name, self.ask.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(format!("say which agent: `subagent_name` is one of {}", names())),
            (Some(name), all) => {
                let found = all.iter().find(|one| one.name == name);
                found.ok_or_else(|| format!("you may not ask `{name}`; there are {}", names()))
            }
        }
    }

    async fn ask(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let invalid = |message: String| ToolError::new(ToolErrorKind::InvalidArguments, message);
        let child = self.child(&call.arguments, &call.idempotency_key).map_err(invalid)?;
        let runs = self.runs.as_ref().ok_or_else(|| ToolError::permanent("no other agent can be asked here"))?;
        let depth = call.notes.get("depth").and_then(Value::as_u64).unwrap_or_default();
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        if depth >= DEEPEST {
            return Err(ToolError::permanent(format!(
                "agents ask agents at most {DEEPEST} deep: do this work yourself, or answer with what is missing"
            )));
        }
        let identity = current().ok_or_else(|| ToolError::permanent("an agent is asked inside a run only"))?;
        let parent = ParentLink {
            invocation_id: identity.invocation_id.clone(),
            signal_id: child.signal_id.clone(),
            depth: depth + 1,
        };
        let question = AgentQuestion::deserialize(&call.arguments).map_err(|error| invalid(error.to_string()))?;
        let said = json!([{ "role": "user", "content": question.prompt }]);
        let start = ChildStart {
            invocation_id: child.invocation_id.clone(),
            session_id: child.session_id.clone(),
            graph: child.graph.clone(),
            state: Map::from_iter([("messages".to_owned(), said)]),
            parent,
            metadata: identity.metadata.clone(),
            begun_for: identity.begun_for.clone(),
        };
        runs.begin(start).await.map_err(|error| not_begun(&error))?;
        if child.background {
            let told = json!({ "task_id": child.session_id, "agent": child.graph, "status": "running" });
            return Ok(ToolReply::Done(ToolOutput::value(told)));
        }
        match runs.look(&child.invocation_id).await.map_err(|error| not_begun(&error))? {
            ChildStanding::Ended(payload) | ChildStanding::Canceled(payload) => {
                Ok(ToolReply::Done(output_of(Some(payload))))
            }
            ChildStanding::Open | ChildStanding::Missing => Ok(ToolReply::Pending(Pending {
                reference: Some(child.session_id.to_string()),
                poll_after: Some(LOOKS),
                ..Pending::default()
            })),
        }
    }

    fn switch(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let to = call.arguments.get("to").and_then(Value::as_str).unwrap_or_default();
        match self.switch.iter().find(|one| one.name == to) {
            Some(one) => Ok(ToolReply::Done(ToolOutput::text(format!("the agent `{}` goes on from here", one.name)))),
            None => {
                let message = format!("you may not hand over to `{to}`");
                Err(ToolError::new(ToolErrorKind::InvalidArguments, message))
            }
        }
    }

    fn switch_spec(&self) -> ToolSpec {
        let names: Vec<&str> = self.switch.iter().map(|one| one.name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": { "to": { "type": "string", "enum": names } },
            "required": ["to"],
            "additionalProperties": false
        });
        let what = "Hands the conversation over to another agent, which goes on from here in your place.";
        spec(SWITCH, &listed(what, &self.switch), &schema)
    }

    fn ask_spec(&self) -> ToolSpec {
        let names: Vec<&str> = self.ask.iter().map(|one| one.name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": {
                "description": { "type": "string", "description": "The work in a few words" },
                "prompt": { "type": "string", "minLength": 1, "description": "The whole task: the agent knows nothing else of this conversation" },
                "subagent_name": { "type": "string", "enum": names },
                "task_id": { "type": "string", "description": "Goes on with what an agent did before under this id" },
                "run_in_background": { "type": "boolean", "description": "True to go on at once; you are told when the agent has ended" }
            },
            "required": ["prompt"],
            "additionalProperties": false
        });
        spec(ASK, &listed("Asks another agent to do something, and gives its answer.", &self.ask), &schema)
    }
}

#[async_trait]
impl ToolSource for Colleagues {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let switch = (!self.switch.is_empty()).then(|| self.switch_spec());
        let ask = (!self.ask.is_empty()).then(|| self.ask_spec());
        Ok(switch.into_iter().chain(ask).collect())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        if call.name == SWITCH { self.switch(call) } else { self.ask(call).await }
    }
}

/// The output in the payload of the signal of a child; an error where there is none.
pub(crate) fn output_of(payload: Option<Map>) -> ToolOutput {
    let output = payload.and_then(|payload| ToolOutput::deserialize(&Value::Object(payload)).ok());
    output.unwrap_or_else(|| ToolOutput::error("nothing is known of the agent any more"))
}

fn not_begun(error: &ChildError) -> ToolError {
    match error.transient {
        true => ToolError::new(ToolErrorKind::Transient, error.message.clone()),
        false => ToolError::permanent(error.message.clone()),
    }
}

fn spec(name: &str, description: &str, schema: &Value) -> ToolSpec {
    let mut spec = ToolSpec::new(name);
    spec.description = description.to_owned();
    // The child of a call is the same however often the call is made.
    spec.effect = Effect::Safe;
    spec.input_schema = schema.as_object().cloned().unwrap_or_default();
    spec
}

fn listed(what: &str, agents: &[Colleague]) -> String {
    let line = |agent: &Colleague| format!("\n- {}: {}", agent.name, agent.description.replace('\n', " "));
    let lines: String = agents.iter().map(line).collect();
    format!("{what}\n<available_agents>{lines}\n</available_agents>")
}

/// The word before the first `_` of an id, with the ten characters behind it, which are those of the time: a child has an
/// id of the kind of its parent, and stands beside it where ids are in their order.
fn beginning_of(id: &str) -> &str {
    let end = id.find('_').map_or(0, |at| at + 11);
    id.get(..end).unwrap_or_default()
}

/// Beginning of the ids of the sessions of agents that were asked in the session `asker`.
pub fn sessions_asked_by(asker: &str) -> String {
    format!("{}{}-", beginning_of(asker), hashed(asker, 16))
}

/// The child that the call of that `key` begins for `asker`.
fn child_id(asker: &InvocationId, key: &str) -> InvocationId {
    format!("{}{}", beginning_of(asker.as_str()), hashed(key, 32)).into()
}

/// What tells an agent from the others that may be asked, in ids of what it is asked.
fn mark_of(agent: &Colleague) -> String {
    hashed(&agent.name, 7)
}

fn hashed(text: &str, digits: usize) -> String {
    let mut digest = hex::encode(Sha256::digest(text));
    digest.truncate(digits);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_an_id_of_the_kind_of_its_parent() {
        assert_eq!(beginning_of("task_01JABCDEFGHIJKLMNOP"), "task_01JABCDEFG");
        assert_eq!(beginning_of("run-1"), "");
    }
}
