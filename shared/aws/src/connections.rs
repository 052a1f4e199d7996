//! WebSockets that API Gateway holds: one signed request for each frame, for which another client of the SDK would have to
//! be linked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{
    Clock, ConnectionError, Connections, Fetch, FetchLimits, FetchRequest, FetchResponse, Method, Sign,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{AwsAccess, RequestSigner};

/// Time for one frame.
const WITHIN: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER_LIMIT: usize = 16 * 1024;
/// Status of a request about a connection that is not there.
const GONE: u16 = 410;

/// The connections of a stage of a WebSocket API.
pub struct ApiGatewayConnections {
    fetch: Arc<dyn Fetch>,
    signer: Arc<dyn Sign>,
    stage_url: String,
}

impl ApiGatewayConnections {
    /// Those of the stage at `stage_url`, like `https://abc.execute-api.eu-central-1.amazonaws.com/live`.
    pub fn new(access: &AwsAccess, stage_url: &str, fetch: Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Self {
        let signer = Arc::new(RequestSigner::new(access, "execute-api", clock));
        Self { fetch, signer, stage_url: stage_url.trim_end_matches('/').to_owned() }
    }

    async fn ask(&self, method: Method, id: &str, body: Vec<u8>) -> Result<(), ConnectionError> {
        let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
        let mut request = FetchRequest::new(method, format!("{}/@connections/{id}", self.stage_url));
        request.body = body;
        request.limits = FetchLimits { total: WITHIN, idle: WITHIN, most_bytes: ANSWER_LIMIT };
        self.signer.sign(&mut request).await.map_err(|error| ConnectionError::Refused(error.to_string()))?;
        let answer =
            self.fetch.fetch(request).await.map_err(|error| ConnectionError::Unavailable(error.to_string()))?;
        match answer.status {
            200..=299 => Ok(()),
            GONE => Err(ConnectionError::Gone),
            429 | 500..=599 => Err(ConnectionError::Unavailable(said(answer).await)),
            _ => Err(ConnectionError::Refused(said(answer).await)),
        }
    }
}

/// Status and words of a refusal.
async fn said(answer: FetchResponse) -> String {
    let status = answer.status;
    let words = answer.whole(ANSWER_LIMIT).await.unwrap_or_default();
    format!("{status}: {}", String::from_utf8_lossy(&words))
}

#[async_trait]
impl Connections for ApiGatewayConnections {
    async fn send(&self, id: &str, frame: &str) -> Result<(), ConnectionError> {
        self.ask(Method::Post, id, frame.as_bytes().to_vec()).await
    }

    async fn close(&self, id: &str) -> Result<(), ConnectionError> {
        match self.ask(Method::Delete, id, Vec::new()).await {
            Err(ConnectionError::Gone) => Ok(()),
            closed => closed,
        }
    }
}

impl fmt::Debug for ApiGatewayConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiGatewayConnections").field("stage_url", &self.stage_url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::Credentials;
    use dormouse_ports::FetchError;
    use dormouse_testkit::{ManualClock, ScriptedAnswer, ScriptedFetch};

    use super::*;
    use crate::Endpoints;

    const ID: &str = "L0SM9cOFvHcCIhw=";

    fn connections() -> (ApiGatewayConnections, ScriptedFetch) {
        let fetch = ScriptedFetch::default();
        let access = AwsAccess {
            region: "eu-central-1".to_owned(),
            credentials: Credentials::new("AKIDEXAMPLE", "hush-hush", None, None, "test"),
            endpoints: Endpoints::default(),
        };
        let start = "2027-01-15T08:00:00Z".parse().expect("an instant");
        let clock = Arc::new(ManualClock::starting_at(start));
        let url = "https://abc.execute-api.eu-central-1.amazonaws.com/live/";
        (ApiGatewayConnections::new(&access, url, Arc::new(fetch.clone()), clock), fetch)
    }

    /// The signature is the one that botocore makes of the same request.
    #[tokio::test]
    async fn a_frame_is_one_signed_request() {
        let (connections, fetch) = connections();
        fetch.answer(ScriptedAnswer::pieces(200, [""]));
        connections.send(ID, r#"{"type":"ping"}"#).await.expect("it is sent");
        let request = &fetch.requests()[0];
        let place = "https://abc.execute-api.eu-central-1.amazonaws.com/live/@connections/L0SM9cOFvHcCIhw%3D";
        assert_eq!((request.method.as_str(), request.url.as_str()), ("POST", place));
        assert_eq!(request.body, br#"{"type":"ping"}"#);
        let named = request.headers.iter().find(|(name, _)| name == "authorization").expect("a signature");
        let signature = "Signature=5fb0e6fb7c57ec50bcd5ac792f4757bfc244f4dc9a71828d73ca1f0fe5ded673";
        assert!(named.1.expose().ends_with(signature), "{}", named.1.expose());
    }

    #[tokio::test]
    async fn what_is_gone_is_told_from_what_is_busy_and_from_what_is_forbidden() {
        let (connections, fetch) = connections();
        for status in [410, 429, 500, 403, 413] {
            fetch.answer(ScriptedAnswer::pieces(status, ["no"]));
        }
        fetch.fail(FetchError::Closed("cut".to_owned()));
        let mut refusals = Vec::new();
        for _ in 0..6 {
            refusals.push(connections.send(ID, "{}").await.expect_err("a refusal"));
        }
        let unavailable = |text: &str| ConnectionError::Unavailable(text.to_owned());
        let refused = |text: &str| ConnectionError::Refused(text.to_owned());
        assert_eq!(refusals[..3], [ConnectionError::Gone, unavailable("429: no"), unavailable("500: no")]);
        assert_eq!(refusals[3..5], [refused("403: no"), refused("413: no")]);
        assert!(matches!(refusals[5], ConnectionError::Unavailable(_)));
    }

    #[tokio::test]
    async fn what_is_closed_stays_closed() {
        let (connections, fetch) = connections();
        for status in [204, 410, 500] {
            fetch.answer(ScriptedAnswer::pieces(status, [""]));
        }
        let mut closed = Vec::new();
        for _ in 0..3 {
            closed.push(connections.close(ID).await.is_ok());
        }
        assert_eq!(closed, [true, true, false]);
        assert_eq!(fetch.requests()[0].method, Method::Delete);
    }
}
