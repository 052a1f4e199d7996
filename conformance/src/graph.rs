//! From a fixture's graph to a compiled one (conformance-adapter §5.1 to §5.4).

mod action;
mod branches;
mod context;
mod edge;
mod fan_out;
mod fields;
mod flaky;
mod instance;
mod middleware;
mod node;
mod raised;
mod trace;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};

use dormouse_engine::{CompiledGraph, EngineError, GraphBuilder, Migrations, SessionPolicy, StateSchema};
use dormouse_ports::{Checkpointer, Clock};
use indexmap::IndexMap;

pub(crate) use action::descriptor;
use edge::EdgeSpec;
use middleware::Layer;
use node::{NodeSpec, Work};
use raised::Raised;

use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Ledger;
use crate::models::NodeModel;
use crate::store::WatchedStore;

/// A graph as a fixture declares it.
#[derive(Debug)]
pub(crate) struct GraphSpec {
    schema: StateSchema,
    entry: Option<String>,
    nodes: IndexMap<String, NodeSpec>,
    edges: Vec<EdgeSpec>,
    subgraphs: IndexMap<String, GraphSpec>,
    /// What wraps every node, the outermost first.
    layers: Vec<Layer>,
}

/// What a fixture's nodes reach beside the state that they are given.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) store: Arc<WatchedStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Which invocation of the case runs, from 0.
    pub(crate) round: Arc<AtomicUsize>,
    /// The outermost graph, once it is compiled.
    pub(crate) graph: Arc<OnceLock<Weak<CompiledGraph>>>,
    pub(crate) model: Arc<NodeModel>,
}

/// Where the outermost graph keeps its checkpoints.
pub(crate) struct Checkpoints {
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
    pub(crate) migrations: Migrations,
}

/// Why a graph could not be built.
#[derive(Debug)]
pub(crate) enum BuildError {
    /// The engine refused it.
    Refused(EngineError),
    /// The runner cannot build it.
    Broken(Failure),
}

impl From<Failure> for BuildError {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
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
                nodes.insert(name.to_owned(), NodeSpec::read(Directives::new(at, declared.require(name)?)?)?);
            }
        }
        let edges = case.list("edges")?.into_iter().map(|(at, edge)| EdgeSpec::read(Directives::new(at, edge)?));
        let edges = edges.collect::<Result<_, _>>()?;
        let mut spec = Self { schema, entry, nodes, edges, subgraphs: subgraphs(case)?, layers: Vec::new() };
        if let Some(middleware) = case.nested("middleware")? {
            spec.read_middleware(middleware)?;
        }
        Ok(spec)
    }

    /// The same graph with the subgraphs that `case` declares beside it.
    pub(crate) fn beside(mut self, case: &mut Directives<'_>) -> Result<Self, Failure> {
        self.subgraphs.extend(subgraphs(case)?);
        Ok(self)
    }

    fn read_middleware(&mut self, mut middleware: Directives<'_>) -> Result<(), Failure> {
        self.layers = Layer::read_list(&mut middleware, "per_graph")?;
        if let Some(mut per_node) = middleware.nested("per_node")? {
            for name in per_node.unread() {
                let layers = Layer::read_list(&mut per_node, name)?;
                let node = self.nodes.get_mut(name);
                let node = node.ok_or_else(|| Failure::invalid(format!("middleware for node `{name}`")))?;
                node.layers.extend(layers);
            }
        }
        middleware.done()
    }

    /// The fan-out node after whose instance the process is to end.
    pub(crate) fn abort(&self) -> Option<(&str, usize)> {
        let of = |(name, node): (&'_ String, &'_ NodeSpec)| match &node.work {
            Work::FanOut(fan_out) => Some((name.as_str().to_owned(), fan_out.abort_after?)),
            Work::Actions(_) | Work::Subgraph { .. } | Work::Branches(_) => None,
        };
        let (name, index) = self.nodes.iter().find_map(of)?;
        self.nodes.get_key_value(&name).map(|(name, _)| (name.as_str(), index))
    }

    pub(crate) fn schema_version(&self) -> &str {
        self.schema.version()
    }

    pub(crate) fn declares(&self, field: &str) -> bool {
        self.schema.declares(field)
    }

    /// Compiles the graph and those inside of it.
    pub(crate) fn build(
        &self,
        stage: &Stage,
        sessions: Option<SessionPolicy>,
        checkpoints: Option<Checkpoints>,
    ) -> Result<BuiltGraph, BuildError> {
        let mut inner = IndexMap::new();
        let mut graph = self.build_in("outer", &Scope { spec: self, around: None }, stage, &mut inner)?;
        if let Some(sessions) = sessions {
            graph = graph.sessions(sessions);
        }
        if let Some(checkpoints) = checkpoints {
            graph = graph.checkpointer(checkpoints.checkpointer).migrations(checkpoints.migrations);
        }
        Ok(BuiltGraph { graph: Arc::new(graph.compile()?), inner })
    }

    fn build_in(
        &self,
        name: &str,
        scope: &Scope<'_>,
        stage: &Stage,
        built: &mut IndexMap<String, Arc<CompiledGraph>>,
    ) -> Result<GraphBuilder, BuildError> {
        let mut graph = GraphBuilder::new(name, self.schema.clone());
        if let Some(entry) = &self.entry {
            graph = graph.entry(entry.as_str());
        }
        graph = graph.wrap_all(Arc::new(trace::Execution { ledger: stage.ledger.clone() }));
        for layer in &self.layers {
            graph = graph.wrap_all(layer.middleware(stage));
        }
        for (node_name, node) in &self.nodes {
            graph = add(graph, node_name, node, scope, stage, built)?;
            for layer in &node.layers {
                graph = graph.wrap(node_name, layer.middleware(stage));
            }
            let ledger = stage.ledger.clone();
            let holds_graph = !matches!(node.work, Work::Actions(_));
            let body = trace::Body { ledger, depth: scope.depth(), node: node_name.clone(), holds_graph };
            graph = graph.wrap(node_name, Arc::new(body));
        }
        for edge in &self.edges {
            graph = edge.add_to(graph);
        }
        Ok(graph)
    }
}

/// Adds the node's work, compiling the graphs inside of it first.
fn add(
    graph: GraphBuilder,
    name: &str,
    node: &NodeSpec,
    scope: &Scope<'_>,
    stage: &Stage,
    built: &mut IndexMap<String, Arc<CompiledGraph>>,
) -> Result<GraphBuilder, BuildError> {
    Ok(match &node.work {
        Work::Actions(actions) => graph.shared_node(name, actions.node(name, stage)),
        Work::Subgraph { name: subgraph, projection } => {
            let inner = scope.subgraph(subgraph, stage, built)?;
            built.insert(name.to_owned(), inner.clone());
            graph.subgraph(name, inner, projection.clone())
        }
        Work::FanOut(fan_out) => {
            let inner = scope.subgraph(&fan_out.subgraph, stage, built)?;
            built.insert(name.to_owned(), inner.clone());
            let items_field = fan_out.items_field.clone();
            let graph = graph.fan_out(name, fan_out.build(inner, stage));
            graph.wrap(name, Arc::new(instance::AroundFanOut { items_field }))
        }
        Work::Branches(branches) => {
            for subgraph in branches.subgraphs() {
                scope.subgraph(subgraph, stage, built)?;
            }
            graph.parallel_branches(name, branches.build(built, stage))
        }
    })
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
        let graph = Arc::new(spec.build_in(name, &Scope { spec, around: Some(self) }, stage, built)?.compile()?);
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
    // A second one beside `subgraph` has a name that begins so.
    for key in case.unread() {
        if key.starts_with("subgraph_")
            && let Some(mut other) = case.nested(key)?
        {
            let name = other.text("name")?.unwrap_or(key).to_owned();
            found.insert(name, complete(other)?);
        }
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
