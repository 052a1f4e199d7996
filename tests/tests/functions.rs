//! The binaries of `functions/` themselves: started as processes, driven through the Lambda Runtime API, with state in
//! the embedded store that they share.

use std::fs::{self, File};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_api::keys::{CHANCE, KeyToken};
use dormouse_aws::ensure_table;
use dormouse_http::{CallbackSecret, CallbackSigner};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_tests::lambda::{self, LONGEST_RESPONSE, Lambda, RuntimeApi, SECRET, http_event};
use dormouse_tests::open_door;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn one_function_falls_asleep_and_another_wakes_up() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let endpoint = open_door(&store).await;

    let inbound = Lambda::start("dormouse-inbound", &endpoint).await;
    let message = json!({ "role": "user", "content": "please get an approval" });
    let waits = inbound.http("/chat/chat/sessions/s1/messages", "", &message).await;
    assert_eq!((&waits["statusCode"], status(&waits)), (&json!(202), json!("suspended")), "{waits}");
    let document = inbound.invoke(http_event("GET", "/openapi.json", "", &Value::Null)).await.expect("a document");
    assert!(body(&document)["paths"]["/graphs/{graph}/turns"]["post"].is_object());
    drop(inbound);

    let signal = Lambda::start("dormouse-signal", &endpoint).await;
    let callback = body(&waits)["callback_url"].as_str().expect("an address").to_owned();
    let (path, query) = callback.split_once('?').expect("a token");
    let done = signal.http(path, query, &json!({ "allowed": true })).await;
    assert_eq!((&done["statusCode"], status(&done)), (&json!(200), json!("completed")), "{done}");
    assert_eq!(body(&done)["session_id"], "s1");

    let invocation_id = &body(&done)["invocation_id"];
    let signal_id = format!("chat-{}", invocation_id.as_str().expect("an id"));
    let event = json!({ "id": "e1", "source": "dormouse", "detail-type": "Dormouse Signal",
        "detail": { "signal_id": signal_id, "payload": { "allowed": false } } });
    let duplicate = signal.invoke(event).await.expect("acknowledged");
    assert_eq!(duplicate, json!({ "status": "completed", "invocation_id": invocation_id, "repeated": true }));
    let error = signal.invoke(json!({ "source": "aws.s3" })).await.expect_err("raised");
    assert_eq!(error["errorType"], "unreadable_event");
    for path in ["/v1/tasks", "/openapi.json", "/console"] {
        let refused = signal.invoke(http_event("GET", path, "", &Value::Null)).await.expect("an answer");
        assert_eq!(refused["statusCode"], 404, "it serves turns and nothing else: {refused}");
    }

    let wakeup = Lambda::start("dormouse-wakeup", &endpoint).await;
    let late = json!({ "dormouse_wakeup": { "invocation_id": invocation_id, "generation": 1 } });
    assert_eq!(wakeup.invoke(late).await.expect("acknowledged")["status"], "stale");
    assert_eq!(wakeup.invoke(json!({ "dormouse_sweep": "due" })).await.expect("swept")["examined"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_streamed_begins_with_a_status() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let endpoint = open_door(&store).await;
    let stream = Lambda::start("dormouse-stream", &endpoint).await;
    let mut asked = http_event("GET", "/v1/tasks/task_1/stream", "", &Value::Null);
    asked["headers"]["harn-agents-protocol-version"] = PROTOCOL_VERSION.into();
    asked["headers"]["authorization"] = format!("Bearer {}", KeyToken::generate([7; CHANCE]).reveal()).into();
    let refused = stream.invoke(asked).await.expect("an answer to an HTTP request");
    assert_eq!(
        (&refused["statusCode"], &refused["headers"]["content-type"]),
        (&json!(401), &json!("application/json"))
    );
    assert_eq!(body(&refused)["error"]["code"], "unauthenticated", "{refused}");
    let health = stream.invoke(http_event("GET", "/health", "", &Value::Null)).await.expect("an answer");
    assert_eq!((&health["statusCode"], &body(&health)["ok"]), (&json!(200), &json!(true)), "{health}");
    let elsewhere = stream.invoke(http_event("GET", "/openapi.json", "", &Value::Null)).await.expect("an answer");
    assert_eq!(elsewhere["statusCode"], 501, "it streams and nothing else: {elsewhere}");
    let error = stream.invoke(json!({ "version": "1.0", "path": "/v1/tasks" })).await.expect_err("raised");
    assert_eq!(error["errorType"], "unreadable_event");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_opens_with_a_key_alone_and_its_end_is_noted() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let api = RuntimeApi::start(Duration::from_secs(60)).await;
    let mut command = api.function(&lambda::function_binary("dormouse-socket"), &open_door(&store).await);
    command.env("DORMOUSE_SOCKET_URL", "ws://127.0.0.1:9/prod");
    command.env("DORMOUSE_API_URL", "https://api.example.com");
    let socket = Lambda::spawn(api, command);
    let change = |change: &str| json!({ "requestContext": { "eventType": change, "connectionId": "c1" } });
    let mut opened = change("CONNECT");
    opened["queryStringParameters"] = json!({ "path": "/v1/tasks/task_1/stream" });
    opened["headers"] = json!({ "Harn-Agents-Protocol-Version": PROTOCOL_VERSION });
    let nobody = socket.invoke(opened.clone()).await.expect("an answer");
    assert_eq!((&nobody["statusCode"], &body(&nobody)["error"]["code"]), (&json!(401), &json!("unauthenticated")));
    opened["headers"]["Authorization"] = format!("Bearer {}", KeyToken::generate([7; CHANCE]).reveal()).into();
    let stranger = socket.invoke(opened).await.expect("an answer");
    assert_eq!(stranger["statusCode"], 401, "a key that nobody made: {stranger}");
    let mut frame = change("MESSAGE");
    frame["body"] = json!({ "type": "ping" }).to_string().into();
    let closed = json!({ "statusCode": 200 });
    assert_eq!(socket.invoke(frame).await.expect("an answer"), closed, "nobody opened it, and nobody is answered");
    assert_eq!(socket.invoke(change("DISCONNECT")).await.expect("an answer"), closed);
    let error = socket.invoke(http_event("GET", "/v1/tasks", "", &Value::Null)).await.expect_err("raised");
    assert_eq!(error["errorType"], "unreadable_event");
}

/// Behind its answer a function is frozen, and may never go on: what it logged has left by then, the failure included.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_function_logs_is_with_the_collector_before_it_answers() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let endpoint = open_door(&store).await;
    for name in ["dormouse-socket", "dormouse-wakeup"] {
        let sent = Arc::new(Mutex::new(String::new()));
        let kept = sent.clone();
        let take = move |uri: Uri, body: Bytes| async move {
            let mut kept = kept.lock().expect("a lock");
            kept.push_str(uri.path());
            kept.push_str(&String::from_utf8_lossy(&body));
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let collector = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
        let api = RuntimeApi::start(Duration::from_secs(60)).await;
        let mut command = api.function(&lambda::function_binary(name), &endpoint);
        command.env("DORMOUSE_SOCKET_URL", "ws://127.0.0.1:9/prod");
        command.env("DORMOUSE_API_URL", "https://api.example.com");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector);
        let function = Lambda::spawn(api, command);
        let error = function.invoke(json!({ "source": "aws.s3" })).await.expect_err("raised");
        assert_eq!(error["errorType"], "unreadable_event", "{name}");
        let sent = sent.lock().expect("a lock").clone();
        assert!(sent.contains("/v1/logs") && sent.contains("could not handle the event"), "{name}: {sent}");
    }
}

/// Where warnings alone are logged, each has the id that its client was told.
#[tokio::test(flavor = "multi_thread")]
async fn a_warning_names_its_request_where_nothing_less_is_logged() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let endpoint = open_door(&store).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let api = RuntimeApi::start(Duration::from_secs(60)).await;
    let mut command = api.function(&lambda::function_binary("dormouse-inbound"), &endpoint);
    command.env("DORMOUSE_LOG", "warn").stdout(File::create(&path).expect("a file"));
    let inbound = Lambda::spawn(api, command);
    let incomplete = json!({ "state": { "employee": "Ada" } });
    let refused = inbound.http("/graphs/expense-approval/turns", "", &incomplete).await;
    let request_id = refused["headers"]["x-request-id"].as_str().expect("an id");
    let log = fs::read_to_string(&path).expect("a log");
    let line = log.lines().find(|line| line.contains("the turn failed")).expect("a warning");
    assert!(line.contains(request_id), "{line}");
}

/// Each turn says so many quotation marks, and the script repeats them: in the answer to the second turn they are longer than
/// Lambda takes as a text, and the third has a state that no answer may hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_state_no_answer_holds_is_told_and_runs_once() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let inbound = Lambda::start("dormouse-inbound", &open_door(&store).await).await;
    let turn = async |id: &str, content: String| {
        let messages = json!([{ "role": "user", "content": content }]);
        let turn = json!({ "state": { "messages": messages }, "session_id": "s1", "invocation_id": id });
        let answer = inbound.http("/graphs/chat/turns", "", &turn).await;
        assert!(answer.to_string().len() < LONGEST_RESPONSE);
        assert_eq!(
            (&answer["statusCode"], status(&answer)),
            (&json!(200), json!("completed")),
            "{:.1000}",
            body(&answer)
        );
        answer
    };
    let marks = "\"".repeat(400_000);
    turn("first", marks.clone()).await;
    let second = turn("second", marks.clone()).await;
    let messages = |answer: &Value| body(answer)["state"]["messages"].as_array().map(Vec::len);
    assert_eq!((&second["isBase64Encoded"], messages(&second)), (&json!(true), Some(4)));
    let omitted = |answer: &Value| {
        let body = body(answer);
        assert!(body.get("state").is_none(), "{body:.1000}");
        body["state_omitted"]["bytes"].as_u64().expect("a size")
    };
    let third = turn("third", marks.clone()).await;
    let bytes = omitted(&third);
    assert!((4_500_000..5_000_000).contains(&bytes), "{bytes}");
    let again = turn("third", marks).await;
    assert_eq!(
        (omitted(&again), &body(&third)["repeated"], &body(&again)["repeated"]),
        (bytes, &json!(false), &json!(true))
    );
    let fourth = omitted(&turn("fourth", "hi".to_owned()).await);
    assert!((bytes + 50..bytes + 1_000).contains(&fourth), "{bytes}, {fourth}: the third was heard once");
    let url = body(&third)["status_url"].as_str().expect("an address").to_owned();
    let (path, token) = url.split_once('?').expect("a token");
    let some = http_event("GET", path, &format!("{token}&fields=allowed"), &Value::Null);
    assert_eq!(body(&inbound.invoke(some).await.expect("an answer"))["state"], json!({ "allowed": null }));
}

/// A DynamoDB that answers every request with this code, or never.
async fn dynamodb(code: Option<&'static str>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let refuse = move || async move {
        match code {
            Some(code) => (StatusCode::BAD_REQUEST, Json(json!({ "__type": code, "message": "scripted" }))),
            None => std::future::pending().await,
        }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(refuse)).await });
    endpoint
}

/// What `POST /graphs/expense-approval/turns` and `GET /invocations/i` are answered.
async fn failures(endpoint: &str, deadline: Duration) -> Vec<Value> {
    let inbound = Lambda::start_with("dormouse-inbound", endpoint, deadline).await;
    let state = json!({ "state": { "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" } });
    let turn = inbound.http("/graphs/expense-approval/turns", "", &state).await;
    let token = CallbackSigner::new(CallbackSecret::new(SECRET)).token(&"i".into(), 1, None, jiff::Timestamp::MAX);
    let look_up = http_event("GET", "/invocations/i", &format!("token={token}"), &Value::Null);
    let looked_up = inbound.invoke(look_up).await.expect("an answer to an HTTP request");
    vec![turn, looked_up]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_stays_busy_is_told_within_the_deadline() {
    lambda::build_functions().await;
    for (code, deadline) in [(Some("ThrottlingException"), 30), (Some("ThrottlingException"), 2), (None, 6)] {
        let endpoint = dynamodb(code).await;
        let answers = failures(&endpoint, Duration::from_secs(deadline)).await;
        // A commit that was not answered to its end may have been written: only who looks may be told to come again. In two
        // seconds the store may have given up or not.
        let in_doubt = [code.is_none() || (deadline == 2 && answers[0]["statusCode"] == 504), false];
        for (answer, in_doubt) in answers.iter().zip(in_doubt) {
            let error = &body(answer)["error"];
            assert_eq!(
                (&error["retry_safe"], &error["bucket"]),
                (&json!(!in_doubt), &json!("retryable_transient")),
                "{code:?} {deadline}: {error}"
            );
            let (status, wait) = if in_doubt { (504, Value::Null) } else { (503, json!("5")) };
            assert_eq!((&answer["statusCode"], &answer["headers"]["retry-after"]), (&json!(status), &wait), "{answer}");
        }
        let wakeup = Lambda::start_with("dormouse-wakeup", &endpoint, Duration::from_secs(deadline)).await;
        let due = json!({ "dormouse_wakeup": { "invocation_id": "i", "generation": 1 } });
        let error = wakeup.invoke(due).await.expect_err("the service delivers it again");
        let categories = ["suspension_persistence_failed", "turn_deadline_exceeded"];
        assert!(categories.iter().any(|category| error["errorType"] == *category), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_request_names_action_and_table() {
    lambda::build_functions().await;
    let endpoint = dynamodb(Some("AccessDeniedException")).await;
    let answers = failures(&endpoint, Duration::from_secs(20)).await;
    for (answer, action) in answers.iter().zip(["TransactWriteItems", "GetItem"]) {
        let error = &body(answer)["error"];
        assert_eq!((&answer["statusCode"], &error["bucket"]), (&json!(500), &json!("session_terminating")), "{answer}");
        assert_eq!(error["category"], "suspension_persistence_failed");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(&format!("{action} on table dormouse: AccessDeniedException")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_environment_stops_the_function_with_one_line() {
    lambda::build_functions().await;
    let api = RuntimeApi::start(Duration::from_secs(1)).await;
    for function in ["dormouse-inbound", "dormouse-signal", "dormouse-stream", "dormouse-wakeup"] {
        let knows_agents = function != "dormouse-stream";
        let mut command = api.function(&lambda::function_binary(function), "nowhere");
        command.env_remove("DORMOUSE_TABLE").env_remove("AWS_REGION").env_remove("AWS_LAMBDA_FUNCTION_NAME");
        command.env("DORMOUSE_WAKEUP_ARN", "the other function").env("DORMOUSE_SIGNAL_KEY", "short");
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it starts");
        assert!(!output.status.success());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let [line] = lines[..] else { panic!("{text}") };
        for fault in [
            "DORMOUSE_TABLE is missing",
            "AWS_REGION is missing",
            "AWS_LAMBDA_FUNCTION_NAME is missing",
            "AWS_ENDPOINT_URL must begin",
        ] {
            assert!(line.contains(fault), "{fault}: {line}");
        }
        for fault in ["DORMOUSE_WAKEUP_ARN must be an ARN", "DORMOUSE_SIGNAL_KEY needs at least 16 bytes"] {
            assert_eq!(line.contains(fault), knows_agents, "{fault}: {line}");
        }
    }
}

fn body(answer: &Value) -> Value {
    let body = answer["body"].as_str().expect("a body");
    if answer["isBase64Encoded"] == true {
        return serde_json::from_slice(&STANDARD.decode(body).expect("Base64")).expect("JSON");
    }
    serde_json::from_str(body).expect("JSON")
}

fn status(answer: &Value) -> Value {
    body(answer)["status"].clone()
}
