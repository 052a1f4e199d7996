//! A Lambda function that is called with an event: one signed request, for which the SDK's client would make the command
//! line half as large again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Clock, Fetch, FetchError, FetchLimits, FetchRequest, FetchResponse, Method, Sign, SignError};
use serde_json::Value;

use crate::connect::lambda_address;
use crate::refusal::with_remedy;
use crate::{AwsAccess, RequestSigner};

/// Time for handing an event over.
const WITHIN: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read; that to an event is empty.
const ANSWER_LIMIT: usize = 64 * 1024;
/// Bytes of an answer that is waited for: Lambda lets it have 6 MB.
const RESPONSE_LIMIT: usize = 8 * 1024 * 1024;

/// A version of a function. Cheap to clone.
#[derive(Clone)]
pub struct Function {
    fetch: Arc<dyn Fetch>,
    signer: Arc<dyn Sign>,
    /// Address of its invocations.
    address: String,
}

/// Reason for which a function was not called. After [`Unknown`](Self::Unknown) it may have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// Lambda refused: its code, and its sentence.
    #[error("{code}: {sentence}")]
    Refused {
        /// As the service names it, such as `ResourceNotFoundException`; the status where it names nothing.
        code: String,
        /// What it says about it.
        sentence: String,
        /// The status of its answer.
        status: u16,
    },
    /// The request could not be signed.
    #[error("the request cannot be signed: {0}")]
    Signature(#[from] SignError),
    /// No answer came.
    #[error("no answer came: {0}")]
    Unknown(#[from] FetchError),
    /// The function was called, and failed: what it says about it.
    #[error("it failed: {0}")]
    Failed(String),
}

impl Function {
    /// The function `name` at `qualifier`, an alias or a version, in the region of `access` or at its endpoint for Lambda.
    pub fn new(access: &AwsAccess, name: &str, qualifier: &str, fetch: Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Self {
        Self::unqualified(access, &format!("{name}%3A{qualifier}"), fetch, clock)
    }

    /// The function `name` as it was deployed last.
    pub fn unqualified(access: &AwsAccess, name: &str, fetch: Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Self {
        let signer = Arc::new(RequestSigner::new(access, "lambda", clock));
        let address = format!("{}/2015-03-31/functions/{name}/invocations", lambda_address(access));
        Self { fetch, signer, address }
    }

    /// Calls the function with `event`, a JSON document, and waits for its answer for as long as `within`.
    ///
    /// # Errors
    /// [`FunctionError`]. The request is sent once; after [`Unknown`](FunctionError::Unknown) and
    /// [`Failed`](FunctionError::Failed) the function may have done anything.
    pub async fn call(&self, event: Vec<u8>, within: Duration) -> Result<Vec<u8>, FunctionError> {
        let request = FetchRequest::new(Method::Post, self.address.clone()).json(event);
        let mut request = request.header("x-amz-invocation-type", "RequestResponse");
        request.limits = FetchLimits { total: within, idle: within, most_bytes: RESPONSE_LIMIT };
        self.signer.sign(&mut request).await?;
        let answer = self.fetch.fetch(request).await?;
        if !(200..=299).contains(&answer.status) {
            return Err(refused(answer).await?);
        }
        let failed = answer.header("x-amz-function-error").is_some();
        let body = answer.whole(RESPONSE_LIMIT).await?;
        if failed {
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            return Err(FunctionError::Failed(said["errorMessage"].as_str().unwrap_or("it says nothing").to_owned()));
        }
        Ok(body)
    }

    /// Hands `event` over. Lambda keeps it, calls the function, and tries again as it does with every event.
    ///
    /// # Errors
    /// [`FunctionError`], after which the event is not kept, or it is not known. The request is sent once.
    pub async fn send(&self, event: &Value) -> Result<(), FunctionError> {
        let request = FetchRequest::new(Method::Post, self.address.clone()).json(event.to_string().into_bytes());
        let mut request = request.header("x-amz-invocation-type", "Event");
        request.limits = FetchLimits { total: WITHIN, idle: WITHIN, most_bytes: ANSWER_LIMIT };
        self.signer.sign(&mut request).await?;
        let answer = self.fetch.fetch(request).await?;
        match answer.status {
            200..=299 => Ok(()),
            _ => Err(refused(answer).await?),
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn refused(answer: FetchResponse) -> Result<FunctionError, FetchError> {
    let named = answer.header("x-amzn-errortype").and_then(|text| text.split(':').next()).map(str::to_owned);
    let status = answer.status;
    let code = named.unwrap_or_else(|| status.to_string());
    let said: Value = serde_json::from_slice(&answer.whole(ANSWER_LIMIT).await?).unwrap_or_default();
    let sentence = said["Message"].as_str().or_else(|| said["message"].as_str()).unwrap_or("it says nothing");
    let sentence = with_remedy(&code, sentence);
    Ok(FunctionError::Refused { code, sentence, status })
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::Credentials;
    use dormouse_testkit::{ManualClock, ScriptedAnswer, ScriptedFetch};
    use serde_json::json;

    use super::*;
    use crate::Endpoints;

    fn function(endpoint: Option<&str>) -> (Function, ScriptedFetch) {
        let fetch = ScriptedFetch::default();
        let access = AwsAccess {
            region: "eu-central-1".to_owned(),
            credentials: Credentials::new("AKIDEXAMPLE", "hush-hush", None, None, "test"),
            endpoints: Endpoints { lambda: endpoint.map(str::to_owned), ..Endpoints::default() },
        };
        let clock = Arc::new(ManualClock::default());
        (Function::new(&access, "dormouse-dev-wakeup", "live", Arc::new(fetch.clone()), clock), fetch)
    }

    #[tokio::test]
    async fn an_event_is_handed_over_with_a_signature() {
        let (function, fetch) = function(None);
        fetch.answer(ScriptedAnswer::pieces(202, [""]));
        assert_eq!(function.send(&json!({ "a": 1 })).await, Ok(()));
        let request = &fetch.requests()[0];
        let functions = "https://lambda.eu-central-1.amazonaws.com/2015-03-31/functions";
        assert_eq!(request.url, format!("{functions}/dormouse-dev-wakeup%3Alive/invocations"));
        assert_eq!(request.body, br#"{"a":1}"#);
        let header = |name: &str| {
            request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose().to_owned())
        };
        assert_eq!(header("x-amz-invocation-type").as_deref(), Some("Event"));
        assert!(header("authorization").is_some_and(|text| text.contains("/eu-central-1/lambda/aws4_request")));
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_words_of_the_service() {
        let (function, fetch) = function(Some("http://127.0.0.1:4566/"));
        let body = r#"{"Message":"Function not found","Type":"User"}"#;
        fetch.answer(ScriptedAnswer::pieces(404, [body]).header("x-amzn-errortype", "ResourceNotFoundException:http"));
        fetch.answer(ScriptedAnswer::pieces(503, ["<html>"]));
        let missing = function.send(&json!({})).await.expect_err("a refusal");
        assert_eq!(missing.to_string(), "ResourceNotFoundException: Function not found");
        assert!(
            fetch.requests()[0].url.starts_with("http://127.0.0.1:4566/2015-03-31/"),
            "{}",
            fetch.requests()[0].url
        );
        let garbled = function.send(&json!({})).await.expect_err("a refusal");
        assert_eq!(garbled.to_string(), "503: it says nothing");
    }
}
