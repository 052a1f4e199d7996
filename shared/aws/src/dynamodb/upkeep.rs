//! Small changes: repairs of the indexes, and notes.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{IndexRepair, PendingRow, StoreError};
use jiff::Timestamp;

use super::item::{Item, number_value, text, text_value, ttl_value};
use super::keys::{Key, POSITION, REGISTERED, SHAPE, TTL};
use super::pending::SleeperIndex;
use super::requests::Table;
use super::write::ItemWrite;
use super::{pending, signal};

/// Texts that are left for another process.
#[derive(Clone)]
pub(super) struct NoteItems {
    pub(super) table: Arc<Table>,
}

impl NoteItems {
    pub(super) async fn keep(
        &self,
        name: &str,
        text: Option<&str>,
        until: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.table.put_plainly(note_write(name, text, until)).await
    }

    pub(super) async fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        let item = self.table.get_item(Key::position(name)).await?;
        item.map(|item| text(&item, POSITION).map(str::to_owned)).transpose()
    }
}

impl SleeperIndex {
    pub(super) async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        let write = match repair {
            IndexRepair::Registered(row) => registered(row, self.registered_note()),
            IndexRepair::Ended(row) => ItemWrite::delete(&row_key(row))
                .when("generation = :generation")
                .with(":generation", number_value(row.generation)),
            IndexRepair::Row(paused) => {
                pending::row_write(paused, self.wakes_by_index).when("attribute_not_exists(pk)")
            }
            IndexRepair::Wait(paused) => {
                for id in paused.waits() {
                    self.table.put_plainly(signal::rewait_write(paused, &id)).await?;
                }
                return Ok(());
            }
            IndexRepair::Unparked(row) => ItemWrite::delete(&Key::parked(&row.signal_id, row.received_at)),
        };
        self.table.put_plainly(write).await
    }
}

/// Puts the note `name`, or removes it where there is no text.
fn note_write(name: &str, text: Option<&str>, until: Option<Timestamp>) -> ItemWrite {
    let Some(text) = text else { return ItemWrite::delete(&Key::position(name)) };
    let mut item = Item::from([(POSITION.to_owned(), text_value(text))]);
    item.extend(until.map(|until| (TTL.to_owned(), ttl_value(until))));
    ItemWrite::put(&Key::position(name), item)
}

fn row_key(row: &PendingRow) -> Key {
    Key::pending_at(&row.invocation_id, row.due_at)
}

fn registered(row: &PendingRow, note: AttributeValue) -> ItemWrite {
    let (also, rule) = match pending::rule_value(&row.rule) {
        Some(rule) => (format!(", {SHAPE} = :rule"), Some(rule)),
        None => (String::new(), None),
    };
    let write = ItemWrite::update(&row_key(row), format!("SET {REGISTERED} = :note{also}"))
        .when("generation = :generation")
        .with(":note", note)
        .with(":generation", number_value(row.generation));
    rule.into_iter().fold(write, |write, rule| write.with(":rule", rule))
}
