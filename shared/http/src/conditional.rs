//! Requirements of HTTP on every answer to a read, from either API (RFC 9110): `HEAD`, `ETag` with `If-None-Match`, and
//! ranges of content.

use dormouse_ports::limits::ANSWER;
use dormouse_protocol::{ErrorCode, ProtocolError};
use sha2::{Digest, Sha256};

use crate::{Content, Request, Response};

/// Form of answer that a request asks for. A `HEAD` is served as the `GET` that it stands for; a stream has none (405).
///
/// A whole answer to a read carries an `ETag`, the SHA-256 of its bytes, so that of an artifact's content is its
/// `sha256`. Content of artifacts is also given in ranges, of at most [`ANSWER`] bytes; whole only if it has no more.
#[derive(Debug)]
pub(crate) struct ConditionalRead {
    is_head: bool,
    is_read: bool,
    is_content: bool,
    known: Option<String>,
    range: Option<String>,
    /// The tag of the content of which the range is to be.
    range_of: Option<String>,
}

impl ConditionalRead {
    /// That of `request`, which becomes a `GET` where it is a `HEAD`.
    pub(crate) fn of(request: &mut Request) -> Self {
        let is_head = request.method == "HEAD";
        if is_head {
            "GET".clone_into(&mut request.method);
        }
        let is_read = request.method == "GET";
        let is_content = is_read && request.path.starts_with("/v1/artifacts/") && request.path.ends_with("/content");
        let header = |name| request.header(name).map(str::to_owned);
        let (known, range, range_of) = (header("if-none-match"), header("range"), header("if-range"));
        Self { is_head, is_read, is_content, known, range, range_of }
    }

    /// `response`, in the form that the request asks for.
    #[must_use]
    pub(crate) fn answer(&self, response: Response) -> Response {
        let response = match &response.content {
            Content::Whole(bytes) if self.is_read && response.status == 200 => {
                let tag = tag_of(bytes);
                self.conditional(response.header("etag", tag.clone()), &tag)
            }
            Content::Whole(_) => response,
            Content::Live(_) if self.is_head => {
                let empty = Content::Whole(Vec::new());
                Response { status: 405, content: empty, ..response }.header("allow", "GET, OPTIONS")
            }
            Content::Live(_) => response,
        };
        if self.is_head { without_body(response) } else { response }
    }

    fn conditional(&self, response: Response, tag: &str) -> Response {
        if self.known.as_deref().is_some_and(|known| names(known, tag)) {
            let headers = response.headers.into_iter().filter(|(name, _)| name != "content-type").collect();
            return Response { status: 304, headers, content: Content::Whole(Vec::new()) };
        }
        if self.is_content { self.ranged(response, tag) } else { response }
    }

    /// The range of content that is asked for. A request for several, or for one of other content than that of `tag`, is
    /// answered as one for none.
    fn ranged(&self, response: Response, tag: &str) -> Response {
        let Response { status, headers, content: Content::Whole(bytes) } = response else { return response };
        let response = |status, bytes| {
            let content = Content::Whole(bytes);
            Response { status, headers: headers.clone(), content }.header("accept-ranges", "bytes")
        };
        let length = bytes.len();
        let is_of_it = self.range_of.as_deref().is_none_or(|range_of| range_of.trim() == tag);
        match self.range.as_deref().filter(|_| is_of_it).and_then(|range| ByteRange::of(range, length)) {
            Some(ByteRange::Some { first, last }) => {
                let last = last.min(first.saturating_add(ANSWER - 1));
                let part = bytes.get(first..=last).unwrap_or_default().to_vec();
                response(206, part).header("content-range", format!("bytes {first}-{last}/{length}"))
            }
            Some(ByteRange::Beyond) => {
                let message = format!("the content has {length} bytes, and none of those that are asked for");
                refusal(416, &ProtocolError::invalid("range", message), headers)
                    .header("content-range", format!("bytes */{length}"))
            }
            None if length > ANSWER => {
                let message = format!(
                    "the content has {length} bytes, and one answer at most {ANSWER}: ask for ranges, Range: bytes=0-"
                );
                let error = ProtocolError::new(ErrorCode::PayloadTooLarge, message).with_detail("bytes", length);
                refusal(413, &error, headers).header("accept-ranges", "bytes")
            }
            None => response(status, bytes),
        }
    }
}

/// Bytes of a content, from 0.
#[derive(Debug, PartialEq, Eq)]
enum ByteRange {
    Some {
        first: usize,
        last: usize,
    },
    /// Behind its end.
    Beyond,
}

impl ByteRange {
    /// Range of `length` bytes that the header `text` asks for; `None` if it holds nothing that is understood, or asks
    /// for several.
    fn of(text: &str, length: usize) -> Option<Self> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
        let end = length.checked_sub(1);
        let (first, last) = match (first.trim(), last.trim()) {
            ("", tail) => match tail.parse::<usize>().ok()? {
                0 => return Some(Self::Beyond),
                tail => (length.saturating_sub(tail), end),
            },
            (first, "") => (first.parse().ok()?, end),
            (first, last) => {
                let first = first.parse().ok()?;
                let last = last.parse::<usize>().ok()?;
                if last < first {
                    return None;
                }
                (first, end.map(|end| end.min(last)))
            }
        };
        Some(last.filter(|last| first <= *last).map_or(Self::Beyond, |last| Self::Some { first, last }))
    }
}

/// A refusal with the `headers` of the answer that it takes the place of.
fn refusal(status: u16, error: &ProtocolError, headers: Vec<(String, String)>) -> Response {
    let id = headers.iter().find(|(name, _)| name == "x-request-id").map_or("", |(_, id)| id);
    let body = serde_json::json!(error.clone().into_response(id));
    let told = headers.into_iter().filter(|(name, _)| name != "content-type" && name != "etag");
    told.fold(Response::json(status, &body), |response, (name, value)| response.header(&name, value))
}

/// The same without a body, but with its length.
fn without_body(response: Response) -> Response {
    let length = match &response.content {
        Content::Whole(bytes) => bytes.len(),
        Content::Live(_) => 0,
    };
    let empty = Response { content: Content::Whole(Vec::new()), ..response };
    if matches!(empty.status, 204 | 304) { empty } else { empty.header("content-length", length.to_string()) }
}

fn tag_of(bytes: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Sha256::digest(bytes)))
}

/// True if the header `known` names `tag`, or any.
fn names(known: &str, tag: &str) -> bool {
    known.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, path: &str, headers: &[(&str, &str)]) -> ConditionalRead {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut request = Request { method: method.to_owned(), path: path.to_owned(), headers, ..Request::default() };
        let conditional = ConditionalRead::of(&mut request);
        assert_eq!(request.method, if method == "HEAD" { "GET" } else { method });
        conditional
    }

    fn content(bytes: &[u8]) -> Response {
        Response::new(200, "text/plain", Content::Whole(bytes.to_vec())).header("x-request-id", "r")
    }

    fn told(response: Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
        let Content::Whole(bytes) = response.content else { panic!("it streams") };
        (response.status, response.headers, bytes)
    }

    fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
        headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    const CONTENT: &str = "/v1/artifacts/a/content";
    const ABC: &str = "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";

    #[test]
    fn a_head_is_a_get_without_its_body() {
        let (status, headers, bytes) = told(asked("GET", "/v1", &[]).answer(content(b"abc")));
        assert_eq!((status, header(&headers, "etag"), bytes.as_slice()), (200, Some(ABC), &b"abc"[..]));
        let (status, head, bytes) = told(asked("HEAD", "/v1", &[]).answer(content(b"abc")));
        assert_eq!((status, header(&head, "content-length"), bytes), (200, Some("3"), Vec::new()));
        assert_eq!(head[..headers.len()], headers);
        let live = Response::new(200, "text/event-stream", Content::Live(Box::pin(futures::stream::pending())));
        let (status, head, _) = told(asked("HEAD", "/v1/events/stream", &[]).answer(live));
        assert_eq!((status, header(&head, "allow")), (405, Some("GET, OPTIONS")));
    }

    #[test]
    fn what_is_known_is_not_sent_again() {
        for known in [ABC, "*", &format!("\"x\", W/{ABC}")] {
            for method in ["GET", "HEAD"] {
                let (status, headers, bytes) =
                    told(asked(method, "/v1", &[("if-none-match", known)]).answer(content(b"abc")));
                assert_eq!((status, header(&headers, "etag"), bytes), (304, Some(ABC), Vec::new()));
                assert_eq!((header(&headers, "content-type"), header(&headers, "content-length")), (None, None));
            }
        }
        assert_eq!(told(asked("GET", "/v1", &[("if-none-match", "\"x\"")]).answer(content(b"abc"))).0, 200);
        assert_eq!(told(asked("POST", "/v1", &[("if-none-match", "*")]).answer(content(b"abc"))).0, 200);
    }

    #[test]
    fn content_is_given_in_ranges() {
        for (range, status, said, of) in [
            ("bytes=0-0", 206, "0", "bytes 0-0/10"),
            ("bytes=3-5", 206, "345", "bytes 3-5/10"),
            ("bytes=8-99", 206, "89", "bytes 8-9/10"),
            ("bytes=7-", 206, "789", "bytes 7-9/10"),
            ("bytes=-2", 206, "89", "bytes 8-9/10"),
            ("bytes=-99", 206, "0123456789", "bytes 0-9/10"),
        ] {
            let (given, headers, bytes) =
                told(asked("GET", CONTENT, &[("range", range)]).answer(content(b"0123456789")));
            assert_eq!((given, bytes.as_slice()), (status, said.as_bytes()), "{range}");
            assert_eq!(header(&headers, "content-range"), Some(of), "{range}");
        }
        for odd in ["bytes=5-3", "bytes=a-", "lines=1-2", "bytes=0-1,4-5"] {
            assert_eq!(told(asked("GET", CONTENT, &[("range", odd)]).answer(content(b"0123456789"))).0, 200, "{odd}");
        }
        for beyond in ["bytes=10-", "bytes=-0", "bytes=99-100"] {
            let (status, headers, _) = told(asked("GET", CONTENT, &[("range", beyond)]).answer(content(b"0123456789")));
            assert_eq!((status, header(&headers, "content-range")), (416, Some("bytes */10")), "{beyond}");
        }
        assert_eq!(told(asked("GET", "/v1", &[("range", "bytes=0-0")]).answer(content(b"0123456789"))).0, 200);
    }

    #[test]
    fn a_range_of_other_content_is_not_given() {
        let weak = format!("W/{ABC}");
        for (range_of, status, said) in [
            (ABC, 206, "b"),
            (weak.as_str(), 200, "abc"),
            ("\"x\"", 200, "abc"),
            ("Sat, 29 Oct 2033 19:43:31 GMT", 200, "abc"),
        ] {
            let headers = [("range", "bytes=1-1"), ("if-range", range_of)];
            let (given, _, bytes) = told(asked("GET", CONTENT, &headers).answer(content(b"abc")));
            assert_eq!((given, bytes.as_slice()), (status, said.as_bytes()), "{range_of}");
        }
    }

    #[test]
    fn large_content_is_given_in_ranges_only() {
        let large = vec![7; ANSWER + 10];
        let (status, headers, body) = told(asked("GET", CONTENT, &[]).answer(content(&large)));
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((status, header(&headers, "content-type")), (413, Some("application/json")));
        assert_eq!((&body["error"]["code"], &body["error"]["request_id"]), (&"payload_too_large".into(), &"r".into()));
        assert_eq!(body["error"]["details"]["bytes"], ANSWER + 10);
        let (status, headers, bytes) = told(asked("GET", CONTENT, &[("range", "bytes=0-")]).answer(content(&large)));
        assert_eq!((status, bytes.len()), (206, ANSWER));
        let of = format!("bytes 0-{}/{}", ANSWER - 1, ANSWER + 10);
        assert_eq!(header(&headers, "content-range"), Some(of.as_str()));
    }
}
