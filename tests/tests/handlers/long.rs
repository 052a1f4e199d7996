//! Answers that would be longer than Lambda takes: what was done is told all the same.

use dormouse_ports::limits::ANSWER;
use serde_json::{Value, json};

use crate::world::{World, header, path_of, request};

/// A turn whose state is `times` times `of`.
fn swollen(of: &str, times: usize, decision: &str) -> Value {
    json!({ "state": { "order": of, "amount": times, "decision": decision }, "invocation_id": "large" })
}

/// Checks that `answer` tells everything but the state, and gives the size of that.
fn without_state(answer: &Value) -> usize {
    assert!(answer.to_string().len() < ANSWER && answer.get("state").is_none(), "{answer}");
    let bytes = answer["state_omitted"]["bytes"].as_u64().expect("a size");
    usize::try_from(bytes).expect("a size")
}

#[tokio::test]
async fn a_turn_that_ends_with_a_large_state_is_told_as_ended_and_never_runs_again() {
    for (of, times, escaped) in [("\"", 4 << 20, 2), ("\u{1}", 5 << 19, 6), ("x", 5 << 20, 1)] {
        let world = World::new();
        let turn = swollen(of, times, "");
        let first = world.post("/graphs/swell/turns", &turn).await;
        assert_eq!((first.status, &first.body["status"]), (200, &json!("completed")), "{}", first.body);
        let bytes = without_state(&first.body);
        assert!(bytes > times * escaped && bytes < times * escaped + 200, "{bytes}");
        let written = world.written();
        let again = world.post("/graphs/swell/turns", &turn).await;
        assert_eq!((again.status, &again.body["repeated"]), (200, &json!(true)));
        assert_eq!((without_state(&again.body), world.written()), (bytes, written));

        let status = path_of(&first.body["status_url"]);
        assert_eq!(without_state(&world.get(&status).await.body), bytes);
        let some = world.get(&format!("{status}&fields=order,amount,nothing")).await;
        assert_eq!((some.status, &some.body["state"]), (200, &json!({ "order": of, "amount": times })));
    }
}

#[tokio::test]
async fn a_pause_with_a_large_state_is_told_with_its_addresses_and_answered_once() {
    let world = World::new();
    let turn = swollen("x", 5 << 20, "wait");
    let asleep = world.post("/graphs/swell/turns", &turn).await;
    assert_eq!((asleep.status, &asleep.body["status"]), (202, &json!("suspended")), "{}", asleep.body);
    without_state(&asleep.body);
    let status = world.get(&format!("{}&fields=decision", path_of(&asleep.body["status_url"]))).await;
    assert_eq!(status.body["state"], json!({ "decision": "wait" }));
    let done = world.signal("swollen", &json!({ "decision": "go" })).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("completed")), "{}", done.body);
    without_state(&done.body);
    let again = world.signal("swollen", &json!({ "decision": "go" })).await;
    assert_eq!((again.status, &again.body["repeated"]), (200, &json!(true)));
    without_state(&again.body);
}

/// Nobody can ask for what is kept nowhere, and is told how to begin so that it is.
#[tokio::test]
async fn of_a_turn_that_leaves_no_record_no_address_is_told() {
    let world = World::new();
    let mut turn = swollen("x", 5 << 20, "");
    turn.as_object_mut().expect("an object").remove("invocation_id");
    let done = world.post("/graphs/swell/turns", &turn).await;
    without_state(&done.body);
    assert!(done.body.get("status_url").is_none(), "{}", done.body);
    let help = done.body["state_omitted"]["help"].as_str().expect("help");
    assert!(help.contains("Idempotency-Key"), "{help}");
    let mut keyed = request("POST", "/graphs/swell/turns", turn.to_string().as_bytes());
    keyed.headers.push(("idempotency-key".to_owned(), "k".to_owned()));
    let done = world.http(keyed).await;
    without_state(&done.body);
    let some = world.get(&format!("{}&fields=order", path_of(&done.body["status_url"]))).await;
    assert_eq!((some.status, &some.body["state"]), (200, &json!({ "order": "x" })));
    assert!(header(&some, "x-request-id").is_some());
}
