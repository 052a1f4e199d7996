//! Records of what a run does, as the followers of its task receive them: digests, times and outcomes, and the content
//! only where it is small.

use dormouse_engine::{NodeError, record, uncommitted};
use dormouse_json::{Bounds, ENTRY};
use dormouse_ports::hook::HookModelCall;
use dormouse_ports::model::{ModelIdentity, Usage};
use dormouse_ports::{EntryKind, JournalEntry, Map, limits};
use serde_json::{Value, json};

use super::model::conversational;
use super::parts::AgentParts;
use super::run::PlannedCall;

/// Bytes of JSON of lists of tools that an entry keeps for replays.
const LISTED: usize = 48 * 1024;
/// Kind of the entry of an answer of the model that is thrown away.
pub(crate) const ANSWER_LOST: &str = "dormouse.answer_lost";
/// Field of that entry where the run ended with it.
pub(crate) const IS_LAST: &str = "is_last";
/// The same where the conversation was too long, and was made shorter.
pub(crate) const TOO_LONG: &str = "too_long";
/// Name of the entry about tools that are missing.
pub(crate) const TOOLS_MISSING: &str = "dormouse.tools_missing";
/// Characters of all reasons in it, and of one.
const REASONS: usize = 8 * 1024;
const LONGEST_REASON: usize = 4 * 1024;
/// Bytes of a provider's word for the reason why a model stopped.
const LONGEST_STOP_WORD: usize = 100;
/// Bytes of JSON of arguments that an entry shows.
const SHOWN: usize = 8 * 1024;
/// The same where the step is crowded.
const SHOWN_IN_A_CROWD: usize = 256;
/// Bounds of what stands within an entry, or a pause: each may have as many levels as arguments may, and has others around it.
pub(crate) const WITHIN_ENTRY: Bounds = Bounds { depth: ENTRY.depth - 16, values: ENTRY.values };

/// Field of entries of calls with [what they did outside](dormouse_ports::tool::NotedEffects).
pub(crate) const SIDE_EFFECTS: &str = "side_effects";
/// Field of the entry of a call whose outcome came later, from elsewhere, while the run slept.
pub(crate) const LATER: &str = "later";
/// Field of the entry of the end of a call that was in doubt, of which only a person knows.
pub(crate) const REPORTED: &str = "reported";
/// Field of the entry of a call that was not made since its run ended.
pub(crate) const GIVEN_UP: &str = "given_up";
/// Kind of the entry about what a person said of a call that was in doubt, or that asked something.
pub(crate) const TOOL_DECIDED: &str = "dormouse.tool_decided";
/// Kind of the entry at the end of a run.
pub(crate) const RUN_ENDED: &str = "dormouse.run_ended";
/// Field of the entry of a model call with the host that was asked.
pub(crate) const SERVER: &str = "server.address";

/// Field of the entries of a hook, and of a call of a model that it made, with its name.
pub(crate) const HOOK: &str = "hook";

/// Bytes of the entries of a step behind which they hold no more than has to be told: they are committed at once, and a step
/// of many calls with many hooks has hundreds of them.
const ROOMY: usize = limits::ENTRIES_BYTES / 4;
/// Entries of calls that a step makes, and of their hooks.
const MOST_OF_CALLS: usize = limits::ENTRIES / 5 * 4;

/// True if the entries of the step have not much room left.
pub(crate) fn is_crowded() -> bool {
    uncommitted().1 > ROOMY
}

/// Records `entry`; without what replays alone need where the step is crowded, or where that is more than an entry may have.
pub(crate) fn record_in_room(entry: JournalEntry) -> Result<(), NodeError> {
    let is_too_much = is_crowded() || JournalEntry::admit([], &entry).is_err();
    record(if is_too_much { JournalEntry { material: Map::new(), ..entry } } else { entry })
}

/// The calls that a step has room for at a time, where hooks leave so many `entries` for each.
pub(crate) fn calls_with(entries: usize) -> usize {
    (MOST_OF_CALLS / (entries + 2)).max(1)
}

/// A model call that ended.
pub(crate) struct ModelCall<'c> {
    pub(crate) step: u64,
    pub(crate) request_digest: String,
    pub(crate) response_digest: String,
    pub(crate) finish_reason: &'c str,
    /// The same in the words of the provider.
    pub(crate) stop_word: Option<&'c str>,
    pub(crate) usage: Value,
    pub(crate) cost: f64,
    pub(crate) duration_ms: u64,
    /// The tools that were listed elsewhere, where a replay has to be told of them.
    pub(crate) listed: Map,
}

pub(crate) fn model_call(parts: &AgentParts, call: ModelCall<'_>) -> Result<(), NodeError> {
    let is_told = !call.listed.is_empty() && dormouse_json::length(&call.listed).is_ok_and(|size| size <= LISTED);
    let material = if is_told { Map::from_iter([("tools".to_owned(), call.listed.into())]) } else { Map::new() };
    let entry = of_model(&parts.model.provider.identity(), &parts.agent.name);
    record_in_room(JournalEntry {
        material,
        ..call
            .stop_word
            .iter()
            .fold(entry, |entry, word| entry.with("stop_word", conversational(word, LONGEST_STOP_WORD)))
            .with("step", call.step)
            .with("request_digest", call.request_digest)
            .with("response_digest", call.response_digest)
            .with("finish_reason", call.finish_reason)
            .with("usage", call.usage)
            .with("cost", call.cost)
            .with("duration_ms", call.duration_ms)
    })
}

/// An answer of the model that cannot stand in the conversation, and is paid: the step is made again.
pub(crate) struct LostAnswer<'c> {
    pub(crate) step: u64,
    /// What is wrong with it.
    pub(crate) message: &'c str,
    pub(crate) request_digest: String,
    pub(crate) usage: Usage,
    pub(crate) cost: f64,
    pub(crate) duration_ms: u64,
    /// True if the run ends with it.
    pub(crate) is_last: bool,
    /// True if there was none, since the conversation is too long: it is made shorter.
    pub(crate) too_long: bool,
}

pub(crate) fn answer_lost(parts: &AgentParts, lost: LostAnswer<'_>) -> Result<(), NodeError> {
    let kind = EntryKind::vendor(ANSWER_LOST).map_err(|error| NodeError::new(error.to_string()))?;
    let identity = parts.model.provider.identity();
    let entry = JournalEntry::new(kind);
    let entry = if identity.server.is_empty() { entry } else { entry.with(SERVER, identity.server.as_str()) };
    let entry = if lost.is_last { entry.with(IS_LAST, true) } else { entry };
    let entry = if lost.too_long { entry.with(TOO_LONG, true) } else { entry };
    record(
        naming(entry, &identity)
            .with("step", lost.step)
            .with("message", conversational(lost.message, LONGEST_REASON))
            .with("request_digest", lost.request_digest)
            .with("usage", json!(lost.usage))
            .with("cost", lost.cost)
            .with("duration_ms", lost.duration_ms),
    )
}

/// A call of a model by the hook `hook`.
pub(crate) fn hook_model_call(
    parts: &AgentParts,
    hook: &str,
    call: &HookModelCall,
    duration_ms: u64,
) -> Result<(), NodeError> {
    let HookModelCall { identity, usage, cost } = call;
    record_in_room(
        of_model(identity, &parts.agent.name)
            .with(HOOK, hook)
            .with("usage", json!(usage))
            .with("cost", *cost)
            .with("duration_ms", duration_ms),
    )
}

/// An entry of a call of a model for the agent `agent`.
fn of_model(identity: &ModelIdentity, agent: &str) -> JournalEntry {
    let entry = JournalEntry::new(EntryKind::SpanCompleted);
    let entry = if identity.server.is_empty() { entry } else { entry.with(SERVER, identity.server.as_str()) };
    let entry = entry.with("name", format!("chat {}", identity.model)).with("gen_ai.operation.name", "chat");
    naming(entry, identity).with("gen_ai.agent.name", agent)
}

/// `entry`, which names a model.
pub(crate) fn naming(entry: JournalEntry, model: &ModelIdentity) -> JournalEntry {
    entry.with("gen_ai.provider.name", model.system.as_str()).with("gen_ai.request.model", model.model.as_str())
}

/// The sources of tools, and single tools, that the agent has to do without, each with the reason.
pub(crate) fn tools_missing(missing: &[(String, String)]) -> Result<(), NodeError> {
    if missing.is_empty() {
        return Ok(());
    }
    let kind = EntryKind::vendor(TOOLS_MISSING).map_err(|error| NodeError::new(error.to_string()))?;
    let most = LONGEST_REASON.min(REASONS / missing.len());
    let cut = |reason: &str| reason.chars().take(most).collect::<String>();
    let one = |(source, reason): &(String, String)| json!({ "source": source, "reason": cut(reason) });
    record(JournalEntry::new(kind).with("missing", missing.iter().map(one).collect::<Vec<_>>()))
}

/// An entry of `kind` about `call`.
pub(crate) fn about(kind: EntryKind, call: &PlannedCall) -> JournalEntry {
    JournalEntry::new(kind)
        .with("tool_call_id", call.id.as_str())
        .with("tool", call.tool.as_str())
        .with("source", call.origin.as_str())
        .with("input_digest", call.digest.as_str())
}

/// `arguments`, or what stands for them where they are large, or larger than `room`, or deep.
pub(crate) fn shown_arguments(arguments: &Map, room: usize) -> Value {
    let shown = if is_crowded() { SHOWN_IN_A_CROWD } else { SHOWN.min(room) };
    let is_flat = dormouse_json::measure_object(arguments, WITHIN_ENTRY).is_ok();
    match dormouse_json::length(arguments) {
        Ok(size) if size <= shown && is_flat => Value::Object(arguments.clone()),
        Ok(size) => json!({ "cut": true, "bytes": size }),
        Err(_) => json!({ "cut": true }),
    }
}
