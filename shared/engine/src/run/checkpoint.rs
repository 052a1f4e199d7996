//! Saving progress at every completed node (pipeline-utilities §10.3).
//!
//! When the save of a completed node fails, the invocation ends with `checkpoint_save_failed` (§10.10); no middleware
//! sees it, and no error policy collects it. Where a node failed by itself, its own error matters more: that its
//! failure could not be saved is only logged.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Category, CheckpointRecord, Checkpointer, Clock, Map, SavePoint, SaveSource, StoreError};
use futures::lock::Mutex;
use jiff::Timestamp;

use super::engine::{Engine, is_transient};
use super::pausing::Refusal;
use super::progress::{FanOutKey, Progress};
use super::record::Run;
use super::walk::Walk;
use crate::graph::{CompiledNode, Work};
use crate::observe::{CheckpointSaved, FrameworkEvent};
use crate::{CompiledGraph, EngineError, State};

/// Where and as what an invocation saves its progress.
pub(super) struct Checkpoints {
    backend: Arc<dyn Checkpointer>,
    clock: Arc<dyn Clock>,
    graph: String,
    /// That of the declared schema, at every save (§10.2).
    schema_version: String,
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

    async fn save(
        &self,
        run: &Run,
        states: (Map, Vec<Map>),
        at: SavePoint,
        source: SaveSource,
    ) -> Result<CheckpointSaved, StoreError> {
        let mut last = self.last.lock().await;
        let now = later(self.clock.now(), *last);
        *last = Some(now);
        let record = CheckpointRecord {
            invocation_id: run.identity.invocation_id.clone(),
            correlation_id: run.identity.correlation_id.clone(),
            graph: self.graph.clone(),
            state: states.0,
            parent_states: states.1,
            at: Some(at.clone()),
            completed_positions: run.completed_positions(),
            fan_out_progress: run.with_positions(|positions| self.progress.snapshot(positions)),
            last_saved_at: now,
            schema_version: self.schema_version.clone(),
            session_version: run.session.as_ref().map(|session| session.version()),
        };
        self.backend.save(&record, source).await?;
        let completed_node_count = record.completed_positions.len();
        Ok(CheckpointSaved { last_saved_at: now, at, source, completed_node_count })
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
    /// Whether completed nodes are saved. Inside of a branch they are not: a crash starts the whole node with the
    /// branches over (§11.9).
    pub(super) fn is_saved(&self) -> bool {
        self.run.checkpoints.is_some() && !self.lineage.is_in_branch()
    }

    /// Saves that a node completed, or that its merge or its edge failed.
    ///
    /// The last node of a fan-out instance is not saved by itself: the instance is, together with what it contributes,
    /// so that no crash can come between the two (§10.11).
    pub(super) async fn save_settled(
        &self,
        name: &Arc<str>,
        node: &CompiledNode,
        moved: &Result<Option<usize>, EngineError>,
        pre_state: Option<&State>,
        state: &State,
    ) -> Result<(), Arc<Refusal>> {
        let Some(checkpoints) = self.run.checkpoints.as_ref().filter(|_| self.is_saved()) else { return Ok(()) };
        let source = self.source(node);
        match (moved, pre_state) {
            (Ok(None), _) if self.lineage.is_instance() && source != SaveSource::FanOutNode => {}
            (Ok(_), _) => {
                let saved = self.save(checkpoints, name, state, true, source).await;
                saved.map_err(|error| refused(&error, name, state))?;
            }
            (Err(_), Some(pre_state)) => self.save_failure(name, node, pre_state).await,
            (Err(_), None) => {}
        }
        if source == SaveSource::FanOutNode {
            checkpoints.progress.end(&FanOutKey::of(self, name));
        }
        Ok(())
    }

    /// Saves that a node failed on `state`, on which it will run again. A fan-out as a whole has nothing to add to what
    /// its instances saved.
    pub(super) async fn save_failure(&self, name: &Arc<str>, node: &CompiledNode, state: &State) {
        let Some(checkpoints) = self.run.checkpoints.as_ref().filter(|_| self.is_saved()) else { return };
        let source = self.source(node);
        if source == SaveSource::FanOutNode {
            return;
        }
        if let Err(error) = self.save(checkpoints, name, state, false, source).await {
            tracing::warn!(%error, node = &**name, "the failure of a node was not saved as a checkpoint");
        }
    }

    /// Saves that an instance of the fan-out node `name` contributed. `state` is the one with which the node began.
    pub(super) async fn save_contribution(&self, name: &Arc<str>, state: &State) -> Result<(), Arc<Refusal>> {
        let Some(checkpoints) = self.run.checkpoints.as_ref().filter(|_| self.is_saved()) else { return Ok(()) };
        let saved = self.save(checkpoints, name, state, false, SaveSource::FanOutInternal).await;
        saved.map_err(|error| refused(&error, name, state))
    }

    fn source(&self, node: &CompiledNode) -> SaveSource {
        match (&node.work, self.lineage.fan_out_index()) {
            (Work::FanOut(_), _) => SaveSource::FanOutNode,
            (Work::Node(_) | Work::Subgraph { .. } | Work::Branches(_), Some(_)) => SaveSource::FanOutInternal,
            (Work::Node(_) | Work::Subgraph { .. } | Work::Branches(_), None) => SaveSource::Node,
        }
    }

    async fn save(
        &self,
        checkpoints: &Checkpoints,
        name: &Arc<str>,
        state: &State,
        merged: bool,
        source: SaveSource,
    ) -> Result<(), StoreError> {
        let states = (state.to_map(), self.parents.iter().map(State::to_map).collect());
        let at = SavePoint { path: self.path_to(name), merged };
        let saved = checkpoints.save(self.run, states, at, source).await?;
        self.announce(FrameworkEvent::CheckpointSaved(saved));
        Ok(())
    }
}

fn refused(error: &StoreError, name: &Arc<str>, state: &State) -> Arc<Refusal> {
    let reason = format!("the checkpoint was not saved: {error}");
    let refusal = Refusal::new(Category::CheckpointSaveFailed, reason).transient_if(is_transient(error));
    Arc::new(refusal.at(name, state))
}
