use dormouse_engine::EngineError;
use dormouse_ports::{Category, InvocationId, Map, SessionId, SignalId};

use crate::transmission::{Callback, FreshTurn, Intent, Signal, Transmission};

/// Kind of an [`Envelope`] as declared by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A fresh turn.
    Fresh(Intent),
    /// A signal.
    SignalResume,
}

/// The members of a message over a transport that does not distinguish signals from fresh turns: only together they
/// show its kind.
#[derive(Clone, Debug, Default)]
pub struct Envelope {
    /// The graph that a fresh turn runs.
    pub graph: String,
    /// Kind as declared by the sender, where the transport knows.
    pub declared: Option<Declared>,
    /// The session, where one is named.
    pub session_id: Option<SessionId>,
    /// The fields that a fresh turn starts with.
    pub state: Map,
    /// Of a fresh turn: the id it shall have. Of a signal: the paused invocation.
    pub invocation_id: Option<InvocationId>,
    /// The correlation token of a signal.
    pub signal_id: Option<SignalId>,
    /// Payload of a signal.
    pub signal_payload: Option<Map>,
    /// Used verbatim for a fresh turn.
    pub correlation_id: Option<String>,
    /// Travels to every observer and backend.
    pub metadata: Map,
}

impl Envelope {
    /// The one transmission that it is (harness §3.4).
    ///
    /// # Errors
    /// `harness_path_classification_ambiguous` when it begins a turn and carries a signal, and
    /// `harness_signal_correlation_failed` for a signal that names no target.
    pub fn open(self) -> Result<Transmission, EngineError> {
        let intent = match (self.declared, &self.signal_payload) {
            (Some(Declared::SignalResume), _) | (None, Some(_)) => return self.signal(),
            (Some(Declared::Fresh(intent)), _) => Some(intent),
            (None, None) => None,
        };
        if self.signal_payload.is_some() || self.signal_id.is_some() {
            let message = "the transmission begins or continues a session and carries a signal; send one of the two";
            return Err(EngineError::new(Category::HarnessPathClassificationAmbiguous, message));
        }
        let Self { graph, session_id, state, invocation_id, correlation_id, metadata, .. } = self;
        let turn =
            FreshTurn { intent, session_id, invocation_id, correlation_id, metadata, ..FreshTurn::new(graph, state) };
        Ok(turn.into())
    }

    fn signal(self) -> Result<Transmission, EngineError> {
        let payload = self.signal_payload.unwrap_or_default();
        match (self.invocation_id, self.signal_id) {
            (Some(id), _) => Ok(Callback::new(id, None, payload).into()),
            (None, Some(id)) => Ok(Signal::new(id, payload).into()),
            (None, None) => {
                let message = "a signal must name an invocation_id or a signal_id";
                Err(EngineError::new(Category::HarnessSignalCorrelationFailed, message))
            }
        }
    }
}
