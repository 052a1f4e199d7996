//! The extensions beside the protocol: what sleeps, its answer, its end, its repair. Who may see and do what.

#![expect(clippy::unwrap_used, reason = "a walk that stumbles fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_http::{App, Content, ProtocolConfig, Server};
use dormouse_ports::{
    Clock, Counters, Document, DocumentKey, FeedPage, FeedRequest, FeedRow, ListRequest, Page, Records, StoreError,
    StreamEntry, StreamTip,
};
use dormouse_protocol::Scope;
use dormouse_protocol::cursor::Cursors;
use dormouse_testkit::{ManualClock, MemoryBus, MemoryStore};
use dormouse_tests::{full_grant, make_key, parts_in_memory, protocol_request, while_time_passes, work_off};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A server with the agents that ship.
struct World {
    server: Server,
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    bus: Arc<MemoryBus>,
}

/// A store that counts how often its tasks are looked at.
struct Counting {
    store: Arc<MemoryStore>,
    tasks: AtomicUsize,
}

#[async_trait]
impl Records for Counting {
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.tasks.fetch_add(usize::from(key.kind == "task"), Ordering::SeqCst);
        self.store.document(key, now).await
    }

    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.store.counters(key).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.store.documents(request).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.store.entries(stream, after, limit).await
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        self.store.tip(stream).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.store.append_of(stream, position).await
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.store.feed(request).await
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        self.store.settled(now)
    }
}

impl World {
    fn new(may_repair: bool) -> Self {
        let store = Arc::new(MemoryStore::default());
        Self::reading(may_repair, store.clone(), store)
    }

    /// A server that reads `records`, which are those of `store`.
    fn reading(may_repair: bool, store: Arc<MemoryStore>, records: Arc<dyn Records>) -> Self {
        let (clock, bus) = (Arc::new(ManualClock::default()), Arc::new(MemoryBus::default()));
        let app = App::new(parts_in_memory(&store, &clock, &bus, &dormouse_app::agents()));
        let wire = ProtocolConfig { may_repair, ..ProtocolConfig::new(records, Cursors::new(b"secret")) };
        Self { server: Server::new(app, wire), clock, store, bus }
    }

    /// A key of `actor` in `tenant` with all scopes but `without`.
    async fn key(&self, number: u8, (actor, tenant): (&str, &str), without: &[Scope]) -> String {
        let mut grant = full_grant(actor, tenant);
        grant.scopes.retain(|scope| !without.contains(scope));
        make_key(&*self.store, number, grant, self.clock.now()).await
    }

    async fn operator(&self) -> String {
        self.key(1, ("olga", "default"), &[]).await
    }

    /// A key that may do everything in `tenant`, and nothing beyond it.
    async fn member(&self, number: u8, tenant: &str) -> String {
        self.key(number, ("ada", tenant), &[Scope::OperationsRead, Scope::OperationsWrite]).await
    }

    async fn ask(&self, key: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let asked = self.server.http(protocol_request(key, method, target, bytes));
        let response = while_time_passes(&self.clock, Duration::from_millis(50), asked).await;
        let Content::Whole(bytes) = response.content else { panic!("no stream was asked for") };
        (response.status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, key: &str, target: &str) -> (u16, Value) {
        self.ask(key, "GET", target, &Value::Null).await
    }

    async fn post(&self, key: &str, target: &str, body: Value) -> (u16, Value) {
        self.ask(key, "POST", target, &body).await
    }

    /// An expense that sleeps, begun without the protocol: its id.
    async fn expense(&self, key: &str) -> String {
        let state = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
        let (status, said) = self.post(key, "/graphs/expense-approval/turns", json!({ "state": state })).await;
        assert_eq!(status, 202, "{said}");
        said["invocation_id"].as_str().unwrap().to_owned()
    }

    /// A task that sleeps: its id.
    async fn task(&self, key: &str) -> String {
        let (_, workspace) = self.post(key, "/v1/workspaces", json!({ "name": "w", "root": "/w" })).await;
        let session = json!({ "workspace_id": workspace["id"], "persona_id": "persona_expense-approval" });
        let (_, session) = self.post(key, "/v1/sessions", session).await;
        let input = json!({ "employee": "Bob", "amount_cents": 99_900, "purpose": "a chair" });
        let path = format!("/v1/sessions/{}/tasks", session["id"].as_str().unwrap());
        let (status, task) = self.post(key, &path, json!({ "input": input })).await;
        assert_eq!(status, 202, "{task}");
        self.work().await;
        task["id"].as_str().unwrap().to_owned()
    }

    /// Does all work that was called for.
    async fn work(&self) {
        work_off(self.server.app().harness(), &self.bus).await;
    }
}

fn ids(list: &Value) -> BTreeSet<String> {
    list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_operator_sees_all_that_sleeps_and_a_member_the_tasks_of_the_own_tenant() {
    let world = World::new(true);
    let operator = world.operator().await;
    let (ours, theirs) = (world.member(2, "default").await, world.member(3, "other").await);
    let expense = world.expense(&operator).await;
    let (task, foreign) = (world.task(&ours).await, world.task(&theirs).await);
    let (status, all) = world.get(&operator, "/v1/x-pauses?asks=person").await;
    let everything = [&expense, &task, &foreign].map(Clone::clone).into();
    assert_eq!((status, ids(&all)), (200, everything));
    assert_eq!(ids(&world.get(&ours, "/v1/x-pauses").await.1), [task.clone()].into());
    assert_eq!(ids(&world.get(&theirs, "/v1/x-pauses").await.1), [foreign.clone()].into());
    for hidden in [&expense, &foreign, &"task_never".to_owned(), &"a\u{7f}b".to_owned()] {
        let (status, said) = world.get(&ours, &format!("/v1/x-pauses/{hidden}")).await;
        assert_eq!((status, &said["error"]["code"]), (404, &json!("resource_not_found")), "{hidden}");
    }
    let (_, mine) = world.get(&ours, &format!("/v1/x-pauses/{task}")).await;
    assert_eq!((&mine["status"], &mine["kind"]), (&json!("asleep"), &json!("approval")));
    assert_eq!(mine["remarks"], json!([]), "the doctor speaks to operators");
    let (first, last) = (&mine["ladder"][0], &mine["ladder"][2]);
    assert_eq!((&first["action"], &last["sets"]["decision"]), (&json!("remind"), &json!("timed_out")));
    assert_eq!((&mine["due_at"], &mine["ends_at"]), (&first["at"], &last["at"]), "the next step, and the end");
    assert!(mine.get("state").is_none() && !mine.to_string().contains("99900"), "nothing of the state: {mine}");
}

#[tokio::test]
async fn who_lists_the_own_tasks_has_none_of_others_looked_up() {
    let store = Arc::new(MemoryStore::default());
    let counting = Arc::new(Counting { store: store.clone(), tasks: AtomicUsize::default() });
    let world = World::reading(true, store, counting.clone());
    let (ours, theirs) = (world.member(2, "default").await, world.member(3, "other").await);
    let task = world.task(&ours).await;
    for _ in 0..5 {
        world.task(&theirs).await;
    }
    counting.tasks.store(0, Ordering::SeqCst);
    assert_eq!(ids(&world.get(&ours, "/v1/x-pauses").await.1), [task].into());
    let looked_at = counting.tasks.load(Ordering::SeqCst);
    assert!((1..5).contains(&looked_at), "{looked_at}");
}

#[tokio::test]
async fn scopes_and_versions_are_asked_for() {
    let world = World::new(true);
    let (operator, member) = (world.operator().await, world.member(2, "default").await);
    let blind = world.key(4, ("eve", "default"), &[Scope::TasksRead]).await;
    let expense = world.expense(&operator).await;
    assert_eq!(world.get("dm_0_0", "/v1/x-pauses").await.0, 401);
    assert_eq!(world.get(&blind, "/v1/x-pauses").await.0, 403);
    for act in ["answer", "cancel", "repair"] {
        let body = json!({ "generation": 1 });
        let (status, said) = world.post(&member, &format!("/v1/x-pauses/{expense}/{act}"), body).await;
        assert_eq!((status, &said["error"]["details"]["scope"]), (403, &json!("operations:write")), "{act}");
    }
    let mut request = protocol_request(&operator, "GET", "/v1/x-pauses", Vec::new());
    request.headers.retain(|(name, _)| name != "harn-agents-protocol-version");
    assert_eq!(world.server.http(request).await.status, 426);
    assert_eq!(world.ask(&operator, "DELETE", "/v1/x-pauses", &Value::Null).await.0, 405);
    for bad in ["limit=0", "limit=1001", "limit=x", "asks=anybody", "cursor=nonsense"] {
        assert!(matches!(world.get(&operator, &format!("/v1/x-pauses?{bad}")).await.0, 400 | 410), "{bad}");
    }
}

#[tokio::test]
async fn an_answer_counts_once_and_only_for_the_pause_that_was_seen() {
    let world = World::new(true);
    let operator = world.operator().await;
    let expense = world.expense(&operator).await;
    let path = format!("/v1/x-pauses/{expense}/answer");
    let (status, said) = world.post(&operator, &path, json!({ "generation": 2, "approved": true })).await;
    assert_eq!((status, &said["error"]["code"]), (409, &json!("conflict")), "a page of another pause");
    for (body, because) in [
        (json!({ "generation": 1, "payload": { "amount_cents": 1 } }), "a field that is not asked for"),
        (json!({ "generation": 1 }), "nothing"),
        (json!({ "approved": true }), "no pause"),
        (json!({ "generation": 1, "approved": true, "part": "ada" }), "a part, where it has none"),
        (json!({ "generation": 1, "approved": true, "extra": 1 }), "an unknown field"),
    ] {
        assert_eq!(world.post(&operator, &path, body).await.0, 400, "{because}");
    }
    let yes = json!({ "generation": 1, "approved": true });
    let (status, said) = world.post(&operator, &path, yes.clone()).await;
    assert_eq!((status, &said["status"], &said["repeated"]), (200, &json!("completed"), &json!(false)), "{said}");
    let (status, said) = world.post(&operator, &path, yes).await;
    assert_eq!((status, &said["repeated"]), (200, &json!(true)), "the same answer again");
    let (status, _) = world.post(&operator, &path, json!({ "generation": 1, "approved": false })).await;
    assert_eq!(status, 409, "another answer comes too late");
    let (_, after) = world.get(&operator, &format!("/v1/x-pauses/{expense}")).await;
    assert_eq!(after["status"], "completed");
}

#[tokio::test]
async fn a_message_for_an_earlier_pause_answers_no_later_one() {
    let world = World::new(true);
    let member = world.member(2, "default").await;
    let task = world.task(&member).await;
    let path = format!("/v1/tasks/{task}/messages");
    let answer = |pause: Value| {
        let parts = json!([{ "type": "json", "value": { "approved": true } }]);
        let message = json!({ "role": "user", "parts": parts, "metadata": { "pause": pause } });
        json!({ "kind": "tool_confirmation", "message": message })
    };
    for stale in [json!(0), json!(2), json!("1"), json!(null)] {
        let (status, said) = world.post(&member, &path, answer(stale.clone())).await;
        assert_eq!((status, &said["error"]["code"]), (409, &json!("conflict")), "{stale}");
    }
    let (_, events) = world.get(&member, &format!("/v1/tasks/{task}/events")).await;
    let asked = events["data"].as_array().unwrap().iter().find(|event| event["event"] == "task.auth_required").unwrap();
    assert_eq!(asked["payload"]["request"]["pause"], 1, "the event tells the number");
    assert_eq!(world.post(&member, &path, answer(json!(1))).await.0, 201);
    world.work().await;
    assert_eq!(world.get(&member, &format!("/v1/tasks/{task}")).await.1["status"], "COMPLETED");
}

#[tokio::test]
async fn several_answers_are_told_apart() {
    let world = World::new(true);
    let operator = world.operator().await;
    let state = json!({ "item": "a lathe", "amount_cents": 120_000 });
    let (_, said) = world.post(&operator, "/graphs/purchase/turns", json!({ "state": state })).await;
    let id = said["invocation_id"].as_str().unwrap();
    let (_, pause) = world.get(&operator, &format!("/v1/x-pauses/{id}")).await;
    assert_eq!((&pause["missing"], &pause["needed"]), (&json!(["ada", "grace", "linus"]), &json!(2)));
    let path = format!("/v1/x-pauses/{id}/answer");
    let vote = |part: Option<&str>| json!({ "generation": 1, "approved": true, "part": part });
    assert!(world.post(&operator, &path, vote(Some("mallory"))).await.0 >= 400, "nobody was asked of that name");
    let (status, said) = world.post(&operator, &path, vote(Some("ada"))).await;
    assert_eq!((status, &said["status"], &said["missing"]), (200, &json!("asleep"), &json!(["grace", "linus"])));
    let (status, said) = world.post(&operator, &path, vote(Some("linus"))).await;
    assert_eq!((status, &said["status"]), (200, &json!("completed")), "{said}");
    let (_, ended) = world.get(&operator, &format!("/v1/x-pauses/{id}")).await;
    assert_eq!((&ended["status"], &ended["missing"]), (&json!("completed"), &json!([])), "{ended}");
}

#[tokio::test]
async fn a_pause_is_canceled_by_who_saw_it() {
    let world = World::new(true);
    let operator = world.operator().await;
    let expense = world.expense(&operator).await;
    let path = format!("/v1/x-pauses/{expense}/cancel");
    assert_eq!(world.post(&operator, &path, json!({ "generation": 7 })).await.0, 409);
    let (status, said) = world.post(&operator, &path, json!({ "generation": 1, "reason": "ordered twice" })).await;
    assert_eq!((status, &said["status"]), (200, &json!("canceled")));
    assert!(said["failure"].as_str().unwrap().contains("ordered twice"));
    assert_eq!(ids(&world.get(&operator, "/v1/x-pauses").await.1), BTreeSet::new());
}

#[tokio::test]
async fn what_is_in_order_needs_no_repair_and_not_every_server_may() {
    let world = World::new(true);
    let operator = world.operator().await;
    let expense = world.expense(&operator).await;
    let path = format!("/v1/x-pauses/{expense}/repair");
    let (_, pause) = world.get(&operator, &format!("/v1/x-pauses/{expense}")).await;
    assert_eq!(pause["remarks"][0]["finding"], "waiting");
    let (status, said) = world.post(&operator, &path, json!({ "generation": 1 })).await;
    assert_eq!((status, &said["done"]), (200, &json!([])), "{said}");
    assert_eq!(world.post(&operator, &path, json!({ "generation": 9 })).await.0, 409);
    let other = World::new(false);
    let operator = other.operator().await;
    let expense = other.expense(&operator).await;
    let (status, said) =
        other.post(&operator, &format!("/v1/x-pauses/{expense}/repair"), json!({ "generation": 1 })).await;
    assert_eq!(status, 422);
    assert!(said["error"]["message"].as_str().unwrap().contains("dormouse doctor --repair"));
}

#[tokio::test]
async fn graphs_and_the_feed_are_told() {
    let world = World::new(true);
    let member = world.member(2, "default").await;
    let (_, graphs) = world.get(&member, "/v1/x-graphs").await;
    let expense = graphs["data"].as_array().unwrap().iter().find(|one| one["name"] == "expense-approval").unwrap();
    assert_eq!((&expense["entry"], &expense["nodes"][1]["next"]), (&json!("check"), &json!("settle")));
    assert_eq!(world.get(&member, "/v1/x-feed?since=2020-01-01T00:00:00Z").await.1["first"], Value::Null);
    world.task(&member).await;
    world.clock.advance(Duration::from_secs(60));
    let (status, begins) = world.get(&member, "/v1/x-feed?since=1970-01-01T00:00:00Z").await;
    let first = begins["first"].as_str().unwrap();
    assert_eq!((status, world.get(&member, &format!("/v1/events/{first}")).await.0), (200, 200));
    assert_eq!(world.get(&member, "/v1/x-feed?since=2100-01-01T00:00:00Z").await.1["first"], Value::Null);
    assert_eq!(world.get(&member, "/v1/x-feed?since=yesterday").await.0, 400);
    let other = world.member(3, "other").await;
    let (_, foreign) = world.get(&other, "/v1/x-feed?since=1970-01-01T00:00:00Z").await;
    assert_eq!(foreign["first"], Value::Null, "another tenant's feed is empty");
}

#[tokio::test]
async fn whoever_began_a_pause_is_given_the_page_for_a_person() {
    let world = World::new(true);
    let operator = world.operator().await;
    let state = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
    let (_, said) = world.post(&operator, "/graphs/expense-approval/turns", json!({ "state": state })).await;
    let (page, callback) = (said["page_url"].as_str().unwrap(), said["callback_url"].as_str().unwrap());
    let id = said["invocation_id"].as_str().unwrap();
    let token = page.strip_prefix(&format!("https://agents.example.com/console/answer/{id}#token=")).unwrap();
    assert!(!callback.ends_with(&format!("?token={token}")), "it is for a person, who is told of nothing else");
    let (status, asked) = world.get("", &format!("/invocations/{id}?token={token}")).await;
    assert_eq!((status, &asked["page_url"]), (200, &said["page_url"]), "{asked}");
    let state = json!({ "item": "a lathe", "amount_cents": 120_000 });
    let (_, said) = world.post(&operator, "/graphs/purchase/turns", json!({ "state": state })).await;
    assert!(said["page_urls"]["ada"].as_str().unwrap().ends_with("&part=ada"), "{said}");
    assert!(said.get("page_url").is_none(), "nobody answers for all");
}

#[tokio::test]
async fn the_console_is_served_to_everybody_under_a_strict_policy() {
    let world = World::new(true);
    for path in ["/console", "/console/inbox/some%2Fid", "/console/main.js", "/console/style.css"] {
        let response = world.server.http(protocol_request("", "GET", path, Vec::new())).await;
        let header =
            |name: &str| response.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        assert_eq!(response.status, 200, "{path}");
        let policy = header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(header("cache-control").as_deref(), Some("no-cache"));
        assert!(header("etag").is_some(), "a browser asks whether what it has is good");
    }
    assert_eq!(world.ask("", "POST", "/console", &Value::Null).await.0, 405);
    assert_eq!(world.ask("", "GET", "/console/none.js", &Value::Null).await.0, 404);
}
