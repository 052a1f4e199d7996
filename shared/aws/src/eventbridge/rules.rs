//! One rule for each shape of event, however many invocations wait for events of that shape.

use std::time::Duration;

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::config::http::HttpResponse;
use aws_sdk_eventbridge::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_eventbridge::operation::put_rule::PutRuleInput;
use aws_sdk_eventbridge::operation::put_targets::PutTargetsInput;
use aws_sdk_eventbridge::types::{DeadLetterConfig, InputTransformer, PutTargetsResultEntry, RuleState, Target};
use dormouse_ports::{EventRule, EventShape, ListedRule, RuleName, SubscriptionError};
use rand::Rng;
use serde_json::Value;

use super::resource;
use crate::connect::Lazy;
use crate::refusal::{kind_of, refusal, subscription_error};

/// The bus of the rules, their target and its dead letters.
#[derive(Clone, Debug)]
pub struct RuleConfig {
    /// The bus (a name or an ARN) on which foreign events arrive.
    pub bus_name: String,
    /// The function that takes signals.
    pub signal_function_arn: String,
    /// The queue that takes events which could not be delivered; without one they are lost in the end.
    pub dead_letter_arn: Option<String>,
}

/// Transmission to the signal function: the awaited id, the event's detail as payload, the event's own id, and its
/// distinguishing properties: source, detail-type and shape.
fn template(shape: &EventShape) -> String {
    let shape = shape.id();
    format!(
        r#"{{"dormouse_signal":{{"signal_id":<signal_id>,"payload":<payload>,"event_id":<event_id>,"source":<source>,"detail_type":<detail_type>,"shape":"{shape}"}}}}"#
    )
}

/// The only target of a rule of ours.
const TARGET: &str = "signal";

/// Code of AWS where there is nothing to remove.
const GONE: &str = "ResourceNotFoundException";

/// Code of AWS where another process changes the same rule just then: all that come to the first wait for events of a shape
/// make its rule. The SDK does not send such a request again.
const AT_ONCE: &str = "ConcurrentModificationException";

/// Reported when the bus takes no more rules.
const FULL: &str = "the event bus has as many rules as it may have: let waits share a pattern, or raise the account's \
    quota of rules per bus";

/// Puts, lists and removes rules. The harness decides about the time of each.
#[derive(Debug)]
pub(crate) struct Rules {
    client: Lazy<Client>,
    config: RuleConfig,
}

impl Rules {
    pub(crate) fn new(client: Lazy<Client>, config: RuleConfig) -> Self {
        Self { client, config }
    }

    /// Makes sure that events which `rule` takes reach the signal function.
    pub(crate) async fn put(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        let name = rule.name.to_string();
        self.put_rule(rule_of(&self.config, &name, &rule.shape)?).await?;
        self.put_targets(targets(&self.config, &name, &rule.shape)?).await
    }

    /// The rules that the bus has.
    pub(crate) async fn list(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        list_rules(&self.client, &self.config.bus_name).await
    }

    /// Removes a rule: first its target, because AWS removes no rule that has one. Either may be gone already.
    pub(crate) async fn remove(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        let request = self.client.remove_targets().rule(name.to_string()).event_bus_name(&self.config.bus_name);
        match request.ids(TARGET).send().await {
            Ok(answer) => {
                let failed = answer.failed_entries().iter().find(|failed| failed.error_code() != Some(GONE));
                let failed = failed.map(|failed| ("RemoveTargets", failed.error_code(), failed.error_message()));
                self.all_taken(failed)?;
            }
            Err(error) if error.code() == Some(GONE) => {}
            Err(error) => return Err(self.refused("RemoveTargets", &error)),
        }
        let request = self.client.delete_rule().name(name.to_string()).event_bus_name(&self.config.bus_name);
        match request.send().await {
            Err(error) if error.code() != Some(GONE) => Err(self.refused("DeleteRule", &error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn put_rule(&self, input: PutRuleInput) -> Result<(), SubscriptionError> {
        let request = self.client.put_rule().set_name(input.name).set_event_pattern(input.event_pattern);
        let request = request.set_event_bus_name(input.event_bus_name).set_state(input.state);
        let request = request.set_description(input.description);
        let mut pauses = pauses();
        loop {
            let Err(error) = request.clone().send().await else { return Ok(()) };
            match pauses.next().filter(|_| error.code() == Some(AT_ONCE)) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(self.refused("PutRule", &error)),
            }
        }
    }

    async fn put_targets(&self, input: PutTargetsInput) -> Result<(), SubscriptionError> {
        let request = self.client.put_targets().set_rule(input.rule).set_event_bus_name(input.event_bus_name);
        let request = request.set_targets(input.targets);
        let mut pauses = pauses();
        loop {
            let answer = request.clone().send().await;
            let code = match &answer {
                Ok(answer) => answer.failed_entries().first().and_then(PutTargetsResultEntry::error_code),
                Err(error) => error.code(),
            };
            if let Some(pause) = pauses.next().filter(|_| code == Some(AT_ONCE)) {
                tokio::time::sleep(pause).await;
            } else {
                let answer = answer.map_err(|error| self.refused("PutTargets", &error))?;
                let failed = answer.failed_entries().first();
                let failed = failed.map(|failed| ("PutTargets", failed.error_code(), failed.error_message()));
                return self.all_taken(failed);
            }
        }
    }

    /// An error for the first entry of a request that was not taken: action, code and message.
    fn all_taken(&self, failed: Option<(&str, Option<&str>, Option<&str>)>) -> Result<(), SubscriptionError> {
        let Some((action, code, message)) = failed else { return Ok(()) };
        let code = code.unwrap_or("unknown error");
        let message = message.unwrap_or("no message");
        let sentence = format!("{action} on {}: {code}: {message}", self.resource());
        // Without a status of its own, an error that is not known to last may pass.
        Err(subscription_error((kind_of(code, 500), sentence)))
    }

    fn resource(&self) -> String {
        resource(&self.config.bus_name)
    }

    fn refused<E>(&self, action: &str, error: &SdkError<E, HttpResponse>) -> SubscriptionError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        if error.code() == Some("LimitExceededException") {
            return SubscriptionError::Rejected(FULL.to_owned());
        }
        subscription_error(refusal(action, &self.resource(), error))
    }
}

/// Pauses between attempts at a change that others make at the same time: each up to twice as long as the one before, two seconds in
/// all at most.
fn pauses() -> impl Iterator<Item = Duration> {
    (0..5).map(|turn| Duration::from_millis(60 << turn).mul_f64(0.5 + rand::rng().random::<f64>() / 2.0))
}

/// The rules of ours on the bus `bus_name`; those of the stack itself have other names.
pub(super) async fn list_rules(client: &Client, bus_name: &str) -> Result<Vec<ListedRule>, SubscriptionError> {
    let mut rules = Vec::new();
    let mut next = None;
    loop {
        let request = client.list_rules().event_bus_name(bus_name).name_prefix(RuleName::PREFIX).limit(100);
        let answer = request.set_next_token(next).send().await;
        let answer = answer.map_err(|error| subscription_error(refusal("ListRules", &resource(bus_name), &error)))?;
        rules.extend(answer.rules().iter().filter_map(|rule| {
            let is_enabled = rule.state() != Some(&RuleState::Disabled);
            Some(ListedRule { name: RuleName::parse(rule.name()?)?, is_enabled })
        }));
        next = answer.next_token;
        if next.is_none() {
            return Ok(rules);
        }
    }
}

fn rule_of(config: &RuleConfig, name: &str, shape: &EventShape) -> Result<PutRuleInput, SubscriptionError> {
    let rule = PutRuleInput::builder().name(name).event_bus_name(&config.bus_name).state(RuleState::Enabled);
    let rule = rule.event_pattern(Value::Object(shape.pattern.clone()).to_string());
    rule.description("Carries events to the invocations that wait for them").build().map_err(malformed)
}

fn targets(config: &RuleConfig, name: &str, shape: &EventShape) -> Result<PutTargetsInput, SubscriptionError> {
    let transformer = InputTransformer::builder()
        .input_paths_map("signal_id", &shape.correlation)
        .input_paths_map("payload", "$.detail")
        .input_paths_map("event_id", "$.id")
        .input_paths_map("source", "$.source")
        .input_paths_map("detail_type", "$.detail-type")
        .input_template(template(shape))
        .build()
        .map_err(malformed)?;
    let letters = config.dead_letter_arn.as_ref().map(|arn| DeadLetterConfig::builder().arn(arn).build());
    let target = Target::builder()
        .id(TARGET)
        .arn(&config.signal_function_arn)
        .input_transformer(transformer)
        .set_dead_letter_config(letters)
        .build()
        .map_err(malformed)?;
    let targets = PutTargetsInput::builder().rule(name).event_bus_name(&config.bus_name).targets(target);
    targets.build().map_err(malformed)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn malformed(error: BuildError) -> SubscriptionError {
    SubscriptionError::Rejected(error.to_string())
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::Credentials;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{AwsAccess, Endpoints};

    fn config() -> RuleConfig {
        RuleConfig {
            bus_name: "main".to_owned(),
            signal_function_arn: "arn:signal".to_owned(),
            dead_letter_arn: Some("arn:letters".to_owned()),
        }
    }

    /// Answers one request after the other, and tells what each asked for.
    async fn served(listener: TcpListener, answers: [(u16, &'static str); 4]) -> Vec<String> {
        let is_whole = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).to_lowercase();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            body.len() >= length.unwrap_or_default()
        };
        let mut asked = Vec::new();
        for (status, answer) in answers {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut request = Vec::new();
            while !is_whole(&request) {
                client.read_buf(&mut request).await.expect("a request");
            }
            let text = String::from_utf8_lossy(&request).to_lowercase();
            let target = text.lines().find_map(|line| line.strip_prefix("x-amz-target: awsevents."));
            asked.push(target.unwrap_or_default().to_owned());
            let length = answer.len();
            let head = format!("HTTP/1.1 {status} Said\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            client.write_all(format!("{head}{answer}").as_bytes()).await.expect("it is answered");
        }
        asked
    }

    #[tokio::test]
    async fn a_rule_that_others_put_at_the_same_time_is_put_again() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let answers = tokio::spawn(served(
            listener,
            [
                (400, r#"{"__type":"ConcurrentModificationException","message":"at once"}"#),
                (200, r#"{"RuleArn":"arn:rule"}"#),
                (
                    200,
                    r#"{"FailedEntryCount":1,"FailedEntries":[{"TargetId":"signal","ErrorCode":"ConcurrentModificationException"}]}"#,
                ),
                (200, r#"{"FailedEntryCount":0,"FailedEntries":[]}"#),
            ],
        ));
        let access = AwsAccess {
            region: "us-east-1".to_owned(),
            credentials: Credentials::new("a", "b", None, None, "test"),
            endpoints: Endpoints { all: Some(address), ..Endpoints::default() },
        };
        let shape = EventShape { pattern: dormouse_ports::Map::new(), correlation: "$.detail.job".to_owned() };
        let rule = EventRule { name: RuleName { shape: shape.id(), edition: None }, shape };
        Rules::new(access.clients().eventbridge, config()).put(&rule).await.expect("it is put");
        assert_eq!(answers.await.expect("all was asked"), ["putrule", "putrule", "puttargets", "puttargets"]);
    }

    #[test]
    fn pauses_come_to_an_end() {
        assert!(pauses().sum::<Duration>() < Duration::from_secs(2));
    }

    #[test]
    fn the_target_extracts_signal_and_payload() {
        let shape = EventShape { pattern: dormouse_ports::Map::new(), correlation: "$.detail.job".to_owned() };
        let input = targets(&config(), "rule", &shape).expect("an input");
        let target = &input.targets()[0];
        let transformer = target.input_transformer().expect("a transformer");
        let paths = transformer.input_paths_map().expect("paths");
        assert_eq!(paths.get("signal_id").map(String::as_str), Some("$.detail.job"));
        assert_eq!(paths.get("payload").map(String::as_str), Some("$.detail"));
        assert_eq!((target.arn(), input.rule(), input.event_bus_name()), ("arn:signal", Some("rule"), Some("main")));
        assert_eq!(target.dead_letter_config().and_then(|letters| letters.arn()), Some("arn:letters"));
        let filled = ["signal_id", "payload", "event_id", "source", "detail_type"].iter().fold(
            transformer.input_template().to_owned(),
            |template, name| {
                assert!(paths.contains_key(*name), "{name}");
                template.replace(&format!("<{name}>"), "1")
            },
        );
        let filled: Value = serde_json::from_str(&filled).expect("JSON");
        assert_eq!(filled["dormouse_signal"]["shape"], shape.id().as_str());
    }
}
