//! The roles of the template grant what the functions use, and the functions use what the roles grant.
//!
//! Each function runs behind a gate that judges its requests by its role, conditions included: one request too many is
//! denied and fails the test, and so does a grant that the scenes never use.
#![expect(clippy::unwrap_used, reason = "a test may end where it stands")]

mod calls;
mod functions;
mod gate;
mod gateway;
mod metrics;
mod offers;
mod policy;
mod stack;
mod template;
mod times;
mod workspaces;

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_http::FollowCall;
use dormouse_local::{EmbeddedDynamoDb, ScriptedModel, StoreLocation};
use dormouse_ports::Invocations;
use dormouse_tests::{HttpAnswer, full_grant, make_key, open_door};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::functions::{Function, StreamFunction};
use crate::gate::{Behind, Gate};
use crate::template::Template;
use crate::times::times;

/// What the roles grant to services that act for a function: no line of ours asks for it.
const FOR_SERVICES: &[(&str, &str)] = &[
    ("sqs:SendMessage", "Lambda puts events aside on which the function failed"),
    ("logs:CreateLogStream", "Lambda writes what the function prints"),
    ("logs:PutLogEvents", "the same"),
    ("xray:PutTraceSegments", "Lambda traces invocations"),
    ("xray:PutTelemetryRecords", "the same"),
];

/// What is granted for moments that no scene can bring about: function, action, key and reason.
const FOR_RACES: &[(&str, &str, &str, &str)] = &[
    (
        "signal",
        "dynamodb:GetItem",
        "SESSION#*",
        "another turn wrote the session before this one, which is carried over",
    ),
    ("wakeup", "dynamodb:GetItem", "SESSION#*", "the same"),
];

struct Scene {
    store: EmbeddedDynamoDb,
    inbound: Function,
    signal: Function,
    wakeup: Function,
    sweep: Function,
    stream: StreamFunction,
    socket: Function,
    /// An API key for everything.
    key: String,
    /// The model of the published workspace, which it lends.
    model: ScriptedModel,
}

impl Scene {
    /// With everything that a deployment can ask for.
    async fn set() -> Self {
        Self::with(&[
            ("Sockets", "enabled"),
            ("Webhooks", "enabled"),
            ("StreamsOfTenant", "50"),
            ("Workspaces", workspaces::PUBLISHED),
        ])
        .await
    }

    /// With these parameters.
    async fn with(options: &'static [(&'static str, &'static str)]) -> Self {
        let template = Template::with(options);
        let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
        ensure_table(&store.client(), "dormouse").await.unwrap();
        let model = workspaces::model().await;
        let behind = Behind { store: open_door(&store).await, objects: workspaces::published(&model).await };
        let functions = ["Inbound", "Signal", "Wakeup", "Sweep", "Socket"];
        let stream = StreamFunction::start(&template, behind.clone()).await;
        let [inbound, signal, wakeup, sweep, socket] = functions.map(|name| {
            let template = &template;
            let behind = behind.clone();
            async move { Function::start(template, name, behind).await }
        });
        let key = key(&store).await;
        let (inbound, signal, wakeup, sweep) = (inbound.await, signal.await, wakeup.await, sweep.await);
        Self { inbound, signal, wakeup, sweep, stream, socket: socket.await, store, key, model }
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

    fn gates(&self) -> [(&'static str, &Gate); 6] {
        let Self { inbound, signal, wakeup, sweep, stream, socket, .. } = self;
        let with_agents =
            [("inbound", inbound), ("signal", signal), ("wakeup", wakeup), ("sweep", sweep), ("socket", socket)];
        let [inbound, signal, wakeup, sweep, socket] = with_agents.map(|(name, function)| (name, &function.gate));
        [inbound, signal, wakeup, sweep, ("stream", &stream.gate), socket]
    }
}

/// Makes a key for everything, as an operator does, and gives it.
async fn key(store: &EmbeddedDynamoDb) -> String {
    let store = DynamoDbStateStore::new(&store.client(), "dormouse", StoreConfig::default());
    make_key(&store, 7, full_grant("ada", "acme"), Timestamp::now()).await
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
fn signal_goes_on_with_agents_where_no_workspaces_are_published() {
    on_a_large_stack(async {
        let scene = Scene::with(&[]).await;
        let post = async |target: &str, body: Value| scene.inbound.speak(&scene.key, "POST", target, &body).await.1;
        let workspace = post("/v1/workspaces", json!({ "name": "w", "root": "/" })).await;
        let session = post("/v1/sessions", json!({ "workspace_id": workspace["id"] })).await;
        asks_behind_a_signal(&scene, &format!("/v1/sessions/{}", text(&session, "id"))).await;
        assert_eq!(scene.signal.gate.denied(), []);
    });
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
    workspaces::own_agents(&scene).await;
    sockets(&scene).await;
    let mut unused = Vec::new();
    for (name, gate) in scene.gates() {
        assert_eq!(gate.denied(), [], "{name} asks for what its role does not grant");
        let grants = gate.unused();
        let grants = grants.iter().filter(|grant| !FOR_SERVICES.iter().any(|(action, _)| *action == grant.action()));
        let is_for_races = |grant: &policy::Grant| {
            FOR_RACES.iter().any(|(function, action, key, _)| {
                (*function, *action) == (name, grant.action()) && grant.to_string().ends_with(&format!(" is {key}"))
            })
        };
        let grants = grants.filter(|grant| !is_for_races(grant));
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
    // A signal that comes before its wait: the turn goes on at once, to its next wait. Its id is made of that of the turn, which
    // is one of the tenant.
    let named = scene.errand("s2", Some("named"), "PT1H").await;
    let before = text(&named["waiting_for"], "signal_id").replace("named", "early");
    let early = scene.signal.post(&format!("/signals/{before}"), &json!({})).await;
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
    // A node that saves its session behind a durable step holds that the run is claimed still.
    let saved = scene.ask("/graphs/saving/turns", &json!({ "state": {}, "session_id": "s12" })).await;
    let denied = scene.inbound.gate.denied();
    assert_eq!((saved.status, &saved.body["status"]), (200, &json!("completed")), "{} {denied:?}", saved.body);
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
    asks_behind_a_signal(scene, &session).await;
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

/// An agent of `session` that goes on with a signal asks another one, and keeps an image: signal does both.
async fn asks_behind_a_signal(scene: &Scene, session: &str) {
    let asker = json!({ "persona_id": "persona_late-delegation", "input": {} });
    let (status, asker) = scene.inbound.speak(&scene.key, "POST", &format!("{session}/tasks"), &asker).await;
    assert_eq!(status, 202, "{asker}");
    let asker = text(&asker, "id");
    let asleep = scene.wakeup.app.wakeup(work(asker), None).await.unwrap();
    assert_eq!(asleep["status"], "suspended", "{asleep} {:?}", scene.wakeup.gate.denied());
    let ended = scene.signal.app.event(own_signal(&format!("ask-{asker}")), None).await;
    let status = ended.as_ref().map(|ended| ended["status"].clone()).unwrap_or_default();
    assert_eq!(status, "completed", "{ended:?} {:?}", scene.signal.gate.denied());
    let asked = format!("/v1/tasks/{}", functions::delegated(asker));
    let (_, asked) = scene.inbound.speak(&scene.key, "GET", &asked, &Value::Null).await;
    assert_eq!(asked["parent_task_id"], json!(asker), "{asked}");
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
    let key = |pk: &str| AttributeValue::S(pk.to_owned());
    let read = |pk: &str| table.get_item().table_name("dormouse").key("pk", key(pk)).key("sk", key("HEAD"));
    assert!(read("SESSION#s").send().await.is_ok());
    assert!(read("OTHER#s").send().await.is_err(), "a partition that nobody knows");
    assert!(read("SESSION#s").table_name("another").send().await.is_err(), "another table");
    assert!(table.scan().table_name("dormouse").send().await.is_err(), "an action that is not granted");
    let denied: Vec<String> = scene.inbound.gate.denied().into_iter().map(|asked| asked.action).collect();
    assert_eq!(denied, ["dynamodb:GetItem", "dynamodb:GetItem", "dynamodb:Scan"]);
}
