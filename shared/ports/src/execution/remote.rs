//! What a backend in another process is asked, and what it answers: one JSON document each way.
//!
//! Bytes stand in base64. Addresses carry their own permission and end soon; they are not shown when a request is
//! printed, and neither are values of environments and inputs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    CommandLimits, CommandOutcome, ExecutionError, FileCondition, FileVersion, FoundFiles, GlobRequest, GrepRequest,
    Matches, Shell,
};

/// Bytes of a file, or of the input of a command, that fit into a request or an answer of a function: it has 6 MB.
pub const REMOTE_BYTES: u64 = 4 << 20;

/// One operation on a copy of a workspace.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRequest {
    /// Address at which the definitions are read; none for a workspace without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definitions: Option<String>,
    /// Address at which the files are read.
    pub files: String,
    /// Address at which they are written, under the condition of what was read.
    pub written: String,
    /// Operation that is done.
    pub operation: RemoteOperation,
}

impl fmt::Debug for RemoteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRequest").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// Operation that is done in the copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RemoteOperation {
    /// A file is read.
    Read {
        /// Its path.
        path: String,
        /// Bytes that it may have.
        limit: u64,
    },
    /// A file is written.
    Write {
        /// Its path.
        path: String,
        /// Its content.
        base64: String,
        /// Assumption about the file.
        condition: FileCondition,
        /// Folders of definitions besides `.openharness`, in which nothing is written.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        definitions: Vec<String>,
    },
    /// Files are found.
    Glob(GlobRequest),
    /// Lines are found.
    Grep(GrepRequest),
    /// A command is run.
    Run(RemoteCommand),
}

/// A command that is run elsewhere.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteCommand {
    /// The command line.
    pub command: String,
    /// The shell that reads it.
    #[serde(default, skip_serializing_if = "Shell::is_sh")]
    pub shell: Shell,
    /// The folder in which it runs.
    pub folder: String,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// Bytes that it reads, in base64.
    pub input: String,
    /// Its limits.
    pub limits: CommandLimits,
}

impl fmt::Debug for RemoteCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCommand")
            .field("command", &self.command)
            .field("environment", &self.environment.keys().collect::<Vec<_>>())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Outcome of the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteReply {
    /// A file was read.
    Read {
        /// Its content.
        base64: String,
        /// Its version.
        version: FileVersion,
    },
    /// A file was written.
    Written(FileVersion),
    /// Files were found.
    Found(FoundFiles),
    /// Lines were found.
    Matched(Matches),
    /// A command came to its end.
    Ran(CommandOutcome),
    /// Nothing was done, or it is not known what was.
    Failed(ExecutionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_no_address_and_no_value() {
        let environment = BTreeMap::from([("TOKEN".to_owned(), "hush".to_owned())]);
        let command = RemoteCommand {
            command: "true".to_owned(),
            shell: Shell::Bash,
            folder: String::new(),
            environment,
            input: "aHVzaA==".to_owned(),
            limits: CommandLimits::default(),
        };
        let address = "https://files.example.com/?signature=hush".to_owned();
        let request = RemoteRequest {
            definitions: Some(address.clone()),
            files: address.clone(),
            written: address,
            operation: RemoteOperation::Run(command),
        };
        let shown = format!("{request:?}");
        assert!(!shown.contains("hush") && !shown.contains("aHVz") && shown.contains("TOKEN"), "{shown}");
        let sent = serde_json::to_string(&request).expect("JSON");
        let read: RemoteRequest = serde_json::from_str(&sent).expect("a request");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), sent);
    }
}
