//! The Harn Agents Protocol over HTTP, and the pages about the API: from a request to a call, and from its answer to a
//! response.
//!
//! A browser that asks whether a page may ask is answered first. A request is looked at in this order, and the first
//! objection is the answer: path and method (404, 405), version (426), key (401), scope (403), query (400), body (413,
//! 415, 400), idempotency key (400). Nothing is written before all of it is in order.

mod a2a;
mod admit;
mod card;
mod page;
mod public;
mod receipt;

use std::fmt;
use std::sync::{Arc, LazyLock};

use dormouse_api::{Actor, Call, CallAnswer, Keys, Operations, Personas, Receipts, StreamItem, StreamOptions, Streams};
use dormouse_ports::Clock;
use dormouse_protocol::operation::Paging;
use dormouse_protocol::{ProtocolError, request, sse};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::{Content, Request, Response};

pub(crate) use card::CardSignatures;
pub(crate) use public::{Beside, Describe, DescribedServer, ServerInfo};

/// Server of the protocol.
pub(crate) struct Protocol {
    /// Serves what is in order.
    pub(crate) operations: Arc<dyn Operations>,
    /// Knows who may ask.
    pub(crate) keys: Keys,
    /// Serves streams.
    pub(crate) streams: Streams,
    /// Personas that can be given tasks.
    pub(crate) personas: Personas,
    /// Issuer of receipts, which also signs the card.
    pub(crate) receipts: Option<Receipts>,
    /// The signature over the card.
    pub(crate) card_signatures: CardSignatures,
    /// Information that the server gives about itself.
    pub(crate) about: ServerInfo,
    /// Clock of the server.
    pub(crate) clock: Arc<dyn Clock>,
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
        if request.path == a2a::PATH && self.about.a2a {
            return self.a2a(request, request_id).await;
        }
        if let Some(delivery) = self.delivery(request)? {
            return self.operations.deliver(delivery).await.map(respond);
        }
        let call = self.admit(request).await?;
        match call.operation.spec().paging {
            Paging::Stream => {
                let events = self.open(call, request, request_id).await?;
                Ok(Response::new(200, sse::CONTENT_TYPE, Content::Live(events.map(|item| blocks(&item)).boxed())))
            }
            Paging::Whole | Paging::Page | Paging::Range => {
                let operation = call.operation;
                let answer = self.operations.serve(call).await?;
                let form = receipt::Form::wanted(operation, request.header("accept"));
                form.map_or_else(|| Ok(respond(answer.clone())), |form| form.response(&answer))
            }
        }
    }
}

impl Protocol {
    /// Who asks by `request` for a stream, over any transport, and the stream.
    ///
    /// # Errors
    /// The first objection, and what the operation objects to.
    pub(crate) async fn follow(
        &self,
        request: &Request,
        request_id: &str,
    ) -> Result<(Actor, BoxStream<'static, StreamItem>), ProtocolError> {
        let call = self.admit(request).await?;
        let actor = call.actor.clone();
        Ok((actor, self.open(call, request, request_id).await?))
    }

    async fn open(
        &self,
        call: Call,
        request: &Request,
        request_id: &str,
    ) -> Result<BoxStream<'static, StreamItem>, ProtocolError> {
        let last_event_id = request.header(&request::LAST_EVENT_ID_HEADER.to_ascii_lowercase());
        let resume = StreamOptions { last_event_id, request_id, time_left: request.time_left };
        self.streams.open(&self.operations, call, resume).await
    }
}

/// The name of the event that shows a piece of an answer under way. It is no event of the protocol.
pub(crate) const DELTA: &str = "message.delta";

/// `item` as blocks of server-sent events.
fn blocks(item: &StreamItem) -> Vec<u8> {
    match item {
        StreamItem::Events(events) => events.iter().map(sse::event).collect::<String>(),
        StreamItem::Text(pieces) => pieces.iter().map(|piece| sse::passing(DELTA, piece)).collect(),
        StreamItem::Heartbeat => sse::HEARTBEAT.to_owned(),
        StreamItem::Failed { cursor, error } => sse::error(cursor, error),
    }
    .into_bytes()
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
