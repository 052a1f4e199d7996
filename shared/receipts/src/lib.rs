//! Verifies receipts `receipt-2026-04-25` of the Harn Agents Protocol and their chains, without a server and without a
//! network.
//!
//! A receipt says what an agent did in a task. Its hash is over its [canonical form](canonical) (RFC 8785), its
//! signature (Ed25519) over that hash, and it names the hash of the receipt before it in the same session. So each
//! holder of the public key can tell whether a receipt, or the order of many, was changed.
//!
//! ```
//! use dormouse_receipts::{ReceiptDraft, Keys, Receipt, SigningKey, chain};
//!
//! # let body = dormouse_receipts::example("receipt_1");
//! let key = SigningKey::from_seed([7; 32]);
//! let sealed = ReceiptDraft::new(body).seal(None, &key)?;
//! let receipt = Receipt::parse(sealed.text.as_bytes())?;
//!
//! let keys = Keys::from([key.public()]);
//! assert!(chain::verify(&[receipt], &keys, "2026-11-24T12:00:00Z".parse()?).is_sound());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Receipts are verified as they were received, never as they would be written anew: an absent field and an empty one
//!   hash differently.
//! - What two readers could understand differently is refused: a name that comes twice in an object, an integer that is
//!   no double, a field that the schema does not know.
//! - The crate imports nothing of ours, knows no clock, no files and no network, and compiles for
//!   `wasm32-unknown-unknown`.

#![warn(missing_docs)]

pub mod canonical;
pub mod cbor;
pub mod chain;
mod draft;
mod export;
mod flaw;
mod json;
mod keys;
pub mod limits;
mod projection;
mod receipt;
mod ring;
mod schema;
mod shape;

pub use draft::{ReceiptDraft, Sealed, Unsigned, example};
pub use export::{Export, ExportError};
pub use flaw::Flaw;
pub use keys::{InvalidKey, Keys, PublicKey, SigningKey};
pub use projection::{projection, projection_hash};
pub use receipt::Receipt;
pub use ring::{InvalidRing, KeyRing, KmsRing, Ring};

/// A JSON object.
pub type Map = serde_json::Map<String, serde_json::Value>;

/// The word in the field `schema`.
pub const SCHEMA: &str = "receipt-2026-04-25";
