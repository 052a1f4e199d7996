use std::time::Duration;

use dormouse_engine::EngineError;
use dormouse_ports::{Category, InvocationId, Map, SessionId, ShapeId, SignalId};
use jiff::Timestamp;

use crate::mode::Mode;

/// What the sender says a transmission is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It begins a session.
    NewSession,
    /// It goes on in a session.
    ExistingSession,
    /// It carries a signal.
    SignalResume,
}

/// What made a signal arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// Somebody or something sent it.
    #[default]
    Signal,
    /// The pause fell due; the payload comes from the pause itself.
    Due,
}

/// By which way a signal came that names only its correlation token. One that is parked waits for whoever waits for that
/// way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignalOrigin {
    /// Somebody sent it by that token who may: with the key for signals, or as an event of our own.
    #[default]
    Sent,
    /// A rule found it in an event of somebody else.
    Event(EventOrigin),
}

/// What is known of an event beside the signal that it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOrigin {
    /// The shape of the rule that took it; unknown where a rule of an earlier version did.
    pub shape: Option<ShapeId>,
    /// Who sent it.
    pub source: Option<String>,
    /// What kind of fact it tells.
    pub detail_type: Option<String>,
}

/// One inbound request, event or timer, free of its transport (harness §3).
#[derive(Clone, Debug, Default)]
pub struct Transmission {
    /// The graph that a fresh turn runs.
    pub graph: String,
    /// What the sender says it is, where the transport knows.
    pub intent: Option<Intent>,
    /// The session, where the transmission names one.
    pub session_id: Option<SessionId>,
    /// The fields that a fresh turn starts with.
    pub state: Map,
    /// Of a fresh turn: the id it shall have, which makes repeating it safe. Of a signal: the paused invocation.
    pub invocation_id: Option<InvocationId>,
    /// Of a fresh turn that names its id: a digest of who asks for it with what. Whoever names the id again is told of it
    /// only with the same digest.
    pub request_digest: Option<String>,
    /// The pause that a signal for `invocation_id` means; whichever is current when absent.
    pub generation: Option<u64>,
    /// Of a signal for `invocation_id`: which of several expected signals it is.
    pub part: Option<String>,
    /// The correlation token of a signal.
    pub signal_id: Option<SignalId>,
    /// By which way a signal came that names its token only.
    pub origin: SignalOrigin,
    /// What a signal carries.
    pub signal_payload: Option<Map>,
    /// What made a signal arrive.
    pub trigger: Trigger,
    /// Of a pause that fell due: which of its deadlines is meant, by its instant; whichever is next when absent.
    pub due_at: Option<Timestamp>,
    /// Used verbatim for a fresh turn.
    pub correlation_id: Option<String>,
    /// Travels to every observer and backend.
    pub metadata: Map,
    /// How much time the worker has left; the turn ends before it.
    pub time_left: Option<Duration>,
}

impl Transmission {
    /// A fresh turn of `graph`.
    pub fn start(graph: impl Into<String>, state: Map) -> Self {
        Self { graph: graph.into(), state, ..Self::default() }
    }

    /// A signal for a paused invocation.
    pub fn callback(invocation_id: impl Into<InvocationId>, generation: Option<u64>, payload: Map) -> Self {
        Self {
            intent: Some(Intent::SignalResume),
            invocation_id: Some(invocation_id.into()),
            generation,
            signal_payload: Some(payload),
            ..Self::default()
        }
    }

    /// A signal by its correlation token.
    pub fn signal(signal_id: impl Into<SignalId>, payload: Map) -> Self {
        Self {
            intent: Some(Intent::SignalResume),
            signal_id: Some(signal_id.into()),
            signal_payload: Some(payload),
            ..Self::default()
        }
    }

    /// A pause that fell due at `due_at`.
    pub fn due(invocation_id: impl Into<InvocationId>, generation: u64, due_at: Option<Timestamp>) -> Self {
        Self {
            intent: Some(Intent::SignalResume),
            invocation_id: Some(invocation_id.into()),
            generation: Some(generation),
            trigger: Trigger::Due,
            due_at,
            ..Self::default()
        }
    }

    /// Whether it carries a signal.
    pub fn is_signal(&self) -> bool {
        self.intent == Some(Intent::SignalResume) || (self.intent.is_none() && self.signal_payload.is_some())
    }

    /// The one dispatch path of this transmission in `mode`; depends on nothing else (harness §3.4).
    ///
    /// # Errors
    /// `harness_path_classification_ambiguous`, `harness_session_id_unresolved` or
    /// `harness_signal_correlation_failed`.
    pub fn classify(&self, mode: Mode) -> Result<DispatchPath, EngineError> {
        let refuse = |category, message: &str| Err(EngineError::new(category, message));
        if self.is_signal() {
            if self.invocation_id.is_none() && self.signal_id.is_none() {
                let message = "a signal must name an invocation_id or a signal_id";
                return refuse(Category::HarnessSignalCorrelationFailed, message);
            }
            return Ok(match mode {
                Mode::Sessioned => DispatchPath::SignalResume,
                Mode::Stateless => DispatchPath::Stateless,
            });
        }
        if self.signal_payload.is_some() || self.signal_id.is_some() {
            let message = "the transmission begins or continues a session and carries a signal; send one of the two";
            return refuse(Category::HarnessPathClassificationAmbiguous, message);
        }
        match (mode, self.intent, &self.session_id) {
            (Mode::Stateless, _, _) => Ok(DispatchPath::Stateless),
            (Mode::Sessioned, Some(Intent::ExistingSession), None) => {
                refuse(Category::HarnessSessionIdUnresolved, "to continue a session, name it by session_id")
            }
            (Mode::Sessioned, _, Some(id)) if id.as_str().is_empty() => {
                refuse(Category::HarnessSessionIdUnresolved, "the session_id is empty")
            }
            (Mode::Sessioned, Some(Intent::ExistingSession) | None, Some(_)) => Ok(DispatchPath::ExistingSession),
            (Mode::Sessioned, _, _) => Ok(DispatchPath::NewSession),
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
