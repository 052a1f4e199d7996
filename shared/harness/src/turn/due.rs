//! Pauses that fall due: their announcements, wake-ups and ends.
//!
//! A deadline that is only an announcement is published on the bus first, then the pause moves on to the next deadline
//! in one conditional write, then that one is registered. A worker that finds the pause between two of these steps does
//! the rest: a deadline may be announced twice, with the same id, and is passed once.

use dormouse_ports::{
    Announcement, BEFORE_FIRST_PAUSE, BusError, Category, CommitError, Due, DueAction, Event, InvocationId,
    InvocationRecord, InvocationStatus, InvocationWrite, Map, PausedInvocation, Resolution, Subscription,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::deliver::deliver;
use super::delivery::{FoundDelivery, SignalTarget};
use super::takeover::take_over;
use crate::bucket::Bucket;
use crate::budget::Budget;
use crate::error::{TurnError, store_failed, subscription_failed};
use crate::outcome::{SuspendedTurn, TurnOutcome};
use crate::transmission::Trigger;
use crate::worker::Worker;

/// Source of the events that announce a passed deadline.
const SOURCE: &str = "dormouse";
/// Their detail type.
const DETAIL_TYPE: &str = "Dormouse Deadline";

/// Time by which the clock of a timer may be ahead of ours.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// Handles a pause that fell due. `meant` is the deadline that the timer or the sweep had seen: a timer that comes long before it
/// wakes nobody, and is set once more.
pub(super) async fn fall_due(
    worker: &Worker,
    invocation_id: InvocationId,
    generation: u64,
    meant: Option<Timestamp>,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    let stale = TurnOutcome::Stale { invocation_id: invocation_id.clone() };
    let Some(mut record) = worker.records.load(&invocation_id).await? else { return Ok(stale) };
    let is_over = match record.status {
        InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => true,
        InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => false,
    };
    if is_over || generation != record.paused.generation {
        return Ok(stale);
    }
    if !record.paused.has_paused() {
        let taken = take_over(worker, &record.paused.invocation_id, Some(BEFORE_FIRST_PAUSE), budget).await?;
        return Ok(taken.unwrap_or(stale));
    }
    let now = worker.now();
    let mut passed = match meant {
        None => Timestamp::MAX,
        Some(meant) if meant.duration_since(now) > AHEAD => now,
        // A timer may be ahead of our clock: what it was set for has passed.
        Some(meant) => meant.max(now),
    };
    loop {
        let Some(due) = record.paused.wake.due.clone() else { return Ok(stale) };
        if due.at > passed {
            return register_next(worker, record.paused).await;
        }
        match due.action {
            DueAction::Resume(payload) => {
                let generation = Some(record.paused.generation);
                let trigger = Trigger::Due;
                let part = SignalTarget::Pause;
                let delivery = FoundDelivery { invocation_id, generation, part, payload, budget, trigger };
                return deliver(worker, delivery).await;
            }
            DueAction::Fail => return time_out(worker, *record, due.at, budget).await,
            DueAction::Announce(ref announcement) => {
                if matches!(record.status, InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_)) {
                    return finish_accepted(worker, &record, budget).await;
                }
                announce(worker, &record.paused, &due, announcement).await?;
                match advance(worker, &record.paused).await? {
                    Some(next) => record.paused = next,
                    None => return Ok(stale),
                }
                passed = worker.now();
            }
        }
    }
}

/// Publishes on the bus that a deadline has passed.
async fn announce(
    worker: &Worker,
    paused: &PausedInvocation,
    due: &Due,
    announcement: &Announcement,
) -> Result<(), TurnError> {
    let event = deadline_event(paused, due, announcement);
    match worker.bus.publish(event).await {
        Ok(()) => Ok(()),
        Err(BusError::Unavailable(reason)) => {
            let message = format!("a deadline could not be announced: {reason}");
            let error = TurnError::new(Category::HarnessSignalSubscriptionFailed, message);
            Err(TurnError { bucket: Bucket::RetryableTransient, ..error }.of(&paused.invocation_id))
        }
        // The deadlines behind it count all the same.
        Err(BusError::Rejected(reason)) => {
            tracing::error!(
                %reason, invocation_id = %paused.invocation_id,
                "the event bus refused the announcement of a deadline; the deadlines after it still count"
            );
            Ok(())
        }
    }
}

/// Moves the pause on to its next deadline. `None` when it is not where it was any more.
async fn advance(worker: &Worker, paused: &PausedInvocation) -> Result<Option<PausedInvocation>, TurnError> {
    let Some(wake) = paused.wake.advanced() else { return Ok(None) };
    let next = PausedInvocation { wake: wake.clone(), ..paused.clone() };
    match worker.records.commit(InvocationWrite::Advance { paused: Box::new(paused.clone()), wake }).await {
        Ok(()) => Ok(Some(next)),
        Err(CommitError::Store(error)) => Err(store_failed(error).of(&paused.invocation_id)),
        Err(error @ (CommitError::Journal(_) | CommitError::Unknown(_))) => {
            let error = TurnError::new(Category::ResumeInProgress, error.to_string());
            Err(error.of(&paused.invocation_id))
        }
        Err(
            CommitError::InvocationConflict
            | CommitError::SessionConflict
            | CommitError::LeaseLost
            | CommitError::SignalBuffered(_)
            | CommitError::SignalTaken { .. }
            | CommitError::Said(_),
        ) => Ok(None),
    }
}

/// Registers the deadline that is next now; doing it again is harmless.
async fn register_next(worker: &Worker, paused: PausedInvocation) -> Result<TurnOutcome, TurnError> {
    let registered = worker.wakes.register(&Subscription::from(&paused)).await;
    registered.map_err(|error| subscription_failed(error).of(&paused.invocation_id))?;
    Ok(TurnOutcome::Suspended(Box::new(SuspendedTurn::stored(paused))))
}

/// Ends a pause for which no signal came in time. One that was accepted in time stands, even if its worker died.
async fn time_out(
    worker: &Worker,
    record: InvocationRecord,
    due_at: Timestamp,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    if matches!(record.status, InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_)) {
        return finish_accepted(worker, &record, budget).await;
    }
    let id = record.paused.invocation_id.clone();
    let message = match record.paused.fan_in.as_ref().map(|fan_in| fan_in.missing().collect::<Vec<_>>().join(", ")) {
        Some(missing) => format!("until {due_at} no answer came for {missing}"),
        None => format!("no signal `{}` came until {due_at}", record.paused.descriptor.signal_id),
    };
    let error = TurnError::new(Category::SuspensionTimedOut, message).of_record(&record.paused);
    let paused = PausedInvocation { resolution: Some(Resolution::TimedOut), ..record.paused };
    let ended = worker.records.fail_unclaimed(paused, &error).await;
    ended.map_err(|reason| TurnError::new(Category::ResumeInProgress, reason).of(&id))?;
    Err(error)
}

/// A signal came in time: its delivery is under way, or is taken over from a worker that died.
async fn finish_accepted(
    worker: &Worker,
    record: &InvocationRecord,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    let taken = take_over(worker, &record.paused.invocation_id, Some(record.paused.generation), budget).await?;
    taken.ok_or_else(|| {
        let message = "a signal that came in time is being delivered";
        TurnError::new(Category::ResumeInProgress, message).of(&record.paused.invocation_id)
    })
}

/// The event of a deadline; the same one every time, but for who has answered meanwhile. It holds nothing of state or
/// payload, and of the metadata only the names of parts that are missing.
fn deadline_event(paused: &PausedInvocation, due: &Due, announcement: &Announcement) -> Event {
    let fields: [(&str, Value); 9] = [
        ("id", format!("{}/{}/{}", paused.invocation_id, paused.generation, due.rung).into()),
        ("invocation_id", paused.invocation_id.as_str().into()),
        ("graph", paused.graph.as_str().into()),
        ("signal_id", paused.descriptor.signal_id.as_str().into()),
        ("generation", paused.generation.into()),
        ("rung", due.rung.into()),
        ("do", announcement.step.as_str().into()),
        ("to", announcement.to.clone().into()),
        ("due_at", due.at.to_string().into()),
    ];
    let missing = paused.fan_in.iter().map(|fan_in| ("missing", fan_in.missing().collect::<Vec<_>>().into()));
    let detail: Map = fields.into_iter().chain(missing).map(|(name, value)| (name.to_owned(), value)).collect();
    Event { source: SOURCE.to_owned(), detail_type: DETAIL_TYPE.to_owned(), detail }
}
