//! A run of one action, which a person or a client asks for. It goes the way of every call of a tool (schema, hooks,
//! approval, deadline, record), and the model is not asked.

use dormouse_engine::{NodeError, Update};
use dormouse_json::Schema;
use dormouse_ports::model::{AssistantMessage, FinishReason, Message, ToolCall};
use dormouse_ports::tool::ActionDefinition;
use dormouse_ports::{Map, Shortfall};
use serde::Deserialize;
use serde_json::Value;

use super::model::{conclusion, conversational, end, ended_by_hook, unwritable};
use super::open;
use super::parts::{AgentParts, Markers};
use super::plan::{BegunMark, give_up, plan, settle};
use super::run::{ActionProgress, AgentRun, AskedAction, TerminalReason};
use super::toolset::{Toolset, may_use_action};
use crate::names::nearest;
use crate::workspace::ToolOrigin;

/// Bytes of what is told of an action that failed.
const LONGEST_REASON: usize = 4000;

/// What a request may say of an action: its field `progress` is ours, and what we do not know yet is a slip.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedAction {
    name: String,
    #[serde(default)]
    input: Map,
    #[serde(default)]
    by_hand: bool,
}

/// Checks the action that a request asks for, if it asks for one.
///
/// # Errors
/// A sentence for the caller.
pub(crate) fn admit(parts: &AgentParts, state: &Map) -> Result<(), String> {
    let Some(asked) = state.get("action").filter(|asked| !asked.is_null()) else { return Ok(()) };
    let read = RequestedAction::deserialize(asked);
    let asked =
        read.map_err(|error| format!("`action` has a `name`, and may have an `input` and `by_hand`: {error}"))?;
    if !parts.tools.iter().any(|part| part.origin == ToolOrigin::Action) {
        return Err("actions_not_supported: no actions can be run in this workspace".to_owned());
    }
    let Some(action) = parts.actions.iter().find(|action| action.name == asked.name) else {
        let guess = nearest(&asked.name, parts.actions.iter().map(|action| action.name.as_str()));
        let guess = guess.map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default();
        return Err(format!("action_not_found: there is no action `{}` that a client may run{guess}", asked.name));
    };
    may_run(action, asked.by_hand)?;
    may_use_action(&parts.agent.tools, &action.name).map_err(|reason| {
        let agent = &parts.agent.name;
        format!("the action `{}` cannot be run by the agent `{agent}`: {reason}", action.name)
    })?;
    fits(action, &asked.input)
}

fn may_run(action: &ActionDefinition, by_hand: bool) -> Result<(), String> {
    let (allowed, whom, field) = match by_hand {
        true => (action.expose.callable_by_user, "by hand", "callable_by_user"),
        false => (action.expose.callable_by_api, "by a client", "callable_by_api"),
    };
    let refusal = || format!("the action `{}` may not be run {whom}: it says `{field}: false`", action.name);
    if allowed { Ok(()) } else { Err(refusal()) }
}

fn fits(action: &ActionDefinition, input: &Map) -> Result<(), String> {
    let schema = Schema::new(&Value::Object(action.input_schema.clone()))?;
    let mistakes = schema.mistakes(&Value::Object(input.clone()), 5);
    let refusal = || format!("the input does not fit the `input_schema` of `{}`: {}", action.name, mistakes.join("; "));
    if mistakes.is_empty() { Ok(()) } else { Err(refusal()) }
}

/// Begins the action, or ends the run behind it.
pub(crate) async fn run(
    parts: &AgentParts,
    markers: &Markers,
    run: AgentRun,
    action: AskedAction,
) -> Result<Update<AgentRun>, NodeError> {
    match &action.progress {
        None => begin(parts, markers, run, action).await,
        Some(ActionProgress::Done) => over(parts, run).await,
        Some(ActionProgress::Failed(reason)) => failed(parts, run, &action.name, reason).await,
        // Its call is planned in the same commit.
        Some(ActionProgress::Begun) => Err(NodeError::new("an action that was begun has no call")),
    }
}

async fn begin(
    parts: &AgentParts,
    markers: &Markers,
    mut run: AgentRun,
    action: AskedAction,
) -> Result<Update<AgentRun>, NodeError> {
    // No other call of the session has its id.
    let id = match &action.call_id {
        Some(id) => id.clone(),
        None => format!("action-{}", open::own_mark()?),
    };
    let call = ToolCall::new(id, &action.name, action.input.clone());
    let asks = Message::user(format!("Run the action `{}`.", action.name));
    let answer = AssistantMessage { tool_calls: vec![call.clone()], ..AssistantMessage::default() };
    run.action = Some(AskedAction { progress: Some(ActionProgress::Begun), call_id: None, ..action });
    let tools = Toolset::of_run(parts, &run).await;
    // No model is asked that could be told what hooks say.
    let (planned, say) = plan(parts, &tools, &run, (&[call], FinishReason::ToolCalls)).await?;
    run.calls = planned;
    run.usage = run.usage.with(say.usage);
    let results = match say.stop {
        Some(reason) => {
            ended_by_hook(parts, &mut run, &reason).await?;
            give_up(&mut run, &format!("the action was not run: {reason}"))?
        }
        None => settle(parts, markers, &mut run, BegunMark::InTime),
    };
    let said = [asks, Message::Assistant(answer)].map(|message| serde_json::to_value(message).map_err(unwritable));
    let said = said.into_iter().collect::<Result<Vec<_>, _>>()?;
    let open = open::noted(&run)?;
    Ok(AgentRun::messages
        .append(open::marked(said.into_iter().chain(results).collect())?)
        .set(AgentRun::action, run.action)
        .then(open)
        .set(AgentRun::calls, run.calls)
        .set(AgentRun::usage, run.usage)
        .then(conclusion(run.reason, run.dormouse_shortfall)))
}

async fn over(parts: &AgentParts, mut run: AgentRun) -> Result<Update<AgentRun>, NodeError> {
    end(parts, &mut run, TerminalReason::Completed).await?;
    Ok(conclusion(run.reason, run.dormouse_shortfall).then(AgentRun::usage.set(run.usage)))
}

async fn failed(
    parts: &AgentParts,
    mut run: AgentRun,
    name: &str,
    reason: &str,
) -> Result<Update<AgentRun>, NodeError> {
    end(parts, &mut run, TerminalReason::ActionFailed).await?;
    let message = conversational(&format!("the action `{name}`: {reason}"), LONGEST_REASON);
    let shortfall = run.dormouse_shortfall.map(|shortfall| Shortfall { message, ..shortfall });
    Ok(conclusion(run.reason, shortfall).then(AgentRun::usage.set(run.usage)))
}

/// Notes what became of the action of `run`, whose calls have all ended.
pub(crate) fn note(run: &mut AgentRun) {
    let mut answers = run.calls.iter().filter_map(|call| call.status.answer());
    let failed = answers.find(|(_, is_error)| *is_error).map(|(text, _)| text.to_owned());
    if let Some(action) = &mut run.action {
        action.progress = Some(failed.map_or(ActionProgress::Done, ActionProgress::Failed));
    }
}
