//! Runs of a task, each step committed as an engine does whose layer publishes events of the task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use dormouse_aws::{Belongings, DynamoDbStateStore, Meter, RetryPolicy, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Append, Claim, ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, EndOfStream, GrowingLists, IdSource,
    InvocationRecord, InvocationStatus, InvocationWrite, Invocations, Journal, JournalConflict, Map, NodePosition,
    Owner, PausedInvocation, ProgressFrom, Records, SessionExpectation, SessionWrite, Sessions, SharedField,
    SharedItems, SharedMap, SignalDescriptor, StepWritten, StoredList, StreamEnd, StreamEntry, StreamTip, SuspendFrom,
};
use dormouse_system::RandomIds;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::faults::Faults;

pub(crate) const TABLE: &str = "dormouse";
pub(crate) const TASK: &str = "task_1";
/// The session of the task, and the stream of its events.
pub(crate) const SESSION: &str = "session_1";
/// Fields that a state may have.
const FIELDS: [&str; 4] = ["messages", "notes", "outputs", "plan"];
/// Those of them that its session keeps.
const KEPT: [&str; 2] = ["messages", "notes"];
/// Those of them that are lists which only grow.
const GROWING: [&str; 2] = ["messages", "outputs"];

/// Requests and units, by operation.
pub(crate) type Spent = BTreeMap<String, (u64, f64)>;

/// True if a step was noted: in one request for one item.
pub(crate) fn is_noted(spent: &Spent) -> bool {
    spent.keys().eq(["PutItem"]) && spent["PutItem"].0 == 1
}

/// True if a step was written whole.
pub(crate) fn is_whole(spent: &Spent) -> bool {
    spent.get("TransactWriteItems").is_some_and(|(requests, _)| *requests == 1)
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("an instant")
}

/// A table, for as many processes as there are.
pub(crate) struct Bench {
    pub(crate) embedded: EmbeddedDynamoDb,
    pub(crate) faults: Faults,
    meter: Meter,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
        Self { embedded, faults: Faults::default(), meter: Meter::with_units() }
    }

    /// The store as a process has it that knows nothing of any other.
    pub(crate) fn process(&self) -> DynamoDbStateStore {
        self.process_trying(RetryPolicy::default().attempts)
    }

    /// The same, where a request is sent so many times.
    pub(crate) fn process_trying(&self, attempts: u32) -> DynamoDbStateStore {
        let retry = RetryPolicy { attempts, ..RetryPolicy::default() };
        self.process_of(StoreConfig { retry, ..StoreConfig::default() })
    }

    fn process_of(&self, store: StoreConfig) -> DynamoDbStateStore {
        let config = self.embedded.config().interceptor(self.meter.clone()).interceptor(self.faults.clone());
        DynamoDbStateStore::new(&Client::from_conf(config.build()), TABLE, store)
    }

    /// Erases the task and its session, by so many items of the table at a time.
    pub(crate) async fn erase(&self, page_size: i32) {
        let process = self.process_of(StoreConfig { page_size, ..StoreConfig::default() });
        let owners = [SESSION.to_owned(), TASK.to_owned()].into();
        let belongings = Belongings { owners, ..Belongings::default() };
        process.eraser().erase(&belongings).await.expect("it erases");
    }

    /// The keys of all that is in the table, beside fences.
    pub(crate) async fn left(&self) -> Vec<[String; 2]> {
        let scanned = self.embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
        let left = scanned.items.unwrap_or_default().into_iter().filter(|item| !item.contains_key("fenced_by"));
        left.map(|item| ["pk", "sk"].map(|name| item[name].as_s().expect("a text").clone())).collect()
    }

    /// The same, each of whose requests waits at a gate.
    pub(crate) fn gated(&self) -> (DynamoDbStateStore, Gate) {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        let config = self.embedded.config().build();
        let inner = config.http_client().expect("the client of the store");
        let client = GatedClient { inner, arrivals, permits: permits.clone() };
        let client = Client::from_conf(config.to_builder().http_client(client).build());
        let config = StoreConfig { attempt_timeout: Duration::from_secs(600), ..StoreConfig::default() };
        (DynamoDbStateStore::new(&client, TABLE, config), Gate { arrived, permits })
    }

    /// Requests and units since the last time.
    pub(crate) fn spent(&self) -> Spent {
        let spent = self.meter.snapshot().into_iter().map(|(name, usage)| (name, (usage.requests, usage.units)));
        let spent = spent.collect();
        self.meter.reset();
        spent
    }
}

/// Where the requests of a process wait. Without it they pass.
pub(crate) struct Gate {
    arrived: mpsc::UnboundedReceiver<()>,
    permits: Arc<Semaphore>,
}

impl Gate {
    /// The outcome of `call`, whose requests pass one by one; before each of them `between` is done, given its number from 0.
    pub(crate) async fn drive<T>(&mut self, call: impl Future<Output = T>, mut between: impl AsyncFnMut(usize)) -> T {
        let mut call = std::pin::pin!(call);
        let mut number = 0;
        loop {
            tokio::select! {
                outcome = &mut call => return outcome,
                Some(()) = self.arrived.recv() => {
                    between(number).await;
                    number += 1;
                    self.permits.add_permits(1);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
struct GatedClient {
    inner: SharedHttpClient,
    arrivals: mpsc::UnboundedSender<()>,
    permits: Arc<Semaphore>,
}

#[derive(Debug)]
struct GatedConnector {
    inner: SharedHttpConnector,
    gate: GatedClient,
}

impl HttpClient for GatedClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(GatedConnector { inner, gate: self.clone() })
    }
}

impl HttpConnector for GatedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, gate) = (self.inner.clone(), self.gate.clone());
        HttpConnectorFuture::new(async move {
            if gate.arrivals.send(()).is_ok() {
                gate.permits.acquire().await.expect("it is never closed").forget();
            }
            inner.call(request).await
        })
    }
}

/// A run of the task, as its worker has it.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) store: DynamoDbStateStore,
    pub(crate) owner: Owner,
    /// The end of its claim.
    pub(crate) until: i64,
    pub(crate) fields: BTreeMap<&'static str, SharedField>,
    /// Its place, as the next step commits it.
    pub(crate) paused: PausedInvocation,
    /// As it was committed last.
    pub(crate) committed: PausedInvocation,
    /// The version of the session, as it counts its own saves.
    pub(crate) version: u64,
    /// The end of the stream.
    pub(crate) tip: StreamTip,
    /// False if it publishes nothing, as a turn that is no task.
    pub(crate) publishes: bool,
    from: ProgressFrom,
    stored: Vec<StoredList>,
}

impl Run {
    /// A run of which nothing is stored.
    pub(crate) fn fresh(store: DynamoDbStateStore) -> Self {
        let paused = PausedInvocation {
            session_id: Some(SESSION.into()),
            under_way: true,
            begun_for: Some("acme".to_owned()),
            ..PausedInvocation::before_first_pause(TASK.into(), "agent", at(0))
        };
        Self {
            store,
            owner: "worker-a".into(),
            until: 60,
            fields: BTreeMap::new(),
            committed: paused.clone(),
            paused,
            version: 0,
            tip: StreamTip::default(),
            publishes: true,
            from: ProgressFrom::Fresh,
            stored: Vec::new(),
        }
    }

    /// The run as one that publishes an event with each step, or nothing.
    pub(crate) fn publishing(self, publishes: bool) -> Self {
        Self { publishes, ..self }
    }

    /// The run as one that publishes nothing.
    pub(crate) fn quiet(self) -> Self {
        self.publishing(false)
    }

    /// A run with so many steps, the first of which was written whole, and each of the others noted.
    pub(crate) async fn with_steps(bench: &Bench, steps: usize) -> Self {
        Self::fresh(bench.process()).going(bench, steps).await
    }

    /// The same of a run of which nothing is stored.
    pub(crate) async fn going(mut self, bench: &Bench, steps: usize) -> Self {
        self.step().await.expect("the first step is written");
        for _ in 1..steps {
            self.noted_step(bench).await;
        }
        self
    }

    /// The run as `owner` takes it over at `now`.
    pub(crate) async fn taken_over(store: DynamoDbStateStore, owner: &str, now: i64) -> Self {
        let request = claim_request(owner, now);
        let outcome = store.claim(&request).await.expect("an answer");
        let ClaimOutcome::Granted(record) = outcome else { panic!("{outcome:?}") };
        Self::of_record(store, &request, *record).await
    }

    /// The run as who was granted `request` goes on with it.
    pub(crate) async fn of_record(store: DynamoDbStateStore, request: &ClaimRequest, record: InvocationRecord) -> Self {
        let InvocationRecord { status, paused, stored, .. } = record;
        let InvocationStatus::Resuming(claim) = status else { panic!("{status:?}") };
        assert_eq!(claim.owner, request.owner);
        let fields = FIELDS.iter().filter_map(|name| Some((*name, field(name, paused.state.get(name)?))));
        Self {
            owner: request.owner.clone(),
            until: request.until.duration_since(at(0)).as_secs(),
            fields: fields.collect(),
            committed: paused.clone(),
            version: paused.session_version.expect("it is of a session"),
            paused,
            tip: store.tip(SESSION).await.expect("an answer"),
            publishes: true,
            from: ProgressFrom::Claimed(request.owner.clone()),
            stored,
            store,
        }
    }

    /// Adds `item` to a list.
    pub(crate) fn grow(&mut self, name: &'static str, item: Value) {
        let (items, mut list) = match self.fields.get(name) {
            Some(SharedField::Items(items)) => (items.clone(), list_of(items)),
            Some(SharedField::Value(_)) | None => (SharedItems::default(), Vec::new()),
        };
        list.push(item);
        self.fields.insert(name, SharedField::Items(items.grown(&list)));
    }

    /// Sets a field to another value.
    pub(crate) fn set(&mut self, name: &'static str, value: &Value) {
        self.fields.insert(name, field(name, value));
    }

    /// The items of a list.
    pub(crate) fn list(&self, name: &str) -> Vec<Value> {
        match self.fields.get(name) {
            Some(SharedField::Items(items)) => list_of(items),
            Some(SharedField::Value(_)) | None => Vec::new(),
        }
    }

    /// Comes to the place behind the next step.
    pub(crate) fn advance(&mut self) {
        let node: Arc<str> = if self.paused.step.is_multiple_of(2) { "model".into() } else { "tools".into() };
        let (step, attempt_index) = (self.paused.step, 0);
        let position =
            NodePosition { namespace: Vec::new(), node_name: node.clone(), step, attempt_index, fan_out_index: None };
        self.paused.namespace = vec![node.clone()];
        self.paused.suspended_at_node = vec![node];
        self.paused.suspended_step = step;
        self.paused.completed_positions = vec![position];
        self.paused.step += 1;
    }

    /// Comes to the place behind the next step, in which something is said.
    pub(crate) fn say(&mut self) {
        self.advance();
        let said = format!("what {} says in step {}", self.owner, self.paused.step);
        self.grow("messages", json!({ "role": "assistant", "content": said }));
    }

    /// The state that is committed next.
    pub(crate) fn state(&self) -> SharedMap {
        SharedMap::of_fields(self.fields.iter().map(|(name, field)| (Arc::from(*name), field.clone())))
    }

    /// What the session keeps of it.
    pub(crate) fn kept(&self) -> SharedMap {
        let kept = self.fields.iter().filter(|(name, _)| KEPT.contains(name));
        SharedMap::of_fields(kept.map(|(name, field)| (Arc::from(*name), field.clone())))
    }

    /// The claim under which it goes on.
    pub(crate) fn claim(&self) -> Claim {
        let (owner, until) = (self.owner.clone(), at(self.until));
        Claim { owner, until, payload: Map::new(), attempts: 1, taken_over: false }
    }

    /// The next step.
    pub(crate) fn progress(&self) -> Commit {
        let (state, session_version) = (self.state(), Some(self.version + 1));
        let paused = Box::new(PausedInvocation { state, session_version, ..self.paused.clone() });
        self.saving(InvocationWrite::Progress { paused, from: self.from.clone(), claim: Some(self.claim()) })
    }

    /// A pause, at which a signal is waited for.
    pub(crate) fn suspend(&self) -> Commit {
        let paused = PausedInvocation {
            state: self.state(),
            session_version: Some(self.version + 1),
            under_way: false,
            generation: 1,
            descriptor: SignalDescriptor::new("approved"),
            ..self.paused.clone()
        };
        let from = SuspendFrom::Claimed { owner: self.owner.clone(), previous: Box::new(self.committed.clone()) };
        self.saving(InvocationWrite::Suspend { paused: Box::new(paused), from, claim: None, early: Vec::new() })
    }

    /// Its end.
    pub(crate) fn complete(&self) -> Commit {
        let (owner, state) = (self.owner.clone(), self.state().into_map());
        self.saving(InvocationWrite::Complete { paused: Box::new(self.committed.clone()), owner, state })
    }

    /// A save of the session in the midst of a step.
    pub(crate) fn held_save(&self) -> Commit {
        let (invocation_id, owner) = (TASK.into(), self.owner.clone());
        self.saving(InvocationWrite::AssertClaimed { invocation_id, generation: 0, owner })
    }

    /// The same without a condition on the claim: no step was noted before.
    pub(crate) fn free_save(&self) -> Commit {
        Commit { invocation: None, journal: Journal::default(), ..self.held_save() }
    }

    /// `write` with a save of the session, and what it publishes.
    fn saving(&self, write: InvocationWrite) -> Commit {
        let save = Some((self.kept(), "1".to_owned()));
        let session = session_write(self.version, save);
        let fields = GROWING.map(Arc::<str>::from).to_vec();
        let growing = GrowingLists { fields, stored: self.stored.clone() };
        Commit { session: Some(session), growing, ..self.telling(write) }
    }

    /// `write` with an event, if it publishes some.
    pub(crate) fn telling(&self, write: InvocationWrite) -> Commit {
        let told = telling(write, &self.tip);
        if self.publishes { told } else { Commit { journal: Journal::default(), ..told } }
    }

    /// Writes `commit`.
    pub(crate) async fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        let written = self.store.step(commit).await?;
        self.written(commit, written).await;
        Ok(())
    }

    /// Knows that `commit` was written so.
    async fn written(&mut self, commit: &Commit, written: StepWritten) {
        if let Some(InvocationWrite::Progress { paused, .. }) = &commit.invocation {
            self.committed = (**paused).clone();
        }
        self.from = ProgressFrom::Claimed(self.owner.clone());
        self.version += u64::from(commit.session.is_some() && written == StepWritten::Whole);
        self.catch_up().await;
    }

    /// Reads the end of the stream.
    pub(crate) async fn catch_up(&mut self) {
        self.tip = self.store.tip(SESSION).await.expect("an answer");
    }

    /// Says something, and commits that as a step.
    pub(crate) async fn step(&mut self) -> Result<(), CommitError> {
        self.say();
        let commit = self.progress();
        self.commit(&commit).await
    }

    /// Writes `commit`, and tells what that takes.
    pub(crate) async fn costs(&mut self, bench: &Bench, commit: &Commit) -> Spent {
        bench.spent();
        let written = self.store.step(commit).await.expect("it is written");
        let spent = bench.spent();
        self.written(commit, written).await;
        spent
    }

    /// The same of a step in which something is said.
    pub(crate) async fn step_costs(&mut self, bench: &Bench) -> Spent {
        self.say();
        let commit = self.progress();
        self.costs(bench, &commit).await
    }

    pub(crate) async fn noted_step(&mut self, bench: &Bench) {
        let spent = self.step_costs(bench).await;
        assert!(is_noted(&spent), "{spent:?}");
    }

    pub(crate) async fn whole_step(&mut self, bench: &Bench) {
        let spent = self.step_costs(bench).await;
        assert!(is_whole(&spent), "{spent:?}");
    }

    /// The pause as it is told to who reads it while the session is stored with `version`.
    pub(crate) fn told(&self, version: u64) -> PausedInvocation {
        PausedInvocation { session_version: Some(version), ..self.committed.clone() }
    }

    /// Checks that `reader` is told what was committed last.
    pub(crate) async fn check(&self, reader: &DynamoDbStateStore) {
        let (version, _) = session(reader).await;
        let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        assert_eq!(record.paused, self.told(version));
        assert_eq!(record.status, InvocationStatus::Resuming(self.claim()));
    }
}

/// The value `value` of the field `name`, as an engine has it.
fn field(name: &str, value: &Value) -> SharedField {
    match value.as_array().filter(|_| GROWING.contains(&name)) {
        Some(list) => SharedField::Items(SharedItems::default().grown(list)),
        None => SharedField::Value(Arc::new(value.clone())),
    }
}

fn list_of(items: &SharedItems) -> Vec<Value> {
    let list = SharedField::Items(items.clone()).part().to_value();
    list.as_array().cloned().expect("a list")
}

/// A save of the session, where it is stored with `version`.
pub(crate) fn session_write(version: u64, save: Option<(SharedMap, String)>) -> SessionWrite {
    let expect = SessionExpectation::Version(version);
    SessionWrite { session_id: SESSION.into(), save, expect, lease: None, release: false }
}

/// What another turn of the session saves, where it is stored with `version`.
pub(crate) fn saved_by_another(version: u64) -> (Commit, Map) {
    let said = format!("what another turn says behind {version}");
    let state = Map::from_iter([("messages".to_owned(), json!([{ "role": "user", "content": said }]))]);
    let session = Some(session_write(version, Some((state.clone().into(), "1".to_owned()))));
    (Commit { session, ..Commit::new(RandomIds.fresh(), at(0)) }, state)
}

/// `write` with an event behind `tip`.
pub(crate) fn telling(write: InvocationWrite, tip: &StreamTip) -> Commit {
    let journal = Journal::new(Vec::new(), vec![append_behind(tip)]);
    Commit { invocation: Some(write), journal, ..Commit::new(RandomIds.fresh(), at(0)) }
}

/// One event behind `tip`.
pub(crate) fn append_behind(tip: &StreamTip) -> Append {
    let first = tip.position + 1;
    let [entry, known] = ["n", "upto"].map(|name| Map::from_iter([(name.to_owned(), first.into())]));
    let end = StreamEnd::Append(EndOfStream { known, behind: tip.at, ..EndOfStream::default() });
    Append { stream: SESSION.to_owned(), end, first, entries: vec![entry], fed: None }
}

/// Takes the run over at `now`, if the claim of its worker is over.
pub(crate) fn claim_request(owner: &str, now: i64) -> ClaimRequest {
    ClaimRequest {
        invocation_id: TASK.into(),
        generation: Some(0),
        owner: owner.into(),
        now: at(now),
        until: at(now + 60),
        past: None,
        payload: None,
        answered: None,
    }
}

/// Version and state of the session as it is stored.
pub(crate) async fn session(reader: &DynamoDbStateStore) -> (u64, Map) {
    let loaded = reader.load_session(&SESSION.into(), None).await.expect("an answer");
    loaded.record.map(|record| (record.version, record.state)).unwrap_or_default()
}

/// True if a step was refused because its worker has the run no more, whichever of its conditions says so.
pub(crate) fn is_refused<T>(outcome: &Result<T, CommitError>) -> bool {
    is_behind(outcome) || matches!(outcome, Err(CommitError::InvocationConflict | CommitError::SessionConflict))
}

/// True if somebody else has appended to the stream meanwhile.
pub(crate) fn is_behind<T>(outcome: &Result<T, CommitError>) -> bool {
    matches!(outcome, Err(CommitError::Journal(JournalConflict::Stream(stream))) if stream == SESSION)
}

/// Checks that every read of the stream gives the events 1 to `last`, each once, and nothing else.
pub(crate) async fn check_stream(reader: &DynamoDbStateStore, last: u64) {
    let numbers = |entries: &[StreamEntry]| {
        let number = |one: &StreamEntry| (one.position, one.entry.get("n").and_then(Value::as_u64));
        entries.iter().map(number).collect::<Vec<_>>()
    };
    let expected = |after: u64, limit: usize| (after + 1..=last).map(|n| (n, Some(n))).take(limit).collect::<Vec<_>>();
    for after in 0..=last + 1 {
        for limit in [1, 2, 1_000] {
            let entries = reader.entries(SESSION, after, limit).await.expect("an answer");
            assert_eq!(numbers(&entries), expected(after, limit), "{limit} behind {after}");
        }
    }
    for limit in [1, 3, 1_000] {
        let mut told: Vec<StreamEntry> = Vec::new();
        loop {
            let after = told.last().map_or(0, |entry| entry.position);
            let stretch = reader.stretch(SESSION, after, limit).await.expect("an answer");
            assert!(!stretch.entries.is_empty() || !stretch.more, "nothing behind {after}, and more");
            told.extend(stretch.entries);
            if !stretch.more {
                break;
            }
        }
        assert_eq!(numbers(&told), expected(0, 1_000), "stretches of {limit}");
    }
    for position in 1..=last {
        let entry = reader.entry(SESSION, position).await.expect("an answer");
        assert_eq!(numbers(entry.as_slice()), [(position, Some(position))]);
        let row = reader.append_of(SESSION, position).await.expect("an answer").expect("an append");
        assert!((row.first..row.first + row.count).contains(&position), "{position}: {row:?}");
    }
    assert_eq!(reader.entry(SESSION, last + 1).await.expect("an answer"), None);
    assert_eq!(reader.append_of(SESSION, last + 1).await.expect("an answer"), None);
    let tip = reader.tip(SESSION).await.expect("an answer");
    let known = tip.known.unwrap_or_default();
    assert_eq!((tip.position, known.get("upto").and_then(Value::as_u64)), (last, Some(last)));
}
