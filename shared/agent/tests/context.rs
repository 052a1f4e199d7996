//! What a model is shown: the conversation, made shorter where it fills the model's window or where somebody asks.

mod cast;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use dormouse::testing::TestBed;
use dormouse::{Agents, Value, json};
use dormouse_agent::graph::{self, HookPart};
use dormouse_agent::workspace::{HookDefinition, HookEvent, OnHookError};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookHandlerDefinition};
use dormouse_ports::model::{CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};

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

#[test]
fn where_no_summary_can_be_had_the_run_goes_on_with_everything() {
    let failing = Err(ModelError::new(ModelErrorCategory::InvalidRequest, "too long"));
    let (mut bed, model) = bed(2000, 8, failing);
    let run = bed.start("helper", message("look"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(results(&model.last()).len(), 8);
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
        Ok(HookAnswer { text: String::new(), blocks: false })
    }
}

/// What a hook at `events` is told of one run, whose model answers `answer`.
fn heard(events: &[HookEvent], answer: Response) -> Vec<Value> {
    let heard = Arc::new(Listening::default());
    let handler = heard.clone();
    let events = events.to_vec();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let model = ScriptedModel::playing(vec![Ok(answer.clone())]);
        let mut parts = parts("description: helps", model, looker(), outside.clock.clone());
        let definition = HookDefinition {
            name: "hears".to_owned(),
            file: "hears.yaml".to_owned(),
            events: events.clone(),
            matcher: None,
            handler: HookHandlerDefinition::Command { command: "hear".to_owned(), environment: Vec::new() },
            capabilities: BTreeSet::new(),
            on_error: OnHookError::Open,
            timeout_seconds: 10,
        };
        parts.hooks = vec![HookPart { definition, handler: Some(handler.clone()) }];
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
