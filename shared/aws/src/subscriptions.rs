use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{Clock, Registration, SignalSubscriptions, Subscription, SubscriptionError};

use crate::connect::Lazy;
use crate::eventbridge::{RuleConfig, Rules};
use crate::scheduler::{self, Deadline, SchedulerConfig};

/// The [`SignalSubscriptions`] on AWS: a due time becomes an entry of the scheduler, an awaited event a shared rule.
///
/// Both are named by what they stand for, so that subscribing again changes nothing.
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
impl SignalSubscriptions for AwsSubscriptions {
    async fn subscribe(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let mut registration = Registration::Known;
        if let Some(wait) = &subscription.wake.event {
            registration = self.rules.ensure(wait, &subscription.descriptor.signal_id).await?;
        }
        if let Some(next) = deadline(subscription) {
            let schedule = scheduler::schedule(&self.scheduler, &self.schedules, next, self.clock.now());
            registration = registration.and(schedule.await?);
        }
        Ok(registration)
    }

    /// Rules stay: others may wait for the same shape of event.
    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        match deadline(subscription) {
            Some(next) => scheduler::unschedule(&self.scheduler, &self.schedules, next).await,
            None => Ok(()),
        }
    }
}

fn deadline(subscription: &Subscription) -> Option<Deadline<'_>> {
    let Subscription { invocation_id: invocation, generation, wake, .. } = subscription;
    wake.due.as_ref().map(|due| Deadline { invocation, generation: *generation, due })
}
