//! What a model is shown: the conversation, made shorter where it fills the model's window or where somebody asks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use dormouse::testing::{Invocation, TestBed};
use dormouse::{Agents, Value, json};
use dormouse_agent::graph;
use dormouse_ports::model::{CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};

/// True for the request of a summary.
pub(crate) fn asks_for_summary(request: &CompletionRequest) -> bool {
    matches!(request.messages.first(), Some(Message::System { content }) if content.starts_with("You write the summary"))
}

pub(crate) fn looker() -> Arc<Toolbox> {
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

/// A run of `model` behind a conversation that is too long for it, which has rested for an hour.
fn rested(model: &Arc<ScriptedModel>) -> (TestBed, Invocation) {
    let said = [("user", "x".repeat(8_000)), ("assistant", "x".repeat(8_000)), ("user", "And now?".to_owned())];
    let messages: Vec<Value> = said.iter().map(|(role, said)| json!({ "role": role, "content": said })).collect();
    let mut bed = unsaid(model);
    let run = bed.start("helper", json!({ "messages": messages }));
    assert!(bed.status(&run).is_asleep(), "it rests");
    bed.pass(Duration::from_secs(3_600));
    (bed, run)
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
fn a_summary_that_cannot_be_had_at_the_moment_is_asked_for_again_where_the_conversation_is_refused() {
    // Some tell a request that is too large as a rate.
    let as_rate = ModelError { may_pass: Some(false), category: ModelErrorCategory::RateLimit, ..too_long() };
    for (refusal, busy, asked) in
        [(too_long(), 1, 5), (too_long(), usize::MAX, 14), (as_rate.clone(), 1, 5), (as_rate, usize::MAX, 14)]
    {
        let tries = AtomicUsize::new(0);
        let model = ScriptedModel::new(move |request| match (asks_for_summary(request), size(request) > 1_500) {
            (true, _) if tries.fetch_add(1, Ordering::Relaxed) < busy => {
                Err(ModelError::new(ModelErrorCategory::RateLimit, "slow down"))
            }
            (true, _) => Ok(says("it was looked at")),
            (false, true) => Err(refusal.clone()),
            (false, false) => Ok(says("done")),
        });
        let (bed, run) = rested(&model);
        let status = bed.status(&run);
        assert_eq!(model.calls(), asked, "{status:?}");
        if busy == 1 {
            assert_eq!(status.completed()["reason"], "completed");
        } else {
            assert!(format!("{status:?}").contains("the conversation is too long"), "{status:?}");
        }
    }
}

#[test]
fn a_summary_that_was_paid_and_is_none_counts_where_the_conversation_is_refused() {
    let model = ScriptedModel::new(|request| match asks_for_summary(request) {
        true => Ok(Response { finish_reason: FinishReason::Length, ..says("They") }),
        false => Err(too_long()),
    });
    let long = |role: &str| json!({ "role": role, "content": "x".repeat(8_000) });
    let mut bed = unsaid(&model);
    let run = bed.start("helper", json!({ "messages": [long("user"), long("assistant"), long("user")] }));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["usage"]["prompt_tokens"]), (&json!("not_compacted"), &json!(100)));
    assert_eq!(state["dormouse_shortfall"]["message"], "the conversation is too long");
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

/// An agent that may give long answers may give long summaries: the record of the next one has no room for the one before.
#[test]
fn a_conversation_with_a_long_summary_can_be_made_shorter_once_more() {
    let model = ScriptedModel::new(|_| Ok(says(&"so it was. ".repeat(8_000))));
    let used = model.clone();
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("description: helps", used.clone(), looker(), outside.clock.clone());
        parts.model.config.max_tokens = Some(40_000);
        graph::graph(parts)
    }));
    for asked in 1..=2 {
        let messages = json!([
            { "role": "user", "content": "first" }, { "role": "assistant", "content": "second" },
            { "role": "user", "content": "third" }
        ]);
        let run = bed.start_in("talk", "helper", json!({ "messages": messages, "compact": true }));
        let state = bed.status(&run).completed();
        assert_eq!((&state["reason"], model.calls()), (&json!("completed"), asked));
        assert_eq!(state["compaction"]["upto"], 3 * asked - 1);
    }
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

#[test]
fn a_summary_that_was_cut_stands_for_nothing() {
    let filtered = Response { finish_reason: FinishReason::ContentFilter, ..says("They looked at") };
    for cut in [Response { finish_reason: FinishReason::Length, ..says("They looked at") }, filtered, broken_off()] {
        let model = ScriptedModel::new(move |request| match asks_for_summary(request) {
            true => Ok(cut.clone()),
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
        let state = bed.status(&run).completed();
        assert_eq!(state["compaction"], json!(null));
        assert!(model.requests.lock().expect("not poisoned").iter().any(asks_for_summary), "it was asked for");
        assert_eq!(state["usage"]["prompt_tokens"], 100 * model.calls(), "each was paid");
    }
}

/// The beginning of an answer in the middle of which its provider failed.
fn broken_off() -> Response {
    let raw = json!({ "error": { "message": "the model behind it is gone" } });
    Response { finish_reason: FinishReason::Error, raw, ..says("They looked at") }
}

#[test]
fn a_summary_in_the_middle_of_which_the_provider_failed_is_asked_for_again_where_the_conversation_is_refused() {
    let tries = AtomicUsize::new(0);
    let model = ScriptedModel::new(move |request| match (asks_for_summary(request), size(request) > 1_500) {
        (true, _) if tries.fetch_add(1, Ordering::Relaxed) == 0 => Ok(broken_off()),
        (true, _) => Ok(says("it was looked at")),
        (false, true) => Err(too_long()),
        (false, false) => Ok(says("done")),
    });
    let (bed, run) = rested(&model);
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["compaction"]["summary"]), (&json!("completed"), &json!("it was looked at")));
    assert_eq!(state["usage"]["prompt_tokens"], json!(300), "both summaries and the answer");
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
