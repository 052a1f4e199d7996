//! Workspaces are deleted with all that is in them, whatever is written at the same time and wherever it dies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dormouse_ports::{
    Commit, CommitError, Commits, DocumentKey, DocumentWrite, InvocationStatus, Invocations, Journal, Records,
    StoreError,
};
use dormouse_protocol::error::ErrorCode;
use dormouse_testkit::MemoryStore;
use futures::FutureExt;
use serde_json::{Value, json};

use crate::connectors::{ISSUE, SECRET, deliver};
use crate::replayed_agents::family;
use crate::world::{World, actor, ada, ids, says, text};

fn expense() -> Value {
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    json!({"persona_id": "persona_expense-approval", "input": state})
}

/// A workspace with one of everything: where each is read, and what lists it.
struct Furnished {
    workspace: String,
    session: String,
    waiting: String,
    connector: String,
    paths: Vec<String>,
}

const LISTS: [&str; 9] = [
    "/v1/workspaces?limit=100",
    "/v1/sessions?limit=100",
    "/v1/tasks?limit=100",
    "/v1/outcomes?limit=100",
    "/v1/artifacts?limit=100",
    "/v1/memories?limit=100",
    "/v1/vaults?limit=100",
    "/v1/connectors?limit=100",
    "/v1/permission-requests?limit=100",
];

async fn furnished(world: &World) -> Furnished {
    let workspace = world.workspace().await;
    let id = |value: &Value| text(&value["id"]).to_owned();
    let session = id(&world.post("/v1/sessions", json!({"workspace_id": workspace})).await);
    let at = format!("/v1/sessions/{session}");
    let message = json!({"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    let message = id(&world.post(&format!("{at}/messages"), message).await);
    let done = id(&world.post(&format!("{at}/tasks"), expense()).await);
    world.work().await;
    world.post(&format!("/v1/tasks/{done}/cancel"), json!({})).await;
    let waiting = id(&world.post(&format!("{at}/tasks"), expense()).await);
    world.work().await;
    let fork = id(&world.post(&format!("{at}/fork"), json!({})).await);
    let branch = id(&world.post(&format!("{at}/branches"), json!({"kind": "session", "base_ref": "main"})).await);
    let artifact =
        |place: &str, id: &str| json!({"kind": "log", "mime_type": "a/b", "visibility": "public", place: id});
    let in_session = id(&world.post("/v1/artifacts", artifact("session_id", &session)).await);
    let alone = id(&world.post("/v1/artifacts", artifact("workspace_id", &workspace)).await);
    let memory =
        |scope: &str, owner: &str| json!({"scope": scope, "owner_id": owner, "content": "x", "provenance": {}});
    let note = id(&world.post("/v1/memories", memory("session", &session)).await);
    let fact = id(&world.post("/v1/memories", memory("workspace", &workspace)).await);
    let vault = json!({"workspace_id": workspace, "provider": "test", "capabilities": ["webhooks:verify"]});
    let vault = id(&world.post("/v1/vaults", vault).await);
    let connector = json!({"provider": "github", "workspace_id": workspace, "target_session_id": session,
        "mapping": {"kind": "message"}, "auth": {"scheme": "github", "vault_id": vault, "secrets": ["HOOK"]}});
    let connector = id(&world.post("/v1/connectors", connector).await);
    let file = format!("/v1/workspaces/{workspace}/files?path=a.txt");
    world.call(ada(), "PUT", &file, &json!({"content": "x"}), None).await.unwrap();
    let events = world.get(&format!("{at}/events?limit=200")).await;
    let outcome = world.get(&format!("/v1/outcomes?task_id={done}")).await;
    let mut paths = vec![
        format!("/v1/workspaces/{workspace}"),
        file,
        at.clone(),
        format!("/v1/sessions/{fork}"),
        format!("{at}/messages"),
        format!("{at}/tasks"),
        format!("{at}/events"),
        format!("{at}/queue"),
        format!("/v1/messages/{message}"),
        format!("/v1/tasks/{done}"),
        format!("/v1/tasks/{waiting}"),
        format!("/v1/tasks/{waiting}/events"),
        format!("/v1/branches/{branch}"),
        format!("/v1/artifacts/{in_session}"),
        format!("/v1/artifacts/{alone}"),
        format!("/v1/memories/{note}"),
        format!("/v1/memories/{fact}"),
        format!("/v1/vaults/{vault}"),
        format!("/v1/connectors/{connector}"),
    ];
    paths.extend(ids(&events).iter().map(|event| format!("/v1/events/{event}")));
    paths.extend(ids(&outcome).iter().map(|outcome| format!("/v1/outcomes/{outcome}")));
    for path in &paths {
        world.get(path).await;
    }
    Furnished { workspace, session, waiting, connector, paths }
}

impl Furnished {
    async fn is_gone(&self, world: &World) {
        for path in &self.paths {
            let refusal = world.call(ada(), "GET", path, &Value::Null, None).await.expect_err(path);
            assert_eq!(refusal.code(), ErrorCode::ResourceNotFound, "{path}");
        }
        for list in LISTS {
            let shown = world.get(list).await.to_string();
            let hidden = !shown.contains(&self.workspace) && !shown.contains(&self.session);
            assert!(hidden && !shown.contains(&self.waiting), "{list}: {shown}");
        }
        let late = world.harness.cancel(&self.waiting.as_str().into(), None, None).await.unwrap();
        assert!(late.repeated, "what waited was canceled: {late:?}");
    }
}

pub(crate) async fn gone_with_everything(world: &World) {
    let doomed = furnished(world).await;
    let other = furnished(world).await;
    let path = format!("/v1/workspaces/{}", doomed.workspace);
    let answer = world.delete(&path).await;
    assert_eq!((&answer["sessions"], &answer["canceled_tasks"]), (&json!(2), &json!(1)), "{answer}");
    assert_eq!((&answer["complete"], &answer["others"]), (&json!(true), &json!(9)), "{answer}");
    doomed.is_gone(world).await;
    let again = world.delete(&path).await;
    let nothing = json!([0, 0, 0, true]);
    assert_eq!(json!([again["sessions"], again["canceled_tasks"], again["others"], again["complete"]]), nothing);
    for path in &other.paths {
        world.get(path).await;
    }
    let at = format!("/v1/sessions/{}", doomed.session);
    for (target, body) in [
        ("/v1/sessions".to_owned(), json!({"workspace_id": doomed.workspace})),
        (format!("{at}/tasks"), expense()),
        (format!("{at}/fork"), json!({})),
        (format!("{at}/messages"), json!({"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}})),
        ("/v1/vaults".to_owned(), json!({"workspace_id": doomed.workspace, "provider": "test", "capabilities": []})),
    ] {
        let refusal = world.call(ada(), "POST", &target, &body, None).await.expect_err(&target);
        assert_eq!(refusal.code(), ErrorCode::ResourceNotFound, "{target}");
    }
    for (secret, body) in [(SECRET, ISSUE), ("another", ISSUE), (SECRET, "no JSON")] {
        let refusal = deliver(world, &doomed.connector, "d1", secret, body).await.expect_err("its workspace is gone");
        assert_eq!((refusal.status(), refusal.message()), (404, "there is no such connector"), "{secret} {body}");
    }
    deliver(world, &other.connector, "d1", SECRET, ISSUE).await.expect("the other one is there");
}

#[tokio::test]
async fn a_workspace_goes_with_everything_in_it_and_nothing_beside() {
    gone_with_everything(&World::new()).await;
}

/// Who keeps a copy of the feed stands on an event of it, maybe the last one of all.
#[tokio::test]
async fn the_feed_goes_on_behind_each_event_of_what_was_deleted() {
    let world = World::new();
    let doomed = furnished(&world).await;
    world.delete(&format!("/v1/workspaces/{}", doomed.workspace)).await;
    let all = ids(&world.get("/v1/events?limit=200").await);
    let last = all.last().expect("there are events");
    assert!(doomed.paths.iter().all(|path| *path != format!("/v1/events/{last}")), "it tells of the deletion");
    for (place, event) in all.iter().enumerate() {
        let rest = world.get(&format!("/v1/events?limit=200&after_event_id={event}")).await;
        assert_eq!(ids(&rest), all[place + 1..], "{event}");
    }
    let behind = format!("/v1/events?after_event_id={last}");
    for stranger in [actor("eve", "evil", None), actor("bob", "acme", Some(&["workspace_other"]))] {
        assert_eq!(world.refusal(stranger, "GET", &behind, Value::Null).await.code(), ErrorCode::CursorExpired);
    }
}

#[tokio::test]
async fn nobody_else_deletes_a_workspace() {
    let world = World::new();
    let workspace = world.workspace().await;
    let path = format!("/v1/workspaces/{workspace}");
    let stranger = world.refusal(actor("eve", "other", None), "DELETE", &path, Value::Null).await;
    assert_eq!(stranger.code(), ErrorCode::ResourceNotFound);
    let bound = world.refusal(actor("bob", "acme", Some(&[&workspace])), "DELETE", &path, Value::Null).await;
    assert_eq!(bound.code(), ErrorCode::PermissionDenied);
    let unknown = world.refusal(ada(), "DELETE", "/v1/workspaces/workspace_none", Value::Null).await;
    assert_eq!(unknown.code(), ErrorCode::ResourceNotFound);
    world.get(&path).await;
}

/// True if `commit` makes something anew of `kind`.
fn makes(commit: &Commit, kind: &str) -> bool {
    let is_new = |write: &DocumentWrite| write.key.kind == kind && write.expect == 0 && write.body.is_some();
    commit.journal.documents.iter().any(is_new)
}

/// A world, and another process on the same store.
fn two_processes() -> (Arc<World>, Arc<World>) {
    let store = Arc::new(MemoryStore::default());
    let one = World::on(store.clone(), store.clone(), Some(store.clone()));
    (one, another_process(&store))
}

/// Another process on `store`, whose ids are its own.
fn another_process(store: &Arc<MemoryStore>) -> Arc<World> {
    let world = World::on(store.clone(), store.clone(), Some(store.clone()));
    for _ in 0..1_000 {
        world.harness.engine().ports().ids.fresh();
    }
    world
}

/// Has `other` delete `workspace` just before the first commit that makes something of `kind`.
fn deleting_before(one: &World, other: &Arc<World>, kind: &'static str, workspace: &str) -> Arc<AtomicUsize> {
    let deletions = Arc::new(AtomicUsize::new(0));
    let (count, other, path) = (deletions.clone(), other.clone(), format!("/v1/workspaces/{workspace}"));
    one.gate.hold(move |commit| {
        let (count, other, path) = (count.clone(), other.clone(), path.clone());
        async move {
            if makes(&commit, kind) && count.fetch_add(1, Ordering::Relaxed) == 0 {
                assert_eq!(other.delete(&path).await["complete"], true);
            }
            Ok(())
        }
        .boxed()
    });
    deletions
}

#[tokio::test]
async fn what_is_made_in_the_same_instant_is_not_left_behind() {
    for kind in ["session", "fork", "memory", "vault", "connector", "artifact", "branch", "task", "file"] {
        let (one, other) = two_processes();
        let Furnished { workspace, session, .. } = furnished(&one).await;
        let vault = json!({"workspace_id": workspace, "provider": "test", "capabilities": ["webhooks:verify"]});
        let vault = text(&one.post("/v1/vaults", vault).await["id"]).to_owned();
        let (target, body) = match kind {
            "session" => ("/v1/sessions".to_owned(), json!({"workspace_id": workspace})),
            "fork" => (format!("/v1/sessions/{session}/fork"), json!({})),
            "memory" => {
                let body = json!({"scope": "session", "owner_id": session, "content": "x", "provenance": {}});
                ("/v1/memories".to_owned(), body)
            }
            "vault" => {
                ("/v1/vaults".to_owned(), json!({"workspace_id": workspace, "provider": "test", "capabilities": []}))
            }
            "connector" => (
                "/v1/connectors".to_owned(),
                json!({"provider": "github", "workspace_id": workspace, "target_session_id": session,
                    "mapping": {"kind": "message"},
                    "auth": {"scheme": "github", "vault_id": vault, "secrets": ["HOOK"]}}),
            ),
            "artifact" => (
                "/v1/artifacts".to_owned(),
                json!({"kind": "log", "mime_type": "a/b", "visibility": "public", "workspace_id": workspace}),
            ),
            "branch" => (format!("/v1/sessions/{session}/branches"), json!({"kind": "session", "base_ref": "main"})),
            "file" => (format!("/v1/workspaces/{workspace}/files?path=a/b.txt"), json!({"content": "x"})),
            _ => (format!("/v1/sessions/{session}/tasks"), expense()),
        };
        let document = if kind == "fork" { "session" } else { kind };
        let method = if kind == "file" { "PUT" } else { "POST" };
        let deletions = deleting_before(&one, &other, document, &workspace);
        let refusal = one.call(ada(), method, &target, &body, None).await.expect_err(kind);
        assert_eq!(refusal.code(), ErrorCode::ResourceNotFound, "{kind}");
        assert_eq!(deletions.load(Ordering::Relaxed), 1, "{kind}: the deletion came in between");
        one.gate.open();
        for list in LISTS {
            assert_eq!(one.get(list).await["data"], json!([]), "{kind}: {list}");
        }
    }
}

#[tokio::test]
async fn an_agent_that_is_asked_in_the_same_instant_is_not_left_behind() {
    for background in [false, true] {
        let store = Arc::new(MemoryStore::default());
        let (agents, _) = family(background);
        let world = World::serving((store.clone(), store.clone(), Some(store.clone())), None, &agents);
        let other = another_process(&store);
        let session = world.session().await;
        let workspace = text(&world.get(&session).await["workspace_id"]).to_owned();
        let mut body = says("look around");
        body["persona_id"] = json!("persona_helper");
        let task = world.post(&format!("{session}/tasks"), body).await;
        let deletions = deleting_before(&world, &other, "session", &workspace);
        world.work().await;
        assert!(deletions.load(Ordering::Relaxed) > 0, "the agent asked another one");
        world.gate.open();
        world.work().await;
        for list in LISTS {
            assert_eq!(world.get(list).await["data"], json!([]), "{list}");
        }
        let late = world.harness.cancel(&text(&task["id"]).into(), None, None).await.unwrap();
        assert!(late.repeated, "who asked was canceled: {late:?}");
    }
}

/// Deletes a workspace while the `last`th commit dies, before or after it is written; whether that came.
async fn dies_at(last: usize, is_written: bool) -> bool {
    let (one, other) = two_processes();
    let doomed = furnished(&one).await;
    let path = format!("/v1/workspaces/{}", doomed.workspace);
    let died = Arc::new(Mutex::new(false));
    let (mut count, noted, store) = (0, died.clone(), one.memory.clone().unwrap());
    one.gate.hold(move |commit| {
        count += 1;
        let (is_it, noted, store) = (count > last, noted.clone(), store.clone());
        async move {
            if !is_it {
                return Ok(());
            }
            let was_dead = std::mem::replace(&mut *noted.lock().unwrap(), true);
            if is_written && !was_dead {
                dormouse_ports::Commits::commit(&*store, &commit).await?;
            }
            Err(CommitError::Store(StoreError::Unavailable("the process died".to_owned())))
        }
        .boxed()
    });
    let answer = one.call(ada(), "DELETE", &path, &Value::Null, None).await;
    let has_died = *died.lock().unwrap();
    assert_eq!(answer.is_err(), has_died, "{last}: {answer:?}");
    assert_eq!(other.delete(&path).await["complete"], true, "{last}");
    doomed.is_gone(&other).await;
    has_died
}

#[tokio::test]
async fn a_deletion_that_dies_at_any_write_is_finished_by_the_next() {
    for is_written in [false, true] {
        let mut writes = 0;
        while dies_at(writes, is_written).await {
            writes += 1;
        }
        assert!(writes > 6, "the workspace, two sessions, a task and the rest: {writes}");
    }
}

#[tokio::test]
async fn what_is_more_than_one_request_deletes_is_left_to_the_next() {
    let world = World::new();
    let workspace = world.workspace().await;
    for _ in 0..510 {
        world.post("/v1/vaults", json!({"workspace_id": workspace, "provider": "test", "capabilities": []})).await;
    }
    let path = format!("/v1/workspaces/{workspace}");
    let mut answers = Vec::new();
    for _ in 0..3 {
        let answer = world.call(ada(), "DELETE", &path, &Value::Null, Some("one key")).await.unwrap();
        let answer = crate::world::body(answer);
        answers.push((answer["others"].as_u64().unwrap(), answer["complete"].as_bool().unwrap()));
    }
    assert_eq!(answers, [(500, false), (10, true), (10, true)], "the last is the answer that the key was given");
    let marker = DocumentKey::new("workspace_deletion", workspace.as_str());
    let marker = dormouse_ports::Records::document(&**world.memory.as_ref().unwrap(), &marker, ada_now(&world)).await;
    assert_eq!(marker.unwrap().unwrap().body["by"], "ada");
}

fn ada_now(world: &World) -> jiff::Timestamp {
    dormouse_ports::Clock::now(&*world.clock)
}

#[tokio::test]
async fn a_task_whose_session_was_erased_is_ended_by_an_operator_and_not_there_for_clients() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), expense()).await;
    let task = text(&task["id"]).to_owned();
    world.work().await;
    let session = session.rsplit('/').next().unwrap();
    let store = world.memory.as_ref().expect("it is in memory");
    let now = ada_now(&world);
    let key = DocumentKey::new("session", session);
    let version = Records::document(&**store, &key, now).await.unwrap().expect("a session").version;
    let journal = Journal::new(vec![DocumentWrite::remove(key, version)], Vec::new());
    store.commit(&Commit { journal, ..Commit::new("erased", now) }).await.unwrap();

    let path = format!("/v1/tasks/{task}/cancel");
    let refused = world.refusal(ada(), "POST", &path, json!({})).await;
    assert_eq!(refused.code(), ErrorCode::ResourceNotFound, "{refused:?}");
    world.harness.cancel(&task.as_str().into(), None, None).await.expect("it is ended");
    let left = Invocations::load_invocation(&**store, &task.as_str().into()).await.unwrap().expect("a record");
    assert!(matches!(left.status, InvocationStatus::Canceled(_)), "it sleeps no more: {:?}", left.status);
}
