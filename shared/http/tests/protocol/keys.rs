use std::collections::BTreeSet;

use dormouse_api::Keys;
use dormouse_api::keys::{CHANCE, Grant, KeyToken, Rotation};
use dormouse_ports::{Clock, DocumentKey, Records};
use dormouse_protocol::Scope;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{World, grant, header, json_of};

async fn asks(world: &World, authorization: &str) -> (u16, Value) {
    let mut request = world.request("GET", "/v1/sessions/session_1", "");
    request.headers.retain(|(name, _)| name != "authorization");
    request.headers.push(("authorization".to_owned(), authorization.to_owned()));
    let response = world.server.http(request).await;
    let challenge = header(&response, "www-authenticate").map(str::to_owned);
    let (status, mut body) = json_of(&response);
    assert_eq!(challenge.as_deref(), (status == 401).then_some("Bearer error=\"invalid_token\""));
    if status == 401 {
        body["error"]["request_id"] = Value::Null;
    }
    (status, body)
}

fn other(token: &KeyToken, place: usize) -> String {
    let mut text = token.reveal().into_bytes();
    text[place] = if text[place] == b'0' { b'1' } else { b'0' };
    format!("Bearer {}", String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn only_the_key_itself_opens_and_nobody_learns_why_another_does_not() {
    let world = World::new();
    let key = world.key.reveal();
    for good in [format!("Bearer {key}"), format!("bearer {key}"), format!("Bearer  {key} ")] {
        assert_eq!(asks(&world, &good).await.0, 200, "{good}");
    }
    let (status, unknown_id) = asks(&world, &other(&world.key, 5)).await;
    assert_eq!(status, 401);
    assert_eq!(asks(&world, &other(&world.key, 60)).await, (401, unknown_id.clone()), "a wrong secret");
    for bad in ["", "Bearer", "Bearer ", &key, &format!("Basic {key}"), &format!("Bearer {key}0")] {
        assert_eq!(asks(&world, bad).await, (401, unknown_id.clone()), "{bad}");
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_once() {
    let world = World::new();
    let keys = Keys::new(world.shelf.clone());
    let now = world.clock.now();
    let revocation = keys.revocation(world.key.id(), now).await.unwrap().unwrap();
    world.shelf.apply(revocation);
    assert_eq!(asks(&world, &format!("Bearer {}", world.key.reveal())).await.0, 401);
    assert_eq!(keys.revocation(world.key.id(), now).await.unwrap(), None);
}

#[tokio::test]
async fn an_expired_key_is_refused() {
    let world = World::new();
    let token = KeyToken::generate([1; CHANCE]);
    let expires_at = Some(world.clock.now() + SignedDuration::from_secs(60));
    world.shelf.apply(Keys::creation(&token, Grant { expires_at, ..grant("bob") }, world.clock.now()));
    let bearer = format!("Bearer {}", token.reveal());
    assert_eq!(asks(&world, &bearer).await.0, 200);
    world.clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(asks(&world, &bearer).await.0, 401);
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say() {
    let world = World::new();
    let token = KeyToken::generate([2; CHANCE]);
    let scopes = BTreeSet::from([Scope::TasksRead]);
    world.shelf.apply(Keys::creation(&token, Grant { scopes, ..grant("eve") }, world.clock.now()));
    let (status, body) = asks(&world, &format!("Bearer {}", token.reveal())).await;
    assert_eq!((status, body["error"]["code"].as_str()), (403, Some("permission_denied")));
    assert_eq!(body["error"]["details"]["scope"], "sessions:read");
}

#[tokio::test]
async fn nothing_that_is_stored_or_listed_shows_a_key() {
    let world = World::new();
    let now = world.clock.now();
    let stored = world.shelf.document(&DocumentKey::new("key", world.key.id()), now).await.unwrap().unwrap();
    let listed = Keys::new(world.shelf.clone()).list(None, 10, now).await.unwrap();
    assert_eq!((listed.items.len(), listed.items[0].id.as_str()), (1, world.key.id()));
    assert_eq!(listed.items[0].grant, grant("ada"));
    let shown = format!("{stored:?} {listed:?} {:?}", world.server);
    let secret = world.key.reveal().rsplit('_').next().unwrap().to_owned();
    assert!(!shown.contains(&secret) && !shown.contains(&secret[..16]), "{shown}");
}

#[tokio::test]
async fn a_store_that_is_down_is_no_reason_to_doubt_a_key() {
    let world = World::new();
    *world.shelf.is_down.lock().unwrap() = true;
    let (status, body) = asks(&world, &format!("Bearer {}", world.key.reveal())).await;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("service_unavailable")));
}

#[tokio::test]
async fn a_key_is_replaced_once() {
    let world = World::new();
    let now = world.clock.now();
    let keys = Keys::new(world.shelf.clone());
    let [first, second] = [1, 2].map(|digit| KeyToken::generate([digit; CHANCE]));
    let later = now + SignedDuration::from_secs(60);
    let rotated = keys.rotation(world.key.id(), &first, None, (later, now)).await.unwrap();
    let Rotation::Made(journal, info, _) = rotated else { panic!("{rotated:?}") };
    world.shelf.apply(*journal);
    assert_eq!(info.id, first.id());
    let again = keys.rotation(world.key.id(), &second, None, (later, now)).await.unwrap();
    assert!(matches!(&again, Rotation::Replaced(by) if by == first.id()), "{again:?}");
    let next = keys.rotation(first.id(), &second, None, (later, now)).await.unwrap();
    let Rotation::Made(journal, ..) = next else { panic!("the one that took its place is replaced in turn: {next:?}") };
    world.shelf.apply(*journal);
    let third = KeyToken::generate([3; CHANCE]);
    for replaced in [world.key.id(), first.id()] {
        let late = keys.rotation(replaced, &third, None, (later, now)).await.unwrap();
        assert!(matches!(&late, Rotation::Replaced(by) if by == second.id()), "the one that stands: {late:?}");
    }
    assert!(matches!(keys.rotation("0000000000000000", &second, None, (later, now)).await.unwrap(), Rotation::NoKey));
}

#[tokio::test]
async fn who_asks_and_by_which_key_it_is_repeated_is_said_once() {
    let world = World::new();
    for (name, path) in
        [("authorization", "/v1/sessions"), ("idempotency-key", "/v1/sessions"), ("authorization", "/a2a")]
    {
        let mut request = world.request("POST", path, r#"{"workspace_id": "workspace_1"}"#);
        let value = request.header(name).unwrap_or("once").to_owned();
        request.headers.retain(|(given, _)| given != name);
        request.headers.extend(["", "2"].map(|more| (name.to_owned(), format!("{value}{more}"))));
        let (status, body) = json_of(&world.server.http(request).await);
        assert_eq!((status, &body["error"]["param"]), (400, &json!(name)), "{path}: {body}");
    }
}
