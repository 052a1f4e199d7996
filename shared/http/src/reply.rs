use serde_json::Value;

use crate::Response;

/// Answer on the routes of turns: always JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TurnReply {
    pub(crate) status: u16,
    /// Header names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl TurnReply {
    /// A reply without headers.
    pub(crate) fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

impl From<TurnReply> for Response {
    fn from(reply: TurnReply) -> Self {
        let TurnReply { status, headers, body } = reply.fit();
        let response = if status == 204 { Self::empty() } else { Self::json(status, &body) };
        headers.into_iter().fold(response, |response, (name, value)| response.header(&name, value))
    }
}
