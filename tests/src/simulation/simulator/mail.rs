//! Requests, events and wake-ups on their way, and the replies.

use std::sync::PoisonError;
use std::time::Duration;

use dormouse_http::TriggerError;
use dormouse_ports::{Category, Event};
use serde_json::{Value, json};

use super::{Delivery, Letter, Simulator, Source};
use crate::simulation::PlantedBug;
use crate::simulation::clients::{Job, text};
use crate::simulation::fault_plan::Fault;
use crate::simulation::history::Violation;
use crate::simulation::oracle::{Oracle, Verdict};
use crate::simulation::process::{Message, Reply};
use crate::simulation::services::{Function, Parcel};
use crate::simulation::workload::Operation;

impl Simulator {
    /// Sends what it is time for.
    pub(super) fn post(&mut self) {
        let now = self.world.now();
        let elapsed = self.world.lock().elapsed;
        let world = self.world.clone();
        let stormy = self.stormy;
        self.outside.announce(elapsed);
        self.outside.services.fire(now, elapsed, || {
            let mut world = world.lock();
            let world = &mut *world;
            match world.fault_plan.strikes(Fault::ScheduleLost, &mut world.chance) {
                true => 0,
                // The scheduler delivers at least once.
                false => 1 + u8::from(stormy && world.chance.u8(..4) == 0),
            }
        });
        self.work_on_jobs(elapsed);
        for (id, times) in std::mem::take(&mut self.outside.history.alarms) {
            self.clients.look_after(&id, times, elapsed, &mut self.world.lock().chance);
        }
        for index in 0..self.clients.jobs.len() {
            let job = &self.clients.jobs[index];
            if job.told || job.in_flight > 0 || job.due > elapsed {
                continue;
            }
            match job.operation.message() {
                Some(message) => {
                    self.trace.note(format_args!("a client asks: {}", self.clients.jobs[index].operation));
                    self.send(Source::Job(index), &message);
                }
                None => self.put_on_bus(index),
            }
        }
        let due = |parcel: &Parcel| parcel.in_flight == 0 && parcel.due <= elapsed;
        let parcels = self.outside.services.parcels.iter().filter(|(_, parcel)| due(parcel));
        let parcels: Vec<_> = parcels.map(|(number, parcel)| (*number, parcel.to, parcel.input.clone())).collect();
        for (number, to, input) in parcels {
            let message = match to {
                Function::Signal => Message::Event(input),
                Function::Wakeup => Message::Wakeup(input),
            };
            self.send(Source::Parcel(number), &message);
        }
    }

    fn put_on_bus(&mut self, index: usize) {
        let job = &mut self.clients.jobs[index];
        job.told = true;
        self.trace.note(format_args!("{} is on the bus", job.operation));
        match &job.operation {
            Operation::Event { signal_id, payload } => {
                self.outside.services.carry_signal(signal_id.as_str().into(), payload.clone());
            }
            Operation::Hear { event } => self.outside.publish(event.clone()),
            Operation::Turn { .. }
            | Operation::Message { .. }
            | Operation::Callback { .. }
            | Operation::Answer { .. }
            | Operation::Signal { .. }
            | Operation::TenantSignal { .. }
            | Operation::Cancel { .. }
            | Operation::ProtocolRequest(_)
            | Operation::Retry { .. }
            | Operation::Status { .. } => {}
        }
    }

    /// The exporter finishes its jobs after a while, and says so.
    fn work_on_jobs(&mut self, elapsed: Duration) {
        for mut detail in std::mem::take(&mut self.outside.services.jobs) {
            // Some are done before whoever asked for them sleeps.
            let longest = if self.chance(fastrand::Rng::bool) { 200 } else { 60_000 };
            let at = elapsed + Duration::from_millis(self.chance(|chance| chance.u64(0..longest)));
            let url = format!("s3://{}", text(&json!(detail), "job_id"));
            detail.extend(crate::map(json!({ "status": "succeeded", "url": url })));
            let source = "exporter".to_owned();
            let detail_type = "Export Finished".to_owned();
            let event = Event { source, detail_type, detail };
            self.outside.services.announcements.push((at, event));
        }
    }

    /// Puts a message on its way, where it may be lost or doubled.
    pub(super) fn send(&mut self, source: Source, message: &Message) {
        let copies = if self.strikes(Fault::MessageLost) {
            0
        } else if self.may_be_repeated(source) && self.strikes(Fault::MessageDoubled) {
            2
        } else {
            1
        };
        self.add_in_flight(source, copies);
        for _ in 0..copies {
            self.letters.push(Letter { source, message: message.clone() });
        }
        if copies == 0 {
            self.trace.note(format_args!("{source:?} is lost on its way"));
            self.retry_later(source);
        }
    }

    /// A process takes a message in.
    pub(super) fn arrive(&mut self, index: usize) {
        let Letter { source, message } = self.letters.swap_remove(index);
        let process = self.chance(|chance| chance.usize(..self.processes.len()));
        let process = &self.processes[process];
        self.delivered += 1;
        let number = self.delivered;
        let replies = self.replies.clone();
        self.trace.note(format_args!("p{} takes in {source:?} as delivery {number}", process.id));
        let work = process.serve(message);
        let task = async move {
            let reply = work.await;
            replies.lock().unwrap_or_else(PoisonError::into_inner).push((number, reply));
        };
        let process = process.id;
        let task = self.executor.spawn(process, Box::pin(task));
        self.running.insert(number, Delivery { source, process, task });
    }

    /// Whoever sent the message hears of it; nothing, when its worker died or the reply was lost.
    pub(super) fn receive(&mut self, source: Source, reply: Option<Reply>) -> Result<(), Violation> {
        self.note_reply(source, reply.as_ref());
        match source {
            Source::Sweep => self.outside.look_for_damage(),
            Source::Job(index) => {
                self.clients.jobs[index].in_flight -= 1;
                let verdict = match reply {
                    Some(reply) => self.oracle(index, &reply)?,
                    None if self.may_be_repeated(source) => Verdict::Again,
                    None => Verdict::Done,
                };
                match verdict {
                    Verdict::Done => self.clients.jobs[index].told = true,
                    Verdict::Again => self.retry_later(source),
                }
            }
            Source::Parcel(number) => {
                if let Some(parcel) = self.outside.services.parcels.get_mut(&number) {
                    parcel.in_flight -= 1;
                }
                match reply {
                    Some(Reply::Trigger(Ok(_))) => self.outside.services.settle(number),
                    Some(Reply::Trigger(Err(_))) if self.planted == Some(PlantedBug::AcknowledgeFailure) => {
                        self.outside.services.settle(number);
                    }
                    Some(Reply::Trigger(Err(TriggerError::Turn(error)))) if error.is_unfit() => {
                        match self.planted == Some(PlantedBug::AcknowledgeMisfit) {
                            true => self.outside.services.settle(number),
                            false => self.outside.services.put_aside(number),
                        }
                    }
                    // The service gives up while its invocation is put aside, and keeps it for the operator.
                    Some(Reply::Trigger(Err(TriggerError::Turn(error))))
                        if error.category == Category::AttemptsExhausted =>
                    {
                        self.outside.services.put_aside(number);
                    }
                    Some(Reply::Trigger(Err(TriggerError::Unreadable(how)))) => {
                        return Err(Violation { invariant: "functions read what services send", how });
                    }
                    Some(Reply::Trigger(Err(TriggerError::Turn(_))) | Reply::Http(_) | Reply::Retried(_)) | None => {
                        self.retry_later(source);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether its sender may send it again without a word of what came of it.
    fn may_be_repeated(&self, source: Source) -> bool {
        match source {
            Source::Job(index) => self.clients.jobs[index].operation.may_be_repeated(),
            Source::Parcel(_) | Source::Sweep => true,
        }
    }

    fn oracle(&mut self, index: usize, reply: &Reply) -> Result<Verdict, Violation> {
        let operation = self.clients.jobs[index].operation.clone();
        let mut world = self.world.lock();
        let now = world.elapsed;
        let history = &self.outside.history;
        let carried = &self.outside.services.carried[..];
        let mut oracle = Oracle { history, clients: &mut self.clients, carried, now, chance: &mut world.chance };
        let verdict = match reply {
            Reply::Http(response) => oracle.oracle(&operation, response),
            Reply::Retried(answer) => oracle.retried(&operation, answer),
            Reply::Trigger(_) => Ok(Verdict::Again),
        };
        verdict.map_err(|how| Violation { invariant: "an answer tells what is stored", how })
    }

    fn note_reply(&mut self, source: Source, reply: Option<&Reply>) {
        match reply {
            None => self.trace.note(format_args!("{source:?} hears nothing")),
            Some(Reply::Http(response)) => {
                let error = &response.body["error"];
                let what = error.get("category").or_else(|| error.get("code")).unwrap_or(&Value::Null);
                self.trace.note(format_args!("{source:?} is told {} {what}", response.status));
            }
            Some(Reply::Retried(Ok(()))) => self.trace.note(format_args!("{source:?} is told that it is tried again")),
            Some(Reply::Retried(Err(error))) => self.trace.note(format_args!("{source:?} is told {}", error.category)),
            Some(Reply::Trigger(Ok(value))) => self.trace.note(format_args!("{source:?} is told {value}")),
            Some(Reply::Trigger(Err(error))) => self.trace.note(format_args!("{source:?} failed: {error}")),
        }
    }

    fn add_in_flight(&mut self, source: Source, copies: u32) {
        match source {
            Source::Job(index) => self.clients.jobs[index].in_flight += copies,
            Source::Parcel(number) => {
                if let Some(parcel) = self.outside.services.parcels.get_mut(&number) {
                    parcel.in_flight += copies;
                }
            }
            Source::Sweep => {}
        }
    }

    fn retry_later(&mut self, source: Source) {
        let pause = Duration::from_millis(self.chance(|chance| chance.u64(50..8_000)));
        let due = self.world.lock().elapsed + pause;
        match source {
            Source::Job(index) => self.clients.jobs[index].due = due,
            Source::Parcel(number) => {
                if let Some(parcel) = self.outside.services.parcels.get_mut(&number) {
                    parcel.due = due;
                }
            }
            Source::Sweep => {}
        }
    }

    /// Somebody who has not been answered asks again, while the first request is under way still.
    pub(super) fn lose_patience(&mut self) {
        let waiting = |(index, job): (usize, &Job)| {
            (!job.told && job.in_flight == 1 && job.operation.may_be_repeated()).then_some(index)
        };
        let waiting: Vec<usize> = self.clients.jobs.iter().enumerate().filter_map(waiting).collect();
        if waiting.is_empty() {
            return;
        }
        let index = waiting[self.chance(|chance| chance.usize(..waiting.len()))];
        if let Some(message) = self.clients.jobs[index].operation.message() {
            self.trace.note(format_args!("a client loses patience: {}", self.clients.jobs[index].operation));
            self.send(Source::Job(index), &message);
        }
    }
}
