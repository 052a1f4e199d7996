//! Common properties of all responses, of both APIs.

use dormouse_api::StreamLimits;

use crate::world::{Serves, World, header, json_of};

const PAGE: &str = "https://app.example.com";

fn world() -> World {
    World::serving(Serves::Everything, StreamLimits::default())
}

#[tokio::test]
async fn every_response_says_who_asked_and_is_kept_by_nobody() {
    let world = world();
    for target in ["/", "/v1", "/docs", "/graphs/nothing/turns", "/graphs/chat/turns", "/nothing", "/callback/x"] {
        let response = world.get(target).await;
        let id = header(&response, "x-request-id").unwrap_or_else(|| panic!("{target} has no id"));
        assert_eq!(id.starts_with("req_"), ["/v1", "/docs", "/nothing"].contains(&target), "{target}: {id}");
        for (name, value) in
            [("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
        {
            assert_eq!(header(&response, name), Some(value), "{target}");
        }
    }
}

#[tokio::test]
async fn pages_of_browsers_ask_the_protocol_and_not_for_turns() {
    let world = world();
    for (target, reads) in [("/v1", true), ("/docs", true), ("/nothing", true), ("/", false), ("/callback/x", false)] {
        let mut request = world.request("GET", target, "");
        request.headers.push(("origin".to_owned(), PAGE.to_owned()));
        let response = world.server.http(request).await;
        let told = header(&response, "access-control-allow-origin");
        assert_eq!(told, reads.then_some(PAGE), "{target}");
        assert_eq!(header(&response, "harn-agents-protocol-version").is_some(), reads, "{target}");
    }
}

#[tokio::test]
async fn a_panic_is_an_answer_in_the_words_of_the_api_that_was_asked() {
    let world = world();
    *world.shelf.is_broken.lock().unwrap() = true;
    let (status, body) = json_of(&world.server.http(world.request("POST", "/graphs/chat/turns", "{}")).await);
    assert_eq!((status, &body["error"]["category"]), (500, &"node_exception".into()), "{body}");
    assert!(!body.to_string().contains("shelf"), "{body}");
    let (status, body) = json_of(&world.get("/v1/sessions").await);
    assert_eq!((status, &body["error"]["code"]), (500, &"internal_error".into()), "{body}");
    assert!(!body.to_string().contains("shelf"), "{body}");
}
