use std::sync::Arc;

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message as Frame};
use dormouse_ports::FetchLimits;
use dormouse_ports::model::{
    Block, CompletionRequest, FinishReason, Message, ModelErrorCategory as Category, ModelProvider, ToolChoice,
};
use dormouse_providers::{Capabilities, Provider, ProviderPorts, ProviderSetup, bedrock};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::stage::{Signer, Stage, hello, structured, sum, value_schema};

/// A model that is signed for.
fn signed(setup: ProviderSetup) -> Provider {
    bedrock(setup.limits(FetchLimits::default()), "eu-central-1", Arc::new(Signer))
}

fn keyless(stage: &Stage) -> ProviderSetup {
    let ports = ProviderPorts { fetch: Arc::new(stage.fetch.clone()), clock: stage.clock.clone() };
    ProviderSetup::new(ports, "anthropic.claude-x:0")
}

fn answer(content: Value, stop: &str) -> Value {
    json!({
        "output": { "message": { "role": "assistant", "content": content } },
        "stopReason": stop,
        "usage": { "inputTokens": 9, "outputTokens": 3, "totalTokens": 12, "cacheReadInputTokens": 0 },
        "metrics": { "latencyMs": 5 },
    })
}

#[tokio::test]
async fn a_request_is_signed_when_it_is_whole() {
    let stage = Stage::json(answer(json!([{ "text": "Hi." }]), "end_turn"));
    let response = stage.ask(&signed(keyless(&stage)), &hello()).await.expect("an answer");
    assert_eq!((response.message.content.as_text().as_str(), response.usage.cached_tokens), ("Hi.", Some(0)));
    let host = "https://bedrock-runtime.eu-central-1.amazonaws.com";
    assert_eq!(stage.sent_to(), format!("{host}/model/anthropic.claude-x%3A0/converse"));
    let length = stage.fetch.requests()[0].body.len();
    assert_eq!(stage.sent_header("authorization"), Some(format!("Signed {length}")));

    let with_key = Stage::json(answer(json!([{ "text": "Hi." }]), "end_turn"));
    with_key.ask(&signed(with_key.setup()), &hello()).await.expect("an answer");
    assert_eq!(with_key.sent_header("authorization").as_deref(), Some("Bearer hush"), "a key needs no signature");
}

#[tokio::test]
async fn reasoning_and_calls_come_back_and_go_back_and_roles_alternate() {
    let content = json!([
        { "reasoningContent": { "reasoningText": { "text": "add them", "signature": "s-1" } } },
        { "reasoningContent": { "redactedContent": "ZA==" } },
        { "text": "I will add." },
        { "toolUse": { "toolUseId": "t-1", "name": "add", "input": { "a": 1, "b": 2 } } },
    ]);
    let stage = Stage::json(answer(content.clone(), "tool_use"));
    let provider = signed(keyless(&stage));
    let mut request = sum();
    request.tool_choice = Some(ToolChoice::Required);
    request.config.max_tokens = Some(50);
    request.config.extras.insert("top_k".into(), json!(3));
    let response = stage.ask(&provider, &request).await.expect("a call");
    assert_eq!(response.finish_reason, FinishReason::ToolCalls);
    let sent = stage.sent();
    assert_eq!(sent["toolConfig"]["toolChoice"], json!({ "any": {} }));
    assert_eq!(sent["inferenceConfig"], json!({ "maxTokens": 50 }));
    assert_eq!(sent["additionalModelRequestFields"], json!({ "top_k": 3 }));
    assert_eq!(sent["system"], json!([{ "text": "Be brief." }]));

    stage.fetch.answer(ScriptedAnswer::json(200, &answer(json!([{ "text": "3" }]), "end_turn")));
    let image = Block::image_inline("image/png", "AAAA");
    let question = Message::user(vec![Block::text("And this?"), image]);
    request.messages.extend([Message::Assistant(response.message), Message::tool("t-1", "3"), question]);
    stage.ask(&provider, &request).await.expect("an answer");
    let sent = stage.fetch.bodies().remove(1);
    assert_eq!(sent["messages"][1], json!({ "role": "assistant", "content": content }));
    let after = json!([
        { "toolResult": { "toolUseId": "t-1", "content": [{ "text": "3" }] } },
        { "text": "And this?" },
        { "image": { "format": "png", "source": { "bytes": "AAAA" } } },
    ]);
    assert_eq!(sent["messages"][2], json!({ "role": "user", "content": after }));
}

#[tokio::test]
async fn images_have_the_format_that_they_are_of() {
    for (block, format) in [
        (Block::image_inline("image/jpg", "AAAA"), "jpeg"),
        (Block::image_inline("image/webp", "AAAA"), "webp"),
        (Block::image_url("s3://bucket/photo.JPG"), "jpeg"),
        (Block::image_url("s3://bucket/photo.webp"), "webp"),
        (Block::image_url("s3://bucket/photo"), "png"),
    ] {
        let stage = Stage::json(answer(json!([{ "text": "Hi." }]), "end_turn"));
        let request = CompletionRequest::new([Message::user(vec![block])]);
        stage.ask(&signed(keyless(&stage)), &request).await.expect("an answer");
        assert_eq!(stage.sent()["messages"][0]["content"][0]["image"]["format"], format);
    }
}

#[tokio::test]
async fn what_it_cannot_do_is_refused() {
    let mut no_tools = sum();
    no_tools.tool_choice = Some(ToolChoice::None);
    let stage = Stage::json(answer(json!([{ "text": "Hi." }]), "end_turn"));
    stage.ask(&signed(keyless(&stage)), &no_tools).await.expect("without tools there is no call");
    assert!(stage.sent().get("toolConfig").is_none());

    let mut used = no_tools.clone();
    let call = dormouse_ports::model::ToolCall::new("t-1", "add", dormouse_ports::Map::new());
    let called = dormouse_ports::model::AssistantMessage { tool_calls: vec![call], ..Default::default() };
    used.messages.extend([Message::Assistant(called), Message::tool("t-1", "3")]);
    let mut seed = hello();
    seed.config.seed = Some(1);
    let far = CompletionRequest::new([Message::user(vec![Block::image_url("https://example.com/a.png")])]);
    for (request, category) in
        [(used, Category::InvalidRequest), (seed, Category::InvalidRequest), (far, Category::UnsupportedContentBlock)]
    {
        let stage = Stage::default();
        let refused = stage.ask(&signed(keyless(&stage)), &request).await.expect_err("refused");
        assert_eq!((refused.category, stage.fetch.requests().len()), (category, 0), "{refused}");
    }
}

#[tokio::test]
async fn output_is_constrained_through_a_tool() {
    let call = json!({ "toolUse": { "toolUseId": "t-1", "name": "structured_output", "input": { "value": 42 } } });
    let stage = Stage::json(answer(json!([call]), "tool_use"));
    let response = stage.ask(&signed(keyless(&stage)), &structured()).await.expect("an answer");
    assert_eq!((response.parsed, response.finish_reason), (Some(json!({ "value": 42 })), FinishReason::Stop));
    assert_eq!(stage.sent()["toolConfig"]["toolChoice"], json!({ "tool": { "name": "structured_output" } }));
}

#[tokio::test]
async fn a_schema_is_never_left_out_whatever_the_capabilities_say() {
    let call = json!({ "toolUse": { "toolUseId": "t-1", "name": "structured_output", "input": { "value": 42 } } });
    let stage = Stage::json(answer(json!([call]), "tool_use"));
    let provider = signed(keyless(&stage).capabilities(Capabilities::ALL));
    assert!(!provider.capabilities().structured_output && provider.capabilities().streaming);
    let response = stage.ask(&provider, &structured()).await.expect("an answer");
    assert_eq!(response.parsed, Some(json!({ "value": 42 })));
    assert_eq!(stage.sent()["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"], value_schema());
}

#[tokio::test]
async fn errors_have_their_category() {
    for (status, kind, words, category) in [
        (400, "ValidationException", "malformed", Category::InvalidRequest),
        (400, "ValidationException", "The provided model identifier is invalid.", Category::InvalidModel),
        (403, "AccessDeniedException", "no", Category::Authentication),
        (400, "AccessDeniedException", "no", Category::Authentication),
        (400, "ExpiredTokenException", "it is expired", Category::Authentication),
        (404, "ResourceNotFoundException:http://x/", "no", Category::InvalidModel),
        (429, "com.amazon.coral.service#ThrottlingException:http://x/", "slow down", Category::RateLimit),
        (408, "ModelTimeoutException", "late", Category::Unavailable),
        (424, "ModelErrorException", "oops", Category::Unavailable),
        (429, "ThrottlingException", "slow down", Category::RateLimit),
        (400, "ThrottlingException", "slow down", Category::RateLimit),
        (400, "ServiceQuotaExceededException", "too many", Category::RateLimit),
        (429, "ModelNotReadyException", "soon", Category::ModelNotLoaded),
        (500, "InternalServerException", "oops", Category::Unavailable),
        (503, "ServiceUnavailableException", "busy", Category::Unavailable),
    ] {
        let body = json!({ "message": words });
        let stage = Stage::answering(ScriptedAnswer::json(status, &body).header("x-amzn-errortype", kind));
        let refused = stage.ask(&signed(keyless(&stage)), &hello()).await.expect_err("refused");
        assert_eq!(refused.category, category, "{kind}: {refused}");
        assert!(refused.message.contains(words), "{refused}");
    }
    for place in ["__type", "code"] {
        let mut body = json!({ "message": "slow down" });
        body[place] = json!("com.amazon.coral.service#ThrottlingException");
        let stage = Stage::answering(ScriptedAnswer::json(400, &body));
        let refused = stage.ask(&signed(keyless(&stage)), &hello()).await.expect_err("refused");
        assert_eq!(refused.category, Category::RateLimit, "a proxy left the header out: {refused}");
    }
}

pub(crate) fn frame(kind: &str, name: &str, payload: &Value) -> Vec<u8> {
    let text = |text: &str| HeaderValue::String(text.to_owned().into());
    let named = format!(":{kind}-type");
    let frame = Frame::new(payload.to_string())
        .add_header(Header::new(":message-type", text(kind)))
        .add_header(Header::new(named, text(name)));
    let mut bytes = Vec::new();
    write_message_to(&frame, &mut bytes).expect("a frame");
    bytes
}

fn stream() -> Vec<Vec<u8>> {
    let delta = |index: u32, delta: Value| {
        frame("event", "contentBlockDelta", &json!({ "contentBlockIndex": index, "delta": delta }))
    };
    let start = json!({ "contentBlockIndex": 2, "start": { "toolUse": { "toolUseId": "t-1", "name": "add" } } });
    vec![
        frame("event", "messageStart", &json!({ "role": "assistant" })),
        delta(0, json!({ "reasoningContent": { "text": "add them" } })),
        delta(0, json!({ "reasoningContent": { "signature": "s-1" } })),
        frame("event", "contentBlockStop", &json!({ "contentBlockIndex": 0 })),
        delta(1, json!({ "text": "I will" })),
        delta(1, json!({ "text": " add." })),
        frame("event", "contentBlockStart", &start),
        delta(2, json!({ "toolUse": { "input": "{\"a\":1," } })),
        delta(2, json!({ "toolUse": { "input": "\"b\":2}" } })),
        frame("event", "messageStop", &json!({ "stopReason": "tool_use" })),
        frame("event", "metadata", &json!({ "usage": { "inputTokens": 9, "outputTokens": 3, "totalTokens": 12 } })),
    ]
}

#[tokio::test]
async fn a_stream_of_frames_is_heard_and_ends_like_an_answer_in_one_piece() {
    let request = CompletionRequest { stream: true, ..sum() };
    // In whichever portions the bytes arrive.
    let bytes: Vec<u8> = stream().concat();
    for portion in [1, 7, bytes.len()] {
        let stage = Stage::answering(ScriptedAnswer::pieces(200, bytes.chunks(portion)));
        let response = stage.ask(&signed(keyless(&stage)), &request).await.expect("an answer");
        assert_eq!(stage.heard(), ["(add them)", "I will", " add."]);
        assert!(stage.sent_to().ends_with("/converse-stream"));
        let whole = Stage::json(response.raw.clone());
        let at_once = whole.ask(&signed(keyless(&whole)), &sum()).await.expect("an answer");
        assert_eq!(at_once, response);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_told() {
    let request = CompletionRequest { stream: true, ..sum() };
    let throttled = frame("exception", "throttlingException", &json!({ "message": "slow down" }));
    let stage = Stage::answering(ScriptedAnswer::pieces(200, [throttled.clone()]));
    let refused = stage.ask(&signed(keyless(&stage)), &request).await.expect_err("nothing came");
    assert_eq!(refused.category, Category::RateLimit, "{refused}");

    let begun: Vec<_> = stream().into_iter().take(6).chain([throttled]).collect();
    let stage = Stage::answering(ScriptedAnswer::pieces(200, begun));
    let response = stage.ask(&signed(keyless(&stage)), &request).await.expect("as far as it goes");
    assert_eq!(response.finish_reason, FinishReason::Error);

    let cut: Vec<_> = stream().into_iter().take(6).collect();
    let stage = Stage::answering(ScriptedAnswer::pieces(200, cut));
    let refused = stage.ask(&signed(keyless(&stage)), &request).await.expect_err("cut");
    assert_eq!(refused.category, Category::Unavailable);

    let mut broken = stream().concat();
    broken[20] ^= 0xff;
    let stage = Stage::answering(ScriptedAnswer::pieces(200, [broken]));
    let refused = stage.ask(&signed(keyless(&stage)), &request).await.expect_err("broken");
    assert_eq!(refused.category, Category::InvalidResponse);
}

#[tokio::test]
async fn what_a_stream_is_told_of_its_failure_has_its_category() {
    let request = CompletionRequest { stream: true, ..sum() };
    let begun = || frame("event", "messageStart", &json!({ "role": "assistant" }));
    for (name, words, (category, status), may_be_paid) in [
        ("throttlingException", "slow down", (Category::RateLimit, 429), false),
        ("ThrottlingException", "slow down", (Category::RateLimit, 429), false),
        ("validationException", "malformed", (Category::InvalidRequest, 400), false),
        ("ValidationException", "malformed", (Category::InvalidRequest, 400), false),
        ("modelStreamErrorException", "oops", (Category::Unavailable, 424), false),
        ("modelTimeoutException", "late", (Category::Unavailable, 408), true),
        ("serviceUnavailableException", "busy", (Category::Unavailable, 503), false),
        ("internalServerException", "oops", (Category::Unavailable, 500), false),
    ] {
        for kind in ["exception", "event"] {
            let pieces = [begun(), frame(kind, name, &json!({ "message": words }))];
            let stage = Stage::answering(ScriptedAnswer::pieces(200, pieces));
            let refused = stage.ask(&signed(keyless(&stage)), &request).await.expect_err("nothing came");
            assert_eq!((refused.category, refused.status), (category, Some(status)), "{kind} {name}: {refused}");
            assert_eq!(refused.may_be_paid, may_be_paid, "{kind} {name}: {refused}");
            assert!(refused.message.contains(words), "{refused}");
        }
    }
    // What Amazon does not model has a code, and its words in a header.
    let text = |text: &str| HeaderValue::String(text.to_owned().into());
    let told = [(":message-type", "error"), (":error-code", "InternalFailure"), (":error-message", "it is broken")];
    let headers = told.map(|(name, value)| Header::new(name, text(value)));
    let bare = headers.into_iter().fold(Frame::new(""), Frame::add_header);
    let mut bytes = Vec::new();
    write_message_to(&bare, &mut bytes).expect("a frame");
    let stage = Stage::answering(ScriptedAnswer::pieces(200, [bytes]));
    let refused = stage.ask(&signed(keyless(&stage)), &request).await.expect_err("nothing came");
    assert_eq!(refused.category, Category::Unavailable, "{refused}");
    assert!(refused.message.contains("it is broken"), "{refused}");
}

#[tokio::test]
async fn an_answer_in_one_piece_is_read_where_frames_were_asked_for_and_a_page_is_a_page() {
    let request = CompletionRequest { stream: true, ..hello() };
    let whole = answer(json!([{ "text": "Hi." }]), "end_turn").to_string();
    for portion in [1, 7, whole.len()] {
        let stage = Stage::answering(ScriptedAnswer::pieces(200, whole.as_bytes().chunks(portion)));
        let response = stage.ask(&signed(keyless(&stage)), &request).await.expect("an answer");
        assert_eq!((response.message.content.as_text().as_str(), response.usage.total_tokens), ("Hi.", Some(12)));
    }
    let page = Stage::answering(ScriptedAnswer::pieces(200, ["<html>Sign in</html>"]));
    let refused = page.ask(&signed(keyless(&page)), &request).await.expect_err("no answer");
    assert_eq!((refused.category, refused.is_transient()), (Category::InvalidResponse, false), "{refused}");
    assert!(refused.message.contains("<html>Sign in</html>"), "{refused}");
}

#[tokio::test]
async fn readiness_is_asked_where_models_are_described() {
    let arn = "arn:aws:bedrock:eu-central-1:123456789012";
    let named = |kind: &str| format!("{arn}:{kind}/x1");
    for (model, described, collection) in [
        ("anthropic.claude-x:0".to_owned(), json!({ "modelDetails": { "modelId": "x" } }), "foundation-models"),
        ("zai.glm-4.7".to_owned(), json!({ "modelDetails": { "modelId": "x" } }), "foundation-models"),
        (named("foundation-model"), json!({ "modelDetails": { "modelId": "x" } }), "foundation-models"),
        ("eu.amazon.nova".to_owned(), json!({ "inferenceProfileId": "x" }), "inference-profiles"),
        ("ca.amazon.nova".to_owned(), json!({ "inferenceProfileId": "x" }), "inference-profiles"),
        ("global.amazon.nova".to_owned(), json!({ "inferenceProfileId": "x" }), "inference-profiles"),
        (named("application-inference-profile"), json!({ "inferenceProfileId": "x" }), "inference-profiles"),
        (named("provisioned-model"), json!({ "provisionedModelArn": "x" }), "provisioned-model-throughput"),
        (named("imported-model"), json!({ "modelArn": "x" }), "imported-models"),
        (
            named("custom-model-deployment"),
            json!({ "customModelDeploymentArn": "x", "status": "Active" }),
            "model-customization/custom-model-deployments",
        ),
        (named("default-prompt-router"), json!({ "promptRouterArn": "x" }), "prompt-routers"),
    ] {
        let stage = Stage::json(described);
        let ports = ProviderPorts { fetch: Arc::new(stage.fetch.clone()), clock: stage.clock.clone() };
        signed(ProviderSetup::new(ports, &model)).ready().await.expect("ready");
        let host = "https://bedrock.eu-central-1.amazonaws.com";
        let segment = model.replace(':', "%3A").replace('/', "%2F");
        assert_eq!(stage.sent_to(), format!("{host}/{collection}/{segment}"));
    }

    let begun = Stage::json(json!({ "provisionedModelArn": "x", "status": "Creating" }));
    let refused = signed(keyless(&begun)).ready().await.expect_err("not yet");
    assert_eq!(refused.category, Category::ModelNotLoaded, "{refused}");
    let strange = Stage::json(json!({ "status": "Active" }));
    let refused = signed(keyless(&strange)).ready().await.expect_err("no description");
    assert_eq!(refused.category, Category::InvalidResponse, "{refused}");
}
