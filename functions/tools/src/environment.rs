//! The environment of this process, as a command may find it.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// What the runtime reads, what a command needs, and what the log is filtered by. Everything else goes, the credentials of
/// the role first of all.
const KEPT: [&str; 14] = [
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "AWS_LAMBDA_MAX_CONCURRENCY",
    "HOME",
    "LANG",
    "PATH",
    "RUST_LOG",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
];

/// Begins this program anew without what it does not need, where there is any of it: what a process was started with can
/// be read from outside for as long as it lives.
pub(crate) fn bare() -> io::Result<()> {
    let is_bare = std::env::vars_os().all(|(name, _)| KEPT.iter().any(|kept| name == *kept));
    if is_bare {
        return Ok(());
    }
    let kept = KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    // It returns only where it failed.
    Err(Command::new(std::env::current_exe()?).env_clear().envs(kept).exec())
}

pub(crate) fn complain(error: &io::Error) -> ExitCode {
    // There is no log yet. Without an error stream there is no reader.
    let _ = writeln!(io::stderr(), "the function for tools cannot start: {error}");
    ExitCode::FAILURE
}
