//! A suspension on its way from the node that requested it out to `invoke()` (suspension §8).

use std::sync::Arc;

use dormouse_ports::{Category, JournalEntry, SignalDescriptor};
use serde_json::Value;

use crate::{EngineError, State, Update};

/// A pause to be persisted.
#[derive(Clone)]
pub(crate) struct NewPause {
    pub(super) descriptor: SignalDescriptor,
    /// True if execution goes on behind the node at `namespace`, false if it goes on with it.
    pub(super) node_completed: bool,
    pub(super) attempt_index: u32,
    /// Those of the subgraph nodes around it, outermost first.
    pub(super) outer_attempts: Vec<u32>,
    pub(super) step: u64,
    /// States of all graphs that are resumed, outermost first.
    pub(super) states: Vec<State>,
    /// Path from the outermost graph to the node at which execution goes on, its own name last.
    pub(super) namespace: Vec<Arc<str>>,
    /// Path to the node that asked; longer where that ran in a fan-out or a branch.
    pub(super) asked_by: Vec<Arc<str>>,
    pub(super) recorded: PauseEntries,
}

/// Entries recorded inside of the outermost node that pauses.
#[derive(Clone, Default)]
pub(super) struct PauseEntries {
    /// By nodes that completed and do not run again.
    pub(super) completed: Vec<JournalEntry>,
    /// By the node that asked, before it did.
    pub(super) asking: Vec<JournalEntry>,
}

impl NewPause {
    /// The same pause as seen by the node around a graph in which completed nodes have recorded `before`.
    pub(super) fn behind(self: Arc<Self>, before: Vec<JournalEntry>) -> Arc<Self> {
        if before.is_empty() {
            return self;
        }
        let mut pause = Arc::unwrap_or_clone(self);
        pause.recorded.completed.splice(0..0, before);
        Arc::new(pause)
    }
}

/// Refusal to go on with the invocation, which no handler may catch: a suspension where none may be (suspension §9), or
/// progress that cannot be saved or taken up (pipeline-utilities §10.10).
#[derive(Clone, Debug)]
pub(crate) struct SuspendRefusal {
    category: Category,
    reason: Arc<str>,
    transient: bool,
    node: Option<Arc<str>>,
    state: Option<State>,
}

impl SuspendRefusal {
    pub(super) fn new(category: Category, reason: impl Into<Arc<str>>) -> Self {
        Self { category, reason: reason.into(), transient: false, node: None, state: None }
    }

    /// Marks it as transient if the same may succeed a moment later.
    pub(super) fn transient_if(self, transient: bool) -> Self {
        Self { transient, ..self }
    }

    /// Sets the place where it happened, unless that is known already.
    pub(super) fn at(mut self, node: &Arc<str>, state: &State) -> Self {
        self.node.get_or_insert_with(|| node.clone());
        self.state.get_or_insert_with(|| state.clone());
        self
    }

    pub(super) fn into_error(self: Arc<Self>) -> EngineError {
        let error = EngineError::new(self.category.clone(), &*self.reason).transient_if(self.transient);
        match (&self.node, &self.state) {
            (Some(node), Some(state)) => error.at(node, state),
            (None, _) | (_, None) => error,
        }
    }
}

/// Reason for which a walk does not go on.
pub(super) enum Stop {
    Pause(Arc<NewPause>),
    Refusal(Arc<SuspendRefusal>),
}

/// A pause inside a concurrent part of a node.
#[derive(Clone)]
pub(crate) struct Contained {
    pub(super) pause: Arc<NewPause>,
    /// Contributions of the finished parts so far.
    pub(super) partial: Update,
    /// Entries recorded in them.
    pub(super) recorded: Vec<JournalEntry>,
    /// Annotation of the descriptor: `fan_out_index` or `branch_name`, and its value.
    pub(super) part: DescriptorPart,
}

/// A part of a node in the metadata of a descriptor.
#[derive(Clone)]
pub(crate) struct DescriptorPart {
    pub(super) key: &'static str,
    pub(super) value: Value,
}
