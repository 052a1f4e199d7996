//! The forms in which a receipt is given out, beside the resource that carries it.

use dormouse_api::CallAnswer;
use dormouse_protocol::{ErrorCode, Operation, ProtocolError};
use dormouse_receipts::{canonical, cbor};
use serde_json::Value;

use crate::{Content, Response};

/// The receipt itself as deterministic CBOR.
const CBOR: &str = "application/vnd.harn.receipt+cbor";
/// The receipt itself as canonical JSON.
const JSON: &str = "application/vnd.harn.receipt+json";

/// A form of the receipt itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Cbor,
    Json,
}

impl Form {
    /// The form that the caller of `operation` asks for; `None` for the resource.
    pub(super) fn wanted(operation: Operation, accept: Option<&str>) -> Option<Self> {
        let accept = accept.filter(|_| operation == Operation::GetReceipt)?;
        let first = accept.split(',').find_map(|one| match one.split(';').next().unwrap_or_default().trim() {
            CBOR => Some(Some(Self::Cbor)),
            JSON => Some(Some(Self::Json)),
            "application/json" => Some(None),
            _ => None,
        });
        first.flatten()
    }

    /// The receipt that `answer` carries.
    ///
    /// # Errors
    /// `internal_error` when it carries none.
    pub(super) fn response(self, answer: &CallAnswer) -> Result<Response, ProtocolError> {
        let (bytes, media_type) = self.encoded(answer).ok_or_else(|| {
            tracing::error!("a receipt that is stored cannot be written in the form that a client asks for");
            ProtocolError::new(ErrorCode::InternalError, "the receipt cannot be written in this form")
        })?;
        let media_type = format!("{media_type}; schema={}", dormouse_receipts::SCHEMA);
        Ok(Response::new(200, &media_type, Content::Whole(bytes)).header("vary", "accept"))
    }

    fn encoded(self, answer: &CallAnswer) -> Option<(Vec<u8>, &'static str)> {
        let payload = match answer {
            CallAnswer::Json(_, body) | CallAnswer::Repeated(_, body) => body.pointer("/wire/payload")?,
            CallAnswer::Bytes { .. } | CallAnswer::Empty => return None,
        };
        match (self, payload) {
            (Self::Cbor, Value::Object(receipt)) => Some((cbor::encode(receipt).ok()?, CBOR)),
            (Self::Json, Value::Object(_)) => Some((canonical::bytes(payload).ok()?, JSON)),
            (Self::Cbor | Self::Json, _) => None,
        }
    }
}
