use async_trait::async_trait;
use jiff::Timestamp;

use crate::StoreError;

/// The removal of records that nothing refers to any more.
#[async_trait]
pub trait Garbage: Send + Sync {
    /// Looks at the next stretch of all that is stored, behind `cursor`, and removes every item that is kept apart from
    /// its record, has been for a day, and is not referred to any more: parts of states, and waits of invocations that
    /// are gone. The number of items it looks at is bounded.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn collect_garbage(&self, now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError>;
}

/// Outcome of a [`Garbage::collect_garbage`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Number of items that were removed.
    pub removed: usize,
    /// Cursor at which the next stretch begins.
    pub next: Option<String>,
    /// True if everything has been looked at, and the next stretch begins another round.
    pub done: bool,
}
