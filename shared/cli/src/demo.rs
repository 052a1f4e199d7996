//! An agent beside those of a tour: it asks a model, which is a script unless there is a key, and calls one tool, which
//! needs an approval.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_agent::workspace::{FileContent, Files, load};
use dormouse_api::Agents;
use dormouse_declared::{DeclaredPorts, agents};
use dormouse_fetch::NetworkFetch;
use dormouse_local::{ScriptedModel, ScriptedTurn};
use dormouse_ports::tool::{ToolDefinition, ToolSource, ToolSources};
use dormouse_ports::{Fetch, FetchError, FetchRequest, FetchResponse};
use dormouse_tools::schemars::{self, JsonSchema};
use dormouse_tools::{RustTool, RustTools};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::declared::ports;
use crate::workspace::platform;

/// The blank of a tour that tells of the agent: where there is one, the agent is served.
pub(crate) const BLANK: &str = "{model}";
/// What the agent is told, and what it may do.
const CLERK: &str = include_str!("demo/clerk.md");
const SCRIPT: &str = "script";

/// A real model, and the variable by which it can be asked.
struct RealModel {
    variable: &'static str,
    provider: &'static str,
    model: &'static str,
}

const REAL: [RealModel; 4] = [
    RealModel { variable: "OPENAI_API_KEY", provider: "openai", model: "gpt-5-mini" },
    RealModel { variable: "ANTHROPIC_API_KEY", provider: "anthropic", model: "claude-sonnet-4-5" },
    RealModel { variable: "GEMINI_API_KEY", provider: "gemini", model: "gemini-2.5-flash" },
    RealModel { variable: "AWS_SECRET_ACCESS_KEY", provider: "bedrock", model: "amazon.nova-lite-v1:0" },
];

/// `agents` and the agent of this module, and its model, which answers until it is dropped.
///
/// # Errors
/// When no port can be had for the model.
pub(crate) async fn with_demo(served: &Agents) -> io::Result<(Agents, ScriptedModel)> {
    let model = ScriptedModel::start(SCRIPT, Arc::new(answer)).await?;
    let real: Vec<&RealModel> = REAL.iter().filter(|real| is_set(real.variable)).collect();
    let fetch =
        DemoFetch { script: model.base_url(), here: NetworkFetch::past_proxies(), elsewhere: NetworkFetch::new() };
    let ports = DeclaredPorts { fetch: Arc::new(fetch), ..ports(Arc::new(Stationery), None) };
    let found = agents(&load(&files(&model.base_url(), &real), &platform()), &ports).await;
    let tour = served.tour().unwrap_or_default().replace(BLANK, &told(&real));
    Ok((served.clone().and(found.agents).with_tour(tour), model))
}

/// Asks the script past the proxy of the environment, which does not reach it, and all other models as usual.
struct DemoFetch {
    script: String,
    here: NetworkFetch,
    elsewhere: NetworkFetch,
}

#[async_trait]
impl Fetch for DemoFetch {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let asked = if request.url.starts_with(&self.script) { &self.here } else { &self.elsewhere };
        asked.fetch(request).await
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty())
}

/// The workspace: the agent with the script, and the same with each model for which there is a key.
fn files(script: &str, real: &[&RealModel]) -> Files {
    let bytes = |text: String| FileContent::Bytes(text.into_bytes());
    let mut models = format!("{SCRIPT}:\n  provider: openai-compatible\n  name: {SCRIPT}\n  url: {script}\n");
    let mut files = Files::from([
        (".openharness/agents/clerk.md".to_owned(), bytes(CLERK.replace("{model}", SCRIPT))),
        (".openharness/tools/settings.yaml".to_owned(), bytes("stationery:\n  rust: stationery\n".to_owned())),
    ]);
    for RealModel { variable, provider, model } in real {
        models.push_str(&format!("{provider}:\n  provider: {provider}\n  name: {model}\n"));
        if *provider != "bedrock" {
            models.push_str(&format!("  key: ${{env.{variable}}}\n"));
        }
        let clerk = format!(".openharness/agents/clerk-{provider}.md");
        files.insert(clerk, bytes(CLERK.replace("{model}", provider)));
    }
    files.insert(".openharness/models/models.yaml".to_owned(), bytes(models));
    files
}

/// What the tour says of the models that can be asked.
fn told(real: &[&RealModel]) -> String {
    if real.is_empty() {
        return "Its model is a script. With OPENAI_API_KEY, ANTHROPIC_API_KEY,\n   GEMINI_API_KEY or credentials of AWS in the \
                environment there is one with a real model as well."
            .to_owned();
    }
    let one =
        |real: &&RealModel| format!("\n   `clerk-{}` asks {} ({} is set)", real.provider, real.model, real.variable);
    let all: String = real.iter().map(one).collect();
    format!("Its model is a script. To ask a real one, put another name in the\n   place of `clerk`:{all}.")
}

/// What the script does: it orders what it is asked for, and says what came of it.
fn answer(request: &Value) -> ScriptedTurn {
    let last = request["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let said = last["content"].as_str().unwrap_or_default();
    match last["role"].as_str() {
        Some("tool") => ScriptedTurn::saying(format!("This is a script, and it was told: {said}")),
        Some(_) | None => ScriptedTurn::calling("order", &json!({ "what": said, "how_many": 3 })),
    }
}

/// What is ordered.
#[derive(Deserialize, Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
struct GoodsOrder {
    /// The article.
    what: String,
    /// The number of pieces.
    how_many: u32,
}

/// Makes the one tool of the agent.
#[derive(Debug)]
struct Stationery;

impl ToolSources for Stationery {
    fn source(&self, _: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        let order = RustTool::new("order").describe("Orders office supplies.");
        let order = order.run(|order: GoodsOrder| async move { Ok::<_, Infallible>(json!({ "ordered": order })) });
        match RustTools::new([order]) {
            Ok(tools) => Ok(Arc::new(tools)),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_of_the_demo_can_run() {
        let real: Vec<&RealModel> = REAL.iter().collect();
        let workspace = load(&files("http://127.0.0.1:1/v1", &real), &platform());
        assert!(workspace.is_sound(), "{:?}", workspace.problems);
        assert_eq!(workspace.enabled_agents().count(), 1 + REAL.len());
        assert!(told(&real).contains("`clerk-anthropic` asks claude-sonnet-4-5"), "{}", told(&real));
        assert!(told(&[]).contains("GEMINI_API_KEY"));
    }
}
