//! What is sent.

use dormouse_protocol::Event;
use dormouse_protocol::resource::{TaskStatus, WebhookFormat};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::ASKS_PERSON;

/// The body of a delivery of `event`; `None` where it says nothing in this format.
pub(super) fn body_of(format: WebhookFormat, event: &Event) -> Option<Value> {
    match format {
        WebhookFormat::Standard => {
            Some(json!({ "type": event.event.as_str(), "timestamp": event.envelope.created_at, "data": event }))
        }
        WebhookFormat::A2a => {
            let state = json!({ "state": a2a_state(a2a_status(event)?), "timestamp": event.envelope.created_at });
            Some(json!({ "kind": "task", "id": event.task_id, "contextId": event.session_id, "status": state }))
        }
    }
}

/// The status that `event` gives to a task, as clients of A2A are told of it: a task that waits for a job, an event or a
/// time asks nobody, and is at work for them.
pub fn a2a_status(event: &Event) -> Option<TaskStatus> {
    let status = TaskStatus::deserialize(event.payload.get("status")?).ok()?;
    let asks_nobody = event.payload.get("request").is_some_and(|request| request[ASKS_PERSON] == false);
    Some(if status.is_suspended() && asks_nobody { TaskStatus::Working } else { status })
}

/// The state of a task as A2A 0.3.0 calls it.
pub fn a2a_state(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Submitted => "submitted",
        TaskStatus::Working => "working",
        TaskStatus::InputRequired => "input-required",
        TaskStatus::AuthRequired => "auth-required",
        TaskStatus::Completed => "completed",
        TaskStatus::Failed => "failed",
        TaskStatus::Canceled => "canceled",
    }
}
