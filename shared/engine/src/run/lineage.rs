//! Position of a graph among those around it.

use std::sync::Arc;

use dormouse_ports::{FanOutInstance, NodePosition};

use crate::observe::GraphEntry;

/// A finished node, and what was between it and the graphs around it.
pub(super) struct FinishedPosition {
    pub(super) namespace: Arc<[Arc<str>]>,
    pub(super) node_name: Arc<str>,
    pub(super) step: u64,
    pub(super) attempt_index: u32,
    /// Empty for what finished before this run of the invocation.
    pub(super) lineage: Lineage,
    pub(super) fan_out_index: Option<u32>,
}

impl FinishedPosition {
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

impl From<&NodePosition> for FinishedPosition {
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

/// Boundary between a graph and the node around it.
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
pub(crate) struct Lineage(Arc<[(Boundary, GraphEntry)]>);

impl Lineage {
    pub(super) fn inside(&self, boundary: Boundary, entry: GraphEntry) -> Self {
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

    /// True if the graph is the whole of a fan-out instance.
    pub(super) fn is_instance(&self) -> bool {
        matches!(self.0.last(), Some((Boundary::Instance(_), _)))
    }

    pub(super) fn fan_out_indices(&self) -> Vec<Option<u32>> {
        self.boundaries().map(Boundary::instance).collect()
    }

    pub(super) fn branch_names(&self) -> Vec<Option<Arc<str>>> {
        self.boundaries().map(|boundary| boundary.branch().cloned()).collect()
    }

    pub(super) fn entries(&self) -> Vec<GraphEntry> {
        self.0.iter().map(|(_, entry)| entry.clone()).collect()
    }

    /// The innermost fan-out instance.
    pub(super) fn fan_out_index(&self) -> Option<u32> {
        self.boundaries().rev().find_map(Boundary::instance)
    }

    /// True if the graph is inside of any branch.
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
