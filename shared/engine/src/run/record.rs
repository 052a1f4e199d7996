//! Record shared by all walks of an invocation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::{Clock, GrowingLists, InvocationLimits, NodePosition, StoredList};
use jiff::Timestamp;

use super::call::Outcome;
use super::cancellation::Watch;
use super::checkpoint::Checkpoints;
use super::engine::Engine;
use super::journal::{HeldClaim, RunJournal};
use super::lineage::FinishedPosition;
use super::session::SessionRun;
use crate::ambient::{Identity, InvocationView};
use crate::observe::{Attached, EventQueue, InvocationResult, InvocationStart, ObservedError, RegisteredObserver};
use crate::{CompiledGraph, EngineError};

/// Record shared by all walks of an invocation.
pub(crate) struct Run {
    pub(super) identity: Arc<Identity>,
    /// The invocation as its outermost line of execution sees it.
    pub(super) view: InvocationView,
    pub(super) watch: Arc<Watch>,
    pub(super) journal: Arc<RunJournal>,
    pub(super) session: Option<Arc<SessionRun>>,
    pub(super) checkpoints: Option<Checkpoints>,
    pub(super) attached: Attached,
    pub(super) scoped: Vec<RegisteredObserver>,
    pub(super) events: Option<Arc<EventQueue>>,
    pub(super) clock: Arc<dyn Clock>,
    step: AtomicU64,
    positions: Mutex<Vec<FinishedPosition>>,
    growing: GrowingLists,
    pub(super) limits: InvocationLimits,
}

/// Data with which a run begins.
pub(super) struct Beginning<'b> {
    pub(super) engine: &'b Engine,
    pub(super) graph: &'b CompiledGraph,
    pub(super) start: InvocationStart,
    pub(super) session: Option<Arc<SessionRun>>,
    /// Those of the call only.
    pub(super) observers: Vec<RegisteredObserver>,
}

/// An invocation under way: its engine, its graph and its run.
#[derive(Clone, Copy)]
pub(super) struct RunContext<'r> {
    pub(super) engine: &'r Engine,
    pub(super) graph: &'r Arc<CompiledGraph>,
    pub(super) run: &'r Run,
}

impl Run {
    pub(super) fn begin(beginning: Beginning<'_>) -> Self {
        let Beginning { engine, graph, start, session, observers: scoped } = beginning;
        let identity = start.identity.clone();
        let clock = engine.ports().clock.clone();
        let attached = Attached::of(graph);
        let watched = !scoped.is_empty() || !attached.is_empty();
        let events = watched.then(|| {
            let observers = attached.to(graph).iter().chain(&scoped).cloned().collect();
            Arc::new(EventQueue::open(graph, start, observers, clock.clone(), &*engine.ports().spawner))
        });
        let checkpoints = Checkpoints::of(engine, graph);
        let view = InvocationView::new(identity.clone());
        let watch = Arc::new(Watch::new(engine, identity.invocation_id.clone()));
        let journal = Arc::new(RunJournal::new(identity.invocation_id.clone(), None));
        let growing = GrowingLists { fields: graph.schema().growing(), stored: Vec::new() };
        Self {
            identity,
            view,
            watch,
            journal,
            session,
            checkpoints,
            attached,
            scoped,
            events,
            clock,
            step: AtomicU64::new(0),
            positions: Mutex::default(),
            growing,
            limits: engine.limits(),
        }
    }

    /// Others may take the invocation over once `claim` has ended.
    pub(super) fn under(self, claim: HeldClaim) -> Self {
        let journal = Arc::new(RunJournal::new(self.identity.invocation_id.clone(), Some(claim)));
        Self { journal, ..self }
    }

    /// Reports the end of the call to the observers.
    pub(super) fn end(&self, result: &Result<Outcome, EngineError>) {
        let Some(events) = &self.events else { return };
        events.end(match result {
            Ok(Outcome::Completed(_)) => InvocationResult::Completed,
            Ok(Outcome::Suspended(_)) => InvocationResult::Suspended,
            Err(error) => InvocationResult::Errored(ObservedError::from(error)),
        });
    }

    /// Knowledge about the lists of the outermost state that only grow.
    pub(super) fn growing(&self) -> GrowingLists {
        self.session.as_ref().map_or_else(|| self.growing.clone(), |session| session.growing())
    }

    /// The lists of the state from which the invocation goes on are `stored` already.
    pub(super) fn grown_from(mut self, stored: Vec<StoredList>) -> Self {
        self.growing.stored = stored;
        self
    }

    /// It saved progress until `instant`, maybe where the clock is ahead of this one.
    pub(super) fn saving_after(mut self, instant: Timestamp) -> Self {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.not_before(instant);
        }
        self
    }

    /// Takes up the history of a paused invocation.
    pub(super) fn continuing(self, step: u64, positions: &[NodePosition]) -> Self {
        let positions = positions.iter().map(FinishedPosition::from).collect();
        Self { step: AtomicU64::new(step), positions: Mutex::new(positions), ..self }
    }

    /// The number of the next step, which is taken by asking.
    pub(super) fn take_step(&self) -> u64 {
        self.step.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that the next step will have.
    pub(super) fn next_step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    pub(super) fn complete(&self, position: FinishedPosition) {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner).push(position);
    }

    /// Forgets all positions but the last: a durable step stands for those before it.
    pub(super) fn forget_earlier_positions(&self) {
        let mut positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let before_last = positions.len().saturating_sub(1);
        positions.drain(..before_last);
    }

    pub(super) fn completed_positions(&self) -> Vec<NodePosition> {
        self.with_positions(|positions| positions.iter().map(FinishedPosition::recorded).collect())
    }

    pub(super) fn with_positions<T>(&self, look: impl FnOnce(&[FinishedPosition]) -> T) -> T {
        look(&self.positions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
