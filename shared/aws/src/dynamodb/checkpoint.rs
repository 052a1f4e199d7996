//! Checkpoints: the latest record of each invocation, beside its pause.
//!
//! Every save replaces the whole item. A large record lives in a blob of its own, written before the item that refers
//! to it. No two records have the same bytes, for each has its own instant: a blob is removed once its record was
//! replaced, and a sweep has to collect only the blobs that a crash leaves behind in between.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, InvocationId, Page, SaveSource, StoreError,
};

use super::blobs::{BlobOrigin, Bodies};
use super::encode::Encoder;
use super::item::{Item, number, number_value, optional_text, text, text_value, time, time_value, ttl_value};
use super::keys::{
    self, CHECKPOINT, CHECKPOINT_SK, COMPLETED_COUNT, CORRELATION_ID, GRAPH_NAME, Key, PK, SAVED_AT, TTL,
};
use super::requests::Table;
use super::scan::ScanSelection;
use super::write::{ItemWrite, WriteOutcome};
use super::{StoreConfig, opened};

/// The [`Checkpointer`] on DynamoDB, in the table of the [`DynamoDbStateStore`](super::DynamoDbStateStore). Every save is durable when it returns,
/// those inside of fan-outs too. State may be any JSON, up to [`StoreConfig::state_limit`] with all that belongs to the
/// record; it can be migrated.
#[derive(Clone, Debug)]
pub struct DynamoDbCheckpointer {
    table: Arc<Table>,
    bodies: Arc<Bodies>,
}

impl DynamoDbCheckpointer {
    /// A checkpointer in the table `table_name`, reached as `client` is configured.
    pub fn new(client: &Client, table_name: impl Into<String>, config: StoreConfig) -> Self {
        let (table, bodies) = opened(client, table_name.into(), config);
        Self { table, bodies }
    }

    async fn read(&self, id: &InvocationId) -> Result<Option<CheckpointRecord>, StoreError> {
        match self.table.get_item(Key::checkpoint(id)).await? {
            Some(item) => self.bodies.body(&item, CHECKPOINT).await.map(Some),
            None => Ok(None),
        }
    }

    /// Removes the blob of a record that is not the latest any more.
    async fn clear(&self, id: &InvocationId, reference: Option<&str>) {
        let Some(reference) = reference else { return };
        if let Err(error) = self.bodies.remove_blob(reference).await {
            tracing::debug!(%error, invocation_id = %id, "the blob of an old checkpoint stays behind");
        }
    }
}

#[async_trait]
impl Checkpointer for DynamoDbCheckpointer {
    async fn save(&self, record: &CheckpointRecord, _: SaveSource) -> Result<(), StoreError> {
        let id = &record.invocation_id;
        let origin = BlobOrigin { owners: vec![Key::checkpoint(id)], now: record.last_saved_at };
        let mut encoder = Encoder::new(&self.bodies.config, origin);
        let body = encoder.body("the checkpoint", record)?;
        let blob = body.as_s().ok().cloned();
        self.bodies.put_blobs(encoder.blobs).await?;
        let (replaced, kept) = match self.table.write_alone(&self.put(record, body)).await? {
            WriteOutcome::Done(before) => (blob_of(&before), blob),
            // A later record is there; or this very one, if its acknowledgement was lost.
            WriteOutcome::Refused(found) => (blob, found.as_ref().and_then(blob_of)),
        };
        if replaced != kept {
            self.clear(id, replaced.as_deref()).await;
        }
        Ok(())
    }

    async fn load(&self, id: &InvocationId) -> Result<Option<CheckpointRecord>, StoreError> {
        match self.read(id).await {
            // The record may have been replaced, and its blob removed, between the two reads.
            Err(StoreError::Corrupt(_)) => self.read(id).await,
            read => read,
        }
    }

    async fn list(
        &self,
        filter: &CheckpointFilter,
        cursor: Option<&str>,
    ) -> Result<Page<CheckpointSummary>, StoreError> {
        let (items, next) = self.table.scan(&listing(filter), cursor).await?;
        Ok(Page { items: items.iter().map(summary).collect::<Result<_, _>>()?, next })
    }

    async fn delete(&self, id: &InvocationId) -> Result<(), StoreError> {
        let Some(item) = self.table.get_item(Key::checkpoint(id)).await? else { return Ok(()) };
        self.table.write_alone(&ItemWrite::delete(&Key::checkpoint(id))).await?;
        self.clear(id, blob_of(&item).as_deref()).await;
        Ok(())
    }
}

impl DynamoDbCheckpointer {
    fn put(&self, record: &CheckpointRecord, body: AttributeValue) -> ItemWrite {
        let kept = record.last_saved_at.checked_add(self.bodies.config.checkpoint_kept);
        let item = Item::from([
            (CHECKPOINT.to_owned(), body),
            (CORRELATION_ID.to_owned(), text_value(&record.correlation_id)),
            (GRAPH_NAME.to_owned(), text_value(&record.graph)),
            (SAVED_AT.to_owned(), time_value(record.last_saved_at)),
            (COMPLETED_COUNT.to_owned(), number_value(record.completed_positions.len() as u64)),
            (TTL.to_owned(), ttl_value(kept.unwrap_or(record.last_saved_at))),
        ]);
        ItemWrite::put(&Key::checkpoint(&record.invocation_id), item)
            .when("attribute_not_exists(saved_at) OR saved_at < :saved")
            .with(":saved", time_value(record.last_saved_at))
            .telling_what_was()
    }
}

/// The blob that a stored record refers to, if it is a large one.
fn blob_of(item: &Item) -> Option<String> {
    optional_text(item, CHECKPOINT).map(str::to_owned)
}

fn listing(filter: &CheckpointFilter) -> ScanSelection {
    let mut parts = vec!["begins_with(pk, :prefix) AND sk = :checkpoint"];
    let mut values = Item::from([
        (":prefix".to_owned(), text_value(keys::invocation_prefix())),
        (":checkpoint".to_owned(), text_value(CHECKPOINT_SK)),
    ]);
    let conditions = [
        (filter.correlation_id.as_ref().map(text_value), "correlation_id = :correlation", ":correlation"),
        (filter.graph.as_ref().map(text_value), "graph_name = :graph", ":graph"),
        (filter.saved_after.map(time_value), "saved_at > :after", ":after"),
    ];
    for (value, condition, name) in conditions {
        if let Some(value) = value {
            parts.push(condition);
            values.insert(name.to_owned(), value);
        }
    }
    let attributes = &[PK, CORRELATION_ID, GRAPH_NAME, SAVED_AT, COMPLETED_COUNT];
    ScanSelection { condition: parts.join(" AND "), values, attributes }
}

fn summary(item: &Item) -> Result<CheckpointSummary, StoreError> {
    let pk = text(item, PK)?;
    let unreadable = |what: &str| StoreError::Corrupt(format!("{what} of a checkpoint at {pk:?}"));
    Ok(CheckpointSummary {
        invocation_id: keys::invocation_id(pk).ok_or_else(|| unreadable("the invocation"))?,
        correlation_id: text(item, CORRELATION_ID)?.to_owned(),
        graph: text(item, GRAPH_NAME)?.to_owned(),
        last_saved_at: time(item, SAVED_AT)?,
        completed_node_count: usize::try_from(number(item, COMPLETED_COUNT)?).map_err(|_| unreadable("the count"))?,
    })
}
