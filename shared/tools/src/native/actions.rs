//! The actions of a workspace as tools: each is one command in the workspace.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_json::{STATE, measure};
use dormouse_ports::execution::{CommandEnd, CommandLimits, CommandOutcome, ExecutionBackend, Shell, ShellCommand};
use dormouse_ports::tool::{
    ActionDefinition, Effect, Pending, TIME_TO_TELL, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply,
    ToolSource, ToolSpec,
};
use dormouse_ports::{Clock, Map, Secret};
use serde_json::Value;

use super::bash::{left, told};
use super::refused;
use crate::Values;
use crate::failure::unresolved;
use crate::mask::Mask;

/// The status by which a command says that its outcome comes later, at the callback (`EX_TEMPFAIL`).
const LATER: i32 = 75;
/// Bytes of input that also stand in the environment; the system bounds a variable.
const LONGEST_VARIABLE: usize = 64 << 10;

/// The most characters of a reference.
const LONGEST_REFERENCE: usize = 500;
/// The fields of what stands behind `pending`.
const PENDING_FIELDS: [&str; 3] = ["reference", "timeout_seconds", "poll_after_seconds"];
/// Characters of a word that cannot be read.
const LONGEST_SHOWN: usize = 100;

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
/// the same key and the reference in `DORMOUSE_ACTION_PENDING`, to say how the work stands). What of it cannot be read is an
/// error of a call that may have happened.
pub struct ActionTools {
    backend: Arc<dyn ExecutionBackend>,
    values: Values,
    clock: Arc<dyn Clock>,
    actions: Vec<ActionDefinition>,
    /// Takes the secrets that were looked up for commands out of what comes of them, also later.
    mask: Mask,
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
        let (values, mask) = values.watched();
        Self { backend, values, clock, actions: actions.into_iter().collect(), mask }
    }

    fn action(&self, name: &str) -> Option<&ActionDefinition> {
        self.actions.iter().find(|action| action.name == name)
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
        let action = self
            .action(&call.name)
            .ok_or_else(|| ToolError::new(ToolErrorKind::NotFound, format!("there is no action `{}`", call.name)))?;
        let input = Value::Object(call.arguments.clone()).to_string();
        let left = left(&*self.clock, call)?;
        let time = timeout(action).map_or(left, |timeout| timeout.min(left));
        let limits = CommandLimits { time, ..CommandLimits::default() };
        let command = ShellCommand {
            command: action.entry.command.clone(),
            shell: Shell::Sh,
            folder: action.entry.folder.clone(),
            environment: self.environment(action, call, &input).await?,
            input: input.into_bytes(),
            limits,
        };
        let outcome = self.backend.run(&command).await.map_err(|error| refused(&error))?;
        self.mask.and_callback(call.callback.as_ref()).outcome(reply(call, &outcome, &limits))
    }

    async fn recall(&self, name: &str) {
        let Some(action) = self.action(name) else { return };
        for (_, value) in &action.entry.environment {
            // The mask learns of each that is found.
            let _ = value.secrets(&self.values.lookup()).await;
        }
    }

    fn masked(&self, _: &str, output: ToolOutput) -> ToolOutput {
        self.mask.output(output)
    }
}

/// The most time that it may take.
fn timeout(action: &ActionDefinition) -> Option<Duration> {
    action.entry.timeout_seconds.map(Duration::from_secs)
}

/// The object that a command wrote, if that is one that a state can keep.
fn value_of(stdout: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(stdout).ok()?;
    (value.is_object() && measure(&value, STATE).is_ok()).then_some(value)
}

/// What `{"pending": …}` says, or what is wrong with it; `None` where `value` is something else.
fn pending_of(value: &Value) -> Option<Result<Pending, String>> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    match fields.get("pending")? {
        Value::Bool(true) => Some(Ok(Pending::default())),
        Value::String(reference) => Some(Ok(of_reference(Some(reference)))),
        Value::Object(said) => Some(pending_in(said)),
        Value::Bool(false) | Value::Null | Value::Number(_) | Value::Array(_) => None,
    }
}

/// What the object behind `pending` says.
///
/// # Errors
/// A field that there is not, or one that cannot be read.
fn pending_in(said: &Map) -> Result<Pending, String> {
    if let Some(name) = said.keys().find(|name| !PENDING_FIELDS.contains(&name.as_str())) {
        let name: String = name.chars().take(LONGEST_SHOWN).collect();
        return Err(format!("`pending` has no field `{name}`: it has `{}`", PENDING_FIELDS.join("`, `")));
    }
    let written = |name: &str| said.get(name).filter(|value| !value.is_null());
    let shown = |value: &Value| value.to_string().chars().take(LONGEST_SHOWN).collect::<String>();
    let seconds = |name: &str| {
        let Some(value) = written(name) else { return Ok(None) };
        let seconds = value.as_u64().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let misfit = || format!("`{name}` of `pending` must be a whole number from 1 on, and is {}", shown(value));
        seconds.map(Some).ok_or_else(misfit)
    };
    let reference = match written("reference") {
        None => None,
        Some(Value::String(reference)) => Some(reference.as_str()),
        Some(other) => return Err(format!("`reference` of `pending` must be a text, and is {}", shown(other))),
    };
    let poll_after = seconds("poll_after_seconds")?;
    let state = poll_after.map_or(Value::Null, |_| reference.unwrap_or_default().into());
    Ok(Pending { timeout: seconds("timeout_seconds")?, poll_after, state, ..of_reference(reference) })
}

/// It goes on elsewhere, and how it is waited for cannot be read.
fn unreadable(reason: &str) -> ToolError {
    let message = format!("the action says that its outcome comes later, in words that cannot be read: {reason}");
    ToolError::permanent(message).maybe_done()
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
            let said = value_of(stdout).as_ref().and_then(pending_of).transpose();
            let said = said.map_err(|reason| unreadable(&reason))?;
            later(call, said.unwrap_or(Pending { reference, ..Pending::default() }))
        }
        CommandEnd::Exited { status: 0 } => {
            let value = value_of(stdout);
            if let Some(pending) = value.as_ref().and_then(pending_of) {
                return later(call, pending.map_err(|reason| unreadable(&reason))?);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_with_a_name_that_no_state_keeps_stays_a_text() {
        assert_eq!(value_of(r#"{"paid": true}"#), Some(json!({ "paid": true })));
        for stdout in ["paid", "[1]", r#"{"paid": true, "$serde_json::private::RawValue": "no JSON"}"#] {
            assert_eq!(value_of(stdout), None, "{stdout}");
        }
    }

    #[test]
    fn what_is_said_of_an_outcome_that_comes_later_is_read_whole_or_told() {
        let read = |said: Value| pending_of(&json!({ "pending": said })).expect("it is pending");
        let seconds = Duration::from_secs;
        let both = read(json!({ "reference": "job-7", "timeout_seconds": 604_800, "poll_after_seconds": 60 }));
        let both = both.expect("it can be read");
        assert_eq!((both.timeout, both.poll_after), (Some(seconds(604_800)), Some(seconds(60))));
        assert_eq!((both.reference.as_deref(), both.state), (Some("job-7"), json!("job-7")));
        for said in [json!(true), json!("job-7"), json!({}), json!({ "timeout_seconds": null })] {
            assert!(read(said.clone()).is_ok(), "{said}");
        }
        for (said, told) in [
            (
                json!({ "timout_seconds": 5 }),
                "`pending` has no field `timout_seconds`: it has `reference`, `timeout_seconds`",
            ),
            (
                json!({ "timeout_seconds": "7d" }),
                "`timeout_seconds` of `pending` must be a whole number from 1 on, and is \"7d\"",
            ),
            (
                json!({ "poll_after_seconds": 0 }),
                "`poll_after_seconds` of `pending` must be a whole number from 1 on, and is 0",
            ),
            (json!({ "reference": 7 }), "`reference` of `pending` must be a text, and is 7"),
        ] {
            let reason = read(said.clone()).expect_err("it cannot be read");
            assert!(reason.contains(told), "{said}: {reason}");
        }
        assert!(pending_of(&json!({ "pending": 3 })).is_none() && pending_of(&json!({ "paid": true })).is_none());
    }
}
