//! One run: first everything may fail, then it must come to rest.

mod calls;
mod mail;
mod time;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_harness::GraphRegistry;
use serde_json::json;

use super::agents;
use super::clients::Clients;
use super::executor::Executor;
use super::fault_plan::Fault;
use super::history::{self, Violation};
use super::outside::{Outside, at_once};
use super::poison::Death;
use super::process::{Message, Process, Reply};
use super::quiescent::{AT_REST, Quiescent};
use super::replays;
use super::requests;
use super::storage;
use super::trace::Trace;
use super::workload;
use super::world::{ProcessId, World};
use super::{Options, PlantedBug, Report, Store};

/// How many decisions a run makes while everything may fail.
const STORMY_STEPS: u32 = 500;
/// How many it may take to come to rest afterwards.
const CALM_STEPS: u32 = 20_000;
/// How often the sweep goes around when nothing fails any more.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// By then every deadline of the workload has passed, and no parked signal has expired.
const BEYOND_DEADLINES: Duration = Duration::from_secs(4 * 24 * 3600);

/// Who sent a message, and whom its reply concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Job(usize),
    Parcel(u64),
    Sweep,
}

/// A message that has not arrived.
struct Letter {
    source: Source,
    message: Message,
}

/// A message that a process works on.
struct Delivery {
    source: Source,
    process: ProcessId,
    /// The number of the task that does it.
    task: u64,
}

/// One run.
pub(crate) struct Simulator {
    world: World,
    graphs: GraphRegistry,
    outside: Outside,
    executor: Executor,
    processes: Vec<Process>,
    started: ProcessId,
    clients: Clients,
    letters: Vec<Letter>,
    /// What processes work on, by the number of the delivery.
    running: BTreeMap<u64, Delivery>,
    /// How many processes died of each of those that kill.
    deaths: BTreeMap<Death, u32>,
    delivered: u64,
    replies: Arc<Mutex<Vec<(u64, Reply)>>>,
    trace: Trace,
    planted: Option<PlantedBug>,
    store: Store,
    calls: u64,
    deepest: usize,
    stormy: bool,
    /// Whether the services refuse every other registration, as long as anything may fail.
    refuses: bool,
    /// How many tasks were replayed.
    replayed: usize,
}

impl Simulator {
    /// A run on `world`, which was set up for it.
    pub(crate) fn new(world: World, graphs: GraphRegistry, options: &Options) -> Self {
        let planted = options.planted;
        let mut simulator = Self {
            outside: Outside::new(options),
            executor: Executor::default(),
            processes: Vec::new(),
            started: 0,
            clients: Clients::default(),
            letters: Vec::new(),
            running: BTreeMap::new(),
            deaths: BTreeMap::new(),
            delivered: 0,
            replies: Arc::default(),
            trace: Trace::new(options.readable),
            planted,
            store: options.store,
            calls: 0,
            deepest: 0,
            stormy: true,
            refuses: false,
            replayed: 0,
            world,
            graphs,
        };
        for (number, journal) in requests::keys(simulator.world.now()).into_iter().enumerate() {
            simulator.outside.know(format!("key-{number}"), simulator.world.now(), journal);
        }
        simulator.clients.signals_of_tenants = simulator.world.lock().signals_of_tenants;
        let plan = workload::plan(&mut simulator.world.lock().chance);
        for (due, operation) in plan.operations {
            simulator.clients.operation(due, operation);
        }
        simulator.refuses = plan.refuses;
        if let Some(attempts) = plan.attempts {
            simulator.world.lock().attempts = attempts;
            simulator.clients.poisons = true;
        }
        simulator.outside.history.most_attempts = simulator.world.lock().attempts;
        for _ in 0..simulator.chance(|chance| chance.usize(1..=3)) {
            let process = simulator.start_process();
            simulator.processes.push(process);
        }
        simulator
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        let violation = self.storm().and_then(|()| self.calm_down()).err();
        let struck = self.world.lock().fault_plan.struck();
        let digest = self.trace.digest();
        let steps = self.trace.steps();
        let pauses = self.outside.history.pauses.len();
        let tasks = self.outside.history.published.outcomes.len();
        let aside = self.outside.history.aside.len();
        let calls = self.calls;
        let replayed = self.replayed;
        let (agents, doubts) = agents::counted(&self.outside.history);
        let rests = agents::rests(&self.outside.history);
        let overtaken = self.outside.history.overtaken;
        let deepest = self.deepest;
        let trace = self.trace.into_lines();
        Report {
            seed,
            digest,
            steps,
            calls,
            pauses,
            tasks,
            aside,
            replayed,
            agents,
            doubts,
            rests,
            overtaken,
            deepest,
            struck,
            violation,
            trace,
        }
    }

    /// Everything may go wrong.
    fn storm(&mut self) -> Result<(), Violation> {
        for _ in 0..STORMY_STEPS {
            self.settle_tasks()?;
            self.post();
            if self.is_idle() && self.outside.services.schedules.is_empty() {
                break;
            }
            self.step()?;
        }
        Ok(())
    }

    /// Nothing goes wrong any more; everything must come to rest, also once all deadlines are over.
    fn calm_down(&mut self) -> Result<(), Violation> {
        self.stormy = false;
        self.world.lock().fault_plan.clear_up();
        self.trace.note(format_args!("-- from here on nothing goes wrong"));
        self.come_to_rest()?;
        let elapsed = self.world.lock().elapsed + BEYOND_DEADLINES;
        self.advance_to(elapsed);
        self.come_to_rest()?;
        self.check_storage()
    }

    fn come_to_rest(&mut self) -> Result<(), Violation> {
        let mut sweeps_without_change = 0;
        let mut before = None;
        let mut next_sweep = self.world.lock().elapsed + SWEEP_EVERY;
        for _ in 0..CALM_STEPS {
            self.settle_tasks()?;
            self.post();
            if self.is_idle() {
                // What the last sweep called for is done by now.
                let changes = self.outside.history.changes;
                sweeps_without_change = if before == Some(changes) { sweeps_without_change + 1 } else { 0 };
                // By the clock of who swept it may not have been due yet.
                let enough = if self.outside.history.has_work_for_a_sweep(self.world.now()) { 3 } else { 2 };
                if sweeps_without_change >= enough {
                    return self.check_rest();
                }
                before = Some(changes);
                // Claims and leases of the dead run out meanwhile.
                let later = self.world.lock().elapsed + SWEEP_EVERY;
                self.advance_to(later);
                self.sweep()?;
            } else {
                // What a dead worker had claimed is found by the sweep alone, while clients ask and ask.
                let elapsed = self.world.lock().elapsed;
                if elapsed >= next_sweep {
                    next_sweep = elapsed + SWEEP_EVERY;
                    if self.has_work_for_a_sweep() {
                        self.send_sweep("everything");
                    }
                }
                self.step()?;
            }
        }
        let how = format!("after {CALM_STEPS} calm steps there is still something to do");
        Err(Violation { invariant: "everything comes to rest", how })
    }

    fn check_rest(&mut self) -> Result<(), Violation> {
        let now = self.world.now();
        let history = &self.outside.history;
        let services = &self.outside.services;
        let rows = history::rows(&*self.outside.truth);
        let stale_parked_rows = history::stale_parked_rows(&*self.outside.truth, now);
        let listed_aside = at_once(self.outside.truth.put_aside()).unwrap_or_default();
        let rest = Quiescent { history, services, clients: &self.clients, rows, stale_parked_rows, listed_aside, now };
        AT_REST.iter().try_for_each(|(invariant, holds)| holds(&rest).map_err(|how| Violation { invariant, how }))
    }

    /// What holds when there is nothing more to come: the table is then looked at, and grows old.
    fn check_storage(&mut self) -> Result<(), Violation> {
        let now = self.world.now();
        let invariant = "storage holds no orphans";
        storage::holds_no_orphans(&mut self.outside, now).map_err(|how| Violation { invariant, how })?;
        let invariant = "an exact replay ends as the task did";
        let replayed = replays::ends_are_repeated(&self.outside, now).map_err(|how| Violation { invariant, how })?;
        self.replayed = replayed;
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let world = self.world.lock();
        world.pending_calls.is_empty()
            && self.letters.is_empty()
            && self.running.is_empty()
            && self.executor.len() == 0
            && self.outside.services.parcels.is_empty()
            && self.outside.services.announcements.is_empty()
            && self.clients.are_content()
    }

    /// Sends the sweep around and waits until it is through.
    fn sweep(&mut self) -> Result<(), Violation> {
        self.send_sweep("everything");
        for _ in 0..CALM_STEPS {
            self.settle_tasks()?;
            self.post();
            if self.running.is_empty() && self.letters.is_empty() {
                return Ok(());
            }
            self.step()?;
        }
        Err(Violation { invariant: "everything comes to rest", how: "a sweep never ends".to_owned() })
    }

    /// Lets every task go as far as it can, and takes what functions replied.
    fn settle_tasks(&mut self) -> Result<(), Violation> {
        loop {
            let spawned = std::mem::take(&mut self.world.lock().spawned);
            for (process, task) in spawned {
                self.executor.spawn(process, task);
            }
            let mut chance = self.world.lock().chance.fork();
            let polled = self.executor.poll_one(&mut chance, |process| self.world.lock().running = process);
            let Some(task) = polled else { break };
            let death = self.world.lock().death.take();
            if let Some(death) = death {
                self.die_of(death, task)?;
            }
        }
        let replies = std::mem::take(&mut *self.replies.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, reply) in replies {
            if let Some(delivery) = self.running.remove(&number) {
                let lost = self.strikes(Fault::ReplyLost);
                self.receive(delivery.source, if lost { None } else { Some(reply) })?;
            }
        }
        let under_way = self.world.lock().pending_calls.len();
        self.deepest = self.deepest.max(under_way);
        match self.outside.history.violation.clone() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// One decision of chance: what happens next.
    fn step(&mut self) -> Result<(), Violation> {
        let elapsed = self.world.lock().elapsed;
        let ready: Vec<usize> = {
            let world = self.world.lock();
            (0..world.pending_calls.len()).filter(|index| world.pending_calls[*index].not_before <= elapsed).collect()
        };
        let possible = ready.len() + self.letters.len();
        let go_on = possible > 0 && (!self.stormy || self.chance(|chance| chance.u8(..100)) < 88);
        if go_on {
            let next = self.chance(|chance| chance.usize(..possible));
            match ready.get(next) {
                Some(pending_call) => self.serve_ticket(*pending_call)?,
                None => self.arrive(next - ready.len()),
            }
            return Ok(());
        }
        match self.chance(|chance| chance.u8(..100)) {
            0..8 if self.stormy && self.strikes(Fault::Died) => {
                let victim = self.chance(|chance| chance.usize(..self.processes.len()));
                self.kill(victim)
            }
            8..24 if self.stormy => {
                let scope = if self.chance(fastrand::Rng::bool) { "due" } else { "everything" };
                self.send_sweep(scope);
                Ok(())
            }
            // Where a claim has run out, its worker and whoever takes it over may meet; where a pause has fallen due, its
            // timer and the sweep; where a rule has become idle, the sweep that removes it and whoever needs it again.
            36..70 if self.stormy && self.has_work_for_a_sweep() => {
                self.send_sweep("everything");
                Ok(())
            }
            24..36 if self.stormy => {
                self.lose_patience();
                Ok(())
            }
            _ => {
                self.let_time_pass();
                Ok(())
            }
        }
    }

    fn has_work_for_a_sweep(&self) -> bool {
        self.outside.history.has_work_for_a_sweep(self.world.now()) || self.outside.has_idle_rule()
    }

    fn send_sweep(&mut self, scope: &str) {
        self.send(Source::Sweep, &Message::Wakeup(json!({ "dormouse_sweep": scope })));
    }

    fn chance<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.world.lock().chance)
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        let mut world = self.world.lock();
        let world = &mut *world;
        world.fault_plan.strikes(fault, &mut world.chance)
    }
}
