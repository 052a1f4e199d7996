//! Signals: from a correlation token, a callback or a timer to the continued invocation (harness §3.3, §6).

use std::sync::Arc;

use dormouse_engine::{AfterError, CompiledGraph, EngineError, Outcome, Resume};
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, CommitError, FailureRecord, InvocationId, InvocationRecord, InvocationStatus,
    InvocationWrite, Map, Owner, PausedInvocation, RESOLUTION, StoreError, Subscription,
};

use crate::accepted::Patience;
use crate::answer::{Addressee, Bid, Gathered};
use crate::harness::{Budget, Settled};
use crate::{
    Bucket, CompletedTurn, Harness, SignalOrigin, SuspendedTurn, Tally, Transmission, Trigger, TurnError, TurnOutcome,
};

/// How often a pause may be followed by the next one within one delivery, because each signal was there already.
const MOST_CONTINUATIONS: usize = 16;

/// A delivery that found its invocation.
pub(crate) struct Delivery {
    pub(crate) invocation_id: InvocationId,
    pub(crate) generation: Option<u64>,
    pub(crate) part: Addressee,
    pub(crate) payload: Map,
    pub(crate) budget: Budget,
    /// Who triggered it: a person waits for an answer, a timer comes again.
    pub(crate) trigger: Trigger,
}

impl Harness {
    pub(crate) async fn resume(&self, transmission: Transmission) -> Result<TurnOutcome, TurnError> {
        let budget = self.budget(&transmission);
        let mut payload = transmission.signal_payload.unwrap_or_default();
        let size = self.check_size(&payload);
        if let (Err(error), Some(signal_id), SignalOrigin::Event(event)) =
            (&size, &transmission.signal_id, &transmission.origin)
        {
            return Err(self.unfit_event(signal_id, event, error.clone()).await);
        }
        size?;
        // A signal cannot say that time decided.
        payload.shift_remove(RESOLUTION);
        match (transmission.trigger, transmission.invocation_id, transmission.signal_id) {
            (Trigger::Due, Some(id), _) => {
                self.fall_due(id, transmission.generation, transmission.due_at, budget).await
            }
            (Trigger::Signal, Some(invocation_id), _) => {
                let (generation, trigger) = (transmission.generation, Trigger::Signal);
                let part = transmission.part.map_or(Addressee::Pause, Addressee::Part);
                self.deliver(Delivery { invocation_id, generation, part, payload, budget, trigger }).await
            }
            (_, None, Some(signal_id)) => match transmission.origin {
                SignalOrigin::Sent => self.correlate(signal_id, payload, budget).await,
                SignalOrigin::Event(event) => {
                    match self.correlate_event(signal_id.clone(), event.clone(), payload, budget).await {
                        Err(error) if error.is_unfit() => Err(self.unfit_event(&signal_id, &event, error).await),
                        turn => turn,
                    }
                }
            },
            (_, None, None) => {
                let message = "a signal must name an invocation_id or a signal_id";
                Err(TurnError::new(Category::HarnessSignalCorrelationFailed, message))
            }
        }
    }

    fn check_size(&self, payload: &Map) -> Result<(), TurnError> {
        bounded("the payload", payload)?;
        let unreadable = |error: serde_json::Error| TurnError::new(Category::RequestInvalid, error.to_string());
        let (size, limit) = (serde_json::to_vec(payload).map_err(unreadable)?.len(), self.config().signal_payload);
        if size <= limit {
            return Ok(());
        }
        let advice = "keep the data elsewhere and send a reference";
        let message = format!("the payload has {size} bytes; the limit is {limit} bytes: {advice}");
        Err(TurnError::new(Category::RequestTooLarge, message))
    }

    /// Claims the invocation and continues it; while another delivery has it, looks again until that one is done.
    pub(crate) async fn deliver(&self, delivery: Delivery) -> Result<TurnOutcome, TurnError> {
        let id = delivery.invocation_id.clone();
        let mut looks = 0;
        let mut bid = Bid { payload: delivery.payload.clone(), answered: None };
        loop {
            let lease = self.lease(delivery.budget);
            let request = ClaimRequest {
                invocation_id: id.clone(),
                generation: delivery.generation,
                owner: lease.owner,
                now: self.now(),
                until: self.now() + lease.duration,
                past: None,
                payload: Some(bid.payload.clone()),
                answered: bid.answered,
            };
            match self.claim(&request).await.map_err(store_failed)? {
                ClaimOutcome::Granted(record) if record.paused.generation == 0 => {
                    // It had not begun; the signal is for a pause that it may come to.
                    self.begin(record, delivery.budget, Patience::Waits).await.map_err(|error| error.of(&id))?;
                }
                ClaimOutcome::Granted(record) => {
                    let accepted = Accepted::of(&record, &bid.payload);
                    match self.continue_claimed(record, delivery.budget, accepted).await {
                        // What a worker that died had left does not fit and is forgotten; ours was not looked at yet.
                        Err(error) if accepted == Accepted::Before && is_misfit(&error) => {}
                        // What it had left was another answer, which counts: the next look says so of ours.
                        Ok(_) if accepted == Accepted::Before && delivery.generation.is_some() => {}
                        turn => return turn.map_err(|error| error.of(&id)),
                    }
                }
                ClaimOutcome::Missing => {
                    let message = format!("there is no paused invocation {id}");
                    return Err(TurnError::new(Category::HarnessSignalCorrelationFailed, message));
                }
                ClaimOutcome::Gathering(_) if self.time_left(delivery.budget).is_zero() => {
                    let message = "other answers keep coming; send it again";
                    return Err(TurnError::new(Category::ResumeInProgress, message).of(&id));
                }
                ClaimOutcome::Gathering(record) => {
                    match self.gather(*record, &delivery).await.map_err(|error| error.of(&id))? {
                        Gathered::Told(turn) => return Ok(turn),
                        Gathered::Claims(next) => bid = next,
                    }
                }
                ClaimOutcome::Settled(record) => {
                    return Ok(self.answer_to(*record, delivery.generation, &delivery.part, &delivery.payload));
                }
                ClaimOutcome::Held { .. }
                    if delivery.trigger == Trigger::Signal && !self.time_left(delivery.budget).is_zero() =>
                {
                    self.pause_before_retry(&mut looks).await;
                }
                ClaimOutcome::Held { until } => {
                    let message = format!("another delivery is resuming the invocation until {until}; ask again then");
                    return Err(TurnError::new(Category::ResumeInProgress, message).of(&id));
                }
            }
        }
    }

    /// Continues an invocation whose claim is ours, and clears up what else would have woken it.
    pub(crate) async fn continue_claimed(
        &self,
        record: Box<InvocationRecord>,
        budget: Budget,
        accepted: Accepted,
    ) -> Result<TurnOutcome, TurnError> {
        let graph = match self.graph_of(&record.paused) {
            Ok(graph) => graph.clone(),
            Err(error) => {
                // What was acknowledged stays with the claim.
                match accepted {
                    Accepted::Now => self.give_back(&record).await,
                    Accepted::Before => self.leave(&record).await,
                }
                return Err(error);
            }
        };
        let woken = subscription_of(&record);
        let (session_id, paused) = (record.paused.session_id.clone(), record.paused.outermost_state().clone());
        let outcome = self.resume_once(&graph, record, budget, accepted).await;
        if let Ok(Outcome::Completed(_) | Outcome::Suspended(_)) = &outcome
            && let Some(woken) = woken
            && let Err(error) = self.wakes().cancel(&woken).await
        {
            tracing::warn!(%error, invocation_id = %woken.invocation_id, "a wake-up stays; it will find nothing to do");
        }
        let turn = match outcome {
            Ok(outcome) => self.finish(&graph, outcome, budget).await,
            Err(error) => Err(error),
        };
        let turn = turn.map(|turn| turn.in_session(session_id.clone()));
        self.listeners().notify(&graph, session_id.as_ref(), &paused, &turn).await;
        turn
    }

    /// Turns an outcome of the engine into the answer; where the next signal is there already, goes on at once.
    pub(crate) async fn finish(
        &self,
        graph: &Arc<CompiledGraph>,
        outcome: Outcome,
        budget: Budget,
    ) -> Result<TurnOutcome, TurnError> {
        let mut outcome = outcome;
        for _ in 0..MOST_CONTINUATIONS {
            match self.settle(graph, outcome).await? {
                Settled::Done(turn) => return Ok(turn),
                Settled::GoOn(record) => {
                    outcome = match self.resume_once(graph, record.clone(), budget, Accepted::Before).await {
                        Err(error) if error.category == Category::SuspensionResumePayloadInvalid => {
                            tracing::warn!(reason = %error.message, "an early signal does not fit and was dropped");
                            self.note_unfit(&record.paused.invocation_id, record.paused.generation, &error).await;
                            return self.arrange(SuspendedTurn { repeated: false, ..sleeping(record.paused) }).await;
                        }
                        outcome => outcome?,
                    };
                }
            }
        }
        let message = "the invocation paused and went on too many times in one delivery";
        Err(TurnError::new(Category::TurnDeadlineExceeded, message))
    }

    async fn resume_once(
        &self,
        graph: &Arc<CompiledGraph>,
        record: Box<InvocationRecord>,
        budget: Budget,
        accepted: Accepted,
    ) -> Result<Outcome, TurnError> {
        let call = Resume {
            payload: Map::new(),
            generation: None,
            claim: self.lease(budget),
            observers: Vec::new(),
            after_error: match accepted {
                Accepted::Now => |error| if may_try_again(error) { AfterError::GiveBack } else { AfterError::End },
                Accepted::Before => |error| if may_try_again(error) { AfterError::KeepClaim } else { AfterError::End },
            },
        };
        self.within(budget, self.engine().resume_claimed(graph, record, call)).await
    }

    /// Gives a claim back: the pause is as it was before.
    pub(crate) async fn give_back(&self, record: &InvocationRecord) {
        let release = |invocation_id, generation, owner| InvocationWrite::Release { invocation_id, generation, owner };
        self.end_attempt(record, release, "a claim was not given back; it ends by itself").await;
    }

    /// Leaves a claim to a worker that may do more: that nobody died of it is written down.
    async fn leave(&self, record: &InvocationRecord) {
        let keep = |invocation_id, generation, owner| InvocationWrite::Keep { invocation_id, generation, owner };
        self.end_attempt(record, keep, "a claim that was left counts as an attempt").await;
    }

    /// Writes down that an attempt ended, whose worker lives.
    async fn end_attempt(
        &self,
        record: &InvocationRecord,
        write: impl FnOnce(InvocationId, u64, Owner) -> InvocationWrite + Send,
        otherwise: &'static str,
    ) {
        let InvocationStatus::Resuming(claim) = &record.status else { return };
        let write = write(record.paused.invocation_id.clone(), record.paused.generation, claim.owner.clone());
        if let Err(error) = self.commit(write).await {
            tracing::warn!(%error, invocation_id = %record.paused.invocation_id, "{otherwise}");
        }
    }

    /// Takes over the claim of a worker that died, or whose clock was wrong, in that pause or whichever is current, with
    /// the payload that it had accepted. `None` when there is no such claim any more, or not yet.
    ///
    /// # Errors
    /// What the turn ends with.
    pub async fn take_over(
        &self,
        id: &InvocationId,
        generation: Option<u64>,
    ) -> Result<Option<TurnOutcome>, TurnError> {
        let budget = self.budget(&Transmission::default());
        let request = self.takeover_of(id, generation, budget);
        match self.claim(&request).await.map_err(store_failed)? {
            ClaimOutcome::Granted(record) if record.paused.generation == 0 => {
                self.begin(record, budget, Patience::ComesAgain).await.map(Some)
            }
            ClaimOutcome::Granted(record) => self.continue_claimed(record, budget, Accepted::Before).await.map(Some),
            ClaimOutcome::Missing
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::Gathering(_)
            | ClaimOutcome::Settled(_) => Ok(None),
        }
    }

    /// Asks for a claim that is out of time, with the payload that it stored.
    pub(crate) fn takeover_of(&self, id: &InvocationId, generation: Option<u64>, budget: Budget) -> ClaimRequest {
        let lease = self.lease(budget);
        let (now, until) = (self.now(), self.now() + lease.duration);
        ClaimRequest {
            invocation_id: id.clone(),
            generation,
            owner: lease.owner,
            now,
            until,
            past: None,
            payload: None,
            answered: None,
        }
    }

    pub(crate) async fn load_invocation(&self, id: &InvocationId) -> Result<Option<Box<InvocationRecord>>, TurnError> {
        let record = self.engine().ports().store.load_invocation(id).await.map_err(store_failed)?;
        Ok(record.map(Box::new))
    }

    /// What is to be said of an invocation without moving it.
    ///
    /// # Errors
    /// `not_found` when it was never suspended.
    pub async fn look_up(&self, id: &InvocationId) -> Result<TurnOutcome, TurnError> {
        match self.load_invocation(id).await? {
            Some(record) => Ok(self.answer_of(*record)),
            None => Err(TurnError::new(Category::NotFound, format!("there is no invocation {id}"))),
        }
    }

    /// The answer that the stored record gives to a repeated delivery.
    pub(crate) fn answer_of(&self, record: InvocationRecord) -> TurnOutcome {
        let paused = record.paused;
        match record.status {
            InvocationStatus::Completed { state } => TurnOutcome::Completed(Box::new(CompletedTurn {
                invocation_id: paused.invocation_id,
                session_id: paused.session_id,
                graph: paused.graph,
                state,
                carried: paused.carried,
                resolution: paused.resolution,
                overruled: None,
                repeated: true,
            })),
            InvocationStatus::Errored(failure) => TurnError::ended(failure, &paused.invocation_id).into(),
            InvocationStatus::Canceled(cancellation) => {
                let failure = FailureRecord { category: Category::InvocationCanceled, message: cancellation.message() };
                TurnError::ended(failure, &paused.invocation_id).into()
            }
            InvocationStatus::Suspended | InvocationStatus::Resuming(_) => {
                TurnOutcome::Suspended(Box::new(sleeping(paused)))
            }
        }
    }
}

/// Whether the sender of the payload that counts still waits for an answer, or was told already that it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It waits: after a transient error it is told to send again.
    Now,
    /// It was told: after a transient error the payload must stay.
    Before,
}

impl Accepted {
    fn of(record: &InvocationRecord, sent: &Map) -> Self {
        match &record.status {
            InvocationStatus::Resuming(claim) if claim.payload != *sent => Self::Before,
            InvocationStatus::Resuming(_)
            | InvocationStatus::Suspended
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => Self::Now,
        }
    }
}

fn is_misfit(error: &TurnError) -> bool {
    error.category == Category::SuspensionResumePayloadInvalid
}

fn may_try_again(error: &EngineError) -> bool {
    error.is_transient() || crate::bucket_of(error.derived_category()) == Bucket::RetryableTransient
}

pub(crate) fn sleeping(paused: PausedInvocation) -> SuspendedTurn {
    SuspendedTurn {
        suspending_node: paused.namespace.first().map(ToString::to_string).unwrap_or_default(),
        state: paused.outermost_state().clone(),
        tally: paused.fan_in.as_ref().map(Tally::from),
        invocation_id: paused.invocation_id,
        session_id: paused.session_id,
        graph: paused.graph,
        generation: paused.generation,
        descriptor: paused.descriptor,
        wake: paused.wake,
        carried: paused.carried,
        late: None,
        repeated: true,
    }
}

/// What the pause of `record` had registered, where it had.
pub(crate) fn subscription_of(record: &InvocationRecord) -> Option<Subscription> {
    let paused = &record.paused;
    (paused.wake.due.is_some() || paused.wake.event.is_some()).then(|| Subscription::from(paused))
}

/// Refuses what is nested too deeply to be read again, or has too many values; `what` says what it is.
pub(crate) fn bounded(what: &str, given: &Map) -> Result<(), TurnError> {
    dormouse_json::measure_object(given, dormouse_json::ENTRY)
        .map_err(|excess| TurnError::new(Category::RequestTooLarge, format!("{what}: {excess}")))
}

/// Of a change that can be asked for again: who does is told whether it was written.
pub(crate) fn unknown(error: &CommitError) -> TurnError {
    TurnError { in_doubt: false, ..TurnError::new(Category::OutcomeUnknown, error.to_string()) }
}

/// What a turn is told when the store failed with `error`.
pub fn store_failed(error: StoreError) -> TurnError {
    let (category, bucket) = match &error {
        StoreError::Unavailable(_) | StoreError::LeaseHeld { .. } => {
            (Category::SuspensionPersistenceFailed, Bucket::RetryableTransient)
        }
        StoreError::Denied(_) | StoreError::Corrupt(_) => {
            (Category::SuspensionPersistenceFailed, Bucket::SessionTerminating)
        }
        StoreError::TooLarge { .. } | StoreError::TooComplex { .. } => {
            (Category::RequestTooLarge, Bucket::UserCorrectable)
        }
        StoreError::Invalid(_) => (Category::RequestInvalid, Bucket::UserCorrectable),
    };
    TurnError { bucket, ..TurnError::new(category, error.to_string()) }
}
