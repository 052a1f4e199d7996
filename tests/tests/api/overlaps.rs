//! Runs of one session of which one sleeps, fails or is canceled while others go on: what models are told of each other's calls.

use std::sync::Arc;

use dormouse_agent::SessionMemory;
use dormouse_agent::graph::{ToolPart, graph};
use dormouse_agent::workspace::ToolOrigin;
use dormouse_api::{Agent, Outside};
use dormouse_ports::model::{CompletionRequest, Message, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, results, says as answers, tool};
use crate::replays::{path_of, projected, replayed, world};
use crate::world::{MakesAgent, World, says, text};

/// An agent that asks before it sends, and remembers.
fn helper(model: &Arc<ScriptedModel>) -> MakesAgent {
    called("helper", model)
}

/// The same under another name.
fn called(name: &'static str, model: &Arc<ScriptedModel>) -> MakesAgent {
    let model = model.clone();
    let make = move |outside: &Outside| {
        let tools = Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], |call| {
            Ok(ToolReply::Done(ToolOutput::text(format!("{}: done", call.name))))
        });
        let matter = "policy: {approval: {external: [send]}}";
        let mut parts = parts(matter, model.clone(), tools, outside.clock.clone());
        parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
        parts.remembers = true;
        parts.tools.push(ToolPart {
            name: "session_memory".to_owned(),
            origin: ToolOrigin::Native,
            expose: Default::default(),
            source: Arc::new(SessionMemory),
        });
        SessionMemory::give_to(&mut parts.agent);
        parts.agent.name = name.to_owned();
        parts.agent.system_reminder = Some(format!("you are {name}"));
        parts.name = name.to_owned();
        graph(parts)
    };
    (name, Agent::new(make))
}

/// What the user said last, and the number of answers of the model since.
fn asked(request: &CompletionRequest) -> (String, usize) {
    let at = request.messages.iter().rposition(|message| message.role() == "user").expect("a user");
    let since = request.messages[at..].iter().filter(|message| message.role() == "assistant").count();
    (text(&json!(request.messages[at])["content"]).to_owned(), since)
}

async fn task(world: &World, session: &str, words: &str) -> Value {
    task_of(world, session, "persona_helper", words).await
}

async fn task_of(world: &World, session: &str, persona: &str, words: &str) -> Value {
    let mut body = says(words);
    body["persona_id"] = json!(persona);
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await;
    world.get(&path_of(&task)).await
}

async fn approved(world: &World, task: &Value) {
    assert_eq!(task["status"], "AUTH_REQUIRED", "{task:#}");
    let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
    let yes = json!({ "kind": "tool_confirmation", "message": { "role": "user", "parts": parts } });
    world.post(&format!("{}/messages", path_of(task)), yes).await;
    world.work().await;
    assert_eq!(world.get(&path_of(task)).await["status"], "COMPLETED");
}

fn roles(request: &CompletionRequest) -> Vec<&str> {
    request.messages.iter().map(Message::role).collect()
}

/// Sends and looks where it is asked to write.
fn writer() -> Arc<ScriptedModel> {
    ScriptedModel::new(|request| {
        let n = request.messages.len();
        Ok(match asked(request) {
            (words, 0) if words == "write" => calls(&[
                (&format!("send-{n}"), "send", json!({ "to": "ada" })),
                (&format!("look-{n}"), "look", json!({ "to": "it" })),
            ]),
            (words, _) => answers(&format!("done: {words}")),
        })
    })
}

#[tokio::test]
async fn a_call_that_another_run_waits_with_is_told_as_waiting_and_its_result_behind_it_when_it_was_made() {
    let model = writer();
    let (world, session) = world(&[helper(&model)]).await;
    let first = task(&world, &session, "write").await;
    let second = task(&world, &session, "meanwhile").await;
    assert_eq!(second["status"], "COMPLETED");
    let told = model.last();
    assert_eq!(roles(&told), ["system", "user", "assistant", "tool", "tool", "user"]);
    let standing = results(&told);
    assert!(standing[0].contains("waits for a person to approve it"), "{standing:?}");
    assert!(standing[1].contains("has no result yet"), "{standing:?}");

    approved(&world, &first).await;
    for words in ["and now", "and then"] {
        task(&world, &session, words).await;
        let told = model.last();
        let expected = ["system", "user", "assistant", "tool", "tool", "user", "assistant", "assistant", "user"];
        assert_eq!(roles(&told)[..9], expected);
        assert_eq!(results(&told), ["send: done", "look: done"]);
    }
    for task in [&first, &second] {
        let task = world.get(&path_of(task)).await;
        let replay = replayed(&world, &path_of(&task), json!({})).await;
        assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
    }
}

#[tokio::test]
async fn a_call_of_a_run_that_was_canceled_is_not_told_as_waiting() {
    let model = writer();
    let (world, session) = world(&[helper(&model)]).await;
    let first = task(&world, &session, "write").await;
    world.post(&format!("{}/cancel", path_of(&first)), json!({})).await;
    for words in ["and now", "and then"] {
        task(&world, &session, words).await;
        assert_eq!(results(&model.last()), ["no result was recorded for this call"; 2]);
    }
}

#[tokio::test]
async fn runs_of_a_session_at_the_same_time_keep_the_notes_of_each_other() {
    let note = |name: &str| calls(&[(name, "Remember", json!({ "name": name, "text": format!("text of {name}") }))]);
    let model = ScriptedModel::new(move |request| {
        let (words, since) = asked(request);
        Ok(match (words.as_str(), since) {
            ("slow", 0) => note("a"),
            ("slow", 1) => calls(&[("s", "send", json!({ "to": "ada" }))]),
            ("slow", 2) => note("c"),
            ("fast", 0) => note("b"),
            (_, _) => answers("done"),
        })
    });
    let (world, session) = world(&[helper(&model)]).await;
    let slow = task(&world, &session, "slow").await;
    task(&world, &session, "fast").await;
    approved(&world, &slow).await;
    task(&world, &session, "what do you know").await;
    let told = json!(model.last().messages[0])["content"].to_string();
    for name in ["a", "b", "c"] {
        assert!(told.contains(&format!("text of {name}")), "{name} is missing: {told}");
    }
}

fn user_words(request: &CompletionRequest) -> Vec<String> {
    let users = request.messages.iter().filter(|message| message.role() == "user");
    users.map(|message| text(&json!(message)["content"]).to_owned()).collect()
}

#[tokio::test]
async fn what_was_said_to_a_run_that_failed_at_its_first_step_is_given_with_the_next_task_and_once() {
    let refused = || -> Result<Response, ModelError> {
        Err(ModelError::new(ModelErrorCategory::Authentication, "the key is not taken"))
    };
    let look = |id: &str| Ok(calls(&[(id, "look", json!({ "to": "it" }))]));
    let model = ScriptedModel::playing(vec![
        refused(),
        refused(),
        Ok(answers("I see")),
        look("1"),
        refused(),
        Ok(answers("so")),
    ]);
    let (world, session) = world(&[helper(&model)]).await;
    let mut said = Vec::new();
    for (words, status) in [
        ("remember 42", "FAILED"),
        ("again", "FAILED"),
        ("and now", "COMPLETED"),
        ("look", "FAILED"),
        ("end", "COMPLETED"),
    ] {
        let task = task(&world, &session, words).await;
        assert_eq!(task["status"], status, "{words}: {task:#}");
        said.push(words);
        assert_eq!(user_words(&model.last()), said, "each once, in order");
    }
}

#[tokio::test]
async fn a_message_that_no_model_takes_is_not_given_with_the_next_task_as_well() {
    let refused = |category| Err(ModelError::new(category, "the message is not taken"));
    for category in [ModelErrorCategory::InvalidRequest, ModelErrorCategory::UnsupportedContentBlock] {
        let model = ScriptedModel::playing(vec![refused(category), Ok(answers("I see"))]);
        let (world, session) = world(&[helper(&model)]).await;
        assert_eq!(task(&world, &session, "a picture").await["status"], "FAILED");
        assert_eq!(task(&world, &session, "hello").await["status"], "COMPLETED");
        assert_eq!(user_words(&model.last()), ["hello"]);
    }
}

#[tokio::test]
async fn an_agent_that_goes_on_in_the_session_of_another_is_reminded_who_it_is() {
    let model = writer();
    let (world, session) = world(&[helper(&model), called("poet", &model)]).await;
    let told = [("helper", false), ("poet", true), ("poet", false), ("helper", true), ("helper", false)];
    for (at, (agent, is_reminded)) in told.into_iter().enumerate() {
        let task = task_of(&world, &session, &format!("persona_{agent}"), &format!("say {at}")).await;
        assert_eq!(task["status"], "COMPLETED", "{task:#}");
        let last = user_words(&model.last()).pop().expect("what the user said");
        let reminder = format!("<system_reminder>\nyou are {agent}\n</system_reminder>\n");
        assert_eq!(last, format!("{}say {at}", if is_reminded { reminder } else { String::new() }));
        let replay = replayed(&world, &path_of(&task), json!({})).await;
        assert_eq!(projected(&world, &replay).await, projected(&world, &task).await, "{at}");
    }
}
