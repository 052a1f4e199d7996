//! Answers over HTTP that are not as the protocol says, or that other versions of it have.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dormouse_ports::tool::{ToolErrorKind, ToolSource};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::McpNotice;
use futures::{StreamExt, stream};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::peer::Peer;
use crate::trial;
use crate::world::{Host, call, host_router, output, server, template, text, until};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("answers::that_do_not_name_their_request", nameless),
        trial("answers::in_a_batch_with_other_messages", batched),
        trial("answers::with_half_a_character", halved),
        trial("answers::with_an_error_that_is_null_beside_the_result", with_both_outcomes),
        trial("answers::with_fields_of_another_result", with_others_fields),
        trial("answers::with_tools_whose_arguments_are_wrong_headers", misannotated),
        trial("answers::in_a_version_that_is_not_spoken", in_other_versions),
        trial("answers::that_take_a_request_and_say_nothing", accepted),
        trial("answers::that_break_off_in_a_session_that_is_forgotten", forgotten),
        trial("answers::of_the_transport_before_streamable_http", before_streamable),
    ]
}

fn http(host: &Host) -> McpConfig {
    McpConfig::http("peer", template(&host.url))
}

/// A server of version 2025-03-26 with the tool `a`, which answers otherwise where `answer` does.
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

/// What a server answers that has the tool `a`.
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
        Some("tools/call") => Some(json!({ "content": [{ "type": "text", "text": "done" }] })),
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
    // In a stream, which stays open behind it.
    for answer in [json!({ "jsonrpc": "2.0", "id": null, "error": full }), json!({ "jsonrpc": "2.0", "error": full })] {
        let host = answering(move |request| {
            let event = (request["method"] == "tools/call").then(|| Event::default().data(answer.to_string()))?;
            let events = stream::iter([Ok::<_, Infallible>(event)]).chain(stream::pending());
            Some(Sse::new(events).into_response())
        })
        .await;
        let (server, _) = server(http(&host));
        let output = output(server.call(&call("a", json!({}))).await);
        assert!(output.is_error, "{output:?}");
    }
}

async fn in_other_versions() {
    for version in ["2031-01-01", "1.0"] {
        let host = answering(move |request| {
            let server = json!({ "name": "later", "version": "1" });
            let result = json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": server });
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            (request["method"] == "initialize").then(|| axum::Json(answer).into_response())
        })
        .await;
        let (server, _) = server(http(&host));
        let error = server.list().await.expect_err("nobody knows what it means");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
        assert!(error.message.contains(&format!("version `{version}`")), "{error}");
        assert!(error.message.contains("2024-11-05, 2025-03-26"), "{error}");
    }
}

/// The stream of an answer ends in the middle, and the server knows its session no more when it is to go on: nobody waits for the
/// answer until the time of the call is over, and the call is made once.
async fn forgotten() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handle = move |body: String| {
        let counted = counted.clone();
        async move {
            let request: Value = serde_json::from_str(&body).unwrap_or_default();
            match request["method"].as_str() {
                Some("initialize") => ([("mcp-session-id", "s1")], plainly(&request)).into_response(),
                Some("tools/call") => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let said = json!({ "level": "info", "data": "it begins" });
                    let said = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": said });
                    let event = Event::default().id("1").retry(Duration::from_millis(1)).data(said.to_string());
                    Sse::new(stream::iter([Ok::<_, Infallible>(event)])).into_response()
                }
                Some(_) | None => plainly(&request),
            }
        }
    };
    let listen = |headers: HeaderMap| async move {
        match headers.contains_key("last-event-id") {
            true => StatusCode::NOT_FOUND,
            false => StatusCode::METHOD_NOT_ALLOWED,
        }
    };
    let router = Router::new().route("/mcp", get(listen).post(handle));
    let host = host_router(Peer::default(), router, 0).await;
    let (server, _) = server(McpConfig { timeout: Duration::from_secs(24 * 3600), ..http(&host) });
    let error = server.call(&call("a", json!({}))).await.expect_err("there is no outcome");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, true), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// No stream is open on which the answer could come: it is not waited for.
async fn accepted() {
    for (method, uncertain) in [("tools/list", false), ("tools/call", true)] {
        let host = answering(move |request| {
            let is_taken = request["method"] == method || request["method"] == "server/discover";
            is_taken.then(|| StatusCode::ACCEPTED.into_response())
        })
        .await;
        let (server, _) = server(http(&host));
        let error = match method {
            "tools/call" => server.call(&call("a", json!({}))).await.expect_err("there is no outcome"),
            _ => server.list().await.expect_err("it lists nothing"),
        };
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, uncertain), "{method}: {error}");
        assert!(error.message.contains("(HTTP 202) and answers nothing"), "{method}: {error}");
    }
}

async fn batched() {
    for is_stream in [false, true] {
        let host = answering(move |request| {
            let answer = json!({ "jsonrpc": "2.0", "id": request.get("id")?, "result": result(request)? });
            let line = json!({ "level": "info", "data": request["method"] });
            let line = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": line });
            let batch = json!([answer, line]);
            Some(match is_stream {
                true => ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {batch}\n\n")).into_response(),
                false => axum::Json(batch).into_response(),
            })
        })
        .await;
        let (server, notices) = server(http(&host));
        assert_eq!(server.list().await.expect("a list").len(), 1);
        assert_eq!(output(server.call(&call("a", json!({}))).await).content.len(), 1);
        let line = McpNotice::Log { level: "info".to_owned(), logger: None, data: json!("tools/call") };
        until("a line", || async { notices.lock().expect("a lock").contains(&line) }).await;
    }
}

/// A text that a server has cut in the midst of a character is taken without that half.
async fn halved() {
    for is_stream in [false, true] {
        let host = answering(move |request| {
            let id = (request["method"] == "tools/call").then(|| request["id"].to_string())?;
            let result = r#"{"content":[{"type":"text","text":"\ud83d\ude00 \ud83d"}]}"#;
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            Some(match is_stream {
                true => ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {answer}\n\n")).into_response(),
                false => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
            })
        })
        .await;
        let (server, _) = server(http(&host));
        assert_eq!(text(server.call(&call("a", json!({}))).await), "😀 \u{fffd}");
    }
}

/// Some servers write both outcomes, of which one has no value, and some a byte order mark before all.
async fn with_both_outcomes() {
    for is_stream in [false, true] {
        let host = answering(move |request| {
            let (id, result) = (request.get("id")?, result(request)?);
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result, "error": null });
            Some(match is_stream {
                true => ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {answer}\n\n")).into_response(),
                false => ([(header::CONTENT_TYPE, "application/json")], format!("\u{feff}{answer}")).into_response(),
            })
        })
        .await;
        let (server, _) = server(http(&host));
        assert_eq!(text(server.call(&call("a", json!({}))).await), "done");
    }
}

/// A result may have fields of its own, such as those by which the SDK tells results of other requests.
async fn with_others_fields() {
    let mut fields = json!({ "tools": [], "resources": [], "prompts": [], "messages": [], "contents": [] });
    fields["action"] = json!("cancel");
    for is_stream in [false, true] {
        let fields = fields.clone();
        let host = answering(move |request| {
            let id = (request["method"] == "tools/call").then(|| &request["id"])?;
            let mut result = fields.clone();
            result["content"] = json!([{ "type": "text", "text": "done" }]);
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            Some(match is_stream {
                true => ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {answer}\n\n")).into_response(),
                false => axum::Json(answer).into_response(),
            })
        })
        .await;
        let (server, _) = server(http(&host));
        assert_eq!(text(server.call(&call("a", json!({}))).await), "done");
    }
}

/// The protocol demands that such a tool is not offered; who misses it is told why.
async fn misannotated() {
    let tool = |name: &str, header: &str| {
        let property = json!({ "type": "string", "x-mcp-header": header });
        json!({ "name": name, "inputSchema": { "type": "object", "properties": { "city": property } } })
    };
    let tools = json!([tool("a", "City"), tool("b", "not a name"), { "name": "c", "inputSchema": {} }, tool("d", "")]);
    for (is_newest, offered, gone) in
        [(true, vec!["a", "c"], vec!["b", "d"]), (false, vec!["a", "b", "c", "d"], Vec::new())]
    {
        let tools = tools.clone();
        let host = answering(move |request| {
            let result = match request["method"].as_str() {
                Some("server/discover") if is_newest => {
                    json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                        "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" })
                }
                Some("tools/list") => {
                    json!({ "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private" })
                }
                Some(_) | None => return None,
            };
            Some(axum::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).into_response())
        })
        .await;
        let (server, _) = server(http(&host));
        for _ in 0..2 {
            let listed = server.list().await.expect("a list");
            let names: Vec<&str> = listed.iter().map(|spec| spec.name.as_str()).collect();
            assert_eq!(names, offered);
            let left_out = server.left_out().await;
            let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, gone);
            assert!(left_out.iter().all(|(_, reason)| reason.contains("`x-mcp-header`")), "{left_out:?}");
        }
    }
}

/// What is wrong is told, and the way out, instead of a status.
async fn before_streamable() {
    for (greeting, is_older) in [("event: endpoint\ndata: /messages?session=1\n\n", true), ("data: {}\n\n", false)] {
        let listen = move || async move { ([(header::CONTENT_TYPE, "text/event-stream")], greeting) };
        let host = host_router(Peer::default(), Router::new().route("/mcp", get(listen)), 0).await;
        let (server, _) = server(http(&host));
        let error = server.list().await.expect_err("it takes no POST");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
        for told in ["HTTP+SSE of the protocol version 2024-11-05", "`url`", "`command`"] {
            assert_eq!(error.message.contains(told), is_older, "{told}: {error}");
        }
        assert_eq!(error.message.contains("HTTP 405"), !is_older, "{error}");
    }
}
