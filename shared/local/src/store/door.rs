//! The way from other processes to the store: the commands beside a running `dormouse dev`, and tools of a person who
//! asked for it.

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use dormouse_http::BearerKey;

use super::obey::{EmbeddedDatabase, RawAnswer, operation_of, refusal};

/// As large as requests of DynamoDB may be, in bytes.
const LARGEST: usize = 16 * 1024 * 1024;
/// Header in which the SDK has the session token of its credentials: here it is the secret.
const SECRET: &str = "x-amz-security-token";

/// Lets in who knows the secret, as the session token of otherwise arbitrary credentials, and is no page of a browser.
#[derive(Clone, Debug)]
pub struct Door {
    engine: EmbeddedDatabase,
    secret: BearerKey,
}

impl Door {
    pub(super) fn new(engine: EmbeddedDatabase, secret: &str) -> Self {
        Self { engine, secret: BearerKey::new(secret) }
    }

    /// Its one route, at `path`, which ends with a slash.
    pub fn at<S: Clone + Send + Sync + 'static>(self, path: &str) -> Router<S> {
        Router::new().route(path, post(enter).with_state(self))
    }
}

async fn enter(State(door): State<Door>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let headers: HeaderMap = head.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (status, body) = if headers.contains_key(header::ORIGIN) {
        denied("pages of browsers may not ask the store")
    } else if !text(SECRET).is_some_and(|secret| door.secret.matches(secret)) {
        denied("send the secret of the store as AWS_SESSION_TOKEN; `dormouse dev --store-port` prints it")
    } else if let Ok(body) = to_bytes(body, LARGEST).await {
        let operation = operation_of(text("x-amz-target").unwrap_or_default()).to_owned();
        let served = door.engine.serve(operation, body.to_vec()).await;
        served.unwrap_or_else(|| refusal(500, "com.amazonaws.dynamodb.v20120810#InternalServerError", "it has stopped"))
    } else {
        refusal(400, "com.amazon.coral.service#SerializationException", "no whole request came")
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], body).into_response()
}

fn denied(message: &str) -> RawAnswer {
    refusal(400, "com.amazonaws.dynamodb.v20120810#UnrecognizedClientException", message)
}
