use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{Category, Checkpointer, EntryKind, EventWait, Map};

use super::{
    CompiledGraph, FanOut, GraphBuilder, MakeTwin, Migrate, ParallelBranches, Projection, SessionPolicy, UpgradePolicy,
};
use crate::node::{Middleware, Node, Target};
use crate::state::{Reducer, shape};
use crate::{EngineError, FieldKey, FieldKeys, GraphState, NodeError, State, StateSchema, Update, View, Wait, suspend};

/// Builds a graph with a Rust struct as its state, which [`state!`](crate::state) declares.
///
/// Field names and defaults come from `S::default()`, field types from their `Deserialize`. Nodes take the part of the
/// state that they want to [see](View) and return the changes; fields are named by the keys that `state!` makes, so
/// that a misspelled one does not compile.
///
/// ```
/// use dormouse_engine::{END, Graph};
///
/// dormouse_engine::state! {
///     #[derive(Clone, Debug, Default)]
///     struct Greeting {
///         name: String,
///         text: String,
///     }
/// }
///
/// let graph = Graph::<Greeting>::new("greeting")
///     .inputs(Greeting::name)
///     .entry("greet")
///     .node("greet", async |greeting: Greeting| Ok(Greeting::text.set(format!("Good night, {}!", greeting.name))))
///     .edge("greet", END)
///     .compile()?;
/// assert_eq!(graph.node_names().collect::<Vec<_>>(), ["greet"]);
/// # Ok::<(), dormouse_engine::EngineError>(())
/// ```
///
/// A field that the state does not have does not compile, and neither does one of another state:
///
/// ```compile_fail,E0599
/// # dormouse_engine::state! {
/// #     #[derive(Clone, Debug, Default)]
/// #     struct Greeting {
/// #         name: String,
/// #     }
/// # }
/// let graph = dormouse_engine::Graph::<Greeting>::new("greeting").inputs(Greeting::nmae);
/// ```
#[must_use = "a builder does nothing until it is compiled"]
pub struct Graph<S> {
    name: Arc<str>,
    schema: Result<StateSchema, String>,
    parts: Vec<StatePart>,
    state: PhantomData<fn(S)>,
}

type StatePart = Box<dyn FnOnce(GraphBuilder) -> GraphBuilder>;

impl<S> fmt::Debug for Graph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S: GraphState> Graph<S> {
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
    pub fn reducer<V>(mut self, field: FieldKey<S, V>, reducer: Reducer) -> Self {
        self.schema = self.schema.map(|schema| schema.reducer(field.name(), reducer));
        self
    }

    /// Declares where execution begins.
    pub fn entry(self, node: &str) -> Self {
        let node = node.to_owned();
        self.part(|graph| graph.entry(node))
    }

    /// Adds a node that is an async closure over what it wants to [see](View) of the state: an `S` of its own, a shared
    /// `Arc<S>`, some fields, or nothing, as `()`.
    pub fn node<V, F, Fut>(self, name: &str, function: F) -> Self
    where
        V: View<S> + Send + 'static,
        F: Fn(V) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Update<S>, NodeError>> + Send + 'static,
    {
        let name = name.to_owned();
        self.part(|graph| graph.node(name, TypedNode { function, types: PhantomData::<fn(S, V)> }))
    }

    /// Adds a node that waits: the invocation sleeps until `wait` is over, and goes on behind the node.
    ///
    /// A wait that cannot be right, for example one for three of two votes, is an error of the node.
    pub fn wait<A, F>(self, name: &str, wait: F) -> Self
    where
        A: 'static,
        F: Fn(&S) -> Result<Wait<S, A>, NodeError> + Send + Sync + 'static,
    {
        let name = name.to_owned();
        let types = PhantomData::<fn(S, A)>;
        self.part(move |graph| graph.node(name, WaitNode { wait, types }))
    }

    /// Adds a compiled graph as a node.
    pub fn subgraph(self, name: &str, graph: Arc<CompiledGraph>, projection: Projection) -> Self {
        let name = name.to_owned();
        self.part(|outer| outer.subgraph(name, graph, projection))
    }

    /// Adds a node that runs a graph once for each item of a list, or a number of times, several at once.
    pub fn fan_out(self, name: &str, fan_out: FanOut) -> Self {
        let name = name.to_owned();
        self.part(|graph| graph.fan_out(name, fan_out))
    }

    /// Adds a node that runs different things side by side.
    pub fn parallel_branches(self, name: &str, branches: ParallelBranches) -> Self {
        let name = name.to_owned();
        self.part(|graph| graph.parallel_branches(name, branches))
    }

    /// Wraps every node, outside of the middleware of single nodes.
    pub fn wrap_all(self, middleware: Arc<dyn Middleware>) -> Self {
        self.part(|graph| graph.wrap_all(middleware))
    }

    /// Wraps the node `name`, which was added before, inside of its present middleware.
    pub fn wrap(self, name: &str, middleware: Arc<dyn Middleware>) -> Self {
        let name = name.to_owned();
        self.part(move |graph| graph.wrap(&name, middleware))
    }

    /// Makes the steps of the node `name` durable; see [`GraphBuilder::durable`].
    pub fn durable(self, name: &str) -> Self {
        let name = name.to_owned();
        self.part(move |graph| graph.durable(&name))
    }

    /// Adds a static edge.
    pub fn edge(self, from: &str, to: impl Into<Target>) -> Self {
        let from = from.to_owned();
        let to = to.into();
        self.part(|graph| graph.edge(from, to))
    }

    /// Adds a conditional edge that leads to one of `nodes`, or to END. That each of them is a node is checked when the
    /// graph is compiled, and pictures of the graph show them.
    pub fn route<'n, F>(self, from: &str, nodes: impl IntoIterator<Item = &'n str>, choose: F) -> Self
    where
        F: Fn(&S) -> Target + Send + Sync + 'static,
    {
        let from = from.to_owned();
        let nodes: Vec<Arc<str>> = nodes.into_iter().map(Arc::from).collect();
        self.part(|graph| graph.route_among(from, nodes, move |state| Ok(choose(&*read::<S, Arc<S>>(state)?))))
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
        let from = from.to_owned();
        let to = to.to_owned();
        self.part(move |graph| graph.migration(&from, &to, migrate))
    }

    /// Declares the treatment of its pauses when it has changed since; see [`GraphBuilder::upgrade`].
    pub fn upgrade(self, policy: UpgradePolicy) -> Self {
        self.part(move |graph| graph.upgrade(policy))
    }

    /// Declares that its nodes use nothing but their state; see [`GraphBuilder::pure`].
    pub fn pure(self) -> Self {
        self.part(GraphBuilder::pure)
    }

    /// Declares the graph that runs in its place on recorded material; see [`GraphBuilder::twin`].
    pub fn twin(self, make: MakeTwin) -> Self {
        self.part(move |graph| graph.twin(make))
    }

    /// Declares which fields a request may set when it begins a turn; see [`GraphBuilder::inputs`].
    pub fn inputs(self, fields: impl FieldKeys<S>) -> Self {
        let fields = fields.names();
        self.part(move |graph| graph.inputs(fields))
    }

    /// Declares which fields a request has to set when it begins a turn; see [`GraphBuilder::required_inputs`].
    pub fn required_inputs(self, fields: impl FieldKeys<S>) -> Self {
        let fields = fields.names();
        self.part(move |graph| graph.required_inputs(fields))
    }

    /// Declares a check of the state that a request gives; see [`GraphBuilder::admits`].
    pub fn admits(self, check: impl Fn(&Map) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.part(move |graph| graph.admits(check))
    }

    /// Declares that its runs hear, in their midst, what is said to them; see [`GraphBuilder::hears`].
    pub fn hears(self, ending: EntryKind, change: impl Fn(&S) -> Option<Update<S>> + Send + Sync + 'static) -> Self {
        self.part(move |graph| {
            graph.hears(ending, move |state| change(&*read::<S, Arc<S>>(state)?).map(Update::untyped).transpose())
        })
    }

    /// Declares that its durable steps may need more time than a short turn has; see [`GraphBuilder::leaves_short_turns`].
    pub fn leaves_short_turns(self) -> Self {
        self.part(GraphBuilder::leaves_short_turns)
    }

    /// Declares what is to be undone outside when an invocation is canceled; see [`GraphBuilder::on_cancel`]. A state that
    /// cannot be read, because it was written by another version, is told to the log.
    pub fn on_cancel<F, Fut>(self, withdraw: F) -> Self
    where
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let withdraw = Arc::new(withdraw);
        self.part(move |graph| {
            graph.on_cancel(move |state| {
                let withdraw = withdraw.clone();
                async move {
                    match S::read(&state) {
                        Ok(state) => withdraw(state).await,
                        Err(error) => tracing::warn!(
                            error,
                            "the state of a canceled invocation cannot be read; what works for it elsewhere goes on"
                        ),
                    }
                }
            })
        })
    }

    /// Declares the events that its pauses wait for; see [`GraphBuilder::events`].
    pub fn events(self, waits: impl IntoIterator<Item = EventWait>) -> Self {
        let waits: Vec<EventWait> = waits.into_iter().collect();
        self.part(move |graph| graph.events(waits))
    }

    /// Checks the graph and makes it executable.
    ///
    /// # Errors
    /// As [`GraphBuilder::compile`]; `state_validation_error` when a default has no JSON form,
    /// `reducer_configuration_invalid` when a reducer of lists or mappings is given to a field that is none.
    pub fn compile(self) -> Result<CompiledGraph, EngineError> {
        let schema = self.schema.map_err(|reason| EngineError::new(Category::StateValidationError, reason))?;
        check_reducers(&self.name, &schema)?;
        let draft = GraphBuilder::new(self.name, schema);
        self.parts.into_iter().fold(draft, |graph, part| part(graph)).compile()
    }

    fn part(mut self, part: impl FnOnce(GraphBuilder) -> GraphBuilder + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }
}

/// Refuses reducers that no update of their field could pass. States that are declared by hand say themselves what a field is.
fn check_reducers(graph: &str, schema: &StateSchema) -> Result<(), EngineError> {
    for (name, field) in schema.fields() {
        if let Some(needed) = field.reducer.lacks(&field.default) {
            let message = format!(
                "graph `{graph}`: the reducer {} needs {needed}, and field `{name}` is {}: give it to a field that is {needed}, \
                 or leave it out",
                field.reducer.name(),
                shape(&field.default)
            );
            return Err(EngineError::new(Category::ReducerConfigurationInvalid, message));
        }
    }
    Ok(())
}

struct TypedNode<S, V, F> {
    function: F,
    types: PhantomData<fn(S, V)>,
}

#[async_trait]
impl<S, V, F, Fut> Node for TypedNode<S, V, F>
where
    S: GraphState,
    V: View<S> + Send + 'static,
    F: Fn(V) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Update<S>, NodeError>> + Send + 'static,
{
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        let view = read(&state)?;
        drop(state);
        (self.function)(view).await?.untyped()
    }
}

struct WaitNode<S, A, F> {
    wait: F,
    types: PhantomData<fn(S, A)>,
}

#[async_trait]
impl<S, A, F> Node for WaitNode<S, A, F>
where
    S: GraphState,
    A: 'static,
    F: Fn(&S) -> Result<Wait<S, A>, NodeError> + Send + Sync + 'static,
{
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        let descriptor = (self.wait)(&*read::<S, Arc<S>>(&state)?)?.descriptor()?;
        drop(state);
        Err(suspend(descriptor).await)
    }

    fn waits(&self) -> bool {
        true
    }
}

fn read<S: GraphState, V: View<S>>(state: &State) -> Result<V, NodeError> {
    V::view(state).map_err(|reason| NodeError::new(reason).with_category(Category::StateValidationError))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::END;

    crate::state! {
        #[derive(Clone, Debug, Default)]
        struct Essay {
            topic: String,
            drafts: Vec<String>,
            sources: Option<Vec<String>>,
        }
    }

    fn compiled(graph: Graph<Essay>) -> Result<CompiledGraph, EngineError> {
        graph.entry("write").node("write", async |()| Ok(Update::none())).edge("write", END).compile()
    }

    #[test]
    fn a_reducer_of_a_field_that_it_cannot_reduce_does_not_compile() {
        let sound = Graph::<Essay>::new("essay").reducer(Essay::drafts, Reducer::Append);
        assert!(compiled(sound.reducer(Essay::sources, Reducer::Append)).is_ok());
        for (graph, said) in [
            (
                Graph::<Essay>::new("essay").reducer(Essay::topic, Reducer::Append),
                "graph `essay`: the reducer append needs a list, and field `topic` is a string: give it to a field that is a \
                 list, or leave it out",
            ),
            (
                Graph::<Essay>::new("essay").reducer(Essay::drafts, Reducer::Merge),
                "graph `essay`: the reducer merge needs a mapping, and field `drafts` is a list: give it to a field that is a \
                 mapping, or leave it out",
            ),
        ] {
            let refused = compiled(graph).expect_err(said);
            assert_eq!((refused.category().as_str(), refused.message()), ("reducer_configuration_invalid", said));
        }
    }
}
