use std::collections::BTreeMap;

use dormouse_ports::execution::ExecutionTier;
use serde::Serialize;

use crate::workspace::{
    AgentMode, DefinitionKind, DefinitionName, HookDefinition, Platform, ToolSourceDefinition, Workspace, WorkspaceKind,
};

/// What a workspace offers, and why something of it is disabled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Catalog {
    /// SHA-256 of the definitions.
    pub digest: String,
    /// Kind of the workspace.
    pub kind: WorkspaceKind,
    /// Where its commands and file tools work; `None` where there are none.
    pub tier: Option<ExecutionTier>,
    /// The agent that answers when none is named.
    pub default_agent: Option<String>,
    /// Agents, also those that only other agents address, without hidden ones.
    pub agents: Vec<CatalogEntry>,
    /// Models of the workspace, and behind them those of the platform, as `platform/NAME`.
    pub models: Vec<CatalogEntry>,
    /// Servers of tools.
    pub tools: Vec<CatalogEntry>,
    /// Actions.
    pub actions: Vec<CatalogEntry>,
    /// Skills.
    pub skills: Vec<CatalogEntry>,
    /// Hooks, in the order in which they run.
    pub hooks: Vec<CatalogEntry>,
    /// Native tools.
    pub native_tools: Vec<CatalogEntry>,
}

/// A definition in a [`Catalog`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CatalogEntry {
    /// Its name.
    pub name: String,
    /// Its purpose, or what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Of an agent, who may address it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<AgentMode>,
    /// True if it can be used.
    pub enabled: bool,
    /// Reasons why it cannot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl Catalog {
    /// True if it lists the definition `name`, with the reasons for which that cannot be used.
    pub fn lists(&self, name: &DefinitionName) -> bool {
        let entries = match name.kind {
            DefinitionKind::Agent => &self.agents,
            DefinitionKind::Model => &self.models,
            DefinitionKind::Tool => &self.tools,
            DefinitionKind::Action => &self.actions,
            DefinitionKind::Skill => &self.skills,
            DefinitionKind::Hook => &self.hooks,
            DefinitionKind::Instructions | DefinitionKind::Settings | DefinitionKind::Prompts => return false,
        };
        entries.iter().any(|entry| entry.name == name.name)
    }
}

/// Lists what `workspace` offers on `platform`. A `chat` workspace has no tools, even if its files declare some.
pub fn catalog(workspace: &Workspace, platform: &Platform) -> Catalog {
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    let mut catalog = Catalog {
        digest: workspace.digest.clone(),
        kind: workspace.settings.kind,
        tier: platform.tier.filter(|_| acts),
        default_agent: workspace.default_agent().map(|agent| agent.name.clone()),
        agents: agents(workspace),
        models: models(workspace),
        tools: if acts { tools(workspace, platform) } else { Vec::new() },
        actions: if acts { actions(workspace, platform) } else { Vec::new() },
        skills: if acts { skills(workspace) } else { Vec::new() },
        hooks: if acts { hooks(workspace) } else { Vec::new() },
        native_tools: if acts { native_tools(platform) } else { Vec::new() },
    };
    let mut flaws: BTreeMap<&DefinitionName, Vec<String>> = BTreeMap::new();
    for problem in &workspace.problems {
        if let Some(name) = &problem.disables {
            flaws.entry(name).or_default().push(problem.message.clone());
        }
    }
    for (kind, entries) in [
        (DefinitionKind::Agent, &mut catalog.agents),
        (DefinitionKind::Model, &mut catalog.models),
        (DefinitionKind::Tool, &mut catalog.tools),
        (DefinitionKind::Action, &mut catalog.actions),
        (DefinitionKind::Skill, &mut catalog.skills),
        (DefinitionKind::Hook, &mut catalog.hooks),
    ] {
        for entry in entries {
            let own = flaws.get(&DefinitionName::new(kind, &entry.name)).into_iter().flatten().cloned();
            entry.reasons = own.chain(std::mem::take(&mut entry.reasons)).collect();
            entry.enabled = entry.reasons.is_empty();
        }
    }
    catalog
}

/// The entry of `name`, which is enabled where no reason against that is added.
fn entry(name: &str, description: String) -> CatalogEntry {
    CatalogEntry { name: name.to_owned(), description, mode: None, enabled: true, reasons: Vec::new() }
}

/// Names of disabled definitions of `kind` that could not even be read.
fn unread<'w>(
    workspace: &'w Workspace,
    kind: DefinitionKind,
    is_read: impl Fn(&str) -> bool + 'w,
) -> impl Iterator<Item = CatalogEntry> + 'w {
    let names = workspace.disabled.iter().filter(move |name| name.kind == kind && !is_read(&name.name));
    names.map(|name| entry(&name.name, String::new()))
}

fn agents(workspace: &Workspace) -> Vec<CatalogEntry> {
    let kind = DefinitionKind::Agent;
    let shown = workspace.agents.values().filter(|agent| !agent.hidden);
    let shown =
        shown.map(|agent| CatalogEntry { mode: Some(agent.mode), ..entry(&agent.name, agent.description.clone()) });
    shown.chain(unread(workspace, kind, |name| workspace.agents.contains_key(name))).collect()
}

fn models(workspace: &Workspace) -> Vec<CatalogEntry> {
    let kind = DefinitionKind::Model;
    let models = workspace.models.values().chain(workspace.platform_models.values());
    let models = models.map(|model| entry(&model.name, format!("{} of {}", model.model, model.provider)));
    let is_read = |name: &str| {
        let of_platform =
            name.strip_prefix("platform/").is_some_and(|name| workspace.platform_models.contains_key(name));
        of_platform || workspace.models.contains_key(name)
    };
    models.chain(unread(workspace, kind, is_read)).collect()
}

fn tools(workspace: &Workspace, platform: &Platform) -> Vec<CatalogEntry> {
    let kind = DefinitionKind::Tool;
    let tools = workspace.tools.values().map(|tool| {
        let (what, refused) = match &tool.source {
            ToolSourceDefinition::Stdio { command, .. } => {
                let refused =
                    (!platform.processes).then(|| "no process can be started here: serve it over HTTP".to_owned());
                (format!("MCP server `{command}`"), refused)
            }
            ToolSourceDefinition::Server { url, .. } => (format!("MCP server at {}", url.written()), None),
            ToolSourceDefinition::Http(http) => (format!("{} {}", http.method, http.url.written()), None),
            ToolSourceDefinition::Rust { tools } => {
                let refused = platform.lacks_rust_tools(tools).filter(|_| workspace.is_enabled(kind, &tool.name));
                (format!("tools in Rust `{tools}`"), refused)
            }
        };
        let mut entry = entry(&tool.name, what);
        entry.reasons.extend(refused);
        entry.reasons.extend((!tool.enabled).then(|| "`enabled: false` in its settings".to_owned()));
        entry
    });
    tools.chain(unread(workspace, kind, |name| workspace.tools.contains_key(name))).collect()
}

fn actions(workspace: &Workspace, platform: &Platform) -> Vec<CatalogEntry> {
    let kind = DefinitionKind::Action;
    let refused = (!platform.runs_commands()).then(|| "no command can be run here".to_owned());
    let actions = workspace.actions.values().map(|action| {
        let mut entry = entry(&action.name, action.description.clone());
        entry.reasons.extend(refused.clone());
        entry
    });
    actions.chain(unread(workspace, kind, |name| workspace.actions.contains_key(name))).collect()
}

fn skills(workspace: &Workspace) -> Vec<CatalogEntry> {
    let kind = DefinitionKind::Skill;
    let skills = workspace.skills.values();
    let skills = skills.map(|skill| entry(&skill.name, skill.description.clone()));
    skills.chain(unread(workspace, kind, |name| workspace.skills.contains_key(name))).collect()
}

fn hooks(workspace: &Workspace) -> Vec<CatalogEntry> {
    let kind = DefinitionKind::Hook;
    let at = |hook: &HookDefinition| hook.events.iter().map(|event| event.as_str()).collect::<Vec<_>>().join(", ");
    let hooks = workspace.hooks.values().map(|hook| entry(&hook.name, format!("at {}", at(hook))));
    hooks.chain(unread(workspace, kind, |name| workspace.hooks.contains_key(name))).collect()
}

fn native_tools(platform: &Platform) -> Vec<CatalogEntry> {
    platform.native_tools.iter().map(|name| entry(name, String::new())).collect()
}
