//! Saving the outcome of a node (pipeline-utilities §10.3, §10.10).

use std::sync::Arc;

use dormouse_ports::{Category, CheckpointRecord, SavePoint, SaveSource, StoreError};

use super::checkpoint::Checkpoints;
use super::dispatch::Dispatch;
use super::engine::is_transient;
use super::pause::SuspendRefusal;
use super::progress::FanOutKey;
use crate::graph::Work;
use crate::observe::{CheckpointSaved, FrameworkEvent};
use crate::{EngineError, State};

/// Outcome of a node, to be saved.
struct Progressed<'s> {
    state: &'s State,
    /// True if its update is part of the state.
    merged: bool,
    source: SaveSource,
}

impl Dispatch<'_> {
    /// Saves that a node completed, or that its merge or its edge failed.
    ///
    /// The last node of a fan-out instance is not saved by itself: the instance is, together with what it contributes,
    /// so that no crash can come between the two (§10.11).
    pub(super) async fn save_settled(
        &self,
        moved: &Result<Option<usize>, EngineError>,
        pre_state: Option<&State>,
        state: &State,
    ) -> Result<(), Arc<SuspendRefusal>> {
        let Some(checkpoints) = self.checkpoints() else { return Ok(()) };
        let source = self.source();
        match (moved, pre_state) {
            (Ok(None), _) if self.walk.lineage.is_instance() && source != SaveSource::FanOutNode => {}
            (Ok(_), _) => {
                let saved = self.save(checkpoints, Progressed { state, merged: true, source }).await;
                saved.map_err(|error| refused(&error, self.name, state))?;
            }
            (Err(_), Some(pre_state)) => self.save_failure(pre_state).await,
            (Err(_), None) => {}
        }
        if source == SaveSource::FanOutNode {
            checkpoints.progress.end(&self.fan_out_key());
        }
        Ok(())
    }

    /// Saves that a node failed on `state`, on which it will run again. A fan-out as a whole has nothing to add to what
    /// its instances saved.
    pub(super) async fn save_failure(&self, state: &State) {
        let Some(checkpoints) = self.checkpoints() else { return };
        let source = self.source();
        if source == SaveSource::FanOutNode {
            return;
        }
        if let Err(error) = self.save(checkpoints, Progressed { state, merged: false, source }).await {
            tracing::warn!(%error, node = &**self.name, "the failure of a node was not saved as a checkpoint");
        }
    }

    /// Saves that an instance of the fan-out node contributed. `state` is the one with which the node began.
    pub(super) async fn save_contribution(&self, state: &State) -> Result<(), Arc<SuspendRefusal>> {
        let Some(checkpoints) = self.checkpoints() else { return Ok(()) };
        let saved =
            self.save(checkpoints, Progressed { state, merged: false, source: SaveSource::FanOutInternal }).await;
        saved.map_err(|error| refused(&error, self.name, state))
    }

    /// The checkpointer to which progress is saved, if it is saved here.
    pub(super) fn checkpoints(&self) -> Option<&Checkpoints> {
        self.walk.run.checkpoints.as_ref().filter(|_| self.walk.is_saved())
    }

    /// The fan-out node that is dispatched.
    pub(super) fn fan_out_key(&self) -> FanOutKey {
        let namespace = &self.walk.namespace;
        FanOutKey::new(namespace.to_vec(), self.name.clone(), self.walk.lineage.instances(namespace))
    }

    fn source(&self) -> SaveSource {
        match (&self.node.work, self.walk.lineage.fan_out_index()) {
            (Work::FanOut(_), _) => SaveSource::FanOutNode,
            (Work::Node(_) | Work::Subgraph { .. } | Work::Branches(_), Some(_)) => SaveSource::FanOutInternal,
            (Work::Node(_) | Work::Subgraph { .. } | Work::Branches(_), None) => SaveSource::Node,
        }
    }

    async fn save(&self, checkpoints: &Checkpoints, progressed: Progressed<'_>) -> Result<(), StoreError> {
        let Progressed { state, merged, source } = progressed;
        let walk = self.walk;
        let run = self.walk.run;
        let parent_states = walk.parents.iter().map(State::to_map).collect();
        let state = state.to_map();
        let at = SavePoint { path: walk.path_to(self.name), merged };
        let of_run = |now| CheckpointRecord {
            invocation_id: run.identity.invocation_id.clone(),
            correlation_id: run.identity.correlation_id.clone(),
            graph: checkpoints.graph.clone(),
            state,
            parent_states,
            at: Some(at.clone()),
            completed_positions: run.completed_positions(),
            fan_out_progress: run.with_positions(|positions| checkpoints.progress.snapshot(positions)),
            last_saved_at: now,
            schema_version: checkpoints.schema_version.clone(),
            session_version: run.session.as_ref().map(|session| session.version()),
        };
        let saved = checkpoints.save(source, of_run).await?;
        let last_saved_at = saved.last_saved_at;
        let completed_node_count = saved.completed_positions.len();
        let saved = CheckpointSaved { last_saved_at, at, source, completed_node_count };
        walk.announce(FrameworkEvent::CheckpointSaved(saved));
        Ok(())
    }
}

fn refused(error: &StoreError, name: &Arc<str>, state: &State) -> Arc<SuspendRefusal> {
    let reason = format!("the checkpoint was not saved: {error}");
    let refusal = SuspendRefusal::new(Category::CheckpointSaveFailed, reason).transient_if(is_transient(error));
    Arc::new(refusal.at(name, state))
}
