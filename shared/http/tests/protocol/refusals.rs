//! Requests that do not pass, and what all responses have in common.

use std::pin::pin;
use std::time::Duration;

use dormouse_http::Request;
use dormouse_protocol::request::{IDEMPOTENCY_HEADER, MAX_BODY_BYTES, VERSION_HEADER};
use dormouse_protocol::{Operation, PROTOCOL_VERSION};

use crate::world::{World, header, json_of};

/// The request without the header `name`.
fn without(mut request: Request, name: &str) -> Request {
    request.headers.retain(|(given, _)| !given.eq_ignore_ascii_case(name));
    request
}

fn with(request: Request, name: &str, value: &str) -> Request {
    let mut request = without(request, name);
    request.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    request
}

#[tokio::test]
async fn each_objection_has_its_status_its_code_and_the_id_of_the_request() {
    let world = World::new();
    let list = || world.request("GET", "/v1/tasks", "");
    let create = |body: &str| world.request("POST", "/v1/sessions", body);
    let large = format!("{{\"workspace_id\": \"{}\"}}", "x".repeat(MAX_BODY_BYTES));
    let cases = [
        (world.request("GET", "/nothing", ""), 404, "resource_not_found"),
        (world.request("GET", "/v1/nothing", ""), 404, "resource_not_found"),
        (world.request("GET", "", ""), 404, "resource_not_found"),
        (world.request("DELETE", "/v1/tasks", ""), 405, "invalid_request"),
        (world.request("POST", "/docs", ""), 405, "invalid_request"),
        (without(list(), VERSION_HEADER), 426, "unsupported_protocol_version"),
        (with(list(), VERSION_HEADER, "agents-protocol-1999-01-01"), 426, "unsupported_protocol_version"),
        (without(list(), "authorization"), 401, "unauthenticated"),
        (world.request("GET", "/v1/tasks?limit=1&limit=2", ""), 400, "invalid_request"),
        (world.request("GET", "/v1/tasks?a=%FF", ""), 400, "invalid_request"),
        (create(&large), 413, "payload_too_large"),
        (with(create("{}"), "content-type", "text/plain"), 415, "invalid_request"),
        (with(create("\u{1f}\u{8b}"), "content-encoding", "gzip"), 415, "invalid_request"),
        (with(create("{}"), "if-match", "\"x\""), 412, "invalid_request"),
        (with(create("{}"), "if-none-match", "*"), 412, "invalid_request"),
        (with(world.request("PATCH", "/v1/sessions/session_1", "{}"), "if-match", "*"), 412, "invalid_request"),
        (create(""), 400, "invalid_request"),
        (create("[]"), 400, "invalid_request"),
        (create("{"), 400, "invalid_request"),
        (with(create("{}"), IDEMPOTENCY_HEADER, ""), 400, "invalid_request"),
        (with(create("{}"), IDEMPOTENCY_HEADER, &"x".repeat(256)), 400, "invalid_request"),
    ];
    for (request, status, code) in cases {
        let shown = format!("{} {}", request.method, request.path);
        let response = world.server.http(request).await;
        let (given, body) = json_of(&response);
        assert_eq!((given, body["error"]["code"].as_str()), (status, Some(code)), "{shown}: {body}");
        assert_eq!(body["error"]["request_id"].as_str(), header(&response, "x-request-id"), "{shown}");
    }
    assert!(world.desk.calls.lock().unwrap().is_empty(), "nothing was served");
}

#[tokio::test]
async fn what_passes_arrives_as_it_was_asked() {
    let world = World::new();
    let request = world.request("POST", "/v1/sessions?a=b", r#"{"workspace_id": "w"}"#);
    let response = world.server.http(with(request, IDEMPOTENCY_HEADER, "again")).await;
    assert_eq!(json_of(&response).0, 201);
    assert_eq!(header(&response, "harn-agents-protocol-version"), Some(PROTOCOL_VERSION));
    assert_eq!(header(&response, "content-type"), Some("application/json"));
    let call = world.desk.calls.lock().unwrap().pop().unwrap();
    assert_eq!((call.operation, call.target.as_str()), (Operation::CreateSession, "/v1/sessions"));
    assert_eq!((call.actor.name.as_str(), call.actor.tenant.as_str()), ("ada", "acme"));
    assert_eq!(call.idempotency_key.unwrap().as_str(), "again");
    assert_eq!(call.query.get("a"), Some("b"));
}

#[tokio::test]
async fn bytes_and_nothing_are_answers_too() {
    let world = World::new();
    let response = world.get("/v1/artifacts/artifact_1/content").await;
    assert_eq!((response.status, header(&response, "content-type")), (200, Some("image/png")));
    let response = world.server.http(world.request("DELETE", "/v1/memories/memory_1", "")).await;
    assert_eq!((response.status, header(&response, "content-type")), (204, None));
}

#[tokio::test]
async fn a_panic_is_an_answer_with_the_id_of_the_request() {
    let world = World::new();
    let request = with(world.request("GET", "/v1/quotas", ""), "x-request-id", "given-by-the-gateway");
    let (status, body) = json_of(&world.server.http(request).await);
    assert_eq!((status, body["error"]["code"].as_str()), (500, Some("internal_error")));
    assert_eq!(body["error"]["request_id"], "given-by-the-gateway");
    assert!(!body.to_string().contains("quotas"), "{body}");
}

#[tokio::test]
async fn an_id_of_a_request_that_is_no_word_is_not_taken_over() {
    let world = World::new();
    for odd in ["", "a b", &"x".repeat(201)] {
        let response = world.server.http(with(world.request("GET", "/v1", ""), "x-request-id", odd)).await;
        assert!(header(&response, "x-request-id").is_some_and(|id| id.starts_with("req_")), "{odd:?}");
    }
}

#[tokio::test]
async fn who_waits_hears_something_before_the_worker_is_stopped() {
    let world = World::new();
    let request = Request { time_left: Some(Duration::from_secs(3)), ..world.request("GET", "/v1/connectors", "") };
    let mut answer = pin!(world.server.http(request));
    assert!(futures::poll!(&mut answer).is_pending());
    world.clock.advance(Duration::from_secs(4));
    let (status, body) = json_of(&answer.await);
    assert_eq!((status, body["error"]["code"].as_str()), (504, Some("deadline_exceeded")));
}
