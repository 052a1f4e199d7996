use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dormouse_ports::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, InvocationId, Page, SaveSource, StoreError,
};

use crate::Fault;

/// A checkpointer that breaks at one chosen save and works otherwise.
pub struct FaultyCheckpointer {
    inner: Arc<dyn Checkpointer>,
    saves: AtomicUsize,
    at: Option<(usize, Fault)>,
}

impl std::fmt::Debug for FaultyCheckpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyCheckpointer").field("saves", &self.saves()).field("at", &self.at).finish_non_exhaustive()
    }
}

impl FaultyCheckpointer {
    /// A checkpointer that meets `fault` at its save number `save`, from 0.
    pub fn broken_at(inner: Arc<dyn Checkpointer>, save: usize, fault: Fault) -> Self {
        Self { inner, saves: AtomicUsize::new(0), at: Some((save, fault)) }
    }

    /// Number of saves so far.
    pub fn saves(&self) -> usize {
        self.saves.load(Ordering::Relaxed)
    }

    /// True if the chosen save has come.
    pub fn has_struck(&self) -> bool {
        self.at.is_some_and(|(at, _)| self.saves() > at)
    }
}

#[async_trait]
impl Checkpointer for FaultyCheckpointer {
    async fn save(&self, record: &CheckpointRecord, source: SaveSource) -> Result<(), StoreError> {
        let number = self.saves.fetch_add(1, Ordering::Relaxed);
        let fault = self.at.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        if !matches!(fault, Some(Fault::DieBefore | Fault::FailBefore)) {
            self.inner.save(record, source).await?;
        }
        match fault {
            None => Ok(()),
            Some(Fault::DieBefore | Fault::DieAfter) => futures::future::pending().await,
            Some(Fault::FailBefore | Fault::FailAfter) => Err(StoreError::Unavailable("an injected fault".to_owned())),
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
        self.inner.delete(id).await
    }
}
