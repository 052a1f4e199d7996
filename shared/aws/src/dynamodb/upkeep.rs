//! Requests of sweeps and repairs to the table: a glance at many invocations, and small changes of the indexes.

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{BufferedSignal, IndexRepair, InvocationId, InvocationSummary, PendingRow, SignalId, StoreError};
use jiff::Timestamp;

use super::DynamoDbStateStore;
use super::item::{Item, number, number_value, text, text_value, time_value, ttl_value};
use super::keys::{
    CLAIM_LANE, CLAIM_SINCE, CLAIM_UNTIL, GENERATION, Key, PHASE, PK, POSITION, RECEIVED_AT, REGISTERED, SHAPE,
    SIGNAL_ID, SK, TTL,
};
use super::write::Write;
use super::{invocation, pending, signal};

impl DynamoDbStateStore {
    pub(super) async fn glance_at(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        let keys: Vec<Key> = ids.iter().map(Key::invocation).collect();
        let attributes = [PK, SK, PHASE, GENERATION, CLAIM_LANE, CLAIM_SINCE, CLAIM_UNTIL].join(", ");
        let found = self.get_items(&keys, Some(&attributes)).await?;
        keys.iter().map(|key| found.get(key).map(glance_of).transpose()).collect()
    }

    pub(super) async fn read_note(&self, name: &str) -> Result<Option<String>, StoreError> {
        let item = self.get_item(Key::position(name)).await?;
        item.map(|item| text(&item, POSITION).map(str::to_owned)).transpose()
    }

    pub(super) async fn repair_index(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        let write = match repair {
            IndexRepair::Registered(row) => registered(row),
            IndexRepair::Ended(row) => Write::delete(&row_key(row))
                .when("generation = :generation")
                .with(":generation", number_value(row.generation)),
            IndexRepair::Row(paused) => {
                pending::row_write(paused, self.config.wakes_by_index).when("attribute_not_exists(pk)")
            }
            IndexRepair::Wait(paused) => {
                for id in paused.waits() {
                    self.put_plainly(signal::rewait_write(paused, &id)).await?;
                }
                return Ok(());
            }
            IndexRepair::Unparked(row) => Write::delete(&Key::parked(&row.signal_id, row.received_at)),
        };
        self.put_plainly(write).await
    }

    /// Notes that `signal` was parked. Its row goes away with it, or when a sweep finds that it was claimed.
    pub(super) async fn note_parked(&self, id: &SignalId, signal: &BufferedSignal) -> Result<(), StoreError> {
        let item = Item::from([
            (SIGNAL_ID.to_owned(), text_value(id.as_str())),
            (RECEIVED_AT.to_owned(), time_value(signal.received_at)),
            (TTL.to_owned(), ttl_value(signal.expires_at)),
        ]);
        self.put_plainly(Write::put(&Key::parked(id, signal.received_at), item)).await
    }
}

/// Puts the note `name`, or removes it where there is no text.
pub(super) fn note_write(name: &str, text: Option<&str>, until: Option<Timestamp>) -> Write {
    let Some(text) = text else { return Write::delete(&Key::position(name)) };
    let mut item = Item::from([(POSITION.to_owned(), text_value(text))]);
    item.extend(until.map(|until| (TTL.to_owned(), ttl_value(until))));
    Write::put(&Key::position(name), item)
}

fn row_key(row: &PendingRow) -> Key {
    Key::pending_at(&row.invocation_id, row.due_at)
}

fn registered(row: &PendingRow) -> Write {
    let (also, rule) = match pending::rule_value(&row.rule) {
        Some(rule) => (format!(", {SHAPE} = :rule"), Some(rule)),
        None => (String::new(), None),
    };
    let write = Write::update(&row_key(row), format!("SET {REGISTERED} = :yes{also}"))
        .when("generation = :generation")
        .with(":yes", AttributeValue::Bool(true))
        .with(":generation", number_value(row.generation));
    rule.into_iter().fold(write, |write, rule| write.with(":rule", rule))
}

fn glance_of(item: &Item) -> Result<InvocationSummary, StoreError> {
    Ok(InvocationSummary { generation: number(item, GENERATION)?, standing: invocation::standing(item)? })
}
