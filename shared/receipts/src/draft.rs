//! Making receipts: the hash, the place in the chain and the signature.

use serde_json::{Value, json};

use crate::keys::ALGORITHM;
use crate::{Flaw, Map, Receipt, SigningKey, canonical};

/// A receipt before it has its place in a chain, its hash and its signature.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiptDraft(Map);

/// A receipt with its place in a chain and its hash, which is not signed yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsigned {
    hash: String,
    key_id: String,
    body: Map,
}

/// A receipt that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its hash, which the next receipt of the chain names.
    pub hash: String,
    /// Its canonical form, signatures included: what is stored and given out.
    pub text: String,
}

impl ReceiptDraft {
    /// The receipt of `body`, all of it but `chain`, `issuer.public_key_id` and `signatures`.
    pub fn new(body: Map) -> Self {
        Self(body)
    }

    /// Puts it behind the receipt with the hash `previous`, or at the beginning of a chain, and signs it.
    ///
    /// # Errors
    /// A [`Flaw`] when it would not be a receipt.
    pub fn seal(self, previous: Option<&str>, key: &SigningKey) -> Result<Sealed, Flaw> {
        let unsigned = self.hashed(previous, &key.public().id)?;
        let signature = key.sign(unsigned.hash.as_bytes());
        unsigned.signed(&signature)
    }

    /// Puts it behind the receipt with the hash `previous`, or at the beginning of a chain, for the key called `key_id` to
    /// sign it.
    ///
    /// # Errors
    /// A [`Flaw`] when it has no canonical form.
    pub fn hashed(self, previous: Option<&str>, key_id: &str) -> Result<Unsigned, Flaw> {
        let mut body = self.0;
        if let Some(issuer) = body.get_mut("issuer").and_then(Value::as_object_mut) {
            issuer.insert("public_key_id".to_owned(), key_id.into());
        }
        body.insert("chain".to_owned(), json!({ "previous_receipt_hash": previous }));
        let hash = canonical::hash(&body)?;
        body.insert("chain".to_owned(), json!({ "previous_receipt_hash": previous, "receipt_hash": hash }));
        Ok(Unsigned { hash, key_id: key_id.to_owned(), body })
    }
}

impl Unsigned {
    /// Its hash, whose text is what is signed.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The receipt with `signature`, as [`SigningKey::sign`] gives it over the hash. Whether it is one is not checked.
    ///
    /// # Errors
    /// A [`Flaw`] when it would not be a receipt.
    pub fn signed(self, signature: &str) -> Result<Sealed, Flaw> {
        let Self { hash, key_id, mut body } = self;
        let signature = json!({ "key_id": key_id, "algorithm": ALGORITHM, "signature": signature });
        body.insert("signatures".to_owned(), json!([signature]));
        let receipt = Receipt::new(body)?;
        let text = canonical::bytes(&Value::Object(receipt.body().clone()))?;
        let text = String::from_utf8(text).map_err(|error| Flaw::Malformed { reason: error.to_string() })?;
        Ok(Sealed { hash, text })
    }
}

/// A small receipt called `receipt_id` to try things with, of a session in which nothing happened.
pub fn example(receipt_id: &str) -> Map {
    let at = "2026-04-25T12:00:00Z";
    let body = json!({
        "schema": crate::SCHEMA,
        "receipt_id": receipt_id,
        "subject": { "object": "task", "id": "task_1" },
        "issuer": { "id": "dormouse", "kind": "harness" },
        "issued_at": at,
        "identifiers": { "workspace_ref": "workspace_1", "session_id": "session_1", "task_id": "task_1" },
        "lifecycle": { "started_at": at, "completed_at": at, "final_state": "SUCCEEDED" },
        "trust": { "start_tier": "act_auto", "end_tier": "act_auto" },
        "autonomy_budget": { "consumed": {} },
        "replay_input": { "determinism": "best_effort", "materials": [] },
        "model_route": {
            "chosen_model": { "provider": "none", "model": "none" },
            "alternatives_considered": [],
            "route_policy_reason": "no model was called",
        },
        "cost": { "currency": "USD", "total": 0, "provider_breakdown": [] },
        "side_effects": { "fs_writes": [], "network_egress": [], "tool_calls": [], "a2a_handoffs": [] },
        "final_artifacts": [],
    });
    match body {
        Value::Object(body) => body,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
