//! What a model is shown: the conversation, made shorter where it fills the model's window or where somebody asks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use async_trait::async_trait;
use dormouse::testing::{Invocation, Status, TestBed};
use dormouse::{Agents, Outside, Value, json};
use dormouse_agent::graph::{self, HookPart};
use dormouse_agent::workspace::{HookCapability, HookDefinition, HookEvent, OnHookError};
use dormouse_api::RecordingStore;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, FreshTurn, Harness, HarnessConfig, Mode, Transmission, TurnOutcome};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookHandlerDefinition, HookModelCall};
use dormouse_ports::model::{
    CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory, ModelIdentity, Response, RuntimeConfig,
    Usage,
};
use dormouse_ports::tool::{Effect, Pending, ToolOutput, ToolReply};
use dormouse_ports::{Category, TurnStore};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use tokio::sync::Notify;

/// True for the request of a summary.
fn asks_for_summary(request: &CompletionRequest) -> bool {
    matches!(request.messages.first(), Some(Message::System { content }) if content.starts_with("You write the summary"))
}

fn looker() -> Arc<Toolbox> {
    Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("x".repeat(1000)))))
}

/// A model with a window of so many tokens, that looks `times` times; `summary` is what it answers to the question for one.
fn bed(window: u64, times: usize, summary: Result<&'static str, ModelError>) -> (TestBed, Arc<ScriptedModel>) {
    let model = ScriptedModel::new(move |request| {
        if asks_for_summary(request) {
            return summary.clone().map(says);
        }
        let made =
            serde_json::to_string(&request.messages).expect("JSON").matches("LOOKED").count() + results(request).len();
        if made < times { Ok(calls(&[(&format!("c{made}"), "look", json!({ "to": "x" }))])) } else { Ok(says("done")) }
    });
    let used = model.clone();
    let bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("description: helps", used.clone(), looker(), outside.clock.clone());
        parts.model.context_window = Some(window);
        graph::graph(parts)
    }));
    (bed, model)
}

/// Tokens of `request`, about as they are counted.
fn size(request: &CompletionRequest) -> usize {
    (json!(request.messages).to_string().len() + json!(request.tools).to_string().len()) / 4
}

/// Every result has its call in front of it, and every call its result behind it.
fn check_pairs(request: &CompletionRequest) {
    let mut open: Vec<String> = Vec::new();
    for message in &request.messages {
        match message {
            Message::Tool { tool_call_id, .. } => {
                assert!(open.contains(tool_call_id), "a result without its call");
                open.retain(|id| id != tool_call_id);
            }
            Message::Assistant(answer) => {
                assert!(open.is_empty(), "a call without its result");
                open = answer.tool_calls.iter().map(|call| call.id.clone()).collect();
            }
            Message::System { .. } | Message::User { .. } => assert!(open.is_empty(), "a call without its result"),
        }
    }
    assert!(open.is_empty(), "a call without its result");
}

#[test]
fn a_conversation_that_fills_the_window_goes_on_with_a_summary() {
    let (mut bed, model) = bed(2000, 8, Ok("LOOKED LOOKED LOOKED LOOKED at x"));
    let run = bed.start("helper", message("look"));
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done"));
    let requests = model.requests.lock().expect("not poisoned").clone();
    let summaries = requests.iter().filter(|request| asks_for_summary(request)).count();
    assert!(summaries >= 1, "it was made shorter");
    for request in requests.iter().filter(|request| !asks_for_summary(request)) {
        check_pairs(request);
        let size = serde_json::to_string(&request.messages).expect("JSON").len() / 4;
        assert!(size < 2000, "{size} tokens");
    }
    let last = serde_json::to_string(&model.last().messages).expect("JSON");
    assert!(last.contains("<conversation_summary>"), "{last}");
    assert_eq!(contents(&state, "user"), ["look"], "the conversation itself stays whole");
    assert_eq!(state["steps"], requests.len() - summaries);
    assert_eq!(state["usage"]["prompt_tokens"], 100 * requests.len(), "summaries are paid for as well");
}

/// What a provider says of a conversation that its model has no room for.
fn too_long() -> ModelError {
    let mut error = ModelError::new(ModelErrorCategory::InvalidRequest, "the conversation is too long");
    error.too_long = true;
    error
}

/// A bed for `model`, of which nobody said how many tokens it takes.
fn unsaid(model: &Arc<ScriptedModel>) -> TestBed {
    let used = model.clone();
    TestBed::new(
        &Agents::new().graph(move |outside| {
            graph::graph(parts("description: helps", used.clone(), looker(), outside.clock.clone()))
        }),
    )
}

#[test]
fn a_conversation_that_is_refused_as_too_long_goes_on_with_a_summary() {
    let answered = AtomicUsize::new(0);
    let model = ScriptedModel::new(move |request| {
        if asks_for_summary(request) {
            return Ok(says("it was looked at"));
        }
        if size(request) > 1_500 {
            return Err(too_long());
        }
        let at = answered.fetch_add(1, Ordering::Relaxed);
        Ok(if at < 12 { calls(&[(&format!("c{at}"), "look", json!({ "to": "x" }))]) } else { says("done") })
    });
    let mut bed = unsaid(&model);
    let run = bed.start("helper", message("look"));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["steps"]), (&json!("completed"), &json!(13)));
    let requests = model.requests.lock().expect("not poisoned").clone();
    let summaries: Vec<usize> = (0..requests.len()).filter(|at| asks_for_summary(&requests[*at])).collect();
    assert!(!summaries.is_empty(), "it was made shorter");
    for at in &summaries {
        assert!(size(&requests[at - 1]) > 1_500, "one is asked for behind a refusal alone");
    }
    assert_eq!(state["usage"]["prompt_tokens"], 100 * (13 + summaries.len()), "a refusal costs nothing");
}

#[test]
fn a_conversation_of_more_tokens_than_its_length_tells_is_made_shorter_in_time() {
    for times in [1, 3] {
        let answered = AtomicUsize::new(0);
        let model = ScriptedModel::new(move |request| {
            if asks_for_summary(request) {
                return Ok(says("it was looked at"));
            }
            let at = answered.fetch_add(1, Ordering::Relaxed);
            let looks = |at: usize| calls(&[(&format!("c{at}"), "look", json!({ "to": "x" }))]);
            let mut answer = if at < 10 { looks(at) } else { says("done") };
            answer.usage.prompt_tokens = u64::try_from(size(request) * times).ok();
            Ok(answer)
        });
        let used = model.clone();
        let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
            let mut parts = parts("description: helps", used.clone(), looker(), outside.clock.clone());
            parts.model.context_window = Some(10_000);
            graph::graph(parts)
        }));
        let run = bed.start("helper", message("look"));
        assert_eq!(bed.status(&run).completed()["steps"], json!(11));
        let requests = model.requests.lock().expect("not poisoned").clone();
        let summaries = requests.iter().filter(|request| asks_for_summary(request)).count();
        assert_eq!(summaries > 0, times == 3, "{summaries} summaries of a third of the window");
        assert!(requests.iter().all(|request| size(request) * times < 10_000), "none is larger than the window");
    }
}

#[test]
fn a_conversation_that_no_summary_makes_shorter_fails_as_its_provider_says() {
    let model =
        ScriptedModel::new(|request| if asks_for_summary(request) { Ok(says("short")) } else { Err(too_long()) });
    let long = |role: &str| json!({ "role": role, "content": "x".repeat(8_000) });
    for (messages, asked) in [
        (vec![long("user")], 1),
        // Behind the summary there is nothing left to take away.
        (vec![long("user"), long("assistant"), long("user")], 3),
    ] {
        let before = model.calls();
        let refused = unsaid(&model).try_start("helper", json!({ "messages": messages })).expect_err("it is too long");
        assert!(refused.message.contains("the conversation is too long"), "{refused:?}");
        assert_eq!(model.calls() - before, asked);
    }
}

#[test]
fn a_summary_is_asked_for_with_less_where_the_model_refuses_as_much() {
    let model = ScriptedModel::new(|request| if size(request) > 10_000 { Err(too_long()) } else { Ok(says("short")) });
    let roles = ["user", "assistant"].iter().cycle().take(60);
    let messages: Vec<Value> = roles.map(|role| json!({ "role": role, "content": "x".repeat(5_000) })).collect();
    let mut bed = unsaid(&model);
    let run = bed.start("helper", json!({ "messages": messages, "compact": true }));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["compaction"]["upto"]), (&json!("completed"), &json!(59)));
    let sizes: Vec<usize> = model.requests.lock().expect("not poisoned").iter().map(size).collect();
    assert!(sizes.len() == 3 && sizes[2] < 5_000, "{sizes:?}");
}

#[test]
fn where_no_summary_can_be_had_the_run_goes_on_with_everything() {
    let failing = Err(ModelError::new(ModelErrorCategory::InvalidRequest, "too long"));
    let (mut bed, model) = bed(2000, 8, failing);
    let run = bed.start("helper", message("look"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(results(&model.last()).len(), 8);
}

#[test]
fn a_summary_that_was_not_had_is_asked_for_again_when_the_conversation_has_grown() {
    for (summary, reason) in [
        (Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")), "the model could not be asked"),
        (Ok(" "), "the model gave no summary"),
        (Ok("x ".repeat(40_000).leak()), "the model's summary is longer than what it stands for"),
    ] {
        let (mut bed, model) = bed(10_000, 44, summary);
        let run = bed.start("helper", message("look"));
        let state = bed.status(&run).completed();
        let requests = model.requests.lock().expect("not poisoned").clone();
        let asked: Vec<usize> = (0..requests.len()).filter(|at| asks_for_summary(&requests[*at])).collect();
        let sizes: Vec<usize> = asked.iter().map(|at| size(&requests[at + 1]) * 10 / 10_000).collect();
        assert_eq!(sizes, [7, 8, 9, 10, 11, 12], "{reason}: once a tenth of the window");
        assert!(state["usage"]["summary_from"].as_u64().is_some_and(|from| from > 12_000), "{:?}", state["usage"]);
    }
}

#[test]
fn a_summary_that_uses_up_the_budget_of_a_run_is_its_last_call() {
    for summary in ["LOOKED LOOKED LOOKED LOOKED at x", " "] {
        let mut ends = BTreeSet::new();
        for most in 1..8 {
            let model = ScriptedModel::new(move |request| {
                if asks_for_summary(request) {
                    return Ok(says(summary));
                }
                let made = results(request).len();
                Ok(calls(&[(&format!("c{made}"), "look", json!({ "to": "x" }))]))
            });
            let used = model.clone();
            let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
                // Each call takes 110 tokens.
                let matter = format!("policy: {{max_total_tokens: {}}}", most * 110);
                let mut parts = parts(&matter, used.clone(), looker(), outside.clock.clone());
                parts.model.context_window = Some(2000);
                graph::graph(parts)
            }));
            let run = bed.start("helper", message("look"));
            assert_eq!(bed.status(&run).completed()["reason"], "budget", "{most}: {summary}");
            assert_eq!(model.calls(), most, "{summary}");
            ends.insert(asks_for_summary(&model.last()));
        }
        assert_eq!(ends.len(), 2, "one of them ended with a summary: {summary}");
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

#[test]
fn after_a_summary_nothing_is_remembered_of_those_that_were_not_had() {
    let tries = Mutex::new(0);
    let model = ScriptedModel::new(move |request| {
        if !asks_for_summary(request) {
            let made = results(request).len();
            return Ok(if made < 9 {
                calls(&[(&format!("c{made}"), "look", json!({ "to": "x" }))])
            } else {
                says("done")
            });
        }
        let mut tries = tries.lock().expect("not poisoned");
        *tries += 1;
        Ok(says(if *tries == 1 { "" } else { "it looked" }))
    });
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("policy: {max_steps: 12}", used.clone(), looker(), outside.clock.clone());
        parts.model.context_window = Some(2000);
        graph::graph(parts)
    }));
    let run = bed.start("helper", message("look"));
    let state = bed.status(&run).completed();
    assert_eq!((&state["compaction"]["summary"], state["usage"].get("summary_from")), (&json!("it looked"), None));
}

#[test]
fn nothing_is_made_shorter_that_has_room() {
    let (mut bed, model) = bed(200_000, 8, Ok("never"));
    let run = bed.start("helper", message("look"));
    assert_eq!(bed.status(&run).completed()["compaction"], json!(null));
    assert!(!model.requests.lock().expect("not poisoned").iter().any(asks_for_summary));
}

#[test]
fn a_run_can_be_asked_to_make_its_conversation_shorter() {
    let (mut bed, model) = bed(200_000, 2, Ok("LOOKED LOOKED twice"));
    let state = json!({ "messages": message("look")["messages"], "compact": true });
    let run = bed.start("helper", state);
    let done = bed.status(&run).completed();
    assert_eq!(done["reason"], "completed");
    assert_eq!(model.calls(), 0, "there is one message, which stays");
    let messages = json!([
        { "role": "user", "content": "first" }, { "role": "assistant", "content": "second" },
        { "role": "user", "content": "third" }
    ]);
    let run = bed.start("helper", json!({ "messages": messages, "compact": true }));
    let done = bed.status(&run).completed();
    assert_eq!(model.calls(), 1);
    assert_eq!(done["compaction"]["upto"], 2);
    let question = serde_json::to_string(&model.last().messages).expect("JSON");
    assert!(question.contains("first") && question.contains("second") && !question.contains("third"), "{question}");
}

#[test]
fn a_conversation_of_which_there_is_no_summary_stays_as_it_is_and_the_run_says_so() {
    let messages = json!([
        { "role": "user", "content": "first" }, { "role": "assistant", "content": "second" },
        { "role": "user", "content": "third" }
    ]);
    let failing = Err(ModelError::new(ModelErrorCategory::InvalidRequest, "too long"));
    for (summary, paid) in [(Ok(" "), 100), (failing, 0)] {
        let (mut bed, model) = bed(200_000, 2, summary);
        let run = bed.start("helper", json!({ "messages": messages, "compact": true }));
        let state = bed.status(&run).completed();
        assert_eq!((&state["reason"], &state["compaction"]), (&json!("not_compacted"), &json!(null)));
        assert_eq!(state["dormouse_shortfall"]["code"], "not_compacted");
        assert_eq!((model.calls(), &state["usage"]["prompt_tokens"]), (1, &json!(paid)), "what was paid is told");
    }
}

/// Notes what it is told, and answers nothing.
#[derive(Debug, Default)]
struct Listening(Mutex<Vec<Value>>);

#[async_trait]
impl HookHandler for Listening {
    async fn handle(&self, envelope: &Value) -> Result<HookAnswer, HookFailure> {
        self.0.lock().expect("not poisoned").push(envelope.clone());
        Ok(HookAnswer { text: String::new(), blocks: false, model_call: None })
    }
}

/// A hook at `events` that `handler` handles.
pub(crate) fn hook(name: &str, events: &[HookEvent], handler: Arc<dyn HookHandler>) -> HookPart {
    let definition = HookDefinition {
        name: name.to_owned(),
        file: format!("{name}.yaml"),
        events: events.to_vec(),
        matcher: None,
        handler: HookHandlerDefinition::Command { command: "hear".to_owned(), environment: Vec::new() },
        capabilities: BTreeSet::new(),
        on_error: OnHookError::Open,
        timeout_seconds: 10,
    };
    HookPart::new(definition, Some(handler))
}

/// What a hook at `events` is told of one run, whose model answers `answer`.
fn heard(events: &[HookEvent], answer: Response) -> Vec<Value> {
    let heard = Arc::new(Listening::default());
    let handler = heard.clone();
    let events = events.to_vec();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let model = ScriptedModel::playing(vec![Ok(answer.clone())]);
        let mut parts = parts("description: helps", model, looker(), outside.clock.clone());
        parts.hooks = vec![hook("hears", &events, handler.clone())];
        graph::graph(parts)
    }));
    let run = bed.start("helper", message("hello"));
    bed.status(&run).completed();
    heard.0.lock().expect("not poisoned").clone()
}

#[test]
fn hooks_hear_of_the_conversation_before_the_context_is_composed_and_of_all_of_it_behind_that() {
    let events = [HookEvent::BeforeModelCall, HookEvent::AfterContextBuild, HookEvent::BeforeContextBuild];
    let heard = heard(&events, says("hello"));
    let told: Vec<_> =
        heard.iter().map(|told| (told["hook_event_name"].as_str(), told["messages"][0]["role"].as_str())).collect();
    let expected = [
        (Some("before_context_build"), Some("user")),
        (Some("after_context_build"), Some("system")),
        (Some("before_model_call"), Some("system")),
    ];
    assert_eq!(told, expected);
    assert_eq!(heard[0]["messages"].as_array().map(Vec::len), Some(1), "only what was said");
}

#[test]
fn a_run_whose_answer_was_cut_has_failed_for_its_hooks_as_well() {
    for (finish, event) in [
        (FinishReason::Stop, "run_completed"),
        (FinishReason::Length, "run_failed"),
        (FinishReason::ContentFilter, "run_failed"),
    ] {
        let answer = Response { finish_reason: finish, ..says("hello, and") };
        let heard = heard(&[HookEvent::RunCompleted, HookEvent::RunFailed], answer);
        let told: Vec<_> = heard.iter().filter_map(|told| told["hook_event_name"].as_str()).collect();
        assert_eq!(told, [event], "{finish:?}");
    }
}

/// Gives the same answer each time.
#[derive(Debug)]
struct Saying(Value);

#[async_trait]
impl HookHandler for Saying {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        Ok(HookAnswer { text: self.0.to_string(), blocks: false, model_call: None })
    }
}

const ALL: [HookCapability; 6] = [
    HookCapability::RewriteContext,
    HookCapability::RewriteModelRequest,
    HookCapability::RewriteModelResponse,
    HookCapability::RewriteToolRequest,
    HookCapability::RewriteToolResponse,
    HookCapability::SuppressOutput,
];

/// A run that looks once, with a hook at `event` that may change everything and answers `answer`: its end, and what its
/// model was asked.
fn hooked(event: HookEvent, on_error: OnHookError, answer: Value) -> (Status, Vec<CompletionRequest>) {
    let model = ScriptedModel::playing(vec![Ok(calls(&[("c1", "look", json!({ "to": "x" }))])), Ok(says("done"))]);
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("description: helps", used.clone(), looker(), outside.clock.clone());
        let mut hook = hook("changes", &[event], Arc::new(Saying(answer.clone())));
        hook.definition.capabilities = ALL.into_iter().collect();
        hook.definition.on_error = on_error;
        parts.hooks = vec![hook];
        graph::graph(parts)
    }));
    let run = bed.start("helper", message("look"));
    let requests = model.requests.lock().expect("not poisoned").clone();
    (bed.status(&run), requests)
}

#[test]
fn what_hooks_say_around_a_step_is_told_in_the_next_request() {
    let said = json!({ "systemMessage": "mind the gap", "hookSpecificOutput": { "additionalContext": "it rains" } });
    for event in [HookEvent::BeforeToolDispatch, HookEvent::AfterModelCall] {
        let (status, requests) = hooked(event, OnHookError::Open, said.clone());
        status.completed();
        let told: Vec<_> =
            requests.iter().map(|request| serde_json::to_string(&request.messages[0]).expect("JSON")).collect();
        assert_eq!(told.len(), 2);
        for text in ["mind the gap", "it rains"] {
            let places: Vec<_> = told.iter().map(|told| told.matches(text).count()).collect();
            assert_eq!(places, [0, 1], "{event:?}: {told:#?}");
        }
    }
}

#[test]
fn an_answer_of_the_model_that_a_hook_refuses_is_withheld_and_one_that_only_ends_the_run_is_not() {
    let stops = json!({ "continue": false, "stopReason": "enough" });
    let refuses = json!({ "decision": "block", "reason": "it tells a secret" });
    let both = json!({ "continue": false, "decision": "block", "reason": "it tells a secret" });
    for (answer, on_error, is_told) in [
        (stops, OnHookError::Open, true),
        (refuses, OnHookError::Open, false),
        (both, OnHookError::Open, false),
        (json!({ "decision": "blok" }), OnHookError::Closed, false),
    ] {
        let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
            let model = ScriptedModel::playing(vec![Ok(says("the password is rosebud"))]);
            let mut parts = parts("description: helps", model, looker(), outside.clock.clone());
            let mut hook = hook("guards", &[HookEvent::AfterModelCall], Arc::new(Saying(answer.clone())));
            hook.definition.on_error = on_error;
            parts.hooks = vec![hook];
            graph::graph(parts)
        }));
        let run = bed.start("helper", message("hello"));
        let state = bed.status(&run).completed();
        assert_eq!(state["reason"], "hook", "{state:?}");
        let said = state["messages"].to_string();
        assert_eq!(said.contains("rosebud"), is_told, "{said}");
        assert_eq!(said.contains("[withheld: hook `guards`"), !is_told, "{said}");
    }
}

#[test]
fn a_patch_that_sets_what_may_not_be_set_is_refused_and_ends_no_run_that_is_open() {
    let user = json!({ "role": "user", "content": "look" });
    let orphan = json!({ "role": "tool", "content": "x", "tool_call_id": "zz" });
    let call = json!({ "id": "z", "name": "look", "arguments": { "to": "x" } });
    let asks = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
    let answered = json!({ "role": "tool", "content": "x", "tool_call_id": "z" });
    let patch = |patch: Value| json!({ "hookSpecificOutput": { "patch": patch } });
    for (event, wrong) in [
        (HookEvent::BeforeModelCall, json!({ "config": { "model": "other", "temperature": 0.5 } })),
        (HookEvent::BeforeModelCall, json!({ "config": { "temperature": 99 } })),
        (HookEvent::BeforeModelCall, json!({ "messages": [] })),
        (HookEvent::BeforeContextBuild, json!({ "messages": [{ "role": "narrator" }] })),
        (HookEvent::AfterContextBuild, json!({ "messages": [user, orphan] })),
        (HookEvent::BeforeModelCall, json!({ "messages": [user, orphan] })),
        (HookEvent::BeforeModelCall, json!({ "messages": [user, asks, user, answered] })),
        (HookEvent::BeforeToolDispatch, json!({ "tool_output": "x" })),
        (HookEvent::AfterToolDispatch, json!({ "tool_output": 42 })),
        (HookEvent::AfterModelCall, json!({ "content": 42 })),
    ] {
        let (status, requests) = hooked(event, OnHookError::Open, patch(wrong.clone()));
        let state = status.completed();
        assert_eq!((&state["reason"], requests.len()), (&json!("completed"), 2), "{wrong}");
        assert!(
            requests.iter().all(|request| request.config == RuntimeConfig::default()),
            "{wrong}: nothing of it counts"
        );
        assert_eq!(results(&requests[1])[0].len(), 1000, "{wrong}");
        let (status, requests) = hooked(event, OnHookError::Closed, patch(wrong.clone()));
        let state = status.completed();
        let is_refused = state["reason"] == "hook" || results(&requests[1])[0].starts_with("error: ");
        assert!(is_refused, "{wrong}: {state:?}");
    }
    let set = patch(json!({ "config": { "temperature": 0.5 } }));
    let (status, requests) = hooked(HookEvent::BeforeModelCall, OnHookError::Open, set);
    status.completed();
    assert_eq!(requests[0].config.temperature, Some(0.5));
}

#[test]
fn a_summary_that_was_cut_stands_for_nothing() {
    let model = ScriptedModel::new(|request| match asks_for_summary(request) {
        true => Ok(Response { finish_reason: FinishReason::Length, ..says("They looked at") }),
        false if results(request).len() < 8 => {
            Ok(calls(&[(&format!("c{}", results(request).len()), "look", json!({ "to": "x" }))]))
        }
        false => Ok(says("done")),
    });
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("description: helps", used.clone(), looker(), outside.clock.clone());
        parts.model.context_window = Some(2000);
        graph::graph(parts)
    }));
    let run = bed.start("helper", message("look"));
    assert_eq!(bed.status(&run).completed()["compaction"], json!(null));
    assert!(model.requests.lock().expect("not poisoned").iter().any(asks_for_summary), "it was asked for");
}

#[test]
fn nothing_is_made_shorter_where_next_to_nothing_can_be_taken_away() {
    let (mut bed, model) = bed(2000, 1, Ok("never"));
    let arguments = json!({ "to": "x".repeat(8000) });
    let call = json!({ "id": "c0", "name": "look", "arguments": arguments });
    let messages = json!([
        { "role": "user", "content": "do the task" },
        { "role": "assistant", "content": "", "tool_calls": [call] },
        { "role": "tool", "content": "seen", "tool_call_id": "c0" },
    ]);
    let run = bed.start("helper", json!({ "messages": messages }));
    assert_eq!(bed.status(&run).completed()["compaction"], json!(null));
    let requests = model.requests.lock().expect("not poisoned").clone();
    assert!(!requests.iter().any(asks_for_summary), "no summary is paid for");
    assert!(requests.iter().all(|request| json!(request.messages).to_string().contains("do the task")));
}

#[test]
fn what_the_user_asked_for_last_is_never_only_in_a_summary() {
    let (mut bed, model) = bed(2000, 8, Ok("LOOKED LOOKED LOOKED LOOKED at x"));
    let run = bed.start("helper", message("do the task"));
    bed.status(&run).completed();
    let requests = model.requests.lock().expect("not poisoned").clone();
    assert!(requests.iter().any(asks_for_summary), "it was made shorter");
    for request in requests.iter().filter(|request| !asks_for_summary(request)) {
        assert!(json!(request.messages).to_string().contains("do the task"), "{request:?}");
    }
}

#[test]
fn what_the_user_confides_is_told_to_one_run_and_kept_by_no_conversation() {
    let model = ScriptedModel::new(|_| Ok(says("done")));
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        graph::graph(parts("description: helps", used.clone(), looker(), outside.clock.clone()))
    }));
    let run =
        bed.start("helper", json!({ "messages": message("look at this")["messages"], "confided": "the code is 7" }));
    let state = bed.status(&run).completed();
    let told = json!(model.last().messages).to_string();
    assert!(told.contains("look at this\\nthe code is 7"), "{told}");
    assert_eq!(contents(&state, "user"), ["look at this"]);
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

/// Refuses what goes to `eve`, and has what goes to `raw` go to `cooked`.
#[derive(Debug, Default)]
struct Gatekeeper(Mutex<Vec<Value>>);

#[async_trait]
impl HookHandler for Gatekeeper {
    async fn handle(&self, envelope: &Value) -> Result<HookAnswer, HookFailure> {
        let to = envelope["tool_input"]["to"].clone();
        self.0.lock().expect("not poisoned").push(to.clone());
        let text = match to.as_str() {
            Some("eve") => json!({ "decision": "block", "reason": "not to eve" }).to_string(),
            Some("raw") => {
                json!({ "hookSpecificOutput": { "patch": { "tool_input": { "to": "cooked" } } } }).to_string()
            }
            Some("end") => json!({ "continue": false, "stopReason": "enough" }).to_string(),
            Some(_) | None => String::new(),
        };
        Ok(HookAnswer { model_call: None, text, blocks: false })
    }
}

#[test]
fn arguments_that_a_person_gives_with_an_approval_pass_the_hooks_and_what_these_make_of_them_is_asked_for() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).last() {
            None => calls(&[("c1", "send", json!({ "to": "ada" }))]),
            Some(result) => says(result),
        })
    });
    let sends = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Ok(ToolReply::Done(ToolOutput::text("sent"))));
    let keeper = Arc::new(Gatekeeper::default());
    let (used, toolbox, handler) = (model, sends.clone(), keeper.clone());
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let matter = "policy: {approval: {external: [send]}}";
        let mut parts = parts(matter, used.clone(), toolbox.clone(), outside.clock.clone());
        let mut hook = hook("keeps", &[HookEvent::BeforeToolDispatch], handler.clone());
        hook.definition.capabilities = ALL.into_iter().collect();
        hook.definition.on_error = OnHookError::Closed;
        parts.hooks = vec![hook];
        graph::graph(parts)
    }));
    let edited = |to: &str| json!({ "decision": "approve", "arguments": { "to": to } });

    let run = bed.start("helper", message("send"));
    bed.answer(&run, edited("eve")).unwrap();
    let said = bed.status(&run).completed()["messages"].to_string();
    assert!(said.contains("not to eve") && sends.made().is_empty(), "{said}");

    let run = bed.start("helper", message("send"));
    bed.answer(&run, edited("end")).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(state["reason"], "hook");
    assert_eq!(state["dormouse_shortfall"]["message"], "hook `keeps` ended the run: enough");
    assert_eq!(sends.made(), [], "nothing was made");

    let run = bed.start("helper", message("send"));
    bed.answer(&run, edited("raw")).unwrap();
    assert_eq!(sends.made(), [], "nobody has approved what the hook made of it");
    let asked = bed.status(&run).waiting_for().metadata.expect("what is asked for");
    assert_eq!(asked["calls"]["call-1"]["arguments"], json!({ "to": "cooked" }));
    bed.answer(&run, json!({ "decision": "approve", "digest": asked["calls"]["call-1"]["digest"] })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(sends.made(), [("send".to_owned(), json!({ "to": "cooked" }))]);
    let seen = keeper.0.lock().expect("not poisoned").clone();
    assert_eq!(seen, ["ada", "eve", "ada", "end", "ada", "raw"], "each once");
}

#[test]
fn a_hook_meets_a_tool_of_a_server_by_any_of_its_names() {
    for (matcher, is_met) in [
        ("^post_send$", true),
        ("^post\\.send$", true),
        ("^send$", true),
        ("^box$", true),
        ("^box\\.send$", true),
        ("^sends$", false),
        ("^Bash$", false),
    ] {
        let model = ScriptedModel::new(|request| {
            Ok(match results(request).last() {
                None => calls(&[("c1", "post_send", json!({ "to": "ada" }))]),
                Some(result) => says(result),
            })
        });
        let sends = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Ok(ToolReply::Done(ToolOutput::text("sent"))));
        let toolbox = sends.clone();
        let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
            let mut parts = parts("", model.clone(), toolbox.clone(), outside.clock.clone());
            parts.tools[0].expose.tool_prefix = Some("post".to_owned());
            let handler = Arc::new(Saying(json!({ "decision": "block", "reason": "not now" })));
            let guard = hook("guards", &[HookEvent::BeforeToolDispatch], handler);
            let definition = HookDefinition { matcher: Some(matcher.to_owned()), ..guard.definition };
            parts.hooks = vec![HookPart::new(definition, guard.handler)];
            graph::graph(parts)
        }));
        let run = bed.start("helper", message("send"));
        let said = bed.status(&run).completed()["messages"].to_string();
        assert_eq!((said.contains("not now"), sends.made().is_empty()), (is_met, is_met), "{matcher}: {said}");
    }
}

#[test]
fn a_field_of_an_answer_that_is_written_wrong_is_named_and_blocks_where_the_hook_is_closed() {
    for (answer, wrong, meant) in [
        (json!({ "desicion": "block", "reason": "no" }), "desicion", "decision"),
        (json!({ "Continue": false }), "Continue", "continue"),
        (json!({ "hookSpecificOutput": { "pach": { "tool_input": { "to": "y" } } } }), "pach", "patch"),
    ] {
        let complaint = format!("hook `changes` failed: its answer has `{wrong}`: did you mean `{meant}`?");
        let told = |on_error| {
            let (status, _) = hooked(HookEvent::BeforeToolDispatch, on_error, answer.clone());
            status.completed()["messages"].to_string()
        };
        let closed = told(OnHookError::Closed);
        assert!(closed.contains(&complaint) && !closed.contains("LOOKED"), "{closed}");
        assert!(!told(OnHookError::Open).contains(&complaint), "it is passed over");
    }
    let foreign = json!({ "permission": "granted", "hookSpecificOutput": { "hookEventName": "x", "ticket": 7 } });
    let (status, requests) = hooked(HookEvent::BeforeToolDispatch, OnHookError::Closed, foreign);
    assert_eq!((&status.completed()["reason"], requests.len()), (&json!("completed"), 2), "other fields mean nothing");
}

#[test]
fn the_failure_of_a_run_that_a_hook_stopped_names_the_hook_and_its_reason() {
    let stop = json!({ "continue": false, "stopReason": "enough" });
    for event in [
        HookEvent::BeforeModelCall,
        HookEvent::AfterModelCall,
        HookEvent::BeforeToolDispatch,
        HookEvent::AfterToolDispatch,
    ] {
        let (status, _) = hooked(event, OnHookError::Open, stop.clone());
        let failure = json!({ "code": "hook", "message": "hook `changes` ended the run: enough" });
        assert_eq!(status.completed()["dormouse_shortfall"], failure, "{event:?}");
    }
}

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
