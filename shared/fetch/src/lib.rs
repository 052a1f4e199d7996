//! The `Fetch` port over the network: HTTP/1.1, TLS by rustls, certificates that the system trusts.
//!
//! It takes a proxy from the environment as other tools do: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in
//! upper or lower case; `NO_PROXY=*` is for addresses of numbers, too. With a proxy that is no address nothing is asked at all,
//! rather than past the proxy. It follows no redirect, repeats nothing, and keeps connections for as long as they are busy and
//! a second more.
//!
//! # Invariants
//! - What is dropped is closed: a request does not go on when its future or body is dropped.
//! - Every wait has an end: that of the request's limits, and ten seconds for a connection.

#![warn(missing_docs)]

mod failure;
mod public;
mod resolve;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{Fetch, FetchBody, FetchError, FetchLimits, FetchRequest, FetchResponse, Method};
use futures::StreamExt;
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response, Url};
use tokio::time::{Instant, timeout_at};

/// The longest that it takes to connect.
const TO_CONNECT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept. Servers close what is idle, many of them after 5 seconds and some after 2: a
/// request that is sent just then fails, and nobody knows whether it was read. A sandbox may be frozen in between, too.
const KEPT: Duration = Duration::from_secs(1);

/// HTTP over the network. Cheap to clone; the clones share their connections.
///
/// The roots that the system trusts are read at the first request.
#[derive(Clone)]
pub struct NetworkFetch {
    client: Arc<LazyLock<Result<Client, String>>>,
    /// True if it may only reach public addresses.
    public: bool,
}

impl NetworkFetch {
    /// A client with the proxy of the environment.
    pub fn new() -> Self {
        Self { client: Arc::new(LazyLock::new(|| client(false, without_proxy()?))), public: false }
    }

    /// A client that uses no proxy: for servers that are started on this machine for it alone, which no proxy reaches.
    pub fn past_proxies() -> Self {
        Self { client: Arc::new(LazyLock::new(|| client(false, true))), public: false }
    }

    /// A client that reaches addresses of the public internet and no others, no matter what a name resolves to: for
    /// addresses that a model chooses. A proxy of the environment resolves names itself.
    pub fn public() -> Self {
        Self { client: Arc::new(LazyLock::new(|| client(true, without_proxy()?))), public: true }
    }

    fn client(&self) -> Result<&Client, FetchError> {
        (**self.client).as_ref().map_err(|reason| FetchError::Connect(reason.clone()))
    }
}

impl Default for NetworkFetch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for NetworkFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NetworkFetch")
    }
}

fn client(public: bool, is_direct: bool) -> Result<Client, String> {
    let client = Client::builder()
        .redirect(Policy::none())
        .connect_timeout(TO_CONNECT)
        .pool_idle_timeout(KEPT)
        .user_agent("dormouse")
        .dns_resolver(Arc::new(resolve::Resolver { public }))
        .retry(reqwest::retry::never());
    let client = if is_direct { client.no_proxy() } else { client };
    client.build().map_err(|error| failure::in_words(&error))
}

/// True if the environment says that nothing goes through a proxy. The client reads the rest of it, and passes over what it
/// cannot read.
fn without_proxy() -> Result<bool, String> {
    let told = |name: &str| {
        let names = [name.to_owned(), name.to_ascii_lowercase()];
        names.into_iter().find_map(|name| std::env::var(name).ok()).filter(|value| !value.trim().is_empty())
    };
    if told("NO_PROXY").is_some_and(|hosts| hosts.split(',').any(|host| host.trim() == "*")) {
        return Ok(true);
    }
    let unusable = |name: &&&str| told(name).is_some_and(|address| reqwest::Proxy::all(address).is_err());
    match ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].iter().find(unusable) {
        Some(name) => Err(format!("the proxy in `{name}` is none that can be used")),
        None => Ok(false),
    }
}

#[async_trait]
impl Fetch for NetworkFetch {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let limits = request.limits;
        let end = Instant::now() + limits.total;
        let sending = self.client()?.execute(outbound(request, self.public)?);
        let answer = within(end, limits, sending).await?.map_err(|error| failure::classify(&error, limits.total))?;
        Ok(inbound(answer, end, limits))
    }
}

/// The request as the client takes it.
fn outbound(request: FetchRequest, public: bool) -> Result<Request, FetchError> {
    let url = Url::parse(&request.url).map_err(|error| denied(format!("its address is none: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(denied(format!("its scheme is `{}`; it must be https or http", url.scheme())));
    }
    if public && !public::is_reachable(&url) {
        return Err(denied("its address is not on the public internet".to_owned()));
    }
    let mut outbound = Request::new(method(request.method), url);
    for (name, value) in &request.headers {
        let read = reqwest::header::HeaderName::try_from(name.as_str())
            .map_err(|_| denied(format!("the name of the header `{name}` is none")))?;
        let mut text = reqwest::header::HeaderValue::try_from(value.expose())
            .map_err(|_| denied(format!("the value of the header `{name}` has characters that no header may have")))?;
        text.set_sensitive(true);
        outbound.headers_mut().append(read, text);
    }
    if !request.body.is_empty() {
        *outbound.body_mut() = Some(request.body.into());
    }
    Ok(outbound)
}

fn denied(reason: String) -> FetchError {
    FetchError::Denied(reason)
}

fn method(method: Method) -> reqwest::Method {
    match method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
    }
}

/// Waits for `work`, but not longer than the limits.
async fn within<T>(end: Instant, limits: FetchLimits, work: impl Future<Output = T>) -> Result<T, FetchError> {
    let silence = Instant::now() + limits.idle;
    let passed = if silence < end { limits.idle } else { limits.total };
    timeout_at(silence.min(end), work).await.map_err(|_| FetchError::Timeout(passed))
}

fn inbound(answer: Response, end: Instant, limits: FetchLimits) -> FetchResponse {
    let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = answer.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let status = answer.status().as_u16();
    FetchResponse { status, headers, body: body(answer, end, limits) }
}

/// The body, as far as the limits go.
fn body(answer: Response, end: Instant, limits: FetchLimits) -> FetchBody {
    let beginning = Some((answer, 0));
    futures::stream::unfold(beginning, move |reading| async move {
        let (mut answer, read) = reading?;
        match piece(&mut answer, end, limits).await {
            Ok(None) => None,
            Ok(Some(bytes)) if read + bytes.len() > limits.most_bytes => {
                Some((Err(FetchError::TooLarge(limits.most_bytes)), None))
            }
            Ok(Some(bytes)) => {
                let read = read + bytes.len();
                Some((Ok(bytes), Some((answer, read))))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

async fn piece(answer: &mut Response, end: Instant, limits: FetchLimits) -> Result<Option<Vec<u8>>, FetchError> {
    match within(end, limits, answer.chunk()).await? {
        Ok(piece) => Ok(piece.map(Vec::from)),
        Err(error) => Err(failure::classify(&error, limits.total)),
    }
}
