//! Reads bodies and ids. The sender of something wrong is told what, where, and what it should be.

use dormouse_json::{Excess, ReadError};
use dormouse_ports::limits::ID;
use dormouse_ports::{Category, Map};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Request;
use crate::refusal::RequestRefusal;

/// The body of `request` as a JSON object of at most `limit` bytes within the [bounds](dormouse_json::ENTRY) of what
/// comes in; an empty body is an empty object.
pub(crate) fn object(request: &Request, limit: usize) -> Result<Map, RequestRefusal> {
    let size = request.body.len();
    if size > limit {
        let message = format!("the body has {size} bytes; the limit is {limit} bytes");
        return Err(RequestRefusal::new(Category::RequestTooLarge, message));
    }
    if request.body.is_empty() {
        return Ok(Map::new());
    }
    if is_encoded(request) {
        let message = "send the body as it is, neither compressed nor encoded (content-encoding)";
        return Err(RequestRefusal::invalid(message).status(415));
    }
    if !is_json(request.header("content-type").unwrap_or_default()) {
        return Err(RequestRefusal::invalid("a body needs content-type: application/json").status(415));
    }
    let text = std::str::from_utf8(&request.body).map_err(|error| {
        RequestRefusal::invalid(format!("the body is no UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    match dormouse_json::read_distinct(text.as_bytes(), dormouse_json::ENTRY) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(RequestRefusal::invalid(format!("the body must be a JSON object, not {}", kind(&other)))),
        Err(ReadError::Excess(excess @ (Excess::Depth(_) | Excess::Name))) => {
            Err(RequestRefusal::invalid(format!("the body: {excess}")))
        }
        Err(ReadError::Excess(excess @ Excess::Values(_))) => {
            Err(RequestRefusal::new(Category::RequestTooLarge, format!("the body: {excess}")))
        }
        Err(ReadError::Json(error)) if error.is_data() => Err(RequestRefusal::invalid(format!("the body: {error}"))),
        Err(ReadError::Json(error)) => Err(RequestRefusal::invalid(format!("the body is no JSON: {error}"))),
    }
}

/// True if the body of `request` is compressed, or else not what its sender wrote.
pub(crate) fn is_encoded(request: &Request) -> bool {
    let coding = request.header("content-encoding").unwrap_or_default().trim();
    !request.body.is_empty() && !coding.is_empty() && !coding.eq_ignore_ascii_case("identity")
}

/// `object` as a `T`; an error names the field.
pub(crate) fn typed<T: DeserializeOwned>(object: Map) -> Result<T, RequestRefusal> {
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner();
        RequestRefusal::invalid(if path == "." { reason.to_string() } else { format!("field `{path}`: {reason}") })
    })
}

/// Checks an id that a caller chose.
pub(crate) fn check_id(name: &str, id: &str) -> Result<(), RequestRefusal> {
    if is_id(id) {
        return Ok(());
    }
    Err(RequestRefusal::invalid(format!("`{name}` must have 1 to {ID} characters, all of them visible ASCII")))
}

/// Checks the id of a signal, as the sender gives it.
pub(crate) fn check_signal_id(id: &str) -> Result<(), RequestRefusal> {
    if is_signal_id(id) {
        return Ok(());
    }
    Err(RequestRefusal::invalid(format!("`signal_id` must have 1 to {ID} bytes")))
}

/// True if a wait may have the id `text` for its signal: authors make them of numbers and names that others write, with
/// spaces and letters of any language.
pub(crate) fn is_signal_id(text: &str) -> bool {
    (1..=ID).contains(&text.len())
}

pub(crate) fn is_id(text: &str) -> bool {
    (1..=ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::TurnReply;

    fn post(content_type: &str, body: &[u8]) -> Request {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Request { headers, body: body.to_vec(), ..Request::default() }
    }

    fn refused(content_type: &str, body: &[u8]) -> (u16, String) {
        let refusal = object(&post(content_type, body), 20).expect_err("refused");
        let answer = TurnReply::from(refusal);
        (answer.status, answer.body["error"]["message"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn objects_are_read() {
        for content_type in ["application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json"] {
            assert_eq!(object(&post(content_type, br#"{"a":1}"#), 20).expect("an object")["a"], 1);
        }
        assert!(object(&post("", b""), 20).expect("an object").is_empty());
    }

    #[test]
    fn whatever_is_wrong_is_said() {
        let json = "application/json";
        assert_eq!(refused(json, &[b' '; 21]), (413, "the body has 21 bytes; the limit is 20 bytes".to_owned()));
        assert_eq!(refused("text/plain", b"{}").0, 415);
        assert_eq!(refused("", b"{}").0, 415);
        assert_eq!(refused(json, b"{\"a\":\xff}"), (400, "the body is no UTF-8 from byte 5 on".to_owned()));
        assert_eq!(refused(json, b"[1]"), (400, "the body must be a JSON object, not an array".to_owned()));
        let (status, message) = refused(json, br#"{"a": 1, "a": 2}"#);
        assert!(status == 400 && message.starts_with("the body: the name `a` stands twice"), "{message}");
        let (status, message) = refused(json, b"{\n  \"a\" 1}");
        assert!(status == 400 && message.contains("line 2 column 7"), "{message}");
    }

    #[test]
    fn a_body_that_is_compressed_is_called_so() {
        let coded = |coding: &str, body: &[u8]| {
            let mut request = post("application/json", body);
            request.headers.push(("content-encoding".to_owned(), coding.to_owned()));
            object(&request, 20).map_err(|refusal| TurnReply::from(refusal).status)
        };
        assert_eq!(coded("gzip", b"\x1f\x8b\x08\x00").expect_err("compressed"), 415);
        assert!(coded("identity", b"{}").is_ok() && coded("gzip", b"").is_ok());
    }

    #[test]
    fn ids_are_short_and_visible() {
        assert!(is_id("order/7:a") && is_id(&"x".repeat(256)));
        for id in ["", "a b", "ü", "a\n", &"x".repeat(257)] {
            assert!(!is_id(id), "{id}");
        }
        assert!(is_signal_id("bill-Köln 7/2027") && is_signal_id(&"x".repeat(256)));
        assert!(!is_signal_id("") && !is_signal_id(&"x".repeat(257)));
    }
}
