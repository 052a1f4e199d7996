//! A model of Amazon Bedrock over the real binary: signed requests, answers whole and as a stream of frames.

use std::io::Write;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message as Frame};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::world::{Assistant, Wire};
use super::{DONE, last_words};
use crate::process::{Dormouse, program};

const MODEL: &str = "amazon.nova-lite-v1:0";
const ACCESS: [(&str, &str); 3] = [
    ("AWS_REGION", "eu-central-1"),
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "the secret of an account"),
];

/// What Bedrock was asked: operation, `authorization`, body.
type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

struct Bedrock {
    url: String,
    asked: Asked,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Bedrock {
    async fn open() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Asked::default();
        let routes = Router::new().route("/model/{model}/{operation}", post(converse)).with_state(asked.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, asked, serving }
    }

    fn asked(&self) -> Vec<(String, String, Value)> {
        self.asked.lock().expect("a lock").clone()
    }
}

impl Drop for Bedrock {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// It books a room, and then says what came of it.
async fn converse(
    State(asked): State<Asked>,
    Path((model, operation)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    assert_eq!(model, MODEL);
    let signature = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    let is_told = request["messages"].to_string().contains("toolResult");
    asked.lock().expect("a lock").push((operation.clone(), signature, request));
    match operation.as_str() {
        "converse" => whole(is_told),
        _ => streamed(is_told),
    }
}

fn usage() -> Value {
    json!({ "inputTokens": 9, "outputTokens": 3, "totalTokens": 12 })
}

fn whole(is_told: bool) -> Response {
    let (content, stop) = match is_told {
        true => (json!([{ "text": "It is booked." }]), "end_turn"),
        false => {
            (json!([{ "toolUse": { "toolUseId": "t-1", "name": "book", "input": { "room": "blue" } } }]), "tool_use")
        }
    };
    let message = json!({ "role": "assistant", "content": content });
    axum::Json(json!({ "output": { "message": message }, "stopReason": stop, "usage": usage() })).into_response()
}

fn streamed(is_told: bool) -> Response {
    let delta = |delta: Value| frame("contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": delta }));
    let begun = frame("messageStart", &json!({ "role": "assistant" }));
    let (content, stop) = match is_told {
        true => (vec![delta(json!({ "text": "It is " })), delta(json!({ "text": "booked." }))], "end_turn"),
        false => {
            let start =
                json!({ "contentBlockIndex": 0, "start": { "toolUse": { "toolUseId": "t-1", "name": "book" } } });
            let input = |text: &str| delta(json!({ "toolUse": { "input": text } }));
            (vec![frame("contentBlockStart", &start), input("{\"room\":"), input("\"blue\"}")], "tool_use")
        }
    };
    let end = [frame("messageStop", &json!({ "stopReason": stop })), frame("metadata", &json!({ "usage": usage() }))];
    let bytes: Vec<u8> = [begun].into_iter().chain(content).chain(end).flatten().collect();
    ([("content-type", "application/vnd.amazon.eventstream")], bytes).into_response()
}

fn frame(name: &str, payload: &Value) -> Vec<u8> {
    let text = |text: &str| HeaderValue::String(text.to_owned().into());
    let frame = Frame::new(payload.to_string())
        .add_header(Header::new(":message-type", text("event")))
        .add_header(Header::new(":event-type", text(name)));
    let mut bytes = Vec::new();
    write_message_to(&frame, &mut bytes).expect("a frame");
    bytes
}

async fn hired() -> (Assistant, Bedrock) {
    let assistant = Assistant::hired().await;
    let bedrock = Bedrock::open().await;
    assistant.write(".openharness/settings.yaml", "default_agent: assistant\nmodels: {default: workspace/main}\n");
    let model = format!("main:\n  provider: bedrock\n  name: {MODEL}\n  url: {}\n", bedrock.url);
    assistant.write(".openharness/models/models.yaml", &model);
    (assistant, bedrock)
}

fn check(assistant: &Assistant, bedrock: &Bedrock, operation: &str) {
    let asked = bedrock.asked();
    assert_eq!(asked.iter().map(|(operation, _, _)| operation.as_str()).collect::<Vec<_>>(), [operation; 2]);
    for (_, signature, request) in &asked {
        assert!(signature.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{signature}");
        assert!(signature.contains("/eu-central-1/bedrock/aws4_request"), "{signature}");
        assert_eq!(request["toolConfig"]["tools"][0]["toolSpec"]["name"], "book", "{request}");
    }
    assert_eq!(asked[1].2["messages"][2]["content"][0]["toolResult"]["toolUseId"], "t-1", "{}", asked[1].2);
    assert_eq!(assistant.office.bookings().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_bedrock_runs_over_the_protocol() {
    let (assistant, bedrock) = hired().await;
    let dormouse =
        Dormouse::start_in(assistant.place.path(), &["--workspace", &assistant.folder(), "--no-tour"], &ACCESS);
    let task = assistant.send(&dormouse, "book blue");
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert_eq!(last_words(&dormouse, &task), "It is booked.");
    check(&assistant, &bedrock, "converse-stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_answers_are_streamed_in_the_terminal() {
    let (assistant, bedrock) = hired().await;
    let folder = assistant.folder();
    let shown = tokio::task::spawn_blocking(move || {
        let mut chat = program()
            .args(["chat", &folder])
            .envs(ACCESS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        writeln!(chat.stdin.take().expect("a pipe"), "book blue").expect("it listens");
        chat.wait_with_output().expect("it ends")
    });
    let shown = shown.await.expect("it ends");
    let told = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(told.contains("It is booked."), "{told}");
    check(&assistant, &bedrock, "converse-stream");
}
