use std::sync::Arc;

use dormouse_agent::SkillTools;
use dormouse_agent::graph::ToolPart;
use dormouse_agent::workspace::{
    ActionDefinition, AgentDefinition, DefinitionKind, Exposure, ToolDefinition, ToolOrigin, Workspace, WorkspaceKind,
};
use dormouse_ports::tool::{ToolSource, ToolSources};

/// Name of the source of native tools.
const NATIVE: &str = "native";
/// Name of the source of actions.
const ACTIONS: &str = "actions";
/// Name of the source of skills.
const SKILLS: &str = "skills";

/// Makes none.
#[derive(Clone, Copy, Debug)]
pub struct NoTools;

impl ToolSources for NoTools {
    fn source(&self, _: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        Err("tools of servers cannot be called by this command".to_owned())
    }
}

/// The sources of `workspace`; a `chat` workspace has none, even if its files declare some.
pub(crate) fn parts(workspace: &Workspace, makes: &dyn ToolSources, left_out: &mut Vec<String>) -> Vec<ToolPart> {
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    let mut parts = Vec::new();
    parts.extend(makes.native(&workspace.settings.skill_dirs).filter(|_| acts).map(native));
    if acts {
        parts.extend(actions(workspace, makes, left_out));
    }
    for definition in usable_servers(workspace) {
        match makes.source(definition) {
            Ok(source) => parts.push(of_server(definition, source)),
            Err(reason) => left_out.push(format!("tool server `{}` is left out: {reason}", definition.name)),
        }
    }
    parts
}

/// The `source` of `definition`.
pub(crate) fn of_server(definition: &ToolDefinition, source: Arc<dyn ToolSource>) -> ToolPart {
    let (name, expose) = (definition.name.clone(), definition.expose.clone());
    ToolPart { name, origin: ToolOrigin::External, expose, source }
}

/// The definitions of servers of tools, and of HTTP tools, that agents of `workspace` may be offered.
pub(crate) fn usable_servers(workspace: &Workspace) -> impl Iterator<Item = &ToolDefinition> {
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    let usable =
        move |tool: &&ToolDefinition| acts && tool.enabled && workspace.is_enabled(DefinitionKind::Tool, &tool.name);
    workspace.tools.values().filter(usable)
}

/// The servers of tools that `agent` of `workspace` does without since a mistake disables them, each with what is wrong.
pub(crate) fn disabled(workspace: &Workspace, agent: &AgentDefinition) -> Vec<(String, String)> {
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    let is_off = |name: &String| workspace.tools.get(name).is_some_and(|tool| !tool.enabled);
    let is_chosen = |name: &String| agent.tools.external.as_ref().is_none_or(|names| names.contains(name));
    let servers = workspace.disabled.iter().filter(|name| acts && name.kind == DefinitionKind::Tool);
    let missed = servers.map(|server| &server.name).filter(|name| is_chosen(name) && !is_off(name));
    let told = |name: &String| {
        let flaw = workspace.flaws(DefinitionKind::Tool, name).next();
        let flaw = flaw.map(|flaw| format!(": {}", flaw.message)).unwrap_or_default();
        (name.clone(), format!("it is disabled{flaw}"))
    };
    missed.map(told).collect()
}

/// The actions of `workspace` that can run.
fn usable(workspace: &Workspace) -> Vec<ActionDefinition> {
    let is_usable = |action: &&ActionDefinition| workspace.is_enabled(DefinitionKind::Action, &action.name);
    workspace.actions.values().filter(is_usable).cloned().collect()
}

/// The actions of `workspace` that people and clients may run; none in a `chat` workspace.
pub(crate) fn runnable(workspace: &Workspace) -> Vec<ActionDefinition> {
    if workspace.settings.kind == WorkspaceKind::Chat {
        return Vec::new();
    }
    let is_exposed = |action: &ActionDefinition| action.expose.callable_by_api || action.expose.callable_by_user;
    usable(workspace).into_iter().filter(is_exposed).collect()
}

/// The source of all actions, of which models are offered those that they may run.
fn actions(workspace: &Workspace, makes: &dyn ToolSources, left_out: &mut Vec<String>) -> Option<ToolPart> {
    let usable = usable(workspace);
    if usable.is_empty() {
        return None;
    }
    let hidden = usable.iter().filter(|action| !action.expose.to_llm).map(|action| action.name.clone());
    let expose = Exposure { exclude: hidden.collect(), ..Exposure::default() };
    let source = makes.actions(usable);
    if source.is_none() {
        left_out.push("the actions are left out: no command can be run here".to_owned());
    }
    let name = ACTIONS.to_owned();
    source.map(|source| ToolPart { name, origin: ToolOrigin::Action, expose, source })
}

/// The skills of `agent`.
pub(crate) fn skills(workspace: &Workspace, agent: &AgentDefinition) -> Option<ToolPart> {
    let source = Arc::new(SkillTools::of(workspace, agent)?);
    let name = SKILLS.to_owned();
    Some(ToolPart { name, origin: ToolOrigin::Skill, expose: Exposure::default(), source })
}

fn native(source: Arc<dyn ToolSource>) -> ToolPart {
    ToolPart { name: NATIVE.to_owned(), origin: ToolOrigin::Native, expose: Exposure::default(), source }
}
