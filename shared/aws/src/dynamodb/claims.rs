//! The index of claims: who is being resumed, by when the claim ends.
//!
//! The index is sparse. A claim puts its item in and the write that ends it takes it out again, so that it holds only
//! what is being resumed and what a dead worker left; finding the dead costs the same however many sleep. Each claim
//! costs two write units more, one for the way in and one for the way out, and no request.

use dormouse_ports::{InvocationId, StoreError, limits};
use futures::future::try_join_all;
use jiff::Timestamp;

use super::DynamoDbStateStore;
use super::fault::{Fault, fault};
use super::item::{Item, text, text_value, time_value};
use super::keys::{self, CLAIMS_INDEX, PENDING_SHARDS, PK};

impl DynamoDbStateStore {
    /// The claims of each shard that are out of time: the oldest that are over, and the first that last too long. The
    /// index follows the table within moments: what it has not heard of yet is found by the next sweep.
    pub(super) async fn query_dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        let ends = [("claim_until <= :end", now), ("claim_until > :end", now + limits::LEASE)];
        let queries = (0..PENDING_SHARDS).flat_map(|shard| ends.map(|(range, end)| (shard, range, end)));
        let answers =
            queries.map(|(shard, range, end)| self.config.retry.run(move || self.query_lane(shard, range, end)));
        let items = try_join_all(answers).await?;
        items.iter().flatten().map(claimed_id).collect()
    }

    async fn query_lane(&self, shard: u8, range: &str, end: Timestamp) -> Result<Vec<Item>, Fault> {
        let request = self.client.query().table_name(&self.table).index_name(CLAIMS_INDEX);
        let request = request.key_condition_expression(format!("claim_lane = :lane AND {range}"));
        let request = request.expression_attribute_values(":lane", text_value(keys::claim_lane(shard)));
        let request = request.expression_attribute_values(":end", time_value(end));
        let answer = request.limit(self.config.page_size).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table, &error))?;
        Ok(answer.items.unwrap_or_default())
    }
}

fn claimed_id(item: &Item) -> Result<InvocationId, StoreError> {
    let id = keys::invocation_id(text(item, PK)?);
    id.ok_or_else(|| StoreError::Corrupt("the index of claims names no invocation".to_owned()))
}
