//! Serves responses that are sent piece by piece, over the official client of the Runtime API.
//!
//! The loop of `lambda_runtime` leaves `TCP_NODELAY` off and writes the beginning of a streamed response in three small
//! pieces: Linux holds the second until the first is acknowledged, which takes 40 ms, and does so again for events that
//! follow each other. Here the connection sends at once, and the beginning is one piece.

use std::future::Future;

use futures::StreamExt;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpConnector;
use lambda_runtime::{Diagnostic, MetadataPrelude};
use lambda_runtime_api_client::body::Body;
use lambda_runtime_api_client::body::sender::Sender;
use lambda_runtime_api_client::{BoxError, PooledClient, build_request};
use serde_json::Value;

use crate::serve::Pieces;

const NEXT: &str = "/2018-06-01/runtime/invocation/next";
/// Delimiter between the status and headers of a streamed response, as JSON, and its body.
const DELIMITER: [u8; 8] = [0; 8];
const CONTENT_TYPE: &str = "application/vnd.awslambda.http-integration-response";

/// A response that is sent piece by piece.
pub(crate) struct PiecewiseResponse {
    /// Status and headers.
    pub(crate) prelude: MetadataPrelude,
    /// The body.
    pub(crate) pieces: Pieces,
}

/// Serves events until Lambda ends the process: `handler` is given the event and its deadline, in milliseconds since
/// the epoch. Behind each response, and before the next event is asked for, `settle` is awaited: whoever asks is frozen
/// until there is one.
///
/// # Errors
/// When the Runtime API cannot be reached, or speaks otherwise than documented.
pub(crate) async fn serve<H, F>(handler: H, settle: impl AsyncFn()) -> Result<(), BoxError>
where
    H: Fn(Value, u64) -> F,
    F: Future<Output = Result<PiecewiseResponse, Diagnostic>>,
{
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = PooledClient::builder().with_connector(connector).build();
    loop {
        let next = client.call(build_request().method(Method::GET).uri(NEXT).body(Body::empty())?).await?;
        let (parts, body) = next.into_parts();
        let id = header(&parts.headers, "lambda-runtime-aws-request-id")?.to_owned();
        let deadline = header(&parts.headers, "lambda-runtime-deadline-ms")?.parse()?;
        let event = serde_json::from_slice(&body.collect().await?.to_bytes());
        let answered = match event {
            Ok(event) => handler(event, deadline).await,
            Err(error) => {
                let error_type = "unreadable_event".to_owned();
                Err(Diagnostic { error_type, error_message: format!("the event is no JSON: {error}") })
            }
        };
        let request = match answered {
            Ok(response) => streamed(&id, response)?,
            Err(diagnostic) => failed(&id, &diagnostic)?,
        };
        // The Runtime API answers once the response has been sent to its end, or its client has left.
        client.call(request).await?.into_body().collect().await?;
        settle().await;
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, BoxError> {
    let value = headers.get(name).ok_or_else(|| format!("the Runtime API sent no header {name}"))?;
    Ok(value.to_str()?)
}

fn streamed(id: &str, response: PiecewiseResponse) -> Result<Request<Body>, BoxError> {
    let mut beginning = serde_json::to_vec(&response.prelude)?;
    beginning.extend(DELIMITER);
    let (sender, body) = Body::channel();
    tokio::spawn(send(sender, beginning, response.pieces));
    let request = build_request().method(Method::POST).uri(Uri::try_from(answer_path(id, "response"))?);
    let request = request.header("content-type", CONTENT_TYPE);
    Ok(request.header("lambda-runtime-function-response-mode", "streaming").body(body)?)
}

/// Sends `beginning` and `pieces` for as long as the other end takes them.
async fn send(mut sender: Sender, beginning: Vec<u8>, mut pieces: Pieces) {
    if sender.send_data(beginning.into()).await.is_err() {
        return;
    }
    while let Some(Ok(piece)) = pieces.next().await {
        if sender.send_data(piece.into()).await.is_err() {
            return;
        }
    }
}

fn failed(id: &str, diagnostic: &Diagnostic) -> Result<Request<Body>, BoxError> {
    let request = build_request().method(Method::POST).uri(Uri::try_from(answer_path(id, "error"))?);
    let request = request.header("lambda-runtime-function-error-type", diagnostic.error_type.as_str());
    Ok(request.body(Body::from(serde_json::to_vec(diagnostic)?))?)
}

fn answer_path(id: &str, kind: &str) -> String {
    format!("/2018-06-01/runtime/invocation/{id}/{kind}")
}
