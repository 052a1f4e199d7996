//! What the journal and the last state of a run say of its calls.
//!
//! The state holds the conversation, the journal the digests: what a model or a tool answered is the message with the
//! digest that was recorded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::model::{AssistantMessage, Block, Content, Message, ToolCall};
use dormouse_ports::tool::{InputRequest, NotedEffects, Pending, ToolError, ToolErrorKind};
use dormouse_ports::{Map, PastEntry, ReplayMaterial};
use serde::Deserialize;
use serde_json::Value;

use super::super::compact::{BEFORE, COMPACTED, KEPT, NOT_ASKED};
use super::super::digest;
use super::super::entries::{
    ANSWER_LOST, HOOK, LATER, REPORTED, RUN_ENDED, SERVER, SIDE_EFFECTS, TOOL_DECIDED, TOOLS_MISSING,
};
use super::super::hooks::CALLS;
use super::super::images::IMAGES;
use super::super::run::{AskedAction, TerminalReason, read as read_message};
use super::super::tools::WORKER_ENDED;
use super::super::toolset::left_out_in;
use super::ACTION;
use crate::workspace::ToolOrigin;

/// The kind of entries about hooks.
const HOOK_RUN: &str = "vendor.dormouse.hook_run";

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) material: Arc<ReplayMaterial>,
    /// Number of messages of the conversation before the first answer of the model, or before the action.
    before: usize,
    /// The action that was asked for in the place of an answer, as it was asked.
    action: Option<AskedAction>,
    /// Answers of the model, by step from 1.
    answers: Vec<PastModelAnswer>,
    /// Outcomes of calls of tools, by the id of the call, in order.
    outcomes: Mutex<BTreeMap<String, VecDeque<PastCall>>>,
    /// Outcomes that came later, in the same way.
    later: Mutex<BTreeMap<String, VecDeque<PastOutcome>>>,
    /// Number of answers that were given again.
    asked: AtomicUsize,
    /// Summaries of the model, and what it said or failed with where it gave none, in order.
    summaries: Mutex<VecDeque<PastEntry>>,
    /// Answers of the model that were thrown away, each with the number of those that were not before it.
    lost: Mutex<VecDeque<(usize, PastEntry)>>,
    /// Answers of hooks, by their names, in order.
    hooks: Mutex<BTreeMap<String, VecDeque<PastEntry>>>,
}

/// An answer of the model.
#[derive(Debug)]
pub(super) struct PastModelAnswer {
    pub(super) entry: PastEntry,
    /// The message; `None` where the state does not hold it.
    pub(super) message: Option<AssistantMessage>,
}

/// A call that was made, or asked for how it stands.
#[derive(Clone, Debug)]
pub(super) struct PastCall {
    pub(super) outcome: PastOutcome,
    /// What it did outside.
    pub(super) effects: NotedEffects,
    /// Time that it took.
    pub(super) duration_ms: u64,
}

/// Outcome of one call.
#[derive(Clone, Debug)]
pub(super) enum PastOutcome {
    /// It ended.
    Answered {
        /// Text that the model was shown; `None` where that is not known.
        text: Option<String>,
        is_error: bool,
        /// Its whole output, where that was longer.
        whole: Option<String>,
        /// Its images.
        images: Vec<Block>,
    },
    Pending(Pending),
    Asking(InputRequest),
    Uncertain(String),
    /// An earlier version recorded that it did not end, and no more.
    Unknown,
}

impl Past {
    pub(super) fn of(material: Arc<ReplayMaterial>) -> Self {
        let messages = messages_of(&material.state);
        let mut before = messages.len();
        let mut answers = VecDeque::new();
        // From behind: an earlier run of the session may have been answered the same.
        for entry in material.entries.iter().rev().filter(|entry| is_model_call(entry)) {
            let found = find_answer(messages.get(..before).unwrap_or_default(), &material.entries, entry);
            if let Some((at, _)) = &found {
                before = *at;
            }
            answers.push_front(PastModelAnswer { entry: entry.clone(), message: found.map(|(_, message)| message) });
        }
        let action = action_of(&material.state, messages);
        if let Some(at) = action.as_ref().and_then(|(_, at)| *at) {
            before = at;
        }
        let outcomes = Mutex::new(outcomes_of(&material, messages));
        let later = Mutex::new(later_of(&material, messages));
        let mut hooks: BTreeMap<String, VecDeque<PastEntry>> = BTreeMap::new();
        for entry in material.entries.iter().filter(|entry| entry.kind == HOOK_RUN) {
            let name = text(&entry.payload, "hook").unwrap_or_default().to_owned();
            hooks.entry(name).or_default().push_back(entry.clone());
        }
        let compacted = material.entries.iter().filter(|entry| is_summary(entry) || is_no_summary(entry));
        let summaries = Mutex::new(compacted.cloned().collect());
        let hooks = Mutex::new(hooks);
        let lost = Mutex::new(lost_of(&material));
        let answers = answers.into();
        let action = action.map(|(action, _)| action);
        Self { before, answers, asked: AtomicUsize::new(0), action, summaries, outcomes, later, lost, hooks, material }
    }

    /// The recorded entries of `kind`, an author's own.
    pub(super) fn vendor_entries<'p>(&'p self, kind: &'p str) -> impl Iterator<Item = &'p PastEntry> {
        self.material.entries.iter().filter(move |entry| entry.kind.strip_prefix("vendor.") == Some(kind))
    }

    /// Messages of the conversation when the run has ended.
    pub(super) fn messages_at_end(&self) -> &[Value] {
        messages_of(&self.material.state)
    }

    /// The action that the run was asked for, with the id that its call had.
    pub(super) fn action(&self) -> Option<&AskedAction> {
        self.action.as_ref()
    }

    /// The summary with which the run found its conversation.
    pub(super) fn compaction_before(&self) -> Option<&Value> {
        let first = self.material.entries.iter().find(|entry| is_summary(entry));
        first.map_or_else(|| self.material.state.get("compaction"), |entry| entry.material.get(BEFORE))
    }

    /// The next summary, or what came of asking for it; for `digest` only the summary that this was asked for by.
    pub(super) fn take_summary(&self, digest: Option<&str>) -> Option<PastEntry> {
        let mut summaries = self.summaries.lock().unwrap_or_else(PoisonError::into_inner);
        let next = summaries.front()?;
        let is_it = digest.is_none_or(|digest| match text(&next.payload, "request_digest") {
            Some(asked) => asked == digest,
            None => is_no_summary(next),
        });
        is_it.then(|| summaries.pop_front()).flatten()
    }

    /// True if a summary was made that was not given again yet.
    pub(super) fn has_summary(&self) -> bool {
        !self.summaries.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The answer that was thrown away where the model is asked now, if there was one that was not given again yet.
    pub(super) fn take_lost(&self) -> Option<PastEntry> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.asked.load(Ordering::Relaxed);
        let is_now = lost.front().is_some_and(|(before, _)| *before <= asked);
        is_now.then(|| lost.pop_front()).flatten().map(|(_, entry)| entry)
    }

    /// The number of the next answer, from 1: also behind a hand-over, for all agents of the run together.
    pub(super) fn next_step(&self) -> usize {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The conversation as the run found it.
    pub(super) fn messages_before(&self) -> &[Value] {
        messages_of(&self.material.state).get(..self.before).unwrap_or_default()
    }

    /// The answer of step `step`, from 1.
    pub(super) fn answer(&self, step: usize) -> Option<&PastModelAnswer> {
        self.answers.get(step.checked_sub(1)?)
    }

    /// True if the run ended since it had worked for too long, and everything before that was given again.
    pub(super) fn is_over(&self) -> bool {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.load(Ordering::Relaxed) >= self.answers.len()
            && self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && outcomes.values().all(VecDeque::is_empty)
            && self.material.has_passed_all()
            && self.ended_by_time()
    }

    /// True if the run ended since it had worked for too long.
    pub(super) fn ended_by_time(&self) -> bool {
        let end = self.vendor_entries(RUN_ENDED).last();
        end.is_some_and(|entry| text(&entry.payload, "reason") == Some(TerminalReason::Time.as_str()))
    }

    /// What came next of the call `id`.
    pub(super) fn take_outcome(&self, id: &str) -> Option<PastCall> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(id)?.pop_front()
    }

    /// Next outcome of the call `id` that came later, as the run took it.
    pub(super) fn take_later(&self, id: &str) -> Option<PastOutcome> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner).get_mut(id)?.pop_front()
    }

    /// True if the run refused an answer about the call `id` since it did not fit.
    pub(super) fn has_refused(&self, id: &str) -> bool {
        self.vendor_entries(TOOL_DECIDED).any(|entry| {
            text(&entry.payload, "tool_call_id") == Some(id) && text(&entry.payload, "decision") == Some("unfit")
        })
    }

    /// True if the run recorded `said` as what a person reported of a call.
    pub(super) fn has_reported(&self, said: &str) -> bool {
        let digest = digest::of_value(&said);
        let mut reports = self.material.entries.iter().filter(|entry| entry.payload.contains_key(REPORTED));
        reports.any(|entry| text(&entry.payload, "output_digest") == Some(digest.as_str()))
    }

    /// The host that was asked for the answers of `model`; empty where that was not recorded.
    pub(super) fn server_of(&self, model: &str) -> String {
        let of_model = |entry: &&PastEntry| text(&entry.payload, "gen_ai.request.model") == Some(model);
        let is_call = |entry: &&PastEntry| is_model_call(entry) || is_lost(entry);
        let mut calls = self.material.entries.iter().filter(is_call).filter(of_model);
        calls.next().and_then(|entry| text(&entry.payload, SERVER)).unwrap_or_default().to_owned()
    }

    /// The next run of the hook `name`.
    pub(super) fn take_hook(&self, name: &str) -> Option<PastEntry> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).get_mut(name)?.pop_front()
    }

    /// What is recorded of why the source `name`, or tools of it, were missing.
    fn missing<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let lists = self.vendor_entries(TOOLS_MISSING).filter_map(|entry| entry.payload.get("missing")?.as_array());
        lists.flatten().filter(move |one| one["source"] == name).filter_map(|one| one["reason"].as_str())
    }

    /// The tools that the source `name` left out.
    pub(super) fn left_out(&self, name: &str) -> Vec<(String, String)> {
        self.missing(name).filter_map(left_out_in).collect()
    }

    /// The error for which the source `name` listed nothing.
    pub(super) fn not_listed(&self, name: &str) -> Option<ToolError> {
        self.missing(name).find_map(|reason| {
            let (kind, message) = reason.split_once(": ")?;
            let kind = ToolErrorKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
            Some(ToolError::new(kind, message))
        })
    }

    /// The tools that the source `name` listed, where that was recorded.
    pub(super) fn listed(&self, name: &str) -> Option<&Value> {
        self.material.entries.iter().find_map(|entry| entry.material.get("tools")?.get(name))
    }
}

fn messages_of(state: &Map) -> &[Value] {
    state.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn text<'a>(payload: &'a Map, name: &str) -> Option<&'a str> {
    payload.get(name)?.as_str()
}

pub(super) fn number(payload: &Map, name: &str) -> u64 {
    payload.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn is_summary(entry: &PastEntry) -> bool {
    entry.kind.strip_prefix("vendor.") == Some(COMPACTED)
}

/// True for what came of asking a model for a summary that it did not give. What was refused before it was asked is none.
pub(super) fn is_no_summary(entry: &PastEntry) -> bool {
    let was_asked = entry.payload.contains_key("usage") || failed_with(entry).is_some();
    entry.kind.strip_prefix("vendor.") == Some(KEPT) && was_asked
}

/// The error with which a model gave no summary.
pub(super) fn failed_with(entry: &PastEntry) -> Option<&str> {
    text(&entry.payload, "message")?.strip_prefix(NOT_ASKED)
}

/// The action that a run was asked for, and the number of `messages` before it where it was begun: the run has said
/// nothing else.
fn action_of(state: &Map, messages: &[Value]) -> Option<(AskedAction, Option<usize>)> {
    let asked = AskedAction::deserialize(state.get(ACTION)?).ok()?;
    let begun = asked.progress.as_ref().and_then(|_| {
        let said = messages.iter().enumerate().rev();
        let (at, message) = said.filter_map(|(at, message)| Some((at, assistant(message)?))).next()?;
        // Before it stands what asks for it.
        Some((at.checked_sub(1)?, message.tool_calls.first()?.id.clone()))
    });
    let (at, call_id) = begun.unzip();
    Some((AskedAction { progress: None, call_id, ..asked }, at))
}

/// True for a call of the model of the agent.
fn is_model_call(entry: &PastEntry) -> bool {
    entry.kind == "span.completed"
        && text(&entry.payload, "gen_ai.operation.name") == Some("chat")
        && !entry.payload.contains_key(HOOK)
}

/// True for an answer of the model of the agent that was thrown away.
fn is_lost(entry: &PastEntry) -> bool {
    entry.kind.strip_prefix("vendor.") == Some(ANSWER_LOST)
}

/// The answers of the model that were thrown away, each with the number of those that were not before it.
fn lost_of(material: &ReplayMaterial) -> VecDeque<(usize, PastEntry)> {
    let mut answered = 0;
    let mut lost = VecDeque::new();
    for entry in &material.entries {
        answered += usize::from(is_model_call(entry));
        if is_lost(entry) {
            lost.push_back((answered, entry.clone()));
        }
    }
    lost
}

/// The last of `messages` that the model answered in `entry`. Where a hook changed its words, or refused it, what it said is in
/// the record of that hook.
fn find_answer(messages: &[Value], entries: &[PastEntry], entry: &PastEntry) -> Option<(usize, AssistantMessage)> {
    let wanted = text(&entry.payload, "response_digest")?;
    let spoken = messages.iter().enumerate().rev().filter_map(|(at, message)| Some((at, assistant(message)?)));
    let changed = changed_words(entries, entry);
    let refused = refused_calls(entries, entry);
    for (at, mut message) in spoken {
        if digest::of_value(&message) == wanted {
            return Some((at, message));
        }
        if let Some(words) = &changed {
            message.content = words.clone();
            if digest::of_value(&message) == wanted {
                return Some((at, message));
            }
        }
        if let Some(calls) = &refused {
            message.tool_calls = calls.clone();
            if digest::of_value(&message) == wanted {
                return Some((at, message));
            }
        }
    }
    None
}

fn assistant(message: &Value) -> Option<AssistantMessage> {
    match read_message(message)? {
        Message::Assistant(message) => Some(message),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
    }
}

/// Words of the model before the hooks behind `entry` changed them. Of a hook that said nothing there is no more.
fn changed_words(entries: &[PastEntry], entry: &PastEntry) -> Option<Content> {
    Content::deserialize(behind_model(entries, entry).find_map(|hook| hook.material.get("before"))?).ok()
}

/// The calls of the model that a hook behind `entry` refused.
fn refused_calls(entries: &[PastEntry], entry: &PastEntry) -> Option<Vec<ToolCall>> {
    Vec::deserialize(behind_model(entries, entry).find_map(|hook| hook.material.get(CALLS))?).ok()
}

/// The entries of the hooks behind the answer of the model in `entry`.
fn behind_model<'e>(entries: &'e [PastEntry], entry: &PastEntry) -> impl Iterator<Item = &'e PastEntry> {
    let behind = entries.iter().skip_while(move |other| other.event_id != entry.event_id).skip(1);
    let hooks = behind.take_while(|other| is_of_hook(other));
    hooks.filter(|hook| text(&hook.payload, "event") == Some("after_model_call"))
}

/// True for the entry of a hook, and for that of a call of a model which a hook made.
fn is_of_hook(entry: &PastEntry) -> bool {
    entry.payload.contains_key(HOOK)
}

fn outcomes_of(material: &ReplayMaterial, messages: &[Value]) -> BTreeMap<String, VecDeque<PastCall>> {
    let mut outcomes: BTreeMap<String, VecDeque<_>> = BTreeMap::new();
    let kept = kept_outputs(material);
    for (at, entry) in material.entries.iter().enumerate() {
        let Some(id) = text(&entry.payload, "tool_call_id") else { continue };
        let outcome = match entry.kind.as_str() {
            // What came later, or a person reported, comes again with the answer to the pause.
            _ if entry.payload.contains_key(LATER) || entry.payload.contains_key(REPORTED) => continue,
            "tool.completed" | "tool.failed" if entry.payload.get("made") != Some(&Value::Bool(false)) => {
                let earlier = material.entries.get(..at).unwrap_or_default();
                answered(entry, earlier, messages, kept, id)
            }
            "vendor.dormouse.tool_pending" => read(entry, "pending").map_or(PastOutcome::Unknown, PastOutcome::Pending),
            "vendor.dormouse.tool_asks" => read(entry, "request").map_or(PastOutcome::Unknown, PastOutcome::Asking),
            "vendor.dormouse.tool_uncertain" => {
                PastOutcome::Uncertain(text(&entry.payload, "message").unwrap_or_default().to_owned())
            }
            // Earlier versions did not record the doubt that a worker left.
            _ if is_doubt_of_earlier_version(entry, material.entries.get(..at).unwrap_or_default(), id) => {
                PastOutcome::Uncertain(WORKER_ENDED.to_owned())
            }
            _ => continue,
        };
        let effects = entry.payload.get(SIDE_EFFECTS).and_then(|noted| NotedEffects::deserialize(noted).ok());
        let (effects, duration_ms) = (effects.unwrap_or_default(), number(&entry.payload, "duration_ms"));
        outcomes.entry(id.to_owned()).or_default().push_back(PastCall { outcome, effects, duration_ms });
    }
    outcomes
}

/// What came later of the calls of tools, by their ids; that of agents is not asked for.
fn later_of(material: &ReplayMaterial, messages: &[Value]) -> BTreeMap<String, VecDeque<PastOutcome>> {
    let mut later: BTreeMap<String, VecDeque<_>> = BTreeMap::new();
    let kept = kept_outputs(material);
    for (at, entry) in material.entries.iter().enumerate().filter(|(_, entry)| entry.payload.contains_key(LATER)) {
        let Some(id) = text(&entry.payload, "tool_call_id") else { continue };
        if text(&entry.payload, "source") == Some(ToolOrigin::Agent.as_str()) {
            continue;
        }
        let earlier = material.entries.get(..at).unwrap_or_default();
        later.entry(id.to_owned()).or_default().push_back(answered(entry, earlier, messages, kept, id));
    }
    later
}

/// The whole outputs that the run has kept.
fn kept_outputs(material: &ReplayMaterial) -> &[Value] {
    material.state.get("outputs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// True for the answer to a doubt about the call `id` that is not among the `earlier` entries.
fn is_doubt_of_earlier_version(entry: &PastEntry, earlier: &[PastEntry], id: &str) -> bool {
    let is_about = |other: &&PastEntry| text(&other.payload, "tool_call_id") == Some(id);
    let is_told = |other: &PastEntry| {
        let kind = other.kind.strip_prefix("vendor.");
        kind == Some("dormouse.tool_uncertain") || kind == Some("dormouse.tool_asks")
    };
    let says = text(&entry.payload, "decision").unwrap_or_default();
    entry.kind.strip_prefix("vendor.") == Some(TOOL_DECIDED)
        && ["happened", "repeat", "skip", "none"].contains(&says)
        && !earlier.iter().rfind(is_about).is_some_and(is_told)
}

fn read<T: for<'de> Deserialize<'de>>(entry: &PastEntry, name: &str) -> Option<T> {
    T::deserialize(entry.material.get(name)?).ok()
}

fn answered(entry: &PastEntry, earlier: &[PastEntry], messages: &[Value], kept: &[Value], id: &str) -> PastOutcome {
    let wanted = text(&entry.payload, "output_digest");
    let is_result = |message: &&Value| message["role"] == "tool" && message["tool_call_id"] == *id;
    let mut results =
        messages.iter().filter(is_result).filter_map(|message| Some((message, message["content"].as_str()?)));
    let found = results.find(|(_, shown)| Some(digest::of_value(shown).as_str()) == wanted);
    let shown = found.map(|(_, shown)| shown);
    let images = found.and_then(|(message, _)| Vec::deserialize(message.get(IMAGES)?).ok()).unwrap_or_default();
    // Hooks behind a call change what the model is shown of it.
    let mut hooks = earlier.iter().rev().take_while(|other| is_of_hook(other));
    let is_after = |hook: &&PastEntry| text(&hook.payload, "event") == Some("after_tool_dispatch");
    let before = hooks.by_ref().filter(is_after).filter(|hook| hook.material.contains_key("before")).last();
    let before = before.and_then(|hook| hook.material.get("before")?.as_str());
    let whole = kept.iter().find(|output| output["call"] == *id).and_then(|output| output["text"].as_str());
    PastOutcome::Answered {
        text: before.or(shown).map(str::to_owned),
        is_error: entry.kind == "tool.failed",
        whole: whole.map(str::to_owned),
        images,
    }
}
