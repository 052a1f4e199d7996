//! What must hold of tasks: documents and streams are written with the change that they tell of.

use std::collections::BTreeSet;

use dormouse_ports::{InvocationRecord, InvocationStatus};

use super::ensure;
use crate::simulation::clerk::is_terminal;
use crate::simulation::clients::text;
use crate::simulation::witness::{Call, Sight};

/// No gap, no repeat, and an entry stands where it says that it stands.
pub(super) fn streams_are_whole(sight: &Sight<'_>) -> Result<(), String> {
    sight.witness.streams.iter().try_for_each(|(stream, entries)| {
        (1..).zip(entries).try_for_each(|(position, entry)| {
            let holds = entry.position == position && entry.entry["position"] == position;
            ensure(holds, || format!("stream {stream} has {entry:?} at position {position}"))
        })
    })
}

/// What is done is told once, in full; what is refused is not told.
pub(super) fn changes_are_told_once(sight: &Sight<'_>) -> Result<(), String> {
    let Call::Commit { commit, done } = sight.call else { return Ok(()) };
    let brought: usize = commit.journal.appends.iter().map(|append| append.entries.len()).sum();
    let (told, wanted) = (sight.grown, if done { brought } else { 0 });
    ensure(told == wanted, || format!("streams grew by {told} entries, and {wanted} of {brought} were to be told"))
}

/// The end of a task is the last that is told of it.
pub(super) fn ends_are_told_last(sight: &Sight<'_>) -> Result<(), String> {
    sight.witness.streams.iter().try_for_each(|(stream, entries)| {
        let mut ended = BTreeSet::new();
        entries.iter().try_for_each(|entry| {
            let (task, step) = (entry.entry["task"].as_str(), entry.entry["step"].as_str());
            ensure(!ended.contains(&task), || format!("stream {stream} tells of {task:?} behind its end: {step:?}"))?;
            if step.is_some_and(is_terminal) {
                ended.insert(task);
            }
            Ok(())
        })
    })
}

/// A task has ended exactly when its invocation has, and in the same way.
pub(super) fn tasks_tell_what_is(sight: &Sight<'_>) -> Result<(), String> {
    sight.witness.tasks.iter().try_for_each(|(id, task)| {
        let record = sight.witness.invocations.get(&id.as_str().into());
        let status = text(task, "status");
        let holds = record.is_some_and(|record| agrees(record, status));
        ensure(holds, || format!("task {id} is {status}, and its invocation {:?}", record.map(|it| &it.status)))
    })
}

fn agrees(record: &InvocationRecord, status: &str) -> bool {
    match &record.status {
        InvocationStatus::Suspended => status == "waiting",
        // The wait may be over by another way than an answer to the task.
        InvocationStatus::Resuming(_) => status == "working" || status == "waiting",
        InvocationStatus::Completed { .. } => status == "completed",
        InvocationStatus::Errored(_) => status == "failed",
        InvocationStatus::Canceled(_) => status == "canceled",
    }
}

/// Who asks twice with the same key has one task.
pub(super) fn keys_have_one_task(sight: &Sight<'_>) -> Result<(), String> {
    let mut keys = BTreeSet::new();
    sight.witness.tasks.iter().try_for_each(|(id, task)| {
        ensure(keys.insert(text(task, "key")), || format!("task {id} has a key that another task has"))
    })
}
