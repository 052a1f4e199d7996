//! The node behind every pause: what people and other systems said becomes what is next for each call.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use dormouse_engine::{NodeError, Update, VoteOutcome, Votes, record};
use dormouse_json::misfit;
use dormouse_ports::tool::{InputRequest, MASKED, NotedEffects, Pending, ToolOutput, with_texts};
use dormouse_ports::{EntryKind, Map, SignalId};
use futures::future::select;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::calls::{Outcome, answered, tell_outcome};
use super::children::settle as settle_child;
use super::digest;
use super::entries::{REPORTED, TOOL_DECIDED, about};
use super::gates::{HooksSay, before_edited};
use super::model::{conclusion, conversational, end, ended_by_hook, unwritable};
use super::open;
use super::outputs::Outputs;
use super::parts::{AgentParts, Markers};
use super::plan::{BegunMark, cut, edited, give_up, invocation, settle, signal};
use super::run::{AgentRun, CallStatus, Choice, GivenInput, PlannedCall, Reply, TerminalReason};
use super::time;
use super::tools::{Concluded, Time, conclude, out_of_time, vendor};
use super::toolset::{OfferedTool, Toolset};
use super::waits::{PendingDue, due, outcomes_at_once, pace, with};
use crate::workspace::ToolOrigin;

/// How often a person is asked again about one call whose arguments were given wrongly, or for an answer to its tool.
const MOST_UNFIT: usize = 3;

/// Bytes of a reason that are recorded; the model is told it whole.
const LONGEST_REASON: usize = 4 * 1024;

/// What is recorded of a reason: of all calls of a step together there is not much room.
fn in_record(reason: &str) -> String {
    conversational(reason, LONGEST_REASON)
}

/// Takes the answers of the pause that ended.
pub(crate) async fn decide(
    parts: &AgentParts,
    markers: &Markers,
    mut run: AgentRun,
) -> Result<Update<AgentRun>, NodeError> {
    let tools = Toolset::of_run(parts, &run).await;
    let replies = Replies::of(parts, &run);
    let asked_since = time::asked_since(&run.calls);
    let mut calls = std::mem::take(&mut run.calls);
    let mut outputs = Outputs::of(&run, &parts.limits);
    let mut stops = false;
    let mut stopped = None;
    let mut says = HooksSay { context: std::mem::take(&mut run.hook_context), ..HooksSay::default() };
    let mut room = outcomes_at_once(parts);
    let invocation = invocation()?;
    for call in &mut calls {
        let since = begun_at(call);
        if since.is_some() && room == 0 {
            continue;
        }
        let asked = call.digest.clone();
        let Some(Outcome { status, whole, pictures }) =
            replies.next(parts, (&tools, run.steps), call, &mut stops).await?
        else {
            continue;
        };
        call.status = status;
        if call.digest != asked && !stops && stopped.is_none() {
            says = says.and(before_edited(parts, &tools, call).await?);
            stopped.clone_from(&says.stop);
            told_of_gate(call)?;
        }
        if let (Some(since), CallStatus::Answered { .. }) = (since, &call.status) {
            room -= 1;
            tell_outcome(parts, (&invocation, run.steps), call, since);
            let elapsed = parts.clock.now().duration_since(since).as_millis();
            let time = Time::Elapsed(u64::try_from(elapsed).unwrap_or_default());
            let concluded = Concluded { whole, pictures, effects: NotedEffects::default(), time };
            if let Some(reason) = conclude(parts, (call, &mut run.usage), concluded, &mut outputs).await? {
                stopped = Some(reason);
            }
        }
    }
    run.usage = run.usage.with(says.usage);
    calls.iter().for_each(|call| settle_child(&invocation, &mut run, call));
    run.calls = calls;
    if let Some(since) = asked_since {
        // From where on agents still work is counted when that has ended.
        let still = time::asked_since(&run.calls).unwrap_or_else(|| parts.clock.now());
        let elapsed = still.duration_since(since).as_millis();
        run.usage.active_ms += u64::try_from(elapsed).unwrap_or_default();
    }
    let results = if stops {
        end(parts, &mut run, TerminalReason::Denied).await?;
        give_up(&mut run, "the call was not made: a person ended the run")?
    } else if let Some(reason) = stopped {
        ended_by_hook(parts, &mut run, &reason).await?;
        give_up(&mut run, &format!("the call was not made: {reason}"))?
    } else if time::is_over(parts, &run) && run.has_call(|status| status.answer().is_none()) {
        out_of_time(parts, &mut run).await?
    } else {
        settle(parts, markers, &mut run, BegunMark::InTime)
    };
    let open = open::noted(&run)?;
    Ok(AgentRun::messages
        .append(open::marked(results)?)
        .then(open)
        .set(AgentRun::calls, run.calls)
        .set(AgentRun::usage, run.usage)
        .set(AgentRun::image_bytes, outputs.image_bytes())
        .append(AgentRun::outputs, outputs.into_kept())
        .set(AgentRun::dormouse_children, run.dormouse_children)
        .then(conclusion(run.reason, run.dormouse_shortfall))
        .set(AgentRun::action, run.action)
        .set(AgentRun::hook_context, says.context)
        .set(AgentRun::reply, Reply::default())
        .set(AgentRun::replies, Votes::default())
        .set(AgentRun::outcome, Map::new())
        .set(AgentRun::outcomes, Votes::default()))
}

/// Records what hooks made of a `call` that a person approved with other arguments, where it is not made.
fn told_of_gate(call: &mut PlannedCall) -> Result<(), NodeError> {
    if call.status == CallStatus::NeedsApproval && call.unfit.len() > MOST_UNFIT {
        let text =
            "error: the call was not made: hooks change its arguments each time that they are approved".to_owned();
        call.status = CallStatus::Answered { text, is_error: true };
    }
    match &call.status {
        CallStatus::NeedsApproval => record(about(EntryKind::ToolApprovalRequired, call)),
        CallStatus::Answered { text, .. } => {
            record(about(EntryKind::ToolFailed, call).with("message", cut(text)).with("made", false))
        }
        CallStatus::Ready { .. }
        | CallStatus::Begun { .. }
        | CallStatus::Uncertain { .. }
        | CallStatus::Pending { .. }
        | CallStatus::Asking { .. } => Ok(()),
    }
}

/// Instant since which `call` goes on elsewhere, if it does.
fn begun_at(call: &PlannedCall) -> Option<Timestamp> {
    let CallStatus::Pending { since, .. } = &call.status else { return None };
    *since
}

/// The pause that ended, and its answers.
struct Replies {
    about: About,
    /// Answers by part; one without a name where only one call was asked about.
    one: Option<Reply>,
    several: Votes<Reply>,
    outcome: Option<Map>,
    outcomes: Votes<Map>,
    /// The [pace](pace) of the pause.
    pace: Duration,
    /// Instant on the monotonic clock until which the secrets are looked up that outcomes may repeat.
    recalls_until: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Approval,
    Uncertain,
    Question,
    Pending,
}

impl Replies {
    /// The pauses of a step come in this order, so that the statuses tell which one it was.
    fn of(parts: &AgentParts, run: &AgentRun) -> Self {
        let counts = [
            (About::Approval, with(run, |status| *status == CallStatus::NeedsApproval).len()),
            (About::Uncertain, with(run, |status| matches!(status, CallStatus::Uncertain { .. })).len()),
            (About::Question, with(run, |status| matches!(status, CallStatus::Asking { .. })).len()),
            (About::Pending, with(run, |status| matches!(status, CallStatus::Pending { .. })).len()),
        ];
        let (about, count) = counts.into_iter().find(|(_, count)| *count > 0).unwrap_or((About::Pending, 0));
        let in_time = run.dormouse_resolution != "timed_out" && run.dormouse_resolution != "woken";
        Self {
            about,
            one: (count == 1).then(|| run.reply.clone()),
            several: run.replies.clone(),
            outcome: (count == 1 && in_time).then(|| run.outcome.clone()),
            outcomes: run.outcomes.clone(),
            pace: pace(run),
            recalls_until: parts.clock.monotonic() + TO_RECALL,
        }
    }

    fn reply(&self, call: &PlannedCall) -> Reply {
        self.one.clone().or_else(|| self.several.answers.get(&call.part).cloned()).unwrap_or_default()
    }

    /// True if a person ended the run before anybody said what is to become of `call`.
    fn is_unsaid(&self, call: &PlannedCall) -> bool {
        self.several.outcome == VoteOutcome::Veto && !self.several.answers.contains_key(&call.part)
    }

    fn outcome(&self, call: &PlannedCall) -> Option<Map> {
        self.outcome.clone().or_else(|| self.outcomes.answers.get(&call.part).cloned())
    }

    /// What came of `call`; `None` where the pause was not about it.
    async fn next(
        &self,
        parts: &AgentParts,
        (tools, step): (&Toolset<'_>, u64),
        call: &mut PlannedCall,
        stops: &mut bool,
    ) -> Result<Option<Outcome>, NodeError> {
        let alone = |status: CallStatus| Some(status.into());
        match (call.status.clone(), self.about) {
            // It is given up with the run.
            (CallStatus::NeedsApproval, About::Approval) if self.is_unsaid(call) => Ok(None),
            (CallStatus::NeedsApproval, About::Approval) => approval(tools, call, self.reply(call), stops).map(alone),
            (CallStatus::Uncertain { .. }, About::Uncertain) => {
                let reply = self.reply(call);
                decided(call, &reply)?;
                let status = certainty(parts, step, call, &reply)?;
                reported(call, &status, &reply)?;
                Ok(alone(status))
            }
            (CallStatus::Asking { request, unfit }, About::Question) => {
                input(call, (request, unfit), self.reply(call)).map(alone)
            }
            (CallStatus::Pending { signal_id, pending, since }, About::Pending) => {
                let Some(told) = self.outcome(call) else {
                    let due = due(&pending, self.pace, (since, parts.clock.now()));
                    return Ok(untold(call, (pending, due)));
                };
                let recalls = self.recalls_until.saturating_sub(parts.clock.monotonic());
                Ok(Some(answered(parts, &outcome((parts, recalls), tools, (&*call, &signal_id), told).await)))
            }
            (
                CallStatus::NeedsApproval
                | CallStatus::Uncertain { .. }
                | CallStatus::Asking { .. }
                | CallStatus::Pending { .. }
                | CallStatus::Ready { .. }
                | CallStatus::Begun { .. }
                | CallStatus::Answered { .. },
                _,
            ) => Ok(None),
        }
    }
}

fn approval(
    tools: &Toolset<'_>,
    call: &mut PlannedCall,
    reply: Reply,
    stops: &mut bool,
) -> Result<CallStatus, NodeError> {
    let said = |reason: &str| if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let refused = match reply.decision {
        Choice::Approve if !reply.digest.is_empty() && reply.digest != call.digest => {
            Some("the call was not made: what was approved are other arguments".to_owned())
        }
        Choice::Approve => match reply.arguments.map(|arguments| given(tools, call, arguments)) {
            Some(Err(mistakes)) if call.unfit.len() < MOST_UNFIT => {
                let asked_again = vendor(TOOL_DECIDED, call)?.with("decision", "unfit");
                record(asked_again.with("by", reply.by).with("reason", in_record(&mistakes)))?;
                call.unfit.push(mistakes);
                return Ok(CallStatus::NeedsApproval);
            }
            Some(Err(mistakes)) => {
                Some(format!("the call was not made: the arguments that a person gave do not fit: {mistakes}"))
            }
            Some(Ok(())) | None => None,
        },
        Choice::Stop => {
            *stops = true;
            Some(format!("a person denied the call and ended the run{}", said(&reply.reason)))
        }
        Choice::Open => Some("the call was not made: nobody approved it in time".to_owned()),
        Choice::Deny | Choice::Happened | Choice::Repeat | Choice::Skip | Choice::Answer | Choice::Decline => {
            Some(format!("a person denied the call{}", said(&reply.reason)))
        }
    };
    let kind = if refused.is_none() { EntryKind::ToolApproved } else { EntryKind::ToolDenied };
    record(about(kind, call).with("by", reply.by).with("reason", in_record(&reply.reason)))?;
    Ok(match refused {
        None => CallStatus::Ready { approved_digest: Some(call.digest.clone()), input: None },
        Some(text) => CallStatus::Answered { text, is_error: true },
    })
}

/// The arguments of `call`, replaced by those that a person gave.
fn given(tools: &Toolset<'_>, call: &mut PlannedCall, arguments: Map) -> Result<(), String> {
    let asked = call.digest.clone();
    edited(tools, call, arguments)?;
    call.edited |= call.digest != asked;
    Ok(())
}

/// Records what a person said of a call that was in doubt, or that asked something.
fn decided(call: &PlannedCall, reply: &Reply) -> Result<(), NodeError> {
    let decision = match reply.decision == Choice::Open {
        true => "none".into(),
        false => serde_json::to_value(reply.decision).map_err(unwritable)?,
    };
    let entry = vendor(TOOL_DECIDED, call)?.with("decision", decision);
    record(entry.with("by", reply.by.as_str()).with("reason", in_record(&reply.reason)))
}

/// Records the end of a call that was in doubt, as a person reported it; nothing of one that is made again.
fn reported(call: &PlannedCall, status: &CallStatus, reply: &Reply) -> Result<(), NodeError> {
    let Some((text, is_error)) = status.answer() else { return Ok(()) };
    let entry = match is_error {
        true => about(EntryKind::ToolFailed, call).with("message", text),
        false => about(EntryKind::ToolCompleted, call)
            .with("output_digest", digest::of_value(&text))
            .with("output_bytes", text.len()),
    };
    record(entry.with(REPORTED, true).with("by", reply.by.as_str()))
}

/// Time in which what a tool has told of a call that happened is found: it is there already, or is not waited for.
const TO_FIND: Duration = Duration::from_secs(1);

/// True if the tool of `call` does something with the address at which it may tell what came of it.
fn may_tell_later(call: &PlannedCall) -> bool {
    match call.origin {
        ToolOrigin::External | ToolOrigin::Action => true,
        ToolOrigin::Native | ToolOrigin::Skill | ToolOrigin::Agent => false,
    }
}

/// What is told of a call that happened, where that is all that is known.
pub(super) const HAPPENED: &str = "the call happened, says a person who looked; its output is not known";

/// What is next for a `call` that was in doubt.
fn certainty(parts: &AgentParts, step: u64, call: &mut PlannedCall, reply: &Reply) -> Result<CallStatus, NodeError> {
    let answered = |text: &str, is_error| CallStatus::Answered { text: text.to_owned(), is_error };
    Ok(match reply.decision {
        // Its tool may have told what came of it, where it was given an address.
        Choice::Happened if reply.result.is_empty() && parts.callbacks.is_some() && may_tell_later(call) => {
            call.happened = true;
            let pending = Pending { timeout: Some(TO_FIND), ..Pending::default() };
            let signal_id = signal(&invocation()?, step, call);
            CallStatus::Pending { signal_id, pending, since: Some(parts.clock.now()) }
        }
        Choice::Happened if reply.result.is_empty() => answered(HAPPENED, false),
        Choice::Happened => answered(&reply.result, false),
        // What a person answered to its tool before the doubt goes along again.
        Choice::Repeat => {
            CallStatus::Ready { approved_digest: Some(call.digest.clone()), input: call.status.input().cloned() }
        }
        Choice::Open
        | Choice::Approve
        | Choice::Deny
        | Choice::Stop
        | Choice::Skip
        | Choice::Answer
        | Choice::Decline => answered("it is not known whether the call happened; it was not made again", true),
    })
}

/// What is next for a `call` whose tool asked something: it runs again with the answer, or with its refusal. An answer that
/// does not fit is not taken, and asked for again; so many are a refusal.
fn input(
    call: &mut PlannedCall,
    (request, unfit): (InputRequest, usize),
    reply: Reply,
) -> Result<CallStatus, NodeError> {
    let mut content = (reply.decision == Choice::Answer).then(|| reply.content.clone().unwrap_or_default());
    match content.as_ref().and_then(|content| misfit(&request.schema, content)) {
        None => decided(call, &reply)?,
        Some(mistakes) => {
            let entry = vendor(TOOL_DECIDED, call)?.with("decision", "unfit");
            record(entry.with("by", reply.by).with("reason", in_record(&mistakes)))?;
            if unfit < MOST_UNFIT {
                call.unfit.push(mistakes);
                return Ok(CallStatus::Asking { request, unfit: unfit + 1 });
            }
            content = None;
        }
    }
    call.questions = call.questions.saturating_add(1);
    Ok(CallStatus::Ready { approved_digest: None, input: Some(GivenInput { content, state: request.state }) })
}

/// Next thing to do about a call that goes on elsewhere, and of which nothing was told. It is asked again where its tool wants
/// to be, is given up when its time is over, or is waited for further: the pause may have ended because of another call.
fn untold(call: &mut PlannedCall, (pending, due): (Pending, PendingDue)) -> Option<Outcome> {
    match due {
        PendingDue::Later(_) => None,
        PendingDue::Asked => {
            call.polled = pending.state;
            call.polls = call.polls.saturating_add(1);
            Some(CallStatus::Ready { approved_digest: None, input: None }.into())
        }
        PendingDue::Over if call.happened => {
            Some(CallStatus::Answered { text: HAPPENED.to_owned(), is_error: false }.into())
        }
        PendingDue::Over => {
            let text = "error: the tool sent no outcome in time".to_owned();
            Some(CallStatus::Answered { text, is_error: true }.into())
        }
    }
}

/// Time in which the secrets are looked up that the outcomes of a pause may repeat. Behind it those count that are known.
const TO_RECALL: Duration = Duration::from_secs(5);

/// The outcome of `call` that was `told` to `signal_id`, without the secrets of its source and the token of its callback.
async fn outcome(
    (parts, recalls): (&AgentParts, Duration),
    tools: &Toolset<'_>,
    (call, signal_id): (&PlannedCall, &SignalId),
    told: Map,
) -> ToolOutput {
    let told = match &parts.callbacks {
        Some(callbacks) => {
            let is_token = |word: &str| callbacks.is_token(signal_id, word);
            with_texts(Value::Object(told), &|text| without_tokens(text, &is_token))
        }
        None => Value::Object(told),
    };
    let output = match told.get("content") {
        Some(Value::Array(_)) => ToolOutput::deserialize(&told).ok(),
        Some(_) | None => None,
    };
    let output = output.unwrap_or_else(|| ToolOutput::value(told));
    let pending = OfferedTool::of_pending(parts, call);
    let Some(tool) = tools.made(call, pending.as_ref()) else { return output };
    let source = &tool.part.source;
    select(source.recall(&tool.spec.name), pin!(parts.clock.sleep(recalls))).await;
    source.masked(&call.id, output)
}

/// `text` without the words in it that are tokens.
fn without_tokens(text: String, is_token: &dyn Fn(&str) -> bool) -> String {
    let is_apart = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
    let tokens: BTreeSet<String> = text.split(is_apart).filter(|word| is_token(word)).map(str::to_owned).collect();
    tokens.iter().fold(text, |text, token| text.replace(token.as_str(), MASKED))
}
