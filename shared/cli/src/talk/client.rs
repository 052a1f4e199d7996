use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_protocol::request::{IDEMPOTENCY_HEADER, LAST_EVENT_ID_HEADER, VERSION_HEADER};
use dormouse_protocol::{ErrorCode, ErrorResponse, PROTOCOL_VERSION};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::ask::ServerArgs;
use dormouse_local::{FOLDER, address_of, development_key, is_loopback};

use crate::declared::data_of;
use crate::inspect::InspectError;
use crate::terminal::quoted;

/// Address at which `dormouse dev` listens by default.
const USUAL: &str = "http://127.0.0.1:8787";
/// Number of attempts at a request that finds no server, or a busy one.
pub(super) const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const TIME_TO_CONNECT: Duration = Duration::from_secs(10);
const TIME_TO_ANSWER: Duration = Duration::from_secs(40);

/// Which key a server has refused.
const WHICH_KEY: &str = "it was asked with that of --key, or else of DORMOUSE_KEY, or else with the development key of the \
                         data folder: `dormouse keys list` shows which there are";

/// Reason for which a server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TalkError {
    #[error("there is no key; name one with --key or DORMOUSE_KEY, or the folder of `dormouse dev` with --data")]
    NoKey,
    #[error(
        "no `dormouse dev` serves the folder {}: start it ({}), or name a server with --url and a key with --key",
        .0.display(), serving(.0)
    )]
    NobodyThere(PathBuf),
    #[error(
        "the development key is for this machine only and is not sent to {0}: name a key of that server with --key or DORMOUSE_KEY"
    )]
    KeyElsewhere(String),
    #[error("the server refers to another address ({status}); ask that one, if it is meant: it was sent nothing")]
    Elsewhere { status: u16 },
    #[error("the address or the key cannot be used: {0}")]
    Unusable(String),
    #[error(
        "the key cannot be used: it has a blank, a line feed or a letter in it that no key has; name one key, whole"
    )]
    NotAKey,
    #[error("{url} cannot be reached: {error}; is it running?")]
    Unreachable { url: String, error: String },
    #[error("{message} ({code}, request {request_id})")]
    Refused { status: u16, code: ErrorCode, message: String, request_id: String },
    #[error("the server answered with status {status} and nothing that can be understood")]
    Unreadable { status: u16 },
    #[error(
        "the payload must be a JSON object: {0}; in a shell it stands between single quotes: '{{\"reason\": \"once\"}}'"
    )]
    Payload(String),
    #[error("there is no agent `{name}` that can run; there are `{names}`")]
    NoAgent { name: String, names: String },
    #[error("say what to answer: a JSON object, or words")]
    NoAnswer,
    #[error(
        "a task is answered by whoever the key belongs to: leave --by out, or make a key for that person with `dormouse keys create`"
    )]
    ByItsKey,
    #[error("this was no answer to what the task waits for now, and was not taken")]
    AnotherQuestion,
    #[error("task {task} waits for nothing: it is {status}")]
    WaitsForNothing { task: String, status: &'static str },
    #[error("{0}")]
    NotServed(String),
    #[error(transparent)]
    Declared(Box<crate::declared::DeclaredFailure>),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TalkError {
    /// True if the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } | Self::Unreadable { status } => {
                matches!(status, 423 | 429 | 500 | 502 | 503 | 504)
            }
            Self::NoKey
            | Self::NobodyThere(_)
            | Self::KeyElsewhere(_)
            | Self::Elsewhere { .. }
            | Self::Unusable(_)
            | Self::NotAKey
            | Self::Payload(_)
            | Self::NoAgent { .. }
            | Self::NoAnswer
            | Self::ByItsKey
            | Self::AnotherQuestion
            | Self::WaitsForNothing { .. }
            | Self::NotServed(_)
            | Self::Declared(_)
            | Self::Inspect(_)
            | Self::Io(_) => false,
        }
    }

    /// True if the server does not take what was sent as it is: other words may do.
    pub(super) fn is_misfit(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 413 | 422, .. })
    }

    /// True if what the request names is not there, or can be no name of anything.
    pub(super) fn is_nowhere(&self) -> bool {
        self.is_misfit() || matches!(self, Self::Refused { status: 404 | 410, .. } | Self::Unreadable { status: 404 })
    }

    /// True if what was sent does not go with what is there by now.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }

    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused { code: ErrorCode::ResourceNotFound, .. } => ExitCode::from(4),
            Self::Inspect(error) => error.exit_code(),
            Self::Refused { .. }
            | Self::NoKey
            | Self::NobodyThere(_)
            | Self::KeyElsewhere(_)
            | Self::Elsewhere { .. }
            | Self::Unusable(_)
            | Self::NotAKey
            | Self::Unreachable { .. }
            | Self::Unreadable { .. }
            | Self::Payload(_)
            | Self::NoAgent { .. }
            | Self::NoAnswer
            | Self::ByItsKey
            | Self::AnotherQuestion
            | Self::WaitsForNothing { .. }
            | Self::NotServed(_)
            | Self::Declared(_)
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
    /// True once it has answered anything.
    was_there: AtomicBool,
}

/// Number of elements of a page that is asked for.
const PAGE: usize = 200;

/// A list that is read page by page.
pub(crate) struct Pages<'c> {
    client: &'c Client,
    path: String,
    cursor: &'static str,
    /// Parameter of the next page; `None` behind the last one.
    next: Option<String>,
}

impl Pages<'_> {
    /// The same behind `last`, where that is known.
    pub(crate) fn behind(self, last: Option<&str>) -> Self {
        let next = last.map(|last| format!("&{}={last}", self.cursor)).unwrap_or_default();
        Self { next: Some(next), ..self }
    }

    /// The elements of the next page; `None` behind the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Value>>, TalkError> {
        let Some(next) = self.next.take() else { return Ok(None) };
        let mut page: Value = self.client.read(&format!("{}{next}", self.path)).await?;
        self.next = page["page"]["next_cursor"].as_str().map(|next| format!("&{}={next}", self.cursor));
        Ok(Some(page["data"].as_array_mut().map(std::mem::take).unwrap_or_default()))
    }
}

impl Client {
    /// A client of `server`. Nothing is sent yet.
    pub(crate) fn open(server: &ServerArgs) -> Result<Self, TalkError> {
        let url = match server.url() {
            Some(url) => url.to_owned(),
            None => noted(&server.data, server.key().is_some())?,
        };
        let is_here = is_here(&url)?;
        let key = match server.key() {
            Some(key) => key.to_owned(),
            // It opens everything on this machine, and concerns no other server.
            None if !is_here => return Err(TalkError::KeyElsewhere(url)),
            None => development_key(&server.data).ok_or(TalkError::NoKey)?,
        };
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TalkError::NotAKey);
        }
        // The server that is asked is the one that answers: no other one gets the key, neither by a redirect nor by a
        // proxy on the way to this very machine.
        let http = reqwest::Client::builder().connect_timeout(TIME_TO_CONNECT).redirect(Policy::none());
        let http = if is_here { http.no_proxy() } else { http };
        let http = http.build().map_err(|error| TalkError::Unusable(error.to_string()))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), key, was_there: AtomicBool::new(false) })
    }

    /// True if the server has answered anything so far.
    pub(super) fn was_there(&self) -> bool {
        self.was_there.load(Ordering::Relaxed)
    }

    /// The address of the server.
    pub(super) fn address(&self) -> &str {
        &self.url
    }

    /// Reads `path`.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, TalkError> {
        self.insist(|| self.request(Method::GET, path).timeout(TIME_TO_ANSWER)).await
    }

    /// Reads the list at `path` page by page; the parameter `cursor` says where a page begins.
    pub(crate) fn pages(&self, path: &str, cursor: &'static str) -> Pages<'_> {
        let separator = if path.contains('?') { '&' } else { '?' };
        Pages { client: self, path: format!("{path}{separator}limit={PAGE}"), cursor, next: Some(String::new()) }
    }

    /// Reads the bytes at `path`.
    pub(crate) async fn read_bytes(&self, path: &str) -> Result<Vec<u8>, TalkError> {
        let response = self.once(self.request(Method::GET, path).timeout(TIME_TO_ANSWER)).await?;
        let status = response.status().as_u16();
        Ok(response.bytes().await.map_err(|_| TalkError::Unreadable { status })?.into())
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
                Err(error) if attempt < ATTEMPTS && error.is_transient() => tokio::time::sleep(pause).await,
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
        self.was_there.store(true, Ordering::Relaxed);
        match response.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED => Ok(response),
            status if status.is_redirection() => Err(TalkError::Elsewhere { status: status.as_u16() }),
            status => Err(refusal(status.as_u16(), response.json().await.ok())),
        }
    }

    fn unreachable(&self, error: &str) -> TalkError {
        TalkError::Unreachable { url: self.url.clone(), error: error.to_owned() }
    }
}

/// Error for a refusal by the server.
pub(super) fn refusal(status: u16, body: Option<ErrorResponse>) -> TalkError {
    let Some(ErrorResponse { error }) = body else { return TalkError::Unreadable { status } };
    let request_id = error.request_id.unwrap_or_default();
    let message = match status {
        401 => format!("{}; {WHICH_KEY}", error.message),
        _ => error.message,
    };
    TalkError::Refused { status, code: error.code, message, request_id }
}

/// The innermost reason: the outer ones report only that something went wrong.
fn reason(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

/// The command that serves the folder `data`.
fn serving(data: &Path) -> String {
    let workspace = data.ancestors().nth(3).filter(|_| data.ends_with(data_of(Path::new(""))));
    match workspace {
        Some(here) if here.as_os_str().is_empty() => "`dormouse dev --workspace .`".to_owned(),
        Some(workspace) => format!("`dormouse dev --workspace {}`", quoted(&workspace.to_string_lossy())),
        None if data == Path::new(FOLDER) => {
            "`dormouse dev`, and with --workspace FOLDER for the agents of a folder".to_owned()
        }
        None => format!("`dormouse dev --data {}`", quoted(&data.to_string_lossy())),
    }
}

/// Address at which the process listens that has the folder. With a key of one's own it may be another one.
fn noted(data: &Path, has_key: bool) -> Result<String, TalkError> {
    match address_of(data) {
        Some(address) => Ok(address),
        None if has_key => Ok(USUAL.to_owned()),
        None => Err(TalkError::NobodyThere(data.to_owned())),
    }
}

/// True if `url` leads to this machine.
fn is_here(url: &str) -> Result<bool, TalkError> {
    let parsed = match Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => parsed,
        Err(error) if url.contains("://") => return Err(TalkError::Unusable(format!("{url}: {error}"))),
        // `localhost:8787` reads as an address with the scheme `localhost`.
        Ok(_) | Err(_) => return Err(TalkError::Unusable(format!("{url} does not begin with http:// or https://"))),
    };
    let name = parsed.host_str().unwrap_or_default();
    Ok(is_loopback(name.trim_start_matches('[').trim_end_matches(']')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told_from_others() {
        for here in ["http://127.0.0.1:8787", "http://localhost", "http://[::1]:1/x", "http://LOCALHOST:2"] {
            assert!(is_here(here).expect("an address"), "{here}");
        }
        for elsewhere in [
            "http://localhost.example.com",
            "http://127.0.0.1@evil.example",
            "https://evil.example/127.0.0.1",
            "http://127.0.0.1.evil.example",
            "http://0.0.0.0:8787",
        ] {
            assert!(!is_here(elsewhere).expect("an address"), "{elsewhere}");
        }
        for no_address in ["nonsense", "localhost:8787", "127.0.0.1:8787", "ftp://127.0.0.1"] {
            let said = is_here(no_address).expect_err("it is none").to_string();
            assert!(said.contains("begin with http://"), "{said}");
        }
        assert!(is_here("http://[::1").is_err());
    }

    #[test]
    fn an_empty_address_or_key_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = |url: &str, key: &str| {
            let (url, key) = (Some(url.to_owned()), Some(key.to_owned()));
            Client::open(&ServerArgs { url, key, data: folder.path().to_owned() }).map(|client| client.url)
        };
        assert!(matches!(opened("", ""), Err(TalkError::NobodyThere(_))));
        assert!(matches!(opened("", "dm_x"), Ok(url) if url == USUAL));
        assert!(matches!(opened("https://agents.example.com", ""), Err(TalkError::KeyElsewhere(_))));
        assert!(matches!(opened("", "\n"), Err(TalkError::NobodyThere(_))));
    }

    #[test]
    fn where_nobody_serves_a_folder_the_command_is_told_that_does() {
        for (data, command) in [
            (".openharness/data/dormouse", "`dormouse dev --workspace .`"),
            ("my desk/.openharness/data/dormouse", "`dormouse dev --workspace 'my desk'`"),
            ("/srv/desk/.openharness/data/dormouse", "`dormouse dev --workspace /srv/desk`"),
            (".dormouse", "`dormouse dev`, and with --workspace FOLDER for the agents of a folder"),
            ("/srv/data", "`dormouse dev --data /srv/data`"),
        ] {
            let said = TalkError::NobodyThere(data.into()).to_string();
            assert!(said.contains(&format!("serves the folder {data}: start it ({command}), or")), "{said}");
        }
    }

    #[test]
    fn a_key_is_taken_without_the_line_feed_of_its_file_and_one_that_can_be_none_is_told_so() {
        let opened = |key: &str| {
            let key = Some(key.to_owned());
            Client::open(&ServerArgs { url: Some(USUAL.to_owned()), key, data: "data".into() }).map(|client| client.key)
        };
        for given in ["dm_x", "dm_x\n", " dm_x\r\n"] {
            assert!(matches!(opened(given), Ok(key) if key == "dm_x"), "{given:?}");
        }
        for given in ["dm_x\ndm_y", "dm_x dm_y", "dm_é"] {
            let said = opened(given).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains("the key cannot be used: it has a blank"), "{given:?}: {said}");
        }
    }

    #[test]
    fn a_key_that_is_refused_is_told_with_where_it_came_from() {
        let body = |code: &str| {
            let error =
                serde_json::json!({ "code": code, "message": "No.", "type": "auth_error", "request_id": "req_1" });
            serde_json::from_value(serde_json::json!({ "error": error })).expect("a refusal")
        };
        let said = refusal(401, Some(body("unauthenticated"))).to_string();
        assert!(said.starts_with("No.; it was asked with that of --key, or else of DORMOUSE_KEY"), "{said}");
        assert_eq!(
            refusal(404, Some(body("resource_not_found"))).to_string(),
            "No. (resource_not_found, request req_1)"
        );
    }
}
