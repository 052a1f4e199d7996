//! A model without a network: an OpenAI-compatible server on the loopback interface that says what it is told to.
//!
//! Behind the real provider code it stands for a model in tests and in the tour. It answers as servers of that wire do,
//! in one piece or streamed, and it can fail in the ways in which they do. It also works in the background, as OpenAI's
//! Responses has it.

mod jobs;
mod script;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use jobs::ScriptedJob;
pub use script::{ScriptedFault, ScriptedReply, ScriptedTurn};

/// Decides what the model does with a request: the body as it came.
pub type Respond = Arc<dyn Fn(&Value) -> ScriptedTurn + Send + Sync>;

/// A model that runs. It stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Value>>>,
    jobs: Arc<Mutex<Vec<ScriptedJob>>>,
    tarries: Arc<AtomicU64>,
    serving: JoinHandle<io::Result<()>>,
}

impl ScriptedModel {
    /// Starts a model called `name` at a free port. It asks `respond` at each request.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(name: &str, respond: Respond) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let jobs = Arc::new(Mutex::new(Vec::new()));
        let tarries = Arc::new(AtomicU64::new(0));
        let name = name.to_owned();
        let (asked, begun, tarry) = (requests.clone(), jobs.clone(), tarries.clone());
        let model = Arc::new(Model { name, respond, requests: asked, jobs: begun, tarries: tarry });
        let routes = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(complete))
            .route("/v1/responses", post(jobs::create))
            .route("/v1/responses/{id}", get(jobs::look))
            .route("/v1/responses/{id}/cancel", post(jobs::cancel))
            .with_state(model);
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { address, requests, jobs, tarries, serving })
    }

    /// Starts a model that takes `turns` one after the other, and says so when it has no more.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn with_turns(name: &str, turns: impl IntoIterator<Item = ScriptedTurn>) -> io::Result<Self> {
        let turns = Mutex::new(turns.into_iter().collect::<std::collections::VecDeque<_>>());
        let next = move |_: &Value| {
            let next = turns.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            next.unwrap_or_else(|| ScriptedTurn::failing(500, "the script of the model is at its end"))
        };
        Self::start(name, Arc::new(next)).await
    }

    /// The base address for a provider.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Jobs that it was given over OpenAI's Responses, in order. Two requests with one idempotency key are one job.
    pub fn jobs(&self) -> Vec<ScriptedJob> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it tells that long after it has begun a job which one it is.
    pub fn tarry(&self, time: Duration) {
        self.tarries.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Every job that works still is done now, with its answer.
    pub fn finish_jobs(&self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.iter_mut().for_each(ScriptedJob::finish);
    }

    /// The bodies of the requests so far; those of OpenAI's Responses also have `messages`, as chat completions have them.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Model {
    name: String,
    respond: Respond,
    requests: Arc<Mutex<Vec<Value>>>,
    jobs: Arc<Mutex<Vec<ScriptedJob>>>,
    /// Milliseconds.
    tarries: Arc<AtomicU64>,
}

impl Model {
    /// What it does with `request`, which is noted when that is decided: whoever sees it there changes nothing about it any
    /// more. `None` where another model is asked.
    fn decided(&self, request: &Value) -> Option<ScriptedTurn> {
        let turn = (request["model"] == self.name.as_str()).then(|| (self.respond)(request));
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        turn
    }
}

async fn models(State(model): State<Arc<Model>>) -> Response {
    axum::Json(json!({ "object": "list", "data": [{ "id": model.name, "object": "model" }] })).into_response()
}

async fn complete(State(model): State<Arc<Model>>, body: Bytes) -> Response {
    let request: Value = match dormouse_json::read(&body, dormouse_json::ENTRY) {
        Ok(request) => request,
        Err(error) => return refusal(400, &format!("the request is no JSON: {error}")),
    };
    let Some(turn) = model.decided(&request) else {
        return refusal(404, &format!("The model `{}` does not exist", request["model"]));
    };
    tokio::time::sleep(turn.delay).await;
    match &turn.reply {
        ScriptedReply::Refuse { status, message, retry_after } => {
            let mut answer = refusal(*status, message);
            if let Some(seconds) = retry_after {
                answer.headers_mut().insert("retry-after", (*seconds).into());
            }
            answer
        }
        ScriptedReply::Text(text) => (StatusCode::OK, text.clone()).into_response(),
        ScriptedReply::Answer { .. } if request["stream"] == true => wire::streamed(&request, turn),
        ScriptedReply::Answer { .. } => wire::whole(&request, turn),
    }
}

fn refusal(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status == StatusCode::NOT_FOUND { "model_not_found" } else { "scripted" };
    let body = json!({ "error": { "message": message, "type": kind, "code": kind } });
    (status, [("content-type", "application/json")], Body::from(body.to_string())).into_response()
}
