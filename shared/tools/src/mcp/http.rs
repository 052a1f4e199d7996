mod annotated;
mod calls;
mod exchange;
mod standing;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::tool::ToolError;
use dormouse_ports::{
    Fetch, FetchError, FetchLimits, FetchRequest, FetchResponse, Method, Secret, SecretError, Template,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse as Posted,
};
use sse_stream::Sse;
use tokio::time::timeout;

pub(super) use self::annotated::AnnotatedTools;
pub(super) use self::calls::HeardCall;
use self::exchange::{SentRequest, judged, media_type, shown, whole};
pub(super) use self::standing::StandingStream;
use super::messages::messages;
use super::oauth::Tokens;
use super::sse::events;
use crate::Values;
use crate::text::cut;

/// Code of the error that stands in the place of an answer that is too large.
pub(super) const TOO_LARGE: ErrorCode = ErrorCode(-32099);
/// Bytes of what a server says with an error.
const MOST_SHOWN: usize = 2 * 1024;
/// Bytes of an answer beside its one large message.
const OVERHEAD: usize = 1 << 20;
/// Time for an answer to the newer beginning of a conversation, where there is more than twice as much for all of it: less than
/// that for which the SDK waits, which sends nothing else before.
pub(super) const TO_DISCOVER: Duration = Duration::from_secs(9);
/// Time in which a server of the transport before streamable HTTP has to say so.
const TO_GREET: Duration = Duration::from_secs(5);
/// Longest time for which the connection may be open on which a server tells of changes.
const LISTENING: Duration = Duration::from_secs(24 * 3600);

/// Reason why a request to a server has no answer of the protocol.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpFailure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Value(#[from] SecretError),
    /// No access token is to be had.
    #[error("{0}")]
    Token(ToolError),
    /// Another status than a server of the protocol answers with.
    #[error("HTTP {status}: {said}")]
    Status { status: u16, said: String },
    /// It leads elsewhere, and nothing was done.
    #[error("HTTP {status} to {location}")]
    Redirect { status: u16, location: String },
}

type HttpFault = StreamableHttpError<HttpFailure>;

impl From<HttpFailure> for HttpFault {
    fn from(failure: HttpFailure) -> Self {
        Self::Client(failure)
    }
}

/// Streamable HTTP (MCP "Transports") over the port for HTTP out. Address and headers are looked up for each request.
#[derive(Clone)]
pub(super) struct FetchClient(Arc<HttpParts>);

struct HttpParts {
    fetch: Arc<dyn Fetch>,
    values: Values,
    url: Template,
    headers: Vec<(String, Template)>,
    tokens: Option<Arc<Tokens>>,
    timeout: Duration,
    to_discover: Duration,
    most_bytes: usize,
    listen: bool,
    standing: StandingStream,
    annotated: AnnotatedTools,
}

/// Address of a server, and what it is allowed.
pub(super) struct Reach<'r> {
    pub(super) url: &'r Template,
    pub(super) headers: &'r [(String, Template)],
    pub(super) tokens: Option<&'r Arc<Tokens>>,
    pub(super) timeout: Duration,
    /// Time for an answer to the newer beginning of a conversation.
    pub(super) to_discover: Duration,
    pub(super) most_bytes: usize,
    pub(super) listen: bool,
    pub(super) standing: &'r StandingStream,
    pub(super) annotated: &'r AnnotatedTools,
}

impl fmt::Debug for FetchClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchClient").field("url", &self.0.url.written()).finish_non_exhaustive()
    }
}

impl FetchClient {
    pub(super) fn new(reach: &Reach<'_>, fetch: Arc<dyn Fetch>, values: Values) -> Self {
        Self(Arc::new(HttpParts {
            tokens: reach.tokens.cloned(),
            fetch,
            values,
            url: reach.url.clone(),
            headers: reach.headers.to_vec(),
            timeout: reach.timeout,
            to_discover: reach.to_discover,
            most_bytes: reach.most_bytes,
            listen: reach.listen,
            standing: reach.standing.clone(),
            annotated: reach.annotated.clone(),
        }))
    }

    /// Sends a request with the session's and the protocol's headers. A server that refuses an access token is shown a
    /// new one, once: what it refused did not happen.
    async fn send(&self, sent: SentRequest) -> Result<FetchResponse, HttpFault> {
        let token = self.token(None).await?;
        let response = self.once(&sent, token.as_ref()).await?;
        match token {
            Some(token) if response.status == 401 => {
                drop(response);
                let token = self.token(Some(&token)).await?;
                Ok(self.once(&sent, token.as_ref()).await?)
            }
            Some(_) | None => Ok(response),
        }
    }

    async fn token(&self, refused: Option<&Secret>) -> Result<Option<Secret>, HttpFailure> {
        match &self.0.tokens {
            Some(tokens) => tokens.token(&self.0.values, refused).await.map(Some).map_err(HttpFailure::Token),
            None => Ok(None),
        }
    }

    async fn once(&self, sent: &SentRequest, token: Option<&Secret>) -> Result<FetchResponse, HttpFailure> {
        let url = self.0.values.address(&self.0.url).await?;
        let mut request = FetchRequest::new(sent.method, url.expose());
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in &sent.headers {
            request = request.header(name, value.as_str());
        }
        for (name, value) in &self.0.headers {
            request = request.header(name, self.0.values.resolve(value).await?);
        }
        if let Some(token) = token {
            request = request.header("authorization", Secret::new(format!("Bearer {}", token.expose())));
        }
        request.limits = sent.limits;
        let request = if sent.body.is_empty() { request } else { request.json(sent.body.clone()) };
        Ok(self.0.fetch.fetch(request).await?)
    }

    fn limits(&self) -> FetchLimits {
        let HttpParts { timeout, most_bytes, .. } = *self.0;
        FetchLimits { total: timeout, idle: timeout, most_bytes: most_bytes.saturating_add(OVERHEAD) }
    }

    fn too_large(&self, id: &RequestId) -> ServerJsonRpcMessage {
        too_large(id.clone(), self.0.most_bytes)
    }

    async fn posted(
        &self,
        message: &ClientJsonRpcMessage,
        response: FetchResponse,
        in_session: bool,
    ) -> Result<Posted, HttpFault> {
        let id = id_of(message);
        match response.status {
            202 | 204 => return self.accepted(message, response.status),
            404 if in_session => return Err(StreamableHttpError::SessionExpired),
            200..=299 => (),
            _ => return self.refused(message, response, in_session).await,
        }
        let session = response.header("mcp-session-id").map(str::to_owned);
        match media_type(&response).as_str() {
            "text/event-stream" => {
                let instead = id.and_then(|id| serde_json::to_string(&self.too_large(id)).ok());
                let instead = instead.map(|data| Sse::default().data(data));
                let (events, id) = (self.events(response, instead), id.cloned());
                let named = events.map(move |event| match &id {
                    Some(id) => event.map(|event| naming(event, id)),
                    None => event,
                });
                Ok(Posted::Sse(named.boxed(), session))
            }
            "application/json" => self.json(id, response, session).await,
            _ if id.is_none() => Ok(Posted::Accepted),
            other => Err(StreamableHttpError::UnexpectedContentType(Some(cut(other, 100)))),
        }
    }

    /// A status without an answer. What wants one is waited for where the server may still give it, on a stream of its own.
    fn accepted(&self, message: &ClientJsonRpcMessage, status: u16) -> Result<Posted, HttpFault> {
        let Some(id) = id_of(message).filter(|_| !self.0.standing.may_hear(self.0.listen)) else {
            return Ok(Posted::Accepted);
        };
        let text = format!(
            "it takes request {id} (HTTP {status}) and answers nothing, and no stream is open on which it could"
        );
        if is_probe(message) {
            let error = ErrorData::invalid_request(text, None);
            return Ok(Posted::Json(ServerJsonRpcMessage::error(error, Some(id.clone())), None));
        }
        Err(StreamableHttpError::UnexpectedServerResponse(text.into()))
    }

    async fn json(
        &self,
        id: Option<&RequestId>,
        response: FetchResponse,
        session: Option<String>,
    ) -> Result<Posted, HttpFault> {
        let (body, id) = match (whole(response, self.0.most_bytes).await, id) {
            (Ok(body), Some(id)) => (body, id),
            (Ok(_), None) => return Ok(Posted::Accepted),
            (Err(FetchError::TooLarge(_)), Some(id)) => return Ok(Posted::Json(self.too_large(id), session)),
            (Err(error), _) => return Err(HttpFailure::Fetch(error).into()),
        };
        let Ok(mut messages) = messages(body) else { return Ok(Posted::Json(self.too_large(id), session)) };
        messages.iter().for_each(|message| self.0.annotated.note(message));
        if messages.len() > 1 {
            let texts = messages.into_iter().filter_map(|message| String::from_utf8(message).ok());
            let events: Vec<_> = texts.map(|message| Ok(Sse::default().data(message))).collect();
            return Ok(Posted::Sse(stream::iter(events).boxed(), session));
        }
        let body = messages.pop().unwrap_or_default();
        let wrong = match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            // A server that fails does not always know any more what was asked.
            Ok(JsonRpcMessage::Error(error)) => {
                return Ok(Posted::Json(ServerJsonRpcMessage::error(error.error, Some(id.clone())), session));
            }
            // Some servers write a number as a text.
            Ok(JsonRpcMessage::Response(response)) if response.id.to_string() == id.to_string() => {
                return Ok(Posted::Json(JsonRpcMessage::Response(response), session));
            }
            Ok(JsonRpcMessage::Response(response)) => format!("has the id {}", response.id),
            Ok(JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) => "answers nothing".to_owned(),
            Err(error) => format!("is no message of the protocol ({error})"),
        };
        let text = format!("the answer to request {id} {wrong}: {}", shown(&body));
        Err(StreamableHttpError::UnexpectedServerResponse(text.into()))
    }

    /// Asks for a stream: what the server says of itself, or what stands behind an event.
    async fn listened(
        &self,
        session_id: Option<&str>,
        last_event_id: Option<&str>,
        headers: &HashMap<HeaderName, HeaderValue>,
    ) -> Result<FetchResponse, HttpFault> {
        let limits = FetchLimits { total: LISTENING, idle: LISTENING, most_bytes: usize::MAX };
        let sent = SentRequest::new(Method::Get, headers, limits).with("mcp-session-id", session_id);
        judged(self.send(sent.with("last-event-id", last_event_id)).await?)
    }

    /// True if the address is that of a server of the transport HTTP+SSE (version 2024-11-05): it is read from there, and what
    /// is read first is an event `endpoint`.
    pub(super) async fn is_of_older_transport(&self) -> bool {
        let limits = FetchLimits { total: TO_GREET, idle: TO_GREET, most_bytes: OVERHEAD };
        let greeted = async {
            let response = self.send(SentRequest::new(Method::Get, &HashMap::new(), limits)).await.ok()?;
            let mut events = Self::is_stream(&response).then(|| self.events(response, None))?;
            events.next().await?.ok()?.event
        };
        timeout(TO_GREET, greeted).await.is_ok_and(|event| event.as_deref() == Some("endpoint"))
    }

    fn is_stream(response: &FetchResponse) -> bool {
        (200..300).contains(&response.status) && media_type(response) == "text/event-stream"
    }

    /// The events of `response`, of which `instead` stands in the place of one that is too large.
    fn events(&self, response: FetchResponse, instead: Option<Sse>) -> BoxStream<'static, Result<Sse, SseError>> {
        let annotated = self.0.annotated.clone();
        let noted = move |event: &Result<Sse, SseError>| {
            if let Ok(Sse { data: Some(data), .. }) = event {
                annotated.note(data.as_bytes());
            }
        };
        events(response.body, self.0.most_bytes, instead).inspect(noted).boxed()
    }

    /// A status that is no success. A server that does not know the newer beginning of a conversation says so with any
    /// of the 4xx, or breaks at it with 500 or 501, and is then spoken to in the older way.
    async fn refused(
        &self,
        message: &ClientJsonRpcMessage,
        response: FetchResponse,
        in_session: bool,
    ) -> Result<Posted, HttpFault> {
        let is_probe = is_probe(message);
        let response = match response.status {
            500 | 501 if is_probe => response,
            _ => judged(response)?,
        };
        let status = response.status;
        if (300..400).contains(&status) {
            let location = response.header("location").unwrap_or("another address");
            let location = cut(location.split(['?', '#']).next().unwrap_or_default(), MOST_SHOWN);
            return Err(HttpFailure::Redirect { status, location }.into());
        }
        let body = whole(response, MOST_SHOWN * 32).await.unwrap_or_default();
        let id = id_of(message);
        let read = messages(body.clone()).ok().and_then(|mut read| read.pop()).unwrap_or_default();
        let told = match serde_json::from_slice::<ServerJsonRpcMessage>(&read) {
            Ok(JsonRpcMessage::Error(error)) if in_session && status == 400 && knows_no_session(&error, id) => {
                return Err(StreamableHttpError::SessionExpired);
            }
            Ok(JsonRpcMessage::Error(error)) => Some(error.error),
            Ok(_) | Err(_) => None,
        };
        let JsonRpcMessage::Request(request) = message else {
            return Err(HttpFailure::Status { status, said: shown(&body) }.into());
        };
        let error = match told {
            Some(error) => error,
            None if is_probe => ErrorData::invalid_request(format!("HTTP {status}: {}", shown(&body)), None),
            None => return Err(HttpFailure::Status { status, said: shown(&body) }.into()),
        };
        Ok(Posted::Json(ServerJsonRpcMessage::error(error, Some(request.id.clone())), None))
    }
}

/// Message in the place of an answer to the request `id` that is larger than `most` bytes.
pub(super) fn too_large(id: RequestId, most: usize) -> ServerJsonRpcMessage {
    let message = format!("the answer is larger than {most} bytes, or nested too deeply");
    ServerJsonRpcMessage::error(ErrorData::new(TOO_LARGE, message, None), Some(id))
}

/// `event` of an answer to the request `id`: an error that names no request is about that.
fn naming(event: Sse, id: &RequestId) -> Sse {
    let Some(data) = event.data.as_deref().filter(|data| data.contains(r#""error""#)) else { return event };
    let Ok(JsonRpcMessage::Error(error)) = serde_json::from_str::<ServerJsonRpcMessage>(data) else { return event };
    if error.id.is_some() {
        return event;
    }
    match serde_json::to_string(&ServerJsonRpcMessage::error(error.error, Some(id.clone()))) {
        Ok(data) => Sse { data: Some(data), ..event },
        Err(_) => event,
    }
}

/// The id by which `message` is answered, if it is.
fn id_of(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => None,
    }
}

/// True for the newer beginning of a conversation.
fn is_probe(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}

/// Codes with which servers refuse a request as a whole.
const OF_NO_REQUEST: [ErrorCode; 2] = [ErrorCode(-32000), ErrorCode(-32001)];

/// True if a server refuses a request of a session since it does not know that: not each of them answers with 404. What is
/// an answer to the request `id` by another code may be about a parameter of it.
fn knows_no_session(error: &JsonRpcError, id: Option<&RequestId>) -> bool {
    let code = error.error.code;
    if error.id.is_none() && OF_NO_REQUEST.contains(&code) {
        return true;
    }
    let is_answer = error.id.is_some() && error.id.as_ref() == id;
    let is_of_whole = OF_NO_REQUEST.contains(&code) || code == ErrorCode::INVALID_REQUEST;
    (!is_answer || is_of_whole) && error.error.message.to_ascii_lowercase().contains("session")
}

impl StreamableHttpClient for FetchClient {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Posted, HttpFault> {
        if session_id.is_some() {
            // The SDK begins to listen behind the first words in a session, and lets calls go before it does.
            self.0.standing.calls.expected();
        }
        let (limits, to_discover) = (self.limits(), self.0.to_discover);
        let is_probe = is_probe(&message);
        let limits = if is_probe { FetchLimits { total: limits.total.min(to_discover), ..limits } } else { limits };
        let sent = SentRequest::new(Method::Post, &headers, limits).with("mcp-session-id", session_id.as_deref());
        let posted = async {
            let response = self.send(SentRequest { body: serde_json::to_vec(&message)?, ..sent }).await?;
            self.posted(&message, response, session_id.is_some()).await
        };
        if !is_probe {
            return posted.await;
        }
        match timeout(to_discover, posted).await {
            Err(_) | Ok(Err(StreamableHttpError::Client(HttpFailure::Fetch(FetchError::Timeout(_))))) => {
                let error = ErrorData::invalid_request("it does not answer", None);
                Ok(Posted::Json(ServerJsonRpcMessage::error(error, id_of(&message).cloned()), None))
            }
            Ok(posted) => posted,
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpFault> {
        let sent = SentRequest::new(Method::Delete, &headers, self.limits()).with("mcp-session-id", Some(&session_id));
        self.send(sent).await.map(drop)
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpFault> {
        if last_event_id.is_none() && !self.0.listen {
            return Ok(self.0.standing.calls.events(self.clone(), session_id, headers));
        }
        if last_event_id.is_none() {
            self.0.standing.pause().await;
        }
        let response = self.listened(session_id.as_deref(), last_event_id.as_deref(), &headers).await;
        if last_event_id.is_none() {
            self.0.standing.calls.answered();
        }
        let response = response?;
        match response.status {
            _ if Self::is_stream(&response) => {
                let events = self.events(response, None);
                // What goes on behind an event may be the answer to one request.
                Ok(if last_event_id.is_none() { self.0.standing.over(events) } else { events })
            }
            404 if session_id.is_some() && last_event_id.is_none() => Err(StreamableHttpError::SessionExpired),
            // The SDK asks no more: a session that is forgotten has no answer that goes on behind an event.
            _ => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}
