use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_ports::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, InvocationId, Page, SaveSource, StoreError,
};

/// Holds back saves from inside of fan-outs, and lets only every n-th of them through (pipeline-utilities §10.11.4).
///
/// Every record contains the ones before it, so the others need not be written at all. A crash loses what was held
/// back: the instances that it showed as ended run again, and contribute once. All other saves go through at once.
///
/// ```
/// # use std::sync::Arc;
/// # use dormouse_engine::BatchedSaves;
/// # fn on(durable: Arc<dyn dormouse_ports::Checkpointer>) {
/// let checkpointer = Arc::new(BatchedSaves::every(20, durable));
/// # }
/// ```
pub struct BatchedSaves {
    inner: Arc<dyn Checkpointer>,
    every: usize,
    held_back: Mutex<BTreeMap<InvocationId, usize>>,
}

impl fmt::Debug for BatchedSaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchedSaves").field("every", &self.every).finish_non_exhaustive()
    }
}

impl BatchedSaves {
    /// Lets every `every`-th save from inside of fan-outs through to `inner`; 0 and 1 let all of them through.
    pub fn every(every: usize, inner: Arc<dyn Checkpointer>) -> Self {
        Self { inner, every, held_back: Mutex::default() }
    }

    /// True if this save is held back; if not, none is any more.
    fn holds_back(&self, id: &InvocationId, source: SaveSource) -> bool {
        let mut held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held_back.remove(id).unwrap_or(0) + 1;
        let more = source == SaveSource::FanOutInternal && count < self.every;
        if more {
            held_back.insert(id.clone(), count);
        }
        more
    }
}

#[async_trait]
impl Checkpointer for BatchedSaves {
    async fn save(&self, record: &CheckpointRecord, source: SaveSource) -> Result<(), StoreError> {
        match self.holds_back(&record.invocation_id, source) {
            true => Ok(()),
            false => self.inner.save(record, source).await,
        }
    }

    async fn load(&self, id: &InvocationId) -> Result<Option<CheckpointRecord>, StoreError> {
        self.inner.load(id).await
    }

    async fn list(
        &self,
        filter: &CheckpointFilter,
        cursor: Option<&str>,
    ) -> Result<Page<CheckpointSummary>, StoreError> {
        self.inner.list(filter, cursor).await
    }

    async fn delete(&self, id: &InvocationId) -> Result<(), StoreError> {
        self.held_back.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.inner.delete(id).await
    }
}
