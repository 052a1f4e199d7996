//! Operations that every caller may ask.

use std::collections::BTreeSet;

use dormouse_http::{Content, Request};
use dormouse_protocol::operation::Access;
use dormouse_protocol::resource::{A2aAgentCard, HarnAgentCard};
use dormouse_protocol::{Operation, openapi};

use crate::world::{World, header, json_of};

fn open(path: &str) -> Request {
    Request { method: "GET".to_owned(), path: path.to_owned(), ..Request::default() }
}

#[tokio::test]
async fn every_public_operation_answers_without_key_and_version() {
    let world = World::new();
    for operation in Operation::ALL.iter().filter(|operation| operation.spec().access == Access::Public) {
        let response = world.server.http(open(operation.spec().path)).await;
        let (status, body) = json_of(&response);
        assert_eq!((status, body.is_object()), (200, true), "{}", operation.spec().path);
    }
    assert!(world.desk.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_cards_are_read_by_clients() {
    let world = World::new();
    let (_, card) = json_of(&world.server.http(open("/v1/agent-card")).await);
    let card: HarnAgentCard = serde_json::from_value(card).unwrap();
    let (_, a2a) = json_of(&world.server.http(open("/.well-known/agent-card.json")).await);
    let a2a: A2aAgentCard = serde_json::from_value(a2a).unwrap();
    assert_eq!(card.a2a_card, a2a);
    assert_eq!(card.harn_interfaces, card.interfaces);
    assert_eq!(a2a.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(), ["chat"]);
}

#[tokio::test]
async fn the_document_is_that_of_the_protocol() {
    let world = World::new();
    let (_, mut served) = json_of(&world.server.http(open("/openapi.json")).await);
    let made = openapi::document(openapi::DocumentInfo { title: "", description: "" });
    let mut marked = Vec::new();
    for spec in Operation::ALL.iter().map(|operation| operation.spec()) {
        let described = served["paths"][spec.path][spec.method.as_str().to_ascii_lowercase()].as_object_mut().unwrap();
        if described.remove("x-dormouse-not-offered").is_some() {
            marked.push(spec.id);
            described.remove("description").unwrap();
            described["responses"].as_object_mut().unwrap().remove("501").unwrap();
        }
    }
    assert!(marked.contains(&"replayTask") && !marked.contains(&"listTasks"), "{marked:?}");
    assert!(marked.contains(&"createSessionWebhook") && !marked.contains(&"listSessionWebhooks"), "{marked:?}");
    assert_eq!((&served["paths"], &served["components"]), (&made["paths"], &made["components"]));
}

#[tokio::test]
async fn the_page_tells_of_every_operation_and_loads_nothing() {
    let world = World::new();
    let response = world.server.http(open("/docs")).await;
    assert_eq!(header(&response, "content-type"), Some("text/html; charset=utf-8"));
    let Content::Whole(bytes) = response.content else { panic!("it streams") };
    let page = String::from_utf8(bytes).unwrap();
    for operation in Operation::ALL {
        let id = format!("<h3 id=\"{}\">", operation.spec().id);
        assert_eq!(page.matches(&id).count(), 1, "{id}");
    }
    for loading in ["<script", "<link", "<img", "src=", "@import", "url("] {
        assert!(!page.contains(loading), "{loading}");
    }
    let links: BTreeSet<&str> = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.iter().all(|link| link.starts_with('#') || *link == "/openapi.json"), "{links:?}");
}
