//! The index of claims: the invocations with an accepted payload, by the instant of its acceptance.
//!
//! The index is sparse. The write that accepts a payload puts its item in and the write that ends the claim takes it out
//! again, so that it holds only the work that waits for a worker, that which is being done, and that which a dead worker
//! left; finding the dead costs the same however many sleep. Each payload costs two write units more, one for the way in
//! and one for the way out, and no request: the worker that takes it over changes nothing that the index has. So the
//! end of a claim is read from its item. Invocations that were put aside are in lanes of their own.

use dormouse_ports::{InvocationId, PutAside, StoreError, limits};
use futures::future::try_join_all;
use jiff::Timestamp;

use super::fault::{RequestFault, fault};
use super::invocation;
use super::item::{Item, text, text_value, time};
use super::keys::{self, CLAIM_LANE, CLAIM_SINCE, CLAIM_UNTIL, CLAIMS_INDEX, Key, PENDING_SHARDS, PHASE, PK, SK};
use super::pending::SleeperIndex;

impl SleeperIndex {
    /// The payloads that no worker has, and the claims that are out of time, among the oldest of each shard. The index
    /// follows the table within moments: one that it does not have yet is found by the next sweep.
    pub(super) async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        let shards =
            (0..PENDING_SHARDS).map(|shard| self.table.retry.run(move || self.query_lane(keys::claim_lane(shard))));
        let mut claims = Vec::new();
        for item in try_join_all(shards).await?.iter().flat_map(|page| &page.items) {
            claims.push((time(item, CLAIM_SINCE)?, claimed_id(item)?));
        }
        claims.sort();
        let ids: Vec<InvocationId> = claims.into_iter().map(|(_, id)| id).collect();
        let keys: Vec<Key> = ids.iter().map(Key::invocation).collect();
        let attributes = [PK, SK, PHASE, CLAIM_LANE, CLAIM_SINCE, CLAIM_UNTIL].join(", ");
        let found = self.table.get_items(&keys, Some(&attributes)).await?;
        let is_dead = |key: &Key| match found.get(key) {
            Some(item) if invocation::is_claimed(item)? => Ok(limits::out_of_time(invocation::claim_end(item)?, now)),
            Some(_) | None => Ok(false),
        };
        let mut dead = Vec::new();
        for (id, key) in ids.into_iter().zip(&keys) {
            dead.extend(is_dead(key)?.then_some(id));
        }
        Ok(dead)
    }

    /// The invocations that were put aside, among the first of each shard, the oldest first.
    pub(super) async fn put_aside(&self) -> Result<PutAside, StoreError> {
        let shards =
            (0..PENDING_SHARDS).map(|shard| self.table.retry.run(move || self.query_lane(keys::aside_lane(shard))));
        let mut aside = Vec::new();
        let mut more = false;
        for page in try_join_all(shards).await? {
            more |= page.goes_on;
            for item in &page.items {
                aside.push((time(item, CLAIM_SINCE)?, claimed_id(item)?));
            }
        }
        aside.sort();
        Ok(PutAside { ids: aside.into_iter().map(|(_, id)| id).collect(), more })
    }

    async fn query_lane(&self, lane: String) -> Result<LanePage, RequestFault> {
        let request = self.table.query().index_name(CLAIMS_INDEX);
        let request = request.key_condition_expression("claim_lane = :lane");
        let request = request.expression_attribute_values(":lane", text_value(lane));
        let answer = request.limit(self.table.page_size).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table.name, &error))?;
        Ok(LanePage { goes_on: answer.last_evaluated_key.is_some(), items: answer.items.unwrap_or_default() })
    }
}

/// The first items of a lane.
struct LanePage {
    items: Vec<Item>,
    /// True if there are others behind them.
    goes_on: bool,
}

fn claimed_id(item: &Item) -> Result<InvocationId, StoreError> {
    let id = keys::invocation_id(text(item, PK)?);
    id.ok_or_else(|| StoreError::Corrupt("the index of claims names no invocation".to_owned()))
}
