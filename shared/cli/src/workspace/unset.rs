//! What definitions take from the environment, and is not there.

use std::collections::BTreeSet;

use dormouse_agent::workspace::{DefinitionKind, Workspace, WorkspaceKind};
use dormouse_ports::tool::{ToolDefinition, ToolSourceDefinition};
use dormouse_ports::{Lookup, Template};
use dormouse_system::EnvironmentSecrets;

/// What the models of agents that can run and the servers of tools of `workspace` refer to, and this process has not, each in a
/// sentence. That is no mistake in the files, which may be meant for another machine.
pub(crate) async fn unset(workspace: &Workspace) -> BTreeSet<String> {
    let lookup = Lookup { env: &EnvironmentSecrets, secrets: &EnvironmentSecrets };
    let mut found = BTreeSet::new();
    for (what, template) in models(workspace).into_iter().chain(servers(workspace)) {
        if let Err(error) = template.resolve(&lookup).await {
            found.insert(format!("note: {what}: {error}"));
        }
    }
    found
}

fn models(workspace: &Workspace) -> Vec<(String, &Template)> {
    let mut found = Vec::new();
    for agent in workspace.enabled_agents() {
        let Ok(asked) = workspace.model_of(agent) else { continue };
        let Some(model) = workspace.model(&asked.reference) else { continue };
        let templates = model.key.iter().chain(&model.url);
        found.extend(templates.map(|template| (format!("model `{}`", asked.reference), template)));
    }
    found
}

fn servers(workspace: &Workspace) -> Vec<(String, &Template)> {
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    let is_usable =
        |tool: &&ToolDefinition| acts && tool.enabled && workspace.is_enabled(DefinitionKind::Tool, &tool.name);
    let mut found = Vec::new();
    for tool in workspace.tools.values().filter(is_usable) {
        let (url, named) = match &tool.source {
            ToolSourceDefinition::Stdio { environment, .. } => (None, environment),
            ToolSourceDefinition::Server { url, headers, .. } => (Some(url), headers),
            ToolSourceDefinition::Http(http) => (Some(&http.url), &http.headers),
            ToolSourceDefinition::Rust { .. } => continue,
        };
        let templates = url.into_iter().chain(named.iter().map(|(_, template)| template));
        found.extend(templates.map(|template| (format!("tool server `{}`", tool.name), template)));
    }
    found
}
