use std::process::ExitCode;
use std::time::Duration;

use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;

use crate::boot::boot;
use crate::{App, TriggerError, gateway, telemetry};

/// Kept back from the time that Lambda gives: to answer, before the sandbox is stopped.
const TO_ANSWER: Duration = Duration::from_millis(500);
/// Kept back for the observers of a turn.
const TO_DRAIN: Duration = Duration::from_secs(1);

/// The functions, by what triggers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// HTTP requests.
    Inbound,
    /// Signals: HTTP requests, and events of the bus.
    Signal,
    /// The scheduler.
    Wakeup,
}

/// Boots once, then serves events as `function` until Lambda ends the process.
pub async fn serve(function: Function) -> ExitCode {
    let exporter = telemetry::exporter();
    telemetry::init(exporter.as_ref().ok().and_then(Option::as_ref));
    let exporter = exporter.unwrap_or_else(|error| {
        tracing::warn!(%error, "the function goes on without a collector");
        None
    });
    let app = match boot(exporter) {
        Ok(app) => app,
        Err(error) => {
            tracing::error!(%error, "the function cannot start");
            return ExitCode::FAILURE;
        }
    };
    let handler = service_fn(|event: LambdaEvent<Value>| {
        let app = app.clone();
        async move { handle(&app, function, event).await.map_err(diagnostic) }
    });
    match lambda_runtime::run(handler).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the function cannot go on");
            ExitCode::FAILURE
        }
    }
}

async fn handle(app: &App, function: Function, event: LambdaEvent<Value>) -> Result<Value, TriggerError> {
    let deadline = event.context.deadline;
    let left = time_left(app, deadline).saturating_sub(TO_DRAIN);
    let answer = match function {
        Function::Inbound => http(app, event.payload, left).await,
        Function::Signal if gateway::is_http(&event.payload) => http(app, event.payload, left).await,
        Function::Signal => app.event(event.payload, Some(left)).await,
        Function::Wakeup => app.wakeup(event.payload, Some(left)).await,
    };
    let drained = app.drain(Some(time_left(app, deadline))).await;
    if drained.timeout_reached {
        tracing::warn!(undelivered = drained.undelivered_count, "observers were not told everything in time");
    }
    answer
}

async fn http(app: &App, event: Value, left: Duration) -> Result<Value, TriggerError> {
    Ok(gateway::encode(app.http(gateway::decode(event, Some(left))?).await))
}

/// What is left until `deadline`, which is in milliseconds since the epoch.
fn time_left(app: &App, deadline: u64) -> Duration {
    let now = u64::try_from(app.engine().ports().clock.now().as_millisecond()).unwrap_or_default();
    Duration::from_millis(deadline.saturating_sub(now)).saturating_sub(TO_ANSWER)
}

fn diagnostic(error: TriggerError) -> Diagnostic {
    let error_type = match &error {
        TriggerError::Unreadable(_) => "unreadable_event".to_owned(),
        TriggerError::Turn(error) => error.category.as_str().to_owned(),
    };
    tracing::error!(error_type, "the event is given back to the service");
    Diagnostic { error_type, error_message: error.to_string() }
}
