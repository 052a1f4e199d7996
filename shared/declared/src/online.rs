//! Asks the models and the servers of tools of a workspace whether they are there.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use dormouse_agent::workspace::Workspace;
use dormouse_ports::Clock;
use dormouse_ports::tool::{ToolSource, ToolSourceDefinition};
use futures::future::{Either, join_all, select};

use crate::{DeclaredPorts, models};

/// Time in which each has to answer; a command may fetch its server first.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of asking a model or a server of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// What it is.
    pub kind: PresenceKind,
    /// Its name in the workspace.
    pub name: String,
    /// What it said, in a sentence, or why it could not be asked or refused.
    pub outcome: Result<String, String>,
    /// The names of the tools that a server offers, with those that no model can be offered.
    pub tools: Vec<String>,
}

/// What is asked whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceKind {
    /// The model of an agent: whether its provider knows the key and the model (llm-provider §5). Nothing is generated.
    Model,
    /// A server of tools: which tools it offers. None of them is called.
    ToolServer,
}

impl PresenceKind {
    /// Its name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::ToolServer => "tool server",
        }
    }
}

/// Asks each model that an enabled agent of `workspace` has, and each server of tools, at the same time. An HTTP tool is not
/// asked: that would be a call of it.
pub async fn online(workspace: &Workspace, ports: &DeclaredPorts) -> Vec<Presence> {
    let (models, servers) = futures::join!(models_of(workspace, ports), servers_of(workspace, ports));
    models.into_iter().chain(servers).collect()
}

async fn models_of(workspace: &Workspace, ports: &DeclaredPorts) -> Vec<Presence> {
    let agents: BTreeMap<String, _> = workspace
        .enabled_agents()
        .filter_map(|agent| Some((workspace.model_of(agent).ok()?.reference, agent)))
        .collect();
    let asked = agents.into_iter().map(|(name, agent)| async move {
        let outcome = match models::part(workspace, agent, ports).await {
            Ok(part) => {
                let ready = in_time(&*ports.clock, part.provider.ready()).await;
                ready.and_then(|ready| ready.map_err(|error| error.message)).map(|()| "answers".to_owned())
            }
            Err(none) => Err(none.reason),
        };
        Presence { kind: PresenceKind::Model, name, outcome, tools: Vec::new() }
    });
    join_all(asked).await
}

async fn servers_of(workspace: &Workspace, ports: &DeclaredPorts) -> Vec<Presence> {
    let servers = crate::tools::usable_servers(workspace);
    let servers = servers.filter(|definition| !matches!(definition.source, ToolSourceDefinition::Http(_)));
    let asked = servers.map(|definition| async move {
        let listed = match ports.tools.source(definition) {
            Ok(source) => in_time(&*ports.clock, offered(&*source)).await.and_then(|offered| offered),
            Err(reason) => Err(reason),
        };
        let (outcome, tools) = match listed {
            Ok((said, tools)) => (Ok(said), tools),
            Err(reason) => (Err(reason), Vec::new()),
        };
        Presence { kind: PresenceKind::ToolServer, name: definition.name.clone(), outcome, tools }
    });
    join_all(asked).await
}

/// The tools that `source` offers, and those of it that no model can be offered: in a sentence, and their names.
async fn offered(source: &dyn ToolSource) -> Result<(String, Vec<String>), String> {
    let listed = source.list().await.map_err(|error| error.message)?;
    let mut names: Vec<String> = listed.into_iter().map(|tool| tool.name).collect();
    let mut said = match names.is_empty() {
        true => "answers, and offers no tools".to_owned(),
        false => format!("offers {}", names.join(", ")),
    };
    for (tool, reason) in source.left_out().await {
        said.push_str(&format!("; `{tool}` is left out: {reason}"));
        names.push(tool);
    }
    Ok((said, names))
}

async fn in_time<T>(clock: &dyn Clock, asked: impl Future<Output = T>) -> Result<T, String> {
    match select(pin!(asked), clock.sleep(PATIENCE)).await {
        Either::Left((answer, _)) => Ok(answer),
        Either::Right(_) => Err(format!("no answer within {} seconds", PATIENCE.as_secs())),
    }
}
