//! Pauses that expect several signals (suspension §8.2: the coordinator aggregates them, the graph sleeps once).
//!
//! An answer that does not decide yet is noted beside the pause on the condition that no other came meanwhile. The one
//! that decides claims the pause on the same condition, with all answers as the payload: of two that come together one
//! finds the other's, so that exactly one of them decides.

use dormouse_engine::admit_answer;
use dormouse_ports::{
    Answered, Category, FanIn, InvocationRecord, InvocationWrite, Map, PartAnswer, PauseEnd, PausedInvocation,
    RESOLUTION, Resolution,
};

use super::delivery::{FoundDelivery, SignalTarget};
use crate::error::{TurnError, is_written};
use crate::outcome::{CompletedTurn, Overruled, SuspendedTurn, Tally, TurnOutcome};
use crate::records::is_put_aside;
use crate::transmission::Trigger;
use crate::worker::Worker;

/// Payload with which a delivery claims its pause.
#[derive(Clone, Debug)]
pub(super) struct ClaimProposal {
    pub(super) payload: Map,
    /// Number of answers of which it was made.
    pub(super) answered: Option<usize>,
}

/// Effect of a delivery on a pause that expects several signals.
pub(super) enum FanInStep {
    /// Its sender gets the outcome, and the pause stays suspended.
    Told(TurnOutcome),
    /// It is to claim the pause with this.
    Claims(ClaimProposal),
}

/// Adds `delivery` to the answers of the pause in `record`, which sleeps.
pub(super) async fn gather(
    worker: &Worker,
    record: InvocationRecord,
    delivery: &FoundDelivery<'_>,
) -> Result<FanInStep, TurnError> {
    let paused = record.paused;
    let Some(fan_in) = paused.fan_in.clone() else {
        let message = "the pause is changing; send it again";
        return Err(TurnError::new(Category::ResumeInProgress, message));
    };
    if delivery.trigger == Trigger::Due {
        let payload = delivery.payload.clone().into_iter().chain(fan_in.payload()).collect();
        return Ok(FanInStep::Claims(ClaimProposal { payload, answered: Some(fan_in.answers.len()) }));
    }
    let part = part_of(&fan_in, &delivery.part)?;
    let earlier = fan_in.answers.iter().find(|answer| answer.part == part);
    if let Some(earlier) = earlier
        && admit_answer(&paused, delivery.payload.clone())? != earlier.payload
    {
        let message = "this part was answered before with another payload; that answer stands";
        return Err(TurnError::new(Category::SuspensionRecordInvalid, message));
    }
    if fan_in.decision().is_some() {
        // They were enough before, and the worker that went on with them gave the pause back.
        return Ok(FanInStep::Claims(ClaimProposal {
            payload: fan_in.payload(),
            answered: Some(fan_in.answers.len()),
        }));
    }
    if earlier.is_some() {
        return Ok(FanInStep::Told(accepted(paused, part, true)));
    }
    let known = fan_in.answers.len();
    let payload = admit_answer(&paused, delivery.payload.clone())?;
    let answer = PartAnswer { part: part.clone(), payload, at: worker.now() };
    let with_it = fan_in.with(answer.clone());
    if with_it.decision().is_some() {
        return Ok(FanInStep::Claims(ClaimProposal { payload: with_it.payload(), answered: Some(known) }));
    }
    check_fit(worker, &paused, with_it.payload()).await?;
    let write = InvocationWrite::Answer { paused: Box::new(paused.clone()), answer };
    if is_written(worker.records.commit(write).await)? {
        let paused = PausedInvocation { fan_in: Some(with_it), ..paused };
        return Ok(FanInStep::Told(accepted(paused, part, false)));
    }
    // Another answer was first, or the pause is over: to be looked at again.
    Ok(FanInStep::Claims(ClaimProposal { payload: delivery.payload.clone(), answered: None }))
}

/// The write by which `payload` becomes the answer of `part` to `paused`: it is [delivered](InvocationWrite::Deliver)
/// together with all others where it decides, else [noted](InvocationWrite::Answer). It changes nothing.
///
/// # Errors
/// `request_invalid` when the pause does not expect an answer of `part`, or has one; `graph_unknown`,
/// `suspension_resume_payload_invalid`, or any other error with which a resume would be refused.
pub(crate) async fn part_input(
    worker: &Worker,
    paused: &PausedInvocation,
    part: &str,
    mut payload: Map,
) -> Result<InvocationWrite, TurnError> {
    let invocation_id = paused.invocation_id.clone();
    let awaits = |fan_in: &&FanIn| fan_in.expects(part) && !fan_in.has_answered(part);
    let Some(fan_in) = paused.fan_in.as_ref().filter(awaits) else {
        let message = "it does not wait for an answer of this part";
        return Err(TurnError::new(Category::RequestInvalid, message).of(&invocation_id));
    };
    payload.shift_remove(RESOLUTION);
    let payload = admit_answer(paused, payload).map_err(|error| TurnError::from(error).of(&invocation_id))?;
    let answer = PartAnswer { part: part.to_owned(), payload, at: worker.now() };
    let known = fan_in.answers.len();
    let with_it = fan_in.clone().with(answer.clone());
    check_fit(worker, paused, with_it.payload()).await.map_err(|error| error.of(&invocation_id))?;
    Ok(if with_it.decision().is_some() {
        let generation = paused.generation;
        let payload = with_it.payload();
        InvocationWrite::Deliver { invocation_id, generation, answered: Some(known), payload }
    } else {
        InvocationWrite::Answer { paused: Box::new(paused.clone()), answer }
    })
}

/// The answer to a delivery that comes when its pause is over: it may be one that ended it and is sent again, or one
/// that [changed nothing](Overruled).
pub(super) fn answer_to(
    record: InvocationRecord,
    generation: Option<u64>,
    addressee: &SignalTarget,
    sent: &Map,
) -> TurnOutcome {
    let overruled = overruled(&record.paused, generation, addressee, sent);
    // What was put aside may wait on when it is tried again: nobody kept this answer, so that its carrier has to.
    let is_unheard = is_put_aside(&record) && generation == Some(record.paused.generation);
    match TurnOutcome::stored(record) {
        TurnOutcome::Errored(error) if is_unheard => {
            TurnOutcome::Errored(Box::new(TurnError { repeated: false, ..*error }))
        }
        TurnOutcome::Completed(done) => TurnOutcome::Completed(Box::new(CompletedTurn { overruled, ..*done })),
        TurnOutcome::Suspended(pause) => TurnOutcome::Suspended(Box::new(SuspendedTurn { overruled, ..*pause })),
        other @ (TurnOutcome::Errored(_) | TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. }) => other,
    }
}

/// Refuses what would be found unfit only once another answer decides: it would keep that one from deciding.
async fn check_fit(worker: &Worker, paused: &PausedInvocation, payload: Map) -> Result<(), TurnError> {
    worker.graph_of(paused).await?.takes(paused, &payload).map_err(TurnError::from)
}

/// Reason for which `sent`, for the pause of `generation`, changed nothing; `paused` is the last pause. `None` where it
/// did, or where a record of former versions does not show it.
fn overruled(
    paused: &PausedInvocation,
    generation: Option<u64>,
    addressee: &SignalTarget,
    sent: &Map,
) -> Option<Overruled> {
    if let Some(generation) = generation.filter(|generation| *generation < paused.generation) {
        let known = paused.before.as_ref().filter(|before| before.generation == generation);
        return known.map_or(Some(Overruled::Earlier), |before| overruled_before(before, addressee, sent));
    }
    let by_time = matches!(paused.resolution, Some(Resolution::TimedOut | Resolution::Woken));
    let part = paused.fan_in.as_ref().and_then(|fan_in| part_of(fan_in, addressee).ok());
    let standing = match (&paused.answered, &part) {
        (Some(answered), Some(part)) => answered.parts.get(part),
        (answered, _) => answered.as_ref().filter(|_| paused.fan_in.is_none()),
    };
    match standing {
        Some(standing) => {
            let is_it = |sent: &Map| Answered::with(sent).digest == standing.digest;
            let is_same = is_it(sent) || admit_answer(paused, sent.clone()).is_ok_and(|admitted| is_it(&admitted));
            (!is_same).then(|| Overruled::Answered(standing.payload.clone()))
        }
        None if by_time => Some(Overruled::Time),
        // This part had not answered when others had decided.
        None => part.and(paused.answered.as_ref()).map(|_| Overruled::Others),
    }
}

/// The same for the pause before the last one.
fn overruled_before(before: &PauseEnd, addressee: &SignalTarget, sent: &Map) -> Option<Overruled> {
    let part = before.parts.iter().find(|one| match addressee {
        SignalTarget::Part(part) => one.part == *part,
        SignalTarget::Signal(id) => one.signal_id.is_called(id),
        SignalTarget::Pause => false,
    });
    match part.map_or(&before.answer, |part| &part.answer) {
        Some(standing) => (Answered::with(sent).digest != *standing).then_some(Overruled::Answered(None)),
        None if before.resolution != Resolution::Signalled => Some(Overruled::Time),
        None => Some(part.map_or(Overruled::Earlier, |_| Overruled::Others)),
    }
}

fn part_of(fan_in: &FanIn, addressee: &SignalTarget) -> Result<String, TurnError> {
    let found = match addressee {
        SignalTarget::Part(part) => fan_in.expects(part).then(|| part.clone()),
        SignalTarget::Signal(id) => fan_in.part_of(id).map(str::to_owned),
        SignalTarget::Pause => None,
    };
    found.ok_or_else(|| {
        let parts: Vec<_> = fan_in.expected.iter().map(|one| one.part.as_str()).collect();
        let message = format!("the invocation waits for several answers; send one for a part: {}", parts.join(", "));
        TurnError::new(Category::RequestInvalid, message)
    })
}

fn accepted(paused: PausedInvocation, part: String, repeated: bool) -> TurnOutcome {
    let turn = SuspendedTurn::stored(paused);
    let tally = turn.tally.map(|tally| Tally { accepted: Some(part), ..tally });
    TurnOutcome::Suspended(Box::new(SuspendedTurn { tally, repeated, ..turn }))
}
