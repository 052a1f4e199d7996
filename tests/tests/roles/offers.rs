//! Every operation of the protocol, asked of inbound behind its role: what it offers it may also do.

use std::collections::BTreeSet;

use dormouse_protocol::Operation;
use serde_json::{Value, json};

use crate::functions::Function;
use crate::{Scene, noise, work};

/// A client that keeps in mind which operations it has asked for.
struct Client<'s> {
    function: &'s Function,
    key: &'s str,
    asked: BTreeSet<Operation>,
}

impl Client<'_> {
    /// Asks for `operation` with `ids` in its path; what it answers, which is no error but one of `refusals`.
    async fn ask(&mut self, operation: Operation, ids: &[&Value], body: Value, refusals: &[u16]) -> Value {
        let spec = operation.spec();
        let mut ids = ids.iter().map(|id| id.as_str().expect("an id"));
        let place =
            |piece: &str| if piece.starts_with('{') { ids.next().expect("an id").to_owned() } else { piece.to_owned() };
        let mut path = spec.path.split('/').map(place).collect::<Vec<_>>().join("/");
        if spec.query.contains(&"path") {
            path.push_str("?path=a.txt");
        }
        let method = format!("{:?}", spec.method).to_uppercase();
        let (status, answer) = self.function.speak(self.key, &method, &path, &body).await;
        let is_fine = status < 300 || refusals.contains(&status);
        assert!(is_fine, "{method} {path}: {status} {answer} {:?}", self.function.gate.denied());
        self.asked.insert(operation);
        answer
    }

    /// Asks for one that reads.
    async fn read(&mut self, operation: Operation, ids: &[&Value]) -> Value {
        self.ask(operation, ids, Value::Null, &[]).await
    }

    /// Asks for one that writes.
    async fn write(&mut self, operation: Operation, ids: &[&Value], body: Value) -> Value {
        self.ask(operation, ids, body, &[]).await
    }
}

/// Asks for each operation once, in an order in which all of them can be answered.
pub(crate) async fn everything(scene: &Scene) {
    use Operation::*;
    let mut client = Client { function: &scene.inbound, key: &scene.key, asked: BTreeSet::new() };
    let workspace = client.write(CreateWorkspace, &[], json!({ "name": "w", "root": "/" })).await["id"].clone();
    client.write(UpdateWorkspace, &[&workspace], json!({ "name": "v" })).await;
    let quota = json!({ "scope": "workspace", "owner_id": workspace, "limits": { "tasks": 100 } });
    let quota = client.write(CreateQuota, &[], quota).await["id"].clone();
    client.write(UpdateQuota, &[&quota], json!({ "limits": { "tasks": 200 } })).await;
    let persona = json!({ "name": "Clerk", "version": "1", "entry_workflow": "expense-approval", "description": "Asks.",
        "autonomy_tier": "act_with_approval", "receipt_policy": "optional", "module_ref": "acme/clerk" });
    let persona = client.write(CreatePersona, &[], persona).await["id"].clone();
    client.write(UpdatePersona, &[&persona], json!({ "description": "Asks twice." })).await;
    let vault = json!({ "workspace_id": workspace, "provider": "ssm", "capabilities": ["webhooks:verify"] });
    let vault = client.write(CreateVault, &[], vault).await["id"].clone();
    let session = client.write(CreateSession, &[], json!({ "workspace_id": workspace })).await["id"].clone();
    client.write(UpdateSession, &[&session], json!({ "metadata": { "note": noise() } })).await;
    let message = json!({ "message": { "role": "user", "parts": [{ "type": "text", "text": noise() }] } });
    let message = client.write(AppendSessionMessage, &[&session], message).await["id"].clone();
    let input = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
    let task = json!({ "persona_id": persona, "input": input });
    let asleep = client.write(SubmitSessionTask, &[&session], task.clone()).await["id"].clone();
    scene.wakeup.app.wakeup(work(asleep.as_str().expect("an id")), None).await.expect("it falls asleep");
    let mut second = task.clone();
    second["session_id"] = session.clone();
    let second = client.write(SubmitTask, &[], second).await["id"].clone();
    // Both tasks have begun: the queue is another one than this request believes.
    client.ask(ReorderSessionQueue, &[&session], json!({ "task_ids": [second] }), &[409]).await;
    client.read(GetSessionQueue, &[&session]).await;
    client.read(EmptySessionQueue, &[&session]).await;
    let requests = client.read(ListTaskPermissionRequests, &[&asleep]).await;
    let request = &requests["data"][0]["id"];
    client.read(ListPermissionRequests, &[]).await;
    client.write(RespondPermissionRequest, &[request], json!({ "outcome": "approve" })).await;
    scene.wakeup.app.wakeup(work(asleep.as_str().expect("an id")), None).await.expect("it goes on");
    let other = client.write(CreateSession, &[], json!({ "workspace_id": workspace })).await["id"].clone();
    let sleeping = client.write(SubmitSessionTask, &[&other], task).await["id"].clone();
    scene.wakeup.app.wakeup(work(sleeping.as_str().expect("an id")), None).await.expect("it falls asleep");
    let answer = json!({ "type": "json", "value": { "decision": "approved" } });
    let answer = json!({ "kind": "input", "message": { "role": "user", "parts": [answer] } });
    client.write(AppendTaskMessage, &[&sleeping], answer).await;
    client.write(CancelTask, &[&sleeping], json!({ "reason": "lost" })).await;
    for operation in [ListTaskReceipts, ReplayTask] {
        // The template without its parameter `Receipts` signs none, and what signs none cannot show a replay.
        client.ask(operation, &[&asleep], json!({}), &[501]).await;
    }
    client.ask(GetReceipt, &[&json!("receipt_none")], Value::Null, &[404, 501]).await;
    client.ask(VerifyReceipt, &[&json!("receipt_none")], json!({}), &[404, 501]).await;
    let branch = json!({ "kind": "session", "base_ref": "main" });
    let branch = client.write(CreateSessionBranch, &[&session], branch).await["id"].clone();
    let artifact = json!({ "kind": "log", "mime_type": "text/plain", "visibility": "public", "session_id": session,
        "uri": "data:text/plain;base64,aGk=" });
    let artifact = client.write(RegisterArtifact, &[], artifact).await["id"].clone();
    let memory = json!({ "scope": "session", "owner_id": session, "content": "x", "provenance": {} });
    let memory = client.write(CreateMemory, &[], memory).await["id"].clone();
    let connector = json!({ "provider": "github", "workspace_id": workspace, "target_session_id": session,
        "mapping": { "kind": "message" }, "auth": { "scheme": "github", "vault_id": vault, "secrets": ["HOOK"] } });
    let connector = client.write(CreateConnector, &[], connector).await["id"].clone();
    client.write(UpdateConnector, &[&connector], json!({ "status": "PAUSED" })).await;
    // It is not signed.
    client.ask(DeliverToConnector, &[&connector], json!({}), &[401]).await;
    let webhook = json!({ "url": "https://hooks.example.com/in", "events": ["task.completed"] });
    let webhook = client.write(CreateSessionWebhook, &[&session], webhook).await["id"].clone();
    client.read(ListSessionWebhooks, &[&session]).await;
    client.write(DeleteSessionWebhook, &[&session, &webhook], Value::Null).await;
    client.write(WriteWorkspaceFile, &[&workspace], json!({ "content": "x" })).await;
    client.read(ReadWorkspaceFile, &[&workspace]).await;
    for operation in [
        GetHealth,
        GetVersion,
        GetOpenApiDocument,
        GetProtocolDiscovery,
        GetRuntime,
        ListCapabilities,
        GetAgentCard,
        ListTools,
        ListPersonas,
        ListWorkspaces,
        ListSessions,
        ListTasks,
        ListArtifacts,
        ListMemories,
        ListVaults,
        ListConnectors,
        ListSkills,
        ListOutcomes,
        ListQuotas,
        StreamEvents,
    ] {
        client.read(operation, &[]).await;
    }
    for (operation, id) in [
        (GetPersona, &persona),
        (GetWorkspace, &workspace),
        (GetSession, &session),
        (GetTask, &asleep),
        (ListSessionMessages, &session),
        (ListSessionTasks, &session),
        (ListSessionBranches, &session),
        (ListSessionEvents, &session),
        (StreamSessionEvents, &session),
        (ListTaskEvents, &asleep),
        (StreamTaskEvents, &asleep),
        (GetBranch, &branch),
        (GetMessage, &message),
        (GetArtifact, &artifact),
        (GetMemory, &memory),
        (GetVault, &vault),
        (GetConnector, &connector),
        (GetQuota, &quota),
    ] {
        client.read(operation, &[id]).await;
    }
    client.ask(GetTool, &[&json!("none")], Value::Null, &[404]).await;
    client.ask(GetSkill, &[&json!("none")], Value::Null, &[404]).await;
    client.ask(DownloadArtifactContent, &[&artifact], Value::Null, &[]).await;
    let outcomes = client.read(ListOutcomes, &[]).await;
    client.read(GetOutcome, &[&outcomes["data"][0]["id"]]).await;
    let events = client.read(ListEvents, &[]).await;
    client.read(GetEvent, &[&events["data"][0]["id"]]).await;
    client.ask(DeleteMemory, &[&memory], Value::Null, &[]).await;
    client.write(ForkSession, &[&session], json!({})).await;
    client.write(TruncateSession, &[&other], json!({ "keep_first": 1 })).await;
    client.write(CloseSession, &[&other], json!({})).await;
    client.ask(DeleteWorkspaceFile, &[&workspace], Value::Null, &[]).await;
    client.read(DeleteWorkspace, &[&workspace]).await;
    let left: Vec<_> = Operation::ALL.iter().filter(|operation| !client.asked.contains(operation)).collect();
    assert!(left.is_empty(), "not asked for: {left:?}");
    let denied = [&scene.inbound, &scene.wakeup].map(|function| function.gate.denied());
    assert!(denied.iter().all(Vec::is_empty), "{denied:?}");
}
