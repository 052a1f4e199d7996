//! Who works on the task, and who else writes: each with a store of its own.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dormouse_aws::DynamoDbStateStore;
use dormouse_ports::{
    Append, Cancellation, Category, Claim, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits,
    EndOfStream, FailureRecord, Fed, GrowingLists, InvocationRecord, InvocationStatus, InvocationWrite, Invocations,
    Journal, JournalConflict, Lease, LeaseRequest, Map, NodePosition, Owner, PausedInvocation, ProgressFrom, Records,
    SessionExpectation, SessionWrite, Sessions, SharedField, SharedItems, SharedMap, SignalDescriptor, StepWritten,
    StoredList, StreamEnd, SuspendFrom,
};
use dormouse_tests::map;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::facts::{done, entries_of, session_of, state_of, turns};
use super::world::{FEED, STREAM, World, invocation, session};

/// How long a claim lasts from its last step on.
pub(crate) const CLAIM: Duration = Duration::from_secs(60);
/// How often a commit is made again that was not written.
const ATTEMPTS: usize = 6;

/// One who reads and writes.
pub(crate) struct Desk {
    name: String,
    world: World,
    store: DynamoDbStateStore,
    /// Whether sessions are leased.
    leases: bool,
}

fn values(tokens: &[String]) -> Vec<Value> {
    tokens.iter().map(|token| token.as_str().into()).collect()
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
    pub(crate) fn new(world: &World, actor: u64, leases: bool) -> Self {
        Self { name: format!("a{actor}"), world: world.clone(), store: world.store(actor), leases }
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

    /// A commit of `entries` behind `end`; with `later` a later one reports them to the feed.
    fn commit(&self, entries: Vec<Map>, end: End, later: bool) -> Commit {
        let last = end.position + entries.len() as u64;
        let known = map(json!({ "last": last }));
        let behind = EndOfStream { known, behind: end.told_at, unreported: end.unreported, later };
        let append = Append {
            stream: STREAM.to_owned(),
            end: StreamEnd::Append(behind),
            first: end.position + 1,
            entries,
            fed: Some(Fed::to(FEED)),
        };
        let id = format!("{}-{}", self.name, self.world.fresh());
        Commit { journal: Journal::new(Vec::new(), vec![append]), ..Commit::new(id, self.now()) }
    }

    /// Where the stream is behind `commit`, which was made behind `end`.
    fn behind(&self, end: End, commit: &Commit) -> End {
        let appends = &commit.journal.appends;
        let later = end.told_at.map(|at| at + SignedDuration::from_nanos(1));
        let told_at = Some(later.map_or(self.now(), |later| later.max(self.now())));
        let entries = appends.iter().map(|append| append.entries.len() as u64).sum::<u64>();
        let unreported = appends.iter().map(Append::leaves_unreported).sum();
        End { position: end.position + entries, told_at, unreported }
    }

    async fn end(&self) -> Option<End> {
        let tip = self.store.tip(STREAM).await.ok()?;
        Some(End { position: tip.position, told_at: tip.at, unreported: tip.unreported })
    }

    async fn session(&self) -> Option<Kept> {
        let owner = Owner::from(self.name.as_str());
        let lease = LeaseRequest { owner, now: self.now(), until: self.until(), past: None, begun_for: None };
        let loaded = self.store.load_session(&session(), Some(&lease).filter(|_| self.leases)).await.ok()?;
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
        let state = session_of(&kept.done, kept.turns + 1);
        self.append("turn", |commit| commit.session = Some(self.save(&kept, state.clone().into(), true))).await;
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
                    self.world.granted(&self.name, &record.paused);
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

/// A claim and what its worker knows.
struct Run {
    desk: Desk,
    paused: PausedInvocation,
    tokens: Vec<String>,
    /// The same as the list of the state, of which the next one is the continuation.
    items: SharedItems,
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
        let InvocationRecord { status, paused, stored, .. } = desk.claim().await?;
        let InvocationStatus::Resuming(claim) = status else { return None };
        let (kept, end) = (desk.session().await?, desk.end().await?);
        let tokens = done(&paused.state.clone().into_map());
        let items = SharedItems::default().grown(&values(&tokens));
        let stored = stored.into_iter().chain(kept.stored.iter().cloned()).collect();
        Some(Self { desk, paused, tokens, items, claim, kept, end, stored, has_moved: false })
    }

    fn owner(&self) -> Owner {
        self.claim.owner.clone()
    }

    /// Sends what `make` makes of `entries`, until it is known to be written or not. `Err(true)` if it may be.
    async fn send(&mut self, entries: &[Map], later: bool, make: impl Fn(&Self, &mut Commit)) -> Result<(), bool> {
        for _ in 0..ATTEMPTS {
            let mut commit = self.desk.commit(entries.to_vec(), self.end, later);
            commit.growing = GrowingLists { fields: vec!["done".into()], stored: self.stored.clone() };
            make(self, &mut commit);
            let is_step = matches!(commit.invocation, Some(InvocationWrite::Progress { .. }));
            let written = match is_step {
                true => self.desk.store.step(&commit).await,
                false => self.desk.store.commit(&commit).await.map(|()| StepWritten::Whole),
            };
            match written {
                Ok(written) => {
                    self.end = self.desk.behind(self.end, &commit);
                    // A step that is noted leaves the record of the session as it is.
                    self.kept.version += u64::from(commit.session.is_some() && written == StepWritten::Whole);
                    return Ok(());
                }
                Err(CommitError::Journal(_)) => self.end = self.desk.end().await.ok_or(false)?,
                Err(CommitError::SessionConflict) => {
                    let lease = self.kept.lease.clone();
                    self.kept = self.desk.session().await.ok_or(false)?;
                    self.kept.lease = lease;
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

    /// The state behind `tokens`, of which the list is `items`, and what the session keeps of it.
    fn states(&self, tokens: &[String], items: &SharedItems) -> [SharedMap; 2] {
        let mut fields = BTreeMap::from_iter(state_of(tokens).into_iter().map(|(name, value)| {
            let is_list = name == "done";
            let field = if is_list { SharedField::Items(items.clone()) } else { SharedField::Value(Arc::new(value)) };
            (Arc::<str>::from(name), field)
        }));
        fields.insert("turns".into(), SharedField::Value(Arc::new(self.kept.turns.into())));
        let kept = fields.clone().into_iter().filter(|(name, _)| ["done", "turns"].contains(&&**name));
        [SharedMap::of_fields(fields.clone()), SharedMap::of_fields(kept)]
    }

    /// The pause behind `tokens`, as it is written with the session.
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
            session_version: Some(self.kept.version + 1),
            ..paused
        }
    }

    async fn step(&mut self, number: u64) -> Option<()> {
        let size = if self.desk.below(12) == 0 { self.desk.below(12_000) } else { self.desk.below(60) };
        let token = format!("{}/{number}/{size}", self.desk.name);
        let tokens: Vec<String> = self.tokens.iter().cloned().chain([token.clone()]).collect();
        let items = self.items.grown(&values(&tokens));
        let entries = entries_of(&self.desk.name, &token, 1 + self.desk.below(3));
        let later = self.desk.below(8) > 0;
        // The engine never moves the end of a claim; a step that does is written whole.
        let until = if self.desk.below(16) == 0 { self.desk.until() } else { self.claim.until };
        let sent = self
            .send(&entries, later, |run, commit| {
                let owner = run.owner();
                let claim = Claim { until, ..run.claim.clone() };
                let [state, kept] = run.states(&tokens, &items);
                commit.session = Some(run.desk.save(&run.kept, kept, false));
                commit.invocation = Some(InvocationWrite::Progress {
                    paused: Box::new(run.behind(&tokens, state)),
                    from: ProgressFrom::Claimed(owner),
                    claim: Some(claim),
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
                let [state, _] = self.states(&tokens, &items);
                let session_version = Some(self.kept.version);
                self.paused = PausedInvocation { session_version, ..self.behind(&tokens, state) };
                (self.tokens, self.items) = (tokens, items);
                self.claim.until = until;
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
        let tokens = self.tokens.clone();
        let save = |run: &Self| Some(run.desk.save(&run.kept, session_of(&tokens, run.kept.turns).into(), true));
        // What comes of it, the table knows.
        let _ = match how {
            0 => {
                self.send(&entry("completed"), false, |run, commit| {
                    let (paused, owner) = (Box::new(run.paused.clone()), run.owner());
                    commit.session = save(run);
                    commit.invocation = Some(InvocationWrite::Complete { paused, owner, state: state_of(&tokens) });
                })
                .await
            }
            1 | 2 => {
                self.send(&entry("suspended"), false, |run, commit| {
                    let generation = run.paused.generation + 1;
                    let paused = PausedInvocation {
                        generation,
                        under_way: false,
                        descriptor: SignalDescriptor::new(format!("signal-{generation}")),
                        session_version: Some(run.kept.version + 1),
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
                self.send(&entry("aside"), false, |run, commit| {
                    let (paused, owner, failure) = (Box::new(run.paused.clone()), run.owner(), failure.clone());
                    commit.invocation = Some(InvocationWrite::PutAside { paused, owner, failure });
                })
                .await
            }
            5 => {
                self.send(&entry("failed"), false, |run, commit| {
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
