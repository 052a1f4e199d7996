//! One-shot entries of EventBridge Scheduler: one at a time for each pause that falls due.

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::config::http::HttpResponse;
use aws_sdk_scheduler::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_scheduler::operation::create_schedule::CreateScheduleInput;
use aws_sdk_scheduler::types::{
    ActionAfterCompletion, DeadLetterConfig, FlexibleTimeWindow, FlexibleTimeWindowMode, Target,
};
use dormouse_ports::{Due, InvocationId, Registration, SubscriptionError};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::naming::derived;
use crate::refusal::{refusal, subscription_error};

/// The group of the entries, their target, its role and its dead letters.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// The group of all entries.
    pub group_name: String,
    /// The role that the scheduler takes on to call the function.
    pub role_arn: String,
    /// The function that wakes invocations.
    pub wakeup_function_arn: String,
    /// The queue that takes wake-ups which could not be delivered; without one only the sweep finds them.
    pub dead_letter_arn: Option<String>,
}

impl SchedulerConfig {
    /// Name of the place at which wake-ups of the pauses in `table` are registered
    /// ([`StoreConfig::registered_at`](crate::StoreConfig::registered_at)): short, because each of their rows bears it.
    pub fn place(&self, table: &str) -> String {
        let named = [table, &self.group_name, &self.wakeup_function_arn].join("\n");
        hex::encode(&Sha256::digest(named)[..6])
    }
}

/// Distance to the future that an entry must have: the service refuses instants that have passed.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

/// A deadline of pause `generation` of `invocation`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PauseDeadline<'a> {
    pub(crate) invocation: &'a InvocationId,
    pub(crate) generation: u64,
    pub(crate) due: &'a Due,
}

impl PauseDeadline<'_> {
    /// The entry's name identifies the pause: making it again finds it there. Deadlines that follow the first one have
    /// names of their own, because an entry that has fired may be there for a moment still.
    fn schedule_name(self) -> String {
        let invocation = self.invocation.as_str();
        let generation = self.generation.to_string();
        match self.due.rung {
            0 => derived(&[invocation, &generation]),
            rung => derived(&[invocation, &generation, &rung.to_string()]),
        }
    }
}

/// Makes sure that a pause is woken at its deadline.
pub(crate) async fn schedule(
    client: &Client,
    config: &SchedulerConfig,
    deadline: PauseDeadline<'_>,
    now: Timestamp,
) -> Result<Registration, SubscriptionError> {
    let input = entry(config, deadline, expression(deadline.due.at, now))?;
    let request = client.create_schedule().set_name(input.name).set_group_name(input.group_name);
    let request = request.set_schedule_expression(input.schedule_expression).set_target(input.target);
    let request = request.set_schedule_expression_timezone(input.schedule_expression_timezone);
    let request = request.set_flexible_time_window(input.flexible_time_window);
    match request.set_action_after_completion(input.action_after_completion).send().await {
        Ok(_) => Ok(Registration::Made),
        Err(error) if error.code() == Some("ConflictException") => Ok(Registration::Known),
        Err(error) => Err(refused("CreateSchedule", &config.group_name, &error)),
    }
}

/// Removes the entry; it may have fired and removed itself.
pub(crate) async fn unschedule(
    client: &Client,
    config: &SchedulerConfig,
    deadline: PauseDeadline<'_>,
) -> Result<(), SubscriptionError> {
    let request = client.delete_schedule().name(deadline.schedule_name());
    match request.group_name(&config.group_name).send().await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some("ResourceNotFoundException") => Ok(()),
        Err(error) => Err(refused("DeleteSchedule", &config.group_name, &error)),
    }
}

fn entry(
    config: &SchedulerConfig,
    deadline: PauseDeadline<'_>,
    expression: String,
) -> Result<CreateScheduleInput, SubscriptionError> {
    let PauseDeadline { invocation, generation, due } = deadline;
    let wakeup = json!({"invocation_id": invocation, "generation": generation, "due_at": due.at});
    let input = json!({"dormouse_wakeup": wakeup});
    let letters = config.dead_letter_arn.as_ref().map(|arn| DeadLetterConfig::builder().arn(arn).build());
    let target = Target::builder()
        .arn(&config.wakeup_function_arn)
        .role_arn(&config.role_arn)
        .input(input.to_string())
        .set_dead_letter_config(letters)
        .build()
        .map_err(malformed)?;
    let window = FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().map_err(malformed)?;
    CreateScheduleInput::builder()
        .name(deadline.schedule_name())
        .group_name(&config.group_name)
        .schedule_expression(expression)
        .schedule_expression_timezone("UTC")
        .flexible_time_window(window)
        .action_after_completion(ActionAfterCompletion::Delete)
        .target(target)
        .build()
        .map_err(malformed)
}

/// `at` as the service wants it: whole seconds in UTC, never early, and a little ahead when it has passed.
fn expression(at: Timestamp, now: Timestamp) -> String {
    let at = at.max(now.saturating_add(AHEAD).unwrap_or(now));
    let second = if at.subsec_nanosecond() > 0 { at.as_second() + 1 } else { at.as_second() };
    let whole = Timestamp::from_second(second).unwrap_or(at);
    format!("at({})", whole.strftime("%Y-%m-%dT%H:%M:%S"))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn malformed(error: BuildError) -> SubscriptionError {
    SubscriptionError::Rejected(error.to_string())
}

fn refused<E>(action: &str, group: &str, error: &SdkError<E, HttpResponse>) -> SubscriptionError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    if error.code() == Some("ServiceQuotaExceededException") {
        let sentence = format!("the account has as many schedules as it may have: raise its quota ({action})");
        return SubscriptionError::Rejected(sentence);
    }
    subscription_error(refusal(action, &format!("schedule group {group}"), error))
}

#[cfg(test)]
mod tests {
    use dormouse_ports::DueAction;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("an instant")
    }

    fn due(rung: u32) -> Due {
        Due { rung, ..Due::first(at("2027-01-01T00:00:00.000000005Z"), DueAction::Fail) }
    }

    fn config() -> SchedulerConfig {
        SchedulerConfig {
            group_name: "dormouse".to_owned(),
            role_arn: "arn:role".to_owned(),
            wakeup_function_arn: "arn:wakeup".to_owned(),
            dead_letter_arn: Some("arn:letters".to_owned()),
        }
    }

    #[test]
    fn instants_are_whole_seconds_and_never_early() {
        let now = at("2027-01-01T00:00:00Z");
        assert_eq!(expression(at("2027-01-02T03:04:05Z"), now), "at(2027-01-02T03:04:05)");
        assert_eq!(expression(at("2027-01-02T03:04:05.000000001Z"), now), "at(2027-01-02T03:04:06)");
        assert_eq!(expression(at("2020-01-01T00:00:00Z"), now), "at(2027-01-01T00:00:05)");
    }

    #[test]
    fn an_entry_fires_once_and_says_whom_to_wake() {
        let invocation = "i\"1".into();
        let due = due(0);
        let deadline = PauseDeadline { invocation: &invocation, generation: 3, due: &due };
        let entry = entry(&config(), deadline, "at(2027-01-01T00:00:00)".to_owned()).expect("an entry");
        assert_eq!(entry.name(), Some(deadline.schedule_name().as_str()));
        assert_eq!(entry.action_after_completion(), Some(&ActionAfterCompletion::Delete));
        assert_eq!(entry.group_name(), Some("dormouse"));
        assert_eq!(entry.flexible_time_window().map(|window| window.mode().clone()), Some(FlexibleTimeWindowMode::Off));
        let target = entry.target().expect("a target");
        assert_eq!((target.arn(), target.role_arn()), ("arn:wakeup", "arn:role"));
        assert_eq!(target.dead_letter_config().and_then(DeadLetterConfig::arn), Some("arn:letters"));
        let input =
            r#"{"dormouse_wakeup":{"invocation_id":"i\"1","generation":3,"due_at":"2027-01-01T00:00:00.000000005Z"}}"#;
        assert_eq!(target.input(), Some(input));
    }

    #[test]
    fn every_deadline_has_a_name_of_its_own() {
        let name = |invocation: &str, generation, rung| {
            PauseDeadline { invocation: &invocation.into(), generation, due: &due(rung) }.schedule_name()
        };
        assert_ne!(name("i1", 1, 0), name("i1", 2, 0));
        assert_ne!(name("i1", 11, 0), name("i11", 1, 0));
        assert_ne!(name("i1", 1, 0), name("i1", 1, 1));
        assert_ne!(name("i1", 1, 1), name("i1", 1, 2));
        assert!(name(&"a very long / strange id".repeat(20), 1, 9).len() <= 64);
    }
}
