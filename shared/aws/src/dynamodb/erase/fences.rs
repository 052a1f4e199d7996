//! Fences where streams were erased.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::StoreError;
use jiff::{SignedDuration, Timestamp};

use crate::dynamodb::item::{Item, number, optional_number, optional_text, optional_time, ttl_value};
use crate::dynamodb::keys::{
    self, FED_AT, FENCED_BY, FIRST_POSITION, Key, LAST_POSITION, NOTED_FROM, NOTED_IN, STEP, TTL,
};
use crate::dynamodb::requests::Table;
use crate::dynamodb::steps::{ERASED, fence, owner_of_stream};
use crate::dynamodb::write::{ItemWrite, WriteOutcome};

/// Time for which a worker may note a step behind the last one, at most, and more: no claim lasts as long.
const STEPS_MAY_COME: SignedDuration = SignedDuration::from_hours(1);
/// Time for which a fence stands where that may happen.
const FENCES_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// The condition that no entries stand at a position of a stream.
const FREE: &str = "attribute_not_exists(pk) OR attribute_exists(fenced_by)";

/// What stays of streams that are erased while a worker may still note a step in them: it has read nothing since the batch
/// that it wrote last, and appends where the next one has its place. Fences without content, wherever that may be, refuse
/// it; they go by themselves.
pub(super) struct Fences {
    now: Timestamp,
    /// The partitions in which steps are noted.
    noted: BTreeSet<String>,
    /// Those in which they may be noted still, with the position of the last entry that was found.
    ends: BTreeMap<String, u64>,
    stand: BTreeSet<Key>,
}

impl Fences {
    pub(super) fn at(now: Timestamp) -> Self {
        Self { now, noted: BTreeSet::new(), ends: BTreeMap::new(), stand: BTreeSet::new() }
    }

    /// Knows what is found at `key`: a batch of a stream that is erased, or a fence: of who took its run over, or of an earlier
    /// erasure, which may have come to no end. Those of one stream come in order. Or an invocation whose steps are noted in a
    /// stream of its own, which begins with the first that is.
    pub(super) fn find(&mut self, key: &Key, item: &Item) -> Result<(), StoreError> {
        if let Some(own) = optional_text(item, NOTED_IN).filter(|stream| owner_of_stream(stream).is_some()) {
            self.end(keys::stream_partition(own), optional_number(item, NOTED_FROM)?.unwrap_or_default());
            return Ok(());
        }
        let Some(last) = optional_number(item, LAST_POSITION)? else { return Ok(()) };
        let is_fence = item.contains_key(FENCED_BY);
        let stream = key.pk.strip_prefix(&keys::stream_partition(""));
        let is_own = stream.is_some_and(|stream| owner_of_stream(stream).is_some());
        if is_own || is_fence || item.contains_key(STEP) || item.contains_key(NOTED_FROM) {
            self.noted.insert(key.pk.clone());
        }
        let is_recent = |at| self.now.duration_since(at) <= STEPS_MAY_COME;
        if self.noted.contains(&key.pk) && (is_fence || optional_time(item, FED_AT)?.is_some_and(is_recent)) {
            self.stand.insert(key.clone());
            self.end(key.pk.clone(), last);
        }
        Ok(())
    }

    /// Knows that the stream in the partition `pk` goes to `last`, or on.
    fn end(&mut self, pk: String, last: u64) {
        self.stand.insert(Key { pk: pk.clone(), sk: keys::batch_order(last + 1) });
        let end = self.ends.entry(pk).or_default();
        *end = last.max(*end);
    }

    /// What removes `item` at `key`, and leaves a fence there where one has to be.
    pub(super) fn removal(&self, key: &Key, item: &Item) -> Result<ItemWrite, StoreError> {
        if !self.stand.contains(key) {
            return Ok(ItemWrite::delete(key));
        }
        Ok(self.fence(key, number(item, FIRST_POSITION)?, number(item, LAST_POSITION)?))
    }

    /// Ends the streams that were found behind where they ended then. Steps that were noted since go as well.
    pub(super) async fn close(&self, table: &Table) -> Result<(), StoreError> {
        for (pk, last) in &self.ends {
            self.close_one(table, pk, *last).await?;
        }
        Ok(())
    }

    async fn close_one(&self, table: &Table, pk: &str, mut last: u64) -> Result<(), StoreError> {
        loop {
            let first = last + 1;
            let key = Key { pk: pk.to_owned(), sk: keys::batch_order(first) };
            let end = self.fence(&key, first, last).when(FREE);
            let WriteOutcome::Refused(Some(batch)) = table.write_alone(&end).await? else { return Ok(()) };
            last = number(&batch, LAST_POSITION)?;
            table.put_plainly(self.fence(&key, first, last)).await?;
        }
    }

    /// A fence in the place of a batch of these positions.
    fn fence(&self, key: &Key, first: u64, last: u64) -> ItemWrite {
        let mut fence = fence((first, last), ERASED);
        fence.insert(TTL.to_owned(), ttl_value(self.now.saturating_add(FENCES_KEPT).unwrap_or(Timestamp::MAX)));
        ItemWrite::put(key, fence)
    }
}
