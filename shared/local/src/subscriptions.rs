use std::io;

use async_trait::async_trait;
use dormouse_ports::{Registration, SignalSubscriptions, Subscription, SubscriptionError};

use crate::bus::LocalBus;
use crate::scheduler::LocalScheduler;

/// The [`SignalSubscriptions`] of local mode: a due time becomes an entry of the local scheduler, an awaited event a
/// rule of the local bus. Both are named by what they stand for, so that subscribing again changes nothing.
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
impl SignalSubscriptions for LocalSubscriptions {
    async fn subscribe(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let mut registration = Registration::Known;
        if let Some(wait) = &subscription.wake.event {
            registration = self.bus.ensure(wait, &subscription.descriptor.signal_id).await?;
        }
        if let Some(due) = &subscription.wake.due {
            let (invocation, generation) = (&subscription.invocation_id, subscription.generation);
            let scheduled = self.scheduler.schedule(invocation, generation, due).await.map_err(unavailable)?;
            registration = registration.and(scheduled);
        }
        Ok(registration)
    }

    /// Rules stay: others may wait for the same shape of event.
    async fn cancel(&self, subscription: &Subscription) -> Result<(), SubscriptionError> {
        let Some(due) = &subscription.wake.due else { return Ok(()) };
        let (invocation, generation) = (&subscription.invocation_id, subscription.generation);
        self.scheduler.cancel(invocation, generation, due).await.map_err(unavailable)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn unavailable(error: io::Error) -> SubscriptionError {
    SubscriptionError::Unavailable(format!("the local scheduler cannot keep its entries: {error}"))
}
