//! Hosts that a request may be for, and pages that it may come from: the names of this machine, and those that an
//! operator gave it.
//!
//! A page anywhere can make its own name mean this machine (DNS rebinding), and then read and write what answers here
//! as if it were its own: only the name in `Host` reveals that. It can also send requests without being let read the
//! answers: such requests name the origin of the page in `Origin`.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, Uri, header};

/// The names beside those of loopback. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(std::sync::Arc<[String]>);

impl Hosts {
    /// Also `named`, without ports.
    pub(crate) fn new(named: &[String]) -> Self {
        Self(named.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Checks that the request is for this process and not from a strange page.
    ///
    /// # Errors
    /// The defect of the request, and the remedy.
    pub(crate) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let host = one(headers, &header::HOST)?.ok_or("a request says in `host` for whom it is")?;
        for authority in [Some(host), uri.authority().map(Authority::as_str)].into_iter().flatten() {
            if !self.know(authority) {
                return Err(format!(
                    "{authority:?} is no name of this machine: ask 127.0.0.1 or localhost, or start `dormouse dev` with \
                     --host and that name"
                ));
            }
        }
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let origin = one(headers, &header::ORIGIN)?.filter(|_| !reads);
        match origin {
            Some(origin) if !self.is_ours(origin) => Err(format!(
                "pages of {origin:?} may change nothing here: serve the page from this machine, or start `dormouse dev` \
                 with --host and its name"
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn is_ours(&self, origin: &str) -> bool {
        match origin.split_once("://") {
            Some(("http" | "https", authority)) => self.know(authority),
            Some(_) | None => false,
        }
    }

    fn know(&self, authority: &str) -> bool {
        name_of(authority).is_some_and(|name| is_loopback(&name) || self.0.contains(&name))
    }
}

/// The only value of a header.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| format!("`{name}` is unreadable")),
        (Some(_), Some(_)) => Err(format!("`{name}` came twice")),
    }
}

/// The name in `name:port`, in small letters; `None` when it is none.
fn name_of(authority: &str) -> Option<String> {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']')? {
            (address, "") => address,
            (address, port) => port.strip_prefix(':').filter(|port| is_port(port)).map(|_| address)?,
        },
        None => match authority.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return None,
            None => authority,
        },
    };
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// True if `name` means this machine, independently of any name server.
pub fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(method: &Method, host: &'static str, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
        headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
        Hosts::new(&["Tunnel.example".to_owned()]).check(method, &Uri::from_static("/x"), &headers).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_are_served() {
        for host in
            ["127.0.0.1:8787", "localhost", "LocalHost:1", "[::1]:8787", "[::1]", "127.8.8.8", "tunnel.example:443"]
        {
            assert!(check(&Method::GET, host, None), "{host}");
        }
        for host in [
            "rebound.example:8787",
            "localhost.rebound.example",
            "127.0.0.1.rebound.example",
            "0.0.0.0:8787",
            "x@localhost",
            "localhost:8787:1",
            "[::1",
            "[::1]x",
            "",
            "tunnel.example.",
        ] {
            assert!(!check(&Method::GET, host, None), "{host}");
        }
        assert!(Hosts::default().check(&Method::GET, &Uri::from_static("/"), &HeaderMap::new()).is_err());
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("localhost"))]);
        assert!(Hosts::default().check(&Method::GET, &Uri::from_static("http://a.example/"), &headers).is_err());
    }

    #[test]
    fn strange_pages_change_nothing() {
        for origin in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1", "https://tunnel.example"] {
            assert!(check(&Method::POST, "localhost", Some(origin)), "{origin}");
        }
        for origin in ["null", "https://evil.example", "http://localhost.evil.example", "file://localhost", ""] {
            assert!(!check(&Method::POST, "localhost", Some(origin)), "{origin}");
            assert!(!check(&Method::DELETE, "localhost", Some(origin)), "{origin}");
            // The answer names what they may read (CORS).
            assert!(check(&Method::GET, "localhost", Some(origin)), "{origin}");
        }
        assert!(check(&Method::POST, "localhost", None), "programs have no origin");
    }
}
