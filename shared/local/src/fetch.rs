//! HTTP out, over the client that this process has.

use std::error::Error;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dormouse_ports::{Fetch, FetchBody, FetchError, FetchLimits, FetchRequest, FetchResponse, Method};
use futures::stream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::time::timeout;

/// Time for a connection.
const TIME_TO_CONNECT: Duration = Duration::from_secs(10);

/// Requests over the network. It follows no redirect and repeats nothing; a proxy is that of the environment
/// (`HTTPS_PROXY`, `NO_PROXY`).
#[derive(Clone, Debug)]
pub struct HttpFetch(Client);

impl HttpFetch {
    /// A client of its own, with its pool of connections.
    ///
    /// # Errors
    /// When the certificates of this machine cannot be read.
    pub fn new() -> Result<Self, FetchError> {
        let client = Client::builder().redirect(Policy::none()).connect_timeout(TIME_TO_CONNECT).build();
        client.map(Self).map_err(|error| FetchError::Tls(innermost(&error)))
    }
}

#[async_trait]
impl Fetch for HttpFetch {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let limits = request.limits;
        let began = Instant::now();
        let sent = self.0.execute(outgoing(request)?);
        let response = match timeout(limits.idle.min(limits.total), sent).await {
            Ok(sent) => sent.map_err(|error| failed(&error, limits.idle))?,
            Err(_) => return Err(FetchError::Timeout(limits.idle.min(limits.total))),
        };
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
        Ok(FetchResponse {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: body(Reading { response, limits, began, read: 0 }),
        })
    }
}

fn outgoing(request: FetchRequest) -> Result<reqwest::Request, FetchError> {
    let denied = |what: &str| FetchError::Denied(what.to_owned());
    let url = reqwest::Url::parse(&request.url).map_err(|error| FetchError::Denied(format!("the address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(denied("the address is neither http nor https"));
    }
    let method = match request.method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
    };
    let mut sent = reqwest::Request::new(method, url);
    for (name, value) in &request.headers {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| denied("the name of a header"))?;
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| FetchError::Denied(format!("the value of header `{name}`")))?;
        value.set_sensitive(true);
        sent.headers_mut().append(header, value);
    }
    if !request.body.is_empty() {
        *sent.body_mut() = Some(request.body.into());
    }
    Ok(sent)
}

/// A body that is being read.
struct Reading {
    response: Response,
    limits: FetchLimits,
    began: Instant,
    read: usize,
}

impl Reading {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Result<Vec<u8>, FetchError>> {
        let left = self.limits.total.saturating_sub(self.began.elapsed());
        let patience = left.min(self.limits.idle);
        let piece = match timeout(patience, self.response.chunk()).await {
            Err(_) => return Some(Err(FetchError::Timeout(patience))),
            Ok(Err(error)) => return Some(Err(failed(&error, patience))),
            Ok(Ok(None)) => return None,
            Ok(Ok(Some(piece))) => piece,
        };
        self.read += piece.len();
        match self.read > self.limits.most_bytes {
            true => Some(Err(FetchError::TooLarge(self.limits.most_bytes))),
            false => Some(Ok(piece.to_vec())),
        }
    }
}

fn body(reading: Reading) -> FetchBody {
    Box::pin(stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        let piece = reading.next().await?;
        // An error is the last thing that comes.
        let rest = piece.is_ok().then_some(reading);
        Some((piece, rest))
    }))
}

fn failed(error: &reqwest::Error, patience: Duration) -> FetchError {
    let reason = innermost(error);
    if error.is_timeout() {
        return FetchError::Timeout(patience);
    }
    if error.is_connect() {
        let lower = reason.to_lowercase();
        return match () {
            () if lower.contains("certificate") || lower.contains("tls") => FetchError::Tls(reason),
            () if lower.contains("lookup") || lower.contains("resolve") || lower.contains("name or service") => {
                FetchError::Dns(reason)
            }
            () => FetchError::Connect(reason),
        };
    }
    if error.is_builder() { FetchError::Denied(reason) } else { FetchError::Closed(reason) }
}

/// The innermost reason, without the address, which may hold a key.
fn innermost(error: &reqwest::Error) -> String {
    let mut reason: Option<&dyn Error> = error.source();
    while let Some(deeper) = reason.and_then(Error::source) {
        reason = Some(deeper);
    }
    reason.map_or_else(|| "the request failed".to_owned(), ToString::to_string)
}
