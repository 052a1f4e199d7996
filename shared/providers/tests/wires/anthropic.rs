use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, FinishReason, Message, ModelErrorCategory as Category, ModelProvider,
};
use dormouse_providers::{Capabilities, anthropic};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::stage::{Stage, hello, structured, sum, value_schema, with_most};

fn message(content: Value, stop: &str) -> Value {
    json!({
        "type": "message",
        "id": "msg-1",
        "model": "m-1",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "usage": { "input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 5 },
    })
}

fn thinking() -> Value {
    json!({ "type": "thinking", "thinking": "add them", "signature": "s-1" })
}

#[tokio::test]
async fn reasoning_and_calls_come_back_and_go_back_as_they_came() {
    let hidden = json!({ "type": "redacted_thinking", "data": "d-1" });
    let text = json!({ "type": "text", "text": "I will add." });
    let call = json!({ "type": "tool_use", "id": "t-1", "name": "add", "input": { "b": 2, "a": 1 } });
    let stage = Stage::json(message(json!([thinking(), hidden, text, call]), "tool_use"));
    let provider = anthropic(stage.setup());
    let mut request = with_most(sum());
    let response = stage.ask(&provider, &request).await.expect("a call");
    assert_eq!((response.finish_reason, response.usage.total_tokens), (FinishReason::ToolCalls, Some(12)));
    assert_eq!(response.usage.cached_tokens, None, "caches that callers ask for are in raw only");
    assert_eq!(response.message.origin.as_deref(), Some("anthropic"));
    assert_eq!(stage.sent_header("x-api-key").as_deref(), Some("hush"));
    assert_eq!(stage.sent_header("anthropic-version").as_deref(), Some("2023-06-01"));
    assert_eq!(stage.sent_to(), "https://api.anthropic.com/v1/messages");
    assert_eq!(stage.sent()["system"], "Be brief.");

    stage.fetch.answer(ScriptedAnswer::json(200, &message(json!([{ "type": "text", "text": "3" }]), "end_turn")));
    let results = [Message::tool("t-1", "3"), Message::tool("t-1", "again")];
    request.messages.push(Message::Assistant(response.message));
    request.messages.extend(results);
    stage.ask(&provider, &request).await.expect("an answer");
    let sent = stage.fetch.bodies().remove(1);
    assert_eq!(sent["messages"][1]["content"], json!([thinking(), hidden, text, call]));
    assert_eq!(sent["messages"][2]["role"], "user");
    assert_eq!(sent["messages"][2]["content"].as_array().map(Vec::len), Some(2), "one message for both results");
}

#[tokio::test]
async fn reasoning_of_another_wire_is_left_out() {
    let signed = Block::Thinking { text: "hm".into(), signature: Some("s".into()) };
    for (origin, block) in [
        (Some("gcp.gemini"), signed.clone()),
        (Some("openai"), Block::RedactedThinking { data: "d".into() }),
        (None, Block::Thinking { text: "nobody has signed it".into(), signature: None }),
    ] {
        let stage = Stage::json(message(json!([{ "type": "text", "text": "ok" }]), "end_turn"));
        let mut request = with_most(hello());
        let content = vec![block, Block::text("so")].into();
        let thought = AssistantMessage { content, tool_calls: Vec::new(), origin: origin.map(str::to_owned) };
        request.messages.extend([Message::Assistant(thought), Message::user("Sure?")]);
        stage.ask(&anthropic(stage.setup()), &request).await.expect("an answer");
        assert_eq!(stage.sent()["messages"][1]["content"], json!([{ "type": "text", "text": "so" }]), "{origin:?}");
    }
}

#[tokio::test]
async fn what_the_api_does_not_have_is_refused_by_name() {
    let mut seed = with_most(hello());
    seed.config.seed = Some(1);
    let mut penalty = with_most(hello());
    penalty.config.presence_penalty = Some(0.0);
    let mut stream = with_most(hello());
    stream.stream = true;
    let mut smuggled = with_most(hello());
    smuggled.config.extras.insert("stream".into(), json!(true));
    for (request, words) in [
        (hello(), "max_tokens"),
        (seed, "seed"),
        (penalty, "presence_penalty"),
        (stream, "stream"),
        (smuggled, "stream"),
    ] {
        let stage = Stage::default();
        let refused = stage.ask(&anthropic(stage.setup()), &request).await.expect_err("refused");
        assert_eq!((refused.category, stage.fetch.requests().len()), (Category::InvalidRequest, 0));
        assert!(refused.message.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn output_is_constrained_natively_or_through_a_tool() {
    let native = Stage::json(message(json!([{ "type": "text", "text": "{\"value\":42}" }]), "end_turn"));
    let request = with_most(structured());
    let response = native.ask(&anthropic(native.setup()), &request).await.expect("an answer");
    assert_eq!(response.parsed, Some(json!({ "value": 42 })));
    assert_eq!(native.sent()["output_config"]["format"]["schema"], value_schema());

    let call = json!({ "type": "tool_use", "id": "t-1", "name": "structured_output", "input": { "value": 42 } });
    let again = json!({ "type": "tool_use", "id": "t-2", "name": "structured_output", "input": { "value": 43 } });
    let coerced = Stage::json(message(json!([call, again]), "tool_use"));
    let capabilities = Capabilities { structured_output: false, ..Capabilities::ATOMIC };
    let provider = anthropic(coerced.setup().capabilities(capabilities));
    let response = coerced.ask(&provider, &request).await.expect("an answer");
    assert_eq!((response.parsed, response.finish_reason), (Some(json!({ "value": 42 })), FinishReason::Stop));
    assert_eq!((response.message.content, response.message.tool_calls), ("{\"value\":42}".into(), Vec::new()));
    assert_eq!(coerced.sent()["tool_choice"], json!({ "type": "tool", "name": "structured_output" }));

    let prompted = Stage::json(message(json!([{ "type": "text", "text": "{\"value\":42}" }]), "end_turn"));
    let provider = anthropic(prompted.setup().capabilities(capabilities));
    let with_tools = CompletionRequest { response_schema: request.response_schema.clone(), ..with_most(sum()) };
    let response = prompted.ask(&provider, &with_tools).await.expect("an answer");
    assert_eq!(response.parsed, Some(json!({ "value": 42 })));
    assert!(prompted.sent()["system"].as_str().expect("a text").contains("\"value\""));
}

#[tokio::test]
async fn a_refusal_or_a_cut_does_not_pass_for_output() {
    for (stop, finish) in [("refusal", FinishReason::ContentFilter), ("max_tokens", FinishReason::Length)] {
        let stage = Stage::json(message(json!([{ "type": "text", "text": "{\"val" }]), stop));
        let refused = stage.ask(&anthropic(stage.setup()), &with_most(structured())).await.expect_err("no output");
        assert_eq!(refused.category, Category::StructuredOutputInvalid);
        let failure = refused.structured.expect("what was wrong");
        assert_eq!((failure.finish_reason, failure.output_content.as_str()), (finish, "{\"val"));
        assert_eq!(failure.usage.prompt_tokens, Some(9));
    }
}

#[tokio::test]
async fn a_total_is_derived_only_from_both_counters() {
    let mut body = message(json!([{ "type": "text", "text": "ok" }]), "end_turn");
    body["usage"] = json!({ "input_tokens": -1, "output_tokens": 3 });
    let stage = Stage::json(body);
    let usage = stage.ask(&anthropic(stage.setup()), &with_most(hello())).await.expect("an answer").usage;
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (None, Some(3), None));
}

#[tokio::test]
async fn errors_have_their_category() {
    for (status, kind, words, category) in [
        (401, "authentication_error", "invalid x-api-key", Category::Authentication),
        (402, "billing_error", "no credit", Category::Authentication),
        (400, "invalid_request_error", "Your credit balance is too low to access the API.", Category::Authentication),
        (400, "invalid_request_error", "You have reached your specified API usage limits.", Category::Authentication),
        (403, "permission_error", "no", Category::Authentication),
        (404, "not_found_error", "model: m-1", Category::InvalidModel),
        (413, "request_too_large", "too large", Category::InvalidRequest),
        (429, "rate_limit_error", "slow down", Category::RateLimit),
        (500, "api_error", "oops", Category::Unavailable),
        (504, "timeout_error", "late", Category::Unavailable),
        (529, "overloaded_error", "busy", Category::Unavailable),
        (400, "invalid_request_error", "messages: wrong", Category::InvalidRequest),
    ] {
        let body = json!({ "type": "error", "error": { "type": kind, "message": words }, "request_id": "r-1" });
        let stage = Stage::answering(ScriptedAnswer::json(status, &body));
        let refused = stage.ask(&anthropic(stage.setup()), &with_most(hello())).await.expect_err("refused");
        assert_eq!(refused.category, category, "{status}: {refused}");
        assert_eq!(refused.raw.as_deref(), Some(&body));
        let is_used_up = words.contains("credit") || words.contains("limits");
        assert_eq!(refused.message.contains("needs money"), is_used_up, "{refused}");
        assert!(!is_used_up || !refused.is_transient(), "{refused}");
    }
    let body = json!({ "error": { "type": "invalid_request_error", "message": "image: unsupported media type" } });
    let stage = Stage::answering(ScriptedAnswer::json(400, &body));
    let image = CompletionRequest::new([Message::user(vec![Block::image_url("https://example.com/a.bmp")])]);
    let refused = stage.ask(&anthropic(stage.setup()), &with_most(image)).await.expect_err("refused");
    assert_eq!(refused.category, Category::UnsupportedContentBlock);
}

#[tokio::test]
async fn a_stream_is_heard_and_ends_like_an_answer_in_one_piece() {
    let delta = |index: u32, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let start =
        |index: u32, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let events = [
        json!({ "type": "message_start", "message": message(json!([]), "") }),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "add " })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "them" })),
        delta(0, json!({ "type": "signature_delta", "signature": "s-1" })),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "ping" }),
        start(1, json!({ "type": "text", "text": "" })),
        delta(1, json!({ "type": "text_delta", "text": "I will" })),
        delta(1, json!({ "type": "text_delta", "text": " add." })),
        start(2, json!({ "type": "tool_use", "id": "t-1", "name": "add", "input": {} })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"a\": 1," })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": " \"b\": 2}" })),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" },
            "usage": { "input_tokens": null, "output_tokens": 7 } }),
        json!({ "type": "message_stop" }),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let mut request = with_most(sum());
    request.stream = true;
    let response = stage.ask(&anthropic(stage.streaming()), &request).await.expect("an answer");
    assert_eq!(stage.heard(), ["(add )", "(them)", "I will", " add."]);
    assert_eq!(stage.sent()["stream"], true);
    assert_eq!((response.usage.prompt_tokens, response.usage.completion_tokens), (Some(9), Some(7)));
    let whole = Stage::json(response.raw.clone());
    request.stream = false;
    let at_once = whole.ask(&anthropic(whole.setup()), &request).await.expect("an answer");
    assert_eq!(at_once, response);

    let cut = Stage::answering(ScriptedAnswer::events(&events[..10]));
    request.stream = true;
    let refused = cut.ask(&anthropic(cut.streaming()), &request).await.expect_err("cut");
    assert_eq!(refused.category, Category::Unavailable);
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } });
    let failed = Stage::answering(ScriptedAnswer::events(events[..10].iter().chain([&error])));
    let response = failed.ask(&anthropic(failed.streaming()), &request).await.expect("as far as it goes");
    assert_eq!(
        (response.finish_reason, response.message.content.as_text()),
        (FinishReason::Error, "I will add.".into())
    );
}

#[tokio::test]
async fn readiness_is_asked_of_the_model_by_name() {
    let stage = Stage::json(json!({ "type": "model", "id": "m-1-0524" }));
    anthropic(stage.setup().base_url("http://localhost:9/v1/")).ready().await.expect("ready");
    assert_eq!(stage.sent_to(), "http://localhost:9/v1/models/m-1");
    let body = json!({ "type": "error", "error": { "type": "not_found_error", "message": "model: m-1" } });
    let stage = Stage::answering(ScriptedAnswer::json(404, &body));
    let refused = anthropic(stage.setup()).ready().await.expect_err("no such model");
    assert_eq!(refused.category, Category::InvalidModel);
}
