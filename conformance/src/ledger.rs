//! What happened during an invocation, written down by the fixtures' own nodes, middleware and observers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_engine::{DrainSummary, FailureIsolated, Identity, NodeEvent, State};
use dormouse_ports::Map;
use indexmap::IndexMap;
use serde_json::Value;

/// A node whose body was reached, once for all its attempts; nodes that hold graphs included.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// How deep its graph lies: 0 for the outermost.
    pub(crate) depth: usize,
    pub(crate) node: String,
    pub(crate) pre_state: State,
    /// Whether it runs graphs inside of it.
    pub(crate) holds_graph: bool,
}

/// A fan-out instance that was run.
#[derive(Clone, Debug)]
pub(crate) struct InstanceRan {
    /// Its index, behind those of the instances around it.
    pub(crate) chain: Vec<usize>,
}

/// What a node that drains saw.
#[derive(Clone, Debug)]
pub(crate) struct Drained {
    pub(crate) summary: DrainSummary,
    /// The observer whose events are of interest, and what it had been told when the drain returned.
    pub(crate) observer: Option<String>,
    pub(crate) events: Vec<NodeEvent>,
}

/// An event in the order of its delivery.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) observer: String,
    pub(crate) event: NodeEvent,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// Who ran, as a node sees it.
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) ran: Vec<Ran>,
    pub(crate) middleware: Vec<String>,
    pub(crate) delivered: Vec<Delivered>,
    /// What each collector of typed events holds, in order.
    pub(crate) typed: IndexMap<String, Vec<Map>>,
    /// Failures that were isolated, in the order in which observers were told.
    pub(crate) isolated: Vec<(String, FailureIsolated)>,
    pub(crate) instances: Vec<InstanceRan>,
    pub(crate) in_flight: usize,
    pub(crate) most_in_flight: usize,
    /// How often a node that fails by plan was called.
    pub(crate) flaky_calls: usize,
    /// What callbacks and recording layers wrote down, by the name that the fixture gave.
    pub(crate) records: IndexMap<String, Vec<Value>>,
    /// State fields that callbacks wrote beside the graph.
    pub(crate) beside: Map,
    pub(crate) drained: IndexMap<String, Drained>,
    /// Of every drain with a timeout, from outside or inside of a node: whether it returned in time.
    pub(crate) drains: Vec<bool>,
    /// Migrations of checkpoints and sessions that ran, as `v1->v2`.
    pub(crate) migrations: Vec<String>,
}

impl Pages {
    pub(crate) fn record(&mut self, name: &str, value: Value) {
        self.records.entry(name.to_owned()).or_default().push(value);
    }
}

/// A drain returns this much later than its timeout at most, on a busy machine; what waits without end waits longer.
const GRACE: Duration = Duration::from_secs(5);

/// The book of one case; [`take`](Self::take) closes the pages of one invocation.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Pages>);

impl Ledger {
    pub(crate) fn write(&self, note: impl FnOnce(&mut Pages)) {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Awaits a drain and notes whether it returned in time.
    pub(crate) async fn drained(
        &self,
        timeout: Option<Duration>,
        drain: impl Future<Output = DrainSummary>,
    ) -> DrainSummary {
        let began = Instant::now();
        let summary = drain.await;
        if let Some(timeout) = timeout {
            self.write(|pages| pages.drains.push(began.elapsed() <= timeout + GRACE));
        }
        summary
    }

    /// Who ran last.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).identity.clone()
    }

    pub(crate) fn take(&self) -> Pages {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
