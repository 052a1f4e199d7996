use std::fmt;
use std::sync::{Arc, OnceLock};

use dormouse_ports::{Category, Checkpointer, EntryKind, EventWait, Map, ReplayMaterial};
use futures::future::BoxFuture;
use indexmap::IndexMap;

use super::compile::{digest, in_quotes};
use super::migrations::Migrated;
use super::{FanOut, Migrations, ParallelBranches, Projection, SessionPolicy, UpgradePolicy};
use crate::node::{Middleware, Node, Route};
use crate::observe::{ObserverDeliveries, Observers, Subgraph};
use crate::{EngineError, NodeError, State, StateSchema, Update};

/// An immutable, executable graph (graph-engine §2).
pub struct CompiledGraph {
    /// The graph as observers see it.
    shown: Arc<Subgraph>,
    /// Computed on demand: most turns that only look do not need it.
    digest: OnceLock<String>,
    schema: StateSchema,
    entry: usize,
    nodes: IndexMap<Arc<str>, CompiledNode>,
    policies: Policies,
    warnings: Vec<String>,
    pub(crate) observers: Observers,
    pub(crate) deliveries: ObserverDeliveries,
}

/// Policies that a graph declares beside its nodes, edges and fields.
#[derive(Default)]
pub(super) struct Policies {
    /// Policy for the persistence of sessions, if they are persisted.
    pub(super) sessions: Option<SessionPolicy>,
    pub(super) checkpoints: CheckpointSetup,
    pub(super) upgrade: UpgradePolicy,
    /// The fields that a request may set; every field when absent.
    pub(super) inputs: Option<Vec<Arc<str>>>,
    /// Those of them that a request has to set.
    pub(super) required: Vec<Arc<str>>,
    /// What else is checked of the state that a request gives.
    pub(super) admits: Option<Admits>,
    /// The events that its pauses wait for, as far as they are declared.
    pub(super) events: Vec<EventWait>,
    /// When its runs hear, in their midst, what is said to them.
    pub(super) hears: Option<Hears>,
    /// True if a short turn leaves the rest to a worker behind its first durable step.
    pub(super) leaves_short_turns: bool,
    /// Work outside that is undone when an invocation is canceled.
    pub(super) withdraw: Option<Withdraw>,
    /// Way to run again on what a run of it recorded.
    pub(super) replay: Replayable,
}

/// Says what is wrong with the state that a request gives.
pub(super) type Admits = Box<dyn Fn(&Map) -> Result<(), String> + Send + Sync>;

/// What changes in a state that hears something; `None` for one that does not.
type HearingChange = dyn Fn(&State) -> Result<Option<Update>, NodeError> + Send + Sync;

/// When runs of a graph hear, in their midst, what is said to them.
pub(super) struct Hears {
    /// What changes in the state where something is heard behind a durable step; `None` where nothing may be.
    pub(super) change: Box<HearingChange>,
    /// The kind of the entry of a step that ends the run; of one that goes on it is taken back.
    pub(super) ending: EntryKind,
}

/// Way in which a graph runs again on what a run of it recorded.
#[derive(Clone, Default)]
pub(super) enum Replayable {
    /// The author did not say.
    #[default]
    Unknown,
    /// As it is: its nodes use nothing but their state.
    Pure,
    /// As another graph with nodes that use what was recorded.
    Twin(MakeTwin),
}

/// Makes the graph that runs on recorded material.
pub type MakeTwin = Arc<dyn Fn(&Arc<ReplayMaterial>) -> Result<Twin, EngineError> + Send + Sync>;

/// A graph that reaches nothing outside, for a replay.
#[derive(Clone, Debug)]
pub struct Twin {
    /// The graph.
    pub graph: Arc<CompiledGraph>,
    /// The state with which it begins, where that was not only what the request gave.
    pub state: Option<Map>,
}

/// Undoes outside what the state of a canceled invocation tells of.
pub(super) type Withdraw = Box<dyn Fn(State) -> BoxFuture<'static, ()> + Send + Sync>;

/// Checkpointer and migrations registered for stored progress.
#[derive(Default)]
pub(super) struct CheckpointSetup {
    pub(super) checkpointer: Option<Arc<dyn Checkpointer>>,
    pub(super) migrations: Migrations,
}

pub(crate) struct CompiledNode {
    pub(crate) work: Work,
    /// Outermost first: the graph's around the node's own.
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
    pub(crate) edge: Edge,
    /// True if its steps are committed.
    pub(crate) durable: bool,
}

/// Work of a node when it is dispatched.
pub(crate) enum Work {
    Node(Arc<dyn Node>),
    Subgraph { graph: Arc<CompiledGraph>, projection: Projection },
    FanOut(Box<FanOut>),
    Branches(ParallelBranches),
}

impl Work {
    /// Words for a node that is there to wait: it, as the node `name` of `graph`, or one inside of it.
    pub(super) fn waiting_node(&self, name: &str, graph: &str) -> Option<String> {
        match self {
            Self::Node(node) => node.waits().then(|| format!("node `{name}` of graph `{graph}`")),
            Self::Subgraph { graph, .. } => graph.waiting_node(),
            Self::FanOut(_) | Self::Branches(_) => self.waits_beside_others(),
        }
    }

    /// Words for a node that is there to wait, in the graphs and calls that it runs at once; `None` for other work.
    pub(super) fn waits_beside_others(&self) -> Option<String> {
        match self {
            Self::Node(_) | Self::Subgraph { .. } => None,
            Self::FanOut(fan_out) => fan_out.graph.waiting_node(),
            Self::Branches(branches) => branches.waiting_node(),
        }
    }

    /// True if the node itself takes a step and shows in events; a subgraph's own nodes do instead (graph-engine §6).
    pub(crate) fn emits_events(&self) -> bool {
        match self {
            Self::Node(_) | Self::FanOut(_) | Self::Branches(_) => true,
            Self::Subgraph { .. } => false,
        }
    }

    /// The graphs inside of it.
    pub(crate) fn inner(&self) -> Box<dyn Iterator<Item = &CompiledGraph> + '_> {
        match self {
            Self::Node(_) => Box::new(std::iter::empty()),
            Self::Subgraph { graph, .. } => Box::new(std::iter::once(&**graph)),
            Self::FanOut(fan_out) => Box::new(std::iter::once(&*fan_out.graph)),
            Self::Branches(branches) => {
                Box::new(branches.branches.iter().filter_map(|(_, branch)| branch.graph.as_deref()))
            }
        }
    }
}

pub(crate) enum Edge {
    To(usize),
    End,
    /// The function, and the nodes that it may choose where they are declared.
    Route(Route, Option<Arc<[Arc<str>]>>),
}

impl fmt::Debug for CompiledGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGraph")
            .field("name", &self.shown.name)
            .field("nodes", &self.nodes.keys().collect::<Vec<_>>())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl CompiledGraph {
    pub(super) fn new(
        (name, schema): (Arc<str>, StateSchema),
        (entry, nodes): (usize, IndexMap<Arc<str>, CompiledNode>),
        policies: Policies,
        warnings: Vec<String>,
    ) -> Self {
        let entry_node = nodes.get_index(entry).map_or_else(|| "".into(), |(name, _)| name.clone());
        Self {
            shown: Arc::new(Subgraph { name, entry_node }),
            digest: OnceLock::new(),
            schema,
            entry,
            nodes,
            policies,
            warnings,
            observers: Observers::default(),
            deliveries: ObserverDeliveries::default(),
        }
    }

    /// The name under which it is registered.
    pub fn name(&self) -> &str {
        &self.shown.name
    }

    /// Digest of its shape, in hexadecimal; stored with every pause.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| digest(self))
    }

    /// The schema of its state.
    pub fn schema(&self) -> &StateSchema {
        &self.schema
    }

    /// Policy for the persistence of sessions, if it has one.
    pub fn sessions(&self) -> Option<&SessionPolicy> {
        self.policies.sessions.as_ref()
    }

    /// True if an invocation of it that slept and then failed with `category` is over by that: another turn has saved its
    /// session meanwhile, and a later try could not save it either.
    pub fn is_overtaken(&self, category: &Category) -> bool {
        *category == Category::SessionWriteConflict && self.sessions().is_some_and(SessionPolicy::is_optimistic)
    }

    /// Treatment of its pauses when it has changed since.
    pub fn upgrade_policy(&self) -> UpgradePolicy {
        self.policies.upgrade
    }

    /// True if steps of it are committed one by one.
    pub(crate) fn has_durable_steps(&self) -> bool {
        self.nodes.values().any(|node| node.durable)
    }

    /// The events that it [declares](super::GraphBuilder::events) its pauses to wait for.
    pub fn events(&self) -> &[EventWait] {
        &self.policies.events
    }

    /// True if its runs [hear](super::GraphBuilder::hears), in their midst, what is said to them.
    pub fn hears(&self) -> bool {
        self.policies.hears.is_some()
    }

    /// True if a short turn [leaves](super::GraphBuilder::leaves_short_turns) the rest to a worker behind its first durable
    /// step.
    pub(crate) fn leaves_short_turns(&self) -> bool {
        self.policies.leaves_short_turns
    }

    /// What changes in `state`, behind a durable step, where something is heard there; `None` where nothing may be.
    pub(crate) fn hearing(&self, state: &State) -> Result<Option<Update>, NodeError> {
        self.policies.hears.as_ref().map_or(Ok(None), |hears| (hears.change)(state))
    }

    /// The kind of the entry that is taken back where a run hears something at its end, and goes on.
    pub(crate) fn ending(&self) -> Option<&EntryKind> {
        self.policies.hears.as_ref().map(|hears| &hears.ending)
    }

    /// Checks that a request may begin a turn with `state`.
    ///
    /// # Errors
    /// `state_validation_error`, when it sets a field that the graph does not declare as an
    /// [input](super::GraphBuilder::inputs), leaves out one that is [required](super::GraphBuilder::required_inputs), or the
    /// graph does not [admit](super::GraphBuilder::admits) it.
    pub fn check_inputs(&self, state: &Map) -> Result<(), EngineError> {
        self.check_fields(state)?;
        let refused = self.policies.admits.as_ref().and_then(|admits| admits(state).err());
        refused.map_or(Ok(()), |reason| Err(EngineError::new(Category::StateValidationError, reason)))
    }

    /// True if a request may set `field` when it begins a turn.
    pub fn is_input(&self, field: &str) -> bool {
        self.policies.inputs.as_ref().is_none_or(|inputs| inputs.iter().any(|input| **input == *field))
    }

    fn check_fields(&self, state: &Map) -> Result<(), EngineError> {
        let name = self.name();
        let refuse = |message: String| Err(EngineError::new(Category::StateValidationError, message));
        if let Some(field) = state.keys().find(|field| !self.is_input(field)) {
            let inputs = in_quotes(self.policies.inputs.iter().flatten());
            return refuse(format!("field `{field}` cannot be set by a request; graph `{name}` takes {inputs}"));
        }
        let mut missing = self.policies.required.iter().filter(|field| !state.contains_key(&***field)).peekable();
        if missing.peek().is_none() {
            return Ok(());
        }
        let missing = in_quotes(missing);
        refuse(format!(
            "graph `{name}` cannot begin without {missing}: set what is missing in the state of the request"
        ))
    }

    /// What is to be undone outside after an invocation with `state` was canceled; `None` where the graph
    /// [declares](super::GraphBuilder::on_cancel) nothing.
    pub fn withdrawal(&self, state: &Map) -> Option<BoxFuture<'static, ()>> {
        let withdraw = self.policies.withdraw.as_ref()?;
        let mut known = self.schema.defaults();
        for (field, value) in state {
            if let Some((field, _)) = self.schema.get(field) {
                known.set(field, Arc::new(value.clone()));
            }
        }
        Some(withdraw(known))
    }

    /// The same graph, for which `make` makes the one that runs on recorded material, as
    /// [`twin`](super::GraphBuilder::twin) declares it.
    #[must_use]
    pub fn with_twin(mut self, make: MakeTwin) -> Self {
        self.policies.replay = Replayable::Twin(make);
        self
    }

    /// The graph that runs on `material`, which a run of this one has recorded, and reaches nothing outside; `None` where
    /// the graph neither is [pure](super::GraphBuilder::pure) nor has a [twin](super::GraphBuilder::twin).
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn for_replay(self: &Arc<Self>, material: &Arc<ReplayMaterial>) -> Result<Option<Twin>, EngineError> {
        match &self.policies.replay {
            Replayable::Unknown => Ok(None),
            Replayable::Pure => Ok(Some(Twin { graph: self.clone(), state: None })),
            Replayable::Twin(make) => make(material).map(Some),
        }
    }

    /// The checkpointer to which its progress is saved, if any.
    pub fn checkpointer(&self) -> Option<&Arc<dyn Checkpointer>> {
        self.policies.checkpoints.checkpointer.as_ref()
    }

    /// The migrations of its checkpoints and pauses.
    pub(crate) fn migrations(&self) -> &Migrations {
        &self.policies.checkpoints.migrations
    }

    /// Checks that a pause of the schema version `version` can go on.
    ///
    /// # Errors
    /// `suspension_record_invalid`, when no single chain of migrations leads from there to the declared version.
    pub fn takes_pauses_of(&self, version: &str) -> Result<(), EngineError> {
        let versions = (version, self.schema().version());
        self.migrations().migrate(Migrated::Pause, Vec::new(), versions).map(|_| ())
    }

    /// Warnings about parts that compiled but look like a mistake: `projection_reducer_round_trip`, `suspension_beside_others`,
    /// `session_overwritten`, `checkpoint_state_migration_missing`, `session_state_migration_missing`. Who serves the graph writes
    /// them into the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The names of its nodes in the order of their declaration.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(AsRef::as_ref)
    }

    /// Words for a node that is there to wait, of it or of a graph inside of it.
    pub(super) fn waiting_node(&self) -> Option<String> {
        self.nodes.iter().find_map(|(name, node)| node.work.waiting_node(name, self.name()))
    }

    pub(super) fn nodes(&self) -> &IndexMap<Arc<str>, CompiledNode> {
        &self.nodes
    }

    /// The graphs that its nodes run.
    pub(crate) fn inner_graphs(&self) -> impl Iterator<Item = &CompiledGraph> {
        self.nodes.values().flat_map(|node| node.work.inner())
    }

    /// The graph inside the node `name`, if that is a subgraph.
    pub(crate) fn inner(&self, name: &str) -> Option<&CompiledGraph> {
        match &self.nodes.get(name)?.work {
            Work::Subgraph { graph, .. } => Some(graph),
            Work::Node(_) | Work::FanOut(_) | Work::Branches(_) => None,
        }
    }

    pub(crate) fn as_subgraph(&self) -> &Arc<Subgraph> {
        &self.shown
    }

    pub(crate) fn entry(&self) -> usize {
        self.entry
    }

    pub(crate) fn node_at(&self, index: usize) -> Option<(&Arc<str>, &CompiledNode)> {
        self.nodes.get_index(index)
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.nodes.get_index_of(name)
    }
}
