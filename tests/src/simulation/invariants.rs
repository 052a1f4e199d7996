//! What must hold after every call that may change what is stored. To add one: a function, and a line in
//! [`EVERY_STEP`].

pub(crate) mod published;

use std::collections::BTreeSet;

use dormouse_ports::{
    BufferOutcome, Claim, ClaimOutcome, Commit, InvocationRecord, InvocationStatus, InvocationWrite, Map, Owner,
    PartAnswer, ProgressFrom, RESOLUTION, SignalState, SuspendFrom, limits,
};
use dormouse_protocol::EventKind;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::{Call, Changed, Sight, has_ended, is_aside, payload_of};

/// Says how the invariant is broken.
type Holds = fn(&Sight<'_>) -> Result<(), String>;

/// All of them, by name.
pub(crate) const EVERY_STEP: [(&str, Holds); 35] = [
    ("a refused call changes nothing", refusals_change_nothing),
    ("a pause is one fact", pauses_are_whole),
    ("what a session tells of a pause, the store knows", sessions_tell_of_pauses),
    ("every row has its pause", rows_have_pauses),
    ("every wait has its pause", waits_have_pauses),
    ("a pause ends once", pauses_end_once),
    ("the end is the end", ends_stay),
    ("what is put aside stays whole", asides_are_whole),
    ("nothing is put aside too early", asides_were_tried),
    ("nothing is written of what was canceled", cancellations_stand),
    ("deadlines pass one by one", deadlines_pass_in_order),
    ("one claim at a time", claims_exclude),
    ("the first payload stands", payloads_stand),
    ("one writer of a session", one_writer),
    ("a session only grows", sessions_grow),
    ("nothing is said twice", nothing_is_said_twice),
    ("a parked signal stays until its wait", parked_signals_stay),
    ("what is stored can be read", published::all_can_be_read),
    ("a stream has no gap", published::streams_are_whole),
    ("a change is told once", published::changes_are_told_once),
    ("the feed tells of everything", published::feeds_are_whole),
    ("nothing is fed behind readers", published::feeds_are_complete),
    ("a session knows its stream and its tasks", published::sessions_know),
    ("a task goes step by step", published::steps_are_allowed),
    ("the end of a task is told last", published::ends_are_told_last),
    ("an end has one outcome", published::ends_have_one_outcome),
    ("an end has one receipt", published::ends_have_one_receipt),
    ("the receipts of a session are a chain", published::receipts_are_chains),
    ("a task tells what its invocation does", published::tasks_tell_what_is),
    ("what has a key is done once", published::keys_count_once),
    ("a task counts once, and as long as it is open", published::tasks_count_once),
    ("what nodes record is told once", published::entries_are_told_once),
    ("an accepted answer stands", answers_stand),
    ("enough answers wake, and fewer do not", enough_answers_wake),
    ("a delivered signal is not parked", delivered_signals_stay),
];

/// The lists that sessions append to.
const LISTS: [&str; 2] = ["entries", "messages"];

fn ensure(holds: bool, how: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(how()) }
}

fn refusals_change_nothing(sight: &Sight<'_>) -> Result<(), String> {
    let refused = match sight.call {
        Call::Commit { done, .. } => !done,
        Call::Claim { outcome, .. } => !matches!(outcome, ClaimOutcome::Granted(_)),
        Call::Lease { .. } | Call::Buffer { .. } => false,
    };
    let same = sight.invocation.as_ref().is_none_or(|changed| changed.before == changed.after)
        && sight.session.as_ref().is_none_or(|changed| changed.before == changed.after);
    ensure(!refused || same, || "a call was refused, and a record is another one now".to_owned())
}

fn pauses_are_whole(sight: &Sight<'_>) -> Result<(), String> {
    match sight.invocation.as_ref().and_then(|changed| changed.after.as_ref()) {
        Some(record) => is_whole(sight, record),
        None => Ok(()),
    }
}

/// A pause has its signal, its row, and the session that was saved with it. What has not begun waits for no signal.
fn is_whole(sight: &Sight<'_>, record: &InvocationRecord) -> Result<(), String> {
    let aside = is_aside(record);
    if has_ended(record) && !aside {
        return Ok(());
    }
    let paused = &record.paused;
    let id = &paused.invocation_id;
    let generation = paused.generation;
    let waiting = SignalState::Waiting { invocation_id: id.clone(), generation };
    for signal_id in paused.waits() {
        let wait = sight.history.signals.get(&signal_id);
        ensure(wait == Some(&waiting), || format!("{id}#{generation} sleeps, and signal {signal_id} is {wait:?}"))?;
    }
    let due_at = paused.wake.due.as_ref().map(|due| due.at);
    let rows = sight.rows.iter().filter(|row| row.invocation_id == *id).collect::<Vec<_>>();
    let fits = match rows[..] {
        // What has not begun does not sleep.
        [] => aside || !paused.has_paused(),
        [row] => !aside && paused.has_paused() && row.generation == generation && row.due_at == due_at,
        _ => false,
    };
    ensure(fits, || format!("{id}#{generation} sleeps, and its rows are {rows:?}"))?;
    let (Some(session_id), Some(saved)) = (&paused.session_id, paused.session_version) else { return Ok(()) };
    let version = sight.history.sessions.get(session_id).map_or(0, |session| session.version);
    ensure(version >= saved, || {
        format!("{id}#{generation} sleeps with version {saved} of session {session_id}, which is at version {version}")
    })
}

/// The entry `{invocation}/begin` is saved together with the first pause of that invocation.
fn sessions_tell_of_pauses(sight: &Sight<'_>) -> Result<(), String> {
    let session = sight.session.as_ref().and_then(|changed| changed.after.as_ref());
    let entries = session.map_or(&[][..], |session| list(&session.state, "entries"));
    let begun = entries.iter().filter_map(|entry| entry.as_str()?.strip_suffix("/begin"));
    for id in begun {
        let known = sight.history.invocations.contains_key(&id.into());
        ensure(known, || format!("a session was saved for the pause of {id}, which is not there"))?;
        let times = entries.iter().filter(|entry| entry.as_str() == Some(&format!("{id}/begin"))).count();
        ensure(times == 1, || format!("{id} began {times} times in its session"))?;
    }
    Ok(())
}

fn rows_have_pauses(sight: &Sight<'_>) -> Result<(), String> {
    sight.rows.iter().try_for_each(|row| {
        let record = sight.history.invocations.get(&row.invocation_id);
        let sleeps = record.is_some_and(|record| !has_ended(record) && record.paused.generation == row.generation);
        ensure(sleeps, || format!("there is a row for {}#{}", row.invocation_id, row.generation))
    })
}

fn waits_have_pauses(sight: &Sight<'_>) -> Result<(), String> {
    sight.history.signals.iter().try_for_each(|(signal_id, state)| {
        let SignalState::Waiting { invocation_id, generation } = state else { return Ok(()) };
        let waits = sight.history.invocations.get(invocation_id).is_some_and(|record| {
            let paused = &record.paused;
            (!has_ended(record) || is_aside(record))
                && paused.generation == *generation
                && paused.waits().any(|id| id == *signal_id)
        });
        ensure(waits, || format!("signal {signal_id} is awaited by {invocation_id}#{generation}"))
    })
}

fn pauses_end_once(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before, after: Some(after) }) = &sight.invocation else { return Ok(()) };
    let id = &after.paused.invocation_id;
    let now = after.paused.generation;
    let then = before.as_ref().map_or(0, |before| before.paused.generation);
    ensure(now == then || now == then + 1, || format!("{id} went from pause {then} to pause {now}"))?;
    let Some(before) = before else { return Ok(()) };
    let woke = now > then || matches!(after.status, InvocationStatus::Completed { .. });
    let asleep = matches!(before.status, InvocationStatus::Suspended);
    ensure(!(woke && asleep), || format!("{id} went on from pause {then} and nobody had claimed it"))
}

/// By how much the clocks of two processes may differ, and a little more.
const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Only while it sleeps, each once, and not before its time.
fn deadlines_pass_in_order(sight: &Sight<'_>) -> Result<(), String> {
    let (Call::Commit { commit, .. }, Some(Changed { before: Some(before), after: Some(after) })) =
        (sight.call, &sight.invocation)
    else {
        return Ok(());
    };
    if before.paused.generation != after.paused.generation || before.paused.wake == after.paused.wake {
        return Ok(());
    }
    let id = &after.paused.invocation_id;
    let asleep = before.status == InvocationStatus::Suspended && after.status == InvocationStatus::Suspended;
    let next = before.paused.wake.advanced();
    ensure(asleep && next.as_ref() == Some(&after.paused.wake), || {
        format!("the deadlines of {id} went from {:?} to {:?}", before.paused.wake, after.paused.wake)
    })?;
    let due = before.paused.wake.due.as_ref();
    ensure(due.is_some_and(|due| due.at <= commit.now + SKEW), || {
        format!("{due:?} of {id} has passed at {}", commit.now)
    })
}

fn ends_stay(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before: Some(before), after }) = &sight.invocation else { return Ok(()) };
    let by_somebody = matches!(sight.call, Call::Commit { commit, done: true }
        if matches!(commit.invocation, Some(InvocationWrite::Retry { .. } | InvocationWrite::Cancel { .. })));
    let may_change = !has_ended(before) || (is_aside(before) && by_somebody);
    ensure(may_change || after.as_ref() == Some(before), || {
        format!("{} had ended and is another one now", before.paused.invocation_id)
    })
}

/// Nothing of its pause is lost, and it goes on with what it was to go on with.
fn asides_are_whole(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before: Some(before), after: Some(after) }) = &sight.invocation else { return Ok(()) };
    let id = &after.paused.invocation_id;
    if is_aside(before) != is_aside(after) && !matches!(after.status, InvocationStatus::Canceled(_)) {
        ensure(before.paused == after.paused, || format!("{id} was {:?} and is {:?}", before.paused, after.paused))?;
    }
    let (true, Some(payload)) = (is_aside(before), payload_of(after)) else { return Ok(()) };
    let kept = sight.history.aside.get(id).map(|aside| &aside.payload);
    ensure(kept == Some(&payload), || format!("{id} was put aside with {kept:?} and is to go on with {payload:?}"))
}

/// As many workers as may died of it, or never came to an end, since it got further or was tried again.
fn asides_were_tried(sight: &Sight<'_>) -> Result<(), String> {
    let (Call::Commit { commit, done: true }, history) = (sight.call, sight.history) else { return Ok(()) };
    let Some(InvocationWrite::PutAside { paused, .. }) = &commit.invocation else { return Ok(()) };
    let attempts = history.attempts(&paused.invocation_id);
    ensure(attempts > history.most_attempts, || {
        format!("{} was put aside by worker {attempts} of {}", paused.invocation_id, history.most_attempts)
    })
}

fn cancellations_stand(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before: Some(before), .. }) = &sight.invocation else { return Ok(()) };
    let written = matches!(sight.call, Call::Commit { done: true, .. });
    let canceled = matches!(before.status, InvocationStatus::Canceled(_));
    ensure(!(written && canceled), || {
        format!("{} was canceled, and a commit of it happened", before.paused.invocation_id)
    })
}

/// A cancellation may end anybody's claim.
fn claims_exclude(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before: Some(before), .. }) = &sight.invocation else { return Ok(()) };
    let holder = match &before.status {
        InvocationStatus::Resuming(claim) => Some(claim),
        InvocationStatus::Accepted { .. } => None,
        InvocationStatus::Suspended
        | InvocationStatus::Completed { .. }
        | InvocationStatus::Errored(_)
        | InvocationStatus::Canceled(_) => return Ok(()),
    };
    let id = &before.paused.invocation_id;
    match sight.call {
        Call::Claim { request, outcome: ClaimOutcome::Granted(_) } => {
            let is_free = |claim: &Claim| {
                claim.owner == request.owner || is_out_of_time(claim.until, (request.now, request.past))
            };
            ensure(holder.is_none_or(is_free), || format!("{} claimed {id}, which {holder:?} holds", request.owner))?;
        }
        Call::Commit { commit, done: true } if !is_cancellation(commit) => {
            let owner = commit.invocation.as_ref().and_then(claimant);
            let holds = holder.is_some_and(|claim| owner == Some(&claim.owner));
            ensure(holds, || format!("{owner:?} changed {id}, which {holder:?} holds"))?;
        }
        Call::Lease { .. } | Call::Claim { .. } | Call::Commit { .. } | Call::Buffer { .. } => {}
    }
    Ok(())
}

/// Whether a lease or claim until `until` may be taken from its holder by a request of that instant: its time is over, or
/// it lasts longer than any turn may take, and the request names it.
fn is_out_of_time(until: Timestamp, (now, past): (Timestamp, Option<Timestamp>)) -> bool {
    until <= now || (until > now + limits::LEASE && past == Some(until))
}

fn is_cancellation(commit: &Commit) -> bool {
    matches!(commit.invocation, Some(InvocationWrite::Cancel { .. }))
}

fn claimant(write: &InvocationWrite) -> Option<&Owner> {
    match write {
        InvocationWrite::Complete { owner, .. }
        | InvocationWrite::Release { owner, .. }
        | InvocationWrite::Keep { owner, .. }
        | InvocationWrite::PutAside { owner, .. }
        | InvocationWrite::AssertClaimed { owner, .. } => Some(owner),
        InvocationWrite::Fail { owner, .. } => owner.as_ref(),
        InvocationWrite::Suspend { from: SuspendFrom::Claimed { owner, .. }, .. }
        | InvocationWrite::Progress { from: ProgressFrom::Claimed(owner), .. } => Some(owner),
        InvocationWrite::Suspend { from: SuspendFrom::Fresh, .. }
        | InvocationWrite::Progress { from: ProgressFrom::Fresh, .. }
        | InvocationWrite::Cancel { .. }
        | InvocationWrite::CancelBeforeStart { .. }
        | InvocationWrite::Conclude { .. }
        | InvocationWrite::Accept { .. }
        | InvocationWrite::Retry { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Answer { .. }
        | InvocationWrite::Advance { .. } => None,
    }
}

/// Also: a delivery that names a pause claims no other one, and who only takes over takes what was accepted.
fn payloads_stand(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before, after: Some(after) }) = &sight.invocation else { return Ok(()) };
    let id = &after.paused.invocation_id;
    let generation = after.paused.generation;
    if let Call::Claim { request, outcome: ClaimOutcome::Granted(_) } = sight.call {
        let meant = request.generation;
        ensure(meant.is_none_or(|meant| meant == generation), || {
            format!("a delivery for pause {meant:?} of {id} claimed pause {generation}")
        })?;
        let taken = before.as_ref().is_some_and(|before| {
            matches!(before.status, InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_))
        });
        ensure(request.payload.is_some() || taken, || format!("{id}#{generation} is to go on with nothing"))?;
    }
    let (Some(first), Some(second)) = (before.as_ref().and_then(payload_of), payload_of(after)) else { return Ok(()) };
    // What has come further by a durable step needs its payload no more.
    let came_further = matches!(sight.call, Call::Commit { commit, done: true }
        if matches!(commit.invocation, Some(InvocationWrite::Progress { .. })));
    let same_pause = before.as_ref().is_some_and(|before| before.paused.generation == generation) && !came_further;
    ensure(!same_pause || first == second, || {
        format!("{id}#{generation} had accepted {first:?} and goes on with {second:?}")
    })
}

fn one_writer(sight: &Sight<'_>) -> Result<(), String> {
    match sight.call {
        Call::Lease { session, request, granted: true } => {
            let Some((owner, until)) = sight.history.leases.get(session) else { return Ok(()) };
            let free = *owner == request.owner || is_out_of_time(*until, (request.now, request.past));
            ensure(free, || format!("{} leased session {session}, which {owner} holds until {until}", request.owner))
        }
        Call::Commit { commit, done: true } => {
            let Some(write) = &commit.session else { return Ok(()) };
            let (Some(lease), Some((owner, _))) = (&write.lease, sight.history.leases.get(&write.session_id)) else {
                return Ok(());
            };
            ensure(*owner == lease.owner, || {
                format!("{} wrote session {}, which {owner} holds", lease.owner, write.session_id)
            })
        }
        Call::Lease { .. } | Call::Claim { .. } | Call::Commit { .. } | Call::Buffer { .. } => Ok(()),
    }
}

/// No save loses what another one had saved.
fn sessions_grow(sight: &Sight<'_>) -> Result<(), String> {
    if let Some(Changed { before: Some(before), after }) = &sight.session {
        let Some(after) = after else { return Err(format!("session {} is gone", before.session_id)) };
        let then = before.version;
        let now = after.version;
        ensure(now == then || now == then + 1, || {
            format!("session {} went from version {then} to {now}", before.session_id)
        })?;
        for name in LISTS {
            let then = list(&before.state, name);
            let now = list(&after.state, name);
            // A client that cuts its transcript has the rest of the conversation forgotten.
            let cut = name == "messages" && then.starts_with(now) && cuts(sight.call);
            ensure(cut || now.starts_with(then), || {
                format!("session {} had {name} {then:?} and has {now:?}", before.session_id)
            })?;
        }
    }
    Ok(())
}

/// No client of the chat says the same twice, and none sends a message again that may have been taken in, but by a key. No
/// invocation has an entry twice.
fn nothing_is_said_twice(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { after: Some(after), .. }) = &sight.session else { return Ok(()) };
    let said = list(&after.state, "messages").iter().filter(|message| message["role"] == "user");
    let mut known = BTreeSet::new();
    let entries =
        list(&after.state, "entries").iter().filter_map(Value::as_str).filter(|entry| entry.starts_with("i-"));
    for entry in entries {
        ensure(known.insert(entry), || format!("{entry:?} stands twice in session {}", after.session_id))?;
    }
    for words in said.filter_map(|message| message["content"].as_str()).filter(|words| words.starts_with("m-")) {
        ensure(known.insert(words), || format!("{words:?} stands twice in session {}", after.session_id))?;
    }
    Ok(())
}

fn cuts(call: Call<'_>) -> bool {
    let Call::Commit { commit, done: true } = call else { return false };
    let mut told = commit.journal.appends.iter().flat_map(|append| &append.entries);
    told.any(|entry| entry.get("event").is_some_and(|event| event == EventKind::SessionTruncated.as_str()))
}

fn parked_signals_stay(sight: &Sight<'_>) -> Result<(), String> {
    let parked = sight.history.parked.iter().flat_map(|(id, all)| all.iter().map(move |one| (id, one)));
    parked.filter(|(_, parked)| !parked.taken).try_for_each(|(id, parked)| {
        let state = sight.history.signals.get(id);
        let kept = matches!(state, Some(SignalState::Buffered(signal)) if signal.payload == parked.payload);
        ensure(kept, || format!("signal {id} was kept with {:?}, and is {state:?}", parked.payload))
    })
}

/// While a pause lasts its answers only get more, one by one.
fn answers_stand(sight: &Sight<'_>) -> Result<(), String> {
    let Some(Changed { before: Some(before), after: Some(after) }) = &sight.invocation else { return Ok(()) };
    if before.paused.generation != after.paused.generation || has_ended(after) {
        return Ok(());
    }
    let answers = |record: &InvocationRecord| record.paused.fan_in.clone().map(|all| all.answers).unwrap_or_default();
    let then = answers(before);
    let now = answers(after);
    ensure(now.starts_with(&then) && now.len() <= then.len() + 1, || {
        format!("the answers of {} went from {then:?} to {now:?}", after.paused.invocation_id)
    })
}

/// Nobody sleeps on whose answers are enough, and whoever goes on does so with every answer that was accepted.
fn enough_answers_wake(sight: &Sight<'_>) -> Result<(), String> {
    let Some(record) = sight.invocation.as_ref().and_then(|changed| changed.after.as_ref()) else { return Ok(()) };
    let (id, Some(fan_in)) = (&record.paused.invocation_id, &record.paused.fan_in) else { return Ok(()) };
    if record.paused.under_way {
        return Ok(());
    }
    match &record.status {
        InvocationStatus::Suspended => {
            ensure(fan_in.decision().is_none(), || format!("{id} sleeps on, and {:?} have answered", fan_in.answers))
        }
        InvocationStatus::Accepted { payload } | InvocationStatus::Resuming(Claim { payload, .. }) => {
            let votes = payload.get(&fan_in.into).unwrap_or(&Value::Null);
            let heard =
                |answer: &PartAnswer| votes["answers"].get(&answer.part) == Some(&answer.payload.clone().into());
            let lost = fan_in.answers.iter().find(|answer| !heard(answer));
            ensure(lost.is_none(), || format!("{id} goes on with {votes}, without the accepted {lost:?}"))?;
            let in_time = payload.contains_key(RESOLUTION) && votes["outcome"] == "time";
            ensure(in_time || votes["decided_by"].is_string(), || {
                format!("{id} goes on with {votes}, which is not enough")
            })
        }
        InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => Ok(()),
    }
}

fn delivered_signals_stay(sight: &Sight<'_>) -> Result<(), String> {
    let Call::Buffer { id, outcome: BufferOutcome::Buffered { .. }, .. } = sight.call else { return Ok(()) };
    let ended = sight
        .history
        .pauses
        .iter()
        .find(|((waiter, generation), pause)| pause.awaits(id) && sight.history.is_over(waiter, *generation));
    ensure(ended.is_none(), || {
        format!("signal {id} was parked after it had ended the wait of {:?}", ended.map(|e| e.0))
    })
}

/// The list `name` of a session's state.
pub(crate) fn list<'s>(state: &'s Map, name: &str) -> &'s [Value] {
    state.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
