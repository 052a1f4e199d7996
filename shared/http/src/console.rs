//! The files of the console.

use dormouse_console::{asset, policy};
use dormouse_protocol::ProtocolError;

use crate::origins::origin_of;
use crate::{Content, Request, Response};

/// Methods of files.
const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Answers a request for a file of the console, whose streams may come from `stream_url`.
///
/// # Errors
/// 404 for a file that there is none of, 405 for a method that files do not take.
pub(crate) fn answer(request: &Request, stream_url: Option<&str>) -> Result<Response, ProtocolError> {
    match request.method.as_str() {
        "GET" => {}
        "OPTIONS" => return Ok(Response::empty().header("allow", METHODS.join(", "))),
        _ => return Err(ProtocolError::method_not_allowed(&METHODS)),
    }
    let asset = asset(&request.path).ok_or_else(ProtocolError::no_such_route)?;
    let others: Vec<&str> = stream_url.and_then(origin_of).into_iter().collect();
    let response = Response::new(200, asset.content_type, Content::Whole(asset.bytes.to_vec()));
    Ok(response
        .header("content-security-policy", policy(&others))
        .header("cross-origin-opener-policy", "same-origin")
        .header("cross-origin-resource-policy", "same-origin")
        .header("permissions-policy", "camera=(), geolocation=(), microphone=()"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, path: &str) -> Request {
        Request { method: method.to_owned(), path: path.to_owned(), ..Request::default() }
    }

    #[test]
    fn a_policy_names_the_streams_alone() {
        let response = answer(&asked("GET", "/console/x"), Some("https://s.example/y; script-src *")).expect("a page");
        let told = response.headers.iter().find(|(name, _)| name == "content-security-policy").expect("a policy");
        assert!(told.1.contains("connect-src 'self' https://s.example;") && !told.1.contains('*'), "{}", told.1);
        for odd in ["javascript://x", "https://", "x", "https://a b"] {
            assert_eq!(origin_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn files_are_only_read() {
        assert_eq!(answer(&asked("POST", "/console"), None).expect_err("no write").status(), 405);
        assert_eq!(answer(&asked("GET", "/console/none.js"), None).expect_err("no file").status(), 404);
        assert_eq!(answer(&asked("OPTIONS", "/console"), None).expect("methods").status, 204);
    }
}
