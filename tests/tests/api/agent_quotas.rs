//! Quotas of agents: those that are asked, the hooks that ask models, and summaries count as well.

use std::sync::Arc;

use dormouse_agent::graph::{Colleague, HookPart, ModelHook, graph};
use dormouse_agent::workspace::{HookDefinition, HookEvent, OnHookError, Prices};
use dormouse_api::Agent;
use dormouse_harness::SIGNAL;
use dormouse_ports::hook::HookHandlerDefinition;
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, results, says as answers, tool};
use crate::quotas::limited;
use crate::replayed_agents::{agent, at_end, colleague, family};
use crate::replays::path_of;
use crate::world::{World, text};

/// A task of `helper` that counts against a quota with these limits, after all work is done: the quota, and the task.
async fn asked(world: &World, limits: Value) -> (String, Value) {
    let (quota, tasks) = limited(world, limits, None).await;
    let mut body = crate::world::says("go");
    body["persona_id"] = json!("persona_helper");
    let task = world.post(&tasks, body).await;
    world.work().await;
    (format!("/v1/quotas/{quota}"), world.get(&path_of(&task)).await)
}

#[tokio::test]
async fn agents_that_are_asked_count_against_the_quotas_of_whoever_asks_and_are_no_further_tasks() {
    for background in [false, true] {
        let (agents, models) = family(background);
        let (world, _) = crate::replays::world(&agents).await;
        let (quota, task) = asked(&world, json!({"tasks": 1, "concurrent_tasks": 1, "tokens": 10_000})).await;
        let task = at_end(&world, task).await;
        assert_eq!(task["status"], "COMPLETED", "{task:#}");
        let shown = world.get(&quota).await["usage"].clone();
        let calls: usize = models.iter().map(|model| model.calls()).sum();
        assert!(models[1].calls() == 2 && shown["tokens"] == 110 * calls, "{calls} calls: {shown}");
        assert_eq!((&shown["tasks"], &shown["concurrent_tasks"]), (&json!(1), &json!(0)), "{shown}");
    }
}

#[tokio::test]
async fn an_agent_that_was_asked_ends_where_the_quota_does_and_whoever_asked_is_told_why() {
    let lead = ScriptedModel::new(|request| {
        Ok(match results(request).as_slice() {
            [] => calls(&[("one", "SubAgent", json!({ "prompt": "look" }))]),
            [result, ..] => answers(result),
        })
    });
    let scout = ScriptedModel::new(|request| {
        let id = format!("look-{}", results(request).len());
        Ok(calls(&[(&id, "look", json!({ "to": id }))]))
    });
    let looks = || Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("nothing"))));
    let asking = Agent::new(move |outside| {
        let mut parts = agent("helper", &lead, outside);
        parts.colleagues.ask = vec![Colleague { background: false, ..colleague("scout") }];
        graph(parts)
    });
    let asked_for = scout.clone();
    let looking = Agent::new(move |outside| {
        let mut parts = agent("scout", &scout, outside);
        parts.tools[0].source = looks();
        graph(parts)
    });
    let (world, _) = crate::replays::world(&[("helper", asking), ("scout", looking)]).await;
    let (quota, task) = asked(&world, json!({"tokens": 150})).await;
    assert_eq!(asked_for.calls(), 1, "the second step of it is not made any more");
    let tasks = world.get("/v1/tasks").await["data"].as_array().unwrap().clone();
    let child = tasks.iter().find(|one| one["parent_task_id"] == task["id"]).unwrap();
    let reason = text(&child["failure"]["message"]);
    assert_eq!((&child["status"], &child["failure"]["code"]), (&json!("FAILED"), &json!("limit_exceeded")));
    assert!(reason.contains(quota.rsplit('/').next().unwrap()), "{reason}");
    let events = world.bus.events();
    let told = events.iter().find(|event| event.detail_type == SIGNAL).expect("the parent is told");
    assert_eq!(told.detail["payload"]["is_error"], true);
    assert!(told.detail["payload"].to_string().contains(reason), "{told:?}");
    world.patch(&quota, json!({"limits": {"tokens": 1000}})).await;
    let task = at_end(&world, task).await;
    assert_eq!(task["status"], "COMPLETED", "{task:#}");
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&task["outcome_id"]))).await;
    assert!(text(&outcome["summary"]).contains("limit_exceeded"), "its model is told of the error: {outcome:#}");
    assert_eq!(world.get(&quota).await["usage"]["tokens"], 330);
}

/// An agent that looks once, with a hook behind each call of its model that asks `judge` what it thinks of it.
pub(crate) fn judged(model: &Arc<ScriptedModel>, judge: &Arc<ScriptedModel>, most: Option<u64>) -> Agent {
    let (model, judge) = (model.clone(), judge.clone());
    Agent::new(move |outside| {
        let mut parts = agent("helper", &model, outside);
        parts.tools[0].source =
            Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("nothing"))));
        parts.agent.policy.max_total_tokens = most;
        let handler = ModelHook {
            provider: judge.clone(),
            config: Default::default(),
            prices: Some(Prices { prompt: 1000.0, completion: 0.0, cached: None, written: None }),
            instructions: String::new(),
            question: "may it?".to_owned(),
        };
        let definition = HookDefinition {
            name: "judge".to_owned(),
            file: "judge.yaml".to_owned(),
            events: vec![HookEvent::AfterModelCall],
            matcher: None,
            handler: HookHandlerDefinition::Prompt { prompt: "may it?".to_owned() },
            capabilities: Default::default(),
            on_error: OnHookError::Closed,
            timeout_seconds: 10,
        };
        parts.hooks = vec![HookPart::new(definition, Some(Arc::new(handler)))];
        graph(parts)
    })
}

#[tokio::test]
async fn what_hooks_ask_of_models_counts_in_quotas_runs_budgets_and_receipts() {
    for (most, ending, calls_made) in [(None, "COMPLETED", [2, 2]), (Some(200), "FAILED", [1, 1])] {
        let model = ScriptedModel::new(|request| {
            Ok(match results(request).len() {
                0 => calls(&[("one", "look", json!({ "to": "x" }))]),
                _ => answers("done"),
            })
        });
        let judge = ScriptedModel::new(|_| Ok(answers("{}")));
        let (world, _) = crate::replays::world(&[("helper", judged(&model, &judge, most))]).await;
        let (quota, task) = asked(&world, json!({"tokens": 10_000})).await;
        assert_eq!((&task["status"], [model.calls(), judge.calls()]), (&json!(ending), calls_made), "{task:#}");
        let all = calls_made[0] + calls_made[1];
        let usage = world.get(&quota).await["usage"].clone();
        // By the prices of each.
        let cost = 100_000 * judge.calls() + 120 * model.calls();
        assert_eq!((&usage["tokens"], &usage["cost_micros"]), (&json!(110 * all), &json!(cost)));
        let told = crate::replays::events(&world, &path_of(&task)).await;
        let spans = told.iter().filter(|event| event["event"] == "span.completed");
        let of_hook = spans.filter(|span| span["payload"]["hook"] == "judge");
        assert_eq!(of_hook.count(), judge.calls(), "{told:#?}");
        let end = told.iter().find(|event| event["event"] == "vendor.dormouse.run_ended").unwrap();
        assert_eq!(end["payload"]["usage"]["prompt_tokens"], 100 * all, "{end:#}");
        let used = crate::replays::receipt(&world, &task).await["autonomy_budget"]["consumed"].clone();
        assert_eq!(used["input_tokens"], 100 * all, "{used}");
        let replay = crate::replays::replayed(&world, &path_of(&task), json!({})).await;
        assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
        assert_eq!([model.calls(), judge.calls()], calls_made, "a replay calls nobody");
        crate::replays::chain_is_sound(&world, text(&task["session_id"])).await;
    }
}

#[tokio::test]
async fn calls_for_summaries_count_in_quotas_also_where_there_is_none() {
    for summary in ["it was said", ""] {
        let model = ScriptedModel::new(move |request| {
            let asks = json!(request.messages.first()).to_string().contains("You write the summary");
            Ok(answers(if asks { summary } else { "done" }))
        });
        let used = model.clone();
        let small = Agent::new(move |outside| {
            let mut parts = agent("helper", &used, outside);
            parts.model.context_window = Some(600);
            graph(parts)
        });
        let (world, _) = crate::replays::world(&[("helper", small)]).await;
        let (quota, tasks) = limited(&world, json!({"tokens": 10_000}), None).await;
        for _ in 0..3 {
            let mut body = crate::world::says(&"word ".repeat(150));
            body["persona_id"] = json!("persona_helper");
            world.post(&tasks, body).await;
            world.work().await;
        }
        assert!(model.calls() > 3, "a summary was asked for");
        let usage = world.get(&format!("/v1/quotas/{quota}")).await["usage"].clone();
        assert_eq!(usage["tokens"], 110 * model.calls(), "{summary}: {usage}");
    }
}
