use async_trait::async_trait;
use jiff::Timestamp;

use crate::{ParkedRow, PausedInvocation, PendingRow, RuleEntry, StoreError};

/// What sweeps and repairs write, and how far they came.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// Where the sweep called `lane` goes on; `None` at the beginning. Or what was [noted](Upkeep::Note) under that name.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn sweep_position(&self, lane: &str) -> Result<Option<String>, StoreError>;

    /// Does what a sweep or a repair has found to be needed. What does not apply any more changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn upkeep(&self, upkeep: &Upkeep) -> Result<(), StoreError>;

    /// Looks at the next stretch of all that is stored, behind `cursor`, and removes what is kept apart from its record,
    /// has been for a day, and is not referred to any more: parts of states, and waits of invocations that are gone.
    /// How much it looks at is bounded.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer or the cursor is not one of its own.
    async fn collect(&self, now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError>;
}

/// What came of a [`Maintenance::collect`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many items were removed.
    pub removed: usize,
    /// Where the next stretch begins.
    pub next: Option<String>,
    /// Whether everything has been looked at, and the next stretch begins another round.
    pub done: bool,
}

/// A small change that keeps the indexes true to what they index.
#[derive(Clone, Debug, PartialEq)]
pub enum Upkeep {
    /// The wake-up of this row's pause is registered, and needs the rule that the row says.
    Registered(PendingRow),
    /// The pause of this row is over: the row goes away.
    Ended(PendingRow),
    /// The row of a pause that sleeps is missing, and is written again.
    Row(Box<PausedInvocation>),
    /// A signal item of a pause that sleeps is missing, and is written again, unless the id is taken meanwhile.
    Wait(Box<PausedInvocation>),
    /// The signal of this row is parked no more: the row goes away.
    Unparked(ParkedRow),
    /// A sweep found at `since` that nobody needs the rule of `entry`: noted unless the entry was touched meanwhile.
    RuleIdle {
        /// The entry as it was read.
        entry: RuleEntry,
        /// When.
        since: Timestamp,
    },
    /// The bus has taken the rule of `entry`: noted, unless that has made room for another edition.
    RuleStands {
        /// The entry as it was read.
        entry: RuleEntry,
        /// When.
        since: Timestamp,
    },
    /// Nobody relies on the rule of this entry any more: the entry goes away, unless it was touched since it was read.
    RuleUnneeded(RuleEntry),
    /// Something is noted under `name` for whoever [asks](Maintenance::sweep_position) for it, until then at least.
    Note {
        /// Under which name; none that a sweep has.
        name: String,
        /// What.
        note: String,
        /// When it may be forgotten.
        until: Timestamp,
    },
    /// The sweep called `lane` goes on at `position`, or at the beginning.
    Position {
        /// Which sweep.
        lane: String,
        /// A cursor of the listing that it goes through.
        position: Option<String>,
    },
}
