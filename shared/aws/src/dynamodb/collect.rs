//! Removing items that nothing refers to any more.
//!
//! A sweep looks at [`STRETCH`] items of the table, in no order, and goes on behind them the next time. It finds:
//!
//! - a chunk of a blob (`blobs`) that none of its owners refers to;
//! - a piece of a list (`segments`) of an invocation that is gone;
//! - a piece of a list of a session that was deleted, when no invocation refers to the session's pieces any more. A
//!   round notes each deleted session that has pieces, and each one with pieces to which an invocation refers; a piece
//!   goes when its session was noted a day before the round before this one began, and no such invocation was seen
//!   since;
//! - a signal that waits for an invocation that ended, or is gone.
//!
//! An item that cannot be read stays, with all that it may refer to: a newer version, or an operator, will make sense
//! of it.
//!
//! # Invariants
//! - Nothing younger than [`YOUNG`] is removed: its writer may be about to refer to it. A writer puts each item that it
//!   will refer to once more, which makes it young again, and a removal demands that its item is as old as it was
//!   found.
//! - An invocation refers to pieces that it did not write only from its first pause on, and had loaded the session
//!   before: a day after a session was deleted no new ones come. Those that there are stand in the table during all of
//!   a round, and are seen in it.
//! - Items of the first versions name neither owners nor their age, and stay.
//!
//! # Cost
//! Nothing while a turn is running: age and owners are written with the items that they are about. A stretch is one
//! request of at most 1 MB, eventually consistent: up to 128 read units, and one for each owner of an item that is kept
//! apart. A round takes a million sleepers, with three items each, eight days at a sweep a minute.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dormouse_ports::{GcReport, InvocationId, InvocationPhase, PausedInvocation, SessionId, StoreError};
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};

use super::blobs::{BlobRef, Bodies};
use super::fault::{RequestFault, fault};
use super::invocation::InvocationItems;
use super::item::{Item, number, number_value, optional_time, text, text_value, time, time_value, ttl_value};
use super::keys::{self, GENERATION, INVOCATION_ID, Key, LIST_REFS, OWNERS, PAUSE, PIECE, PK, SK, TTL, WRITTEN_AT};
use super::requests::{CONCURRENT, Table};
use super::scan::key_of;
use super::signal::WAITING;
use super::write::{ItemWrite, key_item};

/// Number of items that a sweep looks at.
const STRETCH: i32 = 250;
/// Far longer than any turn takes.
const YOUNG: SignedDuration = SignedDuration::from_hours(24);
/// Characters of the digest with which the address of a blob begins.
const DIGEST: usize = 64;
/// Duration for which a note of a deleted session is kept, if it is not noted again.
const NOTED: SignedDuration = SignedDuration::from_hours(90 * 24);
const FILTER: &str = "attribute_exists(owners) OR begins_with(sk, :piece) \
    OR (sk = :paused AND attribute_exists(list_refs)) OR (attribute_exists(invocation_id) AND phase = :waiting)";

/// Beginning of the round before this one, and of this one; the item behind which it goes on. A round that has not
/// begun has no beginning.
type RoundPosition = (Option<Timestamp>, Option<Timestamp>, Option<(String, String)>);

/// An item that may be of no use, with the keys of the records that decide it.
enum GarbageCandidate {
    /// A chunk of the blob of that address.
    Chunk { key: Key, written_at: Timestamp, address: String, owners: Vec<Key> },
    /// A piece of a list of that invocation or session.
    Piece { key: Key, written_at: Timestamp, owner: Key },
    /// An invocation that refers to the pieces of a session.
    Root { session: SessionId, head: Key },
    /// An invocation that refers to the pieces of an unknown session.
    Riddle,
    /// A signal that leads to that pause.
    Wait { key: Key, invocation_id: InvocationId, generation: u64 },
}

/// Removes what nothing refers to any more.
#[derive(Clone)]
pub(super) struct GarbageCollector {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
    pub(super) invocations: InvocationItems,
}

impl GarbageCollector {
    pub(super) async fn collect(&self, now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError> {
        let (before, began, start) = cursor.map_or(Ok((None, None, None)), parse_place)?;
        let began = began.unwrap_or(now);
        let start = start.map(|(pk, sk)| Key { pk, sk });
        let (items, last) = self.table.retry.run(|| self.stretch(start.as_ref())).await?;
        let mut found = Vec::new();
        for item in &items {
            match self.found(item, now - YOUNG).await {
                Ok(one) => found.extend(one),
                Err(error @ StoreError::Corrupt(_)) => {
                    tracing::warn!(%error, "the collector leaves an item in the table that it cannot read");
                    found.extend(item.contains_key(LIST_REFS).then_some(GarbageCandidate::Riddle));
                }
                Err(error) => return Err(error),
            }
        }
        let owners = self.owners(&found).await?;
        let waits = self.waits(&found).await?;
        let deleted = self.deleted_sessions(&found, &owners, (before, now)).await?;
        let useless = found.iter().filter(|found| match found {
            GarbageCandidate::Chunk { address, owners: keys, .. } => {
                !keys.iter().any(|key| owners.get(key).is_some_and(|owner| refers_to(owner, address)))
            }
            GarbageCandidate::Piece { owner, .. } => match keys::session_id(&owner.pk) {
                Some(session) => deleted.contains(&session),
                None => !owners.contains_key(owner),
            },
            GarbageCandidate::Wait { key, .. } => waits.contains(key),
            GarbageCandidate::Root { .. } | GarbageCandidate::Riddle => false,
        });
        let removals: Vec<ItemWrite> = useless.filter_map(removal).collect();
        let removed = removals.len();
        self.table.put_all(removals).await?;
        let next = match &last {
            Some(key) => (before, Some(began), Some((key.pk.clone(), key.sk.clone()))),
            None => (Some(began), None, None),
        };
        Ok(GcReport { removed, next: Some(serde_json::json!(next).to_string()), done: last.is_none() })
    }

    /// Notes the findings about deleted sessions. Returns those of them with pieces to which nothing refers any more.
    async fn deleted_sessions(
        &self,
        found: &[GarbageCandidate],
        owners: &HashMap<Key, Item>,
        (before, now): (Option<Timestamp>, Timestamp),
    ) -> Result<BTreeSet<SessionId>, StoreError> {
        let mut roots = BTreeSet::new();
        let mut pieces = BTreeSet::new();
        for found in found {
            match found {
                GarbageCandidate::Root { session, head } if !owners.contains_key(head) => {
                    roots.extend([session.clone()]);
                }
                GarbageCandidate::Piece { owner, .. } if !owners.contains_key(owner) => {
                    pieces.extend(keys::session_id(&owner.pk));
                }
                GarbageCandidate::Riddle => self.table.put_plainly(note(&Key::riddle(), now)).await?,
                GarbageCandidate::Root { .. }
                | GarbageCandidate::Piece { .. }
                | GarbageCandidate::Chunk { .. }
                | GarbageCandidate::Wait { .. } => {}
            }
        }
        self.table.put_all(roots.iter().map(|session| note(&Key::root(session), now)).collect()).await?;
        let riddle = if pieces.is_empty() { None } else { self.noted(Key::riddle()).await? };
        let mut over = BTreeSet::new();
        for session in &pieces {
            let Some(headless) = self.table.get_item(Key::headless(session)).await? else {
                self.table.put_plainly(note(&Key::headless(session), now)).await?;
                continue;
            };
            let since = time(&headless, WRITTEN_AT)?;
            let seen = self.noted(Key::root(session)).await?.max(riddle);
            if before.is_some_and(|before| since <= before - YOUNG && seen.is_none_or(|seen| seen < before)) {
                over.insert(session.clone());
            }
        }
        Ok(over)
    }

    /// Instant at which `key` was noted last.
    async fn noted(&self, key: Key) -> Result<Option<Timestamp>, StoreError> {
        self.table.get_item(key).await?.map(|item| time(&item, WRITTEN_AT)).transpose()
    }

    async fn stretch(&self, start: Option<&Key>) -> Result<(Vec<Item>, Option<Key>), RequestFault> {
        let attributes = [PK, SK, OWNERS, WRITTEN_AT, INVOCATION_ID, GENERATION, LIST_REFS, PAUSE].join(", ");
        let request =
            self.table.client.scan().table_name(&self.table.name).limit(STRETCH).projection_expression(attributes);
        let request = request.filter_expression(FILTER);
        let request = request.expression_attribute_values(":paused", text_value(keys::PAUSED));
        let request = request.expression_attribute_values(":piece", text_value(PIECE));
        let request = request.expression_attribute_values(":waiting", text_value(WAITING));
        let answer = request.set_exclusive_start_key(start.map(key_item)).send().await;
        let answer = answer.map_err(|error| fault("Scan", &self.table.name, &error))?;
        let last = answer.last_evaluated_key.as_ref().map(key_of).transpose().map_err(RequestFault::Permanent)?;
        Ok((answer.items.unwrap_or_default(), last))
    }

    async fn found(&self, item: &Item, old: Timestamp) -> Result<Option<GarbageCandidate>, StoreError> {
        let key = key_of(item)?;
        if item.contains_key(INVOCATION_ID) {
            let invocation_id = text(item, INVOCATION_ID)?.into();
            return Ok(Some(GarbageCandidate::Wait { key, invocation_id, generation: number(item, GENERATION)? }));
        }
        if item.contains_key(LIST_REFS) {
            let paused: PausedInvocation = self.bodies.body(item, PAUSE).await?;
            let root =
                paused.session_id.map(|session| GarbageCandidate::Root { head: Key::session(&session), session });
            return Ok(root);
        }
        found_apart(item, key, old)
    }

    /// The owners of the found items, as far as they exist.
    async fn owners(&self, found: &[GarbageCandidate]) -> Result<HashMap<Key, Item>, StoreError> {
        let keys: BTreeSet<&Key> = found.iter().flat_map(GarbageCandidate::owners).collect();
        let load = async |key: &Key| Ok(self.table.get_item(key.clone()).await?.map(|item| (key.clone(), item)));
        let loaded: Vec<_> = stream::iter(keys).map(load).buffer_unordered(CONCURRENT).try_collect().await?;
        Ok(loaded.into_iter().flatten().collect())
    }

    /// The signals among the found items for which no invocation waits.
    async fn waits(&self, found: &[GarbageCandidate]) -> Result<BTreeSet<Key>, StoreError> {
        let waits: Vec<_> = found.iter().filter_map(GarbageCandidate::waiter).collect();
        let mut over = BTreeSet::new();
        for some in waits.chunks(100) {
            let ids: Vec<InvocationId> = some.iter().map(|(_, id)| (*id).clone()).collect();
            for ((key, id), glance) in some.iter().zip(self.invocations.glance_at_each(&ids).await?) {
                let is_over = match glance {
                    Ok(glance) => glance.is_none_or(|glance| glance.standing == InvocationPhase::Ended),
                    Err(error) => {
                        tracing::warn!(
                            %error, invocation_id = %id,
                            "the collector leaves the signal of an invocation that it cannot read"
                        );
                        false
                    }
                };
                if is_over {
                    over.insert((*key).clone());
                }
            }
        }
        Ok(over)
    }
}

impl GarbageCandidate {
    fn owners(&self) -> &[Key] {
        match self {
            Self::Chunk { owners, .. } => owners,
            Self::Piece { owner, .. } | Self::Root { head: owner, .. } => std::slice::from_ref(owner),
            Self::Wait { .. } | Self::Riddle => &[],
        }
    }

    fn waiter(&self) -> Option<(&Key, &InvocationId)> {
        match self {
            Self::Wait { key, invocation_id, .. } => Some((key, invocation_id)),
            Self::Chunk { .. } | Self::Piece { .. } | Self::Root { .. } | Self::Riddle => None,
        }
    }
}

/// The finding about `item`; none when it was written after `old`, or has no instant.
fn found_apart(item: &Item, key: Key, old: Timestamp) -> Result<Option<GarbageCandidate>, StoreError> {
    let Some(written_at) = optional_time(item, WRITTEN_AT)?.filter(|at| *at <= old) else { return Ok(None) };
    if let Some(address) = keys::blob_of(&key.pk) {
        let owners: Vec<(String, String)> = serde_json::from_str(text(item, OWNERS)?)
            .map_err(|error| StoreError::Corrupt(format!("{OWNERS}: {error}")))?;
        let owners = owners.into_iter().map(|(pk, sk)| Key { pk, sk }).collect();
        return Ok(Some(GarbageCandidate::Chunk { address: address.to_owned(), key, written_at, owners }));
    }
    let invocation = keys::invocation_id(&key.pk).map(|id| Key::invocation(&id));
    let owner = invocation.or_else(|| keys::session_id(&key.pk).map(|id| Key::session(&id)));
    Ok(owner.map(|owner| GarbageCandidate::Piece { key, written_at, owner }))
}

/// True if an attribute of `owner` refers to the blob of that address, or may do so in a way that cannot be read.
fn refers_to(owner: &Item, address: &str) -> bool {
    let digest = address.get(..DIGEST).unwrap_or(address);
    let refers = |text: &String| match BlobRef::parse(text) {
        Ok(reference) => reference.address() == address,
        Err(_) => text.contains(digest),
    };
    owner.values().filter_map(|value| value.as_s().ok()).any(refers)
}

/// Removes an item that is still as it was found.
fn removal(found: &GarbageCandidate) -> Option<ItemWrite> {
    match found {
        GarbageCandidate::Chunk { key, written_at, .. } | GarbageCandidate::Piece { key, written_at, .. } => {
            Some(ItemWrite::delete(key).when("written_at = :written").with(":written", time_value(*written_at)))
        }
        GarbageCandidate::Wait { key, invocation_id, generation } => {
            let removal = ItemWrite::delete(key)
                .when("phase = :waiting AND invocation_id = :waiter AND generation = :generation")
                .with(":waiting", text_value(WAITING))
                .with(":waiter", text_value(invocation_id.as_str()))
                .with(":generation", number_value(*generation));
            Some(removal)
        }
        GarbageCandidate::Root { .. } | GarbageCandidate::Riddle => None,
    }
}

/// Notes `now` at `key`.
fn note(key: &Key, now: Timestamp) -> ItemWrite {
    let item = Item::from([
        (WRITTEN_AT.to_owned(), time_value(now)),
        (TTL.to_owned(), ttl_value(now.saturating_add(NOTED).unwrap_or(Timestamp::MAX))),
    ]);
    ItemWrite::put(key, item)
}

fn parse_place(cursor: &str) -> Result<RoundPosition, StoreError> {
    serde_json::from_str(cursor).map_err(|_| StoreError::Invalid(format!("{cursor:?} is no place of this listing")))
}
