//! Start of an invocation from its checkpoint after a crash (pipeline-utilities §10.4).

use std::sync::Arc;

use dormouse_ports::{
    Category, CheckpointRecord, FanOutProgress, InvocationId, InvocationStatus, NodePosition, SavePoint, StoreError,
};

use super::engine::{Engine, is_transient};
use super::restore;
use super::session::SessionRun;
use super::walk::{ResumePoint, StartAt};
use crate::graph::Migrated;
use crate::{CompiledGraph, EngineError, State};

/// The checkpoint of the invocation `id`, if that may go on from it.
pub(super) async fn load(
    engine: &Engine,
    graph: &CompiledGraph,
    id: &InvocationId,
) -> Result<CheckpointRecord, EngineError> {
    let missing = |why: &str| EngineError::new(Category::CheckpointNotFound, format!("invocation {id}: {why}"));
    let checkpointer = graph.checkpointer().ok_or_else(|| missing("its graph has no checkpointer to ask"))?;
    let record = checkpointer.load(id).await.map_err(|error| unreadable(&error))?;
    let record = record.ok_or_else(|| missing("there is no checkpoint"))?;
    if !record.graph.is_empty() && record.graph != graph.name() {
        return Err(invalid(format!("it is one of graph `{}`, not of graph `{}`", record.graph, graph.name())));
    }
    let stored = engine.ports().store.invocations.load_invocation(id).await.map_err(|error| unreadable(&error))?;
    match stored.map(|stored| stored.status) {
        Some(InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_)) => {
            Err(invalid(format!("invocation {id} sleeps: only its signal continues it")))
        }
        Some(InvocationStatus::Canceled(cancellation)) => {
            Err(EngineError::new(Category::InvocationCanceled, cancellation.message()))
        }
        Some(InvocationStatus::Completed { .. } | InvocationStatus::Errored(_)) | None => Ok(record),
    }
}

/// Start of an invocation that goes on from a checkpoint.
pub(super) struct CheckpointStart {
    pub(super) outermost: State,
    pub(super) from: StartAt,
    /// Nodes that had finished and do not run again.
    pub(super) history: Vec<NodePosition>,
    pub(super) progress: Vec<FanOutProgress>,
    pub(super) step: u64,
    session_version: Option<u64>,
}

impl CheckpointStart {
    pub(super) fn of(graph: &CompiledGraph, record: CheckpointRecord) -> Result<Self, EngineError> {
        let point = save_point(&record);
        let session_version = record.session_version;
        let declared = graph.schema().version();
        let version = record.schema_version;
        let stored = record.parent_states.into_iter().chain([record.state]).collect();
        // Whether there are migrations for it is judged first (§10.10): only a record of this version can be an invalid one.
        let mut stored = graph.migrations().migrate(Migrated::Checkpoint, stored, (&version, declared))?;
        let point = point?.map(|point| reachable(graph, point)).transpose().map_err(invalid)?;
        let path = point.as_ref().map_or(&[][..], |point| &point.path);
        let graphs = restore::graphs(graph, path).map_err(invalid)?;
        stored.truncate(graphs.len());
        let mut states = restore::states(&graphs, stored).map_err(invalid)?;
        let step = record.completed_positions.iter().map(|position| position.step + 1).max().unwrap_or(0);
        let mut history = record.completed_positions;
        let mut progress = record.fan_out_progress;
        if let Some(point) = &point {
            history.retain(|position| point.merged || !position.namespace.starts_with(&point.path));
            // Only what runs again may find its entry: a loop could come by the node of any other one.
            progress.retain(|entry| record.at.is_none() || (!point.merged && is_within(entry, &point.path)));
        }
        let outermost = states.remove(0);
        let from = point.map_or(StartAt::Entry, |point| StartAt::Pause(resume_point(point, states)));
        Ok(Self { outermost, from, history, progress, step, session_version })
    }

    /// Error if the session was saved since, so that the invocation may not go on.
    pub(super) fn overtaken(&self, session: &SessionRun) -> Option<EngineError> {
        let known = self.session_version.filter(|known| session.is_ahead_of(*known))?;
        let message = format!(
            "the session is at version {}, the checkpoint was saved at version {known}; going on would undo what was \
             saved since",
            session.version()
        );
        Some(EngineError::new(Category::SessionWriteConflict, message))
    }
}

/// The save point of `record`: the one that it names, or the last completed node of the innermost active graph; none
/// when nothing completed.
fn save_point(record: &CheckpointRecord) -> Result<Option<SavePoint>, EngineError> {
    let depth = record.parent_states.len();
    if let Some(at) = &record.at {
        return match at.path.len() == depth + 1 {
            true => Ok(Some(at.clone())),
            false => Err(invalid(format!(
                "the save point names {} nodes, but the checkpoint holds {} states",
                at.path.len(),
                depth + 1
            ))),
        };
    }
    let outside = |position: &&NodePosition| position.fan_out_index.is_none() && position.namespace.len() >= depth;
    let Some(last) = record.completed_positions.iter().rev().find(outside) else {
        return if depth == 0 { Ok(None) } else { Err(invalid("it does not say in which subgraph it was saved")) };
    };
    let path = last.namespace.iter().chain([&last.node_name]).take(depth + 1).cloned().collect();
    Ok(Some(SavePoint { path, merged: true }))
}

/// `point`, or the first node on the way to it that is no subgraph: what ran inside of that starts over.
fn reachable(graph: &CompiledGraph, mut point: SavePoint) -> Result<SavePoint, String> {
    let mut around = graph;
    for depth in 0..point.path.len() {
        let name = &point.path[depth];
        if around.index_of(name).is_none() {
            return Err(format!("graph `{}` has no node `{name}` any more", around.name()));
        }
        match around.inner(name) {
            Some(inner) => around = inner,
            None if depth + 1 < point.path.len() => {
                point.path.truncate(depth + 1);
                return Ok(SavePoint { merged: false, ..point });
            }
            None => {}
        }
    }
    Ok(point)
}

/// True if the fan-out of `entry` is the node at `path`, or inside of its instances.
fn is_within(entry: &FanOutProgress, path: &[Arc<str>]) -> bool {
    let outermost = entry.enclosing_fan_out_lineage.first();
    let (namespace, name) = match outermost {
        Some(around) => (&around.namespace, &around.fan_out_node_name),
        None => (&entry.namespace, &entry.fan_out_node_name),
    };
    path.split_last().is_some_and(|(last, containing)| last == name && containing == namespace)
}

fn resume_point(point: SavePoint, inner_states: Vec<State>) -> ResumePoint {
    let path = point.path;
    let node_completed = point.merged;
    ResumePoint { path, inner_states, node_completed, attempt_index: 0, outer_attempts: Vec::new(), step: None }
}

fn unreadable(error: &StoreError) -> EngineError {
    invalid(error.to_string()).transient_if(is_transient(error))
}

fn invalid(reason: impl std::fmt::Display) -> EngineError {
    EngineError::new(Category::CheckpointRecordInvalid, format!("the checkpoint cannot be resumed: {reason}"))
}
