//! One rule for each shape of event, however many invocations wait for events of that shape.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::config::http::HttpResponse;
use aws_sdk_eventbridge::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_eventbridge::operation::put_rule::PutRuleInput;
use aws_sdk_eventbridge::operation::put_targets::PutTargetsInput;
use aws_sdk_eventbridge::types::{DeadLetterConfig, InputTransformer, RuleState, Target};
use dormouse_ports::{EventWait, Map, Registration, SignalId, SubscriptionError};
use serde_json::{Value, json};

use crate::connect::Lazy;
use crate::naming::{PREFIX, derived};
use crate::refusal::{kind_of, refusal, subscription_error};

/// Where rules live and what they call.
#[derive(Clone, Debug)]
pub struct RuleConfig {
    /// The bus (a name or an ARN) on which foreign events arrive.
    pub bus_name: String,
    /// The function that takes signals.
    pub signal_function_arn: String,
    /// The queue that takes events which could not be delivered; without one they are lost in the end.
    pub dead_letter_arn: Option<String>,
    /// How many rules of ours the bus may have. Rules that are made at the same moment may be a few more.
    pub most_rules: usize,
}

/// What the signal function is sent: the awaited id, the event's detail as payload, and the event's own id.
const TEMPLATE: &str = r#"{"dormouse_signal":{"signal_id":<signal_id>,"payload":<payload>,"event_id":<event_id>}}"#;

/// Said when the bus takes no more rules.
const FULL: &str = "the event bus has as many rules as it may have: let waits share a pattern, or raise the account's \
    quota of rules per bus";

/// Makes rules. Rules are shared and stay; whoever stopped waiting is no longer found by the signals they carry.
#[derive(Debug)]
pub(crate) struct Rules {
    client: Lazy<Client>,
    config: RuleConfig,
    known: Mutex<HashSet<String>>,
}

impl Rules {
    pub(crate) fn new(client: Lazy<Client>, config: RuleConfig) -> Self {
        Self { client, config, known: Mutex::default() }
    }

    /// Makes sure that events which `wait` describes reach the signal function.
    pub(crate) async fn ensure(
        &self,
        wait: &EventWait,
        signal_id: &SignalId,
    ) -> Result<Registration, SubscriptionError> {
        let shape = shape(wait, signal_id)?;
        let name = rule_name(&shape, &wait.correlation);
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&name) {
            return Ok(Registration::Known);
        }
        let registration = self.look_for(&name).await?;
        self.put_rule(rule(&self.config, &name, &shape)?).await?;
        self.put_targets(targets(&self.config, &name, &wait.correlation)?).await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Ok(registration)
    }

    /// Whether the rule is there; refuses one that would be one too many. Its target may be missing all the same.
    async fn look_for(&self, name: &str) -> Result<Registration, SubscriptionError> {
        let (mut names, mut next) = (Vec::new(), None);
        loop {
            let request = self.client.list_rules().event_bus_name(&self.config.bus_name).name_prefix(PREFIX).limit(100);
            let answer = request.set_next_token(next).send().await;
            let answer = answer.map_err(|error| self.refused("ListRules", &error))?;
            names.extend(answer.rules().iter().filter_map(|rule| rule.name().map(str::to_owned)));
            next = answer.next_token;
            if next.is_none() {
                return room(&names, name, self.config.most_rules);
            }
        }
    }

    async fn put_rule(&self, input: PutRuleInput) -> Result<(), SubscriptionError> {
        let request = self.client.put_rule().set_name(input.name).set_event_pattern(input.event_pattern);
        let request = request.set_event_bus_name(input.event_bus_name).set_state(input.state);
        let request = request.set_description(input.description);
        request.send().await.map(|_| ()).map_err(|error| self.refused("PutRule", &error))
    }

    async fn put_targets(&self, input: PutTargetsInput) -> Result<(), SubscriptionError> {
        let request = self.client.put_targets().set_rule(input.rule).set_event_bus_name(input.event_bus_name);
        let answer = request.set_targets(input.targets).send().await;
        let answer = answer.map_err(|error| self.refused("PutTargets", &error))?;
        match answer.failed_entries().first() {
            None => Ok(()),
            Some(failed) => {
                let code = failed.error_code().unwrap_or("unknown error");
                let message = failed.error_message().unwrap_or("no message");
                let sentence = format!("PutTargets on {}: {code}: {message}", self.resource());
                // Without a status of its own, what is not known to last may pass.
                Err(subscription_error((kind_of(code, 500), sentence)))
            }
        }
    }

    fn resource(&self) -> String {
        format!("event bus {}", self.config.bus_name)
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

/// Whether the rule `name` is there, or there is room for it beside the rules `names`.
fn room(names: &[String], name: &str, most: usize) -> Result<Registration, SubscriptionError> {
    if names.iter().any(|known| known == name) {
        return Ok(Registration::Known);
    }
    if names.len() < most {
        return Ok(Registration::Made);
    }
    let sentence = format!("the event bus has {most} rules of ours, which is the limit: let waits share a pattern");
    Err(SubscriptionError::Rejected(sentence))
}

/// The pattern without the one value that differs from wait to wait: where it asks for the signal id itself, any value
/// will do, because the id is compared later.
fn shape(wait: &EventWait, signal_id: &SignalId) -> Result<Map, SubscriptionError> {
    let path: Vec<&str> = wait.correlation.strip_prefix("$.").unwrap_or_default().split('.').collect();
    if path.iter().any(|step| step.is_empty()) {
        let sentence = format!("the correlation {:?} must be a path like $.detail.job_id", wait.correlation);
        return Err(SubscriptionError::Rejected(sentence));
    }
    let mut shape = wait.pattern.clone();
    if let Some(asked) = at_path(&mut shape, &path)
        && *asked == json!([signal_id.as_str()])
    {
        *asked = json!([{"exists": true}]);
    }
    Ok(shape)
}

fn at_path<'a>(map: &'a mut Map, path: &[&str]) -> Option<&'a mut Value> {
    let (first, rest) = path.split_first()?;
    let value = map.get_mut(*first)?;
    if rest.is_empty() { Some(value) } else { at_path(value.as_object_mut()?, rest) }
}

fn rule_name(shape: &Map, correlation: &str) -> String {
    derived(&[&sorted(&Value::Object(shape.clone())).to_string(), correlation])
}

/// `value` with its keys in order: patterns that differ in nothing else share a rule.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn rule(config: &RuleConfig, name: &str, shape: &Map) -> Result<PutRuleInput, SubscriptionError> {
    let rule = PutRuleInput::builder().name(name).event_bus_name(&config.bus_name).state(RuleState::Enabled);
    let rule = rule.event_pattern(Value::Object(shape.clone()).to_string());
    rule.description("Carries events to the invocations that wait for them").build().map_err(malformed)
}

fn targets(config: &RuleConfig, name: &str, correlation: &str) -> Result<PutTargetsInput, SubscriptionError> {
    let transformer = InputTransformer::builder()
        .input_paths_map("signal_id", correlation)
        .input_paths_map("payload", "$.detail")
        .input_paths_map("event_id", "$.id")
        .input_template(TEMPLATE)
        .build()
        .map_err(malformed)?;
    let letters = config.dead_letter_arn.as_ref().map(|arn| DeadLetterConfig::builder().arn(arn).build());
    let target = Target::builder()
        .id("signal")
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
    use super::*;

    fn config() -> RuleConfig {
        RuleConfig {
            bus_name: "main".to_owned(),
            signal_function_arn: "arn:signal".to_owned(),
            dead_letter_arn: Some("arn:letters".to_owned()),
            most_rules: 200,
        }
    }

    fn wait(pattern: &Value, correlation: &str) -> EventWait {
        EventWait { pattern: pattern.as_object().cloned().unwrap_or_default(), correlation: correlation.to_owned() }
    }

    fn name(pattern: &Value, signal: &str) -> String {
        let wait = wait(pattern, "$.detail.job");
        rule_name(&shape(&wait, &signal.into()).expect("a shape"), &wait.correlation)
    }

    #[test]
    fn waits_of_one_shape_share_a_rule() {
        let first = name(&json!({"source": ["jobs"], "detail": {"job": ["j1"]}}), "j1");
        let second = name(&json!({"detail": {"job": ["j2"]}, "source": ["jobs"]}), "j2");
        let other = name(&json!({"source": ["mail"], "detail": {"job": ["j2"]}}), "j2");
        assert_eq!(first, second);
        assert_ne!(first, other);
    }

    #[test]
    fn only_the_signal_id_is_generalised() {
        let pattern = json!({"detail": {"job": ["j1", "j2"], "state": ["done"]}});
        let kept = shape(&wait(&pattern, "$.detail.job"), &"j1".into()).expect("a shape");
        assert_eq!(Value::Object(kept), pattern);
    }

    #[test]
    fn one_rule_too_many_is_refused() {
        let names = ["dormouse-a", "dormouse-b"].map(str::to_owned);
        assert_eq!(room(&names, "dormouse-c", 3).expect("room for one more"), Registration::Made);
        assert_eq!(room(&names, "dormouse-b", 2).expect("it is there"), Registration::Known);
        let Err(SubscriptionError::Rejected(reason)) = room(&names, "dormouse-c", 2) else { panic!("no room") };
        assert_eq!(reason, "the event bus has 2 rules of ours, which is the limit: let waits share a pattern");
    }

    #[test]
    fn a_correlation_is_a_path() {
        for path in ["detail.job", "$.", "$.detail..job", ""] {
            let refused = shape(&wait(&json!({}), path), &"j1".into());
            assert!(matches!(refused, Err(SubscriptionError::Rejected(_))), "{path}");
        }
    }

    #[test]
    fn the_target_extracts_signal_and_payload() {
        let input = targets(&config(), "rule", "$.detail.job").expect("an input");
        let target = &input.targets()[0];
        let transformer = target.input_transformer().expect("a transformer");
        let paths = transformer.input_paths_map().expect("paths");
        assert_eq!(paths.get("signal_id").map(String::as_str), Some("$.detail.job"));
        assert_eq!(paths.get("payload").map(String::as_str), Some("$.detail"));
        assert_eq!((target.arn(), input.rule(), input.event_bus_name()), ("arn:signal", Some("rule"), Some("main")));
        assert_eq!(target.dead_letter_config().and_then(|letters| letters.arn()), Some("arn:letters"));
        let filled = TEMPLATE.replace("<signal_id>", "1").replace("<payload>", "{}").replace("<event_id>", "2");
        assert!(serde_json::from_str::<Value>(&filled).is_ok());
    }
}
