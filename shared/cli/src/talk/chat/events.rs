//! What of the events of a run, and of its calls of tools, is shown in the terminal.

use dormouse_protocol::{Event, EventKind, Map};
use dormouse_tools::mcp::McpNotice;
use serde_json::Value;

use super::ChatSession;
use crate::talk::screen::{DIM, PLAIN, ToldStep};
use crate::talk::show::{TOOLS_MISSING, ends_its_task, failures_in, missing_in};
use crate::terminal::plain;

/// Characters of the reason for which a call failed.
const LONGEST_REASON: usize = 300;

/// The event about a conversation of which the model is shown a summary, and about one that stays as it is.
const COMPACTED: &str = "vendor.dormouse.context_compacted";
const KEPT: &str = "vendor.dormouse.context_kept";

/// The event about an agent that another one has asked.
pub(super) const AGENT_ASKED: &str = "vendor.dormouse.agent_asked";

/// Field value of the events about summaries, where somebody asked for one.
const ASKED: &str = "asked";

/// Lines about tools that the agent has to do without: each message begins a run, which says them all.
#[derive(Default)]
pub(super) struct ToldMissing {
    /// Those of the task that is followed.
    now: Vec<String>,
    /// Those of the one before.
    before: Vec<String>,
}

impl ToldMissing {
    /// Those of `lines` that a person has not been told of this task or the one before.
    fn news(&mut self, lines: impl Iterator<Item = String>) -> Vec<String> {
        let lines: Vec<String> = lines.filter(|line| !self.now.contains(line)).collect();
        self.now.extend(lines.iter().cloned());
        lines.into_iter().filter(|line| !self.before.contains(line)).collect()
    }

    /// The task has ended.
    fn end(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

impl ChatSession {
    /// Shows `event`; returns what it asks.
    pub(super) fn show(&self, event: &Event) -> Option<Map> {
        let payload = &event.payload;
        if ends_its_task(event) {
            self.missing.borrow_mut().end();
        }
        let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
        if matches!(event.event, EventKind::TaskInputRequired | EventKind::TaskAuthRequired) {
            return payload.get("request").and_then(Value::as_object).cloned();
        }
        if event.event.as_str() == AGENT_ASKED {
            self.agents.borrow_mut().insert(text("invocation_id").to_owned());
        }
        if event.event == EventKind::TaskFailed {
            self.screen.line(&format!("failed: {}", failure(payload)));
        } else if event.event == EventKind::TaskCanceled {
            // By somebody else: a person who stops it here waits for no event.
            self.screen.line("it was canceled");
        } else if matches!(event.event, EventKind::ToolCompleted | EventKind::ToolFailed | EventKind::ToolDenied) {
            let tool = plain(text("tool"));
            let outcome = event.event.as_str().trim_start_matches("tool.");
            let time = payload.get("duration_ms").and_then(Value::as_u64);
            let time = time.map(|time| format!(", {time} ms")).unwrap_or_default();
            let reason = Some(text("message")).filter(|reason| !reason.is_empty());
            if event.event == EventKind::ToolFailed && reason.is_none() {
                self.failed.borrow_mut().insert(text("tool_call_id").to_owned(), tool.clone());
            }
            let reason = reason.map(|reason| format!(": {}", short(reason))).unwrap_or_default();
            self.screen.line(&format!("{DIM}· {tool} {outcome}{time}{reason}{PLAIN}"));
        } else if event.event.as_str() == COMPACTED && text("trigger") == ASKED {
            self.screen.line("the model is shown a summary of what was said before");
        } else if event.event.as_str() == KEPT && text("trigger") == ASKED {
            self.screen.line(&format!("the conversation stays as it is: {}", short(text("message"))));
        } else if event.event.as_str() == TOOLS_MISSING {
            let news = self.missing.borrow_mut().news(missing_in(payload));
            news.iter().for_each(|line| self.screen.line(line));
        } else if event.event == EventKind::TaskCompleted {
            self.screen.end_of_answer();
        } else {
            self.show_failures(payload);
            self.show_message(event);
        }
        if let Some(step) = told(event) {
            self.screen.told(step);
        }
        None
    }

    /// Why calls have failed, as their results in a message say.
    fn show_failures(&self, payload: &Map) {
        for (tool, reason) in failures_in(payload, &mut self.failed.borrow_mut()) {
            self.screen.line(&format!("{DIM}  {tool}: {}{PLAIN}", short(&reason)));
        }
    }

    /// A message of the agent that was not shown while it came.
    fn show_message(&self, event: &Event) {
        let is_agents = event
            .payload
            .get("role")
            .and_then(Value::as_str)
            .is_some_and(|role| role == "assistant" || role == "agent");
        let parts = event.payload.get("parts").and_then(Value::as_array).into_iter().flatten();
        let said: String = parts.filter_map(|part| part.get("text")?.as_str()).collect();
        if is_agents && !said.is_empty() {
            self.screen.whole(&said);
        }
    }
}

/// What `event` tells of the steps of its task.
pub(super) fn told(event: &Event) -> Option<ToldStep> {
    let payload = &event.payload;
    if event.event == EventKind::SpanCompleted {
        payload.get("step").and_then(Value::as_u64).map(ToldStep::Answered)
    } else if event.event == EventKind::ToolRequested {
        Some(ToldStep::Called)
    } else if payload.get("role").is_some_and(|role| role == "tool") {
        Some(ToldStep::Returned)
    } else {
        payload.contains_key("parts").then_some(ToldStep::Said)
    }
}

/// The beginning of a reason, in a line.
fn short(reason: &str) -> String {
    let mut said: String = reason.trim().chars().take(LONGEST_REASON).collect();
    if said.len() < reason.trim().len() {
        said.push('…');
    }
    plain(&said)
}

/// What `notice` tells of how far a call is.
pub(super) fn progress_of(notice: &McpNotice) -> Option<String> {
    let McpNotice::Progress { progress, total, message, .. } = notice else { return None };
    let far = match total {
        Some(total) => format!("{progress} of {total}"),
        None => progress.to_string(),
    };
    Some(message.iter().fold(far, |far, message| format!("{far}, {}", short(message))))
}

fn failure(payload: &Map) -> String {
    let message = payload.get("failure").and_then(|failure| failure.get("message")?.as_str());
    plain(message.unwrap_or("why is in the task"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::talk::chat::stub::{client_of, session_with};

    #[test]
    fn a_run_that_somebody_else_cancels_ends_with_a_word() {
        let talk = session_with(client_of(|_| ("404 Not Found", "{}".to_owned())));
        let event = |kind: &str| {
            let at = "2026-01-01T00:00:00Z";
            let event = json!({ "id": "event_1", "object": "event", "created_at": at, "updated_at": at, "metadata": {},
                "event": kind, "resource": { "object": "task", "id": "task_1" }, "sequence": 1, "payload": {} });
            serde_json::from_value::<Event>(event).unwrap()
        };
        talk.screen.prompt("> ");
        assert!(talk.show(&event("task.started")).is_none() && talk.screen.prompts(), "nothing is shown");
        assert!(talk.show(&event("task.canceled")).is_none() && !talk.screen.prompts());
    }

    #[test]
    fn what_is_missing_is_told_again_where_it_was_there_meanwhile() {
        let mut told = ToldMissing::default();
        let mut of_task = |lines: &[&str]| {
            let news = told.news(lines.iter().map(|line| (*line).to_owned()));
            told.end();
            news
        };
        assert_eq!(of_task(&["! docs", "! shop"]), ["! docs", "! shop"]);
        assert_eq!(of_task(&["! docs", "! shop", "! post"]), ["! post"]);
        assert_eq!(of_task(&["! post", "! docs"]), [] as [&str; 0]);
        assert_eq!(of_task(&["! shop"]), ["! shop"]);
        assert_eq!(of_task(&[]), [] as [&str; 0]);
        assert_eq!(of_task(&["! shop"]), ["! shop"]);
    }

    #[test]
    fn how_far_a_call_is_fits_into_a_line() {
        let told = |progress, total, message: Option<&str>| {
            let (call, message) = ("c1".to_owned(), message.map(str::to_owned));
            progress_of(&McpNotice::Progress { call, progress, total, message })
        };
        assert_eq!(told(3.0, Some(10.0), Some("mixing\nit")).as_deref(), Some("3 of 10, mixing\\nit"));
        assert_eq!(told(0.5, None, None).as_deref(), Some("0.5"));
        assert_eq!(progress_of(&McpNotice::ListChanged), None);
    }

    #[test]
    fn a_reason_is_a_short_line() {
        assert_eq!(short(" no room\nleft "), "no room\\nleft");
        assert_eq!(short(&"ü".repeat(400)), format!("{}…", "ü".repeat(300)));
    }
}
