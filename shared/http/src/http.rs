use dormouse_api::{Content, Request, Response};
use serde_json::Value;

/// The value of the query parameter `name`, decoded. Two of them are none: nobody can say which one counts.
pub fn query_value(request: &Request, name: &str) -> Option<String> {
    let mut values = request.query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
    let value = values.next().map(|(_, value)| crate::percent::decode(&value.replace('+', " ")))?;
    values.next().is_none().then_some(value)
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

impl From<HttpResponse> for Response {
    fn from(response: HttpResponse) -> Self {
        let HttpResponse { status, mut headers, body } = response;
        if status == 204 {
            headers.retain(|(name, _)| name != "content-type");
            return Self { status, headers, content: Content::Whole(Vec::new()) };
        }
        // It names its media type itself.
        let whole = Self { headers: Vec::new(), ..Self::json(status, &body) };
        headers.into_iter().fold(whole, |response, (name, value)| response.header(&name, value))
    }
}
