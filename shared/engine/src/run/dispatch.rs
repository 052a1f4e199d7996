//! The middleware chain around a node, and the node at its innermost point (pipeline-utilities §2, §3).

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::record::Boundary;
use super::slot::{Saver, Wish};
use super::walk::{End, Execution, From, Inside, ResumePoint, Walk};
use super::{Attempts, Body};
use crate::ambient::{self, Position, Scope, Scoped, View};
use crate::graph::{CompiledNode, Work};
use crate::node::{Chain, Middleware, Next};
use crate::{CompiledGraph, NodeError, Projection, State, Update};

/// One dispatch of a node with all that wraps it.
pub(super) struct Dispatch<'d> {
    pub(super) walk: &'d Walk<'d>,
    pub(super) name: &'d Arc<str>,
    pub(super) node: &'d CompiledNode,
    pub(super) step: u64,
    view: View,
    pub(super) attempts: Arc<Attempts>,
    /// The index that the first attempt has where no retry of this node counts.
    attempt_index: u32,
    /// Taken by the first attempt: a later one starts afresh.
    resume: Mutex<Option<ResumePoint>>,
}

impl<'d> Dispatch<'d> {
    pub(super) fn new(
        walk: &'d Walk<'d>,
        name: &'d Arc<str>,
        node: &'d CompiledNode,
        step: u64,
        execution: &Execution,
    ) -> Self {
        let (view, inherited) = match ambient::scope() {
            Some(scope) => (scope.view, scope.attempt_index),
            None => (walk.run.view.clone(), 0),
        };
        // A node that paused further in gave its index to the pause; here it only tells a retry where to go on.
        let own = if execution.resume.is_some() { 0 } else { execution.attempt_index };
        let attempt_index = own.max(inherited);
        let told = walk.told(name, step);
        let attempts = Arc::new(Attempts::new(told, view.clone(), execution.attempt_index, attempt_index));
        let resume = Mutex::new(execution.resume.clone());
        Self { walk, name, node, step, view, attempts, attempt_index, resume }
    }

    /// Runs the chain: per-graph middleware around per-node middleware around the node.
    pub(super) fn run(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        let scope = Scope { attempt_index: self.attempt_index, ..self.scope() };
        let scoped = Scoped::new(scope, self.layer(0, state));
        AssertUnwindSafe(scoped).catch_unwind().map(flatten_panic).boxed()
    }

    fn middleware(&self, depth: usize) -> Option<&dyn Middleware> {
        self.node.middleware.get(depth).map(AsRef::as_ref)
    }

    fn innermost(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        self.attempts.arrive();
        match &self.node.work {
            Work::Node(node) => {
                let around = self.scope();
                let position = self.walk.run.events.is_some().then(|| {
                    let namespace = self.walk.path_to(self.name);
                    Arc::new(Position { namespace, step: self.step, attempt_index: around.attempt_index })
                });
                let scope = Scope { body: Some(Arc::new(self.body(&state))), position, ..around };
                let work = Scoped::new(scope, node.run(state.clone()));
                Box::pin(self.attempt(state, work))
            }
            Work::Subgraph { graph, projection } => Box::pin(self.subgraph(graph, projection, state)),
            Work::FanOut(fan_out) => Box::pin(self.fan_out(fan_out, state)),
            Work::Branches(branches) => Box::pin(self.branches(branches, state)),
        }
    }

    /// One attempt at the node's own work.
    pub(super) async fn attempt(
        &self,
        state: State,
        work: impl Future<Output = Result<Update, NodeError>> + Send,
    ) -> Result<Update, NodeError> {
        let index = ambient::scope().map_or(self.attempt_index, |scope| scope.attempt_index);
        let saved = self.walk.is_saved().then(|| state.clone());
        let result = self.attempts.attempt(index, &state, work).await;
        if let (Err(_), Some(state)) = (&result, saved) {
            self.walk.save_failure(self.name, self.node, &state).await;
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

    /// What is in scope at this point of the chain.
    pub(super) fn scope(&self) -> Scope {
        let (view, attempts) = (self.view.clone(), Some(self.attempts.clone()));
        let attempt_index = ambient::scope().map_or(self.attempt_index, |scope| scope.attempt_index);
        Scope { view, slot: Some(self.walk.slot.clone()), body: None, position: None, attempt_index, attempts }
    }

    fn body(&self, state: &State) -> Body {
        let saver = match (&self.walk.run.session, self.walk.namespace.is_empty()) {
            (_, false) => Saver::Subgraph,
            (Some(session), true) => Saver::Session(session.clone()),
            (None, true) => Saver::Unbound,
        };
        Body { state: state.clone(), saver, unsupported: self.walk.no_suspension }
    }
}

impl Chain for Dispatch<'_> {
    fn layer(&self, depth: usize, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match self.middleware(depth) {
            Some(middleware) => middleware.around(state, Next { chain: self, depth: depth + 1 }),
            None => self.innermost(state),
        }
    }

    fn attempts(&self) -> &Attempts {
        &self.attempts
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
