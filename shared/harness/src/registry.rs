use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_engine::{CompiledGraph, EngineError};
use dormouse_ports::{Category, EventShape, ShapeId, SignalId};
use indexmap::IndexMap;

/// The graphs that a worker can run, by name. Every worker links the same registry, so that any of them can resume
/// any invocation.
#[derive(Clone, Debug, Default)]
pub struct GraphRegistry(IndexMap<String, Arc<CompiledGraph>>);

impl GraphRegistry {
    /// A registry of `graphs`; of graphs with the same name the last one stays.
    pub fn new(graphs: impl IntoIterator<Item = Arc<CompiledGraph>>) -> Self {
        Self(graphs.into_iter().map(|graph| (graph.name().to_owned(), graph)).collect())
    }

    /// The graphs in the order of their registration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CompiledGraph>> {
        self.0.values()
    }

    /// The graph called `name`.
    ///
    /// # Errors
    /// `graph_unknown`, with the names that there are.
    pub fn get(&self, name: &str) -> Result<&Arc<CompiledGraph>, EngineError> {
        self.0.get(name).ok_or_else(|| {
            let known = self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            EngineError::new(Category::GraphUnknown, format!("there is no graph `{name}`; there are: {known}"))
        })
    }

    /// The shapes of the events that any of the graphs declares.
    pub fn declared_events(&self) -> BTreeMap<ShapeId, EventShape> {
        self.iter().flat_map(|graph| events_of(graph)).map(|shape| (shape.id(), shape)).collect()
    }
}

/// The shapes of the events that `graph` declares. It was compiled only if all of them are some.
pub(crate) fn events_of(graph: &CompiledGraph) -> impl Iterator<Item = EventShape> {
    graph.events().iter().filter_map(|wait| wait.shape(&SignalId::from("")).ok())
}
