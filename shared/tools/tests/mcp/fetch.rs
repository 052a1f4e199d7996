//! HTTP out over a real client, on loopback.

use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{Fetch, FetchError, FetchLimits, FetchRequest, FetchResponse};
use futures::StreamExt;
use futures::stream;

/// HTTP out.
pub(crate) struct Loopback(reqwest::Client);

impl Loopback {
    pub(crate) fn new() -> Self {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        // A server that ends may not have closed its connections yet when the next request is sent.
        let client = client.pool_max_idle_per_host(0);
        Self(client.build().expect("a client"))
    }
}

fn failed(error: &reqwest::Error, limits: FetchLimits) -> FetchError {
    match error {
        error if error.is_timeout() => FetchError::Timeout(limits.total),
        error if error.is_connect() => FetchError::Connect(error.to_string()),
        error => FetchError::Closed(error.to_string()),
    }
}

#[async_trait]
impl Fetch for Loopback {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let limits = request.limits;
        let method = request.method.as_str().parse().expect("a method");
        let total = limits.total.min(Duration::from_secs(24 * 3600));
        let mut sent = self.0.request(method, &request.url).timeout(total).body(request.body);
        for (name, value) in &request.headers {
            sent = sent.header(name, value.expose());
        }
        let response = sent.send().await.map_err(|error| failed(&error, limits))?;
        let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        let status = response.status().as_u16();
        let body = stream::unfold((Some(response), 0), move |(response, read)| async move {
            let mut response = response?;
            match response.chunk().await {
                Ok(Some(piece)) if read + piece.len() > limits.most_bytes => {
                    Some((Err(FetchError::TooLarge(limits.most_bytes)), (None, read)))
                }
                Ok(Some(piece)) => Some((Ok(piece.to_vec()), (Some(response), read + piece.len()))),
                Ok(None) => None,
                Err(error) => Some((Err(failed(&error, limits)), (None, read))),
            }
        });
        Ok(FetchResponse { status, headers, body: body.boxed() })
    }
}
