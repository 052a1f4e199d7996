use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::Clock;
use jiff::Timestamp;

/// A clock that stands still and counts how often it is asked to wait.
#[derive(Debug, Default)]
pub(super) struct StillClock {
    waits: AtomicUsize,
}

impl StillClock {
    pub(super) fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::constant(1_800_000_000, 0)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }
}
