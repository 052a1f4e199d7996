//! Going on with an invocation that we have claimed.

use std::sync::Arc;

use dormouse_engine::{AfterError, CompiledGraph, EngineError, Outcome, Resume};
use dormouse_ports::{Category, InvocationRecord, InvocationStatus, Map, Subscription, SubscriptionError};

use super::unfit::note_unfit;
use crate::bucket::{Bucket, bucket_of};
use crate::budget::Budget;
use crate::call::call_for_work;
use crate::error::{TurnError, subscription_failed};
use crate::outcome::{CompletedTurn, SuspendedTurn, TurnOutcome};
use crate::worker::Worker;

/// Number of times that a pause may be followed by the next one within one delivery, because each signal was there
/// already: well above what one invocation waits for at a time. Where it is reached another worker goes on.
const MOST_CONTINUATIONS: usize = 256;

/// Acknowledgement to the sender of the payload that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadAck {
    /// The sender waits: after a transient error it is asked to send again.
    Pending,
    /// The sender has its acknowledgement: after a transient error the payload must stay.
    Sent,
}

impl PayloadAck {
    pub(super) fn of(record: &InvocationRecord) -> Self {
        match &record.status {
            InvocationStatus::Resuming(claim) if claim.taken_over => Self::Sent,
            InvocationStatus::Accepted { .. }
            | InvocationStatus::Resuming(_)
            | InvocationStatus::Suspended
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => Self::Pending,
        }
    }
}

/// Work left to do after an outcome of the engine.
enum Settled {
    Done(TurnOutcome),
    /// The awaited signal was there already: go on with this claimed record.
    GoOn(Box<InvocationRecord>),
}

/// Continues an invocation that we have claimed, and clears up its other wake-ups.
pub(super) async fn continue_claimed(
    worker: &Worker,
    record: Box<InvocationRecord>,
    budget: Budget<'_>,
    accepted: PayloadAck,
) -> Result<TurnOutcome, TurnError> {
    let graph = match worker.graph_of(&record.paused).await {
        Ok(graph) => graph,
        Err(error) => {
            // An acknowledged payload stays with the claim.
            match accepted {
                PayloadAck::Pending => worker.records.give_back(&record).await,
                PayloadAck::Sent => worker.records.leave(&record).await,
            }
            return Err(error);
        }
    };
    let woken = subscription_of(&record);
    let session_id = record.paused.session_id.clone();
    let correlation_id = record.paused.correlation_id.clone();
    let paused = record.paused.outermost_state().clone();
    let outcome = resume_once(worker, &graph, record, budget, accepted).await;
    if let Ok(Outcome::Completed(_) | Outcome::Suspended(_)) = &outcome
        && let Some(woken) = woken
        && let Err(error) = worker.wakes.cancel(&woken).await
    {
        tracing::warn!(
            %error, invocation_id = %woken.invocation_id,
            "a wake-up could not be removed; it will find nothing to do"
        );
    }
    let turn = match outcome {
        Ok(outcome) => finish(worker, &graph, outcome, budget).await,
        Err(error) => Err(error),
    };
    let turn = turn.map_err(|error| error.in_correlation(&correlation_id));
    let turn = turn.map(|turn| turn.in_session(session_id.clone()));
    worker.listeners.notify(&graph, session_id.as_ref(), &paused, &turn).await;
    turn
}

/// Turns an outcome of the engine into the answer; where the next signal is there already, goes on at once.
pub(super) async fn finish(
    worker: &Worker,
    graph: &Arc<CompiledGraph>,
    outcome: Outcome,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    let mut outcome = outcome;
    for _ in 0..MOST_CONTINUATIONS {
        match settle(worker, graph, outcome).await? {
            Settled::Done(turn) => return Ok(turn),
            Settled::GoOn(record) => {
                outcome = match resume_once(worker, graph, record.clone(), budget, PayloadAck::Sent).await {
                    Err(error) if error.category == Category::SuspensionResumePayloadInvalid => {
                        tracing::warn!(
                            reason = %error.message,
                            "an early signal was dropped: its payload does not fit the wait"
                        );
                        note_unfit(worker, &record.paused.invocation_id, record.paused.generation, &error).await;
                        let asleep = SuspendedTurn { repeated: false, ..SuspendedTurn::stored(record.paused) };
                        return arrange(worker, asleep).await;
                    }
                    outcome => outcome?,
                };
            }
        }
    }
    match settle(worker, graph, outcome).await? {
        Settled::Done(turn) => Ok(turn),
        Settled::GoOn(record) => {
            worker.records.let_go(&record).await;
            Ok(hand_over(worker, *record).await)
        }
    }
}

async fn resume_once(
    worker: &Worker,
    graph: &Arc<CompiledGraph>,
    record: Box<InvocationRecord>,
    budget: Budget<'_>,
    accepted: PayloadAck,
) -> Result<Outcome, TurnError> {
    let call = Resume {
        payload: Map::new(),
        generation: None,
        claim: budget.lease(),
        observers: Vec::new(),
        after_error: match accepted {
            PayloadAck::Pending => |error| if may_try_again(error) { AfterError::GiveBack } else { AfterError::End },
            PayloadAck::Sent => |error| {
                let keeps = may_try_again(error) || is_of_another_version(error);
                if keeps { AfterError::KeepClaim } else { AfterError::End }
            },
        },
    };
    let resumed = budget.within(worker.engine.resume_claimed(graph, record, call)).await;
    resumed.map_err(|error| match graph.is_overtaken(&error.category) {
        // The engine has ended it: the same again is no use.
        true => TurnError { bucket: Bucket::UserCorrectable, ..error },
        false => error,
    })
}

/// Answers for an outcome of the engine, arranging the wake-up of a pause.
async fn settle(worker: &Worker, graph: &CompiledGraph, outcome: Outcome) -> Result<Settled, TurnError> {
    match outcome {
        Outcome::Completed(done) => {
            Ok(Settled::Done(TurnOutcome::Completed(Box::new(CompletedTurn::new(graph, done)))))
        }
        Outcome::Suspended(mut pause) => match pause.arrived.take() {
            Some(record) if matches!(record.status, InvocationStatus::Accepted { .. }) => {
                Ok(Settled::Done(hand_over(worker, *record).await))
            }
            Some(record) => Ok(Settled::GoOn(record)),
            None => arrange(worker, SuspendedTurn::new(graph, *pause)).await.map(Settled::Done),
        },
    }
}

/// Calls for a worker that goes on with what this one leaves: behind the durable step at which its time was over, or after
/// so many pauses.
async fn hand_over(worker: &Worker, record: InvocationRecord) -> TurnOutcome {
    let id = &record.paused.invocation_id;
    if let Err(error) = call_for_work(&*worker.bus, id).await {
        tracing::warn!(
            %error, invocation_id = %id,
            "publishing the work event for the rest of an invocation failed; the sweep calls for a worker"
        );
    }
    TurnOutcome::Suspended(Box::new(SuspendedTurn { repeated: false, ..SuspendedTurn::stored(record.paused) }))
}

/// Registers the wake-up of a pause. After any refusal, the pause stays, and the sweep registers it as soon as it is
/// taken: a refusal that may pass is reported as late, one that an operator has to repair as an error.
async fn arrange(worker: &Worker, turn: SuspendedTurn) -> Result<TurnOutcome, TurnError> {
    let subscription = Subscription {
        invocation_id: turn.invocation_id.clone(),
        generation: turn.generation,
        descriptor: turn.descriptor.clone(),
        wake: turn.wake.clone(),
    };
    let late = match worker.wakes.register(&subscription).await {
        Ok(_) => None,
        Err(SubscriptionError::Unavailable(reason)) => {
            tracing::warn!(
                %reason, invocation_id = %turn.invocation_id,
                "the wake-up of a pause could not be registered; the sweep registers it"
            );
            Some(format!("the wake-up is not registered yet; the sweep registers it: {reason}"))
        }
        Err(error @ (SubscriptionError::Denied(_) | SubscriptionError::Rejected(_))) => {
            let error = subscription_failed(error).of(&turn.invocation_id);
            let message = format!("{}; it sleeps, and is registered by a sweep once that is repaired", error.message);
            return Err(TurnError { message, ..error });
        }
    };
    Ok(TurnOutcome::Suspended(Box::new(SuspendedTurn { late, ..turn })))
}

fn may_try_again(error: &EngineError) -> bool {
    error.is_transient() || bucket_of(error.derived_category()) == Bucket::RetryableTransient
}

/// True if no node ran since the graph of this worker does not take the pause up: one of another version may.
fn is_of_another_version(error: &EngineError) -> bool {
    error.node().is_none() && *error.category() == Category::SuspensionRecordInvalid
}

/// The subscription that the pause of `record` had registered, where it had.
pub(super) fn subscription_of(record: &InvocationRecord) -> Option<Subscription> {
    let paused = &record.paused;
    (paused.wake.due.is_some() || paused.wake.event.is_some()).then(|| Subscription::from(paused))
}
