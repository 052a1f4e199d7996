//! A server of streams and of nothing else: it has no agents, and nothing that writes but its seats.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_api::{AppendNotifier, Keys, LiveText, Reads, StreamLimits, StreamSeats, Streams};
use dormouse_ports::{Clock, IdSource, Records};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::operation::{Operation, Paging};

use crate::passage::{Answers, Passage};
use crate::protocol::{ProtocolAdmission, Streaming, health, options};
use crate::surface::{Surface, SurfaceRefusal};
use crate::{Origins, Request, Response};

/// Constituents of a [`StreamServer`].
#[derive(Clone)]
pub struct StreamParts {
    /// Reads what others write.
    pub records: Arc<dyn Records>,
    /// Clock of the server.
    pub clock: Arc<dyn Clock>,
    /// Names requests.
    pub ids: Arc<dyn IdSource>,
    /// Knows who may ask.
    pub keys: Keys,
    /// Prefix of the addresses of the API, which serves everything else.
    pub base_url: Option<String>,
    /// Origins of the pages of browsers that may ask, beside those of the API itself.
    pub origins: Origins,
    /// Limits of streams.
    pub limits: StreamLimits,
    /// Counts the streams of a tenant over all processes, where somebody does.
    pub seats: Option<StreamSeats>,
}

impl fmt::Debug for StreamParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamParts")
            .field("base_url", &self.base_url)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Serves streams of events over HTTP, and says how it is; who asks for anything else is told where that is. Cheap to
/// clone.
#[derive(Clone)]
pub struct StreamServer(Arc<StreamServerShared>);

struct StreamServerShared {
    passage: Passage,
    streaming: Streaming,
}

impl fmt::Debug for StreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamServer")
    }
}

impl StreamServer {
    /// Serves the streams of what `parts` read.
    pub fn new(parts: StreamParts) -> Self {
        let StreamParts { records, clock, ids, keys, base_url, origins, limits, seats } = parts;
        let origins = origins.and_those_at(base_url.as_deref());
        let base_url = base_url.unwrap_or_default().trim_end_matches('/').to_owned();
        // A stream goes on behind the cursors of its own process, and gives out none.
        let cursors = Cursors::new(ids.fresh().as_bytes());
        let operations = Arc::new(Reads::new(records.clone(), clock.clone(), cursors));
        let told = (AppendNotifier::default(), LiveText::default());
        let streams = Streams::new(records, clock.clone(), told, limits, seats);
        let passage = Passage { clock: clock.clone(), ids, keys: keys.clone(), origins };
        let admission = ProtocolAdmission { keys, clock, base_url };
        Self(Arc::new(StreamServerShared { passage, streaming: Streaming { admission, operations, streams } }))
    }

    /// Serves one HTTP request of any path. A panic is an answer too.
    pub async fn http(&self, request: Request) -> Response {
        self.0.passage.pass(Surface::Protocol, request, &*self.0).await
    }
}

#[async_trait]
impl Answers for StreamServerShared {
    async fn answer(&self, _: Surface, request: &Request, request_id: &str) -> Result<Response, SurfaceRefusal> {
        if request.method == "OPTIONS" {
            return Ok(options(&Operation::methods(&request.path)?));
        }
        let operation = Operation::find(&request.method, &request.path)?.operation;
        if operation == Operation::GetHealth {
            return Ok(Response::json(200, &health(env!("CARGO_PKG_VERSION"))));
        }
        if operation.spec().paging != Paging::Stream {
            return Err(self.elsewhere(operation).into());
        }
        let call = self.streaming.admission.admit(request).await?;
        Ok(self.streaming.answer(call, request, request_id).await?)
    }
}

impl StreamServerShared {
    /// Tells where `operation` is offered.
    fn elsewhere(&self, operation: Operation) -> ProtocolError {
        let refusal = ProtocolError::not_implemented(operation);
        match self.streaming.admission.base_url.as_str() {
            "" => refusal,
            base_url => refusal.with_detail("base_url", base_url),
        }
    }
}
