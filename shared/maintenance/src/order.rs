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
    /// At most 1,000 rows in each lane, without a limit of time.
    fn from(scope: SweepScope) -> Self {
        Self { scope, due_rows: 1000, rows: 1000, time_left: None }
    }
}
