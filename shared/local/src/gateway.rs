//! HTTP on loopback, in place of API Gateway: every route goes to the application as it would on AWS, except
//! `/_local/events`, which lets a person see and publish events, and `/_local/store/`, by which commands beside this
//! process look into its store.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use dormouse_harness::{Admitted, Overloaded, TurnError, bucket_of};
use dormouse_http::{BearerKey, Content, Findings, Server, percent};
use dormouse_ports::{Category, Event};
use dormouse_protocol::request::MAX_FILE_BODY_BYTES;
use dormouse_protocol::{ErrorCode, ProtocolError};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use serde_json::json;
use tokio::net::TcpListener;

use crate::bus::LocalBus;
use crate::gate::{Credentials, Gate};
use crate::hosts::Hosts;
use crate::lane::Lane;
use crate::listen;
use crate::shutdown::RunningGuard;
use crate::sign_in::SignIn;
use crate::socket;
use crate::store::Door;

/// A header that is the gateway's alone to give: without it the application makes one up.
const REQUEST_ID: &str = "x-request-id";

/// Largest number of bytes of a body that are taken; a client that sends more is cut off.
const THROWN_AWAY: usize = 64 * 1024 * 1024;

/// Number of bytes of a body that every request may have read; one with more waits for its place.
const SHORT: usize = 64 * 1024;

/// Time for which reads are waited for when it is time to end: some wait for events that are yet to come.
const READS_AT_END: Duration = Duration::from_secs(1);

/// The body of a sign-in.
#[derive(serde::Deserialize)]
struct SignInCode {
    code: String,
}

/// Dependencies of the routes.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    pub(crate) server: Server,
    pub(crate) bus: LocalBus,
    pub(crate) key: BearerKey,
    /// The largest body, in bytes. More is not read; the application refuses what was.
    pub(crate) body_limit: usize,
    pub(crate) running: RunningGuard,
    pub(crate) gate: Gate,
    /// For whom requests may be.
    pub(crate) hosts: Hosts,
    /// The way to the store for commands beside this process.
    pub(crate) door: Door,
    /// The code that signs a person in at the console, once.
    pub(crate) sign_in: SignIn,
}

/// Prefix of the path at which the store can be asked.
pub(crate) const STORE: &str = "/_local/store/";
/// Path at which the console changes its code for a key.
pub(crate) const SIGN_IN: &str = "/_local/sign-in";
/// Path at which events are seen and published.
pub(crate) const EVENTS: &str = "/_local/events";

impl Gateway {
    /// Serves until it is time to end, and then until all answers are given.
    pub(crate) async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let running = self.running.clone();
        let hosts = self.hosts.clone();
        let door = self.door.clone();
        let local = Router::new().route(EVENTS, get(list).post(publish)).route(SIGN_IN, post(sign_in));
        let routes = local.fallback(forward).with_state(self);
        let routes = routes.merge(door.at(STORE)).layer(middleware::from_fn_with_state(hosts, meant_for_us));
        listen::serve(listener, routes, running).await
    }
}

/// Lets requests pass that are for this machine, and not from pages of others.
pub(crate) async fn meant_for_us(State(hosts): State<Hosts>, request: Request<Body>, next: Next) -> Response {
    let mut response = match hosts.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request.map(listen::in_time)).await,
        Err(message) => failure(StatusCode::FORBIDDEN, Category::Unauthorized, &message),
    };
    // As the application says of its own answers: no browser takes one for something else, and none keeps a key.
    for (name, value) in [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-store")] {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn forward(State(gateway): State<Gateway>, request: Request<Body>) -> Response {
    let Gateway { server, body_limit, running, gate, .. } = gateway;
    Front { server, body_limit, running, gate }.answer(request).await
}

/// The way of a request to the application.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) server: Server,
    /// The largest body, in bytes.
    pub(crate) body_limit: usize,
    pub(crate) running: RunningGuard,
    pub(crate) gate: Gate,
}

impl Front {
    /// Hands a request to the application. What changes something goes on when the client leaves, as it does on AWS; a read is
    /// given up.
    pub(crate) async fn answer(self, request: Request<Body>) -> Response {
        answered(self, request).await
    }
}

async fn answered(gateway: Front, request: Request<Body>) -> Response {
    if socket::is_asked_for(&request) {
        return socket::open(&gateway, request).await;
    }
    let Front { server, body_limit, running, gate } = gateway;
    let (head, body) = request.into_parts();
    let request = match server.refuse_unread(headed(&head)).await {
        Ok(refusal) => {
            throw_away(body.into_data_stream(), 0).await;
            return encode(refusal, running);
        }
        Err(request) => request,
    };
    let in_protocol = request.path.starts_with("/v1");
    let credentials = request.header("authorization").map(Credentials::new);
    let lane = gate.lane(credentials);
    // Each API refuses what is too large for it. A long body has its place until the request is answered.
    let (request, _place) = match read_body(body, body_limit.max(MAX_FILE_BODY_BYTES), gate.hold(&lane)).await {
        Ok((body, place)) => (dormouse_http::Request { body, ..*request }, place),
        Err(NoBody::Broken(error)) => {
            return invalid(&format!("no whole request came: {error}"));
        }
        Err(NoBody::NoPlace(overloaded)) => return overload(overloaded, in_protocol),
    };
    // A caller that leaves while it waits leaves the line.
    let admitted = match gate.enter(lane.clone()).await {
        Ok(admitted) => admitted,
        Err(overloaded) => return overload(overloaded, in_protocol),
    };
    let seat = gate.seat(admitted, lane.clone());
    let read = is_read(&request.method).then(|| request.findings.clone());
    let given_up = given_up(read.is_some(), running.clone());
    let (runs, known, on) = (running.clone(), gate.clone(), seat.clone());
    let own = lane.clone();
    let turn = async move {
        let _running = runs;
        let findings = request.findings.clone();
        let response = server.http(request).await;
        on.give_back();
        let lane = credentials.zip(findings.caller()).map_or(own, |(known_by, caller)| known.learn(known_by, caller));
        (response, lane)
    };
    let work = tokio::spawn(gate.work(lane, turn));
    let client = Gate::client(seat, &work, read);
    let answered = tokio::select! {
        answered = work => answered,
        // Without its answer the client has left, and with it the read.
        () = given_up => {
            let message = "the server ends; nothing was read, ask again";
            return refused(ProtocolError::new(ErrorCode::ServiceUnavailable, message).retry_after(1), in_protocol);
        }
    };
    client.has_its_answer();
    match answered {
        Ok((response, lane)) => encode_made(response, running, |pieces| gate.pieces(lane, pieces)),
        Err(error) => {
            tracing::error!(%error, "a request ended in a panic");
            let message = "the request could not be served; the log says why";
            failure(StatusCode::INTERNAL_SERVER_ERROR, Category::NodeException, message)
        }
    }
}

/// Completes when it is time to end and a request that only reads is not waited for any more; any other one is.
async fn given_up(reads: bool, running: RunningGuard) {
    if !reads {
        std::future::pending::<()>().await;
    }
    running.stopping().await;
    tokio::time::sleep(READS_AT_END).await;
}

/// True if requests of this method change nothing.
fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// The request without its body.
pub(crate) fn headed(head: &Parts) -> dormouse_http::Request {
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    dormouse_http::Request {
        method: head.method.as_str().to_owned(),
        path: percent::decode(head.uri.path()),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers.iter().filter(|(name, _)| *name != REQUEST_ID).map(header).collect(),
        // Requests are not signed here.
        caller: None,
        body: Vec::new(),
        time_left: None,
        findings: Findings::default(),
    }
}

/// Why there is no body to work on.
#[derive(Debug)]
enum NoBody {
    /// It did not come, or not in time.
    Broken(axum::Error),
    /// It is long, and too many long ones are held.
    NoPlace(Overloaded),
}

/// The body, or a little more than `limit` of it: enough to see that it is too large. A long one waits for its `place`, which it
/// is given with. What comes behind is thrown away.
async fn read_body(
    body: Body,
    limit: usize,
    place: impl Future<Output = Result<Admitted<Lane>, Overloaded>>,
) -> Result<(Vec<u8>, Option<Admitted<Lane>>), NoBody> {
    let (mut read, mut came) = (Vec::new(), 0);
    let (mut waits, mut held) = (Some(Box::pin(place)), None);
    let mut chunks = body.into_data_stream();
    while came <= limit.max(THROWN_AWAY)
        && let Some(chunk) = chunks.next().await
    {
        let chunk = chunk.map_err(NoBody::Broken)?;
        came += chunk.len();
        if came > SHORT
            && let Some(place) = waits.take()
        {
            match place.await {
                Ok(place) => held = Some(place),
                Err(overloaded) => {
                    drop((read, chunk));
                    throw_away(chunks, came).await;
                    return Err(NoBody::NoPlace(overloaded));
                }
            }
        }
        let room = (limit + 1).saturating_sub(read.len());
        read.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
    }
    Ok((read, held))
}

/// Reads what is left of a body of which so many bytes `came`, and keeps nothing of it: many clients read no answer before they have
/// sent everything. Who does not send it to its end is told all the same.
async fn throw_away(mut chunks: BodyDataStream, mut came: usize) {
    while came <= THROWN_AWAY
        && let Some(Ok(chunk)) = chunks.next().await
    {
        came += chunk.len();
    }
}

/// The response as it is sent. A stream ends when it is time to end, so that its client comes back.
pub(crate) fn encode(response: dormouse_http::Response, running: RunningGuard) -> Response {
    encode_made(response, running, |pieces| pieces.map(Ok::<_, Infallible>))
}

/// The same, with the pieces of a stream as `make` has them made. An error among them breaks the connection off.
fn encode_made<S, E>(
    response: dormouse_http::Response,
    running: RunningGuard,
    make: impl FnOnce(BoxStream<'static, Vec<u8>>) -> S,
) -> Response
where
    S: Stream<Item = Result<Vec<u8>, E>> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match response.content {
        Content::Whole(bytes) => Body::from(bytes),
        Content::Live(pieces) => {
            let stopping = async move { running.stopping().await };
            Body::from_stream(make(pieces).take_until(Box::pin(stopping)))
        }
    };
    let mut encoded = (status, body).into_response();
    encoded.headers_mut().remove(header::CONTENT_TYPE);
    for (name, value) in response.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            encoded.headers_mut().insert(name, value);
        }
    }
    encoded
}

/// The events published last, newest first.
async fn list(State(gateway): State<Gateway>, headers: HeaderMap) -> Response {
    if !may(&gateway.key, &headers) {
        return unauthorized();
    }
    Json(json!({ "events": gateway.bus.published() })).into_response()
}

/// Gives the key for the code in the body, `{"code": …}`, once.
async fn sign_in(State(gateway): State<Gateway>, body: Bytes) -> Response {
    let code: Result<SignInCode, _> = dormouse_json::read(&body, dormouse_json::ENTRY);
    let Ok(SignInCode { code }) = code else {
        return invalid("send {\"code\": …}, the one that was printed at the start");
    };
    match gateway.sign_in.exchange(&code) {
        Some(key) => Json(json!({ "api_key": key })).into_response(),
        None => {
            let message = "the link was used already, or is of an earlier start: use the link of the last start, or the API \
                key that `dormouse dev` prints";
            failure(StatusCode::GONE, Category::Unauthorized, message)
        }
    }
}

/// Publishes the event in the body: `source`, `detail-type` and `detail`, as EventBridge takes them.
async fn publish(State(gateway): State<Gateway>, headers: HeaderMap, body: Bytes) -> Response {
    if !may(&gateway.key, &headers) {
        return unauthorized();
    }
    let event: Event = match dormouse_json::read(&body, dormouse_json::ENTRY) {
        Ok(event) => event,
        Err(error) => {
            return invalid(&format!("an event is {{\"source\": …, \"detail-type\": …, \"detail\": {{…}}}}: {error}"));
        }
    };
    match gateway.bus.accept(event).await {
        Ok(published) => (StatusCode::ACCEPTED, Json(json!(published))).into_response(),
        Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, Category::NodeException, &error.to_string()),
    }
}

fn may(key: &BearerKey, headers: &HeaderMap) -> bool {
    let presented = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    presented.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|presented| key.matches(presented))
}

fn unauthorized() -> Response {
    let message = "send the signal key: `Authorization: Bearer …`; it is printed at the start";
    failure(StatusCode::UNAUTHORIZED, Category::Unauthorized, message)
}

fn invalid(message: &str) -> Response {
    failure(StatusCode::BAD_REQUEST, Category::RequestInvalid, message)
}

/// More is asked than can be done, by all or by one tenant.
pub(crate) fn too_much(overloaded: Overloaded) -> ProtocolError {
    let (code, message) = match overloaded.by_its_own {
        true => (
            ErrorCode::RateLimited,
            "too many of your requests are under way already; nothing was done, send it again later",
        ),
        false => {
            (ErrorCode::ServiceUnavailable, "more is asked than can be done now; nothing was done, send it again later")
        }
    };
    let seconds = TurnError::refused(Category::Overloaded, overloaded, message).retry_after.unwrap_or(1);
    ProtocolError::new(code, message).retry_after(seconds)
}

/// The same as a response, in the shape of the protocol or of the routes of turns.
pub(crate) fn overload(overloaded: Overloaded, in_protocol: bool) -> Response {
    refused(too_much(overloaded), in_protocol)
}

fn refused(error: ProtocolError, in_protocol: bool) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let seconds = error.header().map_or("1", |(_, seconds)| seconds).to_owned();
    let mut response = if in_protocol {
        let request_id = format!("req_{}", uuid::Uuid::new_v4());
        (status, Json(json!(error.into_response(&request_id)))).into_response()
    } else {
        failure(status, Category::Overloaded, error.message())
    };
    if let Ok(seconds) = HeaderValue::try_from(seconds) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// An error in the shape of those of the application.
#[expect(clippy::needless_pass_by_value, reason = "callers name a category and keep none")]
fn failure(status: StatusCode, category: Category, message: &str) -> Response {
    let bucket = bucket_of(&category).as_str();
    let error = json!({ "category": category.as_str(), "bucket": bucket, "message": message });
    (status, Json(json!({ "error": error }))).into_response()
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use dormouse_ports::Clock;
    use dormouse_system::SystemClock;
    use futures::stream;

    use super::*;
    use crate::lane::Turns;

    #[tokio::test]
    async fn a_body_is_read_up_to_the_limit() {
        let read = |size: usize| read_body(Body::from(vec![7; size]), 10, no_place());
        assert_eq!(read(10).await.expect("a body").0.len(), 10);
        assert_eq!(read(1000).await.expect("a body").0.len(), 11);
    }

    fn no_place() -> impl Future<Output = Result<Admitted<Lane>, Overloaded>> {
        ready(Err(Overloaded { retry_after: Duration::from_secs(1), by_its_own: true }))
    }

    #[tokio::test]
    async fn a_long_body_is_read_where_it_has_a_place_and_a_short_one_everywhere() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let gate = Gate::new(Turns::of_processor(clock.clone()), clock);
        let body =
            |size: usize| Body::from_stream(stream::iter(vec![Ok::<_, Infallible>(vec![7_u8; 1024]); size / 1024]));
        let (read, place) = read_body(body(SHORT), 2 * SHORT, no_place()).await.expect("a body");
        assert!(read.len() == SHORT && place.is_none());
        let refused = read_body(body(SHORT + 1024), 2 * SHORT, no_place()).await;
        assert!(matches!(&refused, Err(NoBody::NoPlace(_))), "{refused:?}");
        let (read, place) = read_body(body(2 * SHORT), 2 * SHORT, gate.hold(&Lane::Nobody)).await.expect("a body");
        assert!(read.len() == 2 * SHORT && place.is_some());
    }

    #[test]
    fn a_request_arrives_as_it_does_on_aws() {
        let request = Request::post("/a%20b/c?x=%20y").header("X-Thing", "1").header("x-request-id", "2");
        let request = headed(&request.body(()).expect("a request").into_parts().0);
        assert_eq!(
            (request.method.as_str(), request.path.as_str(), request.query.as_str()),
            ("POST", "/a b/c", "x=%20y")
        );
        assert_eq!(request.headers, [("x-thing".to_owned(), "1".to_owned())]);
    }
}
