//! The checkpointer of a case, watched: it remembers what is saved, holds progress inside of fan-outs back where the
//! fixture says so, and ends the process right after a save.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::BatchedSaves;
use dormouse_ports::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, InstanceState, InvocationId, Map, Page,
    SaveSource, StoreError,
};
use tokio::sync::Notify;

use crate::Failure;
use crate::directives::Directives;

/// After which save the process ends (conformance-adapter §5.6).
#[derive(Clone, Debug)]
pub(crate) enum Crash {
    /// Of this node.
    AfterNode(String),
    /// Of this fan-out node, with that instance completed.
    AfterInstance { node: String, index: usize },
}

impl Crash {
    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let crash = if let Some(mut instance) = given.nested("after_fan_out_instance")? {
            let node = instance.required_text("node")?.to_owned();
            let index = usize::try_from(instance.integer("index")?.unwrap_or_default()).unwrap_or_default();
            instance.done()?;
            Self::AfterInstance { node, index }
        } else {
            Self::AfterNode(given.required_text("after_node")?.to_owned())
        };
        given.done()?;
        Ok(crash)
    }

    fn is_due(&self, record: &CheckpointRecord) -> bool {
        match self {
            Self::AfterNode(node) => record.completed_positions.iter().any(|position| *position.node_name == **node),
            Self::AfterInstance { node, index } => record
                .fan_out_progress
                .iter()
                .filter(|progress| *progress.fan_out_node_name == **node)
                .any(|progress| progress.instances.get(*index).is_some_and(|i| i.state == InstanceState::Completed)),
        }
    }
}

/// A [`Checkpointer`] in front of the one under test.
pub(crate) struct WatchedCheckpointer {
    inner: Arc<dyn Checkpointer>,
    /// What another process finds.
    durable: Arc<dyn Checkpointer>,
    watch: Mutex<Watch>,
    crashed: Notify,
}

#[derive(Default)]
struct Watch {
    saves: Vec<CheckpointRecord>,
    crash: Option<Crash>,
}

impl WatchedCheckpointer {
    /// Saves inside of fan-outs become durable only every so many.
    pub(crate) fn new(durable: Arc<dyn Checkpointer>, flush_every: Option<usize>) -> Self {
        let inner = match flush_every {
            None => durable.clone(),
            Some(every) => Arc::new(BatchedSaves::every(every, durable.clone())),
        };
        Self { inner, durable, watch: Mutex::default(), crashed: Notify::new() }
    }

    /// The process will end at `crash`, once.
    pub(crate) fn arm(&self, crash: Option<Crash>) {
        self.lock().crash = crash;
    }

    /// True while the save after which the process ends has not come.
    pub(crate) fn is_armed(&self) -> bool {
        self.lock().crash.is_some()
    }

    /// Waits until the process is to end.
    pub(crate) async fn crashed(&self) {
        self.crashed.notified().await;
    }

    /// The saves since the last time.
    pub(crate) fn take_saves(&self) -> Vec<CheckpointRecord> {
        std::mem::take(&mut self.lock().saves)
    }

    /// Stores a record without being counted.
    pub(crate) async fn seed(&self, record: &CheckpointRecord) -> Result<(), String> {
        self.durable.save(record, SaveSource::Node).await.map_err(|error| error.to_string())
    }

    /// Changes fields of the outermost state of a stored record, as if the graph's input had changed meanwhile.
    pub(crate) async fn change(&self, id: &InvocationId, fields: &Map) -> Result<(), String> {
        let record = self.durable.load(id).await.map_err(|error| error.to_string())?;
        let mut record = record.ok_or_else(|| format!("there is no checkpoint of {id}"))?;
        record.parent_states.first_mut().unwrap_or(&mut record.state).extend(fields.clone());
        record.last_saved_at =
            record.last_saved_at.saturating_add(Duration::from_secs(1)).unwrap_or(record.last_saved_at);
        self.seed(&record).await
    }

    fn is_due(&self, record: &CheckpointRecord) -> bool {
        let mut watch = self.lock();
        watch.crash.take_if(|crash| crash.is_due(record)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Checkpointer for WatchedCheckpointer {
    async fn save(&self, record: &CheckpointRecord, source: SaveSource) -> Result<(), StoreError> {
        self.lock().saves.push(record.clone());
        self.inner.save(record, source).await?;
        if self.is_due(record) {
            self.crashed.notify_one();
            // The process is gone: nobody hears of this save.
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn load(&self, id: &InvocationId) -> Result<Option<CheckpointRecord>, StoreError> {
        self.durable.load(id).await
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
