use async_trait::async_trait;
use jiff::Timestamp;

use crate::StoreError;

/// Short texts under names: how far the lanes of a sweep came, and what one process leaves for another.
#[async_trait]
pub trait Notes: Send + Sync {
    /// What is noted under `name`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError>;

    /// Notes `text` under `name` instead of what was noted there, or nothing. It is kept until `until` at least, or for
    /// good.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the text may have been noted then.
    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError>;
}
