//! The middleware chain around a node, and the node at its innermost point (pipeline-utilities §2, §3).

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dormouse_ports::Category;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Body;
use super::record::Boundary;
use super::slot::{Saver, Wish};
use super::walk::{End, Execution, From, Inside, ResumePoint, Walk, observed};
use crate::ambient::{self, Scope, Scoped};
use crate::graph::{CompiledNode, Work};
use crate::node::{Chain, Middleware, Next};
use crate::observe::{FanOutConfig, NodeEvent, ParallelBranchesConfig, Phase};
use crate::{CompiledGraph, EngineError, NodeError, Projection, State, Update};

/// One dispatch of a node with all that wraps it.
pub(super) struct Dispatch<'d> {
    pub(super) walk: &'d Walk<'d>,
    pub(super) name: &'d Arc<str>,
    pub(super) node: &'d CompiledNode,
    step: u64,
    attempt_index: AtomicU32,
    /// Taken by the first attempt: a later one starts afresh.
    resume: Mutex<Option<ResumePoint>>,
    pub(super) fan_out: OnceLock<Arc<FanOutConfig>>,
    pub(super) branches: OnceLock<Arc<ParallelBranchesConfig>>,
}

/// What is known of a dispatch besides its result.
#[derive(Clone)]
pub(super) struct Attempted {
    pub(super) step: u64,
    pub(super) attempt_index: u32,
    /// Whether the node shows in events.
    pub(super) emits: bool,
    pub(super) fan_out: Option<Arc<FanOutConfig>>,
    pub(super) branches: Option<Arc<ParallelBranchesConfig>>,
}

impl<'d> Dispatch<'d> {
    pub(super) fn new(
        walk: &'d Walk<'d>,
        name: &'d Arc<str>,
        node: &'d CompiledNode,
        step: u64,
        execution: &Execution,
    ) -> Self {
        let inherited = ambient::scope().map_or(0, |scope| scope.attempt_index);
        Self {
            walk,
            name,
            node,
            step,
            attempt_index: AtomicU32::new(execution.attempt_index.max(inherited)),
            resume: Mutex::new(execution.resume.clone()),
            fan_out: OnceLock::new(),
            branches: OnceLock::new(),
        }
    }

    pub(super) fn attempted(&self) -> Attempted {
        Attempted {
            step: self.step,
            attempt_index: self.attempt_index.load(Ordering::Relaxed),
            emits: self.node.work.emits_events(),
            fan_out: self.fan_out.get().cloned(),
            branches: self.branches.get().cloned(),
        }
    }

    pub(super) fn into_attempted(self) -> Attempted {
        self.attempted()
    }

    /// Runs the chain: per-graph middleware around per-node middleware around the node.
    pub(super) fn run(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        let scoped = Scoped::new(self.scope(None), self.layer(0, state));
        AssertUnwindSafe(scoped).catch_unwind().map(flatten_panic).boxed()
    }

    fn middleware(&self, depth: usize) -> Option<&dyn Middleware> {
        let (graph, own) = (self.walk.graph.middleware(), &self.node.middleware);
        graph.iter().chain(own).nth(depth).map(AsRef::as_ref)
    }

    fn innermost(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match &self.node.work {
            Work::Node(node) => {
                let body = Arc::new(self.body(&state));
                let work = Scoped::new(self.scope(Some(body)), node.run(state.clone()));
                Box::pin(self.attempt(state, work))
            }
            Work::Subgraph { graph, projection } => Box::pin(self.subgraph(graph, projection, state)),
            Work::FanOut(fan_out) => Box::pin(self.fan_out(fan_out, state)),
            Work::Branches(branches) => Box::pin(self.branches(branches, state)),
        }
    }

    /// One attempt at the node's own work, between its events.
    pub(super) async fn attempt(
        &self,
        state: State,
        work: impl Future<Output = Result<Update, NodeError>> + Send,
    ) -> Result<Update, NodeError> {
        let pre_state = (self.walk.is_observed() || self.walk.is_saved()).then_some(state);
        if let Some(pre_state) = pre_state.as_ref().filter(|_| self.walk.is_observed()) {
            self.walk.emit(self.event(Phase::Started, pre_state.clone()));
        }
        let result = work.await;
        if let (Err(error), Some(pre_state)) = (&result, pre_state) {
            if self.walk.is_observed() {
                let error = Some(observed(&self.walk.failure_of(error)));
                self.walk.emit(NodeEvent { error, ..self.event(Phase::Completed, pre_state.clone()) });
            }
            self.walk.save_failure(self.name, self.node, &pre_state).await;
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
            None => (projection.enter(&state, graph), From::Entry),
            Some(point) => point.into_inner().ok_or_else(|| NodeError::new("the pause names no inner node"))?,
        };
        let inside = Inside { graph, name: self.name, state, boundary: Boundary::Plain, no_suspension: None };
        let wish = match self.walk.inside(inside).walk_inside(inner_state, from).await.map_err(NodeError::passing)? {
            Ok(End::Completed(end)) => return Ok(projection.leave(self.walk.graph.schema(), graph, &end)),
            Ok(End::Paused(pause)) => Wish::Nested(pause),
            Err(refusal) => Wish::Refused(refusal),
        };
        self.stop_by(wish).await
    }

    /// Stops the whole chain: what wraps this point does not see it.
    pub(super) async fn stop_by<T>(&self, wish: Wish) -> T {
        self.walk.slot.put(wish);
        futures::future::pending().await
    }

    pub(super) fn scope(&self, body: Option<Arc<Body>>) -> Scope {
        Scope {
            identity: self.walk.run.identity.clone(),
            slot: Some(self.walk.slot.clone()),
            body,
            attempt_index: self.attempt_index.load(Ordering::Relaxed),
        }
    }

    fn body(&self, state: &State) -> Body {
        let saver = match (&self.walk.run.session, self.walk.namespace.is_empty()) {
            (_, false) => Saver::Subgraph,
            (Some(session), true) => Saver::Session(session.clone()),
            (None, true) => Saver::Unbound,
        };
        Body { state: state.clone(), saver, unsupported: self.walk.no_suspension }
    }

    fn event(&self, phase: Phase, pre_state: State) -> NodeEvent {
        self.walk.event(phase, self.name, &self.attempted(), pre_state)
    }
}

impl Walk<'_> {
    /// What an attempt that raised `error` failed with, as observers see it.
    pub(super) fn failure_of(&self, error: &NodeError) -> EngineError {
        let category = match error.branch() {
            Some(_) => Category::ParallelBranchesBranchFailed,
            None => Category::NodeException,
        };
        EngineError::new(category, error.message()).derived_as(error.derived().cloned())
    }
}

impl Chain for Dispatch<'_> {
    fn layer(&self, depth: usize, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match self.middleware(depth) {
            Some(middleware) => middleware.around(state, Next { chain: self, depth: depth + 1 }),
            None => self.innermost(state),
        }
    }
}

impl ResumePoint {
    /// The same point as the graph one level further in sees it, with the state of that graph.
    fn into_inner(mut self) -> Option<(State, From)> {
        if self.path.is_empty() || self.inner_states.is_empty() {
            return None;
        }
        self.path.remove(0);
        let state = self.inner_states.remove(0);
        Some((state, From::Pause(self)))
    }
}

pub(super) fn flatten_panic<T>(
    result: Result<Result<T, NodeError>, Box<dyn std::any::Any + Send>>,
) -> Result<T, NodeError> {
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(NodeError::new(format!("the node panicked: {text}")))
    })
}
