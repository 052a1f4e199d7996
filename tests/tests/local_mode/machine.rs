//! `dormouse serve`: the same binary on a table of DynamoDB, as processes of their own for requests and for work.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::{Json, Router};
use dormouse_aws::ensure_table;
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use dormouse_tests::{STORE_SECRET, open_door};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::process::{PATIENCE, PrintedLines, in_time, program, text};

/// A table, and a bus that takes every event.
struct Place {
    _store: EmbeddedDynamoDb,
    table: String,
    bus: String,
}

impl Place {
    async fn make() -> Self {
        let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        ensure_table(&store.client(), "dormouse").await.expect("the table is made");
        let table = open_door(&store).await;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let bus = format!("http://{}", listener.local_addr().expect("an address"));
        let taken = || async { Json(json!({ "FailedEntryCount": 0, "Entries": [{ "EventId": "e" }] })) };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(taken)).await });
        Self { _store: store, table, bus }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.args(arguments).envs([
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"),
            ("AWS_SESSION_TOKEN", STORE_SECRET),
            ("AWS_ENDPOINT_URL_DYNAMODB", self.table.as_str()),
            ("AWS_ENDPOINT_URL_EVENTBRIDGE", self.bus.as_str()),
            ("DORMOUSE_BUS", "dormouse"),
            ("DORMOUSE_CALLBACK_SECRET", "hush-hush-hush-hush-hush-hush-hush"),
            ("DORMOUSE_SIGNAL_KEY", "open-sesame-open-sesame"),
        ]);
        command
    }

    fn serve(&self, role: &str) -> Process {
        let mut command = self.command(&["serve", "--role", role, "--table", "dormouse", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let line = PrintedLines::of(child.stdout.take().expect("a pipe")).next().expect("a line");
        let address = line.trim().strip_prefix("dormouse is ready at ").expect("an address").to_owned();
        Process { child, address }
    }

    fn key(&self) -> String {
        let made = ["keys", "create", "--actor", "tour", "--all-scopes", "--expires-in", "1d", "--table", "dormouse"];
        let made = self.command(&made).args(["--endpoint-url", &self.table, "--json"]).output().expect("it runs");
        let made: Value = serde_json::from_slice(&made.stdout).expect("one JSON document");
        text(&made, "key").to_owned()
    }
}

struct Process {
    child: Child,
    address: String,
}

impl Process {
    /// Asks it to end: its exit code.
    async fn ended(mut self) -> Option<i32> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(asked.success());
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().expect("it can be asked") {
                    return status.code();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        in_time("it ends", ended).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Caller {
    client: Client,
    address: String,
    key: String,
}

impl Caller {
    async fn post(&self, path: &str, body: &Value) -> Value {
        let asked = self.client.post(format!("{}{path}", self.address)).bearer_auth(&self.key);
        let asked = asked.header(VERSION_HEADER, PROTOCOL_VERSION).header("idempotency-key", path).json(body);
        let answer = asked.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.expect("text"));
        answer.json().await.expect("JSON")
    }

    async fn get(&self, path: &str) -> Value {
        let asked = self.client.get(format!("{}{path}", self.address)).bearer_auth(&self.key);
        let answer = asked.header(VERSION_HEADER, PROTOCOL_VERSION).send().await.expect("an answer");
        answer.json().await.expect("JSON")
    }

    async fn task_is(&self, task: &Value, status: &str) {
        let path = format!("/v1/tasks/{}", text(task, "id"));
        let seen = async {
            loop {
                let found = self.get(&path).await;
                if found["status"] == status {
                    return;
                }
                assert!(found["status"] != "FAILED", "{found}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("the task is not {status}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_answers_and_another_works() {
    let place = Place::make().await;
    let api = place.serve("api");
    let caller = Caller { client: dormouse_tests::client(), address: api.address.clone(), key: place.key() };
    let workspace = caller.post("/v1/workspaces", &json!({ "name": "desk", "root": "/" })).await;
    let session = caller.post("/v1/sessions", &json!({ "workspace_id": workspace["id"] })).await;
    let submit = async |persona: &str, state: Value| {
        let session = if persona == "persona_reminder" {
            caller.post("/v1/sessions?second", &json!({ "workspace_id": workspace["id"] })).await
        } else {
            session.clone()
        };
        let input = json!({ "role": "user", "parts": [{ "type": "json", "value": state }] });
        let tasks = format!("/v1/sessions/{}/tasks", text(&session, "id"));
        caller.post(&tasks, &json!({ "persona_id": persona, "input": input })).await
    };
    let expense = submit(
        "persona_expense-approval",
        json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" }),
    )
    .await;
    let reminder = submit("persona_reminder", json!({ "text": "tea", "after": "PT1S" })).await;
    let found = caller.get(&format!("/v1/tasks/{}", text(&expense, "id"))).await;
    assert_eq!(found["status"], "WORKING", "it is accepted, and nobody works yet: {found}");

    let worker = place.serve("worker");
    let answer = caller.client.get(format!("{}/v1/tasks", worker.address)).send().await.expect("an answer");
    assert_eq!(answer.status(), 404, "a worker answers for its health only");
    let answer = caller.client.get(format!("{}/readyz", worker.address)).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    caller.task_is(&expense, "AUTH_REQUIRED").await;
    caller.task_is(&reminder, "COMPLETED").await;
    assert_eq!(worker.ended().await, Some(0), "it ends in order");

    let another = place.serve("all");
    let yes = json!({ "role": "user", "parts": [{ "type": "json", "value": { "approved": true } }] });
    let messages = format!("/v1/tasks/{}/messages", text(&expense, "id"));
    caller.post(&messages, &json!({ "kind": "tool_confirmation", "message": yes })).await;
    caller.task_is(&expense, "COMPLETED").await;
    assert_eq!((api.ended().await, another.ended().await), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_keep_the_order_of_a_queue() {
    let place = Place::make().await;
    let api = place.serve("api");
    let caller = Caller { client: dormouse_tests::client(), address: api.address.clone(), key: place.key() };
    let workspace = caller.post("/v1/workspaces", &json!({ "name": "desk", "root": "/" })).await;
    let session = caller.post("/v1/sessions", &json!({ "workspace_id": workspace["id"] })).await;
    let session = format!("/v1/sessions/{}", text(&session, "id"));
    let mut tasks = Vec::new();
    for number in 0..5 {
        let input = json!({ "role": "user", "parts": [{ "type": "text", "text": format!("say {number}") }] });
        let body = json!({ "persona_id": "persona_chat", "input": input });
        let task = caller.post(&format!("{session}/tasks?{number}"), &body).await;
        tasks.push(text(&task, "id").to_owned());
    }
    let asked = caller.client.put(format!("{}{session}/queue", caller.address)).bearer_auth(&caller.key);
    let asked = asked.header(VERSION_HEADER, PROTOCOL_VERSION).header("idempotency-key", "order");
    tasks[1..].reverse();
    let answer = asked.json(&json!({ "task_ids": tasks[1..] })).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{}", answer.text().await.expect("text"));
    let workers = [place.serve("worker"), place.serve("worker")];
    for task in &tasks {
        caller.task_is(&json!({ "id": task }), "COMPLETED").await;
    }
    let events = caller.get(&format!("{session}/events?limit=200")).await;
    let of_tasks = events["data"].as_array().expect("a list").iter().filter_map(|event| {
        let moved = ["task.started", "task.completed"].into_iter().find(|kind| event["event"] == *kind)?;
        Some((text(event, "task_id").to_owned(), moved))
    });
    // The first one counted as working when it was accepted.
    let expected = tasks.iter().flat_map(|task| ["task.started", "task.completed"].map(|kind| (task.clone(), kind)));
    assert_eq!(
        of_tasks.collect::<Vec<_>>(),
        expected.collect::<Vec<_>>(),
        "one after the other, in the order of the queue"
    );
    for worker in workers {
        assert_eq!(worker.ended().await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said_in_one_line() {
    let mut command = program();
    command.env_remove("AWS_REGION").env_remove("AWS_DEFAULT_REGION").env("DORMOUSE_SCHEDULER_GROUP", "dormouse");
    let refused = command.args(["serve", "--table", "dormouse"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for name in ["DORMOUSE_CALLBACK_SECRET", "AWS_REGION", "DORMOUSE_WAKEUP_ARN"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert!(!said.contains("AWS_LAMBDA"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_not_know_its_address_says_so() {
    let place = Place::make().await;
    for (url, is_told) in [("", true), ("https://agents.example.com", false)] {
        let mut command = place.command(&["serve", "--table", "dormouse", "--listen", "127.0.0.1:0"]);
        command.env("DORMOUSE_BASE_URL", url).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let line = PrintedLines::of(child.stdout.take().expect("a pipe")).next().unwrap_or_default();
        child.kill().expect("it runs");
        let ended = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(line.contains("is ready at"), "{line}{said}");
        assert_eq!(said.contains("DORMOUSE_BASE_URL is not set"), is_told, "{url}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_not_there_is_told_and_nobody_is_sent_to_the_process() {
    let place = Place::make().await;
    let slip = ["serve", "--table", "dormuose", "--listen", "127.0.0.1:0"];
    let refused = place.command(&slip).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(1), &b""[..]), "{said}");
    assert!(said.contains("the table cannot be used") && said.contains("dormuose"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_files_declare_work_on_machines_of_ones_own() {
    let place = Place::make().await;
    let api = place.serve("api");
    let caller = Caller { client: dormouse_tests::client(), address: api.address.clone(), key: place.key() };
    let files = json!({
        ".openharness/agents/mine.md": "---\nmodel: workspace/near\n---\nWork.\n",
        ".openharness/models/near.yaml": "near: {provider: openai-compatible, name: x, url: 'http://127.0.0.1:9/v1'}\n",
    });
    let workspace = caller.post("/v1/workspaces", &json!({ "name": "desk", "root": "/", "files": files })).await;
    let session = caller.post("/v1/sessions", &json!({ "workspace_id": workspace["id"] })).await;
    let input = json!({ "role": "user", "parts": [{ "type": "text", "text": "Hello" }] });
    let task = json!({ "session_id": session["id"], "input": input });
    let task = caller.post("/v1/tasks", &task).await;
    assert_eq!(task["persona_id"], "persona_mine", "{task}");
    let worker = place.serve("worker");
    // Another process runs it with the definitions that were kept, and does not ask a model on no public address.
    caller.task_is(&task, "FAILED").await;
    let ended = caller.get(&format!("/v1/tasks/{}", text(&task, "id"))).await;
    assert!(text(&ended["failure"], "message").contains("not on the public internet"), "{ended}");
    assert_eq!((worker.ended().await, api.ended().await), (Some(0), Some(0)));
}
