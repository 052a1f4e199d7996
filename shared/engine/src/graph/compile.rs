//! From draft to compiled graph: the structural rules of graph-engine §2.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use dormouse_ports::{Category, SignalId};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::builder::{DraftEdge, GraphBuilder};
use super::compiled::{CompiledGraph, CompiledNode, Edge, Work};
use super::migrations::Migrated;
use crate::node::{Middleware, Target};
use crate::{EngineError, StateSchema};

pub(super) fn compile(draft: GraphBuilder) -> Result<CompiledGraph, EngineError> {
    check_schema(&draft.schema)?;
    check_inputs(&draft)?;
    check_events(&draft)?;
    let entry = draft
        .entry
        .clone()
        .ok_or_else(|| refuse(Category::NoDeclaredEntry, format!("graph `{}` declares no entry node", draft.name)))?;
    if !draft.nodes.contains_key(&entry) {
        return Err(refuse(Category::NoDeclaredEntry, format!("the entry `{entry}` is not a declared node")));
    }
    let edges = collect_edges(&draft)?;
    check_reachable(&draft, &entry, &edges)?;
    let warnings = check_projections(&draft)?;
    check_migrations(&draft)?;
    let nodes = assemble(draft.nodes, &edges, &draft.middleware);
    let entry_index = nodes.get_index_of(&entry).unwrap_or_default();
    Ok(CompiledGraph::new((draft.name, draft.schema), (entry_index, nodes), draft.policies, warnings))
}

fn check_schema(schema: &StateSchema) -> Result<(), EngineError> {
    if let Some(field) = schema.conflicts().first() {
        let message = format!("field `{field}` is declared with more than one reducer");
        return Err(refuse(Category::ConflictingReducers, message));
    }
    for (name, field) in schema.fields() {
        if let Some(reason) = field.reducer.misconfiguration() {
            return Err(refuse(Category::ReducerConfigurationInvalid, format!("field `{name}`: {reason}")));
        }
    }
    Ok(())
}

fn check_inputs(draft: &GraphBuilder) -> Result<(), EngineError> {
    let mut inputs = draft.policies.inputs.iter().flatten();
    match inputs.find(|input| !draft.schema.declares(input)) {
        Some(input) => {
            let message = format!("graph `{}` takes `{input}`, which is no field of its state", draft.name);
            Err(refuse(Category::StateValidationError, message))
        }
        None => Ok(()),
    }
}

fn check_events(draft: &GraphBuilder) -> Result<(), EngineError> {
    draft.policies.events.iter().try_for_each(|wait| {
        let shape = wait.shape(&SignalId::from("")).map(|_| ());
        let shape = shape.and_then(|()| match wait.pattern.is_empty() {
            true => Err("its pattern is empty".to_owned()),
            false => Ok(()),
        });
        let message = |reason| format!("graph `{}` declares an event that no rule can carry: {reason}", draft.name);
        shape.map_err(|reason| refuse(Category::StateValidationError, message(reason)))
    })
}

type Edges = IndexMap<Arc<str>, DraftEdge>;

fn collect_edges(draft: &GraphBuilder) -> Result<Edges, EngineError> {
    let declared = |name: &Arc<str>, role: &str| {
        if draft.nodes.contains_key(name) {
            return Ok(());
        }
        Err(refuse(Category::DanglingEdge, format!("an edge {role} `{name}`, which is not a declared node")))
    };
    let mut edges = Edges::new();
    for (from, edge) in &draft.edges {
        declared(from, "leaves")?;
        if let DraftEdge::Static(Target::Node(to)) = edge {
            declared(to, "leads to")?;
        }
        if edges.insert(from.clone(), edge.clone()).is_some() {
            let message = format!("node `{from}` has more than one outgoing edge; use a conditional edge");
            return Err(refuse(Category::MultipleOutgoingEdges, message));
        }
    }
    Ok(edges)
}

/// A conditional edge may lead anywhere, so from such a node every node counts as reachable.
fn check_reachable(draft: &GraphBuilder, entry: &Arc<str>, edges: &Edges) -> Result<(), EngineError> {
    let (mut reached, mut open) = (HashSet::new(), vec![entry.clone()]);
    while let Some(node) = open.pop() {
        let next = match edges.get(&node) {
            Some(DraftEdge::Conditional(_)) => return Ok(()),
            Some(DraftEdge::Static(Target::Node(next))) => Some(next.clone()),
            Some(DraftEdge::Static(Target::End)) => None,
            None => {
                let message = format!("node `{node}` has no outgoing edge; route it to another node or to END");
                return Err(refuse(Category::DanglingEdge, message));
            }
        };
        reached.insert(node);
        open.extend(next.filter(|next| !reached.contains(next)));
    }
    match draft.nodes.keys().find(|name| !reached.contains(*name)) {
        None => Ok(()),
        Some(name) => Err(refuse(Category::UnreachableNode, format!("no path leads from `{entry}` to node `{name}`"))),
    }
}

fn check_projections(draft: &GraphBuilder) -> Result<Vec<String>, EngineError> {
    let mut warnings = Vec::new();
    for (name, node) in &draft.nodes {
        let doubled = match &node.work {
            Work::Node(_) => Vec::new(),
            Work::Subgraph { graph, projection } => {
                projection.check(name, &draft.schema, graph.schema())?;
                projection.round_trips(&draft.schema, graph.schema())
            }
            Work::FanOut(fan_out) => {
                fan_out.check(name, &draft.schema)?;
                fan_out.round_trips(&draft.schema)
            }
            Work::Branches(branches) => {
                branches.check(name, &draft.schema)?;
                branches.round_trips(&draft.schema)
            }
        };
        warnings.extend(doubled.iter().map(|field| {
            format!(
                "projection_reducer_round_trip: node `{name}` takes `{field}` in and merges it back; \
                 its reducer would merge the unchanged value a second time"
            )
        }));
    }
    Ok(warnings)
}

/// Ambiguity is found here rather than when a record of an old version comes (pipeline-utilities §10.12.2).
fn check_migrations(draft: &GraphBuilder) -> Result<(), EngineError> {
    let migrations = &draft.policies.checkpoints.migrations;
    migrations.check_pairs(Migrated::Checkpoint)?;
    migrations.check_chains(Migrated::Checkpoint, draft.schema.version())
}

fn assemble(
    drafts: IndexMap<Arc<str>, super::builder::Draft>,
    edges: &Edges,
    around_all: &[Arc<dyn Middleware>],
) -> IndexMap<Arc<str>, CompiledNode> {
    let index: IndexMap<Arc<str>, ()> = drafts.keys().map(|name| (name.clone(), ())).collect();
    let edge_of = |name: &Arc<str>| match edges.get(name) {
        Some(DraftEdge::Static(Target::Node(to))) => index.get_index_of(to).map_or(Edge::End, Edge::To),
        Some(DraftEdge::Conditional(route)) => Edge::Route(route.clone()),
        Some(DraftEdge::Static(Target::End)) | None => Edge::End,
    };
    drafts
        .into_iter()
        .map(|(name, draft)| {
            let edge = edge_of(&name);
            let middleware = bound(around_all.iter().chain(&draft.middleware), &name);
            (name.clone(), CompiledNode { work: bind_parts(draft.work, &name), middleware, edge })
        })
        .collect()
}

fn bound<'m>(layers: impl IntoIterator<Item = &'m Arc<dyn Middleware>>, name: &str) -> Vec<Arc<dyn Middleware>> {
    layers.into_iter().map(|layer| layer.bound_to(name).unwrap_or_else(|| layer.clone())).collect()
}

/// Binds the middleware of instances to their node, and that of branches to their branch.
fn bind_parts(mut work: Work, name: &str) -> Work {
    match &mut work {
        Work::Node(_) | Work::Subgraph { .. } => {}
        Work::FanOut(fan_out) => fan_out.middleware = bound(&fan_out.middleware, name),
        Work::Branches(branches) => {
            for (name, branch) in &mut branches.branches {
                branch.middleware = bound(&branch.middleware, name);
            }
        }
    }
    work
}

/// A digest of the graph's shape: names, kinds, static edges, fields and reducers, and the shapes of subgraphs.
pub(super) fn digest(graph: &CompiledGraph) -> String {
    let (name, entry, schema) = (graph.name(), &graph.as_subgraph().entry_node, graph.schema());
    let mut text = format!("graph {name} entry {entry} version {}\n", schema.version());
    for (name, field) in schema.fields() {
        let _ = writeln!(text, "field {name:?} {} {:?}", field.field_type, field.reducer);
    }
    for (name, node) in graph.nodes() {
        let kind = match &node.work {
            Work::Node(_) => "node".to_owned(),
            Work::Subgraph { .. } => "subgraph".to_owned(),
            Work::FanOut(fan_out) => format!("{fan_out:?}"),
            Work::Branches(branches) => format!("{branches:?}"),
        };
        let inner: Vec<_> = node.work.inner().map(CompiledGraph::digest).collect();
        let target = match &node.edge {
            Edge::To(index) => graph.nodes().get_index(*index).map_or("END", |(name, _)| &**name),
            Edge::Route(_) => "?",
            Edge::End => "END",
        };
        let _ = writeln!(text, "node {name:?} {kind} {inner:?} -> {target:?}");
    }
    hex::encode(Sha256::digest(text))
}

fn refuse(category: Category, message: String) -> EngineError {
    EngineError::new(category, message)
}
