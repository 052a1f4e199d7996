//! Pauses that fall due: what is announced, what wakes them, what ends them.
//!
//! A deadline that only announces something is told on the bus first, then the pause moves on to the next deadline in
//! one conditional write, then that one is registered. Whoever finds the pause between two of these steps does the rest:
//! a deadline may be announced twice, with the same id, and is passed once.

use dormouse_ports::{
    Announcement, BusError, Category, CommitError, Due, DueAction, Event, InvocationId, InvocationRecord,
    InvocationStatus, InvocationWrite, Map, PausedInvocation, Resolution, Subscription,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::answer::Addressee;
use crate::harness::{Budget, subscription_failed};
use crate::signal::{Delivery, sleeping, store_failed};
use crate::{Bucket, Harness, Trigger, TurnError, TurnOutcome};

/// Who sends the events that tell of a passed deadline.
const SOURCE: &str = "dormouse";
/// What kind of events they are.
const DETAIL_TYPE: &str = "Dormouse Deadline";

impl Harness {
    /// What a pause that fell due asks for. `meant` is the deadline that the timer or the sweep had seen.
    pub(crate) async fn fall_due(
        &self,
        invocation_id: InvocationId,
        generation: Option<u64>,
        meant: Option<Timestamp>,
        budget: Budget,
    ) -> Result<TurnOutcome, TurnError> {
        let stale = TurnOutcome::Stale { invocation_id: invocation_id.clone() };
        let Some(mut record) = self.load_invocation(&invocation_id).await? else { return Ok(stale) };
        let is_over = match record.status {
            InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => true,
            InvocationStatus::Suspended | InvocationStatus::Resuming(_) => false,
        };
        if is_over || generation.is_some_and(|meant| meant != record.paused.generation) {
            return Ok(stale);
        }
        if record.paused.generation == 0 {
            return Ok(self.take_over(&record.paused.invocation_id, Some(0)).await?.unwrap_or(stale));
        }
        // A timer may be ahead of our clock: what it was set for has passed.
        let mut passed = meant.map_or(Timestamp::MAX, |meant| meant.max(self.now()));
        loop {
            let Some(due) = record.paused.wake.due.clone() else { return Ok(stale) };
            if due.at > passed {
                return self.register_next(record.paused).await;
            }
            match due.action {
                DueAction::Resume(payload) => {
                    let (generation, trigger) = (Some(record.paused.generation), Trigger::Due);
                    let part = Addressee::Pause;
                    let delivery = Delivery { invocation_id, generation, part, payload, budget, trigger };
                    return self.deliver(delivery).await;
                }
                DueAction::Fail => return self.time_out(*record, due.at).await,
                DueAction::Announce(ref announcement) => {
                    if matches!(record.status, InvocationStatus::Resuming(_)) {
                        return self.finish_accepted(&record).await;
                    }
                    self.announce(&record.paused, &due, announcement).await?;
                    match self.advance(&record.paused).await? {
                        Some(next) => record.paused = next,
                        None => return Ok(stale),
                    }
                    passed = self.now();
                }
            }
        }
    }

    /// Tells everybody on the bus that a deadline has passed.
    async fn announce(
        &self,
        paused: &PausedInvocation,
        due: &Due,
        announcement: &Announcement,
    ) -> Result<(), TurnError> {
        let event = deadline_event(paused, due, announcement);
        match self.bus().publish(event).await {
            Ok(()) => Ok(()),
            Err(BusError::Unavailable(reason)) => {
                let message = format!("a deadline could not be announced: {reason}");
                let error = TurnError::new(Category::HarnessSignalSubscriptionFailed, message);
                Err(TurnError { bucket: Bucket::RetryableTransient, ..error }.of(&paused.invocation_id))
            }
            // The deadlines behind it count all the same.
            Err(BusError::Rejected(reason)) => {
                tracing::error!(%reason, invocation_id = %paused.invocation_id, "a deadline cannot be announced");
                Ok(())
            }
        }
    }

    /// Moves the pause on to its next deadline. `None` when it is not where it was any more.
    async fn advance(&self, paused: &PausedInvocation) -> Result<Option<PausedInvocation>, TurnError> {
        let Some(wake) = paused.wake.advanced() else { return Ok(None) };
        let next = PausedInvocation { wake: wake.clone(), ..paused.clone() };
        match self.commit(InvocationWrite::Advance { paused: Box::new(paused.clone()), wake }).await {
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
                | CommitError::SignalTaken(_),
            ) => Ok(None),
        }
    }

    /// Registers the deadline that is next now; doing it again is harmless.
    async fn register_next(&self, paused: PausedInvocation) -> Result<TurnOutcome, TurnError> {
        let registered = self.wakes().register(&Subscription::from(&paused)).await;
        registered.map_err(|error| subscription_failed(error).of(&paused.invocation_id))?;
        Ok(TurnOutcome::Suspended(Box::new(sleeping(paused))))
    }

    /// Ends a pause for which no signal came in time. One that was accepted in time stands, even if its worker died.
    async fn time_out(&self, record: InvocationRecord, due_at: Timestamp) -> Result<TurnOutcome, TurnError> {
        if matches!(record.status, InvocationStatus::Resuming(_)) {
            return self.finish_accepted(&record).await;
        }
        let id = record.paused.invocation_id.clone();
        let message = match record.paused.fan_in.as_ref().map(|fan_in| fan_in.missing().collect::<Vec<_>>().join(", "))
        {
            Some(missing) => format!("until {due_at} no answer came for {missing}"),
            None => format!("no signal `{}` came until {due_at}", record.paused.descriptor.signal_id),
        };
        let error = TurnError::new(Category::SuspensionTimedOut, message).of(&id);
        let paused = PausedInvocation { resolution: Some(Resolution::TimedOut), ..record.paused };
        let ended = self.fail_unclaimed(paused, &error).await;
        ended.map_err(|reason| TurnError::new(Category::ResumeInProgress, reason).of(&id))?;
        Err(error)
    }

    /// A signal came in time: its delivery is under way, or is taken over from a worker that died.
    async fn finish_accepted(&self, record: &InvocationRecord) -> Result<TurnOutcome, TurnError> {
        let taken = self.take_over(&record.paused.invocation_id, Some(record.paused.generation)).await?;
        taken.ok_or_else(|| {
            let message = "a signal that came in time is being delivered";
            TurnError::new(Category::ResumeInProgress, message).of(&record.paused.invocation_id)
        })
    }
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
