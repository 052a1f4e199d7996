use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_fetch::NetworkFetch;
use dormouse_ports::execution::{ExecutionError, RemoteReply, RemoteRequest};
use dormouse_tools::{CopyLimits, CopyWorker, Sandbox, remove_folder};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;

use crate::environment::complain;

/// Memory that this process keeps for itself: files of a workspace are in it three times while they are compared.
const OWN_MEMORY: u64 = 320 << 20;
/// Memory that a command gets in any case.
const LEAST_MEMORY: u64 = 64 << 20;
/// Where the program lies on Lambda, and nowhere else: there the temporary folder is all ours.
const ON_LAMBDA: &str = "/var/task";

/// Serves requests, one after the other, until Lambda ends the process.
pub(crate) fn serve() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    runtime.block_on(serve_requests())
}

async fn serve_requests() -> ExitCode {
    tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::INFO).init();
    let sandbox = match Sandbox::enter() {
        Ok(sandbox) => sandbox,
        Err(error) => return complain(&error),
    };
    // Of a process before this one in the same sandbox.
    if let Err(error) = swept() {
        return complain(&error);
    }
    let folder = std::env::temp_dir().join(format!("dormouse-copies-{}", std::process::id()));
    let limits = CopyLimits { memory: memory(), ..CopyLimits::default() };
    let worker = CopyWorker::new(Arc::new(NetworkFetch::new()), folder, limits);
    let handler = service_fn(|event: LambdaEvent<Value>| handle(&worker, &sandbox, event));
    match lambda_runtime::run(handler).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the function for tools cannot go on");
            ExitCode::FAILURE
        }
    }
}

async fn handle(worker: &CopyWorker, sandbox: &Sandbox, event: LambdaEvent<Value>) -> Result<RemoteReply, Error> {
    let left = time_left(event.context.deadline);
    let reply = match serde_json::from_value::<RemoteRequest>(event.payload) {
        Ok(request) => worker.handle(request, left).await,
        Err(error) => RemoteReply::Failed(ExecutionError::InvalidRequest {
            reason: format!("the request cannot be read: {error}; function and caller are of different versions"),
        }),
    };
    // Nothing of one workspace may be there when the next one comes: otherwise this process ends, and Lambda begins another.
    if let Err(error) = sandbox.clear().and_then(|()| swept()) {
        tracing::error!(%error, "the sandbox is not clean");
        std::process::exit(70);
    }
    Ok(reply)
}

/// Removes what commands left in the temporary folder, where that is all ours.
fn swept() -> io::Result<()> {
    if !std::env::current_exe()?.starts_with(ON_LAMBDA) {
        return Ok(());
    }
    for entry in std::fs::read_dir(std::env::temp_dir())? {
        let path = entry?.path();
        let is_folder = path.symlink_metadata()?.is_dir();
        if is_folder { remove_folder(&path)? } else { std::fs::remove_file(&path)? }
    }
    Ok(())
}

/// The memory that a command may take.
fn memory() -> u64 {
    let given = std::env::var("AWS_LAMBDA_FUNCTION_MEMORY_SIZE").ok().and_then(|text| text.parse::<u64>().ok());
    given.map_or(CopyLimits::default().memory, |mb| (mb << 20).saturating_sub(OWN_MEMORY).max(LEAST_MEMORY))
}

/// The time until Lambda stops this process; `deadline` is in milliseconds since 1970.
fn time_left(deadline: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(deadline).saturating_sub(now)
}
