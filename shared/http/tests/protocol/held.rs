//! Sockets that a gateway holds: what is sent over them, whoever dies in between.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_api::{Keys, StreamLimits};
use dormouse_http::{CommandsElsewhere, FOLLOW, FollowCall, HeldParts, HeldSockets, Request, Response};
use dormouse_ports::{Commits, ConnectionError, Connections, DocumentKey, Fetch, Records};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::id::EventId;
use dormouse_protocol::{EventKind, Operation, PROTOCOL_VERSION};
use dormouse_testkit::{Fault, FaultyStore, MemoryBus, MemoryStore, ScriptedAnswer, ScriptedFetch};
use serde_json::{Value, json};

use crate::world::{OVER, SESSION, TASK, World, grant};

const TASK_STREAM: &str = "/v1/tasks/task_1/stream";
const ID: &str = "L0SM9cOFvHcCIhw=";
/// Number of times that a future is asked before time moves: more than it has steps.
const PATIENCE: usize = 60;

/// Connections that remember what was sent, and break as they are told.
#[derive(Default)]
struct Wires {
    sent: Mutex<Vec<(String, Value)>>,
    closed: Mutex<Vec<String>>,
    fault: Mutex<Option<ConnectionError>>,
}

#[async_trait]
impl Connections for Wires {
    async fn send(&self, id: &str, frame: &str) -> Result<(), ConnectionError> {
        // Its answer takes a while, in which whoever sends may die.
        tokio::task::yield_now().await;
        if let Some(error) = self.fault.lock().unwrap().clone() {
            return Err(error);
        }
        self.sent.lock().unwrap().push((id.to_owned(), serde_json::from_str(frame).unwrap()));
        Ok(())
    }

    async fn close(&self, id: &str) -> Result<(), ConnectionError> {
        self.closed.lock().unwrap().push(id.to_owned());
        Ok(())
    }
}

impl Wires {
    /// What was sent since this was asked last.
    fn taken(&self) -> Vec<Value> {
        self.sent.lock().unwrap().drain(..).map(|(_, frame)| frame).collect()
    }

    /// Positions of the events that were sent since.
    fn positions(&self) -> Vec<u64> {
        let frames = self.taken().into_iter().filter(|frame| frame["type"] == "event");
        frames.map(|frame| EventId::new(frame["event"]["id"].as_str().unwrap()).place().unwrap().1).collect()
    }
}

/// A world whose sockets a gateway holds.
struct Held {
    world: World,
    store: Arc<MemoryStore>,
    wires: Arc<Wires>,
    calls: Arc<MemoryBus>,
    sockets: HeldSockets,
}

impl Held {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        Self::over(World::with(StreamLimits::default()), store.clone(), store)
    }

    /// The same, in which `commits` writes what `store` has.
    fn over(world: World, store: Arc<MemoryStore>, commits: Arc<dyn Commits>) -> Self {
        let (wires, calls) = (Arc::new(Wires::default()), Arc::new(MemoryBus::default()));
        let sockets = HeldSockets::new(HeldParts {
            server: world.server.clone(),
            records: store.clone(),
            commits,
            cursors: Cursors::new(b"secret"),
            connections: wires.clone(),
            calls: calls.clone(),
            limits: StreamLimits { each: 2, of_tenant: 3, ..StreamLimits::default() },
        });
        Self { world, store, wires, calls, sockets }
    }

    async fn connect(&self, id: &str, request: Request) -> u16 {
        self.sockets.connect(id, request).await.status
    }

    async fn opened(&self) {
        assert_eq!(self.connect(ID, self.world.request("GET", TASK_STREAM, "")).await, 200);
    }

    async fn said(&self, frame: &Value) -> Option<Value> {
        let said = self.sockets.frame(ID, Some(&frame.to_string())).await;
        said.map(|said| serde_json::from_str(&said).unwrap())
    }

    /// The last call for a follower, if there were `count` so far.
    fn call(&self, count: usize) -> FollowCall {
        let events = self.calls.events();
        assert_eq!(events.len(), count, "{events:?}");
        let last = events.last().unwrap();
        assert_eq!((last.source.as_str(), last.detail_type.as_str()), ("dormouse", FOLLOW));
        serde_json::from_value(json!(last.detail)).unwrap()
    }

    /// What is recorded of the connection `id`.
    async fn record(&self, id: &str) -> Option<Value> {
        let found = self.store.document(&DocumentKey::new("socket", id), self.world.now()).await.unwrap();
        found.map(|document| json!(document.body))
    }

    async fn seats(&self) -> usize {
        let key = DocumentKey::new("socket_seats", "acme");
        let found = self.store.document(&key, self.world.now()).await.unwrap();
        found.map_or(0, |document| document.body["seats"].as_object().unwrap().len())
    }

    /// Lets `seconds` pass while `work` is done; what came out of it, if it has ended.
    async fn passing<T>(&self, seconds: u64, work: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        for second in 0..=seconds {
            for _ in 0..PATIENCE {
                if let Poll::Ready(done) = futures::poll!(&mut *work) {
                    return Some(done);
                }
            }
            if second < seconds {
                self.world.clock.advance(Duration::from_secs(1));
            }
        }
        None
    }
}

#[tokio::test]
async fn a_follower_sends_what_happened_and_what_happens() {
    let held = Held::new();
    held.world.append(TASK, EventKind::AgentMessage);
    held.world.clock.advance(Duration::from_secs(1));
    let mut request = held.world.request("GET", TASK_STREAM, "");
    let offers = format!("{PROTOCOL_VERSION}, bearer.{}", held.world.key.reveal());
    request.headers = vec![("sec-websocket-protocol".to_owned(), offers)];
    let Response { status, headers, .. } = held.sockets.connect(ID, request).await;
    assert_eq!(status, 200);
    assert_eq!(headers, [("sec-websocket-protocol".to_owned(), PROTOCOL_VERSION.to_owned())]);
    let call = held.call(1);
    // The gateway has not the answer yet: there is no connection.
    *held.wires.fault.lock().unwrap() = Some(ConnectionError::Gone);
    let mut following = Box::pin(held.sockets.follow(call.clone(), None));
    assert!(held.passing(2, &mut following).await.is_none());
    *held.wires.fault.lock().unwrap() = None;
    assert!(held.passing(2, &mut following).await.is_none());
    held.world.append(TASK, EventKind::AgentMessage);
    held.world.append("task_9", EventKind::AgentMessage);
    assert!(held.passing(3, &mut following).await.is_none());
    let frames: Vec<Value> = held.wires.taken();
    let marks: Vec<(&Value, &Value)> = frames.iter().map(|frame| (&frame["type"], &frame["replayed"])).collect();
    assert_eq!(marks, [(&json!("event"), &json!(true)), (&json!("event"), &json!(false))], "{frames:?}");
    // Of two that are called one works; a late call of another following does nothing.
    held.sockets.follow(call.clone(), None).await.unwrap();
    held.sockets.follow(FollowCall { generation: 7, ..call }, None).await.unwrap();
    assert_eq!(held.wires.taken(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_silent_socket_rests_and_a_frame_wakes_it() {
    let held = Held::new();
    held.opened().await;
    let call = held.call(1);
    let mut following = Box::pin(held.sockets.follow(call.clone(), None));
    // A client that is heard is followed.
    for _ in 0..4 {
        assert!(held.passing(40, &mut following).await.is_none(), "its client is there");
        let pong = json!({ "type": "pong", "id": 1 });
        assert_eq!(held.said(&json!({ "type": "ping", "id": 1 })).await, Some(pong));
    }
    held.call(1);
    let done = held.passing(90, &mut following).await.expect("it rests");
    done.unwrap();
    assert_eq!(held.wires.taken(), [json!({ "type": "rest" })]);
    assert_eq!(held.record(ID).await.unwrap()["follower"], Value::Null);
    // What happens meanwhile comes once somebody asks.
    held.world.append(TASK, EventKind::AgentMessage);
    held.world.clock.advance(Duration::from_secs(300));
    held.said(&json!({ "type": "ping" })).await.unwrap();
    let call = held.call(2);
    let mut following = Box::pin(held.sockets.follow(call.clone(), None));
    assert!(held.passing(1, &mut following).await.is_none());
    assert_eq!(held.wires.positions(), [1]);
}

#[tokio::test]
async fn a_follower_hands_over_when_its_time_is_over() {
    let held = Held::new();
    held.opened().await;
    let call = held.call(1);
    let mut following = Box::pin(held.sockets.follow(call.clone(), Some(Duration::from_secs(40))));
    held.world.append(TASK, EventKind::AgentMessage);
    held.passing(31, &mut following).await.expect("it ends before its function").unwrap();
    assert_eq!(held.wires.positions(), [1]);
    let next = held.call(2);
    assert_eq!(next, call);
    held.world.append(TASK, EventKind::AgentMessage);
    let mut following = Box::pin(held.sockets.follow(next, None));
    assert!(held.passing(1, &mut following).await.is_none());
    assert_eq!(held.wires.positions(), [2], "it goes on where the other one was");
}

#[tokio::test]
async fn a_client_resumes_behind_any_event() {
    let held = Held::new();
    held.opened().await;
    for _ in 0..3 {
        held.world.append(TASK, EventKind::AgentMessage);
    }
    let call = held.call(1);
    let mut following = Box::pin(held.sockets.follow(call.clone(), None));
    assert!(held.passing(1, &mut following).await.is_none());
    assert_eq!(held.wires.positions(), [1, 2, 3]);
    let resume = json!({ "type": "resume", "after_event_id": EventId::at(SESSION, 1) });
    assert_eq!(held.said(&resume).await, None);
    let again = held.call(2);
    assert_eq!(again.generation, 2);
    // A client cannot make a crowd of followers.
    let often = json!({ "type": "resume", "id": 9, "after_event_id": EventId::at(SESSION, 2) });
    let refused = held.said(&often).await.unwrap();
    assert_eq!((&refused["id"], &refused["status"]), (&json!(9), &json!(429)));
    held.call(2);
    held.passing(16, &mut following).await.expect("the first one is not wanted any more").unwrap();
    let mut following = Box::pin(held.sockets.follow(again, None));
    assert!(held.passing(1, &mut following).await.is_none());
    assert_eq!(held.wires.positions(), [2, 3]);
    let bad = held.said(&json!({ "type": "resume", "id": 3, "after_event_id": "a&limit=1" })).await.unwrap();
    assert_eq!((&bad["type"], &bad["id"], &bad["status"]), (&json!("error"), &json!(3), &json!(410)), "{bad}");
    held.call(2);
}

#[tokio::test]
async fn of_a_follower_that_died_the_next_frame_makes_another_and_no_event_is_lost() {
    for dies_after in [0, 1, 2, 19, 20, 21, 22, 40, 41, 45] {
        let held = Held::new();
        held.opened().await;
        for _ in 0..45 {
            held.world.append(TASK, EventKind::AgentMessage);
        }
        {
            let mut following = Box::pin(held.sockets.follow(held.call(1), None));
            for _ in 0..dies_after {
                let _ = futures::poll!(&mut following);
            }
        }
        let before = held.wires.positions();
        held.said(&json!({ "type": "ping" })).await.unwrap();
        held.world.clock.advance(Duration::from_secs(61));
        held.said(&json!({ "type": "ping" })).await.unwrap();
        let call = held.call(2);
        let mut following = Box::pin(held.sockets.follow(call.clone(), None));
        assert!(held.passing(1, &mut following).await.is_none());
        let after = held.wires.positions();
        let first = *after.first().unwrap_or(&46);
        assert!(first <= before.last().map_or(1, |last| last + 1), "{dies_after}: {before:?} {after:?}");
        assert!(before.last().is_none_or(|last| last - (first - 1) <= 20), "{before:?} {after:?}");
        assert_eq!(after, (first..=45).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_connection_that_has_gone_is_forgotten() {
    let held = Held::new();
    held.opened().await;
    assert_eq!(held.seats().await, 1);
    held.world.append(TASK, EventKind::AgentMessage);
    *held.wires.fault.lock().unwrap() = Some(ConnectionError::Gone);
    let call = held.call(1);
    let mut following = Box::pin(held.sockets.follow(call.clone(), None));
    held.passing(15, &mut following).await.expect("nobody is there").unwrap();
    assert_eq!((held.record(ID).await, held.seats().await), (None, 0));
    // A call that comes late finds nobody, and a frame of nobody closes what is open.
    held.sockets.follow(call.clone(), None).await.unwrap();
    assert_eq!(held.said(&json!({ "type": "ping" })).await, None);
    assert_eq!(*held.wires.closed.lock().unwrap(), [ID]);
    held.sockets.disconnect(ID).await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_is_left_alone_until_the_client_is_heard() {
    let held = Held::new();
    held.opened().await;
    held.world.append(TASK, EventKind::AgentMessage);
    *held.wires.fault.lock().unwrap() = Some(ConnectionError::Unavailable("429".to_owned()));
    let mut following = Box::pin(held.sockets.follow(held.call(1), None));
    held.passing(5, &mut following).await.expect("it gives up").unwrap();
    *held.wires.fault.lock().unwrap() = None;
    held.said(&json!({ "type": "ping" })).await.unwrap();
    let mut following = Box::pin(held.sockets.follow(held.call(2), None));
    assert!(held.passing(1, &mut following).await.is_none());
    assert_eq!(held.wires.positions(), [1]);
}

#[tokio::test]
async fn a_socket_ends_with_its_task_and_with_its_key() {
    let held = Held::new();
    let stream = format!("/v1/tasks/{OVER}/stream");
    assert_eq!(held.connect(ID, held.world.request("GET", &stream, "")).await, 200);
    let call = held.call(1);
    let mut following = Box::pin(held.sockets.follow(call.clone(), None));
    for _ in 0..3 {
        if let Some(ended) = held.passing(20, &mut following).await {
            ended.unwrap();
            break;
        }
        held.said(&json!({ "type": "ping" })).await.unwrap();
    }
    assert_eq!((held.record(ID).await, held.seats().await), (None, 0));
    assert_eq!(*held.wires.closed.lock().unwrap(), [ID]);

    let held = Held::new();
    held.opened().await;
    let now = held.world.now();
    let revocation = Keys::new(held.world.shelf.clone()).revocation(held.world.key.id(), now).await.unwrap().unwrap();
    held.world.shelf.apply(revocation);
    held.sockets.follow(held.call(1), None).await.unwrap();
    let last = held.wires.taken();
    assert_eq!((last.len(), &last[0]["error"]["code"]), (1, &json!("unauthenticated")), "{last:?}");
    assert_eq!((held.record(ID).await, held.wires.closed.lock().unwrap().len()), (None, 1));
}

#[tokio::test]
async fn a_store_that_is_away_ends_nothing() {
    let held = Held::new();
    held.opened().await;
    *held.world.shelf.is_down.lock().unwrap() = true;
    held.sockets.follow(held.call(1), None).await.unwrap();
    *held.world.shelf.is_down.lock().unwrap() = false;
    assert!(held.record(ID).await.is_some() && held.wires.closed.lock().unwrap().is_empty());
    held.said(&json!({ "type": "ping" })).await.unwrap();
    held.call(2);
}

#[tokio::test]
async fn commands_are_requests_with_the_key_that_the_table_does_not_show() {
    let held = Held::new();
    held.opened().await;
    held.world.desk.calls.lock().unwrap().clear();
    let cancel = json!({ "type": "cancel", "id": "c", "reason": "enough", "idempotency_key": "k" });
    let answer = held.said(&cancel).await.unwrap();
    assert_eq!((&answer["id"], &answer["status"]), (&json!("c"), &json!(404)));
    let call = held.world.desk.calls.lock().unwrap().pop().unwrap();
    assert_eq!((call.operation, call.actor.name.as_str()), (Operation::CancelTask, "ada"));
    assert_eq!(call.idempotency_key.unwrap().as_str(), "k");
    let stored = held.record(ID).await.unwrap().to_string();
    let key = held.world.key.reveal();
    assert!(stored.contains("ada") && !stored.contains(&key) && !stored.contains(&key[20..]), "{stored}");
    // A record of another connection opens nothing here.
    let other = held.store.document(&DocumentKey::new("socket", ID), held.world.now()).await.unwrap();
    let stolen = dormouse_ports::DocumentWrite {
        key: DocumentKey::new("socket", "mallory="),
        expect: 0,
        body: Some(other.unwrap().body),
        listed: Vec::new(),
        expires_at: None,
    };
    let journal = dormouse_ports::Journal::new(vec![stolen], Vec::new());
    let now = held.world.now();
    let commit = dormouse_ports::Commit { journal, ..dormouse_ports::Commit::new("steal", now) };
    held.store.commit(&commit).await.unwrap();
    assert_eq!(held.sockets.frame("mallory=", Some(&cancel.to_string())).await, None);
    assert!(held.world.desk.calls.lock().unwrap().is_empty());
    assert_eq!(*held.wires.closed.lock().unwrap(), ["mallory="]);
}

#[tokio::test]
async fn what_is_no_frame_is_counted_over_all_processes() {
    let held = Held::new();
    held.opened().await;
    for _ in 0..9 {
        let said = held.sockets.frame(ID, Some("nonsense")).await.expect("a refusal");
        assert!(said.contains("expected a JSON object"), "{said}");
    }
    assert_eq!(held.record(ID).await.unwrap()["unreadable"], 9);
    assert_eq!(held.sockets.frame(ID, Some("nonsense")).await, None);
    assert!(held.wires.taken()[0].to_string().contains("too many frames"));
    assert_eq!((held.record(ID).await, held.seats().await), (None, 0));
    let held = Held::new();
    held.opened().await;
    assert_eq!(held.sockets.frame(ID, None).await, None);
    assert_eq!(*held.wires.closed.lock().unwrap(), [ID], "binary");
}

#[tokio::test]
async fn sockets_are_counted_for_each_actor_and_tenant() {
    let held = Held::new();
    let key = |digit: u8, actor: &str, tenant: &str| {
        let token = KeyToken::generate([digit; CHANCE]);
        let now = held.world.now();
        held.world.shelf.apply(Keys::creation(&token, Grant { tenant: tenant.to_owned(), ..grant(actor) }, now));
        token.reveal()
    };
    let (bob, eve, foreign) = (key(1, "bob", "acme"), key(2, "eve", "acme"), key(3, "ada", "evil"));
    let open = async |id: &str, key: &str| {
        let mut request = held.world.request("GET", TASK_STREAM, "");
        request.headers.retain(|(name, _)| name != "authorization");
        request.headers.push(("authorization".to_owned(), format!("Bearer {key}")));
        held.connect(id, request).await
    };
    let ada = held.world.key.reveal();
    assert_eq!([open("a1", &ada).await, open("a2", &ada).await, open("a3", &ada).await], [200, 200, 429]);
    assert_eq!([open("b1", &bob).await, open("e1", &eve).await, open("f1", &foreign).await], [200, 429, 200]);
    held.sockets.disconnect("a1").await.unwrap();
    assert_eq!(open("e1", &eve).await, 200);
    // Of those that nobody gave back the time runs out.
    held.world.clock.advance(Duration::from_secs(7_900));
    assert_eq!([open("a1", &ada).await, open("a3", &ada).await, open("b2", &bob).await], [200, 200, 200]);
}

#[tokio::test]
async fn whoever_may_not_follow_opens_nothing_and_leaves_nothing() {
    let held = Held::new();
    let mut bare = held.world.request("GET", TASK_STREAM, "");
    bare.headers.retain(|(name, _)| name != "authorization");
    assert_eq!(held.connect(ID, bare).await, 401);
    for (target, status) in [("/v1/tasks", 404), ("/v1/tasks/other/stream", 404), ("", 404), ("/v1/x", 404)] {
        assert_eq!(held.connect(ID, held.world.request("GET", target, "")).await, status, "{target}");
    }
    for id in ["", "a b", "a#b", &"x".repeat(129)] {
        assert_eq!(held.connect(id, held.world.request("GET", TASK_STREAM, "")).await, 400, "{id}");
        assert_eq!(held.sockets.frame(id, Some("{}")).await, None);
    }
    assert_eq!((held.record(ID).await, held.seats().await, held.calls.events().len()), (None, 0, 0));
}

/// Whatever write breaks, and however: nothing is torn, and the next frame of the client makes it go on.
#[tokio::test]
async fn every_write_may_break() {
    for fault in Fault::ALL {
        for broken in 0..6 {
            let store = Arc::new(MemoryStore::default());
            let faulty = Arc::new(FaultyStore::broken_at(store.clone(), broken, fault));
            let held = Held::over(World::with(StreamLimits::default()), store, faulty.clone());
            let case = format!("{fault:?} at {broken}");
            let request = held.world.request("GET", TASK_STREAM, "");
            let mut connecting = pin!(held.sockets.connect(ID, request));
            let opened = held.passing(0, &mut connecting).await.map(|response| response.status);
            assert_eq!(held.record(ID).await.is_some() as usize, held.seats().await, "{case}");
            if opened != Some(200) {
                assert_eq!(broken, 0, "{case}");
                continue;
            }
            held.world.append(TASK, EventKind::AgentMessage);
            if let Some(event) = held.calls.events().last() {
                let call: FollowCall = serde_json::from_value(json!(event.detail)).unwrap();
                let mut following = pin!(held.sockets.follow(call, None));
                let _ = held.passing(20, &mut following).await;
            }
            held.world.append(TASK, EventKind::AgentMessage);
            let mut seen = held.wires.positions();
            // It dies: whoever is dead is found out after a minute.
            for _ in 0..4 {
                held.world.clock.advance(Duration::from_secs(61));
                let mut saying = pin!(held.sockets.frame(ID, Some(r#"{"type":"ping"}"#)));
                let _ = held.passing(1, &mut saying).await;
                let called = json!(held.calls.events().last().unwrap().detail);
                let call: FollowCall = serde_json::from_value(called).unwrap();
                let mut following = pin!(held.sockets.follow(call, None));
                let _ = held.passing(2, &mut following).await;
                seen.extend(held.wires.positions());
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, [1, 2], "{case}");
            let mut closing = pin!(held.sockets.disconnect(ID));
            if let Some(Ok(())) = held.passing(2, &mut closing).await {
                assert_eq!((held.record(ID).await, held.seats().await), (None, 0), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn commands_go_to_the_server_that_may_write() {
    let fetch = ScriptedFetch::default();
    let elsewhere = CommandsElsewhere::new(Arc::new(fetch.clone()) as Arc<dyn Fetch>, "https://api.example.com/");
    let held = {
        let store = Arc::new(MemoryStore::default());
        let world = World::commanding(elsewhere);
        Held::over(world, store.clone(), store)
    };
    held.opened().await;
    held.world.desk.calls.lock().unwrap().clear();
    fetch.answer(ScriptedAnswer::json(200, &json!({ "status": "CANCELED" })));
    let answer = held.said(&json!({ "type": "cancel", "id": 1, "idempotency_key": "k" })).await.unwrap();
    assert_eq!(answer, json!({ "type": "result", "id": 1, "status": 200, "body": { "status": "CANCELED" } }));
    let sent = &fetch.requests()[0];
    assert_eq!((sent.method.as_str(), sent.url.as_str()), ("POST", "https://api.example.com/v1/tasks/task_1/cancel"));
    let header =
        |name: &str| sent.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose().to_owned());
    assert_eq!(header("authorization"), Some(format!("Bearer {}", held.world.key.reveal())));
    assert_eq!((header("idempotency-key").as_deref(), sent.body.as_slice()), (Some("k"), b"{}".as_slice()));
    let refusal = json!({ "error": { "code": "permission_denied" } });
    fetch.answer(ScriptedAnswer::json(403, &refusal));
    let answer = held.said(&json!({ "type": "cancel" })).await.unwrap();
    assert_eq!((&answer["status"], &answer["error"]), (&json!(403), &refusal["error"]));
    // Its answer is lost, or larger than a frame.
    let answer = held.said(&json!({ "type": "cancel", "id": 2 })).await.unwrap();
    assert_eq!((&answer["id"], &answer["status"]), (&json!(2), &json!(503)), "{answer}");
    fetch.answer(ScriptedAnswer::json(200, &json!({ "text": "x".repeat(200_000) })));
    let answer = held.said(&json!({ "type": "cancel", "id": 3 })).await.unwrap();
    let whole = json!({ "type": "result", "id": 3, "status": 200, "body": null, "too_large": true });
    assert_eq!(answer, whole);
    // An id that a client of HTTP would take for a step through folders.
    let count = fetch.requests().len();
    let answer = held.said(&json!({ "type": "cancel", "task_id": ".." })).await.unwrap();
    assert_eq!((&answer["status"], fetch.requests().len()), (&json!(404), count));
    // A key that no header can hold.
    let answer = held.said(&json!({ "type": "cancel", "idempotency_key": "a\nb" })).await.unwrap();
    assert_eq!((&answer["status"], fetch.requests().len()), (&json!(400), count));
    assert!(held.world.desk.calls.lock().unwrap().is_empty(), "it serves no command itself");
}
