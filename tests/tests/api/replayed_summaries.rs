//! Replays of agents whose conversation was made shorter, or was to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse_agent::graph::graph;
use dormouse_api::Agent;
use dormouse_ports::model::{CompletionRequest, FinishReason, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, says as answers, tool};
use crate::replayed_agents::{agent, at_end, ends_the_same, run};
use crate::replays::{chain_is_sound, events, path_of, projected, receipt, replayed, world};

fn asks_for_summary(request: &CompletionRequest) -> bool {
    json!(request.messages.first()).to_string().contains("You write the summary")
}

fn is_long(request: &CompletionRequest) -> bool {
    json!(request.messages).to_string().len() > 5_000
}

fn too_long() -> ModelError {
    let error = ModelError::new(ModelErrorCategory::InvalidRequest, "the conversation is too long");
    ModelError { too_long: true, ..error }
}

/// What a model answers that looks seven times, one after the other.
fn looks_on(request: &CompletionRequest) -> Response {
    let last = json!(request.messages.last()).to_string();
    let at = last.rsplit("look-").next().and_then(|rest| rest.get(..1)?.parse().ok()).unwrap_or(0);
    let id = format!("look-{}", at + 1);
    if at >= 7 { answers("done") } else { calls(&[(&id, "look", json!({ "to": id }))]) }
}

/// A tool that tells a kilobyte of what was looked at.
fn looked_at_length() -> Arc<Toolbox> {
    let long = "LOOKED ".repeat(150);
    Toolbox::new(vec![tool("look", Effect::Safe)], move |call| {
        let at = call.arguments["to"].as_str().unwrap_or_default();
        Ok(ToolReply::Done(ToolOutput::text(format!("{long}{at}"))))
    })
}

#[tokio::test]
async fn a_run_whose_conversation_was_made_shorter_is_replayed_with_the_same_summary() {
    let model = ScriptedModel::new(|request| match asks_for_summary(request) {
        true => Ok(answers("it was looked at")),
        false => Ok(looks_on(request)),
    });
    let tools = looked_at_length();
    let outside = (model.clone(), tools.clone());
    let agents = [(
        "helper",
        Agent::new(move |outside| {
            let mut parts = parts("description: looks", model.clone(), tools.clone(), outside.clock.clone());
            parts.model.context_window = Some(2000);
            graph(parts)
        }),
    )];
    let (world, session) = world(&agents).await;
    let task = run(&world, &session, "look").await;
    let summaries = outside.0.requests.lock().unwrap().iter().filter(|request| asks_for_summary(request)).count();
    assert!(summaries >= 1, "it was made shorter");
    // Each call of the script costs 100 and 10 tokens; a summary is one as well.
    let used = receipt(&world, &task).await["autonomy_budget"]["consumed"].clone();
    let calls = outside.0.calls();
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(100 * calls), &json!(10 * calls)));
    ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
}

#[tokio::test]
async fn a_run_whose_conversation_was_refused_as_too_long_is_replayed_with_the_refusal_and_the_summary() {
    let summaries = AtomicUsize::new(0);
    let model = ScriptedModel::new(move |request| {
        if asks_for_summary(request) {
            return match summaries.fetch_add(1, Ordering::Relaxed) {
                0 => Err(ModelError::new(ModelErrorCategory::RateLimit, "slow down")),
                _ => Ok(answers("it was looked at")),
            };
        }
        if is_long(request) { Err(too_long()) } else { Ok(looks_on(request)) }
    });
    let tools = looked_at_length();
    let outside = (model.clone(), tools.clone());
    let helper = Agent::new(move |outside| {
        graph(parts("description: looks", model.clone(), tools.clone(), outside.clock.clone()))
    });
    let (world, session) = world(&[("helper", helper)]).await;
    let task = run(&world, &session, "look").await;
    let task = at_end(&world, task).await;
    let told = events(&world, &path_of(&task)).await;
    let count = |kind: &str| told.iter().filter(|event| event["event"] == kind).count();
    let (refused, kept) = (count("vendor.dormouse.answer_lost"), count("vendor.dormouse.context_kept"));
    assert!(refused >= 2 && kept == 1, "it rested once: {told:#?}");
    let used = receipt(&world, &task).await["autonomy_budget"]["consumed"].clone();
    let paid = outside.0.calls() - refused - kept;
    assert_eq!(used["input_tokens"], json!(100 * paid), "a refusal costs nothing");
    ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
}

#[tokio::test]
async fn a_run_that_was_refused_as_too_long_and_got_no_summary_is_replayed_with_what_it_paid() {
    let model = ScriptedModel::new(|request| match asks_for_summary(request) {
        true => Ok(Response { finish_reason: FinishReason::Length, ..answers("They said") }),
        false if is_long(request) => Err(too_long()),
        false => Ok(answers("I see")),
    });
    let of = model.clone();
    let helper = ("helper", Agent::new(move |outside| graph(agent("helper", &of, outside))));
    let (world, session) = world(&[helper]).await;
    for _ in 0..2 {
        run(&world, &session, &"long ".repeat(400)).await;
    }
    let task = run(&world, &session, &"long ".repeat(400)).await;
    assert_eq!(task["failure"]["code"], "not_compacted", "{task:#}");
    let used = receipt(&world, &task).await["autonomy_budget"]["consumed"].clone();
    assert_eq!(used["input_tokens"], json!(100), "the summary");
    let before = model.calls();
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
    assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
    assert_eq!(model.calls(), before, "a replay calls nobody");
}

#[tokio::test]
async fn a_run_that_was_to_make_a_conversation_shorter_and_could_not_is_replayed_with_the_same_reason() {
    type Answers = fn() -> Result<Response, ModelError>;
    let refused: Answers = || Err(ModelError::new(ModelErrorCategory::Authentication, "the key is not taken"));
    let silent: Answers = || Ok(answers(""));
    let cut: Answers = || Ok(Response { finish_reason: FinishReason::Length, ..answers("They said") });
    let broken_off: Answers = || {
        let raw = json!({ "error": { "message": "the model behind it is gone" } });
        Ok(Response { finish_reason: FinishReason::Error, raw, ..answers("They said") })
    };
    for summary in [refused, silent, cut, broken_off] {
        let model = ScriptedModel::new(move |request| match asks_for_summary(request) {
            true => summary(),
            false => Ok(answers("I see")),
        });
        let of = model.clone();
        let helper = ("helper", Agent::new(move |outside| graph(agent("helper", &of, outside))));
        let (world, session) = world(&[helper]).await;
        for _ in 0..3 {
            run(&world, &session, &"long ".repeat(400)).await;
        }
        let asked = json!({ "persona_id": "persona_helper", "input": { "compact": true } });
        let task = world.post(&format!("{session}/tasks"), asked).await;
        world.work().await;
        let task = world.get(&path_of(&task)).await;
        assert_eq!(task["failure"]["code"], "not_compacted", "{task:#}");
        let before = model.calls();
        let mut path = path_of(&task);
        for _ in 0..2 {
            let replay = replayed(&world, &path, json!({})).await;
            let ended = |task: &Value| (task["status"].clone(), task["failure"].clone());
            assert_eq!(ended(&replay), ended(&task), "{replay:#}");
            assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
            path = path_of(&replay);
        }
        assert_eq!(model.calls(), before, "a replay calls nobody");
        chain_is_sound(&world, &session).await;
    }
}
