//! What is sent.

use dormouse_protocol::Event;
use dormouse_protocol::resource::{TaskStatus, WebhookFormat};
use serde::Deserialize;
use serde_json::{Value, json};

/// The body of a delivery of `event`; `None` where it says nothing in this format.
pub(super) fn body_of(format: WebhookFormat, event: &Event) -> Option<Value> {
    match format {
        WebhookFormat::Standard => {
            Some(json!({ "type": event.event.as_str(), "timestamp": event.envelope.created_at, "data": event }))
        }
        WebhookFormat::A2a => {
            let status = TaskStatus::deserialize(event.payload.get("status")?).ok()?;
            let state = json!({ "state": a2a_state(status), "timestamp": event.envelope.created_at });
            Some(json!({ "kind": "task", "id": event.task_id, "contextId": event.session_id, "status": state }))
        }
    }
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
