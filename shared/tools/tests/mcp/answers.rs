//! Answers over HTTP that are not as the protocol says, or that other versions of it have.

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use dormouse_ports::tool::{ToolErrorKind, ToolSource};
use dormouse_tools::McpConfig;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::peer::Peer;
use crate::trial;
use crate::world::{Host, host_router, server, template};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("answers::that_do_not_name_their_request", nameless)]
}

fn http(host: &Host) -> McpConfig {
    McpConfig::http("peer", template(&host.url))
}

/// A server of version 2025-03-26 that lists the tool `a`, and answers otherwise where `answer` does.
async fn answering(answer: impl Fn(&Value) -> Option<Response> + Clone + Send + Sync + 'static) -> Host {
    let handle = move |body: String| {
        let answer = answer.clone();
        async move {
            let request: Value = serde_json::from_str(&body).unwrap_or_default();
            answer(&request).unwrap_or_else(|| plainly(&request))
        }
    };
    host_router(Peer::default(), Router::new().route("/mcp", post(handle)), 0).await
}

/// What a server answers that does nothing else than list the tool `a`.
fn plainly(request: &Value) -> Response {
    match (result(request), request.get("id")) {
        (Some(result), Some(id)) => axum::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response(),
        (None, Some(_)) => StatusCode::BAD_REQUEST.into_response(),
        (_, None) => StatusCode::ACCEPTED.into_response(),
    }
}

fn result(request: &Value) -> Option<Value> {
    match request["method"].as_str() {
        Some("initialize") => Some(json!({ "protocolVersion": "2025-03-26", "capabilities": { "tools": {} },
            "serverInfo": { "name": "answering", "version": "1" } })),
        Some("tools/list") => Some(json!({ "tools": [{ "name": "a", "inputSchema": {} }] })),
        Some(_) | None => None,
    }
}

/// What stands in the answer to a request is about that: nobody waits for another answer.
async fn nameless() {
    let full = json!({ "code": -32603, "message": "the disk is full" });
    for (answer, told) in [
        (json!({ "jsonrpc": "2.0", "id": null, "error": full }), "the disk is full"),
        (json!({ "jsonrpc": "2.0", "id": 77, "error": full }), "the disk is full"),
        (json!({ "jsonrpc": "2.0", "id": 77, "result": { "tools": [] } }), "has the id 77"),
        (json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }), "answers nothing"),
    ] {
        let host = answering(move |request| {
            (request["method"] == "tools/list").then(|| axum::Json(answer.clone()).into_response())
        })
        .await;
        let (server, _) = server(http(&host));
        let error = server.list().await.expect_err("it lists nothing");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
        assert!(error.message.contains(told), "{told}: {error}");
    }
}
