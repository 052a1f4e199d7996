//! Pages of browsers: those that may ask, and the answers that they are given.

use dormouse_http::Content;

use crate::world::{World, header};

const PAGE: &str = "https://app.example.com";

#[tokio::test]
async fn a_page_that_may_ask_is_told_how() {
    let world = World::new();
    let mut asks = world.request("OPTIONS", "/v1/tasks", "");
    // A browser sends neither key nor version when it asks whether it may.
    asks.headers = [("origin", PAGE), ("access-control-request-method", "POST")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let response = world.server.http(asks).await;
    assert_eq!((response.status, header(&response, "access-control-allow-origin")), (204, Some(PAGE)));
    assert!(header(&response, "access-control-allow-methods").unwrap().contains("PATCH"));
    let sent = header(&response, "access-control-allow-headers").unwrap();
    for needed in ["authorization", "harn-agents-protocol-version", "idempotency-key", "last-event-id"] {
        assert!(sent.contains(needed), "{needed}: {sent}");
    }
    assert!(matches!(&response.content, Content::Whole(bytes) if bytes.is_empty()));
}

#[tokio::test]
async fn only_pages_that_may_ask_can_read_the_answer() {
    let world = World::new();
    for (origin, reads) in [(PAGE, true), ("https://evil.example", false), ("null", false)] {
        for target in ["/v1/sessions/session_1", "/v1/nothing", "/v1/sessions/session_1/events/stream", "/health"] {
            let mut request = world.request("GET", target, "");
            request.headers.push(("origin".to_owned(), origin.to_owned()));
            let response = world.server.http(request).await;
            let told = header(&response, "access-control-allow-origin");
            assert_eq!(told, reads.then_some(PAGE), "{origin} {target}");
            assert_eq!(header(&response, "access-control-expose-headers").is_some(), reads);
            assert_eq!(header(&response, "vary"), reads.then_some("origin"), "{origin} {target}");
        }
        let mut asks = world.request("OPTIONS", "/v1/tasks", "");
        asks.headers.push(("origin".to_owned(), origin.to_owned()));
        asks.headers.push(("access-control-request-method".to_owned(), "POST".to_owned()));
        let told = world.server.http(asks).await;
        assert_eq!(told.status, 204, "{origin}");
        let allows = header(&told, "access-control-allow-methods").is_some();
        assert_eq!((allows, header(&told, "allow").is_some()), (reads, !reads), "{origin}");
    }
    assert_eq!(header(&world.get("/health").await, "vary"), None, "no page asks");
}
