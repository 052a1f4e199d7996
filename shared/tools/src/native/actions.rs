//! The actions of a workspace as tools: each is one command in the workspace.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::execution::{CommandEnd, CommandLimits, CommandOutcome, ExecutionBackend, Shell, ShellCommand};
use dormouse_ports::tool::{
    ActionDefinition, Effect, Pending, TIME_TO_TELL, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply,
    ToolSource, ToolSpec,
};
use dormouse_ports::{Clock, Secret};
use serde_json::Value;

use super::bash::{left, told};
use super::refused;
use crate::Values;
use crate::failure::unresolved;

/// The status by which a command says that its outcome comes later, at the callback (`EX_TEMPFAIL`).
const LATER: i32 = 75;
/// Bytes of input that also stand in the environment; the system bounds a variable.
const LONGEST_VARIABLE: usize = 64 << 10;

/// The most characters of a reference.
const LONGEST_REFERENCE: usize = 500;

/// The actions of a workspace.
///
/// A command gets the input as JSON on its standard input and in `DORMOUSE_ACTION_INPUT`, its name in
/// `DORMOUSE_ACTION_NAME`, the id of the run in `DORMOUSE_RUN_ID` (all three also under the names that begin with
/// `OPENHARNESS`, for commands written for that), a key that stays the same when the call is made again in `DORMOUSE_IDEMPOTENCY_KEY`, and where
/// outcomes may come later, their address in `DORMOUSE_CALLBACK_URL`. Status 0 is success; what it writes to its standard
/// output is the outcome.
///
/// Status 75 says that the outcome comes later, at that address, and so does an output that is `{"pending": …}` and nothing
/// else. There stands `true`, a reference for people, or an object with `reference`, `timeout_seconds` (after which no
/// run waits any more; a day where it is left out) and `poll_after_seconds` (after which the command runs again, with
/// the same key and the reference in `DORMOUSE_ACTION_PENDING`, to say how the work stands).
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
        values: &Values,
    ) -> Result<Vec<(String, Secret)>, ToolError> {
        let mut environment = Vec::new();
        for (name, value) in &action.entry.environment {
            let value = values.resolve(value).await.map_err(|error| unresolved(&error))?;
            environment.push((name.clone(), value));
        }
        let mut add = |name: &str, value: &str| environment.push((name.to_owned(), value.into()));
        let run = call.idempotency_key.split('/').next().unwrap_or_default();
        for family in ["DORMOUSE", "OPENHARNESS"] {
            add(&format!("{family}_ACTION_NAME"), &action.name);
            add(&format!("{family}_RUN_ID"), run);
            if input.len() <= LONGEST_VARIABLE {
                add(&format!("{family}_ACTION_INPUT"), input);
            }
        }
        add("DORMOUSE_IDEMPOTENCY_KEY", &call.idempotency_key);
        if let Some(callback) = &call.callback {
            add("DORMOUSE_CALLBACK_URL", &callback.url);
        }
        if let Some(reference) = call.pending.as_ref().and_then(Value::as_str) {
            add("DORMOUSE_ACTION_PENDING", reference);
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
            spec.timeout = timeout(action).map(|timeout| timeout + TIME_TO_TELL);
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
        let (values, mask) = self.values.watched();
        let command = ShellCommand {
            command: action.entry.command.clone(),
            shell: Shell::Sh,
            folder: action.entry.folder.clone(),
            environment: self.environment(action, call, &input, &values).await?,
            input: input.into_bytes(),
            limits,
        };
        let outcome = self.backend.run(&command).await.map_err(|error| refused(&error))?;
        mask.and_callback(call.callback.as_ref()).outcome(reply(call, &outcome, &limits))
    }
}

/// The most time that it may take.
fn timeout(action: &ActionDefinition) -> Option<Duration> {
    action.entry.timeout_seconds.map(Duration::from_secs)
}

/// The object that a command wrote, if that is one.
fn value_of(stdout: &str) -> Option<Value> {
    serde_json::from_str(stdout).ok().filter(Value::is_object)
}

/// What `{"pending": …}` says; `None` where `value` is something else.
fn pending_of(value: &Value) -> Option<Pending> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    match fields.get("pending")? {
        Value::Bool(true) => Some(Pending::default()),
        Value::String(reference) => Some(of_reference(Some(reference))),
        Value::Object(said) => {
            let seconds = |name: &str| said.get(name).and_then(Value::as_u64).filter(|seconds| *seconds > 0);
            let reference = said.get("reference").and_then(Value::as_str);
            let poll_after = seconds("poll_after_seconds").map(Duration::from_secs);
            let state = poll_after.map_or(Value::Null, |_| reference.unwrap_or_default().into());
            let timeout = seconds("timeout_seconds").map(Duration::from_secs);
            Some(Pending { timeout, poll_after, state, ..of_reference(reference) })
        }
        Value::Bool(false) | Value::Null | Value::Number(_) | Value::Array(_) => None,
    }
}

fn of_reference(reference: Option<&str>) -> Pending {
    let reference = reference.map(|reference| reference.chars().take(LONGEST_REFERENCE).collect());
    Pending { reference, ..Pending::default() }
}

/// The outcome comes later.
///
/// # Errors
/// The call has no address to call back, and the action no interval after which it runs again.
fn later(call: &ToolCall, pending: Pending) -> Result<ToolReply, ToolError> {
    if call.callback.is_none() && pending.poll_after.is_none() {
        let message = "the action says that its outcome comes later, and there is nobody to wait for that here: where it \
                       runs has no address that can be called back; let it say `poll_after_seconds`";
        return Err(ToolError::permanent(message).maybe_done());
    }
    Ok(ToolReply::Pending(pending))
}

fn reply(call: &ToolCall, outcome: &CommandOutcome, limits: &CommandLimits) -> Result<ToolReply, ToolError> {
    let stdout = outcome.stdout.text.trim();
    match outcome.end {
        CommandEnd::Exited { status: LATER } => {
            let reference = (!stdout.is_empty()).then(|| stdout.chars().take(LONGEST_REFERENCE).collect());
            let said = value_of(stdout).as_ref().and_then(pending_of);
            later(call, said.unwrap_or(Pending { reference, ..Pending::default() }))
        }
        CommandEnd::Exited { status: 0 } => {
            let value = value_of(stdout);
            if let Some(pending) = value.as_ref().and_then(pending_of) {
                return later(call, pending);
            }
            let mut output = ToolOutput::text(told(outcome, limits));
            output.structured = value;
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
