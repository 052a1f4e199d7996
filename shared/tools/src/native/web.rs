use std::time::Duration;

use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use dormouse_ports::{Fetch, FetchLimits, FetchRequest, FetchResponse, Method};
use futures::TryStreamExt;
use serde_json::json;

use super::arguments::text;
use super::{tool, wrong};
use crate::text::{charset, in_utf8};

/// Bytes at the beginning of a page in which it may say itself how it is encoded.
const DECLARED_IN: usize = 1024;
/// Addresses that a page may lead to one after the other.
const MOST_HOPS: usize = 5;
/// Limits of one request.
const LIMITS: FetchLimits =
    FetchLimits { total: Duration::from_secs(30), idle: Duration::from_secs(15), most_bytes: 4 << 20 };

pub(super) fn spec() -> ToolSpec {
    let properties = json!({
        "url": { "type": "string", "pattern": "^https?://", "description": "An address on the public internet" }
    });
    let mut spec = tool(
        "WebFetch",
        "Fetches a page and returns its text; a page of HTML is returned as Markdown.",
        Effect::Safe,
        properties,
        &["url"],
    );
    spec.timeout = Some(Duration::from_secs(60));
    spec
}

pub(super) async fn call(web: &dyn Fetch, call: &ToolCall) -> Result<ToolOutput, ToolError> {
    let mut url = text(call, "url")?.to_owned();
    for _ in 0..=MOST_HOPS {
        call.effects.asked(&url);
        let mut request = FetchRequest::new(Method::Get, &url)
            .header("accept", "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.1");
        request.limits = LIMITS;
        let response = web.fetch(request).await.map_err(|error| unread(&url, &error))?;
        match (response.status, response.header("location")) {
            (301 | 302 | 303 | 307 | 308, Some(location)) => url = led_to(&url, location)?,
            (_, _) => return page(&url, response).await,
        }
    }
    Err(ToolError::permanent(format!("the page leads on more than {MOST_HOPS} times, at last to {}", shown(&url))))
}

/// The error of a page that did not come: reading it has no effect in any case.
fn unread(url: &str, error: &dormouse_ports::FetchError) -> ToolError {
    let error = crate::failure::unanswered(error);
    let kind = if error.kind == ToolErrorKind::Denied { ToolErrorKind::Permanent } else { error.kind };
    ToolError::new(kind, format!("{} cannot be fetched: {}", shown(url), error.message))
}

async fn page(url: &str, mut response: FetchResponse) -> Result<ToolOutput, ToolError> {
    let media_type = response.header("content-type").unwrap_or("text/plain").to_ascii_lowercase();
    let mut body = Vec::new();
    while let Some(piece) = response.body.try_next().await.map_err(|error| unread(url, &error))? {
        body.extend_from_slice(&piece);
    }
    let is_text = ["text/", "json", "xml", "yaml", "javascript"].iter().any(|kind| media_type.contains(kind));
    if !is_text || body.contains(&0) {
        return Ok(ToolOutput::error(format!("{} is no text: {} bytes of `{media_type}`", shown(url), body.len())));
    }
    let charset = charset(&media_type).or_else(|| declared_charset(&media_type, &body));
    let body = in_utf8(body, charset.as_deref());
    let body = String::from_utf8_lossy(&body);
    let text = match media_type.contains("html") {
        true => {
            let body = body.into_owned();
            let made = tokio::task::spawn_blocking(move || super::page::as_markdown(&body)).await;
            made.map_err(|error| ToolError::permanent(format!("{} cannot be shown: {error}", shown(url))))?
        }
        false => body.into_owned(),
    };
    Ok(match response.status {
        200..=299 => ToolOutput::text(format!("{}\n\n{}", shown(url), text.trim())),
        status => ToolOutput::error(format!("{} answers {status}\n\n{}", shown(url), text.trim())),
    })
}

/// What a page of HTML names as its encoding, where it is not in UTF-8.
fn declared_charset(media_type: &str, body: &[u8]) -> Option<String> {
    if !media_type.contains("html") || std::str::from_utf8(body).is_ok() {
        return None;
    }
    let begin = String::from_utf8_lossy(&body[..body.len().min(DECLARED_IN)]).to_ascii_lowercase();
    let (_, behind) = begin.split_once("charset=")?;
    let name = behind.trim_start_matches(['"', '\'']);
    Some(name.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect())
}

/// The address without its query, which may hold what is not for records.
fn shown(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// The address to which `location` leads from `from`.
fn led_to(from: &str, location: &str) -> Result<String, ToolError> {
    let (scheme, rest) = from.split_once("://").ok_or_else(|| wrong("the address has no scheme"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    // An address may stand in its query, as that of the page to which a login leads back.
    let to = if has_scheme(location) {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else {
        match location.bytes().next() {
            Some(b'/') => format!("{scheme}://{host}{location}"),
            Some(b'?') => format!("{scheme}://{host}{path}{location}"),
            Some(b'#') | None => format!("{}{location}", from.split('#').next().unwrap_or_default()),
            Some(_) => {
                let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
                format!("{scheme}://{host}{folder}{location}")
            }
        }
    };
    let downgraded = scheme.eq_ignore_ascii_case("https") && !to.to_ascii_lowercase().starts_with("https://");
    match downgraded {
        true => Err(ToolError::permanent(format!("the page leads to {}, without encryption", shown(&to)))),
        false => Ok(to),
    }
}

/// True if `location` begins with a scheme.
fn has_scheme(location: &str) -> bool {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let begins = location.starts_with(|c: char| c.is_ascii_alphabetic());
    location.split_once(':').is_some_and(|(scheme, _)| begins && scheme.chars().all(is_sound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_on_as_browsers_follow() {
        let to = |location: &str| led_to("https://a.example/x/y?q=1", location).expect("an address");
        assert_eq!(to("https://b.example/"), "https://b.example/");
        assert_eq!(to("//b.example/z"), "https://b.example/z");
        assert_eq!(to("/z"), "https://a.example/z");
        assert_eq!(to("z"), "https://a.example/x/z");
        assert_eq!(to("HTTPS://b.example/"), "HTTPS://b.example/");
        assert_eq!(to("/login?next=https://a.example/x"), "https://a.example/login?next=https://a.example/x");
        assert_eq!(to("z?at=10:30"), "https://a.example/x/z?at=10:30");
        assert_eq!(to("?page=2"), "https://a.example/x/y?page=2");
        assert_eq!(to("#top"), "https://a.example/x/y?q=1#top");
        assert!(led_to("https://a.example/", "http://a.example/").is_err(), "not without encryption");
    }
}
