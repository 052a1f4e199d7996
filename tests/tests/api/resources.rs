//! Workspaces, personas, artifacts, branches: what is written can be read, by its id and in its lists.

use std::sync::Arc;

use dormouse_api::{AgentSource, CallAnswer, CatalogLine, PersonaSpec, ToolInfo};
use dormouse_engine::{CompiledGraph, EngineError};
use dormouse_harness::{GraphSource, VersionedGraph};
use dormouse_ports::Category;
use serde_json::{Value, json};

use crate::world::{World, actor, ada, ids, says, text};

#[tokio::test]
async fn a_workspace_is_made_read_changed_and_listed() {
    let world = World::new();
    let made = world.post("/v1/workspaces", json!({"name": "desk", "root": "/", "image": "debian"})).await;
    let path = format!("/v1/workspaces/{}", text(&made["id"]));
    assert_eq!(world.get(&path).await, made);
    assert_eq!(made["metadata"], json!({"image": "debian"}));
    let changed = world.patch(&path, json!({"name": "bench", "capabilities": ["write"]})).await;
    assert_eq!((&changed["name"], &changed["capabilities"]), (&json!("bench"), &json!(["write"])));
    assert_eq!(changed["metadata"], made["metadata"], "what was not named stays");
    assert_eq!(world.get("/v1/workspaces").await["data"], json!([changed]));
}

#[tokio::test]
async fn each_graph_is_a_persona() {
    let world = World::new();
    let page = world.get("/v1/personas?limit=3").await;
    assert_eq!(ids(&page), ["persona_chat", "persona_expense-approval", "persona_export-job"]);
    let rest = world.get(&format!("/v1/personas?limit=7&cursor={}", text(&page["page"]["next_cursor"]))).await;
    assert_eq!(
        (ids(&rest), &rest["page"]["has_more"]),
        (
            ["reminder", "purchase", "search", "steps", "work", "silent", "strict"]
                .map(|graph| format!("persona_{graph}"))
                .to_vec(),
            &json!(false)
        )
    );
    assert_eq!(world.get("/v1/personas/persona_chat").await, page["data"][0]);
    assert_eq!(world.refusal(ada(), "GET", "/v1/personas/persona_x", Value::Null).await.status(), 404);
}

/// Agents of a workspace that cannot be loaded, beside another one that has none; of this tenant, or nobody's.
#[derive(Debug)]
struct Broken(Option<&'static str>);

#[async_trait::async_trait]
impl GraphSource for Broken {
    async fn current(&self, _: &str, _: bool) -> Result<Option<VersionedGraph>, EngineError> {
        Err(EngineError::new(Category::ProviderUnavailable, "it is broken"))
    }

    fn has(&self, _: &str) -> bool {
        false
    }

    async fn of_version(&self, _: &str, _: &str) -> Result<Arc<CompiledGraph>, EngineError> {
        Err(EngineError::new(Category::ProviderUnavailable, "it is broken"))
    }

    fn made(&self) -> Vec<Arc<CompiledGraph>> {
        Vec::new()
    }
}

#[async_trait::async_trait]
impl AgentSource for Broken {
    async fn personas(&self) -> Result<Vec<PersonaSpec>, String> {
        Ok(Vec::new())
    }

    fn home(&self) -> Option<&str> {
        self.0
    }

    async fn tools(&self, _: bool) -> Result<Vec<ToolInfo>, String> {
        Ok(Vec::new())
    }

    async fn catalog(&self, _: bool) -> Result<Vec<CatalogLine>, String> {
        Ok(Vec::new())
    }

    async fn refusal_of(&self, _: &str) -> Result<Option<String>, String> {
        Err("it is broken".to_owned())
    }

    fn prepare(&self, _: Box<dyn Fn(&CompiledGraph) + Send + Sync>) {}
}

#[tokio::test]
async fn a_persona_of_an_agent_that_cannot_be_loaded_at_the_moment_is_not_said_to_be_gone() {
    let (world, session) = World::with_session().await;
    let persona = json!({"name": "Clerk", "version": "1", "entry_workflow": "chat", "description": "Talks.",
        "autonomy_tier": "act_with_approval", "receipt_policy": "optional"});
    let made = world.post("/v1/personas", persona).await;
    let task = json!({"persona_id": made["id"], "input": says("Hello")["input"]});
    let call = || world.asked(ada(), "POST", &format!("{session}/tasks"), &task, None).unwrap();
    let refusal = world.served_by(Arc::new(Broken(None))).serve(call()).await.unwrap_err();
    assert_eq!(refusal.status(), 503, "it is asked again: {refusal}");
    assert!(world.api.serve(call()).await.is_ok());
}

#[tokio::test]
async fn no_persona_is_said_not_to_be_there_while_it_may_be_in_a_workspace_that_cannot_be_loaded() {
    let (world, session) = World::with_session().await;
    let made = json!({"name": "Clerk", "version": "1", "entry_workflow": "clerk", "description": "Talks.",
        "autonomy_tier": "act_with_approval", "receipt_policy": "optional"});
    let task = json!({"persona_id": "persona_clerk", "input": says("Hello")["input"]});
    let (clerk, tasks) = ("/v1/personas/persona_clerk", format!("{session}/tasks"));
    for (method, target, body, status) in [
        ("GET", clerk, Value::Null, 404),
        ("PATCH", clerk, json!({"description": "Talks."}), 404),
        ("POST", "/v1/personas", made, 400),
        ("POST", &tasks, task, 404),
    ] {
        let refusal = world.refusal(ada(), method, target, body.clone()).await;
        assert_eq!(refusal.status(), status, "{method} {target}: there is none: {refusal}");
        // Also a tenant that finds only what is shared may find it there.
        for home in [None, Some("acme"), Some("other")] {
            let call = world.asked(ada(), method, target, &body, None).unwrap();
            let refusal = world.served_by(Arc::new(Broken(home))).serve(call).await.unwrap_err();
            assert_eq!(refusal.status(), 503, "{method} {target} beside agents of {home:?}: {refusal}");
        }
    }
}

#[tokio::test]
async fn an_artifact_belongs_to_what_its_task_belongs_to() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    let given = json!({"kind": "log", "mime_type": "text/plain", "visibility": "public", "task_id": task["id"],
        "uri": "data:text/plain;base64,aGk="});
    let made = world.post("/v1/artifacts", given).await;
    assert_eq!((&made["session_id"], &made["workspace_id"]), (&task["session_id"], &task["workspace_id"]));
    let id = text(&made["id"]);
    assert_eq!(world.get(&format!("/v1/artifacts/{id}")).await, made);
    for filter in ["task_id", "session_id", "workspace_id"] {
        let list = world.get(&format!("/v1/artifacts?{filter}={}", text(&made[filter]))).await;
        assert_eq!(ids(&list), [id], "{filter}");
    }
    assert_eq!(made["sha256"], "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4");
    let content = world.call(ada(), "GET", &format!("/v1/artifacts/{id}/content"), &Value::Null, None).await;
    assert_eq!(content, Ok(CallAnswer::Bytes { content_type: "text/plain".to_owned(), bytes: b"hi".to_vec() }));
    assert_eq!(world.told(&format!("{session}/events")).await.last().unwrap(), "artifact.created");
    let other = json!({"kind": "log", "mime_type": "a/b", "visibility": "public", "task_id": task["id"],
        "workspace_id": "workspace_x"});
    let refusal = world.refusal(ada(), "POST", "/v1/artifacts", other).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("workspace_id")));
    let wrong = json!({"kind": "log", "mime_type": "a/b", "visibility": "public", "task_id": task["id"],
        "uri": "data:text/plain,hi", "sha256": "0".repeat(64)});
    let refusal = world.refusal(ada(), "POST", "/v1/artifacts", wrong).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("sha256")));
}

#[tokio::test]
async fn an_artifact_of_nobody_has_its_own_events() {
    let world = World::new();
    let given = json!({"kind": "other", "mime_type": "a/b", "visibility": "internal"});
    let made = world.post("/v1/artifacts", given).await;
    let events = world.get("/v1/events").await;
    assert_eq!(events["data"][0]["resource"]["id"], made["id"]);
    let event = text(&events["data"][0]["id"]);
    assert_eq!(world.get(&format!("/v1/events/{event}")).await, events["data"][0]);
    let path = format!("/v1/artifacts/{}/content", text(&made["id"]));
    assert_eq!(world.refusal(ada(), "GET", &path, Value::Null).await.status(), 403, "it is internal");
    assert_eq!(world.refusal(actor("eve", "evil", None), "GET", &path, Value::Null).await.status(), 404);
}

/// The address may be the content itself, and a short content is found by its hash.
#[tokio::test]
async fn nothing_shows_where_the_content_is_of_what_is_not_public() {
    let (world, session) = World::with_session().await;
    let session_id = session.strip_prefix("/v1/sessions/").unwrap();
    let uri = "data:text/plain,c2VjcmV0LWNvbnRlbnQ";
    for (visibility, with_address, with_hash) in
        [("public", true, true), ("internal", false, false), ("receipt_only", false, true)]
    {
        let given = json!({"kind": "log", "mime_type": "text/plain", "visibility": visibility, "uri": uri,
            "session_id": session_id});
        let made = world.post("/v1/artifacts", given).await;
        let id = text(&made["id"]);
        let listed = world.get(&format!("/v1/artifacts?session_id={session_id}")).await;
        let one = world.get(&format!("/v1/artifacts/{id}")).await;
        let in_list = listed["data"].as_array().unwrap().iter().find(|seen| seen["id"] == made["id"]).unwrap();
        for seen in [&made, &one, in_list] {
            assert_eq!(seen["uri"].is_string(), with_address, "{visibility}: {seen}");
            assert_eq!(seen["sha256"].is_string(), with_hash, "{visibility}: {seen}");
        }
        let events = world.get(&format!("{session}/events")).await;
        let told = events["data"].as_array().unwrap().last().unwrap();
        assert_eq!((text(&told["resource"]["id"]), told.to_string().contains(uri)), (id, with_address), "{told}");
    }
}

#[tokio::test]
async fn a_branch_is_made_in_a_session() {
    let (world, session) = World::with_session().await;
    let path = format!("{session}/branches");
    let made = world.post(&path, json!({"kind": "task", "base_ref": "main", "metadata": {"a": 1}})).await;
    assert_eq!(world.get(&format!("/v1/branches/{}", text(&made["id"]))).await, made);
    let given = json!({"kind": "task", "base_ref": "b", "parent_branch_id": made["id"]});
    let child = world.post(&path, given).await;
    assert_eq!(ids(&world.get(&path).await), [text(&child["id"]), text(&made["id"])], "the newest first");
    let told = world.told(&format!("{session}/events")).await;
    assert_eq!(told, ["session.created", "branch.created", "branch.created"]);
}

/// What does not exist and what is another tenant's cannot be told apart.
#[tokio::test]
async fn what_a_new_resource_names_must_be_there_for_its_maker() {
    let (world, theirs) = World::with_session().await;
    let task = world.post(&format!("{theirs}/tasks"), says("Hello")).await;
    let branch = world.post(&format!("{theirs}/branches"), json!({"kind": "task", "base_ref": "main"})).await;
    let eve = || actor("eve", "evil", None);
    let made = async |target: &str, body: Value| match world.call(eve(), "POST", target, &body, None).await {
        Ok(CallAnswer::Json(_, body)) => text(&body["id"]).to_owned(),
        other => panic!("{other:?}"),
    };
    let desk = made("/v1/workspaces", json!({"name": "desk", "root": "/"})).await;
    let session = format!("/v1/sessions/{}", made("/v1/sessions", json!({"workspace_id": desk})).await);
    let naming = |mut given: Value, key: &str, id: &Value| {
        given[key] = id.clone();
        given
    };
    let artifact =
        |key, id: &Value| naming(json!({"kind": "log", "mime_type": "a/b", "visibility": "public"}), key, id);
    let new_branch = |key, id: &Value| naming(json!({"kind": "task", "base_ref": "main"}), key, id);
    let branches = format!("{session}/branches");
    let fork = format!("{session}/fork");
    let nobody = |kind: &str| json!(format!("{kind}_x"));
    for (target, body) in [
        ("/v1/artifacts", artifact("workspace_id", &task["workspace_id"])),
        ("/v1/artifacts", artifact("workspace_id", &nobody("workspace"))),
        ("/v1/artifacts", artifact("session_id", &task["session_id"])),
        ("/v1/artifacts", artifact("session_id", &nobody("session"))),
        ("/v1/artifacts", artifact("task_id", &task["id"])),
        ("/v1/artifacts", artifact("task_id", &nobody("task"))),
        (&branches, new_branch("parent_branch_id", &branch["id"])),
        (&branches, new_branch("parent_branch_id", &nobody("branch"))),
        (&branches, new_branch("task_id", &task["id"])),
        (&branches, new_branch("task_id", &nobody("task"))),
        (&fork, json!({"branch_id": branch["id"]})),
        (&fork, json!({"branch_id": nobody("branch")})),
        ("/v1/sessions", json!({"workspace_id": task["workspace_id"]})),
        ("/v1/sessions", json!({"workspace_id": nobody("workspace")})),
        ("/v1/sessions", json!({"workspace_id": desk, "persona_id": nobody("persona")})),
    ] {
        assert_eq!(world.refusal(eve(), "POST", target, body.clone()).await.status(), 404, "{target} {body}");
    }
}

#[tokio::test]
async fn pages_survive_what_is_written_between_them() {
    let world = World::new();
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.workspace().await);
        world.clock.advance(std::time::Duration::from_millis(1));
    }
    let first = world.get("/v1/workspaces?limit=2").await;
    assert_eq!(ids(&first), [made[4].as_str(), &made[3]]);
    world.workspace().await;
    let next = |page: &Value| format!("/v1/workspaces?limit=2&cursor={}", text(&page["page"]["next_cursor"]));
    let second = world.get(&next(&first)).await;
    assert_eq!(ids(&second), [made[2].as_str(), &made[1]]);
    let third = world.get(&next(&second)).await;
    assert_eq!((ids(&third), &third["page"]["next_cursor"]), (vec![made[0].clone()], &Value::Null));
    let refusal = world.refusal(actor("bob", "acme", None), "GET", &next(&first), Value::Null).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("cursor")), "a cursor is for whom it was made");
}

/// Each list × each filter that it takes: what it leaves out belongs to the same actor, so that only the filter does.
#[tokio::test]
async fn a_list_shows_what_its_filters_say_and_nothing_else() {
    let world = World::new();
    let mut made = Vec::new();
    for words in ["one", "two"] {
        let session = world.session().await;
        let task = world.post(&format!("{session}/tasks"), says(words)).await;
        let artifact = json!({"kind": "log", "mime_type": "a/b", "visibility": "public", "task_id": task["id"]});
        let artifact = world.post("/v1/artifacts", artifact).await;
        let session = world.get(&session).await;
        made.push((session, task, artifact));
    }
    world.while_time_passes(world.work()).await;
    let [(session, task, artifact), (_, other, _)] = &made[..] else { panic!("{made:?}") };
    let of_workspace = text(&session["workspace_id"]);
    let of_session = text(&session["id"]);
    let of_task = text(&task["id"]);
    let mine = vec![of_task.to_owned()];
    let tasks = format!("/v1/sessions/{of_session}/tasks");
    let cases = [
        (format!("/v1/sessions?workspace_id={of_workspace}"), vec![of_session.to_owned()]),
        (format!("/v1/tasks?workspace_id={of_workspace}"), mine.clone()),
        (format!("/v1/tasks?session_id={of_session}"), mine.clone()),
        (format!("/v1/tasks?session_id={of_session}&workspace_id={of_workspace}"), mine.clone()),
        (format!("/v1/tasks?session_id={of_session}&workspace_id={}", text(&other["workspace_id"])), Vec::new()),
        (tasks.clone(), mine.clone()),
        (format!("{tasks}?workspace_id={}", text(&other["workspace_id"])), Vec::new()),
    ];
    for (target, expected) in cases {
        assert_eq!(ids(&world.get(&target).await), expected, "{target}");
    }
    let filters = [("workspace_id", of_workspace), ("session_id", of_session), ("task_id", of_task)];
    for (name, own) in filters {
        assert_eq!(ids(&world.get(&format!("/v1/artifacts?{name}={own}")).await), [text(&artifact["id"])], "{name}");
        for (second, _) in filters.iter().filter(|(second, _)| *second != name) {
            let foreign = if *second == "task_id" { text(&other["id"]) } else { text(&other[*second]) };
            let both = format!("/v1/artifacts?{name}={own}&{second}={foreign}");
            assert_eq!(world.get(&both).await["data"], json!([]), "{both}");
        }
        let events = world.get(&format!("/v1/events?{name}={own}")).await;
        let events = events["data"].as_array().unwrap();
        assert!(!events.is_empty() && events.iter().all(|event| event[name] == own), "{name}: {events:?}");
    }
    for (_, task, _) in &made {
        let outcomes = world.get(&format!("/v1/outcomes?task_id={}", text(&task["id"]))).await;
        let outcomes = outcomes["data"].as_array().unwrap();
        assert!(outcomes.len() == 1 && outcomes[0]["task_id"] == task["id"], "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_file_and_a_folder_of_one_name_that_were_made_at_once_are_both_listed() {
    let world = World::new();
    let files = format!("/v1/workspaces/{}/files", world.workspace().await);
    // Who writes into the folder is faster than who has seen that there is none.
    let (other, within) = (world.clone(), format!("{files}?path=a/b"));
    let mut is_first = true;
    world.gate.hold(move |_| {
        let (other, within) = (other.clone(), within.clone());
        let goes_first = std::mem::take(&mut is_first);
        Box::pin(async move {
            if goes_first {
                other.call(ada(), "PUT", &within, &json!({"content": "b"}), None).await.unwrap();
            }
            Ok(())
        })
    });
    world.call(ada(), "PUT", &format!("{files}?path=a"), &json!({"content": "a"}), None).await.unwrap();
    world.gate.open();
    let listed = world.get(&files).await;
    let kinds: Vec<&str> = listed["entries"].as_array().unwrap().iter().map(|entry| text(&entry["kind"])).collect();
    assert_eq!(kinds, ["file", "directory"]);
}
