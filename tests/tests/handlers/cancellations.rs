//! Canceling over HTTP: by the address of a pause, or with the key.

use dormouse_ports::{Category, InvocationStatus, Invocations};
use serde_json::json;

use crate::world::{World, path_of, refused, request};

/// Where whoever began the approval of `order`, which sleeps, may cancel it.
async fn cancel_address(world: &World, order: &str) -> String {
    path_of(&world.begun(order).await["cancel_url"])
}

#[tokio::test]
async fn whoever_began_it_may_cancel_it() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let address = cancel_address(&world, "o1").await;
    let status = path_of(&world.begun("o1").await["status_url"]);
    let canceled = world.post(&address, &json!({ "reason": "ordered twice" })).await;
    assert_eq!((canceled.status, canceled.body["status"].as_str()), (200, Some("canceled")), "{}", canceled.body);
    assert_eq!((&canceled.body["reason"], &canceled.body["repeated"]), (&json!("ordered twice"), &json!(false)));
    let again = world.post(&address, &json!({ "reason": "another" })).await;
    assert_eq!((&again.body["reason"], &again.body["repeated"]), (&json!("ordered twice"), &json!(true)));
    assert_eq!(again.body["canceled_at"], canceled.body["canceled_at"]);
    let decision = json!({ "decision": "yes" });
    for late in [world.post(&callback, &decision).await, world.signal("approval-o1", &decision).await] {
        let message = refused(&late, 410, &Category::InvocationCanceled);
        assert!(message.contains("ordered twice"), "{message}");
    }
    let status = world.get(&status).await;
    assert_eq!((status.status, status.body["status"].as_str()), (200, Some("errored")), "{}", status.body);
    assert_eq!(world.continuations(), 0);
}

#[tokio::test]
async fn nobody_else_may() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let by_answering = callback.replace("/callback/", "/invocations/").replace("?token=", "/cancel?token=");
    let by_looking = path_of(&world.begun("o1").await["status_url"]).replace("?token=", "/cancel?token=");
    for address in [
        by_answering.as_str(),
        &by_looking,
        "/invocations/o1/cancel",
        "/invocations/o1/cancel?token=wrong",
        "/invocations/o2/cancel?token=a",
    ] {
        refused(&world.post(address, &json!({})).await, 404, &Category::NotFound);
    }
    refused(
        &world.post(&cancel_address(&world, "o1").await, &json!({ "why": "?" })).await,
        400,
        &Category::RequestInvalid,
    );
    let record = world.store.load_invocation(&"o1".into()).await.expect("an answer").expect("a record");
    assert_eq!(record.status, InvocationStatus::Suspended);
}

#[tokio::test]
async fn the_key_cancels_what_the_id_names_also_before_it_begins() {
    let world = World::new();
    let mut request = request("POST", "/invocations/o1/cancel", b"");
    request.headers = vec![("authorization".to_owned(), format!("Bearer {}", crate::world::KEY))];
    let canceled = world.http(request).await;
    assert_eq!((canceled.status, canceled.body["status"].as_str()), (200, Some("canceled")), "{}", canceled.body);
    let begin = json!({ "state": { "order": "o1" }, "invocation_id": "o1" });
    refused(&world.post("/graphs/approval/turns", &begin).await, 410, &Category::InvocationCanceled);
}

#[tokio::test]
async fn what_has_ended_is_not_canceled() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let address = cancel_address(&world, "o1").await;
    assert_eq!(world.post(&callback, &json!({ "decision": "yes" })).await.status, 200);
    let late = world.post(&address, &json!({})).await;
    refused(&late, 409, &Category::SuspensionRecordInvalid);
}
