//! The execution loop: one walk is one running graph (graph-engine §3).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use dormouse_ports::{Category, Said};

use super::attempts::{AttemptObservers, panic_text};
use super::dispatch::Dispatch;
use super::durable::{LastStep, StepEnd};
use super::journal::{EntryBuffer, too_much};
use super::lineage::{Boundary, FinishedPosition, Lineage};
use super::pause::{NewPause, Stop, SuspendRefusal};
use super::record::Run;
use super::slot::{Ended, UntilSuspended};
use crate::ambient::{CallScope, Scoped};
use crate::graph::{CompiledNode, Edge};
use crate::node::Target;
use crate::observe::{FrameworkEvent, GraphEntry, NodeEvent, Phase, QueuedEvent, Registrations};
use crate::state::MergeFailure;
use crate::{CompiledGraph, EngineError, NodeError, State, Update};

/// One running graph: the outermost one, or one inside a node.
pub(crate) struct Walk<'r> {
    pub(super) run: &'r Run,
    pub(super) graph: &'r CompiledGraph,
    /// Path of the nodes around it.
    pub(super) namespace: Arc<[Arc<str>]>,
    /// Boundaries between it and each of these nodes.
    pub(super) lineage: Lineage,
    /// States of the graphs around it, outermost first.
    pub(super) parents: Arc<[State]>,
    /// Reason for which nothing in it may suspend, if nothing may.
    pub(super) no_suspension: Option<&'static str>,
    /// Entries that its completed nodes have recorded.
    pub(super) entries: Arc<EntryBuffer>,
    observers: Registrations,
}

/// Start of a walk.
pub(crate) enum StartAt {
    Entry,
    /// Behind a durable step that this worker made.
    Node(usize),
    Pause(ResumePoint),
}

/// Place where a resumed walk goes on.
#[derive(Clone)]
pub(crate) struct ResumePoint {
    /// Node names from this graph inwards.
    pub(super) path: Vec<Arc<str>>,
    /// States of the graphs inside of this one, outermost first; one fewer than `path` has names.
    pub(super) inner_states: Vec<State>,
    pub(super) node_completed: bool,
    pub(super) attempt_index: u32,
    /// Of the nodes on the way, outermost first; `attempt_index` where absent.
    pub(super) outer_attempts: Vec<u32>,
    /// The step under which the node runs again; a new one when absent.
    pub(super) step: Option<u64>,
}

/// End of a walk without an error.
pub(crate) enum WalkEnd {
    Completed(State),
    /// The same behind a durable node of the outermost graph.
    LastStep(LastStep),
    Paused(Arc<NewPause>),
    /// A durable node of the outermost graph completed: its step is to be committed.
    Step(StepEnd),
}

/// Number of nodes that run before others of the same thread get their turn, and the deadline of the turn is looked at.
const NODES_AT_ONCE: u64 = 64;

/// Lets others of the same thread run: nodes that wait for nothing would keep the thread to themselves.
async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_given_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An execution of a node, from its start to the choice of the next one.
pub(super) struct Execution {
    pub(super) index: usize,
    /// Given when the node runs again under the step that it had.
    pub(super) step: Option<u64>,
    pub(super) attempt_index: u32,
    pub(super) resume: Option<ResumePoint>,
}

/// Surroundings of the graphs inside of one node.
pub(super) struct Around {
    /// Path to the node, its own name last.
    pub(super) namespace: Arc<[Arc<str>]>,
    /// The state that the node received.
    pub(super) state: State,
    /// The states of all graphs around, that of the node's own graph last. What a middleware passed on instead of it is
    /// `state` alone.
    pub(super) parents: Arc<[State]>,
}

impl Around {
    /// The state of the node's own graph.
    pub(super) fn own(&self) -> &State {
        self.parents.last().unwrap_or(&self.state)
    }
}

/// Part that a walk inside of a node adds to its surroundings.
pub(super) struct Inside<'i> {
    pub(super) graph: &'i CompiledGraph,
    pub(super) around: &'i Around,
    pub(super) boundary: Boundary,
    /// The step and the attempt of the node around it.
    pub(super) entered_at: (u64, u32),
    pub(super) no_suspension: Option<&'static str>,
}

impl<'r> Walk<'r> {
    pub(super) fn outermost(run: &'r Run, graph: &'r CompiledGraph) -> Self {
        let observers = run.attached.to(graph).iter().chain(&run.scoped).cloned().collect();
        let namespace = Arc::new([]);
        let lineage = Lineage::default();
        let parents = Arc::new([]);
        let entries = run.journal.completed().clone();
        Self { run, graph, namespace, lineage, parents, no_suspension: None, entries, observers }
    }

    /// Surroundings of the graphs inside of the node `name`, which received `state`, while this graph is in `own`.
    pub(super) fn around(&self, name: &Arc<str>, own: &State, state: State) -> Around {
        let parents = self.parents.iter().chain([own]).cloned().collect();
        Around { namespace: self.path_to(name).into(), state, parents }
    }

    /// A walk of a graph inside of a node of this one.
    pub(super) fn inside<'i>(&'i self, inside: Inside<'i>) -> Walk<'i> {
        let graph = Some(inside.graph.as_subgraph().clone());
        let (step, attempt_index) = inside.entered_at;
        Walk {
            run: self.run,
            graph: inside.graph,
            namespace: inside.around.namespace.clone(),
            lineage: self.lineage.inside(inside.boundary, GraphEntry { graph, step, attempt_index }),
            parents: inside.around.parents.clone(),
            no_suspension: inside.no_suspension.or(self.no_suspension),
            entries: Arc::default(),
            observers: self.observers_inside(inside.graph),
        }
    }

    /// Those of `graph` come after those of the graphs around it, and before those of the call.
    fn observers_inside(&self, graph: &CompiledGraph) -> Registrations {
        let own = self.run.attached.to(graph);
        if own.is_empty() {
            return self.observers.clone();
        }
        let (around, scoped) = self.observers.split_at(self.observers.len() - self.run.scoped.len());
        around.iter().chain(own).chain(scoped).cloned().collect()
    }

    /// Runs the outermost graph; a refusal to go on is an error. Nothing of an invocation around this one reaches in.
    pub(super) async fn walk(&self, state: State, from: StartAt) -> Result<WalkEnd, EngineError> {
        let scope = CallScope::outside_nodes(self.run.view.clone());
        match Scoped::new(scope, Box::pin(self.walk_inside(state, from))).await? {
            Ok(end) => Ok(end),
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    /// Runs until END, a pause, or the refusal of one. A refusal is no error: nothing on its way out may catch it.
    pub(super) async fn walk_inside(
        &self,
        state: State,
        from: StartAt,
    ) -> Result<Result<WalkEnd, Arc<SuspendRefusal>>, EngineError> {
        let mut state = self.graph.schema().owned(state);
        let mut next = None;
        match from {
            StartAt::Entry => {
                self.check_entry(&state)?;
                next = Some(fresh(self.graph.entry()));
            }
            StartAt::Node(index) => next = Some(fresh(index)),
            StartAt::Pause(point) => {
                let (index, name, node) = self.resolve(&point)?;
                if point.path.len() == 1 && point.node_completed {
                    next = self.choose(name, node, &state)?.map(fresh);
                } else {
                    next.replace(again(index, point));
                }
            }
        }
        let mut in_a_row = 0;
        let mut last = None;
        while let Some(execution) = next {
            if let Some(refusal) = self.run.watch.refusal() {
                return Ok(Err(refusal));
            }
            in_a_row += 1;
            if in_a_row > self.run.limits.nodes {
                return Err(self.goes_in_circles(execution.index));
            }
            if in_a_row % NODES_AT_ONCE == 0 {
                give_way().await;
            }
            let index = execution.index;
            match self.execute(execution, &mut state).await? {
                Ok(Some(following)) if let Some(node) = self.durable(index) => {
                    return Ok(Ok(WalkEnd::Step(StepEnd { node, state, next: following, heard: Vec::new() })));
                }
                Ok(following) => {
                    last = self.durable(index);
                    next = following.map(fresh);
                }
                Err(Stop::Pause(pause)) => return Ok(Ok(WalkEnd::Paused(pause))),
                Err(Stop::Refusal(refusal)) => return Ok(Err(refusal)),
            }
        }
        self.graph
            .schema()
            .validate(&state)
            .map_err(|reason| EngineError::new(Category::StateValidationError, reason).with_state(&state))?;
        Ok(Ok(match last {
            Some(node) => WalkEnd::LastStep(LastStep { node, state }),
            None => WalkEnd::Completed(state),
        }))
    }

    /// Checks the state in which a graph inside of a node begins (graph-engine §2). That of the outermost graph was
    /// checked when it was made.
    fn check_entry(&self, state: &State) -> Result<(), EngineError> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        self.graph.schema().validate(state).map_err(|reason| {
            let message = format!("graph `{}` cannot begin: {reason}", self.graph.name());
            EngineError::new(Category::StateValidationError, message).with_state(state)
        })
    }

    /// Takes what was `said`, and `change`, into the state behind `step`; the node that follows now.
    ///
    /// # Errors
    /// Those of a node with such an update; `routing_error` where the edge leads to the end.
    pub(super) fn hear(&self, step: &mut StepEnd, said: &Said, change: Update) -> Result<usize, EngineError> {
        let StepEnd { node: name, state, .. } = step;
        let node = self.graph.index_of(name).and_then(|index| self.graph.node_at(index));
        let next = match node {
            Some((name, node)) => {
                self.merge(name, state, Update::from(said.update.clone()))?;
                self.merge(name, state, change)?;
                self.choose(name, node, state)?
            }
            None => None,
        };
        next.ok_or_else(|| {
            let message =
                format!("the run heard something behind node `{name}`, whose edge leads to the end all the same");
            EngineError::new(Category::RoutingError, message).at(name, state)
        })
    }

    /// The error for a graph that does not come to an end, in front of the node `index`.
    fn goes_in_circles(&self, index: usize) -> EngineError {
        let most = self.run.limits.nodes;
        let node = self.graph.node_at(index).map_or("", |(name, _)| name);
        let graph = self.graph.name();
        let message = format!(
            "{most} nodes of graph `{graph}` ran without a pause, which is the limit, and node `{node}` would be next: \
             does an edge lead back without a way out?"
        );
        EngineError::new(Category::LimitExceeded, message)
    }

    /// The name of the node, if its steps are committed here: only those of the outermost graph are.
    fn durable(&self, index: usize) -> Option<Arc<str>> {
        let (name, node) = self.graph.node_at(index).filter(|_| self.namespace.is_empty())?;
        node.durable.then(|| name.clone())
    }

    fn resolve(&self, point: &ResumePoint) -> Result<(usize, &'r Arc<str>, &'r CompiledNode), EngineError> {
        let gone = || {
            let name = point.path.first().map_or("", |name| name);
            let message =
                format!("the invocation sleeps at node `{name}`, which graph `{}` has no more", self.graph.name());
            EngineError::new(Category::SuspensionRecordInvalid, message)
        };
        let index = point.path.first().and_then(|name| self.graph.index_of(name)).ok_or_else(gone)?;
        let (name, node) = self.graph.node_at(index).ok_or_else(gone)?;
        Ok((index, name, node))
    }

    /// Runs one node: body, merge, edge, event. The outer error ends the invocation, the inner one stops the walk.
    async fn execute(
        &self,
        execution: Execution,
        state: &mut State,
    ) -> Result<Result<Option<usize>, Stop>, EngineError> {
        let Some(dispatch) = Dispatch::new(self, execution) else {
            return Err(EngineError::new(Category::RoutingError, "the graph has no such node"));
        };
        let pre_state = self.is_saved().then(|| state.clone());
        let name = dispatch.name;
        let node = dispatch.node;
        let step = dispatch.step;
        let attempts = &dispatch.attempts;
        let ended = {
            let running = pin!(dispatch.run(state.clone()));
            UntilSuspended { future: running, slot: &attempts.slot }.await
        };
        let raised = matches!(ended, Ended::Returned(Err(_)));
        let moved = match ended {
            Ended::Suspended(request) => return dispatch.stop(request, state).map(Err),
            Ended::Returned(Ok(update)) => {
                let moved = self.merge(name, state, update).and_then(|()| self.choose(name, node, state));
                moved.and_then(|next| {
                    let recorded = std::mem::take(&mut *dispatch.recorded());
                    self.entries.add(recorded).map(|()| next).map_err(|error| too_much(&error).at(name, state))
                })
            }
            Ended::Returned(Err(error)) => Err(self.raised(name, state, error)),
        };
        attempts.end(moved.as_ref().map(|_| &*state));
        if node.work.emits_events() {
            if moved.is_ok() {
                self.complete(name, step, attempts.last());
            }
            if raised {
                return moved.map(Ok);
            }
            if let Err(refusal) = dispatch.save_settled(&moved, pre_state.as_ref(), state).await {
                return Ok(Err(Stop::Refusal(refusal)));
            }
        }
        moved.map(Ok)
    }

    /// True if completed nodes are saved. Inside of a branch they are not: a crash starts the whole node with the
    /// branches over (§11.9).
    pub(super) fn is_saved(&self) -> bool {
        self.run.checkpoints.is_some() && !self.lineage.is_in_branch()
    }

    pub(super) fn complete(&self, name: &Arc<str>, step: u64, attempt_index: u32) {
        self.run.complete(FinishedPosition {
            namespace: self.namespace.clone(),
            node_name: name.clone(),
            step,
            attempt_index,
            lineage: self.lineage.clone(),
            fan_out_index: self.lineage.fan_out_index(),
        });
    }

    fn raised(&self, name: &Arc<str>, state: &State, error: NodeError) -> EngineError {
        let error = match error.into_passed() {
            Ok(inner) => return inner.at(name, state),
            Err(error) => error,
        };
        let (failed, error) = match error.into_branch() {
            Ok((branch, error)) => {
                let failed = EngineError::new(Category::ParallelBranchesBranchFailed, error.message());
                (failed.detail("branch_name", &*branch), error)
            }
            Err(error) if error.category() == Some(&Category::HarnessSignalSubscriptionFailed) => {
                let message = format!("node `{name}` of graph `{}`: {}", self.graph.name(), error.message());
                (EngineError::new(Category::NodeException, message), error)
            }
            Err(error) => (EngineError::new(Category::NodeException, error.message()), error),
        };
        failed.caused_by(error).at(name, state)
    }

    pub(super) fn merge(&self, name: &Arc<str>, state: &mut State, update: Update) -> Result<(), EngineError> {
        self.graph.schema().merge(state, update).map_err(|failure| match failure {
            MergeFailure::Undeclared(reason) => {
                EngineError::new(Category::StateValidationError, format!("node `{name}`: {reason}")).at(name, state)
            }
            MergeFailure::Reducer { field, reducer, reason } => {
                let message = format!("node `{name}`, field `{field}`, reducer {reducer}: {reason}");
                EngineError::new(Category::ReducerError, message)
                    .detail("field", &*field)
                    .detail("reducer", &*reducer)
                    .detail("node", &**name)
                    .caused_by(NodeError::new(reason))
                    .at(name, state)
            }
        })
    }

    /// Follows the outgoing edge of `name` on the state after the update.
    fn choose(&self, name: &Arc<str>, node: &CompiledNode, state: &State) -> Result<Option<usize>, EngineError> {
        let route = match &node.edge {
            Edge::To(index) => return Ok(Some(*index)),
            Edge::End => return Ok(None),
            Edge::Route(route, _) => route,
        };
        let target = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| route(state))).unwrap_or_else(|panic| {
            let graph = self.graph.name();
            let text = panic_text(&*panic);
            Err(NodeError::new(format!("the route of node `{name}` of graph `{graph}` panicked: {text}")))
        });
        match target {
            Ok(Target::End) => Ok(None),
            Ok(Target::Node(to)) => self.graph.index_of(&to).map(Some).ok_or_else(|| {
                let message = format!("the edge of node `{name}` chose `{to}`, which is not a declared node");
                EngineError::new(Category::RoutingError, message).at(name, state)
            }),
            Err(error) => {
                Err(EngineError::new(Category::EdgeException, error.message()).caused_by(error).at(name, state))
            }
        }
    }

    /// Observers of the executions of the node `name`; `None` if there are none.
    pub(super) fn told(&self, name: &Arc<str>, step: u64) -> Option<Box<AttemptObservers>> {
        let events = self.run.events.as_ref().filter(|_| !self.observers.is_empty())?;
        Some(Box::new(AttemptObservers::new(events.clone(), self.observers.clone(), self.event(name, step))))
    }

    /// Emits an event that is not a node's, where an observer is attached.
    pub(super) fn announce(&self, event: FrameworkEvent) {
        if let Some(events) = self.run.events.as_ref().filter(|_| !self.observers.is_empty()) {
            events.dispatch(&self.observers, self.run.view.identity(), QueuedEvent::Framework(event));
        }
    }

    /// Path from the outermost graph to the node `name` of this one.
    pub(super) fn path_to(&self, name: &Arc<str>) -> Vec<Arc<str>> {
        self.namespace.iter().chain([name]).cloned().collect()
    }

    fn event(&self, name: &Arc<str>, step: u64) -> NodeEvent {
        NodeEvent {
            at: self.run.clock.now(),
            phase: Phase::Started,
            node_name: name.clone(),
            namespace: self.path_to(name),
            step,
            attempt_index: 0,
            pre_state: State::default(),
            post_state: None,
            error: None,
            descriptor: None,
            parent_states: self.parents.to_vec(),
            fan_out_index: self.lineage.fan_out_index(),
            branch_name: self.lineage.branch_name(),
            fan_out_index_chain: self.lineage.fan_out_indices(),
            branch_name_chain: self.lineage.branch_names(),
            entry_chain: self.lineage.entries(),
            fan_out_config: None,
            parallel_branches_config: None,
        }
    }
}

fn fresh(index: usize) -> Execution {
    Execution { index, step: None, attempt_index: 0, resume: None }
}

/// The node runs again, or the graph inside of it goes on.
fn again(index: usize, point: ResumePoint) -> Execution {
    let inside = point.path.len() > 1;
    Execution {
        index,
        step: point.step.filter(|_| !inside),
        attempt_index: point.outer_attempts.first().copied().filter(|_| inside).unwrap_or(point.attempt_index),
        resume: inside.then_some(point),
    }
}
