use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::agent::ModelChoice;
use super::approval::ApprovalPolicy;
use super::fields::Fields;
use super::problem::FileProblems;
use super::yaml::{NodeValue, YamlNode};

/// What `.openharness/settings.yaml` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    /// Whether the workspace may act or only talk.
    pub kind: WorkspaceKind,
    /// The agent that answers when none is named.
    pub default_agent: Option<String>,
    /// Aliases of models.
    pub models: IndexMap<String, ModelChoice>,
    /// Folders with skills beside `.openharness/skills`, by their paths from the root; the first that has a skill counts.
    pub skill_dirs: Vec<String>,
    /// Text that stands before all others.
    pub system_prompt: Option<String>,
    /// Calls of all agents that wait for a person.
    pub approval: ApprovalPolicy,
    /// What is done with conversations and memory.
    pub engine: EngineSettings,
    /// Whether the history of the workspace is kept beside it, where that is said.
    pub history_mirror_enabled: Option<bool>,
    /// True if agents that reach the folder work for everybody who may have work done where it is served.
    pub shared: bool,
    /// What was copied into the workspace when it was made of a template.
    pub imports: Imports,
    #[serde(skip)]
    pub(crate) default_agent_line: Option<usize>,
    /// True if its kind is written there, and can be read.
    #[serde(skip)]
    pub(crate) has_kind: bool,
}

/// Parts of the platform that a workspace has of its own once it is made. When it runs they mean nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imports {
    /// Skills, by the names of their folders.
    pub skills: Vec<String>,
    /// Servers of tools.
    pub tools: Vec<String>,
}

impl Imports {
    fn read(node: &YamlNode, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "`imports` of the settings", problems);
        let skills = fields.texts("skills", problems).unwrap_or_default();
        let tools = fields.texts("tools", problems).unwrap_or_default();
        fields.finish(problems);
        Self { skills, tools }
    }
}

/// What `engine` of the settings switches on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EngineSettings {
    /// Conversations that fill the window of their model are made shorter.
    pub compact: bool,
    /// Agents write notes that they are told again in later runs of the session.
    pub session_memory: bool,
    /// Agents are told what stands in `.openharness/memory`.
    pub workspace_memory: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { compact: true, session_memory: false, workspace_memory: false }
    }
}

impl EngineSettings {
    fn read(node: &YamlNode, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "`engine` of the settings", problems);
        let mut enabled = |name: &'static str, otherwise: bool, problems: &mut FileProblems<'_>| {
            let Some(node) = fields.get(name) else { return otherwise };
            let mut inner = Fields::of(node, format!("`engine.{name}`"), problems);
            let enabled = inner.boolean("enabled", problems).unwrap_or(otherwise);
            inner.finish(problems);
            enabled
        };
        let default = Self::default();
        let compact = enabled("compact", default.compact, problems);
        let workspace_memory = enabled("workspace_memory", default.workspace_memory, problems);
        let session_memory = enabled("session_memory", default.session_memory, problems);
        fields.finish(problems);
        Self { compact, session_memory, workspace_memory }
    }
}

/// Kind of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceKind {
    /// Everything.
    #[default]
    Project,
    /// Prompts, agents and models, and never any tool.
    Chat,
}

impl WorkspaceKind {
    /// Its name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Chat => "chat",
        }
    }
}

impl Settings {
    /// True if the history of the workspace is kept beside it: unless it says otherwise, or only talks.
    pub fn mirrors_history(&self) -> bool {
        self.kind == WorkspaceKind::Project && self.history_mirror_enabled.unwrap_or(true)
    }

    /// The settings where the file cannot be read: no tool is called that it may have forbidden.
    pub(crate) fn unreadable() -> Self {
        Self { kind: WorkspaceKind::Chat, approval: ApprovalPolicy::everything(), ..Self::default() }
    }

    pub(crate) fn read(node: &YamlNode, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "`settings.yaml`", problems);
        let word = fields.word("kind", &["project", "chat"], problems);
        let kind = match (word, fields.get("kind")) {
            (Some("project"), _) | (None, None) => WorkspaceKind::Project,
            // A word that is neither may have been meant to keep tools away.
            (_, _) => WorkspaceKind::Chat,
        };
        let default_agent_line = fields.get("default_agent").map(|node| node.line);
        let settings = Self {
            kind,
            has_kind: word.is_some(),
            default_agent: fields.text("default_agent", problems),
            models: aliases(&mut fields, problems),
            skill_dirs: skill_dirs(&mut fields, problems),
            system_prompt: fields.text("system_prompt", problems),
            approval: fields.get("policy").map(|node| policy(node, problems)).unwrap_or_default(),
            engine: fields.get("engine").map(|node| EngineSettings::read(node, problems)).unwrap_or_default(),
            history_mirror_enabled: fields.boolean("history_mirror_enabled", problems),
            shared: fields.boolean("shared", problems).unwrap_or_default(),
            imports: fields.get("imports").map(|node| Imports::read(node, problems)).unwrap_or_default(),
            default_agent_line,
        };
        fields.without_effect("runtime", "a template leaves no trace", problems);
        fields.finish(problems);
        settings
    }
}

/// The most folders of skills.
const MOST_SKILL_DIRS: usize = 16;

/// The folders, without what is no folder of skills inside of the workspace.
fn skill_dirs(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> Vec<String> {
    let line = fields.get("skill_dirs").map(|node| node.line);
    let mut found = Vec::new();
    for written in fields.texts("skill_dirs", problems).unwrap_or_default() {
        let parts: Vec<&str> = written.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let leads_out = written.starts_with('/') || written.starts_with('~') || parts.contains(&"..");
        let message = match parts.first() {
            _ if leads_out => "leads out of the workspace",
            None => "is the workspace itself",
            Some(&".openharness") if parts.get(1) != Some(&"skills") => "belongs to the workspace",
            Some(_) if found.len() == MOST_SKILL_DIRS => "is one too many",
            Some(_) => {
                let path = parts.join("/");
                if path != ".openharness/skills" && !found.contains(&path) {
                    found.push(path);
                }
                continue;
            }
        };
        problems.error(line, format!("`{written}` of `skill_dirs` {message}: name a folder of skills inside of it"));
    }
    found
}

fn policy(node: &YamlNode, problems: &mut FileProblems<'_>) -> ApprovalPolicy {
    let mut fields = Fields::of(node, "`policy` of the settings", problems);
    let approval = ApprovalPolicy::of(&mut fields, problems);
    fields.finish(problems);
    approval
}

fn aliases(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> IndexMap<String, ModelChoice> {
    let Some(node) = fields.get("models") else { return IndexMap::new() };
    let NodeValue::Map(entries) = &node.value else {
        problems.error(node.line, "`models` of the settings must be a mapping of aliases");
        return IndexMap::new();
    };
    let choice = |entry: &super::yaml::YamlEntry, problems: &mut FileProblems<'_>| {
        ModelChoice::read(&entry.value, &format!("alias `{}`", entry.key), problems)
    };
    entries.iter().filter_map(|entry| Some((entry.key.clone(), choice(entry, problems)?))).collect()
}
