use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::Clock;
use jiff::Timestamp;
use tokio::time::Instant;

/// Time that passes, from a fixed beginning: fixtures about slow observers wait for real.
#[derive(Debug)]
pub(crate) struct LiveClock {
    start: Timestamp,
    began: Instant,
    /// By how much it goes on whenever it is asked for monotonic time, and how often it was.
    tick: Option<Duration>,
    asked: AtomicU32,
}

impl LiveClock {
    /// A clock whose monotonic time passes only by being asked for.
    pub(crate) fn ticking(tick: Duration) -> Self {
        Self { tick: Some(tick), ..Self::default() }
    }
}

impl Default for LiveClock {
    /// Begins at 2027-01-15T08:00:00Z.
    fn default() -> Self {
        Self {
            start: Timestamp::constant(1_800_000_000, 0),
            began: Instant::now(),
            tick: None,
            asked: AtomicU32::new(0),
        }
    }
}

#[async_trait]
impl Clock for LiveClock {
    fn now(&self) -> Timestamp {
        self.start + self.began.elapsed()
    }

    fn monotonic(&self) -> Duration {
        match self.tick {
            Some(tick) => tick * self.asked.fetch_add(1, Ordering::Relaxed),
            None => self.began.elapsed(),
        }
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
