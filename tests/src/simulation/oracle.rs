//! What answers mean: whether somebody has to ask again, and what an answer may not say.

mod requests;

use std::time::Duration;

use dormouse_harness::{Bucket, TurnError};
use dormouse_ports::{Category, InvocationId, InvocationRecord, InvocationStatus, Map, SignalId};
use serde_json::Value;

use super::clients::{Clients, Told, text};
use super::history::{History, Pause, has_ended, is_aside};
use super::requests::tenant;
use super::services::Carried;
use super::workload::Operation;
use crate::HttpAnswer;

/// What a client makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// That was it.
    Done,
    /// Ask again later.
    Again,
}

/// Who judges an answer.
pub(crate) struct Oracle<'a> {
    pub(crate) history: &'a History,
    pub(crate) clients: &'a mut Clients,
    /// Signals that events carry.
    pub(crate) carried: &'a [Carried],
    pub(crate) now: Duration,
    pub(crate) chance: &'a mut fastrand::Rng,
}

impl Oracle<'_> {
    /// Judges the answer to `wish`.
    ///
    /// # Errors
    /// Why the answer may not be.
    pub(crate) fn oracle(&mut self, operation: &Operation, answer: &HttpAnswer) -> Result<Verdict, String> {
        if let Operation::ProtocolRequest(ask) = operation {
            return self.judge_ask(ask, answer);
        }
        match (answer.status, &answer.body["error"]["retry_safe"], operation.may_be_repeated()) {
            (429 | 503, Value::Bool(true), _) | (504, Value::Bool(false), true) => return Ok(Verdict::Again),
            (504, Value::Bool(false), false) => return Ok(Verdict::Done),
            _ => {}
        }
        let fitting = match operation {
            Operation::Turn { graph, invocation, session, .. } => {
                self.turn(graph, invocation, session.as_deref(), answer)
            }
            Operation::Message { session, text, .. } => self.message(session, text, answer),
            Operation::Callback { invocation, generation, fits, .. } => {
                self.callback(invocation, *generation, *fits, answer)
            }
            Operation::Answer { invocation, generation, part, .. } => self.part(invocation, *generation, part, answer),
            Operation::Signal { signal_id, payload } => self.signal(&signal_id.as_str().into(), payload, answer),
            Operation::TenantSignal { own, signal_id, payload } => {
                let stored = SignalId::from(signal_id.as_str()).of_tenant(tenant(*own));
                match answer.body["status"] == "delivered" {
                    true => answer.status == 200 && self.has_reached(&stored),
                    false => self.signal(&stored, payload, answer),
                }
            }
            Operation::Cancel { invocation, pause } => {
                self.canceled(invocation, pause.as_ref().map(|(n, _)| *n), answer)
            }
            Operation::Status { .. } => answer.status == 200,
            Operation::Event { .. }
            | Operation::Hear { .. }
            | Operation::Retry { .. }
            | Operation::ProtocolRequest(_) => false,
        };
        if fitting {
            return Ok(Verdict::Done);
        }
        Err(format!("{operation} was answered {} {}", answer.status, answer.body))
    }

    /// Judges what somebody was told who wanted an invocation to be tried again.
    ///
    /// # Errors
    /// Why the answer may not be.
    pub(crate) fn retried(&mut self, operation: &Operation, answer: &Result<(), TurnError>) -> Result<Verdict, String> {
        let Operation::Retry { invocation } = operation else { return Err(format!("{operation} is no retry")) };
        let was_retried = self.history.retries(&invocation.as_str().into()) > 0;
        let is_aside = self.record(invocation).is_some_and(|record| is_aside(&record));
        let fitting = match answer {
            Ok(()) => was_retried,
            Err(error) if error.bucket == Bucket::RetryableTransient => return Ok(Verdict::Again),
            Err(error) => error.category == Category::SuspensionRecordInvalid && (was_retried || !is_aside),
        };
        if fitting { Ok(Verdict::Done) } else { Err(format!("{operation} was answered {answer:?}")) }
    }

    fn turn(&mut self, graph: &str, invocation: &str, session: Option<&str>, answer: &HttpAnswer) -> bool {
        match (self.record(invocation), answer.status) {
            (Some(record), 200) => match (&record.status, session) {
                (InvocationStatus::Completed { .. }, Some(session)) if !record.paused.has_paused() => {
                    self.clients.kept.push((session.to_owned(), invocation.to_owned()));
                    true
                }
                (status, _) => matches!(status, InvocationStatus::Completed { .. }),
            },
            (Some(_), 202) => self.suspended(graph, &answer.body),
            (Some(record), _) => self.ended_with(&record, &answer.body),
            (None, _) => false,
        }
    }

    fn message(&mut self, session: &str, said: &str, answer: &HttpAnswer) -> bool {
        if ![200, 202].contains(&answer.status) {
            // A chat whose message may be saved or not is not to be asked again (harness-chat §10.1).
            // What is said again by its key may have ended badly.
            let of_session =
                |record: &&InvocationRecord| record.paused.session_id.as_ref().is_some_and(|id| id.as_str() == session);
            let mut known = self.history.invocations.values().filter(of_session);
            return answer.body["error"]["category"] == "session_save_failed"
                || known.any(|record| self.ended_with(record, &answer.body));
        }
        self.clients.kept.push((session.to_owned(), said.to_owned()));
        answer.status == 200 || self.suspended("chat", &answer.body)
    }

    fn callback(&mut self, invocation: &str, generation: u64, fits: bool, answer: &HttpAnswer) -> bool {
        let over = self.history.is_over(&invocation.into(), generation);
        let Some(record) = self.record(invocation) else { return false };
        match answer.status {
            200 | 202 => {
                // Whoever began it hears of the next pause by asking again.
                if answer.status == 202 {
                    self.ask_again(invocation);
                }
                over
            }
            422 if !fits => true,
            409 | 410 if is_over_message(&answer.body) => over,
            _ => self.ended_with(&record, &answer.body),
        }
    }

    /// The answer of a part is accepted and stands in the record, or the pause is over.
    fn part(&mut self, invocation: &str, generation: u64, part: &str, answer: &HttpAnswer) -> bool {
        let Some(record) = self.record(invocation) else { return false };
        let over = self.history.is_over(&invocation.into(), generation);
        match answer.status {
            202 if answer.body["accepted"] == part => over || has_answered(&record, part),
            200 | 202 => {
                self.ask_again(invocation);
                over
            }
            409 | 410 if is_over_message(&answer.body) => over || has_answered(&record, part),
            _ => self.ended_with(&record, &answer.body),
        }
    }

    /// A signal came that is stored as `signal_id`.
    fn signal(&mut self, signal_id: &SignalId, payload: &Map, answer: &HttpAnswer) -> bool {
        match answer.status {
            202 if text(&answer.body, "status") == "buffered" => self.history.parked.contains_key(signal_id),
            200 | 202 => {
                let invocation = text(&answer.body, "invocation_id").to_owned();
                self.ask_again(&invocation);
                let accepted = text(&answer.body, "accepted");
                self.record(&invocation)
                    .is_some_and(|record| accepted.is_empty() || has_ended(&record) || has_answered(&record, accepted))
            }
            // Another payload was first: that of another client, or of an event.
            400 => {
                let other = |carried: &Carried| carried.signal_id == *signal_id && carried.payload != *payload;
                let in_an_event = self.carried.iter().any(other);
                in_an_event || self.clients.compete_for(signal_id)
            }
            409 if is_over_message(&answer.body) => {
                let id = text(&answer.body["error"], "invocation_id");
                let of_a_part = |record: InvocationRecord| has_ended(&record) || record.paused.fan_in.is_some();
                self.record(id).is_some_and(of_a_part) || self.is_over_for(signal_id)
            }
            // It was for an earlier pause.
            410 if is_over_message(&answer.body) => self.is_over_for(signal_id),
            _ => {
                let waited = |pause: &Pause| pause.awaits(signal_id);
                let mut woken = self.history.pauses.iter().filter(|(_, pause)| waited(pause)).map(|((id, _), _)| id);
                woken.any(|id| self.record(id.as_str()).is_some_and(|record| self.ended_with(&record, &answer.body)))
            }
        }
    }

    /// A pause that waited for the signal is over.
    fn is_over_for(&self, signal_id: &SignalId) -> bool {
        let mut pauses = self.history.pauses.iter().filter(|(_, pause)| pause.awaits(signal_id));
        pauses.any(|((id, generation), _)| self.history.is_over(id, *generation))
    }

    /// A pause that waited for the signal is over, or has its answer among others.
    fn has_reached(&self, signal_id: &SignalId) -> bool {
        let plain = signal_id.origin().1;
        let mut pauses = self.history.pauses.iter().filter(|(_, pause)| pause.awaits(signal_id));
        pauses.any(|((id, generation), pause)| {
            let part = pause.fan_in.as_ref().and_then(|fan_in| fan_in.part_of(&plain));
            let record = self.record(id.as_str());
            let has_part = part.zip(record).is_some_and(|(part, record)| has_answered(&record, part));
            has_part || self.history.is_over(id, *generation)
        })
    }

    /// The invocation is canceled, or had ended before, or is past the pause that was meant.
    fn canceled(&mut self, invocation: &str, generation: Option<u64>, answer: &HttpAnswer) -> bool {
        let Some(record) = self.record(invocation) else { return false };
        let is_canceled = matches!(record.status, InvocationStatus::Canceled(_));
        match answer.status {
            200 => is_canceled,
            409 => {
                let past = generation.is_some_and(|generation| self.history.is_over(&invocation.into(), generation));
                past || (has_ended(&record) && !is_canceled)
            }
            _ => false,
        }
    }

    /// A 202: the pause is stored, or was and is over.
    fn suspended(&mut self, graph: &str, body: &Value) -> bool {
        let generation = body.get("generation").and_then(Value::as_u64).unwrap_or(1);
        let waiting_for = body.get("waiting_for").unwrap_or(&Value::Null);
        let told = Told {
            graph,
            invocation: text(body, "invocation_id"),
            generation,
            signal_id: text(waiting_for, "signal_id"),
            callback: text(body, "callback_url"),
            parts: parts(body),
            status: text(body, "status_url"),
            cancel: text(body, "cancel_url"),
        };
        let stored = self.record(told.invocation).is_some_and(|record| record.paused.generation >= generation);
        self.clients.react(&told, self.now, self.chance);
        stored
    }

    fn ask_again(&mut self, invocation: &str) {
        let asked =
            |operation: &Operation| matches!(operation, Operation::Turn { invocation: of, .. } if of == invocation);
        let turn = self.clients.jobs.iter().map(|job| &job.operation).find(|operation| asked(operation)).cloned();
        let record = self.record(invocation);
        let goes_on = record.is_some_and(|record| !has_ended(&record) && record.paused.generation > 1);
        let pending = self.clients.jobs.iter().any(|job| !job.told && asked(&job.operation));
        if let Some(turn) = turn.filter(|_| goes_on && !pending) {
            self.clients.operation(self.now, turn);
        }
    }

    /// Whether `body` tells of the error with which the invocation ended, or for which it was put aside.
    fn ended_with(&self, record: &InvocationRecord, body: &Value) -> bool {
        let category = text(&body["error"], "category");
        if category == Category::AttemptsExhausted.as_str() {
            return self.history.aside.contains_key(&record.paused.invocation_id);
        }
        match &record.status {
            InvocationStatus::Errored(failure) => category == failure.category.as_str(),
            InvocationStatus::Canceled(_) => category == "invocation_canceled",
            InvocationStatus::Completed { .. }
            | InvocationStatus::Suspended
            | InvocationStatus::Accepted { .. }
            | InvocationStatus::Resuming(_) => false,
        }
    }

    fn record(&self, invocation: &str) -> Option<InvocationRecord> {
        self.history.invocations.get(&InvocationId::from(invocation)).cloned()
    }
}

/// The addresses of parts in `body`.
fn parts(body: &Value) -> Vec<(&str, &str)> {
    let addresses = body.get("callback_urls").and_then(Value::as_object).into_iter().flatten();
    addresses.filter_map(|(part, address)| Some((part.as_str(), address.as_str()?))).collect()
}

/// Whether `body` says that the pause is over, or was answered otherwise.
fn is_over_message(body: &Value) -> bool {
    body["error"]["category"] == "suspension_record_invalid"
}

fn has_answered(record: &InvocationRecord, part: &str) -> bool {
    record.paused.fan_in.as_ref().is_some_and(|fan_in| fan_in.has_answered(part))
}
