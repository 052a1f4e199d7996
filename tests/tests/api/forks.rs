//! Forks and truncations of a session: what its agent knows of the conversation is cut where the transcript is.

use std::sync::Arc;

use dormouse_ports::model::{CompletionRequest, Message, ModelError, ModelErrorCategory};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, calls, results, says as answers};
use crate::overlaps::{approved, asked, helper, roles, task, user_words};
use crate::queues::queued;
use crate::replays::{path_of, world};
use crate::world::{World, says, text};

/// Looks, sends or remembers where it is asked to, and answers.
pub(crate) fn worker() -> Arc<ScriptedModel> {
    ScriptedModel::new(|request| {
        if request.messages.first().is_some_and(|first| json!(first)["content"].to_string().contains("You write the")) {
            return Ok(answers("it was all looked at"));
        }
        let (words, since) = asked(request);
        Ok(match (words.split(' ').next().unwrap_or_default(), since) {
            ("look", 0) => {
                calls(&[("call-0", "look", json!({ "to": words })), ("call-1", "look", json!({ "to": "it" }))])
            }
            ("send", 0) => calls(&[("call-0", "send", json!({ "to": "ada" }))]),
            ("note", 0) => calls(&[("call-0", "Remember", json!({ "name": "rule", "text": "never on Fridays" }))]),
            (_, _) => answers(&format!("done: {words}")),
        })
    })
}

async fn fork(world: &World, session: &str, at: Value) -> String {
    format!("/v1/sessions/{}", text(&world.post(&format!("{session}/fork"), at).await["id"]))
}

/// What the model is told of `session` when it is asked for something next.
async fn told(world: &World, model: &ScriptedModel, session: &str) -> CompletionRequest {
    assert_eq!(task(world, session, "and now").await["status"], "COMPLETED");
    model.last()
}

async fn made_shorter(world: &World, session: &str) {
    let asked = json!({ "persona_id": "persona_helper", "input": { "compact": true } });
    let path = path_of(&world.post(&format!("{session}/tasks"), asked).await);
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
    let told = world.get(&format!("{path}/events?limit=100")).await;
    let mut told = told["data"].as_array().expect("events").iter();
    let summary = told.find(|event| event["event"] == "vendor.dormouse.context_compacted").expect("a summary");
    assert_eq!(summary["payload"]["gen_ai.request.model"], "script-1", "it says who wrote it");
}

async fn messages(world: &World, session: &str) -> Vec<Value> {
    world.get(&format!("{session}/messages?limit=100")).await["data"].as_array().expect("messages").clone()
}

/// The number of the first message of `session` with a part of the type `kind`, from 1, and the id of its event.
async fn first_with(world: &World, session: &str, kind: &str) -> (usize, Value) {
    let messages = messages(world, session).await;
    let has =
        |message: &Value| message["parts"].as_array().is_some_and(|parts| parts.iter().any(|p| p["type"] == kind));
    let at = messages.iter().position(has).expect("a message");
    let events = world.get(&format!("{session}/events?limit=200")).await;
    let mut events = events["data"].as_array().expect("events").iter();
    let event = events.find(|event| event["resource"]["id"] == messages[at]["id"]).expect("its event");
    (at + 1, event["id"].clone())
}

#[tokio::test]
async fn the_agent_of_a_fork_begins_with_the_conversation_the_summary_and_the_notes_of_the_other() {
    let model = worker();
    let (world, session) = world(&[helper(&model)]).await;
    for words in ["look first", "note it", "look again", "say so"] {
        assert_eq!(task(&world, &session, words).await["status"], "COMPLETED", "{words}");
    }
    let whole = fork(&world, &session, json!({})).await;
    let in_fork = told(&world, &model, &whole).await;
    assert!(json!(in_fork.messages[0])["content"].to_string().contains("never on Fridays"));
    assert_eq!(results(&in_fork).iter().filter(|result| *result == "look: done").count(), 4);
    assert_eq!(told(&world, &model, &session).await.messages, in_fork.messages);

    made_shorter(&world, &session).await;
    world.post(&format!("{session}/messages"), json!({ "message": says("by the way")["input"] })).await;
    let whole = fork(&world, &session, json!({})).await;
    let in_fork = told(&world, &model, &whole).await;
    let said = user_words(&in_fork);
    assert!(said[0].contains("it was all looked at"), "{said:?}");
    assert_eq!(said[said.len() - 2..], ["by the way", "and now"], "also what no run has heard yet");
    assert_eq!(told(&world, &model, &session).await.messages, in_fork.messages);
    assert_eq!(user_words(&told(&world, &model, &whole).await).iter().filter(|said| *said == "by the way").count(), 1);
}

#[tokio::test]
async fn the_queue_of_a_fork_whose_first_run_fails_is_given_what_was_said_before_the_fork_and_once() {
    let refused = || Err(ModelError::new(ModelErrorCategory::Authentication, "the key is not taken"));
    for failures in 0..=2 {
        let answered = ["I see", "so", "now", "then"].map(|words| Ok(answers(words)));
        let model = ScriptedModel::playing((0..failures).map(|_| refused()).chain(answered).collect());
        let (world, session) = world(&[helper(&model)]).await;
        world.post(&format!("{session}/messages"), json!({ "message": says("long ago")["input"] })).await;
        let fork = fork(&world, &session, json!({})).await;
        let paths = queued(&world, &fork, &["first", "second", "third"]).await;
        world.post(&format!("{fork}/messages"), json!({ "message": says("by the way")["input"] })).await;
        world.work().await;
        for (at, path) in paths.iter().enumerate() {
            let status = if at < failures { "FAILED" } else { "COMPLETED" };
            assert_eq!(world.get(path).await["status"], status, "{failures}: {at}");
        }
        let told: Vec<Vec<String>> = model.requests.lock().unwrap().iter().map(user_words).collect();
        let all = ["long ago", "first", "by the way", "second", "third"];
        assert_eq!(told, [&all[..2], &all[..4], &all[..]], "{failures}: each once, in order");
        assert_eq!(user_words(&self::told(&world, &model, &fork).await)[5..], ["and now"]);
    }
}

#[tokio::test]
async fn a_call_whose_result_is_cut_away_is_told_as_one_without_by_fork_and_truncation() {
    for kind in ["tool_call", "tool_result"] {
        let model = worker();
        let (world, session) = world(&[helper(&model)]).await;
        for words in ["look first", "look again", "say so"] {
            task(&world, &session, words).await;
        }
        let (count, event) = first_with(&world, &session, kind).await;
        let part = fork(&world, &session, json!({ "at_event_id": event })).await;
        world.post(&format!("{session}/truncate"), json!({ "keep_first": count })).await;
        let expected = match kind {
            "tool_call" => ["no result was recorded for this call"; 2],
            _ => ["look: done", "no result was recorded for this call"],
        };
        for cut in [&session, &part] {
            let told = told(&world, &model, cut).await;
            assert_eq!(roles(&told), ["system", "user", "assistant", "tool", "tool", "user"], "{cut}");
            assert_eq!(results(&told), expected);
            assert_eq!(user_words(&told), ["look first", "and now"]);
            assert!(matches!(&told.messages[2], Message::Assistant(answer) if answer.tool_calls.len() == 2));
            assert_eq!(messages(&world, cut).await.len(), count + 2);
        }
        world.post(&format!("{session}/truncate"), json!({ "keep_first": 0 })).await;
        assert_eq!(roles(&told(&world, &model, &session).await), ["system", "user"]);
    }
}

#[tokio::test]
async fn a_fork_that_was_cut_before_its_beginning_is_forked_at_its_own_events() {
    let model = worker();
    let (world, session) = world(&[helper(&model)]).await;
    for words in ["one", "two"] {
        assert_eq!(task(&world, &session, words).await["status"], "COMPLETED", "{words}");
    }
    let cut = fork(&world, &session, json!({})).await;
    let created = world.get(&format!("{cut}/events?limit=1")).await["data"][0]["id"].clone();
    world.post(&format!("{cut}/truncate"), json!({ "keep_first": 1 })).await;
    let again = fork(&world, &cut, json!({ "at_event_id": created })).await;
    assert_eq!(messages(&world, &again).await, messages(&world, &cut).await, "what was cut off stays out");
    assert_eq!(user_words(&told(&world, &model, &again).await), ["one", "and now"]);
}

/// A conversation of several pieces is forked and cut, on any store.
pub(crate) async fn forked_and_cut(world: &World, session: &str, model: &ScriptedModel) {
    for at in 0..10 {
        let words = format!("look {}", at.to_string().repeat(400));
        assert_eq!(task(world, session, &words).await["status"], "COMPLETED", "{at}");
    }
    let whole = fork(world, session, json!({})).await;
    let in_fork = told(world, model, &whole).await;
    assert_eq!(results(&in_fork), ["look: done"; 20]);
    assert_eq!(told(world, model, session).await.messages, in_fork.messages);
    // Five messages of each task.
    world.post(&format!("{whole}/truncate"), json!({ "keep_first": 25 })).await;
    let in_fork = told(world, model, &whole).await;
    assert_eq!((results(&in_fork).len(), user_words(&in_fork).len()), (10, 6));
    assert_eq!(results(&told(world, model, session).await).len(), 20, "the other keeps all of its own");
    let again = fork(world, &whole, json!({})).await;
    assert_eq!(results(&told(world, model, &again).await).len(), 10);
}

#[tokio::test]
async fn a_long_conversation_is_forked_and_cut() {
    let model = worker();
    let (world, session) = world(&[helper(&model)]).await;
    forked_and_cut(&world, &session, &model).await;
}

#[tokio::test]
async fn a_summary_of_more_than_what_is_left_does_not_count() {
    let model = worker();
    let (world, session) = world(&[helper(&model)]).await;
    for words in ["say one", "say two", "say three"] {
        task(&world, &session, words).await;
    }
    made_shorter(&world, &session).await;
    world.post(&format!("{session}/truncate"), json!({ "keep_first": 2 })).await;
    let told = told(&world, &model, &session).await;
    assert_eq!(user_words(&told), ["say one", "and now"]);
}

#[tokio::test]
async fn a_run_that_sleeps_goes_on_in_its_own_session_alone() {
    let model = worker();
    let (world, session) = world(&[helper(&model)]).await;
    let first = task(&world, &session, "send it").await;
    let part = fork(&world, &session, json!({})).await;
    let in_fork = told(&world, &model, &part).await;
    assert_eq!(results(&in_fork), ["no result was recorded for this call"]);
    approved(&world, &first).await;
    assert_eq!(results(&told(&world, &model, &session).await), ["send: done"]);
    assert_eq!(results(&told(&world, &model, &part).await), ["no result was recorded for this call"]);
}

#[tokio::test]
async fn what_a_run_has_begun_with_that_is_under_way_is_told_in_a_fork_as_well() {
    let model = worker();
    let (world, session) = world(&[helper(&model)]).await;
    task(&world, &session, "say one").await;
    let mut body = says("say two");
    body["persona_id"] = json!("persona_helper");
    world.post(&format!("{session}/tasks"), body).await;
    let part = fork(&world, &session, json!({})).await;
    world.work().await;
    assert_eq!(user_words(&told(&world, &model, &part).await), ["say one", "say two", "and now"]);
    assert_eq!(user_words(&told(&world, &model, &session).await), ["say one", "say two", "and now"]);
}
