//! Ports that record what they gave to the nodes of a graph, and the same ports on that record: how a graph that uses bus
//! and clock is replayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::record;
use dormouse_ports::{BusError, Clock, EntryKind, Event, EventBus, JournalEntry, ReplayMaterial};
use dormouse_receipts::canonical;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Outside;

/// Kind of an entry of an event that was published.
const PUBLISHED: &str = "dormouse.event_published";
/// Kind of an entry of a reading of the clock.
const TIME_READ: &str = "dormouse.time_read";
/// Field of a reading with the instant.
const AT: &str = "at";
/// Field of a reading with nanoseconds that only differ from each other.
const MONOTONIC: &str = "monotonic_ns";

/// `outside`, of which nodes record the events that they publish and the times that they read.
pub(crate) fn recording(outside: &Outside) -> Outside {
    let bus = Arc::new(RecordingBus(outside.bus.clone()));
    let clock = Arc::new(RecordingClock(outside.clock.clone()));
    Outside { bus, clock, ..outside.clone() }
}

/// The outside of a replay: nothing is published, and times are those of `material`.
pub(crate) fn replaying(outside: &Outside, material: &Arc<ReplayMaterial>) -> Outside {
    let bus = Arc::new(ReplayedBus);
    let clock = Arc::new(ReplayedClock {
        material: material.clone(),
        instants: NextReading::default(),
        readings: NextReading::default(),
    });
    Outside { bus, clock, callbacks: None, ..outside.clone() }
}

fn entry(name: &str) -> Option<JournalEntry> {
    EntryKind::vendor(name).ok().map(JournalEntry::new)
}

/// Records that `event` was published, by its digest: what it says may be more than the clients of the task may know.
fn note_published(event: &Event) -> Result<(), BusError> {
    let detail = canonical::digest(&Value::Object(event.detail.clone()));
    let detail = detail.map_err(|flaw| BusError::Rejected(format!("the event has no canonical form: {flaw}")))?;
    let entry = entry(PUBLISHED).map(|entry| {
        entry
            .with("source", event.source.clone())
            .with("detail_type", event.detail_type.clone())
            .with("detail_digest", detail)
    });
    let recorded = entry.map_or(Ok(()), record);
    recorded.map_err(|error| BusError::Rejected(format!("it was published, and is not recorded: {}", error.message())))
}

struct RecordingBus(Arc<dyn EventBus>);

#[async_trait]
impl EventBus for RecordingBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        self.0.publish(event.clone()).await?;
        note_published(&event)
    }

    async fn publish_all(&self, events: Vec<Event>) -> Vec<Result<(), BusError>> {
        let outcomes = self.0.publish_all(events.clone()).await;
        let noted = |(outcome, event): (Result<(), BusError>, &Event)| outcome.and_then(|()| note_published(event));
        outcomes.into_iter().zip(&events).map(noted).collect()
    }
}

/// A reading that cannot be recorded (outside of a node, or beyond the limit of entries) is what a replay finds missing.
fn note_time(name: &str, value: Value) {
    if let Some(entry) = entry(TIME_READ)
        && let Err(error) = record(entry.with(name, value))
    {
        tracing::debug!(
            error = error.message(),
            "a reading of the clock is not recorded, so the run cannot be replayed"
        );
    }
}

struct RecordingClock(Arc<dyn Clock>);

#[async_trait]
impl Clock for RecordingClock {
    fn now(&self) -> Timestamp {
        let now = self.0.now();
        note_time(AT, now.to_string().into());
        now
    }

    fn monotonic(&self) -> Duration {
        let reading = self.0.monotonic();
        note_time(MONOTONIC, json!(u64::try_from(reading.as_nanos()).unwrap_or(u64::MAX)));
        reading
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

/// Publishes nothing, and records what would have been: a difference from the run is found there.
struct ReplayedBus;

#[async_trait]
impl EventBus for ReplayedBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        note_published(&event)
    }
}

/// The number of the reading that comes next.
#[derive(Default)]
struct NextReading(AtomicUsize);

impl NextReading {
    fn take(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

struct ReplayedClock {
    material: Arc<ReplayMaterial>,
    instants: NextReading,
    readings: NextReading,
}

impl ReplayedClock {
    /// What the clock said at the reading `number` of those called `name`.
    fn recorded(&self, name: &str, number: usize) -> Option<Value> {
        let kind = format!("vendor.{TIME_READ}");
        let said = self.material.entries.iter().filter(|entry| entry.kind == kind);
        let said = said.filter_map(|entry| entry.payload.get(name)).nth(number).cloned();
        if said.is_none() {
            let reason = "the run did not read the clock so often, or not within a node";
            self.material.lack("time", format!("time:{name}:{number}"), reason);
        }
        said
    }
}

#[async_trait]
impl Clock for ReplayedClock {
    fn now(&self) -> Timestamp {
        let said = self.recorded(AT, self.instants.take());
        let now =
            said.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(self.material.began);
        note_time(AT, now.to_string().into());
        now
    }

    fn monotonic(&self) -> Duration {
        let said = self.recorded(MONOTONIC, self.readings.take());
        let reading = said.as_ref().and_then(Value::as_u64).unwrap_or_default();
        note_time(MONOTONIC, reading.into());
        Duration::from_nanos(reading)
    }

    /// At once: what was waited for is over.
    async fn sleep(&self, _: Duration) {}
}
