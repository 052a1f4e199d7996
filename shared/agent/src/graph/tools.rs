//! The node that runs tools.

use std::pin::pin;
use std::time::Duration;

use dormouse_engine::{
    GIVEN_UP, NodeError, ObservedCall, ToolCallRecord, Update, operation_ended, operations_are_observed,
};
use dormouse_ports::tool::{
    Callback, Effect, InputAnswer, NotedEffects, SideEffects, TIME_TO_TELL, ToolCall, ToolContent, ToolError,
    ToolErrorKind, ToolOutput, ToolReply,
};
use dormouse_ports::{EntryKind, InvocationId, JournalEntry, Map, StateArtifact};
use futures::future::{Either, join_all, select};
use jiff::Timestamp;
use serde_json::Value;

use super::agents::facts;
use super::children;
use super::digest;
use super::entries::{LATER, SIDE_EFFECTS, about, record_in_room};
use super::gates::after_tool;
use super::images::{IMAGES, Picture, keep, listed, of_output, told};
use super::model::{conclusion, end, ended_by_hook, millis, unwritable};
use super::notes::note;
use super::open;
use super::outputs::Outputs;
use super::parts::{AgentParts, Markers};
use super::plan::{BegunMark, give_up, invocation, key, settle, signal};
use super::run::{AgentRun, CallStatus, GivenInput, PlannedCall, RunUsage, TerminalReason};
use super::time::{Bound, CallTime, asked_since, is_over, spend, used};
use super::toolset::{OfferedTool, Toolset};
use super::watch::unless_canceled;
use crate::workspace::{HookEvent, ToolOrigin};

/// What is known of a call that was begun and not recorded.
pub(crate) const WORKER_ENDED: &str = "the worker that began the call ended before it could record what came of it";

/// Bytes of JSON of the questions that the calls of a step ask people: a pause has their words and schemas twice.
const QUESTIONS: usize = 20 * 1024;

/// A call that ran, or may have run.
struct FinishedCall {
    at: usize,
    status: CallStatus,
    /// Its output, where the model is shown only a part.
    whole: Option<String>,
    /// Images of its output.
    pictures: Vec<Picture>,
    /// Notes of its source for later calls.
    notes: Option<(String, Map)>,
    /// What it did outside.
    effects: NotedEffects,
    duration_ms: u64,
    /// True if it was ended because the time of its run was over.
    is_last: bool,
}

/// Runs the calls that may run now.
pub(crate) async fn act(
    parts: &AgentParts,
    markers: &Markers,
    mut run: AgentRun,
) -> Result<Update<AgentRun>, NodeError> {
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

/// The reply, and whether it was ended because the time of its run was over.
type Made = Result<(ToolReply, bool), ToolError>;

/// A call that observers are told of in any case: when it has an outcome, or when it is given up.
struct Underway<'m> {
    making: Making<'m>,
    call: &'m PlannedCall,
    started: Timestamp,
    is_over: bool,
}

impl Underway<'_> {
    fn over(mut self, made: &Made) {
        self.is_over = true;
        self.making.tell(self.call, self.started, Some(made));
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.making.tell(self.call, self.started, None);
        }
    }
}

/// Parts with which a call is made.
#[derive(Clone, Copy)]
struct Making<'m> {
    parts: &'m AgentParts,
    tools: &'m Toolset<'m>,
    invocation: &'m InvocationId,
    step: u64,
    depth: u32,
    notes: &'m Map,
    usage: &'m RunUsage,
    /// Time that hooks may take behind the calls that are made together.
    behind: Duration,
}

impl Making<'_> {
    async fn make(self, at: usize, call: &PlannedCall) -> FinishedCall {
        let began = self.parts.clock.monotonic();
        let started = self.parts.clock.now();
        let mut notes = None;
        let mut is_last = false;
        let effects = SideEffects::default();
        let underway = Underway { making: self, call, started, is_over: false };
        let made = self.try_make(call, &effects).await;
        underway.over(&made);
        let Outcome { status, whole, pictures } = match made {
            Ok((mut reply, was_last)) => {
                is_last = was_last;
                if let ToolReply::Done(output) = &mut reply {
                    let noted = std::mem::take(&mut output.notes);
                    notes = self.source_of(call).filter(|_| !noted.is_empty()).map(|source| (source, noted));
                }
                self.status(call, reply)
            }
            Err(error) => failed(call, &error).into(),
        };
        let duration_ms = millis(self.parts.clock.monotonic().saturating_sub(began));
        FinishedCall { at, status, whole, pictures, notes, effects: effects.noted(), duration_ms, is_last }
    }

    /// Name of the source that made `call`.
    fn source_of(self, call: &PlannedCall) -> Option<String> {
        match call.source.is_empty() {
            true => self.tools.of_call(call).map(|tool| tool.part.name.clone()),
            false => Some(call.source.clone()),
        }
    }

    /// Tells observers of a call, so that there is a span of it, and what came of it where that is known already; `None` where
    /// it was given up.
    fn tell(self, call: &PlannedCall, started: Timestamp, made: Option<&Made>) {
        if !operations_are_observed() {
            return;
        }
        let shown = self.parts.limits.shown_in_spans;
        let is_over = matches!(made, None | Some(Err(_) | Ok((ToolReply::Done(_), _))));
        let read = if is_over { observed(self.invocation, self.step, call) } else { None };
        // An output may be long: its text is made only where it is shown.
        let text = match made {
            Some(Ok((ToolReply::Done(output), _))) if shown.is_some() || read.is_some() => {
                text_of(output, |_| "[image]".to_owned()).into()
            }
            Some(Ok(_) | Err(_)) | None => Value::Null,
        };
        let result = match made {
            Some(Ok((ToolReply::Done(output), _))) if output.is_error => {
                Err((TOOL_ERROR, text.as_str().unwrap_or_default()))
            }
            Some(Ok(_)) => Ok(&text),
            Some(Err(error)) => Err((error.kind.as_str(), error.message.as_str())),
            None => Err((GIVEN_UP, "the call was given up: its run was canceled")),
        };
        let ended = self.parts.clock.now();
        let record =
            ToolCallRecord { tool: &call.tool, id: Some(&call.id), arguments: &call.arguments, result, started, ended };
        if let Some(read) = read {
            record.tell(&read);
        }
        operation_ended(record.operation(shown));
    }

    async fn try_make(self, call: &PlannedCall, effects: &SideEffects) -> Made {
        let (approved, input) = match &call.status {
            CallStatus::Ready { approved_digest, input } | CallStatus::Begun { approved_digest, input, .. } => {
                (approved_digest.as_deref(), input.as_ref())
            }
            CallStatus::NeedsApproval
            | CallStatus::Uncertain { .. }
            | CallStatus::Pending { .. }
            | CallStatus::Asking { .. }
            | CallStatus::Answered { .. } => (None, None),
        };
        if approved.is_some_and(|approved| approved != digest::of_arguments(&call.arguments)) {
            return Err(ToolError::permanent("the call was not made: its arguments are not those that were approved"));
        }
        let pending = if call.polled.is_null() { None } else { OfferedTool::of_pending(self.parts, call) };
        let Some(tool) = self.tools.made(call, pending.as_ref()) else {
            let gone = self.tools.gone(call);
            return Err(ToolError { message: format!("the call was not made: {}", gone.message), ..gone });
        };
        // While it waited its server may have changed what it takes. What goes on elsewhere was made already.
        if call.polled.is_null()
            && call.polls == 0
            && let Err(mistakes) = tool.check(&call.arguments)
        {
            let message =
                format!("the call was not made: its arguments do not fit the schema of the tool now: {mistakes}");
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, message));
        }
        let telling = telling(tool);
        let time = self.time(tool, telling);
        let request = ToolCall { effects: effects.clone(), ..self.request(call, tool, input, time.limit) };
        let clock = &self.parts.clock;
        let began = clock.monotonic();
        match select(tool.part.source.call(&request), pin!(clock.sleep(time.limit))).await {
            Either::Left((reply, _)) => {
                let took = clock.monotonic().saturating_sub(began);
                let is_cut = time.bound != Bound::Own && took + TIME_TO_TELL >= time.limit;
                let its_own = time.without(telling);
                let reply = reply.map(|reply| if is_cut { explained(reply, its_own) } else { reply })?;
                let has_failed = matches!(&reply, ToolReply::Done(output) if output.is_error);
                Ok((reply, has_failed && time.bound == Bound::Run && took >= its_own.limit))
            }
            Either::Right(_) => {
                let message = format!("the tool did not answer within {}", time.words());
                Err(ToolError::new(ToolErrorKind::TimedOut, message).maybe_done())
            }
        }
    }

    /// Time that one call may take, the time for `telling` included.
    fn time(self, tool: &OfferedTool<'_>, telling: Duration) -> CallTime {
        let policy = self.parts.agent.policy.tool_timeout_seconds.map(|seconds| Duration::from_secs(seconds) + telling);
        let own = match (policy, tool.spec.timeout) {
            (Some(policy), Some(own)) => policy.min(own),
            (Some(time), None) | (None, Some(time)) => time,
            (None, None) => self.parts.limits.tool_timeout + telling,
        };
        CallTime::of(self.parts, self.usage, own, self.behind)
    }

    fn request(
        self,
        call: &PlannedCall,
        tool: &OfferedTool<'_>,
        input: Option<&GivenInput>,
        limit: Duration,
    ) -> ToolCall {
        let signal_id = signal(self.invocation, self.step, call);
        let url = self.parts.callbacks.as_ref().and_then(|callbacks| callbacks.address(&signal_id));
        ToolCall {
            id: call.id.clone(),
            name: tool.spec.name.clone(),
            arguments: call.arguments.clone(),
            idempotency_key: key(self.invocation, self.step, call),
            callback: url.map(|url| Callback { url, signal_id }),
            pending: (!call.polled.is_null()).then(|| call.polled.clone()),
            input: input.map(|given| InputAnswer { content: given.content.clone(), state: given.state.clone() }),
            notes: self.notes_for(tool),
            deadline: Some(self.parts.clock.now() + limit),
            effects: SideEffects::default(),
        }
    }

    /// What the source of `tool` noted before; that of agents is told of the run instead.
    fn notes_for(self, tool: &OfferedTool<'_>) -> Map {
        match tool.origin() {
            ToolOrigin::Agent => facts(self.depth),
            ToolOrigin::Native | ToolOrigin::Action | ToolOrigin::External | ToolOrigin::Skill => {
                self.notes.get(&tool.part.name).and_then(Value::as_object).cloned().unwrap_or_default()
            }
        }
    }

    fn status(self, call: &PlannedCall, reply: ToolReply) -> Outcome {
        match reply {
            ToolReply::Done(output) => answered(self.parts, &output),
            ToolReply::Pending(pending) => {
                let since = Some(self.parts.clock.now());
                CallStatus::Pending { signal_id: signal(self.invocation, self.step, call), pending, since }.into()
            }
            ToolReply::InputRequired(request) => CallStatus::Asking { request, unfit: 0 }.into(),
        }
    }
}

/// Type of the error of a tool that ran and says that it failed.
const TOOL_ERROR: &str = "tool_error";

/// The call as observers that read calls know it; `None` where there are none.
fn observed(invocation: &InvocationId, step: u64, call: &PlannedCall) -> Option<ObservedCall> {
    ObservedCall::known_as(|_| key(invocation, step, call))
}

/// Tells the observers that read calls what came of a `call` that went on elsewhere since `started`, as of the node that made
/// it.
pub(crate) fn tell_outcome(parts: &AgentParts, run: (&InvocationId, u64), call: &PlannedCall, started: Timestamp) {
    let Some((text, is_error)) = call.status.answer() else { return };
    let Some(read) = observed(run.0, run.1, call) else { return };
    let value = Value::from(text);
    let result = if is_error { Err((TOOL_ERROR, text)) } else { Ok(&value) };
    let ended = parts.clock.now();
    let record =
        ToolCallRecord { tool: &call.tool, id: Some(&call.id), arguments: &call.arguments, result, started, ended };
    record.tell(&read.begun_in("tools"));
}

/// Time in which a command that was ended, because its own time was over, tells what came of it.
fn telling(tool: &OfferedTool<'_>) -> Duration {
    match tool.origin() {
        ToolOrigin::Native | ToolOrigin::Action => TIME_TO_TELL,
        ToolOrigin::External | ToolOrigin::Skill | ToolOrigin::Agent => Duration::ZERO,
    }
}

/// The reply of a call that failed when its `time` was over, with what bounded that. One that was recorded tells it already.
fn explained(mut reply: ToolReply, time: CallTime) -> ToolReply {
    const TOLD: &str = "[the call had ";

    let tells = |content: &ToolContent| matches!(content, ToolContent::Text { text } if text.contains(TOLD));
    if let ToolReply::Done(output) = &mut reply
        && output.is_error
        && !output.content.iter().any(tells)
    {
        output.content.push(ToolContent::text(format!("{TOLD}{}]", time.words())));
    }
    reply
}

/// What came of a call.
pub(crate) struct Outcome {
    /// Next thing to do about it.
    pub(crate) status: CallStatus,
    /// Its whole output, where the model is shown only a part.
    pub(crate) whole: Option<String>,
    /// Images of its output.
    pub(crate) pictures: Vec<Picture>,
}

impl From<CallStatus> for Outcome {
    fn from(status: CallStatus) -> Self {
        Self { status, whole: None, pictures: Vec::new() }
    }
}

/// The result of a call that ended.
pub(crate) fn answered(parts: &AgentParts, output: &ToolOutput) -> Outcome {
    let mut images = Vec::new();
    let text = text_of(output, |image| {
        let (words, image) = told(parts, images.len(), image);
        images.extend(image);
        words
    });
    let pictures = of_output(output, images);
    let limits = &parts.limits;
    if text.len() <= limits.shown_output {
        let status = CallStatus::Answered { text, is_error: output.is_error };
        return Outcome { status, whole: None, pictures };
    }
    let shown = &text[..text.floor_char_boundary(limits.shown_output)];
    let cut = format!("{shown}\n[cut: {} of {} bytes are shown; ask for less at a time]", shown.len(), text.len());
    let status = CallStatus::Answered { text: cut, is_error: output.is_error };
    Outcome { status, whole: Some(text), pictures }
}

/// The output as the model is told it, with what `tell` says of an image, of which it gets the media type and the Base64.
pub(crate) fn text_of(output: &ToolOutput, mut tell: impl FnMut((&str, &str)) -> String) -> String {
    let block = |content: &ToolContent| match content {
        ToolContent::Text { text } => text.clone(),
        ToolContent::Image { media_type, data } => tell((media_type, data)),
        ToolContent::ResourceLink { uri, name, .. } => match name {
            Some(name) => format!("[{name}]({uri})"),
            None => uri.clone(),
        },
    };
    let mut text = output.content.iter().map(block).collect::<Vec<_>>().join("\n");
    if let (true, Some(value)) = (output.content.is_empty(), &output.structured) {
        text = value.to_string();
    }
    match (output.is_error, text.is_empty()) {
        (true, true) => "error: the tool failed and said nothing".to_owned(),
        (true, false) => format!("error: {text}"),
        (false, true) => "(no output)".to_owned(),
        (false, false) => text,
    }
}

/// What becomes of a call without an outcome: a question to a person where it may have had an effect, else an error for
/// the model.
fn failed(call: &PlannedCall, error: &ToolError) -> CallStatus {
    if error.uncertain && call.effect == Effect::Manual {
        return CallStatus::Uncertain { message: error.message.clone(), input: call.status.input().cloned() };
    }
    let text = match error.kind {
        ToolErrorKind::InvalidArguments | ToolErrorKind::NotFound | ToolErrorKind::Permanent => error.message.clone(),
        ToolErrorKind::Transient | ToolErrorKind::TimedOut => format!("{}; it may work later", error.message),
        ToolErrorKind::Denied => {
            tracing::error!(tool = call.tool, %error, "a tool may not be called: an operator has to grant access or mend its settings");
            format!("{}; an operator has to mend that, trying again does not help", error.message)
        }
    };
    CallStatus::Answered { text: format!("error: {text}"), is_error: true }
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
            let entry = vendor("dormouse.tool_pending", call)?.with("reference", pending.reference.clone());
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
