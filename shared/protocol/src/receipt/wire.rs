//! The normative receipt `receipt-2026-04-25`. All objects are closed; a field left out is not the same as null.

mod effects;
mod words;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Number;

pub use effects::{A2aHandoff, FileWrite, NetworkEgress, SideEffects, ToolCall};
pub use words::{
    Decision, DeltaOperation, Determinism, FileOperation, HandoffStatus, IssuerKind, MaterialKind, SubjectKind,
    ToolCallStatus,
};

use crate::envelope::Map;
use crate::resource::{AutonomyTier, OutcomeStatus};

/// The word in the field `schema`.
pub const SCHEMA: &str = "receipt-2026-04-25";

/// A SHA-256 as receipts write it: `sha256:` and 64 hexadecimal digits in lower case. Artifacts write theirs bare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct PrefixedSha256(String);

impl PrefixedSha256 {
    /// `None` if `text` is not written like that.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let fits = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        fits.then(|| Self(text.to_owned()))
    }

    /// With the prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PrefixedSha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "sha256: and 64 hexadecimal digits in lower case";
        Self::parse(&text).ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &expected))
    }
}

macro_rules! closed {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )*};
}

use closed;

closed! {
    /// A proof of what happened in a task, without the trace of it.
    WireReceipt {
        /// Always [`SCHEMA`].
        schema: String,
        /// The id of the receipt.
        receipt_id: String,
        /// Subject.
        subject: Subject,
        /// Issuer.
        issuer: Issuer,
        /// Instant.
        issued_at: Timestamp,
        /// Everything that the run was known by.
        identifiers: Identifiers,
        /// Times of its run, and its end.
        lifecycle: Lifecycle,
        /// Approvals of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approvals: Option<Vec<Approval>>,
        /// Autonomy of the agent.
        trust: Trust,
        /// Consumption.
        autonomy_budget: AutonomyBudget,
        /// Input of a replay.
        replay_input: ReplayInput,
        /// Model that was chosen, and the reason.
        model_route: ModelRoute,
        /// Cost.
        cost: Cost,
        /// Side effects.
        side_effects: SideEffects,
        /// Artifacts that it made.
        final_artifacts: Vec<ArtifactRef>,
        /// Replacements made by a replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deltas: Option<Vec<Delta>>,
        /// Its place in the chain of receipts.
        chain: Chain,
        /// Fields that were taken out before hashing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        redactions: Option<Vec<Redaction>>,
        /// Signatures over the hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signatures: Option<Vec<Signature>>,
        /// Extensions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map>,
    }

    /// Subject of a receipt.
    Subject {
        /// Kind.
        object: SubjectKind,
        /// Names it.
        id: String,
    }

    /// Issuer of a receipt.
    Issuer {
        /// Names it.
        id: String,
        /// Kind.
        kind: IssuerKind,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The key that it signs with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        public_key_id: Option<String>,
    }

    /// Everything that a run was known by.
    Identifiers {
        /// The tenant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<String>,
        /// The persona and its version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        persona_ref: Option<String>,
        /// The workspace.
        workspace_ref: String,
        /// The session.
        session_id: String,
        /// The task.
        task_id: String,
        /// The branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_id: Option<String>,
        /// The trace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace_id: Option<String>,
    }

    /// Times of the run of a task, and its end. Both times are needed even of a task that was canceled before it began.
    Lifecycle {
        /// Instant of its submission.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        created_at: Option<Timestamp>,
        /// Instant of its beginning.
        started_at: Timestamp,
        /// Instant of its end.
        completed_at: Timestamp,
        /// Final state.
        final_state: OutcomeStatus,
        /// Error.
        #[serde(default, deserialize_with = "crate::envelope::present", skip_serializing_if = "Option::is_none")]
        failure: Option<Option<Map>>,
    }

    /// Decision of an approver.
    Approval {
        /// Names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<String>,
        /// Actor.
        actor: String,
        /// To what.
        action: String,
        /// Decision.
        decision: Decision,
        /// Instant.
        decided_at: Timestamp,
        /// Proof of the agreement of others.
        #[serde(default, deserialize_with = "crate::envelope::present", skip_serializing_if = "Option::is_none")]
        quorum_proof: Option<Option<Map>>,
        /// The hash of what was shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evidence_hash: Option<PrefixedSha256>,
    }

    /// Autonomy of the agent.
    Trust {
        /// In the beginning.
        start_tier: AutonomyTier,
        /// In the end.
        end_tier: AutonomyTier,
        /// Policy that grants it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy_ref: Option<String>,
    }

    /// Consumption, and its limit.
    AutonomyBudget {
        /// Amount that was allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Budget>,
        /// Amount that was used.
        consumed: Budget,
    }

    /// Amounts.
    Budget {
        /// US dollars.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usd: Option<Number>,
        /// Tokens that models were given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens that models gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        /// Calls of tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_calls: Option<u64>,
        /// Milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wall_time_ms: Option<u64>,
    }

    /// Input of a replay.
    ReplayInput {
        /// Determinism of a replay.
        determinism: Determinism,
        /// Recorded materials.
        materials: Vec<Material>,
        /// Reason for which there is no replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unavailable_reason: Option<String>,
    }

    /// Something that was recorded: a place and a hash, bytes and a hash, or metadata alone.
    Material {
        /// Kind.
        kind: MaterialKind,
        /// Names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Location.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uri: Option<String>,
        /// The hash of its bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<PrefixedSha256>,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content_type: Option<String>,
        /// Its bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_base64: Option<String>,
        /// More about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map>,
    }

    /// Model that was chosen.
    ModelRoute {
        /// This one.
        chosen_model: ModelRef,
        /// These were not.
        alternatives_considered: Vec<ModelRef>,
        /// Reason.
        route_policy_reason: String,
    }

    /// A model.
    ModelRef {
        /// Provider; `none` where no model was called.
        provider: String,
        /// Its name; `none` where no model was called.
        model: String,
        /// Its version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// Reason for which it was chosen or not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }

    /// Cost of a task.
    Cost {
        /// Three capital letters of ISO 4217.
        currency: String,
        /// All of it.
        total: Number,
        /// Cost by provider.
        provider_breakdown: Vec<ProviderCost>,
    }

    /// Cost at one provider.
    ProviderCost {
        /// Provider.
        provider: String,
        /// For which model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Amount.
        amount: Number,
        /// Tokens that the model was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens that the model gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        /// More about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map>,
    }

    /// An artifact.
    ArtifactRef {
        /// Id.
        artifact_id: String,
        /// Kind.
        kind: String,
        /// Location.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uri: Option<String>,
        /// The hash of its bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<PrefixedSha256>,
    }

    /// Something that a replay replaced.
    Delta {
        /// Names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delta_id: Option<String>,
        /// Operation.
        operation: DeltaOperation,
        /// Place, in the form of a JSON pointer.
        path: String,
        /// The key of the override.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        override_key: Option<String>,
        /// The event that the material belonged to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event_id: Option<String>,
        /// The hash before; null if there was nothing.
        #[serde(default, deserialize_with = "crate::envelope::present", skip_serializing_if = "Option::is_none")]
        before_sha256: Option<Option<PrefixedSha256>>,
        /// The hash after; null if there is nothing.
        #[serde(default, deserialize_with = "crate::envelope::present", skip_serializing_if = "Option::is_none")]
        after_sha256: Option<Option<PrefixedSha256>>,
        /// Artifact with the replacement.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        artifact_id: Option<String>,
        /// Reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }

    /// A place in the chain of receipts.
    Chain {
        /// The hash of the receipt before; null of the first.
        previous_receipt_hash: Option<PrefixedSha256>,
        /// The hash of this receipt without this field and without its signatures.
        receipt_hash: PrefixedSha256,
        /// The root of a batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        merkle_root: Option<PrefixedSha256>,
    }

    /// Something that was taken out before hashing.
    Redaction {
        /// Place, as a JSON pointer.
        field: String,
        /// Reason.
        reason: String,
        /// The hash of what was there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof_hash: Option<PrefixedSha256>,
    }

    /// A signature over `chain.receipt_hash`.
    Signature {
        /// With which key.
        key_id: String,
        /// Algorithm by which it was made.
        algorithm: String,
        /// The signature.
        signature: String,
        /// Instant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed_at: Option<Timestamp>,
    }
}
