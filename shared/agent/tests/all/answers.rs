//! Answers that are none, or not whole: what the run makes of them, and what they cost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use crate::cast::{ScriptedModel, calls, contents, message, results, says};
use crate::runs::{APPROVED, MATTER, asleep, bed, bed_with, mailer};
use dormouse::{Value, json};
use dormouse_agent::graph::{AnswerUnderWay, DeltaSink};
use dormouse_ports::model::{
    Block, CallOptions, CompletionRequest, DeltaKind, FinishReason, Message, ModelError, ModelErrorCategory,
    ModelIdentity, ModelProvider, Response,
};

#[test]
fn an_empty_answer_ends_the_run_and_is_paid_once() {
    let model = ScriptedModel::new(|request| {
        Ok(if results(request).is_empty() { calls(&[("c1", "look", json!({ "to": "x" }))]) } else { says("") })
    });
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look it up"));
    let state = bed.status(&run).completed();
    assert_eq!(state["reason"], "completed");
    assert_eq!(state["messages"].as_array().unwrap().last().unwrap()["role"], "assistant");
    assert_eq!(model.calls(), 2);
}

/// An answer that stopped for a reason that only its provider knows.
fn stopped_for(word: &str, mut answer: Response) -> Response {
    answer.finish_reason = FinishReason::Error;
    answer.raw = json!({ "stop_reason": word });
    answer
}

#[test]
fn a_reason_to_stop_that_nobody_knows_costs_no_second_answer() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).last() {
            None => stopped_for("eos", calls(&[("c1", "look", json!({ "to": "ada" }))])),
            Some(result) => stopped_for("weird", says(&format!("done: {result}"))),
        })
    });
    let mut first = bed(MATTER, &model, &mailer());
    let run = first.start("helper", message("look it up"));
    let state = first.status(&run).completed();
    assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done: look to \"ada\""));
    assert_eq!((model.calls(), &state["reason"]), (2, &json!("completed")));
    assert_eq!(state["usage"]["completion_tokens"], json!(20), "both answers are counted");

    let model = ScriptedModel::new(|_| Ok(stopped_for("OTHER", says(""))));
    let mut second = bed(MATTER, &model, &mailer());
    let run = second.start("helper", message("look it up"));
    let state = second.status(&run).completed();
    assert_eq!((model.calls(), &state["reason"]), (1, &json!("no_answer")));
    assert_eq!(
        (&state["usage"]["prompt_tokens"], &state["dormouse_shortfall"]["code"]),
        (&json!(100), &json!("no_answer"))
    );
}

fn is_told_how_to_call(request: &CompletionRequest) -> bool {
    request.messages.last().is_some_and(|last| match last {
        Message::User { content } => content.as_text().contains("the call could not be read"),
        Message::System { .. } | Message::Assistant(_) | Message::Tool { .. } => false,
    })
}

#[test]
fn a_call_that_the_provider_could_not_read_is_asked_for_again() {
    for (word, finish, text) in [
        ("MALFORMED_FUNCTION_CALL", FinishReason::Error, ""),
        ("MALFORMED_FUNCTION_CALL", FinishReason::Error, "Let me look."),
        ("UNEXPECTED_TOOL_CALL", FinishReason::Error, ""),
        ("malformed_tool_use", FinishReason::Error, ""),
        ("tool_use", FinishReason::ToolCalls, ""),
    ] {
        let model = ScriptedModel::new(move |request| {
            Ok(match (is_told_how_to_call(request), results(request).is_empty()) {
                (false, true) => Response { finish_reason: finish, ..stopped_for(word, says(text)) },
                (true, true) => calls(&[("c1", "look", json!({ "to": "ada" }))]),
                (told, false) => says(if told { "told twice" } else { "done" }),
            })
        });
        let mut bed = bed(MATTER, &model, &mailer());
        let run = bed.start("helper", message("look it up"));
        bed.pass(Duration::from_secs(60));
        let state = bed.status(&run).completed();
        assert_eq!((model.calls(), &state["reason"]), (3, &json!("completed")), "{word}");
        let usage = &state["usage"];
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(300), &json!(30)),
            "{word}: what is thrown away is paid as well"
        );
        let cost = usage["cost"].as_f64().unwrap();
        assert!((cost - (300.0 + 30.0 * 2.0) / 1e6).abs() < 1e-9, "{word}: {cost}");
        assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done"), "{word}: told once");
        assert_eq!(
            contents(&state, "user"),
            ["look it up"],
            "{word}: the word to the model stands in one request alone"
        );
    }
}

#[test]
fn answers_that_are_thrown_away_use_up_the_budget_of_a_run() {
    for (matter, asked) in [
        ("policy: {max_total_tokens: 110}", 1),
        ("policy: {max_total_tokens: 220}", 2),
        ("policy: {max_cost: 0.0003}", 3),
    ] {
        let model = ScriptedModel::new(|_| Ok(stopped_for("MALFORMED_FUNCTION_CALL", says(""))));
        let mut bed = bed(matter, &model, &mailer());
        let run = bed.start("helper", message("look it up"));
        bed.pass(Duration::from_secs(3_600));
        let state = bed.status(&run).completed();
        assert_eq!((model.calls(), &state["reason"]), (asked, &json!("budget")), "{matter}");
        assert_eq!(state["usage"]["prompt_tokens"], json!(100 * asked), "{matter}");
    }
}

#[test]
fn a_call_that_the_provider_refuses_since_it_could_not_read_it_is_asked_for_again() {
    for amid_answer in [false, true] {
        let model = ScriptedModel::new(move |request| {
            let told = json!({ "error": { "message": "Failed to call a function.", "code": "tool_use_failed" } });
            match (is_told_how_to_call(request), results(request).is_empty()) {
                (false, true) if amid_answer => {
                    let answer = Response { finish_reason: FinishReason::Error, ..says("Let me") };
                    Ok(Response { raw: told, ..answer })
                }
                (false, true) => {
                    let mut error = ModelError::new(ModelErrorCategory::InvalidRequest, "Failed to call a function.");
                    (error.raw, error.may_pass) = (Some(Box::new(told)), Some(true));
                    Err(error)
                }
                (true, true) => Ok(calls(&[("c1", "look", json!({ "to": "ada" }))])),
                (_, false) => Ok(says("done")),
            }
        });
        let mut bed = bed(MATTER, &model, &mailer());
        let run = bed.start("helper", message("look it up"));
        bed.pass(Duration::from_secs(60));
        let state = bed.status(&run).completed();
        assert_eq!((model.calls(), &state["reason"]), (3, &json!("completed")), "amid an answer: {amid_answer}");
        assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done"));
    }
}

#[test]
fn a_run_of_which_every_answer_is_thrown_away_ends_with_all_of_them_counted_and_the_words_of_the_provider() {
    let model = ScriptedModel::new(|_| {
        let answer = Response { finish_reason: FinishReason::Error, ..says("Let me") };
        Ok(Response { raw: json!({ "error": { "message": "the server of the model ran out of memory" } }), ..answer })
    });
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look it up"));
    bed.pass(Duration::from_secs(3_600));
    let state = bed.status(&run).completed();
    assert_eq!((model.calls(), &state["reason"]), (7, &json!("no_answer")));
    assert_eq!((&state["usage"]["prompt_tokens"], &state["steps"]), (&json!(700), &json!(0)));
    let told = state["dormouse_shortfall"]["message"].as_str().unwrap();
    assert!(told.ends_with("in the middle of its answer: the server of the model ran out of memory"), "{told}");
}

/// An answer that was begun, and did not arrive.
fn cut_off() -> ModelError {
    let error = ModelError::new(ModelErrorCategory::Unavailable, "no answer within 300 s");
    ModelError { may_be_paid: true, ..error }
}

#[test]
fn answers_that_do_not_arrive_are_paid_seven_times_and_not_for_a_week() {
    let model = ScriptedModel::new(|_| Err(cut_off()));
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look it up"));
    assert_eq!(asleep(&bed, &run).1["may_be_paid"], json!(true));
    bed.pass_days(1);
    assert_eq!(model.calls(), 7);
    assert_eq!(bed.status(&run).failed().category, "limit_exceeded");
}

/// A model that makes the attempts of a call within that, as providers do.
struct Persistent(Arc<ScriptedModel>);

#[async_trait]
impl ModelProvider for Persistent {
    fn identity(&self) -> ModelIdentity {
        self.0.identity()
    }

    async fn ready(&self) -> Result<(), ModelError> {
        self.0.ready().await
    }

    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError> {
        let policy = options.retry.as_ref().expect("a policy");
        for _ in 1..policy.max_attempts {
            match self.0.complete(request, options).await {
                Err(error) if (policy.classifier)(&error) => {}
                answer => return answer,
            }
        }
        self.0.complete(request, options).await
    }
}

#[test]
fn a_call_makes_no_attempts_of_its_own_behind_one_that_may_be_paid() {
    let busy = ModelError::new(ModelErrorCategory::Unavailable, "busy");
    for (error, attempts) in [(cut_off(), 7), (busy, 7 * 3)] {
        let model = ScriptedModel::new(move |_| Err(error.clone()));
        let persistent = model.clone();
        let mut bed = bed_with(MATTER, &model, &mailer(), move |parts| {
            parts.model.provider = Arc::new(Persistent(persistent.clone()));
        });
        bed.start("helper", message("look it up"));
        // Behind six rests.
        bed.pass(Duration::from_secs(2_500));
        assert_eq!(model.calls(), attempts);
    }
}

#[test]
fn a_run_that_waited_for_its_provider_for_a_day_outlives_the_answers_that_are_lost_then() {
    let is_away = Arc::new(AtomicBool::new(true));
    let away = is_away.clone();
    let broken = Response {
        raw: json!({ "error": { "message": "the server of the model ran out of memory" } }),
        finish_reason: FinishReason::Error,
        ..says("Let me")
    };
    let turns = Mutex::new(VecDeque::from([Ok(broken), Err(cut_off()), Ok(says("done"))]));
    let model = ScriptedModel::new(move |_| match away.load(Ordering::Relaxed) {
        true => Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")),
        false => turns.lock().unwrap().pop_front().expect("a turn"),
    });
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look it up"));
    bed.pass_days(1);
    assert!(bed.status(&run).is_asleep());
    is_away.store(false, Ordering::Relaxed);
    bed.pass_days(1);
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &contents(&state, "assistant")[..]), (&json!("completed"), &["done".to_owned()][..]));
}

#[test]
fn a_request_that_is_never_taken_ends_a_run_that_was_woken() {
    let model = ScriptedModel::new(|request| match results(request).is_empty() {
        true => Ok(calls(&[("c1", "send", json!({ "to": "ada" }))])),
        false => {
            let error = ModelError::new(ModelErrorCategory::RateLimit, "Request too large");
            Err(ModelError { may_pass: Some(false), too_long: true, ..error })
        }
    });
    let mut bed = bed_with(APPROVED, &model, &mailer(), |parts| parts.compacts = false);
    let run = bed.start("helper", message("write to ada"));
    bed.answer(&run, json!({ "decision": "approve" })).expect_err("its model does not take the request");
    assert_eq!(bed.status(&run).failed().category, "limit_exceeded", "it is not made again with each sweep");
}

#[test]
fn a_thought_alone_is_no_answer() {
    for (finish, asked, reason) in [(FinishReason::Error, 1, "no_answer"), (FinishReason::ToolCalls, 2, "completed")] {
        let answers = Mutex::new(vec![says("done"), {
            let mut thought = says("");
            thought.message.content = vec![Block::Thinking { text: "hm".to_owned(), signature: None }].into();
            Response { finish_reason: finish, raw: json!({ "stop_reason": "weird" }), ..thought }
        }]);
        let model = ScriptedModel::new(move |_| Ok(answers.lock().unwrap().pop().expect("an answer")));
        let mut bed = bed(MATTER, &model, &mailer());
        let run = bed.start("helper", message("look it up"));
        bed.pass(Duration::from_secs(60));
        assert_eq!((model.calls(), &bed.status(&run).completed()["reason"]), (asked, &json!(reason)), "{finish:?}");
    }
}

#[test]
fn what_caches_had_and_what_the_model_thought_is_paid() {
    // Gemini has thoughts in the total alone; Anthropic counts caches apart.
    let mut thought = calls(&[("c1", "look", json!({ "to": "ada" }))]);
    thought.usage.total_tokens = Some(5_110);
    thought.raw = json!({ "usageMetadata": { "thoughtsTokenCount": 5_000 } });
    let mut cached = says("done");
    cached.usage.total_tokens = Some(110);
    let counters = json!({ "input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 2_000,
        "cache_creation_input_tokens": 300 });
    cached.raw = json!({ "usage": counters });
    let model = ScriptedModel::playing(vec![Ok(thought), Ok(cached)]);
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look it up"));
    let state = bed.status(&run).completed();
    let usage = &state["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(2_500), &json!(5_020)));
    // Prices are 1, 2 and, for what a cache had and took in, 0.5 and 1.25 per million.
    let cost = usage["cost"].as_f64().unwrap();
    assert!((cost - (200.0 + 300.0 * 1.25 + 2_000.0 * 0.5 + 5_020.0 * 2.0) / 1e6).abs() < 1e-9, "{cost}");
}

/// Sees pieces of answers, and looks at none.
pub(crate) struct Nobody;

impl DeltaSink for Nobody {
    fn began(&self, _: &AnswerUnderWay) {}

    fn delta(&self, _: &AnswerUnderWay, _: DeltaKind, _: u64, _: &str) {}
}

#[test]
fn an_answer_that_a_provider_does_not_stream_is_asked_for_in_one_piece() {
    let refused = |words: &str, body: Value| {
        let error = ModelError::new(ModelErrorCategory::InvalidRequest, words);
        ModelError { status: Some(400), raw: Some(Box::new(body)), ..error }
    };
    for error in [
        refused("Your organization must be verified to stream this model.", json!({ "error": { "param": "stream" } })),
        refused("This model doesn't support tool use in streaming mode.", json!({})),
    ] {
        let model = ScriptedModel::new(move |request| {
            if request.stream {
                return Err(error.clone());
            }
            Ok(match results(request).last() {
                None => calls(&[("c1", "look", json!({ "to": "ada" }))]),
                Some(result) => says(&format!("done: {result}")),
            })
        });
        let mut bed = bed_with(MATTER, &model, &mailer(), |parts| parts.deltas = Some(Arc::new(Nobody)));
        let run = bed.start("helper", message("look it up"));
        let state = bed.status(&run).completed();
        assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done: look to \"ada\""));
        assert_eq!(model.calls(), 4, "each step is refused once, and made whole");
    }
}
