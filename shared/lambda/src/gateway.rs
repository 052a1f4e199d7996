//! Payload version 2.0: what HTTP APIs of API Gateway and the addresses of functions send and take.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_http::{Content, Findings, Request, Response, TriggerError, percent};
use dormouse_ports::limits::ANSWER;
use futures::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode};
use lambda_runtime::MetadataPrelude;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// As much of a request as is looked at. What there is nothing for is left out, or `null`; what else there is, of
/// authorizers, certificates, routes and variables, may have any shape.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayEvent {
    raw_path: String,
    raw_query_string: Option<String>,
    cookies: Option<Vec<String>>,
    headers: Option<BTreeMap<String, Option<String>>>,
    request_context: Context,
    body: Option<String>,
    is_base64_encoded: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    http: Http,
    stage: Option<String>,
    request_id: Option<String>,
    authorizer: Option<Value>,
}

#[derive(Deserialize)]
struct Http {
    method: String,
}

/// True if `event` is an HTTP request rather than an event of a bus.
pub(crate) fn is_http(event: &Value) -> bool {
    event.get("requestContext").is_some_and(|context| context.get("http").is_some())
}

/// Reads the request that `event` carries.
pub(crate) fn decode(event: Value, time_left: Option<Duration>) -> Result<Request, TriggerError> {
    let event: GatewayEvent = serde_json::from_value(event).map_err(|error| {
        let expected = "expected an HTTP request, payload version 2.0";
        TriggerError::Unreadable(format!("an event that nobody here understands: {error}; {expected}"))
    })?;
    let body = payload(event.body, event.is_base64_encoded.unwrap_or(false))?;
    let Context { http, stage, request_id, authorizer } = event.request_context;
    Ok(Request {
        method: http.method,
        path: percent::decode(without_stage(&event.raw_path, stage.as_deref())),
        query: event.raw_query_string.unwrap_or_default(),
        headers: headers(event.headers.unwrap_or_default(), &event.cookies.unwrap_or_default(), request_id),
        caller: caller(authorizer.as_ref()),
        body,
        time_left,
        findings: Findings::default(),
    })
}

/// Caller with a signature that the gateway has checked: the ARN of a user, or of a role. Users of an identity pool
/// share a role; their identity distinguishes them.
fn caller(authorizer: Option<&Value>) -> Option<String> {
    let told = |of: &Value, name: &str| of.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let iam = authorizer?.get("iam")?;
    let arn = without_session(told(iam, "userArn")?);
    let identity = iam.get("cognitoIdentity").and_then(|cognito| told(cognito, "identityId"));
    Some(identity.map_or_else(|| arn.clone(), |identity| format!("{arn} {identity}")))
}

/// Prefix of the names of the roles that Identity Center makes.
const OF_PEOPLE: &str = "AWSReservedSSO_";

/// The ARN of the caller that took a role, without the name of the session: that caller chooses the name, so that it
/// proves nothing, and a task that is started again has another. Only where Identity Center gave the role it is the
/// name of a person, which they do not choose.
fn without_session(arn: String) -> String {
    match arn.split_once(":assumed-role/").and_then(|(_, taken)| taken.split_once('/')) {
        Some((role, session)) if !role.starts_with(OF_PEOPLE) => arn[..arn.len() - session.len() - 1].to_owned(),
        Some(_) | None => arn,
    }
}

/// The most bytes that the body of an answer has within what is handed over: those of the longest one as Base64.
const MOST: usize = ANSWER.div_ceil(3) * 4;

/// The answer as API Gateway takes it: whole. What is no text goes as Base64, and so does a text that its escapes would
/// make longer than Lambda takes.
pub(crate) async fn encode(response: Response) -> Value {
    let Response { status, headers, content } = response;
    let headers: Map<String, Value> = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    let bytes = match content {
        Content::Whole(bytes) => bytes,
        Content::Live(pieces) => pieces.concat().await,
    };
    let (body, is_base64) = match String::from_utf8(bytes) {
        Ok(text) if escaped(&text) <= MOST => (text, false),
        Ok(text) => (STANDARD.encode(text), true),
        Err(binary) => (STANDARD.encode(binary.as_bytes()), true),
    };
    json!({ "statusCode": status, "headers": headers, "body": body, "isBase64Encoded": is_base64 })
}

/// Number of bytes that `text` has within a string of JSON.
fn escaped(text: &str) -> usize {
    let escape = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escape).sum()
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

/// Headers, their names in lower case, without those that only the gateway may set: the request is known by the id that
/// the gateway gave it.
fn headers(
    sent: BTreeMap<String, Option<String>>,
    cookies: &[String],
    request_id: Option<String>,
) -> Vec<(String, String)> {
    let sent = sent.into_iter().filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value?)));
    let mut headers: Vec<_> = sent.filter(|(name, _)| name != "x-request-id").collect();
    if !cookies.is_empty() {
        headers.push(("cookie".to_owned(), cookies.join("; ")));
    }
    headers.extend(request_id.map(|id| ("x-request-id".to_owned(), id)));
    headers
}

fn payload(body: Option<String>, is_base64: bool) -> Result<Vec<u8>, TriggerError> {
    let body = body.unwrap_or_default();
    if !is_base64 {
        return Ok(body.into_bytes());
    }
    let wrong = |error| TriggerError::Unreadable(format!("the body of the request is no base64: {error}"));
    STANDARD.decode(body).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(event: &str) -> Request {
        let event = serde_json::from_str(event).expect("JSON");
        assert!(is_http(&event));
        decode(event, None).expect("a request")
    }

    #[test]
    fn a_turn_is_read() {
        let request = request(include_str!("../../http/tests/events/apigw-turn.json"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/graphs/expense-approval/turns"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("x-request-id"), Some("JKJaXmPLvHcESHA="));
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(body["state"]["amount_cents"], 12_500);
    }

    #[test]
    fn stage_cookies_base64_and_escapes_are_undone() {
        let request = request(include_str!("../../http/tests/events/apigw-callback-stage-base64.json"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/callback/order/7"));
        assert_eq!(request.query_value("token").as_deref(), Some("AAAAAAAAAAE-_x"));
        assert_eq!(request.header("cookie"), Some("session=abc; theme=dark"));
        assert_eq!(request.header("accept"), Some("text/html,application/json"));
        assert_eq!(request.body, br#"{"decision":"approved"}"#);
    }

    #[test]
    fn a_get_has_no_body() {
        let request = request(include_str!("../../http/tests/events/apigw-get-status.json"));
        assert_eq!((request.method.as_str(), request.body.len()), ("GET", 0));
        assert_eq!(request.path, "/invocations/0b5f1f9e-3c0d-4c3e-9d6f-0f6f8f6a1c11");
    }

    /// A role that may begin turns signs its requests; browsers and proxies send names in any alphabet.
    #[test]
    fn a_signed_turn_is_read_whatever_else_the_gateway_tells_of_it() {
        let request = request(include_str!("../../http/tests/events/apigw-turn-signed.json"));
        assert_eq!(request.header("user-agent"), Some("Grün/1.0"));
        assert_eq!(request.caller.as_deref(), Some("arn:aws:iam::123456789012:user/ada"));
        assert_eq!(request.header("traceparent"), Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        assert_eq!((request.query.as_str(), request.header("cookie")), ("", None));
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(body["state"]["employee"], "Ada");
    }

    #[test]
    fn values_of_a_query_stay_apart_and_claims_and_certificates_have_any_shape() {
        let request = request(include_str!("../../http/tests/events/apigw-list-jwt.json"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/v1/tasks"));
        assert_eq!(request.query, "state=running&state=waiting&label=a%26b%3Dc&cursor=");
        assert_eq!(request.query_value("label").as_deref(), Some("a&b=c"));
        assert_eq!(request.query_value("state"), None, "nobody can say which one counts");
        assert_eq!((request.body.len(), request.header("cookie")), (0, None));
    }

    #[test]
    fn only_a_signature_that_the_gateway_has_checked_names_a_caller() {
        let user = |id: &str| {
            let arn = "arn:aws:sts::123456789012:assumed-role/pool/CognitoIdentityCredentials";
            json!({ "iam": { "userArn": arn, "cognitoIdentity": { "identityId": id } } })
        };
        let pool = "arn:aws:sts::123456789012:assumed-role/pool";
        assert_eq!(caller(Some(&user("eu-central-1:7"))), Some(format!("{pool} eu-central-1:7")));
        assert_ne!(caller(Some(&user("eu-central-1:7"))), caller(Some(&user("eu-central-1:8"))));
        let unsigned =
            [json!(null), json!({ "jwt": { "claims": {} } }), json!({ "iam": { "userArn": "" } }), json!("x")];
        for authorizer in &unsigned {
            assert_eq!(caller(Some(authorizer)), None, "{authorizer}");
        }
        assert_eq!(caller(None), None);
    }

    #[test]
    fn sessions_of_a_role_are_one_caller_and_people_are_not() {
        let of = |taken: &str| {
            let arn = format!("arn:aws:sts::123456789012:assumed-role/{taken}");
            let told =
                json!({ "iam": { "userArn": arn, "cognitoIdentity": null, "callerId": format!("AROA:{taken}") } });
            caller(Some(&told)).expect("a caller")
        };
        let worker = "arn:aws:sts::123456789012:assumed-role/worker";
        assert_eq!([of("worker/task-1"), of("worker/task-2")], [worker, worker]);
        assert_ne!(of("worker/task-1"), of("worker2/task-1"));
        let people =
            ["ada@example.com", "grace@example.com"].map(|name| of(&format!("AWSReservedSSO_Dev_0a1b/{name}")));
        assert!(people[0].ends_with("/ada@example.com") && people[0] != people[1], "{people:?}");
        for arn in ["arn:aws:iam::123456789012:user/team/ada", "arn:aws:sts::123456789012:federated-user/ada"] {
            assert_eq!(caller(Some(&json!({ "iam": { "userArn": arn } }))).as_deref(), Some(arn));
        }
    }

    #[test]
    fn the_address_of_a_function_sends_the_same() {
        let request = request(include_str!("../../http/tests/events/function-url.json"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/v1/sessions/team/7/events/stream"));
        assert_eq!(request.header("x-request-id"), Some("b7b1ab6c-6c3e-4f1c-9f7e-5f2f3c7d1a10"));
        assert_eq!(request.header("last-event-id"), Some("12"));
    }

    #[test]
    fn what_is_null_is_as_good_as_missing() {
        let context = |stage: Value| json!({ "http": { "method": "GET", "path": null }, "stage": stage });
        let least = json!({ "rawPath": "/health", "requestContext": context(Value::Null) });
        let nulls = json!({
            "version": "2.0", "rawPath": "/health", "rawQueryString": null, "cookies": null, "body": null,
            "headers": { "Accept": "*/*", "x-nothing": null }, "isBase64Encoded": null,
            "requestContext": context("$default".into()), "pathParameters": null, "stageVariables": null,
        });
        let headers = [Vec::new(), vec![("accept".to_owned(), "*/*".to_owned())]];
        for (event, headers) in [least, nulls].into_iter().zip(headers) {
            let request = decode(event, None).expect("a request");
            let expected = Request { method: "GET".to_owned(), path: "/health".to_owned(), ..Request::default() };
            assert_eq!((request.method, request.path, request.query), (expected.method, expected.path, expected.query));
            assert_eq!((request.headers, request.body), (headers, Vec::new()));
        }
    }

    #[test]
    fn requests_of_another_version_are_refused_and_not_taken_for_the_index() {
        let without_path = json!({ "version": "2.0", "requestContext": { "http": { "method": "GET" } } });
        let texts =
            [include_str!("../../http/tests/events/apigw-rest.json"), include_str!("../../http/tests/events/alb.json")];
        let others = texts.map(|text| serde_json::from_str(text).expect("JSON"));
        let bad_base64 = json!({
            "rawPath": "/", "requestContext": { "http": { "method": "POST" } }, "body": "{}", "isBase64Encoded": true,
        });
        for event in others.into_iter().chain([without_path, bad_base64, json!(null), json!("GET /")]) {
            let refused = decode(event.clone(), None);
            assert!(matches!(refused, Err(TriggerError::Unreadable(_))), "{event}");
        }
    }

    #[test]
    fn only_a_whole_segment_is_the_stage() {
        assert_eq!(without_stage("/prod/health", Some("prod")), "/health");
        assert_eq!(without_stage("/prod", Some("prod")), "/");
        assert_eq!(without_stage("/production", Some("prod")), "/production");
        assert_eq!(without_stage("/health", Some("$default")), "/health");
    }

    #[test]
    fn what_else_triggers_functions_is_no_request() {
        let events = [
            include_str!("../../http/tests/events/eventbridge-foreign.json"),
            include_str!("../../http/tests/events/eventbridge-dormouse-signal.json"),
            include_str!("../../http/tests/events/eventbridge-transformed.json"),
            include_str!("../../http/tests/events/eventbridge-scheduled.json"),
            include_str!("../../http/tests/events/scheduler-without-input.json"),
            include_str!("../../http/tests/events/sqs-signal.json"),
            include_str!("../../http/tests/events/lambda-destination-failed.json"),
            include_str!("../../http/tests/events/apigw-rest.json"),
            include_str!("../../http/tests/events/alb.json"),
            "{}",
            "[]",
            "null",
        ];
        for event in events {
            let event: Value = serde_json::from_str(event).expect("JSON");
            assert!(!is_http(&event), "{event}");
            assert!(decode(event, None).is_err());
        }
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
    fn escapes_are_counted() {
        let all: String = (0..=0x7f).map(char::from).chain("ü€😀\u{2028}".chars()).collect();
        assert_eq!(escaped(&all) + 2, Value::from(all).to_string().len());
    }

    /// Largest response that Lambda takes: 6 MB.
    #[tokio::test]
    async fn the_longest_answer_is_taken_whatever_it_says() {
        for (byte, is_base64) in [(b'a', false), (b'"', true), (1, true), (0xff, true)] {
            let content = Content::Whole(vec![byte; ANSWER]);
            let answer = encode(Response { status: 200, headers: Vec::new(), content }).await;
            assert_eq!(answer["isBase64Encoded"], is_base64, "{byte}");
            assert!(answer.to_string().len() < 6_000_000, "{byte}");
            let body = answer["body"].as_str().expect("a body").to_owned();
            let said = if is_base64 { STANDARD.decode(body).expect("Base64") } else { body.into_bytes() };
            assert!(said == vec![byte; ANSWER], "{byte}");
        }
    }

    #[test]
    fn a_streamed_answer_begins_with_status_and_headers() {
        let prelude = prelude(&Response::json(404, &json!({})).header("x-request-id", "r").header("no\nname", "1"));
        assert_eq!((prelude.status_code.as_u16(), prelude.headers["x-request-id"].as_bytes()), (404, b"r".as_slice()));
        assert_eq!(prelude.headers.len(), 2);
    }
}
