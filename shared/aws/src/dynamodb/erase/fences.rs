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

/// Time for which a worker may note a step behind the last one, at most, and more: no claim lasts as long, and behind its end none
/// is noted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::item::{number_value, text_value, time_value};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn batch(first: u64, last: u64, age: SignedDuration) -> Item {
        Item::from([
            (FIRST_POSITION.to_owned(), number_value(first)),
            (LAST_POSITION.to_owned(), number_value(last)),
            (FED_AT.to_owned(), time_value(NOW - age)),
        ])
    }

    fn with(mut item: Item, name: &str) -> Item {
        item.insert(name.to_owned(), number_value(1));
        item
    }

    #[test]
    fn fences_stand_where_a_step_may_still_be_noted() {
        let (old, recent) = (SignedDuration::from_hours(2), SignedDuration::from_secs(60));
        let found = [
            ("without-notes", batch(1, 1, recent)),
            ("over", with(batch(1, 1, old), NOTED_FROM)),
            ("working", with(batch(1, 1, old), NOTED_FROM)),
            ("working", with(batch(2, 4, recent), STEP)),
            ("working", batch(5, 6, recent)),
            ("erased", fence((3, 2), ERASED)),
            ("taken-over", fence((2, 1), "worker_2")),
            ("notes:run_1", batch(1025, 1025, old)),
            ("notes:run_1", batch(1026, 1026, recent)),
        ];
        let mut fences = Fences::at(NOW);
        let place = |stream: &str, item: &Item| Key::batch(stream, number(item, FIRST_POSITION).expect("a position"));
        for (stream, item) in &found {
            fences.find(&place(stream, item), item).expect("a batch");
        }
        let is_fenced = |(stream, item): &(&str, Item)| {
            let key = place(stream, item);
            let removal = fences.removal(&key, item).expect("a batch");
            let last = number(item, LAST_POSITION).expect("a position");
            let is_deleted = removal == ItemWrite::delete(&key);
            assert!(is_deleted || removal == fences.fence(&key, number(item, FIRST_POSITION).expect("one"), last));
            !is_deleted
        };
        let fenced: Vec<&str> = found.iter().filter(|found| is_fenced(found)).map(|(stream, _)| *stream).collect();
        assert_eq!(fenced, ["working", "working", "erased", "taken-over", "notes:run_1"]);
        let ends = [("working", 6), ("erased", 2), ("taken-over", 1), ("notes:run_1", 1026)]
            .map(|(stream, last)| (keys::stream_partition(stream), last));
        assert_eq!(fences.ends, BTreeMap::from(ends));
        assert!(fences.stand.contains(&Key::batch("working", 7)), "what is noted there until it is closed goes, too");
    }

    #[test]
    fn the_stream_of_a_run_s_own_ends_behind_its_last_whole_step_where_none_was_noted() {
        let own = "notes:run_1";
        let run = Item::from([(NOTED_IN.to_owned(), text_value(own)), (NOTED_FROM.to_owned(), number_value(1024))]);
        let mut fences = Fences::at(NOW);
        fences.find(&Key::invocation(&"run_1".into()), &run).expect("an invocation");
        assert_eq!(fences.ends, BTreeMap::from([(keys::stream_partition(own), 1024)]));
        let session = Item::from([(NOTED_IN.to_owned(), text_value("session_1"))]);
        let mut fences = Fences::at(NOW);
        fences.find(&Key::invocation(&"run_2".into()), &session).expect("an invocation");
        assert!(fences.ends.is_empty(), "its session's is found by its batches");
    }
}
