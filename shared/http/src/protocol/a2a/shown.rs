//! Tasks, messages and events as clients of A2A see them.

use std::collections::BTreeMap;

use dormouse_api::{StreamItem, a2a_state as state_of, a2a_status};
use dormouse_ports::limits::ANSWER;
use dormouse_protocol::id::TaskId;
use dormouse_protocol::resource::TaskStatus;
use dormouse_protocol::{Event, EventKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{INTERNAL, RpcError};

/// Bytes of an answer that its history may have. What else it has beside artifacts is a message at most.
const ROOM_OF_HISTORY: usize = ANSWER / 4;
/// The same of the content of its artifacts.
pub(super) const ROOM_OF_ARTIFACTS: usize = ANSWER / 2;

/// A task as it is, and its last event.
pub(super) struct Snapshot {
    pub(super) id: TaskId,
    pub(super) task: Value,
    pub(super) last_event: Option<String>,
    /// Its status, as its client is told of it.
    status: TaskStatus,
    /// True if its last event gave it another status than it had when it was read before its events.
    pub(super) is_behind: bool,
    /// Number of messages that its client wants.
    pub(super) history: Option<usize>,
}

/// Ids of a task that its messages and updates have.
#[derive(Clone)]
pub(super) struct TaskIds {
    task: Value,
    context: Value,
}

impl Snapshot {
    pub(super) fn of(
        id: &TaskId,
        task: &Value,
        events: &[Event],
        (artifacts, history): (Vec<Value>, Option<usize>),
    ) -> Self {
        let about = TaskIds { task: json!(id), context: task["session_id"].clone() };
        let mut messages: Vec<Value> = events.iter().filter_map(|event| message_in(event, &about)).collect();
        let read = TaskStatus::deserialize(&task["status"]).unwrap_or(TaskStatus::Working);
        let moved = events.iter().rev().find(|event| status_by(event).is_some());
        let is_behind = moved.is_some_and(|event| status_by(event) != Some(read));
        let status = moved.filter(|_| !is_behind).and_then(moved_to).unwrap_or(read);
        let asked = moved.filter(|_| !is_behind).and_then(asked_in);
        let hindrance = moved.filter(|_| !is_behind).and_then(hindrance_in);
        let mut state = json!({ "state": state_of(status), "timestamp": task["updated_at"] });
        let spoken = messages.iter().rev().find(|message| message["role"] == "agent");
        if let Some(failure) = task["failure"]["message"].as_str() {
            let parts = json!([{ "kind": "text", "text": failure }]);
            state["message"] = about.message(&json!(format!("{id}-failure")), "agent", &parts);
        } else if let Some(hindrance) = hindrance {
            state["message"] = about.message(&json!(format!("{id}-rest")), "agent", &json!([hindrance]));
        } else if let Some(message) = spoken.filter(|_| !is_at_work(status)) {
            state["message"] = message.clone();
            if let (Some(asked), Some(parts)) = (asked, state["message"]["parts"].as_array_mut()) {
                parts.push(asked);
            }
        }
        let newest = messages.len().min(history.unwrap_or(usize::MAX)).min(fitting(&messages));
        messages.drain(..messages.len() - newest);
        let shown = json!({
            "kind": "task", "id": id, "contextId": about.context, "status": state, "history": messages,
            "artifacts": artifacts, "metadata": { "persona_id": task["persona_id"] },
        });
        let last_event = events.last().map(|event| event.envelope.id.to_string());
        Self { id: id.clone(), task: shown, last_event, status, is_behind, history }
    }

    /// True if it has ended or asks.
    pub(super) fn is_over(&self) -> bool {
        !is_at_work(self.status)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.status.is_terminal()
    }

    pub(super) fn about(&self) -> TaskIds {
        TaskIds { task: json!(self.id), context: self.task["contextId"].clone() }
    }
}

impl TaskIds {
    fn message(&self, id: &Value, role: &str, parts: &Value) -> Value {
        json!({ "kind": "message", "messageId": id, "role": role, "parts": parts, "taskId": self.task,
            "contextId": self.context })
    }
}

/// What `item` says to a client of A2A about the request `id`, with the artifacts that were `made`, by their ids; `is_over`
/// becomes true with the last of it.
pub(super) fn updates(
    (id, about): (&Value, &TaskIds),
    item: &StreamItem,
    made: &BTreeMap<String, Value>,
    is_over: &mut bool,
) -> String {
    let events = match item {
        StreamItem::Events(events) => events.as_slice(),
        // Clients of A2A do not ask for text that is no message yet.
        StreamItem::Text(_) => return String::new(),
        StreamItem::Heartbeat => return ": \n\n".to_owned(),
        StreamItem::Failed { error, .. } => {
            *is_over = true;
            return objection(id, &RpcError::telling(INTERNAL, error.clone()));
        }
    };
    let mut blocks = String::new();
    for event in events {
        let artifact = made.get(&event.resource.id).filter(|_| event.event == EventKind::ArtifactCreated);
        if let Some(artifact) = artifact {
            let update = json!({ "kind": "artifact-update", "taskId": about.task, "contextId": about.context,
                "artifact": artifact, "append": false, "lastChunk": true });
            blocks.push_str(&block(id, &update));
            continue;
        }
        let Some(status) = status_in(event, about, is_over) else { continue };
        let update = json!({ "kind": "status-update", "taskId": about.task, "contextId": about.context,
            "status": status, "final": *is_over });
        blocks.push_str(&block(id, &update));
        if *is_over {
            break;
        }
    }
    blocks
}

/// The status of a task by `event`, if that tells of one: where it moved, or what its agent says.
fn status_in(event: &Event, about: &TaskIds, is_over: &mut bool) -> Option<Value> {
    let timestamp = event.envelope.created_at;
    if let Some(status) = moved_to(event) {
        *is_over = !is_at_work(status);
        let mut state = json!({ "state": state_of(status), "timestamp": timestamp });
        if let Some(asked) = asked_in(event) {
            let words = asked["data"]["description"].as_str().map(|words| json!({ "kind": "text", "text": words }));
            let parts: Vec<Value> = words.into_iter().chain([asked]).collect();
            state["message"] = about.message(&json!(event.envelope.id), "agent", &Value::Array(parts));
        } else if let Some(hindrance) = hindrance_in(event) {
            state["message"] = about.message(&json!(event.envelope.id), "agent", &json!([hindrance]));
        }
        return Some(state);
    }
    let message = message_in(event, about).filter(|message| message["role"] == "agent")?;
    Some(json!({ "state": "working", "timestamp": timestamp, "message": message }))
}

/// A result as a block of server-sent events.
pub(super) fn block(id: &Value, result: &Value) -> String {
    format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// An error as the last block of server-sent events: what follows is to be asked for again.
pub(super) fn objection(id: &Value, error: &RpcError) -> String {
    format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "error": error.object() }))
}

/// The status that a task came to by `event`, as its client is told of it.
pub(super) fn moved_to(event: &Event) -> Option<TaskStatus> {
    a2a_status(event).filter(|_| status_by(event).is_some())
}

/// The status that a task came to by `event`.
fn status_by(event: &Event) -> Option<TaskStatus> {
    let is_about_task = event.resource.object == "task" && event.event != EventKind::TaskSubmitted;
    let status = event.payload.get("status").filter(|_| is_about_task)?;
    TaskStatus::deserialize(status).ok()
}

/// What a task asks by `event`, as a part of a message: what it is about, such as the arguments of calls, and which fields an
/// answer has.
fn asked_in(event: &Event) -> Option<Value> {
    let request = event.payload.get("request").filter(|_| moved_to(event).is_some_and(|status| !is_at_work(status)))?;
    Some(json!({ "kind": "data", "data": request }))
}

/// Why a task does not get on that works as far as its client is concerned, as a part of a message: its model cannot be asked, or
/// it is not known how far that is.
fn hindrance_in(event: &Event) -> Option<Value> {
    let is_of_model = |request: &&Value| request["kind"] == "rest" || request["kind"] == "model";
    let request = event.payload.get("request").filter(is_of_model).filter(|request| request["reason"].is_string())?;
    Some(json!({ "kind": "text", "text": request["description"].as_str()? }))
}

/// The message that `event` tells of.
fn message_in(event: &Event, about: &TaskIds) -> Option<Value> {
    let role = match event.payload.get("role")?.as_str()? {
        "user" => "user",
        _ => "agent",
    };
    let parts = event.payload.get("parts")?.as_array()?.iter().map(shown_part).collect::<Vec<_>>();
    Some(about.message(event.payload.get("message_id")?, role, &Value::Array(parts)))
}

/// A part of ours as A2A has it.
fn shown_part(part: &Value) -> Value {
    match (part["type"].as_str(), &part["value"]) {
        (Some("text"), _) => json!({ "kind": "text", "text": part["text"] }),
        (Some("json"), Value::Object(data)) => json!({ "kind": "data", "data": data }),
        (Some("json"), other) => json!({ "kind": "data", "data": { "value": other } }),
        (_, _) => json!({ "kind": "data", "data": part }),
    }
}

/// Number of the newest of `messages` that an answer has room for.
fn fitting(messages: &[Value]) -> usize {
    let mut room = ROOM_OF_HISTORY;
    let has_room = |message: &&Value| {
        let left = room.checked_sub(size(message));
        room = left.unwrap_or_default();
        left.is_some()
    };
    messages.iter().rev().take_while(has_room).count()
}

/// Bytes of `value` as JSON.
pub(super) fn size(value: &Value) -> usize {
    dormouse_json::length(value).unwrap_or(usize::MAX)
}

/// An artifact with its `content`, or its address where that is elsewhere, or is had at `own` alone.
pub(super) fn artifact(artifact: &Value, content: Value, own: Option<String>) -> Option<Value> {
    let file = |uri: &str| json!({ "kind": "file", "file": { "uri": uri, "mimeType": artifact["mime_type"] } });
    let part = match (own, content, &artifact["uri"]) {
        (Some(own), _, _) => file(&own),
        (None, Value::Object(data), _) => json!({ "kind": "data", "data": data }),
        (None, _, Value::String(uri)) => file(uri),
        (None, _, _) => return None,
    };
    Some(json!({ "artifactId": artifact["id"], "name": artifact["kind"], "parts": [part] }))
}

/// True for a client that has nothing to do about the task.
pub(super) fn is_at_work(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Submitted | TaskStatus::Working)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of the task `task_1`.
    fn event(kind: &str, payload: &Value) -> Event {
        let event = json!({
            "id": "event_session_1_0000000000000001", "object": "event", "created_at": "2027-01-31T09:00:00Z",
            "updated_at": "2027-01-31T09:00:00Z", "metadata": {}, "event": kind,
            "resource": { "object": "task", "id": "task_1" }, "sequence": 1, "payload": payload, "trace_id": null,
            "span_id": null, "session_id": "session_1", "task_id": "task_1", "workspace_id": "workspace_1", "actor": "ada",
            "idempotency_key": null, "previous_event_id": null, "receipt_id": null, "replayed": false, "replay": null,
        });
        serde_json::from_value(event).expect("an event")
    }

    #[test]
    fn a_task_whose_model_cannot_be_asked_is_at_work_and_says_why_it_does_not_get_on() {
        let request =
            json!({ "kind": "rest", "description": "The key is wrong", "reason": "no", "asks_person": false });
        let rests = event("task.input_required", &json!({ "status": "INPUT_REQUIRED", "request": request }));
        let parts = json!([{ "kind": "text", "text": "The key is wrong" }]);
        let task = json!({ "status": "INPUT_REQUIRED", "session_id": "session_1" });
        let shown = Snapshot::of(&TaskId::from("task_1"), &task, std::slice::from_ref(&rests), (Vec::new(), None));
        let mut is_over = false;
        let update = status_in(&rests, &shown.about(), &mut is_over).expect("it moved");
        for status in [&shown.task["status"], &update] {
            assert_eq!((&status["state"], &status["message"]["parts"]), (&json!("working"), &parts));
        }
        assert!(!is_over && !shown.is_over());
    }

    #[test]
    fn who_is_asked_sees_what_it_is_about_and_how_to_answer() {
        let calls = json!({ "c": { "tool": "order", "arguments": { "what": "pens" } } });
        let request = json!({ "description": "May I?", "calls": calls, "asks_person": true });
        let said = json!({ "message_id": "m", "role": "agent", "parts": [{ "type": "text", "text": "May I?" }] });
        let asks = event("task.auth_required", &json!({ "status": "AUTH_REQUIRED", "request": request }));
        let events = [event("agent.message", &said), asks];
        let words = json!({ "kind": "text", "text": "May I?" });
        let parts = json!([words, { "kind": "data", "data": request }]);
        let task = json!({ "status": "AUTH_REQUIRED", "session_id": "session_1" });
        let shown = Snapshot::of(&TaskId::from("task_1"), &task, &events, (Vec::new(), None)).task;
        assert_eq!(shown["status"]["state"], "auth-required");
        assert_eq!(shown["status"]["message"]["parts"], parts);
        assert_eq!(shown["history"][0]["parts"], json!([words]), "what was said");
        let about = TaskIds { task: json!("task_1"), context: json!("session_1") };
        let mut is_over = false;
        let told = status_in(&events[1], &about, &mut is_over).expect("its status");
        assert_eq!((&told["message"]["parts"], is_over), (&parts, true));
        let nobody = json!({ "status": "INPUT_REQUIRED", "request": { "asks_person": false } });
        let told = status_in(&event("task.input_required", &nobody), &about, &mut is_over).expect("its status");
        assert_eq!((told.get("message"), is_over), (None, false), "nobody is asked");
    }

    #[test]
    fn an_answer_has_the_newest_messages_and_room_for_the_rest() {
        let large = json!({ "text": "x".repeat(ROOM_OF_HISTORY / 3) });
        let messages = vec![large; 5];
        assert_eq!(fitting(&messages), 2);
        assert_eq!(fitting(&[json!({ "text": "a" }), json!({ "text": "x".repeat(ROOM_OF_HISTORY) })]), 0);
        assert_eq!(fitting(&[]), 0);
    }

    #[test]
    fn what_is_too_much_is_shown_by_its_address() {
        let made = json!({ "id": "artifact_1", "kind": "state", "mime_type": "application/json", "uri": null });
        let here = artifact(&made, json!({ "a": 1 }), None).expect("its content");
        assert_eq!(here["parts"], json!([{ "kind": "data", "data": { "a": 1 } }]));
        let own = "https://agents.example.com/v1/artifacts/artifact_1/content";
        let there = artifact(&made, json!({ "a": 1 }), Some(own.to_owned())).expect("its address");
        let file = json!({ "uri": own, "mimeType": "application/json" });
        assert_eq!(there["parts"], json!([{ "kind": "file", "file": file }]));
    }
}
