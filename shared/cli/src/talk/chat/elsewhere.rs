//! What a run waits for where no person answers: tools that work elsewhere, times, and other agents.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};

use dormouse_protocol::Map;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::ChatSession;
use crate::inspect::moment;
use crate::talk::screen::{DIM, PLAIN};
use crate::talk::show::end_of;
use crate::terminal::plain;

/// The tool with which agents are asked.
const SUB_AGENT: &str = "SubAgent";

/// A wait that ends by itself so soon is not told: nobody does anything meanwhile. So a run looks whether a tool has told
/// what came of a call of which a person said that it happened.
const BRIEF: SignedDuration = SignedDuration::from_secs(3);

/// The wait of a task for tools that work elsewhere.
#[derive(Default)]
pub(super) struct WaitElsewhere {
    /// The task and what it waits for, as that was told last.
    told: Option<(String, String)>,
    /// True while it sleeps: nothing has come of it since.
    pub(super) sleeps: bool,
}

impl WaitElsewhere {
    /// The task sleeps until `waits` is over; true if that is to be told.
    fn begin(&mut self, task: &str, waits: &str) -> bool {
        self.sleeps = true;
        let is_told = self.told.as_ref().is_some_and(|(of, told)| of == task && told == waits);
        if !is_told {
            self.told = Some((task.to_owned(), waits.to_owned()));
        }
        !is_told
    }

    /// Something came of the task: it works.
    pub(super) fn moved(&mut self) {
        self.sleeps = false;
    }

    /// The wait is over.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

impl ChatSession {
    /// Tells once which tools work elsewhere where the `request` of `task` waits for some, and what a person can do meanwhile.
    pub(super) fn tell_elsewhere(&self, task: &str, request: &Map) {
        let Some(waits) = waits_elsewhere(request) else { return };
        if is_brief(request, Timestamp::now()) {
            return;
        }
        if !self.elsewhere.borrow_mut().begin(task, &waits) {
            return;
        }
        self.show_elsewhere(request, &waits);
        if io::stdin().is_terminal() {
            self.screen.line(&format!("{DIM}  Ctrl-D leaves it asleep, Ctrl-C ends the run{PLAIN}"));
        }
    }

    /// What `request` `waits` for elsewhere, until when, and where its outcome is told.
    pub(super) fn show_elsewhere(&self, request: &Map, waits: &str) {
        if waits_for_agents(request) || silence_of_model(request).is_some() {
            self.screen.line(&format!("{DIM}· {waits}{PLAIN}"));
            return;
        }
        let due = end_at(request).map(|end| format!(", and goes on at {} at the latest", moment(end)));
        let due = due.unwrap_or_default();
        self.screen.line(&format!("{DIM}· {waits}{due}{PLAIN}"));
        let address = self.client.address();
        self.screen.line(&format!(
            "{DIM}  its callback address is at {address}, as long as this conversation is open; \
             `dormouse dev --workspace` has one that stays{PLAIN}"
        ));
    }
}

fn end_at(request: &Map) -> Option<Timestamp> {
    end_of(request)?.parse().ok()
}

/// True if the wait for `request` ends right behind `now`, whatever comes.
fn is_brief(request: &Map, now: Timestamp) -> bool {
    end_at(request).is_some_and(|end| end.duration_since(now) <= BRIEF)
}

/// True if a job, an event, a time or other agents answer `request`.
pub(super) fn asks_nobody(request: &Map) -> bool {
    request.get("asks_person").is_some_and(|asks| asks == false)
}

/// True if the model refuses to be asked until somebody mends what `request` says: its key, for example.
pub(super) fn needs_mending(request: &Map) -> bool {
    request.get("needs_mending").is_some_and(|needs| needs == true)
}

/// True if other agents are waited for, which may ask a person, and nothing else is.
pub(super) fn waits_for_agents(request: &Map) -> bool {
    let of_agents = |calls: &Map| !calls.is_empty() && calls.values().all(|call| call["tool"] == SUB_AGENT);
    match request.get("kind").and_then(Value::as_str) {
        Some("agents") => true,
        Some("job") => request.get("calls").and_then(Value::as_object).is_some_and(of_agents),
        Some(_) | None => false,
    }
}

/// Why it is not known how far the model is that works on `request` elsewhere.
fn silence_of_model(request: &Map) -> Option<&str> {
    let text = |name: &str| request.get(name).and_then(Value::as_str);
    text("reason").filter(|_| text("kind") == Some("model"))
}

/// What `request` waits for where tools, or other agents, work elsewhere, or a model of which nobody tells how far it is.
pub(super) fn waits_elsewhere(request: &Map) -> Option<String> {
    if waits_for_agents(request) {
        return Some("the run sleeps until the agents that it has asked have answered".to_owned());
    }
    if let Some(reason) = silence_of_model(request) {
        return Some(format!("the provider does not tell how far the model is: {}", plain(reason)));
    }
    let calls = request.get("calls").filter(|_| request.get("kind").is_some_and(|kind| kind == "job"))?.as_object()?;
    let tools: BTreeSet<String> = calls.values().filter_map(|call| call["tool"].as_str()).map(plain).collect();
    let tools: Vec<String> = tools.into_iter().map(|tool| format!("`{tool}`")).collect();
    (!tools.is_empty()).then(|| format!("the run sleeps until the outcome of {} is told", tools.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_that_work_elsewhere_are_named() {
        let waits = |request: Value| waits_elsewhere(request.as_object().expect("an object"));
        let calls =
            json!({ "call-1": { "tool": "sign" }, "call-2": { "tool": "print" }, "call-3": { "tool": "sign" } });
        let told = "the run sleeps until the outcome of `print`, `sign` is told";
        assert_eq!(waits(json!({ "kind": "job", "calls": calls })).as_deref(), Some(told));
        assert_eq!(waits(json!({ "kind": "model", "job": "j" })), None);
        let told = "the provider does not tell how far the model is: the key is wrong";
        assert_eq!(waits(json!({ "kind": "model", "reason": "the key is wrong" })).as_deref(), Some(told));
        let told = "the run sleeps until the agents that it has asked have answered";
        for calls in
            [json!({ "kind": "job", "calls": { "call-1": { "tool": "SubAgent" } } }), json!({ "kind": "agents" })]
        {
            assert_eq!(waits(calls).as_deref(), Some(told));
        }
        assert_eq!(waits(json!({ "kind": "approval", "calls": calls })), None);
    }

    #[test]
    fn a_wait_that_is_over_at_once_is_not_told() {
        let brief = |end: Value| {
            let request = json!({ "kind": "job", "ends_at": end });
            let now = "2027-01-01T00:00:00Z".parse().expect("a time");
            is_brief(request.as_object().expect("an object"), now)
        };
        assert!(brief(json!("2027-01-01T00:00:01Z")) && brief(json!("2026-12-31T23:59:59Z")));
        assert!(!brief(json!("2027-01-01T00:01:00Z")) && !brief(Value::Null));
    }

    #[test]
    fn a_task_that_works_again_sleeps_no_more_and_is_told_of_once() {
        let mut wait = WaitElsewhere::default();
        assert!(wait.begin("task_1", "`sign`") && wait.sleeps);
        wait.moved();
        assert!(!wait.sleeps);
        assert!(!wait.begin("task_1", "`sign`") && wait.sleeps, "it was asked, and is waited for again");
        assert!(wait.begin("task_1", "`print`"));
        assert!(wait.begin("task_2", "`print`"));
        wait.end();
        assert!(!wait.sleeps && wait.begin("task_2", "`print`"));
    }
}
