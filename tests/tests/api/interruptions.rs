//! A run that works hears an interruption at its next step: once, whoever dies, and not again with the next task.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_agent::graph::graph;
use dormouse_agent::workspace::AgentMode;
use dormouse_api::{Agent, Outside};
use dormouse_ports::model::{CompletionRequest, Message, ModelError, ModelErrorCategory};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use dormouse_ports::{Commit, InvocationWrite};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, breathe, calls, parts, results, says as answers, tool};
use crate::replayed_agents::{agent, at_end, colleague};
use crate::replays::{chain_is_sound, events, path_of, projected, replayed, wake, world};
use crate::world::{MakesAgent, World, says, text};

const WORDS: &str = "Look at the other one";
/// Longer than any claim.
const LATER: Duration = Duration::from_secs(30 * 60);
/// The event of what a run has heard in its midst.
const HEARD: &str = "vendor.dormouse.heard";

/// An agent that looks something up and says what it was told.
struct Looker {
    model: Arc<ScriptedModel>,
    tools: Arc<Toolbox>,
    matter: &'static str,
}

impl Looker {
    fn new(matter: &'static str) -> Self {
        let model = ScriptedModel::new(|request| {
            // Also in the second task of a session.
            let asked = request.messages.iter().rposition(|message| message.role() == "user").unwrap_or_default();
            let is_told = user_words(request).last().is_some_and(|words| words.starts_with("go"));
            let has_looked = request.messages[asked..].iter().any(|message| matches!(message, Message::Tool { .. }));
            Ok(match is_told && !has_looked {
                true => calls(&[(&format!("look-{}", results(request).len()), "look", json!({ "to": "it" }))]),
                false => answers(&format!("told {}", user_words(request).len())),
            })
        });
        let tools = Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("looked"))));
        Self { model, tools, matter }
    }

    fn agent(&self) -> MakesAgent {
        let (model, tools, matter) = (self.model.clone(), self.tools.clone(), self.matter);
        let make = move |outside: &Outside| graph(parts(matter, model.clone(), tools.clone(), outside.clock.clone()));
        ("helper", Agent::new(make))
    }

    /// What the user said in each request, in order.
    fn heard(&self) -> Vec<Vec<String>> {
        self.model.requests.lock().unwrap().iter().map(user_words).collect()
    }
}

fn user_words(request: &CompletionRequest) -> Vec<String> {
    let users = request.messages.iter().filter(|message| message.role() == "user");
    users.map(|message| text(&json!(message)["content"]).to_owned()).collect()
}

fn words(said: &[&str]) -> Vec<String> {
    said.iter().map(|words| (*words).to_owned()).collect()
}

fn interruption(words: &str) -> Value {
    json!({ "kind": "interrupt", "message": says(words)["input"] })
}

async fn submit(world: &World, session: &str, words: &str) -> Value {
    let mut body = says(words);
    body["persona_id"] = json!("persona_helper");
    world.post(&format!("{session}/tasks"), body).await
}

/// Sends the `interruptions` to the task at `path` ahead of the first commit of its run of which `when` is true.
fn interrupted(world: &Arc<World>, path: &str, interruptions: &'static [&'static str], when: When) {
    interrupted_once(world, path, (interruptions, when), &Arc::default());
}

/// The same, unless they are `sent`.
fn interrupted_once(
    world: &Arc<World>,
    path: &str,
    (interruptions, when): (&'static [&'static str], When),
    sent: &Arc<AtomicBool>,
) {
    let (clients, target, sent) = (world.clone(), format!("{path}/messages"), sent.clone());
    world.gate.hold(move |commit: Commit| {
        let (clients, target, sent) = (clients.clone(), target.clone(), sent.clone());
        async move {
            let is_due = commit.invocation.as_ref().is_some_and(when);
            if is_due && !sent.swap(true, Ordering::Relaxed) {
                for words in interruptions {
                    clients.post(&target, interruption(words)).await;
                }
            }
            breathe().await;
            Ok(())
        }
        .boxed()
    });
}

/// True for the commit that is meant.
type When = fn(&InvocationWrite) -> bool;

/// The commit of the step that made the calls.
fn has_looked(write: &InvocationWrite) -> bool {
    let InvocationWrite::Progress { paused, .. } = write else { return false };
    paused.state["messages"].as_array().is_some_and(|messages| messages.iter().any(|one| one["role"] == "tool"))
}

fn ends(write: &InvocationWrite) -> bool {
    matches!(write, InvocationWrite::Complete { .. })
}

/// The contents of the messages of `session`, by whom they were said.
async fn transcript(world: &World, session: &str) -> Vec<(String, String)> {
    let list = world.get(&format!("{session}/messages?limit=200")).await;
    let said = |message: &Value| {
        let part = &message["parts"][0];
        (text(&message["role"]).to_owned(), part["text"].as_str().unwrap_or("(no text)").to_owned())
    };
    list["data"].as_array().unwrap().iter().map(said).collect()
}

async fn times_said(world: &World, session: &str) -> usize {
    transcript(world, session).await.iter().filter(|(_, said)| said == WORDS).count()
}

/// Replays `task` exactly; it ends as the task did.
async fn replays_the_same(world: &World, session: &str, task: &Value) {
    let replay = replayed(world, &path_of(task), json!({})).await;
    assert_eq!(replay["status"], task["status"], "{replay:#}");
    assert_eq!(projected(world, &replay).await, projected(world, task).await);
    chain_is_sound(world, session).await;
}

#[tokio::test]
async fn a_run_hears_an_interruption_at_its_next_step_and_the_next_task_does_not_hear_it_again() {
    let looker = Looker::new("description: looks");
    let (world, session) = world(&[looker.agent()]).await;
    let task = submit(&world, &session, "go").await;
    interrupted(&world, &path_of(&task), &[WORDS], has_looked);
    world.work().await;
    world.gate.open();
    let task = world.get(&path_of(&task)).await;
    assert_eq!(task["status"], "COMPLETED", "{task:#}");
    assert_eq!(looker.heard(), [words(&["go"]), words(&["go", WORDS])]);
    let last = looker.model.last();
    let order: Vec<&str> = last.messages.iter().map(Message::role).collect();
    assert_eq!(order, ["system", "user", "assistant", "tool", "user"], "behind the result of the call");
    let said = transcript(&world, &session).await;
    let said: Vec<(&str, &str)> = said.iter().map(|(role, said)| (&**role, &**said)).collect();
    let expected =
        [("user", "go"), ("assistant", "(no text)"), ("user", WORDS), ("tool", "(no text)"), ("assistant", "told 2")];
    assert_eq!(said, expected, "clients are told of it when it was said, and once");
    let told = events(&world, &path_of(&task)).await;
    let heard: Vec<&Value> = told.iter().filter(|event| event["event"] == HEARD).collect();
    let message = told.iter().rfind(|event| event["event"] == "user.message").expect("what was said");
    assert_eq!(heard.len(), 1, "{told:#?}");
    assert_eq!(heard[0]["payload"]["message_ids"], json!([message["resource"]["id"]]));
    replays_the_same(&world, &session, &task).await;

    submit(&world, &session, "and now").await;
    world.work().await;
    assert_eq!(looker.heard().last(), Some(&words(&["go", WORDS, "and now"])));
}

#[tokio::test]
async fn a_run_that_was_about_to_end_goes_on_with_what_it_hears() {
    let looker = Looker::new("description: looks");
    let (world, session) = world(&[looker.agent()]).await;
    let task = submit(&world, &session, "go").await;
    interrupted(&world, &path_of(&task), &["first", "second"], ends);
    world.work().await;
    world.gate.open();
    let task = world.get(&path_of(&task)).await;
    assert_eq!(task["status"], "COMPLETED", "{task:#}");
    assert_eq!(looker.heard(), [words(&["go"]), words(&["go"]), words(&["go", "first", "second"])]);
    let said = transcript(&world, &session).await;
    assert_eq!(said.iter().filter(|(_, said)| said == "first" || said == "second").count(), 2, "{said:?}");
    assert_eq!(said.last().map(|(_, said)| said.as_str()), Some("told 3"));
    let told = events(&world, &path_of(&task)).await;
    let ended = told.iter().filter(|event| event["event"] == "vendor.dormouse.run_ended").count();
    assert_eq!(ended, 1, "it ended once: {told:#?}");
    replays_the_same(&world, &session, &task).await;
}

#[tokio::test]
async fn a_run_that_is_asked_for_its_first_step_hears_what_was_said_before_it_began() {
    let looker = Looker::new("description: looks");
    let (world, session) = world(&[looker.agent()]).await;
    let first = submit(&world, &session, "go").await;
    let second = submit(&world, &session, "go on").await;
    assert_eq!(second["status"], "SUBMITTED");
    world.post(&format!("{}/messages", path_of(&second)), interruption(WORDS)).await;
    let third = submit(&world, &session, "at last").await;
    world.work().await;
    for task in [&first, &second, &third] {
        assert_eq!(world.get(&path_of(task)).await["status"], "COMPLETED");
    }
    let heard = looker.heard();
    let told: Vec<usize> = heard.iter().map(|said| said.iter().filter(|said| *said == WORDS).count()).collect();
    assert_eq!(told[..3], [0, 0, 0], "neither the task before, nor an answer that was asked for already: {heard:?}");
    assert!(told[3..].iter().all(|times| *times == 1), "from then on once: {heard:?}");
    let own = heard.iter().find(|said| said.last().is_some_and(|last| last == WORDS));
    assert_eq!(own, Some(&words(&["go", "go on", WORDS])), "the task that it was said to: {heard:?}");
}

#[tokio::test]
async fn what_a_run_may_not_hear_any_more_is_given_with_the_next_task_and_once() {
    let looker = Looker::new("policy: {max_steps: 2}");
    let (world, session) = world(&[looker.agent()]).await;
    let task = submit(&world, &session, "go").await;
    interrupted(&world, &path_of(&task), &[WORDS], ends);
    world.work().await;
    world.gate.open();
    assert_eq!(looker.heard(), [words(&["go"]), words(&["go"])], "it has no step left");
    for said in ["and now", "and then"] {
        submit(&world, &session, said).await;
        world.work().await;
        let heard = looker.heard();
        let last = heard.last().expect("a request");
        assert_eq!(last.iter().filter(|said| *said == WORDS).count(), 1, "{heard:?}");
    }
    assert_eq!(looker.heard()[2], words(&["go", WORDS, "and now"]));
    assert_eq!(times_said(&world, &session).await, 1);
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_hears_behind_the_result_of_its_call() {
    let looker = Looker::new("policy: {approval: {external: [look]}}");
    let (world, session) = world(&[looker.agent()]).await;
    let path = path_of(&submit(&world, &session, "go").await);
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    world.post(&format!("{path}/messages"), interruption(WORDS)).await;
    let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
    let yes = json!({ "kind": "tool_confirmation", "message": { "role": "user", "parts": parts } });
    world.post(&format!("{path}/messages"), yes).await;
    world.work().await;
    let task = world.get(&path).await;
    assert_eq!(task["status"], "COMPLETED", "{task:#}");
    assert_eq!(looker.heard(), [words(&["go"]), words(&["go", WORDS])]);
    replays_the_same(&world, &session, &task).await;
}

#[tokio::test]
async fn what_is_no_word_of_a_user_is_heard_by_no_run_and_ends_none() {
    let of = |role: &str, visibility: &str| json!({ "role": role, "parts": [{ "type": "text", "text": WORDS, "visibility": visibility }] });
    for message in [
        of("user", "internal"),
        json!({ "role": "user", "parts": [] }),
        of("assistant", "public"),
        of("system", "public"),
    ] {
        let looker = Looker::new("description: looks");
        let (world, session) = world(&[looker.agent()]).await;
        let path = path_of(&submit(&world, &session, "hello").await);
        world.post(&format!("{path}/messages"), json!({ "kind": "interrupt", "message": message })).await;
        world.work().await;
        assert_eq!(world.get(&path).await["status"], "COMPLETED", "{message}");
        assert_eq!(looker.heard(), [words(&["hello"])], "{message}");
        submit(&world, &session, "and now").await;
        world.work().await;
        // A word of whoever runs it is no user's: it ends no run, and the next one is told it as what it is.
        let reminder = format!("<system_reminder>\n{WORDS}\n</system_reminder>");
        let expected = match message["role"] == "system" {
            true => words(&["hello", &reminder, "and now"]),
            false => words(&["hello", "and now"]),
        };
        assert_eq!(looker.heard().last(), Some(&expected), "{message}");
    }
}

#[tokio::test]
async fn what_is_said_to_a_run_that_sleeps_is_for_it_alone_until_it_ends() {
    let looker = Looker::new("policy: {approval: {external: [look]}}");
    let (world, session) = world(&[looker.agent()]).await;
    let path = path_of(&submit(&world, &session, "go").await);
    world.work().await;
    world.post(&format!("{path}/messages"), interruption(WORDS)).await;
    submit(&world, &session, "another").await;
    world.work().await;
    let count = |said: &[String]| said.iter().filter(|said| *said == WORDS).count();
    assert_eq!(looker.heard().last().map(|said| count(said)), Some(0), "{:?}", looker.heard());
    let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
    let yes = json!({ "kind": "tool_confirmation", "message": { "role": "user", "parts": parts } });
    world.post(&format!("{path}/messages"), yes).await;
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
    assert_eq!(looker.heard().last().map(|said| count(said)), Some(1), "{:?}", looker.heard());
    submit(&world, &session, "at last").await;
    world.work().await;
    assert_eq!(looker.heard().last().map(|said| count(said)), Some(1), "{:?}", looker.heard());
}

/// A looker whose account has no money behind its first call until it is `paid`.
fn broke(paid: &Arc<AtomicBool>) -> Looker {
    let paid = paid.clone();
    let model = ScriptedModel::new(move |request| match (results(request).is_empty(), paid.load(Ordering::Relaxed)) {
        (true, _) => Ok(calls(&[("look-1", "look", json!({ "to": "it" }))])),
        (false, true) => Ok(answers("looked")),
        (false, false) => {
            let error = ModelError::new(ModelErrorCategory::RateLimit, "there is no money");
            Err(ModelError { may_pass: Some(false), ..error })
        }
    });
    Looker { model, ..Looker::new("description: looks") }
}

#[tokio::test]
async fn a_run_that_rests_since_its_model_refuses_tries_again_as_soon_as_something_is_said_to_it() {
    for names_its_task in [true, false] {
        let paid = Arc::new(AtomicBool::new(false));
        let looker = broke(&paid);
        let (world, session) = world(&[looker.agent()]).await;
        let path = path_of(&submit(&world, &session, "go").await);
        world.work().await;
        assert_eq!(world.get(&path).await["status"], "INPUT_REQUIRED");
        let said = json!({ "message": says(WORDS)["input"] });
        let (target, body) = match names_its_task {
            true => (format!("{path}/messages"), interruption(WORDS)),
            false => (format!("{session}/messages"), said),
        };
        for (is_paid, asked, status) in [(false, 3, "INPUT_REQUIRED"), (true, 4, "COMPLETED")] {
            paid.store(is_paid, Ordering::Relaxed);
            world.post(&target, body.clone()).await;
            assert_eq!(world.get(&path).await["status"], "WORKING", "it does not wait for its time");
            world.work().await;
            assert_eq!(world.get(&path).await["status"], status, "names its task: {names_its_task}");
            assert!(looker.heard().len() >= asked, "{:?}", looker.heard());
        }
        let count = looker.heard().last().map(|said| said.iter().filter(|said| *said == WORDS).count());
        assert_eq!(count, Some(if names_its_task { 2 } else { 0 }), "{:?}", looker.heard());
    }
}

#[tokio::test]
async fn what_is_said_to_a_run_uses_up_no_attempt_that_may_be_paid() {
    for may_be_paid in [true, false] {
        let model = ScriptedModel::new(move |request| match results(request).is_empty() {
            true => Ok(calls(&[("look-1", "look", json!({ "to": "it" }))])),
            false => {
                let error = ModelError::new(ModelErrorCategory::Unavailable, "no answer within 300 s");
                Err(ModelError { may_be_paid, ..error })
            }
        });
        let looker = Looker { model, ..Looker::new("description: looks") };
        let (world, session) = world(&[looker.agent()]).await;
        let path = path_of(&submit(&world, &session, "go").await);
        world.work().await;
        let task = world.get(&path).await;
        // Behind the fourth attempt it rests for five minutes.
        for _ in 0..3 {
            wake(&world, &task).await;
        }
        assert_eq!(world.get(&path).await["status"], "INPUT_REQUIRED");
        assert_eq!(looker.heard().len(), 5);
        world.post(&format!("{path}/messages"), interruption(WORDS)).await;
        world.work().await;
        world.post(&format!("{session}/messages"), json!({ "message": says(WORDS)["input"] })).await;
        world.work().await;
        assert_eq!(looker.heard().len(), if may_be_paid { 5 } else { 7 }, "may be paid: {may_be_paid}");
        for _ in 0..2 {
            wake(&world, &task).await;
        }
        let has_heard = looker.heard().iter().any(|said| said.iter().any(|said| said == WORDS));
        assert!(has_heard, "it hears what was said all the same: {:?}", looker.heard());
    }
}

/// `helper` asks `scout` in the background, says what it was told, and waits; the model of `scout` can be asked at the second
/// attempt only.
fn waiting_for_another() -> (Vec<MakesAgent>, Arc<ScriptedModel>) {
    let lead = ScriptedModel::new(|request| {
        let ask = json!({ "prompt": "look", "run_in_background": true });
        Ok(match results(request).len() {
            0 => calls(&[("one", "SubAgent", ask)]),
            _ => answers(&format!("told {}", user_words(request).len())),
        })
    });
    let busy = Err(ModelError::new(ModelErrorCategory::Unavailable, "busy"));
    let scout = ScriptedModel::playing(vec![busy, Ok(answers("nothing there"))]);
    let (asking, asked) = (lead.clone(), scout);
    let asking = Agent::new(move |outside| {
        let mut parts = agent("helper", &asking, outside);
        parts.colleagues.ask = vec![colleague("scout")];
        graph(parts)
    });
    let asked = Agent::new(move |outside| {
        let mut parts = agent("scout", &asked, outside);
        parts.agent.mode = AgentMode::All;
        graph(parts)
    });
    (vec![("helper", asking), ("scout", asked)], lead)
}

/// The commit of the step behind which the run has nothing left to do but to wait for an agent.
fn begins_to_wait(write: &InvocationWrite) -> bool {
    let InvocationWrite::Progress { paused, .. } = write else { return false };
    paused.state["awaits_children"] == true
}

#[tokio::test]
async fn a_run_that_waits_for_an_agent_in_the_background_hears_as_it_begins_to_wait_or_when_that_has_ended() {
    for sleeps in [false, true] {
        let (agents, lead) = waiting_for_another();
        let (world, session) = world(&agents).await;
        let path = path_of(&submit(&world, &session, "go").await);
        if !sleeps {
            interrupted(&world, &path, &[WORDS], begins_to_wait);
        }
        world.work().await;
        world.gate.open();
        if sleeps {
            world.post(&format!("{path}/messages"), interruption(WORDS)).await;
            world.work().await;
        }
        let task = world.get(&path).await;
        assert_eq!(task["status"], "INPUT_REQUIRED", "it waits: {task:#}");
        let heard = |said: &[String]| said.iter().filter(|said| *said == WORDS).count();
        let told: Vec<Vec<String>> = lead.requests.lock().unwrap().iter().map(user_words).collect();
        assert_eq!(told.last().map(|said| heard(said)), Some(usize::from(!sleeps)), "{told:?}");

        let told = events(&world, &path).await;
        let child = told.iter().find(|event| event["event"] == "vendor.dormouse.agent_asked").expect("a child");
        wake(&world, &json!({ "id": child["payload"]["invocation_id"] })).await;
        world.work().await;
        let task = at_end(&world, world.get(&path).await).await;
        assert_eq!(task["status"], "COMPLETED", "{task:#}");
        let said = user_words(&lead.last());
        assert_eq!((heard(&said), said.len()), (1, 3), "{said:?}");
        let result = said.iter().position(|said| said.contains("nothing there")).expect("the answer of the agent");
        assert_eq!(result, if sleeps { 1 } else { 2 }, "in the order in which it came to both: {said:?}");
        assert_eq!(times_said(&world, &session).await, 1);
        replays_the_same(&world, &session, &task).await;
        submit(&world, &session, "and now").await;
        world.work().await;
        assert_eq!(heard(&user_words(&lead.last())), 1, "the next task does not hear it again");
    }
}

/// A run of which worker number n dies after `deaths[n]` breaths, and that is interrupted ahead of the commit of which
/// `when` is true. Whether all of them died.
async fn story(deaths: &[usize], when: When) -> bool {
    let looker = Looker::new("description: looks");
    let (world, session) = world(&[looker.agent()]).await;
    let task = submit(&world, &session, "go").await;
    let path = path_of(&task);
    let sent = Arc::default();
    let id = text(&task["id"]).into();
    let mut died = 0;
    for worker in 0..20 {
        // Who dies in front of a gate takes it along.
        interrupted_once(&world, &path, (&[WORDS], when), &sent);
        let breaths = deaths.get(worker).copied().unwrap_or(10_000);
        {
            let mut work = pin!(world.harness.take_up(&id, None));
            let lived = (0..=breaths).any(|_| (&mut work).now_or_never().is_some());
            died += usize::from(!lived);
        }
        if world.get(&path).await["status"] == "COMPLETED" {
            break;
        }
        world.clock.advance(LATER);
    }
    world.gate.open();
    let task = world.get(&path).await;
    assert_eq!(task["status"], "COMPLETED", "with deaths at {deaths:?}: {task:#}");
    assert_eq!(times_said(&world, &session).await, 1, "with deaths at {deaths:?}");
    let heard = looker.heard();
    assert_eq!(heard.last(), Some(&words(&["go", WORDS])), "with deaths at {deaths:?}: {heard:?}");
    replays_the_same(&world, &session, &task).await;
    submit(&world, &session, "and now").await;
    world.while_time_passes(world.work()).await;
    assert_eq!(looker.heard().last(), Some(&words(&["go", WORDS, "and now"])), "with deaths at {deaths:?}");
    died >= deaths.len()
}

#[tokio::test]
async fn whenever_its_worker_dies_a_run_hears_once() {
    for when in [has_looked as When, ends] {
        assert!(story(&[], when).await);
        let mut first = 0;
        while Box::pin(story(&[first], when)).await {
            for second in [0, 1, 3, 6] {
                Box::pin(story(&[first, second], when)).await;
            }
            first += 1;
        }
        assert!(first > 8, "a worker died at {first} places only");
    }
}

/// The same once, on any store.
pub(crate) async fn heard_once(world: &Arc<World>, session: &str, heard: impl Fn() -> Vec<Vec<String>>) {
    let task = submit(world, session, "go").await;
    interrupted(world, &path_of(&task), &[WORDS], has_looked);
    world.work().await;
    world.gate.open();
    assert_eq!(world.get(&path_of(&task)).await["status"], "COMPLETED");
    assert_eq!(heard(), [words(&["go"]), words(&["go", WORDS])]);
    assert_eq!(times_said(world, session).await, 1);
}

/// An agent that looks, and what it heard.
pub(crate) fn looking() -> (MakesAgent, impl Fn() -> Vec<Vec<String>>) {
    let looker = Looker::new("description: looks");
    (looker.agent(), move || looker.heard())
}
