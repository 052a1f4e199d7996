//! Tasks that wait for their turn in a session: what their agents are given, in which order, and who begins them.

use std::time::Duration;

use dormouse_ports::model::{ModelError, ModelErrorCategory};
use dormouse_ports::{CommitError, InvocationId, InvocationStatus, Invocations, StoreError};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, breathe, says as answers};
use crate::overlaps::{asked, helper, task, user_words};
use crate::replays::{path_of, projected, replayed, world};
use crate::world::{World, ada, says, text};

/// Submits a task for each of `words`, of which the first works and the others are queued.
pub(crate) async fn queued(world: &World, session: &str, words: &[&str]) -> Vec<String> {
    let mut paths = Vec::new();
    for words in words {
        let mut body = says(words);
        body["persona_id"] = json!("persona_helper");
        paths.push(path_of(&world.post(&format!("{session}/tasks"), body).await));
    }
    paths
}

#[tokio::test]
async fn what_was_said_to_a_run_that_kept_nothing_is_given_with_the_task_that_waits_for_its_turn_and_once() {
    let refused = ModelError::new(ModelErrorCategory::Authentication, "the key is not taken");
    let model = ScriptedModel::playing(vec![Err(refused), Ok(answers("I see")), Ok(answers("so")), Ok(answers("now"))]);
    let (world, session) = world(&[helper(&model)]).await;
    let paths = queued(&world, &session, &["remember 42", "and 43", "withdrawn", "add them"]).await;
    let note = json!({ "message": says("by the way")["input"] });
    world.post(&format!("{session}/messages"), note).await;
    world.post(&format!("{}/cancel", paths[2]), json!({})).await;
    world.work().await;
    assert_eq!(world.get(&paths[0]).await["status"], "FAILED");
    let told: Vec<Vec<String>> = model.requests.lock().unwrap().iter().map(user_words).collect();
    let all = ["remember 42", "by the way", "and 43", "add them"];
    assert_eq!(told, [&all[..1], &all[..3], &all[..]], "each once, in order, and without what was withdrawn");
    for path in &paths[1..] {
        let task = world.get(path).await;
        let replay = replayed(&world, path, json!({})).await;
        assert_eq!(replay["status"], task["status"], "{replay:#}");
        assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
    }
    task(&world, &session, "and now").await;
    assert_eq!(user_words(&model.last()), [&all[..], &["and now"]].concat());
}

/// Who said what in the transcript of `session`.
async fn transcript(world: &World, session: &str) -> Vec<(String, String)> {
    let said = world.get(&format!("{session}/messages")).await;
    let said = said["data"].as_array().expect("a list").iter();
    said.map(|one| (text(&one["role"]).to_owned(), text(&one["parts"][0]["text"]).to_owned())).collect()
}

#[tokio::test]
async fn the_transcript_has_the_order_in_which_queued_tasks_worked_and_nothing_of_one_that_was_withdrawn() {
    let model = ScriptedModel::new(|request| Ok(answers(&format!("to {}", asked(request).0))));
    let (world, session) = world(&[helper(&model)]).await;
    let paths = queued(&world, &session, &["first", "second", "withdrawn", "third"]).await;
    assert_eq!(transcript(&world, &session).await, [("user".to_owned(), "first".to_owned())]);
    let queue = world.get(&format!("{session}/queue")).await;
    let waiting: Vec<&Value> = queue["data"].as_array().expect("a list").iter().map(|task| &task["input"]).collect();
    let words: Vec<&str> = waiting.iter().map(|input| text(&input["parts"][0]["text"])).collect();
    assert_eq!(words, ["second", "withdrawn", "third"]);
    assert!(waiting.iter().all(|input| input["role"] == "user" && input.get("id").is_none()), "{queue:#}");
    world.post(&format!("{}/cancel", paths[2]), json!({})).await;
    let ids: Vec<&str> = paths.iter().filter_map(|path| path.rsplit('/').next()).collect();
    let order = json!({ "task_ids": [ids[3], ids[1]] });
    world.call(ada(), "PUT", &format!("{session}/queue"), &order, None).await.unwrap();
    world.work().await;
    let expected = ["first", "third", "second"]
        .map(|words| [("user".to_owned(), words.to_owned()), ("assistant".to_owned(), format!("to {words}"))]);
    assert_eq!(transcript(&world, &session).await, expected.concat());
    for (path, words) in [(&paths[1], "second"), (&paths[3], "third")] {
        let task = world.get(path).await;
        let message = world.get(&format!("/v1/messages/{}", text(&task["input"]["id"]))).await;
        assert_eq!((&task["input"], text(&message["parts"][0]["text"])), (&message, words));
        assert_eq!(message["created_at"], task["started_at"], "when it was given to the agent");
        let events = world.get(&format!("{path}/events")).await;
        let mut events = events["data"].as_array().expect("a list").iter();
        let said =
            events.find(|event| event["resource"]["id"] == task["input"]["id"]).expect("the event of the message");
        assert_eq!((&said["event"], &said["actor"]), (&json!("user.message"), &task["created_by"]), "{said:#}");
    }
    let withdrawn = world.get(&paths[2]).await;
    assert_eq!((&withdrawn["status"], &withdrawn["input"]), (&json!("CANCELED"), waiting[1]));
}

#[tokio::test]
async fn what_was_said_to_a_graph_without_a_conversation_is_for_nobody_else_queued_or_not() {
    let model = ScriptedModel::new(|_| Ok(answers("I see")));
    for is_queued in [false, true] {
        let (world, session) = world(&[helper(&model)]).await;
        if is_queued {
            queued(&world, &session, &["first"]).await;
        }
        let state = json!({ "employee": "Eve", "amount_cents": 12000, "purpose": "a lamp" });
        let parts = json!([{ "type": "json", "value": state, "visibility": "public" }]);
        let body = json!({ "persona_id": "persona_expense-approval", "input": { "role": "user", "parts": parts } });
        let expense = world.post(&format!("{session}/tasks"), body).await;
        assert_eq!(expense["status"] == "SUBMITTED", is_queued, "{expense:#}");
        world.work().await;
        world.post(&format!("{}/cancel", path_of(&expense)), json!({})).await;
        task(&world, &session, "and now").await;
        let all = ["first", "and now"];
        assert_eq!(user_words(&model.last()), all[usize::from(!is_queued)..], "{is_queued}");
    }
}

#[tokio::test]
async fn of_a_queued_message_only_what_is_public_is_shown() {
    let model = ScriptedModel::new(|_| Ok(answers("I see")));
    let (world, session) = world(&[helper(&model)]).await;
    queued(&world, &session, &["first"]).await;
    let parts = json!([
        { "type": "text", "text": "what all may read", "visibility": "public" },
        { "type": "text", "text": "the secret", "visibility": "internal" },
    ]);
    let metadata = json!({ "from": "a form", "api_key": "the secret" });
    let input = json!({ "role": "user", "parts": parts, "metadata": metadata });
    let body = json!({ "persona_id": "persona_helper", "input": input });
    let task = world.post(&format!("{session}/tasks"), body).await;
    let shown = [task.clone(), world.get(&format!("{session}/queue")).await, world.get(&path_of(&task)).await];
    world.work().await;
    let after = [world.get(&path_of(&task)).await, world.get(&format!("{session}/messages")).await];
    for shown in shown.iter().chain(&after) {
        let shown = shown.to_string();
        assert!(shown.contains("what all may read") && shown.contains("a form"), "{shown}");
        assert!(!shown.contains("the secret"), "{shown}");
    }
    assert_eq!(user_words(&model.last()).last().map(String::as_str), Some("what all may read\nthe secret"));
}

#[tokio::test]
async fn a_queued_task_is_given_what_a_run_that_overtook_it_and_was_canceled_was_told_whichever_worker_dies() {
    for deaths in 0..12 {
        let model = ScriptedModel::new(|_| Ok(answers("I see")));
        let (world, session) = world(&[helper(&model)]).await;
        let paths = queued(&world, &session, &["first", "second", "third"]).await;
        let ids: Vec<&str> = paths.iter().filter_map(|path| path.rsplit('/').next()).collect();
        let (second, third) = (ids[1].into(), ids[2].into());
        let order = json!({ "task_ids": [ids[2], ids[1]] });
        world.call(ada(), "PUT", &format!("{session}/queue"), &order, None).await.unwrap();
        world.post(&format!("{}/cancel", paths[0]), json!({})).await;
        world.gate.hold(|_| {
            async {
                breathe().await;
                Ok(())
            }
            .boxed()
        });
        // The third is the first in the queue: it begins, and is called off before a step of it has ended.
        let mut work = Box::pin(world.harness.take_up(&third, None));
        while world.get(&paths[2]).await["status"] == "SUBMITTED" {
            assert!((&mut work).now_or_never().is_none(), "it has ended already");
        }
        drop(work);
        world.post(&format!("{}/cancel", paths[2]), json!({})).await;
        let mut work = Box::pin(world.harness.take_up(&second, None));
        let died = !(0..=deaths).any(|_| (&mut work).now_or_never().is_some());
        drop(work);
        if died {
            world.clock.advance(Duration::from_secs(30 * 60));
        }
        world.gate.open();
        world.harness.take_up(&second, None).await;
        assert_eq!(world.get(&paths[1]).await["status"], "COMPLETED", "{deaths}");
        assert_eq!(user_words(&model.last()), ["first", "third", "second"], "{deaths}");
        task(&world, &session, "and now").await;
        assert_eq!(user_words(&model.last()), ["first", "third", "second", "and now"], "{deaths}");
    }
}

#[tokio::test]
async fn a_queued_task_whose_begin_fails_is_free_for_the_next_worker_at_once() {
    let model = ScriptedModel::new(|_| Ok(answers("I see")));
    let (world, session) = world(&[helper(&model)]).await;
    let paths = queued(&world, &session, &["first", "second"]).await;
    world.post(&format!("{}/cancel", paths[0]), json!({})).await;
    let second = paths[1].rsplit('/').next().expect("an id").into();
    world.gate.hold(|commit| {
        async move {
            match commit.id.contains("-begun-") {
                true => Err(CommitError::Store(StoreError::Unavailable("it is down".to_owned()))),
                false => Ok(()),
            }
        }
        .boxed()
    });
    world.harness.take_up(&second, None).await;
    assert_eq!(world.get(&paths[1]).await["status"], "SUBMITTED");
    world.gate.open();
    world.harness.take_up(&second, None).await;
    assert_eq!(world.get(&paths[1]).await["status"], "COMPLETED", "no time has passed");
}

#[tokio::test]
async fn a_queued_task_that_no_attempt_can_begin_stays_claimed_so_that_the_attempt_counts() {
    let model = ScriptedModel::new(|_| Ok(answers("I see")));
    let (world, session) = world(&[helper(&model)]).await;
    let paths = queued(&world, &session, &["first", "second"]).await;
    world.post(&format!("{}/cancel", paths[0]), json!({})).await;
    let second = InvocationId::from(paths[1].rsplit('/').next().expect("an id"));
    world.gate.hold(|commit| {
        async move {
            match commit.id.contains("-begun-") {
                true => Err(CommitError::Store(StoreError::Corrupt("a session".to_owned()))),
                false => Ok(()),
            }
        }
        .boxed()
    });
    world.harness.take_up(&second, None).await;
    let memory = world.memory.as_ref().expect("a store in memory");
    let record = memory.load_invocation(&second).await.expect("an answer").expect("a record");
    assert!(matches!(record.status, InvocationStatus::Resuming(_)), "{:?}", record.status);
}

#[tokio::test]
async fn a_task_that_waits_for_its_turn_is_no_lost_work_and_is_called_for_where_its_call_was_lost() {
    let model = ScriptedModel::new(|_| Ok(answers("done")));
    let (world, session) = world(&[helper(&model)]).await;
    let paths = queued(&world, &session, &["first", "second", "third"]).await;
    let sweep = async || {
        let scope = dormouse_maintenance::SweepScope::Due;
        dormouse_maintenance::sweep(&world.harness, &world.maintenance, scope).await.expect("the index is there")
    };
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(60));
        let told = sweep().await;
        assert_eq!(told.not_begun, 1, "the first, whose call nobody has taken, and not those behind it");
    }
    world.work().await;
    for path in &paths {
        assert_eq!(world.get(path).await["status"], "COMPLETED");
    }
}
