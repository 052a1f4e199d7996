//! Asks the models and the servers of tools of a workspace whether they are there.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use dormouse_agent::workspace::Workspace;
use dormouse_ports::Clock;
use dormouse_ports::tool::{ToolSource, ToolSourceDefinition};
use futures::future::{Either, join_all, select};

use crate::tools::{of_server, usable_servers};
use crate::{DeclaredPorts, models};

/// Time in which each has to answer; a command may fetch its server first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tools of a server that are told one by one where no model can be offered them.
const MOST_TOLD: usize = 20;

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
    let servers = usable_servers(workspace);
    let servers = servers.filter(|definition| !matches!(definition.source, ToolSourceDefinition::Http(_)));
    let asked = servers.map(|definition| async move {
        let listed = match ports.tools.source(definition) {
            Ok(source) => {
                let part = of_server(definition, source);
                let is_had = |tool: &str| workspace.enabled_agents().any(|agent| part.is_for(agent, tool));
                in_time(&*ports.clock, offered(&*part.source, is_had)).await.and_then(|offered| offered)
            }
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

/// The tools that `source` offers, those of them that no agent has, and those that no model can be offered: in a sentence, and
/// their names.
async fn offered(source: &dyn ToolSource, is_had: impl Fn(&str) -> bool) -> Result<(String, Vec<String>), String> {
    let listed = source.list().await.map_err(|error| error.message)?;
    let mut names: Vec<String> = listed.into_iter().map(|tool| tool.name).collect();
    let (had, others): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(|name| is_had(name));
    let mut said = match (had.is_empty(), others.is_empty()) {
        (true, true) => "answers, and offers no tools".to_owned(),
        (true, false) => format!("offers {}, which no agent has", others.join(", ")),
        (false, true) => format!("offers {}", had.join(", ")),
        (false, false) => format!("offers {}; no agent has {}", had.join(", "), others.join(", ")),
    };
    let left_out = source.left_out().await;
    for (tool, reason) in left_out.iter().take(MOST_TOLD) {
        said.push_str(&format!("; `{tool}` is left out: {reason}"));
    }
    let more = left_out.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        said.push_str(&format!("; {more} more are left out"));
    }
    names.extend(left_out.into_iter().map(|(tool, _)| tool));
    Ok((said, names))
}

async fn in_time<T>(clock: &dyn Clock, asked: impl Future<Output = T>) -> Result<T, String> {
    match select(pin!(asked), clock.sleep(PATIENCE)).await {
        Either::Left((answer, _)) => Ok(answer),
        Either::Right(_) => Err(format!("no answer within {} seconds", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use dormouse_agent::workspace::{FileContent, Platform, load};
    use dormouse_ports::tool::{ToolCall, ToolError, ToolReply, ToolSpec};

    use super::*;

    /// Offers one tool, and has many that nobody can be offered.
    #[derive(Debug)]
    struct Flood;

    #[async_trait]
    impl ToolSource for Flood {
        async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
            Ok(vec![ToolSpec::new("look")])
        }

        async fn left_out(&self) -> Vec<(String, String)> {
            (0..9000).map(|n| (format!("t{n}"), "it is one too many".to_owned())).collect()
        }

        async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolError> {
            Err(ToolError::permanent("nobody calls it"))
        }
    }

    #[tokio::test]
    async fn of_many_tools_that_are_left_out_the_first_are_told_and_all_are_known() {
        let (said, names) = offered(&Flood, |_| true).await.expect("a list");
        assert!(said.starts_with("offers look; `t0` is left out: it is one too many; `t1`"), "{said}");
        assert!(said.ends_with("; 8980 more are left out") && said.len() < 2000, "{said}");
        assert_eq!((names.len(), names.last().map(String::as_str)), (9001, Some("t8999")));
    }

    /// Offers three tools.
    #[derive(Debug)]
    struct Three;

    #[async_trait]
    impl ToolSource for Three {
        async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
            Ok(["look", "change", "remove"].map(ToolSpec::new).to_vec())
        }

        async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolError> {
            Err(ToolError::permanent("nobody calls it"))
        }
    }

    #[tokio::test]
    async fn tools_that_no_agent_has_are_told_apart() {
        let tools = ".openharness/tools/settings.yaml";
        let exposed = "shop:\n  url: https://shop.example.com/mcp\n  expose: {exclude: [remove]}\n";
        let agent = ".openharness/agents/clerk.md";
        for (matter, told) in [
            ("description: sells", "offers look, change; no agent has remove"),
            ("tools: {external: []}", "offers look, change, remove, which no agent has"),
            ("disallowed: {tools: [change]}", "offers look; no agent has change, remove"),
        ] {
            let model = "main: {provider: openai, name: x}\n".to_owned();
            let files = [
                (tools.to_owned(), exposed.to_owned()),
                (agent.to_owned(), format!("---\nmodel: workspace/main\n{matter}\n---\nWork.\n")),
                (".openharness/models/models.yaml".to_owned(), model),
            ];
            let files = files.map(|(path, text)| (path, FileContent::Bytes(text.into_bytes())));
            let workspace = load(&files.into_iter().collect(), &Platform::default());
            let part = of_server(&workspace.tools["shop"], Arc::new(Three));
            let is_had = |tool: &str| workspace.enabled_agents().any(|agent| part.is_for(agent, tool));
            let (said, names) = offered(&Three, is_had).await.expect("a list");
            assert_eq!((said.as_str(), names.len()), (told, 3), "{matter}: {:?}", workspace.problems);
        }
    }
}
