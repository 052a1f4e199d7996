//! At-least-once delivery: an input is carried to its function until that took it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_harness::{SweepScope, SweepSummary};
use dormouse_ports::Clock;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::lifetime::Running;

/// How many inputs are with the functions at a time.
const AT_ONCE: usize = 16;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// As often as EventBridge tries.
const MOST_ATTEMPTS: u32 = 185;

/// The functions that are not called over HTTP.
#[async_trait]
pub(crate) trait Functions: Send + Sync {
    /// Serves one input of the signal function; an error asks for another attempt.
    async fn event(&self, input: Value) -> Result<(), String>;

    /// Serves one input of the wake-up function; an error asks for another attempt.
    async fn wakeup(&self, input: Value) -> Result<(), String>;

    /// Does what was lost.
    async fn sweep(&self, scope: SweepScope) -> Result<SweepSummary, String>;
}

/// Something to carry.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    Event(Value),
    Wakeup(Value),
}

/// How an errand ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// The function took it.
    Delivered,
    /// The function raised an error each time.
    Refused,
    /// The process ends; the errand must be done again later.
    Interrupted,
}

/// Carries errands.
pub(crate) struct Courier {
    functions: Arc<dyn Functions>,
    clock: Arc<dyn Clock>,
    permits: Semaphore,
    running: Running,
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Courier {
    pub(crate) fn new(functions: Arc<dyn Functions>, clock: Arc<dyn Clock>, running: Running) -> Self {
        Self { functions, clock, permits: Semaphore::new(AT_ONCE), running }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Tries until the function took it, with longer and longer waits in between.
    pub(crate) async fn carry(&self, errand: &Errand) -> Carried {
        let mut wait = FIRST_WAIT;
        for attempt in 1..=MOST_ATTEMPTS {
            match self.attempt(errand).await {
                None => return Carried::Interrupted,
                Some(Ok(())) => return Carried::Delivered,
                Some(Err(reason)) => tracing::warn!(attempt, %reason, ?wait, "a delivery failed; it is tried again"),
            }
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                () = self.running.stopping() => return Carried::Interrupted,
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Carried::Refused
    }

    /// `None` when the process ends before the function was called.
    async fn attempt(&self, errand: &Errand) -> Option<Result<(), String>> {
        let _permit = self.permits.acquire().await.ok()?;
        if self.running.is_stopping() {
            return None;
        }
        Some(match errand.clone() {
            Errand::Event(input) => self.functions.event(input).await,
            Errand::Wakeup(input) => self.functions.wakeup(input).await,
        })
    }
}
