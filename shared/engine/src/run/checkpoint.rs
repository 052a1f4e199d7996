//! Saving progress at every completed node (pipeline-utilities §10.3).
//!
//! When the save of a completed node fails, the invocation ends with `checkpoint_save_failed` (§10.10); no middleware
//! sees it, and no error policy collects it. Where a node failed by itself, its own error matters more: that its
//! failure could not be saved is only logged.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{CheckpointRecord, Checkpointer, Clock, SaveSource, StoreError};
use futures::lock::Mutex;
use jiff::Timestamp;

use super::engine::Engine;
use super::progress::Progress;
use crate::CompiledGraph;

/// Checkpointer of an invocation, and the data that all its records share.
pub(super) struct Checkpoints {
    backend: Arc<dyn Checkpointer>,
    clock: Arc<dyn Clock>,
    pub(super) graph: String,
    /// That of the declared schema, at every save (§10.2).
    pub(super) schema_version: String,
    pub(super) progress: Progress,
    /// Held during a save, so that a record never overtakes an older one; when the last one was made.
    last: Mutex<Option<Timestamp>>,
}

impl Checkpoints {
    /// For an invocation of `graph`, if it registered a checkpointer.
    pub(super) fn of(engine: &Engine, graph: &CompiledGraph) -> Option<Self> {
        Some(Self {
            backend: graph.checkpointer()?.clone(),
            clock: engine.ports().clock.clone(),
            graph: graph.name().to_owned(),
            schema_version: graph.schema().version().to_owned(),
            progress: Progress::default(),
            last: Mutex::new(None),
        })
    }

    /// The present instant, but later than every save so far.
    pub(super) async fn now(&self) -> Timestamp {
        later(self.clock.now(), *self.last.lock().await)
    }

    /// Saves only after `instant`: the invocation has saved until then, maybe where the clock is ahead of this one.
    pub(super) fn not_before(&mut self, instant: Timestamp) {
        *self.last.get_mut() = Some(instant);
    }

    /// Saves the record that `of_run` makes for the instant of the save.
    pub(super) async fn save(
        &self,
        source: SaveSource,
        of_run: impl FnOnce(Timestamp) -> CheckpointRecord + Send,
    ) -> Result<CheckpointRecord, StoreError> {
        let mut last = self.last.lock().await;
        let now = later(self.clock.now(), *last);
        *last = Some(now);
        let record = of_run(now);
        self.backend.save(&record, source).await?;
        Ok(record)
    }
}

/// `now`, or the next instant after `last` when the clock did not move.
fn later(now: Timestamp, last: Option<Timestamp>) -> Timestamp {
    match last {
        Some(last) if now <= last => last.checked_add(Duration::from_nanos(1)).unwrap_or(last),
        Some(_) | None => now,
    }
}
