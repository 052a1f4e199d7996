//! Removing what nothing refers to any more.
//!
//! A sweep looks at [`STRETCH`] items of the table, in no order, and goes on behind them the next time. What it finds:
//!
//! - a chunk of a blob (`blobs`) that none of its owners refers to;
//! - a piece of a list (`segments`) of an invocation that is gone. The pieces of a session stay: an invocation may sleep
//!   on them, also when the session was deleted;
//! - a signal that waits for an invocation that ended, or is gone.
//!
//! # Invariants
//! - Nothing younger than [`YOUNG`] is removed: whoever wrote it may be about to refer to it. A writer puts what it will
//!   refer to once more, which makes it young again, and a removal demands that its item is as old as it was found.
//! - What the first versions wrote names neither owners nor its age, and stays.
//!
//! # What it costs
//! Nothing while a turn is running: age and owners are written with what they are about. A stretch is one request of at
//! most 1 MB, eventually consistent: up to 128 read units, and one for each owner of what is apart. A round takes a
//! million sleepers, with three items each, eight days at a sweep a minute.

use std::collections::{BTreeSet, HashMap};

use dormouse_ports::{Collected, InvocationId, StoreError};
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};

use super::DynamoDbStateStore;
use super::blobs::BlobRef;
use super::fault::{Fault, fault};
use super::item::{Item, number, number_value, optional_time, text, text_value, time_value};
use super::keys::{self, GENERATION, INVOCATION_ID, Key, OWNERS, PIECE, PK, SK, WRITTEN_AT};
use super::scan::{cursor_of, key_of, parse_cursor};
use super::signal::WAITING;
use super::write::{Write, key_item};

/// How many items a sweep looks at.
const STRETCH: i32 = 250;
/// Far longer than any turn takes.
const YOUNG: SignedDuration = SignedDuration::from_hours(24);
/// How many owners are asked at a time.
const CONCURRENT: usize = 8;
const FILTER: &str = "attribute_exists(owners) OR (begins_with(pk, :invocation) AND begins_with(sk, :piece)) \
    OR (attribute_exists(invocation_id) AND phase = :waiting)";

/// An item that may be of no use, and who could tell.
enum Found {
    /// A chunk of the blob of that address.
    Chunk {
        key: Key,
        written_at: Timestamp,
        address: String,
        owners: Vec<Key>,
    },
    /// A piece of a list of that invocation.
    Piece {
        key: Key,
        written_at: Timestamp,
        owner: Key,
    },
    Wait {
        key: Key,
        invocation_id: InvocationId,
        generation: u64,
    },
}

impl DynamoDbStateStore {
    pub(super) async fn collect_stretch(&self, now: Timestamp, cursor: Option<&str>) -> Result<Collected, StoreError> {
        let start = cursor.map(parse_cursor).transpose()?;
        let (items, last) = self.config.retry.run(|| self.stretch(start.as_ref())).await?;
        let old = now - YOUNG;
        let found: Vec<Found> =
            items.iter().map(|item| found(item, old)).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let owners = self.owners(&found).await?;
        let waits = self.waits(&found).await?;
        let useless = found.iter().filter(|found| match found {
            Found::Chunk { address, owners: keys, .. } => {
                !keys.iter().any(|key| owners.get(key).is_some_and(|owner| refers_to(owner, address)))
            }
            Found::Piece { owner, .. } => !owners.contains_key(owner),
            Found::Wait { key, .. } => waits.contains(key),
        });
        let removals: Vec<Write> = useless.map(removal).collect();
        let removed = removals.len();
        self.put_all(removals).await?;
        Ok(Collected { removed, next: last.as_ref().map(cursor_of) })
    }

    async fn stretch(&self, start: Option<&Key>) -> Result<(Vec<Item>, Option<Key>), Fault> {
        let attributes = [PK, SK, OWNERS, WRITTEN_AT, INVOCATION_ID, GENERATION].join(", ");
        let request = self.client.scan().table_name(&self.table).limit(STRETCH).projection_expression(attributes);
        let request = request.filter_expression(FILTER);
        let request = request.expression_attribute_values(":invocation", text_value(keys::invocation_prefix()));
        let request = request.expression_attribute_values(":piece", text_value(PIECE));
        let request = request.expression_attribute_values(":waiting", text_value(WAITING));
        let answer = request.set_exclusive_start_key(start.map(key_item)).send().await;
        let answer = answer.map_err(|error| fault("Scan", &self.table, &error))?;
        let last = answer.last_evaluated_key.as_ref().map(key_of).transpose().map_err(Fault::Lasting)?;
        Ok((answer.items.unwrap_or_default(), last))
    }

    /// The owners of what was found, as far as they exist.
    async fn owners(&self, found: &[Found]) -> Result<HashMap<Key, Item>, StoreError> {
        let keys: BTreeSet<&Key> = found.iter().flat_map(Found::owners).collect();
        let load = async |key: &Key| Ok(self.get_item(key.clone()).await?.map(|item| (key.clone(), item)));
        let loaded: Vec<_> = stream::iter(keys).map(load).buffer_unordered(CONCURRENT).try_collect().await?;
        Ok(loaded.into_iter().flatten().collect())
    }

    /// The signals among what was found for which nobody waits.
    async fn waits(&self, found: &[Found]) -> Result<BTreeSet<Key>, StoreError> {
        let waits: Vec<_> = found.iter().filter_map(Found::waiter).collect();
        let mut over = BTreeSet::new();
        for some in waits.chunks(100) {
            let ids: Vec<InvocationId> = some.iter().map(|(_, id)| (*id).clone()).collect();
            let glances = self.glance_at(&ids).await?;
            let ended = some.iter().zip(glances).filter(|(_, glance)| {
                glance.as_ref().is_none_or(|glance| glance.standing == dormouse_ports::Standing::Ended)
            });
            over.extend(ended.map(|((key, _), _)| (*key).clone()));
        }
        Ok(over)
    }
}

impl Found {
    fn owners(&self) -> &[Key] {
        match self {
            Self::Chunk { owners, .. } => owners,
            Self::Piece { owner, .. } => std::slice::from_ref(owner),
            Self::Wait { .. } => &[],
        }
    }

    fn waiter(&self) -> Option<(&Key, &InvocationId)> {
        match self {
            Self::Wait { key, invocation_id, .. } => Some((key, invocation_id)),
            Self::Chunk { .. } | Self::Piece { .. } => None,
        }
    }
}

/// What `item` is; nothing when it is too young, or does not say how old it is.
fn found(item: &Item, old: Timestamp) -> Result<Option<Found>, StoreError> {
    let key = key_of(item)?;
    if item.contains_key(INVOCATION_ID) {
        let invocation_id = text(item, INVOCATION_ID)?.into();
        return Ok(Some(Found::Wait { key, invocation_id, generation: number(item, GENERATION)? }));
    }
    let Some(written_at) = optional_time(item, WRITTEN_AT)?.filter(|at| *at <= old) else { return Ok(None) };
    match (keys::blob_of(&key.pk), keys::invocation_id(&key.pk)) {
        (Some(address), _) => {
            let owners: Vec<(String, String)> = serde_json::from_str(text(item, OWNERS)?)
                .map_err(|error| StoreError::Corrupt(format!("{OWNERS}: {error}")))?;
            let owners = owners.into_iter().map(|(pk, sk)| Key { pk, sk }).collect();
            Ok(Some(Found::Chunk { address: address.to_owned(), key, written_at, owners }))
        }
        (None, Some(id)) => Ok(Some(Found::Piece { key, written_at, owner: Key::invocation(&id) })),
        (None, None) => Ok(None),
    }
}

/// Whether an attribute of `owner` refers to the blob of that address.
fn refers_to(owner: &Item, address: &str) -> bool {
    let refers = |text: &String| BlobRef::parse(text).is_ok_and(|reference| reference.address() == address);
    owner.values().filter_map(|value| value.as_s().ok()).any(refers)
}

/// Removes an item that is still as it was found.
fn removal(found: &Found) -> Write {
    match found {
        Found::Chunk { key, written_at, .. } | Found::Piece { key, written_at, .. } => {
            Write::delete(key).when("written_at = :written").with(":written", time_value(*written_at))
        }
        Found::Wait { key, invocation_id, generation } => Write::delete(key)
            .when("phase = :waiting AND invocation_id = :waiter AND generation = :generation")
            .with(":waiting", text_value(WAITING))
            .with(":waiter", text_value(invocation_id.as_str()))
            .with(":generation", number_value(*generation)),
    }
}
