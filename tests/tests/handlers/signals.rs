//! Callbacks and signals: each moves an invocation once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dormouse_ports::{Category, ClaimOutcome, ClaimRequest, Clock, Commits, InvocationStatus, Invocations};
use dormouse_tests::map;
use serde_json::{Value, json};

use crate::world::{World, header, path_of, refused, request};

#[tokio::test]
async fn a_callback_goes_on_and_its_duplicates_get_the_same_answer() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let decision = json!({ "decision": "yes" });
    let status = path_of(&world.begun("o1").await["status_url"]);
    let first = world.post(&callback, &decision).await;
    assert_eq!((first.status, first.body["status"].as_str()), (200, Some("completed")), "{}", first.body);
    assert_eq!(
        (&first.body["repeated"], first.body.get("state")),
        (&json!(false), None),
        "who answers is not shown it"
    );
    let late = world.post(&callback, &decision).await;
    assert_eq!((late.status, &late.body["repeated"]), (200, &json!(true)));
    let signal = world.signal("approval-o1", &decision).await;
    assert_eq!((signal.status, signal.body["state"]["result"].as_str()), (200, Some("yes 7")));
    let status = world.get(&status).await;
    assert_eq!((status.status, status.body["status"].as_str()), (200, Some("completed")));
    assert_eq!(status.body["state"]["result"], "yes 7");
    assert_eq!(world.continuations(), 1);
}

/// Authors make ids of signals of what their input holds.
#[tokio::test]
async fn a_signal_of_any_id_that_a_wait_may_have_arrives() {
    let world = World::new();
    let decision = json!({ "decision": "yes" });
    let state = json!({ "order": "Köln 7 / 2027", "amount": 7 });
    let begun = world.post("/graphs/approval/turns", &json!({ "state": state })).await;
    assert_eq!(begun.status, 202, "{}", begun.body);
    let signal = world.signal("approval-Köln 7 / 2027", &decision).await;
    assert_eq!((signal.status, signal.body["state"]["result"].as_str()), (200, Some("yes 7")), "{}", signal.body);
    let long = world.signal(&"x".repeat(257), &decision).await;
    assert_eq!((long.status, &long.body["error"]["category"]), (400, &json!("request_invalid")), "{}", long.body);
}

#[tokio::test]
async fn another_answer_is_told_what_was_decided_and_never_that_it_was() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    assert_eq!(world.post(&callback, &json!({ "decision": "yes" })).await.status, 200);
    let no = json!({ "decision": "no" });
    for late in [world.post(&callback, &no).await, world.signal("approval-o1", &no).await] {
        refused(&late, 409, &Category::SuspensionRecordInvalid);
        assert_eq!(late.body["error"]["decided"], json!({ "decision": "yes" }));
    }
    assert_eq!(world.continuations(), 1);
}

#[tokio::test]
async fn a_token_may_come_in_a_header_and_opens_what_it_is_for() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let (path, token) = callback.split_once("?token=").expect("a token");
    let with = |method: &str, path: &str| {
        let mut request = request(method, path, b"{\"decision\":\"yes\"}");
        request.headers.push(("authorization".to_owned(), format!("Bearer {token}")));
        world.http(request)
    };
    let seen = with("GET", &path.replace("/callback/", "/invocations/")).await;
    assert_eq!((seen.status, &seen.body["waiting_for"]["signal_id"]), (200, &json!("approval-o1")));
    assert_eq!(seen.body.get("state"), None, "{}", seen.body);
    assert_eq!(header(&seen, "referrer-policy"), Some("no-referrer"));
    assert_eq!(header(&seen, "x-content-type-options"), Some("nosniff"));
    assert_eq!(with("POST", path).await.status, 200);
    let over = with("GET", &path.replace("/callback/", "/invocations/")).await;
    refused(&over, 410, &Category::SuspensionRecordInvalid);
    refused(&with("POST", &path.replace("o1", "o2")).await, 404, &Category::NotFound);
}

#[tokio::test]
async fn fifty_callbacks_at_once_give_one_continuation() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let body = json!({ "decision": "yes" });
    let all = futures::future::join_all((0..50).map(|_| world.post(&callback, &body)));
    let answers = world.while_time_passes(all).await;
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body["status"] == "completed"));
    assert_eq!(answers.iter().filter(|answer| answer.body["repeated"] == false).count(), 1);
    assert_eq!(world.continuations(), 1);
}

#[tokio::test]
async fn an_empty_callback_is_an_empty_payload() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let status = path_of(&world.begun("o1").await["status_url"]);
    let mut bare = request("POST", &callback, b"");
    bare.headers.clear();
    assert_eq!(world.http(bare).await.status, 200);
    let answer = world.get(&status).await;
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
async fn the_answer_that_leads_to_the_next_pause_has_its_address_and_the_old_one_is_refused() {
    let world = World::new();
    let begin = json!({ "state": { "order": "o1" }, "invocation_id": "o1" });
    let first = world.post("/graphs/two-questions/turns", &begin).await;
    let callback = path_of(&first.body["callback_url"]);
    let status = path_of(&first.body["status_url"]);
    assert_eq!(world.get(&status).await.body["callback_url"], first.body["callback_url"]);
    let second = world.post(&callback, &json!({})).await;
    assert_eq!((second.status, &second.body["generation"]), (202, &json!(2)), "{}", second.body);
    let next = path_of(&second.body["callback_url"]);
    assert_ne!(next, callback);
    assert_eq!(path_of(&world.get(&status).await.body["callback_url"]), next, "whoever began it is told, too");
    let over = world.get(&callback.replace("/callback/", "/invocations/")).await;
    refused(&over, 410, &Category::SuspensionRecordInvalid);
    let again = world.post(&callback, &json!({})).await;
    for over in [&over, &again] {
        assert!(over.body.get("callback_url").is_none(), "{}", over.body);
    }
    assert_eq!(world.post(&next, &json!({})).await.status, 200);
    assert_eq!(world.post(&next, &json!({})).await.body["repeated"], true);
}

/// The path at which the page of `address` answers, as its script asks for it.
fn answers_from(address: &Value) -> String {
    let page = path_of(address);
    let (id, given) = page.strip_prefix("/console/answer/").and_then(|rest| rest.split_once('#')).expect("a page");
    format!("/callback/{id}?{given}")
}

#[tokio::test]
async fn a_page_takes_the_answer_to_its_one_question_and_tells_nothing_of_the_next() {
    let world = World::new();
    let begin = json!({ "state": { "order": "o1" }, "invocation_id": "o1" });
    let first = world.post("/graphs/two-questions/turns", &begin).await;
    let callback = answers_from(&first.body["page_url"]);
    let seen = world.get(&callback.replace("/callback/", "/invocations/")).await;
    assert_eq!((seen.status, &seen.body["page_url"]), (200, &first.body["page_url"]), "{}", seen.body);
    let yes = json!({ "decision": "yes" });
    let answered = world.post(&callback, &yes).await;
    let told = json!({ "status": "answered", "invocation_id": "o1", "repeated": false });
    assert_eq!((answered.status, &answered.body), (200, &told));
    assert_eq!(world.record("o1").await.paused.generation, 2);
    assert_eq!(world.post(&callback, &yes).await.body["status"], "stale");
    let over = world.get(&callback.replace("/callback/", "/invocations/")).await;
    refused(&over, 410, &Category::SuspensionRecordInvalid);
    // Of several who are asked the one that decides is told no more.
    let begin = json!({ "state": { "order": "o2" }, "invocation_id": "o2" });
    let votes = world.post("/graphs/votes-and-question/turns", &begin).await;
    let of = |part: &str| answers_from(&votes.body["page_urls"][part]);
    let first = world.post(&of("ada"), &yes).await;
    assert_eq!((first.status, &first.body["missing"]), (202, &json!(["grace", "linus"])), "{}", first.body);
    let decides = world.post(&of("grace"), &yes).await;
    let told = json!({ "status": "answered", "invocation_id": "o2", "repeated": false });
    assert_eq!((decides.status, &decides.body), (200, &told));
}

/// A worker that died had taken another answer, which is done before this one is looked at.
#[tokio::test]
async fn an_answer_behind_one_that_was_left_undone_hears_which_of_them_counts() {
    for (sent, status) in [("no", 409), ("yes", 200)] {
        let world = World::new();
        let callback = world.asleep("o1").await;
        let now = world.clock.now();
        let request = ClaimRequest {
            invocation_id: "o1".into(),
            generation: Some(1),
            owner: "dead".into(),
            now,
            until: now + Duration::from_secs(30),
            past: None,
            payload: Some(map(json!({ "decision": "yes" }))),
            answered: None,
        };
        assert!(matches!(world.store.claim(&request).await.expect("a claim"), ClaimOutcome::Granted(_)));
        world.clock.advance(Duration::from_secs(3600));
        let answer = world.post(&callback, &json!({ "decision": sent })).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert_eq!(answer.body["error"]["decided"]["decision"] == "yes", status == 409, "{}", answer.body);
        assert_eq!(world.continuations(), 1);
    }
}
