//! Workspaces on the functions: a published one, whose agents anybody may begin and whose model it lends, and one that is
//! made over the protocol, with an agent that its own files declare.

use std::sync::Arc;

use dormouse_agent::bundle::{Bundle, BundleStore};
use dormouse_agent::workspace::{FileContent, Files};
use dormouse_aws::{DynamoDbStateStore, StoreConfig};
use dormouse_local::{ScriptedModel, ScriptedTurn};
use dormouse_ports::Invocations;
use dormouse_testkit::MemoryObjects;
use serde_json::{Value, json};

use crate::template::Template;
use crate::{Scene, own_signal, text, work};

/// Name of the published workspace.
pub(crate) const PUBLISHED: &str = "desk";

const MODEL: &str = "scripted-1";
const AGENT: &str = "---\nmodel: workspace/main\ntools: {native: [Read, Write, Glob]}\n\
                     policy: {approval: {native: [Write]}}\n---\nWork as agreed.\n";

/// A model that makes the calls that the last message lists, one after the other.
pub(crate) async fn model() -> ScriptedModel {
    let respond = |request: &Value| {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let last = messages.iter().rposition(|message| message["role"] == "user").unwrap_or_default();
        let said = messages[last]["content"].as_str().unwrap_or_default();
        let script = said.split_once("script ").map_or("[]", |(_, script)| script);
        let script: Vec<(String, Value)> = serde_json::from_str(script).expect("a script");
        let made = messages[last..].iter().filter(|message| message["role"] == "tool").count();
        match script.get(made) {
            Some((name, arguments)) => ScriptedTurn::calling(name, arguments),
            None => ScriptedTurn::saying("done"),
        }
    };
    ScriptedModel::start(MODEL, Arc::new(respond)).await.expect("a model")
}

/// The bucket with the published workspace, whose agents ask `model`.
pub(crate) async fn published(model: &ScriptedModel) -> Arc<MemoryObjects> {
    let objects = Arc::new(MemoryObjects::new());
    let url = model.base_url();
    let models =
        format!("main:\n  provider: openai-compatible\n  name: {MODEL}\n  url: {url}\n  key: ${{secrets.MODEL_KEY}}\n");
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    let files = Files::from([
        ("AGENTS.md".to_owned(), bytes("Rules.\n")),
        (".openharness/agents/clerk.md".to_owned(), bytes("---\ndescription: Works\n---\nWork.\n")),
        (".openharness/models/models.yaml".to_owned(), bytes(&models)),
    ]);
    let bundle = Bundle::of(&files).expect("a bundle");
    let store = BundleStore::new(objects.clone(), "workspaces/");
    store.publish(PUBLISHED, &bundle, None).await.expect("it is published");
    objects
}

/// What the functions do for a published agent, and for one that files of a workspace declare.
pub(crate) async fn own_agents(scene: &Scene) {
    let message = json!({ "role": "user", "content": "hello" });
    let turn = json!({ "state": { "messages": [message] } });
    let done = scene.ask("/graphs/clerk/turns", &turn).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("completed")), "{}", done.body);
    let post = async |target: &str, body: Value| {
        let (status, answer) = scene.inbound.speak(&scene.key, "POST", target, &body).await;
        assert!(matches!(status, 200..=202), "{target}: {answer} {:?}", scene.inbound.gate.denied());
        answer
    };
    let files = json!({ ".openharness/agents/mine.md": AGENT, "notes/a.txt": "a" });
    let workspace = post("/v1/workspaces", json!({ "name": "w", "root": "/", "files": files })).await;
    let workspace = text(&workspace, "id");
    let session = post("/v1/sessions", json!({ "workspace_id": workspace })).await;
    let write = |path: &str| json!(["Write", { "file_path": path, "content": path }]);
    let look = json!(["Glob", { "pattern": "**/*.txt" }]);
    let script = json!([look, write("notes/b.txt"), look, write("notes/deeper/c.txt"), look]);
    let part = json!({ "type": "text", "text": format!("script {script}"), "visibility": "public" });
    let task = json!({ "session_id": session["id"], "persona_id": "persona_mine",
        "input": { "role": "user", "parts": [part] } });
    let task = post("/v1/tasks", task).await;
    let task = text(&task, "id");
    let asked = scene.wakeup.app.wakeup(work(task), None).await.unwrap();
    assert_eq!(asked["status"], "suspended", "{asked} {:?}", scene.wakeup.gate.denied());
    // The first answer comes over the protocol, and a worker goes on; the second is a signal.
    let yes = json!({ "type": "json", "value": { "approved": true }, "visibility": "public" });
    let yes = json!({ "kind": "input", "message": { "role": "user", "parts": [yes] } });
    post(&format!("/v1/tasks/{task}/messages"), yes).await;
    let asked = scene.wakeup.app.wakeup(work(task), None).await.unwrap();
    assert_eq!(asked["status"], "suspended", "{asked} {:?}", scene.wakeup.gate.denied());
    let store = DynamoDbStateStore::new(&scene.store.client(), "dormouse", StoreConfig::default());
    let waits = store.load_invocation(&task.into()).await.unwrap().unwrap();
    let awaited = waits.paused.waits().next().expect("it waits for a person");
    let mut signal = own_signal(awaited.as_str());
    signal["detail"]["payload"] = json!({ "decision": "approve" });
    let ended = scene.signal.app.event(signal, None).await.unwrap();
    assert_eq!(ended["status"], "completed", "{ended} {:?}", scene.signal.gate.denied());
    let told = scene.model.requests().pop().expect("a request").to_string();
    assert!(told.contains("notes/deeper/c.txt"), "the signal's function listed what it had written: {told}");
    for path in ["notes/b.txt", "notes/deeper/c.txt"] {
        let target = format!("/v1/workspaces/{workspace}/files?path={path}");
        let (status, file) = scene.inbound.speak(&scene.key, "GET", &target, &Value::Null).await;
        assert_eq!((status, &file["content"]), (200, &json!(path)), "{file} {:?}", scene.signal.gate.denied());
    }
}

#[test]
fn files_of_workspaces_are_for_who_runs_turns_where_workspaces_are_served() {
    let template = Template::with(&[("Workspaces", PUBLISHED)]);
    assert!(
        template.made().contains(&"FilesThatAgentsWrite") && !Template::read().made().contains(&"FilesThatAgentsWrite")
    );
    let roles = template.decided("FilesThatAgentsWrite")["Properties"]["Roles"].clone();
    assert_eq!(roles, json!([{ "Ref": "SignalRole" }, { "Ref": "WakeupRole" }]));
    for function in ["Inbound", "Signal", "Wakeup", "Sweep", "Stream", "Socket"] {
        let served = template.environment(&format!("{function}Function")).contains_key("DORMOUSE_WORKSPACES");
        assert_eq!(served, ["Inbound", "Signal", "Wakeup"].contains(&function), "{function}");
    }
}
