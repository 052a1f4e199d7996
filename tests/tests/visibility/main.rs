//! Who sees what. One table by hand: each operation and each route, with the requests by which somebody could get at what
//! is not theirs, or not public. An operation without a row is noticed.
//!
//! Whoever owns things sees them, but nothing that is internal. Whoever belongs elsewhere, with a key of another tenant
//! or of another workspace, is answered byte for byte as if the things had never been there.

#![expect(clippy::unwrap_used, reason = "a walk that stumbles fails the test")]

mod probes;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_api::keys::Grant;
use dormouse_api::{Receipts, RecordingEngine, RecordingStore, StreamLimits, WebhookKeys};
use dormouse_engine::{Answer, CompiledGraph, END, Graph, Update, Wait, state};
use dormouse_harness::DescriptorWakes;
use dormouse_http::{App, Content, Parts, ProtocolConfig, Response, Server};
use dormouse_ports::{Clock, Secret, Secrets};
use dormouse_protocol::Operation::{self, *};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::id::WorkspaceId;
use dormouse_receipts::KeyRing;
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, TokioSpawner};
use dormouse_tests::{full_grant, make_key, parts_in_memory, protocol_request, while_time_passes, work_off};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::table::Row::{self, Lists, OfTheServer, Reads, Writes};
use crate::table::{ROUTES, TABLE};

const HI: &str = r#"{"role": "user", "parts": [{"type": "text", "text": "hi", "visibility": "public"}]}"#;

/// What nobody is told of, who owns it or not. The last is the hash of the content of an internal artifact.
const HIDDEN: [&str; 5] = [
    "marker-internal",
    "marker-receipt",
    "marker-native",
    "marker-answer",
    "918617dc89b2945ef6200da782d05f3fb3af4c417e22ae84b201a0b183885d2e",
];

state! {
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Quiet {
        note: String,
        decision: String,
        signal: String,
    }
}

/// Waits for a decision by a signal of its own, or by the one that it is told, and says nothing of what it knows.
fn quiet() -> CompiledGraph {
    let count = AtomicUsize::new(0);
    Graph::<Quiet>::new("quiet")
        .entry("ask")
        .wait("ask", move |state| {
            let own = format!("quiet-{}", count.fetch_add(1, Ordering::Relaxed));
            let signal = if state.signal.is_empty() { own } else { state.signal.clone() };
            Ok(Wait::signal(signal, Answer::anything()).label("question", "Yes or no?"))
        })
        .node("end", async |()| Ok(Update::none()))
        .edge("ask", "end")
        .edge("end", END)
        .compile()
        .unwrap()
}

/// Streams that end after a while.
fn streams() -> StreamLimits {
    StreamLimits { life: Duration::from_secs(20), ..StreamLimits::default() }
}

struct World {
    server: Server,
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    bus: Arc<MemoryBus>,
    /// What the names in braces stand for.
    names: BTreeMap<&'static str, String>,
    /// The ids of many others in `W`.
    crowd: Vec<String>,
}

impl World {
    /// One whose streams end when they have told everything.
    fn new() -> Self {
        Self::with(StreamLimits { whole: Some(1 << 20), ..streams() })
    }

    fn with(streams: StreamLimits) -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let receipts = Receipts::of(&KeyRing::new([7; 32], None));
        let recording = RecordingStore::new(store.clone(), store.clone(), clock.clone()).with_receipts(Some(receipts));
        let (ids, spawner) = (Arc::new(CountingIds::default()), Arc::new(TokioSpawner));
        let app = App::new(Parts {
            engine: RecordingEngine::new(recording, ids, spawner, Arc::new(DescriptorWakes)),
            ..parts_in_memory(&store, &clock, &bus, &dormouse_app::agents().graph(|_| Ok(quiet())))
        });
        let wire = ProtocolConfig {
            streams,
            webhooks: Some(WebhookKeys::new(vec![Secret::new("secret")], false)),
            secrets: BTreeMap::from([("env".to_owned(), Arc::new(Secret::new("of a vault")) as Arc<dyn Secrets>)]),
            sockets: true,
            a2a: true,
            ..ProtocolConfig::new(store.clone(), Cursors::new(b"secret"))
        };
        Self { server: Server::new(app, wire), clock, store, bus, names: BTreeMap::new(), crowd: Vec::new() }
    }

    /// A key of `actor`, who may do everything in `tenant`, or in some workspaces of it.
    async fn key(&self, number: u8, (actor, tenant): (&str, &str), workspaces: Option<&str>) -> String {
        let workspaces = workspaces.map(|id| BTreeSet::from([WorkspaceId::from(id)]));
        let grant = Grant { workspaces, ..full_grant(actor, tenant) };
        self.grant(number, grant).await
    }

    /// The key number `number`, with what it lets its holder do.
    async fn grant(&self, number: u8, grant: Grant) -> String {
        make_key(&*self.store, number, grant, self.clock.now()).await
    }

    /// Everything that is answered: status, headers and body, a stream to its end.
    async fn ask(&self, key: &str, method: &str, target: &str, body: &str) -> Said {
        let mut request = protocol_request(key, method, target, body.as_bytes().to_vec());
        request.headers.push(("x-request-id".to_owned(), "request".to_owned()));
        let asked = async {
            let Response { status, headers, content } = self.server.http(request).await;
            let bytes = match content {
                Content::Whole(bytes) => bytes,
                Content::Live(pieces) => pieces.concat().await,
            };
            Said { status, headers, body: String::from_utf8(bytes).unwrap() }
        };
        while_time_passes(&self.clock, Duration::from_millis(50), asked).await
    }

    async fn made(&mut self, name: &'static str, key: &str, target: &str, body: Value) -> Value {
        let said = self.ask(key, "POST", &self.named(target), &self.named(&body.to_string())).await;
        assert!((200..300).contains(&said.status), "{target}: {}", said.body);
        let made: Value = serde_json::from_str(&said.body).unwrap();
        self.names.insert(name, made["id"].as_str().unwrap_or_default().to_owned());
        made
    }

    /// `text` with what the names in it stand for.
    fn named(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("{{{name}}}"), id))
    }

    /// The same with ids that were never given out, where they are those of `W`.
    fn ghostly(&self, text: &str) -> String {
        let own = |name: &str| name == "V" || name == "R";
        self.names.iter().fold(text.to_owned(), |text, (name, id)| {
            text.replace(&format!("{{{name}}}"), &if own(name) { id.clone() } else { ghost(id) })
        })
    }

    /// `said` as if the ids that were asked for had been real: some answers repeat what was asked for.
    fn of_ghosts(&self, said: Said) -> Said {
        let body = self.names.values().fold(said.body, |body, id| body.replace(&ghost(id), id));
        Said { body, ..said }
    }

    /// Does all work that was called for.
    async fn work(&self) {
        work_off(self.server.app().harness(), &self.bus).await;
    }

    /// The ids of what is in the workspace `W`, and words that stand there.
    fn of_theirs(&self) -> Vec<String> {
        let ids = self.names.iter().filter(|(name, _)| **name != "V" && **name != "R").map(|(_, id)| id.clone());
        ids.chain(self.crowd.iter().cloned()).chain(["marker-".to_owned()]).collect()
    }
}

/// An id like `id` that was never given out.
fn ghost(id: &str) -> String {
    match id.split_once('_') {
        Some((word, rest)) => format!("{word}_{}", rest.replace(|c: char| c.is_ascii_digit(), "7")),
        None => id.chars().rev().collect(),
    }
}

#[derive(Debug, PartialEq)]
struct Said {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Said {
    /// All that is said, also what a cursor in it holds.
    fn all(&self) -> String {
        let words = self.body.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
        let cursors = words.filter(|word| word.len() > 20).filter_map(|word| URL_SAFE_NO_PAD.decode(word).ok());
        let cursors = cursors.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        format!("{:?} {} {}", self.headers, self.body, cursors.collect::<Vec<_>>().join(" "))
    }

    fn holds<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
        let all = self.all();
        words.into_iter().find(|word| all.contains(word))
    }
}

/// Everything that can be hidden, in the workspace `W` of `ada`; the keys of whoever owns it, is of another tenant, or is
/// bound to another workspace.
async fn furnished() -> (World, [String; 3]) {
    let mut world = World::new();
    let ada = world.key(1, ("ada", "acme"), None).await;
    let public = |words: &str| json!({ "type": "text", "text": words, "visibility": "public" });
    world.made("V", &ada, "/v1/workspaces", json!({ "name": "elsewhere", "root": "/" })).await;
    world.made("W", &ada, "/v1/workspaces", json!({ "name": "marker-workspace", "root": "/" })).await;
    world.made("DOOMED", &ada, "/v1/workspaces", json!({ "name": "marker-doomed", "root": "/" })).await;
    let eve = world.key(2, ("ada", "other"), None).await;
    let bob = world.key(3, ("bob", "acme"), Some(&world.names["V"].clone())).await;
    let session = json!({ "workspace_id": "{W}", "metadata": { "note": "marker-session" },
        "initial_messages": [{ "role": "user", "parts": [public("marker-message")] }] });
    world.made("S", &ada, "/v1/sessions", session).await;
    let mixed = json!({ "message": { "role": "user", "parts": [public("marker-message"),
        { "type": "text", "text": "marker-internal", "visibility": "internal" },
        { "type": "json", "value": { "a": "marker-receipt" }, "visibility": "receipt_only" }] } });
    world.made("M", &ada, "/v1/sessions/{S}/messages", mixed).await;
    world.made("B", &ada, "/v1/sessions/{S}/branches", json!({ "kind": "session", "base_ref": "marker-branch" })).await;
    let inside = json!({ "persona_id": "persona_quiet", "input": { "role": "user", "parts": [
        { "type": "json", "value": { "note": "marker-internal" }, "visibility": "internal" }] } });
    world.made("T", &ada, "/v1/sessions/{S}/tasks", inside).await;
    world.work().await;
    let answer = json!({ "kind": "input", "message": { "role": "user", "parts": [
        { "type": "json", "value": { "decision": "marker-answer" }, "visibility": "internal" }] } });
    world.made("A", &ada, "/v1/tasks/{T}/messages", answer).await;
    world.work().await;
    let task = world.ask(&ada, "GET", &world.named("/v1/tasks/{T}"), "").await;
    assert!(task.body.contains("COMPLETED"), "{}", task.body);
    let state = world.ask(&ada, "GET", &world.named("/v1/artifacts?task_id={T}"), "").await;
    let state: Value = serde_json::from_str(&state.body).unwrap();
    world.names.insert("STATE", state["data"][0]["id"].as_str().unwrap().to_owned());
    let outcome = world.ask(&ada, "GET", &world.named("/v1/outcomes?task_id={T}"), "").await;
    let outcome: Value = serde_json::from_str(&outcome.body).unwrap();
    world.names.insert("O", outcome["data"][0]["id"].as_str().unwrap().to_owned());
    let receipts = world.ask(&ada, "GET", &world.named("/v1/tasks/{T}/receipts"), "").await;
    let receipts: Value = serde_json::from_str(&receipts.body).unwrap();
    world.names.insert("PROOF", receipts["data"][0]["id"].as_str().unwrap().to_owned());
    for (name, visibility, uri) in [
        ("PUBLIC", "public", "data:text/plain,marker-public"),
        ("INTERNAL", "internal", "data:text/plain,marker-internal"),
        ("RECEIPT", "receipt_only", "data:text/plain,marker-receipt"),
    ] {
        let artifact = json!({ "kind": "log", "mime_type": "text/plain", "visibility": visibility, "uri": uri,
            "session_id": "{S}" });
        world.made(name, &ada, "/v1/artifacts", artifact).await;
    }
    world.made("FORK", &ada, "/v1/sessions/{S}/fork", json!({})).await;
    let open = json!({ "session_id": "{S}", "persona_id": "persona_quiet", "input": { "note": "marker-note" } });
    world.made("OPEN", &ada, "/v1/tasks", open).await;
    world.work().await;
    let asks = json!({ "session_id": "{S}", "persona_id": "persona_expense-approval",
        "input": { "employee": "marker-employee", "amount_cents": 12000, "purpose": "marker-purpose" } });
    world.made("ASK", &ada, "/v1/tasks", asks).await;
    world.work().await;
    let requests = world.ask(&ada, "GET", &world.named("/v1/tasks/{ASK}/permission-requests"), "").await;
    let requests: Value = serde_json::from_str(&requests.body).unwrap();
    world.names.insert("PERM", requests["data"][0]["id"].as_str().unwrap().to_owned());
    let memory = |scope: &str, owner: &str| json!({ "scope": scope, "owner_id": owner, "content": "marker-memory", "provenance": {} });
    world.made("MEMORY", &ada, "/v1/memories", memory("session", "{S}")).await;
    world.made("GONE", &ada, "/v1/memories", memory("session", "{S}")).await;
    world.made("NOTE", &ada, "/v1/memories", memory("workspace", "{W}")).await;
    let vault =
        json!({ "workspace_id": "{W}", "provider": "env", "capabilities": ["marker-vault", "webhooks:verify"] });
    world.made("VAULT", &ada, "/v1/vaults", vault).await;
    let connector = json!({ "provider": "marker-provider", "workspace_id": "{W}", "target_session_id": "{S}",
        "mapping": { "kind": "message" }, "auth": { "scheme": "github", "vault_id": "{VAULT}", "secrets": ["HOOK"] } });
    world.made("CONN", &ada, "/v1/connectors", connector).await;
    let quota = json!({ "scope": "workspace", "owner_id": "{W}", "limits": { "tasks": 1000 },
        "metadata": { "note": "marker-quota" } });
    world.made("Q", &ada, "/v1/quotas", quota).await;
    let hook = json!({ "url": "https://marker-hook.example.com", "events": ["task.failed"] });
    world.made("HOOK", &ada, "/v1/sessions/{S}/webhooks", hook).await;
    let file = r#"{"content": "marker-file"}"#;
    for path in ["notes/a.txt", "notes/doomed.txt"] {
        let target = world.named(&format!("/v1/workspaces/{{W}}/files?path={path}"));
        assert_eq!(world.ask(&ada, "PUT", &target, file).await.status, 200);
    }
    let events = world.ask(&ada, "GET", &world.named("/v1/sessions/{S}/events"), "").await;
    let events: Value = serde_json::from_str(&events.body).unwrap();
    let id = |event: &Value| event["id"].as_str().unwrap().to_owned();
    world.names.insert("E", id(&events["data"][0]));
    let told = events["data"].as_array().unwrap().iter().filter(|event| event["resource"]["id"] == world.names["M"]);
    world.names.insert("EM", told.map(id).next().unwrap());
    world.made("R", &ada, "/v1/sessions", json!({ "workspace_id": "{V}" })).await;
    // So many that a list of all workspaces ends among them.
    for _ in 0..30 {
        for (target, body) in [
            ("/v1/workspaces", json!({ "name": "marker-workspace", "root": "/" })),
            ("/v1/sessions", json!({ "workspace_id": "{W}" })),
            (
                "/v1/artifacts",
                json!({ "kind": "log", "mime_type": "a/b", "visibility": "public", "workspace_id": "{W}" }),
            ),
        ] {
            let made = world.made("LAST", &ada, target, body).await;
            world.crowd.push(made["id"].as_str().unwrap().to_owned());
        }
    }
    let turn = json!({ "state": { "note": "marker-native" } });
    let turn = world.made("I", &ada, "/graphs/quiet/turns", turn).await;
    world.names.insert("I", turn["invocation_id"].as_str().unwrap().to_owned());
    world.clock.advance(Duration::from_secs(60));
    (world, [ada, eve, bob])
}

#[test]
fn each_operation_has_a_row() {
    let mut listed: Vec<Operation> = TABLE.iter().map(|(operation, _)| *operation).collect();
    listed.sort_unstable();
    let mut all = Operation::ALL.to_vec();
    all.sort_unstable();
    assert_eq!(listed, all);
}

/// The requests of a row: whether its owner may, method, target and body.
fn requests(operation: Operation, row: &Row) -> Vec<(bool, String, &'static str, &'static str)> {
    let method = operation.spec().method.as_str().to_owned();
    let read = |target: &&'static str| (!target.starts_with('!'), method.clone(), target.trim_start_matches('!'), "");
    match row {
        OfTheServer(target) => vec![read(target)],
        Lists(targets) | Reads(targets) => targets.iter().map(read).collect(),
        Writes(requests) => requests.iter().map(|(target, body)| (true, method.clone(), *target, *body)).collect(),
    }
}

#[tokio::test]
async fn whoever_is_elsewhere_is_answered_as_if_nothing_were_there() {
    let (world, [ada, eve, bob]) = furnished().await;
    let theirs = world.of_theirs();
    for (operation, row) in TABLE {
        for (_, method, target, body) in requests(*operation, row) {
            let makes_their_own = matches!(operation, CreateWorkspace);
            for (who, key) in [("of another tenant", &eve), ("of another workspace", &bob)] {
                let before = format!("{:?}", world.store);
                let real = world.named(target);
                let ghost = world.ghostly(target);
                let said = world.ask(key, &method, &real, &world.named(body)).await;
                // What somebody has asked for is no news.
                let words = theirs.iter().map(String::as_str).filter(|word| !format!("{real}{body}").contains(word));
                let shown = said.holds(words);
                assert_eq!(shown, None, "{who}: {method} {real}: {said:?}");
                if makes_their_own {
                    continue;
                }
                let unchanged = !operation.spec().method.is_write() || before == format!("{:?}", world.store);
                assert!(unchanged, "{who}: {method} {real} {body} changes something: {said:?}");
                let of_nothing = world.ask(key, &method, &ghost, &world.ghostly(body)).await;
                assert_eq!(said, world.of_ghosts(of_nothing), "{who}: {method} {real} and {ghost}");
                if method == "GET" {
                    let head = world.ask(key, "HEAD", &real, "").await;
                    assert_eq!(head, world.ask(key, "HEAD", &ghost, "").await, "{who}: HEAD {real}");
                }
            }
        }
    }
    let page = world.ask(&ada, "GET", "/docs", "").await;
    assert_eq!(page.holds(theirs.iter().map(String::as_str)), None);
}

#[tokio::test]
async fn whoever_owns_things_sees_them_and_nothing_that_is_internal() {
    let (world, [ada, ..]) = furnished().await;
    let theirs = world.of_theirs();
    let reads = TABLE.iter().filter(|(operation, _)| !operation.spec().method.is_write()).map(|row| (row, false));
    let writes = TABLE.iter().filter(|(operation, _)| operation.spec().method.is_write()).map(|row| (row, true));
    // What was written is looked at again.
    let again = reads.clone().map(|(row, _)| (row, true));
    for ((operation, row), is_changed) in reads.chain(writes).chain(again) {
        for (may, method, target, body) in requests(*operation, row) {
            let real = world.named(target);
            let said = world.ask(&ada, &method, &real, &world.named(body)).await;
            assert_eq!(said.holds(HIDDEN), None, "{method} {real}: {said:?}");
            if matches!(row, Reads(_)) {
                assert_eq!(said.status, if may { 200 } else { 403 }, "{method} {real}: {said:?}");
            }
            if matches!(row, Lists(_)) && !is_changed {
                let shown = said.holds(theirs.iter().map(String::as_str));
                assert!(said.status == 200 && shown.is_some(), "{method} {real} tells nothing: {said:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_address_shows_what_it_is_for_and_no_other_way_leads_there() {
    let (world, [ada, eve, bob]) = furnished().await;
    let index: Value = serde_json::from_str(&world.ask(&eve, "GET", "/", "").await.body).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let routes = index["routes"].as_array().unwrap().iter();
    let routes: BTreeSet<_> = routes.map(|route| (text(&route["method"]), text(&route["path"]))).collect();
    let listed = ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()));
    assert_eq!(routes, listed.collect(), "each route has a row");
    let theirs = world.of_theirs();
    for (method, _, targets) in ROUTES {
        for target in *targets {
            for key in [&eve, &bob, &ada] {
                let real = world.named(target);
                let ghost = world.ghostly(target);
                let said = world.ask(key, method, &real, if *method == "POST" { HI } else { "" }).await;
                let words = theirs.iter().map(String::as_str).filter(|word| !real.contains(word));
                assert_eq!(said.holds(words), None, "{method} {real}: {said:?}");
                if !target.starts_with("/chat/") {
                    let of_nothing = world.ask(key, method, &ghost, if *method == "POST" { HI } else { "" }).await;
                    assert_eq!(said, of_nothing, "{method} {real} and {ghost}");
                }
            }
        }
    }
    // Whoever may wake a pause sees what it shows; whoever began it all of it.
    let turn = r#"{"state": {"note": "marker-native"}, "invocation_id": "mine"}"#;
    let begun: Value = serde_json::from_str(&world.ask(&ada, "POST", "/graphs/quiet/turns", turn).await.body).unwrap();
    let path = |url: &Value| text(url).strip_prefix("https://agents.example.com").unwrap().to_owned();
    let callback = path(&begun["callback_url"]);
    let status = path(&begun["status_url"]);
    let shown = world.ask(&eve, "GET", &callback.replace("/callback/", "/invocations/"), "").await;
    assert_eq!((shown.status, shown.holds(["marker-native"])), (200, None), "{shown:?}");
    assert_eq!(world.ask(&eve, "GET", &status, "").await.holds(["marker-native"]), Some("marker-native"));
    let taken = world.ask(&eve, "POST", "/graphs/quiet/turns", turn).await;
    let begun: Value = serde_json::from_str(&taken.body).unwrap();
    assert_eq!((taken.status, &begun["repeated"]), (202, &json!(false)), "an id is one of its tenant: {taken:?}");
    assert_ne!(path(&begun["status_url"]), status);
    let same = r#"{"state": {"signal": "one"}}"#;
    let waits: Value = serde_json::from_str(&world.ask(&ada, "POST", "/graphs/quiet/turns", same).await.body).unwrap();
    let refused = world.ask(&eve, "POST", "/graphs/quiet/turns", same).await;
    assert_eq!((refused.status, refused.holds([&*text(&waits["invocation_id"])])), (409, None), "{refused:?}");
    let answered = world.ask(&eve, "POST", &callback, r#"{"decision": "yes"}"#).await;
    assert_eq!((answered.status, answered.holds(["marker-native"])), (200, None), "{answered:?}");
}
