//! A workspace: files of Markdown and YAML, and the definitions that they hold.
//!
//! | file | holds |
//! |---|---|
//! | `AGENTS.md` | instructions for every agent, word for word |
//! | `.openharness/settings.yaml` | default agent, aliases of models, approvals, kind of the workspace |
//! | `.openharness/prompts.yaml` | texts for all agents, for models and their providers, and the order of all texts |
//! | `.openharness/agents/NAME.md` | an agent: front matter, and its instructions below |
//! | `.openharness/models/*.yaml` | models by their names |
//! | `.openharness/actions/FOLDER/ACTION.yaml` | an action: one command with checked input |
//! | `.openharness/skills/FOLDER/SKILL.md` | a skill: instructions that a model reads when it needs them, with files beside them |
//! | `.openharness/hooks/*.yaml` | a hook: what runs before and after the steps of agents |
//! | `.openharness/memory/*.md` | what agents are told of earlier work, where the settings say so |
//! | `.openharness/tools/settings.yaml` | servers of tools, tools that are one HTTP request, and tools in Rust |
//!
//! Nothing is included from elsewhere, so that nothing can include itself. References (`${env.X}`, `${secrets.X}`) stay
//! references until they are used.

mod action;
mod agent;
mod approval;
mod asked;
mod fields;
mod guest;
mod hook;
mod litter;
mod load;
mod matter;
mod model;
mod problem;
mod prompts;
mod read;
mod references;
mod settings;
mod skill;
mod tools;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::tool::no_crate_tools;
use indexmap::IndexMap;

pub use agent::{AgentDefinition, AgentMode, AgentPolicy, ModelChoice, ToolSelection};
pub use approval::{ApprovalPolicy, ToolOrigin};
pub(crate) use approval::{is_exact, matches};
pub use asked::ResolvedModel;
pub use dormouse_ports::tool::{
    ActionDefinition, ActionEntry, ActionExposure, Exposure, HttpToolDefinition, ToolDefinition, ToolSourceDefinition,
};
pub use dormouse_ports::{Lookup, Template};
pub use guest::load_guest;
pub(crate) use hook::matcher;
pub use hook::{HookCapability, HookDefinition, HookEvent, OnHookError};
pub use litter::looks_secret;
pub use load::{FILE_LIMIT, FileContent, Files, MEMORY, PLATFORM, PLATFORM_AGENTS, PLATFORM_MODELS, TOOLS, load};
pub(crate) use load::{INSTRUCTIONS, SETTINGS, counted, digest, imports_of, skill_folders, tool_servers};
pub use model::{ModelDefinition, Prices};
pub(crate) use problem::Places;
pub use problem::{DefinitionKind, DefinitionName, Problem, Severity};
pub use prompts::{Prompts, Segment};
pub(crate) use read::MOST_FILES;
pub use read::{KnownFiles, MEMORY_FIRST, read};
pub use settings::{EngineSettings, Imports, Settings, WorkspaceKind};
pub use skill::SkillDefinition;

/// The definitions of a workspace, the disabled ones among them as far as they could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workspace {
    /// The settings.
    pub settings: Settings,
    /// The texts of which instructions are made.
    pub prompts: Prompts,
    /// `AGENTS.md`.
    pub instructions: Option<String>,
    /// The texts of `.openharness/memory` by the names of their files, `MEMORY.md` first.
    pub memory: IndexMap<String, String>,
    /// Agents by their names.
    pub agents: IndexMap<String, AgentDefinition>,
    /// Models by their names.
    pub models: IndexMap<String, ModelDefinition>,
    /// Models of the platform by their names; `platform/NAME` refers to them.
    pub platform_models: IndexMap<String, ModelDefinition>,
    /// Servers of tools by their names.
    pub tools: IndexMap<String, ToolDefinition>,
    /// Actions by their names.
    pub actions: IndexMap<String, ActionDefinition>,
    /// Skills by their names.
    pub skills: IndexMap<String, SkillDefinition>,
    /// Hooks by their names, in the order of their files.
    pub hooks: IndexMap<String, HookDefinition>,
    /// SHA-256 of the files, in hexadecimal digits.
    pub digest: String,
    /// Everything that is wrong with it, by file and line.
    pub problems: Vec<Problem>,
    /// Definitions that are disabled by their problems.
    pub disabled: BTreeSet<DefinitionName>,
    /// The models of agents that name none and have that of the agents that ask them.
    pub(crate) inherited: BTreeMap<String, ResolvedModel>,
    /// Where names stand: all of them until they are checked, then those that servers may have.
    pub(crate) places: Places,
}

/// Models, tools and abilities that the platform brings to every workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// Names of its models; `None` when they are not known, so that none is missed.
    pub models: Option<Vec<String>>,
    /// Names of its native tools, which no other tool may have.
    pub native_tools: Vec<String>,
    /// True if servers can be started as processes.
    pub processes: bool,
    /// Names under which the program that serves registers tools in Rust; `None` when they are not known, so that none is
    /// missed.
    pub rust_tools: Option<Vec<String>>,
    /// Where commands and file tools work; `None` where there are none.
    pub tier: Option<ExecutionTier>,
}

impl Platform {
    /// True if commands can be run: on the machine itself, or where file tools work.
    pub(crate) fn runs_commands(&self) -> bool {
        self.processes || self.tier.is_some_and(ExecutionTier::runs_commands)
    }

    /// Why there are no tools in Rust called `name`, where that is known.
    pub(crate) fn lacks_rust_tools(&self, name: &str) -> Option<String> {
        let known = self.rust_tools.as_ref().filter(|known| !known.iter().any(|one| one == name))?;
        Some(no_crate_tools(name, known.iter().map(String::as_str)))
    }
}

impl Workspace {
    /// True if its author said that it only talks. Settings that cannot be read give no tools either, and say nothing.
    pub fn is_said_to_talk(&self) -> bool {
        self.settings.kind == WorkspaceKind::Chat && self.says_its_kind()
    }

    /// True if its author chose its kind: by a word that can be read, whatever else is wrong, or by settings without a mistake.
    pub(crate) fn says_its_kind(&self) -> bool {
        self.settings.has_kind || self.has_sound_settings()
    }

    fn has_sound_settings(&self) -> bool {
        let is_wrong = |problem: &Problem| problem.file == SETTINGS && problem.severity == Severity::Error;
        !self.problems.iter().any(is_wrong)
    }

    /// True if no definition is disabled.
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Error)
    }

    /// True if the definition is not disabled.
    pub fn is_enabled(&self, kind: DefinitionKind, name: &str) -> bool {
        !self.disabled.contains(&DefinitionName { kind, name: name.to_owned() })
    }

    /// The problems that disable the definition.
    pub fn flaws<'w>(&'w self, kind: DefinitionKind, name: &str) -> impl Iterator<Item = &'w Problem> {
        let definition = DefinitionName::new(kind, name);
        self.problems.iter().filter(move |problem| problem.disables.as_ref() == Some(&definition))
    }

    /// The agents that can run.
    pub fn enabled_agents(&self) -> impl Iterator<Item = &AgentDefinition> {
        self.agents.values().filter(|agent| self.is_enabled(DefinitionKind::Agent, &agent.name))
    }

    /// The agent that answers when none is named: that of the settings, and where they name none `assistant`, or the first
    /// that people may address. In the place of one that the settings name and that cannot run no other answers.
    pub fn default_agent(&self) -> Option<&AgentDefinition> {
        let addressed = || self.enabled_agents().filter(|agent| agent.mode != AgentMode::Subagent);
        let called = |name: &str| addressed().find(|agent| agent.name == name);
        match &self.settings.default_agent {
            Some(name) => called(name),
            None => called("assistant").or_else(|| addressed().next()),
        }
    }
}
