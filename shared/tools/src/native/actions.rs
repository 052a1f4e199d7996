//! The actions of a workspace as tools: each is one command in the workspace.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::execution::{CommandEnd, CommandLimits, CommandOutcome, ExecutionBackend, ShellCommand};
use dormouse_ports::tool::{
    ActionDefinition, Effect, Pending, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec,
};
use dormouse_ports::{Clock, Secret};
use serde_json::Value;

use super::bash::{IN_TIME, left, told};
use super::refused;
use crate::Values;
use crate::failure::unresolved;

/// The status by which a command says that its outcome comes later, at the callback (`EX_TEMPFAIL`).
const LATER: i32 = 75;
/// Bytes of input that also stand in the environment; the system bounds a variable.
const LONGEST_VARIABLE: usize = 64 << 10;

/// The actions of a workspace.
///
/// A command gets the input as JSON on its standard input and in `DORMOUSE_ACTION_INPUT`, its name in
/// `DORMOUSE_ACTION_NAME`, a key that stays the same when the call is made again in `DORMOUSE_IDEMPOTENCY_KEY`, and where
/// outcomes may come later, their address in `DORMOUSE_CALLBACK_URL`. Status 0 is success and 75 says that the outcome comes
/// later; what it writes to its standard output is the outcome.
pub struct ActionTools {
    backend: Arc<dyn ExecutionBackend>,
    values: Values,
    clock: Arc<dyn Clock>,
    actions: Vec<ActionDefinition>,
}

impl std::fmt::Debug for ActionTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActionTools")
            .field("backend", &self.backend)
            .field("actions", &self.actions.len())
            .finish_non_exhaustive()
    }
}

impl ActionTools {
    /// `actions` in `backend`; what their environments refer to is looked up in `values` when they run.
    pub fn new(
        backend: Arc<dyn ExecutionBackend>,
        values: Values,
        clock: Arc<dyn Clock>,
        actions: impl IntoIterator<Item = ActionDefinition>,
    ) -> Self {
        Self { backend, values, clock, actions: actions.into_iter().collect() }
    }

    async fn environment(
        &self,
        action: &ActionDefinition,
        call: &ToolCall,
        input: &str,
    ) -> Result<Vec<(String, Secret)>, ToolError> {
        let mut environment = Vec::new();
        for (name, value) in &action.entry.environment {
            let value = self.values.resolve(value).await.map_err(|error| unresolved(&error))?;
            environment.push((name.clone(), value));
        }
        let mut add = |name: &str, value: &str| environment.push((name.to_owned(), value.into()));
        add("DORMOUSE_ACTION_NAME", &action.name);
        add("DORMOUSE_IDEMPOTENCY_KEY", &call.idempotency_key);
        if input.len() <= LONGEST_VARIABLE {
            add("DORMOUSE_ACTION_INPUT", input);
        }
        if let Some(callback) = &call.callback {
            add("DORMOUSE_CALLBACK_URL", &callback.url);
        }
        Ok(environment)
    }
}

#[async_trait]
impl ToolSource for ActionTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let spec = |action: &ActionDefinition| {
            let mut spec = ToolSpec::new(&action.name);
            spec.description.clone_from(&action.description);
            spec.input_schema.clone_from(&action.input_schema);
            spec.effect = if action.safe { Effect::Safe } else { Effect::Manual };
            // Time to tell what came of it stands behind its own.
            spec.timeout = timeout(action).map(|timeout| timeout + IN_TIME);
            spec
        };
        Ok(self.actions.iter().map(spec).collect())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let action = self.actions.iter().find(|action| action.name == call.name);
        let action = action
            .ok_or_else(|| ToolError::new(ToolErrorKind::NotFound, format!("there is no action `{}`", call.name)))?;
        let input = Value::Object(call.arguments.clone()).to_string();
        let left = left(&*self.clock, call)?;
        let time = timeout(action).map_or(left, |timeout| timeout.min(left));
        let limits = CommandLimits { time, ..CommandLimits::default() };
        let command = ShellCommand {
            command: action.entry.command.clone(),
            folder: action.entry.folder.clone(),
            environment: self.environment(action, call, &input).await?,
            input: input.into_bytes(),
            limits,
        };
        let outcome = self.backend.run(&command).await.map_err(|error| refused(&error))?;
        reply(call, &outcome, &limits)
    }
}

/// The most time that it may take.
fn timeout(action: &ActionDefinition) -> Option<Duration> {
    action.entry.timeout_seconds.map(Duration::from_secs)
}

fn reply(call: &ToolCall, outcome: &CommandOutcome, limits: &CommandLimits) -> Result<ToolReply, ToolError> {
    let stdout = outcome.stdout.text.trim();
    match outcome.end {
        CommandEnd::Exited { status: LATER } if call.callback.is_some() => {
            let reference = (!stdout.is_empty()).then(|| stdout.chars().take(500).collect());
            Ok(ToolReply::Pending(Pending { reference, ..Pending::default() }))
        }
        CommandEnd::Exited { status: LATER } => {
            let message =
                "the action says that its outcome comes later (status 75), and there is nobody to wait for that here";
            Err(ToolError::permanent(message).maybe_done())
        }
        CommandEnd::Exited { status: 0 } => {
            let mut output = ToolOutput::text(told(outcome, limits));
            output.structured = serde_json::from_str(stdout).ok().filter(Value::is_object);
            Ok(ToolReply::Done(output))
        }
        CommandEnd::Exited { .. }
        | CommandEnd::Signalled { .. }
        | CommandEnd::TimedOut
        | CommandEnd::TooMuchOutput
        | CommandEnd::TooMuchMemory
        | CommandEnd::TooManyProcesses => Ok(ToolReply::Done(ToolOutput::error(told(outcome, limits)))),
    }
}
