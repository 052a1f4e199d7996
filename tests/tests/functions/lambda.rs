//! As much of Lambda as a function sees of it: the Runtime API, on a port of the machine.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};

type Answer = Result<Value, Value>;

/// A running function.
pub(crate) struct Lambda {
    process: Child,
    events: mpsc::UnboundedSender<(Value, oneshot::Sender<Answer>)>,
}

#[derive(Clone)]
struct Runtime {
    events: Arc<Mutex<mpsc::UnboundedReceiver<(Value, oneshot::Sender<Answer>)>>>,
    /// Who waits for the answer to the event that is being served.
    waiting: Arc<Mutex<Option<oneshot::Sender<Answer>>>>,
    served: Arc<AtomicUsize>,
}

impl Lambda {
    /// Starts `binary` with its state in the store at `endpoint`.
    pub(crate) async fn start(binary: &str, endpoint: &str) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let runtime =
            Runtime { events: Arc::new(Mutex::new(receiver)), waiting: Arc::default(), served: Arc::default() };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .with_state(runtime);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let process = command(binary, &address, endpoint).spawn().expect("the function starts");
        Self { process, events }
    }

    /// Delivers `event`; an error is what the function reports as one.
    pub(crate) async fn invoke(&self, event: Value) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.events.send((event, answer)).expect("the runtime lives");
        let answered = tokio::time::timeout(std::time::Duration::from_secs(30), answered).await;
        answered.expect("an answer in time").expect("an answer")
    }

    /// Delivers a `POST` as API Gateway does.
    pub(crate) async fn http(&self, path: &str, query: &str, body: &Value) -> Value {
        let event = json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": query,
            "headers": { "content-type": "application/json" },
            "requestContext": {
                "http": { "method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "203.0.113.24" },
                "requestId": "JKJaXmPLvHcESHA=",
                "stage": "$default",
                "timeEpoch": 1_710_412_208_000_u64,
            },
            "body": body.to_string(),
            "isBase64Encoded": false,
        });
        self.invoke(event).await.expect("an answer to an HTTP request")
    }
}

impl Drop for Lambda {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn next(State(runtime): State<Runtime>) -> Result<(HeaderMap, Json<Value>), StatusCode> {
    let next = runtime.events.lock().await.recv().await;
    let (event, answer) = next.ok_or(StatusCode::GONE)?;
    *runtime.waiting.lock().await = Some(answer);
    let number = runtime.served.fetch_add(1, Ordering::Relaxed);
    let deadline = jiff::Timestamp::now().as_millisecond() + 30_000;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("lambda-runtime-aws-request-id", format!("request-{number}")),
        ("lambda-runtime-deadline-ms", deadline.to_string()),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:f".to_owned()),
    ] {
        headers.insert(name, HeaderValue::from_str(&value).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?);
    }
    Ok((headers, Json(event)))
}

async fn response(State(runtime): State<Runtime>, Path(_): Path<String>, body: String) -> StatusCode {
    answer(&runtime, Ok(&body)).await
}

async fn error(State(runtime): State<Runtime>, Path(_): Path<String>, body: String) -> StatusCode {
    answer(&runtime, Err(&body)).await
}

async fn answer(runtime: &Runtime, body: Result<&String, &String>) -> StatusCode {
    let read = |body: &String| serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.clone()));
    if let Some(waiting) = runtime.waiting.lock().await.take() {
        // Who asked may have given up.
        let _ = waiting.send(body.map(read).map_err(read));
    }
    StatusCode::ACCEPTED
}

/// The folder of the binaries of this build.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    test.parent().and_then(std::path::Path::parent).expect("a test lies in deps").to_owned()
}

fn command(binary: &str, runtime: &str, store: &str) -> Command {
    let arn = "arn:aws:lambda:us-east-1:123456789012:function:f";
    let mut command = Command::new(folder().join(binary));
    command.env_clear().envs([
        ("AWS_LAMBDA_RUNTIME_API", runtime),
        ("AWS_LAMBDA_FUNCTION_NAME", binary),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "nobody"),
        ("AWS_SECRET_ACCESS_KEY", "nothing"),
        ("AWS_ENDPOINT_URL", store),
        ("DORMOUSE_TABLE", "dormouse"),
        ("DORMOUSE_CALLBACK_SECRET", "hush-hush-hush-hush-hush-hush-hush"),
        ("DORMOUSE_SIGNAL_KEY", "open-sesame-open-sesame"),
        ("DORMOUSE_BUS", "dormouse"),
        ("DORMOUSE_SCHEDULER_GROUP", "dormouse"),
        ("DORMOUSE_SCHEDULER_ROLE_ARN", arn),
        ("DORMOUSE_WAKEUP_ARN", arn),
        ("DORMOUSE_SIGNAL_ARN", arn),
        ("DORMOUSE_LOG", "warn"),
    ]);
    command
}

/// Builds the functions: testing one package does not build the binaries of others. The packages are named so that
/// everything beneath them is shared with the build of this test.
pub(crate) async fn build() {
    let target = folder();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--bins", "-p", "dormouse-tests"]);
    cargo.args(["-p", "dormouse-inbound", "-p", "dormouse-signal", "-p", "dormouse-wakeup"]);
    cargo.arg("--target-dir").arg(target.parent().expect("a target folder"));
    if target.ends_with("release") {
        cargo.arg("--release");
    }
    let built = tokio::task::spawn_blocking(move || cargo.status()).await.expect("cargo runs").expect("cargo starts");
    assert!(built.success(), "the functions do not build");
}
