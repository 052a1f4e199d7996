//! Agents that a server runs: the graphs of its authors, with the descriptions that clients are given of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{CompiledGraph, EngineError, MakeTwin, Twin};
use dormouse_harness::chat::{converses, unfit};
use dormouse_harness::{GraphRegistry, GraphSource, HarnessChildren};
use dormouse_ports::tool::{CallbackAddresses, CrateTools, ToolSource};
use dormouse_ports::{Clock, EventBus, Images};
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::resource::{AutonomyTier, ReceiptPolicy};

use crate::recorded_outside::{recording, replaying};
use crate::{LiveText, PersonaSpec, Personas, ToolInfo, WorkspaceFiles, WorkspaceTemplates};

/// Ports that graphs may use of the outside: made by the runner of the graphs, the same for all of them.
#[derive(Clone)]
#[non_exhaustive]
pub struct Outside {
    /// Publishes events.
    pub bus: Arc<dyn EventBus>,
    /// The time, which tests move by hand.
    pub clock: Arc<dyn Clock>,
    /// Makes addresses at which those who work elsewhere for a run report; `None` where no address is reachable.
    pub callbacks: Option<Arc<dyn CallbackAddresses>>,
    /// Runs what graphs begin beside themselves, once the graphs are served.
    pub children: HarnessChildren,
    /// Keeps the images of conversations; `None` where they are told in words.
    pub images: Option<Arc<dyn Images>>,
}

impl Outside {
    /// The world of `bus` and `clock`.
    pub fn new(bus: Arc<dyn EventBus>, clock: Arc<dyn Clock>) -> Self {
        Self { bus, clock, callbacks: None, children: HarnessChildren::default(), images: None }
    }

    /// The same world, in which `callbacks` makes the addresses for what is reported from elsewhere.
    #[must_use]
    pub fn with_callbacks(self, callbacks: Arc<dyn CallbackAddresses>) -> Self {
        Self { callbacks: Some(callbacks), ..self }
    }

    /// The same world, in which `images` keeps the images of conversations.
    #[must_use]
    pub fn with_images(self, images: Arc<dyn Images>) -> Self {
        Self { images: Some(images), ..self }
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

type GraphMaker = dyn Fn(&Outside) -> Result<CompiledGraph, EngineError> + Send + Sync;

/// What an agent may use, as clients are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentMeans {
    /// The names by which its model calls tools, as far as they are known without asking a server for its list.
    pub tools: Vec<String>,
    /// Skills that it may read.
    pub skills: Vec<String>,
    /// Agents that it may hand a run over to, and those that it may ask.
    pub agents: Vec<String>,
    /// Reference to the model that it asks.
    pub model: Option<String>,
}

/// A graph that clients can have work done by, and the description that they are given of it.
#[derive(Clone)]
pub struct Agent {
    make: Arc<GraphMaker>,
    description: Option<String>,
    autonomy_tier: AutonomyTier,
    receipts: ReceiptPolicy,
    means: Arc<AgentMeans>,
    is_internal: bool,
    is_hidden: bool,
}

impl Agent {
    /// An agent that works by the graph which `make` makes. Unless described otherwise, it is described by the name of
    /// its graph, and acts by itself.
    pub fn new(make: impl Fn(&Outside) -> Result<CompiledGraph, EngineError> + Send + Sync + 'static) -> Self {
        let receipts = ReceiptPolicy::Optional;
        let make = Arc::new(make);
        let autonomy_tier = AutonomyTier::ActAuto;
        let means = Arc::default();
        Self { make, description: None, autonomy_tier, receipts, means, is_internal: false, is_hidden: false }
    }

    /// An agent that works by the graph which `make` makes, and of which every use of bus and clock is recorded: the events
    /// that its nodes publish by their digests, the times that they read. So its runs can be replayed, in which nothing is
    /// published. Its nodes use nothing else but their state; each use is an event of the task.
    pub fn recorded(make: impl Fn(&Outside) -> Result<CompiledGraph, EngineError> + Send + Sync + 'static) -> Self {
        let make = Arc::new(make);
        Self::new(move |outside| {
            let graph = make(&recording(outside))?;
            let make = make.clone();
            let outside = outside.clone();
            let twin: MakeTwin = Arc::new(move |material| {
                let graph = Arc::new(make(&replaying(&outside, material))?);
                Ok(Twin { graph, state: None })
            });
            Ok(graph.with_twin(twin))
        })
    }

    /// Responsibility of the agent, in a sentence for those who choose an agent.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// Degree to which it acts without asking a person.
    #[must_use]
    pub fn autonomy(self, autonomy_tier: AutonomyTier) -> Self {
        Self { autonomy_tier, ..self }
    }

    /// The same, of which clients are told that it may use `means`.
    #[must_use]
    pub fn means(self, means: AgentMeans) -> Self {
        Self { means: Arc::new(means), ..self }
    }

    /// The same, which other agents ask and clients do not: it is no persona.
    #[must_use]
    pub fn internal(self) -> Self {
        Self { is_internal: true, ..self }
    }

    /// The same, which no list shows; who knows its name may have work done by it.
    #[must_use]
    pub fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }

    /// Whether its tasks have receipts. Where that is optional, they have them on a server that has a key to sign with.
    #[must_use]
    pub fn receipts(self, receipts: ReceiptPolicy) -> Self {
        Self { receipts, ..self }
    }

    fn compile(&self, outside: &Outside) -> Result<(Arc<CompiledGraph>, Option<PersonaSpec>), EngineError> {
        let graph = Arc::new((self.make)(outside)?);
        for warning in graph.warnings() {
            tracing::warn!(graph = graph.name(), "{warning}");
        }
        if converses(&graph)
            && let Some(reason) = unfit(&graph)
        {
            tracing::warn!(graph = graph.name(), "what its turns say is not told as a conversation: {reason}");
        }
        let persona = match &self.description {
            Some(description) => PersonaSpec::new(graph.name(), description, self.autonomy_tier),
            None => PersonaSpec { autonomy_tier: self.autonomy_tier, ..PersonaSpec::undescribed(graph.name()) },
        };
        let persona = persona.with_receipts(self.receipts);
        let persona = PersonaSpec { hidden: self.is_hidden, means: self.means.clone(), ..persona };
        Ok((graph, (!self.is_internal).then_some(persona)))
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("description", &self.description).finish_non_exhaustive()
    }
}

type SourceMaker = dyn Fn(&Outside) -> Arc<dyn AgentSource> + Send + Sync;

/// Makes a source of agents that come and go.
#[derive(Clone)]
struct MakesSource(Arc<SourceMaker>);

impl fmt::Debug for MakesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakesSource")
    }
}

type OwnMaker = dyn Fn(&Outside, WorkspaceFiles) -> Arc<dyn WorkspaceAgents> + Send + Sync;

/// Makes the source of the agents that files of workspaces declare.
#[derive(Clone)]
struct MakesOwn(Arc<OwnMaker>);

impl fmt::Debug for MakesOwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakesOwn")
    }
}

/// The agents of a server, in the order of their registration. The first one works for clients that name none.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    agents: Vec<Agent>,
    source: Option<MakesSource>,
    own: Option<MakesOwn>,
    tour: Option<String>,
    live: LiveText,
    templates: Option<Arc<dyn WorkspaceTemplates>>,
    tools: CrateTools,
}

/// Something that is declared: an agent, a model, a source of tools, what cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogLine {
    /// `agent`, `subagent`, `model`, `tool`, `action`, `skill` or `hook`; `tier` for where commands and file tools work;
    /// `problem` for a mistake in a file, whose name is the place.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// True if it can be used.
    pub enabled: bool,
    /// Reasons why it cannot.
    pub reasons: Vec<String>,
}

/// Reason for which agents cannot be served. Names the agent, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    /// There is none.
    #[error("there is no agent to serve: register one with `Agents::new().agent(..)` or `.graph(..)`")]
    Empty,
    /// A graph is wrong.
    #[error(transparent)]
    Graph(#[from] EngineError),
    /// Two graphs have one name: what sleeps in one of them could wake in the other.
    #[error("there are two graphs called `{0}`: give one of them another name")]
    SameName(String),
}

impl Agents {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also `agent`.
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Also the agent of the graph which `make` makes, without a description.
    #[must_use]
    pub fn graph(self, make: impl Fn(&Outside) -> Result<CompiledGraph, EngineError> + Send + Sync + 'static) -> Self {
        self.agent(Agent::new(make))
    }

    /// Also the agents and the tools of `others`; their source and their tour do not count.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.agents.extend(others.agents);
        self.tools.extend(others.tools);
        self
    }

    /// Also `tools`, for agents that the folder or the published workspaces declare which are served: an entry of
    /// `tools/settings.yaml` with `rust: NAME` offers those that are registered as `name`. Agents that files of stored workspaces
    /// declare are never offered them. Of two with one name the later ones count.
    #[must_use]
    pub fn tools(mut self, name: impl Into<String>, tools: impl ToolSource + 'static) -> Self {
        self.tools.insert(name.into(), Arc::new(tools));
        self
    }

    /// The tools that [`tools`](Self::tools) registered.
    pub fn crate_tools(&self) -> &CrateTools {
        &self.tools
    }

    /// Logs that no agent can call the [`tools`](Self::tools), for a server with agents of neither a folder nor published
    /// workspaces; `remedy` is what to do.
    pub fn warn_of_idle_tools(&self, remedy: &str) {
        if !self.tools.is_empty() {
            let names = self.tools.keys().map(String::as_str).collect::<Vec<_>>().join("`, `");
            tracing::warn!(
                "no agent can call the tools in Rust `{names}`: they are for agents of a folder or of published workspaces, \
                 and none is served; {remedy}"
            );
        }
    }

    /// Also the agents of the source which `make` makes: they come and go while a server runs, and come before the others.
    #[must_use]
    pub fn of_source(self, make: impl Fn(&Outside) -> Arc<dyn AgentSource> + Send + Sync + 'static) -> Self {
        Self { source: Some(MakesSource(Arc::new(make))), ..self }
    }

    /// Also, in each workspace, the agents that its files declare, by the source which `make` makes.
    #[must_use]
    pub fn of_workspaces(
        self,
        make: impl Fn(&Outside, WorkspaceFiles) -> Arc<dyn WorkspaceAgents> + Send + Sync + 'static,
    ) -> Self {
        Self { own: Some(MakesOwn(Arc::new(make))), ..self }
    }

    /// The source of the agents that `files` of workspaces declare; `None` where those count for nothing.
    pub fn own(&self, outside: &Outside, files: WorkspaceFiles) -> Option<Arc<dyn WorkspaceAgents>> {
        self.own.as_ref().map(|MakesOwn(make)| make(outside, files))
    }

    /// The text of answers of their models is in `live` while it comes. A server shows it to streams that ask for it.
    #[must_use]
    pub fn with_live(self, live: LiveText) -> Self {
        Self { live, ..self }
    }

    /// The text of answers of their models while it comes.
    pub fn live(&self) -> &LiveText {
        &self.live
    }

    /// Also a guided tour of them, which local mode prints in place of its own greeting: lines with four spaces in front
    /// can be pasted into a shell. Where they stand in it, `{address}`, `{key}` (of the operator) and `{api_key}` are
    /// filled in, and for `{proof}` the option by which `curl` sends the API key, where one is asked for. Where `{model}` stands, the
    /// command line also serves an agent `clerk`, which asks a model, and tells there which models can be asked.
    #[must_use]
    pub fn with_tour(self, tour: impl Into<String>) -> Self {
        Self { tour: Some(tour.into()), ..self }
    }

    /// The guided tour, if there is one.
    pub fn tour(&self) -> Option<&str> {
        self.tour.as_deref()
    }

    /// Also templates, of which a server makes new workspaces.
    #[must_use]
    pub fn with_templates(self, templates: Arc<dyn WorkspaceTemplates>) -> Self {
        Self { templates: Some(templates), ..self }
    }

    /// What new workspaces may begin with.
    pub fn templates(&self) -> Option<&Arc<dyn WorkspaceTemplates>> {
        self.templates.as_ref()
    }

    /// Makes their graphs, which use `outside`.
    ///
    /// # Errors
    /// [`AgentsError`].
    pub fn compile(&self, outside: &Outside) -> Result<CompiledAgents, AgentsError> {
        let compiled: Result<Vec<_>, _> = self.agents.iter().map(|agent| agent.compile(outside)).collect();
        let (graphs, personas): (Vec<_>, Vec<_>) = compiled?.into_iter().unzip();
        // Who registers tools has the agents in a workspace.
        if graphs.is_empty() && self.source.is_none() && self.tools.is_empty() {
            return Err(AgentsError::Empty);
        }
        let mut names = BTreeSet::new();
        if let Some(again) = graphs.iter().find(|graph| !names.insert(graph.name().to_owned())) {
            return Err(AgentsError::SameName(again.name().to_owned()));
        }
        let personas: Vec<PersonaSpec> = personas.into_iter().flatten().collect();
        let graphs = GraphRegistry::new(graphs).with_children(outside.children.clone());
        let compiled = CompiledAgents { graphs, personas: Personas::from(personas) };
        Ok(match &self.source {
            Some(MakesSource(make)) => compiled.with_source(make(outside)),
            None => compiled,
        })
    }
}

/// Agents with their compiled graphs.
#[derive(Clone, Debug)]
pub struct CompiledAgents {
    /// Their graphs.
    pub graphs: GraphRegistry,
    /// Description of each for clients.
    pub personas: Personas,
}

impl CompiledAgents {
    /// The same, whose workers also run `graph`, which no description shows: nothing is asked of it but what the server
    /// itself accepts.
    #[must_use]
    pub fn with_inner(self, graph: CompiledGraph) -> Self {
        Self { graphs: self.graphs.with_inner(Arc::new(graph)), ..self }
    }
}

/// A source of agents that come and go while a server runs.
#[async_trait]
pub trait AgentSource: GraphSource {
    /// Descriptions of the agents that clients can have work done by now.
    ///
    /// # Errors
    /// A sentence where they cannot be had.
    async fn personas(&self) -> Result<Vec<PersonaSpec>, String>;

    /// The tenant whose folder the agents are of: those that [reach it](PersonaSpec::at_home) work for that tenant alone.
    fn home(&self) -> Option<&str> {
        None
    }

    /// The tools that those agents may call; without those of agents that are not found by who is not `at_home`. Servers of
    /// tools are asked for theirs; one that does not answer has none.
    ///
    /// # Errors
    /// A sentence where the agents cannot be had.
    async fn tools(&self, at_home: bool) -> Result<Vec<ToolInfo>, String>;

    /// What is declared now, also what cannot be used; without the agents that are not found by who is not `at_home`.
    ///
    /// # Errors
    /// A sentence where it cannot be had.
    async fn catalog(&self, at_home: bool) -> Result<Vec<CatalogLine>, String>;

    /// The agent that is to work where a request names none, if one is chosen: it may be one that cannot be addressed.
    ///
    /// # Errors
    /// A sentence where it cannot be known.
    async fn default_agent(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Why the agent called `name`, which is declared, cannot be addressed; `None` where there is none that cannot.
    ///
    /// # Errors
    /// A sentence where it cannot be known.
    async fn refusal_of(&self, _: &str) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// True if all of those agents only talk since their settings say so: the files of workspaces are not theirs to have
    /// written then.
    ///
    /// # Errors
    /// A sentence where it cannot be known.
    async fn only_talks(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// Has `prepare` see each graph before it runs, from now on.
    fn prepare(&self, prepare: Box<dyn Fn(&CompiledGraph) + Send + Sync>);
}

/// Agents that the files of workspaces declare, each in its workspace alone. Their graphs are current for nobody: whoever may
/// have work done in the workspace is given the version with which it begins.
#[async_trait]
pub trait WorkspaceAgents: GraphSource {
    /// The agents of `workspace`, which is one of `tenant`, as its files are now. Nothing is written for who looks.
    ///
    /// # Errors
    /// A sentence where they cannot be had.
    async fn of(&self, tenant: &str, workspace: &WorkspaceId) -> Result<OwnAgents, String>;

    /// The tools that those agents may call. Servers of tools are asked for theirs; one that does not answer has none.
    ///
    /// # Errors
    /// A sentence where the agents cannot be had.
    async fn tools(&self, tenant: &str, workspace: &WorkspaceId) -> Result<Vec<ToolInfo>, String>;

    /// Keeps the definitions of `version`, which [`of`](Self::of) gave, for the run that is about to begin with them.
    ///
    /// # Errors
    /// [`NotKept`].
    async fn keep(&self, tenant: &str, workspace: &WorkspaceId, version: &str) -> Result<(), NotKept>;

    /// True if `workspace`, which is one of `tenant`, is a `chat` workspace, whose files nobody writes; not where its settings
    /// have a mistake, which somebody has to mend. `None` where it has no settings, and nothing has run in it: its agents are
    /// not made for the answer.
    ///
    /// # Errors
    /// A sentence where it cannot be known.
    async fn only_talks(&self, tenant: &str, workspace: &WorkspaceId) -> Result<Option<bool>, String>;

    /// Has `prepare` see each graph before it runs, from now on.
    fn prepare(&self, prepare: Box<dyn Fn(&CompiledGraph) + Send + Sync>);
}

/// Reason for which definitions are not kept, and no run begins with them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The workspace does not take them.
    #[error("{0}")]
    Refused(String),
    /// They cannot be kept now.
    #[error("{0}")]
    Away(String),
}

/// The agents of a workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnAgents {
    /// Those that clients can have work done by, the one first that works where a request names none; each with the version
    /// of its graph.
    pub personas: Vec<PersonaSpec>,
    /// What else is declared, and what is refused with its reasons.
    pub catalog: Vec<CatalogLine>,
    /// Why agents that are declared cannot be addressed, by their names.
    pub refused: BTreeMap<String, String>,
    /// Why none can, where the files are refused as a whole: it is not known what they declare.
    pub refused_whole: Option<String>,
    /// The agent that its settings name for requests that name none.
    pub default_agent: Option<String>,
    /// True if nothing acts in it: it is a `chat` workspace, or its settings have a mistake.
    pub only_talks: bool,
}

impl OwnAgents {
    /// True if the files declare anything, also what is refused.
    pub(crate) fn declares(&self) -> bool {
        !self.catalog.is_empty() || self.refused_whole.is_some()
    }

    /// Why the agent called `name` cannot be addressed; `None` where there is none of that name that cannot.
    pub(crate) fn refusal_of(&self, name: &str) -> Option<&String> {
        self.refused.get(name).or(self.refused_whole.as_ref())
    }
}

impl CompiledAgents {
    /// Also, in each workspace, the agents that its files declare.
    #[must_use]
    pub fn with_own(self, own: Arc<dyn WorkspaceAgents>) -> Self {
        Self { graphs: self.graphs.with_source(own.clone()), personas: self.personas.with_own(own) }
    }

    /// Also the agents of `source`, which come before the others.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn AgentSource>) -> Self {
        Self { graphs: self.graphs.with_source(source.clone()), personas: self.personas.with_source(source) }
    }
}

impl From<GraphRegistry> for CompiledAgents {
    /// Agents that are described by nothing but the names of their graphs.
    fn from(graphs: GraphRegistry) -> Self {
        let personas: Vec<_> = graphs.iter().map(|graph| PersonaSpec::undescribed(graph.name())).collect();
        Self { graphs, personas: Personas::from(personas) }
    }
}
