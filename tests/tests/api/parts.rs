//! Tasks that wait for several answers, each given through the API.

use std::sync::Arc;

use dormouse_agent::graph::graph;
use dormouse_api::Agent;
use dormouse_harness::TurnOutcome;
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, calls, parts, results, says as answers};
use crate::replayed_agents::{looks_once, run, seeing};
use crate::replays;
use crate::world::{World, ada, text};

fn purchase() -> Value {
    json!({"persona_id": "persona_purchase", "input": {"item": "a lathe", "amount_cents": 120_000}})
}

/// A purchase that waits for two of three people: its path.
async fn waiting(world: &World, session: &str) -> String {
    let task = world.post(&format!("{session}/tasks"), purchase()).await;
    world.work().await.unwrap();
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    assert_eq!(world.get(&path).await["status"], "INPUT_REQUIRED");
    path
}

/// The vote of one of them, as a message.
fn vote(of: &str, value: Value) -> Value {
    let parts = [json!({"type": "json", "value": value})];
    json!({"role": "user", "parts": parts, "metadata": {"in_reply_to": of}})
}

fn input(of: &str, vote_is: &str) -> Value {
    json!({"kind": "input", "message": vote(of, json!({"vote": vote_is}))})
}

async fn request(world: &World, path: &str) -> Value {
    let events = world.get(&format!("{path}/events")).await;
    let asked = events["data"].as_array().unwrap().iter().find(|event| event["event"] == "task.input_required");
    asked.unwrap()["payload"]["request"].clone()
}

#[tokio::test]
async fn the_answer_that_decides_lets_the_task_go_on() {
    let (world, session) = World::with_session().await;
    two_of_three(&world, &session).await;
}

pub(crate) async fn two_of_three(world: &World, session: &str) {
    let path = waiting(world, session).await;
    let asked = request(world, &path).await;
    assert_eq!(asked["missing"], json!(["ada", "grace", "linus"]));
    assert!(asked["expects"]["parts"].get("ada").is_some(), "{asked}");
    let first = world.post(&format!("{path}/messages"), input("ada", "yes")).await;
    assert_eq!(first["metadata"]["in_reply_to"], "ada");
    assert_eq!(world.get(&path).await["status"], "INPUT_REQUIRED", "one is not enough");
    assert_eq!(world.get(session).await["state"], "PAUSED");
    assert!(world.work().await.is_none(), "nobody is called for it");
    // A yes as a confirmation, addressed by the signal.
    let signal = format!("{}/linus", text(&asked["signal_id"]));
    let yes = json!({"kind": "tool_confirmation", "message": vote(&signal, json!({"approved": true}))});
    world.post(&format!("{path}/messages"), yes).await;
    assert_eq!(world.get(&path).await["status"], "WORKING");
    let TurnOutcome::Completed(turn) = world.work().await.unwrap() else { panic!("it completes") };
    assert_eq!(turn.state["votes"]["missing"], json!(["grace"]));
    let told = world.told(&format!("{path}/events")).await;
    let expected = [
        "task.input_required",
        "user.input_submitted",
        "user.tool_confirmation",
        "task.status_changed",
        "agent.message",
        "artifact.created",
        "task.completed",
    ];
    assert_eq!(told[told.len() - expected.len()..], expected);
}

#[tokio::test]
async fn one_no_decides_and_answers_come_by_both_ways() {
    let (world, session) = World::with_session().await;
    let path = waiting(&world, &session).await;
    let asked = request(&world, &path).await;
    let signal = dormouse_ports::SignalId::from(format!("{}/grace", text(&asked["signal_id"])));
    let yes = dormouse_ports::Map::from_iter([("vote".to_owned(), json!("yes"))]);
    let turn = world.harness.turn(dormouse_harness::Transmission::signal(signal, yes)).await;
    assert!(matches!(turn.outcome, TurnOutcome::Suspended(_)), "{turn:?}");
    let again = world.refusal(ada(), "POST", &format!("{path}/messages"), input("grace", "no")).await;
    assert_eq!((again.status(), again.code().as_str()), (409, "conflict"), "the first answer of a part stands");
    // To the session: the only open task waits, and the message says for whom it answers.
    let no = world.post(&format!("{session}/messages"), json!({"message": vote("linus", json!({"vote": "no"}))})).await;
    assert_eq!(text(&no["task_id"]), path.rsplit('/').next().unwrap());
    let TurnOutcome::Completed(turn) = world.work().await.unwrap() else { panic!("it completes") };
    assert_eq!((&turn.state["votes"]["outcome"], &turn.state["votes"]["missing"]), (&json!("veto"), &json!(["ada"])));
}

#[tokio::test]
async fn an_answer_for_nobody_or_of_no_use_is_refused() {
    let (world, session) = World::with_session().await;
    let path = format!("{}/messages", waiting(&world, &session).await);
    let unnamed =
        json!({"kind": "input", "message": {"role": "user", "parts": [{"type": "json", "value": {"vote": "yes"}}]}});
    for body in [unnamed, input("bob", "yes")] {
        let refusal = world.refusal(ada(), "POST", &path, body).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some("message.metadata.in_reply_to")));
        let details = json!(refusal.into_response("r"));
        assert_eq!(details["error"]["details"]["missing"], json!(["ada", "grace", "linus"]));
    }
    let refusal = world.refusal(ada(), "POST", &path, input("ada", "perhaps")).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("message.parts")), "no vote that the graph knows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_answers_at_once_each_counts_once() {
    let (world, session) = World::with_session().await;
    world.while_time_passes(answers_at_once(&world, &session)).await;
}

/// All three answer at once, each of them three times: whoever is noted is noted once, and one of them decides.
pub(crate) async fn answers_at_once(world: &Arc<World>, session: &str) {
    let path = waiting(world, session).await;
    let votes = ["ada", "grace", "linus"].into_iter().cycle().take(9).map(|name| {
        let world = world.clone();
        let path = format!("{path}/messages");
        tokio::spawn(async move { world.call(ada(), "POST", &path, &input(name, "yes"), None).await })
    });
    let mut taken = 0;
    for vote in votes.collect::<Vec<_>>() {
        match vote.await.unwrap() {
            Ok(_) => taken += 1,
            Err(refusal) => assert_eq!(refusal.code().as_str(), "conflict", "{refusal}"),
        }
    }
    assert_eq!(taken, 2, "the second decides, and nobody answers behind it");
    let TurnOutcome::Completed(turn) = world.work().await.unwrap() else { panic!("it completes") };
    assert_eq!(turn.state["votes"]["answers"].as_object().unwrap().len(), 2);
    let told = world.told(&format!("{path}/events")).await;
    assert_eq!(told.iter().filter(|event| *event == "user.input_submitted").count(), 2, "{told:?}");
}

/// An agent that asks for each `look` that `model` wants.
fn looking(model: Arc<ScriptedModel>) -> Agent {
    let tools = seeing();
    Agent::new(move |outside| {
        let matter = "policy: {approval: {external: [look]}}";
        graph(parts(matter, model.clone(), tools.clone(), outside.clock.clone()))
    })
}

#[tokio::test]
async fn an_answer_for_a_part_of_an_earlier_question_answers_no_later_one() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[("c1", "look", json!({ "to": "x" })), ("c2", "look", json!({ "to": "y" }))]),
            2 => calls(&[("c3", "look", json!({ "to": "z" }))]),
            _ => answers("done"),
        })
    });
    let (world, session) = replays::world(&[("helper", looking(model))]).await;
    let path = replays::path_of(&run(&world, &session, "look").await);
    let messages = format!("{path}/messages");
    let yes = |of: &Value| {
        let parts = json!([{"type": "json", "value": {"approved": true}}]);
        json!({"role": "user", "parts": parts, "metadata": {"in_reply_to": of}})
    };
    let confirms = |of: &Value| json!({"kind": "tool_confirmation", "message": yes(of)});
    for part in ["call-1", "call-2"] {
        world.post(&messages, confirms(&json!(part))).await;
    }
    world.work().await;
    let asked = world.get(&format!("{path}/permission-requests?status=pending")).await["data"][0].clone();
    let (signal, pause) = (&asked["request"]["signal_id"], &asked["request"]["pause"]);
    assert!(asked["request"]["missing"].is_null(), "it asks about one call: {asked}");
    // The only call of this step has the name of the first one of the step before.
    for stale in [json!("call-2"), json!("call-1"), json!(format!("{}/call-1", text(signal))), json!(7)] {
        let refusal = world.refusal(ada(), "POST", &messages, confirms(&stale)).await;
        assert_eq!((refusal.status(), refusal.code().as_str()), (409, "conflict"), "{stale}: {refusal}");
        assert_eq!(json!(refusal.into_response("r"))["error"]["details"]["pause"], *pause, "{stale}");
    }
    let said = world.post(&format!("{session}/messages"), json!({"message": yes(&json!("call-2"))})).await;
    assert!(said["task_id"].is_null(), "what is said to the session answers nothing either: {said}");
    assert!(world.work().await.is_none(), "nothing goes on");
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    world.post(&messages, confirms(signal)).await;
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "COMPLETED", "the signal names what is asked");
}

#[tokio::test]
async fn the_one_call_of_a_question_may_be_named_by_who_says_which_question_it_is() {
    for is_message in [true, false] {
        let model = ScriptedModel::new(|request| Ok(looks_once(request)));
        let (world, session) = replays::world(&[("helper", looking(model))]).await;
        let path = replays::path_of(&run(&world, &session, "look").await);
        let asked = world.get(&format!("{path}/permission-requests?status=pending")).await["data"][0].clone();
        assert!(asked["request"]["missing"].is_null(), "it asks about one call: {asked}");
        let calls = asked["request"]["calls"].as_object().unwrap();
        assert_eq!(calls.keys().collect::<Vec<_>>(), ["call-1"]);
        let target = match is_message {
            true => format!("{path}/messages"),
            false => format!("/v1/permission-requests/{}/respond", text(&asked["id"])),
        };
        let yes = |of: &str| match is_message {
            true => {
                let metadata = json!({"in_reply_to": of, "pause": asked["request"]["pause"]});
                let parts = json!([{"type": "json", "value": {"approved": true}}]);
                json!({"kind": "tool_confirmation", "message": {"role": "user", "parts": parts, "metadata": metadata}})
            }
            false => json!({"approved": true, "metadata": {"in_reply_to": of}}),
        };
        let refusal = world.refusal(ada(), "POST", &target, yes("call-2")).await;
        assert_eq!((refusal.status(), refusal.code().as_str()), (409, "conflict"), "{target}: {refusal}");
        world.post(&target, yes("call-1")).await;
        world.work().await;
        assert_eq!(world.get(&path).await["status"], "COMPLETED", "{target}");
    }
}

#[tokio::test]
async fn a_question_about_several_calls_is_denied_where_one_of_them_is() {
    for (first, second, status) in [(false, true, "denied"), (true, false, "denied"), (true, true, "approved")] {
        let model = ScriptedModel::new(|request| {
            Ok(match results(request).len() {
                0 => calls(&[("c1", "look", json!({ "to": "x" })), ("c2", "look", json!({ "to": "y" }))]),
                _ => answers("done"),
            })
        });
        let (world, session) = replays::world(&[("helper", looking(model))]).await;
        let task = run(&world, &session, "look").await;
        assert_eq!(task["status"], "AUTH_REQUIRED", "{task:#}");
        let path = format!("{}/permission-requests", replays::path_of(&task));
        let asked = world.get(&path).await;
        let respond = format!("/v1/permission-requests/{}/respond", text(&asked["data"][0]["id"]));
        for (part, approved) in [("call-1", first), ("call-2", second)] {
            world.post(&respond, json!({"approved": approved, "metadata": {"in_reply_to": part}})).await;
        }
        let listed = world.get(&path).await;
        let answered = &listed["data"][0];
        assert_eq!((&answered["status"], &answered["response"]["approved"]), (&json!(status), &json!(second)));
    }
}
