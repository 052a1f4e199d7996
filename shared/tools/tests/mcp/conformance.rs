//! A client for the official conformance suite, which starts it with the address of a server behind its arguments and the
//! name of a scenario in its environment. To run a scenario with the suite's own program:
//!
//! ```text
//! conformance client --scenario tools_call --command target/debug/deps/mcp-…
//! ```

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::tool::{InputRequest, ToolSource, ToolSpec};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::Asker;
use serde_json::{Value, json};

use crate::world::{call, server, template};

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
        let reply = server.call(&call(&spec.name, arguments(&spec))).await;
        eprintln!("{}: {reply:?}", spec.name);
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
