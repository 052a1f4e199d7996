//! From a fixture's graph to a compiled one (conformance-adapter §5.1 to §5.4).

mod action;
mod edge;
mod fields;
mod middleware;
mod node;

use std::sync::Arc;

use dormouse_engine::{CompiledGraph, EngineError, GraphBuilder, SessionPolicy, StateSchema};
use indexmap::IndexMap;

pub(crate) use action::descriptor;
use edge::EdgeSpec;
use node::{NodeSpec, Work};

use crate::Failure;
use crate::directives::Directives;
use crate::ledger::{Ledger, Tracer};
use crate::store::WatchedStore;

/// A graph as a fixture declares it.
#[derive(Debug)]
pub(crate) struct GraphSpec {
    schema: StateSchema,
    entry: Option<String>,
    nodes: IndexMap<String, NodeSpec>,
    edges: Vec<EdgeSpec>,
    subgraphs: IndexMap<String, GraphSpec>,
}

/// What a fixture's nodes reach beside the state that they are given.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) store: Arc<WatchedStore>,
}

/// Why a graph could not be built.
#[derive(Debug)]
pub(crate) enum BuildError {
    /// The engine refused it.
    Refused(EngineError),
    /// The runner cannot build it.
    Broken(Failure),
}

impl From<EngineError> for BuildError {
    fn from(error: EngineError) -> Self {
        Self::Refused(error)
    }
}

/// A compiled graph with the graphs inside of it, by the names of subgraphs and of the nodes that run them.
pub(crate) struct BuiltGraph {
    pub(crate) graph: Arc<CompiledGraph>,
    pub(crate) inner: IndexMap<String, Arc<CompiledGraph>>,
}

impl GraphSpec {
    /// Reads the graph's own keys out of `case`; other keys stay unread.
    pub(crate) fn read(case: &mut Directives<'_>) -> Result<Self, Failure> {
        let schema = case.nested("state")?.map_or_else(|| Ok(StateSchema::new()), fields::schema)?;
        let entry = case.text("entry")?.map(str::to_owned);
        let mut nodes = IndexMap::new();
        if let Some(mut declared) = case.nested("nodes")? {
            for name in declared.unread() {
                let at = format!("{}.{name}", declared.at());
                nodes.insert(name.to_owned(), NodeSpec::read(name, Directives::new(at, declared.require(name)?)?)?);
            }
        }
        let edges = case.list("edges")?.into_iter().map(|(at, edge)| EdgeSpec::read(Directives::new(at, edge)?));
        let edges = edges.collect::<Result<_, _>>()?;
        Ok(Self { schema, entry, nodes, edges, subgraphs: subgraphs(case)? })
    }

    pub(crate) fn schema_version(&self) -> &str {
        self.schema.version()
    }

    pub(crate) fn declares(&self, field: &str) -> bool {
        self.schema.declares(field)
    }

    /// Compiles the graph and those inside of it.
    pub(crate) fn build(&self, stage: &Stage, sessions: Option<SessionPolicy>) -> Result<BuiltGraph, BuildError> {
        let mut inner = IndexMap::new();
        let graph = self.build_in("outer", &Scope { spec: self, around: None }, stage, sessions, &mut inner)?;
        Ok(BuiltGraph { graph, inner })
    }

    fn build_in(
        &self,
        name: &str,
        scope: &Scope<'_>,
        stage: &Stage,
        sessions: Option<SessionPolicy>,
        built: &mut IndexMap<String, Arc<CompiledGraph>>,
    ) -> Result<Arc<CompiledGraph>, BuildError> {
        let mut graph = GraphBuilder::new(name, self.schema.clone());
        if let Some(entry) = &self.entry {
            graph = graph.entry(entry.as_str());
        }
        for (node_name, node) in &self.nodes {
            graph = match &node.work {
                Work::Actions(actions) => graph.shared_node(node_name.as_str(), actions.node(stage)),
                Work::Subgraph { name, projection } => {
                    let inner = scope.subgraph(name, stage, built)?;
                    built.insert(node_name.clone(), inner.clone());
                    graph.subgraph(node_name.as_str(), inner, projection.clone())
                }
            };
            let tracer = Tracer { ledger: stage.ledger.clone(), depth: scope.depth(), node: node_name.clone() };
            graph = graph.wrap(node_name, Arc::new(tracer));
            for layer in &node.middleware {
                graph = graph.wrap(node_name, layer.middleware(stage));
            }
        }
        for edge in &self.edges {
            graph = edge.add_to(graph);
        }
        if let Some(sessions) = sessions {
            graph = graph.sessions(sessions);
        }
        Ok(Arc::new(graph.compile()?))
    }
}

/// The graphs around a graph: a node may name any subgraph that one of them declares.
struct Scope<'s> {
    spec: &'s GraphSpec,
    around: Option<&'s Scope<'s>>,
}

impl Scope<'_> {
    fn depth(&self) -> usize {
        self.around.map_or(0, |around| around.depth() + 1)
    }

    /// Compiles the subgraph `name`, once per case.
    fn subgraph(
        &self,
        name: &str,
        stage: &Stage,
        built: &mut IndexMap<String, Arc<CompiledGraph>>,
    ) -> Result<Arc<CompiledGraph>, BuildError> {
        if let Some(graph) = built.get(name) {
            return Ok(graph.clone());
        }
        let spec = self.find(name).ok_or_else(|| {
            BuildError::Broken(Failure::invalid(format!("a node runs subgraph `{name}`, which is not declared")))
        })?;
        if self.depth() > MOST_LEVELS {
            return Err(BuildError::Broken(Failure::invalid(format!("subgraph `{name}` contains itself"))));
        }
        let graph = spec.build_in(name, &Scope { spec, around: Some(self) }, stage, None, built)?;
        built.insert(name.to_owned(), graph.clone());
        Ok(graph)
    }

    fn find(&self, name: &str) -> Option<&GraphSpec> {
        self.spec.subgraphs.get(name).or_else(|| self.around.and_then(|around| around.find(name)))
    }
}

/// Deeper nesting means that a subgraph contains itself.
const MOST_LEVELS: usize = 16;

fn subgraphs(case: &mut Directives<'_>) -> Result<IndexMap<String, GraphSpec>, Failure> {
    let mut found = IndexMap::new();
    if let Some(mut single) = case.nested("subgraph")? {
        let name = single.text("name")?.unwrap_or("subgraph").to_owned();
        found.insert(name, complete(single)?);
    }
    if let Some(mut several) = case.nested("subgraphs")? {
        for name in several.unread() {
            let at = format!("{}.{name}", several.at());
            found.insert(name.to_owned(), complete(Directives::new(at, several.require(name)?)?)?);
        }
    }
    Ok(found)
}

fn complete(mut directives: Directives<'_>) -> Result<GraphSpec, Failure> {
    directives.text("name")?;
    directives.text("description")?;
    let spec = GraphSpec::read(&mut directives)?;
    directives.done()?;
    Ok(spec)
}
