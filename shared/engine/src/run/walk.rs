//! The execution loop: one walk is one running graph (graph-engine §3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::{Category, NodePosition, SignalDescriptor};

use super::attempts::Told;
use super::engine::Engine;
use super::session::SessionRun;
use super::slot::{Ended, UntilSuspended, Wish};
use super::{Attempts, Slot, dispatch};
use crate::ambient::{Identity, Scope, Scoped, View};
use crate::graph::{CompiledNode, Edge};
use crate::node::Target;
use crate::observe::{Attached, EventQueue, NodeEvent, Phase, Registered, Registrations};
use crate::state::MergeFailure;
use crate::{CompiledGraph, EngineError, NodeError, State, Update};

/// What all walks of an invocation share.
pub(crate) struct Run {
    pub(super) identity: Arc<Identity>,
    /// The invocation as its outermost line of execution sees it.
    pub(super) view: View,
    pub(super) session: Option<Arc<SessionRun>>,
    step: AtomicU64,
    positions: Mutex<Vec<Position>>,
    attached: Attached,
    scoped: Vec<Registered>,
    events: Option<Arc<EventQueue>>,
}

struct Position {
    namespace: Arc<[Arc<str>]>,
    node_name: Arc<str>,
    step: u64,
    attempt_index: u32,
}

/// One running graph: the outermost one, or one inside a subgraph node.
pub(crate) struct Walk<'r> {
    pub(super) run: &'r Run,
    pub(super) graph: &'r CompiledGraph,
    /// Path of the nodes around it.
    pub(super) namespace: Arc<[Arc<str>]>,
    /// States of the graphs around it, outermost first.
    pub(super) parents: Vec<State>,
    pub(super) slot: Arc<Slot>,
    observers: Registrations,
}

/// Where a walk begins.
pub(crate) enum From {
    Entry,
    Pause(ResumePoint),
}

/// Where a resumed walk goes on.
#[derive(Clone)]
pub(crate) struct ResumePoint {
    /// Node names from this graph inwards.
    pub(super) path: Vec<Arc<str>>,
    /// States of the graphs inside of this one, outermost first; one fewer than `path` has names.
    pub(super) inner_states: Vec<State>,
    pub(super) node_completed: bool,
    pub(super) attempt_index: u32,
    pub(super) step: u64,
}

/// How a walk ended.
pub(crate) enum End {
    Completed(State),
    Paused(Arc<Pause>),
}

/// A suspension on its way out to `invoke()`.
pub(crate) struct Pause {
    pub(super) descriptor: SignalDescriptor,
    pub(super) attempt_index: u32,
    pub(super) step: u64,
    /// States of all active graphs, outermost first.
    pub(super) states: Vec<State>,
    /// Path from the outermost graph to the suspending node, its own name last.
    pub(super) namespace: Vec<Arc<str>>,
}

/// An execution of a node, from its start to the choice of the next one.
pub(super) struct Execution {
    pub(super) index: usize,
    pub(super) step: u64,
    pub(super) attempt_index: u32,
    pub(super) resume: Option<ResumePoint>,
}

impl Run {
    pub(super) fn begin(
        engine: &Engine,
        graph: &CompiledGraph,
        identity: Arc<Identity>,
        session: Option<Arc<SessionRun>>,
        scoped: Vec<Registered>,
    ) -> Self {
        let attached = Attached::of(graph);
        let watched = !scoped.is_empty() || !attached.is_empty();
        let id = &identity.invocation_id;
        let events = watched.then(|| Arc::new(EventQueue::open(graph, id.clone(), &*engine.ports().spawner)));
        let (step, positions) = (AtomicU64::new(0), Mutex::default());
        Self { view: View::new(identity.clone()), identity, session, step, positions, attached, scoped, events }
    }

    /// Walks the outermost graph. Nothing of an invocation around this one reaches in.
    pub(super) async fn walk(&self, graph: &CompiledGraph, state: State, from: From) -> Result<End, EngineError> {
        let view = self.view.clone();
        let scope = Scope { view, slot: None, body: None, attempt_index: 0, attempts: None };
        let walk = Walk::at(self, graph, Arc::new([]), Vec::new(), &[]);
        Scoped::new(scope, Box::pin(walk.walk(state, from))).await
    }

    /// Takes up the history of a paused invocation.
    pub(super) fn continuing(self, step: u64, positions: &[NodePosition]) -> Self {
        let positions = positions.iter().map(|position| Position {
            namespace: position.namespace.clone().into(),
            node_name: position.node_name.clone(),
            step: position.step,
            attempt_index: position.attempt_index,
        });
        Self { step: AtomicU64::new(step), positions: Mutex::new(positions.collect()), ..self }
    }

    pub(super) fn next_step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    pub(super) fn completed_positions(&self) -> Vec<NodePosition> {
        let positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let position = |p: &Position| NodePosition {
            namespace: p.namespace.to_vec(),
            node_name: p.node_name.clone(),
            step: p.step,
            attempt_index: p.attempt_index,
            fan_out_index: None,
        };
        positions.iter().map(position).collect()
    }
}

impl<'r> Walk<'r> {
    /// A walk of `graph` inside the node `name` of this walk's graph, which is in `state`.
    pub(super) fn inside<'i>(&'i self, graph: &'i CompiledGraph, name: &Arc<str>, state: State) -> Walk<'i> {
        let namespace = self.namespace.iter().chain([name]).cloned().collect();
        let parents = self.parents.iter().cloned().chain([state]).collect();
        let around = self.observers.len() - self.run.scoped.len();
        Walk::at(self.run, graph, namespace, parents, &self.observers[..around])
    }

    fn at(
        run: &'r Run,
        graph: &'r CompiledGraph,
        namespace: Arc<[Arc<str>]>,
        parents: Vec<State>,
        around: &[Registered],
    ) -> Self {
        let attached = run.attached.to(graph);
        let observers = around.iter().chain(attached.iter()).chain(&run.scoped).cloned().collect();
        Self { run, graph, namespace, parents, slot: Arc::default(), observers }
    }

    /// Runs until END or a pause.
    pub(super) async fn walk(&self, state: State, from: From) -> Result<End, EngineError> {
        let (mut state, mut next) = (state, None);
        match from {
            From::Entry => next = Some(self.fresh(self.graph.entry())),
            From::Pause(point) => {
                let (index, name, node) = self.resolve(&point)?;
                if point.path.len() == 1 && point.node_completed {
                    next = self.choose(name, node, &state)?.map(|index| self.fresh(index));
                } else {
                    next.replace(self.again(index, point));
                }
            }
        }
        while let Some(execution) = next {
            match self.execute(execution, &mut state).await? {
                Ok(following) => next = following.map(|index| self.fresh(index)),
                Err(pause) => return Ok(End::Paused(pause)),
            }
        }
        self.graph
            .schema()
            .validate(&state)
            .map_err(|reason| EngineError::new(Category::StateValidationError, reason).with_state(&state))?;
        Ok(End::Completed(state))
    }

    fn fresh(&self, index: usize) -> Execution {
        Execution { index, step: u64::MAX, attempt_index: 0, resume: None }
    }

    fn again(&self, index: usize, point: ResumePoint) -> Execution {
        let (step, attempt_index) = (point.step, point.attempt_index);
        let resume = (point.path.len() > 1).then_some(point);
        Execution { index, step, attempt_index, resume }
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

    /// Runs one node: body, merge, edge, event. The outer error ends the invocation, the inner one pauses it.
    async fn execute(
        &self,
        mut execution: Execution,
        state: &mut State,
    ) -> Result<Result<Option<usize>, Arc<Pause>>, EngineError> {
        let Some((name, node)) = self.graph.node_at(execution.index) else {
            return Err(EngineError::new(Category::RoutingError, "the graph has no such node"));
        };
        let emits = node.work.emits_events();
        if emits && execution.step == u64::MAX {
            execution.step = self.run.step.fetch_add(1, Ordering::Relaxed);
        }
        let dispatch = dispatch::Dispatch::new(self, name, node, &execution);
        let ended = UntilSuspended { future: Box::pin(dispatch.run(state.clone())), slot: &self.slot }.await;
        let attempts = dispatch.attempts.clone();
        drop(dispatch);
        let moved = match ended {
            Ended::Suspended(wish) => return self.pause(name, &execution, wish, state, &attempts).map(Err),
            Ended::Returned(Ok(update)) => {
                self.merge(name, state, update).and_then(|()| self.choose(name, node, state))
            }
            Ended::Returned(Err(error)) => Err(self.raised(name, state, error)),
        };
        attempts.end(moved.as_ref().map(|_| &*state));
        if emits && moved.is_ok() {
            self.complete(name, execution.step, attempts.last());
        }
        moved.map(Ok)
    }

    fn complete(&self, name: &Arc<str>, step: u64, attempt_index: u32) {
        let position = Position { namespace: self.namespace.clone(), node_name: name.clone(), step, attempt_index };
        self.run.positions.lock().unwrap_or_else(PoisonError::into_inner).push(position);
    }

    fn pause(
        &self,
        name: &Arc<str>,
        execution: &Execution,
        wish: Wish,
        state: &State,
        attempts: &Attempts,
    ) -> Result<Arc<Pause>, EngineError> {
        match wish {
            Wish::Nested(pause) => Ok(pause),
            Wish::Refused { reason } => {
                let error = EngineError::new(Category::SuspensionInUnsupportedContext, reason).at(name, state);
                attempts.end(Err(&error));
                Err(error)
            }
            Wish::Suspend { descriptor, node_completed, attempt_index } => {
                attempts.suspended(&descriptor);
                if node_completed {
                    self.complete(name, execution.step, attempt_index);
                }
                Ok(Arc::new(Pause {
                    descriptor,
                    attempt_index,
                    step: execution.step,
                    states: self.parents.iter().chain([state]).cloned().collect(),
                    namespace: self.namespace.iter().chain([name]).cloned().collect(),
                }))
            }
        }
    }

    fn raised(&self, name: &Arc<str>, state: &State, error: NodeError) -> EngineError {
        let error = match error.into_carried() {
            Ok(inner) => return inner.at(name, state),
            Err(error) => error,
        };
        EngineError::new(Category::NodeException, error.message()).caused_by(error).at(name, state)
    }

    fn merge(&self, name: &Arc<str>, state: &mut State, update: Update) -> Result<(), EngineError> {
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
            Edge::Route(route) => route,
        };
        let target = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| route(state)))
            .unwrap_or_else(|_| Err(NodeError::new("the edge function panicked")));
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

    /// To whom the executions of the node `name` are told; `None` when nobody observes.
    pub(super) fn told(&self, name: &Arc<str>, step: u64) -> Option<Told> {
        let events = self.run.events.as_ref().filter(|_| !self.observers.is_empty())?;
        let template = self.event(name, step);
        Some(Told { events: events.clone(), observers: self.observers.clone(), template })
    }

    fn event(&self, name: &Arc<str>, step: u64) -> NodeEvent {
        NodeEvent {
            phase: Phase::Started,
            node_name: name.clone(),
            namespace: self.namespace.iter().chain([name]).cloned().collect(),
            step,
            attempt_index: 0,
            pre_state: State::default(),
            post_state: None,
            error: None,
            descriptor: None,
            parent_states: self.parents.clone(),
        }
    }
}
