//! A world in memory for tests of agents, with a clock that is moved by hand: three days pass in a millisecond.
//!
//! The deciding parts are the real ones: the routes, the harness and the engine. In place of AWS stand a store, a bus
//! and a scheduler in memory, which call the routes as AWS calls the functions.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_api::{Agents, Keys, Outside, RecordingEngine, RecordingStore};
use dormouse_harness::{Bucket, Callback, DescriptorWakes, SIGNAL, Transmission, TurnError, TurnOutcome, WORK};
use dormouse_http::{
    App, Authorization, BearerKey, CallbackSecret, CallbackSigner, Content, Limits, Parts, ProtocolConfig, Request,
    Server, TriggerError,
};
use dormouse_ports::{Category, Clock, Event, EventShape, InvocationId, Map, PendingRow, SignalDescriptor, Sleepers};
use dormouse_protocol::cursor::Cursors;
use dormouse_testkit::{
    CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, MovingClock, TokioSpawner,
};
use jiff::Timestamp;
use quamina::Quamina;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Most deadlines that may fall due in one [`TestBed::pass`]: an agent that is suspended until a time that is over
/// would never end.
const MOST_WAKES: usize = 10_000;

/// Time after which a wake-up is tried again that failed for a reason that may pass; the longest one, to which it doubles.
const AGAIN: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(60 * 60);

/// Wake-ups that failed: when each is tried again, and after how much time.
type Failed = BTreeMap<InvocationId, (Timestamp, Duration)>;

/// A world in memory in which agents run. Its methods need no async runtime, and panic with a sentence where a test
/// cannot go on.
///
/// The [front page](crate) has an example.
pub struct TestBed {
    runtime: Runtime,
    server: Server,
    world: World,
    /// Number of the published events that were delivered.
    delivered: usize,
    started: usize,
}

/// What stays while the agents change.
#[derive(Default)]
struct World {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    bus: Arc<MemoryBus>,
    subscriptions: Arc<MemorySubscriptions>,
    ids: Arc<CountingIds>,
}

/// An invocation of a graph, by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation(InvocationId);

impl Invocation {
    /// The id.
    pub fn id(&self) -> &str {
        self.0.as_str()
    }
}

/// Refusal of a request, as its caller receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Category of the error: `request_invalid`, for example.
    pub category: String,
    /// The sentence.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.category, self.message)
    }
}

impl From<TurnError> for Refused {
    fn from(error: TurnError) -> Self {
        Self { category: error.category.as_str().to_owned(), message: error.message }
    }
}

/// Status of an invocation.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// It sleeps.
    Asleep {
        /// The state when it fell asleep.
        state: Map,
        /// Descriptor of the wait.
        waiting_for: SignalDescriptor,
        /// Instant at which the invocation acts although no signal comes.
        due_at: Option<Timestamp>,
    },
    /// It reached the end, with this state.
    Completed(Map),
    /// It failed.
    Failed(Refused),
}

impl Status {
    /// True if it is suspended.
    pub fn is_asleep(&self) -> bool {
        matches!(self, Self::Asleep { .. })
    }

    /// The final state.
    ///
    /// # Panics
    /// If it has not completed.
    #[track_caller]
    pub fn completed(&self) -> Map {
        match self {
            Self::Completed(state) => state.clone(),
            other @ (Self::Asleep { .. } | Self::Failed(_)) => panic!("it has not completed: {other:?}"),
        }
    }

    /// Descriptor of the wait.
    ///
    /// # Panics
    /// If it is not suspended.
    #[track_caller]
    pub fn waiting_for(&self) -> SignalDescriptor {
        match self {
            Self::Asleep { waiting_for, .. } => waiting_for.clone(),
            other @ (Self::Completed(_) | Self::Failed(_)) => panic!("it does not sleep: {other:?}"),
        }
    }

    /// Error with which it failed.
    ///
    /// # Panics
    /// If it has not failed.
    #[track_caller]
    pub fn failed(&self) -> Refused {
        match self {
            Self::Failed(refused) => refused.clone(),
            other @ (Self::Asleep { .. } | Self::Completed(_)) => panic!("it has not failed: {other:?}"),
        }
    }
}

impl TestBed {
    /// A world in which `agents` run. It is 2027-01-15T08:00:00Z. A node that sleeps on its [clock](Outside::clock) does not
    /// take the test's time: the clock is moved by that. A limit of time that it takes from there holds for what can go on at once,
    /// and is over for what waits for a file, another thread or the network. What a server would write into its log at the start,
    /// since it looks like a mistake, is printed with the output of the test.
    ///
    /// # Panics
    /// If an agent has a mistake, which the message names.
    #[track_caller]
    pub fn new(agents: &Agents) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        let world = World::default();
        Self { runtime, server: world.serve(agents), world, delivered: 0, started: 0 }
    }

    /// Serves `agents` from here on in the place of those before, as a deployment of a new version does: what sleeps goes on in
    /// the graphs of today.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn deploy(&mut self, agents: &Agents) {
        self.server = self.world.serve(agents);
    }

    /// Begins an invocation of `graph` with the fields of `state`, and lets it run until it sleeps or has ended.
    ///
    /// # Panics
    /// If it is refused: see [`try_start`](Self::try_start). If `state` is no JSON object.
    #[track_caller]
    pub fn start(&mut self, graph: &str, state: impl Serialize) -> Invocation {
        match self.try_start(graph, state) {
            Ok(invocation) => invocation,
            Err(refused) => panic!("{graph} is refused: {refused}"),
        }
    }

    /// The same in the session `session_id`, of a graph that keeps sessions: it goes on from what earlier invocations in
    /// that session have left.
    ///
    /// # Panics
    /// If it is refused, or `state` is no JSON object.
    #[track_caller]
    pub fn start_in(&mut self, session_id: &str, graph: &str, state: impl Serialize) -> Invocation {
        match self.begin(Some(session_id), graph, state) {
            Ok(invocation) => invocation,
            Err(refused) => panic!("{graph} is refused in session {session_id}: {refused}"),
        }
    }

    /// As [`start`](Self::start), where a refusal is expected.
    ///
    /// # Errors
    /// The error that the caller of `POST /graphs/{graph}/turns` receives.
    ///
    /// # Panics
    /// If `state` is no JSON object.
    #[track_caller]
    pub fn try_start(&mut self, graph: &str, state: impl Serialize) -> Result<Invocation, Refused> {
        self.begin(None, graph, state)
    }

    #[track_caller]
    fn begin(&mut self, session_id: Option<&str>, graph: &str, state: impl Serialize) -> Result<Invocation, Refused> {
        self.started += 1;
        let id = format!("test-{}", self.started);
        let state = match serde_json::to_value(state) {
            Ok(state) => state,
            Err(error) => panic!("the state is no JSON: {error}"),
        };
        let body = json!({ "state": state, "invocation_id": id, "session_id": session_id });
        let request = Request {
            method: "POST".to_owned(),
            path: format!("/graphs/{graph}/turns"),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into_bytes(),
            ..Request::default()
        };
        let answer = self.runtime.block_on(self.server.http(request));
        self.settle();
        match (answer.status, answer.content) {
            (200..=299, _) => Ok(Invocation(id.into())),
            (_, Content::Whole(body)) => Err(refused(&body)),
            (status, Content::Live(_)) => panic!("{graph} is answered {status} with a stream"),
        }
    }

    /// Returns the status of `invocation`.
    ///
    /// # Panics
    /// If it was begun in another world.
    #[track_caller]
    pub fn status(&self, invocation: &Invocation) -> Status {
        match self.runtime.block_on(self.server.app().harness().look_up(&invocation.0)) {
            Ok(TurnOutcome::Completed(done)) => Status::Completed(done.state),
            Ok(TurnOutcome::Suspended(pause)) => {
                let due_at = pause.wake.due.map(|due| due.at);
                Status::Asleep { state: pause.state, waiting_for: pause.descriptor, due_at }
            }
            Ok(TurnOutcome::Errored(error)) => Status::Failed((*error).into()),
            Ok(other @ (TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. })) => panic!("{other:?}"),
            Err(error) => panic!("{}: {}", invocation.id(), error.message),
        }
    }

    /// Answers the wait of `invocation`, as a person does who opens its callback address.
    ///
    /// # Errors
    /// The reason for which the answer does not count.
    ///
    /// # Panics
    /// If `answer` is no JSON object.
    #[track_caller]
    pub fn answer(&mut self, invocation: &Invocation, answer: impl Serialize) -> Result<(), Refused> {
        self.deliver(Transmission::callback(invocation.0.clone(), None, object(answer)))
    }

    /// Answers as `part` of several who were asked.
    ///
    /// # Errors
    /// The reason for which the answer does not count.
    ///
    /// # Panics
    /// If `answer` is no JSON object.
    #[track_caller]
    pub fn answer_as(&mut self, invocation: &Invocation, part: &str, answer: impl Serialize) -> Result<(), Refused> {
        if let Status::Asleep { waiting_for, .. } = self.status(invocation)
            && !waiting_for.metadata.is_some_and(|metadata| metadata.contains_key("expects"))
        {
            let message = format!("the invocation waits for one answer, not for that of `{part}`: use `answer`");
            return Err(Refused { category: Category::RequestInvalid.as_str().to_owned(), message });
        }
        let answer = Callback::new(invocation.0.clone(), None, object(answer));
        self.deliver(Callback { part: Some(part.to_owned()), ..answer }.into())
    }

    /// Sends the signal `signal_id`, by its name. One for which nothing waits yet is kept for seven days, for the wait that
    /// begins meanwhile.
    ///
    /// # Errors
    /// The reason for which it does not count.
    ///
    /// # Panics
    /// If `payload` is no JSON object.
    #[track_caller]
    pub fn signal(&mut self, signal_id: &str, payload: impl Serialize) -> Result<(), Refused> {
        self.deliver(Transmission::signal(signal_id, object(payload)))
    }

    /// Cancels `invocation`, which has failed then, and has its graph undo what is to be undone.
    ///
    /// # Errors
    /// The reason for which it cannot be canceled.
    #[track_caller]
    pub fn cancel(&mut self, invocation: &Invocation) -> Result<(), Refused> {
        let canceled = self.runtime.block_on(self.server.app().harness().cancel(&invocation.0, None, None));
        self.settle();
        canceled.map(drop).map_err(Refused::from)
    }

    /// Publishes an event, which wakes the invocations that wait for it.
    ///
    /// # Panics
    /// If `detail` is no JSON object.
    #[track_caller]
    pub fn publish(&mut self, source: &str, detail_type: &str, detail: impl Serialize) {
        let event = Event { source: source.to_owned(), detail_type: detail_type.to_owned(), detail: object(detail) };
        self.route(&event);
        self.settle();
    }

    /// Events that agents, and Dormouse itself, have published so far.
    pub fn published(&self) -> Vec<Event> {
        self.world.bus.events()
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    /// Lets `time` pass; everything that falls due meanwhile happens at its time. What cannot go on then, since a node fails, is
    /// printed with the output of the test and tried again later.
    ///
    /// # Panics
    /// If the agents never come to rest.
    #[track_caller]
    pub fn pass(&mut self, time: Duration) {
        let end = self.now() + time;
        let mut again = Failed::new();
        for _ in 0..MOST_WAKES {
            let Some((row, at)) = self.next_due(&again).filter(|(_, at)| *at <= end) else {
                self.advance_to(end);
                return;
            };
            self.advance_to(at);
            let PendingRow { invocation_id, generation, due_at, .. } = row;
            let due = Transmission::due(invocation_id.clone(), generation, due_at);
            let turn = self.runtime.block_on(self.server.app().harness().turn(due));
            self.settle();
            // Other errors are for the log of a scheduler: so is a deadline that fails its invocation.
            if let TurnOutcome::Errored(error) = turn.outcome
                && error.bucket == Bucket::RetryableTransient
            {
                let wait = match again.get(&invocation_id) {
                    Some((_, before)) => LATER.min(*before * 2),
                    None => {
                        self.failed(&invocation_id, &error);
                        AGAIN
                    }
                };
                again.insert(invocation_id, (self.now() + wait, wait));
            }
        }
        panic!("{MOST_WAKES} deadlines fell due, and there are more: does an agent wait for a time that is over?");
    }

    /// Lets `days` of 24 hours [pass](Self::pass).
    ///
    /// # Panics
    /// If the agents never come to rest.
    #[track_caller]
    pub fn pass_days(&mut self, days: u32) {
        self.pass(Duration::from_secs(u64::from(days) * 24 * 60 * 60));
    }

    fn deliver(&mut self, transmission: Transmission) -> Result<(), Refused> {
        let is_kept = transmission.signal_id().is_some();
        let turn = self.runtime.block_on(self.server.app().harness().turn(transmission));
        self.settle();
        let refuse =
            |category: &str, message: &str| Err(Refused { category: category.to_owned(), message: message.to_owned() });
        match turn.outcome {
            TurnOutcome::Completed(done) => match done.overruled {
                Some(overruled) => refuse("conflict", overruled.message()),
                None => Ok(()),
            },
            TurnOutcome::Suspended(pause) => match pause.overruled {
                Some(overruled) => refuse("conflict", overruled.message()),
                None => Ok(()),
            },
            TurnOutcome::Errored(error) => Err((*error).into()),
            TurnOutcome::Buffered { .. } if is_kept => Ok(()),
            TurnOutcome::Buffered { .. } => refuse("not_found", "nothing waits for this signal"),
            TurnOutcome::Stale { .. } => refuse("conflict", "the pause is over"),
        }
    }

    fn advance_to(&self, time: Timestamp) {
        let step = time.duration_since(self.now());
        self.world.clock.advance(Duration::try_from(step).unwrap_or_default());
    }

    /// The row that falls due next, and when: those in `again` not before then.
    fn next_due(&self, again: &Failed) -> Option<(PendingRow, Timestamp)> {
        let all = async {
            let mut rows = Vec::new();
            let mut cursor = None;
            loop {
                let page = self.world.store.list_pending(None, cursor.as_deref()).await;
                let page = page.unwrap_or_else(|error| panic!("the index cannot be read: {error}"));
                rows.extend(page.items);
                match page.next {
                    Some(next) => cursor = Some(next),
                    None => return rows,
                }
            }
        };
        let due = self.runtime.block_on(all).into_iter().filter_map(|row| {
            let due_at = row.due_at?;
            let at = again.get(&row.invocation_id).map_or(due_at, |(at, _)| due_at.max(*at));
            Some((row, at))
        });
        due.min_by_key(|(_, at)| *at)
    }

    /// Delivers what was published, until nothing new is.
    fn settle(&mut self) {
        while let Some(event) = self.world.bus.events().get(self.delivered).cloned() {
            self.delivered += 1;
            self.route(&event);
        }
    }

    /// Calls what the rules on the bus call for `event`.
    fn route(&self, event: &Event) {
        let mut whole = json!({ "source": event.source, "detail-type": event.detail_type, "detail": event.detail });
        whole["id"] = json!(format!("event-{}", self.delivered));
        let app = self.server.app();
        match (event.source.as_str(), event.detail_type.as_str()) {
            ("dormouse", WORK) => self.logged(self.runtime.block_on(app.wakeup(whole, None))),
            ("dormouse", SIGNAL) => self.logged(self.runtime.block_on(app.event(whole, None))),
            _ => {
                let matching = |shape: &EventShape| matches(&shape.pattern, &whole);
                for shape in self.world.subscriptions.rules().into_values().filter(matching) {
                    if let Some(signal) = shape.signal_of(&whole) {
                        self.logged(self.runtime.block_on(app.event(signal, None)));
                    }
                }
            }
        }
    }

    /// An error with which an invocation sleeps on is printed with the output of the test.
    #[expect(clippy::print_stderr, reason = "a test shows it when it fails")]
    fn failed(&self, id: &InvocationId, error: &TurnError) {
        let TurnError { category, message, .. } = error;
        eprintln!("{}: {id} could not go on, and is tried again later: {category}: {message}", self.now());
    }

    /// An error for which AWS would put the event into a queue is printed with the output of the test.
    #[expect(clippy::print_stderr, reason = "a test shows it when it fails")]
    fn logged(&self, called: Result<Value, TriggerError>) {
        if let Err(error) = called {
            eprintln!("{}: given back to the service that sent it: {error}", self.now());
        }
    }
}

impl World {
    /// The server of `agents`.
    #[track_caller]
    fn serve(&self, agents: &Agents) -> Server {
        let Self { store, clock, bus, subscriptions, ids } = self;
        let agents = agents.compile(&Outside::new(bus.clone(), Arc::new(MovingClock::new(clock.clone()))));
        let agents = match agents {
            Ok(agents) => agents,
            Err(error) => panic!("the agents cannot be served: {error}"),
        };
        let recording = RecordingStore::new(store.clone(), store.clone(), clock.clone());
        let app = App::new(Parts {
            engine: RecordingEngine::new(recording, ids.clone(), Arc::new(TokioSpawner), Arc::new(DescriptorWakes)),
            agents,
            maintenance: store.clone().into(),
            subscriptions: subscriptions.clone(),
            bus: bus.clone(),
            callbacks: CallbackSigner::new(CallbackSecret::new("the secret of a test bed, which signs nothing")),
            signal_key: BearerKey::of_nobody(),
            authorization: Authorization::None,
            keys: Keys::new(store.clone()),
            base_url: None,
            limits: Limits::default(),
            telemetry: None,
        });
        for graph in app.harness().graphs().iter() {
            for warning in graph.warnings() {
                warned(graph.name(), warning);
            }
        }
        Server::new(app, ProtocolConfig::new(store.clone(), Cursors::new(b"the secret of a test bed")))
    }
}

impl fmt::Debug for TestBed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBed").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// What looks like a mistake in a graph is printed with the output of the test.
#[expect(clippy::print_stderr, reason = "a test shows it when it fails")]
fn warned(graph: &str, warning: &str) {
    eprintln!("graph `{graph}`: {warning}");
}

#[track_caller]
fn object(value: impl Serialize) -> Map {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        Ok(other) => panic!("it must be a JSON object, and is {other}"),
        Err(error) => panic!("it is no JSON: {error}"),
    }
}

fn refused(body: &[u8]) -> Refused {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
    Refused { category: text("category"), message: text("message") }
}

/// True if `event` matches the event `pattern`.
fn matches(pattern: &Map, event: &Value) -> bool {
    let mut matcher = Quamina::new();
    let pattern = Value::Object(pattern.clone()).to_string();
    if let Err(error) = matcher.add_pattern("rule".to_owned(), &pattern) {
        panic!("the event pattern {pattern} cannot be matched here: {error}");
    }
    matcher.matches_for_event(event.to_string().as_bytes()).is_ok_and(|found| !found.is_empty())
}
