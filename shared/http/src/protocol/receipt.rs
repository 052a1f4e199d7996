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
    /// The form that the caller of `operation` likes best; `None` for the resource. Of those that it likes as much the first
    /// counts, and one with `q=0` it does not take (RFC 9110 §12.4.2).
    pub(super) fn wanted(operation: Operation, accept: Option<&str>) -> Option<Self> {
        let accept = accept.filter(|_| operation == Operation::GetReceipt)?;
        let mut best = (0.0, None);
        for one in accept.split(',') {
            let mut parts = one.split(';').map(|part| part.trim().to_ascii_lowercase());
            let form = match parts.next().unwrap_or_default().as_str() {
                CBOR => Some(Self::Cbor),
                JSON => Some(Self::Json),
                "application/json" => None,
                _ => continue,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q=").map(|weight| weight.parse().unwrap_or(0.0)));
            let weight: f32 = weight.unwrap_or(1.0);
            if weight > best.0 {
                best = (weight, form);
            }
        }
        best.1
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_the_caller_likes_best() {
        for (accept, form) in [
            ("", None),
            ("*/*", None),
            ("application/json", None),
            ("application/vnd.harn.receipt+cbor", Some(Form::Cbor)),
            ("Application/VND.harn.receipt+JSON; schema=receipt-2026-04-25", Some(Form::Json)),
            ("application/vnd.harn.receipt+json, application/vnd.harn.receipt+cbor", Some(Form::Json)),
            ("application/vnd.harn.receipt+json;q=0.1, application/vnd.harn.receipt+cbor;q=0.2", Some(Form::Cbor)),
            ("application/vnd.harn.receipt+json;q=0.1, application/json", None),
            ("application/vnd.harn.receipt+cbor; q=0, application/json;q=0.5", None),
            ("application/vnd.harn.receipt+cbor;Q=0", None),
            ("application/json;q=0.5, application/vnd.harn.receipt+cbor; schema=x; q=0.9", Some(Form::Cbor)),
        ] {
            assert_eq!(Form::wanted(Operation::GetReceipt, Some(accept)), form, "{accept}");
            assert_eq!(Form::wanted(Operation::GetTask, Some(accept)), None, "{accept}");
        }
        assert_eq!(Form::wanted(Operation::GetReceipt, None), None);
    }
}
