//! Calls and their results in a conversation: that of a session holds also those of its other runs, which may still come to
//! one. Models name their calls, and some the calls of two runs alike: a call is told by its run and its id.

use dormouse_engine::{NodeError, Update};
use dormouse_ports::model::Message;
use dormouse_ports::{ChildStanding, Map, RUN_MARK};
use serde_json::Value;

use super::digest::of_value;
use super::parts::AgentParts;
use super::plan::invocation;
use super::run::{AgentRun, CallStatus};

/// Characters of a mark. It has to differ among the runs of a session that are open at a time, no more.
const MARK: usize = 8;

/// The mark of the run `invocation` in the messages of its session.
fn mark(invocation: &str) -> String {
    let mut mark = of_value(&invocation);
    mark.truncate(MARK);
    mark
}

/// The mark of this run.
pub(crate) fn own_mark() -> Result<String, NodeError> {
    Ok(mark(invocation()?.as_str()))
}

/// `messages` that this run adds to its session, those with calls and results with its mark.
pub(crate) fn marked(mut messages: Vec<Value>) -> Result<Vec<Value>, NodeError> {
    let mark = own_mark()?;
    for message in &mut messages {
        if !matches!(Told::of_value(message), Told::Other) {
            message[RUN_MARK] = mark.as_str().into();
        }
    }
    Ok(messages)
}

/// The mark of the run that added `message`.
pub(crate) fn run_of(message: &Value) -> Option<&str> {
    message.get(RUN_MARK)?.as_str()
}

/// A message, as far as calls go, and the mark of its run where that is known.
#[derive(Debug)]
pub(crate) enum Told<'m> {
    /// It makes calls with these ids.
    Calls(Option<&'m str>, Vec<&'m str>),
    /// It is the result of the call with this id.
    Result(Option<&'m str>, &'m str),
    /// Neither.
    Other,
}

impl<'m> Told<'m> {
    pub(crate) fn of(message: &'m Message, run: Option<&'m str>) -> Self {
        match message {
            Message::Assistant(answer) => Self::calls(run, answer.tool_calls.iter().map(|call| call.id.as_str())),
            Message::Tool { tool_call_id, .. } => Self::Result(run, tool_call_id),
            Message::System { .. } | Message::User { .. } => Self::Other,
        }
    }

    /// The same of a message of the state.
    pub(crate) fn of_value(message: &'m Value) -> Self {
        match (&message["tool_calls"], &message["tool_call_id"]) {
            (_, Value::String(id)) if message["role"] == "tool" => Self::Result(run_of(message), id),
            (Value::Array(calls), _) => {
                Self::calls(run_of(message), calls.iter().filter_map(|call| call["id"].as_str()))
            }
            (_, _) => Self::Other,
        }
    }

    fn calls(run: Option<&'m str>, ids: impl Iterator<Item = &'m str>) -> Self {
        let ids: Vec<&str> = ids.collect();
        if ids.is_empty() { Self::Other } else { Self::Calls(run, ids) }
    }
}

/// For each message the place of the one that made the call of which it is the result: the last before it with a call of its
/// run and id that has none yet. Where the run of one of the two is not known, its id alone counts.
pub(crate) fn callers<'m>(messages: impl Iterator<Item = Told<'m>>) -> Vec<Option<usize>> {
    let mut open: Vec<(usize, Option<&str>, &str)> = Vec::new();
    let caller = |(at, told)| match told {
        Told::Calls(run, ids) => {
            open.extend(ids.into_iter().map(|id| (at, run, id)));
            None
        }
        Told::Result(run, id) => {
            let is_of_run = |(_, by, call): &(usize, Option<&str>, &str)| *call == id && *by == run;
            let may_be = |(_, by, call): &(usize, Option<&str>, &str)| *call == id && (by.is_none() || run.is_none());
            let found = open.iter().rposition(is_of_run).or_else(|| open.iter().rposition(may_be))?;
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
        match Told::of(message, None) {
            Told::Result(_, id) => match open.iter().position(|call| *call == id) {
                Some(at) => drop(open.swap_remove(at)),
                None => return Some(format!("the result of `{id}` does not stand behind its call")),
            },
            _ if !open.is_empty() => break,
            Told::Calls(_, ids) => open = ids,
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

/// What models are told of the call `id` of the run with the mark `run`, which has no result, by what is known of `open` calls:
/// by run and id. Earlier versions kept it by the id alone.
pub(crate) fn standing<'o>(open: &'o Map, run: Option<&str>, id: &str) -> Option<&'o str> {
    let of_run = run.and_then(|run| open.get(run)?.get(id));
    let of_any = || open.get(id).or_else(|| open.values().filter(|_| run.is_none()).find_map(|calls| calls.get(id)));
    of_run.or_else(of_any)?.as_str()
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
            run.unanswered.insert(mark(&other), calls.clone());
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
