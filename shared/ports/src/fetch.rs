//! HTTP out: one request, and an answer with a body that is read piece by piece.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::Stream;

use crate::Secret;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Sends a body to be processed.
    Post,
    /// Replaces.
    Put,
    /// Changes in part.
    Patch,
    /// Removes.
    Delete,
}

impl Method {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Limits of a request: its duration, and how much may come back. Each limit holds by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// From the call to the last byte of the body.
    pub total: Duration,
    /// From one piece of the answer to the next, the head being the first.
    pub idle: Duration,
    /// Bytes of the body.
    pub most_bytes: usize,
}

impl Default for FetchLimits {
    /// Ten minutes in all, two minutes of silence, 32 MiB.
    fn default() -> Self {
        Self { total: Duration::from_secs(600), idle: Duration::from_secs(120), most_bytes: 32 << 20 }
    }
}

/// A request. When it is printed, values of headers, the query and the body are left out: they may be secret.
#[derive(Clone)]
pub struct FetchRequest {
    /// Method.
    pub method: Method,
    /// Absolute address, `https` or `http`.
    pub url: String,
    /// Headers in the order in which they are sent. Names in lower case.
    pub headers: Vec<(String, Secret)>,
    /// Body; empty for none.
    pub body: Vec<u8>,
    /// Limits on time and size of the answer.
    pub limits: FetchLimits,
}

impl FetchRequest {
    /// A request without headers and body, with the default limits.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: Vec::new(), body: Vec::new(), limits: FetchLimits::default() }
    }

    /// Adds a header. `name` is in lower case.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Secret>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the body and its type.
    #[must_use]
    pub fn json(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self.header("content-type", "application/json")
    }
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRequest")
            .field("method", &self.method)
            .field("url", &self.url.split(['?', '#']).next().unwrap_or_default())
            .field("headers", &self.headers)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .field("limits", &self.limits)
            .finish()
    }
}

/// The body of an answer, piece by piece. It ends after the first error. Dropping it closes the connection.
pub type FetchBody = Pin<Box<dyn Stream<Item = Result<Vec<u8>, FetchError>> + Send>>;

/// An answer of any status.
pub struct FetchResponse {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: FetchBody,
}

impl FetchResponse {
    /// The value of the first header called `name`, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The whole body, of at most `most` bytes.
    ///
    /// # Errors
    /// The error that the body ended with; [`FetchError::TooLarge`] for a longer one.
    pub async fn whole(mut self, most: usize) -> Result<Vec<u8>, FetchError> {
        let mut bytes = Vec::new();
        while let Some(piece) = poll_fn(|context| self.body.as_mut().poll_next(context)).await {
            bytes.extend(piece?);
            if bytes.len() > most {
                return Err(FetchError::TooLarge(most));
            }
        }
        Ok(bytes)
    }
}

impl fmt::Debug for FetchResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Reason for which there is no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The name of the host does not resolve.
    #[error("the host cannot be found: {0}; check the address, and that of the proxy where one is set")]
    Dns(String),
    /// No connection to the host, or to the proxy.
    #[error("no connection to the host: {0}; check that it listens and that a proxy is set where one is needed")]
    Connect(String),
    /// The certificate is not accepted, or the handshake failed.
    #[error("no trusted connection to the host: {0}")]
    Tls(String),
    /// A limit of time was passed.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The other side closed the connection before the answer was complete.
    #[error("the connection was closed before the answer was complete: {0}")]
    Closed(String),
    /// The body has more bytes than allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The request is not sent: its address or a header cannot be used, or the host is not allowed.
    #[error("the request was not sent: {0}")]
    Denied(String),
}

impl FetchError {
    /// True if the request certainly did not reach the host.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Dns(_) | Self::Connect(_) | Self::Tls(_) | Self::Denied(_) => true,
            Self::Timeout(_) | Self::Closed(_) | Self::TooLarge(_) => false,
        }
    }
}

/// Port by which requests go out over HTTP.
///
/// Dropping the future or the body of its response closes the connection: that is how a request is canceled. Nothing
/// is repeated and no redirect is followed.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// [`FetchError`] when no answer came. An answer with an error status is an answer.
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError>;
}

/// Error of signing a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// There are no credentials, or they have expired.
    #[error("the request cannot be signed: {0}")]
    NoCredentials(String),
    /// The request has a form that cannot be signed.
    #[error("the request cannot be signed as it is: {0}")]
    Rejected(String),
}

/// Port that signs requests, for services that do not take a key in a header.
#[async_trait]
pub trait Sign: Send + Sync {
    /// Adds to `request` the headers that authenticate it. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// [`SignError`] when it could not be signed.
    async fn sign(&self, request: &mut FetchRequest) -> Result<(), SignError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_printed() {
        let request = FetchRequest::new(Method::Post, "https://models.example.com/v1?key=hush")
            .header("authorization", "Bearer hush")
            .json(b"hush".to_vec());
        let shown = format!("{request:?}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("https://models.example.com/v1") && shown.contains("authorization"), "{shown}");
    }
}
