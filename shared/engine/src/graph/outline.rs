use super::CompiledGraph;
use super::compiled::{Edge, Work};

/// Shape of a graph, for pictures of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphOutline {
    /// The name under which it is registered.
    pub name: String,
    /// The node at which it begins.
    pub entry: String,
    /// Its nodes, in the order of their declaration.
    pub nodes: Vec<NodeOutline>,
}

/// A node of a [`GraphOutline`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutline {
    /// Its name.
    pub name: String,
    /// What it does with its turn.
    pub kind: NodeKind,
    /// True if its outcome is committed before the next node begins.
    pub durable: bool,
    /// Edge that follows it.
    pub next: NextNode,
    /// The graphs that it runs.
    pub inner: Vec<GraphOutline>,
}

/// What a node does when it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Runs a function.
    Function,
    /// Runs another graph.
    Subgraph,
    /// Runs a graph once for each element of a list.
    FanOut,
    /// Runs several branches side by side.
    Branches,
}

impl NodeKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Subgraph => "subgraph",
            Self::FanOut => "fan_out",
            Self::Branches => "branches",
        }
    }
}

/// Edge that follows a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextNode {
    /// Always this node.
    Node(String),
    /// The end of the graph.
    End,
    /// A function of the state decides.
    Decided {
        /// The nodes that it may choose beside the end; `None` where they are not declared.
        among: Option<Vec<String>>,
    },
}

impl CompiledGraph {
    /// Its shape: nodes, what follows them, and the graphs inside of them.
    pub fn outline(&self) -> GraphOutline {
        let name_of = |index: usize| self.node_at(index).map_or_else(String::new, |(name, _)| name.to_string());
        let nodes = self.nodes().iter().map(|(name, node)| NodeOutline {
            name: name.to_string(),
            kind: kind_of(&node.work),
            durable: node.durable,
            next: match &node.edge {
                Edge::To(index) => NextNode::Node(name_of(*index)),
                Edge::End => NextNode::End,
                Edge::Route(_, among) => NextNode::Decided {
                    among: among.as_ref().map(|nodes| nodes.iter().map(ToString::to_string).collect()),
                },
            },
            inner: node.work.inner().map(Self::outline).collect(),
        });
        GraphOutline { name: self.name().to_owned(), entry: name_of(self.entry()), nodes: nodes.collect() }
    }
}

fn kind_of(work: &Work) -> NodeKind {
    match work {
        Work::Node(_) => NodeKind::Function,
        Work::Subgraph { .. } => NodeKind::Subgraph,
        Work::FanOut(_) => NodeKind::FanOut,
        Work::Branches(_) => NodeKind::Branches,
    }
}

#[cfg(test)]
mod tests {
    use crate::{END, Field, FieldType, GraphBuilder, StateSchema, Target, Update};

    use super::*;

    #[test]
    fn it_tells_what_follows_what() {
        let schema = StateSchema::new().field("x", Field::new(FieldType::Str, ""));
        let graph = GraphBuilder::new("g", schema)
            .entry("a")
            .function("a", |_| async { Ok(Update::none()) })
            .function("b", |_| async { Ok(Update::none()) })
            .function("c", |_| async { Ok(Update::none()) })
            .durable("b")
            .edge("a", "b")
            .route_among("b", ["c"], |_| Ok(Target::from("c")))
            .edge("c", END);
        let outline = graph.compile().expect("a graph").outline();
        let told: Vec<_> = outline.nodes.iter().map(|node| (node.name.as_str(), node.next.clone())).collect();
        assert_eq!(outline.entry, "a");
        let decided = NextNode::Decided { among: Some(vec!["c".to_owned()]) };
        let expected = [("a", NextNode::Node("b".to_owned())), ("b", decided), ("c", NextNode::End)];
        assert_eq!(told, expected);
        assert!(outline.nodes[1].durable && outline.nodes[1].kind == NodeKind::Function);
    }
}
