//! Webhooks: events go out once they are written, are tried again, and wait for an operator in the end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_api::{CallAnswer, WEBHOOK_GRAPH};
use dormouse_harness::{FreshTurn, Transmission, TurnOutcome};
use dormouse_ports::{
    Clock, Fetch, FetchError, FetchRequest, FetchResponse, InvocationId, InvocationStatus, Invocations, Map, Sleepers,
};
use dormouse_protocol::Scope;
use dormouse_testkit::MemoryStore;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::receipts::metered;
use crate::shared_streams::Counting;
use crate::world::{World, actor, ada, body, text};

/// Takes what is sent, and answers with the next status, or 204.
#[derive(Default)]
pub(crate) struct Posts {
    taken: Mutex<Vec<FetchRequest>>,
    statuses: Mutex<Vec<u16>>,
}

impl Posts {
    fn answers(&self, statuses: &[u16]) {
        *self.statuses.lock().unwrap_or_else(PoisonError::into_inner) = statuses.iter().rev().copied().collect();
    }

    fn taken(&self) -> Vec<FetchRequest> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn bodies(&self) -> Vec<Value> {
        self.taken().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
    }
}

#[async_trait]
impl Fetch for Posts {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        self.taken.lock().unwrap().push(request);
        match self.statuses.lock().unwrap().pop().unwrap_or(204) {
            0 => Err(FetchError::Connect("refused".to_owned())),
            status => Ok(FetchResponse { status, headers: Vec::new(), body: stream::empty().boxed() }),
        }
    }
}

fn expense() -> Value {
    json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}})
}

async fn hooked(world: &World, hook: Value) -> (String, Value) {
    let session = world.session().await;
    let made = world.post(&format!("{session}/webhooks"), hook).await;
    (session, made)
}

/// A task that was submitted and has gone as far as it goes; deliveries too.
async fn submitted(world: &World, session: &str) -> String {
    let task = world.post(&format!("{session}/tasks"), expense()).await;
    world.work().await;
    text(&task["id"]).to_owned()
}

fn headers(request: &FetchRequest) -> Vec<(String, String)> {
    request.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
}

/// The deliveries of a world in their order, by the ids with which they were sent.
fn ids(world: &World) -> Vec<String> {
    let id = |request: &FetchRequest| headers(request).into_iter().find(|(name, _)| name == "webhook-id").unwrap().1;
    world.posts.taken().iter().map(id).collect()
}

async fn pause_of(world: &World, id: &str) -> dormouse_ports::PausedInvocation {
    let memory = world.memory.clone().unwrap();
    let record = memory.load_invocation(&InvocationId::from(id)).await.unwrap().unwrap();
    assert!(matches!(record.status, InvocationStatus::Suspended), "{:?}", record.status);
    record.paused
}

fn kind_of(paused: &dormouse_ports::PausedInvocation) -> &str {
    paused.descriptor.metadata.as_ref().and_then(|metadata| metadata.get("kind")?.as_str()).unwrap_or_default()
}

/// A webhook gets what a task asks, and only then is something of it there.
pub(crate) async fn told_of(world: &World) {
    let (session, hook) = hooked(world, json!({"url": "https://example.com/hook"})).await;
    let before = world.posts.taken().len();
    let task = submitted(world, &session).await;
    world.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    world.work().await;
    let told: Vec<Value> = world.posts.bodies()[before..].iter().map(|body| body["type"].clone()).collect();
    assert_eq!(told, ["task.auth_required", "task.canceled"], "{hook}");
}

#[tokio::test]
async fn what_a_task_asks_and_how_it_ends_is_sent_once_and_signed() {
    let world = World::new();
    let (session, hook) = hooked(&world, json!({"url": "https://example.com/hook"})).await;
    assert!(text(&hook["secret"]).starts_with("whsec_"));
    let listed = world.get(&format!("{session}/webhooks")).await["data"].clone();
    assert_eq!((&listed[0]["id"], listed[0].get("secret")), (&hook["id"], None), "the key is shown once");
    let task = submitted(&world, &session).await;
    world.callback(&task, json!({"decision": "approved"})).await;
    world.work().await;
    let sent = world.posts.taken();
    let kinds: Vec<Value> = world.posts.bodies().iter().map(|body| body["type"].clone()).collect();
    assert_eq!(kinds, ["task.auth_required", "task.completed"]);
    for request in &sent {
        let signed = headers(request).into_iter().find(|(name, _)| name == "webhook-signature").unwrap().1;
        assert_eq!(signed.split(' ').filter(|code| code.starts_with("v1,")).count(), 2, "by both secrets: {signed}");
        assert_eq!(request.url, "https://example.com/hook");
        let event = &serde_json::from_slice::<Value>(&request.body).unwrap()["data"];
        assert_eq!(world.get(&format!("/v1/events/{}", text(&event["id"]))).await, *event);
    }
    for id in ids(&world) {
        let again = world.harness.take_up(&InvocationId::from(id.as_str()), None).await;
        assert!(!matches!(again.outcome, TurnOutcome::Suspended { .. }), "{:?}", again.outcome);
    }
    assert_eq!(world.posts.taken().len(), 2, "a call that comes twice sends nothing");
}

/// A client that sends again may never have seen it.
#[tokio::test]
async fn the_key_of_a_webhook_is_told_again_and_kept_nowhere() {
    let world = World::new();
    let target = format!("{}/webhooks", world.session().await);
    let hook = json!({"url": "https://example.com/hook"});
    let made = body(world.keyed(&target, &hook, "k").await.unwrap());
    let again = world.keyed(&target, &hook, "k").await.unwrap();
    assert!(matches!(again, CallAnswer::Repeated(201, _)), "{again:?}");
    assert!(text(&made["secret"]).starts_with("whsec_"));
    assert_eq!(body(again), made);
    assert!(!world.written().contains("whsec_"));
    assert_eq!(world.get(&target).await["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_delivery_that_fails_sleeps_and_in_the_end_waits_for_an_operator() {
    let world = World::new();
    let (session, _) = hooked(&world, json!({"url": "https://example.com", "events": ["task.auth_required"]})).await;
    world.posts.answers(&[0, 500, 302, 404, 503, 500, 500, 500, 500]);
    submitted(&world, &session).await;
    let id = ids(&world)[0].clone();
    let mut rests = Vec::new();
    for _ in 0..7 {
        let paused = pause_of(&world, &id).await;
        let due = paused.wake.due.clone().expect("it wakes by itself");
        rests.push(due.at.duration_since(world.clock.now()).as_secs());
        world.clock.advance(due.at.duration_since(world.clock.now()).unsigned_abs());
        world.harness.turn(Transmission::due(paused.invocation_id, paused.generation, Some(due.at))).await;
    }
    assert_eq!(rests, [5, 300, 1800, 7200, 18_000, 36_000, 50_400]);
    let stuck = pause_of(&world, &id).await;
    assert_eq!((kind_of(&stuck), stuck.wake.due.is_none()), ("dead_letter", true));
    assert_eq!(stuck.begun_for.as_deref(), Some("acme"), "it goes with its tenant");
    assert_eq!(world.posts.taken().len(), 8);
    world.callback(&id, json!({"again": true})).await;
    let stuck = pause_of(&world, &id).await;
    assert_eq!(kind_of(&stuck), "dead_letter", "it failed once more");
    world.callback(&id, json!({"again": true})).await;
    assert_eq!(world.posts.taken().len(), 10, "and was taken in the end");
    let ids = ids(&world);
    assert!(ids.iter().all(|other| *other == id), "all under one id: {ids:?}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_for_a_moment_ends_no_delivery() {
    let memory = Arc::new(MemoryStore::default());
    let counting = Arc::new(Counting::of(memory.clone()));
    let world = World::on(memory.clone(), counting.clone(), Some(memory.clone()));
    let (session, _) = hooked(&world, json!({"url": "https://example.com", "events": ["task.canceled"]})).await;
    let task = submitted(&world, &session).await;
    world.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    counting.fails.store(1, Ordering::SeqCst);
    world.work().await;
    assert!(world.posts.taken().is_empty(), "its event could not be read");
    let sleeping = memory.list_pending(None, None).await.unwrap().items;
    let id = sleeping.iter().map(|row| row.invocation_id.as_str()).find(|id| id.starts_with("delivery_"));
    let paused = pause_of(&world, id.expect("it sleeps")).await;
    assert_eq!(kind_of(&paused), "webhook", "it is tried again");
    let due = paused.wake.due.clone().expect("it wakes by itself");
    world.clock.advance(due.at.duration_since(world.clock.now()).unsigned_abs());
    world.harness.turn(Transmission::due(paused.invocation_id, paused.generation, Some(due.at))).await;
    assert_eq!(world.posts.taken().len(), 1);
}

/// Turns of `dormouse dev` have as much time as an attempt.
#[tokio::test]
async fn a_receiver_that_hangs_is_given_up_before_the_turn_is_over() {
    let world = World::new();
    let (session, _) = hooked(&world, json!({"url": "https://example.com", "events": ["task.auth_required"]})).await;
    world.posts.answers(&[0]);
    world.post(&format!("{session}/tasks"), expense()).await;
    world.work_within(Some(Duration::from_secs(15))).await;
    let taken = world.posts.taken();
    assert_eq!(taken.iter().map(|request| request.limits.total.as_secs()).collect::<Vec<_>>(), [12]);
    assert_eq!(kind_of(&pause_of(&world, &ids(&world)[0]).await), "webhook", "it is tried again");
}

#[tokio::test]
async fn who_has_gone_gets_nothing_more() {
    let world = World::new();
    let (session, hook) = hooked(&world, json!({"url": "https://example.com"})).await;
    world.posts.answers(&[410]);
    submitted(&world, &session).await;
    assert_eq!(world.posts.taken().len(), 1, "gone is gone");
    let task = world.post(&format!("{session}/tasks"), expense()).await;
    world
        .call(ada(), "DELETE", &format!("{session}/webhooks/{}", text(&hook["id"])), &Value::Null, None)
        .await
        .unwrap();
    world.work().await;
    world.post(&format!("/v1/tasks/{}/cancel", text(&task["id"])), json!({})).await;
    world.work().await;
    assert_eq!(world.posts.taken().len(), 1, "what was deleted gets nothing");
    let gone = world.refusal(ada(), "DELETE", &format!("{session}/webhooks/{}", text(&hook["id"])), Value::Null).await;
    assert_eq!(gone.status(), 404);
}

#[tokio::test]
async fn a_webhook_of_one_task_tells_of_no_other_and_as_a2a_wants_it() {
    let world = World::new();
    let session = world.session().await;
    let one = submitted(&world, &session).await;
    let two = submitted(&world, &session).await;
    let hook = json!({"url": "http://localhost:9/x", "task_id": one, "format": "a2a", "token": "t0k3n"});
    world.post(&format!("{session}/webhooks"), hook).await;
    for task in [&one, &two] {
        world.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
        world.work().await;
    }
    let bodies = world.posts.bodies();
    assert_eq!(bodies.len(), 1);
    assert_eq!((&bodies[0]["kind"], &bodies[0]["id"]), (&json!("task"), &json!(one)));
    assert_eq!(bodies[0]["status"]["state"], "canceled");
    let headers = headers(&world.posts.taken()[0]);
    assert!(headers.contains(&("x-a2a-notification-token".to_owned(), "t0k3n".to_owned())));
}

#[tokio::test]
async fn a_webhook_sends_nothing_that_the_key_which_makes_it_may_not_read() {
    let world = World::new();
    let session = world.session().await;
    let task = submitted(&world, &session).await;
    let target = format!("{session}/webhooks");
    let without = |scope: Scope| {
        let mut actor = ada();
        actor.scopes.remove(&scope);
        actor
    };
    let events = json!({"url": "https://a.example.com", "events": ["session.message_appended"]});
    let status = json!({"url": "https://a.example.com", "task_id": task, "format": "a2a"});
    for (hook, scope) in [(&events, Scope::EventsRead), (&status, Scope::TasksRead)] {
        let refusal = world.refusal(without(scope), "POST", &target, hook.clone()).await;
        assert_eq!(refusal.status(), 403, "{refusal}");
        assert_eq!(json!(refusal.into_response("r"))["error"]["details"]["scope"], scope.as_str());
    }
    world.call(without(Scope::TasksRead), "POST", &target, &events, None).await.expect("it reads events");
    world.call(without(Scope::EventsRead), "POST", &target, &status, None).await.expect("it reads tasks");
}

#[tokio::test]
async fn a_client_of_a2a_that_says_it_twice_is_told_once() {
    let world = World::new();
    let session = world.session().await;
    let task = submitted(&world, &session).await;
    let target = format!("{session}/webhooks");
    let hook = |token: &str| json!({"url": "https://a.example.com", "task_id": task, "format": "a2a", "token": token});
    let first = world.post(&target, hook("one")).await;
    let second = world.post(&target, hook("two")).await;
    assert_eq!((&first["id"], &first["secret"]), (&second["id"], &second["secret"]));
    let elsewhere = json!({"url": "https://b.example.com", "task_id": task, "format": "a2a"});
    assert_ne!(world.post(&target, elsewhere).await["id"], first["id"]);
    world.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    world.work().await;
    let taken = world.posts.taken();
    assert_eq!(taken.len(), 2, "one for each address");
    let tokens = taken.iter().flat_map(headers).filter(|(name, _)| name == "x-a2a-notification-token");
    assert_eq!(tokens.map(|(_, token)| token).collect::<Vec<_>>(), ["two"]);
}

/// More than a transaction has room for.
#[tokio::test]
async fn of_many_events_at_once_each_is_delivered_to_each() {
    let world = World::new();
    let session = world.session().await;
    let kinds = [
        "task.submitted",
        "task.started",
        "task.status_changed",
        "task.canceled",
        "agent.message",
        "task.auth_required",
        "task.input_required",
    ];
    let hooks = 10;
    for number in 0..hooks {
        let hook = json!({"url": format!("https://example.com/{number}"), "events": kinds});
        world.post(&format!("{session}/webhooks"), hook).await;
    }
    let task = submitted(&world, &session).await;
    world.posts.answers(&[0, 500]);
    world.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    world.work().await;
    world.clock.advance(Duration::from_secs(6));
    world.work().await;
    let events = world.get(&format!("{session}/events")).await;
    let wanted = events["data"].as_array().unwrap().iter().filter(|event| kinds.contains(&text(&event["event"])));
    let wanted: Vec<&str> = wanted.map(|event| text(&event["id"])).collect();
    assert!(wanted.len() > 3, "{events}");
    let posts = world.posts.taken();
    for number in 0..hooks {
        let to = format!("https://example.com/{number}");
        let mut sent: Vec<String> = posts
            .iter()
            .filter(|post| post.url == to)
            .map(|post| text(&serde_json::from_slice::<Value>(&post.body).unwrap()["data"]["id"]).to_owned())
            .collect();
        sent.sort();
        sent.dedup();
        let mut expected = wanted.clone();
        expected.sort_unstable();
        assert_eq!(sent, expected, "{to}");
    }
    let mut names: Vec<(String, String)> = posts.iter().map(|post| post.url.clone()).zip(ids(&world)).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), wanted.len() * hooks, "each under an id of its own");
}

#[tokio::test]
async fn webhooks_of_tasks_that_have_ended_make_room() {
    let world = World::new();
    let session = world.session().await;
    let target = format!("{session}/webhooks");
    let hook = |task: &str| json!({"url": "https://example.com", "task_id": task, "format": "a2a"});
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let task = text(&world.post(&format!("{session}/tasks"), expense()).await["id"]).to_owned();
        world.post(&target, hook(&task)).await;
        world.clock.advance(Duration::from_secs(1));
        tasks.push(task);
    }
    let next = text(&world.post(&format!("{session}/tasks"), expense()).await["id"]).to_owned();
    assert_eq!(world.refusal(ada(), "POST", &target, hook(&next)).await.status(), 409, "none has ended");
    world.post(&target, json!({"url": "https://example.com"})).await;
    world.post(&format!("/v1/tasks/{}/cancel", tasks[3]), json!({})).await;
    world.post(&target, hook(&next)).await;
    let all = world.get(&target).await;
    let of = |task: &str| all["data"].as_array().unwrap().iter().filter(|one| one["task_id"] == task).count();
    assert_eq!((of(&tasks[3]), of(&tasks[0]), of(&next)), (0, 1, 1), "{all}");
}

#[tokio::test]
async fn nobody_has_something_sent_that_did_not_happen() {
    let world = World::new();
    let (session, hook) = hooked(&world, json!({"url": "https://example.com"})).await;
    submitted(&world, &session).await;
    let sent = world.posts.taken().len();
    let event = &world.posts.bodies()[0]["data"]["id"];
    let session_id = session.rsplit('/').next().unwrap();
    for id in [None, Some("delivery_00000000000000000000000000000000")] {
        let state = json!({"session_id": session_id, "webhook_id": hook["id"], "event_id": event});
        let state: Map = state.as_object().cloned().unwrap();
        let turn = FreshTurn { invocation_id: id.map(InvocationId::from), ..FreshTurn::new(WEBHOOK_GRAPH, state) };
        let turn = world.harness.turn(turn).await;
        assert!(matches!(turn.outcome, TurnOutcome::Errored(_)), "{:?}", turn.outcome);
    }
    assert_eq!(world.posts.taken().len(), sent);
}

#[tokio::test]
async fn webhooks_that_make_no_sense_are_refused() {
    let world = World::new();
    let session = world.session().await;
    let target = format!("{session}/webhooks");
    for (bad, status) in [
        (json!({}), 400),
        (json!({"url": "http://example.com"}), 400),
        (json!({"url": "http://169.254.169.254/latest"}), 400),
        (json!({"url": "https://u:p@example.com"}), 400),
        (json!({"url": 7}), 400),
        (json!({"url": "https://example.com", "events": ["task.exploded"]}), 400),
        (json!({"url": "https://example.com", "format": "xml"}), 400),
        (json!({"url": "https://example.com", "token": "a b"}), 400),
        (json!({"url": "https://example.com", "task_id": "task_none"}), 404),
    ] {
        assert_eq!(world.refusal(ada(), "POST", &target, bad.clone()).await.status(), status, "{bad}");
    }
    let other = submitted(&world, &world.session().await).await;
    let foreign = json!({"url": "https://example.com", "task_id": other});
    assert_eq!(world.refusal(ada(), "POST", &target, foreign).await.status(), 404);
    let eve = || actor("eve", "other", None);
    let good = json!({"url": "https://example.com"});
    for (method, body) in [("POST", good.clone()), ("GET", Value::Null)] {
        assert_eq!(world.refusal(eve(), method, &target, body).await.status(), 404);
    }
    for _ in 0..10 {
        world.post(&target, good.clone()).await;
    }
    assert_eq!(world.refusal(ada(), "POST", &target, good).await.status(), 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_one_transaction() {
    let (embedded, store, meter) = metered().await;
    let world = World::on(store.clone(), store, None);
    let counts = world.while_time_passes(async {
        let mut counts = Vec::new();
        for hooks in 0..3_usize {
            let session = world.session().await;
            for _ in 0..hooks {
                world.post(&format!("{session}/webhooks"), json!({"url": "https://example.com/hook"})).await;
            }
            let before = world.posts.taken().len();
            meter.reset();
            submitted(&world, &session).await;
            assert_eq!(world.posts.taken().len() - before, hooks);
            let count = |name: &str| meter.snapshot().get(name).map_or(0, |usage| usage.requests);
            counts.push((
                count("TransactWriteItems"),
                meter.snapshot().values().map(|usage| usage.requests).sum::<u64>(),
            ));
        }
        counts
    });
    let counts = counts.await;
    embedded.stop().await.unwrap();
    eprintln!(
        "transactions and requests of a task that is asked for, without webhooks, with one and with two: {counts:?}"
    );
    let more: Vec<u64> = counts.windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert!(more.iter().all(|more| *more <= 1), "one for each delivery, which it begins and ends with: {counts:?}");
}
