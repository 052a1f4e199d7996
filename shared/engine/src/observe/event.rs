use std::sync::Arc;

use dormouse_ports::{Category, SignalDescriptor};
use jiff::Timestamp;

use crate::State;

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

impl FromIterator<Phase> for Phases {
    /// These phases. Who wants `completed` is also told of `suspended`, which takes its place.
    fn from_iter<I: IntoIterator<Item = Phase>>(phases: I) -> Self {
        let mut wanted = Self { started: false, completed: false, suspended: false };
        for phase in phases {
            match phase {
                Phase::Started => wanted.started = true,
                Phase::Completed => (wanted.completed, wanted.suspended) = (true, true),
                Phase::Suspended => wanted.suspended = true,
            }
        }
        wanted
    }
}

impl Phases {
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
    /// The category behind carriers.
    pub derived_category: Category,
    /// What a person reads.
    pub message: String,
}

/// One transition of one node (graph-engine §6).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEvent {
    /// When it happened; observers hear of it later.
    pub at: Timestamp,
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
