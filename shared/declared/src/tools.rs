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

/// The sources of `workspace`; a `chat` workspace has none, whatever its files say.
pub(crate) fn parts(workspace: &Workspace, makes: &dyn ToolSources, left_out: &mut Vec<String>) -> Vec<ToolPart> {
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    let usable = |tool: &&ToolDefinition| tool.enabled && workspace.is_enabled(DefinitionKind::Tool, &tool.name);
    let mut parts = Vec::new();
    parts.extend(makes.native().filter(|_| acts).map(native));
    if acts {
        parts.extend(actions(workspace, makes, left_out));
    }
    for definition in workspace.tools.values().filter(|_| acts).filter(usable) {
        match makes.source(definition) {
            Ok(source) => parts.push(ToolPart {
                name: definition.name.clone(),
                origin: ToolOrigin::External,
                expose: definition.expose.clone(),
                source,
            }),
            Err(reason) => left_out.push(format!("tool server `{}` is left out: {reason}", definition.name)),
        }
    }
    parts
}

/// The actions that models may run.
fn actions(workspace: &Workspace, makes: &dyn ToolSources, left_out: &mut Vec<String>) -> Option<ToolPart> {
    let is_usable =
        |action: &&ActionDefinition| action.expose.to_llm && workspace.is_enabled(DefinitionKind::Action, &action.name);
    let usable: Vec<_> = workspace.actions.values().filter(is_usable).cloned().collect();
    if usable.is_empty() {
        return None;
    }
    let source = makes.actions(usable);
    if source.is_none() {
        left_out.push("the actions are left out: no command can be run here".to_owned());
    }
    let name = ACTIONS.to_owned();
    source.map(|source| ToolPart { name, origin: ToolOrigin::Action, expose: Exposure::default(), source })
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
