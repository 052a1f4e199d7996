//! From the definitions of a workspace to agents that run.
//!
//! [`agents`] makes the graph of every agent that is enabled, with the provider of its model and the sources of its
//! tools. What cannot be made is left out and named; it never keeps the others from running. [`PublishedAgents`] are
//! those of published bundles: a run goes on with the bundle that it began with. [`StoredAgents`] are those that the files of
//! workspaces declare, which are given nothing of the server's but its models.
//!
//! The crate imports the agent crate, the API's list of agents, the providers and the ports. It must not know AWS,
//! files, processes, the environment or an HTTP client.

#![warn(missing_docs)]

mod hooks;
mod keys;
mod models;
mod offer;
mod online;
mod own;
mod published;
mod reach;
mod team;
mod templates;
mod tools;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use dormouse_agent::graph::{
    AgentLimits, AgentParts, Colleagues, DeltaSink, EnvironmentPart, HookPart, ModelPart, ToolPart, graph,
};
use dormouse_agent::workspace::{AgentDefinition, AgentMode, Workspace};
use dormouse_agent::{SessionMemory, SkillTools};
use dormouse_api::{Agent, AgentMeans, Agents};
use dormouse_ports::{Clock, Fetch, IdSource, Secrets, Sign};
use dormouse_protocol::resource::AutonomyTier;
use futures::future::join_all;
use offer::LISTED_WITHIN;

pub use dormouse_ports::tool::ToolSources;
pub use online::{Presence, PresenceKind, online};
pub use own::{LentModels, OwnAgentsFrom, StoredAgents};
pub use published::{PublishedAgents, PublishedFrom, Refresh, models_lent_by};
use team::Staff;
pub use templates::ServedTemplates;
pub use tools::NoTools;

/// Ports that agents need from outside.
#[derive(Clone)]
pub struct DeclaredPorts {
    /// HTTP out, for models.
    pub fetch: Arc<dyn Fetch>,
    /// The time, for waits between attempts at a model.
    pub clock: Arc<dyn Clock>,
    /// Names of what happens once.
    pub ids: Arc<dyn IdSource>,
    /// Variables of the environment, for `${env.X}`.
    pub env: Arc<dyn Secrets>,
    /// Secrets, for `${secrets.X}`.
    pub secrets: Arc<dyn Secrets>,
    /// Makes sources of tools.
    pub tools: Arc<dyn ToolSources>,
    /// Receives pieces of answers while they arrive.
    pub deltas: Option<Arc<dyn DeltaSink>>,
    /// Access to Amazon Bedrock; `None` where there are no credentials for it.
    pub bedrock: Option<BedrockAccess>,
    /// Ports for the models of the platform, where those are lent to agents that are given less.
    pub lender: Option<Arc<DeclaredPorts>>,
}

/// Access to the models of Amazon Bedrock.
#[derive(Clone)]
pub struct BedrockAccess {
    /// The region that is asked.
    pub region: String,
    /// Signs requests for the service `bedrock` in that region.
    pub sign: Arc<dyn Sign>,
}

impl fmt::Debug for BedrockAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BedrockAccess").field("region", &self.region).finish_non_exhaustive()
    }
}

impl fmt::Debug for DeclaredPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeclaredPorts")
    }
}

/// The agents of a workspace.
#[derive(Debug)]
pub struct Declared {
    /// Those that run, the default one first.
    pub agents: Agents,
    /// Their names.
    pub names: Vec<String>,
    /// Parts that were left out, in sentences.
    pub left_out: Vec<String>,
    /// True if an agent that was left out may be made when that is tried again.
    pub(crate) may_pass: bool,
    /// Bytes, about, that they hold.
    pub(crate) held: usize,
    /// Of what each agent is made.
    pub(crate) parts: Vec<AgentParts>,
}

/// Makes the agents of `workspace`. Addresses of models are looked up now, keys when they are used.
pub async fn agents(workspace: &Workspace, ports: &DeclaredPorts) -> Declared {
    let default = workspace.default_agent().map(|agent| agent.name.clone());
    let mut found: Vec<&AgentDefinition> = workspace.enabled_agents().collect();
    found.sort_by_key(|agent| Some(&agent.name) != default.as_ref());
    let mut left_out = Vec::new();
    let sources = tools::parts(workspace, &*ports.tools, &mut left_out);
    let agents = Agents::new();
    let mut declared = Declared { agents, names: Vec::new(), left_out, may_pass: false, held: 0, parts: Vec::new() };
    let mut staff = Staff::of(workspace);
    let limits = AgentLimits { shown_in_spans: models::shown_in_spans(ports).await, ..AgentLimits::default() };
    for agent in found {
        match models::part(workspace, agent, ports).await {
            Ok(model) => {
                let hooks = hooks::parts(workspace, &model, ports).await;
                let parts = (model, sources.clone(), hooks);
                let added = staff.add(AgentParts { limits, ..parts_of(workspace, agent, parts, ports) });
                declared.left_out.extend(added.err());
            }
            Err(none) => {
                declared.may_pass |= none.may_pass;
                declared.left_out.push(format!("agent `{}` is left out: {}", agent.name, none.reason));
            }
        }
    }
    let (staff, held) = staff.with_colleagues(workspace, &mut declared.left_out);
    declared.held = held;
    let known = join_all(staff.iter().map(|parts| parts.known_tools(LISTED_WITHIN))).await;
    for (parts, tools) in staff.into_iter().zip(known) {
        if parts.agent.mode != AgentMode::Subagent {
            declared.names.push(parts.name.clone());
        }
        declared.parts.push(parts.clone());
        declared.agents = declared.agents.agent(made(workspace, parts, tools));
    }
    declared
}

fn parts_of(
    workspace: &Workspace,
    definition: &AgentDefinition,
    (model, mut tools, hooks): (ModelPart, Vec<ToolPart>, Vec<HookPart>),
    ports: &DeclaredPorts,
) -> AgentParts {
    tools.extend(tools::skills(workspace, definition));
    let memory = SessionMemory::of(workspace);
    let remembers = memory.is_some();
    let disabled = tools::disabled(workspace, definition);
    let mut agent = definition.clone();
    if let Some(memory) = memory {
        // Of two tools of one name the first counts.
        tools.insert(0, memory);
        SessionMemory::give_to(&mut agent);
    }
    AgentParts {
        name: definition.name.clone(),
        agent,
        bundle: workspace.digest.clone(),
        instructions: workspace.instructions_of(definition),
        environment: workspace
            .instructions_behind(definition)
            .map(|behind| EnvironmentPart { place: ports.tools.place(), behind }),
        approval: workspace.settings.approval.clone(),
        model,
        tools,
        disabled,
        remembers,
        compacts: workspace.settings.engine.compact,
        actions: tools::runnable(workspace),
        colleagues: Colleagues::default(),
        successors: Vec::new(),
        hooks,
        clock: ports.clock.clone(),
        ids: ports.ids.clone(),
        deltas: ports.deltas.clone(),
        images: None,
        callbacks: None,
        limits: AgentLimits::default(),
        schemas: Default::default(),
    }
}

/// What clients are told that the agent of `parts` may use, with `tools` that are known.
fn means_of(workspace: &Workspace, parts: &AgentParts, tools: Vec<String>) -> AgentMeans {
    let skills = SkillTools::of(workspace, &parts.agent);
    let skills = skills.iter().flat_map(SkillTools::names).map(str::to_owned).collect();
    // Who is in no list is not told of here either.
    let is_hidden = |name: &str| workspace.agents.get(name).is_some_and(|agent| agent.hidden);
    let others = parts.colleagues.switch.iter().chain(&parts.colleagues.ask).map(|other| other.name.clone());
    let agents: BTreeSet<String> = others.filter(|name| !is_hidden(name)).collect();
    AgentMeans { tools, skills, agents: agents.into_iter().collect(), model: Some(parts.model.reference.clone()) }
}

fn made(workspace: &Workspace, parts: AgentParts, tools: Vec<String>) -> Agent {
    let means = means_of(workspace, &parts, tools);
    let definition = parts.agent.clone();
    let description = match definition.description.is_empty() {
        true => format!("The agent `{}`.", definition.name),
        false => definition.description.clone(),
    };
    let asks = definition.policy.approval.asks_for_any() || workspace.settings.approval.asks_for_any();
    let tier = if asks { AutonomyTier::ActWithApproval } else { AutonomyTier::ActAuto };
    let agent = Agent::new(move |outside| graph(team::placed(parts.clone(), outside)));
    let agent = agent.description(description).autonomy(tier).means(means);
    let agent = if definition.hidden { agent.hidden() } else { agent };
    if definition.mode == AgentMode::Subagent { agent.internal() } else { agent }
}
