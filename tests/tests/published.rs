//! What the server answers, refusals too, judged by the published contract instead of our own document. One walk
//! through the operations of level Core, which must not stumble; each answer is a test. Without the contract these are
//! reported as ignored.

#![expect(clippy::unwrap_used, reason = "a walk that stumbles fails the test")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use dormouse_http::{App, Authorization, Content, Parts, ProtocolConfig, Request, Server};
use dormouse_ports::Clock;
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::{Operation, PROTOCOL_VERSION};
use dormouse_testkit::{ManualClock, MemoryBus, MemoryStore};
use dormouse_tests::{any_of, full_grant, make_key, parts_in_memory, protocol_request};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/harn/openapi.yaml");
    let contract = std::fs::read_to_string(path).ok();
    let contract = contract.map(|text| Arc::new(any_of(serde_yaml_ng::from_str(&text).unwrap())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let trial = |(number, said): (usize, Said)| {
        let contract = contract.clone();
        let name = format!("{number:02} {} {}", said.operation.spec().id, said.status);
        let is_ignored = contract.is_none();
        let judged = move || contract.map_or(Ok(()), |contract| judge(&contract, &said));
        Trial::test(name, judged).with_ignored_flag(is_ignored)
    };
    let trials = runtime.block_on(walk()).into_iter().enumerate().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// One answer.
struct Said {
    operation: Operation,
    status: u16,
    body: Value,
}

fn judge(contract: &Value, said: &Said) -> Result<(), Failed> {
    let spec = said.operation.spec();
    let responses = &contract["paths"][spec.path][spec.method.as_str().to_ascii_lowercase()]["responses"];
    let status = said.status.to_string();
    // An operation that the contract does not know refuses as those do that it knows.
    let is_refusal_of_our_own = responses.is_null() && said.status >= 400;
    let default =
        if is_refusal_of_our_own { &contract["components"]["responses"]["Error"] } else { &responses["default"] };
    let response = responses.get(&status).unwrap_or(default);
    let schema = &resolve(contract, response)["content"]["application/json"]["schema"];
    if schema.is_null() {
        return Err(format!("the contract has no schema for {} {status}", spec.id).into());
    }
    let root = json!({ "allOf": [schema], "components": contract["components"] });
    let validator = jsonschema::options().should_validate_formats(true).build(&root).map_err(|e| e.to_string())?;
    // The word of the agent card is not the one that clients expect.
    let but_the_card = |at: &str| said.operation != Operation::GetAgentCard || at != "/object";
    let errors = validator.iter_errors(&said.body);
    let errors = errors.filter(|error| but_the_card(error.instance_path().as_str())).map(|error| error.to_string());
    let errors: Vec<String> = errors.collect();
    if errors.is_empty() { Ok(()) } else { Err(format!("{errors:?}\n{:#}", said.body).into()) }
}

fn resolve<'a>(contract: &'a Value, value: &'a Value) -> &'a Value {
    let named = value["$ref"].as_str().and_then(|reference| contract.pointer(reference.strip_prefix('#')?));
    named.unwrap_or(value)
}

/// A server in memory, what it said so far, and the key of whoever asks.
struct Walk {
    server: Server,
    bus: Arc<MemoryBus>,
    key: String,
    said: Vec<Said>,
}

impl Walk {
    async fn begin() -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let key = make_key(&*store, 7, full_grant("ada", "acme"), clock.now()).await;
        let parts = parts_in_memory(&store, &clock, &bus, &dormouse_app::agents());
        let base_url = parts.base_url.clone();
        let app = App::new(Parts { authorization: Authorization::None, ..parts });
        let wire = ProtocolConfig { base_url, ..ProtocolConfig::new(store, Cursors::new(b"secret")) };
        Self { server: Server::new(app, wire), bus, key, said: Vec::new() }
    }

    /// Asks for something, remembers the answer and gives it out.
    async fn ask(&mut self, method: &str, target: &str, body: Value) -> Value {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let sent = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = protocol_request(&self.key, method, target, sent);
        let operation = Operation::find(method, path).unwrap().operation;
        let response = self.server.http(request).await;
        let Content::Whole(bytes) = response.content else { panic!("{target} streams") };
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        self.said.push(Said { operation, status: response.status, body: body.clone() });
        body
    }

    async fn get(&mut self, target: &str) -> Value {
        self.ask("GET", target, Value::Null).await
    }

    /// Status, `allow` and whether there is no body of what `method` is answered.
    async fn manners(&self, method: &str, path: &str) -> (u16, String, bool) {
        let headers = [
            ("authorization".to_owned(), format!("Bearer {}", self.key)),
            ("harn-agents-protocol-version".to_owned(), PROTOCOL_VERSION.to_owned()),
        ];
        let method = method.to_owned();
        let path = path.to_owned();
        let response =
            self.server.http(Request { method, path, headers: headers.to_vec(), ..Request::default() }).await;
        let allow = response.headers.iter().find(|(name, _)| name == "allow").map(|(_, value)| value.clone());
        let is_empty = matches!(&response.content, Content::Whole(bytes) if bytes.is_empty());
        (response.status, allow.unwrap_or_default(), is_empty)
    }

    /// Does the work that was called for last.
    async fn work(&self) {
        let event = self.bus.events().pop().unwrap();
        let id = event.detail["invocation_id"].as_str().unwrap().into();
        self.server.app().harness().take_up(&id, None).await;
    }
}

fn id(resource: &Value) -> String {
    resource["id"].as_str().unwrap_or_else(|| panic!("no id in {resource}")).to_owned()
}

async fn walk() -> Vec<Said> {
    let mut walk = Walk::begin().await;
    for path in ["/health", "/version", "/openapi.json", "/v1", "/v1/agent-card", "/v1/personas"] {
        walk.get(path).await;
    }
    walk.get("/v1/personas/persona_chat").await;
    let workspace = id(&walk.ask("POST", "/v1/workspaces", json!({ "name": "desk", "root": "/" })).await);
    let session = id(&walk.ask("POST", "/v1/sessions", json!({ "workspace_id": workspace })).await);
    let path = format!("/v1/sessions/{session}");
    walk.ask("PATCH", &format!("/v1/workspaces/{workspace}"), json!({ "name": "table" })).await;
    walk.ask("PATCH", &path, json!({ "summary": "an expense" })).await;
    let hello = json!({ "role": "user", "parts": [{ "type": "text", "text": "hello", "visibility": "public" }] });
    let message = id(&walk.ask("POST", &format!("{path}/messages"), json!({ "message": hello })).await);
    let expense = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
    let expense = json!({ "input": expense, "persona_id": "persona_expense-approval" });
    let task = id(&walk.ask("POST", &format!("{path}/tasks"), expense.clone()).await);
    walk.work().await;
    let task_path = format!("/v1/tasks/{task}");
    walk.get(&task_path).await;
    let yes = json!({ "type": "json", "value": { "approved": true }, "visibility": "public" });
    let yes = json!({ "kind": "tool_confirmation", "message": { "role": "user", "parts": [yes] } });
    walk.ask("POST", &format!("{task_path}/messages"), yes).await;
    walk.work().await;
    let canceled = walk.ask("POST", "/v1/tasks", json!({ "session_id": session, "input": hello })).await;
    walk.ask("POST", &format!("/v1/tasks/{}/cancel", id(&canceled)), json!({ "reason": "no need" })).await;
    let branch = json!({ "kind": "session", "base_ref": "main" });
    let branch = id(&walk.ask("POST", &format!("{path}/branches"), branch).await);
    let artifact = json!({ "kind": "log", "mime_type": "text/plain", "visibility": "public", "session_id": session });
    let artifact = id(&walk.ask("POST", "/v1/artifacts", artifact).await);
    let event = id(&walk.get(&format!("{path}/events?limit=1")).await["data"][0]);
    let outcome = id(&walk.get("/v1/outcomes").await["data"][0]);
    for target in [
        &format!("/v1/workspaces/{workspace}"),
        &path,
        &format!("{path}/messages"),
        &format!("{path}/tasks?limit=1"),
        &format!("{path}/branches"),
        &format!("/v1/messages/{message}"),
        &format!("{task_path}/events"),
        &format!("/v1/branches/{branch}"),
        &format!("/v1/artifacts/{artifact}"),
        &format!("/v1/events/{event}"),
        &format!("/v1/outcomes/{outcome}"),
        "/v1/workspaces",
        "/v1/sessions",
        "/v1/tasks",
        "/v1/artifacts",
        "/v1/events",
    ] {
        walk.get(target).await;
    }
    walk.ask("POST", &format!("{path}/fork"), json!({})).await;
    walk.ask("POST", &format!("{path}/truncate"), json!({ "keep_first": 1 })).await;
    walk.ask("POST", &format!("{path}/close"), Value::Null).await;
    let document = walk.get("/openapi.json").await;
    for spec in Operation::ALL.iter().map(|operation| operation.spec()) {
        let described = &document["paths"][spec.path][spec.method.as_str().to_ascii_lowercase()];
        if described["x-dormouse-not-offered"] == true {
            walk.ask(spec.method.as_str(), &spec.path.replace(['{', '}'], ""), json!({})).await;
            assert_eq!(walk.said.last().unwrap().status, 501, "{} is offered", spec.id);
        }
    }
    assert_eq!(walk.manners("HEAD", "/health").await, (200, String::new(), true));
    assert_eq!(walk.manners("OPTIONS", "/v1/tasks").await, (204, "GET, HEAD, POST, OPTIONS".to_owned(), true));
    assert_eq!(walk.manners("OPTIONS", "/callback/i").await, (204, "POST, OPTIONS".to_owned(), true));
    assert_eq!(walk.manners("HEAD", "/").await, (200, String::new(), true));
    assert_eq!(walk.manners("HEAD", "/v1/events/stream").await, (405, "GET, OPTIONS".to_owned(), true));
    // Refusals.
    walk.get("/v1/tasks/task_nobody").await;
    walk.get("/v1/tasks?limit=0").await;
    walk.get("/v1/memories").await;
    walk.ask("POST", &format!("{path}/tasks"), expense).await;
    walk.key.push('0');
    walk.get("/v1/tasks").await;
    walk.said
}
