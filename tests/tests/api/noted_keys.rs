//! Keys for repetitions that are noted in what a request writes to its session: submitting a task, and answering it.

use std::sync::Arc;
use std::time::Duration;

use dormouse_api::CallAnswer;
use dormouse_harness::TurnOutcome;
use dormouse_ports::{
    Append, Clock, Commit, CommitError, Commits, DocumentKey, DocumentWrite, EndOfStream, Journal, Records, StoreError,
    StreamEnd, StreamTip,
};
use dormouse_protocol::Method;
use dormouse_protocol::request::{IdempotencyKey, IdempotencyScope};
use futures::FutureExt;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{World, actor, ada, body, ids, says, text};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// An expense that somebody has to decide about.
fn expense() -> Value {
    let state = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    json!({"persona_id": "persona_expense-approval", "input": state, "metadata": {"ref": 7}})
}

fn decided(approved: bool) -> Value {
    let parts = [json!({"type": "json", "value": {"approved": approved}})];
    json!({"kind": "input", "message": {"role": "user", "parts": parts}})
}

/// The first answer to what is asked at `target`, which is done.
async fn first(world: &World, target: &str, body: &Value, key: &str) -> Value {
    let answer = world.keyed(target, body, key).await.unwrap();
    let CallAnswer::Json(_, answer) = answer else { panic!("{target} {key} is asked for the first time: {answer:?}") };
    answer
}

/// Asks again what was answered with `answer`: nothing is done, and another body is refused.
async fn again(world: &World, target: &str, body: &Value, (key, answer): (&str, &Value)) {
    let repeated = world.keyed(target, body, key).await.unwrap();
    let CallAnswer::Repeated(_, repeated) = repeated else { panic!("{target} {key} is done again: {repeated:?}") };
    assert_eq!(repeated, *answer, "{target} {key}");
    let mut other = body.clone();
    let changed = if body.get("message").is_some() { &mut other["message"] } else { &mut other };
    changed["metadata"]["other"] = json!(true);
    let refusal = world.keyed(target, &other, key).await.unwrap_err();
    assert_eq!((refusal.status(), refusal.code().as_str()), (409, "idempotency_key_reused"), "{target} {key}");
}

/// The document that remembers what ada was answered at `target` with `key`, where it is not noted.
fn document(target: &str, key: &str) -> DocumentKey {
    let key = IdempotencyKey::read(Some(key)).unwrap().unwrap();
    let scope = IdempotencyScope { actor: "acme/ada", workspace_id: "", method: Method::Post, target, key: &key };
    DocumentKey::new("idempotency", scope.id())
}

async fn has_document(world: &World, target: &str, key: &str) -> bool {
    let memory = world.memory.as_ref().unwrap();
    memory.document(&document(target, key), world.clock.now()).await.unwrap().is_some()
}

#[tokio::test]
async fn a_submit_and_an_approval_are_answered_the_same_again_and_write_no_document() {
    let (world, session) = World::with_session().await;
    let messages = submitted_and_approved(&world, &session).await;
    assert!(!has_document(&world, &format!("{session}/tasks"), "s").await);
    assert!(!has_document(&world, &messages, "a").await);
    let stored = world.entries(session.rsplit('/').next().unwrap()).await;
    let notes = stored.iter().filter(|event| event.get("noted").is_some());
    let notes: Vec<&str> = notes.map(|event| text(&event["event"])).collect();
    assert_eq!(notes, ["task.submitted", "user.input_submitted", "task.submitted"]);
    for target in [format!("{session}/events?limit=100"), "/v1/events?limit=100".to_owned()] {
        assert!(!world.get(&target).await.to_string().contains("noted"), "no client is shown a note");
    }
}

/// A task that is submitted and approved, each of them asked for again and again; the path of its messages.
pub(crate) async fn submitted_and_approved(world: &World, session: &str) -> String {
    let tasks = format!("{session}/tasks");
    let task = first(world, &tasks, &expense(), "s").await;
    assert_eq!(task["status"], "WORKING");
    let submit = ("s", &task);
    again(world, &tasks, &expense(), submit).await;
    world.work().await.unwrap();
    again(world, &tasks, &expense(), submit).await;
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    let messages = format!("{path}/messages");
    let message = first(world, &messages, &decided(true), "a").await;
    let approve = ("a", &message);
    again(world, &messages, &decided(true), approve).await;
    again(world, &tasks, &expense(), submit).await;
    world.work().await.unwrap();
    let done = world.get(&path).await;
    assert_eq!(done["status"], "COMPLETED");
    let told = world.told(&format!("{path}/events?limit=100")).await;
    // The same key for another request.
    let other = first(world, &tasks, &expense(), "a").await;
    for _ in 0..2 {
        again(world, &messages, &decided(true), approve).await;
        again(world, &tasks, &expense(), submit).await;
        again(world, &tasks, &expense(), ("a", &other)).await;
        world.work().await;
    }
    let refusal = world.call(actor("bob", "acme", None), "POST", &messages, &decided(true), Some("a")).await;
    assert_eq!(refusal.unwrap_err().code().as_str(), "invalid_state_transition", "it is another one of another actor");
    assert_eq!(world.get(&path).await, done);
    assert_eq!(world.told(&format!("{path}/events?limit=100")).await, told);
    assert_eq!(ids(&world.get(&tasks).await).len(), 2);
    messages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_parallel_approvals_are_one() {
    let (world, session) = World::with_session().await;
    world.while_time_passes(twenty_approvals(&world, &session)).await;
}

pub(crate) async fn twenty_approvals(world: &Arc<World>, session: &str) {
    let task = first(world, &format!("{session}/tasks"), &expense(), "s").await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let approvals = (0..20).map(|_| {
        let world = world.clone();
        let messages = format!("{path}/messages");
        tokio::spawn(async move { world.keyed(&messages, &decided(true), "a").await.unwrap() })
    });
    let mut answers = Vec::new();
    for approval in approvals.collect::<Vec<_>>() {
        answers.push(approval.await.unwrap());
    }
    let firsts = answers.iter().filter(|answer| matches!(answer, CallAnswer::Json(201, _))).count();
    assert_eq!(firsts, 1);
    let bodies: Vec<Value> = answers.into_iter().map(body).collect();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{bodies:#?}");
    world.work().await.unwrap();
    let told = world.told(&format!("{path}/events?limit=100")).await;
    assert_eq!(told.iter().filter(|event| *event == "user.input_submitted").count(), 1, "{told:?}");
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
}

/// A process that dies before it writes leaves nothing; one that dies behind it, or whose answer gets lost, has done it.
#[tokio::test]
async fn what_was_written_is_known_though_nobody_was_told_and_what_was_not_is_done() {
    let (world, session) = World::with_session().await;
    let tasks = format!("{session}/tasks");
    let dies_before = || {
        let dead = || CommitError::Store(StoreError::Unavailable("dead".to_owned()));
        world.gate.hold(move |_| async move { Err(dead()) }.boxed());
    };
    let dies_behind = || {
        let store = world.memory.clone().unwrap();
        world.gate.hold(move |commit| {
            let store = store.clone();
            async move {
                store.commit(&commit).await?;
                Err(CommitError::Unknown("lost".to_owned()))
            }
            .boxed()
        });
    };
    dies_before();
    assert_eq!(world.keyed(&tasks, &expense(), "s").await.unwrap_err().status(), 503);
    assert_eq!(ids(&world.get(&tasks).await), [""; 0]);
    dies_behind();
    assert_eq!(world.keyed(&tasks, &expense(), "s").await.unwrap_err().status(), 503);
    world.gate.open();
    let listed = ids(&world.get(&tasks).await);
    let [id] = listed.as_slice() else { panic!("{listed:?}") };
    let path = format!("/v1/tasks/{id}");
    again(&world, &tasks, &expense(), ("s", &world.get(&path).await)).await;
    // Nobody was called for it: the sweep does.
    let outcome = world.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");

    let messages = format!("{path}/messages");
    dies_before();
    assert_eq!(world.keyed(&messages, &decided(true), "a").await.unwrap_err().status(), 503);
    world.gate.open();
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    dies_behind();
    assert_eq!(world.keyed(&messages, &decided(true), "a").await.unwrap_err().status(), 503);
    world.gate.open();
    assert_eq!(world.get(&path).await["status"], "WORKING");
    let said = world.get(&format!("{session}/messages")).await;
    again(&world, &messages, &decided(true), ("a", said["data"].as_array().unwrap().last().unwrap())).await;
}

#[tokio::test]
async fn a_noted_key_is_free_again_after_a_day() {
    let (world, session) = World::with_session().await;
    let tasks = format!("{session}/tasks");
    let old = first(&world, &tasks, &says("Hello"), "k").await;
    world.work().await.unwrap();
    world.clock.advance(DAY.checked_sub(Duration::from_secs(1)).unwrap());
    again(&world, &tasks, &says("Hello"), ("k", &old)).await;
    world.clock.advance(Duration::from_secs(1));
    // Also for another request.
    let new = first(&world, &tasks, &says("Bye"), "k").await;
    assert_ne!(old["id"], new["id"]);
    world.work().await.unwrap();
    again(&world, &tasks, &says("Bye"), ("k", &new)).await;
}

#[tokio::test]
async fn beyond_some_a_day_keys_have_documents_and_are_known_all_the_same() {
    const NOTED: usize = 49;
    const MANY: usize = 60;
    let (world, session) = World::with_session().await;
    let tasks = format!("{session}/tasks");
    let mut answers = Vec::new();
    for number in 0..MANY {
        answers.push(first(&world, &tasks, &says("Hello"), &format!("k{number}")).await);
        world.work().await.unwrap();
    }
    for (number, answer) in answers.iter().enumerate() {
        let key = format!("k{number}");
        again(&world, &tasks, &says("Hello"), (key.as_str(), answer)).await;
        assert_eq!(has_document(&world, &tasks, &key).await, number >= NOTED, "{key}");
    }
    world.clock.advance(DAY + Duration::from_secs(2 * 3_600));
    for key in ["k0", "k59", "new"] {
        let answer = first(&world, &tasks, &says("Hello"), key).await;
        world.work().await.unwrap();
        again(&world, &tasks, &says("Hello"), (key, &answer)).await;
        assert!(!has_document(&world, &tasks, key).await, "those before are forgotten, and there is room for {key}");
    }
}

/// What the version before has kept: a document, and nothing at the end of the stream.
#[tokio::test]
async fn keys_of_an_earlier_version_count_for_their_day() {
    let (world, session) = World::with_session().await;
    let id = session.rsplit('/').next().unwrap().to_owned();
    let tasks = format!("{session}/tasks");
    let task = world.post(&tasks, says("Hello")).await;
    world.work().await.unwrap();
    let memory = world.memory.clone().unwrap();
    let now = world.clock.now();
    let StreamTip { position, at, known, .. } = memory.tip(&id).await.unwrap();
    let mut known = known.unwrap();
    known["own"].as_object_mut().unwrap().remove("keyed").unwrap();
    known["own"]["position"] = (position + 1).into();
    let entries = memory.entries(&id, position - 1, 1).await.unwrap().into_iter().map(|entry| entry.entry).collect();
    let end = StreamEnd::Append(EndOfStream { known, behind: at, ..EndOfStream::default() });
    let append = Append { stream: id, end, first: position + 1, entries, fed: None };
    let asked = world.asked(ada(), "POST", &tasks, &says("Hello"), Some("k")).unwrap();
    let kept = json!({"hash": hex::encode(asked.body.hash()), "status": 202, "answer": task, "tenant": "acme"});
    let write = DocumentWrite {
        key: document(&tasks, "k"),
        expect: 0,
        body: Some(kept.as_object().unwrap().clone()),
        listed: Vec::new(),
        expires_at: Some(now + SignedDuration::from_hours(24)),
    };
    let journal = Journal::new(vec![write], vec![append]);
    memory.commit(&Commit { journal, ..Commit::new("earlier", now) }).await.unwrap();

    again(&world, &tasks, &says("Hello"), ("k", &task)).await;
    let new = first(&world, &tasks, &says("Hello"), "new").await;
    world.work().await.unwrap();
    assert!(!has_document(&world, &tasks, "new").await, "from now on keys are noted");
    for (key, answer) in [("new", &new), ("k", &task)] {
        again(&world, &tasks, &says("Hello"), (key, answer)).await;
    }
    world.clock.advance(DAY);
    first(&world, &tasks, &says("Hello"), "k").await;
}

#[tokio::test]
async fn what_was_queued_is_told_to_have_been_queued_whatever_became_of_it() {
    let (world, session) = World::with_session().await;
    let tasks = format!("{session}/tasks");
    let working = first(&world, &tasks, &says("Hello"), "w").await;
    let queued = first(&world, &tasks, &says("And now?"), "q").await;
    assert_eq!((&working["status"], &queued["status"]), (&json!("WORKING"), &json!("SUBMITTED")));
    for _ in 0..2 {
        again(&world, &tasks, &says("And now?"), ("q", &queued)).await;
        again(&world, &tasks, &says("Hello"), ("w", &working)).await;
        world.work().await;
    }
    assert_eq!(world.get(&format!("/v1/tasks/{}", text(&queued["id"]))).await["status"], "COMPLETED");
}

#[tokio::test]
async fn the_answer_to_a_request_for_a_permission_is_told_again_as_it_was() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), expense()).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let asked = world.get(&format!("{path}/permission-requests")).await;
    let respond = format!("/v1/permission-requests/{}/respond", text(&asked["data"][0]["id"]));
    let yes = json!({"approved": true, "reason": "fine"});
    let answered = first(&world, &respond, &yes, "r").await;
    assert_eq!(answered["status"], "approved");
    for _ in 0..2 {
        again(&world, &respond, &yes, ("r", &answered)).await;
        world.work().await;
    }
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
    assert!(!has_document(&world, &respond, "r").await);
    let refusal = world.keyed(&respond, &yes, "another").await.unwrap_err();
    assert_eq!(refusal.code().as_str(), "conflict", "another key is another request");
}

#[tokio::test]
async fn an_answer_of_one_part_is_no_answer_of_another_one_when_it_comes_again() {
    let (world, session) = World::with_session().await;
    let purchase = json!({"persona_id": "persona_purchase", "input": {"item": "a lathe", "amount_cents": 120_000}});
    let task = world.post(&format!("{session}/tasks"), purchase).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    let messages = format!("{path}/messages");
    let vote = |of: &str| {
        let parts = [json!({"type": "json", "value": {"vote": "yes"}})];
        json!({"kind": "input", "message": {"role": "user", "parts": parts, "metadata": {"in_reply_to": of}}})
    };
    let of_ada = first(&world, &messages, &vote("ada"), "ada").await;
    again(&world, &messages, &vote("ada"), ("ada", &of_ada)).await;
    assert_eq!(world.get(&path).await["status"], "INPUT_REQUIRED");
    let words = json!({"role": "user", "parts": [{"type": "text", "text": "Who is left?"}]});
    let interruption = json!({"kind": "interrupt", "message": words});
    let said = first(&world, &messages, &interruption, "said").await;
    let of_linus = first(&world, &messages, &vote("linus"), "linus").await;
    world.work().await.unwrap();
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
    again(&world, &messages, &interruption, ("said", &said)).await;
    for (name, answer) in [("ada", &of_ada), ("linus", &of_linus)] {
        again(&world, &messages, &vote(name), (name, answer)).await;
        assert!(!has_document(&world, &messages, name).await);
    }
}

#[tokio::test]
async fn what_was_done_is_told_again_though_the_session_was_closed_and_deleted_since() {
    let (world, session) = World::with_session().await;
    let tasks = format!("{session}/tasks");
    let task = first(&world, &tasks, &expense(), "s").await;
    world.work().await.unwrap();
    world.post(&format!("{session}/close"), json!({})).await;
    again(&world, &tasks, &expense(), ("s", &task)).await;
    world.delete(&format!("/v1/workspaces/{}", text(&task["workspace_id"]))).await;
    again(&world, &tasks, &expense(), ("s", &task)).await;
    let refusal = world.keyed(&tasks, &expense(), "another").await.unwrap_err();
    assert_eq!(refusal.status(), 404);
    let eve = world.call(actor("ada", "other", None), "POST", &tasks, &expense(), Some("s")).await.unwrap_err();
    assert_eq!(eve.status(), 404, "an actor of the same name in another tenant is another one");
}
