use std::collections::BTreeMap;
use std::io;

use dormouse_ports::tool::ToolErrorKind;
use dormouse_protocol::resource::Task;
use dormouse_protocol::{Event, EventKind, Map};
use serde_json::{Value, json};

use super::ask::ServerArgs;
use crate::inspect::hint::{self, AnswerCommands, AskedQuestion};
use crate::inspect::{Printer, asked_of, bounded};
use crate::terminal::plain;

/// The event about tools that an agent has to do without.
pub(super) const TOOLS_MISSING: &str = "vendor.dormouse.tools_missing";
/// With what the ids begin of calls that a person or a client asked for, and no model.
const ACTION_CALL: &str = "action-";
/// Characters of the reason for which a call failed.
const LONGEST_REASON: usize = 200;

/// Shows events and tasks: to people in lines, to scripts one JSON document a line.
#[derive(Debug)]
pub(crate) struct Show {
    json: bool,
    printer: Printer,
    /// The options of a command that asks the same server.
    options: String,
}

impl Show {
    pub(crate) fn new(json: bool, server: &ServerArgs) -> Self {
        Self { json, printer: Printer::new(json), options: server.options() }
    }

    /// True if it shows JSON.
    pub(crate) fn is_for_scripts(&self) -> bool {
        self.json
    }

    pub(crate) fn event(&self, event: &Event) -> io::Result<()> {
        if self.json {
            return self.printer.json_line(&json!(event));
        }
        let at = event.envelope.created_at.strftime("%H:%M:%S");
        let kind = event.event.as_str();
        let about = about(event);
        self.printer.line(format!("{at}  {kind:<24}  {about}").trim_end())?;
        if matches!(event.event, EventKind::TaskInputRequired | EventKind::TaskAuthRequired)
            && let Some(request) = event.payload.get("request").and_then(Value::as_object)
        {
            self.answering("          ", event, request)?;
        }
        Ok(())
    }

    /// Shows the commands that answer the `request` of `event`.
    fn answering(&self, indent: &str, event: &Event, request: &Map) -> io::Result<()> {
        let asked = AskedQuestion {
            id: &event.resource.id,
            part: request.get("missing").and_then(|missing| missing.get(0)?.as_str()),
            metadata: Some(request),
            takes_yes_or_no: event.event == EventKind::TaskAuthRequired,
        };
        let pause = hint::of_pause(request.get("pause").and_then(Value::as_u64));
        self.commands(indent, &asked.commands(&format!("{}{pause}", self.options)))
    }

    /// Shows commands, each in a line of its own.
    fn commands(&self, indent: &str, commands: &AnswerCommands) -> io::Result<()> {
        commands.lines().iter().try_for_each(|line| self.printer.line(&format!("{indent}{line}")))
    }

    /// Shows lines as they are.
    pub(crate) fn lines(&self, lines: &[String]) -> io::Result<()> {
        lines.iter().try_for_each(|line| self.printer.line(line))
    }

    pub(crate) fn task(&self, task: &Task) -> io::Result<()> {
        if self.json {
            return self.printer.json_line(&json!(task));
        }
        let told = json!({
            "task": task.envelope.id, "session": task.session_id, "status": task.status,
            "failure": task.failure.as_ref().map(|failure| &failure.message), "outcome": task.outcome_id,
        });
        self.printer.fields(&told)
    }
}

/// Shows one task to the person who waits for it: what its agent says, what its calls came to, what is asked. Digests,
/// usage and receipts are left out.
#[derive(Debug)]
pub(super) struct Story<'s> {
    show: &'s Show,
    /// What has the last event that is left out; `None` once that has come.
    behind: Option<String>,
    /// What the agent said last: a question is told as a message of its, too.
    said: String,
    /// Tools of calls that failed, and of which it is not told yet why, by the ids of the calls.
    failed: BTreeMap<String, String>,
}

impl<'s> Story<'s> {
    /// The story of what comes behind the event of `behind`; all of it without one.
    pub(super) fn behind(show: &'s Show, behind: Option<String>) -> Self {
        Self { show, behind, said: String::new(), failed: BTreeMap::new() }
    }

    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Some(behind) = &self.behind {
            if event.resource.id == *behind {
                self.behind = None;
            }
            return Ok(());
        }
        let printer = &self.show.printer;
        let payload = &event.payload;
        let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
        if matches!(event.event, EventKind::TaskInputRequired | EventKind::TaskAuthRequired) {
            return payload.get("request").and_then(Value::as_object).map_or(Ok(()), |asked| self.asked(event, asked));
        }
        if matches!(event.event, EventKind::ToolCompleted | EventKind::ToolFailed | EventKind::ToolDenied) {
            let outcome = event.event.as_str().trim_start_matches("tool.");
            let time = payload.get("duration_ms").and_then(Value::as_u64);
            let time = time.map(|time| format!(", {time} ms")).unwrap_or_default();
            let reason = Some(bounded(text("message"), LONGEST_REASON)).filter(|reason| !reason.is_empty());
            let call = text("tool_call_id");
            // Of an action that nobody's model called all is told that it printed.
            if event.event == EventKind::ToolFailed && reason.is_none() && !call.starts_with(ACTION_CALL) {
                self.failed.insert(call.to_owned(), text("tool").to_owned());
            }
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            return printer.line(&format!("· {} {outcome}{time}{reason}", text("tool")));
        }
        if event.event.as_str() == TOOLS_MISSING {
            missing_in(payload).try_for_each(|line| printer.line(&line))?;
        }
        for (tool, reason) in failures_in(payload, &mut self.failed) {
            printer.line(&format!("  {tool}: {}", bounded(&reason, LONGEST_REASON)))?;
        }
        if text("role") == "tool" {
            return printed_by_action(payload).lines().try_for_each(|line| printer.line(line));
        }
        if matches!(text("role"), "assistant" | "agent") {
            let said = said_in(payload);
            said.lines().try_for_each(|line| printer.line(line))?;
            self.said = said;
        }
        Ok(())
    }

    /// What `event` asks, and how that is answered.
    fn asked(&self, event: &Event, request: &Map) -> io::Result<()> {
        let printer = &self.show.printer;
        let text = |name: &str| request.get(name).and_then(Value::as_str);
        let question = text("description").unwrap_or("it waits for an answer");
        if question != self.said {
            question.lines().try_for_each(|line| printer.line(line))?;
        }
        asked_of(request, None).iter().try_for_each(|line| printer.line(&format!("  {line}")))?;
        if request.get("asks_person").is_some_and(|asks| asks == false) {
            let until = end_of(request).map(|end| format!(", until {end} at most")).unwrap_or_default();
            return printer.line(&format!("  no person is asked: it goes on when what it waits for has come{until}"));
        }
        self.show.answering("  ", event, request)
    }
}

/// The instant at which the wait for `request` ends where nothing comes. Of servers of earlier versions the next step is known
/// alone.
pub(super) fn end_of(request: &Map) -> Option<&str> {
    request.get("ends_at").or_else(|| request.get("due_at"))?.as_str()
}

/// Lines about the tools that the agent has to do without, of an event about them.
pub(super) fn missing_in(payload: &Map) -> impl Iterator<Item = String> {
    let missing = payload.get("missing").and_then(Value::as_array).into_iter().flatten();
    missing.map(|one| {
        let text = |name: &str| plain(one[name].as_str().unwrap_or_default());
        let (source, reason) = (text("source"), text("reason"));
        let reason = without_kind(&reason);
        // What says itself what it is about, as a name that no tool has, is no server with tools.
        if reason.starts_with(&format!("`{source}`")) {
            return format!("! {reason}");
        }
        // What is said of one tool begins with its name.
        match reason.starts_with('`') {
            true => format!("! a tool of `{source}` is missing: {reason}"),
            false => format!("! the tools of `{source}` are missing: {reason}"),
        }
    })
}

/// `reason` without the kind of error at its beginning, which is for records.
fn without_kind(reason: &str) -> &str {
    let (kind, said) = reason.split_once(": ").unwrap_or_default();
    if ToolErrorKind::ALL.iter().any(|known| known.as_str() == kind) { said } else { reason }
}

/// The tools of `failed` calls whose results stand in a message, and what these say. They are taken out of `failed`.
pub(super) fn failures_in(payload: &Map, failed: &mut BTreeMap<String, String>) -> Vec<(String, String)> {
    let parts = payload.get("parts").and_then(Value::as_array).into_iter().flatten();
    let results = parts.filter(|part| part["type"] == "tool_result");
    let told = results.filter_map(|part| {
        let tool = failed.remove(part["tool_call_id"].as_str()?)?;
        let said = part["output"].as_str()?.trim();
        Some((tool, said.strip_prefix("error: ").unwrap_or(said).to_owned()))
    });
    told.collect()
}

/// The texts and values in the parts of a message.
fn said_in(payload: &Map) -> String {
    let parts = payload.get("parts").and_then(Value::as_array).into_iter().flatten();
    let said = parts.filter_map(|part| match part["text"].as_str() {
        Some(text) => Some(text.to_owned()),
        None => part.get("value").map(Value::to_string),
    });
    said.collect::<Vec<_>>().join("\n")
}

/// What a message of a tool says of the action that a person or a client ran: no agent speaks of it. Empty for all other
/// calls.
fn printed_by_action(payload: &Map) -> String {
    let parts = payload.get("parts").and_then(Value::as_array).into_iter().flatten();
    let of_action = |part: &&Value| part["tool_call_id"].as_str().is_some_and(|id| id.starts_with(ACTION_CALL));
    let said = parts.filter(of_action).map(|part| match part["output"].as_str() {
        Some(text) => text.trim_end().to_owned(),
        None => part["output"].to_string(),
    });
    said.collect::<Vec<_>>().join("\n")
}

/// True if nothing that is waited for comes behind `event` in the stream of its task.
pub(crate) fn ends_its_task(event: &Event) -> bool {
    matches!(event.event, EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCanceled)
}

/// Content of an event, in a line: the text of a message, the fields of anything else that are not empty.
fn about(event: &Event) -> String {
    if let Some(parts) = event.payload.get("parts").and_then(Value::as_array) {
        let part = |part: &Value| match part["text"].as_str() {
            Some(text) => text.to_owned(),
            None if part["value"].is_null() => part["type"].as_str().unwrap_or_default().to_owned(),
            None => part["value"].to_string(),
        };
        return parts.iter().map(part).collect::<Vec<_>>().join(" ");
    }
    let told = event.payload.iter().filter(|(_, value)| !value.is_null());
    let fields =
        told.map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    std::iter::once(event.resource.id.clone()).chain(fields).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_action_printed_is_told_and_what_tools_told_a_model_is_not() {
        let parts = json!({ "parts": [
            { "type": "tool_result", "tool_call_id": "action-1", "output": "deployed\nto dev\n", "status": "ok" },
            { "type": "tool_result", "tool_call_id": "call_1", "output": "for the model", "status": "ok" } ] });
        assert_eq!(printed_by_action(parts.as_object().expect("an object")), "deployed\nto dev");
    }

    #[test]
    fn why_a_call_failed_is_told_once_with_its_result() {
        let parts = json!({ "parts": [
            { "type": "tool_result", "tool_call_id": "call_1", "output": "error: no connection\n", "status": "error" },
            { "type": "tool_result", "tool_call_id": "call_2", "output": "done", "status": "ok" } ] });
        let payload = parts.as_object().expect("an object");
        let mut failed = BTreeMap::from([("call_1".to_owned(), "sales".to_owned())]);
        assert_eq!(failures_in(payload, &mut failed), [("sales".to_owned(), "no connection".to_owned())]);
        assert!(failures_in(payload, &mut failed).is_empty(), "{failed:?}");
    }

    #[test]
    fn a_server_without_tools_a_tool_that_is_missing_and_a_name_that_no_tool_has_are_told_apart() {
        let missing = json!({ "missing": [
            { "source": "parcels", "reason": "transient: MCP server `parcels`: it closed the connection" },
            { "source": "parcels", "reason": "`Read` has the name of a tool of Dormouse, and is left out" },
            { "source": "trakc", "reason": "`trakc` of the policy is no tool: did you mean `track`?" } ] });
        let told: Vec<String> = missing_in(missing.as_object().expect("an object")).collect();
        let server = "! the tools of `parcels` are missing: MCP server `parcels`: it closed the connection";
        let tool = "! a tool of `parcels` is missing: `Read` has the name of a tool of Dormouse, and is left out";
        assert_eq!(told, [server, tool, "! `trakc` of the policy is no tool: did you mean `track`?"]);
    }

    #[test]
    fn a_wait_lasts_until_its_end_and_not_until_a_reminder() {
        let (reminder, end) = ("2027-01-01T00:00:00Z", "2027-01-03T00:00:00Z");
        for (request, told) in [
            (json!({ "due_at": reminder, "ends_at": end }), Some(end)),
            (json!({ "due_at": reminder, "ends_at": null }), None),
            (json!({ "due_at": end }), Some(end)),
        ] {
            assert_eq!(end_of(request.as_object().expect("an object")), told, "{request}");
        }
    }

    #[test]
    fn a_message_is_told_by_its_texts_and_values() {
        let parts = json!({ "parts": [
            { "type": "text", "text": "It is" }, { "type": "tool_call", "name": "track" },
            { "type": "json", "value": { "result": "paid" } } ] });
        assert_eq!(said_in(parts.as_object().expect("an object")), "It is\n{\"result\":\"paid\"}");
    }
}
