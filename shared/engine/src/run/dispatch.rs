//! The middleware chain around a node, and the node at its innermost point (pipeline-utilities §2, §3).

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::Body;
use super::slot::{Saver, Wish};
use super::walk::{End, Execution, From, ResumePoint, Walk, observed};
use crate::ambient::{self, Position, Scope, Scoped};
use crate::graph::{CompiledNode, Work};
use crate::node::{Chain, Middleware, Next, Node};
use crate::observe::{NodeEvent, Phase};
use crate::{CompiledGraph, EngineError, NodeError, Projection, State, Update};

/// One dispatch of a node with all that wraps it.
pub(super) struct Dispatch<'d> {
    walk: &'d Walk<'d>,
    name: &'d Arc<str>,
    node: &'d CompiledNode,
    step: u64,
    attempt_index: AtomicU32,
    /// Taken by the first attempt: a later one starts afresh.
    resume: Mutex<Option<ResumePoint>>,
}

impl<'d> Dispatch<'d> {
    pub(super) fn new(walk: &'d Walk<'d>, name: &'d Arc<str>, node: &'d CompiledNode, execution: &Execution) -> Self {
        let inherited = ambient::scope().map_or(0, |scope| scope.attempt_index);
        let attempt_index = AtomicU32::new(execution.attempt_index.max(inherited));
        Self { walk, name, node, step: execution.step, attempt_index, resume: Mutex::new(execution.resume.clone()) }
    }

    pub(super) fn attempt_index(&self) -> u32 {
        self.attempt_index.load(Ordering::Relaxed)
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
            Work::Node(node) => Box::pin(self.attempt(&**node, state)),
            Work::Subgraph { graph, projection } => Box::pin(self.subgraph(graph, projection, state)),
        }
    }

    /// One attempt at the node's own body, between its events.
    async fn attempt(&self, node: &dyn Node, state: State) -> Result<Update, NodeError> {
        let pre_state = self.walk.is_observed().then(|| state.clone());
        if let Some(pre_state) = &pre_state {
            self.walk.emit(self.event(Phase::Started, pre_state.clone()));
        }
        let body = Arc::new(Body { state: state.clone(), saver: self.saver(), unsupported: None });
        let result = Scoped::new(self.scope(Some(body)), node.run(state)).await;
        if let (Err(error), Some(pre_state)) = (&result, pre_state) {
            let failure = EngineError::new(dormouse_ports::Category::NodeException, error.message());
            let mut failure = observed(&failure);
            failure.derived_category = error.category().cloned().unwrap_or(failure.derived_category);
            self.walk.emit(NodeEvent { error: Some(failure), ..self.event(Phase::Completed, pre_state) });
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

    fn scope(&self, body: Option<Arc<Body>>) -> Scope {
        let position = body.is_some().then(|| {
            let namespace = self.walk.namespace.iter().chain([self.name]).cloned().collect();
            Arc::new(Position { namespace, step: self.step, attempt_index: self.attempt_index() })
        });
        Scope {
            identity: self.walk.run.identity.clone(),
            slot: Some(self.walk.slot.clone()),
            body,
            position,
            attempt_index: self.attempt_index(),
        }
    }

    fn saver(&self) -> Saver {
        match (&self.walk.run.session, self.walk.namespace.is_empty()) {
            (_, false) => Saver::Subgraph,
            (Some(session), true) => Saver::Session(session.clone()),
            (None, true) => Saver::Unbound,
        }
    }

    fn event(&self, phase: Phase, pre_state: State) -> NodeEvent {
        self.walk.event(phase, self.name, self.step, self.attempt_index(), pre_state)
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

fn flatten_panic(
    result: Result<Result<Update, NodeError>, Box<dyn std::any::Any + Send>>,
) -> Result<Update, NodeError> {
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(NodeError::new(format!("the node panicked: {text}")))
    })
}
