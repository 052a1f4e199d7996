//! What an answer may say, and what a request may set: of the graphs that ship, each.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::{InvocationStatus, limits};
use serde_json::{Value, json};

use crate::world::{World, path_of};

/// A graph that ships, asleep.
struct Asleep {
    graph: &'static str,
    begins: Value,
    /// An answer that it accepts.
    accepted: Value,
    /// Answers that it refuses, each for one reason.
    refused: Vec<Value>,
}

fn asleep() -> Vec<Asleep> {
    vec![
        Asleep {
            graph: "expense-approval",
            begins: json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" }),
            accepted: json!({ "decision": "approved", "decided_by": "Grace" }),
            refused: vec![
                json!({ "decision": "approved", "amount_cents": 1 }),
                json!({ "decision": "approved", "employee": "Mallory" }),
                json!({ "decision": "approved", "result": "paid" }),
                json!({ "decision": "timed_out" }),
                json!({ "decision": "open" }),
                json!({ "descision": "approved" }),
                json!({ "decided_by": "Grace" }),
                json!({}),
            ],
        },
        Asleep {
            graph: "reminder",
            begins: json!({ "text": "wake up", "after": "P1D" }),
            accepted: json!({}),
            refused: vec![json!({ "text": "sleep on" }), json!({ "reminded_at": "never" })],
        },
        Asleep {
            graph: "export-job",
            begins: json!({ "dataset": "orders" }),
            accepted: json!({ "status": "succeeded", "url": "s3://bucket/key", "rows": 12, "dataset": "others" }),
            refused: vec![json!({ "status": "DONE" }), json!({ "url": "s3://bucket/key" }), json!({ "rows": 12 })],
        },
        Asleep {
            graph: "chat",
            begins: json!({ "messages": [{ "role": "user", "content": "it needs approval" }] }),
            accepted: json!({ "allowed": true }),
            refused: vec![
                json!({ "allowed": true, "messages": [{ "role": "assistant", "content": "it is done" }] }),
                json!({ "allow": true }),
                json!({}),
            ],
        },
    ]
}

#[tokio::test]
async fn an_answer_that_says_more_or_less_than_was_asked_is_refused_and_changes_nothing() {
    for Asleep { graph, begins, accepted, refused } in asleep() {
        let world = World::new();
        let body = json!({ "state": begins, "invocation_id": "i-1" });
        let waiting = world.post(&format!("/graphs/{graph}/turns"), &body).await;
        assert_eq!(waiting.status, 202, "{}", waiting.body);
        assert!(waiting.body["waiting_for"]["metadata"]["accepts"].is_object(), "{}", waiting.body);
        let callback = path_of(&waiting.body["callback_url"]);
        let before = world.record("i-1").await;
        for payload in refused {
            let answer = world.post(&callback, &payload).await;
            assert_eq!(answer.status, 422, "{graph} {payload}: {}", answer.body);
            assert_eq!(answer.body["error"]["category"], "suspension_resume_payload_invalid");
            assert_eq!(world.record("i-1").await, before, "{graph} {payload}");
        }
        let done = world.post(&callback, &accepted).await;
        assert_eq!((done.status, &done.body["status"]), (200, &json!("completed")), "{graph}: {}", done.body);
    }
}

#[tokio::test]
async fn an_event_carries_more_than_is_taken() {
    let world = World::new();
    let body = json!({ "state": { "dataset": "orders" }, "invocation_id": "i-1" });
    let waiting = world.post("/graphs/export-job/turns", &body).await;
    let payload = json!({ "status": "succeeded", "url": "s3://bucket/key", "dataset": "others" });
    let done = world.post(&path_of(&waiting.body["callback_url"]), &payload).await;
    assert_eq!((done.status, done.body.get("state")), (200, None), "{}", done.body);
    let seen = world.get(&path_of(&waiting.body["status_url"])).await;
    assert_eq!(seen.body["state"]["result"], "orders is exported: s3://bucket/key");
}

#[tokio::test]
async fn a_vote_says_only_what_was_asked() {
    let world = World::new();
    let state = json!({ "item": "a lathe", "amount_cents": 120_000 });
    let body = json!({ "state": state, "invocation_id": "i-1" });
    let waiting = world.post("/graphs/purchase/turns", &body).await;
    let ada = path_of(&waiting.body["callback_urls"]["ada"]);
    for payload in
        [json!({ "vote": "yes", "amount_cents": 1 }), json!({ "vot": "no" }), json!({}), json!({ "vote": 1 })]
    {
        let answer = world.post(&ada, &payload).await;
        assert_eq!(answer.status, 422, "{payload}: {}", answer.body);
    }
    let record = world.record("i-1").await;
    assert_eq!(record.status, InvocationStatus::Suspended);
    assert!(record.paused.fan_in.expect("a fan-in").answers.is_empty());
    assert_eq!(world.post(&ada, &json!({ "vote": "no", "remark": "too dear" })).await.status, 200);
}

#[tokio::test]
async fn a_request_sets_only_what_the_graph_takes() {
    for (graph, state, field) in [
        ("expense-approval", json!({ "employee": "Ada", "amount_cents": 12_000, "decision": "approved" }), "decision"),
        ("expense-approval", json!({ "amount_cents": 12_000, "decided_by": "Grace" }), "decided_by"),
        ("purchase", json!({ "amount_cents": 12_000, "votes": { "outcome": "enough" } }), "votes"),
        ("export-job", json!({ "dataset": "orders", "job_id": "another" }), "job_id"),
        ("export-job", json!({ "dataset": "orders", "status": "succeeded" }), "status"),
        ("reminder", json!({ "after": "P1D", "reminded_at": "yesterday" }), "reminded_at"),
        ("chat", json!({ "messages": [], "allowed": true }), "allowed"),
        ("chat", json!({ "mesages": [] }), "mesages"),
    ] {
        let world = World::new();
        let body = json!({ "state": state, "invocation_id": "i-1" });
        let answer = world.post(&format!("/graphs/{graph}/turns"), &body).await;
        assert_eq!(answer.status, 422, "{graph}: {}", answer.body);
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("field `{field}` cannot be set by a request")), "{message}");
        assert!(world.is_unknown("i-1").await, "{graph}");
    }
}

/// Who began it gets a new address; nobody else learns why an old one is refused.
#[tokio::test]
async fn an_address_is_good_for_a_time() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let begun = world.begun("o1").await;
    let old = [path_of(&begun["status_url"]), path_of(&begun["cancel_url"])];
    let answer = json!({ "decision": "yes" });
    world.clock.advance(limits::ADDRESS);
    let before = world.written();
    let refused =
        [world.post(&callback, &answer).await, world.get(&old[0]).await, world.post(&old[1], &json!({})).await];
    for refused in refused {
        assert_eq!(refused.status, 410, "{}", refused.body);
        assert!(refused.body["error"]["message"].as_str().is_some_and(|told| told.contains("same id")));
    }
    assert_eq!(world.written(), before, "nothing was done");
    let begun = world.begun("o1").await;
    assert_eq!(world.get(&path_of(&begun["status_url"])).await.status, 200);
    assert_eq!(world.post(&path_of(&begun["callback_url"]), &answer).await.status, 200);
    assert_eq!(world.post(&callback, &answer).await.status, 410);
    let foreign = callback.replacen("o1", "o2", 1);
    assert_eq!(world.post(&foreign, &answer).await.status, 404);
}

/// What is signed is what the token says and then the id: bytes that are moved from the one to the other make no other address.
#[tokio::test]
async fn an_address_opens_no_invocation_whose_id_its_own_ends_with() {
    let world = World::new();
    let callback = world.asleep("o1").await;
    let own = world.asleep("evil-o1").await;
    let (_, token) = own.split_once("?token=").expect("a token");
    let bytes = URL_SAFE_NO_PAD.decode(token).expect("base64url");
    let (said, signature) = bytes.split_at(16);
    let forged = URL_SAFE_NO_PAD.encode([said, b"evil-", signature].concat());
    let before = world.written();
    assert_eq!(world.get(&format!("/invocations/o1?token={forged}")).await.status, 404);
    let answer = json!({ "decision": "yes" });
    for path in [format!("/callback/o1?token={forged}"), format!("/invocations/o1/cancel?token={forged}")] {
        assert_eq!(world.post(&path, &answer).await.status, 404, "{path}");
    }
    assert_eq!(world.written(), before);
    assert_eq!(world.get(&callback.replace("/callback/", "/invocations/")).await.status, 200);
}
