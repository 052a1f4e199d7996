use std::time::Duration;

use dormouse_engine::EngineError;
use dormouse_ports::{Category, InvocationId, Map, SessionId, ShapeId, SignalId};
use jiff::Timestamp;

use crate::mode::Mode;

/// Relation of a fresh turn to its session, as declared by the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It begins a session.
    NewSession,
    /// It goes on in a session.
    ExistingSession,
}

/// Trigger of a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// It was sent.
    #[default]
    Signal,
    /// The pause fell due; the payload comes from the pause itself.
    Due,
}

/// Way by which a signal came that names only its correlation token. One that is parked waits for an invocation that
/// waits for that way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignalOrigin {
    /// A sender that may send it by that token: with the key for signals, or as an event of our own.
    #[default]
    Sent,
    /// A key of a tenant: only invocations of the tenant are found, and what they are answered bears the name of the key's
    /// actor.
    Tenant {
        /// The tenant.
        tenant: String,
        /// The actor.
        actor: String,
        /// Id of the key, or what else proved it.
        credential: String,
    },
    /// A rule found it in an event of another source.
    Event(EventOrigin),
}

/// Knowledge about an event beside the signal that it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOrigin {
    /// The shape of the rule that took it; unknown where a rule of an earlier version did.
    pub shape: Option<ShapeId>,
    /// Source of the event.
    pub source: Option<String>,
    /// Detail type of the event.
    pub detail_type: Option<String>,
}

/// One inbound request, event or timer, free of its transport (harness §3).
#[derive(Clone, Debug)]
pub struct Transmission {
    /// Kind of the request.
    pub kind: TransmissionKind,
    /// Time that the worker has left; the turn ends before it.
    pub time_left: Option<Duration>,
}

/// Kind of a transmission.
#[derive(Clone, Debug)]
pub enum TransmissionKind {
    /// A turn that begins an invocation.
    Fresh(Box<FreshTurn>),
    /// A signal for an invocation that is named.
    Callback(Callback),
    /// A signal that names only its correlation token.
    Signal(Signal),
    /// A pause that fell due; the payload comes from the pause itself.
    Wakeup(Wakeup),
}

/// A turn that begins an invocation.
#[derive(Clone, Debug, Default)]
pub struct FreshTurn {
    /// The graph that it runs.
    pub graph: String,
    /// The version of it, where it is not the current one of all callers: only who looked it up in a source of graphs
    /// knows one.
    pub version: Option<String>,
    /// Relation to the session as declared by the sender, where the transport knows.
    pub intent: Option<Intent>,
    /// The session, where the sender names one.
    pub session_id: Option<SessionId>,
    /// The fields that it starts with.
    pub state: Map,
    /// The id it shall have, which makes repeating it safe.
    pub invocation_id: Option<InvocationId>,
    /// The id under which earlier versions kept the same request: what is there with the same digest answers it.
    pub earlier_id: Option<InvocationId>,
    /// Where it names its id: a digest of the caller and the request. A caller that names the id again gets its outcome
    /// only with the same digest.
    pub request_digest: Option<String>,
    /// The tenant in whose name it begins, where the transport knows one: its keys may bring signals to it, and it goes with
    /// what is erased of the tenant.
    pub tenant: Option<String>,
    /// Used verbatim.
    pub correlation_id: Option<String>,
    /// Travels to every observer and backend.
    pub metadata: Map,
}

/// A signal for an invocation that is named.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The paused invocation.
    pub invocation_id: InvocationId,
    /// The pause that it means; the current one when absent.
    pub generation: Option<u64>,
    /// The part among several expected signals.
    pub part: Option<String>,
    /// Payload of the signal.
    pub payload: Map,
}

/// A signal that names only its correlation token.
#[derive(Clone, Debug)]
pub struct Signal {
    /// The correlation token.
    pub signal_id: SignalId,
    /// Way by which it came.
    pub origin: SignalOrigin,
    /// Payload of the signal.
    pub payload: Map,
}

/// A pause that fell due.
#[derive(Clone, Debug)]
pub struct Wakeup {
    /// The paused invocation.
    pub invocation_id: InvocationId,
    /// The pause that is meant.
    pub generation: u64,
    /// The deadline that is meant, by its instant; the next one when absent.
    pub due_at: Option<Timestamp>,
}

impl FreshTurn {
    /// A fresh turn of `graph`.
    pub fn new(graph: impl Into<String>, state: Map) -> Self {
        Self { graph: graph.into(), state, ..Self::default() }
    }
}

impl Callback {
    /// A signal for a paused invocation.
    pub fn new(invocation_id: impl Into<InvocationId>, generation: Option<u64>, payload: Map) -> Self {
        Self { invocation_id: invocation_id.into(), generation, part: None, payload }
    }
}

impl Signal {
    /// A signal that was sent by its correlation token.
    pub fn new(signal_id: impl Into<SignalId>, payload: Map) -> Self {
        Self { signal_id: signal_id.into(), origin: SignalOrigin::Sent, payload }
    }
}

impl From<FreshTurn> for Transmission {
    fn from(turn: FreshTurn) -> Self {
        TransmissionKind::Fresh(Box::new(turn)).into()
    }
}

impl From<Callback> for Transmission {
    fn from(callback: Callback) -> Self {
        TransmissionKind::Callback(callback).into()
    }
}

impl From<Signal> for Transmission {
    fn from(signal: Signal) -> Self {
        TransmissionKind::Signal(signal).into()
    }
}

impl From<Wakeup> for Transmission {
    fn from(wakeup: Wakeup) -> Self {
        TransmissionKind::Wakeup(wakeup).into()
    }
}

impl From<TransmissionKind> for Transmission {
    fn from(kind: TransmissionKind) -> Self {
        Self { kind, time_left: None }
    }
}

impl Transmission {
    /// A fresh turn of `graph`.
    pub fn start(graph: impl Into<String>, state: Map) -> Self {
        FreshTurn::new(graph, state).into()
    }

    /// A signal for a paused invocation.
    pub fn callback(invocation_id: impl Into<InvocationId>, generation: Option<u64>, payload: Map) -> Self {
        Callback::new(invocation_id, generation, payload).into()
    }

    /// A signal by its correlation token.
    pub fn signal(signal_id: impl Into<SignalId>, payload: Map) -> Self {
        Signal::new(signal_id, payload).into()
    }

    /// A pause that fell due at `due_at`.
    pub fn due(invocation_id: impl Into<InvocationId>, generation: u64, due_at: Option<Timestamp>) -> Self {
        Wakeup { invocation_id: invocation_id.into(), generation, due_at }.into()
    }

    /// The correlation token, where it names one.
    pub fn signal_id(&self) -> Option<&SignalId> {
        match &self.kind {
            TransmissionKind::Signal(signal) => Some(&signal.signal_id),
            TransmissionKind::Fresh(_) | TransmissionKind::Callback(_) | TransmissionKind::Wakeup(_) => None,
        }
    }

    /// The one dispatch path of this transmission in `mode`; depends on nothing else (harness §3.4).
    ///
    /// # Errors
    /// `harness_session_id_unresolved`.
    pub fn classify(&self, mode: Mode) -> Result<DispatchPath, EngineError> {
        let turn = match (&self.kind, mode) {
            (_, Mode::Stateless) => return Ok(DispatchPath::Stateless),
            (TransmissionKind::Fresh(turn), Mode::Sessioned) => turn,
            (
                TransmissionKind::Callback(_) | TransmissionKind::Signal(_) | TransmissionKind::Wakeup(_),
                Mode::Sessioned,
            ) => return Ok(DispatchPath::SignalResume),
        };
        let unresolved = |message: &str| Err(EngineError::new(Category::HarnessSessionIdUnresolved, message));
        match (turn.intent, &turn.session_id) {
            (Some(Intent::ExistingSession), None) => unresolved("to continue a session, name it by session_id"),
            (_, Some(id)) if id.as_str().is_empty() => unresolved("the session_id is empty"),
            (Some(Intent::ExistingSession) | None, Some(_)) => Ok(DispatchPath::ExistingSession),
            (Some(Intent::NewSession), _) | (None, None) => Ok(DispatchPath::NewSession),
        }
    }
}

/// The way that a transmission takes through the harness (harness §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchPath {
    /// §3.0: no session.
    Stateless,
    /// §3.1: the sender begins a session.
    NewSession,
    /// §3.2: the sender goes on in a session.
    ExistingSession,
    /// §3.3: a signal for a paused invocation.
    SignalResume,
}

impl DispatchPath {
    /// The number of its section.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stateless => "3.0",
            Self::NewSession => "3.1",
            Self::ExistingSession => "3.2",
            Self::SignalResume => "3.3",
        }
    }
}
