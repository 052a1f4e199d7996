//! Hooks that end a run or are ended with one, that judge its summaries, and that are more than one commit has room for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use crate::context::{asks_for_summary, looker};
use crate::hooks::{ALL, Saying, hook};
use async_trait::async_trait;
use dormouse::testing::{Invocation, Status, TestBed};
use dormouse::{Agents, Outside, Value, json};
use dormouse_agent::graph;
use dormouse_agent::workspace::{HookEvent, OnHookError};
use dormouse_api::RecordingStore;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, FreshTurn, Harness, HarnessConfig, Mode, Transmission, TurnOutcome};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookModelCall};
use dormouse_ports::model::{CompletionRequest, Message, ModelError, ModelErrorCategory, ModelIdentity, Usage};
use dormouse_ports::tool::{Effect, Pending, ToolOutput, ToolReply};
use dormouse_ports::{Category, TurnStore};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use tokio::sync::Notify;

/// Lets a run go on so many times, and stops it from then on.
#[derive(Debug)]
struct Closing(Mutex<usize>);

#[async_trait]
impl HookHandler for Closing {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        let mut left = self.0.lock().expect("not poisoned");
        let text = match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                String::new()
            }
            None => json!({ "continue": false, "stopReason": "the office is closed" }).to_string(),
        };
        Ok(HookAnswer { model_call: None, text, blocks: false })
    }
}

#[test]
fn a_run_that_a_hook_stops_after_a_rest_ends_there() {
    for event in [HookEvent::BeforeContextBuild, HookEvent::AfterContextBuild, HookEvent::BeforeModelCall] {
        for before in 0..3 {
            let model = ScriptedModel::new(|_| Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")));
            let (used, handler) = (model.clone(), Arc::new(Closing(Mutex::new(before))));
            let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
                let mut parts = parts("", used.clone(), looker(), outside.clock.clone());
                let mut hook = hook("closes", &[event], handler.clone());
                hook.definition.capabilities = ALL.into_iter().collect();
                parts.hooks = vec![hook];
                graph::graph(parts)
            }));
            let run = bed.start("helper", message("hi"));
            bed.pass(Duration::from_secs(60 * 60));
            let state = bed.status(&run).completed();
            assert_eq!((&state["reason"], model.calls()), (&json!("hook"), before), "{event:?}");
            let told: Vec<_> = contents(&state, "assistant");
            assert_eq!(told, ["hook `closes` ended the run: the office is closed"], "it is said once");
            assert_eq!(state.get("rest").unwrap_or(&Value::Null), &Value::Null);
        }
    }
}

/// Counts how often it is told.
#[derive(Debug, Default)]
struct Told(Mutex<usize>);

#[async_trait]
impl HookHandler for Told {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        *self.0.lock().expect("not poisoned") += 1;
        Ok(HookAnswer { model_call: None, text: String::new(), blocks: false })
    }
}

#[test]
fn a_run_whose_model_is_away_for_days_sleeps_until_it_is_back_and_ends_once_after_a_week() {
    for comes_back in [true, false] {
        let is_back = Arc::new(Mutex::new(false));
        let back = is_back.clone();
        let model = ScriptedModel::new(move |_| match *back.lock().expect("not poisoned") {
            true => Ok(says("hello")),
            false => Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")),
        });
        let (used, told) = (model.clone(), Arc::new(Told::default()));
        let handler = told.clone();
        let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
            let mut parts = parts("", used.clone(), looker(), outside.clock.clone());
            parts.hooks = vec![hook("tells", &[HookEvent::RunFailed], handler.clone())];
            graph::graph(parts)
        }));
        let ended = || *told.0.lock().expect("not poisoned");
        let runs = [bed.start("helper", message("hi")), bed.start("helper", message("hi"))];
        bed.pass_days(2);
        let due = runs.each_ref().map(|run| match bed.status(run) {
            Status::Asleep { due_at, .. } => due_at,
            ended @ (Status::Completed(_) | Status::Failed(_)) => panic!("it does not sleep: {ended:?}"),
        });
        assert_ne!(due[0], due[1], "what came to rest together does not wake together");
        *is_back.lock().expect("not poisoned") = comes_back;
        bed.pass_days(if comes_back { 1 } else { 5 });
        assert_eq!((comes_back, ended()), (!bed.status(&runs[0]).is_asleep(), 0), "it has not failed");
        bed.pass_days(1);
        for run in &runs {
            match comes_back {
                true => assert_eq!(bed.status(run).completed()["reason"], "completed"),
                false => assert_eq!(bed.status(run).failed().category, "limit_exceeded"),
            }
        }
        assert_eq!(ended(), if comes_back { 0 } else { 2 }, "each is told once");
    }
}

/// A run that makes its conversation shorter, by itself or as it was `asked` to, with a hook at `event` that answers
/// `answer`: its end, and what its model was asked.
fn compacting(asked: bool, event: HookEvent, on_error: OnHookError, answer: Value) -> (Status, Vec<CompletionRequest>) {
    let model = ScriptedModel::new(|request| Ok(says(if asks_for_summary(request) { "in short" } else { "done" })));
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("description: helps", used.clone(), looker(), outside.clock.clone());
        parts.model.context_window = Some(3000);
        let mut hook = hook("judges", &[event], Arc::new(Saying(answer.clone())));
        hook.definition.on_error = on_error;
        parts.hooks = vec![hook];
        graph::graph(parts)
    }));
    let long = |role: &str| json!({ "role": role, "content": "word ".repeat(1200) });
    let messages = json!([long("user"), long("assistant"), { "role": "user", "content": "and now?" }]);
    let state = if asked { json!({ "messages": messages, "compact": true }) } else { json!({ "messages": messages }) };
    let run = bed.start("helper", state);
    let requests = model.requests.lock().expect("not poisoned").clone();
    (bed.status(&run), requests)
}

#[test]
fn a_hook_around_a_summary_ends_the_run() {
    let stop = json!({ "continue": false, "stopReason": "enough" });
    for (event, summaries) in [(HookEvent::BeforeContextCompact, 0), (HookEvent::AfterContextCompact, 1)] {
        for asked in [false, true] {
            let (status, requests) = compacting(asked, event, OnHookError::Open, stop.clone());
            let state = status.completed();
            let failure = json!({ "code": "hook", "message": "hook `judges` ended the run: enough" });
            assert_eq!(state["dormouse_shortfall"], failure, "{event:?}, asked: {asked}");
            assert_eq!((requests.len(), &state["compaction"]), (summaries, &json!(null)), "{event:?}: nothing is kept");
            assert_eq!(state["usage"]["prompt_tokens"], json!(100 * summaries), "{event:?}: what was paid is told");
        }
    }
}

#[test]
fn a_hook_behind_a_summary_refuses_it_or_is_heard() {
    let event = HookEvent::AfterContextCompact;
    let block = json!({ "decision": "block", "reason": "it says too much" });
    for (on_error, answer) in [(OnHookError::Open, block), (OnHookError::Closed, json!([]))] {
        let (status, requests) = compacting(false, event, on_error, answer.clone());
        let state = status.completed();
        assert_eq!((&state["reason"], &state["compaction"]), (&json!("completed"), &json!(null)), "{on_error:?}");
        assert_eq!(requests.len(), 2, "the run goes on with all of it");
        let (status, _) = compacting(true, event, on_error, answer);
        assert_eq!(status.completed()["reason"], "not_compacted", "{on_error:?}");
    }
    let (status, _) = compacting(false, event, OnHookError::Open, json!([]));
    assert_ne!(status.completed()["compaction"], json!(null), "one that fails and is open is passed over");
    let (status, requests) = compacting(false, event, OnHookError::Closed, json!({ "systemMessage": "mind the gap" }));
    assert_ne!(status.completed()["compaction"], json!(null));
    let Message::System { content } = &requests[1].messages[0] else { panic!("{requests:?}") };
    assert!(content.contains("<hook_context>\nmind the gap\n</hook_context>"), "{content}");
}

#[test]
fn a_step_of_many_calls_with_many_talkative_hooks_is_recorded_all_the_same() {
    let said = json!({ "systemMessage": "m".repeat(100), "reason": "r".repeat(3000) });
    for (events, hooks) in [
        (vec![HookEvent::BeforeToolDispatch, HookEvent::AfterToolDispatch], 10),
        (vec![HookEvent::AfterToolDispatch], 40),
        (vec![HookEvent::BeforeToolDispatch], 40),
    ] {
        let model = ScriptedModel::new(|request| {
            let asked: Vec<_> = (0..25).map(|n| format!("c{n}")).collect();
            let asked: Vec<_> =
                asked.iter().map(|id| (id.as_str(), "look", json!({ "to": "x".repeat(7000) }))).collect();
            Ok(if results(request).is_empty() { calls(&asked) } else { says("done") })
        });
        let (used, said, tools) = (model.clone(), said.clone(), looker());
        let toolbox = tools.clone();
        let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
            let mut parts = parts("description: helps", used.clone(), toolbox.clone(), outside.clock.clone());
            let saying = Arc::new(Saying(said.clone()));
            parts.hooks = (0..hooks).map(|n| hook(&format!("h{n}"), &events, saying.clone())).collect();
            graph::graph(parts)
        }));
        let run = bed.start("helper", message("look"));
        assert_eq!(bed.status(&run).completed()["reason"], "completed");
        assert_eq!(results(&model.last()).len(), 25, "each call has a result");
        assert!(tools.made().len() > 5, "{}", tools.made().len());
    }
}

/// A run that makes 25 calls of `tools` in one step, with 24 hooks behind each; its agent has `matter`.
fn crowded(matter: &'static str, tools: &Arc<Toolbox>) -> (TestBed, Invocation, Arc<ScriptedModel>) {
    let model = ScriptedModel::new(|request| {
        let asked: Vec<_> = (0..25).map(|n| format!("c{n}")).collect();
        let asked: Vec<_> = asked.iter().map(|id| (id.as_str(), "send", json!({ "to": "x" }))).collect();
        Ok(if results(request).is_empty() { calls(&asked) } else { says("done") })
    });
    let (used, toolbox) = (model.clone(), tools.clone());
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts(matter, used.clone(), toolbox.clone(), outside.clock.clone());
        let saying = Arc::new(Saying(json!({})));
        let behind = [HookEvent::AfterToolDispatch];
        parts.hooks = (0..24).map(|n| hook(&format!("h{n}"), &behind, saying.clone())).collect();
        graph::graph(parts)
    }));
    let run = bed.start("helper", message("send"));
    (bed, run, model)
}

#[test]
fn calls_side_by_side_are_begun_as_many_as_a_commit_has_room_for_with_the_hooks_behind_them() {
    let sends = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Ok(ToolReply::Done(ToolOutput::text("sent"))));
    let (bed, run, model) = crowded("policy: {parallel_tool_calls: true}", &sends);
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(results(&model.last()), ["sent"; 25]);
    assert_eq!(sends.made().len(), 25, "each is made once");
}

#[test]
fn outcomes_that_come_together_are_taken_as_many_as_a_commit_has_room_for_with_the_hooks_behind_them() {
    let jobs = Toolbox::new(vec![tool("send", Effect::Safe)], |_| Ok(ToolReply::Pending(Pending::default())));
    let (mut bed, run, model) = crowded("description: sends", &jobs);
    for call in 1..=25 {
        bed.answer_as(&run, &format!("call-{call}"), json!({ "number": call })).unwrap();
    }
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    let told: Vec<_> = (1..=25).map(|call| json!({ "number": call }).to_string()).collect();
    assert_eq!(results(&model.last()), told, "each outcome is that of its call");
    let (mut bed, run, model) = crowded("description: sends", &jobs);
    bed.pass(Duration::from_secs(24 * 60 * 60 + 10));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(results(&model.last()), ["error: the tool sent no outcome in time"; 25]);
}

/// Works without an end, and says when it begins and when it is ended.
#[derive(Debug, Default)]
struct Endless {
    begun: Notify,
    ended: Arc<Notify>,
}

struct Ends(Arc<Notify>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[async_trait]
impl HookHandler for Endless {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        let _ends = Ends(self.ended.clone());
        self.begun.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_hook_of_a_run_that_another_process_cancels_is_ended_before_its_own_time_is_over() {
    for event in [HookEvent::BeforeModelCall, HookEvent::BeforeToolDispatch, HookEvent::AfterToolDispatch] {
        let endless = Arc::new(Endless::default());
        let handler = endless.clone();
        let agents = Agents::new().graph(move |outside| {
            let model = ScriptedModel::playing(vec![Ok(calls(&[("c1", "look", json!({ "to": "x" }))]))]);
            let mut parts = parts("description: helps", model, looker(), outside.clock.clone());
            parts.hooks = vec![hook("works", &[event], handler.clone())];
            graph::graph(parts)
        });
        let (bus, clock) = (Arc::new(MemoryBus::default()), Arc::new(ManualClock::default()));
        let (store, ids) = (Arc::new(MemoryStore::default()), Arc::new(CountingIds::default()));
        let harness = || {
            let compiled = agents.compile(&Outside::new(bus.clone(), clock.clone())).expect("agents");
            let ports = Ports {
                store: RecordingStore::new(TurnStore::from(store.clone()), store.clone(), clock.clone()).into(),
                clock: clock.clone(),
                ids: ids.clone(),
                spawner: Arc::new(TokioSpawner),
                planner: Arc::new(DescriptorWakes),
            };
            let config = HarnessConfig::new(Mode::Sessioned);
            let subscriptions = Arc::new(MemorySubscriptions::default());
            Harness::new(Engine::new(ports), compiled.graphs, subscriptions, bus.clone(), config)
        };
        let (worker, other) = (harness(), harness());
        let Value::Object(state) = message("look") else { panic!("an object") };
        let turn = FreshTurn { invocation_id: Some("run-1".into()), ..FreshTurn::new("helper", state) };
        let works = worker.turn(Transmission::from(turn));
        let cancels = async {
            endless.begun.notified().await;
            other.cancel(&"run-1".into(), None, None).await.expect("it is canceled");
            // Less than the ten seconds that the hook has.
            clock.advance(Duration::from_secs(3));
            endless.ended.notified().await;
            // What the turn waits for from now on.
            loop {
                clock.advance(Duration::from_secs(1));
                tokio::task::yield_now().await;
            }
        };
        let turn = tokio::select! {
            turn = works => turn,
            () = cancels => unreachable!("it goes on"),
        };
        let TurnOutcome::Errored(error) = turn.outcome else { panic!("{event:?}: {:?}", turn.outcome) };
        assert_eq!(error.category, Category::InvocationCanceled, "{event:?}");
    }
}

/// Asks a model each time, and lets everything pass.
#[derive(Debug)]
struct Asking;

#[async_trait]
impl HookHandler for Asking {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        let identity =
            ModelIdentity { system: "scripted".to_owned(), model: "judge".to_owned(), server: String::new() };
        let usage = Usage { prompt_tokens: Some(100), completion_tokens: Some(10), ..Usage::default() };
        let model_call = Some(Box::new(HookModelCall { identity, usage, cost: 0.0 }));
        Ok(HookAnswer { model_call, ..HookAnswer::default() })
    }
}

#[test]
fn a_hook_behind_a_tool_that_uses_up_the_budget_of_a_run_asks_the_last_model() {
    let model = ScriptedModel::playing(vec![Ok(calls(&[("c1", "look", json!({ "to": "x" }))])), Ok(says("done"))]);
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("policy: {max_total_tokens: 150}", used.clone(), looker(), outside.clock.clone());
        parts.hooks = vec![hook("judges", &[HookEvent::AfterToolDispatch], Arc::new(Asking))];
        graph::graph(parts)
    }));
    let run = bed.start("helper", message("look"));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], model.calls()), (&json!("budget"), 1));
    assert_eq!(contents(&state, "tool").len(), 1, "the conversation is whole");
}
