//! Arguments and outcomes of an invocation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{
    FanIn, InvocationId, InvocationRecord, Map, Owner, Resolution, SessionId, SignalDescriptor, WakePlan,
};

use crate::observe::{Observer, Phases};
use crate::{EngineError, State};

/// Owner and duration of exclusive rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Owner of the right; unique to this turn.
    pub owner: Owner,
    /// Time after which they end by themselves. The turn must have ended by then.
    pub duration: Duration,
    /// Time after which a [durable](crate::GraphBuilder::durable) step leaves the rest of the run to another worker;
    /// with `None` this one goes on to the end.
    pub yield_after: Option<Duration>,
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
    /// Digest of the caller and the request; kept with its record ([`PausedInvocation::request_digest`]).
    ///
    /// [`PausedInvocation::request_digest`]: dormouse_ports::PausedInvocation::request_digest
    pub request_digest: Option<String>,
    /// The tenant whose keys bring signals to it; kept with its record.
    pub tenant: Option<String>,
    /// The tenant in whose name it begins; kept with its record and its session.
    pub begun_for: Option<String>,
    /// True if others know the id already, so that they may cancel the invocation before it is ever suspended, or ask
    /// for it again. Its end is then conditional on that and kept, for one request more. Where its graph has durable steps
    /// it is claimed before the first node, for another one: nobody else who is given the same id runs any.
    pub cancelable: bool,
    /// Observers of this call only, notified after those of the graphs.
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

/// Terms on which a paused invocation is continued (suspension §7).
#[derive(Clone)]
pub struct Resume {
    /// Overlaid on the state, field by field, without reducers.
    pub payload: Map,
    /// The pause that is meant; the current one when absent.
    pub generation: Option<u64>,
    /// Owner and duration of the claim on the invocation.
    pub claim: LeaseTerms,
    /// Observers of this call only.
    pub observers: Vec<(Arc<dyn Observer>, Phases)>,
    /// Decides the effect of an error on the invocation. A payload that does not fit always gives the claim back.
    pub after_error: fn(&EngineError) -> AfterError,
}

/// Effect of an error on an invocation that was being resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// The invocation is over, errored.
    End,
    /// The payload is forgotten; the invocation sleeps on and waits for the signal again.
    GiveBack,
    /// The claim stays until it ends by itself; the next delivery takes it over with the same payload.
    KeepClaim,
}

/// Terms on which an invocation begins that was accepted before.
#[derive(Clone)]
pub struct Begin {
    /// Makes the caller's own data from the state at entry, added to what the record carries.
    pub carry: Option<Carry>,
    /// Owner and duration of the claim on the invocation and of the lease of its session.
    pub claim: LeaseTerms,
    /// Observers of this call only.
    pub observers: Vec<(Arc<dyn Observer>, Phases)>,
    /// Decides the effect of an error on the invocation.
    pub after_error: fn(&EngineError) -> AfterError,
}

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin").field("claim", &self.claim).finish_non_exhaustive()
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// Outcome of an invocation that left `invoke()` without an error (graph-engine §3).
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
    /// The correlation that it belongs to.
    pub correlation_id: String,
    /// The final state.
    pub state: State,
    /// Data that the caller gave along when the invocation began.
    pub carried: Map,
    /// Resolution of its last pause; `None` when it was never suspended.
    pub resolution: Option<Resolution>,
}

/// The pause of an invocation (suspension §5).
#[derive(Debug)]
pub struct Suspended {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// The correlation that it belongs to.
    pub correlation_id: String,
    /// Its session, if it is bound to one.
    pub session_id: Option<SessionId>,
    /// Number of this pause among those of the invocation, from 1.
    pub generation: u64,
    /// The state of the outermost graph at the pause.
    pub state: State,
    /// Descriptor of the wait.
    pub descriptor: SignalDescriptor,
    /// Plan by which it wakes by itself.
    pub wake: WakePlan,
    /// The signals that it expects when these are several, and those that had come before it.
    pub fan_in: Option<FanIn>,
    /// The node that called `suspend()`, in its own graph.
    pub node_name: Arc<str>,
    /// Path from the outermost graph to that node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// Data that the caller gave along when the invocation began.
    pub carried: Map,
    /// The signal had arrived before the pause: the pause is claimed already, and the caller goes on at once with
    /// [`Engine::resume_claimed`](crate::Engine::resume_claimed). Or its time was over at a durable step: the rest is
    /// [accepted](dormouse_ports::InvocationStatus::Accepted) work, and the caller calls for a worker.
    pub arrived: Option<Box<InvocationRecord>>,
}

impl Suspended {
    /// The node of the outermost graph in which the invocation sleeps.
    pub fn suspending_node(&self) -> &str {
        self.namespace.first().unwrap_or(&self.node_name)
    }
}
