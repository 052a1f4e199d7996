//! External wake-ups of a pause: its timer, and the rule for its event.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Clock, Registration, Subscription, SubscriptionError, Timers};
use futures::future::{BoxFuture, Either, select};

use crate::standing_rules::StandingRules;

/// Time for making a timer, for which whoever has put an invocation to sleep waits: behind it the sweep makes it.
const MAKING: Duration = Duration::from_secs(7);
/// Time for taking back the timer of a pause that is over: one that stays finds nothing to do.
const TAKING_BACK: Duration = Duration::from_secs(2);

/// Registers wake-ups, and takes them back. Whoever waits for an answer does not wait for a scheduler that is away.
pub struct WakeRegistrar {
    timers: Arc<dyn Timers>,
    rules: Arc<StandingRules>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for WakeRegistrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeRegistrar").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl WakeRegistrar {
    pub(crate) fn new(timers: Arc<dyn Timers>, rules: Arc<StandingRules>, clock: Arc<dyn Clock>) -> Self {
        Self { timers, rules, clock }
    }

    /// The rules for events.
    pub fn rules(&self) -> &StandingRules {
        &self.rules
    }

    /// Makes sure that `subscription` wakes its invocation, and returns whether it would have without.
    ///
    /// # Errors
    /// If the rule, or the timer, cannot be made, or the timer is not made in time.
    pub async fn register(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let mut registration = Registration::Known;
        if let Some(wait) = &subscription.wake.event {
            let shape = wait.shape(&subscription.descriptor.signal_id).map_err(SubscriptionError::Rejected)?;
            registration = self.rules.rely_on(shape).await?;
        }
        Ok(registration.and(self.within(MAKING, self.timers.schedule(subscription)).await?))
    }

    /// Takes back the timer of a pause that is over. One that stays finds nothing to do.
    ///
    /// # Errors
    /// If that fails, or takes longer than somebody waits for it.
    pub async fn cancel(&self, registered: &Subscription) -> Result<(), SubscriptionError> {
        self.within(TAKING_BACK, self.timers.cancel(registered)).await
    }

    /// Does `work` for at most the time `most`. What is given up may be done later.
    async fn within<T>(
        &self,
        most: Duration,
        work: BoxFuture<'_, Result<T, SubscriptionError>>,
    ) -> Result<T, SubscriptionError> {
        match select(work, self.clock.sleep(most)).await {
            Either::Left((done, _)) => done,
            Either::Right(((), _)) => {
                Err(SubscriptionError::Unavailable(format!("no answer within {} s", most.as_secs())))
            }
        }
    }
}
