use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Router, response::IntoResponse};
use dormouse_local::{ScriptedModel, ScriptedTurn};
use dormouse_protocol::request::{IDEMPOTENCY_HEADER, VERSION_HEADER};
use dormouse_protocol::resource::{Task, TaskStatus};
use dormouse_protocol::{Event, PROTOCOL_VERSION};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::process::{Dormouse, program, text};

const MODEL: &str = "scripted-1";
/// How long to wait until the next look.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to look for something that must happen; a look may be a program that runs to its end. Nothing is proved by it
/// being short.
const PATIENCE: Duration = Duration::from_secs(300);

/// A workspace that `dormouse new` wrote, its model, and the office where its tool books rooms.
pub(crate) struct Assistant {
    pub(crate) place: TempDir,
    pub(crate) model: ScriptedModel,
    pub(crate) office: Office,
    /// Milliseconds that the model thinks.
    pub(crate) thinks: Arc<AtomicU64>,
    script: Arc<Mutex<Option<Script>>>,
}

/// What a model does instead.
type Script = Box<dyn Fn(&Value) -> ScriptedTurn + Send + Sync>;

impl Assistant {
    pub(crate) async fn hired() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let thinks = Arc::new(AtomicU64::new(0));
        let time = thinks.clone();
        let script: Arc<Mutex<Option<Script>>> = Arc::default();
        let other = script.clone();
        let respond = move |request: &Value| match &*other.lock().expect("a lock") {
            Some(script) => script(request),
            None => answer(request).after(Duration::from_millis(time.load(Ordering::SeqCst))),
        };
        let model = ScriptedModel::start(MODEL, Arc::new(respond)).await.expect("a model");
        let office = Office::open().await;
        let assistant = Self { place, model, office, thinks, script };
        let written = command(&["new", &assistant.folder(), "--template", "assistant"]);
        assert!(written.status.success(), "{written:?}");
        let url = assistant.model.base_url();
        let key = "${env.ASSISTANT_KEY}";
        assistant.write(
            ".openharness/models/models.yaml",
            &format!("main:\n  provider: openai-compatible\n  name: {MODEL}\n  url: {url}\n  key: {key}\n"),
        );
        assistant.write(
            ".openharness/tools/settings.yaml",
            &format!(
                "book:\n  http:\n    method: POST\n    url: {}/book\n    description: Books a room.\n    \
                 input_schema: {{type: object, properties: {{room: {{type: string}}}}, required: [room]}}\n",
                assistant.office.url
            ),
        );
        let checked = command(&["workspace", "check", &assistant.folder()]);
        assert!(checked.status.success(), "{checked:?}");
        assistant
    }

    /// From now on the model does what `script` says.
    pub(crate) fn answers(&self, script: impl Fn(&Value) -> ScriptedTurn + Send + Sync + 'static) {
        *self.script.lock().expect("a lock") = Some(Box::new(script));
    }

    pub(crate) fn folder(&self) -> String {
        self.place.path().join("helper").display().to_string()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        fs::write(PathBuf::from(self.folder()).join(path), text).expect("a file");
    }

    /// `dormouse dev --workspace`.
    pub(crate) fn serve(&self) -> Dormouse {
        self.serve_in(&[])
    }

    /// The same, with `environment` more.
    pub(crate) fn serve_in(&self, environment: &[(&'static str, &'static str)]) -> Dormouse {
        Dormouse::start_in(self.place.path(), &["--workspace", &self.folder(), "--no-tour"], environment)
    }

    /// Sends `said` to the assistant, and gives the id of the task.
    pub(crate) fn send(&self, dormouse: &Dormouse, said: &str) -> String {
        let sent = dormouse.command(&["send", "--persona", "assistant", "--json", said]).output().expect("it runs");
        assert!(sent.status.success(), "{sent:?}");
        text(&serde_json::from_slice(&sent.stdout).expect("a task"), "id").to_owned()
    }

    /// The text of each request that the model was sent, in order.
    pub(crate) async fn asked(&self, times: usize) {
        eventually("the model is asked", || self.model.requests().len() >= times).await;
    }
}

/// What the model does: it books a room when it is asked to, says what came of it, and else repeats the question.
fn answer(request: &Value) -> ScriptedTurn {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().cloned().unwrap_or_default();
    let said = last["content"].as_str().unwrap_or_default();
    if last["role"] == "tool" {
        return ScriptedTurn::saying(format!("The office says: {said}"));
    }
    match said.strip_prefix("book ") {
        Some(rooms) => rooms
            .split(" and ")
            .fold(ScriptedTurn::saying(""), |turn, room| turn.and_calling("book", json!({ "room": room }).to_string())),
        None => ScriptedTurn::saying(format!("You said: {said}")),
    }
}

/// Runs the command line to its end.
pub(crate) fn command(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("it runs")
}

pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// An office that books rooms, and knows the key of each booking.
pub(crate) struct Office {
    pub(crate) url: String,
    bookings: Arc<Bookings>,
    serving: JoinHandle<std::io::Result<()>>,
}

#[derive(Default)]
struct Bookings {
    done: Mutex<Vec<(String, Value)>>,
    /// Milliseconds between the booking and its answer.
    tarries: AtomicU64,
    /// Whether what comes of a booking is told later.
    defers: AtomicBool,
    /// Where it is to be told.
    callbacks: Mutex<Vec<String>>,
}

impl Office {
    async fn open() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let bookings = Arc::new(Bookings::default());
        let large = get(|| async { "all that there is ".repeat(2 << 20 >> 4) });
        let routes = Router::new().route("/book", post(book)).route("/large", large).with_state(bookings.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, bookings, serving }
    }

    /// The bookings so far, each with its idempotency key.
    pub(crate) fn bookings(&self) -> Vec<(String, Value)> {
        self.bookings.done.lock().expect("a lock").clone()
    }

    /// From now on it takes a booking and tells later what came of it.
    pub(crate) fn defer(&self) {
        self.bookings.defers.store(true, Ordering::SeqCst);
    }

    /// The addresses at which to tell what came of bookings.
    pub(crate) fn callbacks(&self) -> Vec<String> {
        self.bookings.callbacks.lock().expect("a lock").clone()
    }

    /// From now on it takes that long to say that it has booked.
    pub(crate) fn tarry(&self, milliseconds: u64) {
        self.bookings.tarries.store(milliseconds, Ordering::SeqCst);
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn book(
    State(bookings): State<Arc<Bookings>>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> impl IntoResponse {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let key = header("idempotency-key");
    // Who sees it below changes nothing about it any more.
    let tarries = Duration::from_millis(bookings.tarries.load(Ordering::SeqCst));
    let defers = bookings.defers.load(Ordering::SeqCst);
    if defers {
        bookings.callbacks.lock().expect("a lock").push(header("dormouse-callback-url"));
    } else {
        bookings.done.lock().expect("a lock").push((key, asked.clone()));
    }
    tokio::time::sleep(tarries).await;
    if defers {
        return (StatusCode::ACCEPTED, Json(json!({})));
    }
    (StatusCode::OK, Json(json!({ "booked": asked["room"] })))
}

/// A client of `/v1`.
pub(crate) struct Wire<'d> {
    dormouse: &'d Dormouse,
    client: reqwest::Client,
    key: String,
}

impl<'d> Wire<'d> {
    pub(crate) fn of(dormouse: &'d Dormouse) -> Self {
        Self::by(dormouse, &dormouse.api_key())
    }

    /// That of whoever has `key`.
    pub(crate) fn by(dormouse: &'d Dormouse, key: &str) -> Self {
        Self { dormouse, client: dormouse_tests::client(), key: key.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let request = self.client.get(self.dormouse.url(path)).header(VERSION_HEADER, PROTOCOL_VERSION);
        let response = request.bearer_auth(&self.key).send().await.expect("an answer");
        response.json().await.expect("JSON")
    }

    /// The status and the text that `path` answers with.
    pub(crate) async fn content(&self, path: &str) -> (u16, String) {
        let request = self.client.get(self.dormouse.url(path)).header(VERSION_HEADER, PROTOCOL_VERSION);
        let response = request.bearer_auth(&self.key).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("text"))
    }

    pub(crate) async fn post(&self, path: &str, key: &str, body: &Value) -> (u16, Value) {
        self.send((Method::POST, path), key, body).await
    }

    /// Sends any request that writes.
    pub(crate) async fn send(&self, (method, path): (Method, &str), key: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method, self.dormouse.url(path)).header(VERSION_HEADER, PROTOCOL_VERSION);
        let request = request.bearer_auth(&self.key).header(IDEMPOTENCY_HEADER, key).json(body);
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let said = response.bytes().await.expect("a body");
        (status, if said.is_empty() { Value::Null } else { serde_json::from_slice(&said).expect("JSON") })
    }

    /// Answers what `task` asks with `fields`, for `part` where it asks several things.
    pub(crate) async fn answer(&self, task: &str, part: Option<&str>, fields: Value) -> (u16, Value) {
        let metadata = part.map_or(json!({}), |part| json!({ "in_reply_to": part }));
        let parts = json!([{ "type": "json", "value": fields, "visibility": "public" }]);
        let body = json!({ "kind": "input", "message": { "role": "user", "parts": parts, "metadata": metadata } });
        let key = format!("{task}-{}-{fields}", part.unwrap_or_default());
        self.post(&format!("/v1/tasks/{task}/messages"), &key, &body).await
    }

    /// The task, once it has one of `statuses`.
    pub(crate) async fn task(&self, task: &str, statuses: &[TaskStatus]) -> Task {
        let began = Instant::now();
        loop {
            let seen = self.get(&format!("/v1/tasks/{task}")).await;
            let task: Task = serde_json::from_value(seen.clone()).unwrap_or_else(|error| panic!("{error}: {seen}"));
            if statuses.contains(&task.status) {
                return task;
            }
            assert!(!task.status.is_terminal(), "it ended: {seen}");
            assert!(began.elapsed() < PATIENCE, "it never came to {statuses:?}: {seen}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The events of a task so far.
    pub(crate) async fn events(&self, task: &str) -> Vec<Event> {
        let listed = self.get(&format!("/v1/events?task_id={task}&limit=200")).await;
        serde_json::from_value(listed["data"].clone()).unwrap_or_else(|error| panic!("{error}: {listed}"))
    }
}
