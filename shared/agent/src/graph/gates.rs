//! Where hooks stand in a run.

use dormouse_engine::NodeError;
use dormouse_ports::Map;
use dormouse_ports::model::{CompletionRequest, Content, Message, Response, RuntimeConfig};
use serde::Deserialize;
use serde_json::{Value, json};

use super::compact;
use super::context;
use super::hooks::{CALLS, HookVerdict, fire, model_facts, model_names};
use super::parts::AgentParts;
use super::plan::{approvals, edited};
use super::run::{AgentRun, CallStatus, PlannedCall, RunUsage};
use super::toolset::{Toolset, names_of_call};
use crate::workspace::HookEvent;

/// Bytes of what hooks said around a step that the next request tells.
const MOST_TOLD: usize = 16 * 1024;

/// What the hooks of a step say.
#[derive(Debug, Default)]
pub(crate) struct HooksSay {
    /// Reason for which the run ends.
    pub(crate) stop: Option<String>,
    /// Text for the next request to the model.
    pub(crate) context: Vec<String>,
    /// Usage of the models that they asked. How long that took counts for no run.
    pub(crate) usage: RunUsage,
}

impl HooksSay {
    /// Also `texts`, each once, as far as there is room.
    fn tell(&mut self, texts: Vec<String>) {
        for text in texts {
            let length: usize = self.context.iter().map(String::len).sum();
            if !self.context.contains(&text) && length + text.len() <= MOST_TOLD {
                self.context.push(text);
            }
        }
    }

    /// Both, of which `next` came later.
    pub(crate) fn and(mut self, next: Self) -> Self {
        self.tell(next.context);
        Self { stop: self.stop.or(next.stop), context: self.context, usage: self.usage.with(next.usage) }
    }
}

/// What hooks said `before` with the `texts` that they say behind that, for the next request to the model.
pub(crate) fn told_also(before: Vec<String>, texts: Vec<String>) -> Vec<String> {
    let mut says = HooksSay { context: before, ..HooksSay::default() };
    says.tell(texts);
    says.context
}

/// Runs the hooks before the model is asked: those before its context is composed see the conversation alone, of which
/// `request` is composed again where they change it. Gives the reason for which the run ends, if it does.
pub(crate) async fn before_model(
    parts: &AgentParts,
    run: &mut AgentRun,
    tools: &Toolset<'_>,
    request: &mut CompletionRequest,
) -> Result<Option<String>, NodeError> {
    if parts.hooks.is_empty() {
        return Ok(None);
    }
    let mut facts = model_facts(parts, run.steps + 1);
    facts["messages"] = json!(compact::shown(run));
    let verdict = fire(parts, HookEvent::BeforeContextBuild, &[], facts).await?;
    run.usage = run.usage.with(verdict.usage);
    if let Some(reason) = verdict.stop {
        return Ok(Some(reason));
    }
    if let Some(messages) = messages_of(&verdict) {
        let messages = context::repaired(messages.into_iter().map(|message| (message, None)), &run.unanswered);
        *request = context::composed(parts, run, tools, messages);
    }
    instruct(request, run.hook_context.iter().cloned().chain(verdict.context));
    for event in [HookEvent::AfterContextBuild, HookEvent::BeforeModelCall] {
        let mut facts = model_facts(parts, run.steps + 1);
        facts["messages"] = json!(request.messages);
        facts["config"] = json!(request.config);
        let names = model_names(&facts);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let verdict = fire(parts, event, &names, facts).await?;
        run.usage = run.usage.with(verdict.usage);
        if let Some(reason) = verdict.stop {
            return Ok(Some(reason));
        }
        rewrite(request, event, &verdict);
        instruct(request, verdict.context);
    }
    Ok(None)
}

/// The messages that hooks put in the place of those that they saw.
fn messages_of(verdict: &HookVerdict) -> Option<Vec<Message>> {
    let messages = Vec::<Message>::deserialize(verdict.patch.get("messages")?).ok()?;
    (!messages.is_empty()).then_some(messages)
}

/// Takes what the hooks changed of the request; what is no message or setting is left as it was.
fn rewrite(request: &mut CompletionRequest, event: HookEvent, verdict: &HookVerdict) {
    if let Some(messages) = messages_of(verdict) {
        request.messages = messages;
    }
    let config = verdict.patch.get("config").filter(|_| event == HookEvent::BeforeModelCall);
    if let Some(config) = config.and_then(|config| RuntimeConfig::deserialize(config).ok()) {
        request.config = request.config.overridden_by(&config);
    }
}

/// Adds text to the instructions of this one request.
fn instruct(request: &mut CompletionRequest, context: impl IntoIterator<Item = String>) {
    for text in context {
        let said = format!("<hook_context>\n{text}\n</hook_context>");
        match request.messages.first_mut() {
            Some(Message::System { content }) => {
                content.push_str("\n\n");
                content.push_str(&said);
            }
            Some(Message::User { .. } | Message::Assistant(_) | Message::Tool { .. }) | None => {
                request.messages.insert(0, Message::system(said));
            }
        }
    }
}

/// Runs the hooks behind the model's answer.
pub(crate) async fn after_model(
    parts: &AgentParts,
    run: &mut AgentRun,
    response: &mut Response,
) -> Result<HooksSay, NodeError> {
    if parts.hooks.is_empty() {
        return Ok(HooksSay::default());
    }
    let mut facts = model_facts(parts, run.steps);
    facts["content"] = json!(response.message.content);
    facts[CALLS] = json!(response.message.tool_calls);
    let names = model_names(&facts);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let verdict = fire(parts, HookEvent::AfterModelCall, &names, facts).await?;
    run.usage = run.usage.with(verdict.usage);
    // What was refused is neither published nor told to a model later, nor are the arguments of its calls.
    if verdict.block.is_some() {
        response.message.tool_calls.clear();
    }
    let withheld = verdict.block.map(|reason| format!("[withheld: {reason}]"));
    let patched = || verdict.patch.get("content").and_then(Value::as_str).map(str::to_owned);
    if let Some(text) = withheld.or_else(patched) {
        response.message.content = Content::Text(text);
    }
    let mut says = HooksSay { stop: verdict.stop, ..HooksSay::default() };
    says.tell(verdict.context);
    Ok(says)
}

/// Runs the hooks before calls are decided on: a call is refused, or changed and checked again.
pub(crate) async fn before_tools(
    parts: &AgentParts,
    tools: &Toolset<'_>,
    calls: &mut [PlannedCall],
) -> Result<HooksSay, NodeError> {
    let mut says = HooksSay::default();
    if parts.hooks.is_empty() {
        return Ok(says);
    }
    for call in calls {
        if matches!(call.status, CallStatus::Answered { .. }) {
            continue;
        }
        if before_tool(parts, tools, call, &mut says).await? {
            // Other arguments need approval as any others do.
            let tool = tools.of_call(call);
            call.status = tool.map_or(CallStatus::NeedsApproval, |tool| approvals(parts, tool));
        }
        if says.stop.is_some() {
            return Ok(says);
        }
    }
    Ok(says)
}

/// Runs the same hooks before a call is made with arguments that a person gave with the approval. What they make of these
/// nobody has approved: the person is asked again.
pub(crate) async fn before_edited(
    parts: &AgentParts,
    tools: &Toolset<'_>,
    call: &mut PlannedCall,
) -> Result<HooksSay, NodeError> {
    let mut says = HooksSay::default();
    if before_tool(parts, tools, call, &mut says).await? {
        call.unfit.push("a hook made others of them, which are those that are asked for now".to_owned());
        call.status = CallStatus::NeedsApproval;
    }
    Ok(says)
}

/// Runs the hooks before `call`, which refuse it or not. True if they changed its arguments.
async fn before_tool(
    parts: &AgentParts,
    tools: &Toolset<'_>,
    call: &mut PlannedCall,
    says: &mut HooksSay,
) -> Result<bool, NodeError> {
    let facts = json!({ "tool_name": call.tool, "tool_input": call.arguments, "tool_call_id": call.id });
    let names = names_of_call(parts, call);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let verdict = fire(parts, HookEvent::BeforeToolDispatch, &names, facts).await?;
    says.usage = says.usage.with(verdict.usage);
    says.tell(verdict.context);
    if verdict.stop.is_some() {
        says.stop = verdict.stop;
        return Ok(false);
    }
    let refused = |reason: String| CallStatus::Answered {
        text: format!("error: the call was not made: {reason}"),
        is_error: true,
    };
    if let Some(reason) = verdict.block {
        call.status = refused(reason);
        return Ok(false);
    }
    let Some(input) = verdict.patch.get("tool_input") else { return Ok(false) };
    let input: Option<Map> = input.as_object().cloned();
    match input.ok_or_else(|| "they are no object".to_owned()).and_then(|input| edited(tools, call, input)) {
        Ok(()) => Ok(true),
        Err(mistakes) => {
            call.status = refused(format!("what a hook made of its arguments does not fit: {mistakes}"));
            Ok(false)
        }
    }
}

/// Runs the hooks behind a call that ended, and changes what the model is shown of it. Gives the reason for which the run
/// ends, if it does; what the hooks use is added to `usage`.
pub(crate) async fn after_tool(
    parts: &AgentParts,
    call: &mut PlannedCall,
    usage: &mut RunUsage,
) -> Result<Option<String>, NodeError> {
    if parts.hooks.is_empty() {
        return Ok(None);
    }
    let names = names_of_call(parts, call);
    let CallStatus::Answered { text, is_error } = &mut call.status else { return Ok(None) };
    let facts = json!({
        "tool_name": call.tool,
        "tool_input": call.arguments,
        "tool_call_id": call.id,
        "tool_output": text,
        "is_error": is_error,
    });
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let verdict = fire(parts, HookEvent::AfterToolDispatch, &names, facts).await?;
    *usage = usage.with(verdict.usage);
    if let Some(output) = verdict.patch.get("tool_output").and_then(Value::as_str) {
        output.clone_into(text);
    }
    if let Some(reason) = verdict.block {
        *text = format!("error: the output is withheld: {reason}");
        *is_error = true;
    } else if verdict.suppress {
        "(the output is withheld by a hook)".clone_into(text);
    }
    for context in verdict.context {
        text.push_str(&format!("\n<hook_context>\n{context}\n</hook_context>"));
    }
    Ok(verdict.stop)
}

/// Runs the hooks at the end of a run. They change nothing any more. Gives the usage of the run with theirs.
pub(crate) async fn at_end(
    parts: &AgentParts,
    event: HookEvent,
    reason: &str,
    run: &AgentRun,
) -> Result<RunUsage, NodeError> {
    if parts.hooks.is_empty() {
        return Ok(run.usage);
    }
    let trigger = trigger_of(run);
    let facts = json!({ "trigger_type": trigger, "reason": reason, "steps": run.steps, "usage": run.usage });
    fire(parts, event, &[trigger], facts).await.map(|verdict| run.usage.with(verdict.usage))
}

/// What began a run: a message, an action that a person or a client runs, or the system.
fn trigger_of(run: &AgentRun) -> &'static str {
    match &run.action {
        Some(action) if action.by_hand => "manual_action",
        Some(_) => "api_action",
        None if run.compact || run.dormouse_parent.is_some() => "system",
        None => "message",
    }
}
