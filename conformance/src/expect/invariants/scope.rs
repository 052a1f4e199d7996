//! Whose events a predicate is about.

use dormouse_engine::NodeEvent;
use serde_json::Value;

use super::Events;
use crate::Failure;
use crate::directives::Directives;

/// The events of an observer that a predicate is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    /// Of the outermost graph; only of some of its nodes where the fixture names them.
    Outermost,
    /// Of graphs and calls inside of nodes.
    Inner,
    /// Those of them that run in an instance of a fan-out.
    InFanOut,
    /// Those of them whose branch holds no fan-out.
    Plain,
    /// Of branches.
    Branches,
    /// Of a node; of a branch where no node of that name has events.
    Node(String),
    Branch(String),
    /// Of what runs inside of a node or a branch.
    Inside(String),
}

impl Scope {
    /// `inner`, `outermost`, `NODE`, `NODE_node`, `NODE_branch`, `NODE_inner` and others, with or without `_events`.
    pub(super) fn named(name: &str, is_node: impl Fn(&str) -> bool) -> Option<Self> {
        if !name.is_empty() && is_node(name) && !is_word(name) {
            return Some(Self::Node(name.to_owned()));
        }
        if let Some(shorter) = name.strip_suffix("_events").or_else(|| name.strip_suffix("_event")) {
            return Self::named(shorter, is_node);
        }
        let known = WORDS.iter().find(|(word, _)| *word == name).map(|(_, scope)| scope.clone());
        let of = |suffix, make: fn(String) -> Self| {
            let node = name.strip_suffix(suffix).filter(|node| !node.is_empty() && is_node(node))?;
            Some(make(node.to_owned()))
        };
        known
            .or_else(|| of("_callable_branch", Self::Branch))
            .or_else(|| of("_branch", Self::Branch))
            .or_else(|| of("_inner", Self::Inside))
            .or_else(|| of("_node", Self::Node))
    }

    /// Its events.
    pub(super) fn of<'e>(
        &self,
        wanted: &Value,
        events: &Events<'e>,
        is_node: impl Fn(&str) -> bool,
    ) -> Result<Vec<&'e NodeEvent>, Failure> {
        let is_inner = |event: &NodeEvent| event.namespace.len() > 1;
        let is_instance = |event: &NodeEvent| is_inner(event) && event.fan_out_index.is_some();
        let holds_instances =
            |event: &NodeEvent| events.iter().any(|other| is_instance(other) && other.branch_name == event.branch_name);
        let named = match (self, wanted) {
            (Self::Outermost, Value::Object(_)) => {
                let mut given = Directives::new("the nodes", wanted)?;
                let nodes = given.require("nodes")?.as_array();
                given.done()?;
                nodes
            }
            _ => None,
        };
        for node in named.into_iter().flatten() {
            if !node.as_str().is_some_and(&is_node) {
                return Err(Failure::invalid(format!("there is no node {node}")));
            }
        }
        let is_ours = |event: &NodeEvent| match self {
            Self::All => true,
            Self::Outermost => match named {
                None => !is_inner(event),
                Some(nodes) => nodes.iter().any(|node| node == &*event.node_name),
            },
            Self::Inner => is_inner(event),
            Self::InFanOut => is_instance(event),
            Self::Plain => is_inner(event) && !holds_instances(event),
            Self::Branches => is_inner(event) && event.branch_name.is_some(),
            Self::Node(name) => *event.node_name == **name,
            Self::Branch(name) => event.branch_name.as_deref() == Some(name),
            Self::Inside(name) => {
                let around = event.namespace.split_last().map_or(&[][..], |(_, around)| around);
                is_inner(event)
                    && (event.branch_name.as_deref() == Some(name) || around.iter().any(|node| **node == **name))
            }
        };
        let mut own: Vec<_> = events.iter().copied().filter(|event| is_ours(event)).collect();
        if let Self::Node(name) = self
            && own.is_empty()
        {
            // A branch that runs a subgraph has no event of its own name.
            own.extend(events.iter().copied().filter(|event| event.branch_name.as_deref() == Some(name)));
        }
        Ok(own)
    }
}

/// The names of events that are not those of a node.
const WORDS: &[(&str, Scope)] = &[
    ("", Scope::All),
    ("outermost", Scope::Outermost),
    ("inner", Scope::Inner),
    ("fan_out_inner", Scope::InFanOut),
    ("plain_inner", Scope::Plain),
    ("callable_branch", Scope::Branches),
    ("branch", Scope::Branches),
];

fn is_word(name: &str) -> bool {
    WORDS.iter().any(|(word, _)| *word == name)
}
