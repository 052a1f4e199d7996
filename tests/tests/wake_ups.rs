//! What the subscriptions and the bus say to AWS, and how they take its answers. The service is played by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_sdk_scheduler::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::RetryConfig;
use dormouse_aws::{AwsSubscriptions, EventBridgeBus, RuleConfig, SchedulerConfig};
use dormouse_ports::{
    BusError, Due, DueAction, Event, EventBus, EventWait, Map, SignalDescriptor, SignalSubscriptions, Subscription,
    SubscriptionError, WakePlan,
};
use dormouse_testkit::ManualClock;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Status, error code and body.
type Answer = (u16, Option<String>, Value);

/// Answers by a script and keeps what it was asked.
#[derive(Clone, Debug, Default)]
struct Service {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Service {
    fn answers(&self, status: u16, body: Value) -> &Self {
        self.answers.lock().expect("no panic").push_back((status, None, body));
        self
    }

    fn fails(&self, code: &str) -> &Self {
        let body = json!({"__type": code, "message": "scripted"});
        self.answers.lock().expect("no panic").push_back((400, Some(code.to_owned()), body));
        self
    }

    fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().expect("no panic").clone()
    }

    fn client(&self) -> SharedHttpClient {
        let connector = SharedHttpConnector::new(self.clone());
        http_client_fn(move |_, _| connector.clone())
    }
}

impl HttpConnector for Service {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").map(str::to_owned);
        let line = target.unwrap_or_else(|| format!("{} {}", request.method(), request.uri()));
        let body = request.body().bytes().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
        self.asked.lock().expect("no panic").push((line, body));
        let answer = self.answers.lock().expect("no panic").pop_front();
        let (status, code, body) = answer.expect("a scripted answer");
        let mut response = HttpResponse::new(status.try_into().expect("a status"), SdkBody::from(body.to_string()));
        if let Some(code) = code {
            response.headers_mut().insert("x-amzn-errortype", code);
        }
        HttpConnectorFuture::ready(Ok(response))
    }
}

macro_rules! client {
    ($sdk:ident, $service:expr) => {
        $sdk::Client::from_conf(
            $sdk::Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new("us-east-1"))
                .credentials_provider(Credentials::new("a", "b", None, None, "test"))
                .http_client($service.client())
                // The SDK repeats even a full bus: the script answers each request once.
                .retry_config(RetryConfig::disabled())
                .build(),
        )
    };
}

fn subscriptions(service: &Service) -> AwsSubscriptions {
    let schedules = SchedulerConfig {
        group_name: "dormouse".to_owned(),
        role_arn: "arn:aws:iam::1:role/wake".to_owned(),
        wakeup_function_arn: "arn:aws:lambda:us-east-1:1:function:wakeup".to_owned(),
        dead_letter_arn: Some("arn:aws:sqs:us-east-1:1:letters".to_owned()),
    };
    let rules = RuleConfig {
        bus_name: "main".to_owned(),
        signal_function_arn: "arn:aws:lambda:us-east-1:1:function:signal".to_owned(),
        dead_letter_arn: Some("arn:aws:sqs:us-east-1:1:letters".to_owned()),
        most_rules: 3,
    };
    let clock = Arc::new(ManualClock::default());
    AwsSubscriptions::new(
        client!(aws_sdk_scheduler, service),
        schedules,
        client!(aws_sdk_eventbridge, service),
        rules,
        clock,
    )
}

fn timed() -> Subscription {
    let at = Timestamp::constant(1_800_000_100, 0);
    let wake = WakePlan { due: Some(Due::first(at, DueAction::Fail)), ..WakePlan::default() };
    Subscription { invocation_id: "i1".into(), generation: 2, descriptor: SignalDescriptor::new("s1"), wake }
}

fn awaiting(job: &str) -> Subscription {
    let pattern = json!({"source": ["jobs"], "detail": {"job": [job]}});
    let wait =
        EventWait { pattern: pattern.as_object().cloned().unwrap_or_default(), correlation: "$.detail.job".to_owned() };
    let wake = WakePlan { event: Some(wait), ..WakePlan::default() };
    Subscription { invocation_id: "i1".into(), generation: 2, descriptor: SignalDescriptor::new(job), wake }
}

/// What the bus says of its rules.
fn rules(names: &[&str]) -> Value {
    let rules: Vec<Value> = names.iter().map(|name| json!({ "Name": name })).collect();
    json!({ "Rules": rules })
}

#[tokio::test]
async fn a_due_time_becomes_one_entry() {
    let service = Service::default();
    service.answers(200, json!({"ScheduleArn": "arn"})).fails("ConflictException");
    let subscriptions = subscriptions(&service);
    subscriptions.subscribe(&timed()).await.expect("it is registered");
    subscriptions.subscribe(&timed()).await.expect("it is there already");
    let asked = service.asked();
    assert_eq!(asked[0].0, asked[1].0, "both ask for the entry of the same name");
    assert!(asked[0].0.contains("/schedules/dormouse-"), "{}", asked[0].0);
    assert_eq!(asked[0].1["ScheduleExpression"], "at(2027-01-15T08:01:40)");
    assert_eq!(asked[0].1["ActionAfterCompletion"], "DELETE");
    let input = json!({"dormouse_wakeup": {"invocation_id": "i1", "generation": 2, "due_at": "2027-01-15T08:01:40Z"}})
        .to_string();
    assert_eq!(asked[0].1["Target"]["Input"], input);
}

#[tokio::test]
async fn cancelling_removes_the_entry_that_may_be_gone() {
    let service = Service::default();
    service.answers(200, json!({})).fails("ResourceNotFoundException");
    let subscriptions = subscriptions(&service);
    subscriptions.cancel(&timed()).await.expect("it is removed");
    subscriptions.cancel(&timed()).await.expect("it is gone already");
    subscriptions.cancel(&awaiting("j1")).await.expect("a shared rule stays");
    assert_eq!(service.asked().len(), 2);
    assert!(service.asked()[0].0.starts_with("DELETE"), "{:?}", service.asked());
}

#[tokio::test]
async fn a_refused_entry_is_rejected() {
    let service = Service::default();
    service.fails("ValidationException");
    let outcome = subscriptions(&service).subscribe(&timed()).await;
    assert!(matches!(outcome, Err(SubscriptionError::Rejected(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_denied_call_names_action_and_resource() {
    for code in ["AccessDeniedException", "ResourceNotFoundException"] {
        let service = Service::default();
        service.fails(code).fails(code).answers(200, rules(&[])).fails(code).fails(code);
        let subscriptions = subscriptions(&service);
        for (subscription, expected) in [
            (timed(), format!("CreateSchedule on schedule group dormouse: {code}: scripted")),
            (awaiting("j1"), format!("ListRules on event bus main: {code}: scripted")),
            (awaiting("j1"), format!("PutRule on event bus main: {code}: scripted")),
        ] {
            let outcome = subscriptions.subscribe(&subscription).await;
            let Err(SubscriptionError::Denied(sentence)) = outcome else { panic!("{outcome:?}") };
            assert_eq!(sentence, expected);
        }
        let bus = EventBridgeBus::new(client!(aws_sdk_eventbridge, service), "main");
        let event = Event { source: "dormouse".to_owned(), detail_type: "Exported".to_owned(), detail: Map::new() };
        let outcome = bus.publish(event).await;
        let Err(BusError::Rejected(sentence)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(sentence, format!("PutEvents on event bus main: {code}: scripted"));
    }
}

#[tokio::test]
async fn a_throttled_call_may_succeed_later() {
    let service = Service::default();
    service.fails("ThrottlingException").fails("ThrottlingException");
    let subscriptions = subscriptions(&service);
    for subscription in [timed(), awaiting("j1")] {
        let outcome = subscriptions.subscribe(&subscription).await;
        assert!(matches!(&outcome, Err(SubscriptionError::Unavailable(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_target_that_was_not_taken_is_an_error() {
    let service = Service::default();
    let failed = json!({"FailedEntryCount": 1, "FailedEntries": [{"ErrorCode": "AccessDeniedException"}]});
    service.answers(200, rules(&[])).answers(200, json!({"RuleArn": "arn"})).answers(200, failed);
    let outcome = subscriptions(&service).subscribe(&awaiting("j1")).await;
    let Err(SubscriptionError::Denied(sentence)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(sentence, "PutTargets on event bus main: AccessDeniedException: no message");
}

#[tokio::test]
async fn waits_of_one_shape_make_one_rule() {
    let service = Service::default();
    service.answers(200, rules(&[])).answers(200, json!({"RuleArn": "arn"}));
    service.answers(200, json!({"FailedEntryCount": 0, "FailedEntries": []}));
    let subscriptions = subscriptions(&service);
    subscriptions.subscribe(&awaiting("j1")).await.expect("the rule is made");
    subscriptions.subscribe(&awaiting("j2")).await.expect("the rule is known");
    let asked = service.asked();
    let targets: Vec<&str> = asked.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(targets, ["AWSEvents.ListRules", "AWSEvents.PutRule", "AWSEvents.PutTargets"]);
    let pattern: Value = serde_json::from_str(asked[1].1["EventPattern"].as_str().expect("text")).expect("JSON");
    assert_eq!(pattern, json!({"source": ["jobs"], "detail": {"job": [{"exists": true}]}}));
    let transformer = &asked[2].1["Targets"][0]["InputTransformer"];
    assert_eq!(transformer["InputPathsMap"]["signal_id"], "$.detail.job");
}

#[tokio::test]
async fn a_full_bus_is_said_clearly() {
    let service = Service::default();
    service.answers(200, rules(&[])).fails("LimitExceededException");
    let outcome = subscriptions(&service).subscribe(&awaiting("j1")).await;
    let Err(SubscriptionError::Rejected(sentence)) = outcome else { panic!("{outcome:?}") };
    assert!(sentence.contains("as many rules as it may have"), "{sentence}");
}

#[tokio::test]
async fn rules_of_ours_are_counted_page_by_page() {
    let service = Service::default();
    let mut first = rules(&["dormouse-a", "dormouse-b"]);
    first["NextToken"] = "more".into();
    service.answers(200, first).answers(200, rules(&["dormouse-c"]));
    let outcome = subscriptions(&service).subscribe(&awaiting("j1")).await;
    let Err(SubscriptionError::Rejected(sentence)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(sentence, "the event bus has 3 rules of ours, which is the limit: let waits share a pattern");
    let asked = service.asked();
    assert_eq!(asked.len(), 2, "no rule is made: {asked:?}");
    assert_eq!((&asked[0].1["NamePrefix"], &asked[1].1["NextToken"]), (&json!("dormouse-"), &json!("more")));
}

#[tokio::test]
async fn an_event_that_the_bus_did_not_take_is_an_error() {
    let service = Service::default();
    let failed = json!({"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure", "ErrorMessage": "why"}]});
    service.answers(200, json!({"FailedEntryCount": 0, "Entries": [{"EventId": "e1"}]})).answers(200, failed);
    let bus = EventBridgeBus::new(client!(aws_sdk_eventbridge, service), "main");
    let event = Event { source: "dormouse".to_owned(), detail_type: "Exported".to_owned(), detail: Map::new() };
    bus.publish(event.clone()).await.expect("it is published");
    let outcome = bus.publish(event).await;
    assert!(matches!(outcome, Err(BusError::Unavailable(_))), "{outcome:?}");
}
