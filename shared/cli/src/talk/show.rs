use std::io;

use dormouse_protocol::resource::{Task, TaskStatus};
use dormouse_protocol::{Event, EventKind, Map};
use serde_json::{Value, json};

use super::ask::ServerArgs;
use crate::inspect::{Printer, hint};

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
            self.printer.line(&format!("          answer it with: {}", self.answering(event, request)))?;
        }
        Ok(())
    }

    /// The command that answers the `request` of `event`.
    fn answering(&self, event: &Event, request: &Map) -> String {
        let missing = request.get("missing").and_then(|missing| missing.get(0)?.as_str());
        let said = (event.event == EventKind::TaskInputRequired).then(|| hint::example(Some(request)));
        let pause = hint::of_pause(request.get("pause").and_then(Value::as_u64));
        hint::spelled(&event.resource.id, missing, said.as_deref(), &format!("{}{pause}", self.options))
    }

    pub(crate) fn task(&self, task: &Task) -> io::Result<()> {
        if self.json {
            return self.printer.json_line(&json!(task));
        }
        let told = json!({
            "task": task.envelope.id, "session": task.session_id, "status": task.status,
            "failure": task.failure.as_ref().map(|failure| &failure.message), "outcome": task.outcome_id,
        });
        self.printer.fields(&told)?;
        let id = task.envelope.id.as_str();
        match task.status {
            TaskStatus::AuthRequired => self.waiting(&hint::spelled(id, None, None, &self.options)),
            // What is asked stands in its event.
            TaskStatus::InputRequired => {
                let command = hint::spelled(id, None, Some("{...}"), &self.options);
                self.waiting(&format!("{command}; dormouse tail --task {id}{} says what is asked", self.options))
            }
            TaskStatus::Submitted
            | TaskStatus::Working
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Canceled => Ok(()),
        }
    }

    fn waiting(&self, command: &str) -> io::Result<()> {
        self.printer.line(&format!("it waits for an answer: {command}"))
    }
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
