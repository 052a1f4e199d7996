//! The index of what sleeps, spread over shards; within a shard in the order of falling due.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::{InvocationId, Page, PausedInvocation, PendingRow, StoreError};
use jiff::Timestamp;

use super::DynamoDbStateStore;
use super::fault::{Fault, fault};
use super::item::{Item, number, number_value, optional_time, text, text_value, time_value};
use super::keys::{self, DUE_AT, GENERATION, INVOCATION_ID, Key, PENDING_SHARDS, SK};
use super::write::{Write, key_item};

/// Where a listing goes on: in which shard, behind which row.
type Position = (u8, Option<String>);

impl DynamoDbStateStore {
    pub(super) async fn query_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        let mut position = cursor.map_or(Ok((0, None)), parse_cursor)?;
        loop {
            let (rows, last) = self.config.retry.run(|| self.query_once(due_by, &position)).await?;
            let next = match last {
                Some(row) => Some((position.0, Some(row))),
                None if position.0 + 1 < PENDING_SHARDS => Some((position.0 + 1, None)),
                None => None,
            };
            match next {
                Some(next) if rows.is_empty() => position = next,
                next => {
                    let items = rows.iter().map(pending_row).collect::<Result<_, _>>()?;
                    return Ok(Page { items, next: next.as_ref().map(cursor_of) });
                }
            }
        }
    }

    async fn query_once(
        &self,
        due_by: Option<Timestamp>,
        (shard, after): &Position,
    ) -> Result<(Vec<Item>, Option<String>), Fault> {
        let pk = keys::pending_shard(*shard);
        let request = self.client.query().table_name(&self.table).consistent_read(true).limit(self.config.page_size);
        let request = request.expression_attribute_values(":pk", text_value(&pk));
        let request = match due_by {
            Some(limit) => request
                .key_condition_expression("pk = :pk AND sk < :bound")
                .expression_attribute_values(":bound", text_value(keys::pending_bound(limit))),
            None => request.key_condition_expression("pk = :pk"),
        };
        let start = after.as_ref().map(|sk| key_item(&Key { pk, sk: sk.clone() }));
        let answer = request.set_exclusive_start_key(start).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table, &error))?;
        let last = answer.last_evaluated_key.as_ref().map(|key| text(key, SK).map(str::to_owned)).transpose();
        Ok((answer.items.unwrap_or_default(), last.map_err(Fault::Lasting)?))
    }
}

fn pending_row(item: &Item) -> Result<PendingRow, StoreError> {
    Ok(PendingRow {
        invocation_id: text(item, INVOCATION_ID).map(InvocationId::from)?,
        generation: number(item, GENERATION)?,
        due_at: optional_time(item, DUE_AT)?,
    })
}

/// Adds the row of `paused`.
pub(super) fn row_write(paused: &PausedInvocation) -> Write {
    let mut item = Item::from([
        (INVOCATION_ID.to_owned(), text_value(paused.invocation_id.as_str())),
        (GENERATION.to_owned(), number_value(paused.generation)),
    ]);
    if let Some(due) = &paused.wake.due {
        item.insert(DUE_AT.to_owned(), time_value(due.at));
    }
    Write::put(&Key::pending(paused), item)
}

/// Removes the row of `paused`.
pub(super) fn row_removal(paused: &PausedInvocation) -> Write {
    Write::delete(&Key::pending(paused))
}

fn cursor_of(position: &Position) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::json!([position.0, position.1]).to_string())
}

fn parse_cursor(cursor: &str) -> Result<Position, StoreError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let position: Option<Position> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    position
        .filter(|(shard, _)| *shard < PENDING_SHARDS)
        .ok_or_else(|| StoreError::Invalid(format!("{cursor:?} is not a cursor of this listing")))
}
