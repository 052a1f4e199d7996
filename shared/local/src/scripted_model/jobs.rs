//! The same model over OpenAI's Responses: it also works in the background.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::script::{ScriptedReply, ScriptedTurn};
use super::{Model, refusal};

/// A job that the model was given.
#[derive(Clone, Debug)]
pub struct ScriptedJob {
    /// Its id.
    pub id: String,
    /// The idempotency key of the request that began it; empty where it had none.
    pub key: String,
    /// Number of times that it was asked for.
    pub polls: usize,
    /// True if it was canceled before it had ended.
    pub is_canceled: bool,
    request: Value,
    turn: ScriptedTurn,
    since: Instant,
}

impl ScriptedJob {
    fn is_done(&self) -> bool {
        self.since.elapsed() >= self.turn.delay
    }

    /// It has thought for long enough.
    pub(super) fn finish(&mut self) {
        self.turn.delay = Duration::ZERO;
    }

    fn body(&self) -> Value {
        match (self.is_canceled, self.is_done()) {
            (true, _) => body(&self.id, &self.request, "cancelled", json!([])),
            (false, false) => body(&self.id, &self.request, "in_progress", json!([])),
            (false, true) => self.ended(),
        }
    }

    fn ended(&self) -> Value {
        match &self.turn.reply {
            ScriptedReply::Answer { reasoning, text, calls } => {
                body(&self.id, &self.request, "completed", output(&self.id, reasoning, text, calls))
            }
            ScriptedReply::Refuse { message, .. } | ScriptedReply::Text(message) => {
                let mut body = body(&self.id, &self.request, "failed", json!([]));
                body["error"] = json!({ "code": "server_error", "message": message });
                body
            }
        }
    }
}

/// `POST /v1/responses`
pub(super) async fn create(State(model): State<Arc<Model>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Value = match dormouse_json::read(&body, dormouse_json::ENTRY) {
        Ok(request) => request,
        Err(error) => return refusal(400, &format!("the request is no JSON: {error}")),
    };
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let in_background = request["background"] == true;
    if let Some(known) = model.job(|job| !key.is_empty() && job.key == key) {
        return axum::Json(known.body()).into_response();
    }
    let request = as_chat(request);
    let Some(turn) = model.decided(&request) else {
        return refusal(404, &format!("The model `{}` does not exist", request["model"]));
    };
    if let ScriptedReply::Refuse { status, message, .. } = &turn.reply {
        return refusal(*status, message);
    }
    let job = model.begin(key, request, turn);
    if !in_background {
        tokio::time::sleep(job.turn.delay).await;
    }
    tokio::time::sleep(Duration::from_millis(model.tarries.load(Ordering::Relaxed))).await;
    axum::Json(job.body()).into_response()
}

/// `GET /v1/responses/{id}`
pub(super) async fn look(State(model): State<Arc<Model>>, Path(id): Path<String>) -> Response {
    told(model.change(&id, |job| job.polls += 1))
}

/// `POST /v1/responses/{id}/cancel`
pub(super) async fn cancel(State(model): State<Arc<Model>>, Path(id): Path<String>) -> Response {
    told(model.change(&id, |job| job.is_canceled |= !job.is_done()))
}

fn told(job: Option<ScriptedJob>) -> Response {
    match job {
        Some(job) => axum::Json(job.body()).into_response(),
        None => refusal(404, "there is no such response"),
    }
}

impl Model {
    fn begin(&self, key: String, request: Value, turn: ScriptedTurn) -> ScriptedJob {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("resp_{}", jobs.len() + 1);
        let job = ScriptedJob { id, key, polls: 0, is_canceled: false, request, turn, since: Instant::now() };
        jobs.push(job.clone());
        job
    }

    fn job(&self, is_it: impl Fn(&ScriptedJob) -> bool) -> Option<ScriptedJob> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|job| is_it(job)).cloned()
    }

    fn change(&self, id: &str, change: impl Fn(&mut ScriptedJob)) -> Option<ScriptedJob> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let job = jobs.iter_mut().find(|job| job.id == id)?;
        change(job);
        Some(job.clone())
    }
}

fn body(id: &str, request: &Value, status: &str, output: Value) -> Value {
    let usage = json!({ "input_tokens": 10, "output_tokens": 5, "total_tokens": 15 });
    json!({ "id": id, "object": "response", "model": request["model"], "status": status, "output": output, "usage": usage })
}

fn output(id: &str, reasoning: &str, text: &str, calls: &[(String, String)]) -> Value {
    let mut items = Vec::new();
    if !reasoning.is_empty() {
        let summary = json!([{ "type": "summary_text", "text": reasoning }]);
        items.push(json!({ "type": "reasoning", "id": format!("rs_{id}"), "summary": summary }));
    }
    if !text.is_empty() {
        let content = json!([{ "type": "output_text", "text": text }]);
        items.push(json!({ "type": "message", "role": "assistant", "content": content }));
    }
    items.extend(calls.iter().enumerate().map(|(at, (name, arguments))| {
        let call = format!("call_{id}_{at}");
        json!({ "type": "function_call", "call_id": call, "name": name, "arguments": arguments })
    }));
    Value::Array(items)
}

/// The request with `messages` as chat completions have them, so that one script does for both wires.
fn as_chat(mut request: Value) -> Value {
    let instructions = request.get("instructions").map(|text| json!({ "role": "system", "content": text }));
    let items = request["input"].as_array().cloned().unwrap_or_default();
    let message = |item: Value| match item["type"].as_str() {
        Some("function_call_output") => {
            json!({ "role": "tool", "tool_call_id": item["call_id"], "content": item["output"] })
        }
        Some("function_call") => {
            let function = json!({ "name": item["name"], "arguments": item["arguments"] });
            let call = json!({ "id": item["call_id"], "type": "function", "function": function });
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        }
        Some(_) | None => item,
    };
    request["messages"] = instructions.into_iter().chain(items.into_iter().map(message)).collect();
    request
}
