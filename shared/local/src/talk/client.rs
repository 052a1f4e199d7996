use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dormouse_protocol::request::{IDEMPOTENCY_HEADER, LAST_EVENT_ID_HEADER, VERSION_HEADER};
use dormouse_protocol::{ErrorCode, ErrorResponse, PROTOCOL_VERSION};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::ask::Server;
use crate::folder::DataFolder;

/// Where `dormouse dev` listens unless it is told otherwise.
const USUAL: &str = "http://127.0.0.1:8787";
/// How often a request is sent that finds nobody, or somebody who is busy.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const TIME_TO_CONNECT: Duration = Duration::from_secs(10);
const TIME_TO_ANSWER: Duration = Duration::from_secs(40);

/// Why a server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TalkError {
    #[error("there is no key; name one with --key or DORMOUSE_KEY, or the folder of `dormouse dev` with --data")]
    NoKey,
    #[error("the address or the key cannot be used: {0}")]
    Unusable(String),
    #[error("{url} cannot be reached: {error}; is it running?")]
    Unreachable { url: String, error: String },
    #[error("{message} ({code}, request {request_id})")]
    Refused { status: u16, code: ErrorCode, message: String, request_id: String },
    #[error("the server answered with status {status} and nothing that can be understood")]
    Unreadable { status: u16 },
    #[error("the payload must be a JSON object: {0}")]
    Payload(String),
    #[error("task {task} waits for nothing: it is {status}")]
    WaitsForNothing { task: String, status: &'static str },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TalkError {
    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } | Self::Unreadable { status } => {
                matches!(status, 423 | 429 | 500 | 502 | 503 | 504)
            }
            Self::NoKey | Self::Unusable(_) | Self::Payload(_) | Self::WaitsForNothing { .. } | Self::Io(_) => false,
        }
    }

    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused { code: ErrorCode::ResourceNotFound, .. } => ExitCode::from(4),
            Self::Refused { .. }
            | Self::NoKey
            | Self::Unusable(_)
            | Self::Unreachable { .. }
            | Self::Unreadable { .. }
            | Self::Payload(_)
            | Self::WaitsForNothing { .. }
            | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Speaks the protocol with one server.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Client {
    /// A client of `server`. Nothing is sent yet.
    pub(crate) fn open(server: &Server) -> Result<Self, TalkError> {
        let url = server.url.clone().or_else(|| noted(&server.data)).unwrap_or_else(|| USUAL.to_owned());
        let key = server.key.clone().or_else(|| DataFolder::api_key(&server.data)).ok_or(TalkError::NoKey)?;
        let http = reqwest::Client::builder().connect_timeout(TIME_TO_CONNECT).build();
        let http = http.map_err(|error| TalkError::Unusable(error.to_string()))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), key })
    }

    /// Reads `path`.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, TalkError> {
        self.insist(|| self.request(Method::GET, path).timeout(TIME_TO_ANSWER)).await
    }

    /// Posts `body` to `path`, once however often it is sent.
    pub(crate) async fn write<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, TalkError> {
        let key = Uuid::new_v4().to_string();
        let body = body.to_string();
        self.insist(|| {
            let request = self.request(Method::POST, path).timeout(TIME_TO_ANSWER).header(IDEMPOTENCY_HEADER, &key);
            request.header("content-type", "application/json").body(body.clone())
        })
        .await
    }

    /// Opens the stream at `path`, behind the event `after`.
    pub(crate) async fn stream(&self, path: &str, after: Option<&str>) -> Result<Response, TalkError> {
        let request = self.request(Method::GET, path);
        let request = match after {
            Some(after) => request.header(LAST_EVENT_ID_HEADER, after),
            None => request,
        };
        self.once(request).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key);
        request.header(VERSION_HEADER, PROTOCOL_VERSION)
    }

    async fn insist<T: DeserializeOwned>(&self, request: impl Fn() -> RequestBuilder) -> Result<T, TalkError> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            match self.once(request()).await {
                Ok(response) => {
                    let status = response.status().as_u16();
                    return response.json().await.map_err(|_| TalkError::Unreadable { status });
                }
                Err(error) if attempt < ATTEMPTS && error.is_passing() => tokio::time::sleep(pause).await,
                Err(error) => return Err(error),
            }
            pause *= 2;
        }
        Err(self.unreachable("it did not answer"))
    }

    async fn once(&self, request: RequestBuilder) -> Result<Response, TalkError> {
        let sent = request.send().await;
        let response = sent.map_err(|error| match error.is_builder() {
            true => TalkError::Unusable(error.to_string()),
            false => self.unreachable(&reason(&error)),
        })?;
        match response.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED => Ok(response),
            status => Err(refusal(status.as_u16(), response.json().await.ok())),
        }
    }

    fn unreachable(&self, error: &str) -> TalkError {
        TalkError::Unreachable { url: self.url.clone(), error: error.to_owned() }
    }
}

/// What the server says when it refuses.
pub(super) fn refusal(status: u16, body: Option<ErrorResponse>) -> TalkError {
    let Some(ErrorResponse { error }) = body else { return TalkError::Unreadable { status } };
    let request_id = error.request_id.unwrap_or_default();
    TalkError::Refused { status, code: error.code, message: error.message, request_id }
}

/// The innermost reason: the outer ones say only that something went wrong.
fn reason(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

/// Where the process says that it listens which has the folder.
fn noted(data: &Path) -> Option<String> {
    DataFolder::address(data).ok().filter(|address| !address.is_empty())
}
