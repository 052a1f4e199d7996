//! What hooks are told of a run, and what their answers change of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::cast::{ScriptedModel, Toolbox, calls, message, parts, results, says, tool};
use crate::context::looker;
use async_trait::async_trait;
use dormouse::testing::{Status, TestBed};
use dormouse::{Agents, Value, json};
use dormouse_agent::graph::{self, HookPart};
use dormouse_agent::workspace::{HookCapability, HookDefinition, HookEvent, OnHookError};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookHandlerDefinition};
use dormouse_ports::model::{CompletionRequest, FinishReason, Response, RuntimeConfig};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};

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
pub(crate) struct Saying(pub(crate) Value);

#[async_trait]
impl HookHandler for Saying {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        Ok(HookAnswer { text: self.0.to_string(), blocks: false, model_call: None })
    }
}

pub(crate) const ALL: [HookCapability; 6] = [
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
fn the_calls_of_an_answer_that_a_hook_refuses_are_not_kept_either() {
    let block = json!({ "decision": "block", "reason": "it tells a secret" });
    for (answer, are_kept) in [(json!({ "continue": false }), true), (block, false)] {
        let (status, requests) = hooked(HookEvent::AfterModelCall, OnHookError::Open, answer);
        let state = status.completed();
        assert_eq!((&state["reason"], requests.len()), (&json!("hook"), 1));
        let messages = state["messages"].to_string();
        assert_eq!(messages.contains("\"c1\""), are_kept, "{messages}");
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
