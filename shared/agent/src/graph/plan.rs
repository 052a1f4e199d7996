//! What becomes of the calls that a model asks for: an error for the model, a question to a person, or a run.

use std::collections::BTreeSet;

use dormouse_engine::{NodeError, current, keep_worker, record};
use dormouse_ports::model::{FinishReason, ToolCall};
use dormouse_ports::tool::Effect;
use dormouse_ports::{EntryKind, InvocationId, JournalEntry, Map, SignalId};
use serde_json::Value;

use super::action;
use super::children::limit;
use super::digest;
use super::entries::{GIVEN_UP, about, calls_with, shown_arguments};
use super::gates::{HooksSay, before_tools};
use super::parts::{AgentParts, Markers};
use super::run::{AgentRun, CallStatus, PlannedCall, result_message};
use super::time::is_late;
use super::toolset::{OfferedTool, Toolset, unwrapped};
use crate::workspace::{HookEvent, ToolOrigin};

/// Calls of one step that are made; a pause asks about as many.
const MOST_CALLS: usize = 25;
/// Calls of one step of which each has entries of its own: those that are made, and as many that are not. A model that calls
/// tools without end has its answer recorded all the same.
const MOST_TOLD: usize = 2 * MOST_CALLS;
/// Kind of the entry about the calls behind these.
const CALLS_LEFT_OUT: &str = "dormouse.calls_left_out";
/// What a model is told of each of them but the first, with which it is told of all.
const LEFT_OUT: &str = "the call was not made, either";

/// Between the id of a call, which another of its step has as well, and the number that tells them apart.
const AGAIN: &str = "-again-";

/// Gives calls of one step ids of their own, where several have one: no provider takes them back otherwise. Those behind the
/// first are not made.
pub(crate) fn told_apart(calls: &mut [ToolCall]) {
    let mut known = BTreeSet::new();
    for call in calls {
        if !known.insert(call.id.clone()) {
            let names = (2_u32..).map(|number| format!("{}{AGAIN}{number}", call.id));
            call.id = names.into_iter().find(|name| !known.contains(name)).unwrap_or_default();
            known.insert(call.id.clone());
        }
    }
}

/// The call of the same step whose id `call` has again.
fn first_of<'c>(calls: &'c [ToolCall], call: &ToolCall) -> Option<&'c str> {
    let (first, number) = call.id.rsplit_once(AGAIN)?;
    let is_number = number.parse::<u32>().is_ok();
    calls.iter().find(|other| is_number && other.id == first).map(|other| other.id.as_str())
}

/// The plan for `calls`, as hooks leave it, and an entry for each. Gives also what the hooks say.
pub(crate) async fn plan(
    parts: &AgentParts,
    tools: &Toolset<'_>,
    run: &AgentRun,
    (calls, finish): (&[ToolCall], FinishReason),
) -> Result<(Vec<PlannedCall>, HooksSay), NodeError> {
    let mut planned: Vec<PlannedCall> =
        calls.iter().enumerate().map(|(at, call)| one(parts, tools, at, call)).collect();
    for (planned, call) in planned.iter_mut().zip(calls) {
        if let Some(first) = first_of(calls, call) {
            let text = format!("the call was not made: it has the id of another one of this step, `{first}`");
            planned.status = CallStatus::Answered { text, is_error: true };
        }
    }
    let count = planned.len();
    for (at, call) in planned.iter_mut().enumerate() {
        if let Some(text) = broken_off(finish, call, at + 1 == count) {
            call.status = CallStatus::Answered { text: text.to_owned(), is_error: true };
        }
    }
    for call in planned.iter().take(MOST_TOLD) {
        record(about(EntryKind::ToolRequested, call).with("arguments", shown_arguments(&call.arguments, usize::MAX)))?;
    }
    if let Some(beyond) = planned.get_mut(MOST_TOLD..).filter(|beyond| !beyond.is_empty()) {
        leave_out(parts, beyond)?;
    }
    let says = before_tools(parts, tools, &mut planned).await?;
    limit(parts, run, &mut planned);
    for call in planned.iter().take(MOST_TOLD) {
        match &call.status {
            CallStatus::NeedsApproval => record(about(EntryKind::ToolApprovalRequired, call))?,
            CallStatus::Answered { text, .. } => {
                record(about(EntryKind::ToolFailed, call).with("message", cut(text)).with("made", false))?;
            }
            CallStatus::Ready { .. }
            | CallStatus::Begun { .. }
            | CallStatus::Uncertain { .. }
            | CallStatus::Pending { .. }
            | CallStatus::Asking { .. } => {}
        }
    }
    Ok((planned, says))
}

/// Answers the calls `beyond` those that have entries of their own, and records them with one.
fn leave_out(parts: &AgentParts, beyond: &mut [PlannedCall]) -> Result<(), NodeError> {
    let (count, most) = (beyond.len(), most_calls(parts));
    let mut text = format!(
        "{count} calls from this one on were not made: {most} tools can be called at a time. Call in the next step what is \
         still needed"
    );
    let kind = EntryKind::vendor(CALLS_LEFT_OUT).map_err(|error| NodeError::new(error.to_string()))?;
    record(JournalEntry::new(kind).with("calls", count).with("message", text.as_str()))?;
    for call in beyond {
        let text = std::mem::replace(&mut text, LEFT_OUT.to_owned());
        call.status = CallStatus::Answered { text, is_error: true };
    }
    Ok(())
}

/// The calls of one step that are made: those of which the entries have room, with those of the hooks before them.
fn most_calls(parts: &AgentParts) -> usize {
    MOST_CALLS.min(calls_with(parts.entries_at(HookEvent::BeforeToolDispatch)))
}

/// What a model is told of a call beside which the filter of its provider stopped it.
pub(super) const FILTERED: &str = "the call was not made: the provider's filter stopped the answer";

/// Why `call` is not what its model was about to ask for: the filter of the provider stopped it, or the answer was cut before
/// the arguments of its `last` call, which may all be left out.
fn broken_off(finish: FinishReason, call: &PlannedCall, last: bool) -> Option<&'static str> {
    match finish {
        FinishReason::ContentFilter => Some(FILTERED),
        FinishReason::Length if last && call.arguments.is_empty() => Some(
            "the call was not made: the answer was cut at the most tokens that it may have, before the arguments of the \
             call were whole: call it again, with shorter arguments, in several calls for example, or with less before it",
        ),
        FinishReason::Length | FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Error => None,
    }
}

/// The beginning of what is said of a call that is not made.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(500).collect()
}

fn one(parts: &AgentParts, tools: &Toolset<'_>, at: usize, call: &ToolCall) -> PlannedCall {
    let call = &unwrapped(call);
    let arguments = call.arguments.clone().unwrap_or_default();
    let mut planned = PlannedCall {
        part: format!("call-{}", at + 1),
        id: call.id.clone(),
        tool: call.name.clone(),
        origin: ToolOrigin::External,
        effect: Effect::Manual,
        digest: digest::of_arguments(&arguments),
        arguments,
        attempts: 0,
        polled: Value::Null,
        polls: 0,
        questions: 0,
        source: String::new(),
        unfit: Vec::new(),
        edited: false,
        images: Vec::new(),
        happened: false,
        status: CallStatus::NeedsApproval,
    };
    planned.status = match status(parts, tools, at, call, &mut planned) {
        Ok(status) => status,
        Err(text) => CallStatus::Answered { text, is_error: true },
    };
    planned
}

fn status(
    parts: &AgentParts,
    tools: &Toolset<'_>,
    at: usize,
    call: &ToolCall,
    planned: &mut PlannedCall,
) -> Result<CallStatus, String> {
    let tool = tools.called(&call.name)?;
    planned.tool.clone_from(&tool.name);
    planned.origin = tool.origin();
    planned.source.clone_from(&tool.part.name);
    planned.effect = tool.spec.effect;
    let most = most_calls(parts);
    if at >= most {
        return Err(format!("{most} tools can be called at a time: call this one again in the next step"));
    }
    let Some(arguments) = &call.arguments else {
        return Err("the arguments are no JSON object: call it again with arguments that are".to_owned());
    };
    tool.check(arguments).map_err(|mistakes| format!("the arguments do not fit the schema: {mistakes}"))?;
    Ok(approvals(parts, tool))
}

/// Whether a call of `tool` waits for a person.
pub(crate) fn approvals(parts: &AgentParts, tool: &OfferedTool<'_>) -> CallStatus {
    let policy = parts.agent.policy.approval.or(&parts.approval);
    match tool.must_ask || policy.asks(tool.origin(), &tool.names(), tool.is_harmless()) {
        true => CallStatus::NeedsApproval,
        false => CallStatus::Ready { approved_digest: None, input: None },
    }
}

/// When a call that must not run twice is marked as begun.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BegunMark {
    /// At once.
    Now,
    /// In this turn where it has the time for it, else in the next one.
    InTime,
}

/// Where all results of a step are known, they go to the conversation; else the next call that must not run twice is
/// marked as begun, before the commit that this node ends with. Where calls run side by side that is each of them for which
/// the commit of their results has room.
pub(crate) fn settle(parts: &AgentParts, markers: &Markers, run: &mut AgentRun, begin: BegunMark) -> Vec<Value> {
    if run.calls.iter().all(|call| matches!(call.status, CallStatus::Answered { .. })) {
        action::note(run);
        return std::mem::take(&mut run.calls).iter().filter_map(result).collect();
    }
    let waits_first = run.has_call(|status| matches!(status, CallStatus::NeedsApproval | CallStatus::Uncertain { .. }));
    if waits_first || (begin == BegunMark::InTime && is_late(parts)) {
        return Vec::new();
    }
    let is_ready = |call: &&mut PlannedCall| matches!(call.status, CallStatus::Ready { .. });
    // Of calls that are made one after the other a safe one has its turn, too.
    let (in_line, most) = match parts.agent.policy.parallel_tool_calls {
        Some(true) => (usize::MAX, parts.calls_at_once()),
        Some(false) => (1, 1),
        None => (usize::MAX, 1),
    };
    let next = run.calls.iter_mut().filter(is_ready).take(in_line);
    for call in next.filter(|call| call.must_run_once()).take(most) {
        let CallStatus::Ready { approved_digest, input } = call.status.clone() else { continue };
        let marker = parts.ids.fresh();
        markers.put(marker.clone());
        call.attempts += 1;
        call.status = CallStatus::Begun { marker, approved_digest, input };
        keep_worker();
    }
    Vec::new()
}

/// The message with the result of `call`; `None` where the result is not known.
fn result(call: &PlannedCall) -> Option<Value> {
    let (text, is_error) = call.status.answer()?;
    Some(result_message(call, text, is_error))
}

/// Names a call among all calls of all time.
pub(crate) fn key(invocation: &InvocationId, step: u64, call: &PlannedCall) -> String {
    format!("{invocation}/{step}/{}", call.part)
}

/// The signal that brings the outcome of `call` where it goes on elsewhere. A call that is made again has another one: what its
/// tool still tells of the time before is no outcome of this one.
pub(crate) fn signal(invocation: &InvocationId, step: u64, call: &PlannedCall) -> SignalId {
    let key = key(invocation, step, call);
    if call.attempts > 1 { format!("{key}/{}", call.attempts).into() } else { key.into() }
}

pub(crate) fn invocation() -> Result<InvocationId, NodeError> {
    let identity = current().ok_or_else(|| NodeError::new("an agent runs inside an invocation"))?;
    Ok(identity.invocation_id.clone())
}

/// Gives every open call of `run` the result `text`, so that the conversation is whole although they never run, and records
/// that.
pub(crate) fn give_up(run: &mut AgentRun, text: &str) -> Result<Vec<Value>, NodeError> {
    for call in &mut run.calls {
        if !matches!(call.status, CallStatus::Answered { .. }) {
            let text = match &call.status {
                CallStatus::Uncertain { message, .. } => {
                    &format!("it is not known whether the call happened: {message}; the run ended")
                }
                CallStatus::Pending { .. } => "the run ended before the outcome of the call came",
                CallStatus::NeedsApproval
                | CallStatus::Ready { .. }
                | CallStatus::Begun { .. }
                | CallStatus::Asking { .. }
                | CallStatus::Answered { .. } => text,
            };
            let entry = about(EntryKind::ToolFailed, call).with("message", cut(text));
            record(entry.with("made", false).with(GIVEN_UP, true))?;
            call.status = CallStatus::Answered { text: text.to_owned(), is_error: true };
        }
    }
    Ok(std::mem::take(&mut run.calls).iter().filter_map(result).collect())
}

/// The arguments of a call, replaced by those that a person edited.
pub(crate) fn edited(tools: &Toolset<'_>, call: &mut PlannedCall, arguments: Map) -> Result<(), String> {
    let tool = tools.of_call(call).ok_or_else(|| format!("they cannot be checked: {}", tools.gone(call).message))?;
    tool.check(&arguments)?;
    call.digest = digest::of_arguments(&arguments);
    call.arguments = arguments;
    Ok(())
}
