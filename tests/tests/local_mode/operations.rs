//! Every operation of the OpenAPI document, driven with the real binary: none is left out for its owner, and none gives a
//! stranger anything of somebody else.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use dormouse_protocol::resource::TaskStatus;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::assistant::world::Wire;
use crate::folder;
use crate::process::{Dormouse, in_time, text};

/// Operations of the contract.
const OF_CONTRACT: usize = 72;

/// What was made by its owner: ids by the names that paths and bodies give them.
type Things = BTreeMap<&'static str, String>;

struct Asker<'d> {
    dormouse: &'d Dormouse,
    client: Client,
    key: String,
}

impl<'d> Asker<'d> {
    fn new(dormouse: &'d Dormouse, key: String) -> Self {
        Self { dormouse, client: dormouse_tests::client(), key }
    }

    /// Somebody with a key that `arguments` make.
    fn with_key(dormouse: &'d Dormouse, arguments: &[&str]) -> Self {
        let create = ["keys", "create", "--never-expires", "--json"];
        let made = dormouse.command(&[&create[..], arguments].concat()).output().expect("it runs");
        let made: Value = serde_json::from_slice(&made.stdout).expect("one JSON document");
        Self::new(dormouse, text(&made, "key").to_owned())
    }

    /// Status and body; of a stream its status alone.
    async fn ask(&self, method: &str, target: &str, body: Option<&Value>) -> (u16, Value) {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.client.request(method, self.dormouse.url(target)).bearer_auth(&self.key);
        let request = request.header(VERSION_HEADER, PROTOCOL_VERSION);
        let request = body.into_iter().fold(request, reqwest::RequestBuilder::json);
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let is_json = response.headers().get("content-type").is_some_and(|kind| kind == "application/json");
        let body = if is_json { response.json().await.expect("JSON") } else { Value::Null };
        (status, body)
    }

    async fn made(&self, target: &str, body: Value) -> String {
        let (status, made) = self.ask("POST", target, Some(&body)).await;
        assert!((200..300).contains(&status), "POST {target}: {status} {made}");
        text(&made, "id").to_owned()
    }

    async fn got(&self, target: &str) -> Value {
        let (status, got) = self.ask("GET", target, None).await;
        assert_eq!(status, 200, "GET {target}: {got}");
        got
    }

    /// The first of a list, once there is one.
    async fn first_of(&self, target: &str) -> String {
        let first = async {
            loop {
                let listed = self.got(target).await;
                match listed["data"][0]["id"].as_str() {
                    Some(id) => return id.to_owned(),
                    None => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                }
            }
        };
        in_time(target, first).await
    }

    /// The task, once it is in `status`.
    async fn until(&self, task: &str, status: TaskStatus) {
        Wire::by(self.dormouse, &self.key).task(task, &[status]).await;
    }
}

fn expense() -> Value {
    json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}})
}

fn says() -> Value {
    json!({"role": "user", "parts": [{"type": "text", "text": "Hello"}]})
}

/// One thing of each kind that there is.
async fn everything(owner: &Asker<'_>) -> Things {
    let mut things = Things::new();
    let workspace = owner.made("/v1/workspaces", json!({"name": "w", "root": "/"})).await;
    let session = owner.made("/v1/sessions", json!({"workspace_id": workspace})).await;
    let task = owner.made(&format!("/v1/sessions/{session}/tasks"), expense()).await;
    owner.until(&task, TaskStatus::AuthRequired).await;
    let request = owner.first_of(&format!("/v1/tasks/{task}/permission-requests")).await;
    // A second one, which has ended, and so has a receipt.
    let ended_session = owner.made("/v1/sessions", json!({"workspace_id": workspace})).await;
    let ended = owner.made(&format!("/v1/sessions/{ended_session}/tasks"), expense()).await;
    owner.ask("POST", &format!("/v1/tasks/{ended}/cancel"), Some(&json!({}))).await;
    owner.until(&ended, TaskStatus::Canceled).await;
    let receipt = owner.first_of(&format!("/v1/tasks/{ended}/receipts")).await;
    let outcome = owner.first_of("/v1/outcomes").await;
    let message = owner.made(&format!("/v1/sessions/{session}/messages"), json!({"message": says()})).await;
    let event = owner.first_of(&format!("/v1/sessions/{session}/events")).await;
    let vault = json!({"workspace_id": workspace, "provider": "env", "capabilities": ["webhooks:verify"]});
    let vault = owner.made("/v1/vaults", vault).await;
    let memory = json!({"scope": "session", "owner_id": session, "content": "tea", "provenance": {}});
    let artifact = json!({"kind": "file", "mime_type": "text/plain", "uri": "data:text/plain,hello",
        "visibility": "public", "session_id": session});
    let connector = json!({"provider": "github", "workspace_id": workspace, "target_session_id": session,
        "mapping": {"kind": "message"}, "auth": {"scheme": "github", "vault_id": vault, "secrets": ["HOOK"]}});
    let branch = json!({"kind": "session", "base_ref": "main"});
    let persona = json!({"name": "Clerk", "version": "1", "entry_workflow": "chat", "description": "Talks.",
        "autonomy_tier": "act_auto", "receipt_policy": "optional"});
    let quota = json!({"scope": "tenant", "limits": {"tasks": 1_000}});
    let webhook = json!({"url": "https://example.com/hook"});
    things.insert("memory_id", owner.made("/v1/memories", memory).await);
    things.insert("artifact_id", owner.made("/v1/artifacts", artifact).await);
    things.insert("connector_id", owner.made("/v1/connectors", connector).await);
    things.insert("branch_id", owner.made(&format!("/v1/sessions/{session}/branches"), branch).await);
    things.insert("persona_id", owner.made("/v1/personas", persona).await);
    things.insert("quota_id", owner.made("/v1/quotas", quota).await);
    things.insert("webhook_id", owner.made(&format!("/v1/sessions/{session}/webhooks"), webhook).await);
    things.insert("skill_id", owner.first_of("/v1/skills").await);
    things.insert("tool_id", "tool_none".to_owned());
    things.insert("invocation_id", task.clone());
    things.insert("ended_id", ended);
    things.insert("outcome_id", outcome);
    things.extend([("workspace_id", workspace), ("session_id", session), ("task_id", task), ("request_id", request)]);
    things.extend([("receipt_id", receipt), ("message_id", message), ("event_id", event), ("vault_id", vault)]);
    things
}

/// The body with which `operation` is asked, of what is there.
fn body_of(operation: &str, things: &Things) -> Option<Value> {
    let session = &things["session_id"];
    let workspace = &things["workspace_id"];
    Some(match operation {
        "createPersona" => json!({"name": "C", "version": "1", "entry_workflow": "chat", "description": "x",
            "autonomy_tier": "act_auto", "receipt_policy": "optional"}),
        "updatePersona" => json!({"description": "another"}),
        "createWorkspace" => json!({"name": "another", "root": "/"}),
        "updateWorkspace" => json!({"name": "renamed"}),
        "writeWorkspaceFile" => json!({"content": "text"}),
        "createSession" => json!({"workspace_id": workspace}),
        "updateSession" => json!({"metadata": {"a": "b"}}),
        "truncateSession" => json!({"keep_first": 1}),
        "appendSessionMessage" => json!({"message": says()}),
        "submitSessionTask" => expense(),
        "submitTask" => {
            let mut task = expense();
            task["session_id"] = session.as_str().into();
            task
        }
        "createSessionBranch" => json!({"kind": "session", "base_ref": "main"}),
        "appendTaskMessage" => json!({"kind": "interrupt", "message": says()}),
        "respondPermissionRequest" => json!({"approved": true}),
        "registerArtifact" => json!({"kind": "file", "mime_type": "text/plain", "uri": "data:text/plain,x",
            "visibility": "public", "session_id": session}),
        "createMemory" => json!({"scope": "session", "owner_id": session, "content": "x", "provenance": {}}),
        "createVault" => json!({"workspace_id": workspace, "provider": "env", "capabilities": []}),
        "createQuota" => json!({"scope": "workspace", "owner_id": workspace, "limits": {"tasks": 1_000}}),
        "updateQuota" => json!({"limits": {"tasks": 2_000}}),
        "createConnector" => json!({"provider": "github", "workspace_id": workspace, "target_session_id": session,
            "mapping": {"kind": "message"},
            "auth": {"scheme": "github", "vault_id": things["vault_id"], "secrets": ["HOOK"]}}),
        "updateConnector" => json!({"status": "PAUSED"}),
        "reorderSessionQueue" => json!({"task_ids": []}),
        "createSessionWebhook" => json!({"url": "https://example.com/another"}),
        "x-answerPause" | "x-cancelPause" | "x-repairPause" => json!({"generation": 1}),
        "closeSession" | "forkSession" | "cancelTask" | "replayTask" | "verifyReceipt" => json!({}),
        _ => return None,
    })
}

struct Listed {
    id: String,
    method: String,
    path: String,
    is_extension: bool,
}

/// The operations of the document under `/v1` and beside it, without those of graphs and chat. What ends things comes last.
async fn listed(owner: &Asker<'_>) -> Vec<Listed> {
    let document = owner.got("/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    let mut all: Vec<Listed> = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("methods") {
            let tags = operation["tags"].to_string();
            let Some(id) = operation["operationId"].as_str().filter(|_| !tags.contains("Graphs and chat")) else {
                continue;
            };
            assert!(operation.get("x-dormouse-not-offered").is_none(), "{id} is not offered");
            let is_extension =
                operation.get("x-extension").is_some() || operation.get("x-dormouse-extension").is_some();
            all.push(Listed {
                id: id.to_owned(),
                method: method.to_ascii_uppercase(),
                path: path.clone(),
                is_extension,
            });
        }
    }
    let ends = |id: &str| match id {
        "respondPermissionRequest" => 1,
        "cancelTask" | "x-cancelPause" | "deleteMemory" | "deleteSessionWebhook" => 2,
        "closeSession" => 3,
        "deleteWorkspace" => 4,
        _ => 0,
    };
    all.sort_by_key(|one| ends(&one.id));
    all
}

/// `path` with the ids of `things` in it.
fn filled(path: &str, things: &Things) -> String {
    let replaced = things.iter().fold(path.to_owned(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id));
    assert!(!replaced.contains('{'), "{replaced}: nobody knows what to put there");
    match replaced.ends_with("/files") {
        true => format!("{replaced}?path=a.txt"),
        false => replaced,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_is_left_out() {
    let folder = folder();
    let dormouse = Dormouse::start_in(folder.path(), &[], &[("DORMOUSE_VAULT_default_HOOK", "the secret of the hook")]);
    let owner = Asker::new(&dormouse, dormouse.api_key());
    let mut things = everything(&owner).await;
    let all = listed(&owner).await;
    assert_eq!(all.iter().filter(|one| !one.is_extension).count(), OF_CONTRACT);
    owner.ask("PUT", &filled("/v1/workspaces/{workspace_id}/files", &things), Some(&json!({"content": "x"}))).await;
    let mut failed = Vec::new();
    for Listed { id, method, path, .. } in &all {
        if id == "replayTask" {
            let ended = things["ended_id"].clone();
            things.insert("task_id", ended);
        } else {
            let task = things["invocation_id"].clone();
            things.insert("task_id", task);
        }
        let (status, body) = owner.ask(method, &filled(path, &things), body_of(id, &things).as_ref()).await;
        // What the state of things or the sender forbids is an answer, too; no operation may be missing or break.
        let tolerated: &[u16] = match id.as_str() {
            "getTool" => &[404],
            "deliverToConnector" => &[401],
            "x-getFeedStart" => &[400],
            "replayTask" | "x-answerPause" | "x-cancelPause" | "cancelTask" => &[400, 409, 422],
            "truncateSession" => &[423],
            _ => &[],
        };
        if !(200..300).contains(&status) && !tolerated.contains(&status) {
            failed.push(format!("{id} {method} {path}: {status} {body}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Everything that the owner sees of its things.
async fn seen(owner: &Asker<'_>, things: &Things) -> BTreeMap<String, Value> {
    let mut seen = BTreeMap::new();
    let paths = [
        "/v1/workspaces/{workspace_id}",
        "/v1/workspaces",
        "/v1/sessions/{session_id}",
        "/v1/sessions",
        "/v1/sessions/{session_id}/messages",
        "/v1/sessions/{session_id}/events",
        "/v1/sessions/{session_id}/branches",
        "/v1/sessions/{session_id}/webhooks",
        "/v1/tasks/{task_id}",
        "/v1/tasks",
        "/v1/tasks/{task_id}/permission-requests",
        "/v1/personas/{persona_id}",
        "/v1/artifacts",
        "/v1/memories/{memory_id}",
        "/v1/memories",
        "/v1/vaults",
        "/v1/connectors/{connector_id}",
        "/v1/connectors",
        "/v1/quotas/{quota_id}",
        "/v1/quotas",
    ];
    for path in paths {
        let path = filled(path, things);
        seen.insert(path.clone(), owner.got(&path).await);
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_finds_nothing_and_changes_nothing() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let owner = Asker::new(&dormouse, dormouse.api_key());
    let things = everything(&owner).await;
    let before = seen(&owner, &things).await;
    let of_another_tenant = ["--actor", "eve", "--tenant", "evil", "--all-scopes"];
    let other = owner.made("/v1/workspaces", json!({"name": "other", "root": "/"})).await;
    let of_another_workspace = ["--actor", "mallory", "--all-scopes", "--workspace", &other];
    let before = BTreeMap::from_iter(before.into_iter().filter(|(path, _)| path != "/v1/workspaces"));
    let mut probes = 0;
    let mut wrong = Vec::new();
    for arguments in [&of_another_tenant[..], &of_another_workspace[..]] {
        let stranger = Asker::with_key(&dormouse, arguments);
        let is_foreign = arguments.contains(&"evil");
        for Listed { id, method, path, .. } in listed(&owner).await {
            let names: BTreeSet<&str> =
                things.keys().copied().filter(|name| path.contains(&format!("{{{name}}}"))).collect();
            // Skills and tools are the server's, the same for everybody. Deliveries are proved by their signature.
            let is_public = names.contains("skill_id") || names.contains("tool_id") || id == "deliverToConnector";
            // Personas and quotas are of the tenant, for all of its workspaces.
            let is_of_tenant = names.contains("persona_id") || names.contains("quota_id");
            if is_public || (is_of_tenant && !is_foreign && method == "GET") {
                continue;
            }
            let body = body_of(&id, &things);
            let names_things = !names.is_empty()
                || matches!(id.as_str(), "createSession" | "submitTask" | "registerArtifact" | "createMemory")
                || matches!(id.as_str(), "createVault" | "createConnector" | "createQuota");
            if !names_things {
                continue;
            }
            probes += 1;
            let (status, answer) = stranger.ask(&method, &filled(&path, &things), body.as_ref()).await;
            if !matches!(status, 403 | 404) || (status == 403 && method == "GET") {
                wrong.push(format!("{id} {method} {path} as {}: {status} {answer}", arguments[1]));
            }
        }
        for list in [
            "sessions",
            "tasks",
            "artifacts",
            "events",
            "memories",
            "vaults",
            "connectors",
            "permission-requests",
            "outcomes",
        ] {
            for filter in ["", "?workspace_id={workspace_id}", "?session_id={session_id}", "?task_id={task_id}"] {
                probes += 1;
                let target = filled(&format!("/v1/{list}{filter}"), &things);
                let (status, answer) = stranger.ask("GET", &target, None).await;
                let told = answer.to_string();
                let leaks = things
                    .iter()
                    .filter(|(name, _)| !matches!(**name, "skill_id" | "tool_id"))
                    .any(|(_, id)| told.contains(id.as_str()));
                let is_empty = status == 200 && answer["data"] == json!([]);
                if !(is_empty || (matches!(status, 400 | 403 | 404) && !leaks)) {
                    wrong.push(format!("GET {target} as {}: {status} {answer}", arguments[1]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {probes} probes:\n{}", wrong.len(), wrong.join("\n"));
    assert!(probes >= 150, "{probes} probes");
    let after = seen(&owner, &things).await;
    for (path, was) in before {
        assert_eq!(after[&path], was, "{path} was changed by a stranger");
    }
}
