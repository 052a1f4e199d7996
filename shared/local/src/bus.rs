//! The event bus of one process, as EventBridge behaves: rules, transformed input, at-least-once delivery.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_harness::WORK;
use dormouse_ports::{BusError, Clock, Event, EventBus, IdSource};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::dispatcher::{DeliveryResult, Dispatcher, Job};
use crate::lane::Lane;
use crate::rules::{EventTarget, LocalRules};
use crate::spool::Spool;

/// The part of a data folder in which the rules are kept.
pub(crate) const RULES: &str = "rules";
/// Number of published events that are remembered for display.
const REMEMBERED: usize = 100;

/// The [`EventBus`] of local mode. An event that has receivers is on the disk before it is acknowledged, and stays
/// there until each of them has it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LocalBus(Arc<BusInner>);

struct BusInner {
    rules: LocalRules,
    spool: Spool,
    published: Mutex<VecDeque<Published>>,
    queue: mpsc::UnboundedSender<Parcel>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl std::fmt::Debug for BusInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("rules", &self.rules).field("spool", &self.spool).finish_non_exhaustive()
    }
}

/// An event, and its outcome.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Published {
    /// Its identity.
    pub(crate) event_id: String,
    /// Instant of its publication.
    pub(crate) published_at: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub(crate) event: Event,
    /// Rules that took it.
    pub(crate) matched: Vec<RuleMatch>,
    /// Progress of its delivery.
    pub(crate) delivery: EventDelivery,
}

/// A rule that took an event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RuleMatch {
    /// The rule's name.
    pub(crate) rule: String,
    /// The signal that it found in the event; `null` when there was none to find.
    pub(crate) signal_id: Value,
}

/// Progress of the delivery of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventDelivery {
    /// No rule took it.
    Unmatched,
    /// It is under way.
    Pending,
    /// Every receiver took it.
    Delivered,
    /// A receiver refused it; it lies beside the other kept events.
    DeadLetter,
}

/// Record that is kept of an event until it is delivered.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Parcel {
    event_id: String,
    inputs: Vec<Value>,
    /// The lane in which it was published; what an earlier process left is the house's.
    #[serde(skip)]
    lane: Lane,
}

/// Events that were published and are not delivered yet; to be carried by [`run`](Self::run).
#[derive(Debug)]
pub(crate) struct PendingDeliveries {
    bus: LocalBus,
    queue: mpsc::UnboundedReceiver<Parcel>,
}

impl LocalBus {
    /// The bus that keeps its rules and events in `folder`.
    pub(crate) fn open(
        folder: &Path,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> io::Result<(Self, PendingDeliveries)> {
        let rules = LocalRules::open(folder.join(RULES))?;
        let spool = Spool::open(folder.join("events"))?;
        let (queue, waiting) = mpsc::unbounded_channel();
        for (_, parcel) in spool.load::<Parcel>()? {
            // The other end is held below.
            let _ = queue.send(parcel);
        }
        let published = Mutex::default();
        let bus = Self(Arc::new(BusInner { rules, spool, published, queue, clock, ids }));
        Ok((bus.clone(), PendingDeliveries { bus, queue: waiting }))
    }

    /// Its rules.
    pub(crate) fn rules(&self) -> &LocalRules {
        &self.0.rules
    }

    /// Publishes `event` and reports the rules that take it.
    ///
    /// # Errors
    /// [`BusError::Unavailable`] when it cannot be kept on the disk.
    pub(crate) async fn accept(&self, event: Event) -> Result<Published, BusError> {
        let event_id = self.0.ids.fresh();
        let published_at = self.0.clock.now();
        let routes = self.0.rules.routes(&envelope(&event, &event_id, published_at));
        let matched = routes.iter().map(matched).collect();
        let inputs: Vec<Value> = routes.into_iter().filter_map(|route| route.input).collect();
        let delivery = if inputs.is_empty() { EventDelivery::Unmatched } else { EventDelivery::Pending };
        let published = Published { event_id: event_id.clone(), published_at, event, matched, delivery };
        if published.delivery == EventDelivery::Pending {
            let parcel = Parcel { event_id: event_id.clone(), inputs, lane: Lane::current() };
            let kept = self.0.spool.put(&event_id, &parcel).await;
            kept.map_err(|error| BusError::Unavailable(format!("the event cannot be kept: {error}")))?;
            self.remember(published.clone());
            // The receiver is gone when the process ends: the next process finds the event on the disk.
            let _ = self.0.queue.send(parcel);
        } else {
            self.remember(published.clone());
        }
        let source = &published.event.source;
        let detail_type = &published.event.detail_type;
        tracing::info!(%event_id, %source, %detail_type, delivery = ?published.delivery, "event published");
        Ok(published)
    }

    /// The events published last by this process, newest first.
    pub(crate) fn published(&self) -> Vec<Published> {
        self.0.published.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn remember(&self, published: Published) {
        let mut remembered = self.0.published.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.push_front(published);
        remembered.truncate(REMEMBERED);
    }

    fn note(&self, event_id: &str, delivery: EventDelivery) {
        let mut remembered = self.0.published.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(published) = remembered.iter_mut().find(|published| published.event_id == event_id) {
            published.delivery = delivery;
        }
    }

    async fn deliver(&self, parcel: Parcel, dispatcher: &Dispatcher) {
        let mut carried = DeliveryResult::Delivered;
        for input in parcel.inputs {
            match dispatcher.carry(&parcel.lane, &job(input)).await {
                DeliveryResult::Interrupted => return,
                DeliveryResult::Refused => carried = DeliveryResult::Refused,
                DeliveryResult::Delivered => {}
            }
        }
        let name = &parcel.event_id;
        let (settled, delivery) = match carried {
            DeliveryResult::Refused => (self.0.spool.set_aside(name).await, EventDelivery::DeadLetter),
            DeliveryResult::Delivered | DeliveryResult::Interrupted => {
                (self.0.spool.remove(name).await, EventDelivery::Delivered)
            }
        };
        if let Err(error) = settled {
            tracing::warn!(%error, event_id = %name, "a delivered event stays on the disk and will be delivered again");
        }
        self.note(name, delivery);
    }
}

#[async_trait]
impl EventBus for LocalBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        self.accept(event).await.map(|_| ())
    }
}

impl PendingDeliveries {
    /// Delivers until it is time to end. What is not delivered then stays on the disk.
    pub(crate) async fn run(mut self, dispatcher: Arc<Dispatcher>) {
        loop {
            let parcel = tokio::select! {
                parcel = self.queue.recv() => parcel,
                () = dispatcher.running().stopping() => None,
            };
            let Some(parcel) = parcel else { return };
            let bus = self.bus.clone();
            let dispatcher = dispatcher.clone();
            tokio::spawn(async move { bus.deliver(parcel, &dispatcher).await });
        }
    }
}

/// The event as EventBridge sends it.
fn envelope(event: &Event, event_id: &str, at: Timestamp) -> Value {
    json!({
        "version": "0",
        "id": event_id,
        "detail-type": event.detail_type,
        "source": event.source,
        "account": "000000000000",
        "time": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "region": "local",
        "resources": [],
        "detail": event.detail,
    })
}

/// Calls for work go to the wake-up function, everything else to the signal function.
fn job(input: Value) -> Job {
    if input["detail-type"] == WORK { Job::Wakeup(input) } else { Job::Event(input) }
}

fn matched(route: &EventTarget) -> RuleMatch {
    let input = route.input.as_ref();
    let signal = input.and_then(|input| input.pointer("/dormouse_signal/signal_id"));
    let own = input.and_then(|input| input.pointer("/detail/signal_id"));
    RuleMatch { rule: route.rule.clone(), signal_id: signal.or(own).cloned().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dormouse_ports::{EventRule, EventShape, RuleIncarnation, RuleName};
    use dormouse_system::{RandomIds, SystemClock};

    use super::*;
    use crate::dispatcher::InvokeError;
    use crate::dispatcher::tests::{Flaky, dispatcher};
    use crate::shutdown::Shutdown;

    fn open(folder: &Path) -> (LocalBus, PendingDeliveries) {
        LocalBus::open(folder, Arc::new(SystemClock::default()), Arc::new(RandomIds)).expect("a bus")
    }

    fn event(source: &str) -> Event {
        let detail = json!({"job": "j1"}).as_object().cloned().expect("a mapping");
        Event { source: source.to_owned(), detail_type: "Done".to_owned(), detail }
    }

    async fn subscribed(folder: &Path) -> (LocalBus, PendingDeliveries) {
        let (bus, deliveries) = open(folder);
        let pattern = json!({"source": ["jobs"]}).as_object().cloned().expect("a mapping");
        let shape = EventShape { pattern, correlation: "$.detail.job".to_owned() };
        let name = RuleName { shape: shape.id(), edition: Some(RuleIncarnation::of("first")) };
        bus.rules().put(&EventRule { name, shape }).await.expect("a rule");
        (bus, deliveries)
    }

    /// Waits until `happens`. Nothing is proved by its patience being short.
    async fn until(mut happens: impl FnMut() -> bool) {
        let waiting = async {
            while !happens() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), waiting).await.expect("it happens");
    }

    #[tokio::test]
    async fn an_event_that_nobody_wants_is_remembered_and_not_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let (bus, _deliveries) = subscribed(folder.path()).await;
        let published = bus.accept(event("others")).await.expect("it is published");
        assert_eq!(published.delivery, EventDelivery::Unmatched);
        assert_eq!(bus.published().len(), 1);
        assert!(bus.0.spool.load::<Parcel>().expect("files").is_empty());
    }

    #[tokio::test]
    async fn an_event_outlives_the_process_that_acknowledged_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (bus, deliveries) = subscribed(folder.path()).await;
        bus.publish(event("jobs")).await.expect("it is published");
        drop((bus, deliveries));

        let (bus, deliveries) = open(folder.path());
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        functions.failures.lock().expect("a lock").push(InvokeError::Transient("busy".to_owned()));
        tokio::spawn(deliveries.run(dispatcher(&functions, &shutdown)));
        let is_taken = || !functions.taken.lock().expect("a lock").is_empty();
        until(|| is_taken() && bus.0.spool.load::<Parcel>().expect("files").is_empty()).await;
        let taken = functions.taken.lock().expect("a lock").clone();
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].pointer("/dormouse_signal/signal_id"), Some(&json!("j1")));
        assert_eq!(taken[0].pointer("/dormouse_signal/payload"), Some(&json!({"job": "j1"})));
    }

    #[tokio::test]
    async fn what_is_refused_for_good_becomes_a_dead_letter() {
        let folder = tempfile::tempdir().expect("a folder");
        let (bus, deliveries) = subscribed(folder.path()).await;
        let functions = Arc::new(Flaky::default());
        let shutdown = Shutdown::new();
        functions.failures.lock().expect("a lock").push(InvokeError::Permanent("no".to_owned()));
        tokio::spawn(deliveries.run(dispatcher(&functions, &shutdown)));
        let published = bus.accept(event("jobs")).await.expect("it is published");
        until(|| bus.published()[0].delivery != EventDelivery::Pending).await;
        assert_eq!(bus.published()[0].delivery, EventDelivery::DeadLetter);
        assert!(folder.path().join(format!("events/{}.dead-letter", published.event_id)).exists());
    }
}
