//! Signal items: one per signal id, changed by compare-and-set.

use std::sync::Arc;

use dormouse_ports::{
    BufferOutcome, BufferedSignal, CommitError, EarlySignal, InvocationId, PausedInvocation, SignalId, SignalRecord,
    SignalState, StoreError, SuspendFrom,
};
use jiff::Timestamp;

use super::blobs::{BlobOrigin, Bodies};
use super::codec::payload_digest;
use super::encode::Encoder;
use super::item::{Item, number, number_value, optional_text, text, text_value, time, time_value, ttl_value};
use super::keys::{
    self, EXPIRES_AT, GENERATION, INVOCATION_ID, Key, PAYLOAD, PAYLOAD_DIGEST, PHASE, PK, RECEIVED_AT, SENDER,
    SIGNAL_ID, TTL,
};
use super::requests::Table;
use super::write::{ItemWrite, WriteOutcome};

pub(super) const WAITING: &str = "waiting";
const BUFFERED: &str = "buffered";
const DELIVERED: &str = "delivered";

/// The condition that no record of it counts yet.
const UNHEARD: &str = "attribute_not_exists(pk) OR (phase = :buffered AND expires_at <= :now)";

/// Signals: what is awaited, what came early, what was delivered.
#[derive(Clone)]
pub(super) struct SignalItems {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
}

impl SignalItems {
    pub(super) async fn read(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        match self.table.get_item(Key::signal(id)).await? {
            Some(item) => self.record(id, &item, now).await,
            None => Ok(None),
        }
    }

    /// The record of the signal `id` in `item`; none, when it is forgotten by `now`.
    pub(super) async fn record(
        &self,
        id: &SignalId,
        item: &Item,
        now: Timestamp,
    ) -> Result<Option<SignalRecord>, StoreError> {
        if text(item, PHASE)? == BUFFERED && time(item, EXPIRES_AT)? <= now {
            return Ok(None);
        }
        Ok(Some(SignalRecord { signal_id: id.clone(), state: self.state(item).await? }))
    }

    async fn state(&self, item: &Item) -> Result<SignalState, StoreError> {
        match text(item, PHASE)? {
            WAITING => Ok(SignalState::Waiting { invocation_id: waiter(item)?, generation: number(item, GENERATION)? }),
            BUFFERED => Ok(SignalState::Buffered(self.buffered(item).await?)),
            DELIVERED => {
                Ok(SignalState::Delivered { invocation_id: waiter(item)?, generation: number(item, GENERATION)? })
            }
            other => Err(StoreError::Corrupt(format!("a signal cannot be {other:?}"))),
        }
    }

    async fn buffered(&self, item: &Item) -> Result<BufferedSignal, StoreError> {
        Ok(BufferedSignal {
            payload: self.bodies.body(item, PAYLOAD).await?,
            sender: optional_text(item, SENDER).map(str::to_owned),
            received_at: time(item, RECEIVED_AT)?,
            expires_at: time(item, EXPIRES_AT)?,
        })
    }

    pub(super) async fn park(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        let origin = BlobOrigin { owners: vec![Key::signal(id)], now: signal.received_at };
        let mut encoder = Encoder::new(&self.bodies.config, origin);
        let write = park_write(&mut encoder, id, signal)?;
        self.bodies.put_blobs(encoder.blobs).await?;
        match self.table.write_alone(&write).await? {
            WriteOutcome::Done(_) => {
                // The signal is kept whether or not its row is: the row only counts it.
                if let Err(error) = self.note_parked(id, signal).await {
                    tracing::warn!(
                        %error, signal_id = %id,
                        "a parked signal was not counted by the sweep, because its item cannot be read"
                    );
                }
                Ok(BufferOutcome::Buffered { expires_at: signal.expires_at })
            }
            WriteOutcome::Refused(Some(item)) if text(&item, PHASE)? == BUFFERED => occupied(&item, signal),
            WriteOutcome::Refused(_) => Ok(BufferOutcome::Changed),
        }
    }

    /// Notes that `signal` was parked. Its row goes away with it, or when a sweep finds that it was claimed.
    async fn note_parked(&self, id: &SignalId, signal: &BufferedSignal) -> Result<(), StoreError> {
        let item = Item::from([
            (SIGNAL_ID.to_owned(), text_value(id.as_str())),
            (RECEIVED_AT.to_owned(), time_value(signal.received_at)),
            (TTL.to_owned(), ttl_value(signal.expires_at)),
        ]);
        self.table.put_plainly(ItemWrite::put(&Key::parked(id, signal.received_at), item)).await
    }

    /// The error for which the signal `found` refused a wait.
    pub(super) async fn wait_refusal(&self, found: Option<&Item>) -> CommitError {
        let Some(item) = found else {
            return CommitError::Store(StoreError::Unavailable("the signal changed meanwhile".to_owned()));
        };
        match self.state(item).await {
            Ok(SignalState::Buffered(signal)) => CommitError::SignalBuffered(Box::new(signal)),
            Ok(SignalState::Waiting { invocation_id, .. } | SignalState::Delivered { invocation_id, .. }) => {
                match signal_id(item) {
                    Ok(signal_id) => CommitError::SignalTaken { signal_id, holder: invocation_id },
                    Err(error) => CommitError::Store(error),
                }
            }
            Err(error) => CommitError::Store(error),
        }
    }
}

/// The signal of `item`.
fn signal_id(item: &Item) -> Result<SignalId, StoreError> {
    let key = text(item, PK)?;
    keys::signal_id(key).ok_or_else(|| StoreError::Corrupt(format!("an item of a signal has the key `{key}`")))
}

fn waiter(item: &Item) -> Result<InvocationId, StoreError> {
    text(item, INVOCATION_ID).map(InvocationId::from)
}

fn occupied(item: &Item, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
    if text(item, PAYLOAD_DIGEST)? == payload_digest(&signal.payload) {
        return Ok(BufferOutcome::Buffered { expires_at: time(item, EXPIRES_AT)? });
    }
    Ok(BufferOutcome::Occupied)
}

fn park_write(encoder: &mut Encoder<'_>, id: &SignalId, signal: &BufferedSignal) -> Result<ItemWrite, StoreError> {
    let mut item = Item::from([
        (PHASE.to_owned(), text_value(BUFFERED)),
        (PAYLOAD.to_owned(), encoder.body("the payload", &signal.payload)?),
        (PAYLOAD_DIGEST.to_owned(), text_value(payload_digest(&signal.payload))),
        (RECEIVED_AT.to_owned(), time_value(signal.received_at)),
        (EXPIRES_AT.to_owned(), time_value(signal.expires_at)),
        (TTL.to_owned(), ttl_value(signal.expires_at)),
    ]);
    item.extend(signal.sender.iter().map(|sender| (SENDER.to_owned(), text_value(sender.as_str()))));
    let park = ItemWrite::put(&Key::signal(id), item).when(UNHEARD);
    Ok(park.with(":buffered", text_value(BUFFERED)).with(":now", time_value(signal.received_at)))
}

/// Begins the wait of `paused` for the signal `id`. A buffered signal gives way where it is one of `early`, and the
/// pause before where it waited for the same id.
pub(super) fn wait_write(
    paused: &PausedInvocation,
    id: &SignalId,
    from: &SuspendFrom,
    early: &[EarlySignal],
    now: Timestamp,
) -> ItemWrite {
    let item = bond(paused, WAITING);
    let mut condition = format!("{UNHEARD} OR phase = :delivered");
    let mut values = Vec::new();
    if let Some(early) = early.iter().find(|early| early.signal_id == *id) {
        condition.push_str(" OR (phase = :buffered AND payload_digest = :digest)");
        values.push((":digest", text_value(payload_digest(&early.payload))));
    }
    if let SuspendFrom::Claimed { previous, .. } = from
        && previous.waits().any(|awaited| awaited == *id)
    {
        condition.push_str(" OR (phase = :waiting AND invocation_id = :waiter AND generation = :previous)");
        values.push((":waiting", text_value(WAITING)));
        values.push((":waiter", text_value(previous.invocation_id.as_str())));
        values.push((":previous", number_value(previous.generation)));
    }
    let write = ItemWrite::put(&Key::signal(id), item)
        .when(&condition)
        .with(":delivered", text_value(DELIVERED))
        .with(":buffered", text_value(BUFFERED))
        .with(":now", time_value(now));
    values.into_iter().fold(write, |write, (name, value)| write.with(name, value))
}

/// The wait of `paused` for the signal `id` once more, where no record that counts is in its place, and none tells that the
/// invocation is past that pause.
pub(super) fn rewait_write(paused: &PausedInvocation, id: &SignalId) -> ItemWrite {
    // A freed one expired at the beginning of time. One that was parked stays, also where its time is over.
    let over = "phase = :delivered OR (phase = :buffered AND expires_at <= :now)";
    let earlier = "invocation_id <> :waiter OR generation < :generation";
    ItemWrite::put(&Key::signal(id), bond(paused, WAITING))
        .when(&format!("attribute_not_exists(pk) OR (({over}) AND ({earlier}))"))
        .with(":delivered", text_value(DELIVERED))
        .with(":buffered", text_value(BUFFERED))
        .with(":now", time_value(Timestamp::UNIX_EPOCH))
        .with(":waiter", text_value(paused.invocation_id.as_str()))
        .with(":generation", number_value(paused.generation))
}

/// Ends the wait of `paused` for the signal `id`. No other invocation may change an awaited signal, so that it needs no
/// condition.
pub(super) fn deliver_write(paused: &PausedInvocation, id: &SignalId, forget_at: Timestamp) -> ItemWrite {
    let mut item = bond(paused, DELIVERED);
    item.insert(TTL.to_owned(), ttl_value(forget_at));
    ItemWrite::put(&Key::signal(id), item)
}

/// Frees the signal `id` for which `paused` waited, so that it is parked for the next wait; as unconditional as
/// [`deliver_write`]. What stands in its place counts as little as a parked signal that is forgotten: whoever may wait may put,
/// and need not remove.
pub(super) fn free_write(paused: &PausedInvocation, id: &SignalId, forget_at: Timestamp) -> ItemWrite {
    let mut item = bond(paused, BUFFERED);
    item.insert(EXPIRES_AT.to_owned(), time_value(Timestamp::UNIX_EPOCH));
    item.insert(TTL.to_owned(), ttl_value(forget_at));
    ItemWrite::put(&Key::signal(id), item)
}

fn bond(paused: &PausedInvocation, phase: &str) -> Item {
    Item::from([
        (PHASE.to_owned(), text_value(phase)),
        (INVOCATION_ID.to_owned(), text_value(paused.invocation_id.as_str())),
        (GENERATION.to_owned(), number_value(paused.generation)),
    ])
}
