//! The middleware chain around a node, and the node at its innermost point (pipeline-utilities §2, §3).

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::slot::{Saver, Wish};
use super::walk::{End, Execution, From, ResumePoint, Walk};
use super::{Attempts, Body};
use crate::ambient::{self, Scope, Scoped, View};
use crate::graph::{CompiledNode, Work};
use crate::node::{Chain, Middleware, Next, Node};
use crate::{CompiledGraph, NodeError, Projection, State, Update};

/// One dispatch of a node with all that wraps it.
pub(super) struct Dispatch<'d> {
    walk: &'d Walk<'d>,
    name: &'d Arc<str>,
    node: &'d CompiledNode,
    view: View,
    pub(super) attempts: Arc<Attempts>,
    /// The index of whatever makes this dispatch's own attempts: of the retry around it, or of what paused.
    attempt_index: u32,
    /// Taken by the first attempt: a later one starts afresh.
    resume: Mutex<Option<ResumePoint>>,
}

impl<'d> Dispatch<'d> {
    pub(super) fn new(walk: &'d Walk<'d>, name: &'d Arc<str>, node: &'d CompiledNode, execution: &Execution) -> Self {
        let (view, inherited) = match ambient::scope() {
            Some(scope) => (scope.view, scope.attempt_index),
            None => (walk.run.view.clone(), 0),
        };
        // A node that paused further in gave its index to the pause; here it only tells a retry where to go on.
        let own = if execution.resume.is_some() { 0 } else { execution.attempt_index };
        let attempt_index = own.max(inherited);
        let told = walk.told(name, execution.step);
        let attempts = Arc::new(Attempts::new(told, view.clone(), execution.attempt_index, attempt_index));
        Self { walk, name, node, view, attempts, attempt_index, resume: Mutex::new(execution.resume.clone()) }
    }

    /// Runs the chain: per-graph middleware around per-node middleware around the node.
    pub(super) fn run(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        let scoped = Scoped::new(self.scope(None, self.attempt_index), self.layer(0, state));
        AssertUnwindSafe(scoped).catch_unwind().map(flatten_panic).boxed()
    }

    fn middleware(&self, depth: usize) -> Option<&dyn Middleware> {
        self.node.middleware.get(depth).map(AsRef::as_ref)
    }

    fn innermost(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        self.attempts.arrive();
        match &self.node.work {
            Work::Node(node) => Box::pin(self.attempt(&**node, state)),
            Work::Subgraph { graph, projection } => Box::pin(self.subgraph(graph, projection, state)),
        }
    }

    /// One attempt at the node's own body.
    async fn attempt(&self, node: &dyn Node, state: State) -> Result<Update, NodeError> {
        let index = ambient::scope().map_or(self.attempt_index, |scope| scope.attempt_index);
        self.attempts.start(index, &state);
        let body = Arc::new(Body { state: state.clone(), saver: self.saver(), unsupported: None });
        let scoped = Scoped::new(self.scope(Some(body), index), node.run(state));
        let result = flatten_panic(AssertUnwindSafe(scoped).catch_unwind().await);
        if let Err(error) = &result {
            self.attempts.raised(error);
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
        let inner = self.walk.inside(graph, self.name, state);
        match inner.walk(inner_state, from).await.map_err(NodeError::carrying)? {
            End::Completed(end) => Ok(projection.leave(self.walk.graph.schema(), graph, &end)),
            End::Paused(pause) => {
                self.walk.slot.put(Wish::Nested(pause));
                futures::future::pending().await
            }
        }
    }

    fn scope(&self, body: Option<Arc<Body>>, attempt_index: u32) -> Scope {
        Scope {
            view: self.view.clone(),
            slot: Some(self.walk.slot.clone()),
            body,
            attempt_index,
            attempts: Some(self.attempts.clone()),
        }
    }

    fn saver(&self) -> Saver {
        match (&self.walk.run.session, self.walk.namespace.is_empty()) {
            (_, false) => Saver::Subgraph,
            (Some(session), true) => Saver::Session(session.clone()),
            (None, true) => Saver::Unbound,
        }
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

fn flatten_panic(
    result: Result<Result<Update, NodeError>, Box<dyn std::any::Any + Send>>,
) -> Result<Update, NodeError> {
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(NodeError::new(format!("the node panicked: {text}")))
    })
}
