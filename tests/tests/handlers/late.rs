//! Answers to a pause after which the invocation sleeps again: the same one is told so, another one that it does not
//! count.

use std::time::Duration;

use dormouse_ports::Category;
use serde_json::{Value, json};

use crate::world::{World, path_of, refused};

/// Begins an invocation of `graph` and gives its answer.
async fn begun(world: &World, graph: &str, state: Value) -> Value {
    let begin = json!({ "state": state, "invocation_id": "o1" });
    let first = world.post(&format!("/graphs/{graph}/turns"), &begin).await;
    assert_eq!((first.status, &first.body["status"]), (202, &json!("suspended")), "{}", first.body);
    first.body
}

#[tokio::test]
async fn an_answer_is_compared_with_the_one_that_counts() {
    let world = World::new();
    let callback = path_of(&begun(&world, "two-questions", json!({ "order": "o1" })).await["callback_url"]);
    let yes = json!({ "decision": "yes", "amount": 1 });
    let second = world.post(&callback, &yes).await;
    assert_eq!((second.status, &second.body["generation"]), (202, &json!(2)), "{}", second.body);
    let before = world.written();
    for same in [&yes, &json!({ "amount": 1, "decision": "yes" })] {
        let again = world.post(&callback, same).await;
        assert_eq!(
            (again.status, &again.body),
            (
                200,
                &json!({ "status": "stale", "invocation_id": "o1",
            "repeated": true })
            ),
            "nothing of the pause of now"
        );
        let again = world.signal("o1-1", same).await;
        assert_eq!((again.status, &again.body["repeated"]), (202, &json!(true)), "{}", again.body);
    }
    for other in [json!({ "decision": "no", "amount": 1 }), json!({}), json!({ "decision": "yes" })] {
        for late in [world.post(&callback, &other).await, world.signal("o1-1", &other).await] {
            let message = refused(&late, 409, &Category::SuspensionRecordInvalid);
            assert!(message.contains("answered before with another payload"), "{message}");
            assert_eq!(late.body["error"].get("decided"), None, "{}", late.body);
        }
    }
    assert_eq!(world.written(), before);
    let next = path_of(&second.body["callback_url"]);
    assert_eq!(world.post(&next, &json!({ "decision": "later" })).await.status, 200);
    let done = world.post(&callback, &yes).await;
    assert_eq!((done.status, &done.body["repeated"], done.body.get("state")), (200, &json!(true), None));
    refused(&world.post(&callback, &json!({})).await, 409, &Category::SuspensionRecordInvalid);
}

#[tokio::test]
async fn an_answer_that_time_was_before_does_not_count() {
    let world = World::new();
    let asked = json!({ "order": "o1", "timeout": "PT1H" });
    let callback = path_of(&begun(&world, "two-questions", asked).await["callback_url"]);
    world.clock.advance(Duration::from_secs(3600));
    let wakeup = json!({ "dormouse_wakeup": { "invocation_id": "o1", "generation": 1 } });
    let told = world.app.wakeup(wakeup, None).await.expect("acknowledged");
    assert_eq!(world.record("o1").await.paused.generation, 2, "{told}");
    let yes = json!({ "decision": "yes" });
    for late in [world.post(&callback, &yes).await, world.signal("o1-1", &yes).await] {
        let message = refused(&late, 409, &Category::SuspensionRecordInvalid);
        assert!(message.contains("the time for an answer was over"), "{message}");
    }
}

#[tokio::test]
async fn the_answer_of_a_part_is_compared_with_its_own() {
    let world = World::new();
    let first = begun(&world, "votes-and-question", json!({ "order": "o1" })).await;
    let of = |part: &str| path_of(&first["callback_urls"][part]);
    let [yes, no] = ["yes", "no"].map(|decision| json!({ "decision": decision }));
    assert_eq!(world.post(&of("ada"), &yes).await.body["accepted"], "ada");
    let decides = world.post(&of("grace"), &no).await;
    let told = json!({ "status": "answered", "invocation_id": "o1", "repeated": false });
    assert_eq!((decides.status, &decides.body), (200, &told), "nothing of the question that others are asked next");
    assert_eq!(world.record("o1").await.paused.generation, 2);
    for (part, same, other) in [("ada", &yes, &no), ("grace", &no, &yes)] {
        assert_eq!(world.post(&of(part), same).await.body["status"], "stale", "{part}");
        refused(&world.post(&of(part), other).await, 409, &Category::SuspensionRecordInvalid);
        let signal_id = format!("o1-{part}");
        assert_eq!(world.signal(&signal_id, same).await.body["repeated"], true, "{part}");
        refused(&world.signal(&signal_id, other).await, 409, &Category::SuspensionRecordInvalid);
    }
    refused(&world.post(&of("linus"), &yes).await, 409, &Category::SuspensionRecordInvalid);
}

/// Of a pause before the last one that ended nobody knows any more which answer counted.
#[tokio::test]
async fn older_pauses_are_over_whatever_is_said() {
    let world = World::new();
    let first = begun(&world, "three-questions", json!({ "order": "o1" })).await;
    let callback = path_of(&first["callback_url"]);
    let yes = json!({ "decision": "yes" });
    for number in 1..=2 {
        let taken = world.signal(&format!("o1-{number}"), &yes).await;
        assert_eq!(taken.body["generation"], number + 1, "{}", taken.body);
    }
    for said in [&yes, &json!({ "decision": "no" })] {
        refused(&world.post(&callback, said).await, 410, &Category::SuspensionRecordInvalid);
        let signalled = world.signal("o1-1", said).await;
        assert_eq!((signalled.status, &signalled.body["repeated"]), (202, &json!(true)), "{}", signalled.body);
    }
}
