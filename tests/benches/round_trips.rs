//! What each path of the store costs in DynamoDB round trips and capacity units at a state of about 4 KB.
//!
//! Run with `cargo bench -p dormouse-tests --bench round_trips`. The units are those that the embedded store reports;
//! the test `metering` holds them against the documented rules. One row per path and per place of the state: inside
//! its item, its messages apart as pieces of a list, or apart as a shared blob; for invocations with a session, which is saved along, and without one.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "round_trips/state.rs"]
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, Commits, GrowingLists, InvocationWrite, Journal, Lease, LeaseRequest, Map,
    Owner, PausedInvocation, SessionExpectation, SessionWrite, Sessions, SignalState, Signals, StoredList, SuspendFrom,
};
use jiff::{SignedDuration, Timestamp};
use state::{pause, transcript};

/// How often each path is taken: the units are those of one, the time is the mean.
const ROUNDS: usize = 50;

/// A path with its goals: round trips, write units.
const GOALS: [(&str, u64); 4] =
    [("turn that completes", 2), ("turn that suspends", 2), ("resume by invocation id", 2), ("resume by signal id", 3)];
const UNITS_GOAL: f64 = 12.0;
/// An inline limit under which this state is a blob, but the rest of its pause is not.
const BLOB_LIMIT: usize = 768;

struct Bench {
    store: DynamoDbStateStore,
    meter: Meter,
    serial: usize,
    sessioned: bool,
    /// The lists that are said to grow.
    fields: Vec<Arc<str>>,
}

#[derive(Default)]
struct Cost {
    requests: u64,
    writes: f64,
    reads: f64,
    spent: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let size = serde_json::to_vec(&transcript(0)).map_or(0, |bytes| bytes.len());
    println!("state: {size} bytes of JSON; goal of every path but the first: at most {UNITS_GOAL} write units");
    println!(
        "session  state lives  path                      round trips  goal  write units  read units  ms, embedded"
    );
    let inline_limit = StoreConfig::default().inline_limit;
    for (sessioned, place, inline_limit, fields) in [
        (true, "in pieces", inline_limit, vec!["messages".into()]),
        (true, "in its item", inline_limit, Vec::new()),
        (true, "in a blob", BLOB_LIMIT, Vec::new()),
        (false, "in its item", inline_limit, Vec::new()),
    ] {
        measure(sessioned, place, inline_limit, fields).await;
    }
}

async fn measure(sessioned: bool, place: &str, inline_limit: usize, fields: Vec<Arc<str>>) {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), "dormouse").await.expect("the table is made");
    let meter = Meter::with_units();
    let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
    let config = StoreConfig { inline_limit, ..StoreConfig::default() };
    let mut bench =
        Bench { store: DynamoDbStateStore::new(&client, "dormouse", config), meter, serial: 0, sessioned, fields };
    // A turn that completes without a session writes nothing at all.
    let untouched = usize::from(!sessioned);
    for (path, (name, goal)) in GOALS.into_iter().enumerate().skip(untouched) {
        let mut total = Cost::default();
        for _ in 0..ROUNDS {
            bench.serial += 1;
            let cost = bench.path(path).await;
            total = Cost { spent: total.spent + cost.spent, ..cost };
        }
        let mean = total.spent.as_secs_f64() * 1000.0 / f64::from(u32::try_from(ROUNDS).unwrap_or(u32::MAX));
        let requests = total.requests;
        let writes = total.writes;
        let reads = total.reads;
        let session = if sessioned { "yes" } else { "no" };
        println!(
            "{session:<7}  {place:<11}  {name:<24}  {requests:>11}  {goal:>4}  {writes:>11}  {reads:>10}  {mean:>12.2}"
        );
    }
}

fn now() -> Timestamp {
    Timestamp::constant(1_800_000_000, 0)
}

fn until() -> Timestamp {
    now() + SignedDuration::from_secs(60)
}

impl Bench {
    /// Prepares what the path needs, then takes it and tells what it cost.
    async fn path(&self, path: usize) -> Cost {
        self.settle_session().await;
        let mut paused = pause(&format!("i{}", self.serial), &format!("s{}", self.serial));
        paused.session_id = self.sessioned.then(|| self.session());
        if path >= 2 {
            self.suspended_turn(&paused).await;
        }
        self.meter.reset();
        let start = Instant::now();
        match path {
            0 => self.completed_turn().await,
            1 => self.suspended_turn(&paused).await,
            2 => self.resume(&paused).await,
            _ => {
                self.look_up(&paused).await;
                self.resume(&paused).await;
            }
        }
        self.cost(start.elapsed())
    }

    fn cost(&self, spent: Duration) -> Cost {
        let mut cost = Cost { spent, ..Cost::default() };
        for (operation, usage) in self.meter.snapshot() {
            cost.requests += usage.requests;
            let read = ["GetItem", "Query", "Scan"].contains(&operation.as_str());
            *(if read { &mut cost.reads } else { &mut cost.writes }) += usage.units;
        }
        cost
    }

    /// The session has been saved before: its head holds a state of the same size.
    async fn settle_session(&self) {
        let write = self.save(SessionExpectation::Any, None, 0);
        self.commit("settle", Some(write), None, Vec::new()).await;
    }

    async fn completed_turn(&self) {
        let (lease, stored) = self.lease().await;
        let write = self.save(SessionExpectation::Version(1), Some(lease), 1);
        self.commit("complete", Some(write), None, stored).await;
    }

    async fn suspended_turn(&self, paused: &PausedInvocation) {
        let (write, stored) = match self.sessioned {
            true => {
                let (lease, stored) = self.lease().await;
                (Some(self.save(SessionExpectation::Version(1), Some(lease), 1)), stored)
            }
            false => (None, Vec::new()),
        };
        let pause = InvocationWrite::Suspend {
            paused: Box::new(paused.clone()),
            from: SuspendFrom::Fresh,
            claim: None,
            early: Vec::new(),
        };
        self.commit("suspend", write, Some(pause), stored).await;
    }

    async fn look_up(&self, paused: &PausedInvocation) {
        let found = self.store.load_signal(&paused.descriptor.signal_id, now()).await.expect("an answer");
        let state = found.map(|record| record.state);
        assert!(matches!(state, Some(SignalState::Waiting { .. })), "{state:?}");
    }

    async fn resume(&self, paused: &PausedInvocation) {
        let owner = Owner::from("worker");
        let request = ClaimRequest {
            invocation_id: paused.invocation_id.clone(),
            generation: Some(1),
            owner: owner.clone(),
            now: now(),
            until: until(),
            past: None,
            payload: Some(Map::from_iter([("approved".to_owned(), true.into())])),
            answered: None,
        };
        let outcome = self.store.claim(&request).await.expect("an answer");
        let ClaimOutcome::Granted(record) = outcome else { panic!("not granted: {outcome:?}") };
        let end = InvocationWrite::Complete { paused: Box::new(paused.clone()), owner, state: transcript(2) };
        let write = self.sessioned.then(|| self.save(SessionExpectation::Version(2), None, 2));
        self.commit("finish", write, Some(end), record.stored).await;
    }

    async fn lease(&self) -> (Lease, Vec<StoredList>) {
        let request =
            LeaseRequest { owner: Owner::from("turn"), now: now(), until: until(), past: None, begun_for: None };
        let loaded = self.store.load_session(&self.session(), Some(&request)).await.expect("the lease");
        assert!(loaded.record.is_some_and(|record| record.version == 1));
        (loaded.lease.expect("a lease was asked for"), loaded.stored)
    }

    fn save(&self, expect: SessionExpectation, lease: Option<Lease>, turn: usize) -> SessionWrite {
        let release = lease.is_some();
        let save = Some((transcript(turn).into(), "1".to_owned()));
        SessionWrite { session_id: self.session(), save, expect, lease, release }
    }

    fn session(&self) -> dormouse_ports::SessionId {
        format!("session-{:08}-4000-8000-0123456789ab", self.serial).into()
    }

    async fn commit(
        &self,
        step: &str,
        session: Option<SessionWrite>,
        invocation: Option<InvocationWrite>,
        stored: Vec<StoredList>,
    ) {
        let id = format!("{step:-<12}-{:08}-4000-123456789ab", self.serial);
        let commit = Commit {
            id,
            now: now(),
            session,
            invocation,
            journal: Journal::default(),
            growing: GrowingLists { fields: self.fields.clone(), stored },
        };
        self.store.commit(&commit).await.expect("it is written");
    }
}
