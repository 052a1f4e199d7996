//! Where the files of a workspace are, and where commands run beside them.
//!
//! Paths are relative to the root of the workspace, with `/` between their parts. No operation on files leaves that root:
//! not by `..`, not by a link, not by a name that is swapped between two steps. A command is not confined in that way; a
//! backend says in its documentation what keeps a command from the rest of the machine.

mod command;
mod error;
mod files;
mod remote;

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use command::{Captured, CommandEnd, CommandLimits, CommandOutcome, Shell, ShellCommand};
pub use error::ExecutionError;
pub use files::{
    FileCondition, FileVersion, FileWrite, FoundFiles, GlobRequest, GrepRequest, Match, Matches, ReadFile,
};
pub use remote::{REMOTE_BYTES, RemoteCommand, RemoteOperation, RemoteReply, RemoteRequest};

/// Kind of place that a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionTier {
    /// The folder of the workspace on the machine of its author.
    Local,
    /// A copy of the workspace in a function of its own that may reach nothing else.
    Function,
    /// The stored text files of the workspace; no command runs.
    Stored,
}

impl ExecutionTier {
    /// True if commands run there.
    pub fn runs_commands(self) -> bool {
        match self {
            Self::Local | Self::Function => true,
            Self::Stored => false,
        }
    }

    /// Its name in catalogs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Function => "function",
            Self::Stored => "stored",
        }
    }
}

/// Reads and writes the files of one workspace, and runs commands in it.
///
/// Every operation is bounded by the limits of its request. Dropping the future of a command ends the command and
/// everything that it started; one that runs in a function of its own goes on to its end or its limits there.
#[async_trait]
pub trait ExecutionBackend: fmt::Debug + Send + Sync {
    /// False where no command can be run at all.
    fn runs_commands(&self) -> bool {
        true
    }

    /// The best shell that it has for commands.
    fn shell(&self) -> Shell {
        Shell::Sh
    }

    /// The folder where it works, for whoever works there beside it; `None` where that is not the same from one call to the
    /// next.
    fn folder(&self) -> Option<String> {
        None
    }

    /// What a model is told of the place: facts, each with its name.
    async fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The content of the file at `path`, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`ExecutionError`]; a larger file is [`ExecutionError::TooLarge`] and is not read whole, and what is no plain file
    /// (a folder, a device, a pipe) is [`ExecutionError::NoFile`] and is not opened to be read.
    async fn read(&self, path: &str, limit: u64) -> Result<ReadFile, ExecutionError>;

    /// Writes a file whole, under its condition, and makes the folders on the way to it. A reader sees the old content or
    /// the new one.
    ///
    /// # Errors
    /// [`ExecutionError::Changed`] when the condition does not hold; nothing is written then.
    async fn write(&self, write: &FileWrite) -> Result<FileVersion, ExecutionError>;

    /// The files with paths that match a pattern, in the order of their paths.
    ///
    /// # Errors
    /// [`ExecutionError::InvalidRequest`] for a pattern that is none.
    async fn glob(&self, request: &GlobRequest) -> Result<FoundFiles, ExecutionError>;

    /// The lines that match a regular expression, in the order of paths and lines. Files that are no text are left out.
    ///
    /// # Errors
    /// [`ExecutionError::InvalidRequest`] for an expression that is none.
    async fn grep(&self, request: &GrepRequest) -> Result<Matches, ExecutionError>;

    /// Runs a command to its end, or to one of its limits: then everything that it started is ended, no matter what
    /// that does with signals.
    ///
    /// # Errors
    /// [`ExecutionError`] when it could not be started. A command that fails is an outcome.
    async fn run(&self, command: &ShellCommand) -> Result<CommandOutcome, ExecutionError>;
}
