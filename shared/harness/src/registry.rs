use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{CompiledGraph, EngineError};
use dormouse_ports::{Category, EventShape, Map, PausedInvocation, ShapeId, SignalId};
use indexmap::IndexMap;
use serde_json::Value;

use crate::late_children::HarnessChildren;

/// Metadata of an invocation of a graph from a [`GraphSource`]: the version that it began with.
const VERSION: &str = "dormouse.graph_version";

/// A source of graphs that come and go while a worker runs. Every worker has the same source, and a version of a graph
/// stays the same for as long as it can be had.
#[async_trait]
pub trait GraphSource: fmt::Debug + Send + Sync {
    /// The graph called `name` with which invocations begin now; `None` if the source has none of that name, or none that
    /// every caller may begin. A graph that `is_linked` under that name into the worker begins in its place: so it does where
    /// a part of the source is broken, until somebody mends it, and may have had one.
    ///
    /// # Errors
    /// When it is not known whether there is one.
    async fn current(&self, name: &str, is_linked: bool) -> Result<Option<VersionedGraph>, EngineError>;

    /// True if `version` is the name of one of its versions.
    fn has(&self, version: &str) -> bool;

    /// The graph called `name` of `version`, with which an invocation began earlier.
    ///
    /// # Errors
    /// When it cannot be had, now or any more.
    async fn of_version(&self, name: &str, version: &str) -> Result<Arc<CompiledGraph>, EngineError>;

    /// The graphs that this process has made so far.
    fn made(&self) -> Vec<Arc<CompiledGraph>>;
}

/// A graph, and the version of it where it comes from a [`GraphSource`].
#[derive(Clone, Debug)]
pub struct VersionedGraph {
    /// The graph.
    pub graph: Arc<CompiledGraph>,
    /// Name of the version; `None` for a graph that is linked into the worker.
    pub version: Option<String>,
}

impl VersionedGraph {
    /// `metadata` with the version, in place of a value that a caller may have put there.
    pub(crate) fn noted_in(&self, mut metadata: Map) -> Map {
        match &self.version {
            Some(version) => {
                metadata.insert(VERSION.to_owned(), version.clone().into());
            }
            None => {
                metadata.shift_remove(VERSION);
            }
        }
        metadata
    }
}

/// The graphs that a worker can run, by name: those that are linked into it, and those of sources. Every worker has the
/// same registry, so that any of them can resume any invocation.
#[derive(Clone, Debug, Default)]
pub struct GraphRegistry {
    linked: IndexMap<String, Arc<CompiledGraph>>,
    /// Names of the linked graphs that no caller begins.
    inner: BTreeSet<String>,
    sources: Vec<Arc<dyn GraphSource>>,
    children: HarnessChildren,
}

impl GraphRegistry {
    /// A registry of `graphs`; of graphs with the same name the last one stays.
    pub fn new(graphs: impl IntoIterator<Item = Arc<CompiledGraph>>) -> Self {
        let linked = graphs.into_iter().map(|graph| (graph.name().to_owned(), graph)).collect();
        Self { linked, inner: BTreeSet::new(), sources: Vec::new(), children: HarnessChildren::default() }
    }

    /// Also the graphs of `source`, behind those of earlier sources, and before linked ones of the same name.
    #[must_use]
    pub fn with_source(mut self, source: Arc<dyn GraphSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// The same, whose graphs begin others by `children`.
    #[must_use]
    pub fn with_children(self, children: HarnessChildren) -> Self {
        Self { children, ..self }
    }

    /// By what its graphs begin others.
    pub(crate) fn children(&self) -> &HarnessChildren {
        &self.children
    }

    /// The graph called `name` of the version with which the invocation of that `metadata` began.
    pub(crate) async fn beside(&self, metadata: &Map, name: &str) -> Result<VersionedGraph, EngineError> {
        match metadata.get(VERSION).and_then(Value::as_str) {
            Some(version) if !self.sources.is_empty() => self.begun(name, Some(version)).await,
            Some(_) | None => Ok(VersionedGraph { graph: self.get(name)?.clone(), version: None }),
        }
    }

    /// The graph called `name` with which an invocation begins: the current one, or that of `version`.
    ///
    /// # Errors
    /// `graph_unknown`; the error of the source.
    pub async fn begun(&self, name: &str, version: Option<&str>) -> Result<VersionedGraph, EngineError> {
        match version {
            None => self.current(name).await,
            Some(version) => {
                let graph = self.of_version(name, version).await?;
                Ok(VersionedGraph { graph, version: Some(version.to_owned()) })
            }
        }
    }

    async fn of_version(&self, name: &str, version: &str) -> Result<Arc<CompiledGraph>, EngineError> {
        match self.sources.iter().find(|source| source.has(version)) {
            Some(source) => source.of_version(name, version).await,
            None => {
                let message = format!("graph `{name}` is of a workspace, and this process does not serve it");
                Err(EngineError::new(Category::GraphUnknown, message))
            }
        }
    }

    /// Also `graph`, behind the others, which no caller begins.
    #[must_use]
    pub fn with_inner(mut self, graph: Arc<CompiledGraph>) -> Self {
        self.inner.insert(graph.name().to_owned());
        self.linked.insert(graph.name().to_owned(), graph);
        self
    }

    /// The names of the linked graphs that callers may begin.
    pub fn offered_names(&self) -> impl Iterator<Item = &str> {
        self.linked.keys().map(String::as_str).filter(|name| !self.inner.contains(*name))
    }

    /// The graph called `name` with which the invocations of callers begin now.
    ///
    /// # Errors
    /// `graph_unknown`, also for one that no caller begins; the error of the source.
    pub async fn offered(&self, name: &str) -> Result<VersionedGraph, EngineError> {
        if self.inner.contains(name) { Err(unknown(name, self.offered_names())) } else { self.current(name).await }
    }

    /// The linked graphs in the order of their registration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CompiledGraph>> {
        self.linked.values()
    }

    /// The linked graphs, and those of the sources that this process has made so far.
    pub(crate) fn made(&self) -> Vec<Arc<CompiledGraph>> {
        let of_source = self.sources.iter().flat_map(|source| source.made());
        self.linked.values().cloned().chain(of_source).collect()
    }

    /// The linked graph called `name`.
    ///
    /// # Errors
    /// `graph_unknown`, with the names of those that callers may begin.
    pub fn get(&self, name: &str) -> Result<&Arc<CompiledGraph>, EngineError> {
        self.linked.get(name).ok_or_else(|| unknown(name, self.offered_names()))
    }

    /// The graph called `name` with which invocations begin now.
    ///
    /// # Errors
    /// `graph_unknown`; the error of the source.
    pub async fn current(&self, name: &str) -> Result<VersionedGraph, EngineError> {
        let is_linked = self.linked.contains_key(name);
        for source in &self.sources {
            if let Some(found) = source.current(name, is_linked).await? {
                return Ok(found);
            }
        }
        Ok(VersionedGraph { graph: self.get(name)?.clone(), version: None })
    }

    /// The graph with which `paused` began.
    ///
    /// # Errors
    /// `graph_unknown`; the error of the source.
    pub async fn of(&self, paused: &PausedInvocation) -> Result<Arc<CompiledGraph>, EngineError> {
        match paused.metadata.get(VERSION).and_then(Value::as_str) {
            Some(version) => self.of_version(&paused.graph, version).await,
            None => self.get(&paused.graph).cloned(),
        }
    }

    /// True if `paused` began with a version of a graph that stays: it goes on with that, no matter what else changes.
    pub fn is_versioned(paused: &PausedInvocation) -> bool {
        paused.metadata.contains_key(VERSION)
    }

    /// The shapes of the events that any of the linked graphs declares. A graph of a source relies on its own before any
    /// node of it runs.
    pub fn declared_events(&self) -> BTreeMap<ShapeId, EventShape> {
        self.iter().flat_map(|graph| events_of(graph)).map(|shape| (shape.id(), shape)).collect()
    }
}

fn unknown<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> EngineError {
    let known = known.collect::<Vec<_>>();
    // Where agents of a workspace are served, the program may offer none of its own.
    let others = if known.is_empty() { String::new() } else { format!("; there are: {}", known.join(", ")) };
    EngineError::new(Category::GraphUnknown, format!("there is no graph `{name}`{others}"))
}

/// The shapes of the events that `graph` declares. It was compiled only if all of them are some.
pub(crate) fn events_of(graph: &CompiledGraph) -> impl Iterator<Item = EventShape> {
    graph.events().iter().filter_map(|wait| wait.shape(&SignalId::from("")).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_that_is_not_there_is_told_with_those_that_are_if_there_are_any() {
        let told = |known: &[&str]| unknown("a", known.iter().copied()).message().to_owned();
        assert_eq!(told(&["b", "c"]), "there is no graph `a`; there are: b, c");
        assert_eq!(told(&[]), "there is no graph `a`");
    }
}
