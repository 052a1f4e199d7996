//! A process without a network: the application on memory, with time by hand.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_api::{Keys, Outside, RecordingEngine, RecordingStore};
use dormouse_engine::{
    Answer, CompiledGraph, Delay, END, Graph, NodeError, Rule, Update, Voters, Votes, Wait, record, state,
};
use dormouse_harness::DescriptorWakes;
use dormouse_http::{
    App, Authorization, BearerKey, CallbackSecret, CallbackSigner, Limits, Parts, ProtocolConfig, Request, Server,
};
use dormouse_ports::{Category, InvocationRecord, Invocations};
use dormouse_protocol::cursor::Cursors;
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use dormouse_tests::{HttpAnswer, while_time_passes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::document::Described;

pub(crate) const KEY: &str = "open-sesame-open-sesame";
pub(crate) const BODY: usize = 4096;
pub(crate) const PAYLOAD: usize = 256;

state! {
    /// What the graph `approval` works on.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Approval {
        order: String,
        amount: u32,
        decision: String,
        timeout: String,
        result: String,
    }
}

/// Everything outside of the application, and the application.
pub(crate) struct World {
    pub(crate) app: App,
    server: Server,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) subscriptions: Arc<MemorySubscriptions>,
    pub(crate) bus: Arc<MemoryBus>,
    /// How often an approval went on.
    pub(crate) continuations: Arc<AtomicUsize>,
    /// Whether going on fails because a provider is away.
    pub(crate) broken: Arc<AtomicBool>,
    /// What the server says that it answers.
    document: &'static Described,
    /// The answers so far: operation and status.
    pub(crate) seen: Mutex<BTreeSet<(String, u16)>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::asking_for(Authorization::None)
    }

    /// A world in which callers prove who they are by `authorization`.
    pub(crate) fn asking_for(authorization: Authorization) -> Self {
        Self::made(authorization, true)
    }

    /// The same, in which keys of tenants may send signals or not.
    pub(crate) fn made(authorization: Authorization, signals_of_tenants: bool) -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let continuations = Arc::new(AtomicUsize::new(0));
        let broken = Arc::new(AtomicBool::new(false));
        let bus = Arc::new(MemoryBus::default());
        let continued = continuations.clone();
        let breaks = broken.clone();
        let agents = dormouse_app::agents()
            .graph(move |_| Ok(approval(continued.clone(), breaks.clone())))
            .graph(|_| Ok(two_questions()))
            .graph(|_| Ok(three_questions()))
            .graph(|_| Ok(votes_and_question()))
            .graph(|_| Ok(swell()));
        let recording = RecordingStore::new(store.clone(), store.clone(), clock.clone());
        let ids = Arc::new(CountingIds::default());
        let spawner = Arc::new(TokioSpawner);
        let planner = Arc::new(DescriptorWakes);
        let app = App::new(Parts {
            engine: RecordingEngine::new(recording, ids, spawner, planner),
            agents: agents.compile(&Outside::new(bus.clone(), clock.clone())).expect("graphs"),
            maintenance: store.clone().into(),
            subscriptions: subscriptions.clone(),
            bus: bus.clone(),
            callbacks: CallbackSigner::new(CallbackSecret::new("hush")),
            signal_key: BearerKey::new(KEY),
            authorization,
            keys: Keys::new(store.clone()),
            base_url: Some("https://agents.example.com/".to_owned()),
            limits: Limits { body: BODY, signal_payload: PAYLOAD, signals_of_tenants, ..Limits::default() },
            telemetry: None,
        });
        let wire = ProtocolConfig::new(store.clone(), Cursors::new(b"secret"));
        let server = Server::new(app.clone(), wire);
        let document = Described::by(&server, authorization);
        let seen = Mutex::default();
        Self { app, server, store, clock, subscriptions, bus, continuations, broken, document, seen }
    }

    /// Serves `request`. The answer is one that the server's own document has.
    pub(crate) async fn http(&self, request: Request) -> HttpAnswer {
        let method = request.method.clone();
        let path = request.path.clone();
        let answer = HttpAnswer::of(self.server.http(request).await).await;
        if let Some(operation) = self.document.judge((&method, &path), &answer) {
            self.seen.lock().expect("a lock").insert((operation, answer.status));
        }
        answer
    }

    /// The routes in the document of the server.
    pub(crate) fn described(&self) -> &Described {
        self.document
    }

    /// Everything that is stored, to compare.
    pub(crate) fn written(&self) -> String {
        format!("{:?}", self.store)
    }

    /// What is stored of the invocation `id`.
    pub(crate) async fn record(&self, id: &str) -> InvocationRecord {
        self.store.load_invocation(&id.into()).await.expect("the store answers").expect("a record")
    }

    pub(crate) async fn is_unknown(&self, id: &str) -> bool {
        self.store.load_invocation(&id.into()).await.expect("the store answers").is_none()
    }

    pub(crate) fn continuations(&self) -> usize {
        self.continuations.load(Ordering::SeqCst)
    }

    pub(crate) async fn get(&self, path: &str) -> HttpAnswer {
        self.http(request("GET", path, b"")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        self.http(request("POST", path, body.to_string().as_bytes())).await
    }

    pub(crate) async fn signal(&self, id: &str, payload: &Value) -> HttpAnswer {
        let mut request = request("POST", &format!("/signals/{id}"), payload.to_string().as_bytes());
        request.headers.push(("authorization".to_owned(), format!("Bearer {KEY}")));
        self.http(request).await
    }

    /// An approval that sleeps: the path of its callback, with token.
    pub(crate) async fn asleep(&self, order: &str) -> String {
        let state = json!({ "state": { "order": order, "amount": 7 }, "invocation_id": order });
        let answer = self.post("/graphs/approval/turns", &state).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        path_of(&answer.body["callback_url"])
    }

    /// What whoever began the approval of `order` is told of it.
    pub(crate) async fn begun(&self, order: &str) -> Value {
        let state = json!({ "state": { "order": order, "amount": 7 }, "invocation_id": order });
        self.post("/graphs/approval/turns", &state).await.body
    }

    /// Lets time pass while others work, so that whoever polls polls again.
    pub(crate) async fn while_time_passes<T>(&self, work: impl Future<Output = T>) -> T {
        while_time_passes(&self.clock, Duration::from_millis(10), work).await
    }
}

/// A request as a gateway hands it over; `target` may have a query.
pub(crate) fn request(method: &str, target: &str, body: &[u8]) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_vec(),
        time_left: Some(Duration::from_secs(20)),
        ..Request::default()
    }
}

/// The part of an address that a gateway hands over.
pub(crate) fn path_of(url: &Value) -> String {
    let url = url.as_str().expect("an address");
    url.strip_prefix("https://agents.example.com").expect("our own address").to_owned()
}

pub(crate) fn header<'a>(answer: &'a HttpAnswer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
}

/// Checks that `answer` is a short error of `category`, and gives its message.
pub(crate) fn refused(answer: &HttpAnswer, status: u16, category: &Category) -> String {
    let error = &answer.body["error"];
    assert_eq!((answer.status, error["category"].as_str()), (status, Some(category.as_str())), "{}", answer.body);
    assert!(error["bucket"].is_string() && answer.body.to_string().len() < 1000, "{}", answer.body);
    assert!(header(answer, "x-request-id").is_some_and(|id| !id.is_empty()));
    error["message"].as_str().expect("a message").to_owned()
}

/// `check -> ask -> settle`: waits for the signal `approval-{order}`.
fn approval(continuations: Arc<AtomicUsize>, broken: Arc<AtomicBool>) -> CompiledGraph {
    Graph::<Approval>::new("approval")
        .entry("ask")
        .wait("ask", |state| {
            let wait = Wait::signal(format!("approval-{}", state.order), Answer::anything());
            Ok(if state.timeout.is_empty() { wait } else { wait.or_fail(state.timeout.parse::<Delay>()?) })
        })
        .node("settle", move |state: Approval| {
            let continuations = continuations.clone();
            let broken = broken.clone();
            async move {
                if broken.load(Ordering::SeqCst) {
                    return Err(NodeError::new("the bank is away").with_category(Category::ProviderUnavailable));
                }
                tokio::task::yield_now().await;
                continuations.fetch_add(1, Ordering::SeqCst);
                Ok(Approval::result.set(format!("{} {}", state.decision, state.amount)))
            }
        })
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
        .expect("a graph")
}

/// `swell -> ask`: a result of `amount` times `order`, then a pause if `decision` says `wait`.
fn swell() -> CompiledGraph {
    Graph::<Approval>::new("swell")
        .entry("swell")
        .node("swell", async |state: Approval| Ok(Approval::result.set(state.order.repeat(state.amount as usize))))
        .node("ask", async |state: Approval| match state.decision.as_str() {
            "wait" => Err(Wait::signal("swollen", Answer::<Approval>::anything()).suspend().await),
            _ => Ok(Update::none()),
        })
        .node("end", async |()| Ok(Update::none()))
        .edge("swell", "ask")
        .edge("ask", "end")
        .edge("end", END)
        .compile()
        .expect("a graph")
}

/// The question `number`: for as long as `timeout` says, if it says so.
fn question(state: &Approval, number: u8) -> Result<Wait<Approval>, NodeError> {
    let wait = Wait::signal(format!("{}-{number}", state.order), Answer::anything());
    let timeout = Some(&state.timeout).filter(|timeout| !timeout.is_empty());
    Ok(match timeout {
        Some(timeout) => wait.or_default(timeout.parse::<Delay>()?, Approval::decision.set("nobody")),
        None => wait,
    })
}

/// `first -> second -> third`: three pauses, one after the other.
fn three_questions() -> CompiledGraph {
    Graph::<Approval>::new("three-questions")
        .entry("first")
        .wait("first", |state| question(state, 1))
        .wait("second", |state| question(state, 2))
        .wait("third", |state| question(state, 3))
        .edge("first", "second")
        .edge("second", "third")
        .edge("third", END)
        .compile()
        .expect("a graph")
}

state! {
    /// What the graph `votes-and-question` works on.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Vote {
        order: String,
        votes: Votes<Ballot>,
    }
}

record! {
    /// One answer of several.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Ballot {
        decision: String,
    }
}

/// `votes -> question`: a pause for two of three answers, and one for a single answer.
fn votes_and_question() -> CompiledGraph {
    Graph::<Vote>::new("votes-and-question")
        .entry("votes")
        .wait("votes", |state| {
            let answer = Answer::new().required(Ballot::decision, Rule::text());
            let people = ["ada", "grace", "linus"].map(|one| (one, format!("{}-{one}", state.order)));
            let voters = Voters::with_signals(people).at_least(2);
            Ok(Wait::votes(format!("{}-votes", state.order), Vote::votes, answer, voters))
        })
        .wait("question", |state| Ok(Wait::signal(format!("{}-question", state.order), Answer::anything())))
        .edge("votes", "question")
        .edge("question", END)
        .compile()
        .expect("a graph")
}

/// `first -> second`: two pauses, one after the other.
fn two_questions() -> CompiledGraph {
    Graph::<Approval>::new("two-questions")
        .entry("first")
        .wait("first", |state| question(state, 1))
        .wait("second", |state| question(state, 2))
        .edge("first", "second")
        .edge("second", END)
        .compile()
        .expect("a graph")
}
