//! The ports that are no store: time, ids, work beside, timers, rules and the bus.

use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{
    BusError, Clock, Event, EventBus, EventRule, EventRules, IdSource, ListedRule, Registration, RuleName, Spawner,
    Subscription, SubscriptionError, Timers,
};
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::SimPorts;
use crate::simulation::PlantedBug;
use crate::simulation::outside::Outside;

#[async_trait]
impl Clock for SimPorts {
    fn now(&self) -> Timestamp {
        self.world.now() + self.skew
    }

    fn monotonic(&self) -> Duration {
        self.world.lock().elapsed
    }

    async fn sleep(&self, duration: Duration) {
        if !duration.is_zero() {
            self.nap(duration).await;
        }
    }
}

impl IdSource for SimPorts {
    fn fresh(&self) -> String {
        self.world.lock().fresh_id()
    }
}

impl Spawner for SimPorts {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut world = self.world.lock();
        let process = self.process.unwrap_or(world.running);
        world.spawned.push((process, task));
    }
}

#[async_trait]
impl Timers for SimPorts {
    async fn schedule(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let about = about_subscription(subscription);
        let subscription = subscription.clone();
        let effect = move |outside: &mut Outside| Ok(outside.subscribe(&subscription));
        let is_overlooked = self.planted == Some(PlantedBug::OverlookRefusal);
        let lost = move |why: &str| match is_overlooked {
            true => Ok(Registration::Known),
            false => Err(SubscriptionError::Unavailable(why.to_owned())),
        };
        self.call("subscribe", about, effect, lost).await
    }

    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        let about = about_subscription(subscription);
        let subscription = subscription.clone();
        let effect = move |outside: &mut Outside| {
            outside.services.cancel(&subscription);
            Ok(())
        };
        self.call("cancel", about, effect, |why| Err(SubscriptionError::Unavailable(why.to_owned()))).await
    }
}

#[async_trait]
impl EventRules for SimPorts {
    async fn put_rule(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        let about = rule.name.to_string();
        let rule = rule.clone();
        let effect = move |outside: &mut Outside| {
            outside.services.put_rule(rule);
            Ok(())
        };
        self.call("put_rule", about, effect, |why| Err(SubscriptionError::Unavailable(why.to_owned()))).await
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        let effect =
            move |outside: &mut Outside| Ok(outside.services.rules().into_iter().map(ListedRule::enabled).collect());
        self.call("list_rules", String::new(), effect, |why| Err(SubscriptionError::Unavailable(why.to_owned()))).await
    }

    async fn remove_rule(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        let about = name.to_string();
        let name = name.clone();
        let effect = move |outside: &mut Outside| {
            outside.remove_rule(&name);
            Ok(())
        };
        self.call("remove_rule", about, effect, |why| Err(SubscriptionError::Unavailable(why.to_owned()))).await
    }
}

#[async_trait]
impl EventBus for SimPorts {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let about = event.detail_type.clone();
        let effect = move |outside: &mut Outside| {
            outside.publish(event);
            Ok(())
        };
        self.call("publish", about, effect, |why| Err(BusError::Unavailable(why.to_owned()))).await
    }
}

fn about_subscription(subscription: &Subscription) -> String {
    format!("{}#{}", subscription.invocation_id, subscription.generation)
}
