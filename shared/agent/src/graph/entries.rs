//! Records of what a run does, as the followers of its task receive them: digests, times and outcomes, and the content
//! only where it is small.

use dormouse_engine::{NodeError, record};
use dormouse_ports::{EntryKind, JournalEntry, Map};
use serde_json::{Value, json};

use super::parts::AgentParts;
use super::run::PlannedCall;

/// Bytes of JSON of lists of tools that an entry keeps for replays.
const LISTED: usize = 48 * 1024;
/// Name of the entry about tools that are missing.
const TOOLS_MISSING: &str = "dormouse.tools_missing";
/// Bytes of JSON of arguments that an entry shows.
const SHOWN: usize = 8 * 1024;

/// Field of entries of calls with [what they did outside](dormouse_ports::tool::NotedEffects).
pub(crate) const SIDE_EFFECTS: &str = "side_effects";
/// Field of the entry of a call whose outcome came later, from elsewhere, while the run slept.
pub(crate) const LATER: &str = "later";
/// Field of the entry of a call that was not made since its run ended.
pub(crate) const GIVEN_UP: &str = "given_up";
/// Kind of the entry about what a person said of a call that was in doubt, or that asked something.
pub(crate) const TOOL_DECIDED: &str = "dormouse.tool_decided";
/// Field of the entry of a model call with the host that was asked.
pub(crate) const SERVER: &str = "server.address";

/// A model call that ended.
pub(crate) struct ModelCall<'c> {
    pub(crate) step: u64,
    pub(crate) request_digest: String,
    pub(crate) response_digest: String,
    pub(crate) finish_reason: &'c str,
    pub(crate) usage: Value,
    pub(crate) cost: f64,
    pub(crate) duration_ms: u64,
    /// The tools that were listed elsewhere, where a replay has to be told of them.
    pub(crate) listed: Map,
}

pub(crate) fn model_call(parts: &AgentParts, call: ModelCall<'_>) -> Result<(), NodeError> {
    let identity = parts.model.provider.identity();
    let is_told = !call.listed.is_empty() && dormouse_json::length(&call.listed).is_ok_and(|size| size <= LISTED);
    let material = if is_told { Map::from_iter([("tools".to_owned(), call.listed.into())]) } else { Map::new() };
    let entry = JournalEntry::new(EntryKind::SpanCompleted);
    let entry = if identity.server.is_empty() { entry } else { entry.with(SERVER, identity.server) };
    record(JournalEntry {
        material,
        ..entry
            .with("name", format!("chat {}", identity.model))
            .with("gen_ai.operation.name", "chat")
            .with("gen_ai.provider.name", identity.system)
            .with("gen_ai.request.model", identity.model)
            .with("gen_ai.agent.name", parts.agent.name.as_str())
            .with("step", call.step)
            .with("request_digest", call.request_digest)
            .with("response_digest", call.response_digest)
            .with("finish_reason", call.finish_reason)
            .with("usage", call.usage)
            .with("cost", call.cost)
            .with("duration_ms", call.duration_ms)
    })
}

/// The sources of tools, and single tools, that the agent has to do without, each with the reason.
pub(crate) fn tools_missing(missing: &[(String, String)]) -> Result<(), NodeError> {
    if missing.is_empty() {
        return Ok(());
    }
    let kind = EntryKind::vendor(TOOLS_MISSING).map_err(|error| NodeError::new(error.to_string()))?;
    let one = |(source, reason): &(String, String)| json!({ "source": source, "reason": reason });
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

/// `arguments`, or what stands for them where they are large.
pub(crate) fn shown_arguments(arguments: &Map) -> Value {
    match dormouse_json::length(arguments) {
        Ok(size) if size <= SHOWN => Value::Object(arguments.clone()),
        Ok(size) => json!({ "cut": true, "bytes": size }),
        Err(_) => json!({ "cut": true }),
    }
}
