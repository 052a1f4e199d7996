//! Finding the invocation that waits for a signal that names nothing but its correlation token.
//!
//! A token is chosen by a node, and may be guessed or met by chance: what it leads to depends on the way by which the
//! signal came. A signal of a sender that may send it is for the invocation that waits for the token. A signal in an
//! event is for an invocation that waits for an event of that shape, and for no other: it is looked up, and parked, as
//! [a signal of its own](SignalId::of_event). So is one that comes with a key of a tenant: it is for an invocation of that
//! tenant ([`SignalId::of_tenant`]), and bears the name of the key's actor wherever the pause has a field for that.

use dormouse_engine::{SignedAnswer, answering};
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Category, InvocationRecord, Map, PausedInvocation, ShapeId, SignalId, SignalState,
};

use super::answers::answer_to;
use super::deliver::deliver;
use super::delivery::{FoundDelivery, SignalTarget};
use super::unfit::note_unfit;
use crate::bucket::Bucket;
use crate::budget::Budget;
use crate::error::{TurnError, store_failed};
use crate::outcome::TurnOutcome;
use crate::transmission::{EventOrigin, Trigger};
use crate::worker::Worker;

/// Who sends a signal with a key of a tenant.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) tenant: &'a str,
    pub(super) actor: &'a str,
    /// Id of the key.
    pub(super) credential: &'a str,
}

impl Sender<'_> {
    /// The name of the actor, with what proved it.
    fn name(self) -> String {
        let Self { actor, credential, .. } = self;
        if credential == actor { actor.to_owned() } else { format!("{actor} (key {credential})") }
    }
}

/// State of a signal.
enum SignalStanding {
    /// An invocation waits for it, or has waited: that is the outcome.
    Told(TurnOutcome),
    /// No invocation does, so far.
    Unclaimed,
}

/// Finds the invocation that waits for `signal_id`, or keeps the signal until one does: any, or one of the tenant of
/// `sender` only.
pub(super) async fn correlate(
    worker: &Worker,
    signal_id: SignalId,
    sender: Option<Sender<'_>>,
    payload: Map,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    if signal_id.origin().0.is_some() {
        let message = format!("signal `{signal_id}` is one that is not sent by that name");
        return Err(TurnError::new(Category::RequestInvalid, message));
    }
    let stored = sender.map_or_else(|| signal_id.clone(), |sender| signal_id.of_tenant(sender.tenant));
    let said = Said { payload: &payload, sender };
    loop {
        match deliver_known(worker, &stored, said, budget).await? {
            SignalStanding::Told(outcome) => return Ok(outcome),
            SignalStanding::Unclaimed => {}
        }
        if let Some(kept) = keep(worker, &stored, &signal_id, said, budget).await? {
            return Ok(kept);
        }
    }
}

/// The same for a signal that `event` carries: only an invocation that waits for such events is found.
pub(super) async fn correlate_event(
    worker: &Worker,
    signal_id: SignalId,
    event: EventOrigin,
    payload: Map,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    let Some(shape) = event.shape.clone() else {
        return deliver_unshaped(worker, signal_id, &event, &payload, budget).await;
    };
    let stored = signal_id.of_event(&shape);
    let said = Said { payload: &payload, sender: None };
    loop {
        if let Some(SignalState::Waiting { invocation_id, .. }) = known_state(worker, &stored).await? {
            let record = worker.records.load(&invocation_id).await?;
            check_event(record.as_deref(), &signal_id, &event, &payload)?;
        }
        match deliver_known(worker, &stored, said, budget).await? {
            SignalStanding::Told(outcome) => return Ok(outcome),
            SignalStanding::Unclaimed => {}
        }
        if waits_in_the_old_way(worker, &signal_id, &shape).await? {
            return deliver_unshaped(worker, signal_id, &event, &payload, budget).await;
        }
        if let Some(kept) = keep(worker, &stored, &signal_id, said, budget).await? {
            return Ok(kept);
        }
    }
}

/// Notes for the doctor that an event came and did not fit, where an invocation waits for it; names that invocation.
pub(super) async fn unfit_event(
    worker: &Worker,
    signal_id: &SignalId,
    event: &EventOrigin,
    error: TurnError,
) -> TurnError {
    let stored = event.shape.as_ref().map_or_else(|| signal_id.clone(), |shape| signal_id.of_event(shape));
    let waiting = match known_state(worker, &stored).await {
        Ok(Some(SignalState::Waiting { invocation_id, generation })) => (invocation_id, generation),
        Ok(Some(SignalState::Buffered(_) | SignalState::Delivered { .. }) | None) | Err(_) => return error,
    };
    note_unfit(worker, &waiting.0, waiting.1, &error).await;
    error.of(&waiting.0)
}

pub(super) async fn known_state(worker: &Worker, id: &SignalId) -> Result<Option<SignalState>, TurnError> {
    let known = worker.store().signals.load_signal(id, worker.now()).await.map_err(store_failed)?;
    Ok(known.map(|record| record.state))
}

/// What a signal carries, and who says it where that is known.
#[derive(Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) payload: &'a Map,
    pub(super) sender: Option<Sender<'a>>,
}

impl Said<'_> {
    /// The answer that it is to the pause of `generation`; `paused` is the last one.
    fn answer_to(self, paused: &PausedInvocation, generation: u64) -> Map {
        let mut answer = self.payload.clone();
        let by = match &paused.before {
            Some(before) if before.generation == generation => before.answered_by.as_deref(),
            Some(_) | None => paused.descriptor.answered_by(),
        };
        if let Some((sender, by)) = self.sender.zip(by) {
            answer.insert(by.to_owned(), sender.actor.into());
        }
        answer
    }
}

async fn deliver_known(
    worker: &Worker,
    stored: &SignalId,
    said: Said<'_>,
    budget: Budget<'_>,
) -> Result<SignalStanding, TurnError> {
    match known_state(worker, stored).await? {
        Some(SignalState::Waiting { invocation_id, generation }) => {
            let trigger = Trigger::Signal;
            let part = SignalTarget::Signal(stored.origin().1);
            // Who does not say their name needs no look at what is asked.
            let record = match said.sender {
                Some(_) => worker.records.load(&invocation_id).await?,
                None => None,
            };
            let payload = match record {
                Some(record) => said.answer_to(&record.paused, generation),
                None => said.payload.clone(),
            };
            let generation = Some(generation);
            let signed = said.sender.map(|sender| SignedAnswer { by: sender.name(), payload: payload.clone() });
            let delivery = FoundDelivery { invocation_id, generation, part, payload, budget, trigger };
            let told = match signed {
                Some(signed) => answering(signed, Box::pin(deliver(worker, delivery))).await,
                None => deliver(worker, delivery).await,
            };
            let told = told?;
            // Where it came too late for its pause, a later one may wait for it, or will.
            match told.came_too_late() && !is_delivered(worker, stored).await? {
                true => Ok(SignalStanding::Unclaimed),
                false => Ok(SignalStanding::Told(told)),
            }
        }
        Some(SignalState::Delivered { invocation_id, generation }) => {
            let record = worker.records.load(&invocation_id).await?;
            let stale = TurnOutcome::Stale { invocation_id };
            let addressee = SignalTarget::Signal(stored.origin().1);
            Ok(SignalStanding::Told(record.map_or(stale, |record| {
                let payload = said.answer_to(&record.paused, generation);
                answer_to(*record, Some(generation), &addressee, &payload)
            })))
        }
        Some(SignalState::Buffered(_)) | None => Ok(SignalStanding::Unclaimed),
    }
}

/// True if no pause waits for the signal any more, nor will.
async fn is_delivered(worker: &Worker, stored: &SignalId) -> Result<bool, TurnError> {
    Ok(matches!(known_state(worker, stored).await?, Some(SignalState::Delivered { .. })))
}

/// Keeps the signal until an invocation waits for it. `None` when one does by now.
pub(super) async fn keep(
    worker: &Worker,
    stored: &SignalId,
    signal_id: &SignalId,
    said: Said<'_>,
    budget: Budget<'_>,
) -> Result<Option<TurnOutcome>, TurnError> {
    let Some(kept_for) = worker.config.early_signals else {
        let message = format!("no paused invocation waits for signal `{signal_id}`");
        return Err(TurnError::new(Category::HarnessSignalCorrelationFailed, message));
    };
    let received_at = worker.now();
    let expires_at = worker.now() + kept_for;
    let sender = said.sender.map(|sender| sender.actor.to_owned());
    let signal = BufferedSignal { payload: said.payload.clone(), sender, received_at, expires_at };
    let store = worker.store();
    match store.signals.buffer_signal(stored, &signal).await.map_err(store_failed)? {
        BufferOutcome::Buffered { expires_at } => {
            Ok(Some(TurnOutcome::Buffered { signal_id: signal_id.clone(), expires_at }))
        }
        BufferOutcome::Occupied => {
            let message = format!("another payload is already kept for signal `{signal_id}`; the first stands");
            Err(TurnError::new(Category::RequestInvalid, message))
        }
        BufferOutcome::Changed if budget.is_over() => {
            Err(TurnError::new(Category::ResumeInProgress, "the signal is changing; send it again"))
        }
        BufferOutcome::Changed => Ok(None),
    }
}

/// True if a pause of an earlier version waits for events of `shape`: it has no signal of its own for them.
async fn waits_in_the_old_way(worker: &Worker, signal_id: &SignalId, shape: &ShapeId) -> Result<bool, TurnError> {
    let Some(SignalState::Waiting { invocation_id, .. }) = known_state(worker, signal_id).await? else {
        return Ok(false);
    };
    let record = worker.records.load(&invocation_id).await?;
    let awaited = record.and_then(|record| record.paused.event_shape());
    Ok(awaited.is_some_and(|awaited| awaited.id() == *shape))
}

/// Delivers the signal in an event to the invocation that waits for the token and for an event that may be this one. It
/// cannot be kept: its shape is not known.
async fn deliver_unshaped(
    worker: &Worker,
    signal_id: SignalId,
    event: &EventOrigin,
    payload: &Map,
    budget: Budget<'_>,
) -> Result<TurnOutcome, TurnError> {
    if let Some(SignalState::Waiting { invocation_id, .. }) = known_state(worker, &signal_id).await? {
        let record = worker.records.load(&invocation_id).await?;
        check_event(record.as_deref(), &signal_id, event, payload)?;
    }
    match deliver_known(worker, &signal_id, Said { payload, sender: None }, budget).await? {
        SignalStanding::Told(outcome) => Ok(outcome),
        SignalStanding::Unclaimed => {
            let message = format!("no paused invocation waits for an event that carries signal `{signal_id}`");
            let error = TurnError::new(Category::HarnessSignalCorrelationFailed, message);
            Err(TurnError { bucket: Bucket::RetryableTransient, ..error })
        }
    }
}

/// Refuses an event that the invocation that waits for the signal did not ask for, by any rule.
fn check_event(
    record: Option<&InvocationRecord>,
    signal_id: &SignalId,
    event: &EventOrigin,
    detail: &Map,
) -> Result<(), TurnError> {
    let Some(record) = record else { return Ok(()) };
    let source = event.source.as_deref();
    let kind = event.detail_type.as_deref();
    let awaited = record.paused.wake.event.as_ref();
    if awaited.is_some_and(|wait| wait.may_match(source, kind, detail)) {
        return Ok(());
    }
    let source = source.unwrap_or("unknown");
    let kind = kind.unwrap_or("unknown");
    let message = format!(
        "who waits for signal `{signal_id}` did not ask for this event, of source `{source}` and detail-type `{kind}`"
    );
    Err(TurnError::new(Category::RequestInvalid, message).of(&record.paused.invocation_id))
}
