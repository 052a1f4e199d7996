//! Canceling an invocation in any status.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use dormouse_ports::{
    Cancellation, Category, CommitError, Due, DueAction, InvocationId, InvocationPhase, InvocationRecord,
    InvocationStatus, InvocationWrite, PausedInvocation, StoreError, WakePlan, limits,
};

use futures::FutureExt;
use futures::future::{Either, select};

use super::resume::subscription_of;
use crate::error::{TurnError, store_failed};
use crate::records::is_put_aside;
use crate::worker::Worker;

/// The longest reason, in bytes: every caller that asks for the invocation from then on receives it.
const MOST_REASON: usize = 1024;

/// Time for which those who work for an invocation elsewhere are told that it was canceled.
const WITHDRAWING: Duration = Duration::from_secs(5);

/// An invocation that was canceled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanceledTurn {
    /// The invocation.
    pub invocation_id: InvocationId,
    /// Reason and instant of the first cancellation, which stands.
    pub cancellation: Cancellation,
    /// True if it was canceled before.
    pub repeated: bool,
}

/// Ends the invocation `id` for good. The one commit that cancels it also ends its wait, so that no signal, timer
/// or sweep moves it any more; what it registered outside is taken back behind it, and finds nothing to do where a
/// crash loses that.
///
/// An invocation that is being resumed is canceled at once: its worker can write nothing of it any more, and learns so
/// at its next commit, or before where a node asks ([`dormouse_engine::cancellation`]). The effects of its nodes
/// outside, sessions that they save themselves among them, are theirs to undo. An invocation that was put aside can be
/// canceled, too, and is not tried again from then on. Of an invocation of which nothing is stored, because it was
/// never suspended, the cancellation is kept for as long as other ends: it can neither be suspended nor, when its id
/// was given by its starter, complete.
///
/// `generation` is the pause that is meant, for callers that may end no other; the current one when absent.
///
/// # Errors
/// `suspension_record_invalid` when it ended before, or is past the pause that is meant; a retryable
/// `resume_in_progress` when it changed under every attempt; `request_too_large` for a reason above the limit.
pub(crate) async fn cancel(
    worker: &Worker,
    id: &InvocationId,
    generation: Option<u64>,
    reason: Option<String>,
) -> Result<CanceledTurn, TurnError> {
    let size = reason.as_ref().map_or(0, String::len);
    if size > MOST_REASON {
        let message = format!("the reason has {size} bytes; the limit is {MOST_REASON} bytes");
        return Err(TurnError::new(Category::RequestTooLarge, message).of(id));
    }
    let budget = worker.budget(None);
    let cancellation = Cancellation { reason, at: worker.now() };
    loop {
        let record = match worker.store().invocations.load_invocation(id).await {
            Err(StoreError::Corrupt(reason)) => {
                return cancel_unreadable(worker, id, generation, cancellation, &reason).await;
            }
            record => record.map_err(store_failed)?.map(Box::new),
        };
        if let Some(over) = record.as_deref().and_then(|record| over(record, generation)) {
            return over.map_err(|error| error.of(id));
        }
        let commit = worker.records.commit_of(cancel_write(id, record.as_deref(), &cancellation));
        match worker.store().commits.commit(&commit).await {
            Ok(()) => {
                if let Some(record) = record {
                    take_back(worker, &record).await;
                    withdraw(worker, &record.paused).await;
                }
                return Ok(CanceledTurn { invocation_id: id.clone(), cancellation, repeated: false });
            }
            Err(CommitError::InvocationConflict) if !budget.is_over() => {}
            Err(CommitError::Store(error)) => return Err(store_failed(error).of(id)),
            Err(error) => return Err(TurnError::new(Category::ResumeInProgress, error.to_string()).of(id)),
        }
    }
}

/// Ends an invocation with an unreadable record. Its signals and wake-ups stay until a sweep or an event
/// finds nothing to do.
async fn cancel_unreadable(
    worker: &Worker,
    id: &InvocationId,
    generation: Option<u64>,
    cancellation: Cancellation,
    reason: &str,
) -> Result<CanceledTurn, TurnError> {
    tracing::warn!(%id, reason, "an invocation was canceled although its record cannot be read");
    let refuse = |message: &str| Err(TurnError::new(Category::SuspensionRecordInvalid, message).of(id));
    let Some(paused) = remains(worker, id).await.map_err(|error| error.of(id))? else {
        return refuse("the invocation has ended, and its record cannot be read; there is nothing to cancel");
    };
    if generation.is_some_and(|meant| meant != paused.generation) {
        return refuse("the invocation is past the pause for which this address was given");
    }
    // The position on its ladder of deadlines cannot be read either.
    for rung in 0..=u32::try_from(limits::RUNGS).unwrap_or_default() {
        let due = Due { rung, ..Due::first(paused.suspended_at, DueAction::Fail) };
        let wake = WakePlan { due: (rung > 0).then_some(due), ..WakePlan::default() };
        let paused = Box::new(PausedInvocation { wake, ..paused.clone() });
        let write = InvocationWrite::Cancel { paused, cancellation: cancellation.clone() };
        match worker.store().commits.commit(&worker.records.commit_of(write)).await {
            Ok(()) => return Ok(CanceledTurn { invocation_id: id.clone(), cancellation, repeated: false }),
            Err(CommitError::InvocationConflict) => {}
            Err(CommitError::Store(error)) => return Err(store_failed(error).of(id)),
            Err(error) => return Err(TurnError::new(Category::ResumeInProgress, error.to_string()).of(id)),
        }
    }
    Err(TurnError::new(Category::ResumeInProgress, "the invocation changed meanwhile").of(id))
}

/// As much of an invocation with an unreadable record as is needed to cancel it; `None` when it has ended.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn remains(worker: &Worker, id: &InvocationId) -> Result<Option<PausedInvocation>, TurnError> {
    let glances = worker.store().invocations.glance(std::slice::from_ref(id)).await.map_err(store_failed)?;
    let glance = glances.into_iter().flatten().next().filter(|glance| glance.standing != InvocationPhase::Ended);
    Ok(glance.map(|glance| PausedInvocation::unreadable(id.clone(), glance.generation, worker.now())))
}

/// Undoes outside what the graph of `paused`, which was canceled, wants undone: as far as that can be done in
/// [`WITHDRAWING`].
pub(crate) async fn withdraw(worker: &Worker, paused: &PausedInvocation) {
    let withdrawing = async {
        match worker.graph_of(paused).await {
            Ok(graph) => {
                if let Some(withdrawal) = graph.withdrawal(&paused.state) {
                    withdrawal.await;
                }
            }
            Err(error) => tracing::warn!(
                error = %error.message, invocation_id = %paused.invocation_id,
                "the graph of a canceled invocation cannot be had; what works for it elsewhere goes on"
            ),
        }
    };
    let late = worker.ports().clock.sleep(WITHDRAWING);
    match select(pin!(AssertUnwindSafe(withdrawing).catch_unwind()), late).await {
        Either::Left((Ok(()), _)) => {}
        Either::Left((Err(_panic), _)) => tracing::warn!(invocation_id = %paused.invocation_id,
            "telling those who work elsewhere for a canceled invocation ended in a panic; they may go on"),
        Either::Right(_) => tracing::warn!(invocation_id = %paused.invocation_id,
            "those who work elsewhere for a canceled invocation could not be told in time; they may go on"),
    }
}

async fn take_back(worker: &Worker, record: &InvocationRecord) {
    if let Some(registered) = subscription_of(record)
        && let Err(error) = worker.wakes.cancel(&registered).await
    {
        tracing::warn!(%error, invocation_id = %registered.invocation_id,
            "a wake-up could not be removed after a cancellation; it will find nothing to do");
    }
}

/// The answer for an invocation that cannot be canceled any more.
fn over(record: &InvocationRecord, generation: Option<u64>) -> Option<Result<CanceledTurn, TurnError>> {
    let refuse = |message: &str| Some(Err(TurnError::new(Category::SuspensionRecordInvalid, message)));
    match &record.status {
        InvocationStatus::Canceled(cancellation) => Some(Ok(CanceledTurn {
            invocation_id: record.paused.invocation_id.clone(),
            cancellation: cancellation.clone(),
            repeated: true,
        })),
        InvocationStatus::Completed { .. } => refuse("the invocation has completed; there is nothing to cancel"),
        InvocationStatus::Errored(_) if !is_put_aside(record) => {
            refuse("the invocation has ended with an error; there is nothing to cancel")
        }
        InvocationStatus::Errored(_)
        | InvocationStatus::Suspended
        | InvocationStatus::Accepted { .. }
        | InvocationStatus::Resuming(_) => {
            let other = generation.is_some_and(|meant| meant != record.paused.generation);
            if other { refuse("the invocation is past the pause for which this address was given") } else { None }
        }
    }
}

fn cancel_write(id: &InvocationId, record: Option<&InvocationRecord>, cancellation: &Cancellation) -> InvocationWrite {
    let cancellation = cancellation.clone();
    match record {
        Some(record) => InvocationWrite::Cancel { paused: Box::new(record.paused.clone()), cancellation },
        None => InvocationWrite::CancelBeforeStart { invocation_id: id.clone(), cancellation },
    }
}
