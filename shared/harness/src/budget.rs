//! The time of a turn, and the rights that it takes for that time.

use std::time::Duration;

use dormouse_engine::middleware::jitter_from;
use dormouse_engine::{CutShort, EngineError, LeaseTerms, Ports, TurnTime, cut_off, in_turn};
use dormouse_ports::Category;

use crate::config::HarnessConfig;
use crate::error::TurnError;

/// Time beyond its own that a turn may wait for the commits sent to the store. Less than
/// [`lease_margin`](HarnessConfig::lease_margin).
const GRACE: Duration = Duration::from_secs(2);

/// The time that a turn has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget<'w> {
    ports: &'w Ports,
    lease_margin: Duration,
    time: TurnTime,
}

impl<'w> Budget<'w> {
    /// As much as `config` gives to a turn, or what is left to its worker where that is less.
    pub(crate) fn new(ports: &'w Ports, config: &HarnessConfig, time_left: Option<Duration>) -> Self {
        let span = time_left.map_or(config.turn_budget, |left| left.min(config.turn_budget));
        let time = TurnTime { whole: span, longest: config.turn_budget, ends: ports.clock.monotonic() + span };
        Self { ports, lease_margin: config.lease_margin, time }
    }

    pub(crate) fn left(self) -> Duration {
        self.time.left(self.ports.clock.monotonic())
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// True if other turns have clearly more time.
    pub(crate) fn is_short(self) -> bool {
        self.time.is_short()
    }

    /// Exclusive rights that outlive what is left of the turn.
    pub(crate) fn lease(self) -> LeaseTerms {
        let owner = self.ports.ids.fresh().into();
        let left = self.left();
        LeaseTerms { owner, duration: left + self.lease_margin, yield_after: Some(left / 2) }
    }

    /// Runs `work` for at most what is left of the turn, and a moment longer where a commit of it is under way. What it
    /// holds ends by itself soon after.
    pub(crate) async fn within<T>(
        self,
        work: impl Future<Output = Result<T, EngineError>> + Send,
    ) -> Result<T, TurnError> {
        let clock = &self.ports.clock;
        let left = self.left();
        match cut_off(Box::pin(in_turn(self.time, work)), clock.sleep(left), || clock.sleep(GRACE)).await {
            Ok(result) => result.map_err(TurnError::from),
            Err(cut) => Err(cut_short(cut)),
        }
    }
}

/// Error of a turn that did not end within its time.
fn cut_short(cut: CutShort) -> TurnError {
    match cut {
        CutShort::Clean => {
            let message = "the turn did not end within its time; what it had claimed is free again soon";
            TurnError::new(Category::TurnDeadlineExceeded, message)
        }
        CutShort::InDoubt => {
            let message =
                "the turn did not end within its time, and what it wrote may stand: look before sending it again";
            TurnError::new(Category::OutcomeUnknown, message)
        }
    }
}

/// Waits between looks at the progress of another worker, the longer the more looks there were: waiters for the same
/// thing shall not keep the store from it.
#[derive(Debug)]
pub(crate) struct ProgressBackoff<'w> {
    ports: &'w Ports,
    interval: Duration,
    looks: u32,
}

impl<'w> ProgressBackoff<'w> {
    pub(crate) fn new(ports: &'w Ports, config: &HarnessConfig) -> Self {
        Self { ports, interval: config.poll_interval, looks: 0 }
    }

    /// Waits before the next look.
    pub(crate) async fn pause(&mut self) {
        let longest = self.interval.saturating_mul(1 << self.looks.min(10)).min(HarnessConfig::POLL_LONGEST);
        self.looks += 1;
        let jitter = jitter_from(self.ports.ids.clone())();
        self.ports.clock.sleep(longest.mul_f64(0.5 + jitter / 2.0)).await;
    }
}
