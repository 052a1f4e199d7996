//! Requests on their way out, and answers by their heads.

use std::collections::HashMap;

use dormouse_ports::{FetchError, FetchLimits, FetchResponse, Method};
use futures::TryStreamExt;
use http::{HeaderName, HeaderValue};
use rmcp::transport::streamable_http_client::{AuthRequiredError, HttpStatusError, StreamableHttpError};

use super::{HttpFault, MOST_SHOWN};
use crate::text::cut;

/// A request beside what belongs to every request.
pub(super) struct SentRequest {
    pub(super) method: Method,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) limits: FetchLimits,
}

impl SentRequest {
    pub(super) fn new(method: Method, headers: &HashMap<HeaderName, HeaderValue>, limits: FetchLimits) -> Self {
        let header =
            |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
        let mut headers: Vec<_> = headers.iter().filter_map(header).collect();
        headers.sort();
        Self { method, headers, body: Vec::new(), limits }
    }

    pub(super) fn with(mut self, name: &str, value: Option<&str>) -> Self {
        self.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        self
    }
}

/// `response`, unless its status tells by itself what is wrong.
pub(super) fn judged(response: FetchResponse) -> Result<FetchResponse, HttpFault> {
    match response.status {
        401 | 403 => {
            let challenge = response.header("www-authenticate").unwrap_or_default();
            let text = format!("HTTP {}: {}", response.status, cut(challenge, MOST_SHOWN));
            Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(text)))
        }
        429 | 500..=599 => {
            let after = response.header("retry-after").map(str::to_owned);
            Err(StreamableHttpError::HttpStatus(HttpStatusError::new(response.status, after)))
        }
        _ => Ok(response),
    }
}

pub(super) async fn whole(mut response: FetchResponse, most: usize) -> Result<Vec<u8>, FetchError> {
    let mut body = Vec::new();
    while let Some(piece) = response.body.try_next().await? {
        body.extend_from_slice(&piece);
        if body.len() > most {
            return Err(FetchError::TooLarge(most));
        }
    }
    Ok(body)
}

pub(super) fn shown(body: &[u8]) -> String {
    cut(&String::from_utf8_lossy(body), MOST_SHOWN)
}

pub(super) fn media_type(response: &FetchResponse) -> String {
    let value = response.header("content-type").unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
