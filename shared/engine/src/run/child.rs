//! One concurrent part of a node: an instance of a fan-out, or a parallel branch.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use dormouse_ports::JournalEntry;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::attempts::{AttemptObservers, Attempts, flatten_panic, kept};
use super::body::{NodeBody, Saver};
use super::dispatch::Dispatch;
use super::lineage::Boundary;
use super::pause::{NewPause, PauseEntries, SuspendRefusal};
use super::progress::Ticket;
use super::slot::{Ended, SuspendRequest, UntilSuspended};
use super::walk::{Around, Inside, StartAt, WalkEnd};
use crate::ambient::{self, CallScope, InvocationView, Position, Scoped};
use crate::graph::ErrorPolicy;
use crate::node::{Middleware, MiddlewareChain, Next, Node};
use crate::observe::GraphEntry;
use crate::{CompiledGraph, NodeError, State, Update};

/// Work of a part.
pub(super) enum PartWork<'c> {
    /// Runs a graph and turns its final state into the part's contribution.
    Graph { graph: &'c CompiledGraph, contribution: &'c (dyn Fn(&State) -> Update + Send + Sync) },
    /// Calls a node on the parent's state.
    Call(&'c dyn Node),
}

/// A part with its middleware and surroundings.
pub(super) struct Child<'c> {
    pub(super) dispatch: &'c Dispatch<'c>,
    pub(super) work: PartWork<'c>,
    pub(super) middleware: &'c [Arc<dyn Middleware>],
    pub(super) boundary: Boundary,
    pub(super) around: &'c Around,
    pub(super) no_suspension: Option<&'static str>,
    /// The ticket of the fan-out that it is an instance of, where progress is saved.
    pub(super) ticket: Option<Ticket>,
}

/// End of a part.
pub(super) enum ChildEnd {
    Done { update: Update, recorded: Vec<JournalEntry> },
    Failed(NodeError),
    Paused(Arc<NewPause>),
    Refused(Arc<SuspendRefusal>),
}

/// Reason for which the parts of a node may not suspend, if they may not (suspension §8.2, §8.3).
pub(super) fn no_suspension(policy: ErrorPolicy) -> Option<&'static str> {
    match policy {
        ErrorPolicy::FailFast => None,
        ErrorPolicy::Collect => Some(
            "suspend() was called in a part of a node whose error policy is collect; \
             dispatch the work first, then suspend once behind it",
        ),
    }
}

/// A part while it runs.
struct RunningPart<'c> {
    child: &'c Child<'c>,
    step: u64,
    attempts: Arc<Attempts>,
}

impl Child<'_> {
    /// Runs the part on `state` with all that wraps it.
    pub(super) async fn run(&self, state: State) -> ChildEnd {
        let around = ambient::look(|scope| (scope.view.identity(), scope.attempt_index));
        let (identity, attempt_index) = around.unwrap_or_else(|| (self.dispatch.attempts.view.identity(), 0));
        // Code that runs beside it sees nothing of what it adds (observability §3.4).
        let view = InvocationView::new(identity);
        let step = match &self.work {
            PartWork::Graph { .. } => self.dispatch.step,
            PartWork::Call(_) => self.dispatch.walk.run.take_step(),
        };
        let attempts = Arc::new(Attempts::new(self.told(step), view, 0, attempt_index));
        let running = RunningPart { child: self, step, attempts };
        let scope = CallScope::around_node(&running.attempts, attempt_index);
        let chain = kept(Scoped::new(scope, running.layer(0, state)).recording());
        let guarded = pin!(AssertUnwindSafe(chain).catch_unwind().map(flatten_panic));
        let ended = UntilSuspended { future: guarded, slot: &running.attempts.slot }.await;
        let end = match ended {
            Ended::Returned(Ok((update, recorded))) => ChildEnd::Done { update, recorded },
            Ended::Returned(Err(error)) => ChildEnd::Failed(error),
            Ended::Suspended(SuspendRequest::Nested(pause)) => ChildEnd::Paused(pause),
            Ended::Suspended(SuspendRequest::Refused(refusal)) => ChildEnd::Refused(refusal),
            Ended::Suspended(request @ (SuspendRequest::Suspend { .. } | SuspendRequest::Contained(_))) => {
                running.of_call(request)
            }
        };
        running.settle(&end);
        end
    }

    /// Observers of the part, and the template of its events: the node with the part entered. A call has no nodes of
    /// its own, so the branch itself is what observers see.
    fn told(&self, step: u64) -> Option<Box<AttemptObservers>> {
        let walk = self.dispatch.walk;
        let mut told = walk.told(self.dispatch.name, step)?;
        let graph = match &self.work {
            PartWork::Graph { graph, .. } => Some(graph.as_subgraph().clone()),
            PartWork::Call(_) => None,
        };
        let (step, attempt_index) = self.entered_at();
        let lineage = walk.lineage.inside(self.boundary.clone(), GraphEntry { graph, step, attempt_index });
        let template = &mut told.template;
        template.fan_out_index = lineage.fan_out_index();
        template.branch_name = lineage.branch_name();
        template.fan_out_index_chain = lineage.fan_out_indices();
        template.branch_name_chain = lineage.branch_names();
        template.entry_chain = lineage.entries();
        if let (PartWork::Call(_), Boundary::Branch(name)) = (&self.work, &self.boundary) {
            template.node_name = name.clone();
            template.namespace.push(name.clone());
            template.parent_states = self.around.parents.to_vec();
        }
        Some(told)
    }

    /// The step and the attempt of the node that it is a part of.
    fn entered_at(&self) -> (u64, u32) {
        (self.dispatch.step, self.dispatch.attempts.last())
    }
}

impl RunningPart<'_> {
    /// A call asked for the suspension itself: the branch is its node.
    fn of_call(&self, request: SuspendRequest) -> ChildEnd {
        let SuspendRequest::Suspend { descriptor, node_completed, recorded } = request else {
            return ChildEnd::Failed(NodeError::new("a call contains no parts"));
        };
        let Boundary::Branch(name) = &self.child.boundary else {
            return ChildEnd::Failed(NodeError::new("only a branch can be a call"));
        };
        let namespace = self.child.around.namespace.to_vec();
        let asked_by = namespace.iter().chain([name]).cloned().collect();
        let attempt_index = self.attempts.last();
        let step = self.step;
        let states = Vec::new();
        ChildEnd::Paused(Arc::new(NewPause {
            descriptor,
            node_completed,
            attempt_index,
            outer_attempts: Vec::new(),
            step,
            states,
            namespace,
            asked_by,
            recorded: PauseEntries { completed: Vec::new(), asking: recorded },
        }))
    }

    /// Ends the attempt at a call; a graph's nodes have ended by themselves.
    fn settle(&self, end: &ChildEnd) {
        let Child { dispatch, work: PartWork::Call(_), around, .. } = self.child else { return };
        match end {
            ChildEnd::Done { update, recorded: _ } => {
                let mut state = around.state.clone();
                let merged = dispatch.walk.merge(dispatch.name, &mut state, update.clone());
                self.attempts.end(merged.as_ref().map(|()| &state));
            }
            ChildEnd::Failed(error) => self.attempts.end(Err(error)),
            ChildEnd::Paused(pause) => self.attempts.suspended(&pause.descriptor),
            ChildEnd::Refused(refusal) => self.attempts.end(Err(&refusal.clone().into_error())),
        }
    }

    fn innermost(&self, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match &self.child.work {
            PartWork::Graph { graph, contribution } => Box::pin(self.graph(graph, contribution, state)),
            PartWork::Call(node) => Box::pin(self.call(*node, state)),
        }
    }

    async fn call(&self, node: &dyn Node, state: State) -> Result<Update, NodeError> {
        let index = ambient::look(|scope| scope.attempt_index).unwrap_or(0);
        let position = Position { namespace: self.path(), step: self.step, attempt_index: index };
        let unsupported = self.child.no_suspension.or(self.child.dispatch.walk.no_suspension);
        let position = Some(Arc::new(position));
        let watch = self.child.dispatch.walk.run.watch.clone();
        let journal = self.child.dispatch.walk.run.journal.clone();
        let body = NodeBody { saver: Saver::Subgraph, unsupported, watch: watch.clone(), journal, position };
        let scope = CallScope { body: Some(body), ..CallScope::around_node(&self.attempts, index) };
        let before = state.clone();
        let work = kept(Scoped::new(scope, node.run(state)).recording());
        let result = self.attempts.attempt(index, &before, work).await;
        let Some(refusal) = watch.refusal() else {
            let (update, recorded) = result?;
            ambient::adopt(recorded);
            return Ok(update);
        };
        self.attempts.slot.put(SuspendRequest::Refused(refusal));
        futures::future::pending().await
    }

    async fn graph(
        &self,
        graph: &CompiledGraph,
        contribution: &(dyn Fn(&State) -> Update + Send + Sync),
        state: State,
    ) -> Result<Update, NodeError> {
        self.note_beginning();
        let Child { dispatch, around, boundary, no_suspension, .. } = self.child;
        let boundary = boundary.clone();
        let entered_at = self.child.entered_at();
        let no_suspension = *no_suspension;
        let inner = dispatch.walk.inside(Inside { graph, around, boundary, entered_at, no_suspension });
        let request = match inner.walk_inside(state, StartAt::Entry).await.map_err(NodeError::passing)? {
            Ok(WalkEnd::Completed(end)) => {
                ambient::adopt(inner.entries.take());
                return Ok(contribution(&end));
            }
            // Only the outermost graph has durable steps.
            Ok(WalkEnd::Step(_) | WalkEnd::LastStep(_)) => {
                return Err(NodeError::new("a graph inside of a node ended with a durable step"));
            }
            Ok(WalkEnd::Paused(pause)) => SuspendRequest::Nested(pause.behind(inner.entries.take())),
            Err(refusal) => SuspendRequest::Refused(refusal),
        };
        self.attempts.slot.put(request);
        futures::future::pending().await
    }

    fn note_beginning(&self) {
        let Child { dispatch, boundary, ticket, .. } = self.child;
        if let (Some(checkpoints), Some(ticket), Boundary::Instance(index)) =
            (&dispatch.walk.run.checkpoints, ticket, boundary)
        {
            checkpoints.progress.instance_begins(*ticket, *index);
        }
    }

    /// Path to the part itself.
    fn path(&self) -> Vec<Arc<str>> {
        let mut path = self.child.around.namespace.to_vec();
        if let Boundary::Branch(name) = &self.child.boundary {
            path.push(name.clone());
        }
        path
    }
}

impl MiddlewareChain for RunningPart<'_> {
    fn layer(&self, depth: usize, state: State) -> BoxFuture<'_, Result<Update, NodeError>> {
        match self.child.middleware.get(depth) {
            Some(middleware) => middleware.around(state, Next { chain: self, depth: depth + 1 }),
            None => self.innermost(state),
        }
    }

    fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }
}
