//! How answers end that end otherwise than they should.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::FetchError;
use dormouse_ports::model::{
    CallOptions, CompletionRequest, FinishReason, ModelErrorCategory as Category, ModelProvider, RetryPolicy,
};
use dormouse_providers::{anthropic, bedrock, gemini, openai, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::bedrock::frame;
use crate::odd::chunk;
use crate::openai::completion;
use crate::stage::{Signer, Stage, hello, with_most};

fn streaming() -> CompletionRequest {
    CompletionRequest { stream: true, ..with_most(hello()) }
}

#[tokio::test]
async fn an_answer_that_is_there_stays_where_its_connection_breaks_behind_it() {
    let reset = || FetchError::Closed("reset".into());
    let events = [chunk(json!({ "content": "I am" }), Value::Null), chunk(json!({}), json!("stop"))];
    let chat = Stage::answering(ScriptedAnswer::events(&events).broken(reset()));
    let response = chat.ask(&openai(chat.setup()), &streaming()).await.expect("an answer");
    assert_eq!((response.message.content.as_text().as_str(), response.finish_reason), ("I am", FinishReason::Stop));

    let block = json!({ "type": "text", "text": "I am" });
    let events = [
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 9 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 2 } }),
    ];
    let messages = Stage::answering(ScriptedAnswer::events(&events).broken(reset()));
    let response = messages.ask(&anthropic(messages.streaming()), &streaming()).await.expect("an answer");
    assert_eq!((response.message.content.as_text().as_str(), response.usage.total_tokens), ("I am", Some(11)));

    let content = json!({ "parts": [{ "text": "I am" }] });
    let events = [json!({ "candidates": [{ "content": content, "finishReason": "STOP" }] })];
    let generate = Stage::answering(ScriptedAnswer::events(&events).broken(reset()));
    let response = generate.ask(&gemini(generate.streaming()), &streaming()).await.expect("an answer");
    assert_eq!(response.message.content.as_text(), "I am");
}

#[tokio::test]
async fn an_answer_that_is_cut_in_the_middle_may_be_paid() {
    let begun = [chunk(json!({ "content": "I am" }), Value::Null)];
    let cut = ScriptedAnswer::events(&begun).broken(FetchError::Closed("reset".into()));
    for answer in [ScriptedAnswer::events(&begun), cut] {
        let stage = Stage::answering(answer);
        let error = stage.ask(&openai(stage.setup()), &streaming()).await.expect_err("it is cut");
        assert!(error.may_be_paid && error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_may_be_paid_also_where_the_attempts_behind_it_find_nobody() {
    let away = || ScriptedAnswer::json(503, &json!({}));
    let cut = ScriptedAnswer::events(&[chunk(json!({ "content": "I am" }), Value::Null)]);
    let garbled = ScriptedAnswer::events(["{\"choices\": ["]);
    for (first, may_be_paid) in [(away(), false), (cut, true), (garbled, true)] {
        let stage = Stage::answering(first);
        stage.fetch.answer(away()).answer(away());
        let mut policy = RetryPolicy::new(Arc::new(|| 0.0));
        policy.backoff = Arc::new(|_, _| Duration::ZERO);
        let options = CallOptions { retry: Some(policy), ..CallOptions::default() };
        let error = openai(stage.setup()).complete(&streaming(), &options).await.expect_err("nobody is there");
        assert_eq!((error.status, error.may_be_paid, stage.fetch.left()), (Some(503), may_be_paid, 0), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_a_provider_did_not_wait_for_may_be_paid() {
    for (status, may_be_paid) in
        [(408, true), (504, true), (524, true), (429, false), (500, false), (502, false), (503, false), (529, false)]
    {
        let stage = Stage::answering(ScriptedAnswer::json(status, &json!({})));
        let error = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("there is none");
        assert_eq!((error.is_transient(), error.may_be_paid), (true, may_be_paid), "{error}");
    }
    let expired = json!({ "code": 504, "message": "Deadline expired", "status": "DEADLINE_EXCEEDED" });
    for told in [expired, json!({ "type": "timeout_error", "message": "It took too long." })] {
        let stage = Stage::json(json!({ "error": told }));
        let error = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("there is none");
        assert!(error.may_be_paid && error.is_transient(), "{error}");
    }
}

/// Some servers send neither an end nor counters, and keep the connection open.
#[tokio::test]
async fn an_answer_that_is_there_is_not_waited_for_where_its_stream_stays_open() {
    let chat = [chunk(json!({ "content": "I am" }), Value::Null), chunk(json!({}), json!("stop"))];
    let block = json!({ "type": "text", "text": "I am" });
    let messages = [
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 9 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 2 } }),
    ];
    let content = json!({ "parts": [{ "text": "I am" }] });
    let generate = [json!({ "candidates": [{ "content": content, "finishReason": "STOP" }] })];
    let converse = [
        frame("event", "contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": { "text": "I am" } })),
        frame("event", "messageStop", &json!({ "stopReason": "end_turn" })),
    ];
    let stages = [
        ScriptedAnswer::events(&chat),
        ScriptedAnswer::events(&messages),
        ScriptedAnswer::events(&generate),
        ScriptedAnswer::pieces(200, converse),
    ];
    let stages = stages.map(|answer| Stage::answering(answer.silent()));
    let [chat, messages, generate, converse] = &stages;
    let providers: [Box<dyn ModelProvider>; 4] = [
        Box::new(openai(chat.setup())),
        Box::new(anthropic(messages.streaming())),
        Box::new(gemini(generate.streaming())),
        Box::new(bedrock(converse.setup(), "eu-central-1", Arc::new(Signer))),
    ];
    for (stage, provider) in stages.iter().zip(&providers) {
        let request = streaming();
        let mut asked = Box::pin(stage.ask(&**provider, &request));
        for passed in [0, 9] {
            stage.clock.advance(Duration::from_secs(passed));
            assert!(futures::poll!(asked.as_mut()).is_pending(), "counters may come: {:?}", provider.identity());
        }
        stage.clock.advance(Duration::from_secs(1));
        let response = asked.await.expect("an answer");
        assert_eq!(response.message.content.as_text(), "I am");
        assert_eq!((response.finish_reason, stage.fetch.open()), (FinishReason::Stop, 0));
    }
}

/// Comments keep a connection alive, and say nothing.
#[tokio::test]
async fn an_answer_whose_pieces_each_say_that_it_ends_is_read_to_its_last_one() {
    let said = |text: &str| chunk(json!({ "content": text }), json!("stop")).to_string();
    let pieces = [format!("data: {}\n\n", said("I")), ": ping\n\n".to_owned(), format!("data: {}\n\n", said(" am"))];
    let stage = Stage::answering(ScriptedAnswer::pieces(200, pieces));
    let response = stage.ask(&openai(stage.setup()), &streaming()).await.expect("an answer");
    assert_eq!(response.message.content.as_text(), "I am");
}

#[tokio::test]
async fn an_empty_reason_to_stop_is_none() {
    let said = |text: &str, finish: &str| chunk(json!({ "content": text }), json!(finish));
    let stage = Stage::answering(ScriptedAnswer::events([said("I", ""), said(" am", "stop"), said("", "")]));
    let response = stage.ask(&openai(stage.setup()), &streaming()).await.expect("an answer");
    assert_eq!((response.message.content.as_text().as_str(), response.finish_reason), ("I am", FinishReason::Stop));

    let stage = Stage::answering(ScriptedAnswer::events([said("I", "")]));
    let refused = stage.ask(&openai(stage.setup()), &streaming()).await.expect_err("it was cut");
    assert_eq!(refused.category, Category::Unavailable, "{refused}");

    let said = |text: &str, finish: &str| {
        let content = json!({ "parts": [{ "text": text }] });
        json!({ "candidates": [{ "content": content, "finishReason": finish }] })
    };
    let stage = Stage::answering(ScriptedAnswer::events([said("I", ""), said(" am", "STOP"), said("", "")]));
    let response = stage.ask(&gemini(stage.streaming()), &streaming()).await.expect("an answer");
    assert_eq!((response.message.content.as_text().as_str(), response.finish_reason), ("I am", FinishReason::Stop));

    let stage = Stage::answering(ScriptedAnswer::events([said("I", "")]));
    let refused = stage.ask(&gemini(stage.streaming()), &streaming()).await.expect_err("it was cut");
    assert_eq!(refused.category, Category::Unavailable, "{refused}");
}

/// What the error is called decides whether it passes, and whether less of the conversation helps.
#[tokio::test]
async fn an_error_before_anything_came_is_told_as_what_it_is() {
    let begun = chunk(json!({ "role": "assistant", "content": "" }), Value::Null);
    let failed = |error: &Value| json!({ "status": "failed", "output": [], "error": error, "usage": null });
    for (error, category, words) in [
        (json!({ "code": "context_length_exceeded", "message": "Less." }), Category::InvalidRequest, "`/compact`"),
        (json!({ "code": "400", "message": "Your context window is full." }), Category::InvalidRequest, "`/compact`"),
        (json!({ "code": "rate_limit_exceeded", "message": "slow down" }), Category::RateLimit, "slow down"),
        (json!({ "code": "insufficient_quota", "message": "no more" }), Category::RateLimit, "needs money"),
        (json!({ "code": "billing_hard_limit_reached", "message": "no" }), Category::Authentication, "needs money"),
        (json!({ "code": "invalid_prompt", "message": "not so" }), Category::InvalidRequest, "not so"),
        (json!({ "code": "server_error", "message": "oops" }), Category::Unavailable, "oops"),
        (json!({ "type": "billing_error", "message": "no more" }), Category::Authentication, "needs money"),
    ] {
        let event = json!({ "type": "response.failed", "response": failed(&error) });
        let mut degraded = completion(json!({ "content": null }), "error");
        degraded["error"] = error.clone();
        degraded["usage"] = Value::Null;
        for stage in [
            Stage::answering(ScriptedAnswer::events([&begun, &json!({ "error": error })])),
            Stage::answering(ScriptedAnswer::json(200, &degraded)),
        ] {
            let refused = stage.ask(&openai(stage.setup()), &streaming()).await.expect_err("nothing came");
            assert_eq!(refused.category, category, "{error}: {refused}");
            assert!(refused.message.contains(words), "{refused}");
            assert_eq!(refused.too_long, words == "`/compact`", "{refused}");
        }
        for (stage, request) in
            [(Stage::answering(ScriptedAnswer::events([event])), streaming()), (Stage::json(failed(&error)), hello())]
        {
            let refused = stage.ask(&responses(stage.setup()), &request).await.expect_err("nothing came");
            assert_eq!(refused.category, category, "{error}: {refused}");
            assert!(refused.message.contains(words), "{refused}");
            assert_eq!(refused.too_long, words == "`/compact`", "{refused}");
        }
    }
    // What is counted is paid, and told with what there is.
    let mut counted = failed(&json!({ "code": "server_error", "message": "oops" }));
    counted["usage"] = json!({ "input_tokens": 9, "output_tokens": 0, "total_tokens": 9 });
    let stage = Stage::json(counted);
    let response = stage.ask(&responses(stage.setup()), &hello()).await.expect("a degraded answer");
    assert!(response.has_failed() && response.usage.prompt_tokens == Some(9), "{response:?}");
}

/// Gateways write it into the stream of any wire in the form of OpenAI.
#[tokio::test]
async fn an_error_that_does_not_say_what_event_it_is_is_told_on_every_wire() {
    let error = json!({ "error": { "message": "slow down", "type": null, "param": null, "code": "429" } });
    let stages = [(); 4].map(|()| Stage::answering(ScriptedAnswer::events([&error])));
    let [chat, respond, messages, generate] = &stages;
    let providers: [Box<dyn ModelProvider>; 4] = [
        Box::new(openai(chat.setup())),
        Box::new(responses(respond.setup())),
        Box::new(anthropic(messages.streaming())),
        Box::new(gemini(generate.streaming())),
    ];
    for (stage, provider) in stages.iter().zip(&providers) {
        let refused = stage.ask(&**provider, &streaming()).await.expect_err("nothing came");
        assert_eq!((refused.category, refused.may_be_paid), (Category::RateLimit, false), "{refused}");
        assert!(refused.message.contains("slow down"), "{refused}");
    }
}

/// Servers on one's own machine tell it where the window is full in the midst of an answer: asked again, it is full again.
#[tokio::test]
async fn a_conversation_that_is_too_long_is_told_so_also_behind_the_first_words() {
    let begun = chunk(json!({ "content": "I am" }), Value::Null);
    let words = "Reached context length of 4096 tokens with a model that does not take more in the middle";
    for error in [json!({ "message": words }), json!({ "message": "too much", "code": "context_length_exceeded" })] {
        let stage = Stage::answering(ScriptedAnswer::events([&begun, &json!({ "error": error })]));
        let refused = stage.ask(&openai(stage.setup()), &streaming()).await.expect_err("too long");
        assert!(refused.too_long && !refused.is_transient(), "{refused}");
        assert_eq!(refused.category, Category::InvalidRequest);
    }
}
