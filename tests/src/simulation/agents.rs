//! Agents with a scripted model and two tools: one that may run again, and one that costs money each time. The model, the
//! tools and the store are calls like any others: each may be refused, lost, late or slow, and a process may die at each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::graph::{AgentLimits, AgentParts, ModelPart, ToolPart, graph};
use dormouse_agent::workspace::{FileContent, Files, Platform, ToolOrigin, Workspace, load};
use dormouse_engine::{CompiledGraph, EngineError};
use dormouse_ports::model::{
    AssistantMessage, CallOptions, CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory,
    ModelIdentity, ModelProvider, Response, RuntimeConfig, ToolCall as AskedCall, Usage,
};
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use dormouse_ports::{Commit, InvocationId, InvocationRecord, InvocationStatus, InvocationWrite, Map};
use serde_json::{Value, json};

use super::graphs::name;
use super::history::History;
use super::invariants::list;
use super::outside::Outside;
use super::pending_call::REFUSED;
use super::quiescent::Quiescent;
use super::sim_ports::SimPorts;

/// An agent that pays at once, and one that asks before.
pub(crate) const AGENTS: [(&str, &str); 2] =
    [("buyer", "description: buys"), ("clerk", "policy: {approval: {external: [pay]}}")];

/// The payments of a run: the model's id of the call, and the end of its key.
const PAYMENTS: [(&str, &str); 3] = [("a", "1/call-1"), ("c", "2/call-1"), ("d", "2/call-2")];

/// Kinds of pauses that ask a person, as they stand in the ids of their signals.
const APPROVE: &str = "/approve-";
const DOUBT: &str = "/doubt-";

/// Whether `graph` is one of them.
pub(crate) fn is_agent(graph: &str) -> bool {
    AGENTS.iter().any(|(name, _)| *name == graph)
}

/// The agents, on the ports of one process.
pub(crate) fn graphs(sim_ports: &Arc<SimPorts>) -> Result<Vec<CompiledGraph>, EngineError> {
    AGENTS.iter().map(|(name, _)| graph(parts(name, sim_ports))).collect()
}

static WORKSPACE: LazyLock<Workspace> = LazyLock::new(|| {
    let bytes = |text: String| FileContent::Bytes(text.into_bytes());
    let agent = |(name, matter): &(&str, &str)| {
        (format!(".openharness/agents/{name}.md"), bytes(format!("---\n{matter}\n---\nYou buy.\n")))
    };
    let model = ("m:\n  provider: openai\n  name: x\n").to_owned();
    let files: Files =
        AGENTS.iter().map(agent).chain([(".openharness/models/m.yaml".to_owned(), bytes(model))]).collect();
    load(&files, &Platform::default())
});

fn parts(name: &str, sim_ports: &Arc<SimPorts>) -> AgentParts {
    let agent = WORKSPACE.agents[name].clone();
    AgentParts {
        remembers: false,
        instructions: WORKSPACE.instructions_of(&agent),
        environment: None,
        agent,
        name: name.to_owned(),
        bundle: WORKSPACE.digest.clone(),
        approval: WORKSPACE.settings.approval.clone(),
        model: ModelPart {
            reference: "workspace/m".to_owned(),
            provider: Arc::new(SimModel(sim_ports.clone())),
            background: None,
            config: RuntimeConfig::default(),
            prices: None,
            takes_images: false,
            context_window: None,
            timeout: Duration::from_secs(60),
        },
        tools: vec![ToolPart {
            name: "purse".to_owned(),
            origin: ToolOrigin::External,
            expose: Default::default(),
            source: Arc::new(Purse(sim_ports.clone())),
        }],
        disabled: Vec::new(),
        actions: Vec::new(),
        compacts: false,
        colleagues: Default::default(),
        successors: Vec::new(),
        hooks: Vec::new(),
        clock: sim_ports.clone(),
        ids: sim_ports.clone(),
        deltas: None,
        images: None,
        callbacks: None,
        limits: AgentLimits::default(),
        schemas: Default::default(),
    }
}

/// A model that answers by the number of results that it sees.
struct SimModel(Arc<SimPorts>);

#[async_trait]
impl ModelProvider for SimModel {
    fn identity(&self) -> ModelIdentity {
        ModelIdentity { system: "scripted".to_owned(), model: "script-1".to_owned(), server: "nowhere".to_owned() }
    }

    async fn ready(&self) -> Result<(), ModelError> {
        Ok(())
    }

    async fn complete(&self, request: &CompletionRequest, _: &CallOptions) -> Result<Response, ModelError> {
        let invocation = name();
        let step = request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count() as u64;
        let recorded = self.0.recorded_steps(&invocation.as_str().into());
        match recorded {
            None => {
                let how = format!("{invocation} asks for answer {}, and nothing of it is written", step + 1);
                self.0.accuse("no model is asked for a run that nobody has claimed", how).await;
            }
            Some(recorded) if step < recorded => {
                let how = format!("{invocation} asks for answer {} again, and {recorded} are recorded", step + 1);
                self.0.accuse("no model call is repeated that was recorded", how).await;
            }
            Some(_) => {}
        }
        let answer = answer(request);
        // Behind the first answer of one run in two, somebody has to mend the key first.
        let wants_mending = recorded == Some(1) && invocation.bytes().map(u32::from).sum::<u32>().is_multiple_of(2);
        let run = invocation.clone();
        let effect = move |outside: &mut Outside| match wants_mending && outside.services.refused.insert(run) {
            true => Err(ModelError::new(ModelErrorCategory::Authentication, "the key is not taken")),
            false => Ok(answer),
        };
        let lost = |why: &'static str| Err(ModelError::new(ModelErrorCategory::Unavailable, why));
        self.0.call("model", invocation, effect, lost).await
    }
}

fn answer(request: &CompletionRequest) -> Response {
    let results = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    let calls: &[(&str, &str)] = match results {
        0 => &[("a", "pay"), ("b", "look")],
        2 => &[("c", "pay"), ("d", "pay")],
        _ => &[],
    };
    let call = |(id, tool): &(&str, &str)| AskedCall::new(*id, *tool, Map::from_iter([("to".to_owned(), json!(id))]));
    let tool_calls: Vec<AskedCall> = calls.iter().map(call).collect();
    let finish_reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    let content = if calls.is_empty() { "done" } else { "" };
    let message = AssistantMessage { content: content.into(), tool_calls, ..AssistantMessage::default() };
    let usage = Usage { prompt_tokens: Some(100), completion_tokens: Some(10), ..Usage::default() };
    Response { message, finish_reason, usage, raw: Value::Null, parsed: None }
}

/// Tools that keep count of what was paid.
struct Purse(Arc<SimPorts>);

impl fmt::Debug for Purse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Purse")
    }
}

#[async_trait]
impl ToolSource for Purse {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let object = Map::from_iter([("type".to_owned(), json!("object"))]);
        let tool =
            |name: &str, effect| ToolSpec { input_schema: object.clone(), effect, ..ToolSpec::new(name.to_owned()) };
        Ok(vec![tool("pay", Effect::Manual), tool("look", Effect::Safe)])
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let key = call.idempotency_key.clone();
        let about = format!("{} {key}", call.name);
        let pays = call.name == "pay";
        let effect = move |outside: &mut Outside| {
            if pays {
                *outside.services.paid.entry(key.clone()).or_default() += 1;
            }
            Ok(ToolReply::Done(ToolOutput::text(format!("paid {key}"))))
        };
        let lost = |why: &'static str| match why {
            REFUSED => Err(ToolError::transient(why)),
            _ => Err(ToolError::transient(why).maybe_done()),
        };
        self.0.call("tool", about, effect, lost).await
    }
}

/// The model calls that are recorded behind `commit`, none where it claims the run, and of which run.
pub(crate) fn recorded(commit: &Commit) -> Option<(InvocationId, u64)> {
    let (InvocationWrite::Progress { paused, .. } | InvocationWrite::Suspend { paused, .. }) =
        commit.invocation.as_ref()?
    else {
        return None;
    };
    let steps = paused.state.get("steps").and_then(Value::as_u64).unwrap_or_default();
    is_agent(&paused.graph).then(|| (paused.invocation_id.clone(), steps))
}

/// What a person may say to a pause of an agent; nothing where it waits for something else.
pub(crate) fn decisions(signal_id: &str) -> &'static [&'static str] {
    if signal_id.contains(APPROVE) {
        &["approve", "approve", "approve", "approve", "deny"]
    } else if signal_id.contains(DOUBT) {
        &["happened", "repeat", "repeat", "skip"]
    } else {
        &[]
    }
}

/// Calls of which a person was asked whether they happened, with how often he wanted them to be made again.
fn doubts(history: &History) -> BTreeMap<String, u32> {
    let mut doubts = BTreeMap::new();
    for ((id, generation), pause) in &history.pauses {
        let signal_id = pause.descriptor.signal_id.as_str();
        let Some((step, _)) = signal_id.split_once(DOUBT) else { continue };
        let payload = history.consumed.get(&(id.clone(), *generation)).cloned().flatten().unwrap_or_default();
        let calls = pause.descriptor.metadata.as_ref().and_then(|metadata| metadata.get("calls")?.as_object());
        for part in calls.into_iter().flatten().map(|(part, _)| part) {
            let alone = payload.get("decision");
            let decision = alone.or_else(|| payload.get("replies")?["answers"][part.as_str()].get("decision"));
            let again = decision.and_then(Value::as_str) == Some("repeat");
            *doubts.entry(format!("{step}/{part}")).or_default() += u32::from(again);
        }
    }
    doubts
}

/// Nothing is paid twice unless a person wanted it to be made again.
pub(crate) fn nothing_is_paid_twice(rest: &Quiescent<'_>) -> Result<(), String> {
    let doubts = doubts(rest.history);
    rest.services.paid.iter().try_for_each(|(key, times)| {
        let wanted = 1 + doubts.get(key).copied().unwrap_or_default();
        match *times <= wanted {
            true => Ok(()),
            false => Err(format!("{key} was paid {times} times, and wanted {wanted} times")),
        }
    })
}

/// What the model is told of a payment is what became of it. Where nobody could know, a person was asked.
pub(crate) fn payments_are_told(rest: &Quiescent<'_>) -> Result<(), String> {
    let doubts = doubts(rest.history);
    let agents = rest.history.invocations.iter().filter(|(_, record)| is_agent(&record.paused.graph));
    for (id, record) in agents {
        let InvocationStatus::Completed { state } = &record.status else { continue };
        for (call, end) in PAYMENTS {
            let key = format!("{id}/{end}");
            let told = result(state, call).ok_or_else(|| format!("{id} ended without a result of {call}"))?;
            let paid = rest.services.paid.get(&key).copied().unwrap_or_default();
            let fits = doubts.contains_key(&key) || (told.starts_with("paid") == (paid == 1) && paid <= 1);
            if !fits {
                return Err(format!("{key} was paid {paid} times, nobody was asked, and the model was told {told:?}"));
            }
        }
    }
    Ok(())
}

fn result<'s>(state: &'s Map, call: &str) -> Option<&'s str> {
    let mut messages = list(state, "messages").iter();
    messages.find(|message| message["tool_call_id"] == call)?["content"].as_str()
}

/// How often a run of an agent has slept since its model refuses what somebody has to mend.
pub(crate) fn rests(history: &History) -> usize {
    let is_such = |metadata: &Map| metadata.get("needs_mending") == Some(&json!(true));
    history.pauses.values().filter(|pause| pause.descriptor.metadata.as_ref().is_some_and(is_such)).count()
}

/// How many runs of agents have ended, and of how many calls nobody knew whether they happened.
pub(crate) fn counted(history: &History) -> (usize, usize) {
    let ended = |record: &&InvocationRecord| {
        is_agent(&record.paused.graph) && matches!(record.status, InvocationStatus::Completed { .. })
    };
    (history.invocations.values().filter(ended).count(), doubts(history).len())
}
