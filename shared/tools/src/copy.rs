//! A copy of a workspace in a temporary folder, for a function that may reach nothing else.
//!
//! A request names three addresses, each with its own permission: the definitions, the files, and where changed files are
//! written. The copy is laid out, one operation is done in it as in a folder of this machine, and what changed is written
//! back under the condition of what was read. Where another writer came in between, both changes are kept unless they
//! are of the same file. The folder is gone afterwards.
//!
//! The process needs no right of its own: neither a table nor a bucket nor a secret. What a command can reach is its own
//! copy, the values that its tool names, and the network of the function.

mod definitions;
mod exchange;
mod sandbox;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::Fetch;
use dormouse_ports::execution::{
    CommandLimits, ExecutionBackend, ExecutionError, FileWrite, REMOTE_BYTES, RemoteCommand, RemoteOperation,
    RemoteReply, RemoteRequest, ShellCommand,
};

use crate::LocalBackend;
use crate::paths::{confined, within};
use definitions::Definitions;
use exchange::{CopyOutcome, Exchange};
pub use sandbox::{Sandbox, remove_folder};
use tree::FileTree;

/// Attempts at writing back what changed.
const ATTEMPTS: usize = 20;
/// Kept back from the time of a request, to write files and to answer.
const TO_ANSWER: Duration = Duration::from_secs(10);

/// Limits of the copies of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Bytes of all files of a workspace.
    pub bytes: u64,
    /// Number of them, with folders and links.
    pub entries: usize,
    /// Bytes of memory that a command may take.
    pub memory: u64,
}

impl Default for CopyLimits {
    /// 64 MiB in 20,000 files, 512 MiB of memory.
    fn default() -> Self {
        Self { bytes: 64 << 20, entries: 20_000, memory: 512 << 20 }
    }
}

/// Does what requests ask for, each in a copy of its own.
pub struct CopyWorker {
    fetch: Arc<dyn Fetch>,
    folder: PathBuf,
    limits: CopyLimits,
}

impl std::fmt::Debug for CopyWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyWorker").field("folder", &self.folder).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl CopyWorker {
    /// Copies below `folder`, read and written over `fetch`.
    pub fn new(fetch: Arc<dyn Fetch>, folder: impl Into<PathBuf>, limits: CopyLimits) -> Self {
        Self { fetch, folder: folder.into(), limits }
    }

    /// Does what `request` asks for, within the time that is `left`.
    pub async fn handle(&self, request: RemoteRequest, left: Duration) -> RemoteReply {
        self.answered(request, left).await.unwrap_or_else(RemoteReply::Failed)
    }

    async fn answered(&self, request: RemoteRequest, left: Duration) -> Result<RemoteReply, ExecutionError> {
        let exchange = Exchange::new(&*self.fetch, &request, self.limits);
        let definitions = exchange.definitions().await?;
        let (before, version) = exchange.files().await?;
        let place = Folder::make(&self.folder)?;
        tree::lay_out(&place.0, &definitions, &before)?;
        let backend = LocalBackend::open(&place.0)?.as_copy();
        let may_change = matches!(request.operation, RemoteOperation::Write { .. } | RemoteOperation::Run(_));
        let time = left.saturating_sub(TO_ANSWER).max(left / 2);
        let published = published(&request.operation, &definitions);
        let mut reply = done(&backend, request.operation, time, self.limits).await?;
        if let Some(path) = published {
            let reason = "it is published, and what is written to it here does not stay: write another file";
            return Err(confined(&path, reason));
        }
        if may_change {
            let (after, unkept) = FileTree::of(&place.0, &definitions, self.limits)?;
            drop(place);
            kept(&exchange, (before, version), after).await?;
            if let (Some(line), RemoteReply::Ran(outcome)) = (unkept.told(), &mut reply) {
                tracing::warn!(line, "a command wrote what is not kept");
                let text = &mut outcome.stderr.text;
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                text.extend([end, line.as_str(), "\n"]);
            }
        }
        Ok(reply)
    }
}

/// The path of the file of `definitions` that `operation` writes, if it writes one.
fn published(operation: &RemoteOperation, definitions: &Definitions) -> Option<String> {
    let RemoteOperation::Write { path, .. } = operation else { return None };
    within(path, path).ok().filter(|path| definitions.contains_key(path))
}

/// Writes `after` back, where it is another one than `before`. What others wrote in between is kept.
async fn kept(
    exchange: &Exchange<'_>,
    (before, mut version): (FileTree, Option<String>),
    after: FileTree,
) -> Result<(), ExecutionError> {
    if after == before {
        return Ok(());
    }
    let mut next = after.clone();
    for _ in 0..ATTEMPTS {
        match exchange.write(&next, version.as_deref()).await? {
            CopyOutcome::Done => return Ok(()),
            CopyOutcome::Conflict => {
                let (theirs, seen) = exchange.files().await?;
                // An attempt meets itself when its answer was lost.
                if theirs == next {
                    return Ok(());
                }
                next = after.merged_into(&before, theirs)?;
                version = seen;
            }
        }
    }
    Err(ExecutionError::Unavailable {
        reason: "others write to the workspace all the time; nothing of this was kept".to_owned(),
        uncertain: true,
    })
}

async fn done(
    backend: &LocalBackend,
    operation: RemoteOperation,
    time: Duration,
    limits: CopyLimits,
) -> Result<RemoteReply, ExecutionError> {
    Ok(match operation {
        RemoteOperation::Read { path, limit } => {
            let read = backend.read(&path, limit.min(REMOTE_BYTES)).await?;
            RemoteReply::Read { base64: STANDARD.encode(read.bytes), version: read.version }
        }
        RemoteOperation::Write { path, base64, condition, definitions } => {
            let bytes = decoded(&base64)?;
            RemoteReply::Written(backend.write(&FileWrite { path, bytes, condition, definitions }).await?)
        }
        RemoteOperation::Glob(request) => RemoteReply::Found(backend.glob(&request).await?),
        RemoteOperation::Grep(request) => RemoteReply::Matched(backend.grep(&request).await?),
        RemoteOperation::Run(command) => RemoteReply::Ran(backend.run(&bounded(command, time, limits)?).await?),
    })
}

/// `command` within the limits of this process.
fn bounded(command: RemoteCommand, time: Duration, limits: CopyLimits) -> Result<ShellCommand, ExecutionError> {
    let asked = command.limits;
    Ok(ShellCommand {
        command: command.command,
        shell: command.shell,
        folder: command.folder,
        environment: command.environment.into_iter().map(|(name, value)| (name, value.into())).collect(),
        input: decoded(&command.input)?,
        limits: CommandLimits { time: asked.time.min(time), memory: asked.memory.min(limits.memory), ..asked },
    })
}

fn decoded(base64: &str) -> Result<Vec<u8>, ExecutionError> {
    STANDARD
        .decode(base64)
        .map_err(|error| ExecutionError::InvalidRequest { reason: format!("the request has no base64: {error}") })
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn make(below: &Path) -> Result<Self, ExecutionError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("copy-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = below.join(name);
        let failed =
            |error: std::io::Error| ExecutionError::Denied { reason: format!("no folder can be made: {error}") };
        std::fs::create_dir_all(&path).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A command may have taken rights away; a folder that is left over is removed with the next one.
        if let Err(error) = remove_folder(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "a copy of a workspace could not be removed; its process should end");
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::execution::FileCondition;
    use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};

    use super::*;
    use crate::matching::version_of;

    #[tokio::test]
    async fn of_a_file_that_is_published_nobody_says_that_it_is_written() {
        let place = tempfile::tempdir().expect("a folder");
        let known = ".openharness/memory/MEMORY.md";
        let bundle = serde_json::json!({ "files": [{ "path": known, "text": "old" }] });
        for (path, stays) in
            [(known, false), ("./.openharness/memory//MEMORY.md", false), (".openharness/memory/new.md", true)]
        {
            let fetch = ScriptedFetch::default();
            fetch.answer(ScriptedAnswer::json(200, &bundle)).answer(ScriptedAnswer::pieces(404, [""]));
            fetch.answer(ScriptedAnswer::pieces(200, [""]));
            let worker = CopyWorker::new(Arc::new(fetch.clone()), place.path(), CopyLimits::default());
            let condition = if stays { FileCondition::Absent } else { FileCondition::Is(version_of(b"old")) };
            let base64 = STANDARD.encode("new");
            let operation =
                RemoteOperation::Write { path: path.to_owned(), base64, condition, definitions: Vec::new() };
            let address = |name: &str| format!("https://objects.example/{name}");
            let definitions = Some(address("bundle"));
            let request = RemoteRequest { definitions, files: address("files"), written: address("files"), operation };
            let reply = worker.handle(request, Duration::from_secs(60)).await;
            let is_written = matches!(&reply, RemoteReply::Written(_));
            let is_refused = matches!(&reply, RemoteReply::Failed(ExecutionError::Confined { reason, .. })
                if reason.contains("it is published"));
            assert_eq!((is_written, is_refused), (stays, !stays), "{path}");
            assert_eq!(fetch.left(), usize::from(!stays), "{path}: what stays is put back");
        }
    }
}
