//! The binaries of `functions/` themselves: started as processes, driven through the Lambda Runtime API, with state in
//! the embedded store that they share.

use dormouse_aws::ensure_table;
use dormouse_local::{EmbeddedDynamoDb, Place};
use dormouse_tests::lambda::{self, Lambda};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn one_function_falls_asleep_and_another_wakes_up() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&Place::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");

    let inbound = Lambda::start("dormouse-inbound", &store.endpoint()).await;
    let message = json!({ "role": "user", "content": "please get an approval" });
    let waits = inbound.http("/chat/chat/sessions/s1/messages", "", &message).await;
    assert_eq!((&waits["statusCode"], status(&waits)), (&json!(202), json!("suspended")), "{waits}");
    drop(inbound);

    let signal = Lambda::start("dormouse-signal", &store.endpoint()).await;
    let callback = body(&waits)["callback_url"].as_str().expect("an address").to_owned();
    let (path, query) = callback.split_once('?').expect("a token");
    let done = signal.http(path, query, &json!({ "allowed": true })).await;
    assert_eq!((&done["statusCode"], status(&done)), (&json!(200), json!("completed")), "{done}");
    assert_eq!(body(&done)["session_id"], "s1");

    let invocation_id = &body(&done)["invocation_id"];
    let event = json!({ "dormouse_signal": { "signal_id": format!("chat-{}", invocation_id.as_str().expect("an id")),
        "payload": { "allowed": false }, "event_id": "e1" } });
    let duplicate = signal.invoke(event).await.expect("acknowledged");
    assert_eq!(duplicate, json!({ "status": "completed", "invocation_id": invocation_id, "repeated": true }));
    let error = signal.invoke(json!({ "source": "aws.s3" })).await.expect_err("raised");
    assert_eq!(error["errorType"], "unreadable_event");

    let wakeup = Lambda::start("dormouse-wakeup", &store.endpoint()).await;
    let late = json!({ "dormouse_wakeup": { "invocation_id": invocation_id, "generation": 1 } });
    assert_eq!(wakeup.invoke(late).await.expect("acknowledged")["status"], "stale");
    assert_eq!(wakeup.invoke(json!({ "dormouse_sweep": "due" })).await.expect("swept")["examined"], 0);
}

fn body(answer: &Value) -> Value {
    serde_json::from_str(answer["body"].as_str().expect("a body")).expect("JSON")
}

fn status(answer: &Value) -> Value {
    body(answer)["status"].clone()
}
