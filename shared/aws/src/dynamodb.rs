//! Durable state in one DynamoDB table.
//!
//! # Invariants
//! - State is stored as the bytes of its JSON, never as a DynamoDB map: number types and key order survive.
//! - Records that must change together change in one `TransactWriteItems`; a change of a single item is a plain
//!   conditional update at half the price.
//! - A state up to [`StoreConfig::inline_limit`] (encoded) lives inside its item: one round trip loads it. A larger
//!   one is written before the transaction as content-addressed chunks that nothing points at until it commits.
//! - Of a list that only grows a save writes the new items, as pieces beside the state (`segments`).
//! - Every read is strongly consistent. TTL only clears the ground: readers decide themselves about expiry.

mod batch;
mod blobs;
mod brief;
mod checkpoint;
mod claim_index;
mod codec;
mod collect;
mod commit;
mod counters;
mod encode;
mod erase;
mod fault;
mod invocation;
mod item;
mod journal;
mod keys;
mod marks;
mod pending;
mod plan;
mod recent;
mod requests;
mod retry;
mod rows;
mod rules;
mod scan;
mod segments;
mod session;
mod signal;
mod steps;
mod table;
mod upkeep;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, Cancellation, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits,
    Counters, Diagnostics, Document, DocumentKey, DocumentWrite, DocumentWrites, EntryStretch, FeedPage, FeedRequest,
    FeedRow, Garbage, GcReport, IndexRepair, InvocationId, InvocationRecord, InvocationSummary, Invocations,
    LeaseRequest, ListRequest, LoadedInvocation, LoadedSession, Notes, Page, ParkedRow, PausedInvocation, PendingRow,
    PutAside, Records, RuleEntries, RuleEntry, RuleIncarnation, RuleUpdate, SessionFilter, SessionId, SessionSummary,
    Sessions, ShapeId, SignalId, SignalRecord, Signals, Sleepers, StepWritten, StoreError, StreamEntry, StreamTip,
    Surroundings, limits,
};
use dormouse_system::SystemClock;
use jiff::{SignedDuration, Timestamp};

use blobs::Bodies;
use collect::GarbageCollector;
use commit::CommitWriter;
use invocation::InvocationItems;
use journal::{DocumentItems, StreamItems};
use pending::{PauseReader, SleeperIndex};
use requests::Table;
use rules::RuleItems;
use session::SessionItems;
use signal::SignalItems;
use steps::StepNotes;
use upkeep::NoteItems;

pub use checkpoint::DynamoDbCheckpointer;
pub use erase::{Belongings, EraseSearch, Erased, Eraser};
pub use retry::RetryPolicy;
pub use table::{TABLE_RESOURCE_NAME, ensure_table, table_resource};

/// Limits and lifetimes of a [`DynamoDbStateStore`].
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Encoded bytes up to which a state lives inside its item.
    ///
    /// Inside a transaction every KB costs two write units, and a session and its pause carry the state twice; taking
    /// a lease or a claim rewrites it once more. As a blob the two share one plain put, at the price of a round trip
    /// to write, one to read, and a blob that a sweep collects later. The default keeps about 4 KB of ordinary
    /// JSON inside, so that such a state costs no round trip of its own; beyond it units would outgrow the time saved.
    /// ItemWrite units are least at about 768, where an item with its state stays under 1 KB.
    pub inline_limit: usize,
    /// Encoded bytes up to which a state stays whole; of a larger one, and of every one that grows out of it, the lists
    /// that only grow are kept in pieces, of which a save writes only the new ones.
    ///
    /// Loading such a state takes one more request. It pays from where session and pause, which carry the state twice
    /// at double price, would be written as second kilobytes.
    pub whole_limit: usize,
    /// Encoded bytes above which a state or payload is refused as [`StoreError::TooLarge`].
    pub state_limit: usize,
    /// Number of items that a page of a listing reads.
    pub page_size: i32,
    /// Duration for which the result of a finished invocation is kept for clients that ask again.
    pub finished_kept: Duration,
    /// Duration for which a delivered signal is remembered, to answer duplicates with the invocation that it moved.
    pub delivered_kept: Duration,
    /// Duration for which the checkpoint of an invocation is kept after its last save.
    pub checkpoint_kept: Duration,
    /// True if the processes that serve the store wake by the index of suspended invocations itself: there is nothing
    /// else to register then.
    pub wakes_by_index: bool,
    /// Name of the place at which wake-ups are registered: another table, group of schedules or function is another one.
    /// What is noted as registered elsewhere counts as not registered, so that sweeps of whoever takes over a table, or
    /// serves one that was restored, register it again. Without it every such note counts.
    pub registered_at: Option<String>,
    /// Policy for the repetition of requests.
    pub retry: RetryPolicy,
    /// Time that one attempt may take before it counts as lost.
    pub attempt_timeout: Duration,
    /// Time after the instant of its attempt within which a commit may still take effect: the time of the rows that are
    /// written ahead of it, the time of an attempt, the time that the table takes to drop a request that no client waits
    /// for any more, and the difference of clocks. Feeds are
    /// complete up to this long before the present.
    pub under_way: Duration,
}

impl Default for StoreConfig {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            inline_limit: 2 * 1024,
            whole_limit: 768,
            state_limit: limits::STATE,
            page_size: 100,
            finished_kept: 30 * DAY,
            delivered_kept: 7 * DAY,
            checkpoint_kept: 30 * DAY,
            wakes_by_index: false,
            registered_at: None,
            retry: RetryPolicy::default(),
            attempt_timeout: Duration::from_secs(3),
            under_way: Duration::from_secs(5),
        }
    }
}

/// The [`StateStore`](dormouse_ports::StateStore) on DynamoDB, and the [`Records`] of its journals: each port with the
/// items that it is about. Cloning is cheap and shares the connections.
#[derive(Clone)]
pub struct DynamoDbStateStore {
    sessions: SessionItems,
    invocations: InvocationItems,
    signals: SignalItems,
    commits: CommitWriter,
    documents: DocumentItems,
    streams: StreamItems,
    rules: RuleItems,
    notes: NoteItems,
    sleepers: SleeperIndex,
    pauses: PauseReader,
    collector: GarbageCollector,
    /// See [`StoreConfig::under_way`].
    under_way: SignedDuration,
}

impl fmt::Debug for DynamoDbStateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commits = &self.commits;
        f.debug_struct("DynamoDbStateStore")
            .field("table", &commits.table.name)
            .field("config", &commits.bodies.config)
            .finish_non_exhaustive()
    }
}

impl DynamoDbStateStore {
    /// A store in the table `table_name`, reached as `client` is configured.
    ///
    /// Retries are done here, where it is known which of them are safe: those of the client are switched off.
    pub fn new(client: &Client, table_name: impl Into<String>, config: StoreConfig) -> Self {
        let under_way = SignedDuration::try_from(config.under_way).unwrap_or(SignedDuration::MAX);
        let (wakes_by_index, registered_at) = (config.wakes_by_index, config.registered_at.clone());
        let (table, bodies) = opened(client, table_name.into(), config);
        let notes = StepNotes { table: table.clone(), bodies: bodies.clone() };
        let invocations = InvocationItems { table: table.clone(), bodies: bodies.clone(), notes: notes.clone() };
        let signals = SignalItems { table: table.clone(), bodies: bodies.clone() };
        let sleepers = SleeperIndex { table: table.clone(), wakes_by_index, registered_at };
        let (clock, recent, steps) = (Arc::new(SystemClock::default()), Arc::default(), Arc::default());
        Self {
            sessions: SessionItems { table: table.clone(), bodies: bodies.clone() },
            documents: DocumentItems { table: table.clone(), bodies: bodies.clone() },
            streams: StreamItems { table: table.clone(), bodies: bodies.clone() },
            rules: RuleItems { table: table.clone() },
            notes: NoteItems { table: table.clone() },
            sleepers: sleepers.clone(),
            pauses: PauseReader { sleepers, signals: signals.clone() },
            collector: GarbageCollector {
                table: table.clone(),
                bodies: bodies.clone(),
                invocations: invocations.clone(),
            },
            commits: CommitWriter {
                table,
                bodies,
                signals: signals.clone(),
                clock,
                recent,
                steps,
                notes,
                invocations: invocations.clone(),
            },
            invocations,
            signals,
            under_way,
        }
    }

    /// The same by another clock than that of the machine.
    #[must_use]
    pub fn timed_by(self, clock: Arc<dyn Clock>) -> Self {
        Self { commits: CommitWriter { clock, ..self.commits }, ..self }
    }

    /// What erases from the table.
    pub fn eraser(&self) -> Eraser {
        let CommitWriter { table, bodies, clock, .. } = &self.commits;
        let documents = self.documents.clone();
        Eraser { table: table.clone(), documents, bodies: bodies.clone(), clock: clock.clone() }
    }
}

/// The table `name`, reached as `client` is configured but for retries, and what lies in it beside items.
fn opened(client: &Client, name: String, config: StoreConfig) -> (Arc<Table>, Arc<Bodies>) {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(config.attempt_timeout);
    let timeouts = match client.config().timeout_config() {
        Some(given) => timeouts.take_unset_from(given.clone().into_builder()),
        None => timeouts,
    };
    let own = client.config().to_builder().retry_config(RetryConfig::disabled()).timeout_config(timeouts.build());
    let (page_size, retry) = (config.page_size, config.retry.clone());
    let table = Arc::new(Table { client: Client::from_conf(own.build()), name, page_size, retry });
    (table.clone(), Arc::new(Bodies { table, config }))
}

#[async_trait]
impl Sessions for DynamoDbStateStore {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        match lease {
            Some(request) => self.sessions.lease(id, request).await,
            None => self.sessions.read(id).await,
        }
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.sessions.remove(id).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        self.sessions.list(filter, cursor).await
    }
}

#[async_trait]
impl Invocations for DynamoDbStateStore {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.invocations.read(id).await
    }

    async fn load_invocations(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        self.invocations.read_all(ids).await
    }

    async fn load_pauses(&self, ids: &[InvocationId]) -> Result<Vec<LoadedInvocation>, StoreError> {
        self.invocations.read_pauses(ids).await
    }

    async fn cancellation(&self, id: &InvocationId) -> Result<Option<Cancellation>, StoreError> {
        self.invocations.cancellation(id).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        self.invocations.glance_at(ids).await
    }
}

#[async_trait]
impl Signals for DynamoDbStateStore {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        self.signals.read(id, now).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        self.signals.park(id, signal).await
    }
}

#[async_trait]
impl Commits for DynamoDbStateStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.invocations.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.commits.write(commit).await
    }

    async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        self.commits.step(commit).await
    }
}

#[async_trait]
impl DocumentWrites for DynamoDbStateStore {
    async fn write_document(&self, write: &DocumentWrite, name: &str, now: Timestamp) -> Result<bool, StoreError> {
        self.documents.put(write, name, now).await
    }
}

#[async_trait]
impl Sleepers for DynamoDbStateStore {
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        self.sleepers.pending(due_by, cursor).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.sleepers.row(paused).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.sleepers.dead_claims(now).await
    }

    async fn put_aside(&self) -> Result<PutAside, StoreError> {
        self.sleepers.put_aside().await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.sleepers.parked(cursor).await
    }

    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        self.sleepers.repair(repair).await
    }
}

#[async_trait]
impl RuleEntries for DynamoDbStateStore {
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        self.rules.touch(shape, fresh, now).await
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        self.rules.all().await
    }

    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        self.rules.update(update).await
    }
}

#[async_trait]
impl Notes for DynamoDbStateStore {
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.notes.read(name).await
    }

    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError> {
        self.notes.keep(name, text, until).await
    }
}

#[async_trait]
impl Garbage for DynamoDbStateStore {
    async fn collect_garbage(&self, now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError> {
        self.collector.collect(now, cursor).await
    }
}

#[async_trait]
impl Diagnostics for DynamoDbStateStore {
    async fn surroundings(
        &self,
        paused: &[&PausedInvocation],
        now: Timestamp,
    ) -> Result<Vec<Surroundings>, StoreError> {
        self.pauses.surroundings(paused, now).await
    }
}

#[async_trait]
impl Records for DynamoDbStateStore {
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.documents.read(key, now).await
    }

    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.documents.counters(key).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.documents.list(request).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.streams.entries(stream, after, limit).await
    }

    async fn stretch(&self, stream: &str, after: u64, limit: usize) -> Result<EntryStretch, StoreError> {
        self.streams.stretch(stream, after, limit).await
    }

    async fn entry(&self, stream: &str, position: u64) -> Result<Option<StreamEntry>, StoreError> {
        self.streams.entry(stream, position).await
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        self.streams.tip(stream).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.streams.append_of(stream, position).await
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.streams.feed(request).await
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.under_way).unwrap_or(Timestamp::MIN)
    }
}
