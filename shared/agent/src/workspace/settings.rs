use indexmap::IndexMap;
use serde::Serialize;

use super::agent::ModelChoice;
use super::approval::ApprovalPolicy;
use super::fields::Fields;
use super::problem::FileProblems;
use super::yaml::{Node, NodeValue};

/// What `.openharness/settings.yaml` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    /// Whether the workspace may act or only talk.
    pub kind: WorkspaceKind,
    /// The agent that answers when none is named.
    pub default_agent: Option<String>,
    /// Aliases of models.
    pub models: IndexMap<String, ModelChoice>,
    /// Text that stands before all others.
    pub system_prompt: Option<String>,
    /// Calls of all agents that wait for a person.
    pub approval: ApprovalPolicy,
    #[serde(skip)]
    pub(crate) default_agent_line: Option<usize>,
}

/// Kind of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceKind {
    /// Everything.
    #[default]
    Project,
    /// Prompts, agents and models, and never any tool.
    Chat,
}

impl Settings {
    /// The settings where the file cannot be read: no tool is called that it may have forbidden.
    pub(crate) fn unreadable() -> Self {
        Self { kind: WorkspaceKind::Chat, approval: ApprovalPolicy::everything(), ..Self::default() }
    }

    pub(crate) fn read(node: &Node, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "`settings.yaml`", problems);
        let kind = match (fields.word("kind", &["project", "chat"], problems), fields.get("kind")) {
            (Some("project"), _) | (None, None) => WorkspaceKind::Project,
            // A word that is neither may have been meant to keep tools away.
            (_, _) => WorkspaceKind::Chat,
        };
        let default_agent_line = fields.get("default_agent").map(|node| node.line);
        let settings = Self {
            kind,
            default_agent: fields.text("default_agent", problems),
            models: aliases(&mut fields, problems),
            system_prompt: fields.text("system_prompt", problems),
            approval: fields.get("policy").map(|node| policy(node, problems)).unwrap_or_default(),
            default_agent_line,
        };
        fields.without_effect("skill_dirs", "skills are read from `.openharness/skills` only", problems);
        fields.without_effect("imports", "nothing is imported when a workspace runs", problems);
        fields.without_effect("engine", "compaction and memory are not there yet", problems);
        fields.without_effect("history_mirror_enabled", "there is no history mirror yet", problems);
        fields.without_effect("runtime", "a template leaves no trace", problems);
        fields.finish(problems);
        settings
    }
}

fn policy(node: &Node, problems: &mut FileProblems<'_>) -> ApprovalPolicy {
    let mut fields = Fields::of(node, "`policy` of the settings", problems);
    let approval = fields.get("approval").map(|node| ApprovalPolicy::read(node, problems)).unwrap_or_default();
    fields.finish(problems);
    approval
}

fn aliases(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> IndexMap<String, ModelChoice> {
    let Some(node) = fields.get("models") else { return IndexMap::new() };
    let NodeValue::Map(entries) = &node.value else {
        problems.error(node.line, "`models` of the settings must be a mapping of aliases");
        return IndexMap::new();
    };
    let choice = |entry: &super::yaml::Entry, problems: &mut FileProblems<'_>| {
        ModelChoice::read(&entry.value, &format!("alias `{}`", entry.key), problems)
    };
    entries.iter().filter_map(|entry| Some((entry.key.clone(), choice(entry, problems)?))).collect()
}
