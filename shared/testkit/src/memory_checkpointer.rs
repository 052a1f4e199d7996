use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Mutex;

use async_trait::async_trait;
use dormouse_ports::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, InvocationId, Page, SaveSource, StoreError,
};

use crate::lock;

const CURSOR: &str = "checkpoint:";

/// A [`Checkpointer`] that forgets everything when it is dropped, and remembers its calls.
#[derive(Debug)]
pub struct MemoryCheckpointer {
    records: Mutex<BTreeMap<InvocationId, CheckpointRecord>>,
    calls: Mutex<Vec<CheckpointCall>>,
    page_size: usize,
}

/// A call of a [`MemoryCheckpointer`].
#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointCall {
    /// `save`.
    Save(Box<CheckpointRecord>, SaveSource),
    /// `load`.
    Load(InvocationId),
    /// `list`.
    List,
    /// `delete`.
    Delete(InvocationId),
}

impl MemoryCheckpointer {
    /// An empty one that lists in pages of at most `page_size` items.
    ///
    /// # Panics
    /// When `page_size` is zero: no listing would ever end.
    pub fn with_page_size(page_size: usize) -> Self {
        assert!(page_size > 0, "a page holds at least one item");
        Self { records: Mutex::default(), calls: Mutex::default(), page_size }
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Vec<CheckpointCall> {
        lock(&self.calls).clone()
    }

    /// The records that were saved so far, in order.
    pub fn saves(&self) -> Vec<(CheckpointRecord, SaveSource)> {
        let saved = |call: CheckpointCall| match call {
            CheckpointCall::Save(record, source) => Some((*record, source)),
            CheckpointCall::Load(_) | CheckpointCall::List | CheckpointCall::Delete(_) => None,
        };
        self.calls().into_iter().filter_map(saved).collect()
    }

    /// The record of `id` as it stands, without a call.
    pub fn record(&self, id: &InvocationId) -> Option<CheckpointRecord> {
        lock(&self.records).get(id).cloned()
    }

    /// Puts a record in its place, without a call.
    pub fn seed(&self, record: CheckpointRecord) {
        lock(&self.records).insert(record.invocation_id.clone(), record);
    }

    fn note(&self, call: CheckpointCall) {
        lock(&self.calls).push(call);
    }
}

impl Default for MemoryCheckpointer {
    fn default() -> Self {
        Self::with_page_size(100)
    }
}

#[async_trait]
impl Checkpointer for MemoryCheckpointer {
    async fn save(&self, record: &CheckpointRecord, source: SaveSource) -> Result<(), StoreError> {
        self.note(CheckpointCall::Save(Box::new(record.clone()), source));
        let mut records = lock(&self.records);
        let stored = records.get(&record.invocation_id);
        if stored.is_none_or(|stored| stored.last_saved_at < record.last_saved_at) {
            records.insert(record.invocation_id.clone(), record.clone());
        }
        Ok(())
    }

    async fn load(&self, id: &InvocationId) -> Result<Option<CheckpointRecord>, StoreError> {
        self.note(CheckpointCall::Load(id.clone()));
        Ok(self.record(id))
    }

    async fn list(
        &self,
        filter: &CheckpointFilter,
        cursor: Option<&str>,
    ) -> Result<Page<CheckpointSummary>, StoreError> {
        self.note(CheckpointCall::List);
        let last = match cursor {
            None => Unbounded,
            Some(cursor) => Excluded(InvocationId::from(
                cursor
                    .strip_prefix(CURSOR)
                    .ok_or_else(|| StoreError::Invalid(format!("{cursor:?} is not a cursor of this listing")))?,
            )),
        };
        let records = lock(&self.records);
        let mut rows = records.range((last, Unbounded)).filter(|(_, record)| passes(record, filter)).peekable();
        let items: Vec<_> = rows.by_ref().take(self.page_size).map(|(_, record)| record.summary()).collect();
        let more = rows.peek().is_some();
        let next = items.last().filter(|_| more).map(|item| format!("{CURSOR}{}", item.invocation_id));
        Ok(Page { items, next })
    }

    async fn delete(&self, id: &InvocationId) -> Result<(), StoreError> {
        self.note(CheckpointCall::Delete(id.clone()));
        lock(&self.records).remove(id);
        Ok(())
    }
}

fn passes(record: &CheckpointRecord, filter: &CheckpointFilter) -> bool {
    filter.correlation_id.as_ref().is_none_or(|id| *id == record.correlation_id)
        && filter.graph.as_ref().is_none_or(|graph| *graph == record.graph)
        && filter.saved_after.is_none_or(|after| record.last_saved_at > after)
}
