//! From draft to compiled graph: the structural rules of graph-engine §2.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use dormouse_ports::{Category, RESOLUTION, Resolution, SignalId};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::SessionPolicy;
use super::builder::{DraftEdge, GraphBuilder};
use super::compiled::{CompiledGraph, CompiledNode, Edge, Work};
use super::migrations::Migrated;
use crate::node::{Middleware, Target};
use crate::{EngineError, StateSchema, Update};

pub(super) fn compile(draft: GraphBuilder) -> Result<CompiledGraph, EngineError> {
    check_schema(&draft)?;
    check_fields(&draft)?;
    check_resolution(&draft)?;
    check_events(&draft)?;
    check_names(&draft)?;
    check_degraded(&draft)?;
    let entry = entry(&draft)?;
    let edges = collect_edges(&draft)?;
    check_reachable(&draft, &entry, &edges)?;
    let mut warnings = check_projections(&draft)?;
    check_migrations(&draft)?;
    warnings.extend(waits_beside_others(&draft));
    warnings.extend(overwritten_session(&draft));
    warnings.extend(pauses_left_behind(&draft));
    warnings.extend(sessions_left_behind(&draft));
    let nodes = assemble(draft.nodes, &edges, &draft.middleware);
    let entry_index = nodes.get_index_of(&entry).unwrap_or_default();
    Ok(CompiledGraph::new((draft.name, draft.schema), (entry_index, nodes), draft.policies, warnings))
}

fn check_schema(draft: &GraphBuilder) -> Result<(), EngineError> {
    let graph = &draft.name;
    let schema = &draft.schema;
    if let Some(field) = schema.conflicts().first() {
        let message = format!("graph `{graph}`: field `{field}` is declared with more than one reducer; leave one");
        return Err(refuse(Category::ConflictingReducers, message));
    }
    if let Some(field) = schema.unknown().first() {
        let message = format!("graph `{graph}` gives a reducer to `{field}`, {}", no_field(schema));
        return Err(refuse(Category::StateValidationError, message));
    }
    for (name, field) in schema.fields() {
        if let Some(reason) = field.reducer.misconfiguration() {
            let message = format!("graph `{graph}`, field `{name}`: {reason}");
            return Err(refuse(Category::ReducerConfigurationInvalid, message));
        }
    }
    Ok(())
}

/// Checks the fields that requests may set and that sessions keep.
fn check_fields(draft: &GraphBuilder) -> Result<(), EngineError> {
    let inputs = draft.policies.inputs.iter().flatten().map(|field| ("takes", field));
    let kept =
        draft.policies.sessions.iter().flat_map(SessionPolicy::kept).map(|field| ("keeps in its sessions", field));
    match inputs.chain(kept).find(|(_, field)| !draft.schema.declares(field)) {
        Some((verb, field)) => {
            let message = format!("graph `{}` {verb} `{field}`, {}", draft.name, no_field(&draft.schema));
            Err(refuse(Category::StateValidationError, message))
        }
        None => Ok(()),
    }
}

/// Message for a field that `schema` does not have, with the remedy.
fn no_field(schema: &StateSchema) -> String {
    let fields = in_quotes(schema.fields().map(|(name, _)| name));
    format!("which is no field of its state: add it to the state, or name one of {fields}")
}

pub(super) fn in_quotes<'n>(names: impl Iterator<Item = &'n Arc<str>>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Checks that the field for the cause of a pause's end, if there is one, takes every such cause.
fn check_resolution(draft: &GraphBuilder) -> Result<(), EngineError> {
    let schema = &draft.schema;
    let takes = |cause: Resolution| schema.refusal_of(RESOLUTION, cause.as_str()).is_none();
    let causes = [Resolution::Signalled, Resolution::Woken, Resolution::TimedOut];
    if !schema.declares(RESOLUTION) || causes.into_iter().all(takes) {
        return Ok(());
    }
    let message = format!(
        "graph `{}` has a field `{RESOLUTION}` that does not take what Dormouse writes into it, which is `signalled`, \
         `woken` or `timed_out`: make it a text, or give your field another name",
        draft.name
    );
    Err(refuse(Category::StateValidationError, message))
}

/// Checks that every node has a name of its own, and that those that are wrapped are there.
fn check_names(draft: &GraphBuilder) -> Result<(), EngineError> {
    let graph = &draft.name;
    if let Some(node) = draft.mistakes.doubled.first() {
        let message = format!("graph `{graph}` has two nodes `{node}`: give one of them another name");
        return Err(refuse(Category::Application("duplicate_node".into()), message));
    }
    if let Some(node) = draft.mistakes.wrapped.first() {
        let message =
            format!("graph `{graph}` wraps `{node}`, which is no node yet: add the node before it is wrapped");
        return Err(refuse(Category::Application("undeclared_node".into()), message));
    }
    if let Some(node) = draft.mistakes.durable.first() {
        let message = format!("graph `{graph}` makes `{node}` durable, which is no node yet: add the node before that");
        return Err(refuse(Category::Application("undeclared_node".into()), message));
    }
    Ok(())
}

/// Checks that a state of a Rust type can take what stands in the place of a failure: before something fails, nobody would see
/// that it cannot.
fn check_degraded(draft: &GraphBuilder) -> Result<(), EngineError> {
    let schema = &draft.schema;
    if !schema.is_closed() {
        return Ok(());
    }
    for (name, node) in &draft.nodes {
        let layers = draft.middleware.iter().chain(&node.middleware);
        let updates = layers.filter_map(|layer| layer.static_degraded_update());
        for (field, value) in updates.flat_map(Update::iter) {
            if let Some(reason) = schema.refusal_of(field, value.clone()) {
                let graph = &draft.name;
                let message = format!(
                    "graph `{graph}`: where node `{name}` fails, its failure isolation gives field `{field}` what the state \
                     does not take: {reason}"
                );
                return Err(refuse(Category::StateValidationError, message));
            }
        }
    }
    Ok(())
}

fn entry(draft: &GraphBuilder) -> Result<Arc<str>, EngineError> {
    let graph = &draft.name;
    let nodes = in_quotes(draft.nodes.keys());
    match &draft.entry {
        Some(entry) if draft.nodes.contains_key(entry) => Ok(entry.clone()),
        Some(entry) => {
            let message = format!("graph `{graph}` begins at `{entry}`, which is no node of it: name one of {nodes}");
            Err(refuse(Category::NoDeclaredEntry, message))
        }
        None => {
            let message = format!("graph `{graph}` declares no entry node: call `entry` with one of {nodes}");
            Err(refuse(Category::NoDeclaredEntry, message))
        }
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
    let graph = &draft.name;
    let declared = |name: &Arc<str>, edge: &dyn Fn() -> String| {
        if draft.nodes.contains_key(name) {
            return Ok(());
        }
        let edge = edge();
        let remedy = match &**name {
            "END" => "the end is the constant `END`, without quotes",
            _ => "add it with `node`, or fix the name",
        };
        let message = format!("graph `{graph}`: {edge} `{name}`, which is no node of it: {remedy}");
        Err(refuse(Category::DanglingEdge, message))
    };
    let mut edges = Edges::new();
    for (from, edge) in &draft.edges {
        declared(from, &|| "an edge leaves".to_owned())?;
        for to in targets(edge) {
            declared(to, &|| format!("the edge of node `{from}` leads to"))?;
        }
        if edges.insert(from.clone(), edge.clone()).is_some() {
            let message = format!(
                "graph `{graph}`: node `{from}` has more than one outgoing edge: keep one `edge`, or one `route` that chooses among several"
            );
            return Err(refuse(Category::MultipleOutgoingEdges, message));
        }
    }
    Ok(edges)
}

/// The nodes to which `edge` is known to lead.
fn targets(edge: &DraftEdge) -> &[Arc<str>] {
    match edge {
        DraftEdge::Static(Target::Node(to)) => std::slice::from_ref(to),
        DraftEdge::Conditional(_, Some(nodes)) => nodes,
        DraftEdge::Static(Target::End) | DraftEdge::Conditional(_, None) => &[],
    }
}

/// A conditional edge that names no nodes may lead anywhere, so from such a node every node counts as reachable.
fn check_reachable(draft: &GraphBuilder, entry: &Arc<str>, edges: &Edges) -> Result<(), EngineError> {
    let mut reached = HashSet::new();
    let mut open = vec![entry.clone()];
    while let Some(node) = open.pop() {
        let next = match edges.get(&node) {
            Some(DraftEdge::Conditional(_, None)) => return Ok(()),
            Some(edge) => targets(edge),
            None => {
                let graph = &draft.name;
                let message =
                    format!("graph `{graph}`: node `{node}` has no outgoing edge: lead it to another node or to END");
                return Err(refuse(Category::DanglingEdge, message));
            }
        };
        reached.insert(node);
        open.extend(next.iter().filter(|next| !reached.contains(*next)).cloned());
    }
    match draft.nodes.keys().find(|name| !reached.contains(*name)) {
        None => Ok(()),
        Some(name) => {
            let graph = &draft.name;
            let message = format!("graph `{graph}`: no path leads from `{entry}` to node `{name}`: add an edge to it");
            Err(refuse(Category::UnreachableNode, message))
        }
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

/// Beginning of the warnings about nodes that wait in one of several things that run at once.
const BESIDE_OTHERS: &str = "suspension_beside_others";

/// Warnings about nodes that wait in one of several things that run at once, in `draft` or in a subgraph of it.
fn waits_beside_others(draft: &GraphBuilder) -> Vec<String> {
    let graph = &draft.name;
    let mut warnings = Vec::new();
    for (name, node) in &draft.nodes {
        if let Work::Subgraph { graph, .. } = &node.work {
            let inner = graph.warnings().iter().filter(|warning| warning.starts_with(BESIDE_OTHERS));
            warnings.extend(inner.cloned());
        }
        if let Some(waiting) = node.work.waits_beside_others() {
            warnings.push(format!(
                "{BESIDE_OTHERS}: node `{name}` of graph `{graph}` runs several things at once, and {waiting}, in one of them, \
                 waits: the first that waits ends the others, and behind the wait the graph goes on with what was done by then; \
                 wait in a node of its own, for several answers with votes"
            ));
        }
    }
    warnings
}

/// The warning about a session that turns save while another one sleeps, whose state then takes the place of theirs.
fn overwritten_session(draft: &GraphBuilder) -> Option<String> {
    draft.policies.sessions.as_ref().filter(|sessions| sessions.overwrites_unasked())?;
    let graph = &draft.name;
    let waiting = draft.nodes.iter().find_map(|(name, node)| node.work.waiting_node(name, graph))?;
    Some(format!(
        "session_overwritten: {waiting} waits, and what other turns save in the session of graph `{graph}` meanwhile is overwritten \
         when it goes on: say `concurrency(SessionConcurrency::Rebase)` to keep both, or `LastWriteWins` if that is meant"
    ))
}

/// Ambiguity is found here rather than when a record of an old version comes (pipeline-utilities §10.12.2).
fn check_migrations(draft: &GraphBuilder) -> Result<(), EngineError> {
    let migrations = &draft.policies.checkpoints.migrations;
    migrations.check_pairs(Migrated::Checkpoint)?;
    migrations.check_chains(Migrated::Checkpoint, draft.schema.version())
}

/// Warnings about versions of which pauses are migrated, and do not get to that of the graph.
fn pauses_left_behind(draft: &GraphBuilder) -> Vec<String> {
    let graph = &draft.name;
    let declared = draft.schema.version();
    let left = draft.policies.checkpoints.migrations.astray_of(declared);
    left.into_iter()
        .map(|from| {
            format!(
                "checkpoint_state_migration_missing: graph `{graph}` migrates pauses from version `{from}`, and not on to its \
                 own, which is `{declared}`: register the migration that is missing, or set `version` to where they lead"
            )
        })
        .collect()
}

/// Warnings about versions of which pauses go on and sessions do not.
fn sessions_left_behind(draft: &GraphBuilder) -> Vec<String> {
    let Some(sessions) = &draft.policies.sessions else { return Vec::new() };
    let graph = &draft.name;
    let declared = draft.schema.version();
    let earlier = draft.policies.checkpoints.migrations.earlier_than(declared);
    let left = earlier.into_iter().filter(|from| !sessions.takes_sessions_of(from, declared));
    left.map(|from| {
        format!(
            "session_state_migration_missing: graph `{graph}` migrates pauses from version `{from}` to `{declared}`, and not \
             its sessions, whose turns are refused: register it with `SessionPolicy::migration` as well"
        )
    })
    .collect()
}

fn assemble(
    drafts: IndexMap<Arc<str>, super::builder::GraphDraft>,
    edges: &Edges,
    around_all: &[Arc<dyn Middleware>],
) -> IndexMap<Arc<str>, CompiledNode> {
    let index: IndexMap<Arc<str>, ()> = drafts.keys().map(|name| (name.clone(), ())).collect();
    let edge_of = |name: &Arc<str>| match edges.get(name) {
        Some(DraftEdge::Static(Target::Node(to))) => index.get_index_of(to).map_or(Edge::End, Edge::To),
        Some(DraftEdge::Conditional(route, among)) => Edge::Route(route.clone(), among.clone()),
        Some(DraftEdge::Static(Target::End)) | None => Edge::End,
    };
    drafts
        .into_iter()
        .map(|(name, draft)| {
            let edge = edge_of(&name);
            let middleware = bound(around_all.iter().chain(&draft.middleware), &name);
            (
                name.clone(),
                CompiledNode { work: bind_parts(draft.work, &name), middleware, edge, durable: draft.durable },
            )
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
    let name = graph.name();
    let entry = &graph.as_subgraph().entry_node;
    let schema = graph.schema();
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
            Edge::Route(..) => "?",
            Edge::End => "END",
        };
        let _ = writeln!(text, "node {name:?} {kind} {inner:?} -> {target:?}");
    }
    hex::encode(Sha256::digest(text))
}

fn refuse(category: Category, message: String) -> EngineError {
    EngineError::new(category, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::FailureIsolation;
    use crate::{END, Field, FieldType, Reducer, State, Update};

    fn shop() -> GraphBuilder {
        let schema = StateSchema::new().field("sum", Field::new(FieldType::Int, 0));
        GraphBuilder::new("shop", schema).function("pay", async |_: State| Ok(Update::none()))
    }

    fn again(graph: GraphBuilder, name: &str) -> GraphBuilder {
        graph.function(name, async |_: State| Ok(Update::none()))
    }

    #[test]
    fn a_version_whose_sessions_are_left_behind_is_told() {
        let schema = StateSchema::new().field("sum", Field::new(FieldType::Int, 0)).with_version("3");
        let same: crate::Migrate = Arc::new(Ok);
        let graph = |sessions: SessionPolicy| {
            let graph = GraphBuilder { schema: schema.clone(), ..shop() }.entry("pay").edge("pay", END);
            let graph = graph.migration("1", "2", same.clone()).migration("2", "3", same.clone());
            graph.migration("3", "4", same.clone()).sessions(sessions).compile().unwrap()
        };
        let left = graph(SessionPolicy::full_state().migration("2", "3", same.clone()).unwrap());
        let told = "session_state_migration_missing: graph `shop` migrates pauses from version `1` to `3`, and not its \
                    sessions, whose turns are refused: register it with `SessionPolicy::migration` as well";
        assert_eq!(left.warnings(), [told]);
        let policy = SessionPolicy::full_state().migration("1", "3", same.clone()).unwrap();
        let all = graph(policy.migration("2", "3", same.clone()).unwrap());
        assert!(all.warnings().is_empty(), "{:?}", all.warnings());
    }

    #[test]
    fn a_version_whose_pauses_are_left_behind_is_told() {
        let same: crate::Migrate = Arc::new(Ok);
        let graph = |version: &str| {
            let schema = StateSchema::new().with_version(version);
            let graph = GraphBuilder { schema, ..shop() }.entry("pay").edge("pay", END);
            graph.migration("1", "2", same.clone()).migration("2", "3", same.clone()).compile().unwrap()
        };
        let told = |from: &str, to: &str| {
            format!(
                "checkpoint_state_migration_missing: graph `shop` migrates pauses from version `{from}`, and not on to its own, \
                 which is `{to}`: register the migration that is missing, or set `version` to where they lead"
            )
        };
        assert_eq!(graph("4").warnings(), [told("1", "4"), told("2", "4")]);
        assert_eq!(graph("").warnings(), [told("1", ""), told("2", "")], "its version was forgotten");
        for version in ["1", "2", "3"] {
            assert!(graph(version).warnings().is_empty(), "{version}: {:?}", graph(version).warnings());
        }
    }

    #[test]
    fn every_mistake_is_one_error_that_names_the_graph_and_what_to_do() {
        let sound = || shop().entry("pay").edge("pay", END);
        assert!(sound().compile().is_ok());
        let reduced = StateSchema::new().field("sum", Field::new(FieldType::Int, 0)).reducer("total", Reducer::Append);
        let confused = StateSchema::new().field(RESOLUTION, Field::new(FieldType::Bool, false));
        for (graph, category, message) in [
            (
                shop().edge("pay", END),
                "no_declared_entry",
                "graph `shop` declares no entry node: call `entry` with one of `pay`",
            ),
            (
                shop().entry("begin").edge("pay", END),
                "no_declared_entry",
                "graph `shop` begins at `begin`, which is no node of it: name one of `pay`",
            ),
            (
                shop().entry("pay").edge("pay", "ship"),
                "dangling_edge",
                "graph `shop`: the edge of node `pay` leads to `ship`, which is no node of it: add it with `node`, or fix the name",
            ),
            (
                shop().entry("pay").edge("pay", "END"),
                "dangling_edge",
                "graph `shop`: the edge of node `pay` leads to `END`, which is no node of it: the end is the constant `END`, \
                 without quotes",
            ),
            (
                sound().edge("ship", END),
                "dangling_edge",
                "graph `shop`: an edge leaves `ship`, which is no node of it: add it with `node`, or fix the name",
            ),
            (
                shop().entry("pay"),
                "dangling_edge",
                "graph `shop`: node `pay` has no outgoing edge: lead it to another node or to END",
            ),
            (
                sound().edge("pay", END),
                "multiple_outgoing_edges",
                "graph `shop`: node `pay` has more than one outgoing edge: keep one `edge`, or one `route` that chooses among several",
            ),
            (
                shop().entry("pay").route_among("pay", ["ship"], |_| Ok(END)),
                "dangling_edge",
                "graph `shop`: the edge of node `pay` leads to `ship`, which is no node of it: add it with `node`, or fix the name",
            ),
            (
                again(shop(), "ship").entry("pay").route_among("pay", ["pay"], |_| Ok(END)).edge("ship", END),
                "unreachable_node",
                "graph `shop`: no path leads from `pay` to node `ship`: add an edge to it",
            ),
            (
                again(sound(), "ship").edge("ship", END),
                "unreachable_node",
                "graph `shop`: no path leads from `pay` to node `ship`: add an edge to it",
            ),
            (
                again(sound(), "pay"),
                "duplicate_node",
                "graph `shop` has two nodes `pay`: give one of them another name",
            ),
            (
                sound().wrap("ship", Arc::new(FailureIsolation::with("failed", Update::none()))),
                "undeclared_node",
                "graph `shop` wraps `ship`, which is no node yet: add the node before it is wrapped",
            ),
            (
                GraphBuilder { schema: confused, ..sound() },
                "state_validation_error",
                "graph `shop` has a field `dormouse_resolution` that does not take what Dormouse writes into it, which is \
                 `signalled`, `woken` or `timed_out`: make it a text, or give your field another name",
            ),
            (
                sound().inputs(["total"]),
                "state_validation_error",
                "graph `shop` takes `total`, which is no field of its state: add it to the state, or name one of `sum`",
            ),
            (
                sound().sessions(SessionPolicy::projected(["total"])),
                "state_validation_error",
                "graph `shop` keeps in its sessions `total`, which is no field of its state: \
                 add it to the state, or name one of `sum`",
            ),
            (
                GraphBuilder { schema: reduced, ..sound() },
                "state_validation_error",
                "graph `shop` gives a reducer to `total`, which is no field of its state: \
                 add it to the state, or name one of `sum`",
            ),
        ] {
            let refused = graph.compile().expect_err(message);
            assert_eq!((refused.category().as_str(), refused.message()), (category, message));
        }
    }
}
