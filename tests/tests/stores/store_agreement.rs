//! The store in memory and the store on DynamoDB are given the same random histories and must agree on every answer.

use std::fmt::Debug;

use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Append, Breadth, BufferedSignal, Cancellation, Category, Claim, ClaimOutcome, ClaimRequest, Commit, Commits,
    Document, DocumentKey, DocumentWrite, Due, DueAction, EarlySignal, EndOfStream, Expected, FailureRecord, FanIn,
    Fed, FedAppend, FeedPage, FeedRequest, FeedRow, GrowingLists, InvocationWrite, Invocations, Journal, Lease,
    LeaseRequest, ListRequest, Listed, Map, Owner, Page, PartAnswer, PausedInvocation, PendingRow, Records,
    SessionExpectation, SessionWrite, Sessions, SignalDescriptor, Signals, StateStore, StoreError, StoredList,
    StreamEnd, StreamTip, SuspendFrom, Until, WakePlan,
};
use dormouse_testkit::MemoryStore;
use jiff::{SignedDuration, Timestamp};

const STEPS: usize = 300;

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

struct History {
    dice: Dice,
    now: Timestamp,
    step: usize,
    memory: MemoryStore,
    durable: DynamoDbStateStore,
    /// What the durable store told of the pieces of lists, whenever and of whatever.
    stored: Vec<StoredList>,
    /// The last commit, to be repeated now and then.
    last: Option<Commit>,
    leases: Vec<Lease>,
    /// The end of the claim of which somebody was told last.
    claimed_until: Option<Timestamp>,
}

#[tokio::test]
async fn both_stores_tell_the_same_history() {
    for seed in 1..=4_u64 {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        ensure_table(&embedded.client(), "dormouse").await.expect("the table is made");
        let inline_limit = if seed % 2 == 0 { 300 } else { 4096 };
        let config = StoreConfig { inline_limit, whole_limit: 200, ..StoreConfig::default() };
        let mut history = History {
            dice: Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed)),
            now: Timestamp::constant(1_800_000_000, 0),
            step: 0,
            memory: MemoryStore::default(),
            durable: DynamoDbStateStore::new(&embedded.client(), "dormouse", config),
            stored: Vec::new(),
            last: None,
            leases: Vec::new(),
            claimed_until: None,
        };
        for step in 0..STEPS {
            history.step = step;
            history.advance().await;
        }
        history.same_rows().await;
    }
}

fn agree(step: usize, what: &dyn Debug, memory: &impl Debug, durable: &impl Debug) {
    assert_eq!(format!("{memory:?}"), format!("{durable:?}"), "step {step}: {what:?}");
}

impl History {
    async fn advance(&mut self) {
        self.now += SignedDuration::from_secs(i64::try_from(self.dice.roll(25)).expect("small"));
        match self.dice.roll(10) {
            0 | 1 => self.claim().await,
            2 => self.park().await,
            3 => self.lease().await,
            4 => self.look().await,
            5 if self.dice.one_in(6) => self.forget().await,
            6 if self.last.is_some() => {
                if let Some(commit) = self.last.clone() {
                    self.commit(commit).await;
                }
            }
            _ => self.change().await,
        }
    }

    async fn claim(&mut self) {
        let past = if self.dice.one_in(4) { self.claimed_until } else { None };
        let request = ClaimRequest {
            invocation_id: self.invocation().into(),
            generation: if self.dice.one_in(2) { Some(self.dice.roll(3)) } else { None },
            owner: self.owner(),
            now: self.now,
            until: self.now + SignedDuration::from_secs(30),
            past,
            payload: if self.dice.one_in(4) { None } else { Some(self.payload()) },
            answered: self.dice.one_in(3).then(|| usize::from(self.dice.one_in(2))),
        };
        let memory = self.memory.claim(&request).await;
        let mut durable = self.durable.claim(&request).await;
        if let Ok(ClaimOutcome::Granted(record) | ClaimOutcome::NotClaimable(record)) = &mut durable {
            self.stored.append(&mut record.stored);
        }
        if let Ok(ClaimOutcome::Held { until }) = &memory {
            self.claimed_until = Some(*until);
        }
        agree(self.step, &request, &memory, &durable);
    }

    async fn park(&mut self) {
        let expires_at = self.now + SignedDuration::from_secs(40);
        let signal = BufferedSignal { payload: self.payload(), sender: None, received_at: self.now, expires_at };
        let id = self.signal().into();
        let memory = self.memory.buffer_signal(&id, &signal).await;
        let durable = self.durable.buffer_signal(&id, &signal).await;
        agree(self.step, &signal, &memory, &durable);
    }

    async fn lease(&mut self) {
        let request = LeaseRequest {
            owner: self.owner(),
            now: self.now,
            until: self.now + SignedDuration::from_secs(30),
            past: None,
            begun_for: None,
        };
        let id = self.session().into();
        let memory = self.memory.load_session(&id, Some(&request)).await;
        let mut durable = self.durable.load_session(&id, Some(&request)).await;
        if let Ok(loaded) = &mut durable {
            self.stored.append(&mut loaded.stored);
        }
        agree(self.step, &request, &memory, &durable);
        self.leases.extend(memory.ok().and_then(|loaded| loaded.lease));
    }

    async fn look(&mut self) {
        let session = self.session().into();
        let invocation = self.invocation().into();
        let signal = self.signal().into();
        let memory = self.memory.load_session(&session, None).await;
        let mut durable = self.durable.load_session(&session, None).await;
        if let Ok(loaded) = &mut durable {
            self.stored.append(&mut loaded.stored);
        }
        agree(self.step, &session, &memory, &durable);
        let memory = self.memory.load_invocation(&invocation).await;
        let mut durable = self.durable.load_invocation(&invocation).await;
        if let Ok(Some(record)) = &mut durable {
            self.stored.append(&mut record.stored);
        }
        agree(self.step, &invocation, &memory, &durable);
        let memory = self.memory.load_signal(&signal, self.now).await;
        agree(self.step, &signal, &memory, &self.durable.load_signal(&signal, self.now).await);
        self.look_at_journals().await;
        self.same_rows().await;
    }

    async fn forget(&mut self) {
        let id = self.session().into();
        let memory = self.memory.delete_session(&id).await;
        let durable = self.durable.delete_session(&id).await;
        agree(self.step, &id, &memory, &durable);
        // A deleted head begins its fences anew: leases of before would be compared with those of after.
        self.leases.clear();
        self.last = None;
    }

    async fn same_rows(&self) {
        let memory = rows(&self.memory).await;
        let durable = rows(&self.durable).await;
        agree(self.step, &"what sleeps", &memory, &durable);
    }

    async fn change(&mut self) {
        let session = if self.dice.one_in(2) { Some(self.session_write()) } else { None };
        let invocation = if session.is_none() || self.dice.one_in(2) { Some(self.invocation_write()) } else { None };
        let journal = if self.dice.one_in(2) { self.journal().await } else { Journal::default() };
        let id = format!("commit-{}", self.step);
        let commit = Commit { id, now: self.now, session, invocation, journal, growing: self.growing() };
        self.commit(commit).await;
    }

    async fn commit(&mut self, commit: Commit) {
        let memory = self.memory.commit(&commit).await;
        let durable = self.durable.commit(&commit).await;
        agree(self.step, &commit, &memory, &durable);
        self.last = Some(commit);
    }

    /// Assumes what is true, mostly.
    async fn journal(&mut self) -> Journal {
        let mut journal = Journal::default();
        for number in 0..3 {
            if self.dice.one_in(2) {
                let key = DocumentKey::new("kind", format!("d{number}"));
                let known = self.memory.document(&key, self.now).await.expect("an answer").map_or(0, |it| it.version);
                let expect = if self.dice.one_in(8) { known + 1 } else { known };
                let body = if self.dice.one_in(4) { None } else { Some(self.state()) };
                let expires_at = self.dice.one_in(3).then(|| self.now + SignedDuration::from_secs(40));
                let place = Listed::new("all", format!("{number}"));
                journal.documents.push(DocumentWrite { key, expect, body, listed: vec![place], expires_at });
            }
        }
        for stream in ["x", "y"] {
            if self.dice.one_in(2) {
                let last = self.memory.tip(stream).await.expect("an answer").position;
                let first = if self.dice.one_in(8) { last + self.dice.roll(4) } else { last + 1 };
                let entries = (0..=self.dice.roll(3)).map(|_| self.payload()).collect();
                let fed = Some(Fed::to("feed"));
                journal.appends.push(Append { stream: stream.to_owned(), end: StreamEnd::Store, first, entries, fed });
            }
        }
        if self.dice.one_in(2) {
            let stream = "z".to_owned();
            let tip = self.durable.tip(&stream).await.expect("an answer");
            let newest = self.durable.append_of(&stream, tip.position).await.expect("an answer");
            // Sometimes it was read before the newest append.
            let stale = newest.filter(|_| self.dice.one_in(5)).map(|row| row.first);
            let first = stale.unwrap_or(tip.position + 1);
            let (unreported, later) = (tip.unreported.min(first.saturating_sub(1)), self.dice.one_in(2));
            let end = StreamEnd::Append(EndOfStream { known: self.payload(), behind: tip.at, unreported, later });
            let entries = (0..=self.dice.roll(3)).map(|_| self.payload()).collect();
            journal.appends.push(Append { stream, end, first, entries, fed: Some(Fed::to("feed")) });
        }
        journal
    }

    async fn look_at_journals(&mut self) {
        let memory = &self.memory;
        let durable = &self.durable;
        let step = self.step;
        for number in 0..3 {
            let key = DocumentKey::new("kind", format!("d{number}"));
            let left = memory.document(&key, self.now).await;
            let right = durable.document(&key, self.now).await;
            agree(step, &key, &left, &right);
        }
        let after = if self.dice.one_in(2) { Some(self.dice.roll(3).to_string()) } else { None };
        let limit = 1 + usize::from(self.dice.one_in(2));
        let newest_first = self.dice.one_in(2);
        let request =
            ListRequest { list: "all".to_owned(), after, limit, newest_first, now: self.now, breadth: Breadth::Narrow };
        // A store may believe that a page follows where none does: what was refused may have left its place.
        let items = |page: Result<Page<Document>, StoreError>| page.map(|page| page.items);
        let left = items(memory.documents(&request).await);
        let right = items(durable.documents(&request).await);
        agree(step, &request, &left, &right);
        for stream in ["x", "y", "z"] {
            let known = |tip: Result<StreamTip, StoreError>| tip.map(|tip| (tip.position, tip.known, tip.unreported));
            agree(step, &stream, &known(memory.tip(stream).await), &known(durable.tip(stream).await));
            let after = self.dice.roll(memory.tip(stream).await.expect("an answer").position + 2);
            let left = memory.entries(stream, after, 5).await;
            let right = durable.entries(stream, after, 5).await;
            agree(step, &(stream, after), &left, &right);
            let reported = |row: Result<Option<FeedRow>, StoreError>| row.map(|row| row.map(|it| (it.first, it.count)));
            let left = reported(memory.append_of(stream, after).await);
            let right = reported(durable.append_of(stream, after).await);
            agree(step, &(stream, after), &left, &right);
        }
        let after = format!("{:05}", self.dice.roll(STEPS as u64));
        // When appends were sent, each store knows by its own clock.
        let told = |page: Result<FeedPage, StoreError>| {
            let appends = page.map(|page| page.appends);
            let told = |one: FedAppend| (one.row.stream, one.row.first, one.row.count, one.entries);
            appends.map(|appends| appends.into_iter().map(told).collect::<Vec<_>>())
        };
        let feed = "feed".to_owned();
        let until = Timestamp::MAX;
        let request = FeedRequest { feed, labels: None, after: None, until, limit: 1000 };
        let left = told(memory.feed(&request).await);
        let right = told(durable.feed(&request).await);
        agree(step, &after, &left, &right);
    }

    fn session_write(&mut self) -> SessionWrite {
        let expect = match self.dice.roll(3) {
            0 => SessionExpectation::Any,
            _ => SessionExpectation::Version(self.dice.roll(4)),
        };
        let lease = if self.dice.one_in(2) { self.leases.last().cloned() } else { None };
        let save = if self.dice.one_in(4) { None } else { Some((self.state().into(), "1".to_owned())) };
        SessionWrite { session_id: self.session().into(), save, expect, lease, release: self.dice.one_in(2) }
    }

    fn invocation_write(&mut self) -> InvocationWrite {
        let generation = self.dice.roll(3);
        let number = self.dice.roll(12);
        let paused = Box::new(self.pause(number, generation));
        let owner = self.owner();
        match self.dice.roll(18) {
            0 | 1 => {
                let paused = Box::new(self.pause(number, 1));
                let claim = self.dice.one_in(3).then(|| self.born_claim());
                let early = self.early(&paused);
                InvocationWrite::Suspend { paused, from: SuspendFrom::Fresh, claim, early }
            }
            2 => {
                let generation = self.dice.roll(2);
                let previous = Box::new(self.pause(number, generation));
                let from = SuspendFrom::Claimed { owner, previous };
                let paused = Box::new(self.pause(number, generation + 1));
                let early = self.early(&paused);
                InvocationWrite::Suspend { paused, from, claim: None, early }
            }
            3 | 4 => InvocationWrite::Complete { paused, owner, state: self.state() },
            5 => {
                let failure = FailureRecord { category: Category::NodeException, message: "it broke".to_owned() };
                InvocationWrite::Fail { paused, owner: self.dice.one_in(2).then_some(owner), failure }
            }
            6 => InvocationWrite::Cancel { paused, cancellation: self.cancellation() },
            7 => {
                let invocation_id = paused.invocation_id;
                let cancellation = self.cancellation();
                InvocationWrite::CancelBeforeStart { invocation_id, cancellation }
            }
            8 => self.answer(*paused),
            9 => InvocationWrite::Conclude { paused: Box::new(self.pause(number, 0)), state: self.state() },
            10 | 11 => InvocationWrite::Accept { paused: Box::new(self.pause(number, 0)), again_at: None },
            12 => {
                // Sometimes one more than it knows of, which may be right by chance.
                let known = |fan_in: &FanIn| fan_in.answers.len() + usize::from(self.dice.one_in(2));
                let answered = paused.fan_in.as_ref().map(known);
                let invocation_id = paused.invocation_id;
                let payload = self.payload();
                InvocationWrite::Deliver { invocation_id, generation: generation.max(1), answered, payload }
            }
            13 => InvocationWrite::AssertClaimed { invocation_id: paused.invocation_id, generation, owner },
            14 => {
                let at_once = self.dice.one_in(2);
                InvocationWrite::Keep { invocation_id: paused.invocation_id, generation, owner, at_once }
            }
            15 => {
                let failure = FailureRecord { category: Category::AttemptsExhausted, message: "they died".to_owned() };
                InvocationWrite::PutAside { paused, owner, failure }
            }
            16 => InvocationWrite::Retry { paused },
            _ => InvocationWrite::Release { invocation_id: paused.invocation_id, generation, owner, again_at: None },
        }
    }

    /// Signals that may be parked, and may be others than those that are.
    fn early(&mut self, paused: &PausedInvocation) -> Vec<EarlySignal> {
        let parked = |id: &dormouse_ports::SignalId| EarlySignal { signal_id: id.clone(), payload: self.payload() };
        let early: Vec<_> = paused.awaited().map(parked).collect();
        if self.dice.one_in(2) { early } else { Vec::new() }
    }

    /// The first or the second answer to a pause that expects two; anything else is as if it were a turn without a pause.
    fn answer(&mut self, mut paused: PausedInvocation) -> InvocationWrite {
        let Some(fan_in) = &mut paused.fan_in else {
            return InvocationWrite::Conclude { paused: Box::new(paused), state: Map::new() };
        };
        let of = |part: &str| {
            let part = part.to_owned();
            let at = Timestamp::constant(1_800_000_000, 0);
            PartAnswer { payload: Map::from_iter([("from".to_owned(), part.as_str().into())]), part, at }
        };
        let answer = if self.dice.one_in(2) {
            of("left")
        } else {
            fan_in.answers.push(of("left"));
            of("right")
        };
        InvocationWrite::Answer { paused: Box::new(paused), answer }
    }

    fn cancellation(&mut self) -> Cancellation {
        Cancellation { reason: self.dice.one_in(2).then(|| "not needed".to_owned()), at: self.now }
    }

    fn born_claim(&mut self) -> Claim {
        let until = self.now + SignedDuration::from_secs(30);
        Claim { owner: self.owner(), until, payload: self.payload(), attempts: 1, taken_over: false }
    }

    /// What has not begun falls due at once and waits for no signal. Signal and due time follow from invocation and
    /// generation, as they do for a real pause: signals are shared by neighbours, so that waits collide.
    fn pause(&mut self, number: u64, generation: u64) -> PausedInvocation {
        let due = Due::first(Timestamp::constant(1_900_000_000, 0), DueAction::Fail);
        let is_due = generation == 0 || number.is_multiple_of(2);
        let wake = WakePlan { due: is_due.then_some(due), ..WakePlan::default() };
        let signal = match generation {
            0 => String::new(),
            generation => format!("s{}", number / 2 + 3 * (generation - 1) * (number % 2)),
        };
        PausedInvocation {
            session_id: number.is_multiple_of(3).then(|| "session-0".into()),
            generation,
            descriptor: SignalDescriptor::new(signal),
            wake,
            fan_in: (generation > 0 && number % 4 == 1).then(|| two_of(number + generation)),
            state: self.state().into(),
            ..PausedInvocation::before_first_pause(format!("i{number}").into(), "g", self.now)
        }
    }

    fn payload(&mut self) -> Map {
        Map::from_iter([("n".to_owned(), self.dice.roll(2).into())])
    }

    /// A state with a list that is one of a few, some of which are the beginnings of others.
    fn state(&mut self) -> Map {
        let branch = self.dice.roll(2);
        let count = self.dice.roll(40);
        let item = |n: u64| format!("item {n} of branch {}, long enough to count", if n < 20 { 0 } else { branch });
        let mut state = self.payload();
        state.insert("log".to_owned(), (0..count).map(item).collect::<Vec<_>>().into());
        state
    }

    /// What a turn may know of its lists: everything, nothing, or what is long out of date.
    fn growing(&mut self) -> GrowingLists {
        let known = self.dice.roll(4) * 10;
        let stored = self.stored.iter().rev().take(usize::try_from(known).expect("small")).cloned().collect();
        GrowingLists { fields: vec!["log".into()], stored }
    }

    fn owner(&mut self) -> Owner {
        Owner::from(format!("owner-{}", self.dice.roll(2)))
    }

    fn session(&mut self) -> String {
        format!("session-{}", self.dice.roll(2))
    }

    fn invocation(&mut self) -> String {
        format!("i{}", self.dice.roll(12))
    }

    fn signal(&mut self) -> String {
        format!("s{}", self.dice.roll(9))
    }
}

/// Two signals, which others await too.
fn two_of(number: u64) -> FanIn {
    let one =
        |part: &str, number: u64| Expected { part: part.to_owned(), signal_id: format!("s{}", number % 9).into() };
    let expected = vec![one("left", number), one("right", number + 4)];
    FanIn { expected, until: Until::All, counts: None, veto: None, into: "fan_in".to_owned(), answers: Vec::new() }
}

async fn rows(store: &dyn StateStore) -> Vec<PendingRow> {
    let mut rows = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list_pending(None, cursor.as_deref()).await.expect("an answer");
        rows.extend(page.items);
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    rows.sort_by(|left, right| left.invocation_id.cmp(&right.invocation_id));
    rows
}
