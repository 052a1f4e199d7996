//! The hooks of a workspace, with what handles them.

use std::sync::Arc;

use dormouse_agent::graph::{HookPart, ModelHook, ModelPart};
use dormouse_agent::workspace::{
    AgentDefinition, DefinitionKind, HookDefinition, OnHookError, Workspace, WorkspaceKind,
};
use dormouse_ports::hook::{HookHandler, HookHandlerDefinition};
use dormouse_ports::tool::ToolSources;

use crate::{DeclaredPorts, models};

/// `workspace` where hooks that are commands are refused, if `tools` run none.
pub(crate) fn without_commands(workspace: Workspace, tools: &dyn ToolSources) -> Workspace {
    workspace.refusing_hooks(|handler| can_be_handled(handler, tools))
}

/// False for a command where `tools` run none.
fn can_be_handled(handler: &HookHandlerDefinition, tools: &dyn ToolSources) -> bool {
    !matches!(handler, HookHandlerDefinition::Command { .. }) || tools.hook(handler).is_some()
}

/// The hooks of an agent that asks `model`; a `chat` workspace has none, even if its files declare some. One that cannot be
/// handled here and lets nothing through where it fails stays one that fails.
pub(crate) async fn parts(workspace: &Workspace, model: &ModelPart, ports: &DeclaredPorts) -> Vec<HookPart> {
    let mut parts = Vec::new();
    let is_enabled = |hook: &&HookDefinition| {
        let fails_closed = hook.on_error == OnHookError::Closed && !can_be_handled(&hook.handler, &*ports.tools);
        fails_closed || workspace.is_enabled(DefinitionKind::Hook, &hook.name)
    };
    let acts = workspace.settings.kind == WorkspaceKind::Project;
    for hook in workspace.hooks.values().filter(|_| acts).filter(is_enabled) {
        let handler = handler(workspace, hook, model, ports).await;
        parts.push(HookPart::new(hook.clone(), handler));
    }
    parts
}

async fn handler(
    workspace: &Workspace,
    hook: &HookDefinition,
    model: &ModelPart,
    ports: &DeclaredPorts,
) -> Option<Arc<dyn HookHandler>> {
    match &hook.handler {
        HookHandlerDefinition::Command { .. } | HookHandlerDefinition::Http { .. } => ports.tools.hook(&hook.handler),
        HookHandlerDefinition::Prompt { prompt } => Some(Arc::new(ModelHook {
            provider: model.provider.clone(),
            config: model.config.clone(),
            prices: model.prices,
            instructions: String::new(),
            question: prompt.clone(),
        })),
        HookHandlerDefinition::Agent { agent, task } => {
            // One that is refused judges nothing: what is wrong with it may be what it was to look for.
            let is_enabled = |asked: &&AgentDefinition| workspace.is_enabled(DefinitionKind::Agent, &asked.name);
            let asked = workspace.agents.get(agent).filter(is_enabled)?;
            // Without a model the hook fails each time it runs, and its record says so.
            let model = models::part(workspace, asked, ports).await.ok()?;
            Some(Arc::new(ModelHook {
                provider: model.provider,
                config: model.config,
                prices: model.prices,
                instructions: asked.prompt.clone(),
                question: task.clone(),
            }))
        }
    }
}
