//! The real handlers, harness and engine on simulated ports, with virtual time and a seed.
//!
//! Several processes serve requests, events and wake-ups over one store. Every call on a port becomes a ticket, and
//! chance decides which call goes on next and what comes of it: it works, it is refused, it takes effect and the answer
//! is lost, it is given up and takes effect afterwards, it is so slow that leases and claims run out, its process dies
//! before or after. Every message may be lost or arrive twice, as far as its service may do that; whoever has not been
//! answered asks again. All chance comes from the seed: a run with the same seed is the same run.
//!
//! A witness looks at the store after every call that may have changed it; `invariants` lists what must hold then. In the
//! end nothing fails any more, and `rest` lists what must hold once everything has come to rest.

mod agents;
mod clients;
mod dynamodb;
mod executor;
mod fault_plan;
mod graphs;
mod hearing;
mod history;
mod intent;
mod invariants;
mod observed;
mod oracle;
mod outside;
mod pending_call;
mod planted;
mod poison;
mod process;
mod quiescent;
mod replays;
mod requests;
mod services;
mod sim_ports;
mod simulator;
mod storage;
mod trace;
mod workload;
mod world;

use std::sync::Arc;
use std::time::Duration;

use dormouse_harness::{GraphRegistry, RulePolicy};
use dormouse_ports::limits;

use sim_ports::SimPorts;
use simulator::Simulator;
use world::World;

pub use fault_plan::Fault;
pub use history::Violation;
pub use planted::PlantedBug;

/// The longest that one turn may compute.
const TURN: Duration = Duration::from_secs(5);

/// Listings have several pages.
const PAGE_SIZE: u16 = 3;

/// Rules come and go while things go wrong. Clocks are apart by less than what is between the two. They are relied on for
/// so long that there is time for whoever removes one too early.
const RULES: RulePolicy = RulePolicy {
    most: limits::PATTERN_RULES,
    trusted: Duration::from_secs(20),
    settling: Duration::ZERO,
    kept: Duration::from_millis(24_500),
};

/// What holds the state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// The store in memory: a call is one step.
    #[default]
    Memory,
    /// The adapter of DynamoDB on an embedded database: each of its requests is one step.
    DynamoDb,
}

/// How a run is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What holds the state.
    pub store: Store,
    /// A bug to put in.
    pub planted: Option<PlantedBug>,
    /// Whether the steps are kept for reading.
    pub readable: bool,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where its chance came from.
    pub seed: u64,
    /// A digest of all that happened: equal for runs that were the same.
    pub digest: u64,
    /// How many steps it took.
    pub steps: u64,
    /// How many calls on ports took effect.
    pub calls: u64,
    /// How many pauses there were.
    pub pauses: usize,
    /// How many tasks ended.
    pub tasks: usize,
    /// How many invocations were put aside.
    pub aside: usize,
    /// How many tasks were replayed at the end.
    pub replayed: usize,
    /// How many runs of agents came to their end.
    pub agents: usize,
    /// Of how many calls of their tools nobody knew whether they happened.
    pub doubts: usize,
    /// How often a run of an agent slept since its model refused what somebody has to mend.
    pub rests: usize,
    /// How many saves found that another turn of their session had saved meanwhile.
    pub overtaken: u64,
    /// The most calls that were under way at once.
    pub deepest: usize,
    /// How often each fault struck, in the order of [`Fault::ALL`].
    pub struck: [u64; Fault::ALL.len()],
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// The steps, numbered; empty unless they were kept.
    pub trace: Vec<String>,
}

/// Runs seeds, one after the other. The graphs are compiled once; nothing else outlives a run.
pub struct Simulation {
    world: World,
    graphs: GraphRegistry,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("graphs", &self.graphs).finish_non_exhaustive()
    }
}

impl Default for Simulation {
    /// # Panics
    /// When a graph does not compile.
    fn default() -> Self {
        let world = World::new();
        let graphs = graphs::registry(&Arc::new(SimPorts::of_nodes(world.clone()))).expect("graphs that compile");
        Self { world, graphs }
    }
}

impl Simulation {
    /// Runs `seed`, up to the first violation.
    pub fn run(&self, seed: u64, options: &Options) -> Report {
        self.world.restart(seed);
        self.world.lock().planted = options.planted;
        Simulator::new(self.world.clone(), self.graphs.clone(), options).run(seed)
    }
}
