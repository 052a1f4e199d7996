//! Between HTTP and the operations: everything that is the same for all of them.
//!
//! A browser that asks whether a page may ask is answered first. A request is looked at in this order, and the first
//! objection is the answer: path and method (404, 405), version (426), key (401), scope (403), query (400), body (413,
//! 415, 400), idempotency key (400). Nothing is written before all of it is in order. Every response carries the id of
//! the request, in `x-request-id` and in the body of a refusal.

mod admit;
mod card;
mod origins;
mod page;
mod public;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{Cut, cut_off};
use dormouse_ports::{Clock, IdSource};
use dormouse_protocol::operation::Paging;
use dormouse_protocol::{ErrorCode, PROTOCOL_VERSION, ProtocolError, request, sse};
use futures::FutureExt;
use serde_json::Value;
use tracing::Instrument;

use crate::api::Api;
use crate::http::Content;
use crate::keys::Keys;
use crate::stream::{Resume, Streams};
use crate::{Answer, Call, Request, Response};

pub use origins::Origins;
pub use public::{About, Beside};

/// By how much a request that has written something may overrun its time.
const GRACE: Duration = Duration::from_secs(1);

/// The longest id of a request that is taken over from the transport.
const LONGEST_REQUEST_ID: usize = 200;

/// Serves calls that have passed the front.
#[async_trait]
pub trait Operations: Send + Sync {
    /// Serves `call`. Of streams only that of all events comes here: a look at what there is behind its cursor.
    ///
    /// # Errors
    /// What the caller is told instead of an answer.
    async fn serve(&self, call: Call) -> Result<Answer, ProtocolError>;
}

#[async_trait]
impl Operations for Api {
    async fn serve(&self, call: Call) -> Result<Answer, ProtocolError> {
        Self::serve(self, call).await
    }
}

/// What a [`Front`] is made of.
#[derive(Clone)]
pub struct FrontParts {
    /// Serves what has passed.
    pub operations: Arc<dyn Operations>,
    /// Knows who may ask.
    pub keys: Keys,
    /// Serves streams.
    pub streams: Streams,
    /// What the server says of itself.
    pub about: About,
    /// Which pages of browsers may ask.
    pub origins: Origins,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Names requests.
    pub ids: Arc<dyn IdSource>,
}

impl fmt::Debug for FrontParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontParts").field("about", &self.about).finish_non_exhaustive()
    }
}

/// Serves the protocol over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Front(Arc<FrontParts>, Arc<OnceLock<Value>>);

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("about", &self.0.about).finish_non_exhaustive()
    }
}

impl Front {
    /// Serves `parts`.
    pub fn new(parts: FrontParts) -> Self {
        Self(Arc::new(parts), Arc::default())
    }

    /// Serves one request, whatever is in it. A panic is an answer too.
    pub async fn serve(&self, request: Request) -> Response {
        let FrontParts { clock, ids, .. } = &*self.0;
        let given = request.header("x-request-id").filter(|id| is_request_id(id)).map(str::to_owned);
        let request_id = given.unwrap_or_else(|| format!("req_{}", ids.fresh()));
        let (began, method) = (clock.monotonic(), request.method.clone());
        let span = tracing::info_span!("request", request_id, method, operation = tracing::field::Empty);
        let answered = async {
            let answer = AssertUnwindSafe(self.in_time(&request, &request_id)).catch_unwind().await;
            let answer = answer.unwrap_or_else(|_| {
                tracing::error!("serving a request ended in a panic");
                Err(ProtocolError::new(ErrorCode::InternalError, "the request could not be served"))
            });
            let response = answer.unwrap_or_else(|error| refuse(error, &request_id));
            let took_ms = clock.monotonic().saturating_sub(began).as_millis();
            tracing::info!(status = response.status, took_ms = u64::try_from(took_ms).unwrap_or(u64::MAX), "answered");
            response
        };
        let response = self.0.origins.admit(&request, answered.instrument(span).await);
        response
            .header("x-request-id", request_id)
            .header("cache-control", "no-store")
            .header("x-content-type-options", "nosniff")
            .header("referrer-policy", "no-referrer")
            .header(&request::VERSION_HEADER.to_ascii_lowercase(), PROTOCOL_VERSION)
    }

    /// Whoever waits shall hear something before the worker is stopped; of what was written, what came of it.
    async fn in_time(&self, request: &Request, request_id: &str) -> Result<Response, ProtocolError> {
        let Some(time_left) = request.time_left else { return self.answer(request, request_id).await };
        let (late, grace) = (self.0.clock.sleep(time_left), || self.0.clock.sleep(GRACE));
        let answer = Box::pin(self.answer(request, request_id));
        cut_off(answer, late, grace).await.unwrap_or_else(|cut| {
            let message = match cut {
                Cut::Clean => "there was no time left",
                Cut::InDoubt => "there was no time left, and what was written may stand; repeat it only by its key",
            };
            Err(ProtocolError::new(ErrorCode::DeadlineExceeded, message))
        })
    }

    async fn answer(&self, request: &Request, request_id: &str) -> Result<Response, ProtocolError> {
        if let Some(response) = self.0.origins.preflight(request) {
            return Ok(response);
        }
        if let Some(response) = self.public(request)? {
            return Ok(response);
        }
        let call = self.admit(request).await?;
        match call.operation.spec().paging {
            Paging::Stream => {
                let last_event_id = request.header(&request::LAST_EVENT_ID_HEADER.to_ascii_lowercase());
                let resume = Resume { last_event_id, request_id, time_left: request.time_left };
                let events = self.0.streams.open(&self.0.operations, call, resume).await?;
                Ok(Response::new(200, sse::CONTENT_TYPE, Content::Live(events)))
            }
            Paging::Whole | Paging::Page | Paging::Range => self.0.operations.serve(call).await.map(respond),
        }
    }
}

fn respond(answer: Answer) -> Response {
    match answer {
        Answer::Json(status, value) => Response::json(status, &value),
        Answer::Repeated(status, value) => Response::json(status, &value).header("idempotent-replayed", "true"),
        Answer::Bytes { content_type, bytes } => Response::new(200, &content_type, Content::Whole(bytes)),
        Answer::Empty => Response::empty(),
    }
}

fn refuse(error: ProtocolError, request_id: &str) -> Response {
    tracing::info!(code = error.code().as_str(), param = error.param(), "refused");
    let (status, header) = (error.status(), error.header().map(|(name, value)| (name, value.to_owned())));
    let body = serde_json::json!(error.into_response(request_id));
    let response = Response::json(status, &body);
    match header {
        Some((name, value)) => response.header(name, value),
        None => response,
    }
}

fn is_request_id(id: &str) -> bool {
    (1..=LONGEST_REQUEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}
