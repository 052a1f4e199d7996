//! A server made with the official Python SDK, where it is installed: `python3` with the package `mcp`, or the program
//! that `DORMOUSE_MCP_PYTHON` names.

use std::process::{Command, Stdio};

use dormouse_ports::Map;
use dormouse_ports::tool::{Effect, InputAnswer, ToolCall, ToolReply, ToolSource};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::McpNotice;
use libtest_mimic::Trial;
use serde_json::json;

use crate::trial;
use crate::world::{call, output, server, template, text, until};

/// A server in the way of its documentation.
const PROGRAM: &str = r#"
import sys
from typing import Annotated
from pydantic import BaseModel

class Name(BaseModel):
    name: str

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, Resolve
    from mcp_types import ToolAnnotations
    server = MCPServer("official")
    options = {"port": int(sys.argv[2])} if sys.argv[1] != "stdio" else {}
    newest = True
except ModuleNotFoundError:
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.types import ToolAnnotations
    server = FastMCP("official", port=int(sys.argv[2]))
    options = {}
    newest = False

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b

@server.tool()
async def work(context: Context) -> str:
    await context.report_progress(1, 2, "half")
    await context.info("careful")
    return "done"

@server.tool()
def fail() -> str:
    raise ValueError("out of paper")

if newest:
    async def who() -> Elicit[Name]:
        return Elicit("Who are you?", Name)

    @server.tool(annotations=ToolAnnotations(idempotentHint=True))
    async def ask(answer: Annotated[ElicitationResult[Name], Resolve(who)]) -> str:
        return f"Hello {answer.data.name}" if answer.action == "accept" else f"Nobody: {answer.action}"
else:
    @server.tool(annotations=ToolAnnotations(idempotentHint=True))
    async def ask(context: Context) -> str:
        answer = await context.elicit("Who are you?", Name)
        return f"Hello {answer.data.name}" if answer.action == "accept" else f"Nobody: {answer.action}"

server.run(sys.argv[1], **options)
"#;

pub(crate) fn trials() -> Vec<Trial> {
    let python = std::env::var("DORMOUSE_MCP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = "import mcp.server, mcp.types";
    let is_there = Command::new(&python).args(["-c", probe]).output().is_ok_and(|output| output.status.success());
    let kind = if is_there { "official Python SDK" } else { "ignored: the Python package `mcp` is not installed" };
    let process = python.clone();
    let address = python;
    vec![
        trial("official::stdio", move || stdio(process)).with_kind(kind).with_ignored_flag(!is_there),
        trial("official::http", move || http(address)).with_kind(kind).with_ignored_flag(!is_there),
    ]
}

fn command(python: &str, way: &str, port: u16) -> String {
    format!("exec {python} -c '{}' {way} {port}", PROGRAM.replace('\'', "'\\''"))
}

async fn stdio(python: String) {
    talk(McpConfig::stdio("official", command(&python, "stdio", 0))).await;
}

async fn http(python: String) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let mut shell = tokio::process::Command::new("/bin/sh");
    let shell = shell.stderr(Stdio::null()).stdout(Stdio::null());
    let started = shell.arg("-c").arg(command(&python, "streamable-http", port)).kill_on_drop(true).spawn();
    let _server = started.expect("it starts");
    until("it listens", || async { tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await;
    talk(McpConfig::http("official", template(&format!("http://127.0.0.1:{port}/mcp")))).await;
}

async fn talk(config: McpConfig) {
    let (server, notices) = server(config);
    let specs = server.list().await.expect("a list");
    let effects: Vec<_> = specs.iter().map(|spec| (spec.name.as_str(), spec.effect)).collect();
    let expected = [("add", Effect::Safe), ("work", Effect::Manual), ("fail", Effect::Manual), ("ask", Effect::Safe)];
    assert_eq!(effects, expected);
    let sum = output(server.call(&call("add", json!({ "a": 2, "b": 40 }))).await);
    assert_eq!(sum.structured, Some(json!({ "result": 42 })));
    assert_eq!(text(server.call(&call("work", json!({}))).await), "done");
    let is_progress =
        |notice: &McpNotice| matches!(notice, McpNotice::Progress { message: Some(text), .. } if text == "half");
    until("it tells its progress", || async { notices.lock().expect("a lock").iter().any(is_progress) }).await;
    let failed = output(server.call(&call("fail", json!({}))).await);
    assert!(failed.is_error && format!("{failed:?}").contains("Error executing tool fail"), "{failed:?}");
    let Ok(ToolReply::InputRequired(asked)) = server.call(&call("ask", json!({}))).await else { panic!("a question") };
    assert_eq!((asked.message.as_str(), &asked.schema["required"]), ("Who are you?", &json!(["name"])));
    let content = Map::from_iter([("name".to_owned(), json!("Ada"))]);
    let input = Some(InputAnswer { content: Some(content), state: asked.state });
    let again = ToolCall { input, ..call("ask", json!({})) };
    assert_eq!(text(server.call(&again).await), "Hello Ada");
    server.close().await;
}
