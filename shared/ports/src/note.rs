use async_trait::async_trait;
use jiff::Timestamp;

use crate::StoreError;

/// Short texts under names: the progress of the lanes of a sweep, and messages that one process leaves for another.
#[async_trait]
pub trait Notes: Send + Sync {
    /// The text under `name`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError>;

    /// Notes `text` under `name` instead of the text that was there, or nothing. It is kept until `until` at least, or
    /// for good.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the text may have been noted then.
    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError>;
}
