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
use super::pending::{SleeperIndex, readable};

/// The most pages of a lane that are read for those who are out of time: before them may be many who live.
const MOST_PAGES: usize = 10;

impl SleeperIndex {
    /// The payloads that no worker has, and the claims that are out of time, the oldest first: of each shard a page of
    /// them, as far as they stand among the first [pages](MOST_PAGES). The index follows the table within moments: one that
    /// it does not have yet is found by the next sweep.
    pub(super) async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        let enough = usize::try_from(self.table.page_size).unwrap_or(usize::MAX);
        let mut lanes: Vec<ClaimLane> =
            (0..PENDING_SHARDS).map(|shard| ClaimLane { shard, after: None, dead: 0 }).collect();
        let mut dead = Vec::new();
        for _ in 0..MOST_PAGES {
            let pages = lanes.iter().map(|lane| {
                let (shard, after) = (lane.shard, lane.after.clone());
                self.table.retry.run(move || self.query_lane(keys::claim_lane(shard), after.clone()))
            });
            let pages = try_join_all(pages).await?;
            let mut claims = Vec::new();
            for (place, (lane, page)) in lanes.iter_mut().zip(pages).enumerate() {
                let found = readable(&page.items, claim_of)?;
                claims.extend(found.into_iter().map(|(since, id)| (place, since, id)));
                lane.after = page.next;
            }
            let keys: Vec<Key> = claims.iter().map(|(.., id)| Key::invocation(id)).collect();
            let is_dead = self.are_dead(&keys, now).await?;
            for ((place, since, id), is_dead) in claims.into_iter().zip(is_dead) {
                if is_dead {
                    lanes[place].dead += 1;
                    dead.push((since, id));
                }
            }
            lanes.retain(|lane| lane.after.is_some() && lane.dead < enough);
            if lanes.is_empty() {
                break;
            }
        }
        dead.sort();
        Ok(dead.into_iter().map(|(_, id)| id).collect())
    }

    /// Which of the invocations at `keys` have a payload that no worker has, or a claim that is out of time. One of which nobody
    /// can read that is taken for such: who looks at it tells, and the others are found beside it.
    async fn are_dead(&self, keys: &[Key], now: Timestamp) -> Result<Vec<bool>, StoreError> {
        let attributes = [PK, SK, PHASE, CLAIM_LANE, CLAIM_SINCE, CLAIM_UNTIL].join(", ");
        let found = self.table.get_items(keys, Some(&attributes)).await?;
        let is_out_of_time = |item: &Item| -> Result<bool, StoreError> {
            Ok(invocation::is_claimed(item)? && limits::out_of_time(invocation::claim_end(item)?, now))
        };
        let is_dead = |key: &Key| match found.get(key).map(is_out_of_time) {
            Some(Err(StoreError::Corrupt(_))) => Ok(true),
            Some(is_out_of_time) => is_out_of_time,
            None => Ok(false),
        };
        keys.iter().map(is_dead).collect()
    }

    /// The invocations that were put aside, among the first of each shard, the oldest first.
    pub(super) async fn put_aside(&self) -> Result<PutAside, StoreError> {
        let shards = (0..PENDING_SHARDS)
            .map(|shard| self.table.retry.run(move || self.query_lane(keys::aside_lane(shard), None)));
        let mut aside = Vec::new();
        let mut more = false;
        for page in try_join_all(shards).await? {
            more |= page.next.is_some();
            aside.extend(readable(&page.items, claim_of)?);
        }
        aside.sort();
        Ok(PutAside { ids: aside.into_iter().map(|(_, id)| id).collect(), more })
    }

    /// The next items of `lane` behind the key `after`.
    async fn query_lane(&self, lane: String, after: Option<Item>) -> Result<LanePage, RequestFault> {
        let request = self.table.query().index_name(CLAIMS_INDEX);
        let request = request.key_condition_expression("claim_lane = :lane");
        let request = request.expression_attribute_values(":lane", text_value(lane));
        let answer = request.limit(self.table.page_size).set_exclusive_start_key(after).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table.name, &error))?;
        Ok(LanePage { next: answer.last_evaluated_key, items: answer.items.unwrap_or_default() })
    }
}

/// Some items of a lane.
struct LanePage {
    items: Vec<Item>,
    /// The key to go on behind, if there may be others.
    next: Option<Item>,
}

/// A lane of claims that is read on.
struct ClaimLane {
    shard: u8,
    /// The key behind which it goes on; `None` at the beginning.
    after: Option<Item>,
    /// Number of those that were found in it and are out of time.
    dead: usize,
}

/// Since when the invocation of `item` is in the index, and which one that is.
fn claim_of(item: &Item) -> Result<(Timestamp, InvocationId), StoreError> {
    Ok((time(item, CLAIM_SINCE)?, claimed_id(item)?))
}

fn claimed_id(item: &Item) -> Result<InvocationId, StoreError> {
    let id = keys::invocation_id(text(item, PK)?);
    id.ok_or_else(|| StoreError::Corrupt("the index of claims names no invocation".to_owned()))
}
