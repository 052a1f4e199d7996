use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_ports::{InvocationId, Map, SignalId};
use serde_json::Value;

use super::clerk::Ask;
use super::workload::{Wish, answer, misfit};

/// A wish on its way.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    pub(crate) wish: Wish,
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
    pub(crate) errands: Vec<Errand>,
    /// What was sent to each pause by its address.
    pub(crate) sent_to: BTreeMap<(InvocationId, u64), Vec<Map>>,
    /// What was sent under each signal id.
    pub(crate) signalled: BTreeMap<SignalId, Vec<Map>>,
    /// What an answer said was kept: the session, and something that stands in it.
    pub(crate) kept: Vec<(String, String)>,
    /// The task that was made for each key, and the graph that does it.
    pub(crate) tasks: BTreeMap<String, (String, &'static str)>,
    /// Pauses that somebody has decided to answer or to leave.
    seen: BTreeSet<(String, u64)>,
    tokens: u32,
}

/// A pause that a client was told of.
pub(crate) struct Told<'a> {
    pub(crate) graph: &'a str,
    pub(crate) invocation: &'a str,
    pub(crate) generation: u64,
    pub(crate) signal_id: &'a str,
    pub(crate) callback: &'a str,
    pub(crate) status: &'a str,
}

impl Clients {
    pub(crate) fn wish(&mut self, due: Duration, wish: Wish) {
        match &wish {
            Wish::Callback { invocation, generation, payload, fits: true, .. } => {
                self.sent_to.entry((invocation.as_str().into(), *generation)).or_default().push(payload.clone());
            }
            Wish::Signal { signal_id, payload } | Wish::Event { signal_id, payload } => {
                self.signalled.entry(signal_id.as_str().into()).or_default().push(payload.clone());
            }
            Wish::Task(Ask::Answer { task, payload }) => {
                self.sent_to.entry((task.as_str().into(), 1)).or_default().push(payload.clone());
            }
            Wish::Turn { .. }
            | Wish::Task(_)
            | Wish::Message { .. }
            | Wish::Callback { .. }
            | Wish::Cancel { .. }
            | Wish::Status { .. } => {}
        }
        self.errands.push(Errand { wish, due, in_flight: 0, told: false });
    }

    /// Whether everybody has been told what came of their wishes.
    pub(crate) fn are_content(&self) -> bool {
        self.errands.iter().all(|errand| errand.told)
    }

    /// Lets people decide what to do about a pause that they hear of.
    pub(crate) fn react(&mut self, told: &Told<'_>, now: Duration, chance: &mut fastrand::Rng) {
        if !self.seen.insert((told.invocation.to_owned(), told.generation)) {
            return;
        }
        let later = |chance: &mut fastrand::Rng| now + Duration::from_millis(chance.u64(0..5_000));
        if chance.u8(..4) == 0 {
            let (invocation, address) = (told.invocation.to_owned(), told.status.to_owned());
            self.wish(later(chance), Wish::Status { invocation, address });
        }
        if chance.u8(..12) == 0 {
            let (invocation, address) = (told.invocation.to_owned(), told.status.replace("?token=", "/cancel?token="));
            self.wish(later(chance), Wish::Cancel { invocation, pause: Some((told.generation, address)) });
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
                let (signal_id, payload) = (told.signal_id.to_owned(), self.answer(told.graph));
                self.wish(later(chance), Wish::Signal { signal_id, payload });
            }
            64..76 if by_signal => {
                let (signal_id, payload) = (told.signal_id.to_owned(), self.answer(told.graph));
                self.wish(later(chance), Wish::Event { signal_id, payload });
            }
            76..92 => {
                self.wish(later(chance), callback(told, misfit(told.graph), false));
                self.call_back(told, later(chance));
            }
            _ => {}
        }
    }

    /// The task of `key` is heard of for the first time: somebody will look how it is going, or change their mind.
    pub(crate) fn follow(&mut self, task: &str, now: Duration, chance: &mut fastrand::Rng) {
        let task = || task.to_owned();
        for _ in 0..3 {
            let later = now + Duration::from_millis(chance.u64(0..20_000));
            self.wish(later, Wish::Task(Ask::Look { task: task() }));
        }
        if chance.u8(..5) == 0 {
            let later = now + Duration::from_millis(chance.u64(0..5_000));
            self.wish(later, Wish::Task(Ask::Cancel { task: task() }));
        }
    }

    /// Lets people decide what to do about a task that waits.
    pub(crate) fn attend(&mut self, task: &str, now: Duration, chance: &mut fastrand::Rng) {
        let graph = self.tasks.values().find(|(id, _)| id == task).map_or("ask", |(_, graph)| graph);
        if self.seen.insert((task.to_owned(), 1)) && chance.u8(..4) > 0 {
            let payload = self.answer(graph);
            let answer = Ask::Answer { task: task.to_owned(), payload };
            self.wish(now + Duration::from_millis(chance.u64(0..5_000)), Wish::Task(answer));
        }
    }

    fn call_back(&mut self, told: &Told<'_>, due: Duration) {
        let payload = self.answer(told.graph);
        self.wish(due, callback(told, payload, true));
    }

    fn answer(&mut self, graph: &str) -> Map {
        self.tokens += 1;
        answer(graph, &format!("a-{}", self.tokens))
    }

    /// Whether more than one payload was sent under this signal id.
    pub(crate) fn compete_for(&self, signal_id: &str) -> bool {
        self.signalled.get(&signal_id.into()).is_some_and(|sent| sent.len() > 1)
    }
}

fn callback(told: &Told<'_>, payload: Map, fits: bool) -> Wish {
    let (invocation, generation, address) = (told.invocation.to_owned(), told.generation, told.callback.to_owned());
    Wish::Callback { invocation, generation, address, payload, fits }
}

/// The text at `name`, or nothing.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
