use std::fmt;

/// Signs receipts.
///
/// A receipt is signed while a commit is made, and once more with each further attempt at it. So an adapter holds its key
/// in memory: it neither waits nor fails.
pub trait Signer: Send + Sync + fmt::Debug {
    /// The id of the key, under which its public half is published.
    fn key_id(&self) -> &str;

    /// The Ed25519 signature over `message`: `base64:` and its 64 bytes in base 64.
    fn sign(&self, message: &[u8]) -> String;
}
