//! Calls without a result in a conversation: that of a session holds also those of its other runs, which may still come to
//! one.

use dormouse_engine::{NodeError, Update};
use dormouse_ports::model::Message;
use dormouse_ports::{ChildStanding, Map};
use serde_json::Value;

use super::parts::AgentParts;
use super::plan::invocation;
use super::run::{AgentRun, CallStatus};

/// A message, as far as calls go.
#[derive(Debug)]
pub(crate) enum Told<'m> {
    /// It makes calls with these ids.
    Calls(Vec<&'m str>),
    /// It is the result of the call with this id.
    Result(&'m str),
    /// Neither.
    Other,
}

impl<'m> Told<'m> {
    pub(crate) fn of(message: &'m Message) -> Self {
        match message {
            Message::Assistant(answer) => Self::Calls(answer.tool_calls.iter().map(|call| call.id.as_str()).collect()),
            Message::Tool { tool_call_id, .. } => Self::Result(tool_call_id),
            Message::System { .. } | Message::User { .. } => Self::Other,
        }
    }

    /// The same of a message of the state.
    pub(crate) fn of_value(message: &'m Value) -> Self {
        match (&message["tool_calls"], &message["tool_call_id"]) {
            (_, Value::String(id)) if message["role"] == "tool" => Self::Result(id),
            (Value::Array(calls), _) => Self::Calls(calls.iter().filter_map(|call| call["id"].as_str()).collect()),
            (_, _) => Self::Other,
        }
    }

    pub(crate) fn is_result_of(&self, call: &str) -> bool {
        matches!(self, Self::Result(id) if *id == call)
    }
}

/// For each message the place of the one that made the call of which it is the result: the last before it with a call of that
/// id that has none yet.
pub(crate) fn callers<'m>(messages: impl Iterator<Item = Told<'m>>) -> Vec<Option<usize>> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let caller = |(at, told)| match told {
        Told::Calls(ids) => {
            open.extend(ids.into_iter().map(|id| (at, id)));
            None
        }
        Told::Result(id) => {
            let found = open.iter().rposition(|(_, call)| *call == id)?;
            Some(open.remove(found).0)
        }
        Told::Other => None,
    };
    messages.enumerate().map(caller).collect()
}

/// What is wrong with the results of calls in `messages`, of which providers want each right behind the message that makes its
/// call; `None` where they can be sent.
pub(crate) fn misfit(messages: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match Told::of(message) {
            Told::Result(id) => match open.iter().position(|call| *call == id) {
                Some(at) => drop(open.swap_remove(at)),
                None => return Some(format!("the result of `{id}` does not stand behind its call")),
            },
            _ if !open.is_empty() => break,
            Told::Calls(ids) => open = ids,
            Told::Other => {}
        }
    }
    open.first().map(|id| format!("the call `{id}` has no result behind it"))
}

/// What its session is to know of the calls of `run`, beside those of its other runs: by run and call what is said of it.
pub(crate) fn noted(run: &AgentRun) -> Result<Update<AgentRun>, NodeError> {
    let own = invocation()?;
    let mut waiting = run.waiting.clone();
    waiting.shift_remove(own.as_str());
    if !run.calls.is_empty() {
        let calls = run.calls.iter().map(|call| (call.id.clone(), said(&call.status).into()));
        waiting.insert(own.to_string(), Value::Object(calls.collect()));
    }
    Ok(AgentRun::waiting.set(waiting))
}

/// What models are told of a call of another run that stands so.
fn said(status: &CallStatus) -> &'static str {
    match status {
        CallStatus::NeedsApproval => "this call is not made yet: it waits for a person to approve it",
        CallStatus::Ready { .. } | CallStatus::Begun { .. } => "this call has no result yet: it is about to be made",
        CallStatus::Uncertain { .. } => {
            "it is not known whether this call happened: a person is asked, and has not answered"
        }
        CallStatus::Pending { .. } => "this call was made and has no result yet: it goes on elsewhere",
        CallStatus::Asking { .. } => "this call has no result yet: its tool waits for the answer of a person",
        CallStatus::Answered { .. } => "this call was made: its result comes with those of the calls beside it",
    }
}

/// Has `run` know, from its first step on, how the calls of the other runs of its session stand. Runs that have ended leave
/// none.
pub(crate) async fn look(parts: &AgentParts, run: &mut AgentRun) -> Result<Update<AgentRun>, NodeError> {
    let own = invocation()?;
    if run.steps > 0 || !run.unanswered.is_empty() || run.waiting.keys().all(|other| *other == own.as_str()) {
        return Ok(Update::none());
    }
    let mut waiting = Map::new();
    for (other, calls) in std::mem::take(&mut run.waiting) {
        if other == own.as_str() || goes_on(parts, &other).await {
            run.unanswered.extend(calls.as_object().cloned().unwrap_or_default());
            waiting.insert(other, calls);
        }
    }
    run.waiting = waiting;
    Ok(AgentRun::waiting.set(run.waiting.clone()).set(AgentRun::unanswered, run.unanswered.clone()))
}

async fn goes_on(parts: &AgentParts, other: &str) -> bool {
    let Some(runs) = &parts.colleagues.runs else { return true };
    match runs.look(&other.into()).await {
        Ok(ChildStanding::Open) => true,
        Ok(ChildStanding::Missing | ChildStanding::Canceled(_) | ChildStanding::Ended(_)) => false,
        Err(error) => {
            tracing::warn!(%error, "it is not known whether a run with open calls has ended; they are told as open");
            true
        }
    }
}
