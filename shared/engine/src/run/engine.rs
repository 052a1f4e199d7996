use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Clock, FanIn, IdSource, InvocationId, InvocationLimits, InvocationRecord,
    InvocationStatus, Map, Owner, PausePreparation, PausedInvocation, Resolution, SessionId, SignalDescriptor, Spawner,
    StoreError, SubscriptionError, TurnStore, WakePlan, WakePlanner, limits,
};

use super::pause::Before;
use super::record::Run;
use super::session::SessionRun;
use super::walk::{From, Walk};
use super::{finish, resume};
use crate::ambient::{self, Identity};
use crate::observe::{InvocationStart, Observer, Phases, Registered, ResumedFrom};
use crate::sending::Told;
use crate::{CompiledGraph, EngineError, State, metadata};

/// Everything that the engine needs from outside.
#[derive(Clone)]
pub struct Ports {
    /// Where sessions and pauses are kept.
    pub store: TurnStore,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identity.
    pub ids: Arc<dyn IdSource>,
    /// Where observers are served.
    pub spawner: Arc<dyn Spawner>,
    /// Reads the wake-up that a descriptor asks for.
    pub planner: Arc<dyn WakePlanner>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ports")
    }
}

/// Runs graphs on ports. Cheap to clone; it holds no state of its own.
#[derive(Clone, Debug)]
pub struct Engine {
    ports: Ports,
    limits: InvocationLimits,
    preparation: Option<Arc<dyn PausePreparation>>,
}

/// Under which name and for how long exclusive rights are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Who takes them; unique to this turn.
    pub owner: Owner,
    /// After which time they end by themselves. The turn must have ended by then.
    pub duration: Duration,
}

/// Makes the caller's own data from the state at entry.
pub type Carry = Arc<dyn Fn(&State) -> Map + Send + Sync>;

/// A fresh call of `invoke()` (graph-engine §3).
#[derive(Clone, Default)]
pub struct Invocation {
    /// The fields that the caller sets; all others start from the session or their defaults.
    pub state: Map,
    /// The session to bind to.
    pub session_id: Option<SessionId>,
    /// Used verbatim; a fresh one is made when absent.
    pub invocation_id: Option<InvocationId>,
    /// Used verbatim; a fresh one is made when absent (observability §3.1).
    pub correlation_id: Option<String>,
    /// Travels to every observer and backend: strings, numbers, booleans and lists of one of these, under names that
    /// the framework does not use itself (observability §3.4).
    pub metadata: Map,
    /// Makes the caller's own data from the state at entry; kept with a pause and given back with every outcome.
    pub carry: Option<Carry>,
    /// With it, the session's lease is taken for the duration of the call.
    pub lease: Option<LeaseTerms>,
    /// A digest of who asks for it with what; kept with its record ([`PausedInvocation::request_digest`]).
    ///
    /// [`PausedInvocation::request_digest`]: dormouse_ports::PausedInvocation::request_digest
    pub request_digest: Option<String>,
    /// Whether others know the id already, so that they may cancel the invocation before it ever sleeps, or ask for it
    /// again. Its end is then conditional on that and kept, for one request more.
    pub cancelable: bool,
    /// Observers of this call only, told after those of the graphs.
    pub observers: Vec<(Arc<dyn Observer>, Phases)>,
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("session_id", &self.session_id)
            .field("invocation_id", &self.invocation_id)
            .finish_non_exhaustive()
    }
}

/// How a paused invocation is continued (suspension §7).
#[derive(Clone)]
pub struct Resume {
    /// Overlaid on the state, field by field, without reducers.
    pub payload: Map,
    /// The pause that is meant; whichever is current when absent.
    pub generation: Option<u64>,
    /// Under which name and for how long the invocation is claimed.
    pub claim: LeaseTerms,
    /// Observers of this call only.
    pub observers: Vec<(Arc<dyn Observer>, Phases)>,
    /// Decides what an error does to the invocation. A payload that does not fit always gives the claim back.
    pub after_error: fn(&EngineError) -> AfterError,
}

/// What an error does to an invocation that was being resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// The invocation is over, errored.
    End,
    /// The payload is forgotten; the invocation sleeps on and waits for the signal again.
    GiveBack,
    /// The claim stays until it ends by itself; the next delivery takes it over with the same payload.
    KeepClaim,
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// How an invocation left `invoke()` without an error (graph-engine §3).
#[derive(Debug)]
pub enum Outcome {
    /// It reached END.
    Completed(Completed),
    /// It sleeps.
    Suspended(Box<Suspended>),
}

/// The end of an invocation.
#[derive(Debug)]
pub struct Completed {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// What it belongs to.
    pub correlation_id: String,
    /// The final state.
    pub state: State,
    /// What the caller gave along when the invocation began.
    pub carried: Map,
    /// By what its last pause ended; `None` when it never slept.
    pub resolution: Option<Resolution>,
}

/// The pause of an invocation (suspension §5).
#[derive(Debug)]
pub struct Suspended {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// What it belongs to.
    pub correlation_id: String,
    /// Its session, if it is bound to one.
    pub session_id: Option<SessionId>,
    /// Which of its pauses this is, from 1.
    pub generation: u64,
    /// The state of the outermost graph at the pause.
    pub state: State,
    /// What it waits for.
    pub descriptor: SignalDescriptor,
    /// When and by what it wakes by itself.
    pub wake: WakePlan,
    /// The signals that it expects when these are several, and those that had come before it.
    pub fan_in: Option<FanIn>,
    /// The node that called `suspend()`, in its own graph.
    pub node_name: Arc<str>,
    /// Path from the outermost graph to that node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// What the caller gave along when the invocation began.
    pub carried: Map,
    /// The signal had arrived before the pause: the pause is claimed already, and the caller goes on at once with
    /// [`Engine::resume_claimed`].
    pub arrived: Option<Box<InvocationRecord>>,
}

impl Suspended {
    /// The node of the outermost graph in which the invocation sleeps.
    pub fn suspending_node(&self) -> &str {
        self.namespace.first().unwrap_or(&self.node_name)
    }
}

impl Engine {
    /// An engine on `ports`, whose store tells what it is sent ([`Sending`](crate::Sending)).
    pub fn new(ports: Ports) -> Self {
        let commits = Arc::new(Told(ports.store.commits.clone()));
        let ports = Ports { store: TurnStore { commits, ..ports.store }, ..ports };
        Self { ports, limits: InvocationLimits::default(), preparation: None }
    }

    /// The same with other limits.
    #[must_use]
    pub fn limited(self, limits: InvocationLimits) -> Self {
        Self { limits, ..self }
    }

    /// The same, with somebody who sees to what pauses need before they are written.
    #[must_use]
    pub fn prepared_by(self, preparation: Arc<dyn PausePreparation>) -> Self {
        Self { preparation: Some(preparation), ..self }
    }

    /// Makes what must stand before `paused` is written.
    pub(super) async fn prepare(&self, paused: &PausedInvocation) -> Result<(), EngineError> {
        let Some(preparation) = &self.preparation else { return Ok(()) };
        preparation.prepare(paused).await.map_err(|error| {
            let message = format!("the wait for signal `{}` cannot be arranged: {error}", paused.descriptor.signal_id);
            let is_passing = matches!(error, SubscriptionError::Unavailable(_));
            EngineError::new(Category::HarnessSignalSubscriptionFailed, message).transient_if(is_passing)
        })
    }

    /// How often one invocation may sleep, and on how much.
    pub fn limits(&self) -> InvocationLimits {
        self.limits
    }

    /// The ports it runs on.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Runs `graph` from its entry until it ends or suspends.
    ///
    /// # Errors
    /// The runtime categories of graph-engine §4, sessions §10 and suspension §9; `request_invalid` for metadata that
    /// may not be. An errored invocation saves nothing.
    pub async fn invoke(&self, graph: &Arc<CompiledGraph>, call: Invocation) -> Result<Outcome, EngineError> {
        metadata::accept(&call.metadata)?;
        let invocation_id = call.invocation_id.clone().unwrap_or_else(|| self.ports.ids.fresh().into());
        let observers = registered(call.observers);
        let identity = Arc::new(Identity {
            trace_context: graph.trace_context(&observers),
            correlation_id: call.correlation_id.clone().unwrap_or_else(|| self.ports.ids.fresh()),
            invocation_id,
            session_id: call.session_id.clone(),
            metadata: call.metadata,
        });
        let start = self.start_of(graph, &identity, None);
        let work = async {
            let (session, refused) = opened(self, graph, call.session_id.as_ref(), call.lease.as_ref()).await?;
            let run = Run::begin(self, graph, start, session, observers);
            let result = match refused {
                Some(error) => Err(error),
                None => {
                    let entry = Entry {
                        given: call.state,
                        carry: call.carry,
                        request_digest: call.request_digest,
                        lease: call.lease,
                        cancelable: call.cancelable,
                    };
                    run_fresh(self, graph, &run, entry).await
                }
            };
            run.end(&result);
            result
        };
        ambient::within(&identity, Box::pin(work)).await
    }

    /// What observers are told of a call that begins now.
    pub(super) fn start_of(
        &self,
        graph: &CompiledGraph,
        identity: &Arc<Identity>,
        resumed: Option<ResumedFrom>,
    ) -> InvocationStart {
        InvocationStart {
            identity: identity.clone(),
            graph: graph.name().to_owned(),
            entry_node: graph.as_subgraph().entry_node.clone(),
            at: self.ports.clock.now(),
            surrounding_trace: ambient::surrounding_trace(),
            resumed,
        }
    }

    /// Claims a paused invocation of `graph` and continues it (suspension §7).
    ///
    /// # Errors
    /// `suspension_record_invalid` when it is not asleep, `suspension_resume_payload_invalid` when the payload does
    /// not fit (it sleeps on then), and those of [`invoke`](Self::invoke).
    pub async fn resume(
        &self,
        graph: &Arc<CompiledGraph>,
        invocation_id: &InvocationId,
        call: Resume,
    ) -> Result<Outcome, EngineError> {
        let now = self.ports.clock.now();
        let request = ClaimRequest {
            invocation_id: invocation_id.clone(),
            generation: call.generation,
            owner: call.claim.owner.clone(),
            now,
            until: now + call.claim.duration,
            past: None,
            payload: Some(call.payload.clone()),
            answered: None,
        };
        let invalid = |message: String| EngineError::new(Category::SuspensionRecordInvalid, message);
        let claimed = self.claim(&request).await.map_err(|error| {
            invalid(format!("the paused invocation could not be claimed: {error}")).transient_if(is_transient(&error))
        })?;
        match claimed {
            ClaimOutcome::Granted(record) => self.resume_claimed(graph, record, call).await,
            ClaimOutcome::Missing => Err(invalid(format!("invocation {invocation_id} was never suspended"))),
            ClaimOutcome::Held { until } => {
                Err(invalid(format!("invocation {invocation_id} is being resumed elsewhere until {until}")))
            }
            ClaimOutcome::Gathering(_) => {
                Err(invalid(format!("invocation {invocation_id} expects several signals, and none for itself")))
            }
            ClaimOutcome::Settled(record) => {
                Err(invalid(format!("invocation {invocation_id} is not asleep: {}", status_name(&record.status))))
            }
        }
    }

    /// Claims a paused invocation. A claim of somebody else that lasts longer than any turn needs was made by a clock that
    /// is wrong, and is passed over; it is compared with the present once it was read.
    ///
    /// # Errors
    /// As [`Commits::claim`](dormouse_ports::Commits::claim).
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let (store, clock) = (&self.ports.store, &self.ports.clock);
        let outcome = store.commits.claim(request).await?;
        let now = clock.now();
        let ClaimOutcome::Held { until: past } = outcome else { return Ok(outcome) };
        if !limits::lasts_too_long(past, now) {
            return Ok(outcome);
        }
        let until = now + request.until.duration_since(request.now);
        store.commits.claim(&ClaimRequest { now, until, past: Some(past), ..request.clone() }).await
    }

    /// Continues an invocation whose claim the caller holds: what a claim returned, or [`Suspended::arrived`].
    /// The payload that counts is the one stored with the claim.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub async fn resume_claimed(
        &self,
        graph: &Arc<CompiledGraph>,
        record: Box<InvocationRecord>,
        call: Resume,
    ) -> Result<Outcome, EngineError> {
        let InvocationStatus::Resuming(claim) = record.status else {
            let message = format!("invocation {} is not claimed", record.paused.invocation_id);
            return Err(EngineError::new(Category::SuspensionRecordInvalid, message));
        };
        resume::claimed(self, graph, record.paused, record.stored, claim, call).await
    }
}

/// Opens the session of a call. Where that fails, the invocation begins all the same, so that observers are told of
/// the failure. Not so where the session is held: the caller asks again soon, and only the call that gets it is told of.
pub(super) async fn opened(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    session_id: Option<&SessionId>,
    lease: Option<&LeaseTerms>,
) -> Result<(Option<Arc<SessionRun>>, Option<EngineError>), EngineError> {
    match SessionRun::open(engine, graph, session_id, lease).await {
        Err(error) if *error.category() == Category::SessionLeaseHeld => Err(error),
        Err(error) => Ok((None, Some(error))),
        Ok(session) => Ok((session, None)),
    }
}

/// With what a fresh invocation begins.
struct Entry {
    given: Map,
    carry: Option<Carry>,
    request_digest: Option<String>,
    lease: Option<LeaseTerms>,
    cancelable: bool,
}

async fn run_fresh(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    run: &Run,
    entry: Entry,
) -> Result<Outcome, EngineError> {
    let Entry { given, carry, request_digest, lease, cancelable } = entry;
    let mut carried = Map::new();
    let ended = match initial_state(graph, run, given) {
        Ok(state) => {
            carried = carry.map_or_else(Map::new, |carry| carry(&state));
            Walk::outermost(run, graph).walk(state, From::Entry).await
        }
        Err(error) => Err(error),
    };
    let before = Before { carried, request_digest, claim: lease, previous: None };
    finish::fresh(engine, graph, run, ended, before, cancelable).await
}

pub(super) fn initial_state(graph: &CompiledGraph, run: &Run, given: Map) -> Result<State, EngineError> {
    match &run.session {
        Some(session) => session.initial_state(given),
        None => super::session::initial_state(graph.schema(), None, given),
    }
}

pub(super) fn registered(observers: Vec<(Arc<dyn Observer>, Phases)>) -> Vec<Registered> {
    observers.into_iter().map(|(observer, phases)| Registered::new(observer, phases)).collect()
}

pub(super) fn is_transient(error: &dormouse_ports::StoreError) -> bool {
    use dormouse_ports::StoreError as E;
    match error {
        E::Unavailable(_) | E::LeaseHeld { .. } => true,
        E::Denied(_) | E::Corrupt(_) | E::TooLarge { .. } | E::TooComplex { .. } | E::Invalid(_) => false,
    }
}

fn status_name(status: &InvocationStatus) -> &'static str {
    match status {
        InvocationStatus::Suspended => "suspended in another pause",
        InvocationStatus::Resuming(_) => "being resumed",
        InvocationStatus::Completed { .. } => "completed",
        InvocationStatus::Errored(_) => "errored",
        InvocationStatus::Canceled(_) => "canceled",
    }
}
