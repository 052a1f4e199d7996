use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Map;

/// An event in the shape that EventBridge carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Sender, for example `dormouse.export`.
    pub source: String,
    /// Kind of fact, for example `Export Requested`.
    #[serde(rename = "detail-type")]
    pub detail_type: String,
    /// The fact itself.
    pub detail: Map,
}

impl Event {
    /// The event of `source` that carries `detail`, which is a struct or a mapping.
    ///
    /// # Errors
    /// When `detail` is no mapping in JSON.
    pub fn telling(source: &str, detail_type: &str, detail: &impl Serialize) -> serde_json::Result<Self> {
        let detail = serde_json::from_value(serde_json::to_value(detail)?)?;
        Ok(Self { source: source.to_owned(), detail_type: detail_type.to_owned(), detail })
    }
}

/// Error of publishing an event.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The bus did not take it now; a later attempt may succeed.
    #[error("the event bus is unavailable: {0}")]
    Unavailable(String),
    /// The bus will never take it as it is.
    #[error("the event bus rejected the event: {0}")]
    Rejected(String),
}

/// Port by which nodes and the harness announce facts to the outside.
#[async_trait]
pub trait EventBus: Send + Sync {
    /// Publishes `event` at least once.
    ///
    /// # Errors
    /// [`BusError`] when the bus did not acknowledge it.
    async fn publish(&self, event: Event) -> Result<(), BusError>;

    /// Publishes each of `events` at least once, in as few requests as the bus allows, and returns for each, in their
    /// order, whether the bus acknowledged it.
    async fn publish_all(&self, events: Vec<Event>) -> Vec<Result<(), BusError>> {
        let mut outcomes = Vec::with_capacity(events.len());
        for event in events {
            outcomes.push(self.publish(event).await);
        }
        outcomes
    }
}
