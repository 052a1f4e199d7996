//! Receipts: the resource of the REST surface, and in [`wire`] the normative receipt that it carries.
//!
//! The two cannot be one object: the normative receipt is closed and names its issuer by an object. So the resource has
//! `format` = [`wire::SCHEMA`] and the whole normative receipt in `wire.payload`.

pub mod wire;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Map, ResourcePointer};
use crate::id::ReceiptId;
use crate::resource::CardSignature;

/// A portable proof of what happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<ReceiptId>,
    /// Subject.
    pub subject: ResourcePointer,
    /// Format of the receipt in `wire.payload`: [`wire::SCHEMA`].
    pub format: String,
    /// For people.
    pub summary: String,
    /// Instant of its issue.
    pub issued_at: Timestamp,
    /// Issuer.
    pub issuer: String,
    /// The receipt itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReceiptWireEnvelope")]
    pub wire: Option<ReceiptWireEnvelope>,
    /// The newest verification.
    pub verification: Option<ReceiptVerification>,
}

/// Carries the normative receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptWireEnvelope {
    /// Schema of the receipt in the payload.
    pub schema_version: String,
    /// Subject.
    pub subject: ResourcePointer,
    /// Instant of its issue.
    pub issued_at: Timestamp,
    /// The normative receipt, exactly as it was hashed and stored: never written anew from [`wire::WireReceipt`],
    /// because a field left out and an empty one hash differently.
    #[serde(default)]
    pub payload: Map,
    /// Signature of the envelope.
    pub signature: Option<CardSignature>,
}

/// Asks whether a receipt is valid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReceiptRequest {
    /// Keys that are trusted.
    pub trust_anchor: Option<String>,
    /// At which time; now otherwise.
    pub at_time: Option<Timestamp>,
}

/// Validity of a receipt. An invalid one is an answer too, not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptVerification {
    /// True if it is.
    pub valid: bool,
    /// Instant of the check.
    pub checked_at: Timestamp,
    /// Reason, if it is not valid.
    pub reason: Option<String>,
    /// More, for programs.
    #[serde(default)]
    pub details: Map,
}
