//! Open tasks: what moves of them is at the end of the stream of their session.

use std::collections::BTreeMap;

use dormouse_ports::{
    Append, Commit, Commits, Document, DocumentKey, DocumentWrite, InvocationWrite, Invocations, Journal, Records,
    StreamEnd, StreamTip, SuspendFrom,
};
use serde_json::{Value, json};

use crate::world::{World, ids, text};

fn expense() -> Value {
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    json!({"persona_id": "persona_expense-approval", "input": state})
}

fn approved() -> Value {
    let parts = [json!({"type": "json", "value": {"approved": true}})];
    json!({"kind": "input", "message": {"role": "user", "parts": parts}})
}

async fn version(world: &World, task: &str) -> u64 {
    let memory = world.memory.as_ref().unwrap();
    let key = DocumentKey::new("task", task);
    memory.document(&key, jiff::Timestamp::UNIX_EPOCH).await.unwrap().unwrap().version
}

/// The tasks of a session by their status, as every read shows them.
async fn statuses(world: &World, session: &str) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    let list = world.get(&format!("{session}/tasks?limit=100")).await;
    for task in list["data"].as_array().unwrap() {
        assert_eq!(*task, world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await, "however it is read");
        *count.entry(text(&task["status"]).to_owned()).or_default() += 1;
    }
    let everywhere = world.get("/v1/tasks?limit=100").await;
    assert_eq!(everywhere["data"], list["data"]);
    count
}

fn counted<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(status, count)| (status.to_owned(), count)).into()
}

#[tokio::test]
async fn a_task_is_written_when_it_is_submitted_and_when_it_ends() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), expense()).await;
    let id = text(&task["id"]);
    assert_eq!(statuses(&world, &session).await, counted([("WORKING", 1)]));
    world.work().await.unwrap();
    assert_eq!(statuses(&world, &session).await, counted([("AUTH_REQUIRED", 1)]));
    assert_eq!(world.get(&session).await["state"], "PAUSED");
    world.post(&format!("/v1/tasks/{id}/messages"), approved()).await;
    assert_eq!(statuses(&world, &session).await, counted([("WORKING", 1)]));
    assert_eq!(version(&world, id).await, 1);
    world.work().await.unwrap();
    assert_eq!(statuses(&world, &session).await, counted([("COMPLETED", 1)]));
    assert_eq!(version(&world, id).await, 2);
}

#[tokio::test]
async fn a_session_knows_of_few_open_tasks_and_has_as_many_as_it_likes() {
    const MANY: usize = 20;
    let (world, session) = World::with_session().await;
    for _ in 0..MANY {
        world.post(&format!("{session}/tasks"), expense()).await;
        while world.work().await.is_some() {}
    }
    assert_eq!(statuses(&world, &session).await, counted([("AUTH_REQUIRED", MANY)]));
    let tasks = ids(&world.get(&format!("{session}/tasks?limit=100")).await);
    let newest = version(&world, &tasks[0]).await;
    let oldest = version(&world, &tasks[MANY - 1]).await;
    assert_eq!((newest, oldest), (2, 1), "beyond some the document tells");
    for (done, task) in tasks.iter().enumerate() {
        world.post(&format!("/v1/tasks/{task}/messages"), approved()).await;
        let waiting = MANY - done - 1;
        let expected = [("AUTH_REQUIRED", waiting), ("COMPLETED", done), ("WORKING", 1)];
        let expected = expected.into_iter().filter(|(_, count)| *count > 0);
        let expected = expected.map(|(status, count)| (status.to_owned(), count)).collect();
        assert_eq!(statuses(&world, &session).await, expected);
        while world.work().await.is_some() {}
    }
    assert_eq!(statuses(&world, &session).await, counted([("COMPLETED", MANY)]));
    assert_eq!(world.get(&session).await["state"], "IDLE");
}

/// Earlier versions wrote all of a session to its document, and each step of a task to the document of the task.
#[tokio::test]
async fn a_session_and_a_task_of_an_earlier_version_go_on() {
    let now = World::with_session().await;
    let before = World::new();
    let (world, session) = now;
    let id = session.rsplit('/').next().unwrap().to_owned();
    let task = world.post(&format!("{session}/tasks"), expense()).await;
    world.work().await.unwrap();
    let memory = world.memory.clone().unwrap();
    let earlier = before.memory.clone().unwrap();
    let read = async |kind: &str, id: &str| {
        let key = DocumentKey::new(kind, id);
        memory.document(&key, jiff::Timestamp::UNIX_EPOCH).await.unwrap().unwrap()
    };
    let StreamTip { position, known, .. } = memory.tip(&id).await.unwrap();
    let mut known = Value::Object(known.unwrap());
    let task_id = text(&task["id"]);
    let progress = known["own"]["open"][task_id].take();
    known["own"]["open"][task_id] = json!("waits");
    let mut kept = read("session", &id).await;
    kept.body["own"] = known["own"].take();
    kept.body["resource"]["state"] = json!("PAUSED");
    kept.body["resource"]["last_event_id"] = world.get(&session).await["last_event_id"].clone();
    let mut of_task = read("task", task_id).await;
    of_task.body["own"]["sequence"] = progress["sequence"].clone();
    of_task.body["resource"]["status"] = progress["status"].clone();
    let workspace = read("workspace", text(&task["workspace_id"])).await;
    let put = |Document { key, body, .. }| DocumentWrite {
        key,
        expect: 0,
        body: Some(body),
        listed: Vec::new(),
        expires_at: None,
    };
    let entries = memory.entries(&id, 0, 100).await.unwrap().into_iter().map(|entry| entry.entry).collect();
    let append = Append { stream: id.clone(), end: StreamEnd::Store, first: 1, entries, fed: None };
    let journal = Journal::new([kept, of_task, workspace].map(put).into(), vec![append]);
    let record = memory.load_invocation(&task_id.into()).await.unwrap().unwrap();
    let paused = Box::new(record.paused);
    let from = SuspendFrom::Fresh;
    let invocation = Some(InvocationWrite::Suspend { paused, from, claim: None, early: Vec::new() });
    let commit = Commit { journal, invocation, ..Commit::new("earlier", jiff::Timestamp::UNIX_EPOCH) };
    earlier.commit(&commit).await.unwrap();

    let path = format!("/v1/tasks/{task_id}");
    assert_eq!(before.get(&path).await["status"], "AUTH_REQUIRED");
    assert_eq!(before.get(&session).await["state"], "PAUSED");
    assert_eq!(before.get(&session).await["last_event_id"], world.get(&session).await["last_event_id"]);
    before.post(&format!("{path}/messages"), approved()).await;
    assert_eq!(before.get(&path).await["status"], "WORKING");
    before.work().await.unwrap();
    assert_eq!(before.get(&path).await["status"], "COMPLETED");
    let tip = earlier.tip(&id).await.unwrap();
    assert!(tip.known.is_some() && tip.position > position, "from now on the stream has it");
    assert_eq!(before.get(&session).await["state"], "IDLE");
    before.patch(&session, json!({"summary": "as ever"})).await;
    assert_eq!(before.get(&session).await["summary"], "as ever");
    let told = before.told(&format!("{session}/events?limit=100")).await;
    assert_eq!(told.len() as u64, earlier.tip(&id).await.unwrap().position);
    assert_eq!(told.last().map(String::as_str), Some("vendor.dormouse.session_updated"));
}
