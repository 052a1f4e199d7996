use std::sync::Arc;

use dormouse_ports::{Category, Map, SignalDescriptor};

use crate::cause::{Classification, classify};
use crate::{EngineError, NodeError, State, Update};

/// What a node event tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The node is about to run.
    Started,
    /// The node ran, its update was merged and its edge was chosen, or any of these failed.
    Completed,
    /// The node called `suspend()`.
    Suspended,
}

impl Phase {
    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Completed => "completed",
            Self::Suspended => "suspended",
        }
    }
}

/// Which phases an observer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    started: bool,
    completed: bool,
    suspended: bool,
}

impl Default for Phases {
    /// All phases.
    fn default() -> Self {
        Self { started: true, completed: true, suspended: true }
    }
}

/// An observer was to be registered for no phase at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an observer must want at least one phase")]
pub struct EmptyPhases;

impl Phases {
    /// These phases. Who wants `completed` is also told of `suspended`, which takes its place.
    ///
    /// # Errors
    /// When `phases` is empty: nobody registers to be told nothing (graph-engine §6).
    pub fn of(phases: impl IntoIterator<Item = Phase>) -> Result<Self, EmptyPhases> {
        let nothing = Self { started: false, completed: false, suspended: false };
        let mut wanted = nothing;
        for phase in phases {
            match phase {
                Phase::Started => wanted.started = true,
                Phase::Completed => (wanted.completed, wanted.suspended) = (true, true),
                Phase::Suspended => wanted.suspended = true,
            }
        }
        if wanted == nothing { Err(EmptyPhases) } else { Ok(wanted) }
    }

    pub(crate) fn contains(self, phase: Phase) -> bool {
        match phase {
            Phase::Started => self.started,
            Phase::Completed => self.completed,
            Phase::Suspended => self.suspended,
        }
    }
}

/// A failed execution as observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedError {
    /// The category of graph-engine §4.
    pub category: Category,
    /// The category behind carriers; `category` where nothing behind has one.
    pub derived_category: Category,
    /// What a person reads.
    pub message: String,
}

impl From<&EngineError> for ObservedError {
    fn from(error: &EngineError) -> Self {
        Self {
            category: error.category().clone(),
            derived_category: error.derived_category().clone(),
            message: error.message().to_owned(),
        }
    }
}

impl From<&NodeError> for ObservedError {
    /// As it would be if the error ended the invocation.
    fn from(error: &NodeError) -> Self {
        let category = error.carried().map_or(Category::NodeException, |inner| inner.category().clone());
        let derived_category = classify(error).derived.unwrap_or_else(|| category.clone());
        Self { category, derived_category, message: error.message().to_owned() }
    }
}

/// One transition of one node (graph-engine §6).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEvent {
    /// What it tells of.
    pub phase: Phase,
    /// The node's name in its own graph.
    pub node_name: Arc<str>,
    /// Path from the outermost graph to the node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// Position in the order of executions of the invocation, from 0.
    pub step: u64,
    /// Which attempt among retries, from 0.
    pub attempt_index: u32,
    /// What the node received.
    pub pre_state: State,
    /// What the merge made of it; only when all went well.
    pub post_state: Option<State>,
    /// What went wrong.
    pub error: Option<ObservedError>,
    /// What the node waits for; only when `phase` is `suspended`.
    pub descriptor: Option<SignalDescriptor>,
    /// The states of the containing graphs, outermost first; one fewer than `namespace` has names.
    pub parent_states: Vec<State>,
}

/// What the engine tells besides node events. It has no phase: every observer is told, whatever phases it wants.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameworkEvent {
    /// A failure was replaced by a degraded update.
    FailureIsolated(FailureIsolated),
    /// Code of the invocation added metadata.
    MetadataAugmented(MetadataAugmented),
}

/// A failure that [`FailureIsolation`](crate::middleware::FailureIsolation) caught (pipeline-utilities §6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct FailureIsolated {
    /// Names the place that caught it.
    pub event_name: Arc<str>,
    /// Path from the outermost graph to the wrapped node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// The latest attempt at the wrapped node.
    pub attempt_index: u32,
    /// What the wrapped chain received.
    pub pre_state: State,
    /// The degraded update.
    pub post_state: Update,
    /// What was caught.
    pub caught: Classification,
}

/// Metadata that was added in the midst of an invocation (observability §3.4).
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataAugmented {
    /// What was added.
    pub entries: Map,
    /// Path from the outermost graph to the node in whose dispatch it was added, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// The attempt in which it was added.
    pub attempt_index: u32,
}

/// What travels in the delivery queue.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Node(NodeEvent),
    Framework(FrameworkEvent),
}
