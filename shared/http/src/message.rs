use std::fmt;
use std::time::Duration;

use futures::stream::BoxStream;
use serde_json::Value;

use crate::{Findings, percent};

/// An HTTP request, free of who delivered it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Upper-case method.
    pub method: String,
    /// Decoded path without a stage, beginning with `/`.
    pub path: String,
    /// Raw query string without `?`.
    pub query: String,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// Caller that sent it, where the deliverer has verified that.
    pub caller: Option<String>,
    /// The body as it came.
    pub body: Vec<u8>,
    /// Time that the worker has left for it.
    pub time_left: Option<Duration>,
    /// Findings about it while it is served. Another request has its own.
    pub findings: Findings,
}

impl Request {
    /// The value of the query parameter `name`, decoded. Two of them are none: it is not known which one counts.
    pub fn query_value(&self, name: &str) -> Option<String> {
        let mut values = self.query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
        let value = values.next().map(|(_, value)| percent::decode(&value.replace('+', " ")))?;
        values.next().is_none().then_some(value)
    }

    /// The first of `names`, which are in lower case, of which the request has more than one header.
    pub(crate) fn doubled(&self, names: &[&'static str]) -> Option<&'static str> {
        let count = |name: &str| self.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name)).count();
        names.iter().find(|name| count(name) > 1).copied()
    }

    /// The first value of the header `name`, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

/// Body of a response.
pub enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// Pieces, made while they are taken. The end of the stream is the end of the response.
    Live(BoxStream<'static, Vec<u8>>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Live(_) => f.write_str("Live"),
        }
    }
}

/// An HTTP response, free of who sends it.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub content: Content,
}

impl Response {
    /// A response with `content` of the media type `content_type`.
    pub(crate) fn new(status: u16, content_type: &str, content: Content) -> Self {
        Self { status, headers: Vec::new(), content }.header("content-type", content_type)
    }

    /// A response with the body `value`.
    pub fn json(status: u16, value: &Value) -> Self {
        Self::new(status, "application/json", Content::Whole(value.to_string().into_bytes()))
    }

    /// A response without a body (204).
    pub(crate) fn empty() -> Self {
        Self { status: 204, headers: Vec::new(), content: Content::Whole(Vec::new()) }
    }

    /// The same with one header more; `name` in lower case.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}
