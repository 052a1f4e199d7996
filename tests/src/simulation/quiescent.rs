//! What must hold when everything has come to rest: nothing fails any more, everybody has been told, and the sweep has
//! been there. To add an invariant: a function, and a line in [`AT_REST`].

use dormouse_app::{EXPENSE_APPROVAL, EXPORT_JOB};
use dormouse_ports::{
    DueAction, FanIn, InvocationId, InvocationRecord, InvocationStatus, Map, ParkedRow, PartAnswer, PendingRow,
    PutAside, SignalId, SignalState,
};
use jiff::Timestamp;
use serde_json::Value;

use super::agents;
use super::clients::Clients;
use super::graphs::JURY;
use super::hearing;
use super::history::{History, Pause, has_ended, is_aside};
use super::invariants::list;
use super::services::Services;

/// Everything at rest.
pub(crate) struct Quiescent<'a> {
    pub(crate) history: &'a History,
    pub(crate) services: &'a Services,
    pub(crate) clients: &'a Clients,
    /// The whole index of what sleeps.
    pub(crate) rows: Vec<PendingRow>,
    /// What the index of parked signals holds of those that are parked no more.
    pub(crate) stale_parked_rows: Vec<ParkedRow>,
    /// What is told to whoever asks for what was put aside.
    pub(crate) listed_aside: PutAside,
    pub(crate) now: Timestamp,
}

type Holds = fn(&Quiescent<'_>) -> Result<(), String>;

/// All of them, by name.
pub(crate) const AT_REST: [(&str, Holds); 19] = [
    ("everybody is told what came of their wish", all_are_told),
    ("nobody is left half awake", nobody_is_half_awake),
    ("nothing is overdue", nothing_is_overdue),
    ("who sleeps has one row, and nobody else has any", rows_are_of_sleepers),
    ("the doctor knows what was put aside", asides_are_listed),
    ("a wait belongs to a sleeper", waits_belong_to_sleepers),
    ("who is listed as parked is parked", parked_rows_are_of_parked),
    ("a passed deadline was announced", passed_deadlines_were_announced),
    ("whoever sleeps can be woken", sleepers_can_be_woken),
    ("what goes on was told so", payloads_were_sent),
    ("an outcome holds the answer of every pause", outcomes_hold_answers),
    ("what an answer said was kept, is kept", kept_is_kept),
    ("there is a rule as long as somebody relies on it", rules_stay),
    ("an awaited event is delivered", events_are_delivered),
    ("a delivered event is consumed or visible", events_are_consumed),
    ("no effect of a tool happens twice unless somebody wanted it", agents::nothing_is_paid_twice),
    ("what is said is heard once", hearing::what_is_said_is_heard_once),
    ("an answer wakes one pause", hearing::an_answer_wakes_one_pause),
    ("no effect of a tool is lost, and an uncertain one is asked about", agents::payments_are_told),
];

fn all_are_told(rest: &Quiescent<'_>) -> Result<(), String> {
    match rest.clients.jobs.iter().find(|job| !job.told) {
        Some(job) => Err(format!("{} is never answered", job.operation)),
        None => Ok(()),
    }
}

fn nobody_is_half_awake(rest: &Quiescent<'_>) -> Result<(), String> {
    each(rest, |id, record| match &record.status {
        InvocationStatus::Resuming(claim) => Err(format!("{id} is claimed by {} still", claim.owner)),
        InvocationStatus::Accepted { .. } => Err(format!("{id} is taken up by no worker")),
        InvocationStatus::Suspended
        | InvocationStatus::Completed { .. }
        | InvocationStatus::Errored(_)
        | InvocationStatus::Canceled(_) => Ok(()),
    })
}

fn nothing_is_overdue(rest: &Quiescent<'_>) -> Result<(), String> {
    each(rest, |id, record| {
        let due = record.paused.wake.due.as_ref().filter(|_| !has_ended(record));
        match due {
            Some(due) if due.at <= rest.now => Err(format!("{id} was due at {} and sleeps on", due.at)),
            _ => Ok(()),
        }
    })
}

fn rows_are_of_sleepers(rest: &Quiescent<'_>) -> Result<(), String> {
    let row = |row: &PendingRow| (row.invocation_id.clone(), row.generation);
    let mut rows: Vec<_> = rest.rows.iter().map(row).collect();
    rows.sort();
    let sleeps = |record: &&InvocationRecord| !has_ended(record) && record.paused.has_paused();
    let sleepers = rest.history.invocations.values().filter(sleeps);
    let wanted: Vec<_> = sleepers.map(|it| (it.paused.invocation_id.clone(), it.paused.generation)).collect();
    if rows == wanted { Ok(()) } else { Err(format!("{wanted:?} sleep, and there are rows for {rows:?}")) }
}

/// All are listed, or a page of them.
fn asides_are_listed(rest: &Quiescent<'_>) -> Result<(), String> {
    let aside = rest.history.invocations.iter().filter(|(_, record)| is_aside(record)).map(|(id, _)| id);
    let aside: Vec<_> = aside.collect();
    let PutAside { ids: listed, more } = &rest.listed_aside;
    let is_whole = if *more { listed.len() < aside.len() } else { listed.len() == aside.len() };
    match is_whole && listed.iter().all(|id| aside.contains(&id)) {
        true => Ok(()),
        false => Err(format!("{aside:?} are put aside, and {listed:?} are listed")),
    }
}

/// Nothing is left of waits that are over.
fn waits_belong_to_sleepers(rest: &Quiescent<'_>) -> Result<(), String> {
    rest.history.signals.iter().try_for_each(|(signal, state)| {
        let SignalState::Waiting { invocation_id: id, generation } = state else { return Ok(()) };
        let record = rest.history.invocations.get(id);
        let aside = record.is_some_and(|record| is_aside(record) && record.paused.generation == *generation);
        match record.is_none() || (rest.history.is_over(id, *generation) && !aside) {
            true => Err(format!("signal {signal} waits for {id}#{generation}, which is over")),
            false => Ok(()),
        }
    })
}

fn parked_rows_are_of_parked(rest: &Quiescent<'_>) -> Result<(), String> {
    match rest.stale_parked_rows.first() {
        Some(row) => Err(format!("signal {} is parked no more, and there is a row for it", row.signal_id)),
        None => Ok(()),
    }
}

fn passed_deadlines_were_announced(rest: &Quiescent<'_>) -> Result<(), String> {
    rest.history.pauses.iter().try_for_each(|((id, generation), pause)| {
        let ids = (0..pause.wake.rung()).map(|rung| format!("{id}/{generation}/{rung}"));
        match ids.into_iter().find(|id| !rest.services.announced.contains(id)) {
            Some(missing) => Err(format!("deadline {missing} has passed, and nobody was told")),
            None => Ok(()),
        }
    })
}

/// The sweep has registered what a crash had lost.
fn sleepers_can_be_woken(rest: &Quiescent<'_>) -> Result<(), String> {
    each(rest, |id, record| {
        let paused = &record.paused;
        let scheduled = || rest.services.schedules.contains_key(&(id.clone(), paused.generation, paused.wake.rung()));
        let timed = paused.wake.due.is_none() || scheduled();
        let routed =
            paused.wake.event.as_ref().is_none_or(|wait| rest.services.has_rule(wait, &paused.descriptor.signal_id));
        match has_ended(record) || (timed && routed) {
            true => Ok(()),
            false => Err(format!("{id}#{} sleeps, and nothing outside will wake it", paused.generation)),
        }
    })
}

/// Every pause went on with what somebody had sent for it, or with what its own deadline says.
fn payloads_were_sent(rest: &Quiescent<'_>) -> Result<(), String> {
    rest.history.consumed.iter().try_for_each(|((id, generation), payload)| {
        let Some(payload) = payload else { return Ok(()) };
        let pause = rest.history.pauses.get(&(id.clone(), *generation));
        // Whatever is said to a run that rests has it try again.
        let kind = pause.and_then(|pause| pause.descriptor.metadata.as_ref()?.get("kind")?.as_str());
        if payload.is_empty() && kind == Some("rest") {
            return Ok(());
        }
        if let Some((pause, fan_in)) = pause.and_then(|pause| Some((pause, pause.fan_in.as_ref()?))) {
            return answers_were_sent(rest, (id, *generation), (pause, fan_in), payload);
        }
        let by_address = rest.clients.sent_to.get(&(id.clone(), *generation));
        let by_signal = pause.into_iter().flat_map(|pause| signals_for(rest, pause, &pause.descriptor.signal_id));
        let carried =
            rest.services.carried.iter().filter(|carried| pause.is_some_and(|pause| pause.awaits(&carried.signal_id)));
        let due = pause.and_then(|pause| pause.wake.due.as_ref()).and_then(|due| match &due.action {
            DueAction::Resume(payload) => Some(payload),
            DueAction::Fail | DueAction::Announce(_) => None,
        });
        let mut sent = by_address.into_iter().flatten().chain(by_signal).chain(due);
        let known = sent.any(|sent| sent == payload) || carried.map(|carried| &carried.payload).any(|p| p == payload);
        if known { Ok(()) } else { Err(format!("{id}#{generation} went on with {payload:?}, which nobody sent")) }
    })
}

/// What was sent under `signal_id`, in a way in which it reaches `pause`: with the key of the deployment, over the bus, or
/// with a key of its tenant.
fn signals_for<'r>(
    rest: &Quiescent<'r>,
    pause: &Pause,
    signal_id: &SignalId,
) -> impl Iterator<Item = &'r Map> + use<'r> {
    let of_tenant = pause.tenant.as_deref().map(|tenant| signal_id.of_tenant(tenant));
    let names = [Some(signal_id.clone()), of_tenant].into_iter().flatten();
    let signalled = &rest.clients.signalled;
    names.flat_map(|name| signalled.get(&name).into_iter().flatten())
}

/// Every answer with which a pause for several signals went on was sent for its part, and the decision follows from them.
fn answers_were_sent(
    rest: &Quiescent<'_>,
    (id, generation): (&InvocationId, u64),
    (pause, fan_in): (&Pause, &FanIn),
    payload: &Map,
) -> Result<(), String> {
    let votes = payload.get(&fan_in.into).unwrap_or(&Value::Null);
    let mut heard = FanIn { answers: Vec::new(), ..fan_in.clone() };
    for (part, answer) in votes["answers"].as_object().into_iter().flatten() {
        let answer = answer.as_object().cloned().unwrap_or_default();
        let signal_id = fan_in.expected.iter().find(|one| one.part == *part).map(|one| &one.signal_id);
        let by_signal = signal_id.into_iter().flat_map(|id| signals_for(rest, pause, id));
        let by_address = rest.clients.sent_for.get(&(id.clone(), generation, part.clone())).into_iter().flatten();
        if !by_signal.chain(by_address).any(|sent| *sent == answer) {
            return Err(format!("{id}#{generation} went on with {answer:?} of {part}, who never sent it"));
        }
        heard = heard.with(PartAnswer { part: part.clone(), payload: answer, at: Timestamp::UNIX_EPOCH });
    }
    match heard.payload().get(&fan_in.into) {
        Some(expected) if expected == votes => Ok(()),
        expected => Err(format!("{id}#{generation} went on with {votes}, and should have with {expected:?}")),
    }
}

fn outcomes_hold_answers(rest: &Quiescent<'_>) -> Result<(), String> {
    each(rest, |id, record| {
        let InvocationStatus::Completed { state } = &record.status else { return Ok(()) };
        let consumed = |generation| rest.history.consumed.get(&(id.clone(), generation)).cloned().flatten();
        let payloads: Vec<Map> = (1..=record.paused.generation).filter_map(consumed).collect();
        let holds = match record.paused.graph.as_str() {
            EXPENSE_APPROVAL => holds_field(&payloads, state, "decided_by"),
            EXPORT_JOB => holds_field(&payloads, state, "url"),
            // A task of a conversation may end without a pause.
            "chat" => payloads.len() as u64 == record.paused.generation,
            "reminder" => payloads.len() == 1,
            JURY => holds_field(&payloads, state, "votes"),
            // What became of their calls is looked at apart.
            graph if agents::is_agent(graph) => true,
            _ => {
                let answers: Vec<Value> =
                    payloads.iter().filter_map(|payload| payload.get("answer").cloned()).collect();
                let entry = |answer: &Value| format!("{id}/{}", answer.as_str().unwrap_or_default()).into();
                list(state, "answers") == answers
                    && (record.paused.graph != "journal"
                        || answers.iter().all(|answer| times_in_session(rest, record, &entry(answer)) == 1))
            }
        };
        if holds { Ok(()) } else { Err(format!("{id} was answered {payloads:?} and came to {state:?}")) }
    })
}

fn holds_field(payloads: &[Map], state: &Map, name: &str) -> bool {
    payloads.len() == 1 && payloads[0].get(name).is_none_or(|answer| state.get(name) == Some(answer))
}

fn times_in_session(rest: &Quiescent<'_>, record: &InvocationRecord, entry: &Value) -> usize {
    let session = record.paused.session_id.as_ref().and_then(|id| rest.history.sessions.get(id));
    session.map_or(0, |session| list(&session.state, "entries").iter().filter(|other| *other == entry).count())
}

fn kept_is_kept(rest: &Quiescent<'_>) -> Result<(), String> {
    rest.clients.kept.iter().try_for_each(|(session_id, kept)| {
        let session = rest.history.sessions.get(&session_id.as_str().into());
        let found = session.is_some_and(|session| {
            list(&session.state, "entries").iter().any(|entry| entry == kept)
                || list(&session.state, "messages").iter().any(|message| message["content"] == kept.as_str())
        });
        if found { Ok(()) } else { Err(format!("session {session_id} lost {kept:?}")) }
    })
}

fn rules_stay(rest: &Quiescent<'_>) -> Result<(), String> {
    match rest.services.robbed.first() {
        Some(id) => Err(format!("the rule that carries signal {id} was not there while it was awaited")),
        None => Ok(()),
    }
}

fn events_are_delivered(rest: &Quiescent<'_>) -> Result<(), String> {
    match rest.services.carried.iter().find(|carried| !carried.delivered) {
        Some(carried) => Err(format!("the event for signal {} never arrived", carried.signal_id)),
        None => Ok(()),
    }
}

/// Whoever waited for the signal of an event went on, or has noted it and waits for others; if nobody did, the signal is
/// kept.
fn events_are_consumed(rest: &Quiescent<'_>) -> Result<(), String> {
    rest.services.carried.iter().try_for_each(|carried| {
        let id = &carried.signal_id;
        let state = rest.history.signals.get(id);
        let fine = match state {
            Some(SignalState::Buffered(_) | SignalState::Delivered { .. }) => true,
            Some(SignalState::Waiting { invocation_id, .. }) => {
                let record = rest.history.invocations.get(invocation_id);
                let fan_in = record.and_then(|it| it.paused.fan_in.as_ref());
                // What was put aside has with what to go on.
                record.is_some_and(is_aside)
                    || fan_in.is_some_and(|all| all.part_of(&id.origin().1).is_some_and(|part| all.has_answered(part)))
            }
            None => false,
        };
        // What came early and did not fit was dropped when the wait began.
        let taken_up = rest.history.parked.get(id).into_iter().flatten();
        let was_dropped = taken_up.into_iter().any(|parked| parked.taken && parked.payload == carried.payload);
        let fine = fine || carried.put_aside || was_dropped;
        if fine { Ok(()) } else { Err(format!("the event for signal {id} was delivered, and the signal is {state:?}")) }
    })
}

fn each(
    rest: &Quiescent<'_>,
    mut holds: impl FnMut(&InvocationId, &InvocationRecord) -> Result<(), String>,
) -> Result<(), String> {
    rest.history.invocations.iter().try_for_each(|(id, record)| holds(id, record))
}
