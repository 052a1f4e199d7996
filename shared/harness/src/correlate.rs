//! Who waits for a signal that names nothing but its correlation token.
//!
//! A token is chosen by a node, and may be guessed or met by chance: what it leads to depends on the way by which the
//! signal came. What somebody sends who may is for whoever waits for the token. What an event carries is for whoever waits
//! for an event of that shape, and nobody else: it is looked up, and parked, as
//! [a signal of its own](SignalId::of_event).

use std::time::Duration;

use dormouse_ports::{
    BufferOutcome, BufferedSignal, Category, InvocationId, InvocationRecord, Map, ShapeId, SignalId, SignalState,
    Upkeep,
};

use crate::answer::Addressee;
use crate::harness::Budget;
use crate::signal::{Delivery, store_failed};
use crate::transmission::EventOrigin;
use crate::{Bucket, Harness, Trigger, TurnError, TurnOutcome};

/// For how long it is remembered that an event did not fit.
const NOTED: Duration = Duration::from_secs(90 * 24 * 3600);

/// Name of the note that an event for a pause did not fit.
pub fn unfit_note(id: &InvocationId, generation: u64) -> String {
    format!("unfit/{id}/{generation}")
}

/// What is known of a signal.
enum Known {
    /// Somebody waits for it, or has: that is what comes of it.
    Told(TurnOutcome),
    /// Nobody does, so far.
    Unclaimed,
}

impl Harness {
    /// Finds who waits for `signal_id`, or keeps the signal until somebody does.
    pub(crate) async fn correlate(
        &self,
        signal_id: SignalId,
        payload: Map,
        budget: Budget,
    ) -> Result<TurnOutcome, TurnError> {
        if signal_id.origin().0.is_some() {
            let message = format!("signal `{signal_id}` is one that only an event brings");
            return Err(TurnError::new(Category::RequestInvalid, message));
        }
        loop {
            match self.deliver_known(&signal_id, &payload, budget).await? {
                Known::Told(outcome) => return Ok(outcome),
                Known::Unclaimed => {}
            }
            if let Some(kept) = self.keep(&signal_id, &signal_id, &payload, budget).await? {
                return Ok(kept);
            }
        }
    }

    /// The same for a signal that `event` carries: only who waits for such events is found.
    pub(crate) async fn correlate_event(
        &self,
        signal_id: SignalId,
        event: EventOrigin,
        payload: Map,
        budget: Budget,
    ) -> Result<TurnOutcome, TurnError> {
        let Some(shape) = event.shape.clone() else {
            return self.deliver_unshaped(signal_id, &event, &payload, budget).await;
        };
        let stored = signal_id.of_event(&shape);
        loop {
            if let Some(SignalState::Waiting { invocation_id, .. }) = self.known_state(&stored).await? {
                let record = self.load_invocation(&invocation_id).await?;
                check_event(record.as_deref(), &signal_id, &event, &payload)?;
            }
            match self.deliver_known(&stored, &payload, budget).await? {
                Known::Told(outcome) => return Ok(outcome),
                Known::Unclaimed => {}
            }
            if self.waits_in_the_old_way(&signal_id, &shape).await? {
                return self.deliver_unshaped(signal_id, &event, &payload, budget).await;
            }
            if let Some(kept) = self.keep(&stored, &signal_id, &payload, budget).await? {
                return Ok(kept);
            }
        }
    }

    /// Notes for the doctor that an event came and did not fit, where somebody waits for it; names that invocation.
    pub(crate) async fn unfit_event(&self, signal_id: &SignalId, event: &EventOrigin, error: TurnError) -> TurnError {
        let stored = event.shape.as_ref().map_or_else(|| signal_id.clone(), |shape| signal_id.of_event(shape));
        let waiting = match self.known_state(&stored).await {
            Ok(Some(SignalState::Waiting { invocation_id, generation })) => (invocation_id, generation),
            Ok(Some(SignalState::Buffered(_) | SignalState::Delivered { .. }) | None) | Err(_) => return error,
        };
        self.note_unfit(&waiting.0, waiting.1, &error).await;
        error.of(&waiting.0)
    }

    /// Notes for the doctor that something came for a pause and did not fit.
    pub(crate) async fn note_unfit(&self, id: &InvocationId, generation: u64, error: &TurnError) {
        let note = format!("{}: {}", self.now(), error.message);
        let note = Upkeep::Note { name: unfit_note(id, generation), note, until: self.now() + NOTED };
        if let Err(failed) = self.engine().ports().store.upkeep(&note).await {
            tracing::warn!(%failed, invocation_id = %id, "the doctor will not know that an event did not fit");
        }
    }

    async fn known_state(&self, id: &SignalId) -> Result<Option<SignalState>, TurnError> {
        let known = self.engine().ports().store.load_signal(id, self.now()).await.map_err(store_failed)?;
        Ok(known.map(|record| record.state))
    }

    async fn deliver_known(&self, stored: &SignalId, payload: &Map, budget: Budget) -> Result<Known, TurnError> {
        match self.known_state(stored).await? {
            Some(SignalState::Waiting { invocation_id, generation }) => {
                let (generation, trigger) = (Some(generation), Trigger::Signal);
                let (part, payload) = (Addressee::Signal(stored.origin().1), payload.clone());
                let delivery = Delivery { invocation_id, generation, part, payload, budget, trigger };
                self.deliver(delivery).await.map(Known::Told)
            }
            Some(SignalState::Delivered { invocation_id, generation }) => {
                let record = self.load_invocation(&invocation_id).await?;
                let stale = TurnOutcome::Stale { invocation_id };
                let addressee = Addressee::Signal(stored.origin().1);
                Ok(Known::Told(
                    record.map_or(stale, |record| self.answer_to(*record, Some(generation), &addressee, payload)),
                ))
            }
            Some(SignalState::Buffered(_)) | None => Ok(Known::Unclaimed),
        }
    }

    /// Keeps the signal until somebody waits for it. `None` when somebody does by now.
    async fn keep(
        &self,
        stored: &SignalId,
        signal_id: &SignalId,
        payload: &Map,
        budget: Budget,
    ) -> Result<Option<TurnOutcome>, TurnError> {
        let Some(kept_for) = self.config().early_signals else {
            let message = format!("no paused invocation waits for signal `{signal_id}`");
            return Err(TurnError::new(Category::HarnessSignalCorrelationFailed, message));
        };
        let (received_at, expires_at) = (self.now(), self.now() + kept_for);
        let signal = BufferedSignal { payload: payload.clone(), received_at, expires_at };
        let store = &self.engine().ports().store;
        match store.buffer_signal(stored, &signal).await.map_err(store_failed)? {
            BufferOutcome::Buffered { expires_at } => {
                Ok(Some(TurnOutcome::Buffered { signal_id: signal_id.clone(), expires_at }))
            }
            BufferOutcome::Occupied => {
                let message = format!("another payload is already kept for signal `{signal_id}`; the first stands");
                Err(TurnError::new(Category::RequestInvalid, message))
            }
            BufferOutcome::Changed if self.time_left(budget).is_zero() => {
                Err(TurnError::new(Category::ResumeInProgress, "the signal is changing; send it again"))
            }
            BufferOutcome::Changed => Ok(None),
        }
    }

    /// Whether a pause of an earlier version waits for events of `shape`: it has no signal of its own for them.
    async fn waits_in_the_old_way(&self, signal_id: &SignalId, shape: &ShapeId) -> Result<bool, TurnError> {
        let Some(SignalState::Waiting { invocation_id, .. }) = self.known_state(signal_id).await? else {
            return Ok(false);
        };
        let record = self.load_invocation(&invocation_id).await?;
        let awaited = record.and_then(|record| record.paused.event_shape());
        Ok(awaited.is_some_and(|awaited| awaited.id() == *shape))
    }

    /// Delivers what an event carries to whoever waits for the token and for an event that may be this one. Nobody may
    /// keep it: of which shape it is is not known.
    async fn deliver_unshaped(
        &self,
        signal_id: SignalId,
        event: &EventOrigin,
        payload: &Map,
        budget: Budget,
    ) -> Result<TurnOutcome, TurnError> {
        if let Some(SignalState::Waiting { invocation_id, .. }) = self.known_state(&signal_id).await? {
            let record = self.load_invocation(&invocation_id).await?;
            check_event(record.as_deref(), &signal_id, event, payload)?;
        }
        match self.deliver_known(&signal_id, payload, budget).await? {
            Known::Told(outcome) => Ok(outcome),
            Known::Unclaimed => {
                let message = format!("no paused invocation waits for an event that carries signal `{signal_id}`");
                let error = TurnError::new(Category::HarnessSignalCorrelationFailed, message);
                Err(TurnError { bucket: Bucket::RetryableTransient, ..error })
            }
        }
    }
}

/// Refuses an event that whoever waits for the signal did not ask for, whatever rule took it.
fn check_event(
    record: Option<&InvocationRecord>,
    signal_id: &SignalId,
    event: &EventOrigin,
    detail: &Map,
) -> Result<(), TurnError> {
    let Some(record) = record else { return Ok(()) };
    let (source, kind) = (event.source.as_deref(), event.detail_type.as_deref());
    let awaited = record.paused.wake.event.as_ref();
    if awaited.is_some_and(|wait| wait.may_match(source, kind, detail)) {
        return Ok(());
    }
    let (source, kind) = (source.unwrap_or("unknown"), kind.unwrap_or("unknown"));
    let message = format!(
        "who waits for signal `{signal_id}` did not ask for this event, of source `{source}` and detail-type `{kind}`"
    );
    Err(TurnError::new(Category::RequestInvalid, message).of(&record.paused.invocation_id))
}
