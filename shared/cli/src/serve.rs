//! `dormouse serve`: the same on machines of one's own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use dormouse_api::Agents;
use dormouse_harness::{HarnessConfig, Mode};
use dormouse_lambda::{BootError, Config, machine};
use dormouse_local::{MachineError, MachineOptions, MachineRole, serve_machine};
use dormouse_otel::Telemetry;

use crate::{Log, begin, complain};

/// The longest time for which an end may be put off, in seconds: a day.
const LONGEST_GRACE: u64 = 86_400;

/// Serves a table.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// What this process does; both without it.
    #[arg(long, value_enum, default_value_t = ServedRole::All)]
    role: ServedRole,
    /// The DynamoDB table.
    #[arg(long, value_name = "TABLE", env = "DORMOUSE_TABLE")]
    table: String,
    /// Address and port to listen at. A worker answers only `/healthz` and `/readyz` there. Requests come with keys as on AWS,
    /// and without TLS: put a proxy in front of what is not loopback.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
    /// Seconds that running turns may take when the process is asked to end; what is cut then is taken over elsewhere.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(..=LONGEST_GRACE)
    )]
    grace: u64,
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = Log::Json)]
    log: Log,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ServedRole {
    /// Answers requests.
    Api,
    /// Begins what was accepted, wakes what falls due, sweeps.
    Worker,
    /// Both.
    All,
}

/// Reason for which nothing is served.
#[derive(Debug, thiserror::Error)]
enum ServeCommandError {
    #[error(transparent)]
    Config(#[from] dormouse_http::ConfigError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Machine(#[from] MachineError),
}

pub(crate) fn serve(asked: ServeArgs, agents: &Agents) -> ExitCode {
    let (exporter, runtime) = match begin(asked.log) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    match runtime.block_on(served(asked, exporter, agents)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

async fn served(asked: ServeArgs, telemetry: Option<Telemetry>, agents: &Agents) -> Result<(), ServeCommandError> {
    let ServeArgs { role, table, listen, grace, log: _ } = asked;
    let config = Config::of_machine(|name| match name {
        "DORMOUSE_TABLE" => Some(table.clone()),
        other => std::env::var(other).ok(),
    })?;
    let body_limit = config.quotas.limits.body;
    // A claim lasts as long as a turn may compute, and a margin.
    let lease = config.turn + HarnessConfig::new(Mode::Sessioned).lease_margin;
    let sends_spans = telemetry.is_some();
    let made = machine(config, telemetry, agents).await?;
    let role = match role {
        ServedRole::Api => MachineRole::Api,
        ServedRole::Worker => MachineRole::Worker,
        ServedRole::All => MachineRole::All,
    };
    let grace = Duration::from_secs(grace);
    let options = MachineOptions { role, listen, body_limit, lease, grace, sends_spans };
    Ok(serve_machine(made.server, made.sleepers.0, made.work, options).await?)
}
