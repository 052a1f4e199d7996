//! What a call came to, and what was seen of it.

use std::sync::{Mutex, PoisonError};

use dormouse_ports::model::{CallEvent, CallObserver, CompletionRequest, ModelError, ModelIdentity, Response};
use dormouse_ports::{FetchRequest, Map};
use dormouse_providers::telemetry::{AttemptRecord, AttributeValue, TelemetryOptions};
use serde_json::Value;

/// How a call ended.
pub(super) enum End {
    Ready,
    Answered(Box<Response>),
    Failed(Box<ModelError>),
}

/// Everything about a call that has ended.
pub(super) struct Seen<'c> {
    pub(super) end: End,
    pub(super) requests: Vec<FetchRequest>,
    /// The bodies of the requests, as the fixture describes them.
    pub(super) bodies: Vec<Value>,
    /// What each of them says: roles and texts, without instructions.
    pub(super) said: Vec<Vec<Value>>,
    /// Number of messages in front that are the caller's.
    pub(super) messages: usize,
    pub(super) attempts: Vec<Attempt>,
    pub(super) tokens: usize,
    /// The caller's request is what it was.
    pub(super) is_unmodified: bool,
    pub(super) waits: usize,
    /// Answers that nobody has asked for.
    pub(super) left: usize,
    /// What the wire answered last, where that was a body of one piece.
    pub(super) answered: Option<&'c Value>,
}

/// One attempt, as its span shows it.
pub(super) struct Attempt {
    pub(super) attributes: Map,
    pub(super) error_category: Option<String>,
}

/// Writes down what happens in a call.
pub(super) struct Recorder {
    identity: ModelIdentity,
    record: Mutex<Record>,
}

#[derive(Default)]
pub(super) struct Record {
    pub(super) attempts: Vec<Attempt>,
    pub(super) tokens: usize,
    started: Option<(Option<dormouse_ports::model::RetryReason>, CompletionRequest)>,
}

impl Recorder {
    pub(super) fn new(identity: ModelIdentity) -> Self {
        Self { identity, record: Mutex::default() }
    }

    pub(super) fn take(&self) -> Record {
        std::mem::take(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CallObserver for Recorder {
    fn observe(&self, event: CallEvent<'_>) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            CallEvent::AttemptStarted { reason, request, .. } => record.started = Some((reason, request.clone())),
            CallEvent::Token { .. } => record.tokens += 1,
            CallEvent::AttemptSucceeded { attempt, response } => record.end(&self.identity, attempt, Ok(response)),
            CallEvent::AttemptFailed { attempt, error } => record.end(&self.identity, attempt, Err(error)),
        }
    }
}

impl Record {
    fn end(&mut self, identity: &ModelIdentity, attempt: u32, result: Result<&Response, &ModelError>) {
        let Some((reason, request)) = self.started.take() else { return };
        let record = AttemptRecord { identity, attempt, reason, request: &request, result };
        let attributes = record.attributes(TelemetryOptions::default());
        self.attempts.push(Attempt {
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), json(value))).collect(),
            error_category: result.err().map(|error| error.category.category().as_str().to_owned()),
        });
    }
}

fn json(value: AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => text.into(),
        AttributeValue::Texts(texts) => texts.into(),
        AttributeValue::Flag(flag) => flag.into(),
        AttributeValue::Integer(number) => number.into(),
        AttributeValue::Number(number) => number.into(),
    }
}
