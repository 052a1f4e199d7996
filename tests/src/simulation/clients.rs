mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_ports::{InvocationId, Map, SignalId};
use serde_json::Value;

use super::agents::{decisions, is_agent};
use super::graphs::JURY;
use super::requests::{ProtocolRequest, tenant};
use super::workload::{Operation, answer, misfit};

/// A wish on its way.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    /// When it is asked for, or asked for again.
    pub(crate) due: Duration,
    /// Requests under way.
    pub(crate) in_flight: u32,
    /// Whether its client has been told what came of it.
    pub(crate) told: bool,
}

/// Everybody who asks for something, and what they remember.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) jobs: Vec<Job>,
    /// What was sent to each pause by its address.
    pub(crate) sent_to: BTreeMap<(InvocationId, u64), Vec<Map>>,
    /// What was sent for each part of a pause by its own address.
    pub(crate) sent_for: BTreeMap<(InvocationId, u64, String), Vec<Map>>,
    /// What was sent under each signal id, as it is stored.
    pub(crate) signalled: BTreeMap<SignalId, Vec<Map>>,
    /// What an answer said was kept: the session, and something that stands in it.
    pub(crate) kept: Vec<(String, String)>,
    /// What each idempotency key was answered with.
    pub(crate) answers: BTreeMap<String, Value>,
    /// What each task was to hear that was accepted, by the key of its request.
    pub(crate) submitted: BTreeMap<String, Option<String>>,
    /// The keys whose answer was acted upon.
    pub(crate) heard: BTreeSet<String>,
    /// The tasks that were accepted, and the graphs that do them.
    tasks: BTreeMap<String, &'static str>,
    /// Waits of tasks that somebody has decided to answer or to leave: the task, and since when it waits.
    attended: BTreeSet<(String, String)>,
    /// How many sessions of the protocol there are.
    sessions: usize,
    /// Pauses that somebody has decided to answer or to leave.
    seen: BTreeSet<(String, u64)>,
    tokens: u32,
    /// Whether some of the work kills who does it.
    pub(crate) poisons: bool,
    /// Whether keys of tenants send signals.
    pub(crate) signals_of_tenants: bool,
}

/// A pause that a client was told of.
pub(crate) struct Told<'a> {
    pub(crate) graph: &'a str,
    pub(crate) invocation: &'a str,
    pub(crate) generation: u64,
    pub(crate) signal_id: &'a str,
    pub(crate) callback: &'a str,
    /// The address of each part, when it expects several signals.
    pub(crate) parts: Vec<(&'a str, &'a str)>,
    pub(crate) status: &'a str,
    pub(crate) cancel: &'a str,
}

impl Clients {
    pub(crate) fn operation(&mut self, due: Duration, operation: Operation) {
        match &operation {
            Operation::Callback { invocation, generation, payload, fits: true, .. } => {
                self.sent_to.entry((invocation.as_str().into(), *generation)).or_default().push(payload.clone());
            }
            Operation::Answer { invocation, generation, part, payload, .. } => {
                let part = (invocation.as_str().into(), *generation, part.clone());
                self.sent_for.entry(part).or_default().push(payload.clone());
            }
            Operation::Signal { signal_id, payload } | Operation::Event { signal_id, payload } => {
                self.signalled.entry(signal_id.as_str().into()).or_default().push(payload.clone());
            }
            Operation::TenantSignal { own, signal_id, payload } => {
                let stored = SignalId::from(signal_id.as_str()).of_tenant(tenant(*own));
                self.signalled.entry(stored).or_default().push(payload.clone());
            }
            Operation::ProtocolRequest(ProtocolRequest::Answer { task, part: Some(part), payload, .. }) => {
                let part = (task.as_str().into(), 1, (*part).to_owned());
                self.sent_for.entry(part).or_default().push(payload.clone());
            }
            Operation::ProtocolRequest(ProtocolRequest::Answer { task, part: None, payload, fits: true, .. }) => {
                self.sent_to_task(task, payload);
            }
            Operation::ProtocolRequest(ProtocolRequest::Respond { task, payload, .. }) => {
                self.sent_to_task(task, payload);
            }
            Operation::Turn { .. }
            | Operation::ProtocolRequest(_)
            | Operation::Message { .. }
            | Operation::Hear { .. }
            | Operation::Callback { .. }
            | Operation::Cancel { .. }
            | Operation::Retry { .. }
            | Operation::Status { .. } => {}
        }
        self.jobs.push(Job { operation, due, in_flight: 0, told: false });
    }

    /// Whether everybody has been told what came of their wishes.
    pub(crate) fn are_content(&self) -> bool {
        self.jobs.iter().all(|job| job.told)
    }

    /// Lets people decide what to do about a pause that they hear of.
    pub(crate) fn react(&mut self, told: &Told<'_>, now: Duration, chance: &mut fastrand::Rng) {
        if !self.seen.insert((told.invocation.to_owned(), told.generation)) {
            return;
        }
        let later = |chance: &mut fastrand::Rng| now + Duration::from_millis(chance.u64(0..5_000));
        if chance.u8(..4) == 0 {
            let invocation = told.invocation.to_owned();
            let address = told.status.to_owned();
            self.operation(later(chance), Operation::Status { invocation, address });
        }
        if chance.u8(..12) == 0 {
            let invocation = told.invocation.to_owned();
            let address = told.cancel.to_owned();
            self.operation(later(chance), Operation::Cancel { invocation, pause: Some((told.generation, address)) });
        }
        if told.graph == JURY {
            return self.vote(told, now, chance);
        }
        if is_agent(told.graph) {
            return self.decide(told, now, chance);
        }
        if told.graph == "ladder" && chance.u8(..4) > 0 {
            // Most people let a deadline pass.
            return;
        }
        let by_signal = told.graph != "again";
        match chance.u8(..100) {
            0..40 => self.call_back(told, later(chance)),
            40..52 => {
                self.call_back(told, later(chance));
                self.call_back(told, later(chance));
            }
            52..64 if by_signal => {
                let signal_id = told.signal_id.to_owned();
                let payload = self.answer(told.graph);
                self.operation(later(chance), Operation::Signal { signal_id, payload });
            }
            64..76 if by_signal => {
                let signal_id = told.signal_id.to_owned();
                let payload = self.answer(told.graph);
                self.operation(later(chance), Operation::Event { signal_id, payload });
            }
            76..92 => {
                let at = later(chance);
                self.operation(at, callback(told, misfit(told.graph, chance), false));
                self.call_back(told, later(chance));
            }
            _ => {}
        }
    }

    /// Somebody sees that an invocation was put aside, for the `times`th time, and decides what is to become of it; and
    /// whoever began it asks what became of it.
    pub(crate) fn look_after(&mut self, id: &InvocationId, times: u32, now: Duration, chance: &mut fastrand::Rng) {
        let at = now + Duration::from_millis(chance.u64(0..30_000));
        let invocation = id.to_string();
        match chance.u8(..6) {
            0..=3 if times < 3 => self.operation(at, Operation::Retry { invocation }),
            4 => self.operation(at, Operation::Cancel { invocation, pause: None }),
            _ => {}
        }
        let turn = self.jobs.iter().map(|job| &job.operation);
        let mut turn = turn
            .filter(|operation| matches!(operation, Operation::Turn { invocation, .. } if invocation == id.as_str()));
        if let Some(turn) = turn.next().cloned() {
            self.operation(now + Duration::from_millis(chance.u64(0..60_000)), turn);
        }
    }

    /// Lets each of those who were asked answer once, twice or never, in one way or another; or all at once, of whom one
    /// says no.
    fn vote(&mut self, told: &Told<'_>, now: Duration, chance: &mut fastrand::Rng) {
        let at_once = chance.bool();
        for (number, (part, address)) in told.parts.iter().enumerate() {
            let (times, spread) = if at_once { (1, 1) } else { ([0, 1, 1, 2][chance.usize(..4)], 5_000) };
            for _ in 0..times {
                let payload = self.vote_of_one(if at_once { number == 0 } else { chance.u8(..6) == 0 });
                let signal_id = format!("{}/{part}", told.signal_id);
                let invocation = told.invocation.to_owned();
                let generation = told.generation;
                let operation = match chance.u8(..4) {
                    0 => Operation::Signal { signal_id, payload },
                    1 => Operation::Event { signal_id, payload },
                    _ => {
                        let part = (*part).to_owned();
                        let address = (*address).to_owned();
                        Operation::Answer { invocation, generation, part, address, payload }
                    }
                };
                self.operation(now + Duration::from_millis(chance.u64(0..spread)), operation);
            }
        }
    }

    /// Lets a person decide about the calls of an agent, or overlook some of them.
    fn decide(&mut self, told: &Told<'_>, now: Duration, chance: &mut fastrand::Rng) {
        let choices = decisions(told.signal_id);
        if choices.is_empty() {
            return;
        }
        let mut decision = || {
            let at = now + Duration::from_millis(chance.u64(0..5_000));
            let says = choices[chance.usize(..choices.len())];
            let payload = Map::from_iter([("decision".to_owned(), says.into())]);
            (chance.u8(..8) > 0).then_some((at, payload))
        };
        if told.parts.is_empty() {
            if let Some((at, payload)) = decision() {
                self.operation(at, callback(told, payload, true));
            }
            return;
        }
        for (part, address) in &told.parts {
            if let Some((at, payload)) = decision() {
                let invocation = told.invocation.to_owned();
                let generation = told.generation;
                let part = (*part).to_owned();
                let address = (*address).to_owned();
                self.operation(at, Operation::Answer { invocation, generation, part, address, payload });
            }
        }
    }

    /// What one of the jury says.
    fn vote_of_one(&mut self, says_no: bool) -> Map {
        let mut vote = self.answer(JURY);
        if says_no {
            vote.insert("veto".to_owned(), true.into());
        }
        vote
    }

    fn call_back(&mut self, told: &Told<'_>, due: Duration) {
        let payload = self.answer(told.graph);
        self.operation(due, callback(told, payload, true));
    }

    fn answer(&mut self, graph: &str) -> Map {
        self.tokens += 1;
        answer(graph, &format!("a-{}", self.tokens))
    }

    /// Whether more than one payload was sent under this signal id, as it is stored.
    pub(crate) fn compete_for(&self, stored: &SignalId) -> bool {
        self.signalled.get(stored).is_some_and(|sent| sent.len() > 1)
    }
}

fn callback(told: &Told<'_>, payload: Map, fits: bool) -> Operation {
    let invocation = told.invocation.to_owned();
    let generation = told.generation;
    let address = told.callback.to_owned();
    Operation::Callback { invocation, generation, address, payload, fits }
}

/// The text at `name`, or nothing.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
