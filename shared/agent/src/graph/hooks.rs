//! Hooks around the steps of a run: what they may stop, refuse and change.
//!
//! A hook may run more than once for the same step: a worker that dies between a hook and the commit of its step is
//! followed by one that makes the step again.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{NodeError, current};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler};
use dormouse_ports::model::{Message, RuntimeConfig};
use dormouse_ports::{EntryKind, JournalEntry, Map, WORKSPACE};
use futures::future::{Either, select};
use regex::Regex;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::digest;
use super::entries::{HOOK, WITHIN_ENTRY, hook_model_call, is_crowded, record_in_room};
use super::model::millis;
use super::open::misfit;
use super::parts::AgentParts;
use super::run::RunUsage;
use super::time::CallTime;
use super::watch::unless_canceled;
use crate::names::slip_of;
use crate::workspace::{HookCapability, HookDefinition, HookEvent, OnHookError, matcher};

/// Bytes of an answer.
const LONGEST: usize = 256 * 1024;
/// Fields of an answer.
const FIELDS: [&str; 7] =
    ["continue", "stopReason", "decision", "reason", "systemMessage", "suppressOutput", "hookSpecificOutput"];
/// Fields of its `hookSpecificOutput`.
const SPECIAL_FIELDS: [&str; 3] = ["hookEventName", "additionalContext", "patch"];
/// Bytes of an answer, and of what it is about, that are kept for replays.
const LONGEST_KEPT: usize = 16 * 1024;
/// Field of what a hook is told of an answer, and of what a replay is told of one that was refused.
pub(super) const CALLS: &str = "tool_calls";
/// The most characters of a reason that are shown.
const LONGEST_REASON: usize = 2000;

/// The most characters of a reason that are kept where the entries of a step have not much room left.
const IN_A_CROWD: usize = 100;

/// A hook, and what handles it.
#[derive(Clone, Debug)]
pub struct HookPart {
    /// The hook.
    pub definition: HookDefinition,
    /// Its handler; `None` where it cannot be handled here, which counts as a failure each time.
    pub handler: Option<Arc<dyn HookHandler>>,
    /// The matcher of the hook; one that is no expression, which no workspace is loaded with, meets everything.
    pub(super) matcher: Option<Regex>,
}

impl HookPart {
    /// The hook `definition`, which `handler` handles.
    pub fn new(definition: HookDefinition, handler: Option<Arc<dyn HookHandler>>) -> Self {
        let matcher = definition.matcher.as_deref().and_then(|written| matcher(written).ok());
        Self { definition, handler, matcher }
    }

    /// True if it is to run. Events of the context have no subject.
    fn concerns(&self, event: HookEvent, subjects: &[&str]) -> bool {
        let matches = |matcher: &Regex| subjects.iter().any(|subject| matcher.is_match(subject));
        let has_subject = match event {
            HookEvent::BeforeContextCompact
            | HookEvent::AfterContextCompact
            | HookEvent::BeforeContextBuild
            | HookEvent::AfterContextBuild => false,
            HookEvent::BeforeModelCall
            | HookEvent::AfterModelCall
            | HookEvent::BeforeToolDispatch
            | HookEvent::AfterToolDispatch
            | HookEvent::RunCompleted
            | HookEvent::RunFailed => true,
        };
        self.definition.events.contains(&event) && (!has_subject || self.matcher.as_ref().is_none_or(matches))
    }
}

/// Joint verdict of the hooks of a moment.
#[derive(Debug, Default)]
pub(crate) struct HookVerdict {
    /// The run ends, for this reason.
    pub(crate) stop: Option<String>,
    /// Reason for refusing what is about to happen.
    pub(crate) block: Option<String>,
    /// Text for the model.
    pub(crate) context: Vec<String>,
    /// Changes that they may make, by the names of what is changed.
    pub(crate) patch: Map,
    /// Output is withheld from the model.
    pub(crate) suppress: bool,
    /// Usage of the models that they asked. How long that took counts for no run.
    pub(crate) usage: RunUsage,
}

/// Runs the hooks of `event` one after the other, until one stops or blocks. `subjects` are the names that their matchers
/// look at.
pub(crate) async fn fire(
    parts: &AgentParts,
    event: HookEvent,
    subjects: &[&str],
    facts: Value,
) -> Result<HookVerdict, NodeError> {
    let mut verdict = HookVerdict::default();
    let mut envelope = facts;
    for hook in parts.hooks.iter().filter(|hook| hook.concerns(event, subjects)) {
        envelope["hook_event_name"] = event.as_str().into();
        envelope["agent_name"] = parts.agent.name.as_str().into();
        envelope["effective_agent_name"] = parts.agent.name.as_str().into();
        envelope["cwd"] = ".".into();
        if let Some(identity) = current() {
            envelope["run_id"] = identity.invocation_id.as_str().into();
            envelope["workspace_id"] = identity.metadata.get(WORKSPACE).cloned().unwrap_or_default();
            envelope["session_id"] = identity.session_id.as_ref().map(|id| id.as_str().to_owned()).into();
        }
        let began = parts.clock.monotonic();
        let answer = unless_canceled(&*parts.clock, answered(parts, hook, &envelope)).await?;
        let duration_ms = millis(parts.clock.monotonic().saturating_sub(began));
        let mut material = for_replays(event, &envelope, &answer);
        let output = answer.as_ref().ok().map(|answer| answer.text.trim()).filter(|text| !text.is_empty());
        let output_digest = output.map(|text| digest::of_value(&text));
        if let Some(call) = answer.as_ref().ok().and_then(|answer| answer.model_call.as_deref()) {
            verdict.usage = verdict.usage.and(call.usage, call.cost, 0);
            hook_model_call(parts, &hook.definition.name, call, duration_ms)?;
        }
        let outcome = take(&hook.definition, (event, &envelope), answer, &mut verdict);
        if event == HookEvent::AfterModelCall && verdict.block.is_some() {
            material.extend(calls_for_replays(&envelope));
        }
        let ran = HookRun { outcome, output_digest, duration_ms, material };
        tell(&hook.definition, event, &envelope, ran)?;
        for (name, value) in &verdict.patch {
            envelope[name.as_str()] = value.clone();
        }
        if verdict.stop.is_some() || verdict.block.is_some() {
            break;
        }
    }
    Ok(verdict)
}

async fn answered(parts: &AgentParts, hook: &HookPart, envelope: &Value) -> Result<HookAnswer, HookFailure> {
    let Some(handler) = &hook.handler else {
        return Err(HookFailure("it cannot be handled here".to_owned()));
    };
    let time = CallTime::of_hook(parts, Duration::from_secs(hook.definition.timeout_seconds));
    match select(handler.handle(envelope), pin!(parts.clock.sleep(time.limit))).await {
        // What a handler complains of is kept with the run, which has no room for all of it.
        Either::Left((answer, _)) => answer.map_err(|HookFailure(complaint)| HookFailure(cut(&complaint))),
        Either::Right(_) => Err(HookFailure(format!("it did not answer within {}", time.words()))),
    }
}

/// Outcome of a hook, for its record.
enum HookOutcome {
    Passed,
    Patched,
    Blocked(String),
    Stopped(String),
    Failed(String),
    /// It wanted to change what it may not.
    Refused(HookCapability),
    /// It wanted to change something that is not there to be changed, or to what it cannot be.
    Unfit(String),
}

/// Takes an answer into `verdict`.
fn take(
    hook: &HookDefinition,
    (event, envelope): (HookEvent, &Value),
    answer: Result<HookAnswer, HookFailure>,
    verdict: &mut HookVerdict,
) -> HookOutcome {
    let fails = |message: &str, verdict: &mut HookVerdict| {
        tracing::warn!(hook = hook.name, message, "a hook failed; what that means is its `on_error`");
        if hook.on_error == OnHookError::Closed {
            verdict.block = Some(message.to_owned());
            verdict.stop = is_model_step(event).then(|| message.to_owned());
        }
    };
    let outcome = match answer.and_then(|answer| read(&answer).map(|reply| (answer.blocks, reply))) {
        Ok((blocks, reply)) => obey(hook, (event, envelope), blocks, &reply, verdict),
        Err(failure) => HookOutcome::Failed(cut(&format!("hook `{}` failed: {failure}", hook.name))),
    };
    if let HookOutcome::Failed(message) | HookOutcome::Unfit(message) = &outcome {
        fails(message, verdict);
    }
    outcome
}

/// True where a block cannot be told to the model as the result of a call.
fn is_model_step(event: HookEvent) -> bool {
    match event {
        HookEvent::BeforeContextBuild
        | HookEvent::AfterContextBuild
        | HookEvent::BeforeModelCall
        | HookEvent::AfterModelCall => true,
        HookEvent::BeforeContextCompact
        | HookEvent::AfterContextCompact
        | HookEvent::BeforeToolDispatch
        | HookEvent::AfterToolDispatch
        | HookEvent::RunCompleted
        | HookEvent::RunFailed => false,
    }
}

/// The reply as an object. Who blocks by the status blocks whatever the reply is: what cannot be understood is the reason.
fn read(answer: &HookAnswer) -> Result<Map, HookFailure> {
    let text = answer.text.trim();
    if text.is_empty() {
        return Ok(Map::new());
    }
    match reply(text) {
        Err(_) if answer.blocks => Ok(Map::from_iter([("reason".to_owned(), cut(text).into())])),
        read => read,
    }
}

fn reply(text: &str) -> Result<Map, HookFailure> {
    if text.len() > LONGEST {
        return Err(HookFailure(format!("its answer has {} bytes, and may have {LONGEST}", text.len())));
    }
    match serde_json::from_str::<Reply>(text) {
        Ok(Reply { twice: Some(name), .. }) => Err(HookFailure(format!("its answer has `{}` twice", cut(&name)))),
        Ok(Reply { fields, twice: None }) => understood(fields),
        Err(_) => Err(HookFailure("its answer is no JSON object".to_owned())),
    }
}

/// An object, of which no field may be overruled by a second one of its name.
struct Reply {
    fields: Map,
    /// A name that it has more than once.
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Reply {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReplyVisitor)
    }
}

struct ReplyVisitor;

impl<'de> Visitor<'de> for ReplyVisitor {
    type Value = Reply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Reply, A::Error> {
        let mut reply = Reply { fields: Map::new(), twice: None };
        while let Some((name, value)) = entries.next_entry::<String, Value>()? {
            if reply.fields.insert(name.clone(), value).is_some() {
                reply.twice = Some(name);
            }
        }
        Ok(reply)
    }
}

/// `reply`, if what it decides can be understood: who means to block must not be taken to let pass.
fn understood(reply: Map) -> Result<Map, HookFailure> {
    let special = reply.get("hookSpecificOutput").and_then(Value::as_object);
    let slip = slip(&reply, &FIELDS).or_else(|| slip(special?, &SPECIAL_FIELDS));
    if let Some((name, meant)) = slip {
        return Err(HookFailure(format!("its answer has `{}`: did you mean `{meant}`?", cut(name))));
    }
    if let Some(field) = ["additionalContext", "patch"].into_iter().find(|field| reply.contains_key(*field)) {
        return Err(HookFailure(format!("its answer has `{field}`, which belongs into `hookSpecificOutput`")));
    }
    for (name, value) in reply.iter().chain(special.into_iter().flatten()).filter(|(_, value)| !value.is_null()) {
        let (fits, form) = match name.as_str() {
            "continue" | "suppressOutput" => (value.is_boolean(), "true or false"),
            "stopReason" | "reason" | "systemMessage" | "hookEventName" | "additionalContext" => {
                (value.is_string(), "text")
            }
            "hookSpecificOutput" => (value.is_object(), "object"),
            _ => continue,
        };
        if !fits {
            return Err(HookFailure(format!("its `{name}` is {}, and no {form}", cut(&value.to_string()))));
        }
    }
    match reply.get("decision").filter(|decision| !decision.is_null()) {
        None => Ok(reply),
        Some(decision) if decision.as_str().is_some_and(|word| ["block", "approve"].contains(&word)) => Ok(reply),
        Some(other) => {
            Err(HookFailure(format!("its `decision` is {}, and may be `block` or `approve`", cut(&other.to_string()))))
        }
    }
}

/// A field that is one of `known` but for a slip, and that one. Fields that nobody here knows mean nothing.
fn slip<'r>(reply: &'r Map, known: &[&'static str]) -> Option<(&'r str, &'static str)> {
    let unknown = reply.keys().map(String::as_str).filter(|name| !known.contains(name));
    unknown.into_iter().find_map(|name| Some((name, slip_of(name, known.iter().copied())?)))
}

fn obey(
    hook: &HookDefinition,
    (event, envelope): (HookEvent, &Value),
    blocks: bool,
    reply: &Map,
    verdict: &mut HookVerdict,
) -> HookOutcome {
    let text = |name: &str| reply.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let reason = |name: &str| cut(text(name).or_else(|| text("reason")).unwrap_or("no reason was given"));
    let refuses = blocks || reply.get("decision") == Some(&Value::from("block"));
    if reply.get("continue") == Some(&Value::Bool(false)) {
        let reason = format!("hook `{}` ended the run: {}", hook.name, reason("stopReason"));
        verdict.stop = Some(reason.clone());
        verdict.block = (refuses && is_model_step(event)).then(|| reason.clone());
        return HookOutcome::Stopped(reason);
    }
    if refuses {
        let reason = format!("hook `{}` refused it: {}", hook.name, reason("reason"));
        verdict.block = Some(reason.clone());
        verdict.stop = is_model_step(event).then(|| reason.clone());
        return HookOutcome::Blocked(reason);
    }
    verdict.context.extend(text("systemMessage").map(cut));
    let special = reply.get("hookSpecificOutput");
    verdict.context.extend(special.and_then(|special| special["additionalContext"].as_str()).map(cut));
    let mut refused = None;
    let mut has_changed = false;
    if reply.get("suppressOutput") == Some(&Value::Bool(true)) && event == HookEvent::AfterToolDispatch {
        match hook.capabilities.contains(&HookCapability::SuppressOutput) {
            true => has_changed = !std::mem::replace(&mut verdict.suppress, true),
            false => refused = Some(HookCapability::SuppressOutput),
        }
    }
    if let Some(patch) = special.and_then(|special| special.get("patch")).filter(|patch| !patch.is_null()) {
        if let Some(needed) = needed(event).filter(|needed| !hook.capabilities.contains(needed)) {
            return HookOutcome::Refused(needed);
        }
        match changes(event, patch, envelope) {
            Ok(changes) => {
                has_changed |= !changes.is_empty();
                verdict.patch.extend(changes);
            }
            Err(reason) => return HookOutcome::Unfit(cut(&format!("the patch of hook `{}`: {reason}", hook.name))),
        }
    }
    match refused {
        Some(capability) => HookOutcome::Refused(capability),
        None if has_changed => HookOutcome::Patched,
        None => HookOutcome::Passed,
    }
}

/// What a patch at `event` may hold.
fn patchable(event: HookEvent) -> &'static [&'static str] {
    match event {
        HookEvent::AfterContextCompact => &["summary"],
        HookEvent::BeforeContextBuild | HookEvent::AfterContextBuild => &["messages"],
        HookEvent::BeforeModelCall => &["messages", "config"],
        HookEvent::AfterModelCall => &["content"],
        HookEvent::BeforeToolDispatch => &["tool_input"],
        HookEvent::AfterToolDispatch => &["tool_output"],
        HookEvent::BeforeContextCompact | HookEvent::RunCompleted | HookEvent::RunFailed => &[],
    }
}

/// What `patch` changes of what `envelope` tells, by the names there.
///
/// # Errors
/// A sentence where it sets what may not be set at `event`, or to what it cannot be.
fn changes(event: HookEvent, patch: &Value, envelope: &Value) -> Result<Map, String> {
    let Value::Object(patch) = patch else { return Err("it is no JSON object".to_owned()) };
    let mut changes = Map::new();
    for (name, value) in patch {
        if !patchable(event).contains(&name.as_str()) {
            let told = match patchable(event) {
                [] => "nothing".to_owned(),
                names => format!("`{}`", names.join("` and `")),
            };
            return Err(format!("at `{}` it may hold {told}, and not `{name}`", event.as_str()));
        }
        let before = envelope.get(name).unwrap_or(&Value::Null);
        let value = match (name.as_str(), value) {
            ("messages", messages) => messages_in(event, messages)?,
            ("config", config) => config_in(config, before)?,
            ("tool_input", Value::Object(_)) | ("content" | "tool_output" | "summary", Value::String(_)) => {
                value.clone()
            }
            ("tool_input", _) => return Err("`tool_input` is no JSON object".to_owned()),
            (name, _) => return Err(format!("`{name}` is no text")),
        };
        if value != *before {
            changes.insert(name.clone(), value);
        }
    }
    Ok(changes)
}

fn messages_in(event: HookEvent, value: &Value) -> Result<Value, String> {
    // Of what comes before, the context is composed, which mends that.
    let misfit = |messages: &[Message]| misfit(messages).filter(|_| event != HookEvent::BeforeContextBuild);
    match Vec::<Message>::deserialize(value) {
        Ok(messages) if messages.is_empty() => Err("`messages` is empty".to_owned()),
        Ok(messages) => match misfit(&messages) {
            Some(reason) => Err(format!("`messages` cannot be sent: {reason}")),
            None => Ok(json!(messages)),
        },
        Err(error) => Err(format!("`messages` is no list of messages: {error}")),
    }
}

/// The sampling of which `before` was told, with what `value` sets of it. What stands beside it belongs to the request, and
/// to the wire.
fn config_in(value: &Value, before: &Value) -> Result<Value, String> {
    let unfit = |error: serde_json::Error| format!("`config` is no sampling: {error}");
    let (set, before) =
        (RuntimeConfig::deserialize(value).map_err(unfit)?, RuntimeConfig::deserialize(before).map_err(unfit)?);
    if let Some((name, _)) = set.extras.iter().find(|(name, value)| before.extras.get(*name) != Some(value)) {
        return Err(format!("`config` may set how the model samples, and not `{name}`"));
    }
    let outside = |number: Option<f64>, least: f64, most: f64| number.is_some_and(|it| !(least..=most).contains(&it));
    let wrong = [
        ("temperature", outside(set.temperature, 0.0, 2.0)),
        ("top_p", outside(set.top_p, 0.0, 1.0)),
        ("frequency_penalty", outside(set.frequency_penalty, -2.0, 2.0)),
        ("presence_penalty", outside(set.presence_penalty, -2.0, 2.0)),
        ("max_tokens", set.max_tokens == Some(0)),
    ];
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        Some((name, _)) => Err(format!("`{name}` of `config` is outside of what models take")),
        None => Ok(json!(before.overridden_by(&set))),
    }
}

/// The right that a change at `event` needs; none where nothing is changed any more.
fn needed(event: HookEvent) -> Option<HookCapability> {
    match event {
        HookEvent::BeforeContextCompact
        | HookEvent::AfterContextCompact
        | HookEvent::BeforeContextBuild
        | HookEvent::AfterContextBuild => Some(HookCapability::RewriteContext),
        HookEvent::BeforeModelCall => Some(HookCapability::RewriteModelRequest),
        HookEvent::AfterModelCall => Some(HookCapability::RewriteModelResponse),
        HookEvent::BeforeToolDispatch => Some(HookCapability::RewriteToolRequest),
        HookEvent::AfterToolDispatch => Some(HookCapability::RewriteToolResponse),
        HookEvent::RunCompleted | HookEvent::RunFailed => None,
    }
}

/// What a replay needs to know of `answer`: nothing of silence, and of what is too long to be kept.
fn for_replays(event: HookEvent, envelope: &Value, answer: &Result<HookAnswer, HookFailure>) -> Map {
    let kept = match answer {
        Ok(HookAnswer { text, blocks: false, model_call: None }) if text.trim().is_empty() => return Map::new(),
        Ok(answer) if answer.text.len() > LONGEST_KEPT => return Map::new(),
        Ok(HookAnswer { text, blocks, model_call: None }) => json!({ "text": text, "blocks": blocks }),
        Ok(HookAnswer { text, blocks, model_call }) => {
            json!({ "text": text, "blocks": blocks, "model_call": model_call })
        }
        Err(failure) => json!({ "failed": failure.0 }),
    };
    let subject = match event {
        HookEvent::AfterModelCall => envelope.get("content"),
        HookEvent::AfterToolDispatch => envelope.get("tool_output"),
        HookEvent::BeforeContextBuild
        | HookEvent::AfterContextBuild
        | HookEvent::BeforeContextCompact
        | HookEvent::AfterContextCompact
        | HookEvent::BeforeModelCall
        | HookEvent::BeforeToolDispatch
        | HookEvent::RunCompleted
        | HookEvent::RunFailed => None,
    };
    let mut material = Map::from_iter([("answer".to_owned(), kept)]);
    // What the conversation does not hold any more once the hook has changed it.
    let subject = subject.filter(|subject| dormouse_json::length(subject).is_ok_and(|size| size <= LONGEST_KEPT));
    material.extend(subject.map(|subject| ("before".to_owned(), subject.clone())));
    material
}

/// What a replay needs to know of the calls of an answer that was refused, which the conversation does not hold.
fn calls_for_replays(envelope: &Value) -> Option<(String, Value)> {
    let calls = envelope.get(CALLS).filter(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty()))?;
    let is_short = dormouse_json::length(calls).is_ok_and(|size| size <= LONGEST_KEPT);
    (is_short && dormouse_json::measure(calls, WITHIN_ENTRY).is_ok()).then(|| (CALLS.to_owned(), calls.clone()))
}

/// A hook that ran, for its record.
struct HookRun {
    outcome: HookOutcome,
    /// Digest of its answer; `None` where it said nothing.
    output_digest: Option<String>,
    duration_ms: u64,
    material: Map,
}

/// Records that a hook ran.
fn tell(hook: &HookDefinition, event: HookEvent, envelope: &Value, ran: HookRun) -> Result<(), NodeError> {
    let (status, message) = match &ran.outcome {
        HookOutcome::Passed => ("passed", None),
        HookOutcome::Patched => ("patched", None),
        HookOutcome::Blocked(reason) => ("blocked", Some(reason.clone())),
        HookOutcome::Stopped(reason) => ("stopped", Some(reason.clone())),
        HookOutcome::Failed(reason) => ("failed", Some(reason.clone())),
        HookOutcome::Refused(capability) => {
            tracing::warn!(
                hook = hook.name,
                capability = capability.as_str(),
                "a hook changed what it may not; grant it the capability, or mend it"
            );
            ("patch_refused", Some(format!("it has no capability `{}`", capability.as_str())))
        }
        HookOutcome::Unfit(reason) => ("patch_refused", Some(reason.clone())),
    };
    let kind = EntryKind::vendor("dormouse.hook_run").map_err(|error| NodeError::new(error.to_string()))?;
    let entry = JournalEntry::new(kind)
        .with(HOOK, hook.name.as_str())
        .with("event", event.as_str())
        .with("status", status)
        .with("input_digest", digest::of_value(envelope))
        .with("duration_ms", ran.duration_ms);
    let entry = ran.output_digest.into_iter().fold(entry, |entry, digest| entry.with("output_digest", digest));
    let entry = JournalEntry { material: ran.material, ..entry };
    record_in_room(match message {
        Some(message) if is_crowded() => entry.with("message", message.chars().take(IN_A_CROWD).collect::<String>()),
        Some(message) => entry.with("message", message),
        None => entry,
    })
}

/// The names of the model that matchers look at.
pub(crate) fn model_names(facts: &Value) -> Vec<String> {
    let names = ["model_ref", "model"].map(|name| facts[name].as_str().unwrap_or_default().to_owned());
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

/// Facts about the model, for hooks.
pub(crate) fn model_facts(parts: &AgentParts, step: u64) -> Value {
    json!({ "model_ref": parts.model.reference, "model": parts.model.provider.identity().model, "step": step })
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_two_things_says_neither() {
        let answer = |text: &str, blocks| HookAnswer { text: text.to_owned(), blocks, model_call: None };
        for (text, name) in [
            (r#"{"decision": "block", "decision": "approve"}"#, "decision"),
            (r#"{"decision": "block", "reason": "no", "decision": null}"#, "decision"),
            (r#"{"continue": false, "continue": true}"#, "continue"),
        ] {
            let failure = read(&answer(text, false)).expect_err(text);
            assert_eq!(failure.0, format!("its answer has `{name}` twice"));
            assert_eq!(read(&answer(text, true)).expect("it blocks")["reason"], text);
        }
        assert_eq!(read(&answer("[1]", false)).expect_err("a list").0, "its answer is no JSON object");
        for text in ["not now", r#"{"desicion": "block"}"#, &"no ".repeat(LONGEST)] {
            assert!(read(&answer(text, true)).expect("it blocks").contains_key("reason"));
            assert!(read(&answer(text, false)).is_err(), "{}", cut(text));
        }
        assert_eq!(read(&answer(r#"{"decision": "block"}"#, false)).expect("an object")["decision"], "block");
    }
}
