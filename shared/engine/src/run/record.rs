//! What all walks of an invocation share, and where a walk is among them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::NodePosition;

use super::engine::Engine;
use super::session::SessionRun;
use crate::CompiledGraph;
use crate::ambient::{Identity, View};
use crate::observe::{Attached, EventQueue, Registered};

/// What all walks of an invocation share.
pub(crate) struct Run {
    pub(super) identity: Arc<Identity>,
    /// The invocation as its outermost line of execution sees it.
    pub(super) view: View,
    pub(super) session: Option<Arc<SessionRun>>,
    pub(super) attached: Attached,
    pub(super) scoped: Vec<Registered>,
    pub(super) events: Option<Arc<EventQueue>>,
    step: AtomicU64,
    positions: Mutex<Vec<Position>>,
}

/// A finished node.
pub(super) struct Position {
    pub(super) namespace: Arc<[Arc<str>]>,
    pub(super) node_name: Arc<str>,
    pub(super) step: u64,
    pub(super) attempt_index: u32,
    pub(super) fan_out_index: Option<u32>,
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

/// The boundaries around a graph, outermost first; as many as its namespace has names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage(Arc<[Boundary]>);

impl Lineage {
    pub(super) fn inside(&self, boundary: Boundary) -> Self {
        Self(self.0.iter().cloned().chain([boundary]).collect())
    }

    pub(super) fn fan_out_indices(&self) -> Vec<Option<u32>> {
        let index = |boundary: &Boundary| match boundary {
            Boundary::Instance(index) => Some(*index),
            Boundary::Plain | Boundary::Branch(_) => None,
        };
        self.0.iter().map(index).collect()
    }

    pub(super) fn branch_names(&self) -> Vec<Option<Arc<str>>> {
        let name = |boundary: &Boundary| match boundary {
            Boundary::Branch(name) => Some(name.clone()),
            Boundary::Plain | Boundary::Instance(_) => None,
        };
        self.0.iter().map(name).collect()
    }

    /// The innermost fan-out instance.
    pub(super) fn fan_out_index(&self) -> Option<u32> {
        self.fan_out_indices().into_iter().rev().flatten().next()
    }

    /// The innermost branch.
    pub(super) fn branch_name(&self) -> Option<Arc<str>> {
        self.branch_names().into_iter().rev().flatten().next()
    }
}

impl Run {
    pub(super) fn begin(
        engine: &Engine,
        graph: &CompiledGraph,
        identity: Arc<Identity>,
        session: Option<Arc<SessionRun>>,
        scoped: Vec<Registered>,
    ) -> Self {
        let attached = Attached::of(graph);
        let watched = !scoped.is_empty() || !attached.is_empty();
        let id = &identity.invocation_id;
        let events = watched.then(|| Arc::new(EventQueue::open(graph, id.clone(), &*engine.ports().spawner)));
        let (step, positions) = (AtomicU64::new(0), Mutex::default());
        Self { view: View::new(identity.clone()), identity, session, step, positions, attached, scoped, events }
    }

    /// Takes up the history of a paused invocation.
    pub(super) fn continuing(self, step: u64, positions: &[NodePosition]) -> Self {
        let positions = positions.iter().map(|position| Position {
            namespace: position.namespace.clone().into(),
            node_name: position.node_name.clone(),
            step: position.step,
            attempt_index: position.attempt_index,
            fan_out_index: position.fan_out_index,
        });
        Self { step: AtomicU64::new(step), positions: Mutex::new(positions.collect()), ..self }
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
        let positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let position = |p: &Position| NodePosition {
            namespace: p.namespace.to_vec(),
            node_name: p.node_name.clone(),
            step: p.step,
            attempt_index: p.attempt_index,
            fan_out_index: p.fan_out_index,
        };
        positions.iter().map(position).collect()
    }
}
