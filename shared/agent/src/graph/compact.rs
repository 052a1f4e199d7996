//! Making a conversation shorter for its model: older messages become one summary, the newest stay as they are.
//!
//! The conversation itself stays whole in its session. What the model is shown begins with the summary, behind which
//! stand the messages from the cut on, and what the user said last, word for word, where that is older; a call of a tool stays
//! with its result, also where that came later, behind what other runs said.

use std::collections::BTreeSet;

use dormouse_engine::{NodeError, Update, record};
use dormouse_ports::model::{
    Block, CallOptions, CompletionRequest, Content, FinishReason, Message, ModelError, ModelIdentity, Response,
    RuntimeConfig, Usage,
};
use dormouse_ports::{EntryKind, JournalEntry, Unmarked};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::context::repaired;
use super::digest::of_value;
use super::entries::{naming, record_in_room};
use super::hooks::fire;
use super::lost::{mendable, whole};
use super::model::{conversational, millis};
use super::open::{Told, callers};
use super::parts::AgentParts;
use super::retold::{LONGEST_LINE, told};
use super::run::{AgentRun, RunUsage, as_shown};
use super::time::CallTime;
use super::watch::unless_canceled;
use super::weight::{BYTES_OF_TOKEN, image_tokens, length_of, size, tokens, window};
use crate::workspace::HookEvent;

/// Groups of messages that stay as they are, at most.
const KEPT_GROUPS: usize = 3;
/// Tokens of a summary, at least; what a model thinks before it counts among them.
const LEAST_TOKENS: u64 = 1200;
/// The same at most, where the agent does not say how long answers may be: any model with such a window has as many.
const MOST_TOKENS: u64 = 4096;
/// The part of the window that they may be there.
const PART_OF_WINDOW: u64 = 16;
/// The part of the window by which a request grows before a summary is asked for again that was not had.
const GROWTH: u64 = 10;
/// Bytes of what a summary is made of, at least, where a model refuses more.
const LEAST_TOLD: usize = 8 * 1024;
/// Bytes of a summary that are kept for replays.
const MOST_KEPT: usize = 24 * 1024;

/// The beginning of a message that no user sent: the answer of an agent in the background.
pub(super) const RESULT: &str = "<agent_result ";

/// Kind of the entry of a summary.
pub(super) const COMPACTED: &str = "dormouse.context_compacted";
/// Kind of the entry of a conversation of which there is no summary.
pub(super) const KEPT: &str = "dormouse.context_kept";
/// The beginning of the reason of that entry where the model failed; its error is behind it.
pub(super) const NOT_ASKED: &str = "the model could not be asked for a summary: ";
/// Its reason where the summary ends too early.
pub(super) const CUT: &str = "the model's summary was cut";
/// Material of that entry: what the model said, and the compaction before it.
pub(super) const SAID: &str = "said";
/// Its field with the digest of what the model said, where it said something.
pub(super) const RESPONSE: &str = "response_digest";
pub(super) const BEFORE: &str = "before";

const INSTRUCTIONS: &str = "You write the summary with which a conversation goes on after its older messages are taken \
    away. Keep what was asked for and why, what was decided, what was done and with which outcome, names, numbers, paths \
    and ids that are still needed, and what is still to be done. Leave out politeness. Write at most 700 words, in the \
    language of the conversation, and nothing but the summary.";

/// The older part of a conversation, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// Number of messages, from the first, that the summary stands for.
    pub upto: usize,
    /// Digest of the last of them: where it is another one, the conversation was cut meanwhile, and the summary does not
    /// count.
    pub last: String,
    /// The summary.
    pub summary: String,
}

/// What came of asking for a summary.
pub(crate) enum Compacted {
    /// There is one.
    Yes {
        /// What changes in the run, but for its usage.
        update: Update<AgentRun>,
        /// Usage of the run, this call included.
        usage: RunUsage,
        /// What hooks said behind it, for the next request to the model.
        context: Vec<String>,
    },
    /// There is none, for a reason that is recorded: the conversation stays as it is.
    No {
        /// Usage of the run, this call included.
        usage: RunUsage,
        /// What hooks said behind it, for the next request to the model.
        context: Vec<String>,
        /// True if the model could not be asked, and may be later.
        may_pass: bool,
    },
    /// There is none: a hook ends the run.
    Stopped {
        /// What the hook gives as its reason.
        reason: String,
        /// Usage of the run, this call included.
        usage: RunUsage,
    },
}

impl Compacted {
    /// The same with `from`, the tokens of a request from which on a summary is asked for again, where there is none.
    fn again_from(self, from: u64) -> Self {
        let noting = |usage: RunUsage, summary_from| RunUsage { summary_from, ..usage };
        match self {
            Self::Yes { update, usage, context } => Self::Yes { update, usage: noting(usage, None), context },
            Self::No { usage, context, may_pass } => Self::No { usage: noting(usage, Some(from)), context, may_pass },
            Self::Stopped { reason, usage } => Self::Stopped { reason, usage },
        }
    }
}

/// A call of the model for a summary.
struct SummaryCall {
    model: ModelIdentity,
    usage: Usage,
    cost: f64,
    duration_ms: u64,
    /// What it said that no summary came of, with the digest of the request.
    refused: Option<(String, String)>,
}

/// Records why a conversation stays as it is.
fn kept(trigger: &str, reason: &str, usage: RunUsage) -> Result<Option<Compacted>, NodeError> {
    kept_for(trigger, reason, None)?;
    Ok(Some(Compacted::No { usage, context: Vec::new(), may_pass: false }))
}

/// Records the same, also behind a `call` of the model for a summary.
fn kept_for(trigger: &str, reason: &str, call: Option<SummaryCall>) -> Result<(), NodeError> {
    tracing::warn!(reason, "a conversation was not made shorter, and stays whole");
    let kind = EntryKind::vendor(KEPT).map_err(|error| NodeError::new(error.to_string()))?;
    let entry = JournalEntry::new(kind).with("trigger", trigger).with("message", conversational(reason, LONGEST_LINE));
    let Some(SummaryCall { model, usage, cost, duration_ms, refused }) = call else { return record(entry) };
    let entry = naming(entry, &model);
    let entry = entry.with("usage", json!(usage)).with("cost", cost).with("duration_ms", duration_ms);
    let Some((said, request_digest)) = refused else { return record(entry) };
    let entry = entry.with("request_digest", request_digest).with(RESPONSE, of_value(&said));
    record_in_room(if said.len() <= MOST_KEPT { entry.with_material(SAID, said) } else { entry })
}

/// True for the request of a summary.
pub(super) fn asks_for_summary(request: &CompletionRequest) -> bool {
    let begins =
        |message: &Message| matches!(message, Message::System { content } if content.starts_with(INSTRUCTIONS));
    request.messages.first().is_some_and(begins)
}

/// The conversation of `run` as its model is shown it, each result behind its call.
pub(crate) fn shown(run: &AgentRun) -> Vec<Message> {
    let mut shown = without_confided(run);
    if !run.confided.is_empty() {
        // What the run heard later came by itself.
        let begun = first_answer(run, &shown);
        let last = shown[..begun].iter_mut().rev().find_map(|message| match message {
            Message::User { content: Content::Text(text) } if text.starts_with(RESULT) => None,
            Message::User { content } => Some(content),
            Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => None,
        });
        match last {
            Some(Content::Text(text)) => text.push_str(&format!("\n{}", run.confided)),
            Some(Content::Blocks(blocks)) => blocks.push(Block::text(run.confided.as_str())),
            None => shown.push(Message::user(run.confided.as_str())),
        }
    }
    shown
}

/// Where the first answer of the run stands among the messages that are `shown`; their number where none of them is known to
/// be it.
fn first_answer(run: &AgentRun, shown: &[Message]) -> usize {
    let answers = shown.iter().enumerate().rev().filter(|(_, message)| matches!(message, Message::Assistant(_)));
    let before = run.steps.checked_sub(1).and_then(|steps| usize::try_from(steps).ok());
    let first = before.and_then(|before| answers.map(|(at, _)| at).nth(before));
    first.unwrap_or(shown.len())
}

fn without_confided(run: &AgentRun) -> Vec<Message> {
    let Some(compaction) = current(run) else { return repaired(as_shown(run.messages.iter()), &run.unanswered) };
    let summary = format!("<conversation_summary>\n{}\n</conversation_summary>", compaction.summary);
    let spared = spared(&run.messages, compaction.upto).into_iter().map(|at| &run.messages[at]);
    let behind = as_shown(spared).chain(as_shown(&run.messages[compaction.upto..]));
    std::iter::once(Message::user(summary)).chain(repaired(behind, &run.unanswered)).collect()
}

/// The places of those of the first `upto` messages that no summary takes away: what the user said last, and calls of which
/// a result stands behind them, with their other results.
fn spared(messages: &[Value], upto: usize) -> BTreeSet<usize> {
    let is_of_user = |message: &&Value| {
        let is_result = message["content"].as_str().is_some_and(|text| text.starts_with(RESULT));
        message["role"] == "user" && !is_result
    };
    let last = messages.iter().rposition(|message| is_of_user(&message));
    let callers = callers(messages.iter().map(Told::of_value));
    let late: BTreeSet<usize> = callers.iter().skip(upto).flatten().copied().collect();
    let is_spared = |at: &usize| {
        Some(*at) == last || late.contains(at) || callers[*at].is_some_and(|caller| late.contains(&caller))
    };
    (0..upto.min(messages.len())).filter(is_spared).collect()
}

/// A place at which a conversation is cut.
struct Cut {
    /// Number of messages that the summary before stands for.
    from: usize,
    /// The same of the summary that is to be made.
    at: usize,
    /// The places of messages before it that stay.
    spared: BTreeSet<usize>,
}

impl Cut {
    fn of(run: &AgentRun, at: usize) -> Self {
        let from = current(run).map_or(0, |compaction| compaction.upto);
        Self { from, at, spared: spared(&run.messages, at) }
    }

    /// Tokens that the summary would stand for, where an image is `image` of them.
    fn taken(&self, run: &AgentRun, image: u64) -> u64 {
        let taken = (self.from..self.at).filter(|at| !self.spared.contains(at));
        taken.map(|at| length_of(&run.messages[at], image)).sum::<u64>() / BYTES_OF_TOKEN
    }

    /// Tokens that stay, where an image is `image` of them.
    fn kept(&self, run: &AgentRun, image: u64) -> u64 {
        let spared = self.spared.iter().map(|at| length_of(&run.messages[*at], image)).sum::<u64>();
        tokens(&run.messages[self.at..], image) + spared / BYTES_OF_TOKEN
    }
}

/// The compaction of `run`, where it is of this conversation.
pub(super) fn current(run: &AgentRun) -> Option<&Compaction> {
    let compaction = run.compaction.as_ref()?;
    let last = run.messages.get(compaction.upto.checked_sub(1)?)?;
    (digest_of(last) == compaction.last).then_some(compaction)
}

/// Digest of a message, whether its run is known or not.
fn digest_of(message: &Value) -> String {
    of_value(&Unmarked(message))
}

/// Makes the conversation shorter where `request` fills seven tenths of the model's window. `None` where it does not, where
/// next to nothing can be taken away of what is too much, or where there was no summary the last time and the request has
/// hardly grown since.
pub(crate) async fn if_due(
    parts: &AgentParts,
    run: &AgentRun,
    request: &CompletionRequest,
) -> Result<Option<Compacted>, NodeError> {
    let Some(window) = window(parts, run).filter(|_| parts.compacts) else { return Ok(None) };
    let image = image_tokens(parts);
    let size = size(request, image);
    if size.saturating_mul(10) < window.saturating_mul(7) || is_too_early(parts, run, size) {
        return Ok(None);
    }
    let room = window / 2;
    let fits = |cut: usize| tokens(&run.messages[cut..], image) <= room;
    let Some(cut) = cuts(run).into_iter().find(|cut| fits(*cut)).or_else(|| cuts(run).pop()) else { return Ok(None) };
    let excess = size.saturating_sub(room);
    let cut = Cut::of(run, cut);
    if cut.taken(run, image).saturating_mul(10) < excess {
        return Ok(None);
    }
    let compacted = compact(parts, run, &cut, ("automatic", window)).await?;
    Ok(compacted.map(|compacted| compacted.again_from(next_try(size, window))))
}

/// True if the agent was not given a summary before, and a request of `size` tokens has hardly grown since.
fn is_too_early(parts: &AgentParts, run: &AgentRun, size: u64) -> bool {
    let is_own = run.agent == parts.agent.name;
    is_own && run.usage.summary_from.is_some_and(|from| size < from)
}

/// Tokens of a request from which on a summary is asked for again that was not had for one of `size`: before it does not fit
/// into the `window` any more, at the latest.
fn next_try(size: u64, window: u64) -> u64 {
    let grown = size.saturating_add(window / GROWTH);
    if size < window { grown.min(window) } else { grown }
}

/// Makes the conversation shorter on request: all but the newest group becomes the summary.
pub(crate) async fn asked(parts: &AgentParts, run: &AgentRun) -> Result<Option<Compacted>, NodeError> {
    let Some(cut) = cuts(run).pop() else {
        kept("asked", "there is nothing in it that a summary could stand for", run.usage)?;
        return Ok(None);
    };
    compact(parts, run, &Cut::of(run, cut), ("asked", parts.model.context_window.unwrap_or(128 * 1024))).await
}

/// A way to go on where a model refused a conversation as too long.
pub(crate) struct Shortening {
    cut: Cut,
    /// Half of what was refused, in tokens, or the window, where that is smaller: it is more than the model says.
    window: u64,
}

/// The way to go on where a provider refused `request` as too long; `None` where a summary would take away too little of it, as
/// right behind one.
pub(crate) fn shortening(parts: &AgentParts, run: &AgentRun, request: &CompletionRequest) -> Option<Shortening> {
    let last = cuts(run).pop().filter(|_| parts.compacts)?;
    let image = image_tokens(parts);
    let (cut, size) = (Cut::of(run, last), size(request, image));
    let window = parts.model.context_window.unwrap_or(u64::MAX).min(size / 2);
    (cut.taken(run, image).saturating_mul(10) >= size).then_some(Shortening { cut, window })
}

/// Makes the conversation shorter so: all but the newest group becomes the summary.
pub(crate) async fn shorten(
    parts: &AgentParts,
    run: &AgentRun,
    shortening: &Shortening,
) -> Result<Option<Compacted>, NodeError> {
    compact(parts, run, &shortening.cut, ("refused", shortening.window)).await
}

/// Places at which the conversation may be cut, the one that keeps most first. A group begins with what a user or the
/// model says, and holds the results of the calls in it.
fn cuts(run: &AgentRun) -> Vec<usize> {
    let from = current(run).map_or(0, |compaction| compaction.upto);
    let is_beginning = |message: &Value| message["role"] != "tool";
    let beginnings = run.messages.iter().enumerate().skip(from + 1).filter(|(_, message)| is_beginning(message));
    let mut beginnings: Vec<usize> = beginnings.map(|(at, _)| at).collect();
    let spare = beginnings.len().saturating_sub(KEPT_GROUPS);
    beginnings.drain(..spare);
    beginnings
}

async fn compact(
    parts: &AgentParts,
    run: &AgentRun,
    cut: &Cut,
    (trigger, window): (&str, u64),
) -> Result<Option<Compacted>, NodeError> {
    let taken = cut.at - cut.from;
    let image = image_tokens(parts);
    let before = tokens(&run.messages[cut.from..], image);
    let facts = json!({ "trigger_type": trigger, "tokens": before, "messages_taken": taken });
    let verdict = fire(parts, HookEvent::BeforeContextCompact, &[], facts).await?;
    let used = run.usage.with(verdict.usage);
    if let Some(reason) = verdict.stop {
        return Ok(Some(Compacted::Stopped { reason, usage: used }));
    }
    if let Some(reason) = verdict.block {
        return kept(trigger, &reason, used);
    }
    let mut instructions = INSTRUCTIONS.to_owned();
    verdict.context.iter().for_each(|text| instructions.push_str(&format!("\n\n{text}")));
    let behind = parts.time_of_hooks(&[HookEvent::AfterContextCompact]);
    let began = parts.clock.monotonic();
    let mut room = usize::try_from(window.saturating_mul(2)).unwrap_or(usize::MAX);
    let (request, most, answer) = loop {
        let question = told(run, cut.at, room);
        let less = room.min(question.len()) / 4;
        let most = most_tokens(parts, room);
        let mut request = CompletionRequest::new([Message::system(instructions.clone()), Message::user(question)]);
        let short = RuntimeConfig { max_tokens: Some(most), ..RuntimeConfig::default() };
        request.config = parts.model.config.overridden_by(&short);
        let time = CallTime::of(parts, &run.usage, parts.model.timeout, behind);
        let options = CallOptions { timeout: Some(time.limit), ..CallOptions::default() };
        match unless_canceled(&*parts.clock, parts.model.provider.complete(&request, &options)).await? {
            // The window may be smaller than anybody said.
            Err(error) if error.too_long && less >= LEAST_TOLD => room = less,
            answer => break (request, most, answer),
        }
    };
    let duration_ms = millis(parts.clock.monotonic().saturating_sub(began));
    // A model may say more than it was asked for, as long as the conversation becomes shorter by it.
    let after = |summary: &str| cut.kept(run, image) + summary.len() as u64 / BYTES_OF_TOKEN;
    let is_longer = |summary: &str| summary.len() as u64 / BYTES_OF_TOKEN > most && after(summary) >= before;
    let flaw = |summary: &str, response: &Response| match is_cut(response) {
        true => Some(CUT),
        false if summary.trim().is_empty() => Some("the model gave no summary"),
        false => is_longer(summary).then_some("the model's summary is longer than what it stands for"),
    };
    let answer = answer.or_else(mendable).and_then(whole);
    let response = match answer.map(|response| Response { usage: response.billed(), ..response }) {
        Ok(response) => response,
        Err(error) => return not_had(parts, trigger, (used, duration_ms), error),
    };
    let said = response.message.content.as_text();
    if let Some(flaw) = flaw(&said, &response) {
        let cost = super::model::cost(parts.model.prices, &response);
        let (model, usage) = (parts.model.provider.identity(), response.usage);
        kept_for(trigger, flaw, Some(SummaryCall { model, usage, cost, duration_ms, refused: None }))?;
        let usage = used.and(usage, cost, duration_ms);
        return Ok(Some(Compacted::No { usage, context: Vec::new(), may_pass: false }));
    }
    let facts = json!({ "trigger_type": trigger, "summary": said, "messages_taken": taken });
    let verdict = fire(parts, HookEvent::AfterContextCompact, &[], facts).await?;
    let cost = super::model::cost(parts.model.prices, &response);
    let usage = used.with(verdict.usage).and(response.usage, cost, duration_ms);
    if let Some(reason) = verdict.stop.as_ref().or(verdict.block.as_ref()) {
        let (model, used) = (parts.model.provider.identity(), response.usage);
        let refused = Some((said, of_value(&request)));
        kept_for(trigger, reason, Some(SummaryCall { model, usage: used, cost, duration_ms, refused }))?;
        return Ok(Some(match verdict.stop {
            Some(reason) => Compacted::Stopped { reason, usage },
            None => Compacted::No { usage, context: verdict.context, may_pass: false },
        }));
    }
    let patched = verdict.patch.get("summary").and_then(Value::as_str).map(str::to_owned);
    let summary = patched.unwrap_or_else(|| said.clone());
    let kind = EntryKind::vendor(COMPACTED).map_err(|error| NodeError::new(error.to_string()))?;
    let entry = naming(JournalEntry::new(kind), &parts.model.provider.identity());
    let entry = current(run).into_iter().fold(entry, |entry, before| entry.with_material(BEFORE, json!(before)));
    // The state holds the last summary only. A model that says this much was asked for a tenth of it.
    let entry = if said.len() <= MOST_KEPT { entry.with_material(SAID, said) } else { entry };
    record_in_room(
        entry
            .with("trigger", trigger)
            .with("messages_taken", taken)
            .with("tokens_before", before)
            .with("tokens_after", after(&summary))
            .with("request_digest", of_value(&request))
            .with(RESPONSE, of_value(&summary))
            .with("usage", json!(response.usage))
            .with("cost", cost)
            .with("duration_ms", duration_ms),
    )?;
    let compaction = Compaction { upto: cut.at, last: digest_of(&run.messages[cut.at - 1]), summary };
    let update = AgentRun::compaction.set(Some(compaction));
    Ok(Some(Compacted::Yes { update, usage, context: verdict.context }))
}

/// What follows where the model gave no summary but `error`, after `duration_ms`, in a run that has `used` so much.
fn not_had(
    parts: &AgentParts,
    trigger: &str,
    (used, duration_ms): (RunUsage, u64),
    mut error: ModelError,
) -> Result<Option<Compacted>, NodeError> {
    let call = error.usage.take().map(|usage| SummaryCall {
        model: parts.model.provider.identity(),
        usage: *usage,
        cost: parts.model.prices.map_or(0.0, |prices| prices.cost(&usage)),
        duration_ms,
        refused: None,
    });
    let (paid, cost) = call.as_ref().map(|call| (call.usage, call.cost)).unwrap_or_default();
    kept_for(trigger, &format!("{NOT_ASKED}{error}"), call)?;
    let (usage, may_pass) = (used.and(paid, cost, duration_ms), error.is_transient());
    Ok(Some(Compacted::No { usage, context: Vec::new(), may_pass }))
}

/// Tokens of a summary that is made of so many bytes, at most.
fn most_tokens(parts: &AgentParts, room: usize) -> u64 {
    let window = u64::try_from(room).unwrap_or(u64::MAX) / 2;
    let usual = (window / PART_OF_WINDOW).min(MOST_TOKENS);
    parts.model.config.max_tokens.unwrap_or(usual).max(LEAST_TOKENS)
}

/// True if `response` ended where it had no more room, or a filter stopped it: what it left out would be forgotten.
fn is_cut(response: &Response) -> bool {
    matches!(response.finish_reason, FinishReason::Length | FinishReason::ContentFilter)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_ports::RUN_MARK;

    use super::super::weight::length;
    use super::*;

    fn run(roles: &[&str]) -> AgentRun {
        let messages = roles.iter().enumerate().map(|(at, role)| json!({ "role": role, "content": format!("{at}") }));
        AgentRun { messages: Arc::new(messages.collect()), ..AgentRun::default() }
    }

    fn said(run: &mut AgentRun) -> &mut Vec<Value> {
        Arc::make_mut(&mut run.messages)
    }

    #[test]
    fn a_result_stays_with_its_call() {
        let run = run(&["user", "assistant", "tool", "tool", "assistant", "tool"]);
        assert_eq!(cuts(&run), [1, 4]);
    }

    #[test]
    fn what_the_user_said_last_stays_beside_the_summary() {
        let mut run = run(&["user", "assistant", "tool", "assistant", "tool"]);
        said(&mut run).insert(3, json!({ "role": "user", "content": format!("{RESULT}task_id=\"1\">done") }));
        run.compaction =
            Some(Compaction { upto: 4, last: of_value(&run.messages[3]), summary: "it looked".to_owned() });
        let told: Vec<String> = shown(&run).iter().map(|message| json!(message)["content"].to_string()).collect();
        assert_eq!(told.len(), 3, "a result without its call is not shown: {told:?}");
        assert!(told[0].contains("it looked") && told[1] == "\"0\"", "{told:?}");
        assert_eq!(
            Cut::of(&run, 5).taken(&run, 0),
            length(&run.messages[4]) / BYTES_OF_TOKEN,
            "it counts for nothing that is taken"
        );
    }

    #[test]
    fn a_call_stays_beside_the_summary_where_its_result_came_behind_the_cut() {
        let mut run = run(&["user", "assistant", "tool", "user", "assistant", "tool", "assistant", "user"]);
        said(&mut run)[1]["tool_calls"] = json!([{ "id": "1", "name": "a" }, { "id": "2", "name": "a" }]);
        said(&mut run)[2]["tool_call_id"] = "2".into();
        said(&mut run)[5]["tool_call_id"] = "1".into();
        run.compaction = Some(Compaction { upto: 5, last: of_value(&run.messages[4]), summary: "short".to_owned() });
        let told: Vec<String> = shown(&run).iter().map(|message| json!(message)["content"].to_string()).collect();
        assert_eq!(told[1..], ["\"1\"", "\"2\"", "\"5\"", "\"6\"", "\"7\""], "{told:?}");
    }

    #[test]
    fn a_summary_is_told_which_calls_wait() {
        let mut run = run(&["user", "assistant", "user"]);
        said(&mut run)[1]["tool_calls"] = json!([{ "id": "1", "name": "deploy", "arguments": {} }]);
        said(&mut run)[1][RUN_MARK] = "0a1b2c3d".into();
        run.unanswered =
            json!({ "0a1b2c3d": { "1": "it waits for a person" } }).as_object().cloned().expect("an object");
        assert!(told(&run, 2, 1000).contains("deploy with {} (it waits for a person)"), "{}", told(&run, 2, 1000));
        said(&mut run)[2] = json!({ "role": "tool", "tool_call_id": "1", "content": "done", RUN_MARK: "0a1b2c3d" });
        assert!(told(&run, 3, 1000).contains("deploy with {}\n"), "{}", told(&run, 3, 1000));
    }

    #[test]
    fn a_summary_counts_whether_the_runs_of_the_messages_are_known_or_not() {
        let mut run = run(&["user", "assistant", "user"]);
        said(&mut run)[1]["tool_calls"] = json!([{ "id": "1", "name": "a", "arguments": {} }]);
        let (last, before) = (digest_of(&run.messages[1]), tokens(&run.messages, 0));
        run.compaction = Some(Compaction { upto: 2, last, summary: "short".to_owned() });
        said(&mut run)[1][RUN_MARK] = "0a1b2c3d".into();
        assert!(current(&run).is_some());
        assert_eq!(tokens(&run.messages, 0), before);
        assert_eq!(
            length_of(&run.messages[1], 0),
            length(&json!({ "role": "assistant", "content": "1",
            "tool_calls": [{ "id": "1", "name": "a", "arguments": {} }] }))
        );
    }

    #[test]
    fn what_is_confided_stays_with_what_the_run_began_with() {
        for (roles, steps, place) in [
            (&["user", "assistant", "user"][..], 0, 2),
            (&["user", "assistant", "user", "assistant", "tool", "user"][..], 1, 2),
            (&["user", "assistant", "user", "user", "assistant", "user"][..], 2, 0),
        ] {
            let run = AgentRun { confided: "the code is 7".to_owned(), steps, ..run(roles) };
            let has_it =
                |message: &Message| json!(message)["content"].as_str().is_some_and(|said| said.contains("code"));
            let shown = shown(&run);
            let found: Vec<usize> = (0..shown.len()).filter(|at| has_it(&shown[*at])).collect();
            assert_eq!(found, [place], "{roles:?}");
        }
    }

    #[test]
    fn a_summary_of_another_conversation_does_not_count() {
        let mut run = run(&["user", "assistant", "user"]);
        run.compaction =
            Some(Compaction { upto: 2, last: of_value(&run.messages[1]), summary: "hello was said".to_owned() });
        assert_eq!(shown(&run).len(), 2);
        assert_eq!(cuts(&run), [0; 0], "there is nothing left to take away");
        said(&mut run).remove(0);
        assert_eq!(shown(&run).len(), 2, "the two that are left, word for word");
        assert!(!serde_json::to_string(&shown(&run)).expect("JSON").contains("hello was said"));
    }
}
