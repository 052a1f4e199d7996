//! Who works on the task, and who else writes: each with a store of its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dormouse_aws::{Belongings, DynamoDbStateStore};
use dormouse_ports::{
    Append, Cancellation, Category, Claim, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits,
    DocumentKey, DocumentWrite, EndOfStream, FailureRecord, Fed, GrowingLists, InvocationRecord, InvocationStatus,
    InvocationWrite, Invocations, Journal, JournalConflict, Lease, LeaseRequest, Map, NodePosition, Owner,
    PausedInvocation, ProgressFrom, Records, SessionExpectation, SessionWrite, Sessions, SharedField, SharedItems,
    SharedMap, SignalDescriptor, StepWritten, StoreError, StoredList, StreamEnd, SuspendFrom,
};
use dormouse_tests::map;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::facts::{Ledger, done, entries_of, session_of, state_of, turns};
use super::world::{FEED, STREAM, World, invocation, session};

/// How long a claim lasts, from when it was made or renewed.
pub(crate) const CLAIM: Duration = Duration::from_secs(60);
/// How often a commit is made again that was not written.
const ATTEMPTS: usize = 6;
/// How often all is erased until nothing is left.
const ERASURES: usize = 12;

/// What holds in a run.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Whether sessions are leased.
    pub(crate) leases: bool,
    /// Whether all of it may be erased: then others write only as long as the session is not closed.
    pub(crate) erases: bool,
}

/// One who reads and writes.
pub(crate) struct Desk {
    name: String,
    world: World,
    store: DynamoDbStateStore,
    rules: Rules,
}

/// The end of the stream as a writer knows it.
#[derive(Clone, Copy)]
struct End {
    position: u64,
    told_at: Option<Timestamp>,
    unreported: u64,
}

/// The session as a writer knows it.
struct Kept {
    version: u64,
    done: Vec<String>,
    turns: u64,
    lease: Option<Lease>,
    stored: Vec<StoredList>,
}

impl Desk {
    pub(crate) fn new(world: &World, actor: u64, rules: Rules) -> Self {
        Self { name: format!("a{actor}"), world: world.clone(), store: world.store(actor), rules }
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    fn until(&self) -> Timestamp {
        self.now() + SignedDuration::try_from(CLAIM).expect("a short time")
    }

    fn below(&self, most: u64) -> u64 {
        self.world.chance(|chance| chance.u64(..most))
    }

    /// Lets others go first for a while.
    async fn pause(&self, most: u64) {
        let mut left = self.below(most);
        poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// A commit of `entries` behind `end`, which the feed reports `later` or at once.
    fn commit(&self, entries: Vec<Map>, end: End, later: bool) -> Commit {
        let last = end.position + entries.len() as u64;
        let (known, behind, unreported) = (map(json!({ "last": last })), end.told_at, end.unreported);
        let append = Append {
            stream: STREAM.to_owned(),
            end: StreamEnd::Append(EndOfStream { known, behind, unreported, later }),
            first: end.position + 1,
            entries,
            fed: Some(Fed::to(FEED)),
        };
        let id = format!("{}-{}", self.name, self.world.fresh());
        Commit { journal: Journal::new(Vec::new(), vec![append]), ..Commit::new(id, self.now()) }
    }

    /// Where the stream is behind `append`, which came behind `end`.
    fn behind(&self, end: End, append: &Append) -> End {
        let later = end.told_at.map(|at| at + SignedDuration::from_nanos(1));
        let told_at = Some(later.map_or(self.now(), |later| later.max(self.now())));
        let position = end.position + append.entries.len() as u64;
        End { position, told_at, unreported: append.leaves_unreported() }
    }

    async fn end(&self) -> Option<End> {
        let tip = self.store.tip(STREAM).await.ok()?;
        Some(End { position: tip.position, told_at: tip.at, unreported: tip.unreported })
    }

    async fn session(&self) -> Option<Kept> {
        let owner = Owner::from(self.name.as_str());
        let lease = LeaseRequest { owner, now: self.now(), until: self.until(), past: None, begun_for: None };
        let loaded = self.store.load_session(&session(), Some(&lease).filter(|_| self.rules.leases)).await.ok()?;
        let (version, state) = loaded.record.map(|record| (record.version, record.state)).unwrap_or_default();
        let (done, turns) = (done(&state), turns(&state));
        Some(Kept { version, done, turns, lease: loaded.lease, stored: loaded.stored })
    }

    async fn record(&self) -> Option<InvocationRecord> {
        self.store.load_invocation(&invocation()).await.ok()?
    }

    fn save(&self, kept: &Kept, state: SharedMap, release: bool) -> SessionWrite {
        SessionWrite {
            session_id: session(),
            save: Some((state, "1".to_owned())),
            expect: SessionExpectation::Version(kept.version),
            lease: kept.lease.clone(),
            release: release && kept.lease.is_some(),
        }
    }

    /// Appends `kind` with what `write` changes; reads the end of the stream again where it was another one.
    async fn append(&self, kind: &str, write: impl Fn(&mut Commit)) {
        for _ in 0..ATTEMPTS {
            let Some(end) = self.end().await else { return };
            let mut commit = self.commit(vec![map(json!({ "kind": kind, "by": self.name }))], end, false);
            if self.rules.erases {
                commit.journal.documents.push(DocumentWrite::remove(closed(), 0));
            }
            write(&mut commit);
            match self.store.commit(&commit).await {
                Err(CommitError::Journal(JournalConflict::Stream(_))) => {}
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// Says something in the session.
    pub(crate) async fn say(self) {
        self.append("said", |_| {}).await;
    }

    /// Changes the session as a turn of another does.
    pub(crate) async fn turn(self) {
        let Some(kept) = self.session().await else { return };
        let state = SharedMap::from(session_of(&kept.done, kept.turns + 1));
        self.append("turn", |commit| commit.session = Some(self.save(&kept, state.clone(), true))).await;
    }

    /// Cancels the task, wherever it is.
    pub(crate) async fn cancel(self) {
        let Some(record) = self.record().await else { return };
        self.pause(4).await;
        let cancellation = Cancellation { reason: None, at: self.now() };
        self.append("canceled", |commit| {
            let paused = Box::new(record.paused.clone());
            commit.invocation = Some(InvocationWrite::Cancel { paused, cancellation: cancellation.clone() });
        })
        .await;
    }

    /// Reads the task.
    pub(crate) async fn read(self) {
        let steps = self.world.tell(|ledger| ledger.steps());
        match self.store.load_invocation(&invocation()).await {
            Ok(Some(InvocationRecord { status, paused, .. })) => match status {
                InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => {
                    self.world.was_read(steps, &paused);
                }
                // What has ended keeps no state.
                InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => {}
            },
            Err(StoreError::Corrupt(reason)) if !self.world.tell(|ledger| ledger.is_in_erasure()) => {
                self.world.report(Err(format!("somebody read that the task is corrupt: {reason}")));
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// Closes the session, and erases all of it until nothing is left.
    pub(crate) async fn erase(self) {
        self.world.tell(Ledger::begin_erasure);
        if self.close().await.is_none() {
            return;
        }
        let owners = [STREAM.to_owned(), session().to_string(), invocation().to_string()].into();
        let belongings = Belongings { owners, ..Belongings::default() };
        let eraser = self.store.eraser();
        for _ in 0..ERASURES {
            let erased = eraser.erase(&belongings).await;
            if erased.is_ok_and(|erased| erased.values().all(|count| *count == 0)) {
                self.world.erased();
                return;
            }
        }
    }

    /// Closes the session, so that others write nothing to it any more.
    async fn close(&self) -> Option<()> {
        let write = DocumentWrite { body: Some(map(json!({ "closed": true }))), ..DocumentWrite::remove(closed(), 0) };
        for _ in 0..ATTEMPTS {
            let id = format!("{}-{}", self.name, self.world.fresh());
            let journal = Journal::new(vec![write.clone()], Vec::new());
            match self.store.commit(&Commit { journal, ..Commit::new(id, self.now()) }).await {
                Ok(()) | Err(CommitError::Journal(JournalConflict::Document(_))) => return Some(()),
                Err(_) => {}
            }
        }
        None
    }

    /// Lets a task go on that was put aside.
    pub(crate) async fn retry(self) {
        let Some(record) = self.record().await else { return };
        if matches!(record.status, InvocationStatus::Errored(_)) {
            self.append("retried", |commit| {
                let paused = Box::new(record.paused.clone());
                commit.invocation = Some(InvocationWrite::Retry { paused });
            })
            .await;
        }
    }

    /// Accepts the task.
    pub(crate) async fn accept(self) {
        let paused = PausedInvocation {
            session_id: Some(session()),
            state: state_of(&[]).into(),
            ..PausedInvocation::before_first_pause(invocation(), "graph", self.now())
        };
        self.append("begun", |commit| {
            commit.invocation = Some(InvocationWrite::Accept { paused: Box::new(paused.clone()), again_at: None });
        })
        .await;
    }

    /// Claims the task, and asks again as the same where nobody knows what came of it.
    async fn claim(&self) -> Option<InvocationRecord> {
        for _ in 0..ATTEMPTS {
            let request = ClaimRequest {
                invocation_id: invocation(),
                generation: None,
                owner: Owner::from(self.name.as_str()),
                now: self.now(),
                until: self.until(),
                past: None,
                payload: Some(Map::new()),
                answered: None,
            };
            match self.store.claim(&request).await {
                Ok(ClaimOutcome::Granted(record)) => {
                    self.world.granted(&self.name, &record);
                    return Some(*record);
                }
                Ok(ClaimOutcome::Held { .. }) => self.pause(60).await,
                Ok(ClaimOutcome::NotFound | ClaimOutcome::AwaitingMoreSignals(_) | ClaimOutcome::NotClaimable(_)) => {
                    return None;
                }
                Err(_) => {}
            }
        }
        None
    }

    /// Works on the task for as long as it may; where it `finishes`, to its end.
    pub(crate) async fn work(self, finishes: bool) {
        let Some(mut run) = Run::begin(self).await else { return };
        let patience = [60, 85, 97][run.desk.world.chance(|chance| chance.usize(..3))];
        for number in 1.. {
            let goes_on = if finishes { number <= 2 } else { run.desk.below(100) < patience };
            if !goes_on {
                break;
            }
            if run.step(number).await.is_none() {
                return;
            }
            if !finishes {
                run.desk.pause(8).await;
            }
        }
        // Most ends are none.
        let how = if finishes { 0 } else { run.desk.below(12) };
        run.rest(how).await;
    }
}

/// The document that stands there when the session was closed.
fn closed() -> DocumentKey {
    DocumentKey::new("closed", session().to_string())
}

/// The values of a list of `tokens`.
fn values(tokens: &[String]) -> Vec<Value> {
    tokens.iter().map(|token| token.as_str().into()).collect()
}

/// A claim and what its worker knows.
struct Run {
    desk: Desk,
    paused: PausedInvocation,
    tokens: Vec<String>,
    /// The tokens, as each step shares them with the one before.
    done: SharedItems,
    /// The turns of others that its state knows: those that its session had when it was begun, or since.
    turns: u64,
    /// True if its state takes over what others have saved meanwhile.
    adopts: bool,
    claim: Claim,
    kept: Kept,
    end: End,
    /// Lists that the record and the session have stored.
    stored: Vec<StoredList>,
    /// True if it took a step.
    has_moved: bool,
}

impl Run {
    async fn begin(desk: Desk) -> Option<Self> {
        let InvocationRecord { status, paused, stored, saved } = desk.claim().await?;
        let InvocationStatus::Resuming(claim) = status else { return None };
        let (found, end) = (desk.session().await?, desk.end().await?);
        let state = paused.state.clone().into_map();
        let base = saved.map_or_else(|| state.clone(), SharedMap::into_map);
        let tokens = done(&state);
        let stored = stored.into_iter().chain(found.stored.iter().cloned()).collect();
        // It goes on from the session as it was saved with the task. Where others have saved since, its own save is refused.
        let kept = match paused.session_version {
            Some(version) => {
                if version == found.version && (done(&base), turns(&base)) != (found.done.clone(), found.turns) {
                    let said = format!("the session was saved with {base:?}, and knows {:?}", found.done);
                    desk.world.report(Err(said));
                }
                Kept { version, done: done(&base), turns: turns(&base), ..found }
            }
            None => found,
        };
        Some(Self {
            done: SharedItems::default().grown(&values(&tokens)),
            turns: if paused.session_version.is_some() { turns(&state) } else { kept.turns },
            adopts: desk.below(4) > 0,
            desk,
            paused,
            tokens,
            claim,
            kept,
            end,
            stored,
            has_moved: false,
        })
    }

    fn owner(&self) -> Owner {
        self.claim.owner.clone()
    }

    /// The same as [`send_as`](Self::send_as) with what the feed reports at once.
    async fn send(&mut self, entries: &[Map], make: impl Fn(&Self, &mut Commit)) -> Result<(), bool> {
        self.send_as(entries, false, make).await
    }

    /// Sends what `make` makes of `entries`, until it is known to be written or not. `Err(true)` if it may be.
    async fn send_as(&mut self, entries: &[Map], later: bool, make: impl Fn(&Self, &mut Commit)) -> Result<(), bool> {
        for _ in 0..ATTEMPTS {
            let mut commit = self.desk.commit(entries.to_vec(), self.end, later);
            commit.growing = GrowingLists { fields: vec!["done".into()], stored: self.stored.clone() };
            make(self, &mut commit);
            let written = if matches!(commit.invocation, Some(InvocationWrite::Progress { .. })) {
                self.desk.store.step(&commit).await
            } else {
                self.desk.store.commit(&commit).await.map(|()| StepWritten::Whole)
            };
            match written {
                Ok(written) => {
                    self.end = self.desk.behind(self.end, &commit.journal.appends[0]);
                    // The session is as it was where a step was only noted.
                    self.kept.version += u64::from(commit.session.is_some() && written == StepWritten::Whole);
                    return Ok(());
                }
                Err(CommitError::Journal(_)) => self.end = self.desk.end().await.ok_or(false)?,
                Err(CommitError::SessionConflict) => {
                    let lease = self.kept.lease.clone();
                    let found = self.desk.session().await.ok_or(false)?;
                    self.stored.extend(found.stored.iter().cloned());
                    self.kept = Kept { lease, ..found };
                    if self.adopts {
                        self.turns = self.kept.turns;
                    }
                }
                Err(CommitError::Store(_)) => {}
                Err(CommitError::Unknown(_)) => return Err(true),
                Err(
                    CommitError::LeaseLost
                    | CommitError::InvocationConflict
                    | CommitError::SignalBuffered(_)
                    | CommitError::SignalTaken { .. }
                    | CommitError::Said(_),
                ) => return Err(false),
            }
        }
        Err(false)
    }

    /// The state behind `tokens`, which are `done`, and what its session keeps of it: the same, but for turns that the state
    /// does not know.
    fn states(&self, tokens: &[String], done: &SharedItems) -> (SharedMap, SharedMap) {
        let value = |value: Value| SharedField::Value(Arc::new(value));
        let done = SharedField::Items(done.clone());
        let turns = value(self.turns.into());
        let others = state_of(tokens).into_iter().filter(|(name, _)| name != "done");
        let others = others.map(|(name, field)| (Arc::<str>::from(name), value(field)));
        let [list, number] = ["done", "turns"].map(Arc::<str>::from);
        let shared = [(list.clone(), done.clone()), (number.clone(), turns.clone())];
        let state = SharedMap::of_fields(others.chain(shared));
        let turns = if self.knows_all() { turns } else { value(self.kept.turns.into()) };
        (state, SharedMap::of_fields([(list, done), (number, turns)]))
    }

    /// True if its state knows what others have changed in the session.
    fn knows_all(&self) -> bool {
        self.turns == self.kept.turns
    }

    /// The version of the session with which the state is saved next. Where that holds more than the state, it is the one
    /// before, so that whoever goes on from the state finds a newer one.
    fn next_version(&self) -> u64 {
        self.kept.version + u64::from(self.knows_all())
    }

    /// The pause with `state` behind `tokens`, as it is written with the session.
    fn behind(&self, tokens: &[String], state: SharedMap) -> PausedInvocation {
        let mut paused = self.paused.clone();
        for number in paused.completed_positions.len()..tokens.len() {
            paused.completed_positions.push(NodePosition {
                namespace: Vec::new(),
                node_name: "node".into(),
                step: number as u64,
                attempt_index: 0,
                fan_out_index: None,
            });
        }
        PausedInvocation {
            state,
            under_way: true,
            step: tokens.len() as u64,
            trace_context: tokens.last().cloned(),
            session_version: Some(self.next_version()),
            ..paused
        }
    }

    /// Records something in the midst of a step.
    async fn record(&mut self) -> Result<(), bool> {
        let entry = [map(json!({ "kind": "recorded", "by": self.desk.name }))];
        self.send(&entry, |run, commit| {
            let (invocation_id, generation, owner) = (invocation(), run.paused.generation, run.owner());
            commit.invocation = Some(InvocationWrite::AssertClaimed { invocation_id, generation, owner });
        })
        .await
    }

    /// Renews the claim, now and then and where little of it is left: the next step does that.
    fn renew(&mut self) {
        let left = self.claim.until.duration_since(self.desk.now());
        if self.desk.below(16) == 0 || left < SignedDuration::try_from(CLAIM / 4).expect("a short time") {
            self.claim.until = self.desk.until();
        }
    }

    async fn step(&mut self, number: u64) -> Option<()> {
        if self.desk.below(10) == 0 && self.record().await.is_err() {
            return None;
        }
        self.renew();
        let size = if self.desk.below(12) == 0 { self.desk.below(12_000) } else { self.desk.below(60) };
        let token = format!("{}/{number}/{size}", self.desk.name);
        let tokens: Vec<String> = self.tokens.iter().cloned().chain([token.clone()]).collect();
        let entries = entries_of(&self.desk.name, &token, 1 + self.desk.below(3));
        let list = self.done.grown(&values(&tokens));
        let later = self.desk.below(8) > 0;
        let sent = self
            .send_as(&entries, later, |run, commit| {
                let (state, kept) = run.states(&tokens, &list);
                commit.session = Some(run.desk.save(&run.kept, kept, false));
                commit.invocation = Some(InvocationWrite::Progress {
                    paused: Box::new(run.behind(&tokens, state)),
                    from: ProgressFrom::Claimed(run.owner()),
                    claim: Some(run.claim.clone()),
                });
            })
            .await;
        let told = |accepted: bool| {
            let world = &self.desk.world;
            let answer = world.tell(|ledger| if accepted { ledger.accepted(&token) } else { ledger.refused(&token) });
            world.report(answer);
        };
        match sent {
            Ok(()) => {
                told(true);
                self.paused = self.behind(&tokens, self.states(&tokens, &list).0);
                (self.tokens, self.done) = (tokens, list);
                self.has_moved = true;
                Some(())
            }
            Err(may_be_written) => {
                if !may_be_written {
                    told(false);
                }
                None
            }
        }
    }

    /// Leaves the task, or ends it.
    async fn rest(mut self, how: u64) {
        let entry = |kind: &str| [map(json!({ "kind": kind }))];
        let failure = FailureRecord { category: Category::NodeException, message: "it broke".to_owned() };
        let (tokens, list) = (self.tokens.clone(), self.done.clone());
        let save = |run: &Self| Some(run.desk.save(&run.kept, run.states(&tokens, &list).1, true));
        // What comes of it, the table knows.
        let _ = match how {
            0 => {
                self.send(&entry("completed"), |run, commit| {
                    let (paused, owner) = (Box::new(run.paused.clone()), run.owner());
                    commit.session = save(run);
                    let state = run.states(&tokens, &list).0.into_map();
                    commit.invocation = Some(InvocationWrite::Complete { paused, owner, state });
                })
                .await
            }
            1 | 2 => {
                self.send(&entry("suspended"), |run, commit| {
                    let generation = run.paused.generation + 1;
                    let paused = PausedInvocation {
                        generation,
                        under_way: false,
                        descriptor: SignalDescriptor::new(format!("signal-{generation}")),
                        state: run.states(&tokens, &list).0,
                        session_version: Some(run.next_version()),
                        ..run.paused.clone()
                    };
                    let from = SuspendFrom::Claimed { owner: run.owner(), previous: Box::new(run.paused.clone()) };
                    commit.session = save(run);
                    commit.invocation = Some(InvocationWrite::Suspend {
                        paused: Box::new(paused),
                        from,
                        claim: None,
                        early: Vec::new(),
                    });
                })
                .await
            }
            3 | 4 => {
                self.send(&entry("aside"), |run, commit| {
                    let (paused, owner, failure) = (Box::new(run.paused.clone()), run.owner(), failure.clone());
                    commit.invocation = Some(InvocationWrite::PutAside { paused, owner, failure });
                })
                .await
            }
            5 => {
                self.send(&entry("failed"), |run, commit| {
                    let (paused, owner) = (Box::new(run.paused.clone()), Some(run.owner()));
                    commit.invocation = Some(InvocationWrite::Fail { paused, owner, failure: failure.clone() });
                })
                .await
            }
            6 | 7 => {
                let (generation, owner, at_once) = (self.paused.generation, self.owner(), how == 6);
                self.alone(InvocationWrite::Keep { invocation_id: invocation(), generation, owner, at_once }).await
            }
            8 if !self.has_moved => {
                let (generation, owner) = (self.paused.generation, self.owner());
                let invocation_id = invocation();
                self.alone(InvocationWrite::Release { invocation_id, generation, owner, again_at: None }).await
            }
            9 if self.has_moved => {
                self.send(&entry("handed over"), |run, commit| {
                    let paused = Box::new(run.behind(&tokens, run.states(&tokens, &list).0));
                    let from = ProgressFrom::Claimed(run.owner());
                    commit.session = save(run);
                    commit.invocation = Some(InvocationWrite::Progress { paused, from, claim: None });
                })
                .await
            }
            // It goes away without a word.
            _ => Ok(()),
        };
    }

    /// Sends a commit that tells nobody.
    async fn alone(&self, write: InvocationWrite) -> Result<(), bool> {
        let id = format!("{}-{}", self.desk.name, self.desk.world.fresh());
        let commit = Commit { invocation: Some(write), ..Commit::new(id, self.desk.now()) };
        self.desk.store.commit(&commit).await.map_err(|error| error.may_be_written())
    }
}
