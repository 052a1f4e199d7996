//! Streams of all sessions of a tenant share what they read, and tell what each would have told alone.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_api::{Actor, Call, LiveText, StreamItem, StreamLimits, StreamOptions, StreamSeats, Streams};
use dormouse_ports::{
    Clock, Counters, Document, DocumentKey, DocumentWrite, DocumentWrites, FeedPage, FeedRequest, FeedRow, ListRequest,
    Page, Records, StoreError, StreamEntry, StreamTip,
};
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::request::{Body, Query};
use dormouse_protocol::{Operation, ProtocolError};
use dormouse_testkit::{MemoryStore, TokioSpawner};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::world::{World, actor, ada, ids, says, text};

/// Counts what is read of a store.
#[derive(Debug)]
pub(crate) struct Counting {
    inner: Arc<MemoryStore>,
    reads: AtomicUsize,
    /// Number of entries of streams that were read.
    entries: AtomicUsize,
    /// Number of documents of lists that were read.
    listed: AtomicUsize,
    /// Number of parts of feeds that are given, once they were read.
    pub(crate) gives: AtomicUsize,
    /// Number of reads of streams and feeds, from now on, that fail.
    pub(crate) fails: AtomicUsize,
    /// Seconds after which an append is complete, as it is in a store whose writers are elsewhere; at once without any.
    completes: AtomicU32,
}

impl Counting {
    /// What is read of `inner`.
    pub(crate) fn of(inner: Arc<MemoryStore>) -> Self {
        let [reads, entries, listed, fails] = [0; 4].map(AtomicUsize::new);
        let gives = AtomicUsize::new(usize::MAX);
        Self { inner, reads, entries, listed, gives, fails, completes: AtomicU32::new(0) }
    }

    /// Until what was read of a feed is given.
    async fn given(&self) {
        let take = |left: usize| left.checked_sub(1);
        poll_fn(|_| match self.gives.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Poll::Ready(()),
            Err(_) => Poll::Pending,
        })
        .await;
    }

    /// Whether the store answers this read.
    fn answers(&self) -> Result<(), StoreError> {
        let take = |left: usize| left.checked_sub(1);
        match self.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Err(StoreError::Unavailable("it is down".to_owned())),
            Err(_) => Ok(()),
        }
    }

    fn one(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of reads since this was asked last.
    pub(crate) fn taken(&self) -> usize {
        self.reads.swap(0, Ordering::SeqCst)
    }

    /// Number of entries of streams that were read since this was asked last.
    pub(crate) fn entries_taken(&self) -> usize {
        self.entries.swap(0, Ordering::SeqCst)
    }

    /// Number of documents of lists that were read since this was asked last.
    pub(crate) fn listed_taken(&self) -> usize {
        self.listed.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Records for Counting {
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.one();
        self.inner.document(key, now).await
    }

    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.one();
        self.inner.counters(key).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.one();
        let page = self.inner.documents(request).await?;
        self.listed.fetch_add(page.items.len(), Ordering::SeqCst);
        Ok(page)
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.one();
        self.answers()?;
        let entries = self.inner.entries(stream, after, limit).await?;
        self.entries.fetch_add(entries.len(), Ordering::SeqCst);
        Ok(entries)
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        self.one();
        self.inner.tip(stream).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.one();
        self.inner.append_of(stream, position).await
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.one();
        self.answers()?;
        let page = self.inner.feed(request).await;
        self.given().await;
        page
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        match self.completes.load(Ordering::SeqCst) {
            0 => self.inner.settled(now),
            seconds => now - Duration::from_secs(seconds.into()),
        }
    }
}

pub(crate) struct Scene {
    pub(crate) world: Arc<World>,
    streams: Streams,
    pub(crate) counting: Arc<Counting>,
}

pub(crate) type Stream = BoxStream<'static, StreamItem>;

impl Scene {
    pub(crate) fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let counting = Arc::new(Counting::of(store.clone()));
        let world = World::on(store.clone(), counting.clone(), Some(store));
        let told = (world.notifier.clone(), LiveText::default());
        let limits = StreamLimits { each: 1_000, of_tenant: 1_000, ..StreamLimits::default() };
        let streams = Streams::new(counting.clone(), world.clock.clone(), told, limits, None);
        Self { world, streams, counting }
    }

    pub(crate) async fn open(&self, actor: Actor, query: &str) -> Stream {
        self.try_open(&self.streams, actor, query).await.unwrap()
    }

    pub(crate) async fn try_open(&self, streams: &Streams, actor: Actor, query: &str) -> Result<Stream, ProtocolError> {
        let found = Operation::find("GET", "/v1/events/stream").unwrap();
        let call = Call {
            operation: found.operation,
            params: found.params,
            query: Query::parse(query).unwrap(),
            body: Body::default(),
            actor,
            idempotency_key: None,
            is_placed_for_caller: false,
            target: found.target,
            now: self.world.clock.now(),
        };
        let options = StreamOptions { last_event_id: None, request_id: "r", time_left: None };
        let operations: Arc<dyn dormouse_api::Operations> = Arc::new(self.world.api.clone());
        streams.open(&operations, call, options).await
    }

    /// A message to `session`, as a client appends it.
    pub(crate) async fn say(&self, session: &str) {
        let message = json!({"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
        self.world.post(&format!("{session}/messages"), message).await;
    }

    pub(crate) async fn all(&self) -> Vec<String> {
        self.listed("/v1/events").await
    }

    /// The ids of all events that are listed at `path`.
    pub(crate) async fn listed(&self, path: &str) -> Vec<String> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.world.get(&format!("{path}?limit=100{after}")).await;
            all.extend(ids(&page));
            let Some(next) = page["page"]["next_cursor"].as_str() else { return all };
            after = format!("&after_event_id={next}");
        }
    }
}

/// What `stream` tells by itself, without time passing.
pub(crate) fn told(stream: &mut Stream) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(item) = stream.next().now_or_never() {
        match item.expect("it goes on") {
            StreamItem::Events(events) => told.extend(events.into_iter().map(|event| event.envelope.id.to_string())),
            StreamItem::Heartbeat => {}
            other @ (StreamItem::Text(_) | StreamItem::Failed { .. }) => panic!("{other:?}"),
        }
    }
    told
}

/// Lets `streams` find out that they have everything, as they do when nothing happens for a while.
pub(crate) fn settle(scene: &Scene, streams: &mut [Stream]) {
    for _ in 0..4 {
        scene.world.clock.advance(Duration::from_secs(2));
        streams.iter_mut().for_each(|stream| assert_eq!(told(stream), Vec::<String>::new()));
    }
}

#[tokio::test]
async fn a_page_of_many_events_is_read_in_few_parts() {
    let scene = Scene::new();
    for _ in 0..220 {
        scene.world.session().await;
    }
    let mut reads = Vec::new();
    for limit in [10, 200] {
        scene.counting.taken();
        let page = scene.world.get(&format!("/v1/events?limit={limit}")).await;
        assert_eq!(page["data"].as_array().map(Vec::len), Some(limit));
        reads.push(scene.counting.taken());
    }
    assert!(reads[1] <= reads[0] + 3, "{reads:?}");
}

#[tokio::test]
async fn what_streams_of_a_tenant_read_does_not_grow_with_their_number() {
    let mut costs = Vec::new();
    for number in [4, 64] {
        let scene = Scene::new();
        let session = scene.world.session().await;
        let mut streams = Vec::new();
        for _ in 0..number {
            streams.push(scene.open(ada(), "").await);
        }
        let before = scene.all().await;
        streams.iter_mut().for_each(|stream| assert_eq!(told(stream), before));
        settle(&scene, &mut streams);
        scene.counting.taken();
        for _ in 0..10 {
            scene.world.clock.advance(Duration::from_secs(2));
            streams.iter_mut().for_each(|stream| assert_eq!(told(stream), Vec::<String>::new()));
        }
        let idle = scene.counting.taken();
        scene.say(&session).await;
        scene.counting.taken();
        let mut found: Vec<Vec<String>> = streams.iter_mut().map(told).collect();
        let busy = scene.counting.taken();
        let expected = scene.all().await[before.len()..].to_vec();
        assert!(!expected.is_empty() && found.iter().all(|found| *found == expected), "{found:?}");
        // Once more, so that one that was told twice of the same append is noticed.
        found = streams.iter_mut().map(told).collect();
        assert!(found.iter().all(Vec::is_empty));
        costs.push((idle, busy));
    }
    assert_eq!(costs[0], costs[1], "4 streams, and 64");
    assert!(costs[0].0 <= 10 && (1..=4).contains(&costs[0].1), "{costs:?}");
}

#[tokio::test]
async fn each_stream_tells_what_it_asked_for_and_may_see_however_slowly_it_is_read() {
    let scene = Scene::new();
    let (first, second) = (scene.world.session().await, scene.world.session().await);
    let workspace = text(&scene.world.get(&second).await["workspace_id"]).to_owned();
    let bound = Actor { workspaces: Some([WorkspaceId::from(workspace.as_str())].into()), ..ada() };
    let filter = format!("workspace_id={workspace}");
    let mut all = scene.open(ada(), "").await;
    let mut slow = scene.open(ada(), "").await;
    let mut filtered = scene.open(ada(), &filter).await;
    let mut restricted = scene.open(bound, "").await;
    let mut foreign = scene.open(actor("eve", "elsewhere", None), "").await;
    let mut have = [told(&mut all), told(&mut slow), told(&mut filtered), told(&mut restricted)];
    settle(&scene, std::slice::from_mut(&mut all));
    for stream in [&mut slow, &mut filtered, &mut restricted] {
        scene.world.clock.advance(Duration::from_secs(2));
        settle(&scene, std::slice::from_mut(stream));
    }
    // More than is kept for who reads slowly.
    for round in 0..600 {
        scene.say(if round % 2 == 0 { &first } else { &second }).await;
        scene.world.clock.advance(Duration::from_millis(1));
        if round % 7 == 0 {
            have[0].extend(told(&mut all));
            have[2].extend(told(&mut filtered));
            have[3].extend(told(&mut restricted));
        }
    }
    for (have, stream) in have.iter_mut().zip([&mut all, &mut slow, &mut filtered, &mut restricted]) {
        scene.world.clock.advance(Duration::from_secs(2));
        have.extend(told(stream));
    }
    let expected = scene.all().await;
    assert!(expected.len() > 600);
    assert_eq!((&have[0], &have[1]), (&expected, &expected));
    assert_eq!(have[2], have[3], "a filter, and a key that sees no more");
    let of_second = second.rsplit('/').next().unwrap();
    let its: Vec<String> =
        expected.iter().filter(|id| id.contains(&of_second.replace("session_", ""))).cloned().collect();
    let told_of_second: Vec<String> =
        have[2].iter().filter(|id| id.contains(&of_second.replace("session_", ""))).cloned().collect();
    assert_eq!((told_of_second, its.len() >= 300), (its, true));
    assert_eq!(told(&mut foreign), Vec::<String>::new(), "of another tenant nothing");
}

#[tokio::test]
async fn a_stream_that_is_narrowed_to_a_session_or_a_task_heeds_its_other_filters() {
    let scene = Scene::new();
    let (first, second) = (scene.world.session().await, scene.world.session().await);
    let workspace = text(&scene.world.get(&first).await["workspace_id"]).to_owned();
    let task = scene.world.post(&format!("{first}/tasks"), says("hello")).await;
    let [first, second] = [&first, &second].map(|path| path.rsplit('/').next().unwrap().to_owned());
    let task = text(&task["id"]);
    for (narrowed, is_empty) in [
        (format!("session_id={first}&workspace_id={workspace}"), false),
        (format!("session_id={second}&workspace_id={workspace}"), true),
        (format!("task_id={task}&session_id={first}"), false),
        (format!("task_id={task}&session_id={second}"), true),
        (format!("task_id={task}&workspace_id=workspace_x"), true),
    ] {
        let listed = ids(&scene.world.get(&format!("/v1/events?{narrowed}")).await);
        assert_eq!(told(&mut scene.open(ada(), &narrowed).await), listed, "{narrowed}");
        assert_eq!(listed.is_empty(), is_empty, "{narrowed}");
    }
}

#[tokio::test]
async fn who_comes_with_a_cursor_that_is_none_is_told_to_forget_it() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let session = session.rsplit('/').next().unwrap();
    for narrowed in [String::new(), format!("&session_id={session}")] {
        let mut stream = scene.open(ada(), &format!("after_event_id=event_session_x_0000000000000001{narrowed}")).await;
        let Some(StreamItem::Failed { cursor, error }) = stream.next().await else { panic!("it goes on: {narrowed}") };
        assert_eq!((cursor.as_str(), &json!(error)["error"]["code"]), ("", &json!("cursor_expired")), "{narrowed}");
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test]
async fn who_comes_with_a_cursor_of_a_moment_ago_is_told_what_is_behind_it_alone() {
    let scene = Scene::new();
    scene.counting.completes.store(5, Ordering::SeqCst);
    let session = scene.world.session().await;
    scene.world.clock.advance(Duration::from_secs(60));
    scene.say(&session).await;
    scene.say(&session).await;
    let own = ids(&scene.world.get(&format!("{session}/events?limit=100")).await);
    let last = own.last().expect("an event").clone();
    let mut streams = [scene.open(ada(), &format!("after_event_id={last}")).await];
    assert_eq!(told(&mut streams[0]), Vec::<String>::new());
    settle(&scene, &mut streams);
    settle(&scene, &mut streams);
    scene.say(&session).await;
    let behind = ids(&scene.world.get(&format!("{session}/events?limit=100&after_event_id={last}")).await);
    let mut found = told(&mut streams[0]);
    for _ in 0..4 {
        scene.world.clock.advance(Duration::from_secs(2));
        found.extend(told(&mut streams[0]));
    }
    assert_eq!((&found, behind.is_empty()), (&behind, false));
}

#[tokio::test]
async fn what_one_stream_did_not_read_to_its_end_another_reads() {
    let scene = Scene::new();
    let session = scene.world.session().await;
    let mut streams = [scene.open(ada(), "").await, scene.open(ada(), "").await];
    let before = told(&mut streams[0]);
    assert_eq!(told(&mut streams[1]), before);
    settle(&scene, &mut streams);
    let [mut leaves, mut stays] = streams;
    // It reads, and the other one waits for it; what is said then is in no part that was read.
    scene.counting.gives.store(0, Ordering::SeqCst);
    scene.world.clock.advance(Duration::from_secs(2));
    assert_eq!(told(&mut leaves), Vec::<String>::new());
    scene.say(&session).await;
    assert_eq!(told(&mut stays), Vec::<String>::new());
    // It reads again, for what was said, and is given up.
    scene.counting.gives.store(1, Ordering::SeqCst);
    assert_eq!(told(&mut leaves), Vec::<String>::new());
    drop(leaves);
    scene.counting.gives.store(usize::MAX, Ordering::SeqCst);
    let found = told(&mut stays);
    assert_eq!(found, scene.all().await[before.len()..], "at once");
    assert!(!found.is_empty());
}

/// A process of its own, in which a tenant may have two streams open together with all others.
fn process(scene: &Scene) -> Streams {
    process_with(scene, scene.world.memory.clone().unwrap())
}

/// The same, of which `documents` write the seats.
fn process_with(scene: &Scene, documents: Arc<dyn DocumentWrites>) -> Streams {
    let seats = StreamSeats {
        records: scene.world.memory.clone().unwrap(),
        documents,
        ids: Arc::new(dormouse_system::RandomIds),
        clock: scene.world.clock.clone(),
        spawner: Arc::new(TokioSpawner),
        of_tenant: 2,
    };
    let told = (scene.world.notifier.clone(), LiveText::default());
    Streams::new(scene.counting.clone(), scene.world.clock.clone(), told, StreamLimits::default(), Some(seats))
}

#[tokio::test]
async fn a_tenant_that_opens_streams_without_end_has_so_many_in_all_processes_and_others_get_theirs() {
    let scene = Scene::new();
    scene.world.session().await;
    let processes = [process(&scene), process(&scene), process(&scene)];
    let bob = || actor("bob", "acme", None);
    let mut first = scene.try_open(&processes[0], ada(), "").await.unwrap();
    let second = scene.try_open(&processes[1], bob(), "").await.unwrap();
    for _ in 0..5 {
        for process in &processes {
            let refused = scene.try_open(process, ada(), "").await.err().unwrap();
            assert_eq!((refused.status(), refused.header()), (429, Some(("retry-after", "5"))));
        }
    }
    let eve = || actor("eve", "elsewhere", None);
    let others = [scene.try_open(&processes[0], eve(), "").await, scene.try_open(&processes[2], eve(), "").await];
    assert!(others.iter().all(Result::is_ok));
    // An event writes nothing.
    let before = scene.world.written();
    assert!(!told(&mut first).is_empty());
    assert_eq!(scene.world.written(), before);
    // One that ends makes room.
    drop(second);
    while scene.try_open(&processes[2], bob(), "").await.map(std::mem::forget).is_err() {
        tokio::task::yield_now().await;
    }
    // So does one whose process died, when its time is over, and not before.
    assert_eq!(scene.try_open(&processes[0], ada(), "").await.err().unwrap().status(), 429);
    scene.world.clock.advance(StreamLimits::default().life - Duration::from_millis(1));
    assert_eq!(scene.try_open(&processes[0], ada(), "").await.err().unwrap().status(), 429);
    scene.world.clock.advance(Duration::from_millis(1));
    assert!(scene.try_open(&processes[0], ada(), "").await.is_ok());
}

/// Writes, and answers when it is told to.
struct SlowWrites {
    inner: Arc<MemoryStore>,
    answers: Semaphore,
}

#[async_trait]
impl DocumentWrites for SlowWrites {
    async fn write_document(&self, write: &DocumentWrite, name: &str, now: Timestamp) -> Result<bool, StoreError> {
        let written = self.inner.write_document(write, name, now).await;
        drop(self.answers.acquire().await);
        written
    }
}

#[tokio::test]
async fn who_leaves_while_its_seat_is_written_has_none() {
    let scene = Scene::new();
    scene.world.session().await;
    let store = scene.world.memory.clone().unwrap();
    let slow = Arc::new(SlowWrites { inner: store, answers: Semaphore::new(0) });
    let process = process_with(&scene, slow.clone());
    for _ in 0..2 {
        let before = scene.world.written();
        let mut asked = Box::pin(scene.try_open(&process, ada(), ""));
        while scene.world.written() == before {
            assert!((&mut asked).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    slow.answers.add_permits(1_000);
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        streams.extend(scene.try_open(&process, ada(), "").await.ok());
        scene.world.clock.advance(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
    assert_eq!(streams.len(), 2, "both seats are free again");
}
