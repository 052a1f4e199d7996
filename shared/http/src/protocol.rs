//! The Harn Agents Protocol over HTTP, and the pages about the API: from a request to a call, and from its answer to a
//! response.
//!
//! A browser that asks whether a page may ask is answered first. A request is looked at in this order, and the first
//! objection is the answer: path and method (404, 405), version (426), key (401), scope (403), query (400), condition of a
//! write (412), body (413, 415, 400), idempotency key (400). Nothing is written before all of it is in order.

mod a2a;
mod admit;
mod card;
mod page;
mod public;
mod receipt;
mod streaming;

use std::fmt;
use std::sync::LazyLock;

use dormouse_api::{CallAnswer, Personas, Receipts};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::operation::Paging;

use crate::{Content, Request, Response};

pub(crate) use admit::ProtocolAdmission;
pub(crate) use card::CardSignatures;
pub(crate) use public::{AcceptedIssuer, Beside, Describe, DescribedServer, ServerInfo, agents_away, health, options};
pub(crate) use streaming::{DELTA, Streaming};

/// Server of the protocol.
pub(crate) struct Protocol {
    /// Admits requests, serves what is in order, and streams.
    pub(crate) streaming: Streaming,
    /// Personas that can be given tasks.
    pub(crate) personas: Personas,
    /// Issuer of receipts, which also signs the card.
    pub(crate) receipts: Option<Receipts>,
    /// The signature over the card.
    pub(crate) card_signatures: CardSignatures,
    /// Information that the server gives about itself.
    pub(crate) about: ServerInfo,
    /// The server as its OpenAPI document has it, which takes longer to make than all else before the first answer.
    pub(crate) described: LazyLock<DescribedServer, Describe>,
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protocol").field("about", &self.about).finish_non_exhaustive()
    }
}

impl Protocol {
    /// Answers `request`, which is known as `request_id`.
    ///
    /// # Errors
    /// The first objection, and what the operation objects to.
    pub(crate) async fn answer(&self, request: &Request, request_id: &str) -> Result<Response, ProtocolError> {
        if let Some(response) = self.public(request).await? {
            return Ok(response);
        }
        if request.path == a2a::PATH && self.about.abilities.a2a {
            return self.a2a(request, request_id).await;
        }
        let Streaming { admission, operations, .. } = &self.streaming;
        if let Some(delivery) = admission.delivery(request)? {
            return operations.deliver(delivery).await.map(respond);
        }
        let call = admission.admit(request).await?;
        match call.operation.spec().paging {
            Paging::Stream => self.streaming.answer(call, request, request_id).await,
            Paging::Whole | Paging::Page | Paging::Range => {
                let operation = call.operation;
                let answer = operations.serve(call).await?;
                let form = receipt::Form::wanted(operation, request.header("accept"));
                form.map_or_else(|| Ok(respond(answer.clone())), |form| form.response(&answer))
            }
        }
    }
}

fn respond(answer: CallAnswer) -> Response {
    match answer {
        CallAnswer::Json(status, value) => Response::json(status, &value),
        CallAnswer::Repeated(204, _) => Response::empty().header("idempotent-replayed", "true"),
        CallAnswer::Repeated(status, value) => Response::json(status, &value).header("idempotent-replayed", "true"),
        CallAnswer::Bytes { content_type, bytes } => Response::new(200, &content_type, Content::Whole(bytes)),
        CallAnswer::Empty => Response::empty(),
    }
}
