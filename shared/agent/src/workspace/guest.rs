//! Definitions that whoever may write the files of a workspace has written, and not whoever runs the server.
//!
//! They use nothing of the server's: no secret and no variable of its environment, no key, no command and no process on its
//! machine, no server of its own network, no channel of its notifications. Its models they use by name, as `platform/NAME`.

use dormouse_ports::hook::HookHandlerDefinition;
use dormouse_ports::tool::{ToolDefinition, ToolSourceDefinition};
use dormouse_ports::{Map, Template};
use serde_json::Value;

use super::hook::HookDefinition;
use super::load::{Files, Loader, PLATFORM, SETTINGS, TOOLS, digest};
use super::model::ModelDefinition;
use super::problem::{DefinitionKind, DefinitionName};
use super::references::check;
use super::{Platform, Workspace, WorkspaceKind};

/// The tool that runs commands.
const COMMANDS: &str = "Bash";
const PROMPTS: &str = ".openharness/prompts.yaml";
const INSTRUCTIONS: &str = "AGENTS.md";
const SYSTEM_PROMPT: &str = "system_prompt";

/// Reads the definitions of `files` as [`load`](super::load) does, for a server that lends its own `models` and nothing
/// else. A definition that asks for more is disabled by that, alone; where it is a hook, a person is asked for every call,
/// for it may have forbidden one.
///
/// A model that names a key is that of the server with the same name, where there is one.
pub fn load_guest(files: &Files, platform: &Platform, models: &[ModelDefinition]) -> Workspace {
    let mut workspace = Loader::read(files);
    workspace.digest = digest(files);
    // What stands in the place of the models of the platform is no word of whoever runs it.
    workspace.platform_models.clear();
    workspace.agents.retain(|_, agent| !agent.file.starts_with(PLATFORM));
    workspace.problems.retain(|problem| !problem.file.starts_with(PLATFORM));
    for model in models {
        let name = format!("platform/{}", model.name);
        workspace.platform_models.insert(model.name.clone(), ModelDefinition { name, ..model.clone() });
    }
    confine_models(&mut workspace);
    confine_agents(&mut workspace);
    confine_tools(&mut workspace);
    confine_actions(&mut workspace);
    confine_hooks(&mut workspace);
    confine_texts(&mut workspace);
    check(&mut workspace, platform);
    refuse_without_texts(&mut workspace);
    workspace.settled()
}

impl Workspace {
    /// The same where hooks of which `can_be_handled` is false are refused: each is disabled, and a person is asked for every
    /// call, for it may have forbidden one. A `chat` workspace calls nothing, and has no hooks.
    #[must_use]
    pub fn refusing_hooks(mut self, can_be_handled: impl Fn(&HookHandlerDefinition) -> bool) -> Self {
        if self.settings.kind == WorkspaceKind::Project {
            refuse_hooks(&mut self, |hook| match can_be_handled(&hook.handler) {
                true => None,
                false => Some("it is a command, and no command can be run here: serve it over HTTP"),
            });
        }
        self.settled()
    }
}

/// True if `text` refers to the environment or to secrets.
fn refers(text: &str) -> bool {
    ["${env.", "${secrets."].iter().any(|reference| text.contains(reference))
}

/// Instructions are told to models as they are: what refers to something of the server's in them was meant otherwise.
fn confine_texts(workspace: &mut Workspace) {
    const REASON: &str = "refers to the environment or to secrets of the server, which files of a workspace do not use: \
                          leave `${env.…}` and `${secrets.…}` out";
    for agent in workspace.agents.values().cloned().collect::<Vec<_>>() {
        let texts = [Some(&agent.prompt), Some(&agent.description), agent.system_reminder.as_ref()];
        if texts.into_iter().flatten().any(|text| refers(text)) {
            let name = DefinitionName::new(DefinitionKind::Agent, &agent.name);
            workspace.disable(&agent.file, None, name, format!("its text {REASON}"));
        }
    }
    let prompts = &workspace.prompts;
    let mut prompts = prompts.base.iter().chain(prompts.providers.values()).chain(prompts.models.values());
    let texts = [
        (PROMPTS, DefinitionKind::Prompts, PROMPTS, prompts.any(|text| refers(text))),
        (
            INSTRUCTIONS,
            DefinitionKind::Instructions,
            INSTRUCTIONS,
            workspace.instructions.as_deref().is_some_and(refers),
        ),
        (
            SETTINGS,
            DefinitionKind::Settings,
            SYSTEM_PROMPT,
            workspace.settings.system_prompt.as_deref().is_some_and(refers),
        ),
    ];
    for (file, kind, name, _) in texts.into_iter().filter(|(.., is_refused)| *is_refused) {
        workspace.disable(file, None, DefinitionName::new(kind, name), format!("`{name}` {REASON}"));
    }
}

/// An agent is not asked without a part of its instructions: who wrote the files is told instead.
fn refuse_without_texts(workspace: &mut Workspace) {
    let is_text = |name: &DefinitionName| match name.kind {
        DefinitionKind::Prompts | DefinitionKind::Instructions => true,
        DefinitionKind::Settings => name.name == SYSTEM_PROMPT,
        DefinitionKind::Agent
        | DefinitionKind::Model
        | DefinitionKind::Tool
        | DefinitionKind::Action
        | DefinitionKind::Skill
        | DefinitionKind::Hook => false,
    };
    let broken = workspace.problems.iter().find(|problem| problem.disables.as_ref().is_some_and(is_text)).cloned();
    let Some(broken) = broken else { return };
    let place = broken.line.map_or_else(|| broken.file.clone(), |line| format!("{}:{line}", broken.file));
    for agent in workspace.agents.values().cloned().collect::<Vec<_>>() {
        let name = DefinitionName::new(DefinitionKind::Agent, &agent.name);
        let message = format!("a part of its instructions is missing ({place}: {})", broken.message);
        workspace.disable(&agent.file, None, name, message);
    }
}

fn confine_models(workspace: &mut Workspace) {
    let mut lent = Vec::new();
    for model in workspace.models.values().cloned().collect::<Vec<_>>() {
        let Some(reason) = refused_model(&model) else { continue };
        let of_server = workspace.platform_models.contains_key(&model.name);
        if of_server && model.key.is_some() {
            let message =
                format!("model `{}`: {reason}; the model of the server with this name stands for it", model.name);
            workspace.warn(&model.file, None, message);
            lent.push(model.name);
        } else {
            let name = DefinitionName::new(DefinitionKind::Model, &model.name);
            let names: Vec<String> =
                workspace.platform_models.keys().map(|name| format!("`platform/{name}`")).collect();
            let remedy = match names.is_empty() {
                true => "the server lends none of its own".to_owned(),
                false => format!("the server lends {}", names.join(", ")),
            };
            workspace.disable(&model.file, None, name, format!("{reason}: {remedy}"));
        }
    }
    for name in &lent {
        workspace.models.shift_remove(name);
    }
    // What is not declared is meant of the server.
    let (own, of_server) = (&workspace.models, &workspace.platform_models);
    let meant = |reference: &mut String| {
        if let Some(name) = reference.strip_prefix("workspace/")
            && !own.contains_key(name)
            && of_server.contains_key(name)
        {
            *reference = format!("platform/{name}");
        }
    };
    let choices = workspace.agents.values_mut().filter_map(|agent| agent.model.as_mut());
    for choice in choices.chain(workspace.settings.models.values_mut()) {
        meant(&mut choice.reference);
    }
}

/// Why a model is not asked.
fn refused_model(model: &ModelDefinition) -> Option<&'static str> {
    if model.key.is_some() {
        Some("it names a key, and files of a workspace name none")
    } else if model.provider == "bedrock" {
        Some("it is asked with the credentials of the server, which files of a workspace do not use")
    } else if model.url.as_ref().is_some_and(Template::refers) {
        Some("its `url` refers to the environment or to secrets of the server, which files of a workspace do not use")
    } else {
        None
    }
}

fn confine_agents(workspace: &mut Workspace) {
    for agent in workspace.agents.values().cloned().collect::<Vec<_>>() {
        if agent.tools.native.iter().any(|name| name == COMMANDS) {
            let name = DefinitionName::new(DefinitionKind::Agent, &agent.name);
            let message = format!("it asks for `{COMMANDS}`, and files of a workspace run no commands: leave it out");
            workspace.disable(&agent.file, None, name, message);
        }
        if !agent.policy.approval.notify.is_empty() {
            let name = DefinitionName::new(DefinitionKind::Agent, &agent.name);
            let message =
                "`notify` names channels of the server, over which files of a workspace tell nobody: leave it out";
            workspace.disable(&agent.file, None, name, message.to_owned());
        }
    }
    if !workspace.settings.approval.notify.is_empty() {
        workspace.settings.approval.notify.clear();
        let message =
            "`notify` names channels of the server, over which files of a workspace tell nobody: it does not count";
        workspace.warn(SETTINGS, None, message.to_owned());
    }
    for agent in workspace.agents.values_mut() {
        agent.tools.native.retain(|name| name != COMMANDS);
    }
}

fn confine_tools(workspace: &mut Workspace) {
    for tool in workspace.tools.values().cloned().collect::<Vec<_>>() {
        if let Some(reason) = refused_tool(&tool) {
            let name = DefinitionName::new(DefinitionKind::Tool, &tool.name);
            workspace.disable(TOOLS, None, name, reason.to_owned());
        }
    }
}

/// Why a source of tools is not asked.
fn refused_tool(tool: &ToolDefinition) -> Option<&'static str> {
    const REFERS: &str =
        "it refers to the environment or to secrets of the server, which files of a workspace do not use";
    let refers = match &tool.source {
        ToolSourceDefinition::Stdio { .. } => {
            return Some("it is a process, and files of a workspace start none: serve it over HTTP, and set `url`");
        }
        ToolSourceDefinition::Server { url, headers, oauth } => {
            url.refers() || any_refers(headers) || oauth.as_ref().is_some_and(mentions)
        }
        ToolSourceDefinition::Http(http) => http.url.refers() || any_refers(&http.headers),
        ToolSourceDefinition::Rust { .. } => {
            return Some(
                "it names tools of the server's program, which files of a workspace do not use: serve them over HTTP, and \
                 set `url`",
            );
        }
    };
    refers.then_some(REFERS)
}

fn any_refers(values: &[(String, Template)]) -> bool {
    values.iter().any(|(_, value)| value.refers())
}

/// True if a text in `value` may be a reference.
fn mentions(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(values) => values.iter().any(mentions),
        Value::Object(fields) => fields_mention(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn fields_mention(fields: &Map) -> bool {
    fields.values().any(mentions)
}

fn confine_actions(workspace: &mut Workspace) {
    for action in workspace.actions.values().cloned().collect::<Vec<_>>() {
        let name = DefinitionName::new(DefinitionKind::Action, &action.name);
        let message = "it is a command, and files of a workspace run none";
        workspace.disable(&action.file, None, name, message.to_owned());
    }
}

fn confine_hooks(workspace: &mut Workspace) {
    refuse_hooks(workspace, |hook| {
        Some(match &hook.handler {
            HookHandlerDefinition::Command { .. } => "it is a command, and files of a workspace run none",
            HookHandlerDefinition::Http { url, headers } if url.refers() || any_refers(headers) => {
                "it refers to the environment or to secrets of the server, which files of a workspace do not use"
            }
            HookHandlerDefinition::Http { .. }
            | HookHandlerDefinition::Prompt { .. }
            | HookHandlerDefinition::Agent { .. } => return None,
        })
    });
}

/// Disables the hooks for which `refused` gives a reason, and has a person see every call where there is one.
fn refuse_hooks(workspace: &mut Workspace, refused: impl Fn(&HookDefinition) -> Option<&'static str>) {
    let mut is_refused = false;
    for hook in workspace.hooks.values().cloned().collect::<Vec<_>>() {
        let Some(reason) = refused(&hook) else { continue };
        is_refused = true;
        let name = DefinitionName::new(DefinitionKind::Hook, &hook.name);
        let message = format!("{reason}; until it is mended a person is asked for every call");
        workspace.disable(&hook.file, None, name, message);
    }
    if is_refused {
        workspace.ask_for_everything();
        workspace.warn(SETTINGS, None, "a hook is refused: every call of a tool waits for a person".to_owned());
    }
}
