//! The middleware chain around a node, and the node at its innermost point (pipeline-utilities §2, §3).

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_ports::JournalEntry;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::attempts::{Attempts, RecordedUpdate, flatten_panic, kept};
use super::body::{NodeBody, Saver};
use super::lineage::Boundary;
use super::slot::SuspendRequest;
use super::walk::{Around, Execution, Inside, ResumePoint, StartAt, Walk, WalkEnd};
use crate::ambient::{self, CallScope, Position, Scoped};
use crate::graph::{CompiledNode, Work};
use crate::node::{MiddlewareChain, Next, Node};
use crate::{CompiledGraph, NodeError, Projection, State, Update};

/// One dispatch of a node with all that wraps it.
pub(super) struct Dispatch<'d> {
    pub(super) walk: &'d Walk<'d>,
    pub(super) name: &'d Arc<str>,
    pub(super) node: &'d CompiledNode,
    pub(super) step: u64,
    pub(super) attempts: Arc<Attempts>,
    /// The index that the first attempt has where no retry of this node counts.
    attempt_index: u32,
    /// Taken by the first attempt: a later one starts afresh.
    resume: Mutex<Option<ResumePoint>>,
    /// Entries recorded in it, once it has succeeded.
    recorded: Mutex<Vec<JournalEntry>>,
    /// The state of the graph, while the chain runs: a middleware may pass on another one, for the node alone.
    own: Mutex<Option<State>>,
}

impl<'d> Dispatch<'d> {
    /// The dispatch of the node that `execution` names; `None` where the graph has no such node.
    pub(super) fn new(walk: &'d Walk<'d>, execution: Execution) -> Option<Self> {
        let (name, node) = walk.graph.node_at(execution.index)?;
        let step = match (execution.step, node.work.emits_events()) {
            (Some(step), _) => step,
            (None, true) => walk.run.take_step(),
            (None, false) => walk.run.next_step(),
        };
        let around = ambient::look(|scope| (scope.view.clone(), scope.attempt_index));
        let (view, inherited) = around.unwrap_or_else(|| (walk.run.view.clone(), 0));
        // A node that paused further in gave its index to the pause; here it only shows a retry where to go on.
        let own = if execution.resume.is_some() { 0 } else { execution.attempt_index };
        let attempt_index = own.max(inherited);
        let attempts = Attempts::new(walk.told(name, step), view, execution.attempt_index, attempt_index);
        let resume = Mutex::new(execution.resume);
        let attempts = Arc::new(attempts);
        let (recorded, own) = (Mutex::default(), Mutex::default());
        Some(Self { walk, name, node, step, attempts, attempt_index, resume, recorded, own })
    }

    /// Runs the chain: per-graph middleware around per-node middleware around the node.
    pub(super) async fn run(&self, state: State) -> Result<Update, NodeError> {
        let (update, recorded) = match &self.node.work {
            // By far the most steps are of this kind; they need no chain.
            Work::Node(node) if self.node.middleware.is_empty() => {
                self.body(&**node, self.attempt_index, state).await?
            }
            Work::Node(_) | Work::Subgraph { .. } | Work::FanOut(_) | Work::Branches(_) => {
                *self.own() = Some(state.clone());
                let scope = CallScope::around_node(&self.attempts, self.attempt_index);
                let chain = kept(Scoped::new(scope, self.layer(0, state)).recording());
                let ended = flatten_panic(AssertUnwindSafe(chain).catch_unwind().await);
                // Lists grow in place where nobody else holds them.
                *self.own() = None;
                ended?
            }
        };
        *self.recorded() = recorded;
        Ok(update)
    }

    /// Entries recorded in it, once it has succeeded.
    pub(super) fn recorded(&self) -> MutexGuard<'_, Vec<JournalEntry>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Option<State>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the graph, where `received` came to the node.
    fn own_state(&self, received: &State) -> State {
        self.own().clone().unwrap_or_else(|| received.clone())
    }

    /// Surroundings of the graphs inside of the node, which received `state`.
    pub(super) fn around(&self, state: State) -> Around {
        self.walk.around(self.name, &self.own_state(&state), state)
    }

    fn innermost(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        self.attempts.arrive();
        match &self.node.work {
            Work::Node(node) => Box::pin(async move {
                let (update, recorded) = self.body(&**node, self.inner_index(), state).await?;
                ambient::adopt(recorded);
                Ok(update)
            }),
            Work::Subgraph { graph, projection } => Box::pin(self.subgraph(graph, projection, state)),
            Work::FanOut(fan_out) => Box::pin(self.fan_out(fan_out, state)),
            Work::Branches(branches) => Box::pin(self.branches(branches, state)),
        }
    }

    /// The attempt that runs at this point of the chain; known when that is polled, not before.
    fn inner_index(&self) -> u32 {
        ambient::look(|scope| scope.attempt_index).unwrap_or(self.attempt_index)
    }

    /// One attempt at a node's body, and the entries that it recorded.
    async fn body(&self, node: &dyn Node, index: u32, state: State) -> Result<RecordedUpdate, NodeError> {
        let position = self.walk.run.events.is_some().then(|| {
            let namespace = self.walk.path_to(self.name);
            Arc::new(Position { namespace, step: self.step, attempt_index: index })
        });
        let saver = self.saver(&state);
        let watch = self.walk.run.watch.clone();
        let journal = self.walk.run.journal.clone();
        let body = NodeBody { saver, unsupported: self.walk.no_suspension, watch, journal, position };
        let scope = CallScope { body: Some(body), ..CallScope::around_node(&self.attempts, index) };
        let work = kept(Scoped::new(scope, node.run(state.clone())).recording());
        let result = self.attempt_as(index, state, work).await;
        match self.walk.run.watch.refusal() {
            None => result,
            Some(refusal) => self.stop_by(SuspendRequest::Refused(refusal)).await,
        }
    }

    /// One attempt at the node's own work.
    pub(super) async fn attempt(
        &self,
        state: State,
        work: impl Future<Output = Result<Update, NodeError>> + Send,
    ) -> Result<Update, NodeError> {
        self.attempt_as(self.inner_index(), state, work).await
    }

    async fn attempt_as<T>(
        &self,
        index: u32,
        state: State,
        work: impl Future<Output = Result<T, NodeError>> + Send,
    ) -> Result<T, NodeError> {
        let result = self.attempts.attempt(index, &state, work).await;
        if result.is_err() {
            self.save_failure(&self.own_state(&state)).await;
        }
        result
    }

    async fn subgraph(
        &self,
        graph: &CompiledGraph,
        projection: &Projection,
        state: State,
    ) -> Result<Update, NodeError> {
        let resume = self.resume.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (inner_state, from) = match resume {
            None => (projection.enter(&state, graph), StartAt::Entry),
            Some(point) => point.into_inner().ok_or_else(|| NodeError::new("the pause names no inner node"))?,
        };
        let around = &self.around(state);
        let boundary = Boundary::Plain;
        let entered_at = (self.step, 0);
        let inside = Inside { graph, around, boundary, entered_at, no_suspension: None };
        let inner = self.walk.inside(inside);
        let request = match inner.walk_inside(inner_state, from).await.map_err(NodeError::passing)? {
            Ok(WalkEnd::Completed(end)) => {
                ambient::adopt(inner.entries.take());
                return Ok(projection.leave(self.walk.graph.schema(), graph, &end));
            }
            // Only the outermost graph has durable steps.
            Ok(WalkEnd::Step(_) | WalkEnd::LastStep(_)) => {
                return Err(NodeError::new("a graph inside of a node ended with a durable step"));
            }
            Ok(WalkEnd::Paused(pause)) => SuspendRequest::Nested(pause.behind(inner.entries.take())),
            Err(refusal) => SuspendRequest::Refused(refusal),
        };
        self.stop_by(request).await
    }

    /// Stops the whole chain: what wraps this point does not see it.
    pub(super) async fn stop_by<T>(&self, request: SuspendRequest) -> T {
        self.attempts.slot.put(request);
        futures::future::pending().await
    }

    /// What saves the session from inside of the node, which received `state`.
    fn saver(&self, state: &State) -> Saver {
        match (&self.walk.run.session, self.walk.namespace.is_empty()) {
            (_, false) => Saver::Subgraph,
            (Some(session), true) => Saver::Session(session.clone(), self.own_state(state)),
            (None, true) => Saver::Unbound,
        }
    }
}

impl MiddlewareChain for Dispatch<'_> {
    fn layer(&self, depth: usize, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match self.node.middleware.get(depth) {
            Some(middleware) => middleware.around(state, Next { chain: self, depth: depth + 1 }),
            None => self.innermost(state),
        }
    }

    fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }
}

impl ResumePoint {
    /// The same point as the graph one level further in sees it, with the state of that graph.
    fn into_inner(mut self) -> Option<(State, StartAt)> {
        if self.path.is_empty() || self.inner_states.is_empty() {
            return None;
        }
        self.path.remove(0);
        self.outer_attempts = self.outer_attempts.split_off(self.outer_attempts.len().min(1));
        let state = self.inner_states.remove(0);
        Some((state, StartAt::Pause(self)))
    }
}
