//! The command line of agents: `dev` runs them, the other commands make packages, look at what sleeps and answer it.
//!
//! Commands open a store by themselves or speak to a server as any client does.

#![warn(missing_docs)]

mod answer;
mod audit;
mod declared;
mod definitions;
mod demo;
mod erase;
mod export;
mod grouped;
mod inspect;
mod keys;
mod letters;
mod log;
mod mirror;
mod named;
mod new;
mod receipts;
mod replay;
mod serve;
mod talk;
mod target;
mod templates;
mod terminal;
mod vault;
mod workspace;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use dormouse_api::Agents;
use dormouse_declared::ServedTemplates;
use dormouse_http::Authorization;
use dormouse_local::{DevOptions, FOLDER, program};
use dormouse_otel::{Telemetry, without_verbatim};
use tokio::runtime::Runtime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::audit::{AuditArgs, audit};
use crate::declared::{data_of, declared, with_own};
use crate::erase::{EraseCommand, erase};
use crate::export::{ExportSessionArgs, export};
use crate::grouped::grouped;
use crate::inspect::{OperatorCommand, inspect};
use crate::keys::{KeysCommand, keys};
use crate::letters::{LettersArgs, letters};
use crate::log::plain_fields;
use crate::mirror::{MirrorArgs, PLACE, follow_folder, mirror};
use crate::named::{named, renamed};
use crate::new::{Infra, New, NewError, infra, new};
use crate::receipts::{ReceiptsCommand, receipts};
use crate::replay::{ReplayArgs, replay};
use crate::serve::{ServeArgs, serve};
use crate::talk::{ClientCommand, talk};
use crate::templates::templates;
use crate::terminal::has_styles;
use crate::vault::{VaultCommand, vault};
use crate::workspace::{WorkspaceCommand, workspace};

/// Stack of a worker, in bytes: as much as the main thread of a function has.
const STACK: usize = 8 << 20;

/// Agents that sleep for free: they pause atomically, wait for a person, a job, an event or a clock, and go on exactly
/// once.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    after_help = "Exit codes: 0 fine; 1 an error; 2 arguments that make no sense; 3 the doctor found something wrong, receipts are not valid, \
        a replay ended differently, a folder has an error, or pauses that this version would not continue; 4 there is no such thing; 5 the task that was followed failed or \
        was canceled."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine: HTTP gateway, store, event bus and scheduler in one process.
    ///
    /// No account and no containers are needed. State, events and timers live in the data folder and survive a stop, a
    /// crash and `kill -9`; start again on the same folder to go on. Ctrl-C ends it after the running turns.
    Dev(Dev),
    /// Serve a table on AWS from this machine: HTTP, the work, or both, beside the functions or instead of them.
    ///
    /// The environment is that of the functions (`DORMOUSE_CALLBACK_SECRET`, `DORMOUSE_SIGNAL_KEY` or `DORMOUSE_SECRETS`,
    /// `AWS_REGION`, credentials; `DORMOUSE_BUS` and `DORMOUSE_SCHEDULER_GROUP` with what belongs to it are optional).
    Serve(ServeArgs),
    /// Make a package for agents of your own: an agent with its test, a Makefile, the functions for AWS.
    New(New),
    /// Look at a folder of Markdown and YAML that is an agent.
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Write the template and the scripts that build and deploy the functions of such a package, and remove them.
    Infra(Infra),
    #[command(flatten)]
    OperatorCommand(OperatorCommand),
    #[command(flatten)]
    ClientCommand(ClientCommand),
    /// Show who did what over HTTP, where that is kept.
    Audit(AuditArgs),
    /// Write a session whole, one JSON object in each line: the session, its tasks, messages, artifacts and events, as the
    /// protocol tells them.
    #[command(after_help = "Examples:\n  dormouse export session_01J… --out session.jsonl\n\n\
        JSON: resources of the protocol, whose `object` says what they are; `content` of an artifact is its text, where the \
        server has it. Exit code 4: there is no such session.")]
    Export(ExportSessionArgs),
    /// Erase a session, a workspace or a tenant with all that is stored of it, and say what was removed.
    #[command(subcommand)]
    Erase(EraseCommand),
    /// Make, replace, list and revoke API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Seal secrets of vaults in a file, list and remove them.
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Receipts of tasks: list and export them, verify them without a server, and replace the key that signs them.
    #[command(subcommand)]
    Receipts(ReceiptsCommand),
    /// Run a task again on what it recorded, without its model, its tools and the network.
    ///
    /// The replay is a task of its own, whose events are marked and whose receipt can be compared with that of the first
    /// run. Ends with 3 if it ends differently, or something was not recorded, which is named.
    #[command(after_help = "Examples:\n  dormouse replay task_01J…\n  \
        dormouse replay task_01J… --override llm:main:2=answer.json --diff\n  dormouse replay --since 24h --report\n\n\
        JSON: the task of the replay, or one verdict a line. Exit code 4: there is no such task.")]
    Replay(ReplayArgs),
    /// Keep what a server tells of a workspace in a SQLite database, beside the workspace or anywhere.
    Mirror(MirrorArgs),
    /// List the dead letters of a stack on AWS, with the reason and what helps, and hand them back.
    Letters(LettersArgs),
}

#[derive(Debug, clap::Args)]
struct Dev {
    /// Serve the agents of this folder of Markdown and YAML, each as a persona, instead of those of the program. State
    /// is kept in the folder, unless --data names another place.
    #[arg(long, value_name = "FOLDER")]
    workspace: Option<PathBuf>,
    /// Port on 127.0.0.1; 0 picks a free one (callback addresses then change from start to start).
    #[arg(long, default_value_t = 8787)]
    port: u16,
    /// Folder for state, events, timers and keys; made when it is missing. `.dormouse` without it, or a place in the
    /// workspace.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Seconds after which work that a killed process had claimed is free again; a turn may compute 5 seconds less. 20
    /// without it, and 900 for the agents of a folder, whose models and commands take long.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(6..=900))]
    lease: Option<u64>,
    /// Also serve requests for this name, that of a tunnel or proxy for example; may be given again.
    ///
    /// Its pages may then send requests as well. Requests for other names than those of this machine are refused.
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Vec<String>,
    /// Port on 127.0.0.1 where tools that speak DynamoDB may ask the store, with the secret that is printed; 0 picks
    /// one.
    #[arg(long, value_name = "PORT")]
    store_port: Option<u16>,
    /// Proof of identity that callers of /graphs and /chat have to give. `keys` without it for the agents of a folder, which
    /// may run commands there, else `none`.
    #[arg(long, value_enum)]
    authorization: Option<CallerProof>,
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = Log::Text)]
    log: Log,
    /// Do not print the guided tour.
    #[arg(long)]
    no_tour: bool,
}

/// Seconds of a claim where agents of a folder work.
const LEASE_OF_FOLDER: u64 = 900;

impl Dev {
    fn lease(&self) -> u64 {
        self.lease.unwrap_or(if self.workspace.is_some() { LEASE_OF_FOLDER } else { 20 })
    }
}

/// The name of a host as requests carry it. With more of an address around it, it would be that of no request.
fn host(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_name = !text.is_empty() && text.chars().all(is_part);
    match is_name || text.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("write the name alone, without `https://`, port and path: agents.example.com".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CallerProof {
    /// Not at all: every caller that reaches this machine's port may begin turns.
    None,
    /// By an API key, as on AWS; sessions belong to its actor.
    Keys,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Log {
    /// One short line for each fact.
    Text,
    /// One JSON object for each fact.
    Json,
}

/// Runs the command of this process's arguments, for `agents`. The log goes to the standard error stream and is
/// filtered by `RUST_LOG`; with `OTEL_EXPORTER_OTLP_ENDPOINT` it also goes to a collector, together with spans.
pub fn main(agents: &Agents) -> ExitCode {
    let given = grouped(named(Cli::command(), &program())).get_matches_from(asked_for(std::env::args_os()));
    match Cli::from_arg_matches(&given) {
        Ok(cli) => obey(cli, agents),
        Err(error) => error.exit(),
    }
}

/// The arguments without the options that ask for help where the command `help` does already.
fn asked_for(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|command| command == "help") {
        arguments.retain(|argument| argument != "--help" && argument != "-h");
    }
    arguments
}

/// Runs `agents` on this machine until Ctrl-C, as the command `dev` does without options.
pub fn dev(agents: &Agents) -> ExitCode {
    obey(Cli::parse_from(["dormouse", "dev"]), agents)
}

fn obey(cli: Cli, agents: &Agents) -> ExitCode {
    match cli.command {
        Command::Dev(arguments) => run(arguments, agents),
        Command::Serve(ask) => serve(ask, agents),
        Command::New(ask) => written(new(&ask)),
        Command::Infra(ask) => written(infra(&ask)),
        Command::Workspace(ask) => {
            quietly(async { workspace(ask, agents).await.map_err(|error| failed(ExitCode::FAILURE, &error)) })
        }
        Command::OperatorCommand(OperatorCommand::Migrate(ask)) if !ask.dry_run => {
            let message = "nothing is rewritten in bulk: each pause is migrated when it is resumed; `dormouse migrate \
                --dry-run` reports what would become of them";
            Cli::command().error(ErrorKind::MissingRequiredArgument, message).exit()
        }
        Command::OperatorCommand(ask) => quietly(async {
            inspect(ask, agents).await.map(Into::into).map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::ClientCommand(asked) => quietly(async {
            talk(asked, agents).await.map(Into::into).map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Keys(ask) => quietly(async {
            let done = keys(ask, agents).await.map(|()| ExitCode::SUCCESS);
            done.map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Vault(ask) => {
            quietly(async { vault(ask).map(|()| ExitCode::SUCCESS).map_err(|error| failed(error.exit_code(), &error)) })
        }
        Command::Erase(ask) => quietly(async {
            let done = erase(ask, agents).await.map(|()| ExitCode::SUCCESS);
            done.map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Export(ask) => quietly(async {
            let done = export(&ask).await.map(|()| ExitCode::SUCCESS);
            done.map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Audit(ask) => quietly(async {
            let done = audit(ask, agents).await.map(|()| ExitCode::SUCCESS);
            done.map_err(|error| failed(ExitCode::FAILURE, &error))
        }),
        Command::Receipts(ask) => quietly(async {
            let code = |sound| if sound { ExitCode::SUCCESS } else { ExitCode::from(3) };
            receipts(ask).await.map(code).map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Replay(ask) => quietly(async {
            let code = |equal| if equal { ExitCode::SUCCESS } else { ExitCode::from(3) };
            replay(ask).await.map(code).map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Mirror(ask) => quietly(async {
            let done = mirror(ask).await.map(|()| ExitCode::SUCCESS);
            done.map_err(|error| failed(error.exit_code(), &error))
        }),
        Command::Letters(ask) => quietly(async {
            let done = letters(ask).await.map(|()| ExitCode::SUCCESS);
            done.map_err(|error| failed(error.exit_code(), &error))
        }),
    }
}

/// Exit of a command that failed with `error`: the code, and the complaint. A reader that has seen enough, as `head`
/// has, is no failure.
fn failed(code: ExitCode, error: &(dyn Error + 'static)) -> (ExitCode, Option<String>) {
    match is_enough(error) {
        true => (ExitCode::SUCCESS, None),
        false => (code, Some(error.to_string())),
    }
}

fn is_enough(error: &(dyn Error + 'static)) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref().is_some_and(closed) || error.source().is_some_and(is_enough)
}

/// Exit of a command that only writes files.
fn written(done: Result<(), NewError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

/// Runs a command. The log is silent unless `RUST_LOG` asks for it: its output is printed.
fn quietly(command: impl Future<Output = Result<ExitCode, (ExitCode, Option<String>)>>) -> ExitCode {
    let filter = filter_or("off");
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = lines.log_internal_errors(false).compact().fmt_fields(plain_fields());
    let lines = lines.with_ansi(has_styles(&io::stderr()));
    tracing_subscriber::registry().with(filter).with(lines).init();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    runtime.block_on(command).unwrap_or_else(|(code, complaint)| {
        if let Some(message) = complaint {
            complain(&message);
        }
        code
    })
}

/// What runs a command; where there is nothing that could, its exit, with the reason told.
fn runtime() -> Result<Runtime, ExitCode> {
    let built = tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK).enable_all().build();
    built.map_err(|error| complain(&format!("no runtime: {error}")))
}

/// Starts the log of a command that serves; its collector as the environment has it, and what runs it.
fn begin(log: Log) -> Result<(Option<Telemetry>, Runtime), ExitCode> {
    let exporter = Telemetry::from_env();
    start_log(log, exporter.as_ref().ok().and_then(Option::as_ref));
    let exporter = exporter.map_err(|error| complain(&error.to_string()))?;
    Ok((exporter, runtime()?))
}

fn run(arguments: Dev, agents: &Agents) -> ExitCode {
    let (exporter, runtime) = match begin(arguments.log) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    let lease = Duration::from_secs(arguments.lease());
    let data = match (arguments.data, &arguments.workspace) {
        (Some(data), _) => data,
        (None, Some(folder)) => data_of(folder),
        (None, None) => FOLDER.into(),
    };
    let found = match &arguments.workspace {
        Some(folder) => match runtime.block_on(declared(folder, &data, None, agents.crate_tools())) {
            Ok(found) => {
                runtime.spawn(follow_folder(data.clone(), folder.join(PLACE), found.history));
                Some(found.agents)
            }
            Err(error) => return complain(&error.to_string()),
        },
        None => None,
    };
    // It may be told later to keep the history.
    let follower = found.is_some();
    let demo = match &found {
        None if agents.tour().is_some_and(|tour| tour.contains(demo::BLANK)) => {
            match runtime.block_on(demo::with_demo(agents)) {
                Ok(demo) => Some(demo),
                Err(error) => return complain(&format!("no port can be had for the model of the tour: {error}")),
            }
        }
        Some(_) | None => None,
    };
    let agents = found.as_ref().or(demo.as_ref().map(|(agents, _)| agents)).unwrap_or(agents);
    let agents = with_own(agents.clone(), arguments.workspace.clone());
    let agents = &agents.with_templates(Arc::new(ServedTemplates::read_by(|| {
        Box::pin(async { templates().await.map_err(|error| error.to_string()) })
    })));
    let options = DevOptions {
        port: arguments.port,
        data,
        lease,
        tour: !arguments.no_tour,
        hosts: arguments.host,
        store_port: arguments.store_port,
        authorization: match arguments.authorization {
            Some(CallerProof::Keys) => Authorization::Keys,
            None if found.is_some() => Authorization::Keys,
            Some(CallerProof::None) | None => Authorization::None,
        },
        follower,
        workspace: arguments.workspace,
    };
    match runtime.block_on(dormouse_local::dev(agents, options, exporter)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

/// The filter of `RUST_LOG`, or `otherwise`. What servers of tools say word by word is logged where `RUST_LOG` names `rmcp`.
fn filter_or(otherwise: &str) -> EnvFilter {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|error| {
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_some() {
            // Without an error stream there is no log either.
            let _ =
                writeln!(io::stderr(), "note: RUST_LOG cannot be read, and `{otherwise}` counts in its place: {error}");
        }
        EnvFilter::new(otherwise)
    });
    without_verbatim(filter, &std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default())
}

/// What is logged where `RUST_LOG` names nothing. The embedded store warns of every condition that did not hold, which is how
/// races end here; and the SDK misses a connection, of which there is none in a process, with each attempt that it repeats.
const USUAL: &str = "info,dynoxide=error,aws_smithy_runtime::client::http::connection_poisoning=off";

fn start_log(log: Log, exporter: Option<&Telemetry>) {
    let filter = filter_or(USUAL);
    // Where the terminal or the reader of the log is gone, its lines are lost; to tell that there would be a panic.
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false).with_target(false);
    let lines = match log {
        Log::Text => lines.compact().fmt_fields(plain_fields()).with_ansi(has_styles(&io::stderr())).boxed(),
        Log::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).with(exporter.map(Telemetry::log_bridge)).init();
}

fn complain(message: &str) -> ExitCode {
    // Without an error stream there is no reader to complain to.
    let _ = writeln!(std::io::stderr(), "error: {}", terminal::plain(&renamed(message, &program())));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::MirrorFailure;
    use crate::workspace::WorkspaceFailure;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_may_be_asked_for_twice() {
        let of = |words: &[&str]| asked_for(words.iter().map(OsString::from));
        assert_eq!(of(&["dormouse", "help", "--help"]), ["dormouse", "help"]);
        assert_eq!(of(&["dormouse", "help", "chat", "-h"]), ["dormouse", "help", "chat"]);
        assert_eq!(of(&["dormouse", "answer", "help", "-h"]), ["dormouse", "answer", "help", "-h"]);
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let is_told = |error: &(dyn Error + 'static)| failed(ExitCode::FAILURE, error).1.is_some();
        assert!(!is_told(&WorkspaceFailure::Write(closed())));
        assert!(!is_told(&MirrorFailure::Write(closed())));
        assert!(is_told(&WorkspaceFailure::Write(io::Error::other("the disk is full"))));
    }

    #[test]
    fn a_lease_leaves_time_to_compute() {
        assert!(Cli::try_parse_from(["dormouse", "dev", "--lease", "5"]).is_err());
        let lease = |arguments: &[&str]| match Cli::try_parse_from(["dormouse", "dev"].iter().chain(arguments)) {
            Ok(Cli { command: Command::Dev(dev) }) => dev.lease(),
            other => panic!("{other:?}"),
        };
        assert_eq!((lease(&[]), lease(&["--workspace", "."])), (20, 900));
        assert_eq!(lease(&["--workspace", ".", "--lease", "30"]), 30);
    }

    #[test]
    fn the_usual_log_is_a_filter() {
        let filter = EnvFilter::try_new(USUAL).expect("a filter").to_string();
        assert!(filter.contains("connection_poisoning=off") && filter.contains("info"), "{filter}");
    }

    #[test]
    fn a_host_is_a_name_and_no_address() {
        for name in ["agents.example.com", "Tunnel-7.example", "my_host", "192.0.2.7", "2001:db8::7"] {
            assert_eq!(host(name).as_deref(), Ok(name));
        }
        for wrong in ["", "https://agents.example.com", "agents.example.com:8787", "agents.example.com/", "a b", "*"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_end_is_put_off_for_a_day_at_most() {
        let grace = |seconds: &str| Cli::try_parse_from(["dormouse", "serve", "--table", "t", "--grace", seconds]);
        assert!(grace("0").is_ok() && grace("86400").is_ok());
        assert!(grace("86401").is_err() && grace("18446744073709551615").is_err());
    }
}
