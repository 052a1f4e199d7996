use std::sync::Arc;

use dormouse_api::{Actor, Call, Operations, StreamItem, StreamOptions, Streams};
use dormouse_protocol::{ProtocolError, request, sse};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::ProtocolAdmission;
use crate::{Content, Request, Response};

/// The name of the event that shows a piece of an answer under way. It is no event of the protocol.
pub(crate) const DELTA: &str = "message.delta";

/// Serves streams of events: all that a server needs for them.
pub(crate) struct Streaming {
    /// Knows who may ask.
    pub(crate) admission: ProtocolAdmission,
    /// Serves the calls that a stream is made of, among others.
    pub(crate) operations: Arc<dyn Operations>,
    /// Makes the streams.
    pub(crate) streams: Streams,
}

impl Streaming {
    /// The response to `request`, which is known as `request_id` and asks for a stream by `call`.
    ///
    /// # Errors
    /// What the operation objects to.
    pub(crate) async fn answer(
        &self,
        call: Call,
        request: &Request,
        request_id: &str,
    ) -> Result<Response, ProtocolError> {
        let events = self.open(call, request, request_id).await?;
        Ok(Response::new(200, sse::CONTENT_TYPE, Content::Live(events.map(|item| blocks(&item)).boxed())))
    }

    /// Who asks by `request` for a stream, over any transport, and the stream.
    ///
    /// # Errors
    /// The first objection, and what the operation objects to.
    pub(crate) async fn follow(
        &self,
        request: &Request,
        request_id: &str,
    ) -> Result<(Actor, BoxStream<'static, StreamItem>), ProtocolError> {
        let call = self.admission.admit(request).await?;
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
        self.begin(call, StreamOptions { last_event_id, request_id, time_left: request.time_left }).await
    }

    /// The stream that `call` asks for. It ends with the key that it was asked with.
    ///
    /// # Errors
    /// What the operation objects to.
    pub(crate) async fn begin(
        &self,
        call: Call,
        resume: StreamOptions<'_>,
    ) -> Result<BoxStream<'static, StreamItem>, ProtocolError> {
        let (keys, clock, actor) = (self.admission.keys.clone(), self.admission.clock.clone(), call.actor.clone());
        let items = self.streams.open(&self.operations, call, resume).await?;
        let ended = async move { keys.ended(&actor, &*clock).await };
        Ok(items.take_until(Box::pin(ended)).boxed())
    }
}

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
