//! Events and wake-ups: no caller waits for an answer, only the service that delivers them.
//!
//! | the turn | the service is told | because |
//! |---|---|---|
//! | completed, suspended, buffered, stale | success | it is done, or was done before |
//! | failed, user-correctable | success, and a warning in the log | delivering the same again cannot help |
//! | failed before, and this is a duplicate | success, and a warning in the log | the same |
//! | failed because the pause ended by its deadline | success, and a warning in the log | it was ordered to |
//! | failed, retryable | failure | the service delivers it again, and at last puts it aside |
//! | failed, session-terminating | failure | it ends up in the dead-letter queue, which somebody watches |
//! | nothing: the event is of no known shape | failure | the same |

use std::time::Duration;

use dormouse_harness::{Bucket, SweepScope, SweepSummary, Transmission, Turn, TurnError, TurnOutcome};
use dormouse_ports::{Category, Map};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::{App, body, telemetry};

/// Why an event shall be delivered again or put aside by the service that sent it.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// Nobody can make sense of the event.
    #[error("{0}")]
    Unreadable(String),
    /// The turn failed in a way that a later delivery, or a person, has to deal with.
    #[error("{}: {}", .0.category, .0.message)]
    Turn(Box<TurnError>),
}

const SIGNAL_SHAPES: &str = "expected {\"dormouse_signal\":{\"signal_id\",\"payload\"}} or an event of source `dormouse` and \
    detail-type `Dormouse Signal` with detail {\"signal_id\",\"payload\"}";
const WAKEUP_SHAPES: &str = "expected {\"dormouse_wakeup\":{\"invocation_id\",\"generation\",\"due_at\"?}} or \
    {\"dormouse_sweep\":\"due\"|\"everything\"}";

/// A signal that came as an event.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Signal {
    signal_id: Token,
    payload: Map,
    #[serde(default)]
    event_id: Option<String>,
}

/// A correlation token as events carry it: foreign systems like to count.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Number(serde_json::Number),
}

/// An event of our own, as the bus delivers it.
#[derive(Deserialize)]
struct BusEvent {
    source: String,
    #[serde(rename = "detail-type")]
    detail_type: String,
    id: Option<String>,
    detail: Value,
}

/// What the scheduler asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) enum Wakeup {
    #[serde(rename = "dormouse_wakeup")]
    Due { invocation_id: String, generation: u64, due_at: Option<Timestamp> },
    #[serde(rename = "dormouse_sweep")]
    Sweep(Scope),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    Due,
    Everything,
}

/// Reads the signal that `event` carries.
pub(crate) fn signal(mut event: Value) -> Result<Signal, TriggerError> {
    if let Some(transformed) = event.get_mut("dormouse_signal") {
        return serde_json::from_value(transformed.take()).map_err(|error| unreadable(SIGNAL_SHAPES, error));
    }
    let event: BusEvent = serde_json::from_value(event).map_err(|error| unreadable(SIGNAL_SHAPES, error))?;
    if (event.source.as_str(), event.detail_type.as_str()) != ("dormouse", "Dormouse Signal") {
        let given = format!("an event of source `{}` and detail-type `{}`", event.source, event.detail_type);
        return Err(unreadable(SIGNAL_SHAPES, given));
    }
    let signal: Signal = serde_json::from_value(event.detail).map_err(|error| unreadable(SIGNAL_SHAPES, error))?;
    Ok(Signal { event_id: event.id, ..signal })
}

/// Reads what the scheduler asks for in `event`.
pub(crate) fn wakeup(event: Value) -> Result<Wakeup, TriggerError> {
    serde_json::from_value(event).map_err(|error| unreadable(WAKEUP_SHAPES, error))
}

fn unreadable(expected: &str, given: impl std::fmt::Display) -> TriggerError {
    TriggerError::Unreadable(format!("an event that nobody here understands: {given}; {expected}"))
}

impl App {
    pub(crate) async fn signalled(&self, signal: Signal, left: Option<Duration>) -> Result<Value, TriggerError> {
        let signal_id = match signal.signal_id {
            Token::Text(text) => text,
            Token::Number(number) => number.to_string(),
        };
        if !body::is_id(&signal_id) {
            return Err(unreadable(SIGNAL_SHAPES, "the signal_id is no id"));
        }
        tracing::info!(signal_id, event_id = signal.event_id, "signal");
        let transmission = Transmission { time_left: left, ..Transmission::signal(signal_id, signal.payload) };
        self.triggered(transmission).await
    }

    pub(crate) async fn woken(&self, wakeup: Wakeup, left: Option<Duration>) -> Result<Value, TriggerError> {
        match wakeup {
            Wakeup::Due { invocation_id, generation, due_at } => {
                let due = Transmission::due(invocation_id, generation, due_at);
                self.triggered(Transmission { time_left: left, ..due }).await
            }
            Wakeup::Sweep(scope) => {
                let scope = match scope {
                    Scope::Due => SweepScope::Due,
                    Scope::Everything => SweepScope::Everything,
                };
                let summary = self.sweep(scope, left).await.map_err(|error| TriggerError::Turn(Box::new(error)))?;
                Ok(swept(scope, summary))
            }
        }
    }

    async fn triggered(&self, transmission: Transmission) -> Result<Value, TriggerError> {
        let clock = &self.engine().ports().clock;
        let began = clock.monotonic();
        let turn = self.within(transmission.time_left, self.harness().turn(transmission)).await;
        let told = turn.map_err(|error| TriggerError::Turn(Box::new(error))).and_then(|turn| {
            telemetry::turn(&turn);
            told(turn)
        });
        telemetry::triggered(told.is_ok(), clock.monotonic().saturating_sub(began));
        told
    }
}

/// What the service is told of a turn, by the table of this module.
fn told(turn: Turn) -> Result<Value, TriggerError> {
    match turn.outcome {
        TurnOutcome::Completed(done) => {
            Ok(json!({ "status": "completed", "invocation_id": done.invocation_id, "repeated": done.repeated }))
        }
        TurnOutcome::Suspended(pause) => {
            Ok(json!({ "status": "suspended", "invocation_id": pause.invocation_id, "repeated": pause.repeated }))
        }
        TurnOutcome::Buffered { signal_id, .. } => Ok(json!({ "status": "buffered", "signal_id": signal_id })),
        TurnOutcome::Stale { invocation_id } => Ok(json!({ "status": "stale", "invocation_id": invocation_id })),
        TurnOutcome::Errored(error) if is_to_be_raised(&error) => Err(TriggerError::Turn(error)),
        TurnOutcome::Errored(error) => Ok(json!({ "status": "errored", "error": Refusal::body(&error) })),
    }
}

fn is_to_be_raised(error: &TurnError) -> bool {
    if error.repeated || error.category == Category::SuspensionTimedOut {
        return false;
    }
    match error.bucket {
        Bucket::UserCorrectable => false,
        Bucket::RetryableTransient | Bucket::SessionTerminating => true,
    }
}

/// What a sweep did and found, told to the log (whose lines are counted) and to the service.
fn swept(scope: SweepScope, summary: SweepSummary) -> Value {
    let SweepSummary { examined, woken, registered, failed, late_by, oldest_pause, unfinished, .. } = summary;
    let SweepSummary { expired_claims, orphan_timers, unclaimed_signals, collected, .. } = summary;
    let (late_s, oldest_pause_seconds) = (late_by.as_secs(), oldest_pause.as_secs());
    let scope = scope.as_str();
    tracing::info!(
        scope,
        examined,
        woken,
        registered,
        failed,
        late_s,
        oldest_pause_seconds,
        expired_claims,
        orphan_timers,
        unclaimed_signals,
        collected,
        unfinished,
        "sweep"
    );
    json!({ "status": "swept", "examined": examined, "woken": woken, "registered": registered, "failed": failed,
        "expired_claims": expired_claims, "orphan_timers": orphan_timers, "unclaimed_signals": unclaimed_signals,
        "collected": collected, "unfinished": unfinished })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(event: &str) -> Value {
        serde_json::from_str(event).expect("JSON")
    }

    #[test]
    fn a_transformed_event_is_a_signal() {
        let read = signal(read(include_str!("../tests/events/eventbridge-transformed.json"))).expect("a signal");
        assert_eq!(read.signal_id, Token::Text("export-7f3a".to_owned()));
        assert_eq!(read.payload["rows"], 1204);
        assert_eq!(read.event_id.as_deref(), Some("17793124-05d4-b198-2fde-7ededc63b103"));
    }

    #[test]
    fn an_event_of_our_own_is_a_signal() {
        let read = signal(read(include_str!("../tests/events/eventbridge-dormouse-signal.json"))).expect("a signal");
        assert_eq!(read.signal_id, Token::Text("expense-1".to_owned()));
        assert_eq!(read.payload["decision"], "approved");
        assert!(read.event_id.is_some());
    }

    #[test]
    fn a_number_is_a_token() {
        let read = signal(json!({ "dormouse_signal": { "signal_id": 4711, "payload": {}, "event_id": null } }));
        assert_eq!(read.expect("a signal").signal_id, Token::Number(4711.into()));
    }

    #[test]
    fn the_scheduler_wakes_and_sweeps() {
        let due = wakeup(read(include_str!("../tests/events/scheduler-wakeup.json"))).expect("a wake-up");
        let invocation_id = "0b5f1f9e-3c0d-4c3e-9d6f-0f6f8f6a1c11".to_owned();
        let due_at = Some(Timestamp::constant(1_798_794_000, 0));
        assert_eq!(due, Wakeup::Due { invocation_id: invocation_id.clone(), generation: 2, due_at });
        let before = json!({ "dormouse_wakeup": { "invocation_id": invocation_id, "generation": 2 } });
        let due = wakeup(before).expect("an entry from before a pause had several deadlines");
        assert_eq!(due, Wakeup::Due { invocation_id, generation: 2, due_at: None });
        let sweep = wakeup(read(include_str!("../tests/events/scheduler-sweep.json"))).expect("a sweep");
        assert_eq!(sweep, Wakeup::Sweep(Scope::Everything));
    }

    #[test]
    fn what_is_not_understood_says_what_was_expected() {
        let foreign = read(include_str!("../tests/events/eventbridge-foreign.json"));
        for event in [foreign, json!({}), json!([]), json!({ "dormouse_signal": { "signal_id": null, "payload": {} } })]
        {
            let error = signal(event.clone()).expect_err("unreadable").to_string();
            assert!(error.contains("expected {\"dormouse_signal\""), "{event}: {error}");
        }
        for event in [json!({ "dormouse_sweep": "all" }), json!({ "dormouse_wakeup": {} }), json!("sweep")] {
            let error = wakeup(event.clone()).expect_err("unreadable").to_string();
            assert!(error.contains("expected {\"dormouse_wakeup\""), "{event}: {error}");
        }
    }

    #[test]
    fn only_what_a_later_delivery_or_a_person_can_help_is_raised() {
        for category in Category::SPECIFIED {
            let error = TurnError::new(category.clone(), "");
            let expected = error.bucket != Bucket::UserCorrectable && *category != Category::SuspensionTimedOut;
            assert_eq!(is_to_be_raised(&error), expected, "{category}");
            assert!(!is_to_be_raised(&TurnError { repeated: true, ..error }), "{category}");
        }
    }
}
