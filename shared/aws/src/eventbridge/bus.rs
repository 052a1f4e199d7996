use async_trait::async_trait;
use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::operation::put_events::PutEventsOutput;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use dormouse_ports::{BusError, Event, EventBus, ListedRule, SubscriptionError};

use super::resource;
use super::rules::list_rules;
use crate::connect::Lazy;
use crate::refusal::{RefusalKind, kind_of, refusal};

/// The most events of one request, and the most bytes of them.
const ENTRIES: usize = 10;
const BYTES: usize = 256 * 1024;

/// The [`EventBus`] on EventBridge.
#[derive(Clone, Debug)]
pub struct EventBridgeBus {
    client: Lazy<Client>,
    bus_name: String,
}

impl EventBridgeBus {
    /// Publishes to the bus `bus_name` (a name or an ARN).
    pub fn new(client: impl Into<Lazy<Client>>, bus_name: impl Into<String>) -> Self {
        Self { client: client.into(), bus_name: bus_name.into() }
    }

    /// The rules on it that carry events to the invocations that wait for them.
    ///
    /// # Errors
    /// When EventBridge does not answer, or refuses `events:ListRules`.
    pub async fn rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        list_rules(&self.client, &self.bus_name).await
    }

    /// Sends one request; returns the outcome of each of `entries`, in their order.
    async fn put(&self, entries: Vec<PutEventsRequestEntry>) -> Vec<Result<(), BusError>> {
        let count = entries.len();
        if count == 0 {
            return Vec::new();
        }
        match self.client.put_events().set_entries(Some(entries)).send().await {
            Ok(answer) => outcomes(&self.bus_name, &answer, count),
            Err(error) => {
                let (kind, sentence) = refusal("PutEvents", &resource(&self.bus_name), &error);
                (0..count).map(|_| Err(bus_error((kind, sentence.clone())))).collect()
            }
        }
    }
}

#[async_trait]
impl EventBus for EventBridgeBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let outcome = self.put(vec![entry(&self.bus_name, event)?]).await.pop();
        outcome.unwrap_or_else(|| Err(unanswered(&self.bus_name)))
    }

    async fn publish_all(&self, events: Vec<Event>) -> Vec<Result<(), BusError>> {
        let mut outcomes = Vec::with_capacity(events.len());
        let mut batch = Vec::new();
        let mut bytes = 0;
        for event in events {
            let entry = entry(&self.bus_name, event);
            let size = entry.as_ref().map_or(usize::MAX, size);
            if batch.len() == ENTRIES || size > BYTES - bytes {
                outcomes.extend(self.put(std::mem::take(&mut batch)).await);
                bytes = 0;
            }
            match entry {
                Ok(entry) => {
                    bytes = BYTES.min(bytes + size);
                    batch.push(entry);
                }
                Err(error) => outcomes.push(Err(error)),
            }
        }
        outcomes.extend(self.put(batch).await);
        outcomes
    }
}

fn bus_error((kind, sentence): (RefusalKind, String)) -> BusError {
    match kind {
        RefusalKind::Transient => BusError::Unavailable(sentence),
        RefusalKind::Denied | RefusalKind::Refused => BusError::Rejected(sentence),
    }
}

fn unanswered(bus_name: &str) -> BusError {
    BusError::Unavailable(format!("PutEvents on {} told nothing of the event", resource(bus_name)))
}

fn entry(bus_name: &str, event: Event) -> Result<PutEventsRequestEntry, BusError> {
    let detail = serde_json::to_string(&event.detail).map_err(|error| BusError::Rejected(error.to_string()))?;
    let entry = PutEventsRequestEntry::builder().event_bus_name(bus_name).source(event.source);
    Ok(entry.detail_type(event.detail_type).detail(detail).build())
}

/// The size of an entry as EventBridge counts it, in bytes.
fn size(entry: &PutEventsRequestEntry) -> usize {
    [entry.source(), entry.detail_type(), entry.detail()].into_iter().flatten().map(str::len).sum()
}

/// The request as a whole succeeds even when some of its `count` entries failed.
fn outcomes(bus_name: &str, answer: &PutEventsOutput, count: usize) -> Vec<Result<(), BusError>> {
    if answer.failed_entry_count() == 0 {
        return (0..count).map(|_| Ok(())).collect();
    }
    let told = answer.entries();
    (0..count)
        .map(|number| {
            let Some(entry) = told.get(number) else { return Err(unanswered(bus_name)) };
            let Some(code) = entry.error_code() else { return Ok(()) };
            let message = entry.error_message().unwrap_or("no message");
            Err(bus_error((kind_of(code, 400), format!("PutEvents on {}: {code}: {message}", resource(bus_name)))))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use aws_sdk_eventbridge::types::PutEventsResultEntry;
    use dormouse_ports::Map;

    use super::*;

    fn answer(code: &str) -> PutEventsOutput {
        let entry = PutEventsResultEntry::builder().error_code(code).error_message("why").build();
        PutEventsOutput::builder().failed_entry_count(1).entries(entry).build()
    }

    #[test]
    fn an_entry_carries_the_event() {
        let detail = Map::from_iter([("b".to_owned(), 1.0.into()), ("a".to_owned(), 1.into())]);
        let event = Event { source: "dormouse.export".to_owned(), detail_type: "Export Requested".to_owned(), detail };
        let entry = entry("main", event).expect("it is an entry");
        assert_eq!((entry.event_bus_name(), entry.source()), (Some("main"), Some("dormouse.export")));
        assert_eq!(entry.detail_type(), Some("Export Requested"));
        assert_eq!(entry.detail(), Some(r#"{"b":1.0,"a":1}"#));
    }

    #[test]
    fn a_failed_entry_is_a_failure() {
        let mut sound = outcomes("main", &PutEventsOutput::builder().failed_entry_count(0).build(), 1);
        assert!(matches!(sound.pop(), Some(Ok(()))));
        assert!(matches!(outcomes("main", &answer("InternalFailure"), 1)[..], [Err(BusError::Unavailable(_))]));
        let rejected = outcomes("main", &answer("MalformedDetail"), 1);
        let [Err(BusError::Rejected(sentence))] = &rejected[..] else { panic!("not rejected") };
        assert_eq!(sentence, "PutEvents on event bus main: MalformedDetail: why");
    }

    #[test]
    fn of_several_entries_each_has_its_outcome() {
        let entries = [None, Some("InternalFailure"), None];
        let entries =
            entries.map(|code| PutEventsResultEntry::builder().set_error_code(code.map(str::to_owned)).build());
        let answer = PutEventsOutput::builder().failed_entry_count(1).set_entries(Some(entries.to_vec())).build();
        let told = outcomes("main", &answer, 4);
        assert!(matches!(told[..], [Ok(()), Err(BusError::Unavailable(_)), Ok(()), Err(_)]), "{told:?}");
    }
}
