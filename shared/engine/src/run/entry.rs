//! The one way through a run: an invocation enters, walks and leaves.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Category, Map, SharedMap, StoredList};

use super::call::{Carry, Outcome};
use super::checkpoint_start::CheckpointStart;
use super::durable::{AfterLast, AfterStep};
use super::engine::Engine;
use super::exit::{Claimed, Exit, Own, Tenure};
use super::record::{Beginning, Run, RunContext};
use super::session::{self, SessionRun, SessionTerms, StoredBeside};
use super::walk::{ResumePoint, StartAt, Walk, WalkEnd};
use crate::ambient::{self, Identity};
use crate::observe::{InvocationStart, RegisteredObserver, ResumedFrom};
use crate::{CompiledGraph, EngineError, State};

/// Way in which an invocation enters a run.
pub(super) enum Entry {
    /// At the entry of its graph.
    Fresh { own: Own, given: Map, carry: Option<Carry> },
    /// At the entry of its graph, with the input that its record was given when it was accepted.
    Accepted { claimed: Box<Claimed>, carry: Option<Carry> },
    /// Behind the pause of its record, in these states, with their lists as stored in pieces, and the state with which its
    /// session was saved last, where that is an earlier one.
    Paused { claimed: Box<Claimed>, states: Vec<State>, stored: Vec<StoredList>, saved: Option<SharedMap> },
    /// At the place where its checkpoint was saved.
    Checkpoint { own: Own, start: Box<CheckpointStart>, carry: Option<Carry> },
}

/// An invocation that is about to enter.
pub(super) struct Arrival {
    /// Its identity; the place in a trace is still open.
    pub(super) identity: Identity,
    pub(super) observers: Vec<RegisteredObserver>,
    pub(super) entry: Entry,
    /// Time after which a durable step leaves the rest to another worker.
    pub(super) yield_after: Option<Duration>,
}

/// Runs `arrival` until it ends or pauses. Observers are notified of it from its session on.
pub(super) async fn enter(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    arrival: Arrival,
) -> Result<Outcome, EngineError> {
    let Arrival { identity, observers, mut entry, yield_after } = arrival;
    let yields_at = yield_after.map(|after| engine.ports().clock.monotonic() + after);
    let identity = Arc::new(Identity { trace_context: graph.trace_context(&observers), ..identity });
    let start = InvocationStart {
        identity: identity.clone(),
        graph: graph.name().to_owned(),
        entry_node: graph.as_subgraph().entry_node.clone(),
        at: engine.ports().clock.now(),
        surrounding_trace: ambient::surrounding_trace(),
        resumed: entry.resumed_from(),
    };
    let work = async {
        let OpenedSession { session, refused } = entry.open_session(engine, graph, &identity).await?;
        let run = entry.take_up(Run::begin(Beginning { engine, graph, start, session, observers }));
        let input = entry.claims(graph);
        let Started { begun, tenure } = match refused {
            None => entry.start(graph, &run),
            Some(error) => Started { begun: Err(error), tenure: entry.into_tenure() },
        };
        let mut exit = Exit { at: RunContext { engine, graph, run: &run }, tenure };
        let begun = match (begun, input) {
            (Ok(begun), Some(given)) => exit.begin(given).await.map(|()| begun),
            (begun, _) => begun,
        };
        let result = match walk(&mut exit, begun, yields_at).await {
            AfterWalk::Ended(ended) => exit.leave(ended).await,
            AfterWalk::Left(outcome) => Ok(outcome),
        };
        run.end(&result);
        result
    };
    ambient::within(&identity, Box::pin(work)).await
}

/// End of a walk with all its durable steps.
enum AfterWalk {
    Ended(Result<WalkEnd, EngineError>),
    /// Its outcome is written: its end, or its rest as accepted work.
    Left(Outcome),
}

/// Walks from `begun` on, and commits each durable step on the way.
async fn walk(exit: &mut Exit<'_>, begun: Result<WalkStart, EngineError>, yields_at: Option<Duration>) -> AfterWalk {
    let WalkStart { mut state, mut at } = match begun {
        Ok(begun) => begun,
        Err(error) => return AfterWalk::Ended(Err(error)),
    };
    loop {
        let step = match Walk::outermost(exit.at.run, exit.at.graph).walk(state, at).await {
            Ok(WalkEnd::Step(step)) => step,
            Ok(WalkEnd::LastStep(last)) => match exit.last_step(last).await {
                Ok(AfterLast::GoesOn(step)) => step,
                Ok(AfterLast::Ended(outcome)) => return AfterWalk::Left(outcome),
                Err(error) => return AfterWalk::Ended(Err(error)),
            },
            ended => return AfterWalk::Ended(ended),
        };
        match exit.step(step, yields_at).await {
            Ok(AfterStep::GoOn { state: reached, next }) => (state, at) = (reached, StartAt::Node(next)),
            Ok(AfterStep::HandedOver(outcome)) => return AfterWalk::Left(outcome),
            Err(error) => return AfterWalk::Ended(Err(error)),
        }
    }
}

/// Outcome of opening a session.
struct OpenedSession {
    session: Option<Arc<SessionRun>>,
    /// Error for which the invocation cannot go on all the same.
    refused: Option<EngineError>,
}

/// Start of a walk, and the state of the outermost graph there.
struct WalkStart {
    state: State,
    at: StartAt,
}

impl Entry {
    /// The pause behind which it goes on, for observers.
    fn resumed_from(&self) -> Option<ResumedFrom> {
        match self {
            Self::Paused { claimed, .. } => {
                let paused = &claimed.paused;
                Some(ResumedFrom { generation: paused.generation, trace_context: paused.trace_context.clone() })
            }
            Self::Fresh { .. } | Self::Accepted { .. } | Self::Checkpoint { .. } => None,
        }
    }

    /// The input of an invocation that is claimed before its first node: its nodes are durable, so that none of them may
    /// run on two workers, and others know its id and may have given it to a second one.
    fn claims(&self, graph: &CompiledGraph) -> Option<Map> {
        match self {
            Self::Fresh { own, given, .. } if own.is_known() && graph.has_durable_steps() => Some(given.clone()),
            Self::Fresh { .. } | Self::Accepted { .. } | Self::Paused { .. } | Self::Checkpoint { .. } => None,
        }
    }

    /// Opens the session. Where that fails, the invocation begins all the same, so that observers are notified of the
    /// failure. Not so where the session is held: the caller asks again soon, and only the call that gets it is
    /// reported.
    async fn open_session(
        &self,
        engine: &Engine,
        graph: &Arc<CompiledGraph>,
        identity: &Identity,
    ) -> Result<OpenedSession, EngineError> {
        let session_id = identity.session_id.as_ref();
        let begun_for = identity.begun_for.as_deref();
        let opened = match self {
            Self::Paused { claimed, stored, saved, .. } => {
                let stored = StoredBeside { lists: stored, saved: saved.as_deref() };
                SessionRun::of_pause(engine, graph, &claimed.paused, stored).await
            }
            Self::Accepted { claimed, .. } => {
                let terms = SessionTerms { lease: &claimed.lease(), begun_for };
                SessionRun::open(engine, graph, session_id, Some(terms)).await
            }
            Self::Fresh { own, .. } | Self::Checkpoint { own, .. } => {
                let terms = own.lease.as_ref().map(|lease| SessionTerms { lease, begun_for });
                SessionRun::open(engine, graph, session_id, terms).await
            }
        };
        match (opened, self) {
            (Err(error), _) if *error.category() == Category::SessionLeaseHeld => Err(error),
            (Err(error), _) => Ok(OpenedSession { session: None, refused: Some(error) }),
            (Ok(session), Self::Checkpoint { start, .. }) => {
                let refused = session.as_deref().and_then(|session| start.overtaken(session));
                Ok(OpenedSession { session, refused })
            }
            (Ok(session), Self::Fresh { .. } | Self::Accepted { .. } | Self::Paused { .. }) => {
                Ok(OpenedSession { session, refused: None })
            }
        }
    }

    /// `run` with what was before it.
    fn take_up(&mut self, run: Run) -> Run {
        match self {
            Self::Fresh { .. } => run,
            Self::Accepted { claimed, .. } => run.under(claimed.held()),
            Self::Paused { claimed, stored, .. } => {
                let paused = &claimed.paused;
                run.continuing(paused.step, &paused.completed_positions)
                    .grown_from(std::mem::take(stored))
                    .under(claimed.held())
                    .saving_after(paused.suspended_at)
            }
            Self::Checkpoint { start, .. } => {
                let run = run.continuing(start.step, &start.history);
                if let Some(checkpoints) = &run.checkpoints {
                    checkpoints.progress.restore(std::mem::take(&mut start.progress));
                }
                run
            }
        }
    }

    /// The terms on which a run ends that cannot begin.
    fn into_tenure(self) -> Tenure {
        match self {
            Self::Fresh { own, .. } | Self::Checkpoint { own, .. } => Tenure::Own(own),
            Self::Accepted { claimed, .. } | Self::Paused { claimed, .. } => Tenure::Claimed(claimed),
        }
    }

    /// Start of the walk. The data that the caller gives along is made of the state there.
    fn start(self, graph: &CompiledGraph, run: &Run) -> Started {
        match self {
            Self::Fresh { mut own, given, carry } => {
                let begun = initial_state(graph, run, given);
                let begun = begun.inspect(|state| own.carried = carried(carry, state));
                Started { begun: begun.map(WalkStart::at_entry), tenure: Tenure::Own(own) }
            }
            Self::Accepted { mut claimed, carry } => {
                let begun = initial_state(graph, run, claimed.paused.state.clone().into_map());
                let begun = begun.inspect(|state| claimed.paused.carried.extend(carried(carry, state)));
                Started { begun: begun.map(WalkStart::at_entry), tenure: Tenure::Claimed(claimed) }
            }
            Self::Paused { claimed, mut states, .. } => {
                let paused = &claimed.paused;
                let state = states.remove(0);
                let point = ResumePoint {
                    path: paused.namespace.clone(),
                    inner_states: states,
                    node_completed: paused.node_completed(),
                    attempt_index: paused.attempt_index,
                    outer_attempts: paused.outer_attempts.clone(),
                    step: Some(paused.suspended_step),
                };
                let begun = WalkStart { state, at: StartAt::Pause(point) };
                Started { begun: Ok(begun), tenure: Tenure::Claimed(claimed) }
            }
            Self::Checkpoint { mut own, start, carry } => {
                own.carried = carried(carry, &start.outermost);
                let begun = WalkStart { state: start.outermost, at: start.from };
                Started { begun: Ok(begun), tenure: Tenure::Own(own) }
            }
        }
    }
}

/// A walk that may begin, and on which terms it ends.
struct Started {
    begun: Result<WalkStart, EngineError>,
    tenure: Tenure,
}

impl WalkStart {
    fn at_entry(state: State) -> Self {
        Self { state, at: StartAt::Entry }
    }
}

fn carried(carry: Option<Carry>, state: &State) -> Map {
    carry.map_or_else(Map::new, |carry| carry(state))
}

fn initial_state(graph: &CompiledGraph, run: &Run, given: Map) -> Result<State, EngineError> {
    match &run.session {
        Some(session) => session.initial_state(given),
        None => session::initial_state(graph.schema(), None, given),
    }
}
