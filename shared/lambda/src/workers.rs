//! Calls for workers: the function that wakes up is invoked for them, which costs nothing besides its own request.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_aws::{AwsAccess, Function};
use dormouse_harness::WORK;
use dormouse_ports::{BusError, Clock, Event, EventBus, Fetch};
use serde_json::json;
use tracing::debug;

/// A bus that sends calls for work to the function that takes them, without an event that is paid for. A call that
/// Lambda does not take goes over the bus, where a rule carries it to the same function; so do calls for many, in
/// batches.
pub(crate) struct WorkerCalls {
    bus: Arc<dyn EventBus>,
    wakeup: Option<Function>,
}

impl WorkerCalls {
    /// Calls the version of a function that `wakeup_arn` names, and publishes everything else on `bus`. An ARN that names
    /// no version leaves everything to the bus.
    pub(crate) fn new(
        bus: Arc<dyn EventBus>,
        wakeup_arn: &str,
        access: &AwsAccess,
        fetch: Arc<dyn Fetch>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let named = wakeup_arn.split_once(":function:").and_then(|(_, named)| named.split_once(':'));
        let wakeup = named.map(|(name, qualifier)| Function::new(access, name, qualifier, fetch, clock));
        Self { bus, wakeup }
    }
}

#[async_trait]
impl EventBus for WorkerCalls {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let Some(wakeup) = self.wakeup.as_ref().filter(|_| event.detail_type == WORK) else {
            return self.bus.publish(event).await;
        };
        match wakeup.send(&json!(event)).await {
            Ok(()) => Ok(()),
            // It may have been taken all the same: a call that comes twice finds the work claimed.
            Err(refusal) => {
                debug!(%refusal, "a call for work goes over the bus");
                self.bus.publish(event).await
            }
        }
    }

    async fn publish_all(&self, mut events: Vec<Event>) -> Vec<Result<(), BusError>> {
        match (events.pop(), events.is_empty()) {
            (Some(only), true) => vec![self.publish(only).await],
            (last, _) => {
                events.extend(last);
                self.bus.publish_all(events).await
            }
        }
    }
}

impl fmt::Debug for WorkerCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCalls").field("wakeup", &self.wakeup).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use dormouse_aws::Endpoints;
    use dormouse_harness::WorkCall;
    use dormouse_ports::InvocationId;
    use dormouse_testkit::{ManualClock, MemoryBus, ScriptedAnswer, ScriptedFetch};

    use super::*;

    const WAKEUP: &str = "arn:aws:lambda:eu-central-1:123456789012:function:dormouse-dev-wakeup:live";

    fn calls(arn: &str) -> (WorkerCalls, Arc<MemoryBus>, ScriptedFetch) {
        let (bus, fetch) = (Arc::new(MemoryBus::default()), ScriptedFetch::default());
        let access = AwsAccess {
            region: "eu-central-1".to_owned(),
            credentials: aws_sdk_dynamodb::config::Credentials::new("AKIDEXAMPLE", "hush-hush", None, None, "test"),
            endpoints: Endpoints::default(),
        };
        let clock = Arc::new(ManualClock::default());
        (WorkerCalls::new(bus.clone(), arn, &access, Arc::new(fetch.clone()), clock), bus, fetch)
    }

    fn call(id: &str) -> Event {
        WorkCall::new(InvocationId::from(id)).event()
    }

    #[tokio::test]
    async fn a_call_for_work_invokes_the_function_with_what_a_rule_would_have_carried() {
        let (calls, bus, fetch) = calls(WAKEUP);
        fetch.answer(ScriptedAnswer::pieces(202, [""]));
        calls.publish(call("i-1")).await.expect("it is published");
        let request = &fetch.requests()[0];
        assert!(request.url.ends_with("/functions/dormouse-dev-wakeup%3Alive/invocations"), "{}", request.url);
        let told: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        let expected =
            json!({ "source": "dormouse", "detail-type": "Dormouse Work", "detail": { "invocation_id": "i-1" } });
        assert_eq!(told, expected);
        assert_eq!(bus.events(), []);
    }

    #[tokio::test]
    async fn what_lambda_does_not_take_goes_over_the_bus() {
        let (calls, bus, fetch) = calls(WAKEUP);
        fetch.answer(ScriptedAnswer::pieces(429, ["{}"]));
        calls.publish(call("i-1")).await.expect("it is published");
        assert_eq!(bus.events(), [call("i-1")]);
    }

    #[tokio::test]
    async fn calls_for_many_and_what_is_no_call_go_over_the_bus() {
        let (calls, bus, fetch) = calls(WAKEUP);
        let other = Event { detail_type: "Reminder".to_owned(), ..call("i-1") };
        calls.publish(other.clone()).await.expect("it is published");
        assert!(calls.publish_all(vec![call("i-1"), call("i-2")]).await.iter().all(Result::is_ok));
        assert_eq!(bus.events(), [other, call("i-1"), call("i-2")]);
        assert_eq!(calls.publish_all(Vec::new()).await.len(), 0);
        fetch.answer(ScriptedAnswer::pieces(202, [""]));
        assert!(calls.publish_all(vec![call("i-3")]).await.iter().all(Result::is_ok));
        assert_eq!((bus.events().len(), fetch.requests().len()), (3, 1));
    }

    #[tokio::test]
    async fn without_a_version_to_call_everything_goes_over_the_bus() {
        let (calls, bus, fetch) = calls("arn:aws:lambda:us-east-1:123456789012:function:f");
        calls.publish(call("i-1")).await.expect("it is published");
        assert_eq!((bus.events().len(), fetch.requests().len()), (1, 0));
    }
}
