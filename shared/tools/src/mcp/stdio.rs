//! Servers that are processes of this machine.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_ports::tool::ToolError;
use process_wrap::tokio::{CommandWrap, ProcessGroup};
use rmcp::transport::TokioChildProcess;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::connection::Start;
use crate::Values;
use crate::failure::unresolved;

/// Variables that every process gets, as far as they are set; everything else is named by its author.
const INHERITED: &[&str] = &["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];
/// Bytes of what a process writes to its error output that are kept.
const KEPT: usize = 2 * 1024;

/// Time for which the error output of a process that has ended is waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The end of what a process wrote to its error output.
#[derive(Debug)]
pub(super) struct Complaints {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Reads as long as the process writes.
    reader: Option<JoinHandle<()>>,
}

/// Starts a command line in a shell, in a process group of its own. It ends with the transport.
///
/// # Errors
/// A reference of its environment leads nowhere, or the process cannot be started.
pub(super) async fn start(start: &Start<'_>, values: &Values) -> Result<(TokioChildProcess, Complaints), ToolError> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(start.command).env_clear().kill_on_drop(true);
    shell.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    for (name, value) in start.environment {
        shell.env(name, values.resolve(value).await.map_err(|error| unresolved(&error))?.expose());
    }
    if let Some(folder) = start.folder {
        shell.current_dir(folder);
    }
    let mut group = CommandWrap::from(shell);
    group.wrap(ProcessGroup::leader());
    let started = TokioChildProcess::builder(group).stderr(Stdio::piped()).spawn();
    let (process, stderr) =
        started.map_err(|error| ToolError::permanent(format!("its process cannot be started: {error}")))?;
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let reader = stderr.map(|stderr| tokio::spawn(keep(kept.clone(), stderr)));
    Ok((process, Complaints { kept, reader }))
}

/// Reads `stderr` to its end, so that the process never waits for a reader.
async fn keep(into: Arc<Mutex<Vec<u8>>>, mut stderr: impl AsyncRead + Unpin) {
    let mut piece = [0; 1024];
    while let Ok(read) = stderr.read(&mut piece).await {
        if read == 0 {
            return;
        }
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&piece[..read]);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }
}

impl Complaints {
    /// Last output of a process that does not go on, if there is any.
    pub(super) async fn last(self) -> Option<String> {
        if let Some(reader) = self.reader {
            // What is late is not waited for: it only explains.
            let _ = tokio::time::timeout(LAST_WORDS, reader).await;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}
