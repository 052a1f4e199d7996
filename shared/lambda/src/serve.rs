use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use dormouse_api::Agents;
use dormouse_http::{App, HeldSockets, Request, Response, Server, TriggerError, TurnServer};
use dormouse_otel::Telemetry;
use dormouse_ports::Clock;
use futures::stream::BoxStream;
use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::boot::{BootError, boot, boot_app, boot_sockets};
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
///
/// A program that names its function here holds the code of that one alone, as the optimiser sees to: what wakes up knows
/// nothing of HTTP, and what takes signals nothing of the protocol.
#[inline]
pub fn serve(function: Function, agents: &Agents) -> ExitCode {
    match function {
        Function::Inbound => on_runtime(|| async { boot(function, agents, exporter()).await }, serve_requests),
        Function::Signal => on_runtime(|| async { boot_app(function, agents, exporter()).await }, serve_signals),
        Function::Wakeup => on_runtime(|| async { boot_app(function, agents, exporter()).await }, serve_wakeups),
        Function::Socket => on_runtime(|| async { boot_sockets(agents, exporter()).await }, serve_sockets),
    }
}

/// Boots by `boot`, then runs what `serve` makes of it to its end, and tells the log why it ended.
pub(crate) fn on_runtime<T, B, S>(boot: impl FnOnce() -> B, serve: impl FnOnce(T) -> S) -> ExitCode
where
    B: Future<Output = Result<T, BootError>>,
    S: Future<Output = Result<(), lambda_runtime::Error>>,
{
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => ended(match run(&runtime, boot) {
            Ok(booted) => run(&runtime, || serve(booted)).map_err(ServeError::Runtime),
            Err(error) => Err(ServeError::Start(error)),
        }),
        Err(error) => {
            // There is no log yet. Without an error stream there is no reader.
            let _ = writeln!(io::stderr(), "no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the future that `make` makes, in a frame of its own and without moving it: two that run one after the other lie on the
/// same pages of the stack, and once.
#[inline(never)]
fn run<F: Future>(runtime: &Runtime, make: impl FnOnce() -> F) -> F::Output {
    runtime.block_on(pin!(make()))
}

/// The exporter that the environment describes, if there is one; the log goes there too.
fn exporter() -> Option<Telemetry> {
    let exporter = Telemetry::from_env();
    telemetry::init(exporter.as_ref().ok().and_then(Option::as_ref));
    exporter.unwrap_or_else(|error| {
        tracing::warn!(%error, "the function goes on without a collector");
        None
    })
}

/// Tells the log why a function ended.
fn ended(served: Result<(), ServeError>) -> ExitCode {
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
enum ServeError {
    Start(BootError),
    Runtime(lambda_runtime::Error),
}

async fn serve_sockets(sockets: HeldSockets) -> Result<(), lambda_runtime::Error> {
    serve_turns(sockets.server().app(), async |event, left| sockets::handle(&sockets, event, left).await).await
}

async fn serve_requests(server: Server) -> Result<(), lambda_runtime::Error> {
    serve_turns(server.app(), async |event, left| http(event, left, |request| server.http(request)).await).await
}

async fn serve_signals(app: App) -> Result<(), lambda_runtime::Error> {
    let server = TurnServer::new(app);
    serve_turns(server.app(), async |event, left| match gateway::is_http(&event) {
        true => http(event, left, |request| server.http(request)).await,
        false => server.app().event(event, Some(left)).await,
    })
    .await
}

async fn serve_wakeups(app: App) -> Result<(), lambda_runtime::Error> {
    serve_turns(&app, async |event, left| app.wakeup(event, Some(left)).await).await
}

/// Serves events by `handle`, which gets the time that is left for each; the observers of the turns of `app` have theirs
/// behind it.
async fn serve_turns(
    app: &App,
    handle: impl AsyncFn(Value, Duration) -> Result<Value, TriggerError>,
) -> Result<(), lambda_runtime::Error> {
    let handler = service_fn(async |event: LambdaEvent<Value>| {
        let deadline = event.context.deadline;
        let left = time_left(clock(app), deadline).saturating_sub(TO_DRAIN);
        // What is logged of a failure leaves with the rest: behind this the sandbox is frozen.
        let answer = handle(event.payload, left).await.map_err(diagnostic);
        let drained = app.drain(Some(time_left(clock(app), deadline))).await;
        if drained.timeout_reached {
            tracing::warn!(
                undelivered = drained.undelivered_count,
                "observers did not take every event before the turn ended; the rest is lost"
            );
        }
        answer
    });
    lambda_runtime::run(handler).await
}

/// Answers the request that `event` carries by `serve`.
async fn http<F>(event: Value, left: Duration, serve: impl FnOnce(Request) -> F) -> Result<Value, TriggerError>
where
    F: Future<Output = Response>,
{
    let request = gateway::decode(event, Some(left.min(GATEWAY)))?;
    Ok(gateway::encode(serve(request).await).await)
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
