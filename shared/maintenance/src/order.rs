//! Request for a sweep.

use std::time::Duration;

/// The most rows that the store is asked about at once.
pub(crate) const TOGETHER: usize = 100;

/// Rows that a sweep looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepScope {
    /// Rows that have fallen due, and claims of workers that died.
    Due,
    /// The same, and then the rest: wake-ups that may not be registered, rows of pauses that are over, signals that are
    /// unclaimed.
    Everything,
}

impl SweepScope {
    /// Its name in the log, in events and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Everything => "everything",
        }
    }
}

/// Request for a sweep, with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOrder {
    /// Rows to be looked at.
    pub scope: SweepScope,
    /// Number of rows that have fallen due; the next sweep goes on behind them.
    pub due_rows: usize,
    /// Number of rows in each other lane; the next sweep goes on behind them.
    pub rows: usize,
    /// Time after which no more rows are begun.
    pub time_left: Option<Duration>,
}

impl From<SweepScope> for SweepOrder {
    /// At most 5,000 rows that are due and 1,000 of each other lane, without a limit of time. Nothing is due while timers
    /// work; where they are lost, as after a table is restored, what is due is caught up with sooner than it comes.
    fn from(scope: SweepScope) -> Self {
        Self { scope, due_rows: 5000, rows: 1000, time_left: None }
    }
}
