use async_trait::async_trait;
use dormouse_ports::{
    EventRule, EventRules, ListedRule, Registration, RuleName, Subscription, SubscriptionError, Timers,
};

use crate::bus::LocalBus;
use crate::scheduler::LocalScheduler;

/// The [`Timers`] and [`EventRules`] of local mode: a due time is in the index of what sleeps, and a hint for the local
/// scheduler; a rule becomes one of the local bus.
#[derive(Clone, Debug)]
pub(crate) struct LocalSubscriptions {
    bus: LocalBus,
    scheduler: LocalScheduler,
}

impl LocalSubscriptions {
    /// Subscriptions with this bus and this scheduler.
    pub(crate) fn new(bus: LocalBus, scheduler: LocalScheduler) -> Self {
        Self { bus, scheduler }
    }
}

#[async_trait]
impl Timers for LocalSubscriptions {
    async fn schedule(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let Some(due) = &subscription.wake.due else { return Ok(Registration::Known) };
        let invocation = &subscription.invocation_id;
        let generation = subscription.generation;
        self.scheduler.schedule(invocation, generation, due);
        Ok(Registration::Known)
    }

    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        let Some(due) = &subscription.wake.due else { return Ok(()) };
        let invocation = &subscription.invocation_id;
        let generation = subscription.generation;
        self.scheduler.cancel(invocation, generation, due);
        Ok(())
    }
}

#[async_trait]
impl EventRules for LocalSubscriptions {
    async fn put_rule(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        self.bus.rules().put(rule).await
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        Ok(self.bus.rules().list().into_iter().map(ListedRule::enabled).collect())
    }

    async fn remove_rule(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        self.bus.rules().remove(name).await
    }
}
