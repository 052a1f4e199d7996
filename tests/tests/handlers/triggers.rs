//! Events and wake-ups: what the service that delivers them is told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dormouse_http::TriggerError;
use dormouse_ports::{Category, InvocationStatus, Invocations};
use serde_json::{Value, json};

use crate::world::{World, path_of, refused};

fn signal(id: &str, payload: &Value) -> Value {
    json!({ "id": "e1", "source": "dormouse", "detail-type": "Dormouse Signal",
        "detail": { "signal_id": id, "payload": payload } })
}

async fn asleep_for_an_hour(world: &World) {
    let body = json!({ "state": { "order": "o1", "timeout": "PT1H" }, "invocation_id": "o1" });
    assert_eq!(world.post("/graphs/approval/turns", &body).await.status, 202);
}

#[tokio::test]
async fn an_event_goes_on_and_its_duplicate_is_acknowledged() {
    let world = World::new();
    world.asleep("o1").await;
    let event = signal("approval-o1", &json!({ "decision": "yes" }));
    let told = world.app.event(event.clone(), None).await.expect("acknowledged");
    assert_eq!(told, json!({ "status": "completed", "invocation_id": "o1", "repeated": false }));
    let again = world.app.event(event, None).await.expect("acknowledged");
    assert_eq!((&again["repeated"], world.continuations()), (&json!(true), 1));
}

#[tokio::test]
async fn an_event_goes_on_whatever_the_id_of_its_signal_is_made_of() {
    let world = World::new();
    let state = json!({ "order": "Köln 7 / 2027", "amount": 7 });
    let body = json!({ "state": state, "invocation_id": "o1" });
    assert_eq!(world.post("/graphs/approval/turns", &body).await.status, 202);
    let event = signal("approval-Köln 7 / 2027", &json!({ "decision": "yes" }));
    let told = world.app.event(event, None).await.expect("acknowledged");
    assert_eq!(told, json!({ "status": "completed", "invocation_id": "o1", "repeated": false }));
    let long = world.app.event(signal(&"x".repeat(257), &json!({})), None).await;
    assert!(long.expect_err("put aside").to_string().contains("the signal_id is no id"));
}

#[tokio::test]
async fn an_event_of_our_own_is_kept_until_somebody_waits() {
    let world = World::new();
    let event = json!({
        "id": "e1", "source": "dormouse", "detail-type": "Dormouse Signal",
        "detail": { "signal_id": "approval-o1", "payload": { "decision": "yes" } },
    });
    assert_eq!(world.app.event(event, None).await.expect("acknowledged")["status"], "buffered");
    let turn = world.post("/graphs/approval/turns", &json!({ "state": { "order": "o1" } })).await;
    assert_eq!(turn.status, 200);
}

#[tokio::test]
async fn what_does_not_fit_is_put_aside_and_what_may_pass_is_raised() {
    let world = World::new();
    world.asleep("o1").await;
    let misfit = world.app.event(signal("approval-o1", &json!({ "decision": 1 })), None).await;
    let raised = misfit.expect_err("it goes to the queue of what failed");
    assert!(
        matches!(&raised, TriggerError::Turn(error) if error.category == Category::SuspensionResumePayloadInvalid),
        "{raised}"
    );
    let large = world.app.event(signal("approval-o1", &json!({ "decision": "y".repeat(300_000) })), None).await;
    let raised = large.expect_err("it goes there too");
    assert!(matches!(&raised, TriggerError::Turn(error) if error.category == Category::RequestTooLarge), "{raised}");
    world.broken.store(true, Ordering::SeqCst);
    let event = signal("approval-o1", &json!({ "decision": "yes" }));
    let raised = world.app.event(event.clone(), None).await.expect_err("raised");
    assert!(
        matches!(&raised, TriggerError::Turn(error) if error.category == Category::ProviderUnavailable),
        "{raised}"
    );
    world.broken.store(false, Ordering::SeqCst);
    assert_eq!(world.app.event(event, None).await.expect("acknowledged")["status"], "completed");
}

#[tokio::test]
async fn an_event_of_unknown_shape_is_raised() {
    let world = World::new();
    let before = world.written();
    for event in [json!({}), json!({ "source": "aws.s3", "detail-type": "Object Created", "detail": {} })] {
        let raised = world.app.event(event.clone(), None).await.expect_err("raised");
        assert!(matches!(&raised, TriggerError::Unreadable(sentence) if sentence.contains("expected")), "{raised}");
        assert!(world.app.wakeup(event, None).await.is_err());
    }
    assert_eq!(world.written(), before);
}

#[tokio::test]
async fn a_wake_up_ends_a_pause_that_fell_due_and_a_late_one_finds_nothing_to_do() {
    let world = World::new();
    asleep_for_an_hour(&world).await;
    world.clock.advance(Duration::from_secs(3600));
    let wakeup = json!({ "dormouse_wakeup": { "invocation_id": "o1", "generation": 1 } });
    let told = world.app.wakeup(wakeup.clone(), None).await.expect("acknowledged");
    assert_eq!(told["error"]["category"], Category::SuspensionTimedOut.as_str());
    let record = world.store.load_invocation(&"o1".into()).await.expect("the store answers").expect("a record");
    assert!(matches!(record.status, InvocationStatus::Errored(_)));
    assert_eq!(world.app.wakeup(wakeup, None).await.expect("acknowledged")["status"], "stale");
    let late = world.app.event(signal("approval-o1", &json!({ "decision": "yes" })), None).await;
    assert_eq!(late.expect("acknowledged")["status"], "errored");
    assert_eq!(world.signal("approval-o1", &json!({ "decision": "yes" })).await.status, 410);
}

#[tokio::test]
async fn a_sweep_finds_what_the_scheduler_lost() {
    let world = World::new();
    asleep_for_an_hour(&world).await;
    let early = world.app.wakeup(json!({ "dormouse_sweep": "due" }), None).await.expect("swept");
    assert_eq!((&early["status"], &early["called"]), (&json!("swept"), &json!(0)));
    world.clock.advance(Duration::from_secs(3600));
    let late = world.app.wakeup(json!({ "dormouse_sweep": "everything" }), None).await.expect("swept");
    assert_eq!((&late["examined"], &late["called"]), (&json!(2), &json!(1)));
    assert!(!world.app.drain(None).await.timeout_reached);
}

#[tokio::test]
async fn a_deadline_is_told_the_pause_shows_what_comes_next_and_a_late_answer_hears_that_time_decided() {
    let world = World::new();
    let expense = json!({ "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe" });
    let asleep =
        world.post("/graphs/expense-approval/turns", &json!({ "state": expense, "invocation_id": "e1" })).await.body;
    assert_eq!((&asleep["wake"]["later"][0]["rung"], &asleep["wake"]["later"][1]["rung"]), (&json!(1), &json!(2)));
    let wakeup =
        |due_at: &Value| json!({ "dormouse_wakeup": { "invocation_id": "e1", "generation": 1, "due_at": due_at } });
    let first = wakeup(&asleep["wake"]["due"]["at"]);
    world.clock.advance(Duration::from_secs(24 * 3600));
    for _ in 0..2 {
        let told = world.app.wakeup(first.clone(), None).await.expect("acknowledged");
        assert_eq!(told["status"], "suspended");
    }
    let steps: Vec<Value> = world.bus.events().iter().map(|event| event.detail["do"].clone()).collect();
    assert_eq!(steps, ["remind"], "the first deadline passed once");

    let shown = world.get(&path_of(&asleep["status_url"])).await.body;
    assert_eq!(shown["wake"]["due"], asleep["wake"]["later"][0]);
    world.clock.advance(Duration::from_secs(48 * 3600));
    let told = world.app.wakeup(wakeup(&shown["wake"]["due"]["at"]), None).await.expect("acknowledged");
    assert_eq!(told["status"], "completed", "the last deadline is over as well");
    let shown = world.get(&path_of(&asleep["status_url"])).await.body;
    assert_eq!((&shown["resolution"], &shown["state"]["decision"]), (&json!("timed_out"), &json!("timed_out")));
    let late = world.post(&path_of(&asleep["callback_url"]), &json!({ "decision": "approved" })).await;
    let told = refused(&late, 409, &Category::SuspensionRecordInvalid);
    assert!(told.contains("the time for an answer was over"), "{told}");
}

#[tokio::test]
async fn a_ladder_that_goes_down_is_refused_by_name() {
    let world = World::new();
    let expense = json!({
        "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe",
        "decide_within": "P1D", "remind_after": "P2D",
    });
    let answer = world.post("/graphs/expense-approval/turns", &json!({ "state": expense })).await;
    let sentence = refused(&answer, 422, &Category::HarnessSignalSubscriptionFailed);
    assert!(
        sentence.contains("step 2 of its deadlines (`deadlines[1]`; the end of the wait is the last) must come later"),
        "{sentence}"
    );
}
