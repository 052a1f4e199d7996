//! Handlers of hooks that are commands or addresses.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::execution::{CommandEnd, CommandLimits, ExecutionBackend, ShellCommand};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookHandlerDefinition};
use dormouse_ports::{Fetch, FetchLimits, FetchRequest, Method, Template};
use futures::TryStreamExt;
use serde_json::Value;

use super::bash::told;
use crate::Values;

/// The status by which a command blocks.
const BLOCKS: i32 = 2;
/// Time after which a handler is ended that no run waits for any more.
const LONGEST: Duration = Duration::from_secs(120);
/// Bytes of an answer.
const MOST_BYTES: usize = 256 << 10;

/// Handles a hook by a command or an address.
pub struct DeclaredHook {
    definition: HookHandlerDefinition,
    /// Where commands run; `None` for an address, where there is no such place.
    backend: Option<Arc<dyn ExecutionBackend>>,
    fetch: Arc<dyn Fetch>,
    values: Values,
}

impl std::fmt::Debug for DeclaredHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeclaredHook")
    }
}

impl DeclaredHook {
    /// The handler that `definition` describes; `None` for one that asks a model, and for a command without a `backend` that
    /// runs it.
    pub fn new(
        definition: HookHandlerDefinition,
        backend: Option<Arc<dyn ExecutionBackend>>,
        fetch: Arc<dyn Fetch>,
        values: Values,
    ) -> Option<Self> {
        match definition {
            HookHandlerDefinition::Command { .. } if backend.is_none() => None,
            HookHandlerDefinition::Command { .. } | HookHandlerDefinition::Http { .. } => {
                Some(Self { definition, backend, fetch, values })
            }
            HookHandlerDefinition::Prompt { .. } | HookHandlerDefinition::Agent { .. } => None,
        }
    }

    async fn resolved(
        values: &Values,
        templates: &[(String, Template)],
    ) -> Result<Vec<(String, dormouse_ports::Secret)>, HookFailure> {
        let mut resolved = Vec::new();
        for (name, value) in templates {
            let value = values.resolve(value).await.map_err(|error| HookFailure(error.to_string()))?;
            resolved.push((name.clone(), value));
        }
        Ok(resolved)
    }

    async fn command(
        &self,
        line: &str,
        environment: &[(String, Template)],
        (envelope, values): (&Value, &Values),
    ) -> Result<HookAnswer, HookFailure> {
        let limits = CommandLimits { time: LONGEST, kept_output: MOST_BYTES, ..CommandLimits::default() };
        let command = ShellCommand {
            environment: Self::resolved(values, environment).await?,
            input: envelope.to_string().into_bytes(),
            limits,
            ..ShellCommand::new(line)
        };
        let backend = self.backend.as_ref().ok_or_else(|| HookFailure("no command can be run here".to_owned()))?;
        let outcome = backend.run(&command).await.map_err(|error| HookFailure(error.to_string()))?;
        match outcome.end {
            CommandEnd::Exited { status: 0 } => {
                Ok(HookAnswer { text: outcome.stdout.text, blocks: false, model_call: None })
            }
            CommandEnd::Exited { status: BLOCKS } => {
                let said =
                    if outcome.stdout.text.trim().is_empty() { outcome.stderr.text } else { outcome.stdout.text };
                Ok(HookAnswer { text: said, blocks: true, model_call: None })
            }
            CommandEnd::Exited { .. }
            | CommandEnd::Signalled { .. }
            | CommandEnd::TimedOut
            | CommandEnd::TooMuchOutput
            | CommandEnd::TooMuchMemory
            | CommandEnd::TooManyProcesses => Err(HookFailure(told(&outcome, &limits))),
        }
    }

    async fn http(
        &self,
        url: &Template,
        headers: &[(String, Template)],
        (envelope, values): (&Value, &Values),
    ) -> Result<HookAnswer, HookFailure> {
        let failed = |reason: String| HookFailure(reason);
        let url = values.address(url).await.map_err(|error| failed(error.to_string()))?;
        let mut request = FetchRequest::new(Method::Post, url.expose()).json(envelope.to_string().into_bytes());
        for (name, value) in Self::resolved(values, headers).await? {
            request = request.header(&name.to_ascii_lowercase(), value);
        }
        request.limits = FetchLimits { total: LONGEST, idle: LONGEST, most_bytes: MOST_BYTES };
        let mut response = self.fetch.fetch(request).await.map_err(|error| failed(error.to_string()))?;
        let mut body = Vec::new();
        while let Some(piece) = response.body.try_next().await.map_err(|error| failed(error.to_string()))? {
            body.extend_from_slice(&piece);
        }
        match response.status {
            200..=299 => {
                Ok(HookAnswer { text: String::from_utf8_lossy(&body).into_owned(), blocks: false, model_call: None })
            }
            status => Err(failed(format!("its address answers {status}"))),
        }
    }
}

#[async_trait]
impl HookHandler for DeclaredHook {
    async fn handle(&self, envelope: &Value) -> Result<HookAnswer, HookFailure> {
        let (values, mask) = self.values.watched();
        let mut envelope = envelope.clone();
        if let Some(folder) = self.backend.as_ref().and_then(|backend| backend.folder()) {
            envelope["cwd"] = folder.into();
        }
        let given = (&envelope, &values);
        let answer = match &self.definition {
            HookHandlerDefinition::Command { command, environment } => self.command(command, environment, given).await,
            HookHandlerDefinition::Http { url, headers } => self.http(url, headers, given).await,
            HookHandlerDefinition::Prompt { .. } | HookHandlerDefinition::Agent { .. } => {
                Err(HookFailure("it asks a model, and is not handled here".to_owned()))
            }
        };
        match answer {
            Ok(answer) => Ok(HookAnswer { text: mask.text(answer.text), ..answer }),
            Err(HookFailure(reason)) => Err(HookFailure(mask.text(reason))),
        }
    }
}
