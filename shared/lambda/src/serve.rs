use std::convert::Infallible;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dormouse_api::Agents;
use dormouse_http::{App, Server, TriggerError};
use dormouse_otel::Telemetry;
use dormouse_ports::Clock;
use futures::stream::BoxStream;
use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;

use crate::boot::{BootError, boot, boot_sockets};
use crate::{gateway, sockets, telemetry};

/// Kept back from the time that Lambda gives: to answer, before the sandbox is stopped.
const TO_ANSWER: Duration = Duration::from_millis(500);
/// The longest that a turn may take for which an HTTP request waits: API Gateway gives up after 30 seconds, of which the
/// start of a process may take some.
const GATEWAY: Duration = Duration::from_secs(25);
/// Kept back for the observers of a turn.
const TO_DRAIN: Duration = Duration::from_secs(1);

/// The functions that know agents, by what triggers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// HTTP requests.
    Inbound,
    /// Signals: HTTP requests, and events of the bus.
    Signal,
    /// The scheduler.
    Wakeup,
    /// What comes over WebSockets, and its own calls for what is sent over them.
    Socket,
}

/// Pieces of a streamed response.
pub(crate) type Pieces = BoxStream<'static, Result<Vec<u8>, Infallible>>;

/// Serves `agents` as `function`: boots once, then serves events until Lambda ends the process.
pub fn serve(function: Function, agents: &Agents) -> ExitCode {
    on_runtime(serve_events(function, agents))
}

/// Runs `served` to its end.
pub(crate) fn on_runtime(served: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(served),
        Err(error) => {
            // There is no log yet. Without an error stream there is no reader.
            let _ = writeln!(io::stderr(), "no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_events(function: Function, agents: &Agents) -> ExitCode {
    let exporter = Telemetry::from_env();
    telemetry::init(exporter.as_ref().ok().and_then(Option::as_ref));
    let exporter = exporter.unwrap_or_else(|error| {
        tracing::warn!(%error, "the function goes on without a collector");
        None
    });
    let served = match function {
        Function::Socket => serve_sockets(agents, exporter).await,
        Function::Inbound | Function::Signal | Function::Wakeup => serve_requests(function, agents, exporter).await,
    };
    ended(served)
}

/// Tells the log why a function ended.
pub(crate) fn ended(served: Result<(), ServeError>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(ServeError::Start(error)) => {
            tracing::error!(%error, "the function cannot start");
            ExitCode::FAILURE
        }
        Err(ServeError::Runtime(error)) => {
            tracing::error!(%error, "the function cannot go on");
            ExitCode::FAILURE
        }
    }
}

/// Reason for which a function ends.
pub(crate) enum ServeError {
    Start(BootError),
    Runtime(lambda_runtime::Error),
}

async fn serve_sockets(agents: &Agents, exporter: Option<Telemetry>) -> Result<(), ServeError> {
    let sockets = Arc::new(boot_sockets(agents, exporter).await.map_err(ServeError::Start)?);
    let handler = service_fn(|event: LambdaEvent<Value>| {
        let sockets = sockets.clone();
        async move {
            let left = time_left(clock(sockets.server().app()), event.context.deadline);
            sockets::handle(&sockets, event.payload, left).await.map_err(diagnostic)
        }
    });
    lambda_runtime::run(handler).await.map_err(ServeError::Runtime)
}

async fn serve_requests(function: Function, agents: &Agents, exporter: Option<Telemetry>) -> Result<(), ServeError> {
    let server = boot(function, agents, exporter).await.map_err(ServeError::Start)?;
    let handler = service_fn(|event: LambdaEvent<Value>| {
        let server = server.clone();
        async move { handle(&server, function, event).await.map_err(diagnostic) }
    });
    lambda_runtime::run(handler).await.map_err(ServeError::Runtime)
}

async fn handle(server: &Server, function: Function, event: LambdaEvent<Value>) -> Result<Value, TriggerError> {
    let app = server.app();
    let deadline = event.context.deadline;
    let left = time_left(clock(app), deadline).saturating_sub(TO_DRAIN);
    let answer = match function {
        Function::Inbound | Function::Socket => http(server, event.payload, left).await,
        Function::Signal if gateway::is_http(&event.payload) => http(server, event.payload, left).await,
        Function::Signal => app.event(event.payload, Some(left)).await,
        Function::Wakeup => app.wakeup(event.payload, Some(left)).await,
    };
    let drained = app.drain(Some(time_left(clock(app), deadline))).await;
    if drained.timeout_reached {
        tracing::warn!(
            undelivered = drained.undelivered_count,
            "observers did not take every event before the turn ended; the rest is lost"
        );
    }
    answer
}

async fn http(server: &Server, event: Value, left: Duration) -> Result<Value, TriggerError> {
    let left = left.min(GATEWAY);
    Ok(gateway::encode(server.http(gateway::decode(event, Some(left))?).await).await)
}

/// Time left by `clock` until `deadline`, which is in milliseconds since the epoch.
pub(crate) fn time_left(clock: &dyn Clock, deadline: u64) -> Duration {
    let now = u64::try_from(clock.now().as_millisecond()).unwrap_or_default();
    Duration::from_millis(deadline.saturating_sub(now)).saturating_sub(TO_ANSWER)
}

fn clock(app: &App) -> &dyn Clock {
    &*app.harness().engine().ports().clock
}

pub(crate) fn diagnostic(error: TriggerError) -> Diagnostic {
    let error_type = match &error {
        TriggerError::Unreadable(_) => "unreadable_event".to_owned(),
        TriggerError::Turn(error) => error.category.as_str().to_owned(),
    };
    tracing::error!(
        error_type,
        "the function could not handle the event and gives it back to the service, which delivers it again"
    );
    Diagnostic { error_type, error_message: error.to_string() }
}
