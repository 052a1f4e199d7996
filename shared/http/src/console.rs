//! The files of the console.

use dormouse_api::identity::Issuers;
use dormouse_console::{asset, policy};
use dormouse_protocol::ProtocolError;
use serde_json::{Value, json};

use crate::origins::origin_of;
use crate::{Content, Request, Response};

/// Methods of files.
const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Path at which the page asks how people sign in.
const SIGN_IN: &str = "/console/sign-in.json";

/// What the console is served with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Console<'a> {
    /// Address of the streams, if they do not come from here.
    pub(crate) stream_url: Option<&'a str>,
    /// The issuers that are trusted.
    pub(crate) issuers: Option<&'a Issuers>,
}

impl Console<'_> {
    /// Answers a request for a file of the console, or for how people sign in to it.
    ///
    /// # Errors
    /// 404 for a file that there is none of, 405 for a method that files do not take.
    pub(crate) fn answer(&self, request: &Request) -> Result<Response, ProtocolError> {
        match request.method.as_str() {
            "GET" => {}
            "OPTIONS" => return Ok(Response::empty().header("allow", METHODS.join(", "))),
            _ => return Err(ProtocolError::method_not_allowed(&METHODS)),
        }
        if request.path == SIGN_IN {
            return Ok(Response::json(200, &self.sign_in()));
        }
        let asset = asset(&request.path).ok_or_else(ProtocolError::no_such_route)?;
        let is_compressed = request.header("accept-encoding").is_some_and(takes_gzip);
        let bytes = if is_compressed { asset.gzip } else { asset.bytes };
        let response = Response::new(200, asset.content_type, Content::Whole(bytes.to_vec()));
        let response = if is_compressed { response.header("content-encoding", "gzip") } else { response };
        Ok(response
            .header("vary", "accept-encoding")
            .header("content-security-policy", policy(&self.others()))
            .header("cross-origin-opener-policy", "same-origin")
            .header("cross-origin-resource-policy", "same-origin")
            .header("permissions-policy", "camera=(), geolocation=(), microphone=()"))
    }

    /// The issuers at which people sign in. Nothing of it is secret: the page sends it to the issuer by the browser.
    fn sign_in(&self) -> Value {
        let issuers = self.issuers.into_iter().flat_map(Issuers::sign_ins).map(|(issuer, by)| {
            json!({
                "name": issuer.name,
                "issuer": issuer.issuer,
                "client_id": by.client_id,
                "scope": by.scope,
                "parameters": by.parameters,
                "authorization_endpoint": by.authorization_endpoint,
                "token_endpoint": by.token_endpoint,
            })
        });
        json!({ "issuers": issuers.collect::<Vec<_>>() })
    }

    /// The other origins that the page asks: for streams, and for the tokens of those who sign in.
    fn others(&self) -> Vec<&str> {
        let sign_ins = self.issuers.into_iter().flat_map(Issuers::sign_ins);
        let asked = sign_ins.flat_map(|(issuer, by)| [Some(issuer.issuer.as_str()), by.token_endpoint.as_deref()]);
        let mut others: Vec<&str> = asked.chain([self.stream_url]).flatten().filter_map(origin_of).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}

/// True if a client whose header `accept-encoding` is `accepted` takes gzip (RFC 9110 §12.5.3).
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let (coding, weight) = one.split_once(';').unwrap_or((one, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        coding.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compressed_for_who_takes_that() {
        let sent = |accepted: Option<&str>| {
            let headers = accepted.map(|accepted| ("accept-encoding".to_owned(), accepted.to_owned())).into_iter();
            let request = Request { headers: headers.collect(), ..asked("GET", "/console/main.js") };
            let response = Console::default().answer(&request).expect("a file");
            assert!(response.headers.contains(&("vary".to_owned(), "accept-encoding".to_owned())));
            let is_compressed = response.headers.contains(&("content-encoding".to_owned(), "gzip".to_owned()));
            let Content::Whole(bytes) = response.content else { panic!("a file comes whole") };
            assert_eq!(is_compressed, bytes.starts_with(&[0x1f, 0x8b]), "{accepted:?}");
            is_compressed
        };
        for takes in ["gzip", "gzip, deflate, br, zstd", "br;q=1.0, GZIP ; q=0.5", "deflate,gzip;q=0.001"] {
            assert!(sent(Some(takes)), "{takes}");
        }
        for takes_not in [None, Some(""), Some("br"), Some("gzip;q=0"), Some("gzip; q=x"), Some("*"), Some("xgzip")] {
            assert!(!sent(takes_not), "{takes_not:?}");
        }
    }

    fn asked(method: &str, path: &str) -> Request {
        Request { method: method.to_owned(), path: path.to_owned(), ..Request::default() }
    }

    #[test]
    fn a_policy_names_the_streams_alone() {
        let response = Console { stream_url: Some("https://s.example/y; script-src *"), ..Console::default() };
        let response = response.answer(&asked("GET", "/console/x")).expect("a page");
        let told = response.headers.iter().find(|(name, _)| name == "content-security-policy").expect("a policy");
        assert!(told.1.contains("connect-src 'self' https://s.example;") && !told.1.contains('*'), "{}", told.1);
        for odd in ["javascript://x", "https://", "x", "https://a b"] {
            assert_eq!(origin_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn files_are_only_read() {
        assert_eq!(Console::default().answer(&asked("POST", "/console")).expect_err("no write").status(), 405);
        assert_eq!(Console::default().answer(&asked("GET", "/console/none.js")).expect_err("no file").status(), 404);
        assert_eq!(Console::default().answer(&asked("OPTIONS", "/console")).expect("methods").status, 204);
    }
}
