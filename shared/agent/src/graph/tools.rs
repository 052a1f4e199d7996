//! The node that runs tools.

use dormouse_engine::{NodeError, Update};
use dormouse_ports::tool::NotedEffects;
use dormouse_ports::{EntryKind, JournalEntry, StateArtifact};
use futures::future::join_all;
use serde_json::Value;

use super::calls::{FinishedCall, Making};
use super::children;
use super::digest;
use super::entries::{LATER, SIDE_EFFECTS, about, record_in_room};
use super::gates::after_tool;
use super::images::{IMAGES, Picture, keep, listed};
use super::model::{conclusion, end, ended_by_hook, millis, unwritable};
use super::notes::note;
use super::open;
use super::outputs::Outputs;
use super::parts::{AgentParts, Markers};
use super::plan::{BegunMark, cut, give_up, invocation, settle};
use super::run::{AgentRun, CallStatus, PlannedCall, RunUsage, TerminalReason};
use super::time::{asked_since, is_over, spend, used};
use super::toolset::Toolset;
use super::watch::unless_canceled;
use crate::workspace::HookEvent;

/// What is known of a call that was begun and not recorded.
pub(crate) const WORKER_ENDED: &str = "the worker that began the call ended before it could record what came of it";

/// Bytes of JSON of the questions that the calls of a step ask people: a pause has their words and schemas twice.
const QUESTIONS: usize = 20 * 1024;

/// Runs the calls that may run now.
pub(crate) async fn act(
    parts: &AgentParts,
    markers: &Markers,
    mut run: AgentRun,
) -> Result<Update<AgentRun>, NodeError> {
    if run.dormouse_parent.is_some() {
        // A person may have approved the calls of an agent that was not told that nobody waits for it any more.
        children::wanted(parts, &run).await?;
    }
    let invocation = invocation()?;
    let doubted = doubt(markers, &mut run);
    let tools = Toolset::of_run(parts, &run).await;
    let one_by_one = parts.agent.policy.parallel_tool_calls == Some(false);
    let most = if one_by_one { 1 } else { parts.calls_at_once() };
    let runnable = run.calls.iter().enumerate().filter(|(_, call)| may_run(call));
    let mut runnable: Vec<(usize, &PlannedCall)> = runnable.collect();
    // Those that are marked would be in doubt if they were left.
    let is_marked = |call: &PlannedCall| matches!(call.status, CallStatus::Begun { .. });
    let mut room = most.saturating_sub(runnable.iter().filter(|(_, call)| is_marked(call)).count());
    runnable.retain(|(_, call)| {
        let fits = is_marked(call) || room > 0;
        room = room.saturating_sub(usize::from(fits && !is_marked(call)));
        fits
    });
    let idle = runnable.is_empty();
    let step = run.steps;
    // What came of each of them is shown to hooks before it is recorded.
    let hooks = parts.time_of_hooks(&[HookEvent::AfterToolDispatch]);
    let behind = hooks.saturating_mul(u32::try_from(runnable.len()).unwrap_or(u32::MAX));
    let work = runnable.into_iter().map(|(at, call)| {
        let making = Making {
            parts,
            tools: &tools,
            invocation: &invocation,
            step,
            depth: run.depth(),
            notes: &run.notes,
            usage: &run.usage,
            behind,
        };
        async move { making.make(at, call).await }
    });
    let began = parts.clock.monotonic();
    let mut ran = unless_canceled(&*parts.clock, join_all(work)).await?;
    // While agents work that were asked before, the time is counted as theirs.
    if asked_since(&run.calls).is_none() {
        run.usage.active_ms += millis(parts.clock.monotonic().saturating_sub(began));
    }
    if ran.iter().any(|one| one.is_last) {
        // What such a call had left to tell what came of it is no time for one more answer of the model.
        spend(parts, &mut run.usage);
    }
    // Each is told in its place, as if it had been made here.
    ran.extend(doubted);
    ran.sort_by_key(|one| one.at);
    let mut outputs = Outputs::of(&run, &parts.limits);
    let mut notes = std::mem::take(&mut run.notes);
    let mut noted = false;
    let mut stopped = None;
    let mut asked: usize = run.calls.iter().filter_map(|call| question_bytes(&call.status)).sum();
    for one in ran {
        if let Some((source, patch)) = one.notes {
            note(&mut notes, &source, patch);
            noted = true;
        }
        run.calls[one.at].status = match question_bytes(&one.status) {
            Some(bytes) if asked + bytes > QUESTIONS => too_much_asked(bytes),
            bytes => {
                asked += bytes.unwrap_or_default();
                one.status
            }
        };
        children::hand_over_once(&run.next_agent, &mut run.calls[one.at]);
        let call = run.calls[one.at].clone();
        children::note(parts, &invocation, &mut run, &call)?;
        let time = Time::Worked(one.duration_ms);
        let concluded = Concluded { whole: one.whole, pictures: one.pictures, effects: one.effects, time };
        if let Some(reason) = conclude(parts, (&mut run.calls[one.at], &mut run.usage), concluded, &mut outputs).await?
        {
            stopped = Some(reason);
        }
    }
    let results = match stopped {
        Some(reason) => {
            ended_by_hook(parts, &mut run, &reason).await?;
            give_up(&mut run, &format!("the call was not made: {reason}"))?
        }
        None if is_over(parts, &run) && run.has_call(|status| status.answer().is_none()) => {
            out_of_time(parts, &mut run).await?
        }
        None if idle => settle(parts, markers, &mut run, BegunMark::Now),
        None => settle(parts, markers, &mut run, BegunMark::InTime),
    };
    let open = open::noted(&run)?;
    Ok(AgentRun::messages
        .append(open::marked(results)?)
        .then(conclusion(run.reason, run.dormouse_shortfall))
        .set(AgentRun::action, run.action)
        .set(AgentRun::image_bytes, outputs.image_bytes())
        .append(AgentRun::outputs, outputs.into_kept())
        .set(AgentRun::usage, run.usage)
        .then(open)
        .set(AgentRun::calls, run.calls)
        .set(AgentRun::next_agent, run.next_agent)
        .set(AgentRun::dormouse_children, run.dormouse_children)
        .then(if noted { AgentRun::notes.set(notes) } else { Update::none() }))
}

/// Bytes of JSON of the question that a call asks a person, where it asks one.
fn question_bytes(status: &CallStatus) -> Option<usize> {
    let CallStatus::Asking { request, .. } = status else { return None };
    let message = request.message.len();
    Some(dormouse_json::length(&request.schema).map_or(usize::MAX / 2, |schema| message + schema))
}

/// The status of a call whose question of so many bytes one pause has no room for.
fn too_much_asked(bytes: usize) -> CallStatus {
    let text = format!(
        "error: the tool asks a person a question of {bytes} bytes, and all questions of a step may have {QUESTIONS}; nobody was \
         asked. Where others of this step ask as well, call it by itself"
    );
    CallStatus::Answered { text, is_error: true }
}

/// Ends a run whose time is over while its calls are open; gives what its conversation says of them.
pub(crate) async fn out_of_time(parts: &AgentParts, run: &mut AgentRun) -> Result<Vec<Value>, NodeError> {
    run.usage = used(parts, run);
    end(parts, run, TerminalReason::Time).await?;
    give_up(run, "the call was not made: the time of the run was over")
}

/// Marks as uncertain what another worker, or an earlier attempt of this one, may have run, and gives these calls.
fn doubt(markers: &Markers, run: &mut AgentRun) -> Vec<FinishedCall> {
    let mut doubted = Vec::new();
    for (at, call) in run.calls.iter_mut().enumerate() {
        if let CallStatus::Begun { marker, input, .. } = &call.status
            && !markers.take(marker)
        {
            call.status = CallStatus::Uncertain { message: WORKER_ENDED.to_owned(), input: input.clone() };
            let status = call.status.clone();
            let effects = NotedEffects::default();
            doubted.push(FinishedCall {
                at,
                status,
                whole: None,
                pictures: Vec::new(),
                notes: None,
                effects,
                duration_ms: 0,
                is_last: false,
            });
        }
    }
    doubted
}

fn may_run(call: &PlannedCall) -> bool {
    match call.status {
        CallStatus::Begun { .. } => true,
        CallStatus::Ready { .. } => !call.must_run_once(),
        CallStatus::NeedsApproval
        | CallStatus::Uncertain { .. }
        | CallStatus::Pending { .. }
        | CallStatus::Asking { .. }
        | CallStatus::Answered { .. } => false,
    }
}

/// What came of a call besides its status.
pub(crate) struct Concluded {
    /// Its output, where the model is shown only a part.
    pub(crate) whole: Option<String>,
    /// Images of its output.
    pub(crate) pictures: Vec<Picture>,
    /// What it did outside.
    pub(crate) effects: NotedEffects,
    /// Time that it took.
    pub(crate) time: Time,
}

/// Time that a call took, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    /// In which it worked here.
    Worked(u64),
    /// From its beginning till its outcome came, in which the run slept.
    Elapsed(u64),
}

/// Has hooks look at what came of `call`, keeps its whole output and records it. Gives the reason for which a hook ends the
/// run.
pub(crate) async fn conclude(
    parts: &AgentParts,
    (call, usage): (&mut PlannedCall, &mut RunUsage),
    concluded: Concluded,
    outputs: &mut Outputs,
) -> Result<Option<String>, NodeError> {
    let shown = |call: &PlannedCall| call.status.answer().map(|(text, _)| text).unwrap_or_default().to_owned();
    let before = shown(call);
    let stop = after_tool(parts, call, usage).await?;
    // What a hook replaced or withheld is not to be had elsewhere either.
    let is_untouched = shown(call).starts_with(&before);
    let whole = concluded.whole.filter(|_| is_untouched);
    let mut artifacts: Vec<StateArtifact> = whole.and_then(|text| outputs.keep(call, text)).into_iter().collect();
    if is_untouched {
        artifacts.extend(keep(parts, call, concluded.pictures, outputs).await);
    }
    report(call, concluded.effects, concluded.time, artifacts)?;
    Ok(stop)
}

/// Records what came of a call.
fn report(
    call: &PlannedCall,
    effects: NotedEffects,
    time: Time,
    artifacts: Vec<StateArtifact>,
) -> Result<(), NodeError> {
    let entry = match &call.status {
        CallStatus::Answered { text, is_error } => {
            let kind = if *is_error { EntryKind::ToolFailed } else { EntryKind::ToolCompleted };
            let entry = about(kind, call).with("output_digest", digest::of_value(text));
            let entry = entry.with("output_bytes", text.len());
            let images = listed(call);
            if images.is_empty() { entry } else { entry.with(IMAGES, images) }
        }
        CallStatus::Pending { pending, .. } => {
            let entry = vendor("dormouse.tool_pending", call)?.with("reference", pending.reference.as_deref().map(cut));
            entry.with_material("pending", serde_json::to_value(pending).map_err(unwritable)?)
        }
        CallStatus::Asking { request, .. } => {
            let entry = vendor("dormouse.tool_asks", call)?.with("message", request.message.as_str());
            entry.with_material("request", serde_json::to_value(request).map_err(unwritable)?)
        }
        CallStatus::Uncertain { message, .. } => {
            vendor("dormouse.tool_uncertain", call)?.with("message", message.as_str())
        }
        CallStatus::NeedsApproval | CallStatus::Ready { .. } | CallStatus::Begun { .. } => return Ok(()),
    };
    let entry = match effects == NotedEffects::default() {
        true => entry,
        false => entry.with(SIDE_EFFECTS, serde_json::to_value(effects).map_err(unwritable)?),
    };
    let entry = match time {
        Time::Worked(milliseconds) => entry.with("duration_ms", milliseconds),
        Time::Elapsed(milliseconds) => entry.with(LATER, true).with("elapsed_ms", milliseconds),
    };
    record_in_room(entry.leaving(artifacts))
}

pub(crate) fn vendor(name: &str, call: &PlannedCall) -> Result<JournalEntry, NodeError> {
    let kind = EntryKind::vendor(name).map_err(|error| NodeError::new(error.to_string()))?;
    Ok(about(kind, call))
}
