//! What the client's errors mean.

use std::error::Error;
use std::time::Duration;

use dormouse_ports::FetchError;

use crate::resolve::Unresolved;

/// Names `error`. Of the address host and port are told where nothing listens there, and nothing else: its path and query may
/// be secret.
pub(crate) fn classify(error: &reqwest::Error, total: Duration) -> FetchError {
    let words = in_words(error);
    // What has no connection in time was sent to nobody.
    if error.is_timeout() && !error.is_connect() {
        return FetchError::Timeout(total);
    }
    if causes(error).any(<dyn Error + 'static>::is::<Unresolved>) {
        return FetchError::Dns(words);
    }
    if is_handshake(error.is_connect(), causes(error)) {
        return FetchError::Tls(words);
    }
    if error.is_connect() {
        let place = place_of(error).map(|place| format!("{place}: ")).unwrap_or_default();
        return FetchError::Connect(format!("{place}{words}"));
    }
    if error.is_builder() {
        return FetchError::Denied(words);
    }
    FetchError::Closed(words)
}

/// Everything behind `error`, and not itself: it would name the address.
pub(crate) fn in_words(error: &reqwest::Error) -> String {
    let mut words: Vec<String> = causes(error).map(ToString::to_string).collect();
    words.dedup();
    match words.as_slice() {
        [] => "the client gave no reason".to_owned(),
        words => words.join(": "),
    }
}

/// Host and port of the address that was asked.
fn place_of(error: &reqwest::Error) -> Option<String> {
    let url = error.url()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| inner(*cause))
}

/// Cause behind `cause`. An IO error hides what it wraps from its source.
fn inner<'e>(cause: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| cause.source())
}

/// True if the two sides did not agree on how to speak. What fails in TLS behind that may have been read by the other side.
fn is_handshake<'e>(is_connect: bool, mut causes: impl Iterator<Item = &'e (dyn Error + 'static)>) -> bool {
    is_connect && causes.any(<dyn Error + 'static>::is::<rustls::Error>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_behind_the_handshake_is_none_of_it() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
        let alert: &(dyn Error + 'static) = &alert;
        let other: &(dyn Error + 'static) = &std::io::Error::other("reset");
        assert!(is_handshake(true, [other, alert].into_iter()));
        assert!(!is_handshake(false, [alert].into_iter()), "the request was sent");
        assert!(!is_handshake(true, [other].into_iter()));
    }
}
