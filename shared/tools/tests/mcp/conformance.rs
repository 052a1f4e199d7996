//! A client for the official conformance suite, which starts it with the address of a server behind its arguments and the
//! name of a scenario in its environment. `DORMOUSE_MCP_CONFORMANCE` names the suite's program; it is not looked for.

use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::tool::{InputRequest, ToolSource, ToolSpec};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::Asker;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::world::{call, server, template};

/// The scenarios for clients. Those of the suite's OAuth flow are left out: they need a person, or send a secret to where
/// a server says.
const SCENARIOS: &[&str] = &["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"];

pub(crate) fn trials() -> Vec<Trial> {
    let program = std::env::var("DORMOUSE_MCP_CONFORMANCE").ok();
    let kind = if program.is_some() { "official suite" } else { "ignored: DORMOUSE_MCP_CONFORMANCE names no program" };
    let trial = |scenario: &'static str| {
        let suite = program.clone().unwrap_or_default();
        let trial = Trial::test(format!("conformance::{scenario}"), move || judged(&suite, scenario));
        trial.with_kind(kind).with_ignored_flag(program.is_none())
    };
    SCENARIOS.iter().copied().map(trial).collect()
}

fn judged(suite: &str, scenario: &str) -> Result<(), Failed> {
    let client = std::env::current_exe()?.display().to_string();
    let told = Command::new(suite).args(["client", "--scenario", scenario, "--command", &client]).output()?;
    match told.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&told.stderr).into_owned().into()),
    }
}

/// The address that the suite gives, if it is the suite.
pub(crate) fn server_of_suite() -> Option<String> {
    std::env::var_os("MCP_CONFORMANCE_SCENARIO")?;
    std::env::args().next_back().filter(|last| last.starts_with("http://"))
}

/// Calls every tool of the server once.
pub(crate) async fn use_all(url: String) {
    let (server, _) = server(McpConfig::http("suite", template(&url)));
    let server = server.with_asker(Arc::new(Agreeing));
    for spec in server.list().await.expect("a list") {
        // The suite judges by what reached its server.
        let _ = server.call(&call(&spec.name, arguments(&spec))).await;
    }
    server.close().await;
}

/// Numbers where the schema asks for some.
fn arguments(spec: &ToolSpec) -> Value {
    let required = spec.input_schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let fields = required.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), json!(5)));
    Value::Object(fields.collect())
}

/// Somebody who agrees, and fills nothing in.
struct Agreeing;

#[async_trait]
impl Asker for Agreeing {
    async fn ask(&self, _: &str, _: InputRequest) -> Option<Map> {
        Some(Map::new())
    }
}
