//! Replays of agents that were in doubt about a call, or were canceled in the midst of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::graph::graph;
use dormouse_api::Agent;
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use dormouse_receipts::canonical;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::cast::{ScriptedModel, Toolbox, calls, parts, results, says as answers, tool};
use crate::replayed_agents::{ends_the_same, run};
use crate::replays::{chain_is_sound, events, path_of, receipt, replayed, world};
use crate::world::{World, says, text};

#[tokio::test]
async fn a_run_that_was_in_doubt_is_replayed_with_what_a_person_said() {
    let tries = |decision: Value, ended: &'static str| async move {
        let model = ScriptedModel::new(|request| {
            Ok(match results(request).last() {
                None => calls(&[("c1", "send", json!({ "to": "ada" }))]),
                Some(result) => answers(&format!("done: {result}")),
            })
        });
        let attempts = AtomicUsize::new(0);
        // More than is recorded of it, which ends in the midst of a character.
        let lost = format!("the connection was lost: {}", "é".repeat(3_000));
        let tools =
            Toolbox::new(vec![tool("send", Effect::Manual)], move |_| match attempts.fetch_add(1, Ordering::Relaxed) {
                0 => Err(ToolError::transient(lost.as_str()).maybe_done()),
                _ => Ok(ToolReply::Done(ToolOutput::text("sent"))),
            });
        let outside = (model.clone(), tools.clone());
        let agents = [(
            "helper",
            Agent::new(move |outside| {
                graph(parts("policy: {approval: {external: []}}", model.clone(), tools.clone(), outside.clock.clone()))
            }),
        )];
        let (world, session) = world(&agents).await;
        let task = run(&world, &session, "write").await;
        assert_eq!(task["status"], "INPUT_REQUIRED", "{task:#}");
        let said = decision.clone();
        world.callback(text(&task["id"]), decision).await;
        world.work().await;
        let task = world.get(&path_of(&task)).await;
        assert_eq!(told_of_calls(&world, &task).await, ["tool_uncertain", "tool_decided", ended], "{said}");
        let signed = receipt(&world, &task).await;
        assert_eq!(signed["autonomy_budget"]["consumed"]["tool_calls"], 1, "{signed:#?}");
        let call = &signed["side_effects"]["tool_calls"][0];
        let status = if ended == "tool.completed" { "succeeded" } else { "failed" };
        assert_eq!((&call["call_id"], &call["status"]), (&json!("c1"), &json!(status)));
        if let Some(result) = said["result"].as_str() {
            assert_eq!(call["output_hash"], canonical::sha256(json!(result).to_string().as_bytes()));
        }
        ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
    };
    tries(json!({ "decision": "happened", "result": "sent, I saw it" }), "tool.completed").await;
    tries(json!({ "decision": "happened" }), "tool.completed").await;
    tries(json!({ "decision": "repeat" }), "tool.completed").await;
    tries(json!({ "decision": "skip" }), "tool.failed").await;
}

/// What is told of the calls of `task` behind their being requested.
async fn told_of_calls(world: &World, task: &Value) -> Vec<String> {
    let told = events(world, &path_of(task)).await;
    let of_calls = told.iter().filter(|event| event["payload"].get("tool_call_id").is_some());
    let kinds = of_calls.map(|event| text(&event["event"]).trim_start_matches("vendor.dormouse.").to_owned());
    kinds.filter(|kind| kind != "tool.requested").collect()
}

/// Tools of a box of which the first call never ends.
#[derive(Debug)]
struct Endless(Arc<Toolbox>, Notify);

#[async_trait]
impl ToolSource for Endless {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.0.list().await
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let reply = self.0.call(call).await;
        if call.name == "send" && self.0.made().iter().filter(|(name, _)| name == "send").count() == 1 {
            self.1.notify_one();
            std::future::pending::<()>().await;
        }
        reply
    }
}

impl Endless {
    /// Its tools are `look` and `send`.
    fn hired() -> Arc<Self> {
        let tools = Toolbox::new(vec![tool("look", Effect::Safe), tool("send", Effect::Manual)], |call| {
            Ok(ToolReply::Done(ToolOutput::text(format!("{} done", call.name))))
        });
        Arc::new(Self(tools, Notify::new()))
    }
}

/// A task of `helper` with `model` and `tools`, of which nothing has been worked on.
async fn begun_with(
    model: &Arc<ScriptedModel>,
    tools: &Arc<Endless>,
    matter: &'static str,
) -> (Arc<World>, String, Value) {
    let (model, source) = (model.clone(), tools.clone());
    let helper = Agent::new(move |outside| graph(parts(matter, model.clone(), source.clone(), outside.clock.clone())));
    let (world, session) = world(&[("helper", helper)]).await;
    let mut body = says("write");
    body["persona_id"] = json!("persona_helper");
    let task = world.post(&format!("{session}/tasks"), body).await;
    (world, session, task)
}

#[tokio::test]
async fn a_call_in_whose_midst_a_worker_died_is_told_signed_and_replayed_with_what_a_person_said() {
    for (decision, ended) in [("happened", "tool.completed"), ("repeat", "tool.completed"), ("skip", "tool.failed")] {
        let model = ScriptedModel::new(|request| {
            Ok(match results(request).len() {
                0 => calls(&[
                    ("c1", "look", json!({ "to": "x" })),
                    ("c2", "send", json!({ "to": "ada" })),
                    ("c3", "look", json!({ "to": "y" })),
                ]),
                seen => answers(&format!("done with {seen}")),
            })
        });
        let tools = Endless::hired();
        let (world, session, task) = begun_with(&model, &tools, "policy: {approval: {external: []}}").await;
        tokio::select! {
            _ = world.work() => panic!("a call does not end"),
            () = tools.1.notified() => {}
        }
        world.clock.advance(Duration::from_secs(3600));
        world.harness.take_up(&text(&task["id"]).into(), None).await;
        world.work().await;
        let task = world.get(&path_of(&task)).await;
        assert_eq!(task["status"], "INPUT_REQUIRED", "{task:#}");
        world.callback(text(&task["id"]), json!({ "decision": decision })).await;
        world.work().await;
        let task = world.get(&path_of(&task)).await;
        let told = told_of_calls(&world, &task).await;
        assert_eq!(told, ["tool.completed", "tool_uncertain", "tool.completed", "tool_decided", ended], "{decision}");
        let signed = receipt(&world, &task).await;
        let listed = signed["side_effects"]["tool_calls"].as_array().unwrap();
        assert!(listed.iter().any(|call| call["call_id"] == "c2"), "{decision}: {listed:#?}");
        ends_the_same(&world, &session, &task, || model.calls() + tools.0.made().len()).await;
    }
}

#[tokio::test]
async fn calls_in_whose_midst_a_task_is_canceled_are_told_and_signed_and_no_replay_makes_them() {
    for (asks, expected) in [(true, json!(false)), (false, Value::Null)] {
        let model = ScriptedModel::new(|_| {
            Ok(calls(&[("c1", "look", json!({ "to": "x" })), ("c2", "send", json!({ "to": "ada" }))]))
        });
        let tools = Endless::hired();
        let matter = if asks { "policy: {approval: {external: [send]}}" } else { "policy: {approval: {external: []}}" };
        let (world, session, task) = begun_with(&model, &tools, matter).await;
        tokio::select! {
            _ = world.work() => assert!(asks, "a call does not end"),
            () = tools.1.notified() => assert!(!asks, "a call that a person has to approve is made"),
        }
        world.post(&format!("{}/cancel", path_of(&task)), json!({})).await;
        world.work().await;
        let task = world.get(&path_of(&task)).await;
        assert_eq!(task["status"], "CANCELED", "{task:#}");
        let told = events(&world, &path_of(&task)).await;
        let ends = |id: &str| {
            let is_end = |event: &&Value| {
                event["payload"]["tool_call_id"] == id
                    && ["tool.completed", "tool.failed"].contains(&text(&event["event"]))
            };
            told.iter().filter(is_end).collect::<Vec<_>>()
        };
        assert_eq!(ends("c1").len(), 1, "{told:#?}");
        let [end] = ends("c2")[..] else { panic!("one end: {told:#?}") };
        assert_eq!((&end["event"], &end["payload"]["canceled"]), (&json!("tool.failed"), &json!(true)), "{end:#}");
        assert_eq!(end["payload"]["made"], expected, "{end:#}");
        let signed = receipt(&world, &task).await;
        let listed = signed["side_effects"]["tool_calls"].as_array().unwrap();
        assert!(listed.iter().any(|call| call["call_id"] == "c2"), "{listed:#?}");
        let before = model.calls() + tools.0.made().len();
        let replay = replayed(&world, &path_of(&task), json!({})).await;
        assert_eq!(replay["status"], "CANCELED", "{replay:#}");
        assert_eq!(model.calls() + tools.0.made().len(), before, "a replay calls nobody");
        chain_is_sound(&world, &session).await;
    }
}
