//! The indexes of suspended invocations and of parked signals, spread over shards; within a shard in the order of time.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::{
    InvocationId, Page, ParkedRow, PausedInvocation, PendingRow, RuleNeed, ShapeId, SignalId, StoreError, Surroundings,
};
use jiff::Timestamp;

use super::fault::{RequestFault, fault};
use super::item::{Item, number, number_value, optional_text, optional_time, text, text_value, time, time_value};
use super::keys::{
    self, DUE_AT, GENERATION, INVOCATION_ID, Key, LEASE_UNTIL, PENDING_SHARDS, PK, RECEIVED_AT, REGISTERED, SHAPE,
    SIGNAL_ID, SINCE, SK,
};
use super::requests::Table;
use super::signal::SignalItems;
use super::write::{ItemWrite, key_item};

/// Position of a listing: the shard, and the row behind which it goes on.
type ListingPosition = (u8, Option<String>);

/// What sleeps, what nobody works on, and the signals that are parked: the indexes that sweeps read.
#[derive(Clone)]
pub(super) struct SleeperIndex {
    pub(super) table: Arc<Table>,
    /// See [`StoreConfig::wakes_by_index`](super::StoreConfig::wakes_by_index).
    pub(super) wakes_by_index: bool,
    /// See [`StoreConfig::registered_at`](super::StoreConfig::registered_at).
    pub(super) registered_at: Option<String>,
}

impl SleeperIndex {
    pub(super) async fn pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        let bound = due_by.map(keys::pending_bound);
        self.query_shards(keys::pending_shard, bound.as_deref(), cursor, |item| self.read_row(item)).await
    }

    pub(super) async fn row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        let row =
            self.table.get_item(Key::pending(paused)).await?.as_ref().map(|item| self.read_row(item)).transpose()?;
        Ok(row.filter(|row| row.generation == paused.generation))
    }

    pub(super) async fn parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.query_shards(keys::parked_shard, None, cursor, parked_row).await
    }

    async fn query_shards<T>(
        &self,
        partition: fn(u8) -> String,
        bound: Option<&str>,
        cursor: Option<&str>,
        read: impl Fn(&Item) -> Result<T, StoreError>,
    ) -> Result<Page<T>, StoreError> {
        let mut position = cursor.map_or(Ok((0, None)), parse_cursor)?;
        loop {
            let (rows, last) = self.table.retry.run(|| self.query_once(partition, bound, &position)).await?;
            let next = match last {
                Some(row) => Some((position.0, Some(row))),
                None if position.0 + 1 < PENDING_SHARDS => Some((position.0 + 1, None)),
                None => None,
            };
            match next {
                Some(next) if rows.is_empty() => position = next,
                next => {
                    let items = readable(&rows, &read)?;
                    return Ok(Page { items, next: next.as_ref().map(cursor_of) });
                }
            }
        }
    }

    async fn query_once(
        &self,
        partition: fn(u8) -> String,
        bound: Option<&str>,
        (shard, after): &ListingPosition,
    ) -> Result<(Vec<Item>, Option<String>), RequestFault> {
        let pk = partition(*shard);
        let request = self.table.query().consistent_read(true).limit(self.table.page_size);
        let request = request.expression_attribute_values(":pk", text_value(&pk));
        let request = match bound {
            Some(bound) => request
                .key_condition_expression("pk = :pk AND sk < :bound")
                .expression_attribute_values(":bound", text_value(bound)),
            None => request.key_condition_expression("pk = :pk"),
        };
        let start = after.as_ref().map(|sk| key_item(&Key { pk, sk: sk.clone() }));
        let answer = request.set_exclusive_start_key(start).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table.name, &error))?;
        let last = answer.last_evaluated_key.as_ref().map(|key| text(key, SK).map(str::to_owned)).transpose();
        Ok((answer.items.unwrap_or_default(), last.map_err(RequestFault::Permanent)?))
    }

    fn read_row(&self, item: &Item) -> Result<PendingRow, StoreError> {
        let due_at = optional_time(item, DUE_AT)?;
        Ok(PendingRow {
            invocation_id: text(item, INVOCATION_ID).map(InvocationId::from)?,
            generation: number(item, GENERATION)?,
            due_at,
            since: optional_time(item, SINCE)?,
            registered: item.get(REGISTERED).is_some_and(|noted| due_at.is_none() || self.is_here(noted)),
            rule: match optional_text(item, SHAPE) {
                None => RuleNeed::Unknown,
                Some("") => RuleNeed::Nothing,
                Some(shape) => ShapeId::parse(shape).map_or(RuleNeed::Unknown, RuleNeed::Shape),
            },
        })
    }

    /// True if a wake-up that is `noted` as registered is so at the place of this store.
    fn is_here(&self, noted: &AttributeValue) -> bool {
        match &self.registered_at {
            Some(place) => noted.as_s().is_ok_and(|noted| noted == place),
            None => true,
        }
    }

    /// The note that a wake-up is registered.
    pub(super) fn registered_note(&self) -> AttributeValue {
        self.registered_at.as_ref().map_or(AttributeValue::Bool(true), text_value)
    }
}

/// All that surrounds pauses.
#[derive(Clone)]
pub(super) struct PauseReader {
    pub(super) sleepers: SleeperIndex,
    pub(super) signals: SignalItems,
}

impl PauseReader {
    /// Three requests for a hundred pauses, and one more for each hundred signals beyond.
    pub(super) async fn surroundings(
        &self,
        paused: &[&PausedInvocation],
        now: Timestamp,
    ) -> Result<Vec<Surroundings>, StoreError> {
        let table = &self.sleepers.table;
        let keys: Vec<Key> = paused.iter().map(|paused| Key::pending(paused)).collect();
        let rows = table.get_items(&keys, None).await?;
        let awaited: Vec<Key> = paused.iter().flat_map(|paused| paused.waits()).map(|id| Key::signal(&id)).collect();
        let signals = table.get_items(&awaited, None).await?;
        let sessions: Vec<Key> =
            paused.iter().filter_map(|paused| paused.session_id.as_ref()).map(Key::session).collect();
        let sessions = table.get_items(&sessions, Some(&[PK, SK, LEASE_UNTIL].join(", "))).await?;
        let mut all = Vec::new();
        for paused in paused {
            let row = rows.get(&Key::pending(paused)).map(|item| self.sleepers.read_row(item)).transpose()?;
            let mut found =
                Surroundings { row: row.filter(|row| row.generation == paused.generation), ..Surroundings::default() };
            for id in paused.waits() {
                let state = match signals.get(&Key::signal(&id)) {
                    Some(item) => self.signals.record(&id, item, now).await?.map(|record| record.state),
                    None => None,
                };
                found.signals.push((id, state));
            }
            let head = paused.session_id.as_ref().and_then(|session| sessions.get(&Key::session(session)));
            found.leased_until = head.map(|head| optional_time(head, LEASE_UNTIL)).transpose()?.flatten();
            all.push(found);
        }
        Ok(all)
    }
}

/// The stored form of the rule that a pause needs.
pub(super) fn rule_value(need: &RuleNeed) -> Option<AttributeValue> {
    match need {
        RuleNeed::Unknown => None,
        RuleNeed::Nothing => Some(text_value("")),
        RuleNeed::Shape(shape) => Some(text_value(shape.as_str())),
    }
}

/// What is `read` of those of `items` that can be read. One that cannot be keeps no sweep from the others: the log has its key.
pub(super) fn readable<T>(items: &[Item], read: impl Fn(&Item) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    for item in items {
        match read(item) {
            Ok(one) => all.push(one),
            Err(StoreError::Corrupt(reason)) => {
                let key = |name: &str| optional_text(item, name).unwrap_or_default().to_owned();
                let (pk, sk) = (key(PK), key(SK));
                tracing::error!(
                    pk,
                    sk,
                    reason,
                    "an index leaves out an item that cannot be read; this line has its key"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn parked_row(item: &Item) -> Result<ParkedRow, StoreError> {
    Ok(ParkedRow { signal_id: text(item, SIGNAL_ID).map(SignalId::from)?, received_at: time(item, RECEIVED_AT)? })
}

/// Adds the row of `paused`; with `is_registered` it counts as registered in any case.
pub(super) fn row_write(paused: &PausedInvocation, is_registered: bool) -> ItemWrite {
    let mut item = Item::from([
        (SINCE.to_owned(), time_value(paused.suspended_at)),
        (INVOCATION_ID.to_owned(), text_value(paused.invocation_id.as_str())),
        (GENERATION.to_owned(), number_value(paused.generation)),
    ]);
    if let Some(due) = &paused.wake.due {
        item.insert(DUE_AT.to_owned(), time_value(due.at));
    }
    let row = PendingRow::of(paused);
    item.extend(rule_value(&row.rule).map(|value| (SHAPE.to_owned(), value)));
    if row.registered || is_registered {
        item.insert(REGISTERED.to_owned(), AttributeValue::Bool(true));
    }
    ItemWrite::put(&Key::pending(paused), item)
}

/// Removes the row of `paused`.
pub(super) fn row_removal(paused: &PausedInvocation) -> ItemWrite {
    ItemWrite::delete(&Key::pending(paused))
}

fn cursor_of(position: &ListingPosition) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::json!([position.0, position.1]).to_string())
}

fn parse_cursor(cursor: &str) -> Result<ListingPosition, StoreError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let position: Option<ListingPosition> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    position
        .filter(|(shard, _)| *shard < PENDING_SHARDS)
        .ok_or_else(|| StoreError::Invalid(format!("{cursor:?} is not a cursor of this listing")))
}
