//! Who hears what: each message that is said to a session is heard by one run, once, and each answer wakes one pause.

use std::collections::BTreeMap;

use dormouse_app::CHAT;
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{MessageId, TaskId};
use dormouse_protocol::resource::{Task, TaskStatus};
use dormouse_protocol::{Event, EventKind};
use serde_json::Value;

use super::history::Thread;
use super::invariants::list;
use super::quiescent::Quiescent;

/// A message of a session is in one place: in its conversation, once; or among those that no run has been given yet; or a run
/// has been given it that has not completed. A run that was canceled before a step of it had ended holds none, so that the next
/// one is given them.
pub(crate) fn what_is_said_is_heard_once(rest: &Quiescent<'_>) -> Result<(), String> {
    let sessions = rest.history.published.threads();
    sessions.filter(|(_, thread)| thread.undelivered_from.is_none()).try_for_each(|(id, thread)| {
        let events = rest.history.published.streams.get(id).map(Vec::as_slice).unwrap_or_default();
        // What stood behind a cut is forgotten.
        match events.iter().any(|event| event.event == EventKind::SessionTruncated) {
            true => Ok(()),
            false => heard_in(rest, id, thread, events),
        }
    })
}

fn heard_in(rest: &Quiescent<'_>, id: &str, thread: &Thread, events: &[Event]) -> Result<(), String> {
    let kept = rest.history.sessions.get(&id.into());
    let conversation = kept.map(|kept| list(&kept.state, "messages")).unwrap_or_default();
    for (position, words) in (1..).zip(events).filter_map(|(position, event)| Some((position, words_of(event)?))) {
        let times = conversation.iter().filter(|message| message["content"] == words).count();
        let waits = usize::from(thread.undelivered.contains(&position));
        let holders = rest.history.published.given_to(id, position);
        let is_held = holders.into_iter().any(|task| holds(rest, task));
        if times + waits > 1 {
            return Err(format!(
                "{words:?} is {times} times in the conversation of {id}, and {waits} times to be given"
            ));
        }
        if times + waits == 0 && !is_held {
            return Err(format!("{words:?} was said in {id}, and no run hears it"));
        }
    }
    Ok(())
}

/// The words of a client that `event` tells of: those of which each is said once.
fn words_of(event: &Event) -> Option<&str> {
    let is_said = event.resource.object == MessageId::OBJECT && !event.replayed && event.payload["role"] == "user";
    let words = event.payload.get("parts")?.as_array()?.first()?.get("text")?.as_str()?;
    Some(words).filter(|words| is_said && words.starts_with("m-"))
}

/// Whether the run of `task`, which was given a message, may hold it outside of the conversation.
fn holds(rest: &Quiescent<'_>, task: &Task) -> bool {
    let id = &task.envelope.id;
    match task.status {
        TaskStatus::Completed => false,
        TaskStatus::Canceled => {
            let record = rest.history.invocations.get(&id.as_str().into());
            record.is_none_or(|record| record.paused.has_begun())
        }
        TaskStatus::Submitted
        | TaskStatus::Working
        | TaskStatus::InputRequired
        | TaskStatus::AuthRequired
        | TaskStatus::Failed => true,
    }
}

/// No answer that was sent once wakes two pauses.
pub(crate) fn an_answer_wakes_one_pause(rest: &Quiescent<'_>) -> Result<(), String> {
    let mut woken = BTreeMap::new();
    rest.history.consumed.iter().try_for_each(|((id, generation), payload)| {
        let answers = ["answer", "decided_by", "url"].into_iter();
        let mut answers = answers.filter_map(|name| payload.as_ref()?.get(name).and_then(Value::as_str));
        let Some(token) = answers.find(|token| token.starts_with("a-") || token.starts_with("k-")) else {
            return Ok(());
        };
        match woken.insert(token.to_owned(), (id.clone(), *generation)) {
            None => Ok(()),
            Some((other, before)) => Err(format!("{token} woke {other}#{before}, and {id}#{generation} as well")),
        }
    })
}

/// What a task was given of the messages of its session.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(crate) struct Given {
    graph: String,
    #[serde(default)]
    given: Vec<u64>,
    #[serde(default)]
    pub(crate) late: Vec<u64>,
}

impl Given {
    /// Whether the message at `position` was given to a run of a conversation.
    pub(crate) fn has(&self, position: u64) -> bool {
        self.graph == CHAT && (self.given.contains(&position) || self.late.contains(&position))
    }
}

/// What all tasks were given, by their ids.
pub(crate) type AllGiven = BTreeMap<TaskId, Given>;
