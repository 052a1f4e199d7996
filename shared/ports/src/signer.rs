use std::fmt;

use async_trait::async_trait;

/// Signs receipts.
///
/// A receipt is signed before its commit is written, and once more with each further attempt at the commit. An adapter
/// whose key is in memory does not wait; one that asks a key service adds its request to each end of a task.
#[async_trait]
pub trait Signer: Send + Sync + fmt::Debug {
    /// The id of the key, under which its public half is published.
    fn key_id(&self) -> &str;

    /// The Ed25519 signature over `message`: `base64:` and its 64 bytes in base 64.
    ///
    /// # Errors
    /// [`SignerError`]. Nothing was changed by it: the request may be repeated.
    async fn sign(&self, message: &[u8]) -> Result<String, SignerError>;
}

/// Reason for which nothing was signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The key did not answer in time, or is asked too often; a later attempt may succeed.
    #[error("the key that signs receipts does not answer: {0}")]
    Unavailable(String),
    /// The key is not there, is disabled, or must not be used by this caller; somebody has to act.
    #[error("the key that signs receipts cannot be used: {0}")]
    Refused(String),
}
