//! What sweeps and repairs ask of the table: a glance at many invocations, and small changes of the indexes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use dormouse_ports::{BufferedSignal, Glance, InvocationId, PendingRow, SignalId, StoreError, Upkeep};

use super::DynamoDbStateStore;
use super::fault::{Fault, fault};
use super::item::{Item, number, number_value, text, text_value, time, time_value, ttl_value};
use super::keys::{
    self, CLAIM_UNTIL, GENERATION, Key, PHASE, PK, POSITION, RECEIVED_AT, REGISTERED, SIGNAL_ID, SK, TTL,
};
use super::write::{Write, key_item};
use super::{invocation, pending, signal};

impl DynamoDbStateStore {
    pub(super) async fn glance_at(&self, ids: &[InvocationId]) -> Result<Vec<Option<Glance>>, StoreError> {
        let mut found: HashMap<InvocationId, Glance> = HashMap::new();
        let mut left: Vec<Item> = Vec::new();
        for id in ids {
            let key = key_item(&Key::invocation(id));
            if !left.contains(&key) {
                left.push(key);
            }
        }
        while !left.is_empty() {
            let (items, unread) = self.config.retry.run(|| self.batch_once(&left)).await?;
            for item in &items {
                let id = keys::invocation_id(text(item, PK)?);
                let id = id.ok_or_else(|| StoreError::Corrupt("an invocation has another key".to_owned()))?;
                found.insert(id, glance_of(item)?);
            }
            left = unread;
        }
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    /// What is read of `keys`, and which of them have to be asked for again; at least one is read.
    async fn batch_once(&self, keys: &[Item]) -> Result<(Vec<Item>, Vec<Item>), Fault> {
        let attributes = [PK, SK, PHASE, GENERATION, CLAIM_UNTIL].join(", ");
        let wanted = KeysAndAttributes::builder().set_keys(Some(keys.to_vec())).consistent_read(true);
        let wanted = wanted.projection_expression(attributes).build();
        let wanted = wanted.map_err(|error| Fault::Lasting(StoreError::Invalid(error.to_string())))?;
        let answer = self.client.batch_get_item().request_items(&self.table, wanted).send().await;
        let answer = answer.map_err(|error| fault("BatchGetItem", &self.table, &error))?;
        let items = answer.responses.and_then(|mut tables| tables.remove(&self.table)).unwrap_or_default();
        let unread = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
        let unread = unread.map(|rest| rest.keys).unwrap_or_default();
        if items.is_empty() && unread.len() == keys.len() {
            return Err(Fault::Passing(StoreError::Unavailable("the table is throttling".to_owned())));
        }
        Ok((items, unread))
    }

    pub(super) async fn read_position(&self, lane: &str) -> Result<Option<String>, StoreError> {
        let item = self.get_item(Key::position(lane)).await?;
        item.map(|item| text(&item, POSITION).map(str::to_owned)).transpose()
    }

    pub(super) async fn keep_up(&self, upkeep: &Upkeep) -> Result<(), StoreError> {
        let write = match upkeep {
            Upkeep::Registered(row) => Write::update(&row_key(row), format!("SET {REGISTERED} = :yes"))
                .when("generation = :generation")
                .with(":yes", AttributeValue::Bool(true))
                .with(":generation", number_value(row.generation)),
            Upkeep::Ended(row) => Write::delete(&row_key(row))
                .when("generation = :generation")
                .with(":generation", number_value(row.generation)),
            Upkeep::Row(paused) => pending::row_write(paused).when("attribute_not_exists(pk)"),
            Upkeep::Wait(paused) => {
                for id in paused.awaited() {
                    self.put_plainly(signal::rewait_write(paused, id)).await?;
                }
                return Ok(());
            }
            Upkeep::Unparked(row) => Write::delete(&Key::parked(&row.signal_id, row.received_at)),
            Upkeep::Position { lane, position: Some(position) } => {
                Write::put(&Key::position(lane), Item::from([(POSITION.to_owned(), text_value(position))]))
            }
            Upkeep::Position { lane, position: None } => Write::delete(&Key::position(lane)),
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

fn row_key(row: &PendingRow) -> Key {
    Key::pending_at(&row.invocation_id, row.due_at)
}

fn glance_of(item: &Item) -> Result<Glance, StoreError> {
    let until = || time(item, CLAIM_UNTIL);
    Ok(Glance { generation: number(item, GENERATION)?, standing: invocation::standing(text(item, PHASE)?, until)? })
}
