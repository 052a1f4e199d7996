//! Who may call whom among the agents of a workspace.

use std::sync::Arc;

use dormouse_agent::graph::{AgentParts, Colleague, Colleagues};
use dormouse_agent::workspace::{AgentMode, Workspace, WorkspaceKind};
use dormouse_api::Outside;
use indexmap::IndexMap;

/// The agents of a workspace that run, by their names.
#[derive(Default)]
pub(crate) struct Staff(IndexMap<String, AgentParts>);

impl Staff {
    pub(crate) fn add(&mut self, parts: AgentParts) {
        self.0.insert(parts.agent.name.clone(), parts);
    }

    /// The agents with those that they may call; in a `chat` workspace they call no other agent.
    pub(crate) fn with_colleagues(mut self, workspace: &Workspace) -> Vec<AgentParts> {
        if workspace.settings.kind == WorkspaceKind::Chat {
            return self.0.into_values().collect();
        }
        let all: Vec<Colleagues> = self.0.values().map(|parts| self.colleagues_of(parts)).collect();
        self.0.values_mut().zip(all).for_each(|(parts, colleagues)| parts.colleagues = colleagues);
        self.0.values().map(|parts| self.with_successors(parts)).collect()
    }

    fn colleagues_of(&self, parts: &AgentParts) -> Colleagues {
        let agent = &parts.agent;
        let named = |names: &[String], mode: AgentMode| {
            let others = names.iter().filter(|name| **name != agent.name).filter_map(|name| self.0.get(name));
            let fitting = others.filter(|other| other.agent.mode == mode || other.agent.mode == AgentMode::All);
            fitting.map(|other| Colleague::from(&other.agent)).collect()
        };
        Colleagues::new(named(&agent.switch, AgentMode::Primary), named(&agent.subagents, AgentMode::Subagent))
    }

    /// The agent with all those to which its runs may come, directly or by others.
    fn with_successors(&self, parts: &AgentParts) -> AgentParts {
        let mut names: Vec<&str> = vec![&parts.agent.name];
        let mut at = 0;
        while let Some(found) = names.get(at).and_then(|name| self.0.get(*name)) {
            let next = found.colleagues.switch.iter().map(|one| one.name.as_str());
            let new: Vec<&str> = next.filter(|name| !names.contains(name)).collect();
            names.extend(new);
            at += 1;
        }
        let others = names.into_iter().skip(1).filter_map(|name| self.0.get(name));
        let successors = others.map(|other| Arc::new(AgentParts { name: parts.name.clone(), ..other.clone() }));
        AgentParts { successors: successors.collect(), ..parts.clone() }
    }
}

/// The agent and its successors in the world in which they run.
pub(crate) fn placed(mut parts: AgentParts, outside: &Outside) -> AgentParts {
    parts.clock = outside.clock.clone();
    parts.callbacks = outside.callbacks.clone();
    parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
    let successors = parts.successors.iter().map(|other| Arc::new(placed(AgentParts::clone(other), outside)));
    parts.successors = successors.collect();
    parts.showing(outside.images.clone())
}
