//! What goes wrong: a server that is down, hangs, dies, lies, forgets, is none, or wants to know who asks.

mod keys;
mod processes;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{any, get, post};
use dormouse_ports::tool::{Pending, ToolCall, ToolError, ToolErrorKind, ToolReply, ToolSource};
use dormouse_tools::{McpConfig, McpServer};
use futures::{StreamExt, stream};
use libtest_mimic::Trial;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use crate::peer::Peer;
use crate::trial;
use crate::world::{call, host, host_router, server, template, text};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("trouble::a_server_that_is_down", down),
        trial("trouble::a_server_that_says_nothing", silent),
        trial("trouble::an_address_of_something_else", something_else),
        trial("trouble::a_server_that_breaks_at_a_method_that_it_does_not_know", breaks_at_the_newest),
        trial("trouble::a_server_that_has_moved_in_a_call", moves),
        trial("trouble::a_server_that_breaks_down_in_a_call", breaks),
        trial("trouble::a_server_that_forgets_the_conversation", forgets),
        trial("trouble::a_server_that_forgets_the_conversation_before_a_list", forgets_before_a_list),
        trial("trouble::a_server_that_forgets_the_conversation_and_says_so_in_words", forgets_in_other_words),
        trial("trouble::a_list_of_which_no_change_can_be_told", untold),
        trial("trouble::a_server_that_was_away", away),
        trial("trouble::a_task_of_a_server_that_does_not_list", unlisted_task),
        trial("trouble::a_task_of_a_server_that_is_away", task_away),
        trial("trouble::a_question_with_a_schema_that_the_sdk_does_not_read", asks_in_other_words),
        trial("trouble::a_question_on_the_stream_that_stands_for_the_time_of_a_call", asks_aside),
        trial("trouble::a_question_in_a_call_that_is_made_before_somebody_listens", asks_who_listens),
        trial("trouble::a_list_that_is_none", no_list),
        trial("trouble::a_list_of_which_a_part_is_wrong", half_a_list),
        trial("trouble::a_list_that_leads_in_a_circle", circle),
        trial("trouble::a_server_that_agrees_to_everything", vague),
        trial("trouble::a_server_without_tools", no_tools),
        trial("trouble::an_answer_without_content", no_content),
    ];
    trials.extend(keys::trials());
    trials.extend(processes::trials());
    trials
}

/// A port on which nothing listens, and which nobody else is given as long as it is held.
fn held_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}

fn http(url: &str) -> McpConfig {
    McpConfig { connect_timeout: Duration::from_secs(20), ..McpConfig::http("peer", template(url)) }
}

async fn down() {
    let (_held, port) = held_port();
    let (server, _) = server(http(&format!("http://127.0.0.1:{port}/mcp")));
    for error in
        [server.list().await.expect_err("down"), server.call(&call("echo", json!({}))).await.expect_err("down")]
    {
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, false), "{error}");
        assert!(error.message.contains("`peer`") && error.message.contains("no connection"), "{error}");
    }
}

async fn silent() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let config = McpConfig { connect_timeout: Duration::from_millis(300), ..http(&url) };
    let (server, _) = server(config);
    let error = server.list().await.expect_err("silent");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::TimedOut, false), "{error}");
    assert!(error.message.contains("begin a conversation"), "{error}");
}

async fn something_else() {
    let page = || async { ([(header::CONTENT_TYPE, "text/html")], "<p>Welcome</p>") };
    let missing = || async { (StatusCode::NOT_FOUND, "no such page") };
    let error = || async { StatusCode::BAD_GATEWAY };
    let moved = || async { (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "http://h/mcp/?key=x")]) };
    let router = Router::new().route("/page", any(page)).route("/missing", any(missing)).route("/error", any(error));
    let router = router.route("/moved", any(moved));
    let host = host_router(Peer::default(), router, 0).await;
    for (path, kind, told) in [
        ("page", ToolErrorKind::Permanent, "check that the address is that of an MCP server"),
        ("missing", ToolErrorKind::Permanent, "check that the address is that of an MCP server"),
        ("error", ToolErrorKind::Transient, "HTTP 502"),
        ("moved", ToolErrorKind::Permanent, "HTTP 308 and leads to http://h/mcp/, which is not followed; set"),
    ] {
        let (server, _) = server(http(&host.url.replace("mcp", path)));
        let error = server.list().await.expect_err("no server");
        assert_eq!((error.kind, error.uncertain), (kind, false), "{path}: {error}");
        assert!(error.message.contains(told), "{path}: {error}");
    }
}

/// A service of `peer`, with sessions for older clients.
fn service(peer: &Peer) -> StreamableHttpService<Peer, LocalSessionManager> {
    let peer = peer.clone();
    StreamableHttpService::new(move || Ok(peer.clone()), Arc::default(), StreamableHttpServerConfig::default())
}

/// It is spoken to in the older way.
async fn breaks_at_the_newest() {
    let peer = Peer::default();
    let breaking = move |request: Request, next: Next| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
        match String::from_utf8_lossy(&body).contains("server/discover") {
            true => (StatusCode::INTERNAL_SERVER_ERROR, "KeyError: 'server/discover'").into_response(),
            false => next.run(Request::from_parts(parts, body.into())).await,
        }
    };
    let router = Router::new().fallback_service(service(&peer)).layer(axum::middleware::from_fn(breaking));
    let host = host_router(peer, router, 0).await;
    let (server, _) = server(http(&host.url));
    assert!(!server.list().await.expect("a list").is_empty());
}

/// A call that leads elsewhere was not made.
async fn moves() {
    let peer = Peer::default();
    let moving = move |request: Request, next: Next| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
        match String::from_utf8_lossy(&body).contains("tools/call") {
            true => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/elsewhere")]).into_response(),
            false => next.run(Request::from_parts(parts, body.into())).await,
        }
    };
    let router = Router::new().fallback_service(service(&peer)).layer(axum::middleware::from_fn(moving));
    let host = host_router(peer, router, 0).await;
    let (server, _) = server(http(&host.url));
    let error = server.call(&call("ask", json!({}))).await.expect_err("it has moved");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
    assert!(error.message.contains("leads to /elsewhere") && host.peer.seen().is_empty(), "{error}");
}

async fn breaks() {
    for is_older in [false, true] {
        let broken = Arc::new(AtomicUsize::new(0));
        let counted = broken.clone();
        // Every call of a tool is taken, and ends without an answer.
        let breaking = move |request: Request, next: Next| {
            let counted = counted.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
                let is_call = String::from_utf8_lossy(&body).contains("tools/call");
                let response = next.run(Request::from_parts(parts, body.into())).await;
                match is_call {
                    true => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        StatusCode::INTERNAL_SERVER_ERROR.into_response()
                    }
                    false => response,
                }
            }
        };
        let peer = Peer::older(is_older);
        let router = Router::new().fallback_service(service(&peer)).layer(axum::middleware::from_fn(breaking));
        let host = host_router(peer, router, 0).await;
        let (server, _) = server(http(&host.url));
        let error = server.call(&call("fail", json!({}))).await.expect_err("broken");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, true), "{error}");
        assert_eq!(broken.load(Ordering::SeqCst), 1, "it is sent once");
    }
}

/// Another server at the address of `first`, which ends.
async fn instead_of(first: crate::world::Host) -> crate::world::Host {
    host(Peer::older(true), first.ended().await).await
}

async fn forgets() {
    let first = host(Peer::older(true), 0).await;
    let (server, _) = server(http(&first.url));
    assert_eq!(text(server.call(&call("fail", json!({}))).await), "out of paper");
    let second = instead_of(first).await;
    assert_eq!(text(server.call(&call("ask", json!({}))).await).lines().next(), Some("Nobody: decline"));
    assert_eq!(second.peer.seen(), ["ask began", "Nobody: decline"], "the call was made once");
}

/// Some servers answer what belongs to a conversation that they do not know with 400, and say why in words.
async fn forgets_in_other_words() {
    for (code, message, id, is_told) in [
        (-32000, "Bad Request: Server not initialized", Some(Value::Null), true),
        (-32600, "Bad Request: No valid Session ID provided", Some(json!("server-error")), true),
        (-32600, "Bad Request: the header `x-key` is missing", Some(Value::Null), false),
        // With the id of the request.
        (-32001, "Session not found", None, true),
        (-32602, "`session_id` must be a UUID", None, false),
    ] {
        let refusing = move |request: Request, next: Next| {
            let id = id.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let response = next.run(Request::from_parts(parts, body.into())).await;
                let id = id.unwrap_or_else(|| sent["id"].clone());
                let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
                match response.status() {
                    StatusCode::NOT_FOUND => (StatusCode::BAD_REQUEST, axum::Json(error)).into_response(),
                    _ => response,
                }
            }
        };
        let first = host(Peer::older(true), 0).await;
        let (server, _) = server(McpConfig { listen: false, ..http(&first.url) });
        assert_eq!(text(server.call(&call("fail", json!({}))).await), "out of paper");
        let peer = Peer::older(true);
        let router = Router::new().fallback_service(service(&peer)).layer(axum::middleware::from_fn(refusing));
        let second = host_router(peer, router, first.ended().await).await;
        let answer = server.call(&call("ask", json!({}))).await;
        if is_told {
            assert_eq!(text(answer).lines().next(), Some("Nobody: decline"), "{message}");
            assert_eq!(second.peer.seen(), ["ask began", "Nobody: decline"], "the call was made once");
        } else {
            let is_refused = match &answer {
                Ok(ToolReply::Done(output)) => output.is_error,
                Ok(ToolReply::Pending(_) | ToolReply::InputRequired(_)) => false,
                Err(error) => error.kind == ToolErrorKind::InvalidArguments && error.message.contains(message),
            };
            assert!(is_refused && second.peer.seen().is_empty(), "{message}: {answer:?}");
        }
    }
}

/// The list is asked for in another conversation, and so are those behind it.
async fn forgets_before_a_list() {
    let first = host(Peer::older(true), 0).await;
    let (server, _) = server(McpConfig { listen: false, list_max_age: Duration::ZERO, ..http(&first.url) });
    assert_eq!(server.list().await.expect("a list").len(), 15);
    let second = instead_of(first).await;
    for lists in 1..=2 {
        assert_eq!(server.list().await.expect("a list of another conversation").len(), 15);
        assert_eq!(second.peer.lists(), lists);
    }
}

/// A server says that it tells of changes, and has no stream on which it could: its list holds for its time alone.
async fn untold() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let begun = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": true } },
        "serverInfo": { "name": "scripted", "version": "1" } });
    let host = scripted(move |method| match method {
        "initialize" => Some(begun.clone()),
        "tools/list" => {
            counted.fetch_add(1, Ordering::SeqCst);
            Some(json!({ "tools": [{ "name": "a", "inputSchema": {} }] }))
        }
        _ => None,
    })
    .await;
    for (list_max_age, asked) in [(Duration::from_secs(300), 1), (Duration::ZERO, 2)] {
        let (server, _) = server(McpConfig { list_max_age, ..http(&host.url) });
        lists.store(0, Ordering::SeqCst);
        for _ in 0..2 {
            assert_eq!(server.list().await.expect("a list").len(), 1);
        }
        assert_eq!(lists.load(Ordering::SeqCst), asked);
    }
}

async fn away() {
    let (held, port) = held_port();
    let (server, _) = server(http(&format!("http://127.0.0.1:{port}/mcp")));
    server.list().await.expect_err("away");
    drop(held);
    let host = host(Peer::default(), port).await;
    assert_eq!(server.list().await.expect("a list").len(), 15);
    assert_eq!(host.peer.lists(), 1);
}

/// The state of the call `long`, which goes on as a task.
async fn looked_at(server: &McpServer, pending: Option<Value>) -> Result<Value, ToolError> {
    match server.call(&ToolCall { pending, ..call("long", json!({})) }).await? {
        ToolReply::Pending(Pending { state, .. }) => Ok(state),
        other @ (ToolReply::Done(_) | ToolReply::InputRequired(_)) => panic!("pending, not {other:?}"),
    }
}

/// How a task stands is asked where no list is to be had.
async fn unlisted_task() {
    let peer = Peer::default();
    let unlisting = move |request: Request, next: Next| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
        match String::from_utf8_lossy(&body).contains("tools/list") {
            true => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            false => next.run(Request::from_parts(parts, body.into())).await,
        }
    };
    let router = Router::new().fallback_service(service(&peer)).layer(axum::middleware::from_fn(unlisting));
    let listing = host(peer.clone(), 0).await;
    let silent = host_router(peer, router, 0).await;
    let (first, _) = server(http(&listing.url));
    let begun = looked_at(&first, None).await.expect("it is taken");
    let (second, _) = server(http(&silent.url));
    second.list().await.expect_err("it lists nothing");
    looked_at(&second, Some(begun)).await.expect("it works");
    assert_eq!(silent.peer.seen(), ["long began", "long looked at"]);
}

/// A task is given up only when its server could not be asked many times in a row.
async fn task_away() {
    let first = host(Peer::default(), 0).await;
    let (there, _) = server(http(&first.url));
    let mut state = looked_at(&there, None).await.expect("it is taken");
    let (_held, port) = held_port();
    let (away, _) = server(http(&format!("http://127.0.0.1:{port}/mcp")));
    for _ in 0..20 {
        state = looked_at(&away, Some(state)).await.expect("it is asked again");
    }
    let error = looked_at(&away, Some(state)).await.expect_err("it is away");
    assert!(error.uncertain && error.message.contains("no connection"), "{error}");
}

/// A server that answers each method with the result that `answer` gives.
async fn scripted(answer: impl Fn(&str) -> Option<Value> + Clone + Send + Sync + 'static) -> crate::world::Host {
    let handle = move |body: String| {
        let answer = answer.clone();
        async move {
            let request: Value = serde_json::from_str(&body).unwrap_or_default();
            let method = request["method"].as_str().unwrap_or_default();
            let result = answer(method).or_else(|| {
                (method == "initialize").then(|| {
                    json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "scripted", "version": "1" } })
                })
            });
            match (result, request.get("id")) {
                (Some(result), Some(id)) => {
                    axum::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
                }
                (None, Some(_)) => StatusCode::BAD_REQUEST.into_response(),
                (_, None) => StatusCode::ACCEPTED.into_response(),
            }
        }
    };
    host_router(Peer::default(), Router::new().route("/mcp", post(handle)), 0).await
}

/// A person is asked.
async fn asks_in_other_words() {
    let handle = |body: String| async move {
        let request: Value = serde_json::from_str(&body).unwrap_or_default();
        let answer = |result: Value| json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        match request["method"].as_str() {
            Some("initialize") => axum::Json(answer(json!({
                "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                "serverInfo": { "name": "asks", "version": "1" },
            })))
            .into_response(),
            Some("tools/list") => {
                let tool = json!({ "name": "a", "inputSchema": {}, "annotations": { "readOnlyHint": true } });
                axum::Json(answer(json!({ "tools": [tool] }))).into_response()
            }
            Some("tools/call") => {
                let name = json!({ "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null });
                let schema = json!({ "type": "object", "properties": { "name": name } });
                let params = json!({ "message": "Who?", "requestedSchema": schema });
                let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
                let result = answer(json!({ "content": [] }));
                // Nobody waits for it who has heard the question.
                let later = async move {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    result
                };
                let messages = stream::iter([question]).chain(stream::once(later));
                let events = messages.map(|message| Ok::<_, Infallible>(Event::default().data(message.to_string())));
                Sse::new(events).into_response()
            }
            Some("server/discover") => StatusCode::BAD_REQUEST.into_response(),
            Some(_) | None => StatusCode::ACCEPTED.into_response(),
        }
    };
    let host = host_router(Peer::default(), Router::new().route("/mcp", post(handle)), 0).await;
    let (server, _) = server(http(&host.url));
    let asked = match server.call(&call("a", json!({}))).await {
        Ok(ToolReply::InputRequired(asked)) => asked,
        other => panic!("a question, not {other:?}"),
    };
    assert_eq!((asked.message.as_str(), &asked.schema["properties"]["name"]["default"]), ("Who?", &Value::Null));
    assert!(asked.schema["properties"]["name"]["anyOf"].is_array(), "{:?}", asked.schema);
}

/// The ends of the streams on which somebody listens.
type Streams = Arc<Mutex<Vec<mpsc::Sender<Value>>>>;

/// A server that asks beside its answers. One who listens is heard behind `late`, and a call is refused once where it has
/// `forgotten` the conversation.
fn asking_aside(streams: &Streams, forgotten: &Arc<AtomicBool>, late: Duration) -> Router {
    let opened = streams.clone();
    let listen = move || {
        let opened = opened.clone();
        async move {
            tokio::time::sleep(late).await;
            let (sender, receiver) = mpsc::channel::<Value>(1);
            opened.lock().expect("a lock").push(sender);
            let messages =
                stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
            let events = messages.map(|message| Ok::<_, Infallible>(Event::default().data(message.to_string())));
            Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_millis(50)))
        }
    };
    let asking = streams.clone();
    let forgetting = forgotten.clone();
    let handle = move |body: String| {
        let open = asking.lock().expect("a lock").iter().rev().find(|sender| !sender.is_closed()).cloned();
        let forgetting = forgetting.clone();
        async move {
            let request: Value = serde_json::from_str(&body).unwrap_or_default();
            let answer = |result: Value| {
                let message = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
                ([("mcp-session-id", "s1")], axum::Json(message)).into_response()
            };
            match request["method"].as_str() {
                Some("initialize") => answer(json!({
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "asks", "version": "1" },
                })),
                Some("tools/list") => {
                    let tool = json!({ "name": "a", "inputSchema": {}, "annotations": { "readOnlyHint": true } });
                    answer(json!({ "tools": [tool] }))
                }
                Some("tools/call") if forgetting.swap(false, Ordering::SeqCst) => StatusCode::NOT_FOUND.into_response(),
                Some("tools/call") => {
                    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
                    let params = json!({ "message": "Who?", "requestedSchema": schema });
                    let question =
                        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
                    match open {
                        Some(open) => open.send(question).await.expect("somebody listens"),
                        None => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
                    }
                    // Nobody waits for it who has heard the question.
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    answer(json!({ "content": [] }))
                }
                Some("server/discover") => StatusCode::BAD_REQUEST.into_response(),
                Some(_) | None => StatusCode::ACCEPTED.into_response(),
            }
        }
    };
    Router::new().route("/mcp", get(listen).post(handle))
}

/// What a server asks beside a call is heard where nobody listens between calls, and the stream goes with the call.
async fn asks_aside() {
    let (streams, forgotten) = (Streams::default(), Arc::new(AtomicBool::new(false)));
    let host = host_router(Peer::default(), asking_aside(&streams, &forgotten, Duration::ZERO), 0).await;
    let (server, _) = server(McpConfig { listen: false, ..http(&host.url) });
    assert_eq!(server.list().await.expect("a list").len(), 1);
    assert!(streams.lock().expect("a lock").is_empty(), "nobody listens between calls");
    for calls in 1..=2 {
        let reply = server.call(&call("a", json!({}))).await;
        assert!(matches!(&reply, Ok(ToolReply::InputRequired(asked)) if asked.message == "Who?"), "{reply:?}");
        let is_over = || async { streams.lock().expect("a lock").iter().all(mpsc::Sender::is_closed) };
        crate::world::until("the stream goes", is_over).await;
        assert_eq!(streams.lock().expect("a lock").len(), calls);
    }
    // The call begins another conversation, in which nobody listens yet.
    forgotten.store(true, Ordering::SeqCst);
    let reply = server.call(&call("a", json!({}))).await;
    assert!(matches!(&reply, Ok(ToolReply::InputRequired(asked)) if asked.message == "Who?"), "{reply:?}");
}

/// The same where somebody listens all the time, and is not heard yet when the first call is made.
async fn asks_who_listens() {
    let router = asking_aside(&Streams::default(), &Arc::default(), Duration::from_millis(300));
    let host = host_router(Peer::default(), router, 0).await;
    let (server, _) = server(http(&host.url));
    let reply = server.call(&call("a", json!({}))).await;
    assert!(matches!(&reply, Ok(ToolReply::InputRequired(asked)) if asked.message == "Who?"), "{reply:?}");
}

async fn no_list() {
    for result in [json!({ "tools": "none" }), json!({ "n": 1 })] {
        let host = scripted(move |method| (method == "tools/list").then(|| result.clone())).await;
        let (server, _) = server(http(&host.url));
        let error = server.list().await.expect_err("no list");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
        assert!(error.message.contains("no list of tools"), "{error}");
    }
}

/// What is wrong in it is left out alone, and named.
async fn half_a_list() {
    for ending in [json!({}), json!({ "resultType": "complete" })] {
        let mut page = json!({ "tools": [
            { "name": "a", "inputSchema": {} }, { "name": "b" }, { "title": "nameless" },
            { "name": "two words", "inputSchema": {} }, { "name": "a", "inputSchema": {} },
            { "name": "wrong", "inputSchema": { "type": "array" } }, { "name": "c", "inputSchema": {} },
        ] });
        page.as_object_mut().expect("an object").extend(ending.as_object().expect("an object").clone());
        let host = scripted(move |method| (method == "tools/list").then(|| page.clone())).await;
        let (server, _) = server(http(&host.url));
        let names: Vec<String> = server.list().await.expect("a list").into_iter().map(|spec| spec.name).collect();
        assert_eq!(names, ["a", "c"]);
        let left_out = server.left_out().await;
        let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["two words", "a", "wrong", "b", "(without a name)"]);
        assert!(left_out.iter().all(|(_, reason)| !reason.is_empty()), "{left_out:?}");
    }
}

async fn circle() {
    let page = json!({ "tools": [{ "name": "a", "inputSchema": {} }], "nextCursor": "again" });
    let host = scripted(move |method| (method == "tools/list").then(|| page.clone())).await;
    let (server, _) = server(http(&host.url));
    let error = server.list().await.expect_err("a circle");
    assert!(error.kind == ToolErrorKind::Permanent && error.message.contains("circle"), "{error}");
    let page = json!({ "tools": [{ "name": "a", "inputSchema": {} }], "nextCursor": "" });
    let host = scripted(move |method| (method == "tools/list").then(|| page.clone())).await;
    let (server, _) = crate::world::server(http(&host.url));
    assert_eq!(server.list().await.expect("a list with an end").len(), 1, "an empty cursor is none");
}

async fn vague() {
    let host = scripted(move |method| match method {
        "server/discover" => Some(json!({})),
        "tools/list" => Some(json!({ "tools": [{ "name": "a", "inputSchema": {} }] })),
        _ => None,
    })
    .await;
    let (server, _) = server(http(&host.url));
    assert_eq!(server.list().await.expect("a list").len(), 1);
    let host = scripted(move |_| Some(json!({}))).await;
    let (server, _) = crate::world::server(http(&host.url));
    let error = server.list().await.expect_err("it says nothing");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, false), "{error}");
}

async fn no_tools() {
    let nothing = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "serverInfo": { "name": "scripted", "version": "1" } });
    let host = scripted(move |method| (method == "initialize").then(|| nothing.clone())).await;
    let (server, _) = server(http(&host.url));
    assert_eq!(server.list().await, Ok(Vec::new()));
    let untold = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "serverInfo": { "name": "scripted", "version": "1" } });
    let host = scripted(move |method| match method {
        "initialize" => Some(untold.clone()),
        "tools/list" => Some(json!({ "tools": [{ "name": "a", "inputSchema": {} }] })),
        _ => None,
    })
    .await;
    let (server, _) = crate::world::server(http(&host.url));
    assert_eq!(server.list().await.expect("what it does not say that it has").len(), 1);
}

async fn no_content() {
    for (result, missing) in [
        (json!({ "text": "sunny" }), "it has no `content`; "),
        (json!({ "content": "sunny" }), "its `content` is no list; "),
    ] {
        let host = scripted(move |method| match method {
            "tools/list" => Some(json!({ "tools": [{ "name": "a", "inputSchema": {} }] })),
            "tools/call" => Some(result.clone()),
            _ => None,
        })
        .await;
        let (server, _) = server(http(&host.url));
        let error = server.call(&call("a", json!({}))).await.expect_err("it is no result");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, true), "{error}");
        assert!(error.message.contains(missing) && error.message.contains("sunny"), "{error}");
        assert!(error.message.contains(r#""content": [{"type": "text""#), "{error}");
    }
}
