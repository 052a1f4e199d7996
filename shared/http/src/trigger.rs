//! Events and wake-ups: no caller waits for an answer, only the service that delivers them.
//!
//! | the turn | answer to the service | because |
//! |---|---|---|
//! | completed, suspended, buffered, stale | success | it is done, or was done before |
//! | failed, because the content of an event does not fit | failure | only the queue of failures reports it |
//! | failed, because a changed graph does not take the pause of an event up | failure | it is given again once a version does |
//! | refused, because its invocation is put aside | failure | it is given again once that was tried again |
//! | failed otherwise, user-correctable | success, and a warning in the log | delivering the same again cannot help |
//! | failed before, and this is a duplicate | success, and a warning in the log | the same |
//! | failed because the pause ended by its deadline | success, and a warning in the log | it was ordered to |
//! | failed otherwise, called by the sweep | success, and a warning in the log | the sweep calls again |
//! | failed, retryable | failure | the service delivers it again, and at last puts it aside |
//! | failed, session-terminating | failure | it ends up in the dead-letter queue, which an operator watches |
//! | nothing: the event is of no known shape | failure | the same |

use std::time::Duration;

use dormouse_harness::{
    Bucket, EventOrigin, SIGNAL, SignalOrigin, Transmission, Turn, TurnError, TurnOutcome, WORK, WorkCall,
};
use dormouse_maintenance::{SweepScope, SweepSummary};
use dormouse_ports::{Category, Map, ShapeId};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::refusal::RequestRefusal;
use crate::{App, body, log};

/// Reason for which the service that sent an event shall deliver it again or put it aside.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// The event is not understood.
    #[error("{0}")]
    Unreadable(String),
    /// The turn failed in a way that a later delivery, or a person, has to deal with.
    #[error("{}: {}", .0.category, .0.message)]
    Turn(Box<TurnError>),
}

const SIGNAL_SHAPES: &str = "expected {\"dormouse_signal\":{\"signal_id\",\"payload\",\"shape\",\"source\",\"detail_type\"}} of a rule or an event of source `dormouse` and \
    detail-type `Dormouse Signal` with detail {\"signal_id\",\"payload\"}";
const WAKEUP_SHAPES: &str = "expected {\"dormouse_wakeup\":{\"invocation_id\",\"generation\",\"due_at\"?}} or \
    {\"dormouse_sweep\":\"due\"|\"everything\"} or an event of source `dormouse` and detail-type `Dormouse Work` with \
    detail {\"invocation_id\",\"generation\"?,\"due_at\"?,\"swept\"?}";

/// A signal that came as an event.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct SignalEvent {
    signal_id: EventToken,
    payload: Map,
    #[serde(default)]
    event_id: Option<String>,
    #[serde(flatten)]
    origin: RuleEnvelope,
    /// True for an event of our own.
    #[serde(skip)]
    is_own: bool,
}

/// Description by a rule of the event in which it found a signal. Rules of earlier versions give none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct RuleEnvelope {
    #[serde(default)]
    shape: Option<String>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    detail_type: Option<String>,
}

impl RuleEnvelope {
    fn origin(self) -> Result<SignalOrigin, TriggerError> {
        let Self { shape, source, detail_type } = self;
        let wrong = || unreadable(SIGNAL_SHAPES, "the shape is none");
        let shape = shape.map(|shape| ShapeId::parse(&shape).ok_or_else(wrong)).transpose()?;
        Ok(SignalOrigin::Event(EventOrigin { shape, source, detail_type }))
    }
}

/// A correlation token as events carry it: foreign systems like to count.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum EventToken {
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

impl SignalEvent {
    /// Its correlation token.
    fn named(&self) -> Result<String, TriggerError> {
        let signal_id = match &self.signal_id {
            EventToken::Text(text) => text.clone(),
            EventToken::Number(number) => number.to_string(),
        };
        if !body::is_signal_id(&signal_id) {
            return Err(unreadable(SIGNAL_SHAPES, "the signal_id is no id"));
        }
        tracing::info!(signal_id, event_id = self.event_id, "signal");
        Ok(signal_id)
    }
}

/// Order from the scheduler, or from the acceptor of an invocation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) enum WakeupOrder {
    #[serde(rename = "dormouse_wakeup")]
    Due { invocation_id: String, generation: u64, due_at: Option<Timestamp> },
    #[serde(rename = "dormouse_sweep")]
    Sweep(SignalScope),
    #[serde(skip)]
    Work(WorkCall),
}

impl WakeupOrder {
    /// The invocation that it is about.
    fn invocation(&self) -> Option<&str> {
        match self {
            Self::Due { invocation_id, .. } => Some(invocation_id),
            Self::Work(call) => Some(call.invocation_id.as_str()),
            Self::Sweep(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignalScope {
    Due,
    Everything,
}

/// Reads the signal that `event` carries.
pub(crate) fn signal(mut event: Value) -> Result<SignalEvent, TriggerError> {
    bounded(&event)?;
    if let Some(transformed) = event.get_mut("dormouse_signal") {
        return serde_json::from_value(transformed.take()).map_err(|error| unreadable(SIGNAL_SHAPES, error));
    }
    let event = of_our_own(event, SIGNAL, SIGNAL_SHAPES)?;
    let signal: SignalEvent = serde_json::from_value(event.detail).map_err(|error| unreadable(SIGNAL_SHAPES, error))?;
    Ok(SignalEvent { event_id: event.id, is_own: true, origin: RuleEnvelope::default(), ..signal })
}

/// Reads what `event` asks the wake-up function for.
pub(crate) fn wakeup(event: Value) -> Result<WakeupOrder, TriggerError> {
    bounded(&event)?;
    let wrong = |error| unreadable(WAKEUP_SHAPES, error);
    let order = if event.get("detail-type").is_none() {
        serde_json::from_value(order(event)).map_err(wrong)?
    } else {
        let event = of_our_own(event, WORK, WAKEUP_SHAPES)?;
        serde_json::from_value(event.detail).map(WakeupOrder::Work).map_err(wrong)?
    };
    match order.invocation() {
        Some(id) if !body::is_id(id) => Err(unreadable(WAKEUP_SHAPES, "the invocation_id is no id")),
        Some(_) | None => Ok(order),
    }
}

/// Refuses an event that could not be kept: it is put aside with the reason.
fn bounded(event: &Value) -> Result<(), TriggerError> {
    dormouse_json::measure(event, dormouse_json::ENTRY)
        .map_err(|excess| TriggerError::Unreadable(format!("an event that is not taken: {excess}")))
}

/// The order in `event`, without what a schedule adds about itself (its `<aws.scheduler.…>` attributes). Two orders are
/// none.
fn order(mut event: Value) -> Value {
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|name, _| name.starts_with("dormouse_"));
    }
    event
}

fn of_our_own(event: Value, detail_type: &str, expected: &str) -> Result<BusEvent, TriggerError> {
    let event: BusEvent = serde_json::from_value(event).map_err(|error| unreadable(expected, error))?;
    if (event.source.as_str(), event.detail_type.as_str()) != ("dormouse", detail_type) {
        let given = format!("an event of source `{}` and detail-type `{}`", event.source, event.detail_type);
        return Err(unreadable(expected, given));
    }
    Ok(event)
}

fn unreadable(expected: &str, given: impl std::fmt::Display) -> TriggerError {
    TriggerError::Unreadable(format!("an event that nobody here understands: {given}; {expected}"))
}

impl App {
    pub(crate) async fn signalled(&self, signal: SignalEvent, left: Option<Duration>) -> Result<Value, TriggerError> {
        let signal_id = signal.named()?;
        let origin = if signal.is_own { SignalOrigin::Sent } else { signal.origin.origin()? };
        let signal = dormouse_harness::Signal { origin, ..dormouse_harness::Signal::new(signal_id, signal.payload) };
        let transmission = Transmission { time_left: left, ..signal.into() };
        let turn = self.harness().turn(transmission);
        self.outcome_of(left, turn, |error| error.is_unfit() || is_to_be_raised(error)).await
    }

    pub(crate) async fn leave_signal(&self, signal: SignalEvent, left: Option<Duration>) -> Result<(), TriggerError> {
        let signal_id = signal.named()?;
        if !signal.is_own {
            return Err(unreadable(SIGNAL_SHAPES, "only signals of our own are left to others"));
        }
        let signal_id = signal_id.into();
        let work = self.harness().leave_signal(&signal_id, signal.payload, left);
        self.within(left, work).await.and_then(|left| left).map_err(|error| TriggerError::Turn(Box::new(error)))
    }

    pub(crate) async fn woken(&self, wakeup: WakeupOrder, left: Option<Duration>) -> Result<Value, TriggerError> {
        match wakeup {
            WakeupOrder::Due { invocation_id, generation, due_at } => {
                let due = Transmission::due(invocation_id, generation, due_at);
                self.triggered(Transmission { time_left: left, ..due }).await
            }
            WakeupOrder::Work(call) => {
                let is_raised = |error: &TurnError| !call.swept && is_to_be_raised(error);
                self.outcome_of(left, self.harness().answer_call(&call, left), is_raised).await
            }
            WakeupOrder::Sweep(scope) => {
                let scope = match scope {
                    SignalScope::Due => SweepScope::Due,
                    SignalScope::Everything => SweepScope::Everything,
                };
                let summary = self.sweep(scope, left).await.map_err(|error| TriggerError::Turn(Box::new(error)))?;
                Ok(swept(scope, summary))
            }
        }
    }

    async fn triggered(&self, transmission: Transmission) -> Result<Value, TriggerError> {
        self.outcome_of(transmission.time_left, self.harness().turn(transmission), is_to_be_raised).await
    }

    async fn outcome_of(
        &self,
        left: Option<Duration>,
        turn: impl Future<Output = Turn> + Send,
        is_raised: impl Fn(&TurnError) -> bool + Send,
    ) -> Result<Value, TriggerError> {
        let clock = &self.engine().ports().clock;
        let began = clock.monotonic();
        let turn = self.within(left, turn).await;
        let outcome = turn.map_err(|error| TriggerError::Turn(Box::new(error))).and_then(|turn| {
            log::turn(&turn);
            outcome(turn, is_raised)
        });
        log::triggered(outcome.is_ok(), clock.monotonic().saturating_sub(began));
        outcome
    }
}

/// Answer to the service for a turn, by the table of this module.
fn outcome(turn: Turn, is_raised: impl Fn(&TurnError) -> bool) -> Result<Value, TriggerError> {
    match turn.outcome {
        TurnOutcome::Completed(done) => {
            Ok(json!({ "status": "completed", "invocation_id": done.invocation_id, "repeated": done.repeated }))
        }
        TurnOutcome::Suspended(pause) => {
            Ok(json!({ "status": "suspended", "invocation_id": pause.invocation_id, "repeated": pause.repeated }))
        }
        TurnOutcome::Buffered { signal_id, .. } => Ok(json!({ "status": "buffered", "signal_id": signal_id })),
        TurnOutcome::Stale { invocation_id } => Ok(json!({ "status": "stale", "invocation_id": invocation_id })),
        TurnOutcome::Errored(error) if is_raised(&error) => Err(TriggerError::Turn(error)),
        TurnOutcome::Errored(error) => Ok(json!({ "status": "errored", "error": RequestRefusal::body(&error) })),
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

/// Reports what a sweep did and found, to the log (where lines are counted) and to the service.
fn swept(scope: SweepScope, summary: SweepSummary) -> Value {
    let SweepSummary { examined, called, registered, failed, late_by, oldest_pause, unfinished, .. } = summary;
    let SweepSummary { expired_claims, not_begun, orphan_timers, unclaimed_signals, collected, .. } = summary;
    let late_s = late_by.as_secs();
    let oldest_pause_seconds = oldest_pause.as_secs();
    let scope = scope.as_str();
    tracing::info!(
        scope,
        examined,
        called,
        registered,
        failed,
        late_s,
        oldest_pause_seconds,
        expired_claims,
        not_begun,
        orphan_timers,
        unclaimed_signals,
        collected,
        unfinished,
        "sweep"
    );
    json!({ "status": "swept", "examined": examined, "called": called, "registered": registered, "failed": failed,
        "expired_claims": expired_claims, "not_begun": not_begun, "orphan_timers": orphan_timers, "unclaimed_signals": unclaimed_signals,
        "collected": collected, "unfinished": unfinished })
}

#[cfg(test)]
mod tests;
