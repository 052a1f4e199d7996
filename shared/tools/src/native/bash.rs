use std::time::Duration;

use dormouse_ports::Clock;
use dormouse_ports::execution::{CommandEnd, CommandLimits, CommandOutcome, ExecutionBackend, ShellCommand};
use dormouse_ports::tool::{Effect, TIME_TO_TELL, ToolCall, ToolError, ToolOutput, ToolSpec};
use serde_json::json;

use super::arguments::{text, whole};
use super::{refused, tool, wrong};

/// The longest time that a command may ask for.
const LONGEST: u64 = 600;
/// The time where it asks for none.
const USUAL: u64 = 120;
/// Bytes of what a command wrote to its standard output, above which its errors stand before that where it failed.
const LONG: usize = 16 << 10;

/// The tool. Its words are the same on every machine, because what a model was asked is what a replay asks: they promise the
/// shell that each has.
pub(super) fn spec() -> ToolSpec {
    let properties = json!({
        "command": { "type": "string", "minLength": 1, "description": "A command line for /bin/sh" },
        "timeout_seconds": { "type": "integer", "minimum": 1, "maximum": LONGEST, "description": "120 if left out" },
        "description": { "type": "string", "description": "What the command does, in a few words, for people" }
    });
    let mut spec = tool(
        "Bash",
        "Runs a command line in the root of the workspace and returns its output and its status. Everything that it \
         starts ends with it: nothing runs on in the background.",
        Effect::Manual,
        properties,
        &["command"],
    );
    spec.timeout = Some(Duration::from_secs(LONGEST) + TIME_TO_TELL);
    spec
}

pub(super) async fn call(
    backend: &dyn ExecutionBackend,
    clock: &dyn Clock,
    call: &ToolCall,
) -> Result<ToolOutput, ToolError> {
    let asked = Duration::from_secs(whole(call, "timeout_seconds").unwrap_or(USUAL).clamp(1, LONGEST));
    let limits = CommandLimits { time: asked.min(left(clock, call)?), ..CommandLimits::default() };
    let command = ShellCommand { limits, shell: backend.shell(), ..ShellCommand::new(text(call, "command")?) };
    let outcome = backend.run(&command).await.map_err(|error| refused(&error))?;
    let shown = told(&outcome, &limits);
    Ok(if outcome.end.is_success() { ToolOutput::text(shown) } else { ToolOutput::error(shown) })
}

/// The time until no run waits for `call` any more: a command that ends before tells what it did.
pub(crate) fn left(clock: &dyn Clock, call: &ToolCall) -> Result<Duration, ToolError> {
    let Some(deadline) = call.deadline else { return Ok(Duration::from_secs(LONGEST)) };
    let left = Duration::try_from(deadline.duration_since(clock.now())).unwrap_or_default();
    let left = left.saturating_sub(TIME_TO_TELL).max(left / 2);
    if left.is_zero() { Err(wrong("there is no time left to run a command")) } else { Ok(left) }
}

/// The outcome of a command, for a model. It was given the limits `asked`, and maybe lower ones held.
pub(crate) fn told(outcome: &CommandOutcome, asked: &CommandLimits) -> String {
    let limits = outcome.limits.as_ref().unwrap_or(asked);
    let end = match outcome.end {
        CommandEnd::Exited { status: 0 } => None,
        CommandEnd::Exited { status } => Some(format!("the command ended with status {status}")),
        CommandEnd::Signalled { signal } => Some(format!("the command was ended by signal {signal}")),
        CommandEnd::TimedOut => {
            let seconds = (limits.time.as_secs_f64() * 10.0).round() / 10.0;
            let word = if (seconds - 1.0).abs() < f64::EPSILON { "second" } else { "seconds" };
            Some(format!("the command was ended after {seconds} {word}"))
        }
        CommandEnd::TooMuchOutput => {
            Some(format!("the command was ended: it wrote more than {} bytes", limits.most_output))
        }
        CommandEnd::TooMuchMemory => {
            Some(format!("the command was ended: it took more than {} bytes of memory", limits.memory))
        }
        CommandEnd::TooManyProcesses => {
            Some(format!("the command was ended: it started more than {} processes", limits.processes))
        }
    };
    let stdout = outcome.stdout.text.trim_end_matches('\n').to_owned();
    let stderr = outcome.stderr.text.trim_end_matches('\n');
    let stderr = match (stderr.is_empty(), stdout.is_empty() && end.is_none()) {
        (true, _) => String::new(),
        (false, true) => stderr.to_owned(),
        (false, false) => format!("[stderr]\n{stderr}"),
    };
    // Of a long output a model is told the beginning: why the command failed is not left to what is cut.
    let parts = match end.is_some() && !stderr.is_empty() && stdout.len() > LONG {
        true => [end.unwrap_or_default(), stderr, format!("[stdout]\n{stdout}")],
        false => [end.unwrap_or_default(), stdout, stderr],
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use dormouse_ports::execution::Captured;

    use super::*;

    #[test]
    fn limits_that_held_are_told() {
        let asked = CommandLimits { time: Duration::from_secs(600), ..CommandLimits::default() };
        let held = CommandLimits { time: Duration::from_secs(290), memory: 704 << 20, ..asked };
        for (end, expected) in [
            (CommandEnd::TimedOut, "the command was ended after 290 seconds"),
            (CommandEnd::TooMuchMemory, "the command was ended: it took more than 738197504 bytes of memory"),
            (CommandEnd::TooManyProcesses, "the command was ended: it started more than 256 processes"),
        ] {
            let (stdout, stderr) = (Captured::default(), Captured::default());
            let outcome = CommandOutcome { end, stdout, stderr, limits: Some(held) };
            assert_eq!(told(&outcome, &asked), expected);
        }
    }

    #[test]
    fn why_a_command_failed_stands_before_what_it_wrote_at_length() {
        let written = |bytes: usize, status: i32| {
            let of = |text: &str| Captured { text: text.to_owned(), ..Captured::default() };
            let (stdout, stderr) = (of(&"x".repeat(bytes)), of("no such file\n"));
            let outcome = CommandOutcome { end: CommandEnd::Exited { status }, stdout, stderr, limits: None };
            told(&outcome, &CommandLimits::default())
        };
        let begin = "the command ended with status 2\n[stderr]\nno such file\n[stdout]\nxxx";
        assert!(written(LONG + 1, 2).starts_with(begin), "{}", written(LONG + 1, 2));
        assert_eq!(written(1, 2), "the command ended with status 2\nx\n[stderr]\nno such file");
        assert!(written(LONG + 1, 0).ends_with("x\n[stderr]\nno such file"), "what it wrote is the outcome");
    }

    #[test]
    fn where_nobody_tells_which_limits_held_those_of_the_command_are_told() {
        let earlier = json!({
            "end": { "end": "too_much_memory" },
            "stdout": { "text": "", "bytes": 0 },
            "stderr": { "text": "", "bytes": 0 }
        });
        let outcome: CommandOutcome = serde_json::from_value(earlier).expect("an outcome");
        let asked = CommandLimits { memory: 1 << 20, ..CommandLimits::default() };
        assert_eq!(told(&outcome, &asked), "the command was ended: it took more than 1048576 bytes of memory");
    }
}
