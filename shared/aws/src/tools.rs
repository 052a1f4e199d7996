//! The execution backend that is a function of its own: it is called for each operation and given addresses that carry
//! their own permission, so that its role needs none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::execution::{
    CommandOutcome, ExecutionBackend, ExecutionError, FileVersion, FileWrite, FoundFiles, GlobRequest, GrepRequest,
    Matches, REMOTE_BYTES, ReadFile, RemoteCommand, RemoteOperation, RemoteReply, RemoteRequest, Shell, ShellCommand,
};
use dormouse_ports::{Clock, Fetch, Method};

use crate::connect::s3_address;
use crate::function::FunctionError;
use crate::{AwsAccess, Function, RequestSigner};

/// Time for which an address lets its holder in: longer than a function runs.
const VALID: Duration = Duration::from_secs(1200);
/// Time for an operation, without that of a command.
const WITHIN: Duration = Duration::from_secs(60);
/// Bytes of a request.
const MOST: usize = 6_000_000;

/// Execution backends of published workspaces, all behind one function. Cheap to clone.
#[derive(Clone)]
pub struct ToolsFunction {
    function: Function,
    signer: Arc<RequestSigner>,
    /// Address below which the workspaces are: bucket and prefix.
    address: String,
}

/// The backend of one workspace with the definitions of one bundle.
#[derive(Clone)]
pub struct FunctionBackend {
    of: ToolsFunction,
    definitions: String,
    files: String,
}

impl ToolsFunction {
    /// The function `name`; workspaces are in `bucket` below `prefix`, which is empty or ends with `/`.
    pub fn new(
        access: &AwsAccess,
        name: &str,
        (bucket, prefix): (&str, &str),
        fetch: Arc<dyn Fetch>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let signer = Arc::new(RequestSigner::new(access, "s3", clock.clone()));
        let address = format!("{}/{bucket}/{prefix}", s3_address(access));
        Self { function: Function::unqualified(access, name, fetch, clock), signer, address }
    }

    /// The backend of the workspace `name`, with the definitions of the bundle `digest`.
    pub fn of(&self, name: &str, digest: &str) -> FunctionBackend {
        FunctionBackend {
            of: self.clone(),
            definitions: format!("{}{name}/bundles/{digest}.json", self.address),
            files: format!("{}{name}/files/current", self.address),
        }
    }
}

impl FunctionBackend {
    async fn ask(&self, operation: RemoteOperation, within: Duration) -> Result<RemoteReply, ExecutionError> {
        let address = |method, url: &str| {
            let signed = self.of.signer.presigned(method, url, VALID);
            signed.map_err(|error| ExecutionError::Denied { reason: error.to_string() })
        };
        let request = RemoteRequest {
            definitions: Some(address(Method::Get, &self.definitions)?),
            files: address(Method::Get, &self.files)?,
            written: address(Method::Put, &self.files)?,
            operation,
        };
        let body = serde_json::to_vec(&request).map_err(|error| broken(&error.to_string()))?;
        if body.len() > MOST {
            let reason =
                format!("the call has {} bytes, and may have {MOST}: give it less, or write a file", body.len());
            return Err(ExecutionError::InvalidRequest { reason });
        }
        let changes = matches!(request.operation, RemoteOperation::Write { .. } | RemoteOperation::Run(_));
        let answer = self.of.function.call(body, within).await.map_err(|error| away(&error, changes))?;
        match serde_json::from_slice(&answer) {
            Ok(RemoteReply::Failed(error)) => Err(error),
            Ok(reply) => Ok(reply),
            Err(error) => Err(broken(&error.to_string())),
        }
    }
}

/// Reason why no answer came, and whether something may have happened.
fn away(error: &FunctionError, changes: bool) -> ExecutionError {
    let reason = format!("the function for tools does not answer: {error}");
    match error {
        // It has no room, or is being changed: nothing was begun.
        FunctionError::Refused { status: 409 | 429, .. } => ExecutionError::Unavailable { reason, uncertain: false },
        // The same where Lambda names what kept it from making a sandbox. Without a name somebody on the way to it answers, who
        // may have handed the call on.
        FunctionError::Refused { status: 502, code, .. } => {
            ExecutionError::Unavailable { reason, uncertain: changes && code == "502" }
        }
        // Lambda itself failed, before the call or behind it.
        FunctionError::Refused { status: 500.., .. } => ExecutionError::Unavailable { reason, uncertain: changes },
        FunctionError::Refused { .. } | FunctionError::Signature(_) => ExecutionError::Denied { reason },
        FunctionError::Unknown(lost) => ExecutionError::Unavailable { reason, uncertain: changes && !lost.is_unsent() },
        // It ran out of time or memory, or ended: what a command did outside of the workspace is done.
        FunctionError::Failed(_) => ExecutionError::Unavailable { reason, uncertain: changes },
    }
}

fn broken(reason: &str) -> ExecutionError {
    ExecutionError::Unavailable {
        reason: format!("the function for tools does not understand: {reason}"),
        uncertain: true,
    }
}

/// An answer to something else than what was asked.
fn unexpected(reply: &RemoteReply) -> ExecutionError {
    let answered = match reply {
        RemoteReply::Read { .. } => "a file",
        RemoteReply::Written(_) => "a version",
        RemoteReply::Found(_) => "paths",
        RemoteReply::Matched(_) => "lines",
        RemoteReply::Ran(_) => "a command",
        RemoteReply::Failed(_) => "an error",
    };
    broken(&format!("it answers with {answered}"))
}

impl fmt::Debug for ToolsFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolsFunction").field("function", &self.function).finish_non_exhaustive()
    }
}

impl fmt::Debug for FunctionBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionBackend").field("files", &self.files).finish_non_exhaustive()
    }
}

#[async_trait]
impl ExecutionBackend for FunctionBackend {
    /// The system of functions has it.
    fn shell(&self) -> Shell {
        Shell::Bash
    }

    /// Without asking the function.
    async fn facts(&self) -> Vec<(String, String)> {
        let facts =
            [("system", "linux, in a function that reaches nothing else"), ("folder", "a copy of the workspace")];
        facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    async fn read(&self, path: &str, limit: u64) -> Result<ReadFile, ExecutionError> {
        let operation = RemoteOperation::Read { path: path.to_owned(), limit: limit.min(REMOTE_BYTES) };
        let reply = self.ask(operation, WITHIN).await?;
        let RemoteReply::Read { base64, version } = reply else { return Err(unexpected(&reply)) };
        let bytes = STANDARD.decode(base64).map_err(|error| broken(&error.to_string()))?;
        Ok(ReadFile { bytes, version })
    }

    async fn write(&self, write: &FileWrite) -> Result<FileVersion, ExecutionError> {
        let operation = RemoteOperation::Write {
            path: write.path.clone(),
            base64: STANDARD.encode(&write.bytes),
            condition: write.condition.clone(),
            definitions: write.definitions.clone(),
        };
        let reply = self.ask(operation, WITHIN).await?;
        let RemoteReply::Written(version) = reply else { return Err(unexpected(&reply)) };
        Ok(version)
    }

    async fn glob(&self, request: &GlobRequest) -> Result<FoundFiles, ExecutionError> {
        let reply = self.ask(RemoteOperation::Glob(request.clone()), WITHIN).await?;
        let RemoteReply::Found(found) = reply else { return Err(unexpected(&reply)) };
        Ok(found)
    }

    async fn grep(&self, request: &GrepRequest) -> Result<Matches, ExecutionError> {
        let reply = self.ask(RemoteOperation::Grep(request.clone()), WITHIN).await?;
        let RemoteReply::Matched(found) = reply else { return Err(unexpected(&reply)) };
        Ok(found)
    }

    async fn run(&self, command: &ShellCommand) -> Result<CommandOutcome, ExecutionError> {
        let mut environment = std::collections::BTreeMap::new();
        for (name, value) in &command.environment {
            environment.insert(name.clone(), value.expose().to_owned());
        }
        let within = command.limits.time.saturating_add(WITHIN);
        let operation = RemoteOperation::Run(RemoteCommand {
            command: command.command.clone(),
            shell: command.shell,
            folder: command.folder.clone(),
            environment,
            input: STANDARD.encode(&command.input),
            limits: command.limits,
        });
        let reply = self.ask(operation, within).await?;
        let RemoteReply::Ran(outcome) = reply else { return Err(unexpected(&reply)) };
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::FetchError;

    use super::*;

    /// What passes by itself is tried again, and no model is told that it may not be done.
    #[test]
    fn what_lambda_refuses_is_told_from_what_it_cannot_do_now() {
        let refused = |code: &str, status| FunctionError::Refused {
            code: code.to_owned(),
            sentence: "it says nothing".to_owned(),
            status,
        };
        for (error, uncertain) in [
            (refused("TooManyRequestsException", 429), Some(false)),
            (refused("ResourceConflictException", 409), Some(false)),
            (refused("EC2ThrottledException", 502), Some(false)),
            (refused("502", 502), Some(true)),
            (refused("ServiceException", 500), Some(true)),
            (refused("503", 503), Some(true)),
            (FunctionError::Unknown(FetchError::Closed("cut".to_owned())), Some(true)),
            (refused("AccessDeniedException", 403), None),
            (refused("ResourceNotFoundException", 404), None),
            (refused("RequestTooLargeException", 413), None),
        ] {
            let told = |changes| {
                let ExecutionError::Unavailable { uncertain, .. } = away(&error, changes) else { return None };
                Some(uncertain)
            };
            assert_eq!((told(true), told(false)), (uncertain, uncertain.map(|_| false)), "{error}");
        }
    }
}
