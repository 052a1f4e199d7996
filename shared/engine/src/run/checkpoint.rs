//! Saving progress at every completed node (pipeline-utilities §10.3).
//!
//! A failed save of a completed node ends the invocation with `checkpoint_save_failed`, past the middleware of that
//! node; middleware of a node around it sees the error like any other. Where a node failed by itself, its own error
//! matters more: that its failure could not be saved is only logged.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Category, CheckpointRecord, Checkpointer, Clock, Map, SavePoint, SaveSource, StoreError};
use futures::lock::Mutex;
use jiff::Timestamp;

use super::engine::{Engine, is_transient};
use super::walk::{Run, Walk};
use crate::{CompiledGraph, EngineError, State};

/// Where and as what an invocation saves its progress.
pub(super) struct Checkpoints {
    backend: Arc<dyn Checkpointer>,
    clock: Arc<dyn Clock>,
    graph: String,
    /// That of the declared schema, at every save (§10.2).
    schema_version: String,
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
            last: Mutex::new(None),
        })
    }

    async fn save(
        &self,
        run: &Run,
        states: (Map, Vec<Map>),
        at: SavePoint,
        source: SaveSource,
    ) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        let now = later(self.clock.now(), *last);
        *last = Some(now);
        let record = CheckpointRecord {
            invocation_id: run.identity.invocation_id.clone(),
            correlation_id: run.identity.correlation_id.clone(),
            graph: self.graph.clone(),
            state: states.0,
            parent_states: states.1,
            at: Some(at),
            completed_positions: run.completed_positions(),
            fan_out_progress: Vec::new(),
            last_saved_at: now,
            schema_version: self.schema_version.clone(),
        };
        self.backend.save(&record, source).await
    }
}

/// `now`, or the next instant after `last` when the clock did not move.
fn later(now: Timestamp, last: Option<Timestamp>) -> Timestamp {
    match last {
        Some(last) if now <= last => last.checked_add(Duration::from_nanos(1)).unwrap_or(last),
        Some(_) | None => now,
    }
}

impl Walk<'_> {
    /// Whether completed nodes are saved.
    pub(super) fn is_saved(&self) -> bool {
        self.run.checkpoints.is_some()
    }

    /// Saves that node `name` completed and left `state` behind.
    pub(super) async fn save_completed(&self, name: &Arc<str>, state: &State) -> Result<(), EngineError> {
        self.save(name, state, true).await.map_err(|error| save_failed(&error).at(name, state))
    }

    /// Saves that node `name` failed on `state`, on which it will run again.
    pub(super) async fn save_failure(&self, name: &Arc<str>, state: &State) {
        if let Err(error) = self.save(name, state, false).await {
            tracing::warn!(%error, node = &**name, "the failure of a node was not saved as a checkpoint");
        }
    }

    async fn save(&self, name: &Arc<str>, state: &State, merged: bool) -> Result<(), StoreError> {
        let Some(checkpoints) = &self.run.checkpoints else { return Ok(()) };
        let path = self.namespace.iter().chain([name]).cloned().collect();
        let states = (state.to_map(), self.parents.iter().map(State::to_map).collect());
        checkpoints.save(self.run, states, SavePoint { path, merged }, SaveSource::Node).await
    }
}

fn save_failed(error: &StoreError) -> EngineError {
    let message = format!("the checkpoint was not saved: {error}");
    EngineError::new(Category::CheckpointSaveFailed, message).transient_if(is_transient(error))
}
