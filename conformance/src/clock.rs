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
}

impl Default for LiveClock {
    /// Begins at 2027-01-15T08:00:00Z.
    fn default() -> Self {
        Self { start: Timestamp::constant(1_800_000_000, 0), began: Instant::now() }
    }
}

#[async_trait]
impl Clock for LiveClock {
    fn now(&self) -> Timestamp {
        self.start + self.began.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
