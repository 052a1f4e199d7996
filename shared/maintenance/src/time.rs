//! The time that a sweep has, and the time since an instant.

use std::fmt;
use std::time::Duration;

use dormouse_ports::Clock;
use jiff::Timestamp;

/// The time that a sweep has.
#[derive(Clone, Copy)]
pub(crate) struct TimeLimit<'c> {
    clock: &'c dyn Clock,
    /// On the monotonic clock.
    ends: Option<Duration>,
}

impl fmt::Debug for TimeLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeLimit").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl<'c> TimeLimit<'c> {
    /// So much time from now, or as much as it takes.
    pub(crate) fn new(clock: &'c dyn Clock, left: Option<Duration>) -> Self {
        Self { clock, ends: left.map(|left| clock.monotonic() + left) }
    }

    pub(crate) fn is_over(self) -> bool {
        self.ends.is_some_and(|ends| ends <= self.clock.monotonic())
    }
}

/// From `instant` to `now`; nothing when it lies ahead.
pub(crate) fn since(instant: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(instant)).unwrap_or_default()
}
