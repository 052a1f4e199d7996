//! Receipts: what happened in a task, and what a person allowed, provable without the server.
//!
//! A receipt is issued in the transaction that ends its task, or in the one that takes an answer to a question for a
//! permission. It is an event of its session, `receipt.issued`, which holds all of it; its id leads there. Those of one
//! session are a chain: the end of the session's stream names the last one, and every commit of the session is written on
//! the condition that this end is still the same. So no chain forks and none has a gap.
//!
//! It claims nothing that was not recorded: what the nodes of the run [recorded](fn@dormouse_engine::record), the
//! documents of task and session, and the answers that were accepted.

mod approval;
mod body;
mod issue;
mod reading;
mod tally;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{Signer, SignerError};
use dormouse_protocol::Map;
use dormouse_protocol::resource::AutonomyTier;
use dormouse_receipts::{Flaw, KeyRing, Keys, KmsRing, ReceiptDraft, Ring, SigningKey, Unsigned};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use approval::{AnsweredApproval, decision, is_of_another, note_approval};
pub(crate) use issue::{EndedTask, RECEIPT, end_receipt};
pub(crate) use reading::IssuedReceipts;
pub(crate) use tally::{RecentTallies, Recorded, TaskTally};

/// Issues receipts: a key that signs, and the public keys that its receipts can be verified by. Cheap to clone.
#[derive(Clone)]
pub struct Receipts(Arc<Issuer>);

struct Issuer {
    signer: Arc<dyn Signer>,
    keys: Keys,
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipts").field(&self.0.signer.key_id()).finish()
    }
}

impl Receipts {
    /// Receipts that `signer` signs, with all keys that ever did.
    pub fn new(signer: Arc<dyn Signer>, keys: Keys) -> Self {
        Self(Arc::new(Issuer { signer, keys }))
    }

    /// Receipts that the active key of `ring` signs.
    pub fn of(ring: &KeyRing) -> Self {
        Self::new(Arc::new(HeldKey::new(ring.active().clone())), ring.keys())
    }

    /// Receipts that the key of `ring` signs; `kms` gives the signer for one that is in AWS KMS.
    pub fn by(ring: &Ring, kms: impl FnOnce(&KmsRing) -> Arc<dyn Signer>) -> Self {
        match ring {
            Ring::Held(ring) => Self::of(ring),
            Ring::Kms(ring) => Self::new(kms(ring), ring.keys()),
        }
    }

    /// The public keys.
    pub fn keys(&self) -> &Keys {
        &self.0.keys
    }

    /// The id of the key that signs.
    pub fn key_id(&self) -> &str {
        self.0.signer.key_id()
    }

    /// The signature over `message`: `base64:` and its bytes. It is verified before it is given out: a key service may hold
    /// another key than the one that is published.
    ///
    /// # Errors
    /// [`SignerError`], also for a signature that the published key did not make.
    pub async fn sign(&self, message: &[u8]) -> Result<String, SignerError> {
        let signature = self.0.signer.sign(message).await?;
        match self.0.keys.get(self.key_id()) {
            Some(key) if key.has_signed(message, &signature) => Ok(signature),
            Some(_) | None => {
                let id = self.key_id();
                Err(SignerError::Refused(format!("what it signed is not by the published key {id}; publish its own")))
            }
        }
    }

    fn hashed(&self, body: Map, previous: Option<&str>) -> Result<Unsigned, Flaw> {
        ReceiptDraft::new(body).hashed(previous, self.key_id())
    }
}

/// A key in memory.
#[derive(Debug)]
struct HeldKey {
    key: SigningKey,
    id: String,
}

impl HeldKey {
    fn new(key: SigningKey) -> Self {
        let id = key.public().id;
        Self { key, id }
    }
}

#[async_trait]
impl Signer for HeldKey {
    fn key_id(&self) -> &str {
        &self.id
    }

    async fn sign(&self, message: &[u8]) -> Result<String, SignerError> {
        Ok(self.key.sign(message))
    }
}

/// The last receipt of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChainHead {
    /// Its hash.
    pub(crate) hash: String,
    /// The position of its event.
    pub(crate) at: u64,
}

/// Facts about a task for its receipts, beside its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiptNotes {
    /// True if its persona wants none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) off: bool,
    /// True if its persona demands them: it does not end without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) owed: bool,
    /// Degree to which its persona may act by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tier: Option<AutonomyTier>,
    /// Number of entries that its nodes have recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) recorded: u64,
    /// The positions of its receipts in the stream of its session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) at: Vec<u64>,
    /// Answers to its questions for a permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvals: Vec<ApprovalNote>,
    /// Number of further answers, which the receipt of its end does not list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) more_approvals: u64,
}

impl ReceiptNotes {
    /// Notes an answer to a question for a permission: the first ones are listed, all are counted.
    fn note_approval(&mut self, note: ApprovalNote) {
        match self.approvals.len() < tally::MOST_LISTED {
            true => self.approvals.push(note),
            false => self.more_approvals += 1,
        }
    }

    /// True if nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An answer to a question for a permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApprovalNote {
    /// The position of its receipt.
    pub(crate) at: u64,
    /// Actor who answered.
    pub(crate) actor: String,
    /// Action that the answer is for.
    pub(crate) action: String,
    /// The answer.
    pub(crate) decision: ApprovalDecision,
    /// Time of the answer.
    pub(crate) decided: Timestamp,
    /// The hash of what was shown and allowed.
    pub(crate) evidence: String,
}

/// Answer to a question for a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApprovalDecision {
    /// Yes.
    Approved,
    /// No.
    Denied,
    /// No person answered in time.
    Timeout,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_beyond_the_first_hundred_are_counted() {
        let mut notes = ReceiptNotes::default();
        for at in 0..103 {
            notes.note_approval(ApprovalNote {
                at,
                actor: "ada".to_owned(),
                action: "pay".to_owned(),
                decision: ApprovalDecision::Approved,
                decided: Timestamp::UNIX_EPOCH,
                evidence: String::new(),
            });
        }
        assert_eq!((notes.approvals.len(), notes.approvals[99].at, notes.more_approvals), (100, 99, 3));
    }
}
