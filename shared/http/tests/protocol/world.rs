use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dormouse_api::keys::{Grant, KeyToken};
use dormouse_api::{
    AppendNotifier, Call, CallAnswer, Keys, LiveText, Operations, RecordingEngine, RecordingStore, StreamLimits,
};
use dormouse_engine::{END, Graph, Update, state};
use dormouse_harness::{DescriptorWakes, GraphRegistry};
use dormouse_http::{
    App, Authorization, BearerKey, CallbackSecret, CallbackSigner, CommandsElsewhere, Content, Limits, Origins, Parts,
    ProtocolConfig, Request, Response, Server,
};
use dormouse_ports::{
    Clock, Counters, Document, DocumentKey, FeedPage, FeedRequest, FeedRow, Journal, ListRequest, Page, Records,
    StoreError, StreamEntry, StreamTip,
};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::event::EventPlace;
use dormouse_protocol::id::{EventId, Identifier, SessionId, TaskId};
use dormouse_protocol::operation::Operation;
use dormouse_protocol::request::{RangeQuery, VERSION_HEADER};
use dormouse_protocol::resource::CreateWebhookRequest;
use dormouse_protocol::{Draft, Event, EventKind, List, Map, PROTOCOL_VERSION, ProtocolError, ResourcePointer, Scope};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use futures::StreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) const SESSION: &str = "session_1";
pub(crate) const TASK: &str = "task_1";
/// A task that has ended.
pub(crate) const OVER: &str = "task_2";
/// A task that takes messages, and ends when a test says so.
pub(crate) const LISTENS: &str = "task_3";
/// Number of events that are looked at for one page of them.
pub(crate) const LOOKED_AT: usize = 100;

/// Documents and streams in memory, only as far as the protocol's way in reads them.
#[derive(Default)]
pub(crate) struct Shelf {
    documents: Mutex<BTreeMap<DocumentKey, Document>>,
    streams: Mutex<BTreeMap<String, Vec<Map>>>,
    pub(crate) is_down: Mutex<bool>,
    /// True if looking a document up ends in a panic.
    pub(crate) is_broken: Mutex<bool>,
}

impl Shelf {
    pub(crate) fn apply(&self, journal: Journal) {
        for write in journal.documents {
            let mut documents = self.documents.lock().unwrap();
            assert_eq!(documents.get(&write.key).map_or(0, |document| document.version), write.expect);
            match write.body {
                None => documents.remove(&write.key),
                Some(body) => {
                    let key = write.key.clone();
                    let version = write.expect + 1;
                    let expires_at = write.expires_at;
                    documents.insert(write.key, Document { key, version, body, expires_at })
                }
            };
        }
    }

    fn event(&self, place: usize, stream: &str) -> Option<Event> {
        let entry = self.streams.lock().unwrap().get(stream)?.get(place).cloned()?;
        Some(serde_json::from_value(Value::Object(entry)).unwrap())
    }

    fn up(&self) -> Result<(), StoreError> {
        if *self.is_down.lock().unwrap() { Err(StoreError::Unavailable("it is down".to_owned())) } else { Ok(()) }
    }
}

#[async_trait]
impl Records for Shelf {
    async fn counters(&self, _: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        Ok(None)
    }

    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.up()?;
        let is_broken = *self.is_broken.lock().unwrap();
        assert!(!is_broken, "the shelf has broken");
        let found = self.documents.lock().unwrap().get(key).cloned();
        Ok(found.filter(|document| document.expires_at.is_none_or(|end| now < end)))
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.up()?;
        let after = |document: &&Document| request.after.as_ref().is_none_or(|after| document.key.id > *after);
        let documents = self.documents.lock().unwrap();
        let mut items: Vec<Document> = documents.values().filter(after).take(request.limit + 1).cloned().collect();
        let has_more = items.len() > request.limit;
        items.truncate(request.limit);
        let next = items.last().filter(|_| has_more).map(|document| document.key.id.clone());
        Ok(Page { items, next })
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.up()?;
        let streams = self.streams.lock().unwrap();
        let entries = streams.get(stream).into_iter().flatten().enumerate();
        let entries = entries.map(|(place, entry)| StreamEntry { position: place as u64 + 1, entry: entry.clone() });
        Ok(entries.filter(|entry| entry.position > after).take(limit).collect())
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        self.up()?;
        let position = self.streams.lock().unwrap().get(stream).map_or(0, Vec::len) as u64;
        Ok(StreamTip { position, ..StreamTip::default() })
    }

    async fn append_of(&self, _stream: &str, _position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.up().map(|()| None)
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        now
    }

    async fn feed(&self, _request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.up().map(|()| FeedPage::default())
    }
}

/// Knows one session and its tasks, and remembers what it was called with. Panics when it is asked for quotas, and
/// never answers for connectors.
pub(crate) struct Desk {
    shelf: Arc<Shelf>,
    pub(crate) calls: Mutex<Vec<Call>>,
    /// True once the task [`LISTENS`] has ended.
    pub(crate) has_ended: Mutex<bool>,
    /// The artifacts of each task; their content is an image.
    pub(crate) artifacts: Mutex<Vec<Value>>,
}

#[async_trait]
#[expect(clippy::wildcard_enum_match_arm, reason = "it offers a few of many")]
impl Operations for Desk {
    async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError> {
        self.calls.lock().unwrap().push(call.clone());
        let session = call.params.get("session_id");
        let task = call.params.get("task_id");
        match call.operation {
            Operation::ListQuotas => panic!("the quotas are gone"),
            Operation::ListConnectors => futures::future::pending().await,
            Operation::GetSession if session == SESSION => Ok(CallAnswer::Json(200, json!({"id": SESSION}))),
            Operation::GetTask if task.starts_with("task_") => {
                let has_ended = task == OVER || (task == LISTENS && *self.has_ended.lock().unwrap());
                let status = if has_ended { "COMPLETED" } else { "WORKING" };
                Ok(CallAnswer::Json(200, json!({"id": task, "session_id": SESSION, "status": status})))
            }
            Operation::ListTaskEvents | Operation::StreamEvents => {
                let RangeQuery { limit, after, .. } = RangeQuery::read(&call.query)?;
                let after = after.and_then(|id| id.place().map(|(_, position)| position)).unwrap_or_default();
                let all = (0..).map_while(|place| self.shelf.event(place, SESSION)).skip(after as usize);
                let fits = |event: &Event| task.is_empty() || event.task_id.as_ref() == Some(&TaskId::from(task));
                let id = |event: &Event| event.envelope.id.to_string();
                let mut seen: Vec<Event> = all.take(LOOKED_AT + 1).collect();
                let goes_on = seen.len() > LOOKED_AT;
                seen.truncate(LOOKED_AT);
                let upto = seen.last().filter(|_| goes_on).map(id);
                let mut page: Vec<Event> = seen.into_iter().filter(fits).take(limit + 1).collect();
                let next = page.get(limit - 1).filter(|_| page.len() > limit).map(id).or(upto);
                page.truncate(limit);
                Ok(CallAnswer::Json(200, json!(List::page(page, next))))
            }
            Operation::ListEvents => {
                let RangeQuery { after, .. } = RangeQuery::read(&call.query)?;
                let place = |id: &EventId| id.place().and_then(|(_, position)| (position as usize).checked_sub(1));
                let is_there = |id: &EventId| place(id).is_some_and(|at| self.shelf.event(at, SESSION).is_some());
                match after.as_ref().is_none_or(is_there) {
                    true => Ok(CallAnswer::Json(200, json!(List::page(Vec::<Event>::new(), None)))),
                    false => Err(ProtocolError::cursor_expired("after_event_id")),
                }
            }
            Operation::AppendTaskMessage if task == LISTENS => Ok(CallAnswer::Json(202, json!({"id": "message_1"}))),
            Operation::ListArtifacts => {
                Ok(CallAnswer::Json(200, json!({"data": self.artifacts.lock().unwrap().clone()})))
            }
            Operation::GetArtifact => {
                let all = self.artifacts.lock().unwrap();
                let found = all.iter().find(|artifact| artifact["id"] == call.params.get("artifact_id"));
                let found = found.map(|artifact| CallAnswer::Json(200, artifact.clone()));
                found.ok_or_else(|| ProtocolError::not_found("artifact"))
            }
            Operation::DownloadArtifactContent => {
                Ok(CallAnswer::Bytes { content_type: "image/png".to_owned(), bytes: vec![1, 2] })
            }
            Operation::DeleteMemory => Ok(CallAnswer::Empty),
            Operation::GetWorkspace if call.params.get("workspace_id") == "workspace_9" => {
                Ok(CallAnswer::Json(200, json!({"id": "workspace_9"})))
            }
            Operation::CreateSession => Ok(CallAnswer::Json(201, json!({"id": SESSION}))),
            other => Err(ProtocolError::not_found(other.spec().tag)),
        }
    }

    fn check_webhook(&self, request: CreateWebhookRequest) -> Result<(), ProtocolError> {
        let is_good = request.url.starts_with("https://");
        if is_good { Ok(()) } else { Err(ProtocolError::invalid("url", "expected an https address")) }
    }
}

/// Surfaces that a world's server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Protocol,
    Everything,
}

state! {
    /// State that `chat` works on.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Nothing {
        nothing: String,
    }
}

/// One graph called `chat`, that ends at once.
fn app(clock: &Arc<ManualClock>, shelf: &Arc<Shelf>) -> App {
    let chat = Graph::<Nothing>::new("chat").entry("end");
    let chat = chat.node("end", async |()| Ok(Update::none())).edge("end", END).compile().unwrap();
    let store = Arc::new(MemoryStore::default());
    let recording = RecordingStore::new(store.clone(), shelf.clone(), clock.clone());
    let ids = Arc::new(CountingIds::default());
    let spawner = Arc::new(TokioSpawner);
    let planner = Arc::new(DescriptorWakes);
    App::new(Parts {
        engine: RecordingEngine::new(recording, ids, spawner, planner),
        agents: GraphRegistry::new([Arc::new(chat)]).into(),
        maintenance: store.into(),
        subscriptions: Arc::new(MemorySubscriptions::default()),
        bus: Arc::new(MemoryBus::default()),
        callbacks: CallbackSigner::new(CallbackSecret::new("secret")),
        signal_key: BearerKey::of_nobody(),
        authorization: Authorization::Keys,
        keys: Keys::new(shelf.clone()),
        base_url: None,
        limits: Limits::default(),
        telemetry: None,
    })
}

fn wire(shelf: &Arc<Shelf>, notifier: &AppendNotifier, streams: StreamLimits, serves: Serves) -> ProtocolConfig {
    ProtocolConfig {
        records: shelf.clone(),
        cursors: Cursors::new(b"secret"),
        base_url: Some("https://agents.example.com".to_owned()),
        stream_url: None,
        notifier: notifier.clone(),
        live: LiveText::default(),
        streams,
        seats: None,
        origins: Origins::parse("https://app.example.com").unwrap(),
        may_repair: false,
        reads_only: serves == Serves::Protocol,
        sockets: true,
        socket_url: None,
        commands: None,
        a2a: true,
        webhooks: None,
        secrets: BTreeMap::new(),
        templates: None,
    }
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) notifier: AppendNotifier,
    pub(crate) key: KeyToken,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(StreamLimits::default())
    }

    pub(crate) fn with(limits: StreamLimits) -> Self {
        Self::serving(Serves::Protocol, limits)
    }

    pub(crate) fn serving(serves: Serves, limits: StreamLimits) -> Self {
        Self::made(serves, limits, None)
    }

    /// A world whose sockets send their commands to `commands`.
    pub(crate) fn commanding(commands: CommandsElsewhere) -> Self {
        Self::made(Serves::Protocol, StreamLimits::default(), Some(commands))
    }

    fn made(serves: Serves, limits: StreamLimits, commands: Option<CommandsElsewhere>) -> Self {
        let shelf = Arc::new(Shelf::default());
        let clock = Arc::new(ManualClock::default());
        let notifier = AppendNotifier::default();
        let desk = Desk {
            shelf: shelf.clone(),
            calls: Mutex::default(),
            has_ended: Mutex::default(),
            artifacts: Mutex::default(),
        };
        let desk = Arc::new(desk);
        let key = KeyToken::generate(std::array::from_fn(|place| place as u8));
        shelf.apply(Keys::creation(&key, grant("ada"), clock.now()));
        let wire = ProtocolConfig { commands, ..wire(&shelf, &notifier, limits, serves) };
        let server = Server::over(app(&clock, &shelf), wire, desk.clone());
        Self { server, shelf, desk, clock, notifier, key }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A request with everything that it needs.
    pub(crate) fn request(&self, method: &str, target: &str, body: &str) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = [
            (VERSION_HEADER.to_ascii_lowercase(), PROTOCOL_VERSION.to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", self.key.reveal())),
            ("content-type".to_owned(), "application/json".to_owned()),
        ];
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: headers.to_vec(),
            body: body.as_bytes().to_vec(),
            ..Request::default()
        }
    }

    /// The same request by another key, with this grant.
    pub(crate) fn request_by(&self, grant: Grant, (method, target, body): (&str, &str, &str)) -> Request {
        // Each has a key of its own.
        let held = self.shelf.documents.lock().unwrap().len();
        let key = KeyToken::generate(std::array::from_fn(|place| (100 + place + held) as u8));
        self.shelf.apply(Keys::creation(&key, grant, self.clock.now()));
        let mut request = self.request(method, target, body);
        request.headers.retain(|(name, _)| name != "authorization");
        request.headers.push(("authorization".to_owned(), format!("Bearer {}", key.reveal())));
        request
    }

    pub(crate) async fn get(&self, target: &str) -> Response {
        self.server.http(self.request("GET", target, "")).await
    }

    /// Appends an event about `task` to the session, and rings.
    pub(crate) fn append(&self, task: &str, kind: EventKind) {
        self.append_with(task, kind, json!({}));
    }

    /// The same, with what the event tells.
    pub(crate) fn append_with(&self, task: &str, kind: EventKind, payload: Value) {
        self.append_about(task, (kind, TaskId::from(task).pointer()), payload);
    }

    /// The same of an event of `task` that is about something else.
    pub(crate) fn append_about(&self, task: &str, (kind, about): (EventKind, ResourcePointer), payload: Value) {
        let mut streams = self.shelf.streams.lock().unwrap();
        let task = TaskId::from(task);
        let entries = streams.entry(SESSION.to_owned()).or_default();
        let position = entries.len() as u64 + 1;
        let draft = Draft::new(kind, about, payload).within(None, Some(&SessionId::from(SESSION)), Some(&task));
        let event = draft.at(EventPlace { stream: SESSION, position, sequence: position, at: self.clock.now() });
        let Value::Object(entry) = json!(event) else { panic!("an event is an object") };
        entries.push(entry);
        drop(streams);
        self.notifier.notify(SESSION);
    }
}

pub(crate) fn grant(actor: &str) -> Grant {
    let scopes: BTreeSet<Scope> = Scope::ALL.iter().copied().collect();
    Grant { actor: actor.to_owned(), tenant: "acme".to_owned(), workspaces: None, scopes, expires_at: None }
}

/// Status and body of a response that is whole.
pub(crate) fn json_of(response: &Response) -> (u16, Value) {
    let Content::Whole(bytes) = &response.content else { panic!("it streams") };
    (response.status, serde_json::from_slice(bytes).unwrap())
}

pub(crate) fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let mut found = response.headers.iter().filter(|(given, _)| given == name);
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "{name} is there twice");
    value
}

/// Everything that a stream says until it ends.
pub(crate) async fn to_end(response: Response) -> String {
    assert_eq!((response.status, header(&response, "content-type")), (200, Some("text/event-stream")));
    let Content::Live(pieces) = response.content else { panic!("it is whole") };
    String::from_utf8(pieces.concat().await).unwrap()
}
