use async_trait::async_trait;
use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::operation::put_events::PutEventsOutput;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use dormouse_ports::{BusError, Event, EventBus, ListedRule, SubscriptionError};

use super::resource;
use super::rules::list_rules;
use crate::connect::Lazy;
use crate::refusal::{Kind, kind_of, refusal};

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

    /// The rules on it that carry events to those who wait for them.
    ///
    /// # Errors
    /// When EventBridge does not answer, or refuses `events:ListRules`.
    pub async fn rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        list_rules(&self.client, &self.bus_name).await
    }
}

#[async_trait]
impl EventBus for EventBridgeBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let answer = self.client.put_events().entries(entry(&self.bus_name, event)?).send().await;
        match answer {
            Ok(answer) => outcome(&self.bus_name, &answer),
            Err(error) => Err(bus_error(refusal("PutEvents", &resource(&self.bus_name), &error))),
        }
    }
}

fn bus_error((kind, sentence): (Kind, String)) -> BusError {
    match kind {
        Kind::Passing => BusError::Unavailable(sentence),
        Kind::Denied | Kind::Refused => BusError::Rejected(sentence),
    }
}

fn entry(bus_name: &str, event: Event) -> Result<PutEventsRequestEntry, BusError> {
    let detail = serde_json::to_string(&event.detail).map_err(|error| BusError::Rejected(error.to_string()))?;
    let entry = PutEventsRequestEntry::builder().event_bus_name(bus_name).source(event.source);
    Ok(entry.detail_type(event.detail_type).detail(detail).build())
}

/// The request as a whole succeeds even when its entry failed.
fn outcome(bus_name: &str, answer: &PutEventsOutput) -> Result<(), BusError> {
    if answer.failed_entry_count() == 0 {
        return Ok(());
    }
    let failed = answer.entries().iter().find(|entry| entry.error_code().is_some());
    let code = failed.and_then(|entry| entry.error_code()).unwrap_or("unknown error");
    let message = failed.and_then(|entry| entry.error_message()).unwrap_or("no message");
    let sentence = format!("PutEvents on {}: {code}: {message}", resource(bus_name));
    Err(bus_error((kind_of(code, 400), sentence)))
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
        assert!(outcome("main", &PutEventsOutput::builder().failed_entry_count(0).build()).is_ok());
        assert!(matches!(outcome("main", &answer("InternalFailure")), Err(BusError::Unavailable(_))));
        let Err(BusError::Rejected(sentence)) = outcome("main", &answer("MalformedDetail")) else {
            panic!("not rejected")
        };
        assert_eq!(sentence, "PutEvents on event bus main: MalformedDetail: why");
    }
}
