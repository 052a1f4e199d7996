//! One concurrent part of a node: an instance of a fan-out, or a parallel branch.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::Body;
use super::dispatch::{Dispatch, flatten_panic};
use super::pausing::{Pause, Refusal};
use super::progress::Ticket;
use super::record::Boundary;
use super::slot::{Ended, Saver, Slot, UntilSuspended, Wish};
use super::walk::{End, From, Inside};
use crate::ambient::{Scope, Scoped};
use crate::graph::ErrorPolicy;
use crate::node::{Chain, Middleware, Next, Node};
use crate::{CompiledGraph, NodeError, State, Update};

/// What a part does.
pub(super) enum PartWork<'c> {
    /// Runs a graph and turns its final state into the part's contribution.
    Graph { graph: &'c CompiledGraph, contribution: &'c (dyn Fn(&State) -> Update + Send + Sync) },
    /// Calls a node on the parent's state.
    Call(&'c dyn Node),
}

/// A part with what wraps it.
pub(super) struct Child<'c> {
    pub(super) dispatch: &'c Dispatch<'c>,
    pub(super) work: PartWork<'c>,
    pub(super) middleware: &'c [Arc<dyn Middleware>],
    pub(super) boundary: Boundary,
    /// The parent's state at entry.
    pub(super) snapshot: &'c State,
    pub(super) no_suspension: Option<&'static str>,
    pub(super) slot: Arc<Slot>,
    /// The fan-out whose instance it is, where progress is saved.
    pub(super) ticket: Option<Ticket>,
}

/// How a part ended.
pub(super) enum PartEnd {
    Done(Update),
    Failed(NodeError),
    Paused(Arc<Pause>),
    Refused(Arc<Refusal>),
}

/// Why the parts of a node may not suspend, if they may not (suspension §8.2, §8.3).
pub(super) fn no_suspension(policy: ErrorPolicy) -> Option<&'static str> {
    match policy {
        ErrorPolicy::FailFast => None,
        ErrorPolicy::Collect => Some(
            "suspend() was called in a part of a node whose error policy is collect; \
             dispatch the work first, then suspend once behind it",
        ),
    }
}

impl Child<'_> {
    /// Runs the part on `state` with all that wraps it.
    pub(super) async fn run(&self, state: State) -> PartEnd {
        let scoped = Scoped::new(self.scope(None), self.layer(0, state));
        let guarded = AssertUnwindSafe(scoped).catch_unwind().map(flatten_panic).boxed();
        match (UntilSuspended { future: guarded, slot: &self.slot }).await {
            Ended::Returned(Ok(update)) => PartEnd::Done(update),
            Ended::Returned(Err(error)) => PartEnd::Failed(error),
            Ended::Suspended(Wish::Nested(pause)) => PartEnd::Paused(pause),
            Ended::Suspended(Wish::Refused(refusal)) => PartEnd::Refused(refusal),
            Ended::Suspended(wish @ (Wish::Suspend { .. } | Wish::Contained(_))) => self.of_call(wish),
        }
    }

    /// A call asked for the suspension itself: the branch is its node.
    fn of_call(&self, wish: Wish) -> PartEnd {
        let Wish::Suspend { descriptor, node_completed, attempt_index } = wish else {
            return PartEnd::Failed(NodeError::new("a call contains no parts"));
        };
        let Boundary::Branch(name) = &self.boundary else {
            return PartEnd::Failed(NodeError::new("only a branch can be a call"));
        };
        let walk = self.dispatch.walk;
        let mut asked_by = walk.path_to(self.dispatch.name);
        let namespace = asked_by.clone();
        asked_by.push(name.clone());
        PartEnd::Paused(Arc::new(Pause {
            descriptor,
            node_completed,
            attempt_index,
            step: self.dispatch.attempted().step,
            states: Vec::new(),
            namespace,
            asked_by,
        }))
    }

    fn innermost(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match &self.work {
            PartWork::Graph { graph, contribution } => Box::pin(self.graph(graph, contribution, state)),
            PartWork::Call(node) => {
                let body = Body { state: state.clone(), saver: Saver::Subgraph, unsupported: self.no_suspension };
                Box::pin(Scoped::new(self.scope(Some(Arc::new(body))), node.run(state)))
            }
        }
    }

    async fn graph(
        &self,
        graph: &CompiledGraph,
        contribution: &(dyn Fn(&State) -> Update + Send + Sync),
        state: State,
    ) -> Result<Update, NodeError> {
        self.note_beginning();
        let inner = self.dispatch.walk.inside(Inside {
            graph,
            name: self.dispatch.name,
            state: self.snapshot.clone(),
            boundary: self.boundary.clone(),
            no_suspension: self.no_suspension,
        });
        let wish = match inner.walk_inside(state, From::Entry).await.map_err(NodeError::passing)? {
            Ok(End::Completed(end)) => return Ok(contribution(&end)),
            Ok(End::Paused(pause)) => Wish::Nested(pause),
            Err(refusal) => Wish::Refused(refusal),
        };
        self.slot.put(wish);
        futures::future::pending().await
    }

    fn note_beginning(&self) {
        let checkpoints = &self.dispatch.walk.run.checkpoints;
        if let (Some(checkpoints), Some(ticket), Boundary::Instance(index)) = (checkpoints, self.ticket, &self.boundary)
        {
            checkpoints.progress.instance_begins(ticket, *index);
        }
    }

    fn scope(&self, body: Option<Arc<Body>>) -> Scope {
        let around = crate::ambient::scope().unwrap_or_else(|| self.dispatch.scope(None));
        Scope { slot: Some(self.slot.clone()), body, ..around }
    }
}

impl Chain for Child<'_> {
    fn layer(&self, depth: usize, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match self.middleware.get(depth) {
            Some(middleware) => middleware.around(state, Next { chain: self, depth: depth + 1 }),
            None => self.innermost(state),
        }
    }
}
