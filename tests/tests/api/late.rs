//! Who comes to telling of a task only when others have gone on with it, or have ended it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::graph::graph;
use dormouse_api::{Agent, Outside, RecordingStore};
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use dormouse_ports::{
    Cancellation, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, Counters, Document, DocumentKey,
    FeedPage, FeedRequest, FeedRow, GrowingLists, InvocationId, InvocationWrite, Invocations, Journal, JournalConflict,
    ListRequest, Page, Records, StoreError, StreamEntry, StreamTip, TurnStore,
};
use dormouse_protocol::error::ErrorCode;
use dormouse_testkit::{ManualClock, MemoryStore};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::cast::{ScriptedModel, calls, parts, results, tool};
use crate::replays::{events, path_of};
use crate::world::{World, ada, says, text};

const CLAIM: Duration = Duration::from_secs(30);

/// The store of a worker that stalls once before it writes, until its claim is over: meanwhile an heir takes the
/// invocation over and gives it back.
struct Stalls {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    id: InvocationId,
    stalled: AtomicBool,
}

impl Stalls {
    fn claim(&self, owner: &str) -> ClaimRequest {
        let now = self.clock.now();
        ClaimRequest {
            invocation_id: self.id.clone(),
            generation: Some(1),
            owner: owner.into(),
            now,
            until: now + CLAIM,
            past: None,
            payload: json!({"decision": "approved"}).as_object().cloned(),
            answered: None,
        }
    }

    async fn heir(&self) {
        let heir = RecordingStore::new(self.store.clone(), self.store.clone(), self.clock.clone());
        let taken = heir.claim(&self.claim("heir")).await.unwrap();
        assert!(matches!(taken, ClaimOutcome::Granted(_)), "{taken:?}");
        let invocation_id = self.id.clone();
        let owner = "heir".into();
        let commit = Commit {
            id: "release".to_owned(),
            now: self.clock.now(),
            session: None,
            invocation: Some(InvocationWrite::Release { invocation_id, generation: 1, owner, again_at: None }),
            journal: Journal::default(),
            growing: GrowingLists::default(),
        };
        heir.commit(&commit).await.unwrap();
    }
}

impl Stalls {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.store.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Stalls {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        if !self.stalled.swap(true, Ordering::Relaxed) {
            self.clock.advance(CLAIM);
            self.heir().await;
        }
        self.store.commit(commit).await
    }
}

#[tokio::test]
async fn who_tells_late_that_a_task_goes_on_does_not_tell_it_of_one_that_sleeps_again() {
    let (world, session) = World::with_session().await;
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let body = json!({"persona_id": "persona_expense-approval", "input": state});
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await.unwrap();
    let store = world.memory.clone().unwrap();
    let clock = world.clock.clone();
    let id = InvocationId::from(text(&task["id"]));
    let stalls = Arc::new(Stalls { store: store.clone(), clock: clock.clone(), id, stalled: AtomicBool::new(false) });
    let slow = RecordingStore::new(stalls.clone().turns(), store, clock);
    let granted = slow.claim(&stalls.claim("slow")).await.unwrap();
    assert!(matches!(granted, ClaimOutcome::Granted(_)), "{granted:?}");
    assert!(stalls.stalled.load(Ordering::Relaxed), "it came to telling");
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    let told = world.told(&format!("{path}/events")).await;
    assert_eq!(told.last().map(String::as_str), Some("task.auth_required"), "{told:?}");
}

/// A store to whose session somebody else always writes first, so that each telling is done twice; keeps the ids of all
/// commits that were sent.
struct Overtaken {
    store: Arc<MemoryStore>,
    sent: Mutex<Vec<String>>,
}

impl Overtaken {
    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.store.clone();
        TurnStore { commits: self, ..store.into() }
    }
}

#[async_trait]
impl Commits for Overtaken {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let is_first = {
            let mut sent = self.sent.lock().unwrap();
            sent.push(commit.id.clone());
            sent.len() == 1
        };
        if is_first {
            Err(CommitError::Journal(JournalConflict::Stream("session".to_owned())))
        } else {
            self.store.commit(commit).await
        }
    }
}

#[tokio::test]
async fn what_is_told_again_is_another_commit() {
    let (world, session) = World::with_session().await;
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let body = json!({"persona_id": "persona_expense-approval", "input": state});
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await.unwrap();
    let store = world.memory.clone().unwrap();
    let overtaken = Arc::new(Overtaken { store: store.clone(), sent: Mutex::default() });
    let recording = RecordingStore::new(overtaken.clone().turns(), store.clone(), world.clock.clone());
    let record = store.load_invocation(&InvocationId::from(text(&task["id"]))).await.unwrap().unwrap();
    let cancellation = Cancellation { reason: None, at: world.clock.now() };
    let commit = Commit {
        id: "cancel".to_owned(),
        now: world.clock.now(),
        session: None,
        invocation: Some(InvocationWrite::Cancel { paused: Box::new(record.paused), cancellation }),
        journal: Journal::default(),
        growing: GrowingLists::default(),
    };
    recording.commit(&commit).await.unwrap();
    let sent = overtaken.sent.lock().unwrap();
    assert!(sent.len() == 2 && sent[0] != sent[1], "a store may answer a known id with what it said before: {sent:?}");
}

/// A store in which something happens before a session is read.
#[derive(Default)]
pub(crate) struct Meanwhile {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) happens: Mutex<Option<BoxFuture<'static, Value>>>,
    /// What happens before the end of a stream is read.
    pub(crate) before_end: Mutex<Option<BoxFuture<'static, Value>>>,
    /// How long a commit may be under way.
    pub(crate) under_way: Option<SignedDuration>,
}

#[async_trait]
impl Records for Meanwhile {
    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.store.counters(key).await
    }

    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        let happens = if key.kind == "session" { self.happens.lock().unwrap().take() } else { None };
        if let Some(happens) = happens {
            happens.await;
        }
        self.store.document(key, now).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.store.documents(request).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.store.entries(stream, after, limit).await
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        let happens = self.before_end.lock().unwrap().take();
        if let Some(happens) = happens {
            happens.await;
        }
        self.store.tip(stream).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.store.append_of(stream, position).await
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        self.under_way.map_or_else(|| self.store.settled(now), |under_way| now - under_way)
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.store.feed(request).await
    }
}

#[tokio::test]
async fn a_task_that_ends_while_somebody_interrupts_it_is_told_of_no_more() {
    let store = Arc::new(Meanwhile::default());
    let world = World::on(store.store.clone(), store.clone(), None);
    let session = world.session().await;
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let body = json!({"persona_id": "persona_expense-approval", "input": state});
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let clients = world.clone();
    let cancel = format!("{path}/cancel");
    *store.happens.lock().unwrap() = Some(async move { clients.post(&cancel, json!({})).await }.boxed());
    let message = json!({"role": "user", "parts": [{"type": "text", "text": "wait", "visibility": "public"}]});
    let interruption = json!({"kind": "interrupt", "message": message});
    let refusal = world.call(ada(), "POST", &format!("{path}/messages"), &interruption, None).await.unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::InvalidStateTransition, "{refusal:?}");
    let told = world.told(&format!("{path}/events")).await;
    assert_eq!(told.last().map(String::as_str), Some("task.canceled"), "{told:?}");
}

/// Tools of which the first call ends when it may, and none behind it.
#[derive(Debug, Default)]
struct Slow {
    made: AtomicUsize,
    in_midst: Notify,
    may_end: Notify,
}

#[async_trait]
impl ToolSource for Slow {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        Ok(vec![tool("send", Effect::Manual)])
    }

    async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolError> {
        let is_first = self.made.fetch_add(1, Ordering::Relaxed) == 0;
        self.in_midst.notify_one();
        if !is_first {
            std::future::pending::<()>().await;
        }
        self.may_end.notified().await;
        Ok(ToolReply::Done(ToolOutput::text("sent")))
    }
}

impl Slow {
    /// Lets the first call end, and the run come into the midst of the next one.
    async fn go_on(&self) {
        self.may_end.notify_one();
        self.in_midst.notified().await;
    }
}

/// A task that sends twice with `tools`, and of which nothing has been worked on, in a world on `store`.
async fn sending(store: &Arc<Meanwhile>, tools: &Arc<Slow>) -> (Arc<World>, Value) {
    let tools = tools.clone();
    let make = move |outside: &Outside| {
        let model = ScriptedModel::new(|request| {
            Ok(match results(request).len() {
                0 => calls(&[("c1", "send", json!({ "to": "ada" }))]),
                _ => calls(&[("c2", "send", json!({ "to": "bob" }))]),
            })
        });
        graph(parts("policy: {approval: {external: []}}", model, tools.clone(), outside.clock.clone()))
    };
    let world = World::serving((store.store.clone(), store.clone(), None), None, &[("helper", Agent::new(make))]);
    let session = world.session().await;
    let mut body = says("write");
    body["persona_id"] = json!("persona_helper");
    let task = world.post(&format!("{session}/tasks"), body).await;
    (world, task)
}

/// How the calls of the task at `path` have ended, as it is told.
async fn ends(world: &World, path: &str) -> Vec<(String, String)> {
    let told = events(world, path).await;
    let ends = told.iter().filter(|event| ["tool.completed", "tool.failed"].contains(&text(&event["event"])));
    ends.map(|event| (text(&event["payload"]["tool_call_id"]).to_owned(), text(&event["event"]).to_owned())).collect()
}

/// The ends of the calls of a task that is canceled in the midst of its second one.
const ENDS: [(&str, &str); 2] = [("c1", "tool.completed"), ("c2", "tool.failed")];

#[tokio::test]
async fn a_call_that_ends_while_its_task_is_canceled_is_told_to_end_once() {
    let (store, tools) = (Arc::new(Meanwhile::default()), Arc::new(Slow::default()));
    let (world, task) = sending(&store, &tools).await;
    let path = path_of(&task);
    let canceling = async {
        tools.in_midst.notified().await;
        let running = tools.clone();
        let goes_on = async move {
            running.go_on().await;
            Value::Null
        };
        *store.before_end.lock().unwrap() = Some(goes_on.boxed());
        world.post(&format!("{path}/cancel"), json!({})).await
    };
    let task = tokio::select! {
        _ = world.work() => panic!("the second call does not end"),
        task = canceling => task,
    };
    assert_eq!(task["status"], "CANCELED", "{task:#}");
    assert_eq!(ends(&world, &path).await, ENDS.map(|(call, end)| (call.to_owned(), end.to_owned())));
}

#[tokio::test]
async fn who_cancels_a_run_that_has_gone_on_tells_of_the_call_that_it_makes_by_then() {
    let (store, tools) = (Arc::new(Meanwhile::default()), Arc::new(Slow::default()));
    let (world, task) = sending(&store, &tools).await;
    let id = InvocationId::from(text(&task["id"]));
    let canceling = async {
        tools.in_midst.notified().await;
        let seen = store.store.load_invocation(&id).await.unwrap().unwrap().paused;
        tools.go_on().await;
        let recording = RecordingStore::new(store.store.clone(), store.clone(), world.clock.clone());
        let cancellation = Cancellation { reason: None, at: world.clock.now() };
        let invocation = Some(InvocationWrite::Cancel { paused: Box::new(seen), cancellation });
        let commit = Commit { invocation, ..Commit::new("cancel", world.clock.now()) };
        recording.commit(&commit).await.unwrap();
    };
    tokio::select! {
        _ = world.work() => panic!("the second call does not end"),
        () = canceling => {}
    }
    let path = path_of(&task);
    assert_eq!(world.get(&path).await["status"], "CANCELED");
    assert_eq!(ends(&world, &path).await, ENDS.map(|(call, end)| (call.to_owned(), end.to_owned())));
}
