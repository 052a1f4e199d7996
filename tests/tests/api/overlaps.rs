//! Runs of one session of which one sleeps, fails or is canceled while others go on: what models are told of each other's calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_agent::SessionMemory;
use dormouse_agent::graph::{ToolPart, graph};
use dormouse_agent::workspace::ToolOrigin;
use dormouse_api::{Agent, Outside};
use dormouse_harness::Transmission;
use dormouse_ports::model::{CompletionRequest, Message, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{Effect, Pending, ToolOutput, ToolReply};
use dormouse_ports::{Clock, Commit, Commits, SessionExpectation, SessionId, SessionWrite, Sessions};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, offer_as_action, parts, results, says as answers, tool};
use crate::replays::{path_of, projected, replayed, world};
use crate::world::{MakesAgent, World, says, text};

/// An agent that asks before it sends, and remembers.
pub(crate) fn helper(model: &Arc<ScriptedModel>) -> MakesAgent {
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
pub(crate) fn asked(request: &CompletionRequest) -> (String, usize) {
    let at = request.messages.iter().rposition(|message| message.role() == "user").expect("a user");
    let since = request.messages[at..].iter().filter(|message| message.role() == "assistant").count();
    (text(&json!(request.messages[at])["content"]).to_owned(), since)
}

pub(crate) async fn task(world: &World, session: &str, words: &str) -> Value {
    task_of(world, session, "persona_helper", words).await
}

async fn task_of(world: &World, session: &str, persona: &str, words: &str) -> Value {
    let mut body = says(words);
    body["persona_id"] = json!(persona);
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await;
    world.get(&path_of(&task)).await
}

pub(crate) async fn approved(world: &World, task: &Value) {
    assert_eq!(task["status"], "AUTH_REQUIRED", "{task:#}");
    let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
    let yes = json!({ "kind": "tool_confirmation", "message": { "role": "user", "parts": parts } });
    world.post(&format!("{}/messages", path_of(task)), yes).await;
    world.work().await;
    assert_eq!(world.get(&path_of(task)).await["status"], "COMPLETED");
}

pub(crate) fn roles(request: &CompletionRequest) -> Vec<&str> {
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

/// Sends to whom it is asked to write, and looks beside it, with the same ids each time; `send` waits for a person, `post` for
/// an outcome from elsewhere.
fn numbering(model: &Arc<ScriptedModel>) -> MakesAgent {
    let model = model.clone();
    let make = move |outside: &Outside| {
        let specs = ["send", "post"].map(|name| tool(name, Effect::Manual));
        let specs = specs.into_iter().chain([tool("look", Effect::Safe)]).collect();
        let tools = Toolbox::new(specs, |call| {
            let to = text(&call.arguments["to"]);
            Ok(match call.name.as_str() {
                "post" => ToolReply::Pending(Pending::default()),
                name => ToolReply::Done(ToolOutput::text(format!("{name} to {to}: done"))),
            })
        });
        let matter = "policy: {approval: {external: [send]}}";
        let mut parts = parts(matter, model.clone(), tools, outside.clock.clone());
        parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
        graph(parts)
    };
    ("helper", Agent::new(make))
}

fn numbers() -> Arc<ScriptedModel> {
    ScriptedModel::new(|request| {
        let (words, since) = asked(request);
        Ok(match words.split_once(' ') {
            Some((name, to)) if since == 0 && ["send", "post", "look"].contains(&name) => {
                let to = json!({ "to": to });
                let both = [("call-0", name, to.clone()), ("call-1", "look", to)];
                calls(if name == "look" { &both[..1] } else { &both })
            }
            _ => answers(&format!("done: {words}")),
        })
    })
}

/// What each call of `request` was made with, and what stands behind it as its result.
fn outcomes(request: &CompletionRequest) -> Vec<(String, String)> {
    let messages = &request.messages;
    let outcomes = messages.iter().enumerate().filter_map(|(at, message)| match message {
        Message::Assistant(answer) => Some((at, &answer.tool_calls)),
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
    });
    let of_one = outcomes.flat_map(|(at, calls)| {
        calls.iter().map(move |call| {
            let result = messages[at + 1..].iter().take_while(|message| message.role() == "tool");
            let mut result = result.map(|message| json!(message)).filter(|message| message["tool_call_id"] == call.id);
            let made = format!("{} {}", call.name, text(&call.arguments.as_ref().expect("arguments")["to"]));
            (made, text(&result.next().expect("a result")["content"]).to_owned())
        })
    });
    of_one.collect()
}

/// Ends the wait of `task`: a person approves, or the outcome comes.
async fn ended(world: &World, task: &Value, to: &str) {
    if task["status"] == "AUTH_REQUIRED" {
        return approved(world, task).await;
    }
    let content = json!([{ "type": "text", "text": format!("post to {to}: done") }]);
    let outcome = json!({ "content": content }).as_object().cloned().expect("an object");
    let callback = Transmission::callback(text(&task["id"]), None, outcome);
    world.harness.turn(callback).await;
    world.work().await;
    assert_eq!(world.get(&path_of(task)).await["status"], "COMPLETED");
}

#[tokio::test]
async fn calls_of_two_runs_with_one_id_have_each_its_own_result() {
    for (name, waits, beside) in [
        ("send", "waits for a person", "has no result yet"),
        ("post", "goes on elsewhere", "its result comes with those of the calls beside it"),
    ] {
        for is_in_order in [true, false] {
            let model = numbers();
            let (world, session) = world(&[numbering(&model)]).await;
            let first = task(&world, &session, &format!("{name} ada")).await;
            let second = task(&world, &session, &format!("{name} bob")).await;
            let third = task(&world, &session, "look cleo").await;
            assert_eq!(third["status"], "COMPLETED");
            let told = outcomes(&model.last());
            for (made, result) in &told[..4] {
                let standing = if made.starts_with(name) { waits } else { beside };
                assert!(result.contains(standing), "{told:?}");
            }
            assert_eq!(told[4], ("look cleo".to_owned(), "look to cleo: done".to_owned()));

            let mut both = [(&first, "ada"), (&second, "bob")];
            if !is_in_order {
                both.reverse();
            }
            for (task, to) in both {
                ended(&world, task, to).await;
            }
            let expected = ["ada", "bob"].map(|to| [name, "look"].map(|name| format!("{name} {to}"))).concat();
            for words in ["and now", "and then"] {
                task(&world, &session, words).await;
                let told = outcomes(&model.last());
                let made: Vec<&String> = told.iter().map(|(made, _)| made).collect();
                assert_eq!(made[..4], expected.iter().collect::<Vec<_>>());
                for (made, result) in told {
                    assert_eq!(result, format!("{}: done", made.replace(' ', " to ")), "{is_in_order}");
                }
            }
            for task in [&first, &second, &third] {
                let task = world.get(&path_of(task)).await;
                let replay = replayed(&world, &path_of(&task), json!({})).await;
                assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
            }
        }
    }
}

#[tokio::test]
async fn the_session_of_an_earlier_version_which_knows_no_runs_goes_on() {
    let model = numbers();
    let (world, session) = world(&[numbering(&model)]).await;
    let first = task(&world, &session, "send ada").await;
    let store = world.memory.clone().expect("a store in memory");
    let session_id: SessionId = session.rsplit('/').next().expect("an id").into();
    let mut record = store.load_session(&session_id, None).await.expect("it is read").record.expect("a record");
    let messages = record.state["messages"].as_array_mut().expect("messages").iter_mut();
    let known = messages.filter_map(|message| message.as_object_mut()?.shift_remove("run")).count();
    assert_eq!(known, 1, "that of the calls");
    let save = Some((record.state.into(), record.schema_version));
    let expect = SessionExpectation::Version(record.version);
    let write = SessionWrite { session_id, save, expect, lease: None, release: false };
    store.commit(&Commit { session: Some(write), ..Commit::new("earlier", world.clock.now()) }).await.expect("written");

    task(&world, &session, "look cleo").await;
    let told = outcomes(&model.last());
    assert!(told[0].1.contains("waits for a person") && told[1].1.contains("has no result yet"), "{told:?}");
    assert_eq!(told[2].1, "look to cleo: done");
    approved(&world, &first).await;
    task(&world, &session, "and now").await;
    let told = outcomes(&model.last());
    assert!(!told.is_empty(), "it remembers its calls");
    for (made, result) in told {
        assert_eq!(result, format!("{}: done", made.replace(' ', " to ")));
    }
}

#[tokio::test]
async fn actions_that_are_pending_in_a_session_have_ids_of_their_own() {
    let model = numbers();
    let used = model.clone();
    let make = move |outside: &Outside| {
        let pending = Toolbox::new(vec![tool("post", Effect::Manual)], |_| Ok(ToolReply::Pending(Pending::default())));
        let mut parts = parts("description: posts", used.clone(), pending, outside.clock.clone());
        offer_as_action(&mut parts, tool("post", Effect::Manual));
        parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
        graph(parts)
    };
    let (world, session) = world(&[("helper", Agent::new(make))]).await;
    let mut posts = Vec::new();
    for to in ["ada", "bob"] {
        let input = json!({ "action": { "name": "post", "input": { "to": to } } });
        let body = json!({ "persona_id": "persona_helper", "input": input });
        let post = world.post(&format!("{session}/tasks"), body).await;
        world.work().await;
        posts.push((world.get(&path_of(&post)).await, to));
    }
    for (post, to) in posts.iter().rev() {
        ended(&world, post, to).await;
    }
    task(&world, &session, "and now").await;
    let told = model.last();
    let expected = ["ada", "bob"].map(|to| (format!("post {to}"), format!("post to {to}: done")));
    assert_eq!(outcomes(&told), expected);
    let ids: BTreeSet<&str> = told
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::Tool { tool_call_id, .. } => Some(tool_call_id.as_str()),
            Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
        })
        .collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(ids.iter().all(|id| id.starts_with("action-")), "{ids:?}");
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

pub(crate) fn user_words(request: &CompletionRequest) -> Vec<String> {
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
        Err(ModelError::new(ModelErrorCategory::InvalidResponse, "the answer is none")),
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
