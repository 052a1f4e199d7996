use std::sync::Mutex;

use async_trait::async_trait;
use dormouse_ports::{Registration, SignalSubscriptions, Subscription, SubscriptionError};

use crate::lock;

/// What was asked of [`MemorySubscriptions`].
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionCall {
    /// A wake-up was registered.
    Subscribed(Subscription),
    /// A wake-up was taken back.
    Cancelled(Subscription),
}

/// The kind of an error and its sentence.
type Fault = (fn(String) -> SubscriptionError, String);

/// Subscriptions that wake nobody and keep what was asked of them, in order.
#[derive(Debug, Default)]
pub struct MemorySubscriptions {
    calls: Mutex<Vec<SubscriptionCall>>,
    fault: Mutex<Option<Fault>>,
}

impl MemorySubscriptions {
    /// What was asked so far and taken; refused calls are not among them.
    pub fn calls(&self) -> Vec<SubscriptionCall> {
        lock(&self.calls).clone()
    }

    /// What was registered is lost outside; nobody was told.
    pub fn forget(&self) {
        lock(&self.calls).clear();
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

    /// From now on every call fails as [`SubscriptionError::Rejected`].
    pub fn fail_rejected(&self, sentence: &str) {
        *lock(&self.fault) = Some((SubscriptionError::Rejected, sentence.to_owned()));
    }

    /// From now on every call fails as [`SubscriptionError::Denied`].
    pub fn fail_denied(&self, sentence: &str) {
        *lock(&self.fault) = Some((SubscriptionError::Denied, sentence.to_owned()));
    }

    /// From now on calls succeed again.
    pub fn recover(&self) {
        *lock(&self.fault) = None;
    }

    fn answer(&self, call: SubscriptionCall) -> Result<(), SubscriptionError> {
        match lock(&self.fault).clone() {
            Some((kind, sentence)) => Err(kind(sentence)),
            None => {
                lock(&self.calls).push(call);
                Ok(())
            }
        }
    }
}

#[async_trait]
impl SignalSubscriptions for MemorySubscriptions {
    async fn subscribe(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let known = self.is_registered(subscription);
        self.answer(SubscriptionCall::Subscribed(subscription.clone()))?;
        Ok(if known { Registration::Known } else { Registration::Made })
    }

    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        self.answer(SubscriptionCall::Cancelled(subscription.clone()))
    }
}
