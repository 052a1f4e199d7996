//! Which agents of a folder reach it.

use std::collections::BTreeSet;

use dormouse_agent::graph::AgentParts;
use dormouse_agent::workspace::{ToolOrigin, Workspace};
use dormouse_ports::tool::{NATIVE_TOOLS, PLACELESS_TOOLS, ToolSourceDefinition};

/// The names of the agents of `all` that reach the folder of `workspace`: by native tools, actions or processes that are servers
/// of tools, or by other agents that they call.
pub(crate) fn reaching(workspace: &Workspace, all: &[AgentParts]) -> BTreeSet<String> {
    let by_itself = |parts: &&AgentParts| reaches(workspace, parts);
    let mut reaching: BTreeSet<String> = all.iter().filter(by_itself).map(|parts| parts.agent.name.clone()).collect();
    loop {
        let calls_one = |parts: &&AgentParts| {
            let mut others = parts.colleagues.ask.iter().chain(&parts.colleagues.switch);
            !reaching.contains(&parts.agent.name) && others.any(|other| reaching.contains(&other.name))
        };
        let more: Vec<String> = all.iter().filter(calls_one).map(|parts| parts.agent.name.clone()).collect();
        if more.is_empty() {
            return reaching;
        }
        reaching.extend(more);
    }
}

/// True if `name` is a native tool that needs a place to work in.
fn works_in_folder(name: &str) -> bool {
    NATIVE_TOOLS.contains(&name) && !PLACELESS_TOOLS.contains(&name)
}

/// True if the agent reaches the folder by itself.
fn reaches(workspace: &Workspace, parts: &AgentParts) -> bool {
    let selection = &parts.agent.tools;
    let is_process = |name: &String| {
        let tool = workspace.tools.get(name);
        tool.is_some_and(|tool| matches!(tool.source, ToolSourceDefinition::Stdio { .. }))
    };
    let by_tool = parts.tools.iter().any(|part| match part.origin {
        ToolOrigin::Native => selection.native.iter().any(|name| works_in_folder(name)),
        ToolOrigin::Action => selection.actions.as_ref().is_none_or(|names| !names.is_empty()),
        ToolOrigin::External => {
            is_process(&part.name) && selection.external.as_ref().is_none_or(|names| names.contains(&part.name))
        }
        // Skills are texts, which are read in the folder's definitions.
        ToolOrigin::Skill | ToolOrigin::Agent => false,
    });
    // Actions that clients run need no model.
    by_tool || !parts.actions.is_empty()
}
