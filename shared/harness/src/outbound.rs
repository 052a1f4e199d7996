use dormouse_ports::Map;
use serde_json::json;

use crate::bucket::Bucket;
use crate::error::TurnError;
use crate::outcome::TurnOutcome;

/// The three kinds of answer that a caller can distinguish (harness §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundShape {
    /// The turn is done.
    CompletionResponse,
    /// The turn failed.
    ErrorResponse,
    /// The turn, or the signal, waits.
    SuspendedAcknowledgment,
}

impl OutboundShape {
    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CompletionResponse => "completion_response",
            Self::ErrorResponse => "error_response",
            Self::SuspendedAcknowledgment => "suspended_acknowledgment",
        }
    }
}

/// An answer, free of its transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// Its kind.
    pub shape: OutboundShape,
    /// Its content.
    pub payload: Map,
}

impl From<&TurnOutcome> for Outbound {
    fn from(outcome: &TurnOutcome) -> Self {
        let (shape, payload) = match outcome {
            TurnOutcome::Completed(turn) => (OutboundShape::CompletionResponse, turn.state.clone()),
            TurnOutcome::Suspended(turn) => (
                OutboundShape::SuspendedAcknowledgment,
                object(json!({ "invocation_id": turn.invocation_id, "descriptor": turn.descriptor })),
            ),
            TurnOutcome::Buffered { signal_id, expires_at } => (
                OutboundShape::SuspendedAcknowledgment,
                object(json!({ "signal_id": signal_id, "expires_at": expires_at })),
            ),
            TurnOutcome::Stale { invocation_id } => {
                (OutboundShape::CompletionResponse, object(json!({ "invocation_id": invocation_id })))
            }
            TurnOutcome::Errored(error) => (OutboundShape::ErrorResponse, error.payload()),
        };
        Self { shape, payload }
    }
}

impl TurnError {
    /// Answer to the caller: category, bucket, a sentence, and the remedy (harness §7).
    pub fn payload(&self) -> Map {
        let mut payload = object(json!({
            "category": self.category,
            "bucket": self.bucket,
            "diagnostic_message": self.message,
        }));
        let (advice, holds) = match self.bucket {
            Bucket::SessionTerminating => ("intervention_required", true),
            Bucket::RetryableTransient => ("retry_safe", !self.in_doubt),
            Bucket::UserCorrectable => ("user_action_required", true),
        };
        payload.insert(advice.to_owned(), holds.into());
        if let Some(invocation_id) = &self.invocation_id {
            payload.insert("invocation_id".to_owned(), invocation_id.as_str().into());
        }
        payload
    }
}

fn object(value: serde_json::Value) -> Map {
    match value {
        serde_json::Value::Object(map) => map,
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_)
        | serde_json::Value::Array(_) => Map::new(),
    }
}
