//! What must hold of what clients are told: documents and streams are written with the change that they tell of.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::{InvocationRecord, InvocationStatus, Map};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{EventId, TaskId};
use dormouse_protocol::resource::{Task, TaskStatus};
use dormouse_protocol::{Event, EventKind};
use dormouse_receipts::{Receipt, chain};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{SKEW, ensure};
use crate::simulation::graphs::NOTED;
use crate::simulation::history::{Call, Changed, Sight, Thread, has_ended};
use crate::simulation::process::ring;
use crate::simulation::requests::QUOTA;

pub(super) fn all_can_be_read(sight: &Sight<'_>) -> Result<(), String> {
    sight.history.published.unreadable.clone().map_or(Ok(()), Err)
}

/// No gap, no repeat; every event stands where its id says, and counts the events of its resource.
pub(super) fn streams_are_whole(sight: &Sight<'_>) -> Result<(), String> {
    for (stream, events) in grown(sight) {
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (position, event) in (1..).zip(events) {
            let before = (position > 1).then(|| EventId::at(stream, position - 1));
            let placed = event.envelope.id == EventId::at(stream, position) && event.previous_event_id == before;
            ensure(placed, || format!("stream {stream} has {event:?} at position {position}"))?;
            let count = counts.entry((&event.resource.object, &event.resource.id)).or_default();
            *count += 1;
            ensure(event.sequence == *count, || {
                format!("{:?} is number {} of {:?}, not {count}", event.envelope.id, event.sequence, event.resource)
            })?;
        }
    }
    Ok(())
}

/// What is done is told once, in full; what is refused is not told.
pub(super) fn changes_are_told_once(sight: &Sight<'_>) -> Result<(), String> {
    let Call::Commit { commit, done } = sight.call else { return Ok(()) };
    let brought: usize = commit.journal.appends.iter().map(|append| append.entries.len()).sum();
    let told = sight.grown;
    let wanted = if done { brought } else { 0 };
    ensure(told == wanted, || format!("streams grew by {told} entries, and {wanted} of {brought} were to be told"))
}

/// Every event of every stream stands in the feed of its tenant, once; only the steps of a run that works are reported later.
pub(super) fn feeds_are_whole(sight: &Sight<'_>) -> Result<(), String> {
    if sight.grown == 0 {
        return Ok(());
    }
    let mut fed = BTreeSet::new();
    let mut repeated = None;
    let whole = sight.history.published.feeds.iter().filter(|(name, _)| name.ends_with("/event"));
    for row in whole.flat_map(|(_, rows)| rows) {
        for position in row.first..row.first + row.count {
            if !fed.insert((row.stream.as_str(), position)) {
                repeated = Some(row);
            }
        }
    }
    ensure(repeated.is_none(), || format!("the feed tells of {repeated:?} again"))?;
    let streams = sight.history.published.streams.iter();
    let unreported = &sight.history.published.unreported;
    let works = |stream: &str| {
        let session = sight.history.published.session(stream);
        session.is_some_and(|thread| thread.open.values().any(|standing| standing == "works"))
    };
    let forgotten = unreported.iter().find(|(stream, count)| **count > 0 && !works(stream));
    ensure(forgotten.is_none(), || format!("no run goes on that would report {forgotten:?} to the feed"))?;
    let mut told = streams.flat_map(|(stream, events)| {
        let reported = (events.len() as u64).saturating_sub(unreported.get(stream).copied().unwrap_or_default());
        (1..=reported).map(move |at| (stream.as_str(), at))
    });
    let missing = told.find(|place| !fed.remove(place));
    ensure(missing.is_none(), || format!("the feed does not tell of {missing:?}"))?;
    ensure(fed.is_empty(), || format!("the feed tells of {fed:?}, which is not there"))
}

/// Whoever reads a feed all the time, as far as it is complete, has read everything: nothing comes to stand behind him.
pub(super) fn feeds_are_complete(sight: &Sight<'_>) -> Result<(), String> {
    let missed = sight.history.published.missed.as_ref();
    ensure(missed.is_none(), || format!("readers had passed when {missed:?} was written"))
}

/// A session knows where its stream ends and what its tasks do.
pub(super) fn sessions_know(sight: &Sight<'_>) -> Result<(), String> {
    if !tells(sight) {
        return Ok(());
    }
    let published = &sight.history.published;
    published.sessions.iter().try_for_each(|(id, versions)| {
        let Some(Thread { session, position, open, .. }) = versions.last() else { return Ok(()) };
        let events = published.streams.get(id).map_or(&[][..], Vec::as_slice);
        let last = events.last().map(|event| &event.envelope.id);
        ensure(*position == events.len() as u64 && session.last_event_id.as_ref() == last, || {
            format!("session {id} is at position {position}, and its stream has {} events", events.len())
        })?;
        let tasks = published.tasks.values().filter_map(|versions| versions.last());
        let own = tasks.filter(|task| task.session_id.as_str() == id && !task.status.is_terminal());
        let standing = |task: &Task| if task.status.is_suspended() { "waits" } else { "works" }.to_owned();
        let wanted: BTreeMap<_, _> = own.map(|task| (task.envelope.id.clone(), standing(task))).collect();
        ensure(*open == wanted, || format!("session {id} knows of {open:?}, and there are {wanted:?}"))
    })
}

/// Every step of a task is told, and the table allows it.
pub(super) fn steps_are_allowed(sight: &Sight<'_>) -> Result<(), String> {
    if !tells(sight) {
        return Ok(());
    }
    let published = &sight.history.published;
    let mut statuses = BTreeMap::new();
    for event in published.streams.values().flatten().filter(|event| event.resource.object == TaskId::OBJECT) {
        let Some(to) = status(event, "status") else { continue };
        let known = statuses.insert(event.resource.id.as_str(), to);
        let before = status(event, "previous_status");
        let allowed = known == before && before.map_or(to == TaskStatus::Submitted, |before| before.may_become(to));
        ensure(allowed, || format!("{} went from {known:?} to {to:?}: {event:?}", event.resource.id))?;
    }
    published.tasks.iter().try_for_each(|(id, versions)| {
        let is = versions.last().map(|task| task.status);
        let told = statuses.get(id.as_str()).copied();
        ensure(is == told, || format!("task {id} is {is:?}, and was told to be {told:?}"))
    })
}

fn status(event: &Event, name: &str) -> Option<TaskStatus> {
    event.payload.get(name).and_then(|status| serde_json::from_value(status.clone()).ok())
}

/// The end of a task is the last that is told of it, and the last that is written.
pub(super) fn ends_are_told_last(sight: &Sight<'_>) -> Result<(), String> {
    for (stream, events) in grown(sight) {
        let mut ended = BTreeSet::new();
        for event in events {
            let Some(task) = &event.task_id else { continue };
            ensure(!ended.contains(task), || format!("stream {stream} tells of {task} behind its end: {event:?}"))?;
            if event.resource.object == TaskId::OBJECT && status(event, "status").is_some_and(TaskStatus::is_terminal) {
                ended.insert(task);
            }
        }
    }
    sight.history.published.tasks.iter().try_for_each(|(id, versions)| {
        let behind = versions.iter().skip_while(|task| !task.status.is_terminal()).nth(1);
        ensure(behind.is_none(), || format!("task {id} had ended and was written again: {behind:?}"))
    })
}

/// A task that has ended has one outcome, which says so; no other task has any.
pub(super) fn ends_have_one_outcome(sight: &Sight<'_>) -> Result<(), String> {
    if !tells(sight) {
        return Ok(());
    }
    let published = &sight.history.published;
    published.tasks.iter().try_for_each(|(id, versions)| {
        let Some(task) = versions.last() else { return Ok(()) };
        let outcomes: Vec<_> = published.outcomes.values().flatten().filter(|one| one.task_id.as_str() == id).collect();
        let holds = match (task.status.outcome(), &outcomes[..]) {
            (Some(status), [one]) => one.status == status && task.outcome_id.as_ref() == Some(&one.envelope.id),
            (None, []) => task.outcome_id.is_none(),
            _ => false,
        };
        ensure(holds, || format!("task {id} is {:?}, and its outcomes are {outcomes:?}", task.status))
    })
}

/// A task is its invocation: there is none without the other, and they agree.
pub(super) fn tasks_tell_what_is(sight: &Sight<'_>) -> Result<(), String> {
    let published = &sight.history.published;
    let invocations = &sight.history.invocations;
    published.tasks.iter().try_for_each(|(id, versions)| {
        let record = invocations.get(&id.as_str().into());
        let task = versions.last();
        // A task has failed that was put aside, and stays so.
        let was_aside = sight.history.aside.contains_key(&id.as_str().into());
        let agrees = |status| record.is_some_and(|record| agrees(record, status));
        let holds = task.is_some_and(|task| agrees(task.status) || (was_aside && task.status == TaskStatus::Failed));
        ensure(holds, || {
            format!("task {id} is {:?}, and its invocation {:?}", task.map(|it| it.status), record.map(|it| &it.status))
        })
    })?;
    let mut tasks = invocations.keys().filter(|id| id.as_str().starts_with("task_"));
    let unknown = tasks.find(|id| !published.tasks.contains_key(id.as_str()));
    ensure(unknown.is_none(), || format!("there is the invocation {unknown:?}, and no such task"))
}

fn agrees(record: &InvocationRecord, status: TaskStatus) -> bool {
    match &record.status {
        InvocationStatus::Suspended => status.is_suspended(),
        // The wait may be over by another way than an answer to the task. What has not begun may stand behind another
        // task of its session, and works once it has committed something.
        InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => {
            let is_queued = status == TaskStatus::Submitted && !record.paused.has_paused();
            is_queued || status == TaskStatus::Working || status.is_suspended()
        }
        InvocationStatus::Completed { .. } => status == TaskStatus::Completed,
        InvocationStatus::Errored(_) => status == TaskStatus::Failed,
        InvocationStatus::Canceled(_) => status == TaskStatus::Canceled,
    }
}

/// Whether a key that was used at `first` may be forgotten at `at`: it is kept for a day, by the clocks of processes.
fn is_forgotten(first: Timestamp, at: Timestamp) -> bool {
    at.duration_since(first).abs() > SignedDuration::from_hours(24) - SKEW
}

/// What is asked for with a key is done once, and the answer is kept with it, until the key is forgotten.
pub(super) fn keys_count_once(sight: &Sight<'_>) -> Result<(), String> {
    if !tells(sight) {
        return Ok(());
    }
    let published = &sight.history.published;
    let anew =
        |pair: &[(Option<Timestamp>, Value)]| pair[0].0.zip(pair[1].0).is_some_and(|(one, two)| is_forgotten(one, two));
    let changed = published.receipts.iter().find(|(_, answers)| !answers.windows(2).all(anew));
    ensure(changed.is_none(), || format!("a key was answered twice: {changed:?}"))?;
    let answers = || published.receipts.values().flatten().map(|(_, answer)| answer);
    let events = || published.streams.values().flatten();
    let mut accepted: BTreeMap<&str, usize> = BTreeMap::new();
    let submitted = events().filter(|event| event.event == EventKind::TaskSubmitted);
    for event in submitted.filter(|event| published.noted.contains(&event.envelope.id)) {
        *accepted.entry(event.resource.id.as_str()).or_default() += 1;
    }
    published.tasks.keys().try_for_each(|id| {
        // What a cancellation is answered with names the task too.
        let accepts = |answer: &&Value| answer["id"] == id.as_str() && answer["status"] != "CANCELED";
        let keys = answers().filter(accepts).count() + accepted.get(id.as_str()).copied().unwrap_or_default();
        ensure(keys == 1, || format!("task {id} was accepted, and {keys} keys know of it"))
    })?;
    let made = events().filter(|event| event.event == EventKind::SessionCreated && event.idempotency_key.is_some());
    for session in made.map(|event| event.resource.id.as_str()) {
        let is_known = answers().any(|answer| answer["id"] == session && answer["state"] != "CLOSED");
        ensure(is_known, || format!("session {session} was made, and no key knows of it"))?;
    }
    let mut times = BTreeMap::new();
    events().try_for_each(|event| {
        let Some(key) = &event.idempotency_key else { return Ok(()) };
        let at = event.envelope.created_at;
        let first = times.insert(key, at).unwrap_or(at);
        ensure(first == at || is_forgotten(first, at), || {
            format!("what {key} asks for was done at {first} and at {at}")
        })
    })
}

/// What the nodes of a task record is told with the state that holds it: each entry once, in order. Of a turn that ended
/// badly, what was told is not in the state.
pub(super) fn entries_are_told_once(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before, after: Some(record) }) = &sight.invocation else { return Ok(()) };
    let id = &record.paused.invocation_id;
    if !id.as_str().starts_with("task_") {
        return Ok(());
    }
    let kind = format!("vendor.{NOTED}");
    let events = sight.history.published.streams.values().flatten();
    let mine = events.filter(|event| event.task_id.as_ref().is_some_and(|task| task.as_str() == id.as_str()));
    let noted = mine.filter(|event| event.event.as_str() == kind).filter_map(|event| event.payload["noted"].as_str());
    let told: Vec<&str> = noted.collect();
    let known = |record: &InvocationRecord| match &record.status {
        InvocationStatus::Completed { state } => noted_in(state),
        InvocationStatus::Suspended
        | InvocationStatus::Accepted { .. }
        | InvocationStatus::Resuming(_)
        | InvocationStatus::Errored(_)
        | InvocationStatus::Canceled(_) => noted_in(record.paused.outermost_state()),
    };
    let holds = match &record.status {
        // For its clients a task that was put aside has failed, whatever comes of it later.
        _ if sight.history.aside.contains_key(id) => known(record).iter().zip(&told).all(|(one, other)| one == other),
        InvocationStatus::Suspended
        | InvocationStatus::Accepted { .. }
        | InvocationStatus::Resuming(_)
        | InvocationStatus::Completed { .. } => told == known(record),
        // What has ended keeps no state.
        InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => {
            let before = before.as_ref().filter(|before| !has_ended(before)).map(known).unwrap_or_default();
            told.starts_with(&before.iter().map(String::as_str).collect::<Vec<_>>())
        }
    };
    let distinct: BTreeSet<_> = told.iter().collect();
    ensure(holds && distinct.len() == told.len(), || {
        format!("nodes of {id} recorded {:?}, and {told:?} was told", known(record))
    })
}

fn noted_in(state: &Map) -> Vec<String> {
    let noted = state.get("noted").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    noted.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether the call may have changed what is published.
fn tells(sight: &Sight<'_>) -> bool {
    matches!(sight.call, Call::Commit { commit, .. } if !commit.journal.is_empty())
}

/// The streams that have just become longer.
fn grown<'s>(sight: &Sight<'s>) -> impl Iterator<Item = (&'s String, &'s Vec<Event>)> {
    let Call::Commit { commit, .. } = sight.call else { return Vec::new().into_iter() };
    let appends = commit.journal.appends.iter();
    let streams = appends.filter_map(|append| sight.history.published.streams.get_key_value(&append.stream));
    streams.collect::<Vec<_>>().into_iter()
}

/// Of each quota is gone what its tasks have taken: one place for each, and one more for each that has not ended.
pub(super) fn tasks_count_once(sight: &Sight<'_>) -> Result<(), String> {
    if !tells(sight) {
        return Ok(());
    }
    let published = &sight.history.published;
    published.left.iter().try_for_each(|(id, left)| {
        let tasks = published.tasks.values().filter_map(|versions| versions.last());
        let own = tasks.filter(|task| task.quota_id.as_ref().is_some_and(|quota| quota.as_str() == id));
        let own: Vec<&Task> = own.collect();
        let open = own.iter().filter(|task| !task.status.is_terminal()).count();
        [("tasks", own.len()), ("concurrent_tasks", open)].into_iter().try_for_each(|(limit, count)| {
            let taken = left.get(limit).map(|left| QUOTA - left);
            ensure(taken == i64::try_from(count).ok(), || {
                format!("of {limit} in {id} {taken:?} are taken, and there are {count}")
            })
        })
    })
}

/// What a message says, as its event has it.
pub(crate) fn parts(event: &Event) -> &Value {
    event.payload.get("parts").unwrap_or(&Value::Null)
}

/// A task that has ended has a receipt, which stands in the stream of its session and says so; no other task has one of
/// its end.
pub(super) fn ends_have_one_receipt(sight: &Sight<'_>) -> Result<(), String> {
    if !tells(sight) {
        return Ok(());
    }
    let published = &sight.history.published;
    published.tasks.iter().try_for_each(|(id, versions)| {
        let Some(task) = versions.last() else { return Ok(()) };
        let events = published.streams.get(task.session_id.as_str()).map_or(&[][..], Vec::as_slice);
        let issued = events.iter().filter(|event| event.event == EventKind::ReceiptIssued);
        let subject = |event: &Event| event.payload.get("receipt")?.pointer("/subject/id")?.as_str().map(str::to_owned);
        let own: Vec<_> = issued.filter(|event| subject(event).as_ref() == Some(id)).collect();
        let holds = match (&own[..], task.status.is_terminal()) {
            ([one], true) => one.receipt_id.is_some() && one.receipt_id == task.receipt_id,
            ([], false) => task.receipt_id.is_none(),
            _ => false,
        };
        let receipt = &task.receipt_id;
        ensure(holds, || format!("task {id} is {:?} with receipt {receipt:?}, and {own:?} were issued", task.status))
    })
}

/// The receipts of a session are one chain from the first to the last, without a fork and without a gap, and valid.
pub(super) fn receipts_are_chains(sight: &Sight<'_>) -> Result<(), String> {
    for (stream, events) in grown(sight) {
        let is_issue = |event: &&Event| event.event == EventKind::ReceiptIssued;
        // The chain is as it was, unless its last receipt has just come.
        if !events.iter().rev().take(sight.grown).any(|event| is_issue(&event)) {
            continue;
        }
        let issued = events.iter().filter(is_issue);
        let bodies = issued.filter_map(|event| event.payload.get("receipt").and_then(Value::as_object).cloned());
        let receipts: Result<Vec<Receipt>, _> = bodies.map(Receipt::new).collect();
        let report = chain::verify(&receipts.map_err(|flaw| flaw.to_string())?, &ring().keys(), Timestamp::MAX);
        ensure(report.is_sound(), || format!("the receipts of {stream}: {:?}", report.findings))?;
    }
    Ok(())
}
