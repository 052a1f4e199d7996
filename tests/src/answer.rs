use dormouse_http::{Content, Response};
use futures::StreamExt;
use serde_json::Value;

/// A response as its client has it in the end.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null where there is none, text where it is no JSON.
    pub body: Value,
}

impl HttpAnswer {
    /// All of `response`, a stream to its end.
    pub async fn of(response: Response) -> Self {
        let Response { status, headers, content } = response;
        let bytes = match content {
            Content::Whole(bytes) => bytes,
            Content::Live(pieces) => pieces.concat().await,
        };
        let text = || match bytes.as_slice() {
            [] => Value::Null,
            bytes => String::from_utf8_lossy(bytes).into_owned().into(),
        };
        Self { status, headers, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) }
    }
}
