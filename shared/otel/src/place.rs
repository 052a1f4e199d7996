//! Position of a span in the tree of one call (observability §4.1, §4.3).

use std::sync::Arc;

use dormouse_engine::{GraphEntry, NodeEvent, Origin};

/// A node on the way from the outermost graph inwards, and the part that was entered at it: an instance, a branch, or
/// neither in a plain subgraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnteredNode {
    pub(crate) node: Arc<str>,
    pub(crate) fan_out_index: Option<u32>,
    pub(crate) branch: Option<Arc<str>>,
    /// The graph that was entered, and the instant.
    pub(crate) entry: GraphEntry,
}

impl EnteredNode {
    pub(crate) fn is_plain(&self) -> bool {
        self.fan_out_index.is_none() && self.branch.is_none()
    }
}

/// Subject of a span. Of two open spans of a call no two have the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpanPlace {
    /// An attempt at a node.
    Node { around: Vec<EnteredNode>, name: Arc<str>, attempt_index: u32 },
    /// The part that was entered last: a subgraph, a fan-out instance or a branch. Never empty.
    Inside(Vec<EnteredNode>),
}

impl SpanPlace {
    /// The place of the node of `event`.
    pub(crate) fn of_node(event: &NodeEvent) -> Self {
        let around = way(&event.namespace, &event.fan_out_index_chain, &event.branch_name_chain, &event.entry_chain);
        Self::Node { around, name: event.node_name.clone(), attempt_index: event.attempt_index }
    }

    /// The place of the work of `origin`: a node, or the part of one that was entered.
    pub(crate) fn of_origin(origin: &Origin) -> Self {
        let around =
            way(&origin.namespace, &origin.fan_out_index_chain, &origin.branch_name_chain, &origin.entry_chain);
        match origin.namespace.get(around.len()) {
            Some(name) => Self::Node { around, name: name.clone(), attempt_index: origin.attempt_index },
            None => Self::Inside(around),
        }
    }

    /// All parts that were entered up to here.
    pub(crate) fn way(&self) -> &[EnteredNode] {
        match self {
            Self::Node { around, .. } => around,
            Self::Inside(path) => path,
        }
    }

    /// True if work at `at` is done here or further in: at the node itself, or in a part that was entered on the way to
    /// it.
    pub(crate) fn is_on_the_way_to(&self, at: &Self) -> bool {
        match self {
            Self::Node { .. } => self == at,
            Self::Inside(_) => self == at || self.contains(at),
        }
    }

    /// True if a fan-out instance or a branch was entered on the way.
    pub(crate) fn is_in_a_part(&self) -> bool {
        !self.way().iter().all(EnteredNode::is_plain)
    }

    /// The parts that were entered on the way.
    pub(crate) fn around(&self) -> &[EnteredNode] {
        match self {
            Self::Node { around, .. } => around,
            Self::Inside(path) => path.split_last().map_or(&[], |(_, around)| around),
        }
    }

    /// True if `other` is somewhere inside.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inside(path), Self::Node { around, .. }) => around.starts_with(path),
            (Self::Inside(path), Self::Inside(deeper)) => deeper.len() > path.len() && deeper.starts_with(path),
            (Self::Node { .. }, Self::Node { around, .. }) => self.is_entered_by(around),
            (Self::Node { .. }, Self::Inside(path)) => self.is_entered_by(path),
        }
    }

    /// True if the way `path` leads through this node.
    fn is_entered_by(&self, path: &[EnteredNode]) -> bool {
        let Self::Node { around, name, .. } = self else { return false };
        path.starts_with(around) && path.get(around.len()).is_some_and(|entered| entered.node == *name)
    }

    /// True if this is a plain subgraph that is over when execution comes to `next`: both are in one serial flow, and
    /// `next` is outside.
    pub(crate) fn is_left_at(&self, next: &Self) -> bool {
        let Self::Inside(path) = self else { return false };
        let plain = path.last().is_some_and(EnteredNode::is_plain);
        plain && next.around().starts_with(self.around()) && !next.around().starts_with(path) && self != next
    }

    /// True if a span here is the parent of one at `child`.
    pub(crate) fn is_parent_of(&self, child: &Self) -> bool {
        match (self, child) {
            (Self::Inside(path), Self::Node { around, .. }) => path == around,
            (Self::Inside(path), Self::Inside(deeper)) => {
                deeper.last().is_some_and(EnteredNode::is_plain) && path == child.around()
            }
            (Self::Node { around, .. }, Self::Inside(deeper)) => {
                around.len() + 1 == deeper.len() && self.is_entered_by(deeper)
            }
            (Self::Node { .. }, Self::Node { .. }) => false,
        }
    }
}

/// The way to an event, from its chains; as far as they go.
fn way(
    nodes: &[Arc<str>],
    fan_out_indices: &[Option<u32>],
    branches: &[Option<Arc<str>>],
    entries: &[GraphEntry],
) -> Vec<EnteredNode> {
    let chains = nodes.iter().zip(fan_out_indices).zip(branches).zip(entries);
    let entered = chains.map(|(((node, fan_out_index), branch), entry)| EnteredNode {
        node: node.clone(),
        fan_out_index: *fan_out_index,
        branch: branch.clone(),
        entry: entry.clone(),
    });
    entered.collect()
}
