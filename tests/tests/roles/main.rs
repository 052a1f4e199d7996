//! The roles of the template grant what the functions use, and the functions use what the roles grant.
//!
//! Each function runs behind a gate that judges its requests by its role, conditions included: one request too many is
//! denied and fails the test, and so does a grant that the scenes never use.
#![expect(clippy::unwrap_used, reason = "a test may end where it stands")]

mod functions;
mod gate;
mod metrics;
mod offers;
mod policy;
mod template;

use std::time::Duration;

use dormouse_api::Keys;
use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_harness::FreshTurn;
use dormouse_http::{Authorization, FollowCall};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, Commits, GrowingLists, InvocationWrite, Invocations, Journal, Map,
};
use dormouse_protocol::Scope;
use dormouse_tests::{HttpAnswer, open_door};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::functions::{Function, StreamFunction};
use crate::gate::Gate;
use crate::template::Template;

/// What the roles grant to services that act for a function: no line of ours asks for it.
const FOR_SERVICES: &[(&str, &str)] = &[
    ("sqs:SendMessage", "Lambda puts events aside on which the function failed"),
    ("logs:CreateLogStream", "Lambda writes what the function prints"),
    ("logs:PutLogEvents", "the same"),
    ("xray:PutTraceSegments", "Lambda traces invocations"),
    ("xray:PutTelemetryRecords", "the same"),
];

/// Calls in `shared/aws` that no function makes.
const OUTSIDE: &[(&str, &str)] = &[
    ("create_table", "local mode and tests; in an account the template makes the table"),
    ("describe_table", "the same"),
    ("update_time_to_live", "the same"),
    ("update_table", "the same"),
];

struct Scene {
    store: EmbeddedDynamoDb,
    inbound: Function,
    signal: Function,
    wakeup: Function,
    stream: StreamFunction,
    socket: Function,
    /// An API key for everything.
    key: String,
}

impl Scene {
    async fn set() -> Self {
        let template = Template::with(&[("Sockets", "enabled"), ("Webhooks", "enabled")]);
        let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
        ensure_table(&store.client(), "dormouse").await.unwrap();
        let door = open_door(&store).await;
        let functions = ["Inbound", "Signal", "Wakeup", "Socket"];
        let stream = StreamFunction::start(&template, door.clone()).await;
        let [inbound, signal, wakeup, socket] = functions.map(|name| {
            let template = &template;
            let endpoint = door.clone();
            async move { Function::start(template, name, endpoint).await }
        });
        let key = key(&store).await;
        let (inbound, signal, wakeup) = (inbound.await, signal.await, wakeup.await);
        Self { inbound, signal, wakeup, stream, socket: socket.await, store, key }
    }

    /// Begins an errand in the session `session`, with a state that needs a blob.
    async fn errand(&self, session: &str, id: Option<&str>, within: &str) -> Value {
        let state = json!({ "note": noise(), "within": within });
        self.begin("errand", &json!({ "state": state, "session_id": session, "invocation_id": id })).await
    }

    /// Begins an errand without a session, with a list that is kept in pieces.
    async fn lone_errand(&self, within: &str) -> Value {
        let state = json!({ "note": noise(), "within": within, "log": [noise()] });
        self.begin("lone-errand", &json!({ "state": state })).await
    }

    /// What inbound answers to whoever has the API key.
    async fn ask(&self, path: &str, body: &Value) -> HttpAnswer {
        self.inbound.post_as(&self.key, path, body).await
    }

    async fn begin(&self, graph: &str, turn: &Value) -> Value {
        let answer = self.ask(&format!("/graphs/{graph}/turns"), turn).await;
        assert_eq!((answer.status, &answer.body["status"]), (202, &json!("suspended")), "{}", answer.body);
        answer.body
    }

    fn gates(&self) -> [(&'static str, &Gate); 5] {
        let Self { inbound, signal, wakeup, stream, socket, .. } = self;
        let with_agents = [("inbound", inbound), ("signal", signal), ("wakeup", wakeup), ("socket", socket)];
        let [inbound, signal, wakeup, socket] = with_agents.map(|(name, function)| (name, &function.gate));
        [inbound, signal, wakeup, ("stream", &stream.gate), socket]
    }
}

/// Makes a key for everything, as an operator does, and gives it.
async fn key(store: &EmbeddedDynamoDb) -> String {
    let store = DynamoDbStateStore::new(&store.client(), "dormouse", StoreConfig::default());
    let token = KeyToken::generate([7; CHANCE]);
    let now = Timestamp::now();
    let scopes = Scope::ALL.iter().copied().collect();
    let actor = "ada".to_owned();
    let tenant = "acme".to_owned();
    let journal = Keys::creation(&token, Grant { actor, tenant, workspaces: None, scopes, expires_at: None }, now);
    store.commit(&Commit { journal, ..Commit::new("key", now) }).await.unwrap();
    token.reveal()
}

/// Text that cannot be made small.
fn noise() -> String {
    (0..200).map(|_| dormouse_ports::IdSource::fresh(&dormouse_system::RandomIds)).collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

/// Stack of the main thread of a function, in bytes. Without optimisation a turn, the SDK with it, takes more than the 2 MB
/// that a thread of the tests has.
const STACK: usize = 8 << 20;

#[test]
fn roles_grant_what_is_used_and_what_is_granted_is_used() {
    on_a_large_stack(everything_is_granted_and_used());
}

fn on_a_large_stack(test: impl Future<Output = ()> + Send + 'static) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.thread_stack_size(STACK).enable_all().build().unwrap();
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(move || runtime.block_on(test)).unwrap().join().unwrap();
}

#[test]
fn inbound_may_do_what_it_offers() {
    on_a_large_stack(async { offers::everything(&Scene::set().await).await });
}

async fn everything_is_granted_and_used() {
    let scene = Scene::set().await;
    // Who comes first makes the rules: signal those of errands, inbound that of the export.
    signals(&scene).await;
    requests(&scene).await;
    times(&scene).await;
    tasks(&scene).await;
    sockets(&scene).await;
    let mut unused = Vec::new();
    for (name, gate) in scene.gates() {
        assert_eq!(gate.denied(), [], "{name} asks for what its role does not grant");
        let grants = gate.unused();
        let grants = grants.iter().filter(|grant| !FOR_SERVICES.iter().any(|(action, _)| *action == grant.action()));
        unused.extend(grants.map(|grant| format!("{name}: {grant}")));
    }
    assert!(unused.is_empty(), "granted and never used:\n  {}", unused.join("\n  "));
}

/// What inbound serves.
async fn requests(scene: &Scene) {
    // As the template deploys it, it asks for an API key: the key of signals is none.
    let refused = scene.inbound.post("/graphs/export-job/turns", &json!({ "state": { "dataset": "orders" } })).await;
    assert_eq!(refused.status, 401, "{}", refused.body);
    for asleep in [scene.errand("s1", None, "PT1H").await, scene.lone_errand("PT1H").await] {
        let status = scene.inbound.get(text(&asleep, "status_url")).await;
        assert_eq!((status.status, &status.body["status"]), (200, &json!("suspended")), "{}", status.body);
    }
    let job = scene.ask("/graphs/export-job/turns", &json!({ "state": { "dataset": "orders" } })).await;
    assert_eq!(job.status, 202, "{}", job.body);
    let pause = format!("/v1/x-pauses/{}", text(&job.body, "invocation_id"));
    let (status, pause) = scene.inbound.speak(&scene.key, "GET", &pause, &Value::Null).await;
    assert_eq!((status, &pause["kind"]), (200, &json!("job")), "{pause}");
    // A signal that comes before its wait: the turn goes on at once, to its next wait.
    let early = scene.signal.post("/signals/ask-early", &json!({})).await;
    assert_eq!((early.status, &early.body["status"]), (202, &json!("buffered")), "{}", early.body);
    let state = json!({ "note": noise(), "within": "PT1H" });
    let turn = json!({ "state": state, "session_id": "s2", "invocation_id": "early" });
    let went_on = scene.begin("errand", &turn).await;
    assert_eq!(went_on["generation"], 2);
    let repeated = scene.begin("errand", &turn).await;
    assert_eq!(repeated["repeated"], true);
    // Whoever chose the id may cancel it before it sleeps: the end asks whether they did.
    let small = json!({ "employee": "Ada", "amount_cents": 1, "purpose": "a nail" });
    let turn = json!({ "state": small, "invocation_id": "small" });
    let done = scene.ask("/graphs/expense-approval/turns", &turn).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("completed")), "{}", done.body);
    // No commit is ever acknowledged: the item itself tells that it happened.
    scene.inbound.gate.fail(true);
    let message = json!({ "role": "user", "content": "hello" });
    let said = scene.ask("/chat/chat/sessions/s7/messages", &message).await;
    assert_eq!((said.status, &said.body["status"]), (200, &json!("completed")), "{}", said.body);
    scene.inbound.gate.fail(false);
}

/// An event of our own that carries a signal.
fn own_signal(id: &str) -> Value {
    json!({ "id": "e", "source": "dormouse", "detail-type": "Dormouse Signal",
        "detail": { "signal_id": id, "payload": {} } })
}

/// What signal serves.
async fn signals(scene: &Scene) {
    let asleep = scene.errand("s3", None, "PT1H").await;
    for asleep in [&asleep, &scene.lone_errand("PT1H").await] {
        let next = scene.signal.post(text(asleep, "callback_url"), &json!({})).await;
        assert_eq!((next.status, &next.body["generation"]), (202, &json!(2)), "{}", next.body);
    }
    let id = text(&asleep, "invocation_id");
    let event = own_signal(&format!("parcel-{id}"));
    for repeated in [false, true] {
        let done = scene.signal.app.event(event.clone(), None).await.unwrap();
        assert_eq!((&done["status"], &done["repeated"]), (&json!("completed"), &json!(repeated)));
    }
    // With a key of its tenant, to an invocation that the tenant began; and early.
    let asleep = scene.errand("s9", None, "PT1H").await;
    let asked = format!("/signals/ask-{}", text(&asleep, "invocation_id"));
    let sent = scene.signal.post_as(&scene.key, &asked, &json!({})).await;
    assert_eq!((sent.status, &sent.body["status"]), (200, &json!("delivered")), "{}", sent.body);
    let early = scene.signal.post_as(&scene.key, "/signals/ask-nobody", &json!({})).await;
    assert_eq!((early.status, &early.body["status"]), (202, &json!("buffered")), "{}", early.body);
    let asleep = scene.errand("s8", None, "PT1H").await;
    let cancel = format!("/invocations/{}/cancel", text(&asleep, "invocation_id"));
    let canceled = scene.signal.post(&cancel, &json!({ "reason": "lost" })).await;
    assert_eq!((canceled.status, &canceled.body["status"]), (200, &json!("canceled")), "{}", canceled.body);
    let asleep = scene.errand("s6", None, "PT1H").await;
    scene.signal.gate.fail(true);
    let failed = scene.signal.post(text(&asleep, "callback_url"), &json!({})).await;
    assert_eq!(failed.status, 503, "{}", failed.body);
    scene.signal.gate.fail(false);
    // What takes longer than the function, and what an agent asks of others, is left to workers.
    let harness = scene.signal.app.harness();
    harness.call_for_work(&text(&asleep, "invocation_id").into()).await.expect("a worker is called");
}

/// What wakeup serves.
async fn times(scene: &Scene) {
    let overdue = [scene.errand("s4", None, "PT0S").await, scene.lone_errand("PT0S").await];
    for asleep in &overdue {
        let due = json!({ "dormouse_wakeup": { "invocation_id": asleep["invocation_id"], "generation": 1 } });
        assert_eq!(scene.wakeup.app.wakeup(due, None).await.unwrap()["status"], "suspended");
    }
    let swept = scene.wakeup.app.wakeup(json!({ "dormouse_sweep": "due" }), None).await.unwrap();
    assert_eq!((&swept["called"], &swept["failed"]), (&json!(2), &json!(0)));
    for asleep in &overdue {
        let mut call = work(text(asleep, "invocation_id"));
        (call["detail"]["generation"], call["detail"]["swept"]) = (json!(2), json!(true));
        assert_eq!(scene.wakeup.app.wakeup(call, None).await.unwrap()["status"], "completed");
    }
    // Somebody claimed a pause and died.
    let asleep = scene.errand("s5", None, "PT1H").await;
    let store = DynamoDbStateStore::new(&scene.store.client(), "dormouse", StoreConfig::default());
    let now = Timestamp::now() - Duration::from_secs(60);
    let request = ClaimRequest {
        invocation_id: text(&asleep, "invocation_id").into(),
        generation: Some(1),
        owner: "dead".into(),
        now,
        until: now + Duration::from_secs(30),
        past: None,
        payload: Some(Map::new()),
        answered: None,
    };
    assert!(matches!(store.claim(&request).await.unwrap(), ClaimOutcome::Granted(_)));
    // What crashes, lifetimes and deletions leave behind. The round before this one began yesterday, and the deleted
    // session was noted before that.
    let days_ago = |days: u64| now - Duration::from_secs(days * 86_400);
    let old = json!({ "N": days_ago(3).as_nanosecond().to_string() });
    let place = json!([days_ago(1), null, null]).to_string();
    let owners = json!({ "S": json!([["INVOCATION#gone", "PAUSED"]]).to_string() });
    let orphans = [
        json!({ "pk": { "S": "BLOB#b" }, "sk": { "S": "00000" }, "owners": owners, "written_at": old }),
        json!({ "pk": { "S": "INVOCATION#gone" }, "sk": { "S": "SEGMENT#log" }, "written_at": old }),
        json!({ "pk": { "S": "SIGNAL#lost" }, "sk": { "S": "SIGNAL" }, "phase": { "S": "waiting" },
            "invocation_id": { "S": "gone" }, "generation": { "N": "1" } }),
        json!({ "pk": { "S": "SESSION#gone" }, "sk": { "S": "SEGMENT#log" }, "written_at": old }),
        json!({ "pk": { "S": "PENDING#headless" }, "sk": { "S": "gone" }, "written_at": old }),
        json!({ "pk": { "S": "PENDING#position" }, "sk": { "S": "ground" }, "sweep_position": { "S": place } }),
        // Two rules that nobody needs: one is found idle now, the other was yesterday.
        rule('1', None),
        rule('2', Some(&old)),
    ];
    scene.store.import("dormouse", orphans.to_vec()).await.unwrap();
    let swept = scene.wakeup.app.wakeup(json!({ "dormouse_sweep": "everything" }), None).await.unwrap();
    assert_eq!((&swept["called"], &swept["failed"], &swept["collected"]), (&json!(1), &json!(0), &json!(5)));
    assert!(swept["registered"].as_u64() >= Some(1), "{swept}");
    let taken_over = scene.wakeup.app.wakeup(work(text(&asleep, "invocation_id")), None).await.unwrap();
    assert_eq!(taken_over["status"], "suspended");
    // Somebody accepted work and calls for a worker.
    let given = json!({ "note": noise(), "within": "PT1H" }).as_object().cloned().unwrap();
    let invocation_id = Some("accepted".into());
    let session_id = Some("s9".into());
    let turn = FreshTurn { invocation_id, session_id, ..FreshTurn::new("errand", given) };
    let paused = Box::new(scene.wakeup.app.harness().accept(turn).await.unwrap());
    let invocation = Some(InvocationWrite::Accept { paused });
    let now = Timestamp::now();
    let journal = Journal::default();
    let growing = GrowingLists::default();
    let commit = Commit { id: "accept".to_owned(), now, session: None, invocation, journal, growing };
    store.commit(&commit).await.unwrap();
    assert_eq!(scene.wakeup.app.wakeup(work("accepted"), None).await.unwrap()["status"], "suspended");
    let asleep = scene.errand("s8", None, "PT0S").await;
    let due = json!({ "dormouse_wakeup": { "invocation_id": text(&asleep, "invocation_id"), "generation": 1 } });
    scene.wakeup.gate.fail(true);
    assert!(scene.wakeup.app.wakeup(due, None).await.is_err());
    scene.wakeup.gate.fail(false);
}

/// The entry of a rule that nobody needs.
fn rule(digit: char, idle_since: Option<&Value>) -> Value {
    let mut entry = json!({ "pk": { "S": "RULES" }, "sk": { "S": digit.to_string().repeat(40) },
        "rule_edition": { "S": digit.to_string().repeat(12) }, "touches": { "N": "1" }, "made_at": { "N": "1" } });
    if let Some(since) = idle_since {
        entry["idle_since"] = since.clone();
    }
    entry
}

/// What all of them do for tasks.
async fn tasks(scene: &Scene) {
    let key = &scene.key;
    let post = async |target: &str, body: Value| {
        let (status, answer) = scene.inbound.speak(key, "POST", target, &body).await;
        assert!(matches!(status, 200..=202), "{target}: {answer}");
        answer
    };
    let store = DynamoDbStateStore::new(&scene.store.client(), "dormouse", StoreConfig::default());
    let files = json!({ "a.txt": "a", "b.txt": "b" });
    let workspace = post("/v1/workspaces", json!({ "name": "w", "root": "/", "files": files })).await;
    let file = format!("/v1/workspaces/{}/files?path=a.txt", text(&workspace, "id"));
    assert_eq!(scene.inbound.speak(key, "DELETE", &file, &Value::Null).await.0, 204);
    // A new file holds that none of its folders is a file.
    let inside = format!("/v1/workspaces/{}/files?path=notes/c.txt", text(&workspace, "id"));
    let (status, written) = scene.inbound.speak(key, "PUT", &inside, &json!({ "content": "c" })).await;
    assert_eq!(status, 200, "{written}");
    let quota = json!({ "scope": "tenant", "owner_id": "acme", "limits": { "tasks": 1_000 } });
    post("/v1/quotas", quota).await;
    // Large enough for a blob.
    let persona = "persona_errand";
    let metadata = json!({ "note": noise() });
    let asked = json!({ "workspace_id": workspace["id"], "persona_id": persona, "metadata": metadata });
    let session = post("/v1/sessions", asked).await;
    let session = format!("/v1/sessions/{}", text(&session, "id"));
    let part = json!({ "type": "text", "text": noise() });
    post(&format!("{session}/messages"), json!({ "message": { "role": "user", "parts": [part.clone()] } })).await;
    let begin = async |within: &str| {
        let task = post(&format!("{session}/tasks"), json!({ "input": { "within": within } })).await;
        let id = text(&task, "id").to_owned();
        scene.wakeup.app.wakeup(work(&id), None).await.unwrap();
        id
    };
    let vault = json!({ "workspace_id": workspace["id"], "provider": "ssm", "capabilities": ["webhooks:verify"] });
    let vault = post("/v1/vaults", vault).await;
    let target = session.trim_start_matches("/v1/sessions/");
    let proof = json!({ "scheme": "github", "vault_id": vault["id"], "secrets": ["HOOK"] });
    let connector = json!({ "provider": "github", "workspace_id": workspace["id"], "target_session_id": target,
        "mapping": { "kind": "message" }, "auth": proof });
    let connector = post("/v1/connectors", connector).await;
    let delivered = format!("/v1/connectors/{}/deliveries", text(&connector, "id"));
    let delivered = scene.inbound.deliver(&delivered, &json!({ "ref": "main" })).await;
    assert_eq!(delivered.status, 200, "{}", delivered.body);
    let hook = json!({ "url": "https://127.0.0.1:9/hook", "events": ["task.input_required", "task.completed"] });
    let hook = post(&format!("{session}/webhooks"), hook).await;
    let id = begin("PT1H").await;
    let signalled = async |what: &str, id: &str| {
        let event = own_signal(&format!("{what}-{id}"));
        scene.signal.app.event(event, None).await.unwrap()["status"].clone()
    };
    assert_eq!(signalled("ask", &id).await, "suspended");
    let answer = json!({ "type": "json", "value": { "note": "done" } });
    let answer = json!({ "kind": "input", "message": { "role": "user", "parts": [answer] } });
    post(&format!("/v1/tasks/{id}/messages"), answer).await;
    assert_eq!(scene.wakeup.app.wakeup(work(&id), None).await.unwrap()["status"], "completed");
    for event in ["task.input_required", "task.completed"] {
        let (_, events) = scene.inbound.speak(key, "GET", &format!("/v1/tasks/{id}/events"), &Value::Null).await;
        let told = events["data"].as_array().unwrap().iter().find(|told| told["event"] == event).unwrap();
        let delivery = functions::delivery(text(&hook, "id"), text(told, "id"));
        let sent = scene.wakeup.app.wakeup(work(&delivery), None).await.unwrap();
        assert_eq!(sent["status"], "suspended", "{event}: it is tried again");
        let kept = store.load_invocation(&delivery.as_str().into()).await.unwrap().unwrap();
        let problem = json!(kept.paused.descriptor)["metadata"]["description"].clone();
        assert!(problem.to_string().contains("public"), "{event}: {problem}");
    }
    let other = begin("PT1H").await;
    assert_eq!(
        (signalled("ask", &other).await, signalled("parcel", &other).await),
        ("suspended".into(), "completed".into())
    );
    // No commit is ever acknowledged: the events that it published tell that it happened.
    let unheard = begin("PT1H").await;
    for function in [&scene.inbound, &scene.signal, &scene.wakeup] {
        function.gate.fail(true);
    }
    post(&format!("{session}/messages"), json!({ "message": { "role": "user", "parts": [part] } })).await;
    let unpublished = scene.signal.app.event(own_signal(&format!("ask-{unheard}")), None).await;
    unpublished.expect_err("the event of its node was refused");
    let due = json!({ "dormouse_wakeup": { "invocation_id": unheard, "generation": 1 } });
    scene.wakeup.app.wakeup(due, None).await.expect_err("the same");
    for function in [&scene.inbound, &scene.signal, &scene.wakeup] {
        function.gate.fail(false);
    }
    let due = json!({ "dormouse_wakeup": { "invocation_id": begin("PT0S").await, "generation": 1 } });
    assert_eq!(scene.wakeup.app.wakeup(due, None).await.unwrap()["status"], "suspended");
    // An agent asks another one: a task in a session of its own.
    let asker = json!({ "persona_id": "persona_delegation", "input": {} });
    let asker = post(&format!("{session}/tasks"), asker).await;
    let asker = text(&asker, "id");
    let ended = scene.wakeup.app.wakeup(work(asker), None).await.unwrap();
    assert_eq!(ended["status"], "completed", "{ended} {:?}", scene.wakeup.gate.denied());
    let asked = format!("/v1/tasks/{}", functions::delegated(asker));
    let (_, asked) = scene.inbound.speak(key, "GET", &asked, &Value::Null).await;
    assert_eq!(asked["parent_task_id"], json!(asker), "{asked}");
    let sleeping = begin("PT1H").await;
    for target in
        ["/v1/x-pauses", &format!("/v1/x-pauses/{sleeping}"), "/v1/x-feed?since=2020-01-01T00:00:00Z", "/v1/x-audit"]
    {
        let (status, answer) = scene.inbound.speak(key, "GET", target, &Value::Null).await;
        assert_eq!(status, 200, "{target}: {answer}");
    }
    post(&format!("/v1/tasks/{sleeping}/cancel"), json!({})).await;
    let (_, events) = scene.inbound.speak(key, "GET", &format!("{session}/events"), &Value::Null).await;
    let after = format!("{session}/events/stream?after_event_id={}", text(&events["data"][0], "id"));
    for target in ["/v1/sessions", "/v1/events/stream", &after] {
        let (status, answer) = scene.inbound.speak(key, "GET", target, &Value::Null).await;
        assert_eq!(status, 200, "{target}: {answer}");
    }
    let of_task = format!("/v1/tasks/{sleeping}/stream");
    for target in ["/v1/events/stream", &after, &of_task, "/health"] {
        let (status, answer) = scene.stream.speak(key, "GET", target, &Value::Null).await;
        assert_eq!(status, 200, "{target}: {answer} {:?}", scene.stream.gate.denied());
    }
    let workspace = json!({ "name": "w", "root": "/" });
    for (method, target, body) in
        [("POST", "/v1/workspaces", &workspace), ("GET", "/v1/sessions", &Value::Null), ("GET", &session, &Value::Null)]
    {
        let (status, refusal) = scene.stream.speak(key, method, target, body).await;
        let told = &refusal["error"]["details"]["base_url"];
        assert_eq!((status, told), (501, &json!("https://agents.example.com")), "{target}: {refusal}");
    }
    let (status, refusal) = scene.stream.speak(key, "POST", "/graphs/errand/turns", &json!({ "state": {} })).await;
    assert_eq!(status, 404, "{refusal}");
}

/// What the function for sockets does: its commands are requests to inbound.
async fn sockets(scene: &Scene) {
    let held = scene.socket.sockets.as_ref().unwrap();
    let (_, sessions) = scene.inbound.speak(&scene.key, "GET", "/v1/sessions", &Value::Null).await;
    // That one whose document is a blob.
    let listed = sessions["data"].as_array().unwrap();
    let session = listed.iter().find(|one| one["metadata"].get("note").is_some()).unwrap();
    let session = text(session, "id").to_owned();
    let (_, tasks) =
        scene.inbound.speak(&scene.key, "GET", &format!("/v1/sessions/{session}/tasks"), &Value::Null).await;
    let task = text(&tasks["data"][0], "id").to_owned();
    let events = format!("/v1/sessions/{session}/events");
    let (_, events) = scene.inbound.speak(&scene.key, "GET", &events, &Value::Null).await;
    let after = text(&events["data"][0], "id");
    let targets = [
        format!("/v1/tasks/{task}/stream"),
        format!("/v1/sessions/{session}/events/stream?after_event_id={after}"),
        format!("/v1/events/stream?after_event_id={after}"),
    ];
    for (number, target) in targets.iter().enumerate() {
        let id = format!("connection{number}=");
        let opened = held.connect(&id, Function::asked(&scene.key, target)).await;
        assert_eq!(opened.status, 200, "{target}: {opened:?}");
        let call = FollowCall { connection_id: id.clone(), generation: 1 };
        held.follow(call, Some(Duration::from_secs(12))).await.unwrap();
        let pong = held.frame(&id, Some(r#"{"type":"ping"}"#)).await.unwrap();
        assert!(pong.contains("pong"), "{pong}");
        held.disconnect(&id).await.unwrap();
        // It is closed: its record has gone.
        assert_eq!(held.frame(&id, Some(r#"{"type":"ping"}"#)).await, None);
    }
}

/// The call for a worker that begins or continues the invocation `id`.
fn work(id: &str) -> Value {
    json!({ "source": "dormouse", "detail-type": "Dormouse Work", "id": "e", "detail": { "invocation_id": id } })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_role_does_not_grant_is_denied() {
    let scene = Scene::set().await;
    let table = scene.inbound.config.access.clients().dynamodb;
    let key = |pk: &str| aws_sdk_dynamodb::types::AttributeValue::S(pk.to_owned());
    let read = |pk: &str| table.get_item().table_name("dormouse").key("pk", key(pk)).key("sk", key("HEAD"));
    assert!(read("SESSION#s").send().await.is_ok());
    assert!(read("OTHER#s").send().await.is_err(), "a partition that nobody knows");
    assert!(read("SESSION#s").table_name("another").send().await.is_err(), "another table");
    assert!(table.scan().table_name("dormouse").send().await.is_err(), "an action that is not granted");
    let denied: Vec<String> = scene.inbound.gate.denied().into_iter().map(|asked| asked.action).collect();
    assert_eq!(denied, ["dynamodb:GetItem", "dynamodb:GetItem", "dynamodb:Scan"]);
}

#[test]
fn the_template_makes_the_table_of_the_store() {
    let template = Template::read();
    let mut written = template.decided(dormouse_aws::TABLE_RESOURCE_NAME);
    // What linters are told there is nothing of the table, and when it is made neither.
    for name in ["Metadata", "Condition"] {
        written.as_object_mut().unwrap().shift_remove(name);
    }
    assert_eq!(written, dormouse_aws::table_resource());
}

#[test]
fn options_of_the_table_change_what_they_are_for() {
    let key = "arn:aws:kms:eu-central-1:123456789012:key/k";
    let template = Template::with(&[
        ("ReadCapacity", "10"),
        ("WriteCapacity", "5"),
        ("WarmReads", "12000"),
        ("WarmWrites", "4000"),
        ("KmsKeyArn", key),
    ]);
    let written = template.decided(dormouse_aws::TABLE_RESOURCE_NAME)["Properties"].clone();
    assert_eq!(written["BillingMode"], "PROVISIONED");
    assert_eq!(written["SSESpecification"]["SSEType"], "KMS");
    for throughput in [&written, &written["GlobalSecondaryIndexes"][0]] {
        assert!(throughput["ProvisionedThroughput"].is_object() && throughput["WarmThroughput"].is_object());
    }
    assert!(template.made().contains(&"UseOfTheKey") && !template.made().contains(&"TableReadsScaling"));
    let grows = [("ReadCapacityMost", "100"), ("WriteCapacityMost", "50"), ("ReadCapacity", "10")];
    assert!(Template::with(&grows).made().contains(&"TableReadsScaling"));
    assert!(!Template::with(&grows[..2]).made().contains(&"TableReadsScaling"), "what is paid by request grows anyway");
}

#[test]
fn a_stack_takes_another_table_and_leaves_its_own() {
    let arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/restored";
    let template = Template::with(&[("TableArn", arn)]);
    assert!(!template.made().contains(&dormouse_aws::TABLE_RESOURCE_NAME));
    assert_eq!(template.resource(dormouse_aws::TABLE_RESOURCE_NAME)["DeletionPolicy"], "Retain");
    for function in ["Inbound", "Signal", "Wakeup", "Stream", "Socket"] {
        let statements = template.statements(&format!("{function}Role"));
        let on_tables: Vec<_> = statements
            .iter()
            .filter(|statement| statement["Action"].to_string().contains("dynamodb:"))
            .map(|statement| statement["Resource"].to_string())
            .collect();
        assert!(!on_tables.is_empty() && on_tables.iter().all(|resource| resource.contains(arn)), "{on_tables:?}");
        let variables =
            template.decided(&format!("{function}Function"))["Properties"]["Environment"]["Variables"].clone();
        assert_eq!(variables["DORMOUSE_TABLE"]["Fn::Select"][1]["Fn::Split"][1], json!({ "Ref": "TableArn" }));
    }
}

#[test]
fn where_there_are_no_function_addresses_the_streams_are_left_out() {
    let template = Template::with(&[("Streaming", "disabled")]);
    let left: Vec<&str> = template.made().into_iter().filter(|name| name.starts_with("Stream")).collect();
    assert_eq!(left, Vec::<&str>::new());
    assert_eq!(template.environment("InboundFunction").get("DORMOUSE_STREAM_URL"), None);
    assert!(Template::read().environment("InboundFunction").contains_key("DORMOUSE_STREAM_URL"));
}

#[test]
fn sockets_are_there_where_they_are_asked_for() {
    let parts = |template: &Template| {
        let made = template.made().into_iter().filter(|name| name.contains("Socket")).map(str::to_owned);
        made.collect::<Vec<_>>()
    };
    let template = Template::with(&[("Sockets", "enabled")]);
    assert!(parts(&template).len() > 10 && parts(&Template::read()).is_empty(), "{:?}", parts(&template));
    let url = template.environment("SocketFunction")["DORMOUSE_SOCKET_URL"].clone();
    assert_eq!(url, "wss://sockets.execute-api.eu-central-1.amazonaws.com/live");
    assert_eq!(template.environment("InboundFunction")["DORMOUSE_SOCKET_URL"], url, "the card tells where");
    assert_eq!(template.resource("SocketStage")["Properties"]["StageName"], "live");
    assert!(!Template::read().environment("InboundFunction").contains_key("DORMOUSE_SOCKET_URL"));
    // A follower hands over before its function is stopped.
    assert!(template.resource("SocketFunction")["Properties"]["Timeout"].as_u64() > Some(60));
}

#[test]
fn secrets_are_where_the_functions_look_for_them() {
    let place = |store: &'static str| {
        let template = Template::with(&[("SecretStore", store)]);
        let made = template
            .made()
            .into_iter()
            .filter(|name| template.resource(name)["Type"].as_str().unwrap().contains("Secret"));
        let made: Vec<String> =
            made.map(|name| text(&template.resource(name)["Properties"]["Name"], "Fn::Sub").to_owned()).collect();
        (text(&Value::Object(template.environment("SignalFunction")), "DORMOUSE_SECRETS").to_owned(), made)
    };
    assert_eq!(place("parameter-store"), ("/dormouse/dev".to_owned(), Vec::new()));
    let vault = "/aws/reference/secretsmanager/dormouse/dev".to_owned();
    assert_eq!(place("secrets-manager"), (vault.clone(), Vec::new()));
    let names = ["callback-secret", "callback-secret-second", "signal-key", "signal-key-second"];
    assert_eq!(place("stack"), (vault, names.map(|name| format!("dormouse/${{Stage}}/{name}")).to_vec()));
}

#[test]
fn who_ends_tasks_may_read_the_keys_of_receipts_and_nobody_else() {
    let functions = ["Inbound", "Signal", "Wakeup", "Stream", "Socket"];
    for (store, path) in [
        ("parameter-store", "/dormouse/dev/receipt-keys"),
        ("secrets-manager", "/aws/reference/secretsmanager/dormouse/dev/receipt-keys"),
    ] {
        let template = Template::with(&[("SecretStore", store), ("Receipts", "enabled")]);
        let named = functions.map(|function| template.environment(&format!("{function}Function")));
        let named = named.map(|variables| variables.get("DORMOUSE_RECEIPT_KEYS").cloned());
        assert_eq!(named, [Some(json!(path)), Some(json!(path)), Some(json!(path)), None, None]);
        let policy = template.decided("ReceiptKeys")["Properties"].clone();
        let role = |name: &str| json!({ "Ref": format!("{name}Role") });
        assert_eq!(policy["Roles"], json!([role("Inbound"), role("Signal"), role("Wakeup")]));
        let granted = policy["PolicyDocument"]["Statement"][0]["Resource"].to_string();
        assert!(granted.ends_with(&format!("parameter{}\"}}", path.replace("dev", "${Stage}"))), "{granted}");
        let vault = template.made().contains(&"ReceiptKeysOfSecretsManager");
        assert_eq!(vault, store == "secrets-manager");
    }
    let without = Template::read();
    assert!(!without.made().iter().any(|name| name.starts_with("ReceiptKeys")));
    assert!(functions.iter().all(|function| {
        !without.environment(&format!("{function}Function")).contains_key("DORMOUSE_RECEIPT_KEYS")
    }));
}

#[test]
fn who_ends_tasks_may_sign_with_the_key_of_kms_that_is_named_and_do_nothing_else_with_it() {
    let key = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
    let template = Template::with(&[("Receipts", "enabled"), ("SecretStore", "stack"), ("ReceiptsKmsKeyArn", key)]);
    let policy = template.decided("ReceiptSignatures")["Properties"].clone();
    let role = |name: &str| json!({ "Ref": format!("{name}Role") });
    assert_eq!(policy["Roles"], json!([role("Inbound"), role("Signal"), role("Wakeup")]));
    let grants = json!([{
        "Effect": "Allow",
        "Action": "kms:Sign",
        "Resource": { "Ref": "ReceiptsKmsKeyArn" },
        "Condition": { "StringEquals": { "kms:SigningAlgorithm": "ED25519_SHA_512" } },
    }]);
    assert_eq!(policy["PolicyDocument"]["Statement"], grants);
    assert!(!template.made().contains(&"ReceiptKeysSecret"), "no key is made up beside it");
    for without in [&[("Receipts", "enabled")][..], &[("ReceiptsKmsKeyArn", key)]] {
        assert!(!Template::with(without).made().contains(&"ReceiptSignatures"), "{without:?}");
    }
}

#[test]
fn wakeup_alone_may_tell_people_that_they_are_asked_and_send_only_as_who_is_named() {
    let identity = "arn:aws:ses:eu-central-1:111122223333:identity/example.com";
    for (store, path) in
        [("parameter-store", "/dormouse/dev"), ("secrets-manager", "/aws/reference/secretsmanager/dormouse/dev")]
    {
        let asked = [("SecretStore", store), ("Notifications", "enabled"), ("EmailIdentityArn", identity)];
        let template = Template::with(&asked);
        let told = template.environment("WakeupFunction");
        assert_eq!(told["DORMOUSE_NOTIFICATIONS"], json!(format!("{path}/notifications")));
        assert_eq!(told["DORMOUSE_SECRETS"], json!(path), "it signs the links");
        assert!(told.contains_key("DORMOUSE_SECRETS_CHANGED") && told.contains_key("DORMOUSE_BASE_URL"));
        for other in ["Inbound", "Signal", "Stream", "Socket"] {
            let told = template.environment(&format!("{other}Function"));
            assert!(!told.contains_key("DORMOUSE_NOTIFICATIONS"), "{other}");
        }
        let wakeup = json!([{ "Ref": "WakeupRole" }]);
        let read = template.decided("NotificationChannels")["Properties"].clone();
        assert_eq!(read["Roles"], wakeup);
        let granted = json!(template.statements("WakeupRole")).to_string();
        for secret in ["notifications", "callback-secret", "callback-secret-second"] {
            assert!(granted.contains(&format!("{path}/{secret}\"")), "{granted}");
        }
        assert_eq!(template.made().contains(&"NotificationChannelsOfSecretsManager"), store == "secrets-manager");
        let send = template.decided("NotificationsByEmail")["Properties"].clone();
        let grants =
            json!([{ "Effect": "Allow", "Action": "ses:SendEmail", "Resource": { "Ref": "EmailIdentityArn" } }]);
        assert_eq!((&send["Roles"], &send["PolicyDocument"]["Statement"]), (&wakeup, &grants));
    }
    let by_slack = Template::with(&[("Notifications", "enabled")]);
    assert!(!by_slack.made().contains(&"NotificationsByEmail"));
    for without in [&[][..], &[("EmailIdentityArn", identity)]] {
        let template = Template::with(without);
        assert!(!template.made().iter().any(|name| name.starts_with("Notification")), "{without:?}");
        let told = template.environment("WakeupFunction");
        assert!(!told.contains_key("DORMOUSE_NOTIFICATIONS") && !told.contains_key("DORMOUSE_SECRETS"));
    }
}

/// Whoever keeps calling a function itself would run code that a deployment has not let on yet, or has taken back.
#[test]
fn everybody_calls_the_version_that_is_live() {
    let template = Template::read();
    for integration in ["Inbound", "Signal"] {
        let called = &template.resource(&format!("{integration}Integration"))["Properties"]["IntegrationUri"];
        assert_eq!(*called, json!({ "Ref": format!("{integration}Live") }));
    }
    for rule in ["DormouseSignalRule", "DormouseWorkRule"] {
        let called = template.resource(rule)["Properties"]["Targets"][0]["Arn"]["Ref"].as_str().unwrap();
        assert!(called.ends_with("Live"), "{rule}: {called}");
    }
    assert_eq!(template.resource("Sweep")["Properties"]["Target"]["Arn"], json!({ "Ref": "WakeupLive" }));
    for function in ["Inbound", "Signal", "Wakeup", "Socket"] {
        let environment = template.environment(&format!("{function}Function"));
        for name in ["DORMOUSE_SIGNAL_ARN", "DORMOUSE_WAKEUP_ARN"] {
            assert!(text(&Value::Object(environment.clone()), name).ends_with(":live"), "{function}: {name}");
        }
    }
    for function in ["Inbound", "Signal", "Wakeup"] {
        // A version is published when its description changes, which is when the function changes.
        let described = &template.resource(&format!("{function}Version"))["Properties"]["Description"];
        let variables = &template.resource(&format!("{function}Function"))["Properties"]["Environment"]["Variables"];
        assert_eq!(*described, variables["DORMOUSE_RELEASE"], "{function}");
    }
}

#[test]
fn a_turn_ends_before_its_function_does() {
    let template = Template::read();
    let number = |name: &str| template.parameter(name)["Default"].as_u64().unwrap();
    assert!(number("TurnSeconds") + 5 < number("SignalTimeout").min(number("WakeupTimeout")));
    assert!(template.environment("WakeupFunction").contains_key("DORMOUSE_TURN"));
}

#[test]
fn the_silence_of_the_sweep_is_an_alarm() {
    let template = Template::read();
    let alarm = &template.resource("SweepAlarm")["Properties"];
    let counted = &template.resource("SweepsMetric")["Properties"]["MetricTransformations"][0];
    assert_eq!((&alarm["MetricName"], &alarm["Namespace"]), (&counted["MetricName"], &counted["MetricNamespace"]));
    assert_eq!(alarm["TreatMissingData"], "breaching");
    let few = Template::with(&[("Alarms", "few")]);
    let alarms = |template: &Template| {
        let made: Vec<String> = template.made().into_iter().map(str::to_owned).collect();
        made.into_iter().filter(|name| template.resource(name)["Type"] == "AWS::CloudWatch::Alarm").collect::<Vec<_>>()
    };
    for wanted in ["SweepAlarm", "FailedAlarm", "UndeliveredAlarm", "SignalErrorAlarm", "ScheduleDropAlarm"] {
        assert!(alarms(&few).iter().any(|name| name == wanted), "{wanted}");
    }
    assert!(alarms(&few).len() < alarms(&template).len());
}

/// Signatures are for the gateway to check, keys for the function: the template tells both of the same setting.
#[test]
fn the_gateway_asks_for_signatures_where_the_function_takes_its_word() {
    let template = Template::read();
    let setting = json!({ "Ref": "InboundAuthorization" });
    let variables = &template.resource("InboundFunction")["Properties"]["Environment"]["Variables"];
    assert_eq!(variables["DORMOUSE_AUTHORIZATION"], setting);
    let asked = &template.resource("DefaultRoute")["Properties"]["AuthorizationType"];
    assert_eq!(*asked, json!({ "Fn::If": ["CallersSign", "AWS_IAM", "NONE"] }));
    assert_eq!(*template.condition("CallersSign"), json!({ "Fn::Equals": [setting, "AWS_IAM"] }));
    let words = template.parameter("InboundAuthorization")["AllowedValues"].as_array().unwrap();
    let settings: Vec<_> = words.iter().map(|word| Authorization::parse(word.as_str().unwrap())).collect();
    assert_eq!(settings, [Authorization::Keys, Authorization::AwsIam, Authorization::None].map(Some));
}

/// Only people make, change and take away keys, from outside.
#[test]
fn no_function_may_write_a_key() {
    let template = Template::read();
    for role in ["InboundRole", "SignalRole", "WakeupRole", "StreamRole", "SocketRole"] {
        let statements = template.statements(role);
        let grants = policy::grants(&statements);
        let prohibitions = policy::prohibitions(&statements);
        let may = |action: &str, key: &str| {
            let context = vec![("dynamodb:LeadingKeys", key.to_owned())];
            let resource = Template::arn("StateTable");
            let asked = policy::Asked { action: action.to_owned(), resource, context };
            policy::judge(&grants, &asked).is_some() && policy::judge(&prohibitions, &asked).is_none()
        };
        for action in ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"] {
            for key in ["DOCUMENT#key#0123456789abcdef", "LIST#keys"] {
                assert!(!may(action, key), "{role} may {action} {key}");
            }
        }
        let writes = !["StreamRole", "SocketRole"].contains(&role);
        assert_eq!(may("dynamodb:PutItem", "DOCUMENT#task#1"), writes, "{role}");
    }
}

/// It reads what streams are made of, and writes who has how many open.
#[test]
fn the_function_that_streams_may_put_seats_and_write_nothing_else() {
    let template = Template::read();
    let statements = template.statements("StreamRole");
    let mut granted: Vec<_> = policy::grants(&statements).iter().map(|grant| grant.action().to_owned()).collect();
    granted.retain(|action| !FOR_SERVICES.iter().any(|(of_services, _)| action == of_services));
    granted.sort_unstable();
    granted.dedup();
    assert_eq!(granted, ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"]);
    let put = statements.iter().find(|statement| statement["Action"] == "dynamodb:PutItem").unwrap();
    let keys = &put["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"];
    assert_eq!(*keys, json!(["DOCUMENT#stream_seats#*"]));
    let environment = template.environment("StreamFunction");
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    assert!(!names.iter().any(|name| name.contains("SECRET") || name.ends_with("_ARN")), "{names:?}");
}

/// Commands that a model wrote run in it: neither its role nor its environment is of any use to them.
#[test]
fn the_function_for_tools_may_write_its_log_and_nothing_else() {
    let template = Template::with(&[("Workspaces", "desk"), ("Tools", "enabled")]);
    let statements = template.statements("ToolsRole");
    let granted: Vec<_> = policy::grants(&statements).iter().map(|grant| grant.action().to_owned()).collect();
    assert_eq!(granted, ["logs:CreateLogStream", "logs:PutLogEvents"]);
    let function = template.decided("ToolsFunction");
    assert!(function["Properties"].get("Environment").is_none(), "{function}");
    let made = template.made();
    assert!(made.contains(&"ToolsFunction") && !Template::read().made().contains(&"ToolsFunction"));
    for policy in made.iter().filter(|name| template.resource(name)["Type"] == "AWS::IAM::Policy") {
        let roles = template.decided(policy)["Properties"]["Roles"].to_string();
        assert!(!roles.contains("ToolsRole"), "{policy} adds to it");
    }
    for function in ["Inbound", "Signal", "Wakeup"] {
        let decided = template.decided(&format!("{function}Function"));
        let known = &decided["Properties"]["Environment"]["Variables"]["DORMOUSE_TOOLS_FUNCTION"];
        assert!(known.to_string().contains("ToolsFunction"), "{function} calls it: {known}");
    }
}

/// The functions that run turns ask the models that are named, and no others.
#[test]
fn models_of_bedrock_are_granted_by_their_names() {
    let named = "arn:aws:bedrock:eu-central-1::foundation-model/amazon.nova-lite-v1:0,arn:aws:bedrock:eu-central-1:1:inference-profile/eu.x";
    let template = Template::with(&[("Workspaces", "desk"), ("BedrockModels", named)]);
    assert!(template.made().contains(&"ModelsOfBedrock") && !Template::read().made().contains(&"ModelsOfBedrock"));
    let unserved = Template::with(&[("BedrockModels", named)]);
    assert!(!unserved.made().contains(&"ModelsOfBedrock"), "without a workspace nobody asks");
    let policy = template.decided("ModelsOfBedrock")["Properties"].clone();
    let statement = &policy["PolicyDocument"]["Statement"][0];
    assert_eq!(statement["Action"], json!(["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"]));
    assert_eq!(statement["Resource"], json!({ "Fn::Split": [",", { "Ref": "BedrockModels" }] }), "no pattern");
    assert!(!policy["Roles"].to_string().contains("Stream"), "{}", policy["Roles"]);
}

/// A tool that a run calls in any function may report at an address that is good.
#[test]
fn whoever_runs_turns_of_workspaces_signs_addresses() {
    for store in ["parameter-store", "secrets-manager"] {
        let template = Template::with(&[("Workspaces", "desk"), ("SecretStore", store)]);
        assert!(path_of(&template, "Wakeup").is_some(), "{store}");
        assert_eq!(path_of(&template, "Wakeup"), path_of(&template, "Signal"), "{store}");
        let granted = json!(template.statements("WakeupRole")).to_string();
        assert!(granted.contains("/callback-secret\"") && granted.contains("/callback-secret-second\""), "{granted}");
    }
    assert_eq!(path_of(&Template::read(), "Wakeup"), None);
}

fn path_of(template: &Template, function: &str) -> Option<Value> {
    let variables = template.decided(&format!("{function}Function"))["Properties"]["Environment"]["Variables"].clone();
    variables.get("DORMOUSE_SECRETS").cloned()
}

/// Whoever may look at a function or a stack reads its environment and its parameters.
#[test]
fn no_secret_stands_in_the_template() {
    let template = Template::read();
    let hidden = template.parameters().iter().filter(|(_, parameter)| parameter["NoEcho"] == true);
    assert_eq!(hidden.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<&String>::new(), "parameters that are secret");
    for function in ["Inbound", "Signal", "Wakeup", "Stream", "Socket"] {
        let environment = template.environment(&format!("{function}Function"));
        let found = environment.keys().find(|name| name.ends_with("_SECRET") || name.ends_with("_KEY"));
        assert_eq!(found, None, "{function}");
    }
}

/// The scenes cannot tell of a call that they never reach. So every call that stands in the code is listed here: it is
/// one that a role grants, or one with a reason why no role needs to.
#[test]
fn every_call_in_the_code_is_granted_or_made_outside_of_functions() {
    let template = Template::read();
    let statements: Vec<Value> = ["InboundRole", "SignalRole", "WakeupRole", "StreamRole", "SocketRole"]
        .iter()
        .flat_map(|role| template.statements(role))
        .collect();
    let granted: Vec<String> = policy::grants(&statements).iter().map(|grant| snake(grant.action())).collect();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/aws/src");
    let mut calls: Vec<String> = files(&source).iter().flat_map(|text| calls(text)).collect();
    calls.sort_unstable();
    calls.dedup();
    assert!(calls.contains(&"put_item".to_owned()), "calls are found at all: {calls:?}");
    for call in &calls {
        // Its parts are judged, not the transaction.
        let known = call == "transact_write_items" || granted.contains(call);
        let outside = OUTSIDE.iter().any(|(name, _)| name == call);
        assert!(known != outside, "{call} is granted: {known}, listed as outside of functions: {outside}");
    }
    for (name, _) in OUTSIDE {
        assert!(calls.iter().any(|call| call == name), "nobody calls {name} any more");
    }
}

/// `dynamodb:GetItem` as the SDK spells it.
fn snake(action: &str) -> String {
    let name = action.split_once(':').unwrap().1;
    let letters = name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase()));
    letters.collect::<String>().trim_start_matches('_').to_owned()
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // How AWS is reached: nothing is asked of it there.
    let entries = entries.filter(|path| path.file_stem() != Some("connect".as_ref()));
    let read = |path: std::path::PathBuf| {
        if path.is_dir() { files(&path) } else { vec![std::fs::read_to_string(path).unwrap()] }
    };
    entries.flat_map(read).collect()
}

/// The names of what is called on clients in `text`.
fn calls(text: &str) -> Vec<String> {
    let joined: String = text.split_whitespace().collect::<Vec<_>>().join("");
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let found = joined.split("client.").skip(1).map(name);
    found
        .filter(|call| {
            !["config", "clone", "into"].contains(&call.as_str()) && joined.contains(&format!("client.{call}()"))
        })
        .collect()
}
