//! Taking up a conversation that another process has left.

use std::collections::BTreeSet;
use std::path::Path;

use dormouse_http::percent::encode;
use dormouse_protocol::resource::Task;
use dormouse_protocol::{Event, Map};
use serde::Deserialize;
use serde_json::Value;

use super::elsewhere::{asks_nobody, needs_mending, waits_elsewhere, waits_for_agents};
use super::events::{AGENT_ASKED, told};
use super::{ChatSession, Person, Sent};
use crate::talk::client::Client;
use crate::talk::followed::ShownSoFar;
use crate::talk::screen::{DIM, PLAIN, ToldSteps};
use crate::talk::{TalkError, TalkOutcome};

/// The conversation that the file `kept` leads back to, unless it is not there any more. Where that cannot be known, the file
/// has to stay: nothing else leads back.
pub(super) async fn last_session(client: &Client, kept: &Path) -> Result<Option<String>, TalkError> {
    let Ok(session) = std::fs::read_to_string(kept) else { return Ok(None) };
    let session = session.trim();
    if session.is_empty() {
        return Ok(None);
    }
    match client.read::<Value>(&format!("/v1/sessions/{}", encode(session))).await {
        Ok(_) => Ok(Some(session.to_owned())),
        Err(error) if error.is_nowhere() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where a task was left.
#[derive(Default)]
pub(super) struct LeftOff {
    /// Its last event.
    pub(super) after: Option<String>,
    /// What it asks, unless it works.
    pub(super) asked: Option<Map>,
    /// Its steps until then.
    pub(super) told: ToldSteps,
    /// The tasks of agents that it has asked.
    pub(super) agents: BTreeSet<String>,
    pub(super) has_ended: bool,
}

impl LeftOff {
    /// Takes in the next of its events.
    fn take(&mut self, event: &Value) {
        if let Some(step) = Event::deserialize(event).ok().as_ref().and_then(told) {
            self.told.take(step);
        }
        self.after = event["id"].as_str().map(str::to_owned).or(self.after.take());
        let payload = &event["payload"];
        if event["event"] == AGENT_ASKED {
            self.agents.extend(payload["invocation_id"].as_str().map(str::to_owned));
        }
        let is_moved = event["event"].as_str().is_some_and(|event| event.starts_with("task."));
        let status = payload["status"].as_str().filter(|_| is_moved).unwrap_or_default();
        let stays = self.asked.take().filter(|_| status != "WORKING");
        self.asked = payload["request"].as_object().cloned().or(stays);
        self.has_ended |= matches!(status, "COMPLETED" | "FAILED" | "CANCELED");
    }
}

impl ChatSession {
    /// Asks again what the conversation was left with, and sees it through.
    pub(super) async fn resume(&mut self, person: &mut Person) -> Result<Sent, TalkError> {
        let tasks: Value = self.client.read(&format!("/v1/tasks?session_id={}", self.session)).await?;
        if let Some(shown) = self.followed.left().filter(|shown| has_ended(&tasks, &shown.task)) {
            self.show_end(shown).await?;
        }
        let mut open = Vec::new();
        for task in unended(&tasks) {
            let left = self.left_off(task.envelope.id.as_str()).await?;
            open.push((task, left));
        }
        let mut outcome = TalkOutcome::Fine;
        // What comes of one while another is followed stands behind where it was left, and is shown when its turn comes.
        for (task, mut left) in open {
            let id = task.envelope.id.as_str();
            // Whoever comes back may have mended what its model refused.
            let refused = left.asked.take_if(|request| needs_mending(request));
            let goes_on = match &refused {
                Some(request) => self.go_on(id, request).await?,
                None => false,
            };
            let is_elsewhere = |request: &&Map| asks_nobody(request) && !waits_for_agents(request);
            if let Some(request) = left.asked.as_ref().filter(is_elsewhere) {
                if let Some(waits) = waits_elsewhere(request) {
                    // It is not followed: what is typed here is for the conversation.
                    self.show_elsewhere(request, &waits);
                }
                continue;
            }
            // What asks nothing works: a process that was killed had begun it, and it goes on in this one.
            if left.has_ended || (left.asked.is_none() && task.status.is_suspended() && !goes_on) {
                continue;
            }
            match self.attend(id, left, person).await? {
                sent @ (Sent::Left | Sent::Asleep) => return Ok(sent),
                Sent::Ended(TalkOutcome::Fine) => {}
                Sent::Ended(failed) => outcome = failed,
            }
        }
        Ok(Sent::Ended(outcome))
    }

    /// Where the task `id` is, as its events tell.
    pub(super) async fn left_off(&self, id: &str) -> Result<LeftOff, TalkError> {
        let mut left = LeftOff::default();
        each_event(&self.client, id, None, |event| left.take(event)).await?;
        Ok(left)
    }

    /// Shows what came of a task that has ended while nobody saw it: behind a terminal that was closed, or because it was answered
    /// elsewhere. What it asked on the way needs no answer any more.
    async fn show_end(&self, ShownSoFar { task, after }: ShownSoFar) -> Result<(), TalkError> {
        self.screen.line(&format!("{DIM}· this came of it while this conversation was closed{PLAIN}"));
        self.screen.follow(&task, ToldSteps::default());
        let show = |event: &Value| {
            if let Ok(event) = Event::deserialize(event) {
                self.show(&event);
            }
        };
        match each_event(&self.client, &task, after.as_deref(), show).await {
            // Its events are there no longer.
            Err(error) if !error.is_nowhere() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.agents.borrow_mut().clear();
        self.followed.end()?;
        Ok(())
    }
}

/// Tells `take` the events of the task `id` behind `after` that there are, in their order.
async fn each_event(
    client: &Client,
    id: &str,
    after: Option<&str>,
    mut take: impl FnMut(&Value),
) -> Result<(), TalkError> {
    let mut pages = client.pages(&format!("/v1/tasks/{id}/events"), "after_event_id").behind(after);
    while let Some(events) = pages.next().await? {
        events.iter().for_each(&mut take);
    }
    Ok(())
}

/// True if the task `id` is in the list `tasks` and has ended.
fn has_ended(tasks: &Value, id: &str) -> bool {
    let mut listed = tasks["data"].as_array().into_iter().flatten();
    let found = listed.find(|task| task["id"] == id);
    found.and_then(|task| Task::deserialize(task).ok()).is_some_and(|task| task.status.is_terminal())
}

/// The tasks of the list `tasks` that have not ended, the oldest first: what waits in the queue of a session comes behind what
/// works there. Lists begin with the newest.
fn unended(tasks: &Value) -> Vec<Task> {
    let listed = tasks["data"].as_array().into_iter().flatten().rev();
    let read = listed.filter_map(|task| Task::deserialize(task).ok());
    read.filter(|task| !task.status.is_terminal()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use dormouse_protocol::id::{SessionId, TaskId, WorkspaceId};
    use dormouse_protocol::resource::{TaskInput, TaskStatus};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::talk::chat::stub::{client_of, person_who_writes, session_with};
    use crate::talk::followed::FollowedFile;

    #[test]
    fn of_several_tasks_the_oldest_is_taken_up_first() {
        let task = |id: &str, status: TaskStatus| {
            let input = TaskInput::Payload(Map::new());
            let of = (WorkspaceId::from("workspace_1"), SessionId::from("session_1"));
            Task { status, ..Task::submitted(TaskId::from(id), of, input, "ada", Timestamp::UNIX_EPOCH) }
        };
        let newest_first = [
            task("task_4", TaskStatus::Submitted),
            task("task_3", TaskStatus::Working),
            task("task_2", TaskStatus::Completed),
            task("task_1", TaskStatus::AuthRequired),
        ];
        let open = unended(&json!({ "data": newest_first }));
        let ids: Vec<&str> = open.iter().map(|task| task.envelope.id.as_str()).collect();
        assert_eq!(ids, ["task_1", "task_3", "task_4"]);
        assert!(unended(&json!({})).is_empty());
    }

    #[test]
    fn a_task_is_left_with_what_it_asks_by_now() {
        let event = |id: &str, kind: &str, payload: Value| json!({ "id": id, "event": kind, "payload": payload });
        let asked = json!({ "status": "AUTH_REQUIRED", "request": { "pause": 1 } });
        let steps = [
            (event("1", "task.started", json!({ "status": "WORKING" })), false, false),
            (event("2", "task.auth_required", asked), true, false),
            (event("3", "user.tool_confirmation", json!({ "parts": [] })), true, false),
            (event("4", "task.status_changed", json!({ "status": "WORKING" })), false, false),
            (event("5", "task.completed", json!({ "status": "COMPLETED" })), false, true),
        ];
        let mut left = LeftOff::default();
        for (event, asks, has_ended) in steps {
            left.take(&event);
            assert_eq!((left.asked.is_some(), left.has_ended), (asks, has_ended), "{event}");
            assert_eq!(left.after.as_deref(), event["id"].as_str());
        }
    }

    /// A client of a server that answers each request with `status`.
    fn answered_with(status: &'static str) -> Client {
        client_of(move |_| (status, "{}".to_owned()))
    }

    #[tokio::test]
    async fn a_run_whose_model_refused_to_be_asked_goes_on_when_the_conversation_is_taken_up() {
        let of = (WorkspaceId::from("workspace_1"), SessionId::from("session_1"));
        let task =
            Task::submitted(TaskId::from("task_1"), of, TaskInput::Payload(Map::new()), "ada", Timestamp::UNIX_EPOCH);
        let tasks = json!({ "data": [Task { status: TaskStatus::InputRequired, ..task }] }).to_string();
        let request = json!({ "kind": "rest", "needs_mending": true, "asks_person": false, "pause": 3 });
        let asked = json!({ "status": "INPUT_REQUIRED", "request": request });
        let event = json!({ "id": "event_1", "event": "task.input_required", "payload": asked });
        let page = json!({ "has_more": false, "next_cursor": null });
        let events = json!({ "data": [event], "page": page }).to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let client = client_of(move |line| {
            let path = line.split_whitespace().nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
            seen.lock().expect("a list").push(path.to_owned());
            match path {
                "/v1/tasks" => ("200 OK", tasks.clone()),
                "/v1/tasks/task_1/events" => ("200 OK", events.clone()),
                "/v1/tasks/task_1/messages" => ("201 Created", "{}".to_owned()),
                _ => ("404 Not Found", "{}".to_owned()),
            }
        });
        let folder = tempfile::tempdir().expect("a folder");
        let mut talk = session_with(client);
        talk.followed = FollowedFile::of(folder.path(), "clerk");
        let resumed = talk.resume(&mut person_who_writes(&[])).await;
        assert!(resumed.is_err_and(|error| error.is_nowhere()), "it is followed, and its events are not there");
        let requests = requests.lock().expect("a list");
        let told = ["/v1/tasks", "/v1/tasks/task_1/events", "/v1/tasks/task_1/messages", "/v1/tasks/task_1/stream"];
        assert_eq!(*requests, told);
    }

    #[tokio::test]
    async fn events_of_a_task_are_found_behind_many_of_others() {
        let client = client_of(|line| {
            let after = line.split_once("after_event_id=").and_then(|(_, rest)| rest.split_whitespace().next());
            let (data, next) = match after {
                None => (json!([{ "id": "event_1" }]), Some("event_2000")),
                Some("event_2000") => (json!([]), Some("event_4000")),
                Some("event_4000") => (json!([{ "id": "event_4001" }]), None),
                Some(_) => return ("404 Not Found", "{}".to_owned()),
            };
            let page = json!({ "has_more": next.is_some(), "next_cursor": next });
            ("200 OK", json!({ "data": data, "page": page }).to_string())
        });
        let mut ids = Vec::new();
        let read = each_event(&client, "task_1", None, |event| ids.push(event["id"].clone())).await;
        read.expect("they are read");
        assert_eq!(ids, ["event_1", "event_4001"]);
    }

    #[tokio::test]
    async fn a_conversation_is_left_behind_only_where_it_is_not_there_any_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = folder.path().join("chat-clerk");
        assert_eq!(last_session(&answered_with("200 OK"), &kept).await.expect("none was kept"), None);
        std::fs::write(&kept, "sesn_1\n").expect("it is written");
        let last = last_session(&answered_with("200 OK"), &kept).await.expect("it is there");
        assert_eq!(last.as_deref(), Some("sesn_1"));
        assert_eq!(last_session(&answered_with("404 Not Found"), &kept).await.expect("it is gone"), None);
        for away in ["503 Service Unavailable", "401 Unauthorized"] {
            last_session(&answered_with(away), &kept).await.expect_err("nobody knows");
        }
        std::fs::write(&kept, "").expect("it is written");
        let none = last_session(&answered_with("503 Service Unavailable"), &kept).await;
        assert_eq!(none.expect("an empty file leads nowhere"), None);
    }
}
