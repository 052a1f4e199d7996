//! The canonical form and the hash of a receipt.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Flaw, Map};

/// Prefix of hashes.
const SHA256: &str = "sha256:";

/// The canonical form (RFC 8785) of `value`.
///
/// # Errors
/// [`Flaw::Malformed`] for a number that has none.
pub fn bytes(value: &Value) -> Result<Vec<u8>, Flaw> {
    serde_json_canonicalizer::to_vec(value).map_err(|error| Flaw::Malformed { reason: error.to_string() })
}

/// `sha256:` and the SHA-256 of `bytes` in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    format!("{SHA256}{}", hex::encode(Sha256::digest(bytes)))
}

/// The SHA-256 of the canonical form of `value`.
///
/// # Errors
/// As [`bytes`].
pub fn digest(value: &Value) -> Result<String, Flaw> {
    Ok(sha256(&bytes(value)?))
}

/// The canonical form of what the hash of `receipt` is over: all of it but `chain.receipt_hash` and `signatures`.
///
/// # Errors
/// As [`bytes`].
pub fn hashed(receipt: &Map) -> Result<Vec<u8>, Flaw> {
    let mut hashed = receipt.clone();
    hashed.shift_remove("signatures");
    if let Some(chain) = hashed.get_mut("chain").and_then(Value::as_object_mut) {
        chain.shift_remove("receipt_hash");
    }
    bytes(&Value::Object(hashed))
}

/// The hash of `receipt`.
///
/// # Errors
/// As [`bytes`].
pub fn hash(receipt: &Map) -> Result<String, Flaw> {
    Ok(sha256(&hashed(receipt)?))
}

/// True if `text` is written as hashes are: `sha256:` and 64 hexadecimal digits in lower case.
pub fn is_hash(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(SHA256).is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}
