//! Callbacks and signals: each moves an invocation once.

use std::sync::atomic::Ordering;

use dormouse_ports::{Category, InvocationStatus, StateStore};
use serde_json::json;

use crate::world::{World, header, path_of, refused, request};

#[tokio::test]
async fn a_callback_goes_on_and_its_duplicates_get_the_same_answer() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let decision = json!({ "decision": "yes" });
    let first = world.post(&callback, &decision).await;
    assert_eq!((first.status, first.body["state"]["result"].as_str()), (200, Some("yes 7")), "{}", first.body);
    assert_eq!(first.body["repeated"], false);
    for late in [world.post(&callback, &decision).await, world.post(&callback, &json!({ "decision": "no" })).await] {
        assert_eq!((late.status, &late.body["state"]), (200, &first.body["state"]));
        assert_eq!(late.body["repeated"], true);
    }
    let signal = world.signal("approval-o1", &decision).await;
    assert_eq!((signal.status, &signal.body["state"]), (200, &first.body["state"]));
    let status = world.get(&callback.replace("/callback/", "/invocations/")).await;
    assert_eq!((status.status, status.body["status"].as_str()), (200, Some("completed")));
    assert_eq!(world.continuations(), 1);
}

#[tokio::test]
async fn fifty_callbacks_at_once_give_one_continuation() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let body = json!({ "decision": "yes" });
    let all = futures::future::join_all((0..50).map(|_| world.post(&callback, &body)));
    let answers = world.while_time_passes(all).await;
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body["state"]["result"] == "yes 7"));
    assert_eq!(answers.iter().filter(|answer| answer.body["repeated"] == false).count(), 1);
    assert_eq!(world.continuations(), 1);
}

#[tokio::test]
async fn an_empty_callback_is_an_empty_payload() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let mut bare = request("POST", &callback, b"");
    bare.headers.clear();
    let answer = world.app.http(bare).await;
    assert_eq!((answer.status, answer.body["state"]["result"].as_str()), (200, Some(" 7")), "{}", answer.body);
}

#[tokio::test]
async fn an_early_signal_is_kept_and_delivered() {
    let world = World::new();
    let early = world.signal("approval-o1", &json!({ "decision": "early yes" })).await;
    assert_eq!((early.status, early.body["status"].as_str()), (202, Some("buffered")), "{}", early.body);
    let again = world.signal("approval-o1", &json!({ "decision": "early yes" })).await;
    assert_eq!(again.body["status"], "buffered");
    let other = world.signal("approval-o1", &json!({ "decision": "no" })).await;
    refused(&other, 400, &Category::RequestInvalid);
    let turn = world.post("/graphs/approval/turns", &json!({ "state": { "order": "o1" } })).await;
    assert_eq!((turn.status, turn.body["state"]["result"].as_str()), (200, Some("early yes 0")), "{}", turn.body);
    assert_eq!(world.continuations(), 1);
}

#[tokio::test]
async fn a_payload_that_breaks_the_schema_changes_nothing() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let broken = json!({ "decision": 1 });
    for answer in [world.post(&callback, &broken).await, world.signal("approval-o1", &broken).await] {
        refused(&answer, 422, &Category::SuspensionResumePayloadInvalid);
        assert_eq!(answer.body["error"]["invocation_id"], "o1");
    }
    let record = world.store.load_invocation(&"o1".into()).await.expect("the store answers").expect("a record");
    assert_eq!((record.status, world.continuations()), (InvocationStatus::Suspended, 0));
    assert_eq!(world.post(&callback, &json!({ "decision": "yes" })).await.status, 200);
}

#[tokio::test]
async fn after_a_passing_failure_it_sleeps_on_and_the_sender_tries_again() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    world.broken.store(true, Ordering::SeqCst);
    let answer = world.post(&callback, &json!({ "decision": "yes" })).await;
    refused(&answer, 503, &Category::ProviderUnavailable);
    assert!(header(&answer, "retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
    assert_eq!(
        (&answer.body["error"]["retry_safe"], &answer.body["error"]["invocation_id"]),
        (&json!(true), &json!("o1"))
    );
    let record = world.store.load_invocation(&"o1".into()).await.expect("the store answers").expect("a record");
    assert_eq!(record.status, InvocationStatus::Suspended);
    world.broken.store(false, Ordering::SeqCst);
    assert_eq!(world.post(&callback, &json!({ "decision": "yes" })).await.status, 200);
    assert_eq!(world.continuations(), 1);
}

#[tokio::test]
async fn a_registration_that_is_late_is_told_and_the_pause_stays() {
    let world = World::new();
    world.subscriptions.fail_unavailable("the scheduler is away");
    let body = json!({ "state": { "order": "o1" }, "invocation_id": "o1" });
    let first = world.post("/graphs/approval/turns", &body).await;
    assert_eq!((first.status, &first.body["status"]), (202, &json!("suspended")), "{}", first.body);
    assert!(first.body["late"].as_str().is_some_and(|late| late.contains("the scheduler is away")), "{}", first.body);
    world.subscriptions.recover();
    let again = world.post("/graphs/approval/turns", &body).await;
    assert_eq!((again.status, &again.body["repeated"]), (202, &json!(true)), "{}", again.body);
    let callback = path_of(&first.body["callback_url"]);
    assert_eq!(world.post(&callback, &json!({ "decision": "yes" })).await.status, 200);
}

#[tokio::test]
async fn a_registration_that_the_deployment_may_not_make_is_for_the_deployment_to_repair() {
    let world = World::new();
    world.subscriptions.fail_denied("CreateSchedule on schedule group dormouse: AccessDeniedException: no");
    let answer = world.post("/graphs/approval/turns", &json!({ "state": { "order": "o1" } })).await;
    let message = refused(&answer, 500, &Category::HarnessSignalSubscriptionFailed);
    assert!(message.contains("CreateSchedule on schedule group dormouse"), "{message}");
    assert_eq!(answer.body["error"]["bucket"], "session_terminating");
    assert!(header(&answer, "retry-after").is_none());
}

#[tokio::test]
async fn a_token_is_not_traded_for_the_one_of_the_next_pause() {
    let world = World::new();
    let begin = json!({ "state": { "order": "o1" }, "invocation_id": "o1" });
    let first = world.post("/graphs/two-questions/turns", &begin).await;
    let callback = path_of(&first.body["callback_url"]);
    let status = callback.replace("/callback/", "/invocations/");
    assert_eq!(world.get(&status).await.body["callback_url"], first.body["callback_url"]);
    let second = world.post(&callback, &json!({})).await;
    assert_eq!((second.status, &second.body["generation"]), (202, &json!(2)), "{}", second.body);
    for answer in [second, world.post(&callback, &json!({})).await, world.get(&status).await] {
        assert_eq!((&answer.body["status"], &answer.body["generation"]), (&json!("suspended"), &json!(2)));
        assert!(answer.body.get("callback_url").is_none(), "{}", answer.body);
    }
    // Whoever may begin turns is told the new address, and an operator can send the signal.
    let again = world.post("/graphs/two-questions/turns", &begin).await;
    assert_ne!(path_of(&again.body["callback_url"]), callback);
    assert_eq!(world.signal("o1-2", &json!({})).await.status, 200);
}
