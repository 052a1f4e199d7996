use std::time::Duration;

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

/// An HTTP response with a JSON body.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: serde_json::Value,
}
