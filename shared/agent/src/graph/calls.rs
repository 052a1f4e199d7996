//! One call of a tool: how it is made, and what came of it.

use std::pin::pin;
use std::time::Duration;

use dormouse_engine::{GIVEN_UP, ObservedCall, ToolCallRecord, operation_ended, operations_are_observed};
use dormouse_ports::tool::{
    Callback, Effect, InputAnswer, NotedEffects, SideEffects, TIME_TO_TELL, ToolCall, ToolContent, ToolError,
    ToolErrorKind, ToolOutput, ToolReply,
};
use dormouse_ports::{InvocationId, Map};
use futures::future::{Either, select};
use jiff::Timestamp;
use serde_json::Value;

use super::agents::facts;
use super::digest;
use super::images::{Picture, of_output, told};
use super::model::{conversational, millis};
use super::parts::AgentParts;
use super::plan::{key, signal};
use super::run::{CallStatus, GivenInput, PlannedCall, RunUsage};
use super::time::{Bound, CallTime};
use super::toolset::{OfferedTool, Toolset};
use crate::workspace::ToolOrigin;

/// Type of the error of a tool that ran and says that it failed.
const TOOL_ERROR: &str = "tool_error";
/// Bytes of what is known of a call in doubt: it is recorded with those of the calls beside it.
const LONGEST_DOUBT: usize = 4 * 1024;

/// The pauses before a call is tried again of which a person has said something, and whose server is away.
const AWAY: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// A call that ran, or may have run.
pub(super) struct FinishedCall {
    pub(super) at: usize,
    pub(super) status: CallStatus,
    /// Its output, where the model is shown only a part.
    pub(super) whole: Option<String>,
    /// Images of its output.
    pub(super) pictures: Vec<Picture>,
    /// Notes of its source for later calls.
    pub(super) notes: Option<(String, Map)>,
    /// What it did outside.
    pub(super) effects: NotedEffects,
    pub(super) duration_ms: u64,
    /// True if it was ended because the time of its run was over.
    pub(super) is_last: bool,
}

/// Parts with which a call is made.
#[derive(Clone, Copy)]
pub(super) struct Making<'m> {
    pub(super) parts: &'m AgentParts,
    pub(super) tools: &'m Toolset<'m>,
    pub(super) invocation: &'m InvocationId,
    pub(super) step: u64,
    pub(super) depth: u32,
    pub(super) notes: &'m Map,
    pub(super) usage: &'m RunUsage,
    /// Time that hooks may take behind the calls that are made together.
    pub(super) behind: Duration,
}

impl Making<'_> {
    pub(super) async fn make(self, at: usize, call: &PlannedCall) -> FinishedCall {
        let began = self.parts.clock.monotonic();
        let started = self.parts.clock.now();
        let mut notes = None;
        let mut is_last = false;
        let effects = SideEffects::default();
        let underway = Underway { making: self, call, started, is_over: false };
        let made = self.make_or_wait(call, &effects).await;
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
            Err(error) => failed(self.parts, call, &error),
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

    /// Makes the call. One that a person approved, or whose question one answered, and that cannot be sent since its server is
    /// away, is tried again for a short while: if the model called once more, a person would have to say that again.
    async fn make_or_wait(self, call: &PlannedCall, effects: &SideEffects) -> Made {
        let clock = &self.parts.clock;
        let began = clock.monotonic();
        let longest = CallTime::of(self.parts, self.usage, self.parts.time_of_tools(), self.behind).limit;
        let mut made = self.try_make(call, effects).await;
        for pause in AWAY {
            let waited = clock.monotonic().saturating_sub(began) + pause;
            // What is left has to do for the call itself.
            if !made.as_ref().is_err_and(|error| is_away(call, error)) || waited * 2 > longest {
                break;
            }
            clock.sleep(pause).await;
            let tools = Toolset::of(self.parts).await;
            let active_ms = self.usage.active_ms + millis(clock.monotonic().saturating_sub(began));
            let usage = RunUsage { active_ms, ..*self.usage };
            made = Making { tools: &tools, usage: &usage, ..self }.try_make(call, effects).await;
        }
        made
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

/// True if `error` is that of a call which a person approved, or whose question one answered, and which was not sent: its server
/// is away, and may be back soon.
fn is_away(call: &PlannedCall, error: &ToolError) -> bool {
    let has_a_say = match &call.status {
        CallStatus::Ready { approved_digest, input } | CallStatus::Begun { approved_digest, input, .. } => {
            approved_digest.is_some() || input.is_some()
        }
        CallStatus::NeedsApproval
        | CallStatus::Uncertain { .. }
        | CallStatus::Pending { .. }
        | CallStatus::Asking { .. }
        | CallStatus::Answered { .. } => false,
    };
    has_a_say && call.origin == ToolOrigin::External && error.kind == ToolErrorKind::Transient && !error.uncertain
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
fn failed(parts: &AgentParts, call: &PlannedCall, error: &ToolError) -> Outcome {
    if error.uncertain && call.effect == Effect::Manual {
        let message = conversational(&error.message, LONGEST_DOUBT);
        return CallStatus::Uncertain { message, input: call.status.input().cloned() }.into();
    }
    let text = match error.kind {
        ToolErrorKind::InvalidArguments | ToolErrorKind::NotFound | ToolErrorKind::Permanent => error.message.clone(),
        ToolErrorKind::Transient | ToolErrorKind::TimedOut => format!("{}; it may work later", error.message),
        ToolErrorKind::Denied => {
            tracing::error!(tool = call.tool, %error, "a tool may not be called: an operator has to grant access or mend its settings");
            format!("{}; an operator has to mend that, trying again does not help", error.message)
        }
    };
    answered(parts, &ToolOutput::error(text))
}
