//! The fields of a receipt, as the schema `receipt-2026-04-25` closes them.

use crate::shape::Shape::{
    self, Amount, Closed, Count, Currency, Free, FreeOrNull, Hash, HashOrNull, List, Material, Text, Time, Word,
};
use crate::shape::ShapeField;

/// The field `name`, which must be there.
const fn needs(name: &'static str, shape: Shape) -> ShapeField {
    ShapeField { name, needed: true, shape }
}

/// The field `name`, which may be absent.
const fn may(name: &'static str, shape: Shape) -> ShapeField {
    ShapeField { name, needed: false, shape }
}

/// The whole receipt.
pub(crate) const RECEIPT: Shape = Closed(&[
    needs("schema", Word(&[crate::SCHEMA])),
    needs("receipt_id", Text),
    needs("subject", SUBJECT),
    needs("issuer", ISSUER),
    needs("issued_at", Time),
    needs("identifiers", IDENTIFIERS),
    needs("lifecycle", LIFECYCLE),
    may("approvals", List(&APPROVAL)),
    needs("trust", TRUST),
    needs("autonomy_budget", Closed(&[may("limit", BUDGET), needs("consumed", BUDGET)])),
    needs("replay_input", REPLAY_INPUT),
    needs("model_route", MODEL_ROUTE),
    needs("cost", COST),
    needs("side_effects", SIDE_EFFECTS),
    needs("final_artifacts", List(&ARTIFACT)),
    may("deltas", List(&DELTA)),
    needs("chain", CHAIN),
    may("redactions", List(&REDACTION)),
    may("signatures", List(&SIGNATURE)),
    may("metadata", Free),
]);

const SUBJECT: Shape = Closed(&[
    needs("object", Word(&["task", "outcome", "event", "artifact", "approval", "tool_call", "replay_segment"])),
    needs("id", Text),
]);

const ISSUER: Shape = Closed(&[
    needs("id", Text),
    needs("kind", Word(&["harness", "host", "agent", "connector"])),
    may("name", Text),
    may("version", Text),
    may("public_key_id", Text),
]);

const IDENTIFIERS: Shape = Closed(&[
    may("tenant_id", Text),
    may("persona_ref", Text),
    needs("workspace_ref", Text),
    needs("session_id", Text),
    needs("task_id", Text),
    may("branch_id", Text),
    may("trace_id", Text),
]);

const LIFECYCLE: Shape = Closed(&[
    may("created_at", Time),
    needs("started_at", Time),
    needs("completed_at", Time),
    needs("final_state", Word(&["SUCCEEDED", "FAILED", "CANCELED"])),
    may("failure", FreeOrNull),
]);

const APPROVAL: Shape = Closed(&[
    may("approval_id", Text),
    needs("actor", Text),
    needs("action", Text),
    needs("decision", Word(&["approved", "denied", "canceled", "timeout"])),
    needs("decided_at", Time),
    may("quorum_proof", FreeOrNull),
    may("evidence_hash", Hash),
]);

const TIER: Shape = Word(&["shadow", "suggest", "act_with_approval", "act_auto"]);

const TRUST: Shape = Closed(&[needs("start_tier", TIER), needs("end_tier", TIER), may("policy_ref", Text)]);

const BUDGET: Shape = Closed(&[
    may("usd", Amount),
    may("input_tokens", Count),
    may("output_tokens", Count),
    may("tool_calls", Count),
    may("wall_time_ms", Count),
]);

const REPLAY_INPUT: Shape = Closed(&[
    needs("determinism", Word(&["byte_deterministic", "best_effort", "unavailable"])),
    needs("materials", List(&MATERIAL)),
    may("unavailable_reason", Text),
]);

const MATERIAL: Shape = Material(&[
    needs("kind", Word(&["llm_provider_response", "mcp_tool_return", "event_log", "artifact", "host_fact"])),
    may("id", Text),
    may("uri", Text),
    may("sha256", Hash),
    may("content_type", Text),
    may("bytes_base64", Text),
    may("metadata", Free),
]);

const MODEL: Shape =
    Closed(&[needs("provider", Text), needs("model", Text), may("version", Text), may("reason", Text)]);

const MODEL_ROUTE: Shape = Closed(&[
    needs("chosen_model", MODEL),
    needs("alternatives_considered", List(&MODEL)),
    needs("route_policy_reason", Text),
]);

const COST: Shape =
    Closed(&[needs("currency", Currency), needs("total", Amount), needs("provider_breakdown", List(&PROVIDER_COST))]);

const PROVIDER_COST: Shape = Closed(&[
    needs("provider", Text),
    may("model", Text),
    needs("amount", Amount),
    may("input_tokens", Count),
    may("output_tokens", Count),
    may("metadata", Free),
]);

const SIDE_EFFECTS: Shape = Closed(&[
    needs("fs_writes", List(&FILE_WRITE)),
    needs("network_egress", List(&EGRESS)),
    needs("tool_calls", List(&TOOL_CALL)),
    needs("a2a_handoffs", List(&HANDOFF)),
]);

const FILE_WRITE: Shape = Closed(&[
    needs("path", Text),
    needs("operation", Word(&["create", "modify", "delete", "rename"])),
    may("before_sha256", HashOrNull),
    may("after_sha256", HashOrNull),
]);

const EGRESS: Shape =
    Closed(&[needs("destination", Text), needs("purpose", Text), may("bytes_sent", Count), may("metadata", Free)]);

const TOOL_CALL: Shape = Closed(&[
    needs("tool", Text),
    needs("call_id", Text),
    needs("status", Word(&["succeeded", "failed", "canceled"])),
    may("input_hash", Hash),
    may("output_hash", Hash),
    may("metadata", Free),
]);

const HANDOFF: Shape = Closed(&[
    needs("target_agent", Text),
    needs("task_id", Text),
    needs("status", Word(&["accepted", "rejected", "failed", "completed"])),
    may("receipt_id", Text),
]);

const ARTIFACT: Shape =
    Closed(&[needs("artifact_id", Text), needs("kind", Text), may("uri", Text), may("sha256", Hash)]);

const DELTA: Shape = Closed(&[
    may("delta_id", Text),
    needs("operation", Word(&["add", "replace", "remove"])),
    needs("path", Text),
    may("override_key", Text),
    may("event_id", Text),
    may("before_sha256", HashOrNull),
    may("after_sha256", HashOrNull),
    may("artifact_id", Text),
    may("reason", Text),
]);

const CHAIN: Shape =
    Closed(&[needs("previous_receipt_hash", HashOrNull), needs("receipt_hash", Hash), may("merkle_root", Hash)]);

const REDACTION: Shape = Closed(&[needs("field", Text), needs("reason", Text), may("proof_hash", Hash)]);

const SIGNATURE: Shape =
    Closed(&[needs("key_id", Text), needs("algorithm", Text), needs("signature", Text), may("signed_at", Time)]);
