//! The fields of a receipt, before it has its place in a chain.

use dormouse_ports::tool::WrittenFile;
use dormouse_protocol::Map;
use dormouse_protocol::event::redact;
use dormouse_protocol::replay::ReplayMode;
use dormouse_protocol::resource::{AutonomyTier, Failure, OutcomeStatus, Task};
use dormouse_receipts::{SCHEMA, canonical};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::tally::{Contact, Handoff, ModelAnswer, ModelUse, TaskTally, ToolUse};
use super::{ApprovalNote, ReceiptNotes};
use crate::documents::Kept;
use crate::ids;
use crate::replay::ReplayNote;

/// The longest name that a receipt quotes, in characters.
const LONGEST: usize = 300;

/// Contents of a receipt.
pub(super) struct Contents<'a> {
    /// The id of the receipt.
    pub(super) id: &'a str,
    /// Kind and id of its subject.
    pub(super) subject: (&'static str, String),
    /// The task.
    pub(super) task: &'a Kept<Task>,
    /// Begin and end of what it tells of.
    pub(super) span: (Timestamp, Timestamp),
    /// Status with which it ended.
    pub(super) status: OutcomeStatus,
    /// Failure, if it ended badly.
    pub(super) failure: Option<&'a Failure>,
    /// Tally of what was recorded.
    pub(super) tally: &'a TaskTally,
    /// Answers to questions for a permission.
    pub(super) approvals: &'a [ApprovalNote],
    /// Artifacts that it made.
    pub(super) artifacts: Vec<Value>,
    /// More about it.
    pub(super) metadata: Map,
}

/// The receipt of `contents`, without what looks like a secret: of each such text it says where it was.
pub(super) fn body(contents: Contents<'_>) -> Map {
    let Contents { id, subject, task, span: (began, ended), status, failure, tally, .. } = contents;
    let ReceiptNotes { tier, .. } = &task.own.receipts;
    let tier = tier.unwrap_or(AutonomyTier::ActAuto);
    let approvals: Vec<Value> =
        contents.approvals.iter().map(|note| approval(task.resource.session_id.as_str(), note)).collect();
    let mut body = json!({
        "schema": SCHEMA,
        "receipt_id": id,
        "subject": { "object": subject.0, "id": subject.1 },
        "issuer": { "id": "dormouse", "kind": "harness" },
        "issued_at": ended,
        "identifiers": identifiers(task),
        "lifecycle": lifecycle(task.resource.envelope.created_at, (began, ended), status, failure),
        "trust": { "start_tier": tier, "end_tier": tier },
        "autonomy_budget": { "consumed": consumed(tally, (began, ended)) },
        "replay_input": replay_input(tally, task.own.replay.as_deref()),
        "model_route": model_route(&tally.models),
        "cost": cost(&tally.models),
        "side_effects": {
            "fs_writes": tally.files.iter().map(file_write).collect::<Vec<_>>(),
            "network_egress": tally.contacts.iter().map(egress).collect::<Vec<_>>(),
            "tool_calls": tally.tools.iter().map(tool_call).collect::<Vec<_>>(),
            "a2a_handoffs": tally.handoffs.iter().map(handoff).collect::<Vec<_>>(),
        },
        "final_artifacts": contents.artifacts,
    });
    if !approvals.is_empty() {
        body["approvals"] = approvals.into();
    }
    if let Some(replay) = task.own.replay.as_deref().filter(|replay| !replay.deltas.is_empty()) {
        body["deltas"] = replay.deltas.clone().into();
    }
    if !contents.metadata.is_empty() {
        body["metadata"] = Value::Object(contents.metadata);
    }
    let mut redactions = Vec::new();
    redact_at("", &mut body, &mut redactions);
    if !redactions.is_empty() {
        body["redactions"] = redactions.into();
    }
    match body {
        Value::Object(body) => body,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn identifiers(task: &Kept<Task>) -> Value {
    let of = &task.resource;
    let mut known = json!({
        "tenant_id": task.tenant,
        "workspace_ref": of.workspace_id,
        "session_id": of.session_id,
        "task_id": of.envelope.id,
    });
    if let Some(persona) = &of.persona_id {
        known["persona_ref"] = persona.as_str().into();
    }
    if let Some(branch) = &of.branch_id {
        known["branch_id"] = branch.as_str().into();
    }
    known
}

fn lifecycle(
    created: Timestamp,
    (began, ended): (Timestamp, Timestamp),
    status: OutcomeStatus,
    failure: Option<&Failure>,
) -> Value {
    let mut known = json!({ "created_at": created, "started_at": began, "completed_at": ended, "final_state": status });
    if let Some(failure) = failure {
        // Its message may quote what a model, a tool or a client said; the task has it.
        known["failure"] = json!({ "code": failure.code });
    }
    known
}

fn consumed(tally: &TaskTally, (began, ended): (Timestamp, Timestamp)) -> Value {
    let time = u64::try_from(ended.duration_since(began).as_millis()).unwrap_or_default();
    let sum = |of: fn(&ModelUse) -> u64| tally.models.iter().map(of).fold(0, u64::saturating_add);
    json!({
        "usd": money(&tally.models),
        "input_tokens": sum(|used| used.input_tokens),
        "output_tokens": sum(|used| used.output_tokens),
        "tool_calls": tally.tool_calls,
        "wall_time_ms": time,
    })
}

fn money(models: &[ModelUse]) -> f64 {
    models.iter().map(|used| used.cost).sum::<f64>().max(0.0)
}

fn replay_input(tally: &TaskTally, replay: Option<&ReplayNote>) -> Value {
    let materials: Vec<Value> = tally.answers.iter().map(material).collect();
    // Only a replay knows that the same material leads to the same end.
    let determinism = match replay {
        Some(replay) if replay.mode == ReplayMode::Exact && replay.deltas.is_empty() => "byte_deterministic",
        Some(_) | None => "best_effort",
    };
    json!({ "determinism": determinism, "materials": materials })
}

/// An answer of a model: its digests; the answer itself is in the record of the run.
fn material(answer: &ModelAnswer) -> Value {
    let mut metadata = Map::new();
    if let Some(request) = &answer.request {
        metadata.insert("request_sha256".to_owned(), request.as_str().into());
    }
    let mut known = json!({ "kind": "llm_provider_response", "id": format!("llm:main:{}", answer.step) });
    if let Some(response) = &answer.response {
        known["sha256"] = response.as_str().into();
    }
    known["metadata"] = Value::Object(metadata);
    known
}

fn model_route(models: &[ModelUse]) -> Value {
    let model = |used: &ModelUse| json!({ "provider": cut(&used.provider), "model": cut(&used.model) });
    match models.split_first() {
        None => json!({
            "chosen_model": { "provider": "none", "model": "none" },
            "alternatives_considered": [],
            "route_policy_reason": "no model was called",
        }),
        Some((first, [])) => json!({
            "chosen_model": model(first),
            "alternatives_considered": [],
            "route_policy_reason": "the model of the agent's definition",
        }),
        // Others that were used too are under the costs.
        Some((first, _)) => json!({
            "chosen_model": model(first),
            "alternatives_considered": [],
            "route_policy_reason": "the model of the first call; the costs name all that were called",
        }),
    }
}

fn cost(models: &[ModelUse]) -> Value {
    let one = |used: &ModelUse| {
        json!({
            "provider": cut(&used.provider),
            "model": cut(&used.model),
            "amount": used.cost.max(0.0),
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
        })
    };
    json!({
        "currency": "USD",
        "total": money(models),
        "provider_breakdown": models.iter().map(one).collect::<Vec<_>>(),
    })
}

fn tool_call(used: &ToolUse) -> Value {
    let status = if used.failed { "failed" } else { "succeeded" };
    let mut known = json!({ "tool": cut(&used.tool), "call_id": cut(&used.call), "status": status });
    if let Some(input) = &used.input {
        known["input_hash"] = input.as_str().into();
    }
    if let Some(output) = &used.output {
        known["output_hash"] = output.as_str().into();
    }
    known
}

fn file_write(file: &WrittenFile) -> Value {
    let mut known = json!({ "path": cut(&file.path), "operation": file.operation });
    let hashes = [("before_sha256", file.before_sha256.as_deref()), ("after_sha256", Some(&*file.after_sha256))];
    for (name, hash) in hashes {
        if let Some(hash) = hash.filter(|hash| canonical::is_hash(hash)) {
            known[name] = hash.into();
        }
    }
    known
}

fn egress(contact: &Contact) -> Value {
    json!({
        "destination": cut(&contact.host),
        "purpose": cut(&contact.purpose),
        "metadata": { "calls": contact.calls },
    })
}

/// An agent that was asked has accepted that; how it ended is in the receipt of its own task.
fn handoff(asked: &Handoff) -> Value {
    json!({ "target_agent": cut(&asked.agent), "task_id": cut(&asked.task), "status": "accepted" })
}

fn approval(session: &str, note: &ApprovalNote) -> Value {
    json!({
        "approval_id": approval_id(session, note.at),
        "actor": cut(&note.actor),
        "action": cut(&note.action),
        "decision": note.decision,
        "decided_at": note.decided,
        "evidence_hash": note.evidence,
    })
}

/// The id of the approval with its receipt at `position` of the stream of `session`.
pub(super) fn approval_id(session: &str, position: u64) -> String {
    ids::with_word("approval", dormouse_protocol::id::ReceiptId::at(session, position).as_str())
}

/// The beginning of a name that comes from outside.
fn cut(text: &str) -> String {
    let text: String = text.chars().take(LONGEST).collect();
    if text.is_empty() { "unknown".to_owned() } else { text }
}

/// Takes out of `value`, which stands at `path`, the texts that look like secrets, and notes where they were; also of those
/// that were taken out when they were recorded.
fn redact_at(path: &str, value: &mut Value, redactions: &mut Vec<Value>) {
    match value {
        Value::String(text) => {
            let shown = redact::text(text);
            if shown.is_some() || text.contains(redact::MARK) {
                // Without its hash, from which a short secret could be found.
                redactions.push(json!({ "field": path, "reason": "it looks like a secret" }));
            }
            *text = shown.unwrap_or_else(|| std::mem::take(text));
        }
        Value::Array(parts) => {
            parts.iter_mut().enumerate().for_each(|(at, part)| redact_at(&format!("{path}/{at}"), part, redactions));
        }
        Value::Object(fields) => {
            for (name, part) in fields.iter_mut() {
                redact_at(&format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), part, redactions);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
