use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{Category, Checkpointer, EventWait};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CompiledGraph, GraphBuilder, Migrate, Projection, SessionPolicy, UpgradePolicy};
use crate::node::{Middleware, Node, Target};
use crate::state::Reducer;
use crate::{EngineError, NodeError, State, StateSchema, Update};

/// Builds a graph whose state is a Rust struct.
///
/// Field names and defaults come from `S::default()`, field types from its `Deserialize`; nodes and routes receive an
/// `S`, and nodes return what changes.
///
/// ```
/// use dormouse_engine::{END, TypedGraph, Update};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Greeting {
///     name: String,
///     text: String,
/// }
///
/// let graph = TypedGraph::<Greeting>::new("greeting")
///     .entry("greet")
///     .node("greet", async |state: Greeting| Ok(Update::none().with("text", format!("Good night, {}!", state.name))))
///     .edge("greet", END)
///     .compile()?;
/// assert_eq!(graph.node_names().collect::<Vec<_>>(), ["greet"]);
/// # Ok::<(), dormouse_engine::EngineError>(())
/// ```
#[must_use = "a builder does nothing until it is compiled"]
pub struct TypedGraph<S> {
    name: Arc<str>,
    schema: Result<StateSchema, String>,
    parts: Vec<Part>,
    state: PhantomData<fn(S)>,
}

type Part = Box<dyn FnOnce(GraphBuilder) -> GraphBuilder>;

impl<S> fmt::Debug for TypedGraph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedGraph").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S: Serialize + DeserializeOwned + Default + Send + Sync + 'static> TypedGraph<S> {
    /// A graph called `name` over `S`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), schema: StateSchema::of::<S>(), parts: Vec::new(), state: PhantomData }
    }

    /// Sets the schema version, to be changed whenever `S` changes incompatibly.
    pub fn version(mut self, version: &str) -> Self {
        self.schema = self.schema.map(|schema| schema.with_version(version));
        self
    }

    /// Sets the reducer of `field`.
    pub fn reducer(mut self, field: &str, reducer: Reducer) -> Self {
        self.schema = self.schema.and_then(|schema| {
            let declared = schema.declares(field);
            declared.then(|| schema.reducer(field, reducer)).ok_or_else(|| format!("there is no field `{field}`"))
        });
        self
    }

    /// Declares where execution begins.
    pub fn entry(self, node: &str) -> Self {
        let node = node.to_owned();
        self.part(|graph| graph.entry(node))
    }

    /// Adds a node that is an async closure over `S`.
    pub fn node<F, Fut>(self, name: &str, function: F) -> Self
    where
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Update, NodeError>> + Send + 'static,
    {
        let name = name.to_owned();
        self.part(|graph| graph.node(name, TypedNode { function, state: PhantomData::<fn(S)> }))
    }

    /// Adds a compiled graph as a node.
    pub fn subgraph(self, name: &str, graph: Arc<CompiledGraph>, projection: Projection) -> Self {
        let name = name.to_owned();
        self.part(|outer| outer.subgraph(name, graph, projection))
    }

    /// Wraps the node `name`.
    pub fn wrap(self, name: &str, middleware: Arc<dyn Middleware>) -> Self {
        let name = name.to_owned();
        self.part(move |graph| graph.wrap(&name, middleware))
    }

    /// Adds a static edge.
    pub fn edge(self, from: &str, to: impl Into<Target>) -> Self {
        let (from, to) = (from.to_owned(), to.into());
        self.part(|graph| graph.edge(from, to))
    }

    /// Adds a conditional edge.
    pub fn route<F>(self, from: &str, choose: F) -> Self
    where
        F: Fn(S) -> Target + Send + Sync + 'static,
    {
        let from = from.to_owned();
        self.part(|graph| graph.route(from, move |state| Ok(choose(read(state)?))))
    }

    /// Registers session persistence.
    pub fn sessions(self, policy: SessionPolicy) -> Self {
        self.part(|graph| graph.sessions(policy))
    }

    /// Saves progress at every completed node; see [`GraphBuilder::checkpointer`].
    pub fn checkpointer(self, checkpointer: Arc<dyn Checkpointer>) -> Self {
        self.part(|graph| graph.checkpointer(checkpointer))
    }

    /// Registers a migration of checkpoints and pauses; see [`GraphBuilder::migration`].
    pub fn migration(self, from: &str, to: &str, migrate: Migrate) -> Self {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.part(move |graph| graph.migration(&from, &to, migrate))
    }

    /// Declares what becomes of its pauses when it has changed since; see [`GraphBuilder::upgrade`].
    pub fn upgrade(self, policy: UpgradePolicy) -> Self {
        self.part(move |graph| graph.upgrade(policy))
    }

    /// Declares which fields a request may set when it begins a turn; see [`GraphBuilder::inputs`].
    pub fn inputs<'f>(self, fields: impl IntoIterator<Item = &'f str>) -> Self {
        let fields: Vec<Arc<str>> = fields.into_iter().map(Arc::from).collect();
        self.part(move |graph| graph.inputs(fields))
    }

    /// Declares the events that its pauses wait for; see [`GraphBuilder::events`].
    pub fn events(self, waits: impl IntoIterator<Item = EventWait>) -> Self {
        let waits: Vec<EventWait> = waits.into_iter().collect();
        self.part(move |graph| graph.events(waits))
    }

    /// Checks the graph and makes it executable.
    ///
    /// # Errors
    /// As [`GraphBuilder::compile`]; `state_validation_error` when `S` is not a struct with named fields or a reducer
    /// names no field of it.
    pub fn compile(self) -> Result<CompiledGraph, EngineError> {
        let schema = self.schema.map_err(|reason| EngineError::new(Category::StateValidationError, reason))?;
        let draft = GraphBuilder::new(self.name, schema);
        self.parts.into_iter().fold(draft, |graph, part| part(graph)).compile()
    }

    fn part(mut self, part: impl FnOnce(GraphBuilder) -> GraphBuilder + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }
}

struct TypedNode<S, F> {
    function: F,
    state: PhantomData<fn(S)>,
}

#[async_trait]
impl<S, F, Fut> Node for TypedNode<S, F>
where
    S: DeserializeOwned + Send + Sync + 'static,
    F: Fn(S) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Update, NodeError>> + Send + 'static,
{
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        let typed = read(&state)?;
        drop(state);
        (self.function)(typed).await
    }
}

fn read<S: DeserializeOwned>(state: &State) -> Result<S, NodeError> {
    crate::state::decode(state).map_err(|reason| NodeError::new(reason).with_category(Category::StateValidationError))
}
