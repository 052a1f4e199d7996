use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_ports::{Commit, InvocationId, limits};
use futures::channel::oneshot;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::agents;
use super::fault_plan::FaultPlan;
use super::intent::Intent;
use super::pending_call::PendingCall;
use super::planted::PlantedBug;
use super::poison::{Death, Poison};

/// One incarnation of a process: a number that is never used again.
pub(crate) type ProcessId = u32;

/// When simulated time begins.
pub(crate) const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// What processes and the simulator share: time, chance, and calls under way.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

pub(crate) struct Inner {
    pub(crate) chance: fastrand::Rng,
    pub(crate) fault_plan: FaultPlan,
    /// Whose task is polled now.
    pub(crate) running: ProcessId,
    /// What the requests are for that are sent now.
    pub(crate) intent: Option<Arc<Intent>>,
    /// How much time has passed.
    pub(crate) elapsed: Duration,
    pub(crate) pending_calls: Vec<PendingCall>,
    /// Work that processes started beside their requests.
    pub(crate) spawned: Vec<(ProcessId, BoxFuture<'static, ()>)>,
    /// How many workers may die of one invocation before it is put aside.
    pub(crate) attempts: u32,
    /// What kills whoever does it, by its invocation.
    pub(crate) poison: BTreeMap<String, Poison>,
    /// Of what the running process has just died.
    pub(crate) death: Option<Death>,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
    ids: u64,
    /// How many entries nodes have recorded.
    recorded: u64,
    /// The model calls of each run of an agent that are recorded.
    pub(crate) recorded_steps: BTreeMap<InvocationId, u64>,
    /// The bug that nodes have, if they have one.
    pub(crate) planted: Option<PlantedBug>,
    /// Whether keys of tenants send signals: in every third run.
    pub(crate) signals_of_tenants: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner::new(0))))
    }

    /// Begins anew, from `seed`.
    pub(crate) fn restart(&self, seed: u64) {
        let old = std::mem::replace(&mut *self.lock(), Inner::new(seed));
        // What is left of the run before may look at the world while it is dropped.
        drop(old);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true present instant; the clocks of processes differ from it a little.
    pub(crate) fn now(&self) -> Timestamp {
        START + self.lock().elapsed
    }
}

impl Inner {
    fn new(seed: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let fault_plan = FaultPlan::of(&mut chance);
        Self {
            chance,
            fault_plan,
            running: 0,
            intent: None,
            elapsed: Duration::ZERO,
            pending_calls: Vec::new(),
            spawned: Vec::new(),
            attempts: limits::ATTEMPTS,
            poison: BTreeMap::new(),
            death: None,
            sleepers: Vec::new(),
            ids: 0,
            recorded: 0,
            recorded_steps: BTreeMap::new(),
            planted: None,
            signals_of_tenants: seed.is_multiple_of(3),
        }
    }

    pub(crate) fn fresh_id(&mut self) -> String {
        self.ids += 1;
        format!("id-{}", self.ids)
    }

    /// The number of the next entry that a node records.
    pub(crate) fn next_entry(&mut self) -> u64 {
        self.recorded += 1;
        self.recorded
    }

    /// Keeps how many model calls `commit`, which has happened, records.
    pub(crate) fn record_steps(&mut self, commit: &Commit) {
        if let Some((id, steps)) = agents::recorded(commit) {
            let known = self.recorded_steps.entry(id).or_default();
            *known = steps.max(*known);
        }
    }

    pub(crate) fn sleep(&mut self, duration: Duration) -> oneshot::Receiver<()> {
        let (waker, woken) = oneshot::channel();
        self.sleepers.push((self.elapsed + duration, waker));
        woken
    }

    /// When the next sleeper wants to be woken.
    pub(crate) fn next_waking(&mut self) -> Option<Duration> {
        self.sleepers.retain(|(_, waker)| !waker.is_canceled());
        self.sleepers.iter().map(|(at, _)| *at).min()
    }

    /// Moves time to `elapsed` and wakes whose time has come.
    pub(crate) fn advance_to(&mut self, elapsed: Duration) {
        self.elapsed = self.elapsed.max(elapsed);
        let now = self.elapsed;
        for (_, waker) in self.sleepers.extract_if(.., |(at, _)| *at <= now) {
            // Who stopped waiting needs no waking.
            let _ = waker.send(());
        }
    }
}
