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
    BusError, Due, DueAction, Event, EventBus, EventRule, EventRules, EventShape, ListedRule, Map, RuleIncarnation,
    RuleName, SignalDescriptor, Subscription, SubscriptionError, Timers, WakePlan,
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

fn awaited() -> EventRule {
    let pattern = json!({"source": ["jobs"], "detail": {"job": [{"exists": true}]}});
    let pattern = pattern.as_object().cloned().unwrap_or_default();
    let shape = EventShape { pattern, correlation: "$.detail.job".to_owned() };
    EventRule { name: RuleName { shape: shape.id(), edition: Some(RuleIncarnation::of("first")) }, shape }
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
    subscriptions.schedule(&timed()).await.expect("it is registered");
    subscriptions.schedule(&timed()).await.expect("it is there already");
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
    assert_eq!(service.asked().len(), 2);
    assert!(service.asked()[0].0.starts_with("DELETE"), "{:?}", service.asked());
}

#[tokio::test]
async fn a_refused_entry_is_rejected() {
    let service = Service::default();
    service.fails("ValidationException");
    let outcome = subscriptions(&service).schedule(&timed()).await;
    assert!(matches!(outcome, Err(SubscriptionError::Rejected(_))), "{outcome:?}");
}

fn denied<T: std::fmt::Debug>(outcome: Result<T, SubscriptionError>) -> String {
    let Err(SubscriptionError::Denied(sentence)) = outcome else { panic!("{outcome:?}") };
    sentence
}

#[tokio::test]
async fn a_denied_call_names_action_and_resource() {
    let service = Service::default();
    let code = "AccessDeniedException";
    for _ in 0..6 {
        service.fails(code);
    }
    let subscriptions = subscriptions(&service);
    let rule = awaited();
    let said = |action: &str| format!("{action} on event bus main: {code}: scripted");
    let scheduled = denied(subscriptions.schedule(&timed()).await);
    assert_eq!(scheduled, format!("CreateSchedule on schedule group dormouse: {code}: scripted"));
    assert_eq!(denied(subscriptions.list_rules().await), said("ListRules"));
    assert_eq!(denied(subscriptions.put_rule(&rule).await), said("PutRule"));
    assert_eq!(denied(subscriptions.remove_rule(&rule.name).await), said("RemoveTargets"));
    service.answers.lock().expect("no panic").push_front((200, None, json!({})));
    assert_eq!(denied(subscriptions.remove_rule(&rule.name).await), said("DeleteRule"));
    let bus = EventBridgeBus::new(client!(aws_sdk_eventbridge, service), "main");
    let event = Event { source: "dormouse".to_owned(), detail_type: "Exported".to_owned(), detail: Map::new() };
    let outcome = bus.publish(event).await;
    let Err(BusError::Rejected(sentence)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(sentence, said("PutEvents"));
}

#[tokio::test]
async fn a_bus_that_is_not_there_is_no_passing_fault() {
    let service = Service::default();
    let code = "ResourceNotFoundException";
    service.fails(code).fails(code).fails(code);
    let subscriptions = subscriptions(&service);
    denied(subscriptions.schedule(&timed()).await);
    denied(subscriptions.list_rules().await);
    denied(subscriptions.put_rule(&awaited()).await);
}

#[tokio::test]
async fn a_throttled_call_may_succeed_later() {
    let service = Service::default();
    for _ in 0..4 {
        service.fails("ThrottlingException");
    }
    let subscriptions = subscriptions(&service);
    let outcomes = [
        subscriptions.schedule(&timed()).await.map(|_| ()),
        subscriptions.put_rule(&awaited()).await,
        subscriptions.list_rules().await.map(|_| ()),
        subscriptions.remove_rule(&awaited().name).await,
    ];
    for outcome in outcomes {
        assert!(matches!(&outcome, Err(SubscriptionError::Unavailable(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_target_that_was_not_taken_is_an_error() {
    let service = Service::default();
    let failed = json!({"FailedEntryCount": 1, "FailedEntries": [{"ErrorCode": "AccessDeniedException"}]});
    service.answers(200, json!({"RuleArn": "arn"})).answers(200, failed.clone()).answers(200, failed);
    let subscriptions = subscriptions(&service);
    let sentence = denied(subscriptions.put_rule(&awaited()).await);
    assert_eq!(sentence, "PutTargets on event bus main: AccessDeniedException: no message");
    let sentence = denied(subscriptions.remove_rule(&awaited().name).await);
    assert_eq!(sentence, "RemoveTargets on event bus main: AccessDeniedException: no message");
}

#[tokio::test]
async fn a_rule_is_put_with_its_target() {
    let service = Service::default();
    let rule = awaited();
    service.answers(200, json!({"RuleArn": "arn"})).answers(200, json!({"FailedEntryCount": 0, "FailedEntries": []}));
    subscriptions(&service).put_rule(&rule).await.expect("the rule is made");
    let asked = service.asked();
    let targets: Vec<&str> = asked.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(targets, ["AWSEvents.PutRule", "AWSEvents.PutTargets"]);
    assert_eq!((&asked[0].1["Name"], &asked[1].1["Rule"]), (&json!(rule.name.to_string()), &asked[0].1["Name"]));
    let pattern: Value = serde_json::from_str(asked[0].1["EventPattern"].as_str().expect("text")).expect("JSON");
    assert_eq!(pattern, Value::Object(rule.shape.pattern));
    let transformer = &asked[1].1["Targets"][0]["InputTransformer"];
    assert_eq!(transformer["InputPathsMap"]["signal_id"], "$.detail.job");
}

#[tokio::test]
async fn a_full_bus_is_said_clearly() {
    let service = Service::default();
    service.fails("LimitExceededException");
    let outcome = subscriptions(&service).put_rule(&awaited()).await;
    let Err(SubscriptionError::Rejected(sentence)) = outcome else { panic!("{outcome:?}") };
    assert!(sentence.contains("as many rules as it may have"), "{sentence}");
}

#[tokio::test]
async fn rules_of_ours_are_listed_page_by_page() {
    let service = Service::default();
    let name = awaited().name;
    let old = RuleName { edition: None, ..name.clone() };
    let mut first = rules(&["dormouse-dev-SignalRule-1A2B", &name.to_string()]);
    first["NextToken"] = "more".into();
    first["Rules"][1]["State"] = "DISABLED".into();
    service.answers(200, first).answers(200, rules(&[&old.to_string(), "dormouse-work"]));
    let listed = subscriptions(&service).list_rules().await.expect("the bus answers");
    let disabled = ListedRule { name, is_enabled: false };
    assert_eq!(listed, [disabled, ListedRule::enabled(old)], "those of the stack itself have other names");
    let asked = service.asked();
    assert_eq!((&asked[0].1["NamePrefix"], &asked[1].1["NextToken"]), (&json!("dormouse-"), &json!("more")));
}

#[tokio::test]
async fn a_rule_goes_after_its_target() {
    let service = Service::default();
    let name = awaited().name;
    service.answers(200, json!({"FailedEntryCount": 0, "FailedEntries": []})).answers(200, json!({}));
    subscriptions(&service).remove_rule(&name).await.expect("it goes");
    let asked = service.asked();
    assert_eq!((asked[0].0.as_str(), asked[1].0.as_str()), ("AWSEvents.RemoveTargets", "AWSEvents.DeleteRule"));
    let name = name.to_string();
    assert_eq!(asked[0].1, json!({ "Rule": name, "EventBusName": "main", "Ids": ["signal"] }));
    assert_eq!(asked[1].1, json!({ "Name": name, "EventBusName": "main" }));
}

#[tokio::test]
async fn a_rule_that_is_gone_has_gone() {
    let service = Service::default();
    let gone = json!({"FailedEntryCount": 1, "FailedEntries": [{"ErrorCode": "ResourceNotFoundException"}]});
    service
        .fails("ResourceNotFoundException")
        .fails("ResourceNotFoundException")
        .answers(200, gone)
        .answers(200, json!({}));
    let subscriptions = subscriptions(&service);
    for _ in 0..2 {
        subscriptions.remove_rule(&awaited().name).await.expect("it is not there");
    }
    assert_eq!(service.asked().len(), 4, "a rule without a target is looked for too");
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
