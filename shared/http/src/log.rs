//! Lines of the log: ids, paths, outcomes and durations, and never a payload, a state or a secret.

use std::time::Duration;

use dormouse_harness::chat::ChatTurnOutcome;
use dormouse_harness::{Bucket, DispatchPath, Turn, TurnError, TurnOutcome};
use dormouse_ports::{InvocationId, SessionId};

/// A request was answered.
pub(crate) fn answered(status: u16, took: Duration) {
    let duration_ms = milliseconds(took);
    tracing::info!(status, duration_ms, "answered");
}

/// A trigger was dealt with: acknowledged, or raised for the service to deliver it again.
pub(crate) fn triggered(acknowledged: bool, took: Duration) {
    let duration_ms = milliseconds(took);
    tracing::info!(acknowledged, duration_ms, "trigger");
}

/// To the microsecond: more digits would only be noise.
#[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
fn milliseconds(took: Duration) -> f64 {
    took.as_micros() as f64 / 1000.0
}

/// A turn is over.
pub(crate) fn turn(turn: &Turn) {
    let path = turn.path.map(DispatchPath::as_str);
    match &turn.outcome {
        TurnOutcome::Completed(done) => {
            let session_id = done.session_id.as_ref().map(SessionId::as_str);
            let invocation_id = &done.invocation_id;
            let correlation_id = done.correlation_id.as_str();
            let graph = &done.graph;
            let repeated = done.repeated;
            tracing::info!(%invocation_id, correlation_id, session_id, graph, path, repeated, outcome = "completed", "the turn completed");
        }
        TurnOutcome::Suspended(pause) => {
            let session_id = pause.session_id.as_ref().map(SessionId::as_str);
            let invocation_id = &pause.invocation_id;
            let correlation_id = pause.correlation_id.as_str();
            let graph = &pause.graph;
            let repeated = pause.repeated;
            let generation = pause.generation;
            tracing::info!(%invocation_id, correlation_id, session_id, graph, path, repeated, generation, outcome = "suspended", "the turn was suspended");
        }
        TurnOutcome::Errored(error) => failed(path, error),
        TurnOutcome::Buffered { signal_id, expires_at } => {
            tracing::info!(%signal_id, path, %expires_at, outcome = "buffered", "the signal came before its wait and was kept");
        }
        TurnOutcome::Stale { invocation_id } => {
            tracing::info!(%invocation_id, path, outcome = "stale", "the turn found its pause over");
        }
    }
}

/// A message was answered.
pub(crate) fn message(session_id: &SessionId, path: Option<DispatchPath>, outcome: &ChatTurnOutcome) {
    let path = path.map(DispatchPath::as_str);
    match outcome {
        ChatTurnOutcome::Completed { invocation_id, correlation_id, .. } => {
            tracing::info!(%session_id, %invocation_id, correlation_id, path, outcome = "completed", "the message was answered");
        }
        ChatTurnOutcome::Suspended { invocation_id, correlation_id, generation, .. } => {
            tracing::info!(%session_id, %invocation_id, correlation_id, generation, path, outcome = "suspended", "the message suspended its turn");
        }
        ChatTurnOutcome::Errored { error_bucket, error_category, invocation_id, correlation_id, message, .. } => {
            let invocation_id = invocation_id.as_ref().map(InvocationId::as_str);
            let correlation_id = correlation_id.as_deref();
            let bucket = error_bucket.as_str();
            let reason = told(*error_bucket, message);
            tracing::warn!(%session_id, invocation_id, correlation_id, path, category = %error_category, bucket, reason, outcome = "errored", "the message failed");
        }
    }
}

fn failed(path: Option<&str>, error: &TurnError) {
    let invocation_id = error.invocation_id.as_ref().map(InvocationId::as_str);
    let correlation_id = error.correlation_id.as_deref();
    let category = &error.category;
    let bucket = error.bucket.as_str();
    let repeated = error.repeated;
    let reason = told(error.bucket, &error.message);
    tracing::warn!(invocation_id, correlation_id, path, %category, bucket, repeated, reason, outcome = "errored", "the turn failed");
}

/// As much of `message` as the log is told. A mistake of the sender is reported to the sender; the sentence may quote what was
/// sent.
fn told(bucket: Bucket, message: &str) -> Option<&str> {
    match bucket {
        Bucket::RetryableTransient | Bucket::SessionTerminating => Some(message),
        Bucket::UserCorrectable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_decimals() {
        assert_eq!(milliseconds(Duration::from_nanos(12_345_678)).to_string(), "12.345");
        assert_eq!(milliseconds(Duration::from_secs(3)).to_string(), "3000");
    }
}
