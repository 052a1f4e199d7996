//! The same request, sent again.

use std::sync::Arc;

use dormouse_api::CallAnswer;
use serde_json::{Value, json};

use crate::world::{World, actor, ids, says, text};

#[tokio::test]
async fn the_same_key_and_body_get_the_same_answer() {
    let (world, session) = World::with_session().await;
    let path = format!("{session}/tasks");
    let first = world.keyed(&path, &says("Hello"), "k1").await.unwrap();
    let before = world.written();
    let CallAnswer::Json(status, task) = first else { panic!("{first:?} is the first") };
    world.clock.advance(std::time::Duration::from_secs(3_600));
    assert_eq!(world.keyed(&path, &says("Hello"), "k1").await, Ok(CallAnswer::Repeated(status, task.clone())));
    let reused = world.keyed(&path, &says("Bye"), "k1").await.unwrap_err();
    assert_eq!((reused.status(), reused.code().as_str()), (409, "idempotency_key_reused"));
    assert_eq!(before, world.written());

    let other = world.keyed(&path, &says("Hello"), "k2").await;
    assert!(matches!(other, Ok(CallAnswer::Json(202, _))), "another key is another request");
    let bob = world.call(actor("bob", "acme", None), "POST", &path, &says("Hello"), Some("k1")).await;
    assert!(matches!(bob, Ok(CallAnswer::Json(202, _))), "another actor is another request");
    world.clock.advance(std::time::Duration::from_secs(24 * 3_600));
    let later = world.keyed(&path, &says("Hello"), "k1").await;
    assert!(matches!(later, Ok(CallAnswer::Json(202, _))), "after a day the key is free again");
}

#[tokio::test]
async fn a_key_for_one_workspace_is_given_no_answer_of_another() {
    let world = World::new();
    let (one, other) = (world.workspace().await, world.workspace().await);
    let request = json!({"workspace_id": one, "metadata": {"note": "ours"}});
    let CallAnswer::Json(_, made) = world.keyed("/v1/sessions", &request, "k1").await.unwrap() else {
        panic!("it is made")
    };
    let ask = async |workspace: &str| {
        world.call(actor("ada", "acme", Some(&[workspace])), "POST", "/v1/sessions", &request, Some("k1")).await
    };
    let refusal = ask(&other).await.unwrap_err();
    assert_eq!((refusal.status(), refusal.code().as_str()), (409, "idempotency_key_reused"));
    assert!(!refusal.to_string().contains(text(&made["id"])), "{refusal}");
    assert_eq!(ask(&one).await, Ok(CallAnswer::Repeated(201, made)));
}

#[tokio::test]
async fn what_changed_nothing_is_answered_the_same_again() {
    let (world, session) = World::with_session().await;
    let close = format!("{session}/close");
    world.keyed(&close, &json!({}), "k1").await.unwrap();
    let CallAnswer::Json(status, closed) = world.keyed(&close, &json!({}), "k2").await.unwrap() else {
        panic!("a repetition")
    };
    world.post(&format!("{session}/fork"), json!({})).await;
    assert_ne!(world.get(&session).await, closed, "the fork is told in it");
    assert_eq!(world.keyed(&close, &json!({}), "k2").await, Ok(CallAnswer::Repeated(status, closed)));
}

#[tokio::test]
async fn an_answer_stays_what_it_was() {
    let (world, session) = World::with_session().await;
    let body = json!({"message": {"role": "user", "parts": [{"type": "text", "text": "Hello"}]}});
    let first = world.keyed(&format!("{session}/messages"), &body, "k").await.unwrap();
    world.post(&format!("{session}/close"), Value::Null).await;
    let CallAnswer::Json(status, message) = first else { panic!("{first:?}") };
    let again = world.keyed(&format!("{session}/messages"), &body, "k").await;
    assert_eq!(again, Ok(CallAnswer::Repeated(status, message)), "though the session takes nothing any more");
}

#[tokio::test]
async fn the_workspace_is_part_of_what_a_key_is_good_for() {
    let world = World::new();
    let one = world.workspace().await;
    let two = world.workspace().await;
    let session = |workspace: &str| json!({"workspace_id": workspace});
    for workspace in [&one, &two] {
        let made = world.keyed("/v1/sessions", &session(workspace), "k").await;
        assert!(matches!(made, Ok(CallAnswer::Json(201, _))), "{made:?}");
    }
    let again = world.keyed("/v1/sessions", &session(&one), "k").await;
    assert!(matches!(again, Ok(CallAnswer::Repeated(201, _))), "{again:?}");
}

#[tokio::test]
async fn where_the_workspace_is_chosen_for_the_caller_its_key_finds_the_first_answer_in_another_one() {
    let world = World::new();
    let one = world.workspace().await;
    let two = world.workspace().await;
    let session = |workspace: &str| json!({"workspace_id": workspace});
    let CallAnswer::Json(201, made) = world.placed(&session(&one), "k").await.unwrap() else { panic!("the first") };
    let before = world.written();
    assert_eq!(world.placed(&session(&two), "k").await, Ok(CallAnswer::Repeated(201, made.clone())));
    let other = json!({"workspace_id": two, "metadata": {"a": 1}});
    let reused = world.placed(&other, "k").await.unwrap_err();
    assert_eq!(reused.code().as_str(), "idempotency_key_reused");
    assert_eq!(before, world.written());
    // Who names a workspace means that one.
    for workspace in [&one, &two] {
        let named = world.keyed("/v1/sessions", &session(workspace), "k").await;
        assert!(matches!(&named, Ok(CallAnswer::Json(201, other)) if other["id"] != made["id"]), "{named:?}");
    }
}

/// Twenty at once, on several threads: one task, one call for work, twenty times the same answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_parallel_submits_make_one_task() {
    let (world, session) = World::with_session().await;
    world.while_time_passes(twenty_submits(&world, &session)).await;
}

pub(crate) async fn twenty_submits(world: &Arc<World>, session: &str) {
    let submits = (0..20).map(|_| {
        let world = world.clone();
        let path = format!("{session}/tasks");
        tokio::spawn(async move { world.keyed(&path, &says("Hello"), "k").await.unwrap() })
    });
    let mut firsts = 0;
    let mut tasks = Vec::new();
    for submit in submits.collect::<Vec<_>>() {
        match submit.await.unwrap() {
            CallAnswer::Json(202, task) => {
                firsts += 1;
                tasks.push(task);
            }
            CallAnswer::Repeated(202, task) => tasks.push(task),
            other
            @ (CallAnswer::Json(..) | CallAnswer::Repeated(..) | CallAnswer::Bytes { .. } | CallAnswer::Empty) => {
                panic!("{other:?}")
            }
        }
    }
    assert_eq!(firsts, 1);
    assert!(tasks.windows(2).all(|pair| pair[0] == pair[1]), "{tasks:#?}");
    assert_eq!(ids(&world.get(&format!("{session}/tasks")).await), [text(&tasks[0]["id"])]);
    assert_eq!(world.bus.events().len(), 1);
}
