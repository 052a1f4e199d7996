//! API Gateway HTTP APIs, payload version 2.0.

use std::time::Duration;

use aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_api::{Content, Response};
use futures::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode};
use lambda_runtime::MetadataPrelude;
use serde_json::{Map, Value, json};

use crate::{HttpRequest, TriggerError, percent};

/// Whether `event` is an HTTP request rather than an event of a bus.
pub(crate) fn is_http(event: &Value) -> bool {
    event.get("requestContext").is_some_and(|context| context.get("http").is_some())
}

/// Reads the request that `event` carries.
pub(crate) fn decode(event: Value, time_left: Option<Duration>) -> Result<HttpRequest, TriggerError> {
    let event: ApiGatewayV2httpRequest = serde_json::from_value(event).map_err(|error| {
        let expected = "expected an HTTP request of API Gateway, payload version 2.0";
        TriggerError::Unreadable(format!("an event that nobody here understands: {error}; {expected}"))
    })?;
    let context = &event.request_context;
    let path = without_stage(event.raw_path.as_deref().unwrap_or("/"), context.stage.as_deref());
    Ok(HttpRequest {
        method: context.http.method.as_str().to_owned(),
        path: percent::decode(path),
        query: event.raw_query_string.clone().unwrap_or_default(),
        headers: headers(&event),
        body: payload(&event)?,
        time_left,
    })
}

/// The answer as API Gateway takes it: whole. What is no text goes as base64.
pub(crate) async fn encode(response: Response) -> Value {
    let Response { status, headers, content } = response;
    let headers: Map<String, Value> = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    let bytes = match content {
        Content::Whole(bytes) => bytes,
        Content::Live(pieces) => pieces.concat().await,
    };
    let (body, is_base64) = match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(binary) => (STANDARD.encode(binary.as_bytes()), true),
    };
    json!({ "statusCode": status, "headers": headers, "body": body, "isBase64Encoded": is_base64 })
}

/// The beginning of an answer that is streamed: status and headers, as the runtime sends them before the first byte.
pub(crate) fn prelude(response: &Response) -> MetadataPrelude {
    let pairs = response
        .headers
        .iter()
        .filter_map(|(name, value)| Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?)));
    let status_code = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    MetadataPrelude { status_code, headers: pairs.collect(), cookies: Vec::new() }
}

/// A stage other than the default one is the first segment of the path.
fn without_stage<'a>(path: &'a str, stage: Option<&str>) -> &'a str {
    let stage = stage.filter(|stage| *stage != "$default");
    match stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage)) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) | None => path,
    }
}

/// Headers without those that only the gateway may set: the request is known by the id that the gateway gave it.
fn headers(event: &ApiGatewayV2httpRequest) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let sent = event.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())));
    let mut headers: Vec<_> = sent.filter(|(name, _)| name != "x-request-id").collect();
    if let Some(cookies) = event.cookies.as_ref().filter(|cookies| !cookies.is_empty()) {
        headers.push(("cookie".to_owned(), cookies.join("; ")));
    }
    if let Some(id) = &event.request_context.request_id {
        headers.push(("x-request-id".to_owned(), id.clone()));
    }
    headers
}

fn payload(event: &ApiGatewayV2httpRequest) -> Result<Vec<u8>, TriggerError> {
    match event.body.as_deref() {
        None => Ok(Vec::new()),
        Some(body) if event.is_base64_encoded => STANDARD
            .decode(body)
            .map_err(|error| TriggerError::Unreadable(format!("the body of the request is no base64: {error}"))),
        Some(body) => Ok(body.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(event: &str) -> HttpRequest {
        let event = serde_json::from_str(event).expect("JSON");
        assert!(is_http(&event));
        decode(event, None).expect("a request")
    }

    #[test]
    fn a_turn_is_read() {
        let request = request(include_str!("../tests/events/apigw-turn.json"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/graphs/expense-approval/turns"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("x-request-id"), Some("JKJaXmPLvHcESHA="));
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(body["state"]["amount_cents"], 12_500);
    }

    #[test]
    fn stage_cookies_base64_and_escapes_are_undone() {
        let request = request(include_str!("../tests/events/apigw-callback-stage-base64.json"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/callback/order/7"));
        assert_eq!(crate::http::query_value(&request, "token").as_deref(), Some("AAAAAAAAAAE-_x"));
        assert_eq!(request.header("cookie"), Some("session=abc; theme=dark"));
        assert_eq!(request.header("accept"), Some("text/html,application/json"));
        assert_eq!(request.body, br#"{"decision":"approved"}"#);
    }

    #[test]
    fn a_get_has_no_body() {
        let request = request(include_str!("../tests/events/apigw-get-status.json"));
        assert_eq!((request.method.as_str(), request.body.len()), ("GET", 0));
        assert_eq!(request.path, "/invocations/0b5f1f9e-3c0d-4c3e-9d6f-0f6f8f6a1c11");
    }

    #[test]
    fn only_a_whole_segment_is_the_stage() {
        assert_eq!(without_stage("/prod/health", Some("prod")), "/health");
        assert_eq!(without_stage("/prod", Some("prod")), "/");
        assert_eq!(without_stage("/production", Some("prod")), "/production");
        assert_eq!(without_stage("/health", Some("$default")), "/health");
    }

    #[test]
    fn an_event_of_a_bus_is_no_request() {
        let event = serde_json::from_str(include_str!("../tests/events/eventbridge-foreign.json")).expect("JSON");
        assert!(!is_http(&event));
        assert!(decode(event, None).is_err());
    }

    #[tokio::test]
    async fn an_answer_is_written() {
        let response = Response::json(202, &json!({ "status": "suspended" })).header("location", "/invocations/1");
        let expected = json!({
            "statusCode": 202,
            "headers": { "content-type": "application/json", "location": "/invocations/1" },
            "body": "{\"status\":\"suspended\"}",
            "isBase64Encoded": false,
        });
        assert_eq!(encode(response).await, expected);
    }

    #[tokio::test]
    async fn bytes_go_as_base64_and_streams_whole() {
        let of = |content| Response { status: 200, headers: Vec::new(), content };
        let picture = encode(of(Content::Whole(vec![0xff, 0x00]))).await;
        assert_eq!((&picture["body"], &picture["isBase64Encoded"]), (&json!("/wA="), &json!(true)));
        let pieces = futures::stream::iter([b"id: 1\n".to_vec(), b"\n".to_vec()]).boxed();
        assert_eq!(encode(of(Content::Live(pieces))).await["body"], "id: 1\n\n");
    }

    #[test]
    fn a_streamed_answer_begins_with_status_and_headers() {
        let prelude = prelude(&Response::json(404, &json!({})).header("x-request-id", "r").header("no\nname", "1"));
        assert_eq!((prelude.status_code.as_u16(), prelude.headers["x-request-id"].as_bytes()), (404, b"r".as_slice()));
        assert_eq!(prelude.headers.len(), 2);
    }
}
