//! At-least-once delivery: an input is carried to its function until that took it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_maintenance::{SweepScope, SweepSummary};
use dormouse_ports::Clock;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::shutdown::RunningGuard;

/// Number of inputs that are with the functions at a time.
const AT_ONCE: usize = 16;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// As often as EventBridge tries.
const MOST_ATTEMPTS: u32 = 185;

/// Reason for which a function did not take its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvokeError {
    /// Another attempt may succeed.
    Transient(String),
    /// It will never take it.
    Permanent(String),
}

/// The functions that are not called over HTTP.
#[async_trait]
pub(crate) trait Functions: Send + Sync {
    /// Serves one input of the signal function.
    async fn event(&self, input: Value) -> Result<(), InvokeError>;

    /// Serves one input of the wake-up function.
    async fn wakeup(&self, input: Value) -> Result<(), InvokeError>;

    /// Does what was lost.
    async fn sweep(&self, scope: SweepScope) -> Result<SweepSummary, String>;
}

/// An input to deliver.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Event(Value),
    Wakeup(Value),
}

/// Result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryResult {
    /// The function took it.
    Delivered,
    /// The function will not take it, or raised an error too many times.
    Refused,
    /// The process ends; the job must be done again later.
    Interrupted,
}

/// Delivers jobs.
pub(crate) struct Dispatcher {
    functions: Arc<dyn Functions>,
    clock: Arc<dyn Clock>,
    permits: Semaphore,
    running: RunningGuard,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Dispatcher {
    pub(crate) fn new(functions: Arc<dyn Functions>, clock: Arc<dyn Clock>, running: RunningGuard) -> Self {
        Self { functions, clock, permits: Semaphore::new(AT_ONCE), running }
    }

    pub(crate) fn running(&self) -> &RunningGuard {
        &self.running
    }

    /// Tries until the function took it, with longer and longer waits in between.
    pub(crate) async fn carry(&self, job: &Job) -> DeliveryResult {
        let mut wait = FIRST_WAIT;
        for attempt in 1..=MOST_ATTEMPTS {
            match self.attempt(job).await {
                None => return DeliveryResult::Interrupted,
                Some(Ok(())) => return DeliveryResult::Delivered,
                Some(Err(InvokeError::Permanent(reason))) => {
                    tracing::error!(%reason, "a delivery is refused");
                    return DeliveryResult::Refused;
                }
                Some(Err(InvokeError::Transient(reason))) => {
                    tracing::warn!(attempt, %reason, again_in = ?wait, "a delivery failed");
                }
            }
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                () = self.running.stopping() => return DeliveryResult::Interrupted,
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        DeliveryResult::Refused
    }

    /// `None` when the process ends before the function was called.
    async fn attempt(&self, job: &Job) -> Option<Result<(), InvokeError>> {
        let _permit = self.permits.acquire().await.ok()?;
        if self.running.is_stopping() {
            return None;
        }
        Some(match job.clone() {
            Job::Event(input) => self.functions.event(input).await,
            Job::Wakeup(input) => self.functions.wakeup(input).await,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::shutdown::Shutdown;

    /// Raises errors a given number of times, and notes what it took afterwards.
    #[derive(Debug, Default)]
    pub(crate) struct Flaky {
        pub(crate) failures: Mutex<Vec<InvokeError>>,
        pub(crate) taken: Mutex<Vec<Value>>,
    }

    impl Flaky {
        fn serve(&self, input: Value) -> Result<(), InvokeError> {
            match self.failures.lock().expect("a lock").pop() {
                Some(raised) => Err(raised),
                None => {
                    self.taken.lock().expect("a lock").push(input);
                    Ok(())
                }
            }
        }
    }

    #[async_trait]
    impl Functions for Flaky {
        async fn event(&self, input: Value) -> Result<(), InvokeError> {
            self.serve(input)
        }

        async fn wakeup(&self, input: Value) -> Result<(), InvokeError> {
            self.serve(input)
        }

        async fn sweep(&self, _scope: SweepScope) -> Result<SweepSummary, String> {
            Ok(SweepSummary::default())
        }
    }

    pub(crate) fn dispatcher(functions: &Arc<Flaky>, shutdown: &Shutdown) -> Arc<Dispatcher> {
        let clock = Arc::new(dormouse_system::SystemClock::default());
        Arc::new(Dispatcher::new(functions.clone(), clock, shutdown.running()))
    }

    #[tokio::test]
    async fn it_tries_until_the_function_took_it() {
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        functions.failures.lock().expect("a lock").push(InvokeError::Transient("busy".to_owned()));
        let carried = dispatcher(&functions, &shutdown).carry(&Job::Event(json!(1))).await;
        assert_eq!(
            (carried, functions.taken.lock().expect("a lock").clone()),
            (DeliveryResult::Delivered, vec![json!(1)])
        );
    }

    #[tokio::test]
    async fn it_gives_up_what_will_never_be_taken_and_stops_at_the_end() {
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        functions.failures.lock().expect("a lock").push(InvokeError::Permanent("what is this".to_owned()));
        let dispatcher = dispatcher(&functions, &shutdown);
        assert_eq!(dispatcher.carry(&Job::Wakeup(json!(1))).await, DeliveryResult::Refused);
        shutdown.stop();
        assert_eq!(dispatcher.carry(&Job::Wakeup(json!(1))).await, DeliveryResult::Interrupted);
        assert!(functions.taken.lock().expect("a lock").is_empty());
    }
}
