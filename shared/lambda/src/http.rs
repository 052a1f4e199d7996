use std::time::Duration;

use serde_json::Value;

/// An HTTP request, free of who delivered it: API Gateway or the local gateway.
#[derive(Clone, Debug, Default)]
pub struct HttpRequest {
    /// Upper-case method.
    pub method: String,
    /// Decoded path without the stage, beginning with `/`.
    pub path: String,
    /// Raw query string without `?`.
    pub query: String,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as it came.
    pub body: Vec<u8>,
    /// How much time the worker has left for it.
    pub time_left: Option<Duration>,
}

impl HttpRequest {
    /// The first value of the header `name`, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The value of the query parameter `name`, decoded. Two of them are none: nobody can say which one counts.
    pub(crate) fn query_value(&self, name: &str) -> Option<String> {
        let mut values = self.query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
        let value = values.next().map(|(_, value)| crate::percent::decode(&value.replace('+', " ")))?;
        values.next().is_none().then_some(value)
    }
}

/// An HTTP response with a JSON body.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
}

impl HttpResponse {
    /// A response without headers.
    pub(crate) fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}
