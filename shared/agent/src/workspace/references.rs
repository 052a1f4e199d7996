//! What one definition says of others.

mod approvals;
mod known;

use std::collections::BTreeSet;

use dormouse_ports::hook::HookHandlerDefinition;
use dormouse_ports::tool::{NATIVE_TOOLS, ToolSourceDefinition};
use indexmap::IndexMap;

use self::approvals::{approvals, idle_approvals, meant, strangers, unmatched_approvals};
use self::known::Known;
use super::agent::{AgentDefinition, AgentMode, MAX_COST, ModelChoice, ToolSelection};
use super::approval::{MOST_CHANNELS_OF_BOTH, is_exact, listed};
use super::asked::SEVERAL;
use super::hook::{HookDefinition, HookEvent};
use super::load::{SETTINGS, TOOLS};
use super::model::PROVIDERS;
use super::problem::{DefinitionKind, DefinitionName, FileProblems, Problem, Severity};
use super::prompts::{Segment, key_of};
use super::settings::WorkspaceKind;
use super::{Platform, Workspace};
use crate::names::OWN_TOOLS;

const PROMPTS: &str = ".openharness/prompts.yaml";

/// Adds the problems between definitions of `workspace`, and those with the platform.
pub(super) fn check(workspace: &mut Workspace, platform: &Platform) {
    // Where the settings cannot be read, or have a mistake, the kind may be none that anybody chose.
    let only_talks = workspace.is_said_to_talk();
    let known = Known::of(workspace);
    let mut told = BTreeSet::new();
    workspace.inherited = workspace.models_of_askers();
    idle_approvals(workspace);
    let agents: Vec<AgentDefinition> = workspace.agents.values().cloned().collect();
    for agent in &agents {
        let asked = workspace.model_of(agent);
        if let Err(message) = asked.and_then(|asked| model(workspace, &asked.reference, platform, &known)) {
            let line = agent.model.as_ref().map(|choice| choice.line);
            told.insert(message.clone());
            // The mistake stands there, and is told with each agent that it disables.
            let message = match workspace.alias_of(agent) {
                Some((alias, choice)) => format!("alias `{alias}` in line {} of `{SETTINGS}`: {message}", choice.line),
                None => message,
            };
            workspace.disable(&agent.file, line, DefinitionName::new(DefinitionKind::Agent, &agent.name), message);
        }
        let stand_in = workspace.stand_in(agent).map(|(alias, _)| alias.to_owned());
        if let Some(alias) = stand_in {
            let mut problems = FileProblems::new(&agent.file);
            problems.error(None, format!("{SEVERAL}; until then it asks the first alias, `{alias}`"));
            workspace.problems.extend(problems.into_found());
        }
        budget(workspace, agent);
        channels(workspace, agent);
        tools(workspace, agent, platform, &known);
        others(workspace, agent, &known);
    }
    aliases(workspace, platform, &known, told);
    approvals(workspace, &known);
    unmatched_approvals(workspace, &known);
    prompts(workspace, platform, &known);
    hooks(workspace, &known);
    rust_tools(workspace, platform);
    imports(workspace);
    default_agent(workspace, &known);
    if only_talks {
        unused(workspace);
    }
    if workspace.agents.is_empty() && workspace.problems.iter().all(|problem| problem.disables.is_none()) {
        let message = "the workspace has no agent: write one in `.openharness/agents/NAME.md`";
        workspace.warn(".openharness/agents", None, message.to_owned());
    }
    // Servers may be asked later what they offer.
    workspace.places.keep(&listed("external", ""));
}

/// Aliases that stand for no model: those that an agent asks for are `told` there.
fn aliases(workspace: &mut Workspace, platform: &Platform, known: &Known, mut told: BTreeSet<String>) {
    let flaw = |(alias, choice): (&String, &ModelChoice)| {
        let asked = ModelChoice { reference: alias.clone(), ..choice.clone() };
        let stands = workspace.resolve(&asked).and_then(|one| model(workspace, &one.reference, platform, known));
        Some((alias.clone(), choice.line, stands.err()?))
    };
    let flaws: Vec<_> = workspace.settings.models.iter().filter_map(flaw).collect();
    for (alias, line, message) in flaws {
        if told.insert(message.clone()) {
            workspace.warn(SETTINGS, Some(line), format!("alias `{alias}`: {message}"));
        }
    }
}

/// Whether a run can ask the model `reference`, and else why not.
fn model(workspace: &Workspace, reference: &str, platform: &Platform, known: &Known) -> Result<(), String> {
    let flaw = |name: &str| known.flaw(workspace, DefinitionKind::Model, name);
    let guess = |name: &str, names: &mut dyn Iterator<Item = &str>| {
        known.guesses.nearest(name, names).map(|name| format!(": did you mean `{name}`?")).unwrap_or_default()
    };
    if let Some(name) = reference.strip_prefix("workspace/") {
        if let Some(flaw) = flaw(name) {
            return Err(format!("its model `{reference}` is disabled: mend that first ({})", flaw.message));
        }
        if workspace.models.contains_key(name) {
            return Ok(());
        }
        if let Some(flaw) = known.unread_models(workspace) {
            return Err(format!("its model `{reference}` is not known: mend `{}` first ({})", flaw.file, flaw.message));
        }
        let guess = guess(name, &mut workspace.models.keys().map(String::as_str));
        return Err(format!("there is no model `{reference}`{guess}"));
    }
    let name = reference.strip_prefix("platform/").unwrap_or(reference);
    if flaw(reference).is_some() {
        return Err(format!("its model `{reference}` is disabled: whoever runs the platform has to mend it"));
    }
    let own = &workspace.platform_models;
    match &platform.models {
        Some(models) if !models.iter().any(|model| model == name) && !own.contains_key(name) => {
            let guess = guess(name, &mut models.iter().chain(own.keys()).map(String::as_str));
            Err(format!("the platform has no model `{name}`{guess}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A limit on money counts nothing where its model has no prices.
fn budget(workspace: &mut Workspace, agent: &AgentDefinition) {
    let model = workspace.model_of(agent).ok().and_then(|model| workspace.model(&model.reference));
    if agent.policy.max_cost.is_some() && model.is_some_and(|model| model.prices.is_none()) {
        let message = "`max_cost` limits nothing: its model has no `metadata: {prices: {prompt: …, completion: …}}`";
        let name = DefinitionName::new(DefinitionKind::Agent, &agent.name);
        let line = workspace.places.line(&agent.file, MAX_COST);
        workspace.disable(&agent.file, line, name, message.to_owned());
    }
}

/// More channels of an agent and of the settings than a question is told over.
fn channels(workspace: &mut Workspace, agent: &AgentDefinition) {
    let count = agent.policy.approval.or(&workspace.settings.approval).notify.len();
    if count > MOST_CHANNELS_OF_BOTH {
        let message = format!(
            "`notify` names {count} channels, those of the settings among them, and a question is told over \
             {MOST_CHANNELS_OF_BOTH} at most: leave some out"
        );
        let name = DefinitionName::new(DefinitionKind::Agent, &agent.name);
        workspace.disable(&agent.file, agent.policy.approval.line, name, message);
    }
}

/// Names of tools that do not exist: the agent runs without them.
fn tools(workspace: &mut Workspace, agent: &AgentDefinition, platform: &Platform, known: &Known) {
    let mut wrong = Vec::new();
    for name in &agent.tools.native {
        if !platform.native_tools.contains(name) {
            let guess = known.guesses.nearest(name, platform.native_tools.iter().map(String::as_str));
            wrong.push((name, missing("native tool", name, guess)));
        }
    }
    // Where their file cannot be read, that is one mistake.
    let most = if known.unread_tools(workspace).is_some() { 1 } else { usize::MAX };
    let ToolSelection { external, actions, skills, .. } = &agent.tools;
    let servers = absent(workspace, known, (DefinitionKind::Tool, "tool server"), (external, &workspace.tools));
    wrong.extend(servers.take(most));
    wrong.extend(absent(workspace, known, (DefinitionKind::Action, "action"), (actions, &workspace.actions)));
    wrong.extend(absent(workspace, known, (DefinitionKind::Skill, "skill"), (skills, &workspace.skills)));
    let selected = agent.tools.actions.iter().chain(&agent.tools.skills).flatten().chain(&agent.tools.native);
    let forbidden: BTreeSet<&String> = agent.tools.forbidden().collect();
    let both = selected.filter(|name| forbidden.contains(name));
    wrong.extend(both.map(|name| (name, format!("`{name}` is selected and disallowed: leave one of them"))));
    wrong.extend(not_forbidden(workspace, agent, known));
    let wrong = wrong.into_iter().map(|(name, message)| (workspace.places.line(&agent.file, name), message));
    let wrong: Vec<_> = wrong.chain(strangers(workspace, (&agent.file, &agent.policy.approval), known)).collect();
    let definition = DefinitionName::new(DefinitionKind::Agent, &agent.name);
    for (line, message) in wrong {
        workspace.disable(&agent.file, line, definition.clone(), message);
    }
}

/// Names that `agent` may not call, that nothing has, and that are like one that something has; with what is wrong with them.
fn not_forbidden<'a>(workspace: &Workspace, agent: &'a AgentDefinition, known: &Known) -> Vec<(&'a String, String)> {
    let strangers = agent.tools.forbidden().filter(|name| is_exact(name) && !known.of_tools.has(name));
    let slips =
        strangers.filter_map(|name| Some((name, meant(workspace, name, known.of_tools.iter(), &known.guesses)?)));
    let told = |name: &String, guess| format!("`disallowed` forbids nothing: {}", missing("tool", name, Some(guess)));
    slips.map(|(name, guess)| (name, told(name, guess))).collect()
}

/// The names of `named` that nothing `there` has, each with the complaint about it. Where its definition is wrong, that is to be
/// mended first.
fn absent<'a, D>(
    workspace: &Workspace,
    known: &Known,
    (kind, what): (DefinitionKind, &str),
    (named, there): (&'a Option<Vec<String>>, &IndexMap<String, D>),
) -> impl Iterator<Item = (&'a String, String)> {
    let absent = named.iter().flatten().filter(move |name| !there.contains_key(*name));
    absent.map(move |name| {
        let of_all = || known.unread_tools(workspace).filter(|_| kind == DefinitionKind::Tool);
        let message = match known.flaw(workspace, kind, name).or_else(of_all) {
            Some(flaw) => format!("its {what} `{name}` cannot be used: mend `{}` first ({})", flaw.file, flaw.message),
            None => missing(what, name, known.guesses.nearest(name, there.keys().map(String::as_str))),
        };
        (name, message)
    })
}

/// True for an error of the file of tools itself.
pub(super) fn is_of_all_tools(problem: &Problem) -> bool {
    problem.file == TOOLS && problem.severity == Severity::Error && problem.disables.is_none()
}

fn missing(what: &str, name: &str, guess: Option<&str>) -> String {
    match guess {
        Some(guess) => format!("there is no {what} `{name}`: did you mean `{guess}`?"),
        None => format!("there is no {what} `{name}`"),
    }
}

fn no_agent(workspace: &Workspace, name: &str, known: &Known) -> String {
    missing("agent", name, known.guesses.nearest(name, workspace.agents.keys().map(String::as_str)))
}

/// Other agents that it names.
fn others(workspace: &mut Workspace, agent: &AgentDefinition, known: &Known) {
    let mut wrong = Vec::new();
    for name in agent.switch.iter().chain(&agent.subagents) {
        if !workspace.agents.contains_key(name) && !is_broken(workspace, name, known) {
            wrong.push((name, no_agent(workspace, name, known)));
        }
    }
    let mode = |name: &String| workspace.agents.get(name).map(|other| other.mode);
    let cannot_lead = agent.switch.iter().filter(|name| mode(name) == Some(AgentMode::Subagent));
    wrong.extend(cannot_lead.map(|name| {
        let message = "to which no conversation is handed over: its `mode` has to be `all`";
        (name, format!("`{name}` is a `subagent`, {message}"))
    }));
    let cannot_be_asked = agent.subagents.iter().filter(|name| mode(name) == Some(AgentMode::Primary));
    wrong.extend(cannot_be_asked.map(|name| {
        (name, format!("`{name}` is `primary` and is not asked by agents: its `mode` has to be `all` or `subagent`"))
    }));
    let itself = agent.switch.iter().chain(&agent.subagents).find(|name| **name == agent.name);
    wrong.extend(itself.map(|name| (name, format!("`{name}` is the agent itself, which no agent calls"))));
    for (name, message) in wrong {
        let line = workspace.places.line(&agent.file, name);
        workspace.warn(&agent.file, line, message);
    }
    if workspace.is_said_to_talk() && !(agent.switch.is_empty() && agent.subagents.is_empty()) {
        let message = "agents of a `chat` workspace only talk: they call no others";
        workspace.warn(&agent.file, None, message.to_owned());
    }
}

/// True if there is a file of the agent `name` that cannot be read: what is wrong with it is told there.
fn is_broken(workspace: &Workspace, name: &str, known: &Known) -> bool {
    !workspace.agents.contains_key(name) && known.flaw(workspace, DefinitionKind::Agent, name).is_some()
}

/// Texts for models and providers that no agent has.
fn prompts(workspace: &mut Workspace, platform: &Platform, known: &Known) {
    let own = workspace.models.keys().map(|name| format!("workspace/{name}"));
    let lent = workspace.platform_models.keys().chain(platform.models.iter().flatten());
    let references = own.chain(lent.map(|name| format!("platform/{name}")));
    let all: Vec<String> = workspace.settings.models.keys().cloned().chain(references).collect();
    let there: BTreeSet<&String> = all.iter().collect();
    let strange: Vec<String> = workspace.prompts.models.keys().filter(|name| !there.contains(name)).cloned().collect();
    for name in strange {
        let guess = known.guesses.nearest(&name, all.iter().map(String::as_str));
        let message = format!("`llm_optimized.models`: {}", missing("model or alias", &name, guess));
        let line = workspace.places.line(PROMPTS, &key_of("models", &name));
        workspace.warn(PROMPTS, line, format!("{message}; a model of the workspace is `workspace/NAME`"));
    }
    let strange = |name: &&String| !PROVIDERS.contains(&name.as_str());
    let strange: Vec<String> = workspace.prompts.providers.keys().filter(strange).cloned().collect();
    for name in strange {
        let message = missing("provider", &name, known.guesses.nearest(&name, PROVIDERS));
        let there_are = PROVIDERS.join(", ");
        let line = workspace.places.line(PROMPTS, &key_of("providers", &name));
        workspace.warn(PROMPTS, line, format!("`llm_optimized.providers`: {message}; there are {there_are}"));
    }
}

/// Agents that hooks ask.
fn hooks(workspace: &mut Workspace, known: &Known) {
    let hooks: Vec<_> = workspace.hooks.values().cloned().collect();
    for hook in hooks {
        if let HookHandlerDefinition::Agent { agent, .. } = &hook.handler
            && let Some(message) = cannot_be_asked(workspace, agent, known)
        {
            let line = workspace.places.line(&hook.file, agent);
            workspace.warn(&hook.file, line, format!("{message}: the hook fails each time"));
        }
        if let Some(message) = matches_nothing(workspace, &hook, known) {
            // It stays: a tool of a server may have that name, and it is better run than not.
            let line = hook.matcher.as_ref().and_then(|matcher| workspace.places.line(&hook.file, matcher));
            let mut problems = FileProblems::new(&hook.file);
            problems.error(line, message);
            workspace.problems.extend(problems.into_found());
            workspace.ask_for_everything();
        }
    }
}

/// Why a hook cannot ask `agent`.
fn cannot_be_asked(workspace: &Workspace, agent: &str, known: &Known) -> Option<String> {
    if !workspace.agents.contains_key(agent) && !is_broken(workspace, agent, known) {
        return Some(no_agent(workspace, agent, known));
    }
    let is_refused = known.flaw(workspace, DefinitionKind::Agent, agent).is_some();
    is_refused.then(|| format!("its agent `{agent}` is disabled: mend that first"))
}

/// The complaint about a hook of tools whose matcher is a name that no tool has, and like one that a tool has.
fn matches_nothing(workspace: &Workspace, hook: &HookDefinition, known: &Known) -> Option<String> {
    let is_of_tools = |event: &HookEvent| matches!(event, HookEvent::BeforeToolDispatch | HookEvent::AfterToolDispatch);
    let name = hook.matcher.as_deref()?.trim_start_matches('^').trim_end_matches('$');
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if !is_name || !hook.events.iter().all(is_of_tools) {
        return None;
    }
    let own = workspace.actions.keys().chain(workspace.skills.keys()).chain(workspace.tools.keys());
    let names: Vec<&str> = own.map(String::as_str).chain(NATIVE_TOOLS).chain(OWN_TOOLS).collect();
    if names.iter().any(|one| one.contains(name)) {
        return None;
    }
    let guess = meant(workspace, name, names.iter().copied(), &known.guesses)?;
    Some(format!("`matcher` meets no tool: did you mean `{guess}`? Until then every call of a tool waits for a person"))
}

/// Tools in Rust that the program does not register. One that registers none at all may not be the one that is to serve.
fn rust_tools(workspace: &mut Workspace, platform: &Platform) {
    if workspace.settings.kind == WorkspaceKind::Chat {
        return;
    }
    let registers_some = platform.rust_tools.as_ref().is_some_and(|known| !known.is_empty());
    let lacking = workspace.tools.values().filter(|tool| tool.enabled).filter_map(|tool| match &tool.source {
        ToolSourceDefinition::Rust { tools } => Some((tool.name.clone(), tools, platform.lacks_rust_tools(tools)?)),
        ToolSourceDefinition::Stdio { .. } | ToolSourceDefinition::Server { .. } | ToolSourceDefinition::Http(_) => {
            None
        }
    });
    let lacking: Vec<_> =
        lacking.map(|(name, tools, reason)| (workspace.places.line(TOOLS, tools), name, reason)).collect();
    for (line, name, reason) in lacking {
        match registers_some {
            true => workspace.disable(TOOLS, line, DefinitionName::new(DefinitionKind::Tool, name), reason),
            false => workspace.warn(TOOLS, line, format!("tool server `{name}` is left out: {reason}")),
        }
    }
}

/// What was to be copied into the workspace and is not there.
fn imports(workspace: &mut Workspace) {
    let imports = workspace.settings.imports.clone();
    let has_skill = |name: &String| {
        let file = format!("/{name}/SKILL.md");
        workspace.skills.values().any(|skill| skill.name == *name || skill.file.ends_with(&file))
    };
    let skills = imports.skills.iter().filter(|name| !has_skill(name)).map(|name| ("skill", name));
    let tools = imports.tools.iter().filter(|name| !workspace.tools.contains_key(*name));
    let missing: Vec<_> = skills
        .chain(tools.map(|name| ("server of tools", name)))
        .map(|(what, name)| {
            let message = format!(
                "there is no {what} `{name}` here, and none is imported when a workspace runs: imports are copied when \
                 one is made of a template"
            );
            (workspace.places.line(SETTINGS, name), message)
        })
        .collect();
    for (line, message) in missing {
        workspace.warn(SETTINGS, line, message);
    }
}

/// What a `chat` workspace has and never uses.
fn unused(workspace: &mut Workspace) {
    let parts = [
        (TOOLS, workspace.tools.is_empty()),
        (".openharness/actions", workspace.actions.is_empty()),
        (".openharness/skills", workspace.skills.is_empty()),
        (".openharness/hooks", workspace.hooks.is_empty()),
    ];
    for (file, _) in parts.into_iter().filter(|(_, is_empty)| !is_empty) {
        workspace.warn(file, None, "a `chat` workspace only talks: what stands here is not used".to_owned());
    }
    let names_tools = |agent: &AgentDefinition| {
        let name = first_selected(&agent.tools)?;
        Some((agent.file.clone(), workspace.places.line(&agent.file, name)))
    };
    for (file, line) in workspace.agents.values().filter_map(names_tools).collect::<Vec<_>>() {
        let message = "a `chat` workspace only talks: its agents have no tools, whatever they name here";
        workspace.warn(&file, line, message.to_owned());
    }
    if workspace.settings.engine.session_memory {
        let message =
            "`session_memory` needs a tool, and a `chat` workspace has none: its sessions keep their summaries";
        workspace.warn(SETTINGS, None, message.to_owned());
    }
    if workspace.settings.engine.workspace_memory {
        let message = "`workspace_memory` is not told in a `chat` workspace: its agents know `AGENTS.md` alone";
        workspace.warn(SETTINGS, None, message.to_owned());
    }
    if workspace.prompts.order.contains(&Segment::Environment) {
        let message = "`include_environment`, or `environment` in the order, has no effect in a `chat` workspace: its agents \
                       work in no folder, and are not told of one";
        workspace.warn(PROMPTS, None, message.to_owned());
    }
}

/// The first tool that `tools` name.
fn first_selected(tools: &ToolSelection) -> Option<&String> {
    let named = [&tools.actions, &tools.skills, &tools.external];
    tools.native.iter().chain(named.into_iter().flatten().flatten()).next()
}

fn default_agent(workspace: &mut Workspace, known: &Known) {
    let Some(name) = workspace.settings.default_agent.clone() else { return };
    let message = match workspace.agents.get(&name) {
        None if is_broken(workspace, &name, known) => return workspace.ask_for_everything(),
        None => no_agent(workspace, &name, known),
        Some(agent) if agent.mode == AgentMode::Subagent => {
            format!("`{name}` is a `subagent`, which only agents ask: its `mode` has to be `primary` or `all`")
        }
        Some(_) => return,
    };
    let line = workspace.settings.default_agent_line;
    workspace.disable(SETTINGS, line, DefinitionName::new(DefinitionKind::Settings, "default_agent"), message);
    workspace.ask_for_everything();
}
