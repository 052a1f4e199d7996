//! Structured logs: one JSON object a line, with ids, paths, outcomes and durations, and never a payload, a state or a
//! secret.

use std::time::Duration;

use dormouse_harness::chat::ChatTurnOutcome;
use dormouse_harness::{Bucket, DispatchPath, Turn, TurnError, TurnOutcome};
use dormouse_otel::{ExportError, Telemetry};
use dormouse_ports::SessionId;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What sends spans and log records to the collector that the environment names; `None` when it names none.
///
/// | variable | meaning |
/// |---|---|
/// | `OTEL_EXPORTER_OTLP_ENDPOINT` | base address of OTLP over HTTP, for example `http://127.0.0.1:4318` |
/// | `OTEL_EXPORTER_OTLP_HEADERS` | headers of each request, `name=value`, with commas between |
/// | `OTEL_SERVICE_NAME` | the name of this service; without it the name of the function, or `dormouse` |
///
/// # Errors
/// When the address cannot be used.
pub fn exporter() -> Result<Option<Telemetry>, ExportError> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let Some(endpoint) = variable("OTEL_EXPORTER_OTLP_ENDPOINT") else { return Ok(None) };
    let service = variable("OTEL_SERVICE_NAME").or_else(|| variable("AWS_LAMBDA_FUNCTION_NAME"));
    Telemetry::otlp(endpoint.trim(), service.as_deref().unwrap_or("dormouse")).map(Some)
}

/// Begins to log to standard output: what `DORMOUSE_LOG` or else `RUST_LOG` asks for, in the syntax of
/// `tracing-subscriber`; without them what is worth a line in production. The same lines go to `exporter` as log
/// records. A second call changes nothing.
pub fn init(exporter: Option<&Telemetry>) {
    let directives = std::env::var("DORMOUSE_LOG").or_else(|_| std::env::var("RUST_LOG"));
    let filter = EnvFilter::try_new(directives.as_deref().unwrap_or("info")).unwrap_or_else(|_| EnvFilter::new("info"));
    // All spans around a line belong to it: the request, and the invocation with its ids.
    let json =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(true);
    let log = tracing_subscriber::registry().with(filter).with(json).with(exporter.map(Telemetry::log_bridge));
    if log.try_init().is_err() {
        tracing::debug!("somebody else decides already where the log goes");
    }
}

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
            let (invocation_id, graph, repeated) = (&done.invocation_id, &done.graph, done.repeated);
            tracing::info!(%invocation_id, session_id, graph, path, repeated, outcome = "completed", "turn");
        }
        TurnOutcome::Suspended(pause) => {
            let session_id = pause.session_id.as_ref().map(SessionId::as_str);
            let (invocation_id, graph, repeated) = (&pause.invocation_id, &pause.graph, pause.repeated);
            let generation = pause.generation;
            tracing::info!(%invocation_id, session_id, graph, path, repeated, generation, outcome = "suspended", "turn");
        }
        TurnOutcome::Errored(error) => failed(path, error),
        TurnOutcome::Buffered { signal_id, expires_at } => {
            tracing::info!(%signal_id, path, %expires_at, outcome = "buffered", "turn");
        }
        TurnOutcome::Stale { invocation_id } => tracing::info!(%invocation_id, path, outcome = "stale", "turn"),
    }
}

/// A message was answered.
pub(crate) fn message(session_id: &SessionId, path: Option<DispatchPath>, outcome: &ChatTurnOutcome) {
    let path = path.map(DispatchPath::as_str);
    match outcome {
        ChatTurnOutcome::Completed { .. } => tracing::info!(%session_id, path, outcome = "completed", "message"),
        ChatTurnOutcome::Suspended { invocation_id, generation, .. } => {
            tracing::info!(%session_id, %invocation_id, generation, path, outcome = "suspended", "message");
        }
        ChatTurnOutcome::Errored { error_bucket, error_category, .. } => {
            let bucket = error_bucket.as_str();
            tracing::warn!(%session_id, path, category = %error_category, bucket, outcome = "errored", "message");
        }
    }
}

fn failed(path: Option<&str>, error: &TurnError) {
    let invocation_id = error.invocation_id.as_ref().map(dormouse_ports::InvocationId::as_str);
    let (category, bucket, repeated) = (&error.category, error.bucket.as_str(), error.repeated);
    // What a sender got wrong is told to the sender; the sentence may quote what was sent.
    let reason = match error.bucket {
        Bucket::RetryableTransient | Bucket::SessionTerminating => Some(error.message.as_str()),
        Bucket::UserCorrectable => None,
    };
    tracing::warn!(invocation_id, path, %category, bucket, repeated, reason, outcome = "errored", "turn");
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
