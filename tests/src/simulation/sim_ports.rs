mod services;

use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{
    BufferOutcome, BufferedSignal, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, Counters,
    Diagnostics, Document, DocumentKey, FeedPage, FeedRequest, FeedRow, Garbage, GcReport, IndexRepair, InvocationId,
    InvocationRecord, InvocationSummary, InvocationWrite, Invocations, LeaseRequest, ListRequest, LoadedSession, Notes,
    Page, ParkedRow, PausedInvocation, PendingRow, PutAside, Records, RuleEntries, RuleEntry, RuleIncarnation,
    RuleUpdate, SessionFilter, SessionId, SessionSummary, Sessions, ShapeId, SignalId, SignalRecord, Signals, Sleepers,
    StoreError, StreamEntry, StreamTip,
};
use futures::future;
use jiff::{SignedDuration, Timestamp};

use super::PlantedBug;
use super::dynamodb::{DROPPED, dropped};
use super::fault_plan::Fault;
use super::history::Violation;
use super::intent::{Intent, Within};
use super::outside::{Outside, at_once, is_what_counts};
use super::pending_call::{Call, PendingCall, Phase, REFUSED};
use super::planted;
use super::poison::Place;
use super::world::{ProcessId, World};
use crate::in_process::{Body, Said, throttled};

/// How much earlier than a commit is made the work for it began.
const EARLY: SignedDuration = SignedDuration::from_secs(10);

impl std::fmt::Debug for SimPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimPorts").field("process", &self.process).finish_non_exhaustive()
    }
}

/// All ports of one process, or of whichever process runs. Every call becomes a ticket, and the simulator decides what
/// comes of it.
pub(crate) struct SimPorts {
    world: World,
    process: Option<ProcessId>,
    /// By how much this process's clock is wrong.
    skew: SignedDuration,
    planted: Option<PlantedBug>,
}

impl SimPorts {
    /// The ports of `process`.
    pub(crate) fn of(world: World, process: ProcessId, planted: Option<PlantedBug>) -> Self {
        let skew = SignedDuration::from_millis(world.lock().chance.i64(-2000..=2000));
        Self { world, process: Some(process), skew, planted }
    }

    /// The ports of whichever process runs: for nodes, whose graphs all processes share.
    pub(crate) fn of_nodes(world: World) -> Self {
        Self { world, process: None, skew: SignedDuration::ZERO, planted: None }
    }

    /// Whether a node of this process fails now.
    pub(crate) fn node_fails(&self) -> bool {
        let mut world = self.world.lock();
        let world = &mut *world;
        world.fault_plan.strikes(Fault::NodeFailed, &mut world.chance)
    }

    /// Kills the running process if that is what `invocation` does at `place`.
    pub(crate) async fn poison(&self, invocation: &str, place: Place) {
        if self.world.lock().dies_of(invocation, place) {
            future::pending::<()>().await;
        }
    }

    /// The bug that the nodes of all processes have.
    pub(crate) fn planted_in_nodes(&self) -> Option<PlantedBug> {
        self.world.lock().planted
    }

    /// The number of the next entry that a node records.
    pub(crate) fn next_entry(&self) -> u64 {
        self.world.lock().next_entry()
    }

    /// A stretch of time that a node takes.
    pub(crate) fn dawdling(&self) -> Duration {
        let mut world = self.world.lock();
        let longest = if world.chance.u8(..8) == 0 { 8_000 } else { 50 };
        Duration::from_millis(world.chance.u64(..longest))
    }

    /// When a lease or a claim shall end that is asked for until `until`: years later where the clock is wrong just now.
    pub(crate) fn end(&self, until: Timestamp) -> Timestamp {
        let mut world = self.world.lock();
        let world = &mut *world;
        match world.fault_plan.strikes(Fault::ClockAhead, &mut world.chance) {
            true => until + SignedDuration::from_hours(world.chance.i64(1..100_000)),
            false => until,
        }
    }

    /// The bug that is put in.
    pub(crate) fn planted(&self) -> Option<PlantedBug> {
        self.planted
    }

    /// Ends when `duration` is over.
    pub(crate) fn nap(&self, duration: Duration) -> impl Future<Output = ()> + Send + Sync + use<> {
        let woken = self.world.lock().sleep(duration);
        async move {
            if woken.await.is_err() {
                // The simulation is over.
                future::pending::<()>().await;
            }
        }
    }

    /// When a commit is sent that is sent now.
    pub(crate) fn sent_at(&self) -> Timestamp {
        let intent = self.world.lock().intent.clone();
        match intent.as_deref() {
            Some(Intent::Commit { commit }) if self.planted == Some(PlantedBug::StampEarly) => commit.now - EARLY,
            _ => self.now(),
        }
    }

    /// Does `work`, whose requests are for `intent`.
    pub(crate) fn within<F: Future>(&self, intent: Intent, work: F) -> Within<F> {
        Within::new(self.world.clone(), intent, work)
    }

    /// Tells of what the process was answered and must never be.
    pub(crate) async fn accuse(&self, invariant: &'static str, how: String) {
        let effect = move |outside: &mut Outside| {
            outside.history.violation.get_or_insert(Violation { invariant, how });
        };
        self.call("accuse", String::new(), effect, |_| ()).await;
    }

    /// Sends a request to the database.
    pub(crate) async fn ask_dynamodb(&self, operation: &'static str, body: Body) -> Said {
        let intent = self.world.lock().intent.clone();
        let about = intent.as_deref().map(about_intent).unwrap_or_default();
        let about = match planted::key(&body) {
            Some((pk, sk)) => format!("{pk} {sk} {about}"),
            None => about,
        };
        let refusal = throttled(operation, &body);
        let world = self.world.clone();
        let asked = self.monotonic();
        let effect = move |outside: &mut Outside| {
            let now = world.now();
            let waited = world.lock().elapsed.saturating_sub(asked);
            if operation == "TransactWriteItems" && waited > DROPPED {
                return Ok(dropped());
            }
            outside.history.published.now = now;
            let answer = outside.ask_dynamodb(operation, &body, intent.as_deref());
            if let (200, Some(Intent::Commit { commit })) = (answer.0, intent.as_deref())
                && is_what_counts(operation, &body)
            {
                world.lock().record_steps(commit);
            }
            Ok(answer)
        };
        let lost = move |why| if why == REFUSED { Ok(refusal.clone()) } else { Err(why) };
        self.call(operation, about, effect, lost).await
    }

    /// The model calls of the run `id` that were recorded; `None` where nothing of it is written.
    pub(crate) fn recorded_steps(&self, id: &InvocationId) -> Option<u64> {
        self.world.lock().recorded_steps.get(id).copied()
    }

    /// Makes a call, which has `effect` if it comes so far; `lost` is what is answered where nobody hears what came of it.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        about: String,
        effect: impl FnOnce(&mut Outside) -> T + Send + 'static,
        lost: impl Fn(&'static str) -> T + Send + 'static,
    ) -> T {
        let (call, answered) = Call::new(effect, lost);
        {
            let mut world = self.world.lock();
            let world = &mut *world;
            // What a signal is put aside for may come while it is being put aside.
            let chances = if operation == "buffer_signal" { 5 } else { 1 };
            let slow = (0..chances).any(|_| world.fault_plan.strikes(Fault::Slow, &mut world.chance));
            let rest = Duration::from_millis(match (slow, world.chance.bool()) {
                (false, _) => 0,
                (true, false) => world.chance.u64(500..20_000),
                // About as long as a claim or a lease lasts, where it begins to matter.
                (true, true) => world.chance.u64(8_000..12_000),
            });
            world.pending_calls.push(PendingCall {
                process: self.process.unwrap_or(world.running),
                operation,
                about,
                phase: Phase::Asked,
                not_before: world.elapsed + rest,
                call: Box::new(call),
            });
        }
        match answered.await {
            Ok(answer) => answer,
            // The simulation is over.
            Err(_) => future::pending().await,
        }
    }

    async fn commit_once(&self, commit: Commit) -> Result<(), CommitError> {
        let about = about_commit(&commit);
        let doubts = self.planted != Some(PlantedBug::DoubtIsNo);
        let lost = move |why| match why {
            REFUSED => Err(unavailable(why).into()),
            _ if !doubts => Err(unavailable(why).into()),
            _ => Err(CommitError::Unknown(why.to_owned())),
        };
        let world = self.world.clone();
        let effect = move |outside: &mut Outside| {
            let done = outside.commit(&commit);
            if done.is_ok() {
                world.lock().record_steps(&commit);
            }
            done
        };
        self.call("commit", about, effect, lost).await
    }
}

#[async_trait]
impl Records for SimPorts {
    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        let (about, key) = (key.to_string(), key.clone());
        let effect = move |outside: &mut Outside| at_once(outside.store.counters(&key));
        self.call("counters", about, effect, |why| Err(unavailable(why))).await
    }

    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        let about = key.to_string();
        let key = key.clone();
        let effect = move |outside: &mut Outside| {
            let document = at_once(outside.store.document(&key, now))?;
            Ok(document.map(|document| outside.store.misread(document)))
        };
        self.call("document", about, effect, |why| Err(unavailable(why))).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        let about = request.list.clone();
        let request = request.clone();
        let effect = move |outside: &mut Outside| at_once(outside.store.documents(&request));
        self.call("documents", about, effect, |why| Err(unavailable(why))).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        let about = stream.to_owned();
        let stream = stream.to_owned();
        let effect = move |outside: &mut Outside| at_once(outside.store.entries(&stream, after, limit));
        self.call("entries", about, effect, |why| Err(unavailable(why))).await
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        let about = stream.to_owned();
        let stream = stream.to_owned();
        let effect = move |outside: &mut Outside| at_once(outside.store.tip(&stream));
        self.call("tip", about, effect, |why| Err(unavailable(why))).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        let about = stream.to_owned();
        let stream = stream.to_owned();
        let effect = move |outside: &mut Outside| at_once(outside.store.append_of(&stream, position));
        self.call("append_of", about, effect, |why| Err(unavailable(why))).await
    }

    /// Everything: what a commit does in memory, it does at once.
    fn settled(&self, _now: Timestamp) -> Timestamp {
        Timestamp::MAX
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        let request = request.clone();
        let effect = move |outside: &mut Outside| at_once(outside.store.feed(&request));
        self.call("feed", String::new(), effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl Sessions for SimPorts {
    async fn load_session(&self, id: &SessionId, lease: Option<&LeaseRequest>) -> Result<LoadedSession, StoreError> {
        let id = id.clone();
        let lease = lease.map(|lease| LeaseRequest { until: self.end(lease.until), ..lease.clone() });
        let about = match &lease {
            Some(lease) => format!("{id}, leased to {}", lease.owner),
            None => id.to_string(),
        };
        let effect = move |outside: &mut Outside| outside.load_session(&id, lease.as_ref());
        self.call("load_session", about, effect, |why| Err(unavailable(why))).await
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        let about = id.to_string();
        let id = id.clone();
        let effect = move |outside: &mut Outside| outside.delete_session(&id);
        self.call("delete_session", about, effect, |why| Err(unavailable(why))).await
    }

    async fn list_sessions(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        let filter = filter.clone();
        let cursor = cursor.map(str::to_owned);
        let effect = move |outside: &mut Outside| outside.list_sessions(&filter, cursor.as_deref());
        self.call("list_sessions", String::new(), effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl Invocations for SimPorts {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        let about = id.to_string();
        let id = id.clone();
        let effect = move |outside: &mut Outside| outside.load_invocation(&id);
        self.call("load_invocation", about, effect, |why| Err(unavailable(why))).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        let about = format!("{} invocations", ids.len());
        let ids = ids.to_vec();
        let effect = move |outside: &mut Outside| at_once(outside.store.glance(&ids));
        self.call("glance", about, effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl Signals for SimPorts {
    async fn load_signal(&self, id: &SignalId, now: Timestamp) -> Result<Option<SignalRecord>, StoreError> {
        let about = id.to_string();
        let id = id.clone();
        let effect = move |outside: &mut Outside| outside.load_signal(&id, now);
        self.call("load_signal", about, effect, |why| Err(unavailable(why))).await
    }

    async fn buffer_signal(&self, id: &SignalId, signal: &BufferedSignal) -> Result<BufferOutcome, StoreError> {
        let about = id.to_string();
        let id = id.clone();
        let signal = signal.clone();
        let effect = move |outside: &mut Outside| outside.buffer_signal(&id, &signal);
        self.call("buffer_signal", about, effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl Commits for SimPorts {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let request = ClaimRequest { until: self.end(request.until), ..request.clone() };
        let pause = request.generation.map_or_else(|| "?".to_owned(), |generation| generation.to_string());
        let about = format!("{}#{pause} for {}", request.invocation_id, request.owner);
        let effect = move |outside: &mut Outside| outside.claim(&request);
        self.call("claim", about, effect, |why| Err(unavailable(why))).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        match super::planted::torn(self.planted, commit) {
            None => self.commit_once(commit.clone()).await,
            Some((first, second)) => {
                self.commit_once(first).await?;
                self.commit_once(second).await
            }
        }
    }
}

#[async_trait]
impl Sleepers for SimPorts {
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        let cursor = cursor.map(str::to_owned);
        let effect = move |outside: &mut Outside| outside.list_pending(due_by, cursor.as_deref());
        self.call("list_pending", String::new(), effect, |why| Err(unavailable(why))).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        let about = paused.invocation_id.to_string();
        let paused = paused.clone();
        let effect = move |outside: &mut Outside| at_once(outside.store.pending_row(&paused));
        self.call("pending_row", about, effect, |why| Err(unavailable(why))).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        let effect = move |outside: &mut Outside| at_once(outside.store.dead_claims(now));
        self.call("dead_claims", String::new(), effect, |why| Err(unavailable(why))).await
    }

    async fn put_aside(&self) -> Result<PutAside, StoreError> {
        let effect = |outside: &mut Outside| at_once(outside.store.put_aside());
        self.call("put_aside", String::new(), effect, |why| Err(unavailable(why))).await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        let cursor = cursor.map(str::to_owned);
        let effect = move |outside: &mut Outside| at_once(outside.store.list_parked(cursor.as_deref()));
        self.call("list_parked", String::new(), effect, |why| Err(unavailable(why))).await
    }

    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        let repair = repair.clone();
        let effect = move |outside: &mut Outside| at_once(outside.store.repair(&repair));
        self.call("repair", String::new(), effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl RuleEntries for SimPorts {
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        let about = shape.to_string();
        let shape = shape.clone();
        let fresh = fresh.clone();
        let effect = move |outside: &mut Outside| at_once(outside.store.touch_rule(&shape, &fresh, now));
        self.call("touch_rule", about, effect, |why| Err(unavailable(why))).await
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        let effect = move |outside: &mut Outside| at_once(outside.store.rule_entries());
        self.call("rule_entries", String::new(), effect, |why| Err(unavailable(why))).await
    }

    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        let update = update.clone();
        let effect = move |outside: &mut Outside| at_once(outside.store.update_rule(&update));
        self.call("update_rule", String::new(), effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl Notes for SimPorts {
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        let about = name.to_owned();
        let name = name.to_owned();
        let effect = move |outside: &mut Outside| at_once(outside.store.note(&name));
        self.call("note", about, effect, |why| Err(unavailable(why))).await
    }

    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError> {
        let about = name.to_owned();
        let name = name.to_owned();
        let text = text.map(str::to_owned);
        let effect = move |outside: &mut Outside| at_once(outside.store.keep_note(&name, text.as_deref(), until));
        self.call("keep_note", about, effect, |why| Err(unavailable(why))).await
    }
}

#[async_trait]
impl Garbage for SimPorts {
    async fn collect_garbage(&self, now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError> {
        let cursor = cursor.map(str::to_owned);
        let effect = move |outside: &mut Outside| at_once(outside.store.collect_garbage(now, cursor.as_deref()));
        self.call("collect_garbage", String::new(), effect, |why| Err(unavailable(why))).await
    }
}

impl Diagnostics for SimPorts {}

fn unavailable(why: &'static str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
}

fn about_intent(intent: &Intent) -> String {
    match intent {
        Intent::Lease { session, request } => format!("to lease {session} to {}", request.owner),
        Intent::Claim { request } => format!("to claim {} for {}", request.invocation_id, request.owner),
        Intent::Commit { commit } => format!("to commit: {}", about_commit(commit)),
        Intent::Buffer { id, .. } => format!("to park {id}"),
    }
}

fn about_commit(commit: &Commit) -> String {
    let session = commit.session.as_ref().map(|write| {
        let save = write.save.as_ref().map_or("", |_| " saved");
        let release = if write.release { " released" } else { "" };
        format!("session {}{save}{release}", write.session_id)
    });
    let invocation = commit.invocation.as_ref().map(|write| match write {
        InvocationWrite::Suspend { paused, claim, early, .. } => {
            let claimed = claim.as_ref().map_or("", |_| ", claimed at once");
            let early = if early.is_empty() { String::new() } else { format!(" with {} early signals", early.len()) };
            format!("{}#{} suspends{early}{claimed}", paused.invocation_id, paused.generation)
        }
        InvocationWrite::Complete { paused, .. } => {
            format!("{}#{} completes", paused.invocation_id, paused.generation)
        }
        InvocationWrite::Fail { paused, failure, .. } => {
            format!("{}#{} fails: {}", paused.invocation_id, paused.generation, failure.category)
        }
        InvocationWrite::Cancel { paused, .. } => format!("{}#{} is canceled", paused.invocation_id, paused.generation),
        InvocationWrite::CancelBeforeStart { invocation_id, .. } => {
            format!("{invocation_id} is canceled before it slept")
        }
        InvocationWrite::Accept { paused, .. } => format!("{} is accepted", paused.invocation_id),
        InvocationWrite::Deliver { invocation_id, generation, .. } => {
            format!("{invocation_id}#{generation} is given its input")
        }
        InvocationWrite::AssertClaimed { invocation_id, generation, .. } => {
            format!("{invocation_id}#{generation} is still claimed")
        }
        InvocationWrite::Conclude { paused, .. } => format!("{} ends without ever having slept", paused.invocation_id),
        InvocationWrite::Progress { paused, .. } => {
            format!("{}#{} has come to {:?}", paused.invocation_id, paused.generation, paused.namespace)
        }
        InvocationWrite::Advance { paused, wake } => {
            format!("{}#{} waits for deadline {}", paused.invocation_id, paused.generation, wake.rung())
        }
        InvocationWrite::Answer { paused, answer } => {
            format!("{}#{} is answered by {}", paused.invocation_id, paused.generation, answer.part)
        }
        InvocationWrite::Keep { invocation_id, generation, .. } => {
            format!("{invocation_id}#{generation} leaves its claim to another worker")
        }
        InvocationWrite::PutAside { paused, .. } => {
            format!("{}#{} is put aside", paused.invocation_id, paused.generation)
        }
        InvocationWrite::Retry { paused } => format!("{}#{} is tried again", paused.invocation_id, paused.generation),
        InvocationWrite::Release { invocation_id, generation, .. } => {
            format!("{invocation_id}#{generation} gives its claim back")
        }
    });
    let told =
        commit.journal.appends.iter().map(|append| {
            format!("stream {} grows to {}", append.stream, append.first + append.entries.len() as u64 - 1)
        });
    [session, invocation].into_iter().flatten().chain(told).collect::<Vec<_>>().join(", ")
}
