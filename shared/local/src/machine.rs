//! A process on a machine of one's own, on a table of AWS: the HTTP interface, the work, or both. Any number of them may run
//! beside each other and beside the functions; the table keeps them from each other's turns.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dormouse_harness::SIGNAL;
use dormouse_http::Server;
use dormouse_ports::{Clock, Sleepers, StoreError};
use dormouse_system::SystemClock;
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::dev::send_spans;
use crate::dispatcher::{DeliveryResult, Dispatcher, Functions, InvokeError, Job};
use crate::end::EndSignals;
use crate::functions::Served;
use crate::gate::Gate;
use crate::gateway::Front;
use crate::lane::{Lane, Turns};
use crate::listen;
use crate::scheduler::LocalScheduler;
use crate::shutdown::{RunningGuard, Shutdown};
use crate::sweeper;

/// Time in which the table is looked at before anybody is sent here.
const TIME_TO_LOOK: Duration = Duration::from_secs(5);
/// Interval at which a worker looks for work that other processes accepted.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Interval at which it looks for what falls due.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Time after which it is tried again to leave a signal to another worker.
const LEAVE_AGAIN: Duration = Duration::from_millis(250);
/// Time that observers may take at the end.
const TIME_TO_TELL: Duration = Duration::from_millis(500);

/// Roles of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineRole {
    /// It answers requests, and leaves accepted work and what falls due to workers.
    Api,
    /// It does the work, and answers only for its health.
    Worker,
    /// Both.
    All,
}

/// Options of such a process.
#[derive(Clone, Copy, Debug)]
pub struct MachineOptions {
    /// Role of the process.
    pub role: MachineRole,
    /// Address at which it listens.
    pub listen: SocketAddr,
    /// The largest body of a request, in bytes.
    pub body_limit: usize,
    /// After which time the claims of a killed process are free.
    pub lease: Duration,
    /// Time that turns and connections may take when it is asked to end.
    pub grace: Duration,
    /// True if spans are sent.
    pub sends_spans: bool,
}

/// Reason for which it does not run.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The address belongs to another process, or is none of this machine.
    #[error("{0} cannot be listened at: {1}; choose another address with --listen")]
    Listen(SocketAddr, io::Error),
    /// The table is not there, or is closed to this process.
    #[error("the table cannot be used: {0}; see --table, AWS_REGION and the credentials")]
    Table(StoreError),
    /// The operating system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves `server` until SIGINT or SIGTERM, or until its terminal is closed, then ends in order: `/readyz` says 503, no new
/// requests and no new work, running turns finished for as long as `grace`. What is cut then is taken over by another worker
/// when its claim has ended.
///
/// `work` are calls for work that this process makes itself, and signals that it delivers; `store` knows what falls due.
///
/// # Errors
/// [`MachineError`] when it cannot start.
pub async fn serve_machine(
    server: Server,
    store: Arc<dyn Sleepers>,
    work: mpsc::UnboundedReceiver<Value>,
    options: MachineOptions,
) -> Result<(), MachineError> {
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|error| MachineError::Listen(options.listen, error))?.into_std()?;
    // Those who come while the process ends are answered at the same place.
    let late = TcpListener::from_std(listener.try_clone()?)?;
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    look(&*store).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let shutdown = Shutdown::new();
    let app = server.app().clone();
    let processor = Turns::of_processor(clock.clone());
    let functions: Arc<dyn Functions> = Arc::new(Served(app.clone()));
    let dispatcher = Arc::new(Dispatcher::new(functions.clone(), processor.clone(), clock.clone(), shutdown.running()));
    let (over, last) = oneshot::channel();
    let telling = tokio::spawn(take_up(work, options.role, dispatcher.clone(), last));
    if options.role != MachineRole::Api {
        tokio::spawn(LocalScheduler::reading_every(READ_EVERY, clock.clone()).run(store, dispatcher));
        tokio::spawn(sweeper::run_every(LOOK_EVERY, functions, clock.clone(), options.lease, shutdown.running()));
    }
    if options.sends_spans {
        tokio::spawn(send_spans(app.clone(), shutdown.running()));
    }
    let running = shutdown.running();
    let health = Readiness(running.clone());
    let routes = Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready)).with_state(health);
    let routes = match options.role {
        MachineRole::Worker => routes,
        MachineRole::Api | MachineRole::All => {
            let gate = Gate::new(processor, clock);
            let front = Front { server, body_limit: options.body_limit, running: running.clone(), gate };
            routes.merge(Router::new().fallback(forward).with_state(front))
        }
    };
    let serving = tokio::spawn(listen::serve(listener, routes, running));
    tracing::info!(%address, role = ?options.role, "ready");
    // Who reads that it is ready may ask it to end at once.
    let mut signals = EndSignals::listen()?;
    if let Err(error) = writeln!(io::stdout(), "dormouse is ready at http://{address}") {
        tracing::info!(%error, "nobody reads what is printed at the start");
    }
    signals.asked().await;
    tracing::info!("ending after the running turns; a second signal ends at once");
    tokio::spawn(signals.end_at_once());
    tokio::spawn(turn_away(late));
    let by = Instant::now() + options.grace + TIME_TO_TELL;
    match timeout(options.grace, shutdown.end()).await {
        Ok(()) => serving.await.map_err(io::Error::other)??,
        Err(_) => tracing::warn!("some turns and connections did not end and are cut; another worker takes them over"),
    }
    drop(over);
    if timeout_at(by, telling).await.is_err() {
        tracing::warn!("some who wait were not told what they wait for, and look for themselves within 15 minutes");
    }
    let drained = app.drain(Some(TIME_TO_TELL)).await;
    if drained.undelivered_count > 0 {
        tracing::warn!(undelivered = drained.undelivered_count, "observers did not take every event; the rest is lost");
    }
    Ok(())
}

/// Looks at the table: nobody is to be sent to a process that no later attempt lets work. One that does not answer yet is
/// waited for by whoever asks it.
async fn look(store: &dyn Sleepers) -> Result<(), MachineError> {
    match timeout(TIME_TO_LOOK, store.list_pending(Some(Timestamp::UNIX_EPOCH), None)).await {
        Ok(Err(error @ StoreError::Denied(_))) => return Err(MachineError::Table(error)),
        Ok(Err(error)) => tracing::warn!(%error, "the table does not answer yet"),
        Err(_) => tracing::warn!("the table does not answer yet"),
        Ok(Ok(_)) => {}
    }
    Ok(())
}

/// Delivers the signals of this process, and takes up the work that it called for, unless its `role` leaves that to workers.
///
/// When the process ends, signals are given to those who wait for them, and these are left to other workers; also those of
/// turns that end meanwhile, until nothing works any more, which is when the other end of `over` is gone.
async fn take_up(
    mut work: mpsc::UnboundedReceiver<Value>,
    role: MachineRole,
    dispatcher: Arc<Dispatcher>,
    mut over: oneshot::Receiver<()>,
) {
    loop {
        let call = tokio::select! {
            call = work.recv() => call,
            () = dispatcher.running().stopping() => None,
        };
        let Some(call) = call else { break };
        let job = match call["detail-type"] == SIGNAL {
            true => Job::Event(call),
            false if role == MachineRole::Api => continue,
            false => Job::Wakeup(call),
        };
        let dispatcher = dispatcher.clone();
        tokio::spawn(async move {
            let carried = dispatcher.carry(&Lane::House, &job).await;
            if let (DeliveryResult::Interrupted, Job::Event(signal)) = (carried, job) {
                leave(&**dispatcher.functions(), signal).await;
            }
        });
    }
    let functions = dispatcher.functions().clone();
    // It is one of those that the end waits for.
    drop(dispatcher);
    let mut leaving = JoinSet::new();
    loop {
        let call = tokio::select! {
            biased;
            call = work.recv() => call,
            _ = &mut over => None,
        };
        let Some(call) = call else { break };
        if call["detail-type"] == SIGNAL {
            let functions = functions.clone();
            leaving.spawn(async move { leave(&*functions, call).await });
        }
    }
    leaving.join_all().await;
}

/// Leaves `signal` to another worker, and tries that again for as long as the process is there.
async fn leave(functions: &dyn Functions, signal: Value) {
    while let Err(error) = functions.leave(signal.clone()).await {
        match error {
            InvokeError::Transient(reason) => {
                tracing::warn!(%reason, "a signal could not be left to another worker");
                tokio::time::sleep(LEAVE_AGAIN).await;
            }
            InvokeError::Permanent(reason) => {
                tracing::error!(%reason, "a signal is refused");
                return;
            }
        }
    }
}

async fn forward(State(front): State<Front>, request: Request<Body>) -> Response {
    front.answer(request.map(listen::in_time)).await
}

/// Answers those who come while the process ends: it is well, and not ready for them.
async fn turn_away(listener: TcpListener) -> io::Result<()> {
    let routes = Router::new().route("/healthz", get(healthy)).fallback(ending);
    axum::serve(listener, routes).await
}

async fn ending() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1"), (CONNECTION, "close")], "ending\n").into_response()
}

#[derive(Clone)]
struct Readiness(RunningGuard);

async fn healthy() -> Response {
    (StatusCode::OK, "ok\n").into_response()
}

async fn ready(State(health): State<Readiness>) -> Response {
    match health.0.is_stopping() {
        false => (StatusCode::OK, "ready\n").into_response(),
        true => ending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::dispatcher::tests::{Flaky, dispatcher};

    fn signal(id: &str) -> Value {
        json!({ "detail-type": SIGNAL, "detail": { "signal_id": id } })
    }

    #[tokio::test]
    async fn who_comes_while_the_process_ends_is_turned_away_at_the_same_place() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port").into_std().expect("a listener");
        let late = TcpListener::from_std(listener.try_clone().expect("another")).expect("a listener");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let serving = tokio::spawn(turn_away(late));
        for (path, status) in [("healthz", 200), ("readyz", 503), ("v1/tasks", 503)] {
            let mut caller = tokio::net::TcpStream::connect(address).await.expect("it is listened to");
            let request = format!("GET /{path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
            caller.write_all(request.as_bytes()).await.expect("it is read");
            let mut answer = String::new();
            caller.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
            assert_eq!(answer.contains("retry-after: 1"), status == 503, "{answer}");
        }
        serving.abort();
    }

    #[tokio::test]
    async fn signals_that_are_on_their_way_when_the_process_ends_are_left_to_other_workers_and_so_are_those_of_the_last_turn()
     {
        let functions = Arc::new(Flaky::default());
        // The first attempt fails, and is made again.
        functions.failures.lock().expect("a lock").push(InvokeError::Transient("busy".to_owned()));
        let shutdown = Shutdown::new();
        let (calls, work) = mpsc::unbounded_channel();
        let (over, last) = oneshot::channel();
        let turn = shutdown.running();
        shutdown.stop();
        calls.send(signal("queued")).expect("it is taken");
        let telling = tokio::spawn(take_up(work, MachineRole::All, dispatcher(&functions, &shutdown), last));
        let works = async {
            turn.stopping().await;
            tokio::task::yield_now().await;
            calls.send(signal("told by the last turn")).expect("it is taken");
            calls.send(json!({ "detail-type": "Dormouse Work" })).expect("it is taken");
            drop(turn);
        };
        futures::future::join(shutdown.end(), works).await;
        drop(over);
        telling.await.expect("it ends");
        let mut taken = functions.taken.lock().expect("a lock").clone();
        taken.sort_by_key(ToString::to_string);
        assert_eq!(taken, [signal("queued"), signal("told by the last turn")].map(|it| json!({ "left": it })));
    }
}
