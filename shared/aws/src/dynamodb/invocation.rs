//! Paused invocations and their ends: one item each.

mod ends;

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Cancellation, Claim, ClaimOutcome, ClaimRequest, InvocationId, InvocationPhase,
    InvocationRecord, InvocationStatus, InvocationSummary, LoadedInvocation, Map, Owner, PartAnswer, PausedInvocation,
    ProgressFrom, StoreError, SuspendFrom, WakePlan,
};
use jiff::Timestamp;

pub(super) use self::ends::{End, end_write, put_aside_write, retry_write};
use super::blobs::{BlobOrigin, Bodies};
use super::encode::{Encoder, home_of, outermost};
use super::item::{
    Item, count, number, number_value, optional_text, optional_time, text, text_value, time, time_value,
};
use super::keys::{
    ANSWERED, ANSWERS, ATTEMPTS, BEGUN_FOR, CANCELLATION, CLAIM_LANE, CLAIM_OWNER, CLAIM_PAYLOAD, CLAIM_SINCE,
    CLAIM_UNTIL, CLAIMED_FROM, FAILURE, FINAL_STATE, GENERATION, Key, PAUSE, PAUSE_STATE, PHASE, PK, REACHED, RUNG, SK,
    WAKE, claim_lane_of,
};
use super::requests::Table;
use super::segments;
use super::steps::StepNotes;
use super::write::{ItemWrite, WriteOutcome};

const SUSPENDED: &str = "suspended";
const RESUMING: &str = "resuming";
const COMPLETED: &str = "completed";
const ERRORED: &str = "errored";
const CANCELED: &str = "canceled";

const ABSENT: &str = "attribute_not_exists(pk)";
/// The condition that a claim is over, or is the one that is passed over.
const OUT_OF_TIME: &str = "(held_until <= :now OR held_until = :past OR (attribute_not_exists(held_until) AND \
                           (claim_until <= :now OR claim_until = :past)))";

/// The owner of a stored claim that no worker has: the payload is accepted, and the first that takes it over goes on.
const UNCLAIMED_OWNER: &str = "";
/// The same of work that a worker has looked at, and that waits for other work.
const POSTPONED_OWNER: &str = "-";
/// End of such a claim: it is over by every clock.
const UNCLAIMED_UNTIL: Timestamp = Timestamp::UNIX_EPOCH;

/// Invocations: what sleeps, what was claimed, what ended.
#[derive(Clone)]
pub(super) struct InvocationItems {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
    pub(super) notes: StepNotes,
}

impl InvocationItems {
    pub(super) async fn read(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        match self.table.get_item(Key::invocation(id)).await? {
            Some(item) => self.record(&item).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn read_all(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        self.read_each(ids, true).await
    }

    /// Without states that lie beside their items.
    pub(super) async fn read_pauses(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        self.read_each(ids, false).await
    }

    async fn read_each(&self, ids: &[InvocationId], with_states: bool) -> Result<Vec<LoadedInvocation>, StoreError> {
        let keys: Vec<Key> = ids.iter().map(Key::invocation).collect();
        let found = self.table.get_items(&keys, None).await?;
        let mut loaded = Vec::new();
        for key in &keys {
            let Some(item) = found.get(key) else {
                loaded.push(Ok(None));
                continue;
            };
            let record = if with_states { self.record(item).await } else { self.without_state(item).await };
            loaded.push(match record {
                Err(error) if !matches!(error, StoreError::Corrupt(_)) => return Err(error),
                record => record.map(Some),
            });
        }
        Ok(loaded)
    }

    /// One item, without the state that may lie beside it.
    pub(super) async fn cancellation(&self, id: &InvocationId) -> Result<Option<Cancellation>, StoreError> {
        match self.table.get_item(Key::invocation(id)).await? {
            Some(item) if text(&item, PHASE)? == CANCELED => self.bodies.body(&item, CANCELLATION).await.map(Some),
            Some(_) | None => Ok(None),
        }
    }

    pub(super) async fn glance_at(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        self.glance_at_each(ids).await?.into_iter().collect()
    }

    /// The same, where the error of one that cannot be read stands in the place of its glance.
    pub(super) async fn glance_at_each(
        &self,
        ids: &[InvocationId],
    ) -> Result<Vec<Result<Option<InvocationSummary>, StoreError>>, StoreError> {
        let keys: Vec<Key> = ids.iter().map(Key::invocation).collect();
        let attributes = [PK, SK, PHASE, GENERATION, CLAIM_LANE, CLAIM_OWNER, CLAIM_SINCE, CLAIM_UNTIL].join(", ");
        let found = self.table.get_items(&keys, Some(&attributes)).await?;
        Ok(keys.iter().map(|key| found.get(key).map(glance_of).transpose()).collect())
    }

    /// Claims and loads in one update; the returned item shows the reason of a refusal.
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let origin = BlobOrigin { owners: vec![Key::invocation(&request.invocation_id)], now: request.now };
        let mut encoder = Encoder::new(&self.bodies.config, origin);
        let payload = request.payload.as_ref().map(|payload| encoder.body("the payload", payload)).transpose()?;
        self.bodies.put_blobs(encoder.blobs).await?;
        match self.table.write_alone(&claim_write(request, payload)).await? {
            WriteOutcome::Done(item) => self.granted(request, &item).await,
            WriteOutcome::Refused(None) => Ok(ClaimOutcome::NotFound),
            WriteOutcome::Refused(Some(item)) => self.refused_claim(request, &item).await,
        }
    }

    /// The record of `item`, which `request` has claimed: nothing can come to it any more of a worker before.
    async fn granted(&self, request: &ClaimRequest, item: &Item) -> Result<ClaimOutcome, StoreError> {
        let record = match self.whole_record(item).await {
            Ok(record) => self.notes.fenced(record, item, (&request.owner, request.now)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &record {
            self.take_back(request, item, error).await;
        }
        record.map(|record| ClaimOutcome::Granted(Box::new(record)))
    }

    /// Takes back the attempt that `request` was granted, of which nothing more can be had than its `item`: no worker dies of it.
    /// What cannot be read, which a later build may have written, is claimed until that ends by itself; after another error
    /// the next worker need not wait for that.
    async fn take_back(&self, request: &ClaimRequest, item: &Item, error: &StoreError) {
        let Ok(generation) = number(item, GENERATION) else { return };
        let since = (!matches!(error, StoreError::Corrupt(_))).then_some(request.now);
        let commit_id = text_value(format!("unread-{}", request.owner.as_str()));
        let keep = keep_write(&request.invocation_id, generation, (&request.owner, since), commit_id);
        if let Err(error) = self.table.write_alone(&keep).await {
            tracing::warn!(
                %error, invocation_id = %request.invocation_id,
                "an invocation cannot be read; the attempt at it counts as if its worker had died"
            );
        }
    }

    async fn refused_claim(&self, request: &ClaimRequest, item: &Item) -> Result<ClaimOutcome, StoreError> {
        let current = number(item, GENERATION)?;
        let same_pause = request.generation.is_none_or(|generation| generation == current);
        if text(item, PHASE)? == SUSPENDED && same_pause && request.payload.is_some() {
            return Ok(ClaimOutcome::AwaitingMoreSignals(Box::new(self.record(item).await?)));
        }
        if text(item, PHASE)? != RESUMING || !same_pause {
            return Ok(ClaimOutcome::NotClaimable(Box::new(self.record(item).await?)));
        }
        if text(item, CLAIM_OWNER)? == request.owner.as_str() {
            return self.granted(request, item).await;
        }
        Ok(ClaimOutcome::Held { until: claim_end(item)? })
    }

    async fn record(&self, item: &Item) -> Result<InvocationRecord, StoreError> {
        Ok(self.notes.noted(self.whole_record(item).await?, item).await?.record)
    }

    /// The record of `item`, without steps that were noted.
    pub(super) async fn whole_record(&self, item: &Item) -> Result<InvocationRecord, StoreError> {
        let mut record = self.without_state(item).await?;
        let InvocationRecord { status, paused, stored, .. } = &mut record;
        if let Some(state) = self.bodies.optional_body(item, PAUSE_STATE).await? {
            *outermost(paused) = state;
        }
        let state = match status {
            InvocationStatus::Completed { state } => state,
            InvocationStatus::Suspended
            | InvocationStatus::Accepted { .. }
            | InvocationStatus::Resuming(_)
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => outermost(paused),
        };
        self.bodies.refill(stored, state).await?;
        Ok(record)
    }

    /// The record of `item` without what lies beside it of its outermost state.
    async fn without_state(&self, item: &Item) -> Result<InvocationRecord, StoreError> {
        let mut paused: PausedInvocation = self.bodies.body(item, PAUSE).await?;
        paused.begun_for = optional_text(item, BEGUN_FOR).map(str::to_owned);
        if let Some(wake) = self.bodies.optional_body(item, WAKE).await? {
            paused.wake = wake;
        }
        if let (Some(fan_in), Some(answers)) = (&mut paused.fan_in, self.bodies.optional_body(item, ANSWERS).await?) {
            fan_in.answers = answers;
        }
        let status = self.status(item).await?;
        let stored = segments::referred(&home_of(&paused), item)?;
        Ok(InvocationRecord { status, paused, stored, saved: None })
    }

    async fn status(&self, item: &Item) -> Result<InvocationStatus, StoreError> {
        match text(item, PHASE)? {
            SUSPENDED => Ok(InvocationStatus::Suspended),
            RESUMING => {
                let owner = Owner::from(text(item, CLAIM_OWNER)?);
                let until = claim_end(item)?;
                let payload = self.bodies.body(item, CLAIM_PAYLOAD).await?;
                if until == UNCLAIMED_UNTIL {
                    return Ok(InvocationStatus::Accepted { payload });
                }
                let taken_over = optional_text(item, CLAIMED_FROM) == Some(RESUMING);
                let attempts = count(item, ATTEMPTS)?;
                Ok(InvocationStatus::Resuming(Claim { owner, until, payload, attempts, taken_over }))
            }
            COMPLETED => Ok(InvocationStatus::Completed { state: self.bodies.body(item, FINAL_STATE).await? }),
            ERRORED => Ok(InvocationStatus::Errored(self.bodies.body(item, FAILURE).await?)),
            CANCELED => Ok(InvocationStatus::Canceled(self.bodies.body(item, CANCELLATION).await?)),
            other => Err(StoreError::Corrupt(format!("an invocation cannot be {other:?}"))),
        }
    }
}

fn glance_of(item: &Item) -> Result<InvocationSummary, StoreError> {
    Ok(InvocationSummary { generation: number(item, GENERATION)?, standing: standing(item)? })
}

/// The phase of an item, without its bodies.
pub(super) fn standing(item: &Item) -> Result<InvocationPhase, StoreError> {
    match text(item, PHASE)? {
        // Of ended invocations only those that were put aside are in a lane.
        ERRORED if item.contains_key(CLAIM_LANE) => Ok(InvocationPhase::Aside),
        SUSPENDED => Ok(InvocationPhase::Asleep),
        RESUMING => Ok(match claim_end(item)? {
            until if until == UNCLAIMED_UNTIL => InvocationPhase::Accepted {
                since: time(item, CLAIM_SINCE)?,
                postponed: optional_text(item, CLAIM_OWNER) == Some(POSTPONED_OWNER),
            },
            until => InvocationPhase::Claimed { until },
        }),
        COMPLETED | ERRORED | CANCELED => Ok(InvocationPhase::Ended),
        other => Err(StoreError::Corrupt(format!("an invocation cannot be {other:?}"))),
    }
}

/// True if a payload is accepted for the invocation of `item`, which has not moved on since.
pub(super) fn is_claimed(item: &Item) -> Result<bool, StoreError> {
    Ok(text(item, PHASE)? == RESUMING)
}

/// End of the claim of `item`.
pub(super) fn claim_end(item: &Item) -> Result<Timestamp, StoreError> {
    optional_time(item, CLAIM_UNTIL)?.map_or_else(|| time(item, CLAIM_SINCE), Ok)
}

fn claim_write(request: &ClaimRequest, payload: Option<AttributeValue>) -> ItemWrite {
    let key = Key::invocation(&request.invocation_id);
    let claim = match payload {
        Some(payload) => {
            let change = "SET claimed_from = phase, phase = :resuming, claim_owner = :owner, held_until = :until, \
                          claim_lane = :lane, claim_until = if_not_exists(claim_until, :now), \
                          claim_payload = if_not_exists(claim_payload, :payload) ADD attempts :one";
            let (knows_all, answered) = known_answers(request.answered);
            let condition = format!("(phase = :suspended AND {knows_all}) OR (phase = :resuming AND {OUT_OF_TIME})");
            let claim = ItemWrite::update(&key, change).when(&condition).with(":suspended", text_value(SUSPENDED));
            answered.into_iter().fold(claim, |claim, (name, value)| claim.with(name, value)).with(":payload", payload)
        }
        None => {
            let change = "SET claimed_from = phase, phase = :resuming, claim_owner = :owner, held_until = :until, \
                          claim_lane = :lane ADD attempts :one";
            ItemWrite::update(&key, change).when(&format!("phase = :resuming AND {OUT_OF_TIME}"))
        }
    };
    let claim = claim
        .with(":resuming", text_value(RESUMING))
        .with(":owner", text_value(request.owner.as_str()))
        .with(":until", time_value(request.until))
        .with(":lane", text_value(claim_lane_of(&request.invocation_id)))
        .with(":one", number_value(1))
        .with(":now", time_value(request.now))
        .with(":past", time_value(request.past.unwrap_or(request.now)));
    match request.generation {
        Some(generation) => claim.when("generation = :generation").with(":generation", number_value(generation)),
        None => claim,
    }
}

/// The condition that a pause has so many answers, where it expects several, and the value that it compares with.
fn known_answers(answered: Option<usize>) -> (&'static str, Option<(&'static str, AttributeValue)>) {
    match answered {
        Some(count) => ("answered = :answered", Some((":answered", number_value(count as u64)))),
        None => ("attribute_not_exists(answered)", None),
    }
}

/// Writes a pause over the earlier status of the invocation.
pub(super) fn suspend_write(
    encoder: &mut Encoder<'_>,
    paused: &PausedInvocation,
    from: &SuspendFrom,
    claim: Option<&Claim>,
    commit_id: AttributeValue,
) -> Result<ItemWrite, StoreError> {
    let mut item = base(paused, SUSPENDED, commit_id);
    encoder.pause(&mut item, paused)?;
    if let Some(fan_in) = &paused.fan_in {
        item.insert(ANSWERED.to_owned(), number_value(fan_in.answers.len() as u64));
    }
    if let Some(claim) = claim {
        item.insert(PHASE.to_owned(), text_value(RESUMING));
        set_claim(encoder, &mut item, claim)?;
        item.extend(in_lane(&paused.invocation_id, paused.suspended_at));
        item.insert(ATTEMPTS.to_owned(), number_value(claim.attempts.into()));
    }
    let put = ItemWrite::put(&Key::invocation(&paused.invocation_id), item);
    Ok(match from {
        SuspendFrom::Fresh => put.when(ABSENT),
        SuspendFrom::Claimed { owner, previous } => claimed(put, owner, previous.generation),
    })
}

/// Writes the place to which a worker has come over the earlier one of the same pause, and its claim on.
pub(super) fn progress_write(
    encoder: &mut Encoder<'_>,
    paused: &PausedInvocation,
    from: &ProgressFrom,
    claim: Option<&Claim>,
    commit_id: AttributeValue,
) -> Result<ItemWrite, StoreError> {
    let mut item = base(paused, RESUMING, commit_id);
    encoder.pause(&mut item, paused)?;
    if let Some(fan_in) = &paused.fan_in {
        item.insert(ANSWERED.to_owned(), number_value(fan_in.answers.len() as u64));
    }
    if paused.wake.rung() > 0 {
        item.insert(RUNG.to_owned(), number_value(paused.wake.rung().into()));
    }
    match claim {
        Some(claim) => {
            set_claim(encoder, &mut item, claim)?;
            item.insert(ATTEMPTS.to_owned(), number_value(claim.attempts.into()));
        }
        None => set_unclaimed(encoder, &mut item, &Map::new())?,
    }
    // The same at every step, so that its place in the index stays.
    item.extend(in_lane(&paused.invocation_id, paused.suspended_at));
    item.insert(REACHED.to_owned(), number_value(paused.step));
    let put = ItemWrite::put(&Key::invocation(&paused.invocation_id), item);
    Ok(match from {
        ProgressFrom::Fresh => put.when(ABSENT),
        // An attempt of an earlier step that was given up as lost may still arrive.
        ProgressFrom::Claimed(owner) => claimed(put, owner, paused.generation)
            .when("attribute_not_exists(reached) OR reached <= :reached")
            .with(":reached", number_value(paused.step)),
    })
}

/// Writes an invocation that has not begun, with an unclaimed claim.
pub(super) fn accept_write(
    encoder: &mut Encoder<'_>,
    paused: &PausedInvocation,
    again_at: Option<Timestamp>,
    commit_id: AttributeValue,
) -> Result<ItemWrite, StoreError> {
    let mut item = base(paused, RESUMING, commit_id);
    encoder.pause(&mut item, paused)?;
    let nobody = again_at.map_or(UNCLAIMED_OWNER, |_| POSTPONED_OWNER);
    set_holder(encoder, &mut item, (nobody, UNCLAIMED_UNTIL), &Map::new())?;
    item.extend(in_lane(&paused.invocation_id, again_at.unwrap_or(paused.suspended_at)));
    Ok(ItemWrite::put(&Key::invocation(&paused.invocation_id), item).when(ABSENT))
}

/// Lays a payload down for the worker that takes the claim over, on a pause that has so many answers.
pub(super) fn deliver_write(
    encoder: &mut Encoder<'_>,
    (id, generation, answered): (&InvocationId, u64, Option<usize>),
    payload: &Map,
    commit_id: AttributeValue,
    now: Timestamp,
) -> Result<ItemWrite, StoreError> {
    let mut claim = Item::from(in_lane(id, now));
    set_unclaimed(encoder, &mut claim, payload)?;
    let change = "SET phase = :resuming, commit_id = :commit, claim_owner = :claim_owner, held_until = :held_until, \
                  claim_until = :claim_until, claim_lane = :claim_lane, claim_payload = :claim_payload";
    let (knows_all, known) = known_answers(answered);
    let update = ItemWrite::update(&Key::invocation(id), change)
        .when(&format!("phase = :suspended AND generation = :generation AND {knows_all}"))
        .with(":resuming", text_value(RESUMING))
        .with(":suspended", text_value(SUSPENDED))
        .with(":generation", number_value(generation))
        .with(":commit", commit_id);
    let update = known.into_iter().fold(update, |update, (name, value)| update.with(name, value));
    Ok(claim.into_iter().fold(update, |update, (name, value)| update.with(&format!(":{name}"), value)))
}

/// The place in the index of claims of what was accepted at `since`.
fn in_lane(id: &InvocationId, since: Timestamp) -> [(String, AttributeValue); 2] {
    [(CLAIM_LANE.to_owned(), text_value(claim_lane_of(id))), (CLAIM_SINCE.to_owned(), time_value(since))]
}

fn set_claim(encoder: &mut Encoder<'_>, item: &mut Item, claim: &Claim) -> Result<(), StoreError> {
    set_holder(encoder, item, (claim.owner.as_str(), claim.until), &claim.payload)
}

/// Sets a claim that no worker has.
fn set_unclaimed(encoder: &mut Encoder<'_>, item: &mut Item, payload: &Map) -> Result<(), StoreError> {
    set_holder(encoder, item, (UNCLAIMED_OWNER, UNCLAIMED_UNTIL), payload)
}

fn set_holder(
    encoder: &mut Encoder<'_>,
    item: &mut Item,
    (owner, until): (&str, Timestamp),
    payload: &Map,
) -> Result<(), StoreError> {
    item.insert(CLAIM_OWNER.to_owned(), text_value(owner));
    item.insert(CLAIM_UNTIL.to_owned(), time_value(until));
    item.insert(CLAIM_PAYLOAD.to_owned(), encoder.body("the payload", payload)?);
    Ok(())
}

/// The condition that `owner` has claimed the invocation in that pause.
pub(super) fn claim_check(id: &InvocationId, generation: u64, owner: &Owner) -> ItemWrite {
    claimed(ItemWrite::check(&Key::invocation(id)), owner, generation)
}

/// The same, and that its session is saved, with all that was noted of it.
pub(super) fn saved_write(id: &InvocationId, generation: u64, owner: &Owner) -> ItemWrite {
    let update = ItemWrite::update(&Key::invocation(id), "SET noted_saved = :saved");
    claimed(update.with(":saved", AttributeValue::Bool(true)), owner, generation)
}

/// Moves the pause on to its next deadline. The pause itself, which may be large, is not written again: the changed
/// attributes lie beside it.
pub(super) fn advance_write(
    encoder: &mut Encoder<'_>,
    paused: &PausedInvocation,
    wake: &WakePlan,
    commit_id: AttributeValue,
) -> Result<ItemWrite, StoreError> {
    let change = "SET wake = :wake, rung = :next, commit_id = :commit";
    let update = ItemWrite::update(&Key::invocation(&paused.invocation_id), change)
        .with(":wake", encoder.body("the deadlines", wake)?)
        .with(":next", number_value(wake.rung().into()))
        .with(":commit", commit_id);
    Ok(asleep(update, paused))
}

/// Adds an answer to a pause that expects several; they lie beside the pause, as its deadlines do.
pub(super) fn answer_write(
    encoder: &mut Encoder<'_>,
    paused: &PausedInvocation,
    answer: &PartAnswer,
    commit_id: AttributeValue,
) -> Result<ItemWrite, StoreError> {
    let known = paused.fan_in.as_ref().map_or(&[][..], |fan_in| &fan_in.answers);
    let answers: Vec<&PartAnswer> = known.iter().chain([answer]).collect();
    let change = "SET answers = :answers, answered = :next, commit_id = :commit";
    let update = ItemWrite::update(&Key::invocation(&paused.invocation_id), change)
        .when("phase = :suspended AND generation = :generation AND answered = :answered")
        .with(":suspended", text_value(SUSPENDED))
        .with(":generation", number_value(paused.generation))
        .with(":answered", number_value(known.len() as u64))
        .with(":answers", encoder.body("the answers", &answers)?)
        .with(":next", number_value(answers.len() as u64));
    Ok(update.with(":commit", commit_id))
}

/// Only while no worker has claimed the pause, and its next deadline is still that of `paused`.
fn asleep(write: ItemWrite, paused: &PausedInvocation) -> ItemWrite {
    unmoved(write.when("phase = :suspended"), paused)
}

/// Only while `paused` is the current pause and its next deadline still the same, so that its pending row is the one
/// that is stored.
fn unmoved(write: ItemWrite, paused: &PausedInvocation) -> ItemWrite {
    let write = write
        .when("generation = :generation")
        .with(":suspended", text_value(SUSPENDED))
        .with(":generation", number_value(paused.generation));
    match paused.wake.rung() {
        0 => write.when("attribute_not_exists(rung)"),
        rung => write.when("rung = :rung").with(":rung", number_value(rung.into())),
    }
}

/// Gives a claim back; that of an invocation that has not begun becomes unclaimed, as if it was accepted `now` or `again_at`:
/// behind those that nobody has looked at.
pub(super) fn release_write(
    id: &InvocationId,
    generation: u64,
    (owner, again_at): (&Owner, Option<Timestamp>),
    (now, commit_id): (Timestamp, AttributeValue),
) -> ItemWrite {
    let nobody = again_at.map_or(UNCLAIMED_OWNER, |_| POSTPONED_OWNER);
    let key = Key::invocation(id);
    let update = if generation == BEFORE_FIRST_PAUSE {
        let change = "SET claim_owner = :nobody, held_until = :over, claim_until = :since, commit_id = :commit \
                      ADD attempts :back";
        ItemWrite::update(&key, change)
            .with(":nobody", text_value(nobody))
            .with(":over", time_value(UNCLAIMED_UNTIL))
            .with(":since", time_value(again_at.unwrap_or(now)))
    } else {
        let change = "SET phase = :suspended, commit_id = :commit REMOVE claim_owner, held_until, claim_until, \
                      claim_lane, claim_payload ADD attempts :back";
        ItemWrite::update(&key, change).with(":suspended", text_value(SUSPENDED))
    };
    claimed(update.with(":commit", commit_id).with(":back", one_back()), owner, generation)
}

/// Leaves a claim to the worker that takes it over: when its time is over, or from the instant `since` on.
pub(super) fn keep_write(
    id: &InvocationId,
    generation: u64,
    (owner, since): (&Owner, Option<Timestamp>),
    commit_id: AttributeValue,
) -> ItemWrite {
    let key = Key::invocation(id);
    let update = match since {
        None => ItemWrite::update(&key, "SET commit_id = :commit ADD attempts :back"),
        Some(since) => {
            let change = "SET claim_owner = :nobody, held_until = :over, claim_until = :since, commit_id = :commit \
                          ADD attempts :back";
            ItemWrite::update(&key, change)
                .with(":nobody", text_value(UNCLAIMED_OWNER))
                .with(":over", time_value(UNCLAIMED_UNTIL))
                .with(":since", time_value(since))
        }
    };
    // A repeated commit must not take two attempts off.
    let update = update.when("attribute_not_exists(commit_id) OR commit_id <> :commit");
    claimed(update.with(":commit", commit_id).with(":back", one_back()), owner, generation)
}

/// Addition to the count of attempts for a worker that lives.
fn one_back() -> AttributeValue {
    AttributeValue::N("-1".to_owned())
}

fn claimed(write: ItemWrite, owner: &Owner, generation: u64) -> ItemWrite {
    write
        .when("phase = :resuming AND claim_owner = :owner AND generation = :generation")
        .with(":resuming", text_value(RESUMING))
        .with(":owner", text_value(owner.as_str()))
        .with(":generation", number_value(generation))
}

fn base(paused: &PausedInvocation, phase: &str, commit_id: AttributeValue) -> Item {
    let mut item = Item::from([
        (PHASE.to_owned(), text_value(phase)),
        (GENERATION.to_owned(), number_value(paused.generation)),
        (super::keys::COMMIT_ID.to_owned(), commit_id),
    ]);
    item.extend(paused.begun_for.iter().map(|tenant| (BEGUN_FOR.to_owned(), text_value(tenant))));
    item
}
