//! As much of Lambda as a function sees of it: the Runtime API, on a port of the machine, and an environment.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::STORE_SECRET;

/// What a function answered, or what it reported as its error.
pub type Answer = Result<Value, Value>;

/// An event, and whom to tell what became of it.
type Delivery = (Value, oneshot::Sender<Answer>);

/// How long a response may be, in bytes: a longer one is refused, as Lambda does, and nobody is answered.
pub const LONGEST_RESPONSE: usize = 6 * 1024 * 1024;

/// The Runtime API for one function at a time.
#[derive(Debug)]
pub struct RuntimeApi {
    address: String,
    events: mpsc::UnboundedSender<Delivery>,
    deadline: Duration,
}

#[derive(Clone)]
struct Served {
    events: Arc<Mutex<mpsc::UnboundedReceiver<Delivery>>>,
    /// Who waits for the answer to the event that is being served.
    waiting: Arc<Mutex<Option<oneshot::Sender<Answer>>>>,
    count: Arc<AtomicUsize>,
    deadline: Duration,
}

impl RuntimeApi {
    /// Serves on a free port; every event has to be answered within `deadline`, as the function is told.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start(deadline: Duration) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let events_in = Arc::new(Mutex::new(receiver));
        let served = Served { events: events_in, waiting: Arc::default(), count: Arc::default(), deadline };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .layer(DefaultBodyLimit::max(LONGEST_RESPONSE))
            .with_state(served);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, events, deadline }
    }

    /// `binary` as Lambda starts it, with its state in the store at `endpoint`. The environment is complete and has
    /// nothing else in it.
    pub fn function(&self, binary: &Path, endpoint: &str) -> Command {
        let arn = "arn:aws:lambda:us-east-1:123456789012:function:f";
        let mut command = Command::new(binary);
        command.env_clear().envs([
            ("AWS_LAMBDA_RUNTIME_API", self.address.as_str()),
            ("AWS_LAMBDA_FUNCTION_NAME", "f"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"),
            ("AWS_SESSION_TOKEN", STORE_SECRET),
            ("AWS_ENDPOINT_URL", endpoint),
            ("DORMOUSE_TABLE", "dormouse"),
            ("DORMOUSE_CALLBACK_SECRET", SECRET),
            ("DORMOUSE_SIGNAL_KEY", SIGNAL_KEY),
            ("DORMOUSE_AUTHORIZATION", "NONE"),
            ("DORMOUSE_BUS", "dormouse"),
            ("DORMOUSE_SCHEDULER_GROUP", "dormouse"),
            ("DORMOUSE_SCHEDULER_ROLE_ARN", "arn:aws:iam::123456789012:role/r"),
            ("DORMOUSE_WAKEUP_ARN", arn),
            ("DORMOUSE_SIGNAL_ARN", arn),
            ("DORMOUSE_LOG", "warn"),
        ]);
        command
    }

    /// Has `event` ready for the function. What it answers, in time, comes out of the future.
    ///
    /// # Panics
    /// The future, when the function gave no answer well after the deadline.
    pub fn deliver(&self, event: Value) -> impl Future<Output = Answer> + use<> {
        let (answer, answered) = oneshot::channel();
        self.events.send((event, answer)).expect("the runtime lives");
        let patience = self.deadline + Duration::from_secs(120);
        async move {
            let answered = tokio::time::timeout(patience, answered).await;
            answered.expect("an answer in time").expect("an answer")
        }
    }
}

/// What signs the addresses of [`RuntimeApi::function`].
pub const SECRET: &str = "hush-hush-hush-hush-hush-hush-hush";
/// What senders of signals present to [`RuntimeApi::function`].
pub const SIGNAL_KEY: &str = "open-sesame-open-sesame";

/// A running function. It ends when it is dropped.
#[derive(Debug)]
pub struct Lambda {
    process: Child,
    api: RuntimeApi,
}

impl Lambda {
    /// Starts the function `name` of this build, with its state in the store at `endpoint` and 30 seconds for each
    /// event.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(name: &str, endpoint: &str) -> Self {
        Self::start_with(name, endpoint, Duration::from_secs(30)).await
    }

    /// The same with `deadline` for each event.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_with(name: &str, endpoint: &str, deadline: Duration) -> Self {
        let api = RuntimeApi::start(deadline).await;
        let command = api.function(&function_binary(name), endpoint);
        Self::spawn(api, command)
    }

    /// Starts `command`, which is a [`RuntimeApi::function`] of `api`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn spawn(api: RuntimeApi, mut command: Command) -> Self {
        let process = command.spawn().expect("the function starts");
        Self { process, api }
    }

    /// Delivers `event`.
    ///
    /// # Errors
    /// What the function reports as its error.
    pub async fn invoke(&self, event: Value) -> Answer {
        self.api.deliver(event).await
    }

    /// Delivers a `POST` as API Gateway does.
    ///
    /// # Panics
    /// When the function gives no answer to it.
    pub async fn http(&self, path: &str, query: &str, body: &Value) -> Value {
        self.invoke(http_event("POST", path, query, body)).await.expect("an answer to an HTTP request")
    }
}

impl Drop for Lambda {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A request as API Gateway hands it over.
pub fn http_event(method: &str, path: &str, query: &str, body: &Value) -> Value {
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": { "content-type": "application/json" },
        "requestContext": {
            "http": { "method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "203.0.113.24" },
            "requestId": "JKJaXmPLvHcESHA=",
            "stage": "$default",
            "timeEpoch": 1_710_412_208_000_u64,
        },
        "body": body.to_string(),
        "isBase64Encoded": false,
    })
}

async fn next(State(served): State<Served>) -> Result<(HeaderMap, Json<Value>), StatusCode> {
    let next = served.events.lock().await.recv().await;
    let (event, answer) = next.ok_or(StatusCode::GONE)?;
    *served.waiting.lock().await = Some(answer);
    let number = served.count.fetch_add(1, Ordering::Relaxed);
    let deadline = jiff::Timestamp::now().as_millisecond() + served.deadline.as_millis() as i64;
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

async fn response(State(served): State<Served>, body: String) -> StatusCode {
    answer(&served, Ok(&body)).await
}

async fn error(State(served): State<Served>, body: String) -> StatusCode {
    answer(&served, Err(&body)).await
}

/// What stands between status and headers, and the body, of an answer that is streamed.
const PRELUDE_ENDS: &str = "\0\0\0\0\0\0\0\0";

/// An answer as it is, or as it was said; one that was streamed as if it had been sent whole.
fn read(body: &str) -> Value {
    let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    match body.split_once(PRELUDE_ENDS) {
        None => json(body),
        Some((prelude, body)) => {
            let mut answer: Value = json(prelude);
            answer["body"] = body.into();
            answer
        }
    }
}

async fn answer(served: &Served, body: Result<&String, &String>) -> StatusCode {
    if let Some(waiting) = served.waiting.lock().await.take() {
        // Who asked may have given up.
        let _ = waiting.send(body.map(|body| read(body)).map_err(|body| read(body)));
    }
    StatusCode::ACCEPTED
}

/// The folder of the binaries of this build.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    test.parent().and_then(Path::parent).expect("a test lies in deps").to_owned()
}

/// The folder of functions that were built before, for example for another machine with programs that emulate it
/// (`make test-arm64`); otherwise those of this build are used.
fn built() -> Option<PathBuf> {
    std::env::var_os("DORMOUSE_FUNCTIONS").map(PathBuf::from)
}

/// The function `name`; [`build_functions`] makes it.
///
/// # Panics
/// When this process lies nowhere.
pub fn function_binary(name: &str) -> PathBuf {
    built().unwrap_or_else(folder).join(name)
}

/// Builds the functions, unless they are given: testing one package does not build the binaries of others. They are built
/// as a part of the workspace, so that everything beneath them is shared with the build of the test.
///
/// # Panics
/// When they do not build.
pub async fn build_functions() {
    if built().is_some() {
        return;
    }
    let target = folder();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace", "--bins"]);
    cargo.arg("--target-dir").arg(target.parent().expect("a target folder"));
    if target.ends_with("release") {
        cargo.arg("--release");
    }
    let built = tokio::task::spawn_blocking(move || cargo.status()).await.expect("cargo runs").expect("cargo starts");
    assert!(built.success(), "the functions do not build");
}
