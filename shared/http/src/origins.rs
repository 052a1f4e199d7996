//! Pages of browsers that may ask (Fetch Standard, CORS). Who asks still needs a key: there are no cookies here.

use crate::{Content, Request, Response};

/// Methods that pages may use.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// Headers that pages may send beside those that every page may.
const SENT: &str = "authorization, content-type, harn-agents-protocol-version, idempotency-key, if-none-match, if-range, last-event-id, range";
/// Headers that pages may read beside those that every page may.
const READ: &str = "accept-ranges, allow, content-range, etag, harn-agents-protocol-version, idempotent-replayed, ratelimit, ratelimit-policy, retry-after, x-next-cursor, x-request-id";
/// Number of seconds for which a browser remembers that it may ask.
const REMEMBERED: &str = "7200";

/// The origins of pages that may read answers; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    named: Vec<String>,
    loopback: bool,
}

impl Origins {
    /// Pages of this machine: `http` or `https` on a loopback address, any port.
    pub fn loopback() -> Self {
        Self { named: Vec::new(), loopback: true }
    }

    /// The origins in `list`, separated by commas: `https://app.example.com, http://localhost:3000`. `*` is all of
    /// them.
    ///
    /// # Errors
    /// Reports which one is none, without repeating it.
    pub fn parse(list: &str) -> Result<Self, String> {
        let named: Vec<String> = list.split(',').map(|one| one.trim().to_ascii_lowercase()).collect();
        match named.iter().position(|one| one != "*" && !is_origin(one)) {
            Some(at) => Err(format!("number {} is no origin: scheme://host, or scheme://host:port", at + 1)),
            None => Ok(Self { named, loopback: false }),
        }
    }

    /// The same, and the pages that are served at `url` themselves: they ask for streams that are served elsewhere.
    pub(crate) fn and_those_at(mut self, url: Option<&str>) -> Self {
        self.named.extend(url.and_then(origin_of).map(str::to_ascii_lowercase));
        self
    }

    fn allow(&self, origin: &str) -> bool {
        let named = |one: &String| one == "*" || one.eq_ignore_ascii_case(origin);
        self.named.iter().any(named) || (self.loopback && is_loopback(origin))
    }

    /// The answer to a browser that asks whether a page may ask; `None` for anything else, and for pages that may not.
    pub(crate) fn preflight(&self, request: &Request) -> Option<Response> {
        let asks = request.method == "OPTIONS" && request.header("access-control-request-method").is_some();
        asks.then_some(())?;
        self.origin_of(request)?;
        let response = Response { status: 204, headers: Vec::new(), content: Content::Whole(Vec::new()) };
        let response = response.header("access-control-allow-methods", METHODS);
        Some(response.header("access-control-allow-headers", SENT).header("access-control-max-age", REMEMBERED))
    }

    /// `response`, readable by the page that asked, if that may.
    pub(crate) fn admit(&self, request: &Request, response: Response) -> Response {
        let Some(origin) = self.origin_of(request) else { return response };
        let response = response.header("access-control-allow-origin", origin).header("vary", "origin");
        response.header("access-control-expose-headers", READ)
    }

    fn origin_of<'r>(&self, request: &'r Request) -> Option<&'r str> {
        request.header("origin").filter(|origin| self.allow(origin))
    }
}

/// The origin of `url`; `None` for anything that has none.
pub(crate) fn origin_of(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let origin = &url[..scheme.len() + "://".len() + rest.split('/').next()?.len()];
    is_origin(origin).then_some(origin)
}

fn is_origin(text: &str) -> bool {
    let Some(("http" | "https", authority)) = text.split_once("://") else { return false };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    !authority.is_empty() && authority.bytes().all(is_host)
}

fn is_loopback(origin: &str) -> bool {
    if !is_origin(origin) {
        return false;
    }
    let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    };
    let named = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    named || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_are_told_from_others() {
        for good in [
            "http://localhost",
            "https://LOCALHOST:3000",
            "http://127.0.0.1:8080",
            "http://[::1]:1",
            "http://a.localhost",
        ] {
            assert!(Origins::loopback().allow(good), "{good}");
        }
        for bad in [
            "null",
            "",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
            "file://localhost",
            "http://10.0.0.1",
            "http://localhost/x",
            "http://a:b@localhost",
        ] {
            assert!(!Origins::loopback().allow(bad), "{bad}");
        }
    }

    #[test]
    fn origins_are_named_one_by_one_or_all_at_once() {
        let two = Origins::parse("https://App.example.com , http://localhost:3000").expect("a list");
        assert!(two.allow("https://app.example.com") && two.allow("http://localhost:3000"));
        assert!(!two.allow("https://app.example.com:8443") && !two.allow("http://localhost"));
        assert!(Origins::parse("*").expect("all").allow("https://anybody.example"));
        for bad in ["", "app.example.com", "https://a.example/", "https://a.example,", "ftp://a.example"] {
            assert!(Origins::parse(bad).is_err(), "{bad}");
        }
        assert!(!Origins::default().allow("https://app.example.com"));
    }
}
