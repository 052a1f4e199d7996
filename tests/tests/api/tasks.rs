//! The life of a task: what its clients see of an invocation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dormouse_api::CallAnswer;
use dormouse_harness::TurnOutcome;
use dormouse_otel::Telemetry;
use dormouse_ports::{CommitError, InvocationId, InvocationStatus, Invocations, StoreError};
use dormouse_testkit::SubscriptionCall;
use futures::FutureExt;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;

use crate::world::{World, ada, ids, says, text};

/// An expense that somebody has to decide about.
fn expense() -> Value {
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    json!({"persona_id": "persona_expense-approval", "input": state, "metadata": {"ref": 7}})
}

/// A task that waits: its path.
async fn waiting(world: &World, session: &str, body: Value) -> String {
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    path
}

/// As a client sends it whose input line stayed empty.
fn approved(kind: &str) -> Value {
    let parts = [json!({"type": "text", "text": " "}), json!({"type": "json", "value": {"approved": true}})];
    json!({"kind": kind, "message": {"role": "user", "parts": parts}})
}

/// A full disk takes neither what a turn did nor that it is over.
#[tokio::test]
async fn the_log_tells_until_when_a_claim_counts_that_cannot_be_given_back() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    let telemetry = Telemetry::in_memory();
    let subscriber = tracing_subscriber::registry().with(telemetry.log_bridge());
    let full = || CommitError::Store(StoreError::Unavailable("the disk is full".to_owned()));
    world.gate.hold(move |_| async move { Err(full()) }.boxed());
    world.work().with_subscriber(subscriber).await;
    let memory = world.memory.clone().unwrap();
    let record = memory.load_invocation(&InvocationId::from(text(&task["id"]))).await.unwrap().unwrap();
    let InvocationStatus::Resuming(claim) = record.status else { panic!("no worker has claimed it") };
    let told = format!("{:?}", telemetry.logs());
    assert!(told.contains("could not give its claim back") && told.contains(&claim.until.to_string()), "{told}");
}

#[tokio::test]
async fn a_conversation_completes() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    assert_eq!((&task["status"], &task["persona_id"]), (&json!("WORKING"), &json!("persona_chat")));
    assert_eq!(task["input"]["parts"][0]["text"], "Hello");
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    assert_eq!(world.get(&path).await, task, "nothing has run yet");
    world.work().await.unwrap();
    let done = world.get(&path).await;
    assert_eq!(done["status"], "COMPLETED");
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&done["outcome_id"]))).await;
    assert_eq!((&outcome["status"], &outcome["task_id"]), (&json!("SUCCEEDED"), &task["id"]));
    assert!(text(&outcome["summary"]).contains("I read \"Hello\" as message 1"), "{outcome}");
    assert_eq!(world.get(&format!("/v1/outcomes?task_id={}", text(&task["id"]))).await["data"], json!([outcome]));
    let reply = &outcome["messages"][0];
    assert_eq!(world.get(&format!("/v1/messages/{}", text(&reply["id"]))).await, *reply);
    let told = ["task.submitted", "user.message", "task.started", "agent.message", "task.completed"];
    assert_eq!(world.told(&format!("{path}/events")).await, told);
    assert_eq!(world.get(&session).await["state"], "IDLE");
    assert_eq!(ids(&world.get(&format!("{session}/tasks")).await), [text(&task["id"])]);
    world.post("/v1/tasks", json!({"session_id": task["session_id"], "input": {"question": "why"}})).await;
    world.work().await.unwrap();
    let list = world.get(&format!("/v1/tasks?session_id={}", text(&task["session_id"]))).await;
    assert_eq!(list["data"][0]["status"], "COMPLETED", "a payload that is no state is what the user says");
}

#[tokio::test]
async fn an_approval_is_asked_for_and_given() {
    let (world, session) = World::with_session().await;
    approval(&world, &session).await;
}

pub(crate) async fn approval(world: &World, session: &str) {
    let path = waiting(world, session, expense()).await;
    assert_eq!(world.get(session).await["state"], "PAUSED");
    let events = world.get(&format!("{path}/events")).await;
    let asked = events["data"].as_array().unwrap().last().unwrap();
    assert_eq!(asked["event"], "task.auth_required");
    let request = &asked["payload"]["request"];
    assert_eq!(request["description"], "Ada asks for EUR 120.00 for a keyboard");
    assert_eq!((request.get("answers"), request["due_at"].is_string()), (None, true));
    assert!(request["due_at"].as_str() < request["ends_at"].as_str(), "a reminder, and the end: {request}");

    let message = world.post(&format!("{path}/messages"), approved("tool_confirmation")).await;
    assert_eq!(world.get(&format!("/v1/messages/{}", text(&message["id"]))).await, message);
    assert_eq!(world.get(&path).await["status"], "WORKING");
    let TurnOutcome::Completed(turn) = world.work().await.unwrap() else { panic!("it completes") };
    assert_eq!((&turn.state["decision"], &turn.state["decided_by"]), (&json!("approved"), &json!("ada")));
    let done = world.get(&path).await;
    assert_eq!((&done["status"], &done["metadata"]), (&json!("COMPLETED"), &json!({"ref": 7})));
    let told = [
        "task.submitted",
        "task.started",
        "agent.message",
        "task.auth_required",
        "user.tool_confirmation",
        "task.status_changed",
        "agent.message",
        "artifact.created",
        "task.completed",
    ];
    assert_eq!(world.told(&format!("{path}/events")).await, told);

    let outcome = world.get(&format!("/v1/outcomes/{}", text(&done["outcome_id"]))).await;
    assert_eq!(outcome["summary"], "EUR 120.00 paid to Ada, approved by ada");
    let artifact = text(&outcome["artifacts"][0]["id"]);
    assert_eq!(world.get(&format!("/v1/artifacts/{artifact}")).await, outcome["artifacts"][0]);
    let content = world.call(ada(), "GET", &format!("/v1/artifacts/{artifact}/content"), &Value::Null, None).await;
    let CallAnswer::Bytes { bytes, .. } = content.unwrap() else { panic!("bytes") };
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["decision"], "approved");
}

#[tokio::test]
async fn a_message_to_the_session_answers_what_waits() {
    let (world, session) = World::with_session().await;
    let path = waiting(&world, &session, says("I need an approval")).await;
    let say = |words: &str| json!({"message": {"role": "user", "parts": [{"type": "text", "text": words}]}});
    let other = world.post(&format!("{session}/messages"), say("What takes so long?")).await;
    assert_eq!((&other["task_id"], &world.get(&path).await["status"]), (&Value::Null, &json!("AUTH_REQUIRED")));
    let answer = world.post(&format!("{session}/messages"), say("Yes.")).await;
    assert_eq!(text(&answer["task_id"]), path.rsplit('/').next().unwrap());
    world.work().await.unwrap();
    let done = world.get(&path).await;
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&done["outcome_id"]))).await;
    assert!(text(&outcome["summary"]).contains("A person allowed it"), "{outcome}");
}

#[tokio::test]
async fn what_is_said_in_a_session_is_no_outcome_of_a_job() {
    let (world, session) = World::with_session().await;
    let export = json!({"persona_id": "persona_export-job", "input": {"dataset": "orders"}});
    let task = world.post(&format!("{session}/tasks"), export).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let part = json!({"type": "json", "value": {"status": "succeeded", "url": "s3://exports/1"}});
    let message = json!({"role": "user", "parts": [part]});
    let said = world.post(&format!("{session}/messages"), json!({"message": message})).await;
    assert_eq!((&said["task_id"], &world.get(&path).await["status"]), (&Value::Null, &json!("INPUT_REQUIRED")));
    let told = world.post(&format!("{path}/messages"), json!({"kind": "input", "message": message})).await;
    assert_eq!(told["task_id"], task["id"], "who names the task answers in the place of the job");
    world.work().await.unwrap();
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
}

#[tokio::test]
async fn the_callback_moves_the_same_task() {
    let (world, session) = World::with_session().await;
    let path = waiting(&world, &session, expense()).await;
    let id = path.rsplit('/').next().unwrap();
    let turn = world.callback(id, json!({"decision": "rejected", "decided_by": "Grace"})).await;
    assert!(matches!(turn.outcome, TurnOutcome::Completed(_)), "{turn:?}");
    let done = world.get(&path).await;
    assert_eq!(done["status"], "COMPLETED");
    let told = world.told(&format!("{path}/events")).await;
    let expected = ["task.status_changed", "agent.message", "artifact.created", "task.completed"];
    assert_eq!(told[told.len() - 4..], expected);
    let refusal = world.refusal(ada(), "POST", &format!("{path}/messages"), approved("input")).await;
    assert_eq!((refusal.status(), refusal.code().as_str()), (400, "invalid_state_transition"));
}

#[tokio::test]
async fn a_callback_that_does_not_fit_leaves_the_task_waiting() {
    let (world, session) = World::with_session().await;
    let path = waiting(&world, &session, expense()).await;
    let id = path.rsplit('/').next().unwrap();
    let turn = world.callback(id, json!({"decision": 7})).await;
    assert!(matches!(turn.outcome, TurnOutcome::Errored(_)), "{turn:?}");
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    world.post(&format!("{path}/messages"), approved("input")).await;
    world.work().await.unwrap();
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused() {
    let (world, session) = World::with_session().await;
    let path = waiting(&world, &session, expense()).await;
    let answer = |value: Value| json!({"kind": "input", "message": {"role": "user", "parts": [{"type": "json", "value": value}]}});
    for body in [answer(json!({"decision": 7})), answer(json!([])), approved("interrupts")] {
        let refusal = world.refusal(ada(), "POST", &format!("{path}/messages"), body).await;
        assert_eq!(refusal.status(), 400);
    }
    let interrupt =
        json!({"kind": "interrupt", "message": {"role": "user", "parts": [{"type": "text", "text": "Stop"}]}});
    world.post(&format!("{path}/messages"), interrupt).await;
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED", "an interruption answers nothing");
    assert_eq!(world.told(&format!("{path}/events")).await.last().unwrap(), "user.message");
}

#[tokio::test]
async fn a_graph_that_fails_fails_its_task() {
    let (world, session) = World::with_session().await;
    let body = json!({"persona_id": "persona_expense-approval", "input": {"amount_cents": 0}});
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let done = world.get(&path).await;
    assert_eq!((&done["status"], &done["failure"]["code"]), (&json!("FAILED"), &json!("request_invalid")));
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&done["outcome_id"]))).await;
    assert_eq!((&outcome["status"], &outcome["failure"]), (&json!("FAILED"), &done["failure"]));
    assert_eq!(world.told(&format!("{path}/events")).await.last().unwrap(), "task.failed");
}

#[tokio::test]
async fn what_waits_can_be_canceled_and_stays_so() {
    let (world, session) = World::with_session().await;
    let path = waiting(&world, &session, expense()).await;
    let id = path.rsplit('/').next().unwrap();
    let canceled = world.post(&format!("{path}/cancel"), json!({"reason": "bought elsewhere"})).await;
    assert_eq!((&canceled["status"], &canceled["completed_at"]), (&json!("CANCELED"), &Value::Null));
    assert!(canceled["canceled_at"].is_string());
    assert_eq!(world.post(&format!("{path}/cancel"), Value::Null).await, canceled, "once more changes nothing");
    let taken_back = |call: &SubscriptionCall| matches!(call, SubscriptionCall::Cancelled(_));
    assert!(world.subscriptions.calls().iter().any(taken_back), "nobody is woken for it any more");
    let turn = world.callback(id, json!({"decision": "approved"})).await;
    assert!(matches!(turn.outcome, TurnOutcome::Errored(_)), "{turn:?}");
    assert_eq!(world.get(&path).await, canceled);
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&canceled["outcome_id"]))).await;
    assert_eq!(outcome["summary"], "The task was canceled: bought elsewhere");
    let told = world.told(&format!("{path}/events")).await;
    assert_eq!(told[told.len() - 2..], ["user.cancel_requested", "task.canceled"]);
    assert_eq!(world.get(&session).await["state"], "IDLE");
}

#[tokio::test]
async fn a_cancel_before_the_first_turn_leaves_nothing_to_run() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    world.post(&format!("{path}/cancel"), Value::Null).await;
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "CANCELED");
    assert_eq!(
        world.get(&format!("/v1/outcomes?task_id={}", text(&task["id"]))).await["data"][0]["status"],
        "CANCELED"
    );
    assert_eq!(world.told(&format!("{path}/events")).await.last().unwrap(), "task.canceled");
}

#[tokio::test]
async fn what_has_completed_cannot_be_canceled() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}/cancel", text(&task["id"]));
    let refusal = world.refusal(ada(), "POST", &path, Value::Null).await;
    assert_eq!((refusal.status(), refusal.code().as_str()), (409, "conflict"));
}

#[tokio::test]
async fn a_scheduler_that_does_not_answer_keeps_nobody_waiting_who_cancels() {
    let (world, session) = World::with_session().await;
    let mut body = expense();
    body["input"]["decide_within"] = json!("PT1H");
    let path = waiting(&world, &session, body).await;
    world.subscriptions.fall_silent();
    let target = format!("{path}/cancel");
    let mut canceling = std::pin::pin!(world.post(&target, json!({})));
    for seconds in 0..60 {
        if let Poll::Ready(canceled) = futures::poll!(&mut canceling) {
            assert_eq!(canceled["status"], "CANCELED");
            assert!(seconds < 7, "{seconds} s");
            return;
        }
        tokio::task::yield_now().await;
        world.clock.advance(Duration::from_secs(1));
    }
    panic!("nobody is answered");
}

/// Cancel and completion at once: exactly one of them ends the task, and everything that is told agrees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_races_the_completion() {
    let mut ends = BTreeMap::<String, usize>::new();
    let (world, session) = World::with_session().await;
    for _ in 0..40 {
        *ends.entry(world.while_time_passes(cancel_and_complete(&world, &session)).await).or_default() += 1;
    }
    assert_eq!(ends.values().sum::<usize>(), 40, "{ends:?}");
}

/// How the task ended.
pub(crate) async fn cancel_and_complete(world: &Arc<World>, session: &str) -> String {
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let turn = tokio::spawn({
        let world = world.clone();
        async move { world.work().await }
    });
    let cancel = world.call(ada(), "POST", &format!("{path}/cancel"), &Value::Null, None).await;
    turn.await.unwrap();
    let done = world.get(&path).await;
    let status = text(&done["status"]).to_owned();
    assert_eq!(status, if cancel.is_ok() { "CANCELED" } else { "COMPLETED" });
    let outcomes = world.get(&format!("/v1/outcomes?task_id={}", text(&task["id"]))).await;
    assert_eq!(ids(&outcomes), [text(&done["outcome_id"])]);
    let told = world.told(&format!("{path}/events")).await;
    assert_eq!(told.last().unwrap(), if cancel.is_ok() { "task.canceled" } else { "task.completed" });
    status
}

#[tokio::test]
async fn a_deadline_decides_where_nobody_does() {
    let (world, session) = World::with_session().await;
    let mut body = expense();
    body["input"]["decide_within"] = json!("PT1H");
    let path = waiting(&world, &session, body).await;
    world.clock.advance(Duration::from_secs(3601));
    dormouse_maintenance::sweep(&world.harness, &world.maintenance, dormouse_maintenance::SweepScope::Due)
        .await
        .unwrap();
    world.work().await;
    let done = world.get(&path).await;
    assert_eq!(done["status"], "COMPLETED");
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&done["outcome_id"]))).await;
    assert_eq!(outcome["summary"], "not paid: nobody decided in time");
}
