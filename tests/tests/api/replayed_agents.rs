//! Replays of agents that call agents, hand over, sleep for a model, lose answers, or do without some tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dormouse_agent::graph::{AgentParts, Colleague, Colleagues, ToolPart, graph};
use dormouse_agent::workspace::AgentMode;
use dormouse_api::{Agent, Outside};
use dormouse_ports::SignalId;
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, CallOptions, CompletionRequest, FinishReason, Message,
    ModelError, ModelErrorCategory, ModelProvider, Response, StartedJob,
};
use dormouse_ports::tool::{
    CallbackAddresses, Effect, Pending, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec,
};
use serde_json::{Value, json};

use crate::agent_quotas::judged;
use crate::cast::{ScriptedModel, Toolbox, calls, offer_as_action, parts, results, says as answers, tool};
use crate::replays::{chain_is_sound, events, path_of, projected, receipt, replayed, wake, world};
use crate::world::{MakesAgent, World, says, text};

fn nothing() -> Arc<Toolbox> {
    Toolbox::new(Vec::new(), |_| panic!("there is no tool"))
}

pub(crate) fn agent(name: &str, model: &Arc<ScriptedModel>, outside: &Outside) -> AgentParts {
    let mut parts = parts("description: helps", model.clone(), nothing(), outside.clock.clone());
    parts.agent.name = name.to_owned();
    parts.name = name.to_owned();
    parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
    parts
}

pub(crate) fn colleague(name: &str) -> Colleague {
    Colleague { name: name.to_owned(), description: format!("{name}s"), background: true }
}

/// `helper` asks `scout` twice at once.
pub(crate) fn family(background: bool) -> (Vec<MakesAgent>, [Arc<ScriptedModel>; 2]) {
    let lead = ScriptedModel::new(move |request| {
        let ask = |at: usize| json!({ "prompt": format!("look {at}"), "run_in_background": background });
        Ok(match results(request).len() {
            0 => calls(&[("one", "SubAgent", ask(1)), ("two", "SubAgent", ask(2))]),
            _ => answers(&format!("heard {}", heard(request))),
        })
    });
    let scout = ScriptedModel::new(|_| Ok(answers("nothing there")));
    let models = [lead.clone(), scout.clone()];
    let asking = Agent::new(move |outside| {
        let mut parts = agent("helper", &lead, outside);
        parts.colleagues.ask = vec![colleague("scout")];
        graph(parts)
    });
    let asked = Agent::new(move |outside| {
        let mut parts = agent("scout", &scout, outside);
        parts.agent.mode = AgentMode::All;
        graph(parts)
    });
    (vec![("helper", asking), ("scout", asked)], models)
}

/// The tool `look`, which always sees the same.
pub(crate) fn seeing() -> Arc<Toolbox> {
    Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("seen"))))
}

/// The answer of a model that looks once, and tells what it saw.
pub(crate) fn looks_once(request: &CompletionRequest) -> Response {
    match results(request).last() {
        None => calls(&[("c1", "look", json!({ "to": "x" }))]),
        Some(result) => answers(&format!("done: {result}")),
    }
}

/// What the model is told last, beside ids.
fn heard(request: &CompletionRequest) -> usize {
    request.messages.iter().filter(|message| json!(message).to_string().contains("nothing there")).count()
}

pub(crate) fn called(models: &[Arc<ScriptedModel>]) -> usize {
    models.iter().map(|model| model.calls()).sum()
}

/// The task of `helper` that is asked, after all work is done.
pub(crate) async fn run(world: &World, session: &str, words: &str) -> Value {
    worked_on(world, session, says(words)).await
}

/// The task of `helper` that `body` submits, after all work is done.
async fn worked_on(world: &World, session: &str, mut body: Value) -> Value {
    body["persona_id"] = json!("persona_helper");
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await;
    world.get(&path_of(&task)).await
}

/// `task` once it has ended: where nobody told it of the end of its children, it looks.
pub(crate) async fn at_end(world: &World, mut task: Value) -> Value {
    for _ in 0..3 {
        if task["status"] != "COMPLETED" {
            wake(world, &task).await;
            world.work().await;
            task = world.get(&path_of(&task)).await;
        }
    }
    task
}

/// Replays `task` exactly, and the replay again; both end as it did, and call nothing.
pub(crate) async fn ends_the_same(world: &World, session: &str, task: &Value, outside: impl Fn() -> usize) {
    assert_eq!(task["status"], "COMPLETED", "{task:#}");
    let before = outside();
    let bus = world.bus.events().len();
    let mut path = path_of(task);
    for _ in 0..2 {
        let replay = replayed(world, &path, json!({})).await;
        assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
        assert_eq!(projected(world, &replay).await, projected(world, task).await);
        path = path_of(&replay);
    }
    assert_eq!(outside(), before, "a replay calls nobody");
    assert_eq!(world.bus.events().len(), bus, "and asks nobody to work");
    chain_is_sound(world, session).await;
}

#[tokio::test]
async fn a_run_that_waited_for_other_agents_is_replayed_without_them() {
    let (agents, models) = family(false);
    let (world, session) = world(&agents).await;
    let task = run(&world, &session, "go").await;
    let task = at_end(&world, task).await;
    let told = events(&world, &path_of(&task)).await;
    let asked = told.iter().filter(|event| event["event"] == "vendor.dormouse.agent_asked");
    let children: Vec<&str> = asked.map(|event| text(&event["payload"]["invocation_id"])).collect();
    assert_eq!(children.len(), 2, "the agents that were asked: {told:#?}");
    let handed = |child: &&str| json!({"target_agent": "scout", "task_id": child, "status": "accepted"});
    let handoffs: Vec<Value> = children.iter().map(handed).collect();
    assert_eq!(receipt(&world, &task).await["side_effects"]["a2a_handoffs"], json!(handoffs));
    ends_the_same(&world, &session, &task, || called(&models)).await;
    for child in children {
        let child = world.get(&format!("/v1/tasks/{child}")).await;
        assert_eq!(child["parent_task_id"], task["id"]);
        let session = format!("/v1/sessions/{}", text(&child["session_id"]));
        ends_the_same(&world, &session, &child, || called(&models)).await;
    }
}

#[tokio::test]
async fn a_run_of_an_action_is_replayed_without_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let model = ScriptedModel::new(|request| Ok(answers(&format!("heard {}", results(request).len()))));
    let asked = model.clone();
    let acting = Agent::new(move |outside| {
        let counted = counted.clone();
        let tools = Toolbox::new(vec![tool("post", Effect::Safe)], move |call| {
            counted.fetch_add(1, Ordering::Relaxed);
            match call.arguments["to"].as_str() {
                Some("nobody") => Err(ToolError::permanent("there is no such person")),
                to => Ok(ToolReply::Done(ToolOutput::text(format!("posted to {to:?}")))),
            }
        });
        let mut parts = parts("description: posts", model.clone(), tools, outside.clock.clone());
        offer_as_action(&mut parts, tool("post", Effect::Safe));
        graph(parts)
    });
    let (world, session) = world(&[("helper", acting)]).await;
    let outside = || runs.load(Ordering::Relaxed) + asked.calls();
    run(&world, &session, "before").await;
    let act = async |to: &str| {
        let input = json!({ "action": { "name": "post", "input": { "to": to } } });
        worked_on(&world, &session, json!({ "input": input })).await
    };
    for _ in 0..2 {
        let done = act("ada").await;
        ends_the_same(&world, &session, &done, outside).await;
    }
    let failed = act("nobody").await;
    assert_eq!(failed["failure"]["code"], "action_failed", "{failed:#}");
    let before = outside();
    let replay = replayed(&world, &path_of(&failed), json!({})).await;
    assert_eq!((&replay["status"], &replay["failure"]), (&failed["status"], &failed["failure"]), "{replay:#}");
    assert_eq!(outside(), before, "a replay runs nothing");
    let done = act("ada").await;
    let told = events(&world, &path_of(&done)).await;
    let call = told.iter().find_map(|event| event["payload"]["tool_call_id"].as_str()).expect("the id of a call");
    let refused = json!({ "kind": "tool_result", "value": { "content": [], "is_error": true } });
    let instead = json!({ "mode": "with_overrides", "override": { format!("tool:{call}"): refused } });
    let replay = replayed(&world, &path_of(&done), instead).await;
    assert_eq!(replay["failure"]["code"], "action_failed", "what if it had failed? {replay:#}");
    let words = run(&world, &session, "and now").await;
    ends_the_same(&world, &session, &words, outside).await;
}

#[tokio::test]
async fn a_run_that_ended_at_a_limit_has_failed_and_so_has_its_replay() {
    let model = ScriptedModel::new(|_| Ok(calls(&[("one", "look", json!({}))])));
    let asked = model.clone();
    let looking = Agent::new(move |outside| {
        let mut parts = agent("helper", &model, outside);
        parts.agent.policy.max_steps = Some(2);
        graph(parts)
    });
    let (world, session) = world(&[("helper", looking)]).await;
    let task = run(&world, &session, "go").await;
    assert_eq!((&task["status"], &task["failure"]["code"]), (&json!("FAILED"), &json!("max_steps")), "{task:#}");
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&task["outcome_id"]))).await;
    assert_eq!((&outcome["status"], &outcome["failure"]), (&json!("FAILED"), &task["failure"]));
    assert!(text(&outcome["summary"]).contains("`max_steps`"), "{outcome:#}");
    assert!(!outcome["messages"].as_array().unwrap().is_empty(), "what it said is told all the same: {outcome:#}");
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]));
    assert_eq!(asked.calls(), 2, "a replay calls nobody");
}

#[tokio::test]
async fn an_answer_that_a_hook_refused_is_told_to_nobody_with_its_calls_and_replayed_all_the_same() {
    let model = ScriptedModel::new(|_| Ok(calls(&[("one", "look", json!({ "to": "rosebud" }))])));
    let judge = ScriptedModel::new(|_| Ok(answers(r#"{"decision": "block", "reason": "it tells a secret"}"#)));
    let (world, session) = world(&[("helper", judged(&model, &judge, None))]).await;
    let task = run(&world, &session, "go").await;
    assert_eq!((&task["status"], &task["failure"]["code"]), (&json!("FAILED"), &json!("hook")), "{task:#}");
    let told = json!([events(&world, &path_of(&task)).await, world.get(&format!("{session}/messages")).await]);
    assert!(!told.to_string().contains("rosebud"), "{told:#}");
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
    assert_eq!(called(&[model, judge]), 2, "a replay calls nobody");
}

#[tokio::test]
async fn a_run_that_was_woken_by_agents_in_the_background_is_replayed_without_them() {
    let (agents, models) = family(true);
    let (world, session) = world(&agents).await;
    let task = run(&world, &session, "go").await;
    let task = at_end(&world, task).await;
    ends_the_same(&world, &session, &task, || called(&models)).await;
}

#[tokio::test]
async fn a_run_whose_model_miscalled_is_replayed_without_the_answer_that_was_lost() {
    let model = ScriptedModel::new(|request| {
        let told =
            matches!(request.messages.last(), Some(Message::User { content }) if content.as_text().contains("lost"));
        Ok(if told { answers("done") } else { Response { finish_reason: FinishReason::ToolCalls, ..answers("") } })
    });
    let models = [model.clone()];
    let agents = [("helper", Agent::new(move |outside| graph(agent("helper", &model, outside))))];
    let (world, session) = world(&agents).await;
    let mut task = run(&world, &session, "go").await;
    wake(&world, &task).await;
    world.work().await;
    task = world.get(&path_of(&task)).await;
    assert_eq!(called(&models), 2);
    let used = receipt(&world, &task).await["autonomy_budget"]["consumed"].clone();
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(200), &json!(20)), "both answers are paid");
    let told = events(&world, &path_of(&task)).await;
    let lost: Vec<&Value> = told.iter().filter(|event| event["event"] == "vendor.dormouse.answer_lost").collect();
    assert_eq!(lost.len(), 1, "{told:#?}");
    assert_eq!((&lost[0]["payload"]["step"], &lost[0]["payload"]["usage"]["prompt_tokens"]), (&json!(1), &json!(100)));
    ends_the_same(&world, &session, &task, || called(&models)).await;
}

#[tokio::test]
async fn a_run_of_which_every_answer_was_thrown_away_is_replayed_with_all_of_them() {
    let model = ScriptedModel::new(|_| Ok(Response { finish_reason: FinishReason::ToolCalls, ..answers("") }));
    let models = [model.clone()];
    let agents = [("helper", Agent::new(move |outside| graph(agent("helper", &model, outside))))];
    let (world, session) = world(&agents).await;
    let mut task = run(&world, &session, "go").await;
    for _ in 0..6 {
        wake(&world, &task).await;
        world.work().await;
    }
    task = world.get(&path_of(&task)).await;
    assert_eq!((called(&models), &task["failure"]["code"]), (7, &json!("no_answer")), "{task:#}");
    let used = receipt(&world, &task).await["autonomy_budget"]["consumed"].clone();
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(700), &json!(70)));
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
    assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
    assert_eq!(called(&models), 7, "a replay calls nobody");
}

#[tokio::test]
async fn a_run_that_was_handed_over_is_replayed_with_both_agents() {
    let first = ScriptedModel::new(|_| Ok(calls(&[("c", "AgentSwitch", json!({ "to": "second" }))])));
    let second = ScriptedModel::new(|request| Ok(answers(&results(request).join("|"))));
    let models = [first.clone(), second.clone()];
    let agents = [(
        "helper",
        Agent::new(move |outside| {
            let mut parts = agent("helper", &first, outside);
            parts.colleagues.switch = vec![colleague("second")];
            let mut other = agent("second", &second, outside);
            other.name = "helper".to_owned();
            other.instructions = "You are the second.".to_owned();
            other.colleagues = Colleagues::default();
            parts.successors = vec![Arc::new(other)];
            graph(parts)
        }),
    )];
    let (world, session) = world(&agents).await;
    let task = run(&world, &session, "go").await;
    ends_the_same(&world, &session, &task, || called(&models)).await;
}

#[tokio::test]
async fn a_run_that_failed_for_what_never_passes_is_replayed_to_the_same_failure() {
    for category in [ModelErrorCategory::InvalidResponse, ModelErrorCategory::InvalidRequest] {
        let model = ScriptedModel::new(move |request| match results(request).is_empty() {
            true => Ok(calls(&[("c1", "look", json!({ "to": "x" }))])),
            false => {
                let mut error = ModelError::new(category, "the account is empty");
                error.may_pass = Some(false);
                Err(error)
            }
        });
        let tools = seeing();
        let outside = (model.clone(), tools.clone());
        let helper = Agent::new(move |outside| {
            graph(parts("description: looks", model.clone(), tools.clone(), outside.clock.clone()))
        });
        let (world, session) = world(&[("helper", helper)]).await;
        let task = run(&world, &session, "go").await;
        assert_eq!(task["failure"]["code"], category.category().as_str(), "{task:#}");
        let before = outside.0.calls() + outside.1.made().len();
        let replay = replayed(&world, &path_of(&task), json!({})).await;
        assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
        assert_eq!(outside.0.calls() + outside.1.made().len(), before, "a replay calls nobody");
    }
}

#[tokio::test]
async fn a_run_whose_model_refused_to_be_asked_for_a_week_is_replayed_to_the_same_failure() {
    let ends = [
        (ModelErrorCategory::RateLimit, "limit_exceeded"),
        (ModelErrorCategory::Authentication, "provider_authentication"),
    ];
    for (category, code) in ends {
        let model = ScriptedModel::new(move |request| match results(request).is_empty() {
            true => Ok(calls(&[("c1", "look", json!({ "to": "x" }))])),
            false => {
                let error = ModelError::new(category, "the account is empty");
                Err(ModelError { may_pass: Some(false), ..error })
            }
        });
        let of = model.clone();
        let helper =
            Agent::new(move |outside| graph(parts("description: looks", of.clone(), seeing(), outside.clock.clone())));
        let (world, session) = world(&[("helper", helper)]).await;
        let mut task = run(&world, &session, "go").await;
        for _ in 0..200 {
            if task["status"] == "FAILED" {
                break;
            }
            wake(&world, &task).await;
            world.work().await;
            task = world.get(&path_of(&task)).await;
        }
        assert_eq!(task["failure"]["code"], code, "{task:#}");
        let before = model.calls();
        let replay = replayed(&world, &path_of(&task), json!({})).await;
        assert_eq!((&replay["status"], &replay["failure"]), (&task["status"], &task["failure"]), "{replay:#}");
        assert_eq!(model.calls(), before, "a replay calls nobody");
    }
}

/// A model that works in the background, and has an answer when it is looked at for the second time.
struct Slow(Arc<ScriptedModel>, AtomicUsize);

#[async_trait]
impl BackgroundProvider for Slow {
    async fn start(&self, _: &CompletionRequest, _: &str) -> Result<StartedJob, ModelError> {
        Ok(StartedJob::running("job"))
    }

    async fn poll(&self, _: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        match self.1.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Ok(BackgroundStatus::Running),
            _ => {
                let answer = self.0.complete(request, &CallOptions::default()).await?;
                Ok(BackgroundStatus::Completed(Box::new(answer)))
            }
        }
    }

    async fn cancel(&self, _: &BackgroundJob) -> Result<(), ModelError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_run_that_slept_for_its_model_is_replayed_without_sleeping() {
    for in_background in [true, false] {
        let asked = AtomicUsize::new(0);
        let model = ScriptedModel::new(move |request| {
            if !in_background && asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                return Err(ModelError::new(ModelErrorCategory::Unavailable, "busy"));
            }
            Ok(looks_once(request))
        });
        let tools = seeing();
        let outside = (model.clone(), tools.clone());
        let agents = [(
            "helper",
            Agent::new(move |outside| {
                let mut parts = parts("description: looks", model.clone(), tools.clone(), outside.clock.clone());
                if in_background {
                    parts.model.background = Some(Arc::new(Slow(model.clone(), AtomicUsize::new(0))));
                }
                graph(parts)
            }),
        )];
        let (world, session) = world(&agents).await;
        let mut task = run(&world, &session, "look").await;
        for _ in 0..10 {
            if task["status"] != "COMPLETED" {
                wake(&world, &task).await;
                world.work().await;
                task = world.get(&path_of(&task)).await;
            }
        }
        let told = events(&world, &path_of(&task)).await;
        let said: Vec<&Value> = told.iter().filter(|event| event["event"] == "agent.message").collect();
        assert!(
            !said.is_empty() && !json!(said).to_string().contains("The model"),
            "that it waits is no message: {said:#?}"
        );
        ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
    }
}

/// A server with the tools of a box, or one that cannot be listed; it leaves a tool out.
#[derive(Debug)]
struct Server(Result<Arc<Toolbox>, ToolError>);

#[async_trait]
impl ToolSource for Server {
    fn lists_offline(&self) -> bool {
        false
    }

    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.0.clone()?.list().await
    }

    async fn left_out(&self) -> Vec<(String, String)> {
        vec![("two words".to_owned(), "a name has no blanks".to_owned())]
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        self.0.clone()?.call(call).await
    }
}

/// Calls of a box that end later, and what stands in their outcomes as a secret.
#[derive(Debug)]
struct Discreet(Arc<Toolbox>);

#[async_trait]
impl ToolSource for Discreet {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.0.list().await
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        self.0.call(call).await
    }

    fn masked(&self, _: &str, output: ToolOutput) -> ToolOutput {
        output.with_texts(&|text| text.replace("hush", "[secret]"))
    }
}

/// Addresses with the same token for all.
pub(crate) struct OneToken;

impl CallbackAddresses for OneToken {
    fn address(&self, signal_id: &SignalId) -> Option<String> {
        Some(format!("https://d.example/signals/{signal_id}?token=t0-ken_1"))
    }

    fn is_token(&self, _: &SignalId, text: &str) -> bool {
        text == "t0-ken_1"
    }
}

#[tokio::test]
async fn a_run_whose_tool_told_a_secret_later_is_replayed_without_it() {
    let model = ScriptedModel::new(|request| Ok(looks_once(request)));
    let tools = Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Pending(Pending::default())));
    let outside = (model.clone(), tools.clone());
    let helper = Agent::new(move |outside| {
        let source = Arc::new(Discreet(tools.clone()));
        let matter = "policy: {approval: {external: []}}";
        let mut parts = parts(matter, model.clone(), source, outside.clock.clone());
        parts.callbacks = Some(Arc::new(OneToken));
        graph(parts)
    });
    let (world, session) = world(&[("helper", helper)]).await;
    let task = run(&world, &session, "look").await;
    world.callback(text(&task["id"]), json!({ "said": "hush", "sent to": "/x?token=t0-ken_1" })).await;
    world.work().await;
    let task = world.get(&path_of(&task)).await;
    assert_eq!(results(&outside.0.last()), [r#"{"said":"[secret]","sent to":"/x?token=[secret]"}"#]);
    ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    let told = json!([replay, events(&world, &path_of(&replay)).await]).to_string();
    assert!(!told.contains("hush") && !told.contains("t0-ken_1"), "{told}");
}

#[tokio::test]
async fn a_run_that_had_to_do_without_tools_is_replayed_without_them_and_says_the_same() {
    let model = ScriptedModel::new(|request| Ok(looks_once(request)));
    let tools = seeing();
    let outside = (model.clone(), tools.clone());
    let agents = [(
        "helper",
        Agent::new(move |outside| {
            let matter = "policy: {approval: {external: [send_mail]}}";
            let mut parts = parts(matter, model.clone(), tools.clone(), outside.clock.clone());
            let away = ToolError::transient("MCP server `away`: no connection: it is down");
            let part = parts.tools.remove(0);
            parts.tools = [("near", Ok(tools.clone())), ("away", Err(away))]
                .map(|(name, listed)| ToolPart {
                    name: name.to_owned(),
                    source: Arc::new(Server(listed)),
                    ..part.clone()
                })
                .into();
            graph(parts)
        }),
    )];
    let (world, session) = world(&agents).await;
    let task = run(&world, &session, "look").await;
    let missing = |events: Vec<Value>| {
        let told = events.into_iter().find(|event| event["event"] == "vendor.dormouse.tools_missing");
        told.expect("what is missing is told")["payload"]["missing"].clone()
    };
    let told = missing(events(&world, &path_of(&task)).await);
    let left_out = "`two words` is left out: a name has no blanks";
    let expected = json!([
        { "source": "near", "reason": left_out },
        { "source": "away", "reason": left_out },
        { "source": "away", "reason": "transient: MCP server `away`: no connection: it is down" },
    ]);
    assert_eq!(told, expected);
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
    assert_eq!(missing(events(&world, &path_of(&replay)).await), told);
    ends_the_same(&world, &session, &task, || outside.0.calls() + outside.1.made().len()).await;
}
