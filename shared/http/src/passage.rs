use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_api::Keys;
use dormouse_engine::in_trace;
use dormouse_ports::{Clock, IdSource};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use futures::FutureExt;
use tracing::{Instrument, field};

use crate::conditional::ConditionalRead;
use crate::deadline::in_time;
use crate::surface::{Surface, SurfaceRefusal};
use crate::{Origins, Request, Response, log};

/// The longest id of a request that is taken over from the gateway.
const LONGEST_REQUEST_ID: usize = 200;

/// Headers that come once.
const SINGLE: [&str; 2] = ["authorization", "idempotency-key"];

/// The header that says who asks, or whether it was asked before, of which `request` has more than one, and what is said of
/// that: of two, others on the way may have believed the other one.
pub(crate) fn doubled(request: &Request) -> Option<(&'static str, &'static str)> {
    request.doubled(&SINGLE).map(|name| (name, "the header may come once only"))
}

/// The one way of a request through a server: it gets its id, its span and its time, and its response the headers that
/// every response has; it leaves one line in the log.
pub(crate) struct Passage {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// Keep the audit log.
    pub(crate) keys: Keys,
    /// Origins of the pages of browsers that may ask.
    pub(crate) origins: Origins,
}

/// What stands behind a passage.
#[async_trait]
pub(crate) trait Answers: Send + Sync {
    /// Answers `request`, which asks `surface` and is known as `request_id`.
    ///
    /// # Errors
    /// The refusal.
    async fn answer(&self, surface: Surface, request: &Request, request_id: &str) -> Result<Response, SurfaceRefusal>;
}

impl Passage {
    /// The response to `request`, which asks `surface`: what `server` answers. A panic is an answer too.
    pub(crate) async fn pass(&self, surface: Surface, mut request: Request, server: &dyn Answers) -> Response {
        let conditional = ConditionalRead::of(&mut request);
        let given = request.header("x-request-id").filter(|id| is_request_id(id)).map(str::to_owned);
        let request_id = given.unwrap_or_else(|| surface.request_id(self.ids.fresh()));
        request.findings.note_request_id(&request_id);
        let method = request.method.clone();
        let began = self.clock.monotonic();
        // A span is switched off by the level that is given to it: where warnings alone are logged, they name the request too.
        let span = tracing::error_span!("request", request_id, method, route = field::Empty, operation = field::Empty);
        let traceparent = match surface {
            Surface::Turns => request.header("traceparent").map(Arc::from),
            Surface::Protocol | Surface::Console => None,
        };
        let answering = async {
            let answered = self.guarded(surface, &request, &request_id, server).await;
            request.findings.note_answer();
            let response = answered.unwrap_or_else(|refused| refused.into_response(&request_id));
            request.findings.end(&self.keys, &request, response.status, self.clock.now()).await;
            let response = request.findings.tell(self.dressed(surface, &request, response));
            let response = conditional.answer(response.header("x-request-id", &request_id));
            log::answered(response.status, self.clock.monotonic().saturating_sub(began));
            response
        };
        let answering = Box::pin(answering.instrument(span));
        match traceparent {
            Some(traceparent) => in_trace(traceparent, answering).await,
            None => answering.await,
        }
    }

    /// An id for a request of the protocol that no gateway has named.
    pub(crate) fn request_id(&self) -> String {
        Surface::Protocol.request_id(self.ids.fresh())
    }

    /// Has `request` answered within its time. A waiting caller shall get an answer before the worker is stopped; to a
    /// write, its outcome.
    async fn guarded(
        &self,
        surface: Surface,
        request: &Request,
        request_id: &str,
        server: &dyn Answers,
    ) -> Result<Response, SurfaceRefusal> {
        let answering = async {
            match self.origins.preflight(request).filter(|_| surface == Surface::Protocol) {
                Some(response) => Ok(response),
                None => {
                    if let Some((name, message)) = doubled(request) {
                        return Err(surface.invalid(name, message));
                    }
                    server.answer(surface, request, request_id).await
                }
            }
        };
        let work = AssertUnwindSafe(answering).catch_unwind();
        match in_time(&self.clock, request.time_left, work).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_panic)) => {
                tracing::error!("serving a request ended in a panic");
                Err(surface.panicked())
            }
            Err(cut) => Err(surface.late(cut)),
        }
    }

    /// `response` with the headers that every response of the API has. Addresses hold tokens: no other site learns
    /// where a visitor came from. Pages of browsers may ask the protocol, and not for turns.
    fn dressed(&self, surface: Surface, request: &Request, response: Response) -> Response {
        let response = match surface {
            Surface::Turns | Surface::Console => response,
            Surface::Protocol => {
                self.origins.admit(request, response).header(&VERSION_HEADER.to_ascii_lowercase(), PROTOCOL_VERSION)
            }
        };
        // Files hold no data of users: a browser keeps them, and asks whether they are still good.
        let caching = if surface == Surface::Console { "no-cache" } else { "no-store" };
        response
            .header("cache-control", caching)
            .header("x-content-type-options", "nosniff")
            .header("referrer-policy", "no-referrer")
    }
}

fn is_request_id(id: &str) -> bool {
    (1..=LONGEST_REQUEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}
