use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Secret;

/// A command line.
///
/// Its environment is empty but for what stands here and the few variables without which no command works (`PATH`,
/// `HOME`, `LANG`, `TMPDIR`). When it is printed, values of the environment and the input are left out.
#[derive(Clone)]
pub struct ShellCommand {
    /// The command line.
    pub command: String,
    /// The shell that reads it.
    pub shell: Shell,
    /// The folder in which it runs, relative to the root; empty for the root itself.
    pub folder: String,
    /// Variables of its environment.
    pub environment: Vec<(String, Secret)>,
    /// Bytes that it reads from its standard input.
    pub input: Vec<u8>,
    /// Its limits.
    pub limits: CommandLimits,
}

impl ShellCommand {
    /// `command` for `/bin/sh` in the root of the workspace, without environment and input, with the default limits.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            shell: Shell::Sh,
            folder: String::new(),
            environment: Vec::new(),
            input: Vec::new(),
            limits: CommandLimits::default(),
        }
    }
}

impl fmt::Debug for ShellCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellCommand")
            .field("command", &self.command)
            .field("shell", &self.shell)
            .field("folder", &self.folder)
            .field("environment", &self.environment.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("input", &format_args!("{} bytes", self.input.len()))
            .field("limits", &self.limits)
            .finish()
    }
}

/// The shell that reads a command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// `/bin/sh`.
    #[default]
    Sh,
    /// `bash`; `/bin/sh` where there is none.
    Bash,
}

impl Shell {
    /// True for `/bin/sh`.
    pub fn is_sh(&self) -> bool {
        *self == Self::Sh
    }
}

/// Limits of a command. Each holds by itself, and ends the command when it is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// From its start to its end.
    pub time: Duration,
    /// Bytes of each of its two outputs that are kept: the beginning and the end of it.
    pub kept_output: usize,
    /// Bytes that both outputs may have together.
    pub most_output: u64,
    /// Bytes of memory of all its processes together.
    pub memory: u64,
    /// Processes at a time.
    pub processes: u32,
}

impl Default for CommandLimits {
    /// Two minutes, 64 KiB kept of 64 MiB, 2 GiB of memory, 256 processes.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(120),
            kept_output: 64 << 10,
            most_output: 64 << 20,
            memory: 2 << 30,
            processes: 256,
        }
    }
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum CommandEnd {
    /// By itself.
    Exited {
        /// Its status; 0 for success.
        status: i32,
    },
    /// By a signal from elsewhere.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// It took longer than it may.
    TimedOut,
    /// It wrote more than it may.
    TooMuchOutput,
    /// It took more memory than it may.
    TooMuchMemory,
    /// It started more processes than it may.
    TooManyProcesses,
}

impl CommandEnd {
    /// True if it ended by itself with status 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited { status: 0 }
    }
}

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// End of the command.
    pub end: CommandEnd,
    /// Output that it wrote to its standard output.
    pub stdout: Captured,
    /// Output that it wrote to its standard error output.
    pub stderr: Captured,
    /// Limits that held for it, which are lower than those that it was given where its machine has less. `None` from a
    /// function of an earlier build, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<CommandLimits>,
}

/// One output of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The text, or its beginning and its end with a line between them that says what was left out. Bytes that are no
    /// UTF-8 are replaced.
    pub text: String,
    /// Bytes that were written in all.
    pub bytes: u64,
}
