//! At-least-once delivery: an input is carried to its function until that took it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_harness::WORK;
use dormouse_maintenance::{SweepScope, SweepSummary};
use dormouse_ports::Clock;
use serde_json::Value;

use crate::lane::{Lane, Turns};
use crate::shutdown::RunningGuard;
use crate::under_way::UnderWay;

/// Number of inputs that are with the functions at a time, and of those of one lane: turns of one tenant that take long
/// leave room for others.
const AT_ONCE: usize = 24;
const OF_LANE: usize = 16;
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

    /// Gives a signal of our own to whoever waits for it, who goes on with another worker.
    async fn leave(&self, signal: Value) -> Result<(), InvokeError>;

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

impl Job {
    /// The call that it is, where a sweep makes it.
    fn swept(&self) -> Option<String> {
        let Self::Wakeup(input) = self else { return None };
        let call = &input["detail"];
        (input["detail-type"] == WORK && call["swept"] == true).then(|| call.to_string())
    }
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
    permits: Turns,
    processor: Turns,
    running: RunningGuard,
    /// Calls of sweeps. Sweeps call every few seconds for as long as work waits: where it waits for its turn here, it would wait
    /// with as many calls as there are sweeps until then.
    swept: UnderWay<String>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Delivers to `functions`, whose work `processor` does.
    pub(crate) fn new(
        functions: Arc<dyn Functions>,
        processor: Turns,
        clock: Arc<dyn Clock>,
        running: RunningGuard,
    ) -> Self {
        let permits = Turns::new(AT_ONCE, OF_LANE, clock.clone());
        Self { functions, clock, permits, processor, running, swept: UnderWay::default() }
    }

    pub(crate) fn running(&self) -> &RunningGuard {
        &self.running
    }

    pub(crate) fn functions(&self) -> &Arc<dyn Functions> {
        &self.functions
    }

    /// Tries until the function took it, with longer and longer waits in between. It is one of the jobs of `lane`.
    pub(crate) async fn carry(&self, lane: &Lane, job: &Job) -> DeliveryResult {
        let swept = job.swept().map(|call| self.swept.begin(call));
        // What is carried already is on its way.
        if let Some(None) = swept {
            return DeliveryResult::Delivered;
        }
        let mut wait = FIRST_WAIT;
        for attempt in 1..=MOST_ATTEMPTS {
            match self.attempt(lane, job).await {
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
    async fn attempt(&self, lane: &Lane, job: &Job) -> Option<Result<(), InvokeError>> {
        let _permit = tokio::select! {
            biased;
            () = self.running.stopping() => return None,
            permit = self.permits.take(lane.clone()) => permit,
        };
        let served = match job.clone() {
            Job::Event(input) => self.functions.event(input),
            Job::Wakeup(input) => self.functions.wakeup(input),
        };
        Some(self.processor.share(lane.clone(), served).await)
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

        async fn leave(&self, signal: Value) -> Result<(), InvokeError> {
            self.serve(json!({ "left": signal }))
        }

        async fn wakeup(&self, input: Value) -> Result<(), InvokeError> {
            self.serve(input)
        }

        async fn sweep(&self, _scope: SweepScope) -> Result<SweepSummary, String> {
            Ok(SweepSummary::default())
        }
    }

    pub(crate) fn dispatcher(functions: &Arc<Flaky>, shutdown: &Shutdown) -> Arc<Dispatcher> {
        let clock: Arc<dyn Clock> = Arc::new(dormouse_system::SystemClock::default());
        Arc::new(Dispatcher::new(functions.clone(), Turns::of_processor(clock.clone()), clock, shutdown.running()))
    }

    #[tokio::test]
    async fn work_that_waits_is_carried_once_however_often_sweeps_call_for_it() {
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        let dispatcher = dispatcher(&functions, &shutdown);
        let call = |swept: bool| {
            let detail = json!({ "invocation_id": "i1", "swept": swept });
            Job::Wakeup(json!({ "source": "dormouse", "detail-type": WORK, "detail": detail }))
        };
        let twice = async |job: Job| {
            // The first attempt fails, so that the second call comes while it is under way.
            functions.failures.lock().expect("a lock").push(InvokeError::Transient("busy".to_owned()));
            let both = (dispatcher.carry(&Lane::House, &job), dispatcher.carry(&Lane::House, &job));
            let carried = futures::future::join(both.0, both.1).await;
            assert_eq!(carried, (DeliveryResult::Delivered, DeliveryResult::Delivered));
            std::mem::take(&mut *functions.taken.lock().expect("a lock")).len()
        };
        assert_eq!(twice(call(true)).await, 1);
        assert_eq!(twice(call(true)).await, 1, "the next sweep finds it undone, and calls again");
        assert_eq!(twice(call(false)).await, 2, "one that calls once for new work is always heard");
    }

    #[tokio::test]
    async fn it_tries_until_the_function_took_it() {
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        functions.failures.lock().expect("a lock").push(InvokeError::Transient("busy".to_owned()));
        let carried = dispatcher(&functions, &shutdown).carry(&Lane::House, &Job::Event(json!(1))).await;
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
        assert_eq!(dispatcher.carry(&Lane::House, &Job::Wakeup(json!(1))).await, DeliveryResult::Refused);
        shutdown.stop();
        assert_eq!(dispatcher.carry(&Lane::House, &Job::Wakeup(json!(1))).await, DeliveryResult::Interrupted);
        assert!(functions.taken.lock().expect("a lock").is_empty());
    }

    /// Takes what comes, one after the other, and names it.
    struct Names(Mutex<Vec<String>>);

    #[async_trait]
    impl Functions for Names {
        async fn event(&self, input: Value) -> Result<(), InvokeError> {
            tokio::task::yield_now().await;
            self.0.lock().expect("a lock").push(input.as_str().unwrap_or_default().to_owned());
            Ok(())
        }

        async fn leave(&self, signal: Value) -> Result<(), InvokeError> {
            self.event(signal).await
        }

        async fn wakeup(&self, input: Value) -> Result<(), InvokeError> {
            self.event(input).await
        }

        async fn sweep(&self, _scope: SweepScope) -> Result<SweepSummary, String> {
            Ok(SweepSummary::default())
        }
    }

    #[tokio::test]
    async fn with_a_hundred_turns_of_one_tenant_waiting_one_of_another_and_what_fell_due_are_next() {
        let functions = Arc::new(Names(Mutex::default()));
        let shutdown = Shutdown::new();
        let clock: Arc<dyn Clock> = Arc::new(dormouse_system::SystemClock::default());
        let processor = Turns::new(1, 1, clock.clone());
        let dispatcher = Dispatcher::new(functions.clone(), processor, clock, shutdown.running());
        let tenant = |name: &str| Lane::Tenant(name.into());
        let noisy = (0..100).map(|_| (tenant("noisy"), "noisy"));
        let all = noisy.chain([(tenant("quiet"), "quiet"), (Lane::House, "due")]);
        let carried = all.map(|(lane, name)| {
            let dispatcher = &dispatcher;
            async move { dispatcher.carry(&lane, &Job::Wakeup(json!(name))).await }
        });
        let carried = futures::future::join_all(carried).await;
        assert!(carried.iter().all(|result| *result == DeliveryResult::Delivered));
        let order = functions.0.lock().expect("a lock").clone();
        assert_eq!(order.len(), 102);
        for name in ["quiet", "due"] {
            let place = order.iter().position(|done| done == name).expect("it was done");
            // Behind those that were with the functions already, and a step of each other lane.
            assert!(place <= OF_LANE, "{name}: {place}");
        }
    }
}
