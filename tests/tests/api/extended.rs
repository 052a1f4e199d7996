//! Personas of tenants, vaults, memories, files, skills, tools and requests for permissions.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_api::CallAnswer;
use dormouse_ports::{Clock, Document, DocumentKey, DocumentWrite, DocumentWrites, Records};
use dormouse_testkit::MemoryStore;
use serde_json::{Value, json};

use crate::receipts::metered;
use crate::shared_streams::Counting;
use crate::world::{World, actor, ada, body, ids, says, text};

fn persona(workflow: &str, tier: &str) -> Value {
    json!({"name": "Clerk", "version": "1", "entry_workflow": workflow, "description": "Asks for money.",
        "autonomy_tier": tier, "receipt_policy": "optional", "module_ref": "acme/clerk",
        "metadata": {"team": "desk", "api_key": "sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}})
}

fn memory(scope: &str, owner: &str, content: Value) -> Value {
    json!({"scope": scope, "owner_id": owner, "content": content, "provenance": {"source": "a talk"}})
}

#[tokio::test]
async fn a_tenant_makes_personas_of_the_workflows_of_the_server() {
    let (world, session) = World::with_session().await;
    let made = world.post("/v1/personas", persona("expense-approval", "act_with_approval")).await;
    let id = text(&made["id"]).to_owned();
    assert_eq!((&made["owner"], &made["metadata"]["module_ref"]), (&json!("ada"), &json!("acme/clerk")));
    assert!(!made.to_string().contains("sk-aaaa"), "{made}");
    assert_eq!(world.get(&format!("/v1/personas/{id}")).await, made);
    let listed = ids(&world.get("/v1/personas").await);
    assert_eq!((listed[0].as_str(), listed.len()), (id.as_str(), 11));
    let changed = world.patch(&format!("/v1/personas/{id}"), json!({"description": "Asks twice."})).await;
    assert_eq!((&changed["description"], &changed["version"]), (&json!("Asks twice."), &json!("1")));

    let expense =
        json!({"persona_id": id, "input": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}});
    let task = world.post(&format!("{session}/tasks"), expense).await;
    assert_eq!(text(&task["persona_id"]), id);
    world.work().await.unwrap();
    let task = world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await;
    assert_eq!(task["status"], "AUTH_REQUIRED");

    let eve = || actor("eve", "other", None);
    for (method, body) in [("GET", Value::Null), ("PATCH", json!({"description": "mine"}))] {
        assert_eq!(world.refusal(eve(), method, &format!("/v1/personas/{id}"), body).await.status(), 404);
    }
    let theirs = body(world.call(eve(), "GET", "/v1/personas", &Value::Null, None).await.unwrap());
    assert_eq!(ids(&theirs).len(), 10, "those of the server");
    let workspace =
        body(world.call(eve(), "POST", "/v1/workspaces", &json!({"name": "w", "root": "/"}), None).await.unwrap());
    let stolen = json!({"workspace_id": workspace["id"], "persona_id": id});
    assert_eq!(world.refusal(eve(), "POST", "/v1/sessions", stolen).await.status(), 404);
}

#[tokio::test]
async fn a_persona_by_its_name_alone_or_with_a_slip_is_not_found_and_its_id_is_told() {
    let (world, session) = World::with_session().await;
    let meant = Some("did you mean `persona_expense-approval`?");
    for (named, told) in [("expense-approval", meant), ("persona_expense-aproval", meant), ("nobody", None)] {
        let task = json!({"persona_id": named, "input": says("Hello")["input"]});
        let refusal = world.refusal(ada(), "POST", &format!("{session}/tasks"), task).await;
        assert_eq!(refusal.status(), 404);
        assert_eq!(refusal.message().contains("did you mean"), told.is_some(), "{}", refusal.message());
        assert!(told.is_none_or(|told| refusal.message().contains(told)), "{}", refusal.message());
    }
}

#[tokio::test]
async fn lists_of_what_is_stored_and_what_comes_with_the_server_go_on_page_by_page() {
    let world = World::new();
    for _ in 0..3 {
        world.post("/v1/personas", persona("chat", "act_auto")).await;
    }
    let whole = ids(&world.get("/v1/personas").await);
    assert_eq!(whole.len(), 13);
    for limit in 1..=12 {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = world.get(&format!("/v1/personas?limit={limit}&cursor={cursor}")).await;
            assert!(ids(&page).len() <= limit);
            seen.extend(ids(&page));
            let Some(next) = page["page"]["next_cursor"].as_str() else { break };
            cursor = next.to_owned();
        }
        assert_eq!(seen, whole, "{limit}");
    }
    let skills = world.get("/v1/skills?limit=4").await;
    assert_eq!((ids(&skills).len(), &skills["page"]["has_more"]), (4, &json!(true)));
    let rest = world.get(&format!("/v1/skills?cursor={}", text(&skills["page"]["next_cursor"]))).await;
    assert_eq!((ids(&rest).len(), &rest["page"]["has_more"]), (6, &json!(false)));
    assert_eq!(world.get("/v1/skills/skill_chat").await["name"], "chat");
    assert_eq!(world.get("/v1/tools").await["data"], json!([]));
    assert_eq!(world.get("/v1/runtime").await["object"], "runtime");
    assert!(world.get("/v1/capabilities").await.to_string().contains("vaults"));
    for target in ["/v1/skills/skill_none", "/v1/tools/tool_none", "/v1/quotas/quota_none", "/v1/connectors/c"] {
        assert_eq!(world.refusal(ada(), "GET", target, Value::Null).await.status(), 404, "{target}");
    }
}

#[tokio::test]
async fn a_persona_promises_no_more_than_its_workflow_keeps() {
    let world = World::new();
    for (workflow, tier, status) in
        [("chat", "suggest", 422), ("chat", "shadow", 422), ("nothing", "act_auto", 400), ("../chat", "act_auto", 400)]
    {
        let refusal = world.refusal(ada(), "POST", "/v1/personas", persona(workflow, tier)).await;
        assert_eq!(refusal.status(), status, "{workflow} {tier}: {refusal}");
    }
    let of_server = world.refusal(ada(), "PATCH", "/v1/personas/persona_chat", json!({"description": "x"})).await;
    assert_eq!(of_server.status(), 403);
    let one = world.workspace().await;
    let bound = actor("bob", "acme", Some(&[&one]));
    let refusal = world.refusal(bound, "POST", "/v1/personas", persona("chat", "act_auto")).await;
    assert_eq!(refusal.status(), 403);
    let made = world.post("/v1/personas", persona("chat", "act_auto")).await;
    let quota = json!({"quota_id": "quota_none"});
    let refusal = world.refusal(ada(), "PATCH", &format!("/v1/personas/{}", text(&made["id"])), quota).await;
    assert_eq!(refusal.status(), 404);
}

#[tokio::test]
async fn a_persona_that_requires_receipts_works_only_where_they_are_issued() {
    let ring = dormouse_receipts::KeyRing::new([7; 32], None);
    for receipts in [None, Some(dormouse_api::Receipts::of(&ring))] {
        let issues = receipts.is_some();
        let world = receipts.map_or_else(World::new, World::issuing);
        let session = world.session().await;
        let strict = json!({"receipt_policy": "required"});
        let made = world.post("/v1/personas", persona("chat", "act_auto")).await;
        let made = world.patch(&format!("/v1/personas/{}", text(&made["id"])), strict).await;
        let task = json!({"persona_id": made["id"], "input": says("Hello")["input"]});
        let answer = world.call(ada(), "POST", &format!("{session}/tasks"), &task, None).await;
        match issues {
            true => assert!(answer.is_ok(), "{answer:?}"),
            false => assert_eq!(answer.expect_err("no receipts").status(), 422),
        }
    }
}

#[tokio::test]
async fn vaults_tell_nothing_of_their_secrets() {
    let world = World::new();
    let workspace = world.workspace().await;
    let vault = json!({"workspace_id": workspace, "provider": "test", "capabilities": ["webhooks:verify"],
        "metadata": {"password": "hush", "team": "desk"}});
    let mut told = vault.clone();
    told["secrets"] = json!({"TOKEN": "hush"});
    let refusal = world.refusal(ada(), "POST", "/v1/vaults", told).await;
    assert!(refusal.param() == Some("secrets") && !refusal.to_string().contains("hush"), "{refusal}");
    let made = world.post("/v1/vaults", vault).await;
    let target = format!("/v1/vaults/{}", text(&made["id"]));
    for shown in [made.clone(), world.get(&target).await, world.get("/v1/vaults").await] {
        assert!(!shown.to_string().contains("hush") && shown.to_string().contains("desk"), "{shown}");
    }
    assert!(!world.written().contains("hush"), "it is not even stored");
    for (field, bad) in [("provider", json!("")), ("provider", json!("a b")), ("capabilities", json!([""]))] {
        let mut vault = json!({"provider": "test", "capabilities": []});
        vault[field] = bad;
        assert_eq!(world.refusal(ada(), "POST", "/v1/vaults", vault).await.param(), Some(field));
    }
    let bound = || actor("bob", "acme", Some(&[&workspace]));
    let of_tenant = json!({"provider": "test", "capabilities": []});
    assert_eq!(world.refusal(bound(), "POST", "/v1/vaults", of_tenant.clone()).await.status(), 403);
    world.post("/v1/vaults", of_tenant).await;
    assert_eq!(ids(&world.get(&format!("/v1/vaults?workspace_id={workspace}")).await), [text(&made["id"])]);
    let other = world.workspace().await;
    let stolen = json!({"workspace_id": other, "vault_ids": [made["id"]]});
    assert_eq!(world.refusal(ada(), "POST", "/v1/sessions", stolen).await.status(), 404);
    world.post("/v1/sessions", json!({"workspace_id": workspace, "vault_ids": [made["id"]]})).await;
}

#[tokio::test]
async fn a_vault_has_a_provider_that_the_server_knows_or_is_for_others() {
    let world = World::new();
    let workspace = world.workspace().await;
    let vault = |provider: &str, capabilities: Value| json!({"provider": provider, "capabilities": capabilities});
    for capabilities in [json!([]), json!(["webhooks:verify"]), json!(["oauth_refresh", "webhooks:verify"])] {
        let refusal = world.refusal(ada(), "POST", "/v1/vaults", vault("hashicorp", capabilities)).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some("provider")), "{refusal}");
        assert!(refusal.message().contains("it has test"), "{refusal}");
        assert_eq!(json!(refusal.into_response("r"))["error"]["details"]["providers"], json!(["test"]));
    }
    // What others use it for is no matter of this server: it keeps what it is told.
    let others = world.post("/v1/vaults", vault("hashicorp", json!(["oauth_refresh"]))).await;
    let session = world.post("/v1/sessions", json!({"workspace_id": workspace, "vault_ids": [others["id"]]})).await;
    let known = world.post("/v1/vaults", vault("test", json!(["webhooks:verify"]))).await;
    let mut connector = json!({"provider": "github", "workspace_id": workspace, "target_session_id": session["id"],
        "mapping": {"kind": "message"}, "auth": {"scheme": "github", "vault_id": known["id"], "secrets": ["HOOK"]}});
    let made = world.post("/v1/connectors", connector.clone()).await;

    // A vault that an earlier version or another server took: no connector is given it.
    let strange = world.post("/v1/vaults", vault("test", json!(["webhooks:verify"]))).await["id"].clone();
    let (store, now) = (world.memory.as_ref().unwrap(), world.clock.now());
    let key = DocumentKey::new("vault", text(&strange));
    let Document { version, mut body, .. } = store.document(&key, now).await.unwrap().unwrap();
    body["resource"]["provider"] = json!("hashicorp");
    let write = DocumentWrite { key, expect: version, body: Some(body), listed: Vec::new(), expires_at: None };
    assert!(store.write_document(&write, "forged", now).await.unwrap());
    connector["auth"]["vault_id"] = strange;
    let target = format!("/v1/connectors/{}", text(&made["id"]));
    let change = json!({"auth": connector["auth"]});
    for (method, path, body) in [("POST", "/v1/connectors", connector), ("PATCH", &*target, change)] {
        let refusal = world.refusal(ada(), method, path, body).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some("auth.vault_id")), "{method}: {refusal}");
        assert_eq!(json!(refusal.into_response("r"))["error"]["details"]["providers"], json!(["test"]));
    }
}

#[tokio::test]
async fn what_is_remembered_is_given_to_new_sessions_and_can_be_forgotten() {
    let (world, session) = World::with_session().await;
    let id = session.rsplit('/').next().unwrap().to_owned();
    let workspace = text(&world.get(&session).await["workspace_id"]).to_owned();
    let made = world.post("/v1/memories", memory("workspace", &workspace, json!("Ada likes tea."))).await;
    assert_eq!(made["provenance"]["recorded_by"], "ada");
    let of_session = world.post("/v1/memories", memory("session", &id, json!({"likes": "tea"}))).await;
    world.post("/v1/memories", memory("tenant", "acme", json!("All do."))).await;
    world.post("/v1/memories", memory("persona", "persona_chat", json!("It does."))).await;
    assert_eq!(ids(&world.get("/v1/memories").await).len(), 4);
    assert_eq!(ids(&world.get(&format!("/v1/memories?session_id={id}")).await), [text(&of_session["id"])]);
    assert_eq!(ids(&world.get(&format!("/v1/memories?workspace_id={workspace}")).await).len(), 2);

    let given = json!({"workspace_id": workspace, "memory_ids": [made["id"]]});
    let given = world.post("/v1/sessions", given).await;
    let path = format!("/v1/sessions/{}", text(&given["id"]));
    assert_eq!(
        world.told(&format!("{path}/events")).await,
        ["session.created", "agent.memory_read", "session.message_appended"]
    );
    let messages = world.get(&format!("{path}/messages")).await;
    assert_eq!(messages["data"][0]["parts"][0]["text"], "Ada likes tea.");

    let target = format!("/v1/memories/{}", text(&made["id"]));
    let gone = world.call(ada(), "DELETE", &target, &Value::Null, Some("once")).await.unwrap();
    assert_eq!(gone, CallAnswer::Empty);
    let again = world.call(ada(), "DELETE", &target, &Value::Null, Some("once")).await.unwrap();
    assert_eq!(again, CallAnswer::Repeated(204, Value::Null));
    for method in ["GET", "DELETE"] {
        assert_eq!(world.refusal(ada(), method, &target, Value::Null).await.status(), 404);
    }
    assert_eq!(ids(&world.get("/v1/memories").await).len(), 3);
    let stale = json!({"workspace_id": workspace, "memory_ids": [made["id"]]});
    assert_eq!(world.refusal(ada(), "POST", "/v1/sessions", stale).await.status(), 404);
}

#[tokio::test]
async fn memories_of_others_are_neither_made_nor_read() {
    let (world, session) = World::with_session().await;
    let id = session.rsplit('/').next().unwrap().to_owned();
    let made = world.post("/v1/memories", memory("session", &id, json!("x"))).await;
    let eve = || actor("eve", "other", None);
    for wrong in [
        memory("session", &id, json!("x")),
        memory("tenant", "acme", json!("x")),
        memory("workspace", "workspace_none", json!("x")),
        memory("persona", "persona_none", json!("x")),
    ] {
        assert_eq!(world.refusal(eve(), "POST", "/v1/memories", wrong).await.status(), 404);
    }
    let target = format!("/v1/memories/{}", text(&made["id"]));
    for method in ["GET", "DELETE"] {
        assert_eq!(world.refusal(eve(), method, &target, Value::Null).await.status(), 404);
    }
    for target in [String::from("/v1/memories"), format!("/v1/memories?session_id={id}")] {
        let list = body(world.call(eve(), "GET", &target, &Value::Null, None).await.unwrap());
        assert_eq!(ids(&list).len(), 0);
    }
    let one = world.workspace().await;
    let bound = actor("bob", "acme", Some(&[&one]));
    let refusal = world.refusal(bound, "POST", "/v1/memories", memory("tenant", "acme", json!("x"))).await;
    assert_eq!(refusal.status(), 403);
    for (field, bad) in [("content", json!(7)), ("scope", json!("planet")), ("provenance", json!("x"))] {
        let mut wrong = memory("session", &id, json!("x"));
        wrong[field] = bad;
        assert_eq!(world.refusal(ada(), "POST", "/v1/memories", wrong).await.status(), 400, "{field}");
    }
}

#[tokio::test]
async fn what_the_whole_tenant_remembers_is_not_forgotten_by_a_key_for_one_workspace() {
    let world = World::new();
    let workspace = world.workspace().await;
    let bound = || actor("bob", "acme", Some(&[&workspace]));
    for (scope, owner) in [("tenant", "acme"), ("persona", "persona_chat")] {
        let made = world.post("/v1/memories", memory(scope, owner, json!("All do."))).await;
        let target = format!("/v1/memories/{}", text(&made["id"]));
        let refusal = world.refusal(bound(), "DELETE", &target, Value::Null).await;
        assert_eq!((refusal.status(), refusal.code().as_str()), (403, "permission_denied"), "{scope}");
        assert_eq!(world.get(&target).await, made);
        let gone = world.call(ada(), "DELETE", &target, &Value::Null, None).await.unwrap();
        assert_eq!(gone, CallAnswer::Empty);
    }
    let own = world.post("/v1/memories", memory("workspace", &workspace, json!("Ours."))).await;
    let target = format!("/v1/memories/{}", text(&own["id"]));
    let gone = world.call(bound(), "DELETE", &target, &Value::Null, None).await.unwrap();
    assert_eq!(gone, CallAnswer::Empty);
}

#[tokio::test]
async fn a_workspace_begins_with_a_template_and_files_of_its_own() {
    let world = World::new();
    let begin = async |key: Option<&str>, body: Value| world.call(ada(), "POST", "/v1/workspaces", &body, key).await;
    let request = json!({ "name": "desk", "root": "/", "template": "assistant", "files": { "AGENTS.md": "Ours.", "a/b.txt": "b" } });
    let made = body(begin(Some("desk"), request.clone()).await.unwrap());
    let again = body(begin(Some("desk"), request).await.unwrap());
    assert_eq!(made["id"], again["id"], "once");
    let path = format!("/v1/workspaces/{}", text(&made["id"]));
    assert!(world.get(&path).await.get("template").is_none(), "a template leaves no trace");
    let files = format!("{path}/files");
    assert_eq!(world.get(&format!("{files}?path=AGENTS.md")).await["content"], "Ours.");
    let agent = world.get(&format!("{files}?path=.openharness/agents/assistant.md")).await;
    assert!(agent["content"].as_str().unwrap().contains("---"), "{agent}");
    let listed = world.get(&files).await;
    let names: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, [".openharness", "AGENTS.md", "README.md", "a"]);
    let many: serde_json::Map<String, Value> = (0..33).map(|number| (format!("{number}.txt"), "x".into())).collect();
    let count = world.get("/v1/workspaces?limit=100").await["data"].as_array().unwrap().len();
    for (more, status) in [
        (json!({ "template": "none" }), 400),
        (json!({ "files": many }), 400),
        (json!({ "files": { "../a": "x" } }), 400),
        (json!({ "files": { "": "x" } }), 400),
        (json!({ "files": { "a": "x", "a/b": "x" } }), 409),
        (json!({ "files": { "a": "x", "a/": "x" } }), 409),
        (json!({ "template": "assistant", "files": { "AGENTS.md/x": "x" } }), 409),
    ] {
        let mut body = json!({ "name": "desk", "root": "/" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refusal = world.refusal(ada(), "POST", "/v1/workspaces", body).await;
        assert_eq!(refusal.status(), status, "{more}");
    }
    let left = world.get("/v1/workspaces?limit=100").await["data"].as_array().unwrap().len();
    assert_eq!(left, count, "what is refused makes nothing");
}

#[tokio::test]
async fn a_file_is_removed_and_its_folder_with_it() {
    let world = World::new();
    let desk = json!({ "name": "desk", "root": "/", "files": { "a/b.txt": "b", "c.txt": "c" } });
    let files = format!("/v1/workspaces/{}/files", text(&world.post("/v1/workspaces", desk).await["id"]));
    let remove =
        async |path: &str| world.call(ada(), "DELETE", &format!("{files}?path={path}"), &Value::Null, None).await;
    assert_eq!(remove("a").await.unwrap_err().status(), 409, "a folder is no file");
    assert_eq!(remove("").await.unwrap_err().status(), 400);
    remove("a/b.txt").await.unwrap();
    assert_eq!(remove("a/b.txt").await.unwrap_err().status(), 404);
    for path in ["a", "a/b.txt"] {
        assert_eq!(
            world.refusal(ada(), "GET", &format!("{files}?path={path}"), Value::Null).await.status(),
            404,
            "{path}"
        );
    }
    assert_eq!(world.get(&files).await["entries"].as_array().unwrap().len(), 1);
    let again = world.call(ada(), "PUT", &format!("{files}?path=a"), &json!({ "content": "a" }), None).await;
    assert_eq!(body(again.unwrap())["path"], "a", "the name is free");
    let eve = actor("eve", "other", None);
    assert_eq!(world.refusal(eve, "DELETE", &format!("{files}?path=c.txt"), Value::Null).await.status(), 404);
    assert_eq!(world.get(&format!("{files}?path=c.txt")).await["content"], "c");
}

#[tokio::test]
async fn files_are_written_read_and_listed_by_folder() {
    let world = World::new();
    let files = format!("/v1/workspaces/{}/files", world.workspace().await);
    let put = async |path: &str, content: &str| {
        let written =
            world.call(ada(), "PUT", &format!("{files}?path={path}"), &json!({"content": content}), None).await;
        body(written.unwrap())
    };
    assert_eq!(world.get(&files).await["entries"], json!([]));
    for (path, content) in [("b.md", "\u{e9}"), ("a/x.md", "1"), ("a/y/z.md", "22"), ("a0", "3"), ("a-", "4")] {
        let written = put(path, content).await;
        assert_eq!((&written["path"], &written["bytes"]), (&json!(path), &json!(content.len())));
    }
    put("b.md", "changed").await;
    let read = world.get(&format!("{files}?path=b.md")).await;
    assert_eq!((&read["content"], &read["encoding"]), (&json!("changed"), &json!("utf-8")));
    let names = |listing: &Value| -> Vec<(String, String)> {
        let entries = listing["entries"].as_array().unwrap().iter();
        entries.map(|entry| (text(&entry["path"]).to_owned(), text(&entry["kind"]).to_owned())).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(path, kind)| ((*path).to_owned(), (*kind).to_owned())).collect()
    };
    let root = pairs(&[("a-", "file"), ("a", "directory"), ("a0", "file"), ("b.md", "file")]);
    assert_eq!(names(&world.get(&files).await), root);
    assert_eq!(names(&world.get(&format!("{files}?path=a")).await), pairs(&[("a/x.md", "file"), ("a/y", "directory")]));
    for (path, status) in [("a", 409), ("a/y", 409), ("b.md/c", 409), ("..%2Fx", 400), ("", 400), ("/etc/passwd", 400)]
    {
        let refusal = world.refusal(ada(), "PUT", &format!("{files}?path={path}"), json!({"content": ""})).await;
        assert_eq!(refusal.status(), status, "{path}: {refusal}");
    }
    for path in ["none", "a/none", "a/y/z.md/deeper"] {
        assert_eq!(world.refusal(ada(), "GET", &format!("{files}?path={path}"), Value::Null).await.status(), 404);
    }
    let other = format!("/v1/workspaces/{}/files", world.workspace().await);
    assert_eq!(world.get(&other).await["entries"], json!([]), "another workspace has files of its own");
    let eve = actor("eve", "other", None);
    assert_eq!(world.refusal(eve, "GET", &format!("{files}?path=b.md"), Value::Null).await.status(), 404);
}

#[tokio::test]
async fn the_folders_of_a_page_of_files_are_listed_by_one_read() {
    let store = Arc::new(MemoryStore::default());
    let counting = Arc::new(Counting::of(store.clone()));
    let world = World::on(store.clone(), counting.clone(), Some(store));
    let reads = async |folders: usize| {
        let files: serde_json::Map<String, Value> =
            (0..folders).map(|number| (format!("{number:02}/a.txt"), "a".into())).collect();
        let desk = json!({ "name": "desk", "root": "/", "files": files });
        let files = format!("/v1/workspaces/{}/files", text(&world.post("/v1/workspaces", desk).await["id"]));
        counting.taken();
        assert_eq!(world.get(&files).await["entries"].as_array().unwrap().len(), folders);
        counting.taken()
    };
    assert_eq!(reads(30).await, reads(1).await);
}

/// A session with a task that waits for an approval: its path, the task and the request.
pub(crate) async fn asking(world: &World) -> (String, String, Value) {
    let session = world.session().await;
    let expense = json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}});
    let task = world.post(&format!("{session}/tasks"), expense).await;
    world.work().await.unwrap();
    let task = text(&task["id"]).to_owned();
    let list = world.get(&format!("/v1/tasks/{task}/permission-requests")).await;
    assert_eq!(ids(&list).len(), 1, "{list}");
    (session, task, list["data"][0].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_read_together_and_only_for_who_asks_for_it() {
    let (embedded, store, meter) = metered().await;
    let world = World::on(store.clone(), store, None);
    let waiting = 4;
    let listed = world.while_time_passes(async {
        for _ in 0..waiting {
            asking(&world).await;
        }
        let mut listed = Vec::new();
        for status in ["pending", "approved"] {
            meter.reset();
            let list = world.get(&format!("/v1/permission-requests?status={status}")).await;
            let gets = meter.snapshot().get("GetItem").map_or(0, |usage| usage.requests);
            listed.push((ids(&list).len(), gets));
        }
        listed
    });
    let listed = listed.await;
    embedded.stop().await.unwrap();
    assert_eq!(listed, [(waiting, 4), (0, 0)], "one by one each session is read, and no pause");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_cannot_be_read_hides_no_request_of_another() {
    let (embedded, store, _) = metered().await;
    let world = World::on(store.clone(), store, None);
    let listed = world.while_time_passes(async {
        let (_, damaged, _) = asking(&world).await;
        let (_, _, sound) = asking(&world).await;
        let value = |text: &str| AttributeValue::S(text.to_owned());
        let update =
            embedded.client().update_item().table_name("dormouse").condition_expression("attribute_exists(pk)");
        let update = update.key("pk", value(&format!("INVOCATION#{damaged}"))).key("sk", value("PAUSED"));
        let update = update.update_expression("SET phase = :phase");
        update.expression_attribute_values(":phase", value("dreaming")).send().await.unwrap();
        (world.get("/v1/permission-requests?status=pending").await, sound)
    });
    let (list, sound) = listed.await;
    embedded.stop().await.unwrap();
    assert_eq!(ids(&list), [text(&sound["id"])], "{list}");
}

#[tokio::test]
async fn a_request_for_a_permission_is_listed_and_answered_once() {
    let world = World::new();
    let (session, task, request) = asking(&world).await;
    assert_eq!((&request["status"], &request["source"]), (&json!("pending"), &json!("hitl")));
    assert_eq!(request["action"]["kind"], "approval");
    let id = session.rsplit('/').next().unwrap();
    for target in ["/v1/permission-requests".to_owned(), format!("/v1/permission-requests?session_id={id}")] {
        assert_eq!(world.get(&target).await["data"], json!([request]), "{target}");
        let waiting = format!("{target}{}status=pending", if target.contains('?') { '&' } else { '?' });
        assert_eq!(world.get(&waiting).await["data"], json!([request]), "{waiting}");
    }
    let respond = format!("/v1/permission-requests/{}/respond", text(&request["id"]));
    for wrong in [json!({}), json!({"approved": "yes"}), json!({"outcome": "perhaps"})] {
        assert_eq!(world.refusal(ada(), "POST", &respond, wrong).await.status(), 400);
    }
    let eve = actor("eve", "other", None);
    assert_eq!(world.refusal(eve, "POST", &respond, json!({"approved": true})).await.status(), 404);
    let of_another = json!({"approved": true, "metadata": {"pause": 7}});
    assert_eq!(world.refusal(ada(), "POST", &respond, of_another).await.status(), 409);
    let yes = json!({"outcome": "approve", "reason": "fine", "reviewer": "Ada L."});
    let CallAnswer::Json(200, answered) = world.keyed(&respond, &yes, "k").await.unwrap() else { panic!("no answer") };
    assert_eq!((&answered["status"], &answered["response"]["answered_by"]), (&json!("approved"), &json!("ada")));
    assert_eq!(body(world.keyed(&respond, &yes, "k").await.unwrap()), answered, "the same request again");
    world.work().await.unwrap();
    let done = world.get(&format!("/v1/tasks/{task}")).await;
    assert_eq!(done["status"], "COMPLETED");
    let refusal = world.refusal(ada(), "POST", &respond, json!({"approved": false})).await;
    assert_eq!(refusal.status(), 409);
    for target in ["/v1/permission-requests".to_owned(), format!("/v1/tasks/{task}/permission-requests")] {
        assert_eq!(world.get(&target).await["data"], json!([answered]), "{target}");
        for (status, expected) in [("approved", json!([answered])), ("pending", json!([])), ("denied", json!([]))] {
            assert_eq!(world.get(&format!("{target}?status={status}")).await["data"], expected, "{target} {status}");
        }
        let refusal = world.refusal(ada(), "GET", &format!("{target}?status=open"), Value::Null).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some("status")), "{target}");
    }
}

#[tokio::test]
async fn a_no_in_any_form_is_shown_as_a_no_and_never_beside_a_yes() {
    for no in [
        json!({"approved": false}),
        json!({"outcome": "rejected"}),
        json!({"answer": {"decision": "rejected"}}),
        json!({"answer": {"outcome": "denied"}}),
        json!({"answer": "No!"}),
    ] {
        let world = World::new();
        let (_, task, request) = asking(&world).await;
        let respond = format!("/v1/permission-requests/{}/respond", text(&request["id"]));
        let mut both = no.clone();
        both[if no["approved"].is_null() { "approved" } else { "answer" }] = json!(true);
        assert_eq!(world.refusal(ada(), "POST", &respond, both.clone()).await.status(), 400, "{both}");
        let answered = world.post(&respond, no.clone()).await;
        assert_eq!((&answered["status"], &answered["response"]["approved"]), (&json!("denied"), &json!(false)), "{no}");
        world.work().await.unwrap();
        let outcome = world.get(&format!("/v1/outcomes?task_id={task}")).await;
        assert!(outcome.to_string().contains("not paid: rejected"), "{outcome}");
    }
}

#[tokio::test]
async fn a_confirmation_that_says_yes_and_no_is_refused() {
    let world = World::new();
    let (_, task, _) = asking(&world).await;
    let path = format!("/v1/tasks/{task}/messages");
    for both in [
        json!({"approved": true, "outcome": "denied"}),
        json!({"approved": true, "decision": "deny"}),
        json!({"approved": true, "answer": {"decision": "rejected"}}),
    ] {
        let parts = json!([{"type": "json", "value": both, "visibility": "public"}]);
        let message = json!({"kind": "tool_confirmation", "message": {"role": "user", "parts": parts}});
        let refusal = world.refusal(ada(), "POST", &path, message).await;
        assert!(refusal.status() == 400 && refusal.to_string().contains("yes and another no"), "{refusal}");
    }
}

#[tokio::test]
async fn a_request_that_was_answered_elsewhere_is_not_answered_again() {
    let world = World::new();
    let (_, task, request) = asking(&world).await;
    world.callback(&task, json!({"decision": "approved", "decided_by": "Ada"})).await;
    let respond = |id: &str| format!("/v1/permission-requests/{id}/respond");
    let gone = world.refusal(ada(), "POST", &respond(text(&request["id"])), json!({"approved": true})).await;
    assert_eq!(gone.status(), 409);
    assert_eq!(world.get("/v1/permission-requests").await["data"], json!([]));
    let own = text(&request["id"]).strip_suffix(".1").unwrap();
    for id in ["permission_request_x", "x", &format!("{own}.2"), &format!("{own}.0"), &format!("{own}.x"), own] {
        let refusal = world.refusal(ada(), "POST", &respond(id), json!({"approved": true})).await;
        assert_eq!(refusal.status(), 404, "{id}");
    }
}

#[tokio::test]
async fn names_and_words_have_bounds_that_name_their_field() {
    let world = World::new();
    let with = |mut good: Value, field: &str, bad: Value| {
        good[field] = bad;
        good
    };
    let persona = || persona("expense-approval", "act_with_approval");
    let long = |count: usize| Value::from("n".repeat(count));
    for (target, body, field) in [
        ("/v1/personas", with(persona(), "name", json!("")), "name"),
        ("/v1/personas", with(persona(), "name", json!(" \n")), "name"),
        ("/v1/personas", with(persona(), "name", long(129)), "name"),
        ("/v1/personas", with(persona(), "version", long(300)), "version"),
        ("/v1/personas", with(persona(), "description", long(4097)), "description"),
        ("/v1/workspaces", json!({"name": "", "root": "/"}), "name"),
        ("/v1/workspaces", json!({"name": long(257), "root": "/"}), "name"),
        ("/v1/workspaces", json!({"name": "w", "root": long(1025)}), "root"),
    ] {
        let refusal = world.refusal(ada(), "POST", target, body.clone()).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some(field)), "{body}: {refusal}");
    }
    world.post("/v1/personas", with(persona(), "name", long(128))).await;
    world.post("/v1/workspaces", json!({"name": "\u{e9}".repeat(256), "root": "/"})).await;
}
