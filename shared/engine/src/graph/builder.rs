use std::future::Future;
use std::sync::Arc;

use dormouse_ports::{Checkpointer, EntryKind, EventWait, Map};
use indexmap::IndexMap;

use super::compile;
use super::compiled::{CompiledGraph, Hears, MakeTwin, Policies, Replayable, Work};
use super::{FanOut, Migrate, Migrations, ParallelBranches, Projection, SessionPolicy};
use crate::node::{Middleware, Node, Route, Target};
use crate::{EngineError, NodeError, State, StateSchema, Update};

/// Collects the parts of a graph.
#[must_use = "a builder does nothing until it is compiled"]
pub struct GraphBuilder {
    pub(super) name: Arc<str>,
    pub(super) schema: StateSchema,
    pub(super) entry: Option<Arc<str>>,
    pub(super) nodes: IndexMap<Arc<str>, GraphDraft>,
    pub(super) edges: Vec<(Arc<str>, DraftEdge)>,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) policies: Policies,
    pub(super) mistakes: Mistakes,
}

/// Mistakes that a builder cannot refuse before the graph is compiled.
#[derive(Default)]
pub(super) struct Mistakes {
    /// Nodes that were added more than once.
    pub(super) doubled: Vec<Arc<str>>,
    /// Names that were wrapped before there was such a node.
    pub(super) wrapped: Vec<Arc<str>>,
    /// Names that were made durable before there was such a node.
    pub(super) durable: Vec<Arc<str>>,
}

/// Treatment of a pause when the shape of its graph ([`CompiledGraph::digest`]) has changed by the time that it is
/// resumed. If the resume is refused, the invocation stays suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpgradePolicy {
    /// It goes on in the graph of today: its states are migrated where their schema version is another one, and the
    /// nodes that lead to its place must still be there (`suspension_record_invalid`).
    #[default]
    Migrate,
    /// Only a worker with a graph of the shape that wrote it takes it up; every other one answers `suspension_pinned`,
    /// which is retryable: an older version that still runs, or a rollback, will.
    Pin,
    /// It is refused with `suspension_record_invalid`: an operator has to look.
    Refuse,
}

impl std::fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphBuilder").field("name", &self.name).field("nodes", &self.nodes.len()).finish()
    }
}

pub(super) struct GraphDraft {
    pub(super) work: Work,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) durable: bool,
}

#[derive(Clone)]
pub(super) enum DraftEdge {
    Static(Target),
    /// The function, and the nodes that it may choose where they are named.
    Conditional(Route, Option<Arc<[Arc<str>]>>),
}

impl GraphBuilder {
    /// A graph called `name` over `schema`. The name is how a worker finds the graph of a paused invocation.
    pub fn new(name: impl Into<Arc<str>>, schema: StateSchema) -> Self {
        Self {
            name: name.into(),
            schema,
            entry: None,
            nodes: IndexMap::new(),
            edges: Vec::new(),
            middleware: Vec::new(),
            policies: Policies::default(),
            mistakes: Mistakes::default(),
        }
    }

    /// Declares where execution begins.
    pub fn entry(mut self, node: impl Into<Arc<str>>) -> Self {
        self.entry = Some(node.into());
        self
    }

    /// Adds a node.
    pub fn node(self, name: impl Into<Arc<str>>, node: impl Node + 'static) -> Self {
        self.shared_node(name, Arc::new(node))
    }

    /// Adds a node that is shared with others.
    pub fn shared_node(self, name: impl Into<Arc<str>>, node: Arc<dyn Node>) -> Self {
        self.work(name, Work::Node(node))
    }

    /// Adds a node that is an async closure.
    pub fn function<F, Fut>(self, name: impl Into<Arc<str>>, function: F) -> Self
    where
        F: Fn(State) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Update, NodeError>> + Send + 'static,
    {
        self.node(name, FunctionNode(function))
    }

    /// Adds a compiled graph as a node.
    pub fn subgraph(self, name: impl Into<Arc<str>>, graph: Arc<CompiledGraph>, projection: Projection) -> Self {
        self.work(name, Work::Subgraph { graph, projection })
    }

    /// Adds a fan-out node.
    pub fn fan_out(self, name: impl Into<Arc<str>>, fan_out: FanOut) -> Self {
        self.work(name, Work::FanOut(Box::new(fan_out)))
    }

    /// Adds a parallel-branches node.
    pub fn parallel_branches(self, name: impl Into<Arc<str>>, branches: ParallelBranches) -> Self {
        self.work(name, Work::Branches(branches))
    }

    fn work(mut self, name: impl Into<Arc<str>>, work: Work) -> Self {
        let name = name.into();
        if self.nodes.insert(name.clone(), GraphDraft { work, middleware: Vec::new(), durable: false }).is_some() {
            self.mistakes.doubled.push(name);
        }
        self
    }

    /// Wraps the node `name`, which was added before, inside of its present middleware.
    pub fn wrap(mut self, name: &str, middleware: Arc<dyn Middleware>) -> Self {
        match self.nodes.get_mut(name) {
            Some(node) => node.middleware.push(middleware),
            None => self.mistakes.wrapped.push(name.into()),
        }
        self
    }

    /// Makes the steps of the node `name`, which was added before, durable: its outcome is committed before the next
    /// node runs, in one request, together with the entries that it recorded. After a crash the invocation goes on
    /// behind it, and a turn that is out of time hands the rest to another worker there. Where its edge leads to END,
    /// the end is the commit. Inside of another graph it has no effect.
    pub fn durable(mut self, name: &str) -> Self {
        match self.nodes.get_mut(name) {
            Some(node) => node.durable = true,
            None => self.mistakes.durable.push(name.into()),
        }
        self
    }

    /// Wraps every node of this graph, outside of the middleware of single nodes.
    pub fn wrap_all(mut self, middleware: Arc<dyn Middleware>) -> Self {
        self.middleware.push(middleware);
        self
    }

    /// Adds a static edge.
    pub fn edge(mut self, from: impl Into<Arc<str>>, to: impl Into<Target>) -> Self {
        self.edges.push((from.into(), DraftEdge::Static(to.into())));
        self
    }

    /// Adds a conditional edge.
    pub fn route<F>(mut self, from: impl Into<Arc<str>>, choose: F) -> Self
    where
        F: Fn(&State) -> Result<Target, NodeError> + Send + Sync + 'static,
    {
        self.edges.push((from.into(), DraftEdge::Conditional(Arc::new(choose), None)));
        self
    }

    /// Adds a conditional edge that leads to one of `nodes`, or to END. That each of them is a node is checked when the
    /// graph is compiled; to choose another one is an error of the edge.
    pub fn route_among<F>(
        mut self,
        from: impl Into<Arc<str>>,
        nodes: impl IntoIterator<Item = impl Into<Arc<str>>>,
        choose: F,
    ) -> Self
    where
        F: Fn(&State) -> Result<Target, NodeError> + Send + Sync + 'static,
    {
        let nodes: Arc<[Arc<str>]> = nodes.into_iter().map(Into::into).collect();
        let among = nodes.clone();
        let from: Arc<str> = from.into();
        let (graph, at) = (self.name.clone(), from.clone());
        let choose = move |state: &State| match choose(state)? {
            Target::Node(node) if !among.contains(&node) => Err(NodeError::new(format!(
                "the route of node `{at}` of graph `{graph}` chose `{node}`, which is none of the nodes that it is declared \
                 to lead to: name that as well"
            ))),
            target @ (Target::Node(_) | Target::End) => Ok(target),
        };
        self.edges.push((from, DraftEdge::Conditional(Arc::new(choose), Some(nodes))));
        self
    }

    /// Registers session persistence.
    pub fn sessions(mut self, policy: SessionPolicy) -> Self {
        self.policies.sessions = Some(policy);
        self
    }

    /// Saves progress with `checkpointer` at every completed node, for invocations of this graph as the outermost one
    /// (pipeline-utilities §10.1.1). Without it nothing is saved; inside of another graph it has no effect.
    pub fn checkpointer(mut self, checkpointer: Arc<dyn Checkpointer>) -> Self {
        self.policies.checkpoints.checkpointer = Some(checkpointer);
        self
    }

    /// Registers a migration of stored state, from one schema version to another, for checkpoints and pauses of this
    /// graph (pipeline-utilities §10.12.1). Those of sessions are registered with [`SessionPolicy::migration`]. What ends a
    /// pause of an earlier version, an answer or a default, is in the state already that the migration is given.
    pub fn migration(mut self, from: &str, to: &str, migrate: Migrate) -> Self {
        self.policies.checkpoints.migrations =
            std::mem::take(&mut self.policies.checkpoints.migrations).with(from, to, migrate);
        self
    }

    /// Registers `migrations` in place of those registered before.
    pub fn migrations(mut self, migrations: Migrations) -> Self {
        self.policies.checkpoints.migrations = migrations;
        self
    }

    /// Declares the treatment of its pauses when it has changed since; without, [`UpgradePolicy::Migrate`].
    pub fn upgrade(mut self, policy: UpgradePolicy) -> Self {
        self.policies.upgrade = policy;
        self
    }

    /// Declares which fields of the state a request may set when it begins a turn. Without this declaration it may set
    /// every field, those among them that only nodes and answers should write.
    pub fn inputs(mut self, fields: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.policies.inputs.get_or_insert_default().extend(fields.into_iter().map(Into::into));
        self
    }

    /// Declares [inputs](Self::inputs) that each request has to set when it begins a turn: one that leaves them out is refused
    /// before anything of the turn is written. A session that keeps them does not stand in for the request.
    pub fn required_inputs(mut self, fields: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        let fields: Vec<Arc<str>> = fields.into_iter().map(Into::into).collect();
        self.policies.required.extend(fields.iter().cloned());
        self.inputs(fields)
    }

    /// Declares a check of the state that a request gives, before anything of the turn is written: what is wrong with it, in a
    /// sentence for the caller.
    pub fn admits(mut self, check: impl Fn(&Map) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.policies.admits = Some(Box::new(check));
        self
    }

    /// Declares the events that its pauses wait for, as the `event` of a descriptor has it. Rules for them stand before
    /// a turn begins, so that no event is missed that a node triggers before it pauses. A pause may wait for another
    /// event all the same: its rule is made before it is written.
    pub fn events(mut self, waits: impl IntoIterator<Item = EventWait>) -> Self {
        self.policies.events.extend(waits);
        self
    }

    /// Declares that its runs hear, in their midst, what is said to them: behind a [durable](Self::durable) step, also one
    /// that leads to the end, where `change` gives what else changes in the state then. The edge of the step is followed
    /// anew, and has to lead to a node; an entry of the kind `ending` that was recorded at the end is taken back. Where
    /// `change` gives `None`, what is said waits. Only a store that publishes tasks knows what is said
    /// ([`CommitError::Said`](dormouse_ports::CommitError::Said)).
    pub fn hears(
        mut self,
        ending: EntryKind,
        change: impl Fn(&State) -> Result<Option<Update>, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.policies.hears = Some(Hears { change: Box::new(change), ending });
        self
    }

    /// Declares that its [durable](Self::durable) steps may need more time than a turn has for which a request waits: a turn
    /// that is [short](crate::TurnTime::is_short) makes one of them at most and leaves the rest to a worker.
    pub fn leaves_short_turns(mut self) -> Self {
        self.policies.leaves_short_turns = true;
        self
    }

    /// Declares what is to be undone outside when an invocation is canceled: `withdraw` is given the state of its last
    /// commit, behind the commit that cancels it. It is a courtesy to those who work for the invocation elsewhere: the harness
    /// gives it some seconds, a process that dies in between leaves it out, and so does one that does not have the graph,
    /// as the command line does not. Without effect inside of another graph.
    pub fn on_cancel<F, Fut>(mut self, withdraw: F) -> Self
    where
        F: Fn(State) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.policies.withdraw = Some(Box::new(move |state| Box::pin(withdraw(state))));
        self
    }

    /// Declares that its nodes use nothing but their state: no clock, no chance, no network, no file. So what a run of it
    /// came to follows from its input and its answers, and a replay runs it again on those.
    pub fn pure(mut self) -> Self {
        self.policies.replay = Replayable::Pure;
        self
    }

    /// Declares the graph that runs in its place on recorded material ([`ReplayMaterial`](dormouse_ports::ReplayMaterial)):
    /// the same nodes with other ports.
    pub fn twin(mut self, make: MakeTwin) -> Self {
        self.policies.replay = Replayable::Twin(make);
        self
    }

    /// Checks the graph and makes it executable.
    ///
    /// # Errors
    /// One of the compile error categories of graph-engine §2; `duplicate_node` for two nodes of one name,
    /// `undeclared_node` for one that is wrapped and not there; `checkpoint_state_migration_chain_ambiguous` when
    /// migrations leave a choice.
    pub fn compile(self) -> Result<CompiledGraph, EngineError> {
        compile::compile(self)
    }
}

struct FunctionNode<F>(F);

#[async_trait::async_trait]
impl<F, Fut> Node for FunctionNode<F>
where
    F: Fn(State) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Update, NodeError>> + Send,
{
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        (self.0)(state).await
    }
}
