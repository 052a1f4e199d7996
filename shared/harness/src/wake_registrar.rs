//! External wake-ups of a pause: its timer, and the rule for its event.

use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Registration, Subscription, SubscriptionError, Timers};

use crate::standing_rules::StandingRules;

/// Registers wake-ups, and takes them back.
pub struct WakeRegistrar {
    timers: Arc<dyn Timers>,
    rules: Arc<StandingRules>,
}

impl fmt::Debug for WakeRegistrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeRegistrar").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl WakeRegistrar {
    pub(crate) fn new(timers: Arc<dyn Timers>, rules: Arc<StandingRules>) -> Self {
        Self { timers, rules }
    }

    /// The rules for events.
    pub fn rules(&self) -> &StandingRules {
        &self.rules
    }

    /// Makes sure that `subscription` wakes its invocation, and returns whether it would have without.
    ///
    /// # Errors
    /// If the rule, or the timer, cannot be made.
    pub async fn register(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let mut registration = Registration::Known;
        if let Some(wait) = &subscription.wake.event {
            let shape = wait.shape(&subscription.descriptor.signal_id).map_err(SubscriptionError::Rejected)?;
            registration = self.rules.rely_on(shape).await?;
        }
        Ok(registration.and(self.timers.schedule(subscription).await?))
    }

    /// Takes back the timer of a pause that is over.
    pub(crate) async fn cancel(&self, registered: &Subscription) -> Result<(), SubscriptionError> {
        self.timers.cancel(registered).await
    }
}
