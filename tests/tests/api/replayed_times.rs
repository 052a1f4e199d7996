//! Replays of runs whose time was over, or that of their pauses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dormouse_agent::graph::{AgentParts, Colleague, graph};
use dormouse_agent::workspace::ToolOrigin;
use dormouse_api::Agent;
use dormouse_ports::model::{ModelError, ModelErrorCategory};
use dormouse_ports::tool::{Effect, Pending, ToolError, ToolOutput, ToolReply};
use dormouse_testkit::ManualClock;
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, results, says as answers, tool};
use crate::replayed_agents::{OneToken, agent, at_end, called, colleague, ends_the_same, looks_once, run, seeing};
use crate::replays::{path_of, projected, replayed, wake, world};
use crate::world::{World, text};

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
async fn a_run_whose_model_did_not_answer_to_a_call_that_failed_is_replayed_up_to_there() {
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
    let tools =
        Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::error("there is nothing"))));
    ends_by_time_on(&clock, (model, tools), "policy: {run_timeout_seconds: 6}", |_| {}).await;
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

/// What a run of `helper` with `model` and `tools` comes to; its tools are given addresses for what they tell later. Its
/// replays end as it does.
async fn ends_the_same_on((model, tools): (Arc<ScriptedModel>, Arc<Toolbox>), answer: Option<Value>) -> Vec<String> {
    let outside = (model.clone(), tools.clone());
    let helper = Agent::new(move |outside| {
        let matter = "policy: {approval: {external: []}}";
        let mut parts = parts(matter, model.clone(), tools.clone(), outside.clock.clone());
        parts.callbacks = Some(Arc::new(OneToken));
        graph(parts)
    });
    let (world, session) = world(&[("helper", helper)]).await;
    let task = run(&world, &session, "look").await;
    if let Some(answer) = answer {
        world.callback(text(&task["id"]), answer).await;
        world.work().await;
    }
    let task = at_end(&world, world.get(&path_of(&task)).await).await;
    ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
    results(&outside.0.last())
}

/// The reply of a call that is asked for how it stands after so many seconds.
fn polled(seconds: u64) -> ToolReply {
    ToolReply::Pending(Pending { poll_after: Some(Duration::from_secs(seconds)), ..Pending::default() })
}

#[tokio::test]
async fn a_run_that_asked_its_tools_how_they_stand_is_replayed_as_often_as_it_did() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[("c1", "look", json!({ "to": "x" })), ("c2", "list", json!({ "to": "y" }))]),
            _ => answers("done"),
        })
    });
    let [looked, listed] = [(); 2].map(|()| AtomicUsize::new(0));
    let tools = Toolbox::new(vec![tool("look", Effect::Safe), tool("list", Effect::Safe)], move |call| {
        // They are due after 60, 100 and 120 seconds.
        let (asked, most, seconds) = if call.name == "look" { (&looked, 2, 60) } else { (&listed, 1, 100) };
        Ok(match asked.fetch_add(1, Ordering::Relaxed) {
            asked if asked < most => polled(seconds),
            _ => ToolReply::Done(ToolOutput::text(format!("{} done", call.name))),
        })
    });
    let made = tools.clone();
    assert_eq!(ends_the_same_on((model, tools), None).await, ["look done", "list done"]);
    assert_eq!(made.made().len(), 5);
}

#[tokio::test]
async fn a_run_whose_tool_told_nothing_in_time_is_replayed_up_to_there_and_beyond() {
    let model = ScriptedModel::new(|request| Ok(looks_once(request)));
    let tools = Toolbox::new(vec![tool("look", Effect::Safe)], |_| {
        Ok(ToolReply::Pending(Pending { timeout: Some(Duration::from_secs(60)), ..Pending::default() }))
    });
    assert_eq!(ends_the_same_on((model, tools), None).await, ["error: the tool sent no outcome in time"]);
}

#[tokio::test]
async fn a_run_of_which_a_person_said_that_its_call_happened_is_replayed_where_the_tool_told_nothing() {
    let model = ScriptedModel::new(|request| Ok(looks_once(request)));
    let tools = Toolbox::new(vec![tool("look", Effect::Manual)], |_| {
        Err(ToolError::transient("the connection was lost").maybe_done())
    });
    let told = ends_the_same_on((model, tools), Some(json!({ "decision": "happened" }))).await;
    assert_eq!(told, ["the call happened, says a person who looked; its output is not known"]);
}
