use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{
    Clock, EventRule, EventRules, ListedRule, Registration, RuleName, Subscription, SubscriptionError, Timers,
};

use crate::connect::Lazy;
use crate::eventbridge::{RuleConfig, Rules};
use crate::scheduler::{self, PauseDeadline, SchedulerConfig};

/// The [`Timers`] and [`EventRules`] on AWS: a due time becomes an entry of the scheduler, which is named by its pause
/// and deadline, so that subscribing again changes nothing; a rule becomes one of EventBridge.
pub struct AwsSubscriptions {
    scheduler: Lazy<aws_sdk_scheduler::Client>,
    schedules: SchedulerConfig,
    rules: Rules,
    clock: Arc<dyn Clock>,
}

impl AwsSubscriptions {
    /// Subscriptions through these clients.
    pub fn new(
        scheduler: impl Into<Lazy<aws_sdk_scheduler::Client>>,
        schedules: SchedulerConfig,
        events: impl Into<Lazy<aws_sdk_eventbridge::Client>>,
        rules: RuleConfig,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { scheduler: scheduler.into(), schedules, rules: Rules::new(events.into(), rules), clock }
    }
}

impl fmt::Debug for AwsSubscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsSubscriptions").field("schedules", &self.schedules).field("rules", &self.rules).finish()
    }
}

#[async_trait]
impl Timers for AwsSubscriptions {
    async fn schedule(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        match deadline(subscription) {
            Some(next) => scheduler::schedule(&self.scheduler, &self.schedules, next, self.clock.now()).await,
            None => Ok(Registration::Known),
        }
    }

    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        match deadline(subscription) {
            Some(next) => scheduler::unschedule(&self.scheduler, &self.schedules, next).await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl EventRules for AwsSubscriptions {
    async fn put_rule(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        self.rules.put(rule).await
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        self.rules.list().await
    }

    async fn remove_rule(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        self.rules.remove(name).await
    }
}

fn deadline(subscription: &Subscription) -> Option<PauseDeadline<'_>> {
    let Subscription { invocation_id: invocation, generation, wake, .. } = subscription;
    wake.due.as_ref().map(|due| PauseDeadline { invocation, generation: *generation, due })
}
