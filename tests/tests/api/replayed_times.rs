//! Replays of runs whose time was over.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dormouse_agent::graph::{AgentParts, Colleague, graph};
use dormouse_agent::workspace::ToolOrigin;
use dormouse_api::Agent;
use dormouse_ports::model::{ModelError, ModelErrorCategory};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use dormouse_testkit::ManualClock;
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, results, says as answers, tool};
use crate::replayed_agents::{agent, called, colleague, run, seeing};
use crate::replays::{path_of, projected, replayed, wake, world};
use crate::world::World;

/// Replays `task`, which has failed since its time was over; the replay ends so as well.
async fn ends_by_time(world: &World, task: &Value, outside: impl Fn() -> usize) {
    assert_eq!((&task["status"], &task["failure"]["code"]), (&json!("FAILED"), &json!("time")), "{task:#}");
    let before = outside();
    let replay = replayed(world, &path_of(task), json!({})).await;
    assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
    assert_eq!(projected(world, &replay).await, projected(world, task).await);
    assert_eq!(outside(), before, "a replay calls nobody");
}

/// The clock of a world that is made later.
type LaterClock = Arc<OnceLock<Arc<ManualClock>>>;

/// A run of `helper`, of which `change` changes the parts, with `model` and `tools` that take their time by `clock`; its replay
/// ends as it does.
async fn ends_by_time_on(
    clock: &LaterClock,
    (model, tools): (Arc<ScriptedModel>, Arc<Toolbox>),
    matter: &'static str,
    change: impl Fn(&mut AgentParts) + Send + Sync + 'static,
) {
    let outside = (model.clone(), tools.clone());
    let helper = Agent::new(move |outside| {
        let mut parts = parts(matter, model.clone(), tools.clone(), outside.clock.clone());
        change(&mut parts);
        graph(parts)
    });
    let (world, session) = world(&[("helper", helper)]).await;
    clock.set(world.clock.clone()).expect("it is set once");
    let task = run(&world, &session, "look").await;
    ends_by_time(&world, &task, || outside.0.calls() + outside.1.made().len()).await;
}

#[tokio::test]
async fn a_run_whose_time_was_over_while_agents_worked_for_it_is_replayed_up_to_there() {
    for background in [false, true] {
        let lead = ScriptedModel::new(move |request| {
            let ask = json!({ "prompt": "look", "run_in_background": background });
            Ok(match results(request).len() {
                0 => calls(&[("one", "SubAgent", ask)]),
                _ => answers("it goes on"),
            })
        });
        let scout = ScriptedModel::new(|_| Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")));
        let models = [lead.clone(), scout.clone()];
        let asking = Agent::new(move |outside| {
            let mut parts = agent("helper", &lead, outside);
            parts.colleagues.ask = vec![Colleague { background: false, ..colleague("scout") }];
            parts.agent.policy.run_timeout_seconds = Some(100);
            graph(parts)
        });
        let asked = Agent::new(move |outside| graph(agent("scout", &scout, outside)));
        let (world, session) = world(&[("helper", asking), ("scout", asked)]).await;
        let task = run(&world, &session, "go").await;
        wake(&world, &task).await;
        world.work().await;
        let task = world.get(&path_of(&task)).await;
        ends_by_time(&world, &task, || called(&models)).await;
    }
}

#[tokio::test]
async fn a_run_whose_time_was_over_in_a_call_is_replayed_up_to_there() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[("one", "look", json!({ "to": "x" })), ("two", "send", json!({ "to": "x" }))]),
            _ => answers("done"),
        })
    });
    let clock = LaterClock::default();
    let slow = clock.clone();
    let tools = Toolbox::new(vec![tool("look", Effect::Safe), tool("send", Effect::Manual)], move |_| {
        slow.get().expect("a clock").advance(Duration::from_secs(5));
        Ok(ToolReply::Done(ToolOutput::text("seen")))
    });
    let matter = "policy: {run_timeout_seconds: 6, parallel_tool_calls: false}";
    ends_by_time_on(&clock, (model, tools), matter, |_| {}).await;
}

#[tokio::test]
async fn a_run_whose_model_did_not_answer_in_its_time_is_replayed_up_to_there() {
    let clock = LaterClock::default();
    let slow = clock.clone();
    let model = ScriptedModel::new(move |request| {
        Ok(match results(request).len() {
            0 => calls(&[("one", "look", json!({ "to": "x" }))]),
            _ => {
                slow.get().expect("a clock").advance(Duration::from_secs(10));
                answers("late")
            }
        })
    });
    ends_by_time_on(&clock, (model, seeing()), "policy: {run_timeout_seconds: 6}", |_| {}).await;
}

#[tokio::test]
async fn a_run_whose_time_was_over_in_a_command_is_replayed_up_to_there() {
    let look = ("one", "look", json!({ "to": "x" }));
    for asked in [vec![look.clone()], vec![look, ("two", "list", json!({ "to": "y" }))]] {
        let model = ScriptedModel::new(move |request| {
            Ok(match results(request).len() {
                0 => calls(&asked),
                _ => answers("done"),
            })
        });
        let clock = LaterClock::default();
        let slow = clock.clone();
        let tools = Toolbox::new(vec![tool("look", Effect::Safe), tool("list", Effect::Safe)], move |call| {
            if call.name == "list" {
                return Ok(ToolReply::Done(ToolOutput::text("a, b")));
            }
            slow.get().expect("a clock").advance(Duration::from_secs(4));
            Ok(ToolReply::Done(ToolOutput::error("ended after 4 seconds")))
        });
        let as_commands = |parts: &mut AgentParts| {
            parts.tools[0].origin = ToolOrigin::Native;
            parts.agent.tools.native = vec!["look".to_owned(), "list".to_owned()];
        };
        let asked = model.clone();
        ends_by_time_on(&clock, (model, tools), "policy: {run_timeout_seconds: 6}", as_commands).await;
        assert_eq!(asked.calls(), 1, "two seconds are no time for one more answer, and a replay asks for none");
    }
}
