//! Summary of a sweep.

use std::time::Duration;

use dormouse_harness::TurnError;
use dormouse_ports::{InvocationId, SubscriptionError};

/// Results and findings of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    /// Rows that it looked at.
    pub examined: usize,
    /// Invocations for which it called for a worker: to continue them, or to end them.
    pub called: usize,
    /// Wake-ups that it registered.
    pub registered: usize,
    /// Rows that it could not deal with, and requests that the event bus did not carry out; a later sweep will try
    /// again.
    pub failed: usize,
    /// Time since the most overdue row fell due; zero when none was due.
    pub late_by: Duration,
    /// Time since the oldest pause began, among the rows that were looked at.
    pub oldest_pause: Duration,
    /// Claims of workers that had died or had a wrong clock. Each sweep counts those that it finds, until a worker has
    /// them.
    pub expired_claims: usize,
    /// Accepted work for which no worker had come for ten seconds, since its call was lost, or since all workers are busy.
    /// Each sweep counts what it finds, until a worker has it.
    pub not_begun: usize,
    /// Timers and pauses that had lost each other: rows of pauses that were over, and which are removed; wake-ups that
    /// were not registered outside for ten seconds, and now are; rules for events that were needed and gone, and are there
    /// again; and pauses that were not woken for a minute after they fell due, counted by each sweep until a worker has them.
    pub orphan_timers: usize,
    /// Signals that have been parked for a minute or more, and for which no invocation has waited yet; at most 100 are
    /// counted.
    pub unclaimed_signals: usize,
    /// Items that no other referred to any more, and rules for events that no invocation needed, which were removed.
    pub collected: usize,
    /// True if rows are left for the next sweep.
    pub unfinished: bool,
}

impl SweepSummary {
    pub(crate) fn row_failed(&mut self, id: &InvocationId, error: &TurnError) {
        self.failed += 1;
        tracing::warn!(category = %error.category, message = %error.message,
            invocation_id = %id, "the sweep could not deal with an invocation");
    }

    pub(crate) fn bus_failed(&mut self, error: &SubscriptionError) {
        self.failed += 1;
        tracing::warn!(%error, "the sweep could not look after the rules for events");
    }
}
