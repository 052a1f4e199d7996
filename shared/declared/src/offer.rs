//! What a workspace offers besides its agents: the tools that they may call, and the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_agent::graph::AgentParts;
use dormouse_agent::workspace::{AgentMode, DefinitionKind, Platform, Problem, Severity, Workspace, WorkspaceKind};
use dormouse_agent::{CatalogEntry, catalog};
use dormouse_api::{CatalogLine, ToolInfo};
use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::tool::ToolSpec;
use futures::future::join_all;

use crate::Declared;

/// The time that a source of tools has for its list, when that is only shown: less than a request may take.
pub(crate) const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// What is told of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// Everything that it declares, also what cannot be used.
    pub(crate) catalog: Vec<CatalogLine>,
    /// Why agents cannot be addressed, by their names; also those that no list shows.
    pub(crate) refused: BTreeMap<String, String>,
    /// The agent that works where none is named, as the settings say: it may be refused, or not be there.
    pub(crate) default_agent: Option<String>,
    /// True if nothing acts in it: it is a `chat` workspace, or its settings have a mistake.
    pub(crate) only_talks: bool,
    /// True if it is a `chat` workspace because its settings say so.
    pub(crate) is_said_to_talk: bool,
    /// The names of agents that only the tenant at home finds.
    pub(crate) at_home: BTreeSet<String>,
    parts: Vec<AgentParts>,
}

impl Offer {
    /// That of `workspace`, of which `declared` is made.
    pub(crate) fn of(workspace: &Workspace, platform: &Platform, declared: &Declared) -> Self {
        Self {
            catalog: lines(workspace, platform, declared),
            refused: refused(workspace, declared),
            default_agent: workspace.settings.default_agent.clone(),
            only_talks: workspace.settings.kind == WorkspaceKind::Chat,
            is_said_to_talk: workspace.is_said_to_talk(),
            at_home: BTreeSet::new(),
            parts: declared.parts.clone(),
        }
    }

    /// The catalog, without agents that who is not `at_home` does not find.
    pub(crate) fn catalog(&self, at_home: bool) -> impl Iterator<Item = &CatalogLine> {
        let is_agent = |line: &CatalogLine| line.kind == "agent" || line.kind == "subagent";
        self.catalog.iter().filter(move |line| at_home || !is_agent(line) || !self.at_home.contains(&line.name))
    }

    /// The tools that agents may call which lists show; without those of agents that who is not `at_home` does not find. The
    /// sources are asked for them now; one that does not answer soon is left out as one that cannot be asked.
    pub(crate) async fn tools(&self, at_home: bool) -> Vec<ToolInfo> {
        let is_found = |parts: &&AgentParts| at_home || !self.at_home.contains(&parts.agent.name);
        let shown = self.parts.iter().filter(|parts| !parts.agent.hidden).filter(is_found);
        let tools = join_all(shown.map(|parts| parts.offered_tools(LISTED_WITHIN))).await;
        tools.into_iter().flatten().map(info).collect()
    }
}

fn info(spec: ToolSpec) -> ToolInfo {
    ToolInfo {
        name: spec.name,
        description: spec.description,
        input_schema: spec.input_schema,
        output_schema: spec.output_schema.unwrap_or_default(),
    }
}

fn lines(workspace: &Workspace, platform: &Platform, declared: &Declared) -> Vec<CatalogLine> {
    let catalog = catalog(workspace, platform);
    let line = |kind, entry: &CatalogEntry| CatalogLine {
        kind,
        name: entry.name.clone(),
        description: entry.description.clone(),
        enabled: entry.enabled,
        reasons: entry.reasons.clone(),
    };
    let agents = catalog.agents.iter().map(|entry| {
        let kind = if entry.mode == Some(AgentMode::Subagent) { "subagent" } else { "agent" };
        let mut line = line(kind, entry);
        if line.enabled && !runs(declared, &entry.name) {
            line.enabled = false;
            line.reasons = left_out(declared, &entry.name);
        }
        line
    });
    let of = |kind, entries: &[CatalogEntry]| entries.iter().map(|entry| line(kind, entry)).collect::<Vec<_>>();
    let mut lines: Vec<CatalogLine> = agents.collect();
    lines.extend(of("model", &catalog.models));
    lines.extend(of("tool", &catalog.tools));
    lines.extend(of("tool", &catalog.native_tools));
    lines.extend(of("action", &catalog.actions));
    lines.extend(of("skill", &catalog.skills));
    lines.extend(of("hook", &catalog.hooks));
    lines.push(tier(catalog.tier));
    lines.extend(workspace.problems.iter().map(problem));
    lines
}

/// The line that tells a mistake as a check of the workspace does.
fn problem(problem: &Problem) -> CatalogLine {
    CatalogLine {
        kind: "problem",
        name: problem.line.map_or_else(|| problem.file.clone(), |line| format!("{}:{line}", problem.file)),
        description: String::new(),
        enabled: problem.severity == Severity::Warning,
        reasons: vec![problem.message.clone()],
    }
}

fn runs(declared: &Declared, agent: &str) -> bool {
    declared.parts.iter().any(|parts| parts.agent.name == agent)
}

/// Why `agent` was left out.
fn left_out(declared: &Declared, agent: &str) -> Vec<String> {
    let own = format!("agent `{agent}`");
    declared.left_out.iter().filter(|reason| reason.starts_with(&own)).cloned().collect()
}

/// The agents that nobody can have work done by, each with the reason.
fn refused(workspace: &Workspace, declared: &Declared) -> BTreeMap<String, String> {
    let unread = workspace.disabled.iter().filter(|name| name.kind == DefinitionKind::Agent).map(|name| &name.name);
    let reason = |name: &String| {
        let flaws = workspace.flaws(DefinitionKind::Agent, name);
        let mut reasons: Vec<String> = flaws.map(|flaw| flaw.message.clone()).collect();
        if reasons.is_empty() && !runs(declared, name) {
            reasons = left_out(declared, name);
        }
        let mode = workspace.agents.get(name).map(|agent| agent.mode);
        if reasons.is_empty() && mode == Some(AgentMode::Subagent) {
            reasons.push("it is a `subagent`, which other agents ask and nobody else".to_owned());
        }
        (!reasons.is_empty()).then(|| (name.clone(), reasons.join("; ")))
    };
    workspace.agents.keys().chain(unread).filter_map(reason).collect()
}

/// The line that says where commands and file tools work.
fn tier(tier: Option<ExecutionTier>) -> CatalogLine {
    let description = match tier {
        Some(ExecutionTier::Local) => "Commands and file tools work in the folder, on the machine that serves it.",
        Some(ExecutionTier::Function) => "Commands and file tools work on a copy, in a function of its own.",
        Some(ExecutionTier::Stored) => "File tools work in the stored files of the workspace; there are no commands.",
        None => "There are no commands and file tools.",
    };
    CatalogLine {
        kind: "tier",
        name: tier.map_or("none", ExecutionTier::as_str).to_owned(),
        description: description.to_owned(),
        enabled: true,
        reasons: Vec::new(),
    }
}
