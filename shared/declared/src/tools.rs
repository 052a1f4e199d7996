use std::sync::Arc;

use dormouse_agent::graph::ToolPart;
use dormouse_agent::workspace::{DefinitionKind, Exposure, ToolDefinition, ToolOrigin, Workspace, WorkspaceKind};
use dormouse_ports::tool::{ToolSource, ToolSources};

/// Name of the source of native tools.
const NATIVE: &str = "native";

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

fn native(source: Arc<dyn ToolSource>) -> ToolPart {
    ToolPart { name: NATIVE.to_owned(), origin: ToolOrigin::Native, expose: Exposure::default(), source }
}
