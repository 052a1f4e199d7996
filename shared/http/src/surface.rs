//! The APIs that are served side by side, and in which words each of them refuses.

use dormouse_engine::CutShort;
use dormouse_harness::{Bucket, TurnError};
use dormouse_ports::Category;
use dormouse_protocol::{ErrorCode, ProtocolError};
use serde_json::json;

use crate::Response;
use crate::refusal::RequestRefusal;
use crate::reply::TurnReply;

/// Prefixes of the paths of turns, callbacks and signals.
const OF_TURNS: [&str; 5] = ["/graphs/", "/chat/", "/invocations/", "/callback/", "/signals/"];

/// API that a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Turns, chats, callbacks and signals.
    Turns,
    /// The protocol, the pages about it, and every unknown path.
    Protocol,
    /// The console: files, the same for all users.
    Console,
}

impl Surface {
    /// The one that `path` belongs to.
    pub(crate) fn of(path: &str) -> Self {
        let of_turns = path == "/" || OF_TURNS.iter().any(|start| path.starts_with(start));
        let of_console = path.strip_prefix(dormouse_console::PREFIX);
        match of_console {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Self::Console,
            Some(_) | None if of_turns => Self::Turns,
            Some(_) | None => Self::Protocol,
        }
    }

    /// Id of a request to which its gateway gave none.
    pub(crate) fn request_id(self, fresh: String) -> String {
        match self {
            Self::Turns => fresh,
            Self::Protocol | Self::Console => format!("req_{fresh}"),
        }
    }

    /// The refusal of a request that was cut off when its time was over.
    pub(crate) fn late(self, cut: CutShort) -> SurfaceRefusal {
        match (self, cut) {
            (Self::Turns, cut) => SurfaceRefusal::Turns(late(cut).into()),
            (Self::Protocol | Self::Console, CutShort::Clean) => deadline_exceeded("there was no time left"),
            (Self::Protocol | Self::Console, CutShort::InDoubt) => {
                deadline_exceeded("there was no time left, and what was written may stand; repeat it only by its key")
            }
        }
    }

    /// The refusal of a request whose `part` cannot be.
    pub(crate) fn invalid(self, part: &str, message: &str) -> SurfaceRefusal {
        match self {
            Self::Turns => SurfaceRefusal::Turns(RequestRefusal::invalid(format!("{part}: {message}"))),
            Self::Protocol | Self::Console => SurfaceRefusal::Protocol(ProtocolError::invalid(part, message)),
        }
    }

    /// The refusal of a request that ended in a panic.
    pub(crate) fn panicked(self) -> SurfaceRefusal {
        let message = "the request could not be served";
        match self {
            Self::Turns => {
                let error = TurnError::new(Category::NodeException, format!("{message}; the log says why"));
                // What it wrote may stand: no caller is told to send the same again.
                SurfaceRefusal::Turns(TurnError { bucket: Bucket::SessionTerminating, ..error }.into())
            }
            Self::Protocol | Self::Console => {
                SurfaceRefusal::Protocol(ProtocolError::new(ErrorCode::InternalError, message))
            }
        }
    }
}

fn deadline_exceeded(message: &str) -> SurfaceRefusal {
    SurfaceRefusal::Protocol(ProtocolError::new(ErrorCode::DeadlineExceeded, message))
}

/// The error of a turn that was cut off when its time was over.
pub(crate) fn late(cut: CutShort) -> TurnError {
    match cut {
        CutShort::Clean => {
            let message = "there was no time left for it; what had begun is found by a later attempt or the sweep";
            TurnError::new(Category::TurnDeadlineExceeded, message)
        }
        CutShort::InDoubt => {
            let message = "there was no time left for it, and what it wrote may stand: look before sending it again";
            TurnError::new(Category::OutcomeUnknown, message)
        }
    }
}

/// Reason for not serving a request, in the words of the API that it asked.
#[derive(Debug)]
pub(crate) enum SurfaceRefusal {
    /// `{"error": {"category", "bucket", "message", …}}`
    Turns(RequestRefusal),
    /// `{"error": {"code", "message", "type", "param", "request_id", "details"}}`
    Protocol(ProtocolError),
}

impl SurfaceRefusal {
    /// The response to the request `request_id`.
    pub(crate) fn into_response(self, request_id: &str) -> Response {
        match self {
            Self::Turns(refusal) => TurnReply::from(refusal).into(),
            Self::Protocol(error) => {
                tracing::info!(code = error.code().as_str(), param = error.param(), "refused");
                let header = error.header().map(|(name, value)| (name, value.to_owned()));
                let response = Response::json(error.status(), &json!(error.into_response(request_id)));
                header.into_iter().fold(response, |response, (name, value)| response.header(name, value))
            }
        }
    }
}

impl From<RequestRefusal> for SurfaceRefusal {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Turns(refusal)
    }
}

impl From<ProtocolError> for SurfaceRefusal {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}
