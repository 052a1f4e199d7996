//! The index of claims: the invocations that are being resumed, by the end of the claim.
//!
//! The index is sparse. A claim puts its item in and the write that ends it takes it out again, so that it holds only
//! the invocations that are being resumed and those that a dead worker left; finding the dead costs the same however
//! many sleep. Each claim costs two write units more, one for the way in and one for the way out, and no request.
//! Invocations that were put aside are in lanes of their own.

use dormouse_ports::{InvocationId, StoreError, limits};
use futures::future::try_join_all;
use jiff::Timestamp;

use super::DynamoDbStateStore;
use super::fault::{Fault, fault};
use super::item::{Item, text, text_value, time};
use super::keys::{self, CLAIM_UNTIL, CLAIMS_INDEX, PENDING_SHARDS, PK};

impl DynamoDbStateStore {
    /// The claims that are out of time, among the first of each shard: those that are over come first, those that last
    /// too long behind the invocations that are being resumed. The index follows the table within moments: a claim that
    /// it does not have yet is found by the next sweep.
    pub(super) async fn query_dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        let shards =
            (0..PENDING_SHARDS).map(|shard| self.config.retry.run(move || self.query_lane(keys::claim_lane(shard))));
        let mut dead = Vec::new();
        for item in try_join_all(shards).await?.iter().flatten() {
            if limits::out_of_time(time(item, CLAIM_UNTIL)?, now) {
                dead.push(claimed_id(item)?);
            }
        }
        Ok(dead)
    }

    /// The invocations that were put aside, among the first of each shard, the oldest first.
    pub(super) async fn query_aside(&self) -> Result<Vec<InvocationId>, StoreError> {
        let shards =
            (0..PENDING_SHARDS).map(|shard| self.config.retry.run(move || self.query_lane(keys::aside_lane(shard))));
        let mut aside = Vec::new();
        for item in try_join_all(shards).await?.iter().flatten() {
            aside.push((time(item, CLAIM_UNTIL)?, claimed_id(item)?));
        }
        aside.sort();
        Ok(aside.into_iter().map(|(_, id)| id).collect())
    }

    async fn query_lane(&self, lane: String) -> Result<Vec<Item>, Fault> {
        let request = self.client.query().table_name(&self.table).index_name(CLAIMS_INDEX);
        let request = request.key_condition_expression("claim_lane = :lane");
        let request = request.expression_attribute_values(":lane", text_value(lane));
        let answer = request.limit(self.config.page_size).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table, &error))?;
        Ok(answer.items.unwrap_or_default())
    }
}

fn claimed_id(item: &Item) -> Result<InvocationId, StoreError> {
    let id = keys::invocation_id(text(item, PK)?);
    id.ok_or_else(|| StoreError::Corrupt("the index of claims names no invocation".to_owned()))
}
