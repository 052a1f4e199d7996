//! The table, requests on their way to it, and who looks at it after each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use dormouse_aws::{DynamoDbStateStore, RetryPolicy, StoreConfig, ensure_table};
use dormouse_ports::{
    InvocationId, InvocationRecord, InvocationStatus, Invocations, PausedInvocation, Records, SessionId, Sessions,
};
use dormouse_testkit::ManualClock;
use dormouse_tests::in_process::{Body, Destination, Never, Said, config_of, obey, throttled};
use dynoxide::Database;
use futures::FutureExt;
use futures::channel::oneshot;
use serde_json::Value;

use super::facts::{Ledger, Reading, RunReading, without_turns};

const TABLE: &str = "dormouse";
pub(crate) const STREAM: &str = "desk";
pub(crate) const FEED: &str = "tenant";
/// The number of requests of which is kept what happened to them.
const TRACED: usize = 80;

/// What is wrong with the table, so that something is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// Two may write to one place of a stream.
    OpenStreams,
    /// Who writes an invocation need not have claimed it.
    OpenClaims,
    /// Nothing stands in the way of a worker whose claim was taken over.
    NoFences,
}

/// A request on its way.
#[derive(Debug)]
struct Ticket {
    actor: u64,
    operation: &'static str,
    body: Body,
    /// Who waits for the answer.
    reply: Option<oneshot::Sender<Said>>,
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Steps that were accepted.
    pub(crate) steps: usize,
    /// Of them those that were written by one request for one item.
    pub(crate) noted: usize,
    /// Claims that were granted.
    pub(crate) granted: usize,
    /// Of them those of a task with steps that were noted.
    pub(crate) granted_notes: usize,
    /// Readings that showed the task while others went on.
    pub(crate) read: usize,
    /// Erasures that came to their end.
    pub(crate) erased: usize,
    /// Requests that arrived when nobody waited for them any more.
    pub(crate) late: usize,
    /// Faults of other kinds.
    pub(crate) faults: usize,
}

struct Shared {
    chance: fastrand::Rng,
    /// Requests that wait, the late ones among them.
    tickets: Vec<Ticket>,
    ledger: Ledger,
    counts: Counts,
    /// What happened to the last requests.
    trace: VecDeque<String>,
    violation: Option<String>,
    /// True when requests are served at once and nothing fails any more.
    calm: bool,
    last_id: u64,
}

/// Everything there is in a run.
#[derive(Clone)]
pub(crate) struct World {
    shared: Arc<Mutex<Shared>>,
    database: Database,
    planted: Option<Planted>,
    pub(crate) clock: Arc<ManualClock>,
    config: StoreConfig,
    truth: DynamoDbStateStore,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

/// The table as it is.
#[derive(Clone)]
struct Straight(Database);

impl std::fmt::Debug for Straight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Straight")
    }
}

impl Destination for Straight {
    async fn send(self, operation: &'static str, body: Body) -> Said {
        Ok(obey(&self.0, operation, &body))
    }
}

/// The table as one actor has it.
#[derive(Clone, Debug)]
struct Wire {
    world: World,
    actor: u64,
}

impl Destination for Wire {
    async fn send(self, operation: &'static str, body: Body) -> Said {
        if self.world.shared().calm {
            return Ok(self.world.serve(operation, &body));
        }
        let (reply, answered) = oneshot::channel();
        let ticket = Ticket { actor: self.actor, operation, body, reply: Some(reply) };
        self.world.shared().tickets.push(ticket);
        answered.await.unwrap_or(Err("the run is over"))
    }
}

fn client(destination: impl Destination) -> Client {
    Client::from_conf(config_of(destination).sleep_impl(Never).build())
}

/// What a store without clock or network answers.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the table answers at once")
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let database = Database::memory().expect("a database in memory");
        let straight = client(Straight(database.clone()));
        at_once(ensure_table(&straight, TABLE)).expect("a table");
        let retry = RetryPolicy { attempts: 3, base: Duration::ZERO, cap: Duration::ZERO };
        let config = StoreConfig { retry, ..StoreConfig::default() };
        // In some runs states of a few words lie apart, and their lists are in pieces.
        let config = match chance.u8(..3) {
            0 => StoreConfig { inline_limit: 96, whole_limit: 64, ..config },
            1 => StoreConfig { whole_limit: 64, ..config },
            _ => config,
        };
        let truth = DynamoDbStateStore::new(&straight, TABLE, config.clone());
        let shared = Shared {
            chance,
            tickets: Vec::new(),
            ledger: Ledger::default(),
            counts: Counts::default(),
            trace: VecDeque::new(),
            violation: None,
            calm: true,
            last_id: 0,
        };
        let clock = Arc::new(ManualClock::default());
        Self { shared: Arc::new(Mutex::new(shared)), database, planted, clock, config, truth }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A store with a memory of its own, whose requests are those of `actor`.
    pub(crate) fn store(&self, actor: u64) -> DynamoDbStateStore {
        let wire = Wire { world: self.clone(), actor };
        DynamoDbStateStore::new(&client(wire), TABLE, self.config.clone()).timed_by(self.clock.clone())
    }

    /// What chance says.
    pub(crate) fn chance<T>(&self, ask: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        ask(&mut self.shared().chance)
    }

    /// A number that there was not yet.
    pub(crate) fn fresh(&self) -> u64 {
        let mut shared = self.shared();
        shared.last_id += 1;
        shared.last_id
    }

    /// Whether all goes well from now on.
    pub(crate) fn calm(&self, calm: bool) {
        self.shared().calm = calm;
    }

    pub(crate) fn counts(&self) -> Counts {
        let shared = self.shared();
        Counts { steps: shared.ledger.steps(), ..shared.counts }
    }

    /// Tells the ledger.
    pub(crate) fn tell<T>(&self, what: impl FnOnce(&mut Ledger) -> T) -> T {
        what(&mut self.shared().ledger)
    }

    /// Reports what is wrong, if anything.
    pub(crate) fn report(&self, found: Result<(), String>) {
        if let Err(violation) = found {
            self.shared().violation.get_or_insert(violation);
        }
    }

    /// What happened to the last requests, a line each.
    pub(crate) fn trace(&self) -> String {
        Vec::from(self.shared().trace.clone()).join("\n")
    }

    fn record(&self, what: String) {
        let mut shared = self.shared();
        shared.trace.push_back(what);
        if shared.trace.len() > TRACED {
            shared.trace.pop_front();
        }
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.shared().violation.clone()
    }

    /// `worker` was granted its claim with `record`.
    pub(crate) fn granted(&self, worker: &str, record: &InvocationRecord) {
        {
            let mut shared = self.shared();
            shared.counts.granted += 1;
            shared.counts.granted_notes += usize::from(record.saved.is_some());
        }
        self.record(format!("{worker} is granted the claim"));
        let now = at_once(self.truth.load_invocation(&invocation())).ok().flatten().map(|record| record.status);
        let is_current = matches!(&now, Some(InvocationStatus::Resuming(claim)) if claim.owner.as_str() == worker);
        let handed = run_of(&record.paused);
        self.report(self.tell(|ledger| match is_current {
            true => ledger.granted(worker, &handed),
            false => {
                ledger.granted_too_late(worker);
                Ok(())
            }
        }));
    }

    /// Somebody read `paused`, beginning when there were `steps`.
    pub(crate) fn was_read(&self, steps: usize, paused: &PausedInvocation) {
        self.shared().counts.read += 1;
        let was = self.tell(|ledger| ledger.was_once(steps, &run_of(paused)));
        self.report(was);
    }

    /// All of it was erased, and nothing was left.
    pub(crate) fn erased(&self) {
        self.shared().counts.erased += 1;
        self.record("all is erased".to_owned());
        self.tell(Ledger::erased);
        self.look();
    }

    /// Looks at the table.
    pub(crate) fn look(&self) {
        if self.tell(|ledger| ledger.is_in_erasure()) {
            return;
        }
        let found = at_once(self.read()).and_then(|reading| self.tell(|ledger| ledger.look(&reading)));
        self.report(found);
    }

    async fn read(&self) -> Result<Reading, String> {
        let entries = self.truth.entries(STREAM, 0, 100_000).await.map_err(|error| error.to_string())?;
        let tip = self.truth.tip(STREAM).await.map_err(|error| error.to_string())?;
        let record = self.truth.load_invocation(&invocation()).await.map_err(|error| error.to_string())?;
        let session = self.truth.load_session(&session(), None).await.map_err(|error| error.to_string())?.record;
        let run = record.as_ref().map(|record| run_of(&record.paused));
        Ok(Reading {
            entries: entries.into_iter().map(|entry| (entry.position, entry.entry)).collect(),
            tip: (tip.position, tip.known.unwrap_or_default()),
            run,
            final_state: record.and_then(|record| record.status.into_final_state()).map(without_turns),
            session: session.map(|record| (record.version, record.state)),
        })
    }

    /// Does what is asked, and looks at what came of it.
    fn serve(&self, operation: &'static str, body: &[u8]) -> (u16, Body) {
        let answer = match self.planted.and_then(|planted| bent(planted, operation, body)) {
            Some(Bent::Request(body)) => obey(&self.database, operation, &body),
            Some(Bent::Answer(answer)) => answer,
            None => obey(&self.database, operation, body),
        };
        if answer.0 == 200 && WRITES.contains(&operation) {
            if is_noted_step(operation, body) {
                self.shared().counts.noted += 1;
            }
            self.look();
        }
        answer
    }

    /// True if requests are under way for which nobody waits.
    pub(crate) fn has_late(&self) -> bool {
        self.shared().tickets.iter().any(|ticket| ticket.reply.is_none())
    }

    /// Lets one request go on, of those that somebody waits for or of the others; `faults` is the chance of a fault, in
    /// percent. The actor that is to be killed, if any.
    pub(crate) fn go_on(&self, waited_for: bool, faults: u8) -> Option<u64> {
        let (mut ticket, fate) = {
            let mut shared = self.shared();
            let is_one = |ticket: &Ticket| ticket.reply.is_some() == waited_for;
            let places = shared.tickets.iter().enumerate().filter(|(_, ticket)| is_one(ticket)).map(|(at, _)| at);
            let places: Vec<usize> = places.collect();
            let at = *places.get(shared.chance.usize(..places.len().max(1)))?;
            let fails = waited_for && shared.chance.u8(..100) < faults;
            let fate = if fails { shared.chance.u8(1..7) } else { 0 };
            shared.counts.faults += usize::from(fails);
            (shared.tickets.swap_remove(at), fate)
        };
        let Ticket { actor, operation, .. } = ticket;
        let fates =
            ["served", "answer lost", "lost", "throttled", "given up", "its sender dies", "served, its sender dies"];
        let fate_of = if waited_for { fates[usize::from(fate)] } else { "served late" };
        self.record(format!("a{actor}: {operation} {}: {fate_of}", about(&ticket.body)));
        let said = match fate {
            0 => Ok(self.serve(operation, &ticket.body)),
            1 => {
                self.serve(operation, &ticket.body);
                Err("the answer was lost")
            }
            2 => Err("the request was lost"),
            3 => Ok(throttled(operation, &ticket.body)),
            // It is given up, and arrives later.
            4 => {
                let reply = ticket.reply.take();
                self.shared().tickets.push(ticket);
                if let Some(reply) = reply {
                    // Who asked may be gone.
                    let _ = reply.send(Err("nobody waits any longer"));
                }
                return None;
            }
            // Its process dies before it is served, or behind that.
            5 => {
                self.shared().tickets.push(ticket);
                return Some(actor);
            }
            _ => {
                self.serve(operation, &ticket.body);
                return Some(actor);
            }
        };
        match ticket.reply {
            Some(reply) => {
                let _ = reply.send(said);
            }
            None => self.shared().counts.late += 1,
        }
        None
    }

    /// The requests of `actor`, which is dead, get lost or arrive late.
    pub(crate) fn orphan(&self, actor: u64) {
        let mut shared = self.shared();
        let Shared { chance, tickets, .. } = &mut *shared;
        tickets.retain(|ticket| ticket.actor != actor || ticket.reply.is_none() || chance.u8(..3) > 0);
        for ticket in tickets.iter_mut().filter(|ticket| ticket.actor == actor) {
            ticket.reply = None;
        }
    }
}

pub(crate) fn invocation() -> InvocationId {
    InvocationId::from("task")
}

pub(crate) fn session() -> SessionId {
    SessionId::from("desk")
}

fn run_of(paused: &PausedInvocation) -> RunReading {
    RunReading {
        state: without_turns(paused.state.clone().into_map()),
        step: paused.step,
        places: paused.completed_positions.len(),
        trace: paused.trace_context.clone(),
    }
}

/// The items that a request is about.
fn about(body: &[u8]) -> String {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let parts = request["TransactItems"].as_array().into_iter().flatten();
    let changes = parts.filter_map(|part| part.as_object()?.values().next()).chain([&request]);
    let keys = changes.flat_map(|change| [&change["Item"], &change["Key"]]).filter(|key| key.is_object());
    let texts = keys.map(|key| {
        let text = |name: &str| key[name]["S"].as_str().unwrap_or_default();
        let marks = [("step", " with a step"), ("fenced_by", " as a fence")];
        let noted = marks.into_iter().filter(|(name, _)| key.get(*name).is_some()).map(|(_, mark)| mark);
        let noted = noted.collect::<String>();
        format!("{} {}{noted}", text("pk"), text("sk"))
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// What changes something.
const WRITES: [&str; 4] = ["PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"];

/// True if the request is for one item, which holds a step beside entries of the stream.
fn is_noted_step(operation: &str, body: &[u8]) -> bool {
    let item = || serde_json::from_slice::<Value>(body).unwrap_or_default()["Item"].take();
    operation == "PutItem" && item().get("step").is_some()
}

/// What comes of a request where something is wrong.
enum Bent {
    Request(Body),
    Answer((u16, Body)),
}

fn bent(planted: Planted, operation: &str, body: &[u8]) -> Option<Bent> {
    let mut request: Value = serde_json::from_slice(body).ok()?;
    let kind = match planted {
        Planted::NoFences => {
            let is_fence = operation == "PutItem" && request["Item"].get("fenced_by").is_some();
            return is_fence.then(|| Bent::Answer((200, b"{}".to_vec())));
        }
        Planted::OpenStreams => "STREAM#",
        Planted::OpenClaims => "INVOCATION#",
    };
    match (operation, planted) {
        ("TransactWriteItems", _) => {
            for part in request["TransactItems"].as_array_mut()?.iter_mut() {
                for change in part.as_object_mut()?.values_mut() {
                    open(change, kind);
                }
            }
        }
        ("PutItem", Planted::OpenStreams) => open(&mut request, kind),
        _ => return None,
    }
    Some(Bent::Request(request.to_string().into_bytes()))
}

/// Makes the condition of `change` hold always, where it is about such an item.
fn open(change: &mut Value, kind: &str) {
    let key = ["Item", "Key"].iter().find_map(|place| change[*place]["pk"]["S"].as_str());
    if key.is_some_and(|pk| pk.starts_with(kind))
        && let Some(condition) = change["ConditionExpression"].as_str()
    {
        let always = format!("({condition}) OR attribute_exists(pk) OR attribute_not_exists(pk)");
        change["ConditionExpression"] = always.into();
    }
}
