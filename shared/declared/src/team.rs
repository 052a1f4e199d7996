//! Who may call whom among the agents of a workspace.

use std::sync::Arc;

use dormouse_agent::graph::{AgentParts, Colleague, Colleagues};
use dormouse_agent::workspace::{AgentDefinition, AgentMode, Workspace, WorkspaceKind};
use dormouse_api::Outside;
use indexmap::{IndexMap, IndexSet};

/// Bytes, about, that the agents of a workspace hold together: of each its texts and those that it may call, and the same of all
/// to which its runs may be handed over. Whoever writes the definitions may write hundreds that hand over to each other.
const MOST_HELD: usize = 64 << 20;
/// What an agent holds beside its texts, and what it does of each tool, hook, action, skill and colleague.
const OF_AGENT: usize = 8 << 10;
const OF_PART: usize = 256;

/// The agents of a workspace that run, as far as there is room for what they hold.
pub(crate) struct Staff {
    agents: HeldAgents,
    room: Room,
    /// Bytes that each of them holds of what all of them have.
    of_all: usize,
}

/// Agents by their names.
type HeldAgents = IndexMap<String, HeldParts>;

/// Of what an agent is made.
struct HeldParts {
    parts: AgentParts,
    /// Bytes that it holds.
    bytes: usize,
    /// False where there was no room for those that it may call.
    is_whole: bool,
}

/// Number of bytes that are left.
#[derive(Clone, Copy)]
struct Room(usize);

impl Room {
    /// Takes `bytes`; `None` where there are not so many.
    fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

impl Staff {
    /// Nobody of `workspace` yet.
    pub(crate) fn of(workspace: &Workspace) -> Self {
        Self { agents: IndexMap::new(), room: Room(MOST_HELD), of_all: held_of_all(workspace) }
    }

    /// Adds an agent.
    ///
    /// # Errors
    /// A sentence, where there is no room for what it holds.
    pub(crate) fn add(&mut self, parts: AgentParts) -> Result<(), String> {
        let behind = parts.environment.as_ref().map_or(0, |environment| environment.behind.len());
        let own = format!("{:?}", parts.agent).len() + parts.instructions.len() + behind;
        let bytes = OF_AGENT + self.of_all + own;
        self.room.take(bytes).ok_or_else(|| no_room(&parts))?;
        self.agents.insert(parts.agent.name.clone(), HeldParts { parts, bytes, is_whole: true });
        Ok(())
    }

    /// The agents with those that they may call, and the bytes that they hold; in a `chat` workspace they call no other agent. Those
    /// for whose colleagues there is no room are left out, with a sentence.
    pub(crate) fn with_colleagues(self, workspace: &Workspace, left_out: &mut Vec<String>) -> (Vec<AgentParts>, usize) {
        let Self { mut agents, mut room, .. } = self;
        if workspace.settings.kind == WorkspaceKind::Chat {
            return (agents.into_values().map(|held| held.parts).collect(), MOST_HELD - room.0);
        }
        let all: Vec<_> = agents.values().map(|held| colleagues_of(&agents, &held.parts.agent, &mut room)).collect();
        for (held, colleagues) in agents.values_mut().zip(all) {
            held.is_whole = colleagues.is_some();
            if let Some((colleagues, bytes)) = colleagues {
                held.parts.colleagues = colleagues;
                held.bytes += bytes;
            }
        }
        let mut found = Vec::new();
        for HeldParts { parts, is_whole, .. } in agents.values() {
            let successors = if *is_whole { successors_of(&agents, parts, &mut room) } else { None };
            match successors {
                Some(others) => found.push(with_successors(parts, &others)),
                None => left_out.push(no_room(parts)),
            }
        }
        (found, MOST_HELD - room.0)
    }
}

/// Bytes that each agent of `workspace` holds of what all of them have.
fn held_of_all(workspace: &Workspace) -> usize {
    let hooks = workspace.hooks.values().map(|hook| format!("{hook:?}").len());
    let actions = workspace.actions.values().map(|action| format!("{action:?}").len());
    let tools = workspace.tools.values().map(|tool| tool.name.len() + format!("{:?}", tool.expose).len());
    let skills = workspace.skills.values().map(|skill| skill.name.len() + skill.description.len());
    let parts: usize = hooks.chain(actions).chain(tools).chain(skills).map(|bytes| OF_PART + bytes).sum();
    parts + format!("{:?}", workspace.settings.approval).len()
}

/// Says why the agent of `parts` does not run.
fn no_room(parts: &AgentParts) -> String {
    format!(
        "agent `{}` is left out: the agents of the workspace hold more than {} MiB together, each with all to which it may hand \
         over: let fewer of them hand over to each other, or make their texts shorter",
        parts.agent.name,
        MOST_HELD >> 20
    )
}

/// The agents that `agent` may call, and the bytes that it holds of them, if there is room for these.
fn colleagues_of(agents: &HeldAgents, agent: &AgentDefinition, room: &mut Room) -> Option<(Colleagues, usize)> {
    let named = |names: &[String], mode: AgentMode| {
        let others = names.iter().filter(|name| **name != agent.name).filter_map(|name| agents.get(name));
        let others = others.map(|held| &held.parts.agent);
        others.filter(|other| other.mode == mode || other.mode == AgentMode::All).collect::<Vec<_>>()
    };
    let switch = named(&agent.switch, AgentMode::Primary);
    let ask = named(&agent.subagents, AgentMode::Subagent);
    let bytes: usize = switch.iter().chain(&ask).map(|other| OF_PART + other.description.len()).sum();
    room.take(bytes)?;
    let told = |others: Vec<&AgentDefinition>| others.into_iter().map(Colleague::from).collect();
    Some((Colleagues::new(told(switch), told(ask)), bytes))
}

/// The agents to which runs of that of `parts` may come, directly or by others, if there is room for what they hold.
fn successors_of<'a>(agents: &'a HeldAgents, parts: &'a AgentParts, room: &mut Room) -> Option<Vec<&'a AgentParts>> {
    let mut names: IndexSet<&str> = IndexSet::from([parts.agent.name.as_str()]);
    let mut left = *room;
    let mut at = 0;
    while let Some(found) = names.get_index(at).and_then(|name| agents.get(*name)) {
        for next in &found.parts.colleagues.switch {
            if names.insert(&next.name) {
                left.take(agents.get(&next.name).map_or(0, |held| held.bytes))?;
            }
        }
        at += 1;
    }
    *room = left;
    Some(names.into_iter().skip(1).filter_map(|name| Some(&agents.get(name)?.parts)).collect())
}

fn with_successors(parts: &AgentParts, others: &[&AgentParts]) -> AgentParts {
    let successors =
        others.iter().map(|other| Arc::new(AgentParts { name: parts.name.clone(), ..AgentParts::clone(other) }));
    AgentParts { successors: successors.collect(), ..parts.clone() }
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
