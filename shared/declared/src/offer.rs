//! What a workspace offers besides its agents: the tools that they may call, and the catalog.

use dormouse_agent::graph::AgentParts;
use dormouse_agent::workspace::{AgentMode, Platform, Workspace, WorkspaceKind};
use dormouse_agent::{CatalogEntry, catalog};
use dormouse_api::{CatalogLine, ToolInfo};
use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::tool::ToolSpec;
use futures::future::join_all;

use crate::Declared;

/// What is told of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// Everything that it declares, also what cannot be used.
    pub(crate) catalog: Vec<CatalogLine>,
    /// True if it is a `chat` workspace.
    pub(crate) only_talks: bool,
    parts: Vec<AgentParts>,
}

impl Offer {
    /// That of `workspace`, of which `declared` is made.
    pub(crate) fn of(workspace: &Workspace, platform: &Platform, declared: &Declared) -> Self {
        Self {
            catalog: lines(workspace, platform, declared),
            only_talks: workspace.settings.kind == WorkspaceKind::Chat,
            parts: declared.parts.clone(),
        }
    }

    /// The tools that agents may call which lists show. The sources are asked for them now.
    pub(crate) async fn tools(&self) -> Vec<ToolInfo> {
        let shown = self.parts.iter().filter(|parts| !parts.agent.hidden);
        let tools = join_all(shown.map(AgentParts::offered_tools)).await;
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
        if line.enabled && declared.parts.iter().all(|parts| parts.agent.name != entry.name) {
            line.enabled = false;
            let own = format!("agent `{}`", entry.name);
            line.reasons = declared.left_out.iter().filter(|reason| reason.starts_with(&own)).cloned().collect();
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
    lines
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
