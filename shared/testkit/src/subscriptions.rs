use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dormouse_ports::{
    EventRule, EventRules, EventShape, ListedRule, Registration, RuleName, Subscription, SubscriptionError, Timers,
};

use crate::lock;

/// A call of [`MemorySubscriptions`].
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionCall {
    /// A wake-up was registered.
    Subscribed(Subscription),
    /// A wake-up was taken back.
    Cancelled(Subscription),
}

/// The kind of an error and its sentence.
type Refusal = (fn(String) -> SubscriptionError, String);

/// Subscriptions that wake no invocation and keep their calls, in order.
#[derive(Debug, Default)]
pub struct MemorySubscriptions {
    calls: Mutex<Vec<SubscriptionCall>>,
    rules: Mutex<BTreeMap<RuleName, EventShape>>,
    disabled: Mutex<BTreeSet<RuleName>>,
    rules_put: Mutex<usize>,
    rules_listed: Mutex<usize>,
    fault: Mutex<Option<Refusal>>,
    silent: AtomicBool,
}

impl MemorySubscriptions {
    /// The accepted calls so far; refused calls are not among them.
    pub fn calls(&self) -> Vec<SubscriptionCall> {
        lock(&self.calls).clone()
    }

    /// Loses all registrations outside, without notice to any caller.
    pub fn forget(&self) {
        lock(&self.calls).clear();
        lock(&self.rules).clear();
    }

    /// The rules on the bus.
    pub fn rules(&self) -> BTreeMap<RuleName, EventShape> {
        lock(&self.rules).clone()
    }

    /// Makes a rule without being asked to, as a version of long ago may have.
    pub fn plant_rule(&self, name: RuleName, shape: EventShape) {
        lock(&self.rules).insert(name, shape);
    }

    /// Disables all rules on the bus, as an operator may.
    pub fn disable_rules(&self) {
        lock(&self.disabled).extend(lock(&self.rules).keys().cloned());
    }

    /// Number of times that a rule was put on the bus, also one that was there, and that the rules were listed.
    pub fn rule_calls(&self) -> (usize, usize) {
        (*lock(&self.rules_put), *lock(&self.rules_listed))
    }

    fn is_registered(&self, subscription: &Subscription) -> bool {
        let calls = lock(&self.calls);
        let last = calls.iter().rev().find_map(|call| match call {
            SubscriptionCall::Subscribed(other) if other == subscription => Some(true),
            SubscriptionCall::Cancelled(other) if other == subscription => Some(false),
            SubscriptionCall::Subscribed(_) | SubscriptionCall::Cancelled(_) => None,
        });
        last.unwrap_or_default()
    }

    /// From now on every call fails as [`SubscriptionError::Unavailable`].
    pub fn fail_unavailable(&self, sentence: &str) {
        *lock(&self.fault) = Some((SubscriptionError::Unavailable, sentence.to_owned()));
    }

    /// From now on every call fails as [`SubscriptionError::Denied`].
    pub fn fail_denied(&self, sentence: &str) {
        *lock(&self.fault) = Some((SubscriptionError::Denied, sentence.to_owned()));
    }

    /// From now on no call about a timer is answered.
    pub fn fall_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    async fn hears(&self) {
        if self.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// From now on calls succeed again.
    pub fn recover(&self) {
        *lock(&self.fault) = None;
    }

    fn works(&self) -> Result<(), SubscriptionError> {
        lock(&self.fault).clone().map_or(Ok(()), |(kind, sentence)| Err(kind(sentence)))
    }

    fn answer(&self, call: SubscriptionCall) -> Result<(), SubscriptionError> {
        self.works()?;
        lock(&self.calls).push(call);
        Ok(())
    }
}

#[async_trait]
impl Timers for MemorySubscriptions {
    async fn schedule(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        self.hears().await;
        let known = subscription.wake.due.is_none() || self.is_registered(subscription);
        self.answer(SubscriptionCall::Subscribed(subscription.clone()))?;
        Ok(if known { Registration::Known } else { Registration::Made })
    }

    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        self.hears().await;
        self.answer(SubscriptionCall::Cancelled(subscription.clone()))
    }
}

#[async_trait]
impl EventRules for MemorySubscriptions {
    async fn put_rule(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        self.works()?;
        *lock(&self.rules_put) += 1;
        lock(&self.disabled).remove(&rule.name);
        lock(&self.rules).insert(rule.name.clone(), rule.shape.clone());
        Ok(())
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        self.works()?;
        *lock(&self.rules_listed) += 1;
        let rules = lock(&self.rules);
        let disabled = lock(&self.disabled);
        let listed = |name: &RuleName| ListedRule { name: name.clone(), is_enabled: !disabled.contains(name) };
        Ok(rules.keys().map(listed).collect())
    }

    async fn remove_rule(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        self.works()?;
        lock(&self.rules).remove(name);
        Ok(())
    }
}
