//! What all walks of an invocation share, and where a walk is among them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::{Clock, FanOutInstance, GrowingLists, NodePosition, StoredList};

use super::cancellation::Watch;
use super::checkpoint::Checkpoints;
use super::engine::{Engine, Outcome};
use super::journal::{HeldClaim, RunJournal};
use super::session::SessionRun;
use crate::ambient::{Identity, View};
use crate::observe::{Attached, Entry, EventQueue, InvocationResult, InvocationStart, ObservedError, Registered};
use crate::{CompiledGraph, EngineError};

/// What all walks of an invocation share.
pub(crate) struct Run {
    pub(super) identity: Arc<Identity>,
    /// The invocation as its outermost line of execution sees it.
    pub(super) view: View,
    pub(super) watch: Arc<Watch>,
    pub(super) journal: Arc<RunJournal>,
    pub(super) session: Option<Arc<SessionRun>>,
    pub(super) checkpoints: Option<Checkpoints>,
    pub(super) attached: Attached,
    pub(super) scoped: Vec<Registered>,
    pub(super) events: Option<Arc<EventQueue>>,
    pub(super) clock: Arc<dyn Clock>,
    step: AtomicU64,
    positions: Mutex<Vec<Position>>,
    growing: GrowingLists,
}

/// A finished node, and what was between it and the graphs around it.
pub(super) struct Position {
    pub(super) namespace: Arc<[Arc<str>]>,
    pub(super) node_name: Arc<str>,
    pub(super) step: u64,
    pub(super) attempt_index: u32,
    /// Empty for what finished before this run of the invocation.
    pub(super) lineage: Lineage,
    pub(super) fan_out_index: Option<u32>,
}

impl Position {
    /// As it is saved.
    pub(super) fn recorded(&self) -> NodePosition {
        NodePosition {
            namespace: self.namespace.to_vec(),
            node_name: self.node_name.clone(),
            step: self.step,
            attempt_index: self.attempt_index,
            fan_out_index: self.fan_out_index,
        }
    }
}

impl From<&NodePosition> for Position {
    fn from(recorded: &NodePosition) -> Self {
        Self {
            namespace: recorded.namespace.clone().into(),
            node_name: recorded.node_name.clone(),
            step: recorded.step,
            attempt_index: recorded.attempt_index,
            lineage: Lineage::default(),
            fan_out_index: recorded.fan_out_index,
        }
    }
}

/// What is between a graph and the node around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// A subgraph node.
    Plain,
    /// An instance of a fan-out node.
    Instance(u32),
    /// A branch of a parallel-branches node.
    Branch(Arc<str>),
}

/// The boundaries around a graph and when they were crossed, outermost first; as many as its namespace has names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage(Arc<[(Boundary, Entry)]>);

impl Lineage {
    pub(super) fn inside(&self, boundary: Boundary, entry: Entry) -> Self {
        Self(self.0.iter().cloned().chain([(boundary, entry)]).collect())
    }

    fn boundaries(&self) -> impl DoubleEndedIterator<Item = &Boundary> {
        self.0.iter().map(|(boundary, _)| boundary)
    }

    /// The boundary inside of the node at `depth` of the namespace.
    pub(super) fn at(&self, depth: usize) -> Option<&Boundary> {
        self.0.get(depth).map(|(boundary, _)| boundary)
    }

    /// The fan-out instances around a graph at `namespace`, outermost first.
    pub(super) fn instances(&self, namespace: &[Arc<str>]) -> Vec<FanOutInstance> {
        let instance = |(depth, boundary): (usize, &Boundary)| match boundary {
            Boundary::Instance(index) => Some(FanOutInstance {
                namespace: namespace[..depth].to_vec(),
                fan_out_node_name: namespace[depth].clone(),
                fan_out_index: *index,
            }),
            Boundary::Plain | Boundary::Branch(_) => None,
        };
        self.boundaries().take(namespace.len()).enumerate().filter_map(instance).collect()
    }

    /// Whether the graph is the whole of a fan-out instance.
    pub(super) fn is_instance(&self) -> bool {
        matches!(self.0.last(), Some((Boundary::Instance(_), _)))
    }

    pub(super) fn fan_out_indices(&self) -> Vec<Option<u32>> {
        self.boundaries().map(Boundary::instance).collect()
    }

    pub(super) fn branch_names(&self) -> Vec<Option<Arc<str>>> {
        self.boundaries().map(|boundary| boundary.branch().cloned()).collect()
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.0.iter().map(|(_, entry)| entry.clone()).collect()
    }

    /// The innermost fan-out instance.
    pub(super) fn fan_out_index(&self) -> Option<u32> {
        self.boundaries().rev().find_map(Boundary::instance)
    }

    /// Whether the graph is inside of any branch.
    pub(super) fn is_in_branch(&self) -> bool {
        self.boundaries().any(|boundary| boundary.branch().is_some())
    }

    /// The innermost branch.
    pub(super) fn branch_name(&self) -> Option<Arc<str>> {
        self.boundaries().rev().find_map(Boundary::branch).cloned()
    }
}

impl Boundary {
    fn instance(&self) -> Option<u32> {
        match self {
            Self::Instance(index) => Some(*index),
            Self::Plain | Self::Branch(_) => None,
        }
    }

    fn branch(&self) -> Option<&Arc<str>> {
        match self {
            Self::Branch(name) => Some(name),
            Self::Plain | Self::Instance(_) => None,
        }
    }
}

impl Run {
    pub(super) fn begin(
        engine: &Engine,
        graph: &CompiledGraph,
        start: InvocationStart,
        session: Option<Arc<SessionRun>>,
        scoped: Vec<Registered>,
    ) -> Self {
        let (identity, clock) = (start.identity.clone(), engine.ports().clock.clone());
        let attached = Attached::of(graph);
        let watched = !scoped.is_empty() || !attached.is_empty();
        let events = watched.then(|| {
            let observers = attached.to(graph).iter().chain(&scoped).cloned().collect();
            Arc::new(EventQueue::open(graph, start, observers, clock.clone(), &*engine.ports().spawner))
        });
        let checkpoints = Checkpoints::of(engine, graph);
        let view = View::new(identity.clone());
        let watch = Arc::new(Watch::new(engine, identity.invocation_id.clone()));
        let journal = Arc::new(RunJournal::new(identity.invocation_id.clone(), None));
        let growing = GrowingLists { fields: graph.schema().growing(), stored: Vec::new() };
        Self {
            identity,
            view,
            watch,
            journal,
            session,
            checkpoints,
            attached,
            scoped,
            events,
            clock,
            step: AtomicU64::new(0),
            positions: Mutex::default(),
            growing,
        }
    }

    /// Others may take the invocation over once `claim` has ended.
    pub(super) fn under(self, claim: HeldClaim) -> Self {
        let journal = Arc::new(RunJournal::new(self.identity.invocation_id.clone(), Some(claim)));
        Self { journal, ..self }
    }

    /// Tells the observers how the call ended.
    pub(super) fn end(&self, result: &Result<Outcome, EngineError>) {
        let Some(events) = &self.events else { return };
        events.end(match result {
            Ok(Outcome::Completed(_)) => InvocationResult::Completed,
            Ok(Outcome::Suspended(_)) => InvocationResult::Suspended,
            Err(error) => InvocationResult::Errored(ObservedError::from(error)),
        });
    }

    /// What is known of the lists of the outermost state that only grow.
    pub(super) fn growing(&self) -> GrowingLists {
        self.session.as_ref().map_or_else(|| self.growing.clone(), |session| session.growing())
    }

    /// The lists of the state from which the invocation goes on are `stored` already.
    pub(super) fn grown_from(mut self, stored: Vec<StoredList>) -> Self {
        self.growing.stored = stored;
        self
    }

    /// Takes up the history of a paused invocation.
    pub(super) fn continuing(self, step: u64, positions: &[NodePosition]) -> Self {
        let positions = positions.iter().map(Position::from).collect();
        Self { step: AtomicU64::new(step), positions: Mutex::new(positions), ..self }
    }

    /// The number of the next step, which is taken by asking.
    pub(super) fn take_step(&self) -> u64 {
        self.step.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that the next step will have.
    pub(super) fn next_step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    pub(super) fn complete(&self, position: Position) {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner).push(position);
    }

    pub(super) fn completed_positions(&self) -> Vec<NodePosition> {
        self.with_positions(|positions| positions.iter().map(Position::recorded).collect())
    }

    pub(super) fn with_positions<T>(&self, look: impl FnOnce(&[Position]) -> T) -> T {
        look(&self.positions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
