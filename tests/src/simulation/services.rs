//! The event bus and the scheduler, as EventBridge behaves: what was taken is delivered at least once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_harness::WORK;
use dormouse_ports::{
    Event, EventRule, EventShape, EventWait, InvocationId, Map, Registration, RuleName, SignalBringer, SignalId,
    Subscription,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::PlantedBug;

/// Something for a function, kept until one has taken it.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) to: Function,
    pub(crate) input: Value,
    /// When it is delivered, or delivered again.
    pub(crate) due: Duration,
    /// Deliveries under way.
    pub(crate) in_flight: u32,
}

/// Which function takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// Events that carry signals.
    Signal,
    /// Wake-ups and sweeps.
    Wakeup,
}

/// A signal that the bus has acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Carried {
    /// As it is stored: what an event brings is a signal of its own.
    pub(crate) signal_id: SignalId,
    pub(crate) payload: Map,
    /// The parcel in which it travels; none when the bus has no rule for it.
    parcel: Option<u64>,
    /// Whether a function has taken it.
    pub(crate) delivered: bool,
    /// Whether it was put aside, because it does not fit.
    pub(crate) put_aside: bool,
}

/// The services and what they hold.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// By name, as the scheduler does: invocation, pause and deadline.
    pub(crate) schedules: BTreeMap<(InvocationId, u64, u32), Timestamp>,
    /// The ids of the passed deadlines that were announced.
    pub(crate) announced: BTreeSet<String>,
    pub(crate) parcels: BTreeMap<u64, Parcel>,
    /// Signals that the bus took, to be compared with what became of them.
    pub(crate) carried: Vec<Carried>,
    /// What the outside world will announce, and when.
    pub(crate) announcements: Vec<(Duration, Event)>,
    /// Jobs that were asked for, and that nobody has worked on yet.
    pub(crate) jobs: Vec<Map>,
    /// How often each payment of an agent was made, by the key of its call.
    pub(crate) paid: BTreeMap<String, u32>,
    /// Runs of agents whose model refused its key once.
    pub(crate) refused: BTreeSet<String>,
    rules: BTreeMap<RuleName, EventShape>,
    /// Rules that take effect with the next wait, for a bug that makes them late.
    late: Vec<EventRule>,
    /// Waits for events that were acknowledged, with the signals that they are for.
    awaited: Vec<(EventWait, SignalId)>,
    /// Those who relied on a rule that was not there, or was taken away.
    pub(crate) robbed: Vec<SignalId>,
    last: u64,
    planted: Option<PlantedBug>,
}

impl Services {
    pub(crate) fn new(planted: Option<PlantedBug>) -> Self {
        Self { planted, ..Self::default() }
    }

    /// Takes note of a wait. `waits` says who waits for a signal still.
    pub(crate) fn subscribe(&mut self, subscription: &Subscription, waits: impl Fn(&SignalId) -> bool) -> Registration {
        let mut registration = Registration::Known;
        if let Some(due) = &subscription.wake.due {
            let name = (subscription.invocation_id.clone(), subscription.generation, due.rung);
            if self.schedules.insert(name, due.at).is_none() {
                registration = Registration::Made;
            }
        }
        if let Some(wait) = &subscription.wake.event {
            self.rules.extend(self.late.drain(..).map(|rule| (rule.name, rule.shape)));
            let signal_id = subscription.descriptor.signal_id.clone();
            if waits(&signal_id) && !self.has_rule(wait, &signal_id) {
                self.robbed.push(signal_id.clone());
            }
            self.awaited.push((wait.clone(), signal_id));
        }
        registration
    }

    pub(crate) fn put_rule(&mut self, rule: EventRule) {
        match self.planted {
            Some(PlantedBug::RuleNotMade) => {}
            Some(PlantedBug::RuleAfterPause) => self.late.push(rule),
            Some(_) | None => {
                self.rules.insert(rule.name, rule.shape);
            }
        }
    }

    pub(crate) fn rules(&self) -> Vec<RuleName> {
        self.rules.keys().cloned().collect()
    }

    /// Removes a rule. `waits` says who waits for a signal still.
    pub(crate) fn remove_rule(&mut self, name: &RuleName, waits: impl Fn(&SignalId) -> bool) {
        let Some(shape) = self.rules.remove(name) else { return };
        let of_shape = |(wait, id): &&(EventWait, SignalId)| wait.shape(id).is_ok_and(|other| other == shape);
        let robbed = self.awaited.iter().filter(of_shape).filter(|(wait, id)| waits(id) && !self.has_rule(wait, id));
        let robbed: Vec<_> = robbed.map(|(_, id)| id.clone()).collect();
        self.robbed.extend(robbed);
    }

    /// Whether an event that `wait` describes reaches whoever waits for `signal_id`.
    pub(crate) fn has_rule(&self, wait: &EventWait, signal_id: &SignalId) -> bool {
        wait.shape(signal_id).is_ok_and(|shape| self.rules.values().any(|rule| *rule == shape))
    }

    /// Whether there is a rule that nobody relies on. `waits` says who waits for a signal still.
    pub(crate) fn has_idle_rule(&self, waits: impl Fn(&SignalId) -> bool) -> bool {
        let is_of = |shape: &EventShape, (wait, id): &(EventWait, SignalId)| {
            waits(id) && wait.shape(id).is_ok_and(|other| other == *shape)
        };
        // What a graph declares stays.
        let may_go = self.rules.values().filter(|shape| shape.pattern.get("source") != Some(&json!(["exporter"])));
        may_go.into_iter().any(|shape| !self.awaited.iter().any(|awaited| is_of(shape, awaited)))
    }

    pub(crate) fn cancel(&mut self, subscription: &Subscription) {
        let rung = subscription.wake.rung();
        self.schedules.remove(&(subscription.invocation_id.clone(), subscription.generation, rung));
    }

    /// Takes `event` to whoever has a rule for it. `waits` says who waits for a signal still.
    pub(crate) fn publish(&mut self, event: Event, waits: impl Fn(&SignalId) -> bool) {
        match event.detail_type.as_str() {
            WORK => {
                let call = json!({ "source": event.source, "detail-type": WORK, "detail": event.detail });
                self.keep(Function::Wakeup, call, Duration::ZERO);
            }
            "Export Requested" => self.jobs.push(event.detail.clone()),
            "Dormouse Deadline" if self.planted != Some(PlantedBug::LoseAnnouncement) => {
                self.announced.extend(event.detail.get("id").and_then(Value::as_str).map(str::to_owned));
            }
            _ => {}
        }
        let signals = |pattern: &Map, correlation: &str| {
            matches(pattern, &event).then(|| correlated(correlation, &event)).flatten().map(SignalId::from)
        };
        let of_rule = |shape: &EventShape| {
            let id = signals(&shape.pattern, &shape.correlation)?;
            Some(id.of_event(&shape.id()))
        };
        let routed: Vec<SignalId> = self.rules.values().filter_map(of_rule).collect();
        let is_awaited = |(wait, id): &&(EventWait, SignalId)| {
            waits(id) && signals(&wait.pattern, &wait.correlation).as_ref() == Some(id)
        };
        let stored = |(wait, id): &(EventWait, SignalId)| Some(id.of_event(&wait.shape(id).ok()?.id()));
        let missed = self.awaited.iter().find(is_awaited).and_then(stored).filter(|id| !routed.contains(id));
        // Whoever asked for an export waits for its end, or is about to.
        let job = event.detail.get("job_id").and_then(Value::as_str).filter(|job| job.starts_with("export-"));
        let job = job.filter(|_| event.source == "exporter");
        let missed = missed.or_else(|| job.filter(|_| routed.is_empty()).map(SignalId::from));
        for id in routed {
            self.carry_event(id, &event);
        }
        let payload = event.detail;
        self.carried.extend(missed.map(|signal_id| Carried {
            signal_id,
            payload,
            parcel: None,
            delivered: false,
            put_aside: false,
        }));
    }

    /// Takes a signal of our own to the signal function.
    pub(crate) fn carry_signal(&mut self, signal_id: SignalId, payload: Map) {
        let detail = json!({ "signal_id": signal_id, "payload": payload });
        let input = json!({ "id": null, "source": "dormouse", "detail-type": "Dormouse Signal", "detail": detail });
        self.carry(signal_id, payload, input);
    }

    /// Takes what a rule found in `event` to the signal function.
    fn carry_event(&mut self, stored: SignalId, event: &Event) {
        let (bringer, signal_id) = stored.origin();
        let shape = match bringer {
            Some(SignalBringer::Events(shape)) => Some(shape),
            Some(SignalBringer::Tenant(_)) | None => None,
        };
        let signal = json!({ "signal_id": signal_id, "payload": event.detail, "event_id": null,
            "source": event.source, "detail_type": event.detail_type, "shape": shape });
        self.carry(stored, event.detail.clone(), json!({ "dormouse_signal": signal }));
    }

    fn carry(&mut self, signal_id: SignalId, payload: Map, input: Value) {
        let parcel = Some(self.keep(Function::Signal, input, Duration::ZERO));
        self.carried.push(Carried { signal_id, payload, parcel, delivered: false, put_aside: false });
    }

    /// Keeps something for a function until it takes it.
    fn keep(&mut self, to: Function, input: Value, due: Duration) -> u64 {
        self.last += 1;
        self.parcels.insert(self.last, Parcel { to, input, due, in_flight: 0 });
        self.last
    }

    /// A function has taken the parcel, or will never take it.
    pub(crate) fn settle(&mut self, parcel: u64) {
        self.parcels.remove(&parcel);
        for carried in self.carried.iter_mut().filter(|carried| carried.parcel == Some(parcel)) {
            carried.delivered = true;
        }
    }

    /// A function says that what the parcel carries does not fit: it is put aside.
    pub(crate) fn put_aside(&mut self, parcel: u64) {
        for carried in self.carried.iter_mut().filter(|carried| carried.parcel == Some(parcel)) {
            carried.put_aside = true;
        }
        self.settle(parcel);
    }

    /// Turns schedules that fell due into parcels, as many of each as `times` says: none of one that is lost.
    pub(crate) fn fire(&mut self, now: Timestamp, elapsed: Duration, mut times: impl FnMut() -> u8) {
        for ((id, generation, _), at) in self.schedules.extract_if(.., |_, at| *at <= now).collect::<Vec<_>>() {
            let wakeup = json!({ "invocation_id": id, "generation": generation, "due_at": at });
            for _ in 0..times() {
                self.keep(Function::Wakeup, json!({ "dormouse_wakeup": wakeup }), elapsed);
            }
        }
    }

    /// Announces what it is time for.
    pub(crate) fn announce(&mut self, elapsed: Duration, waits: impl Fn(&SignalId) -> bool) {
        let due: Vec<_> = self.announcements.extract_if(.., |(at, _)| *at <= elapsed).collect();
        for (_, event) in due {
            self.publish(event, &waits);
        }
    }
}

/// Patterns here name values of top-level fields only.
fn matches(pattern: &Map, event: &Event) -> bool {
    pattern.iter().all(|(field, choices)| {
        let value = match field.as_str() {
            "source" => &event.source,
            "detail-type" => &event.detail_type,
            _ => return false,
        };
        choices.as_array().is_some_and(|choices| choices.iter().any(|choice| choice == value))
    })
}

fn correlated<'e>(correlation: &str, event: &'e Event) -> Option<&'e str> {
    event.detail.get(correlation.strip_prefix("$.detail.")?)?.as_str()
}
