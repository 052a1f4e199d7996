//! What is refused, and that nothing was written then. [`World::refusal`] compares the whole store.

use serde_json::{Value, json};

use crate::world::{World, actor, ada, says, text};

#[tokio::test]
async fn what_belongs_to_another_tenant_is_not_there() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("an approval")).await;
    world.work().await.unwrap();
    let task = text(&task["id"]);
    let messages = world.get(&format!("{session}/messages")).await;
    let branch = world.post(&format!("{session}/branches"), json!({"kind": "task", "base_ref": "main"})).await;
    let workspace = text(&world.get("/v1/workspaces").await["data"][0]["id"]).to_owned();
    let artifact = json!({"kind": "log", "mime_type": "text/plain", "visibility": "public", "uri": "data:,x",
        "workspace_id": workspace});
    let artifact = format!("/v1/artifacts/{}", text(&world.post("/v1/artifacts", artifact).await["id"]));
    let event = text(&world.get(&format!("{session}/events")).await["data"][0]["id"]).to_owned();
    world.post(&format!("/v1/tasks/{task}/cancel"), Value::Null).await;
    let outcome = text(&world.get("/v1/outcomes").await["data"][0]["id"]).to_owned();
    let input = json!({"kind": "input", "message": {"role": "user", "parts": []}});
    let message = json!({"message": {"role": "user", "parts": []}});
    let of_workspace = json!({"workspace_id": workspace});
    let calls = [
        ("GET", session.clone(), Value::Null),
        ("PATCH", session.clone(), json!({"summary": "mine"})),
        ("GET", format!("{session}/messages"), Value::Null),
        ("POST", format!("{session}/messages"), message),
        ("POST", format!("{session}/tasks"), says("Hello")),
        ("POST", "/v1/tasks".to_owned(), json!({"session_id": session.rsplit('/').next(), "input": {}})),
        ("GET", format!("{session}/tasks"), Value::Null),
        ("GET", format!("{session}/events"), Value::Null),
        ("GET", format!("{session}/branches"), Value::Null),
        ("POST", format!("{session}/close"), Value::Null),
        ("POST", format!("{session}/fork"), Value::Null),
        ("POST", format!("{session}/truncate"), json!({"keep_first": 0})),
        ("GET", format!("/v1/tasks/{task}"), Value::Null),
        ("GET", format!("/v1/tasks/{task}/events"), Value::Null),
        ("POST", format!("/v1/tasks/{task}/cancel"), Value::Null),
        ("POST", format!("/v1/tasks/{task}/messages"), input),
        ("GET", format!("/v1/messages/{}", text(&messages["data"][0]["id"])), Value::Null),
        ("GET", format!("/v1/branches/{}", text(&branch["id"])), Value::Null),
        ("GET", format!("/v1/workspaces/{workspace}"), Value::Null),
        ("PATCH", format!("/v1/workspaces/{workspace}"), json!({"name": "mine"})),
        ("POST", "/v1/sessions".to_owned(), of_workspace),
        ("GET", format!("/v1/events/{event}"), Value::Null),
        ("GET", format!("/v1/outcomes/{outcome}"), Value::Null),
        ("GET", artifact.clone(), Value::Null),
        ("GET", format!("{artifact}/content"), Value::Null),
    ];
    for stranger in [actor("eve", "evil", None), actor("bob", "acme", Some(&["workspace_other"]))] {
        for (method, target, body) in &calls {
            let refusal = world.refusal(stranger.clone(), method, target, body.clone()).await;
            assert_eq!(refusal.status(), 404, "{method} {target}: {refusal}");
        }
        let behind = format!("/v1/events?after_event_id={event}");
        assert_eq!(world.refusal(stranger.clone(), "GET", &behind, Value::Null).await.status(), 410);
        for list in ["sessions", "tasks", "workspaces", "artifacts", "outcomes", "events"] {
            let list = world.call(stranger.clone(), "GET", &format!("/v1/{list}"), &Value::Null, None).await;
            assert_eq!(crate::world::body(list.unwrap())["data"], json!([]));
        }
    }
}

/// Two who have the same name, send the same key and hold the cursors of each other: nothing is shared.
#[tokio::test]
async fn namesakes_of_other_tenants_share_neither_keys_nor_cursors() {
    let world = World::new();
    let ada = ada();
    let eve = actor("ada", "evil", None);
    let body = json!({"name": "desk", "root": "/"});
    let mut made = Vec::new();
    for who in [&ada, &eve, &ada] {
        let answer = world.call(who.clone(), "POST", "/v1/workspaces", &body, Some("the same")).await.unwrap();
        made.push(text(&crate::world::body(answer)["id"]).to_owned());
    }
    assert_eq!((made[0] == made[1], made[0] == made[2]), (false, true));
    world.post("/v1/workspaces", body).await;
    let page = world.get("/v1/workspaces?limit=1").await;
    let next = format!("/v1/workspaces?limit=1&cursor={}", text(&page["page"]["next_cursor"]));
    assert_eq!(world.get(&next).await["data"][0]["id"], made[0].as_str());
    let refusal = world.refusal(eve, "GET", &next, Value::Null).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("cursor")));
}

#[tokio::test]
async fn a_key_for_one_workspace_works_in_it() {
    let world = World::new();
    let one = world.workspace().await;
    let two = world.workspace().await;
    let bob = actor("bob", "acme", Some(&[&one]));
    let made = world.call(bob.clone(), "POST", "/v1/sessions", &json!({"workspace_id": one}), None).await;
    assert!(made.is_ok(), "{made:?}");
    world.post("/v1/sessions", json!({"workspace_id": two})).await;
    let list = world.call(bob.clone(), "GET", "/v1/sessions", &Value::Null, None).await.unwrap();
    assert_eq!(crate::world::body(list)["data"].as_array().unwrap().len(), 1);
    let refusal = world.refusal(bob, "POST", "/v1/workspaces", json!({"name": "x", "root": "/"})).await;
    assert_eq!(refusal.status(), 403);
}

#[tokio::test]
async fn a_task_that_cannot_begin_is_refused() {
    let (world, session) = World::with_session().await;
    let path = format!("{session}/tasks");
    let expense = |input: Value| json!({"persona_id": "persona_expense-approval", "input": input});
    for (body, status, param) in [
        (json!({}), 400, Some("input")),
        (json!({"input": {"messages": []}}), 400, Some("input.messages")),
        (json!({"input": {"messages": [{"role": "robot"}]}}), 400, Some("input.messages")),
        (json!({"input": {"role": "user", "parts": []}}), 400, Some("input.parts")),
        (expense(json!({"amount_cents": "many"})), 400, Some("input")),
        (expense(says("Hello")["input"].clone()), 400, Some("input.parts")),
        (json!({"persona_id": "persona_x", "input": {}}), 404, None),
        (json!({"branch_id": "branch_x", "input": {}}), 404, None),
        (json!({"parent_task_id": "task_x", "input": {}}), 404, None),
        (json!({"session_id": "session_x", "input": {}}), 400, Some("session_id")),
        (json!({"workspace_id": "workspace_x", "input": {}}), 400, Some("workspace_id")),
    ] {
        let refusal = world.refusal(ada(), "POST", &path, body.clone()).await;
        assert_eq!((refusal.status(), refusal.param()), (status, param), "{body}: {refusal}");
    }
    let refusal = world.refusal(ada(), "POST", "/v1/tasks", json!({"input": {}})).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("session_id")));
    assert!(world.bus.events().is_empty());
}

#[tokio::test]
async fn a_server_that_runs_no_agents_of_files_says_so_and_what_to_do() {
    let world = World::new();
    let files = json!({".openharness/agents/mine.md": "Work.\n"});
    let workspace = world.post("/v1/workspaces", json!({"name": "w", "root": "/", "files": files})).await;
    let session = world.post("/v1/sessions", json!({"workspace_id": workspace["id"]})).await;
    let body = json!({"session_id": session["id"], "persona_id": "persona_mine", "input": says("Hello")["input"]});
    let refusal = world.refusal(ada(), "POST", "/v1/tasks", body).await;
    assert_eq!(refusal.status(), 404);
    assert!(refusal.message().contains("dormouse workspace publish"), "{refusal}");
}

#[tokio::test]
async fn ids_that_can_name_nothing_are_not_there() {
    let world = World::new();
    let resources = ["sessions", "tasks", "messages", "events", "artifacts", "outcomes", "branches", "workspaces"];
    for resource in resources {
        for id in ["x", "%2F", "a%20b", "event__1", "message_session_x_0000000000000000", &"x".repeat(300)] {
            let refusal = world.refusal(ada(), "GET", &format!("/v1/{resource}/{id}"), Value::Null).await;
            assert_eq!(refusal.status(), 404, "{resource} {id}");
        }
    }
}

#[tokio::test]
async fn bad_limits_and_cursors_are_refused() {
    let (world, session) = World::with_session().await;
    for target in ["/v1/sessions".to_owned(), format!("{session}/messages"), "/v1/personas".to_owned()] {
        for (query, param) in [("limit=0", "limit"), ("limit=x", "limit"), ("cursor=x", "cursor")] {
            let refusal = world.refusal(ada(), "GET", &format!("{target}?{query}"), Value::Null).await;
            assert_eq!((refusal.status(), refusal.param()), (400, Some(param)), "{target}?{query}");
        }
    }
}

#[tokio::test]
async fn what_belongs_to_other_levels_is_not_offered() {
    let world = World::new();
    for target in ["/v1/receipts/receipt_1", "/v1/tasks/task_1/receipts"] {
        let refusal = world.refusal(ada(), "GET", target, Value::Null).await;
        assert_eq!((refusal.status(), refusal.code().as_str()), (501, "invalid_request"), "{target}");
    }
}
