use std::sync::Mutex;

use async_trait::async_trait;
use dormouse_ports::{BusError, Event, EventBus};

use crate::lock;

/// A bus that keeps the published events, in order.
#[derive(Debug, Default)]
pub struct MemoryBus {
    events: Mutex<Vec<Event>>,
    fault: Mutex<Option<String>>,
}

impl MemoryBus {
    /// The events that were published so far.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// From now on every publication fails as unavailable with this sentence; `None` ends it.
    pub fn fail_with(&self, sentence: Option<&str>) {
        *lock(&self.fault) = sentence.map(str::to_owned);
    }
}

#[async_trait]
impl EventBus for MemoryBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        if let Some(sentence) = lock(&self.fault).clone() {
            return Err(BusError::Unavailable(sentence));
        }
        lock(&self.events).push(event);
        Ok(())
    }
}
