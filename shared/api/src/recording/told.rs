//! What clients are told of a turn.

use dormouse_harness::chat::{HISTORY_LENGTH, MESSAGES};
use dormouse_json::Items;
use dormouse_ports::{JournalEntry, Map, PausedInvocation, Said};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::event::Draft;
use dormouse_protocol::resource::{Part, Role, Task, TaskStatus};
use serde_json::Value;

use super::MOST_SAID;
use crate::answers::{is_of_machines, question_of, request_of, status_of};
use crate::artifacts::left_by;
use crate::change::SessionChange;
use crate::conversation::{joined, shown};
use crate::documents::Stored;
use crate::ending::say;
use crate::quotas;

/// Publishes what the nodes of `task` have recorded: it worked meanwhile.
///
/// # Errors
/// `internal_error` when what they leave cannot be written.
pub(super) fn record(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    entries: &[JournalEntry],
) -> Result<(), ProtocolError> {
    if entries.is_empty() {
        return Ok(());
    }
    change.advance(task, TaskStatus::Working, None, Map::new());
    publish(change, task, entries)
}

/// Publishes `entries` of `task`, whatever it does meanwhile.
///
/// # Errors
/// `internal_error` when what they leave cannot be written.
pub(crate) fn publish(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    entries: &[JournalEntry],
) -> Result<(), ProtocolError> {
    if change.receipts().is_some() {
        task.kept.own.receipts.recorded += entries.len() as u64;
    }
    for entry in entries {
        let draft = Draft::task_recorded(entry.kind.as_str().into(), &task.kept.resource, entry.payload.clone());
        change.emit_for_task(task, draft);
        change.note_material(entry.material.clone());
        left_by(entry, change, task)?;
    }
    Ok(())
}

/// A pause of a task.
pub(super) struct TaskPause<'a> {
    pub(super) paused: &'a PausedInvocation,
    /// The pause before it.
    pub(super) before: Option<&'a PausedInvocation>,
    /// True if the signal was there already, so that the task works on.
    pub(super) works_on: bool,
}

/// The task went to sleep.
pub(super) fn suspended(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    entries: &[JournalEntry],
    pause: TaskPause<'_>,
) -> Result<(), ProtocolError> {
    let TaskPause { paused, before, works_on } = pause;
    // The end of the wait before was not published: it came while this turn ran.
    change.advance(task, TaskStatus::Working, None, Map::new());
    record(change, task, entries)?;
    quotas::used(&task.kept.own.quotas, entries).for_each(|write| change.count(write));
    let (mut said, converses) = messages_since(task, before, (paused.outermost_items(MESSAGES), &[]));
    // Of a conversation it would be a message of the agent that it waits for its model. The task says so.
    if said.is_empty() && !(converses && is_of_machines(&paused.descriptor)) {
        said.extend(question_of(&paused.descriptor).map(|question| (Role::Agent, vec![Part::text(question)])));
    }
    for (role, parts) in said {
        say(change, task, role, parts)?;
    }
    if works_on { change.put_task(task) } else { waiting(change, task, paused) }
}

pub(super) fn waiting(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    paused: &PausedInvocation,
) -> Result<(), ProtocolError> {
    change.advance(task, status_of(&paused.descriptor), None, request_of(paused));
    change.put_task(task)
}

/// Those of the `messages` of the graph that came since the last publication to its clients, and whether it leads a
/// conversation at all. At first these are its messages since the user's, which `before` knows. Those of the last that it has
/// `heard` are left out: a client said them.
pub(super) fn messages_since(
    task: &mut Stored<Task>,
    before: Option<&PausedInvocation>,
    (messages, heard): (Option<Items<'_>>, &[Said]),
) -> (Vec<(Role, Vec<Part>)>, bool) {
    let began = before.and_then(|before| before.carried.get(HISTORY_LENGTH)).and_then(Value::as_u64);
    let (Some(began), Some(messages)) = (began, messages) else { return (Vec::new(), false) };
    let told = task.kept.own.published_messages.replace(messages.len() as u64).unwrap_or(began);
    let told = usize::try_from(told).unwrap_or(usize::MAX);
    let end = messages.len().saturating_sub(joined(heard).count());
    let newest = messages.within(told.max(end.saturating_sub(MOST_SAID)), end);
    (newest.iter().filter_map(shown).collect(), true)
}
