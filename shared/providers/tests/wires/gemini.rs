use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, FinishReason, Message, ModelErrorCategory as Category,
    ModelProvider, ToolCall, ToolChoice,
};
use dormouse_providers::gemini;
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::stage::{Stage, hello, structured, sum, value_schema};

fn answer(parts: Value, finish: &str) -> Value {
    json!({
        "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": finish }],
        "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 20,
            "cachedContentTokenCount": 4, "thoughtsTokenCount": 8 },
        "modelVersion": "m-1-001",
        "responseId": "r-1",
    })
}

#[tokio::test]
async fn signatures_come_back_and_go_back_in_their_place() {
    let parts = json!([
        { "text": "add them", "thought": true },
        { "text": "I will", "thoughtSignature": "s-1" },
        { "text": " add." },
        { "functionCall": { "id": "f-1", "name": "add", "args": { "a": 1, "b": 2 } }, "thoughtSignature": "s-2" },
    ]);
    let stage = Stage::json(answer(parts.clone(), "STOP"));
    let provider = gemini(stage.setup());
    let mut request = sum();
    request.tool_choice = Some(ToolChoice::Tool("add".into()));
    let response = stage.ask(&provider, &request).await.expect("a call");
    assert_eq!(response.finish_reason, FinishReason::ToolCalls);
    assert_eq!((response.usage.total_tokens, response.usage.cached_tokens), (Some(20), Some(4)));
    assert_eq!(response.message.tool_calls[0].signature.as_deref(), Some("s-2"));
    let host = "https://generativelanguage.googleapis.com";
    assert_eq!(stage.sent_to(), format!("{host}/v1beta/models/m-1:generateContent"));
    assert_eq!(stage.sent_header("x-goog-api-key").as_deref(), Some("hush"));
    let config = json!({ "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": ["add"] } });
    assert_eq!(stage.sent()["toolConfig"], config);

    stage.fetch.answer(ScriptedAnswer::json(200, &answer(json!([{ "text": "3" }]), "STOP")));
    request.messages.extend([Message::Assistant(response.message), Message::tool("f-1", "3")]);
    stage.ask(&provider, &request).await.expect("an answer");
    let sent = stage.fetch.bodies().remove(1);
    assert_eq!(sent["contents"][1], json!({ "role": "model", "parts": parts }));
    let result = json!({ "functionResponse": { "id": "f-1", "name": "add", "response": { "result": "3" } } });
    assert_eq!(sent["contents"][2], json!({ "role": "user", "parts": [result] }));
}

#[tokio::test]
async fn a_thought_that_is_signed_itself_goes_back_signed_and_an_empty_signature_does_not() {
    let parts = json!([{ "text": "add them", "thought": true, "thoughtSignature": "s-1" }, { "text": "So: 3" }]);
    let stage = Stage::json(answer(parts.clone(), "STOP"));
    let provider = gemini(stage.setup());
    let mut request = hello();
    let response = stage.ask(&provider, &request).await.expect("an answer");
    let thought = Block::Thinking { text: "add them".into(), signature: Some("s-1".into()) };
    assert_eq!(response.message.content, vec![thought.clone(), Block::text("So: 3")].into());
    assert_eq!(response.message.origin.as_deref(), Some("gcp.gemini"));

    // Of which nobody says whose it is, and whose signature is empty.
    let text = Block::Text { text: "so".into(), signature: Some(String::new()) };
    let unnamed = AssistantMessage { content: vec![thought, text].into(), ..AssistantMessage::default() };
    request.messages.extend([Message::Assistant(response.message), Message::user("Sure?")]);
    request.messages.extend([Message::Assistant(unnamed), Message::user("Really?")]);
    stage.fetch.answer(ScriptedAnswer::json(200, &answer(json!([{ "text": "Yes." }]), "STOP")));
    stage.ask(&provider, &request).await.expect("an answer");
    let sent = stage.fetch.bodies().remove(1);
    assert_eq!(sent["contents"][1]["parts"], parts);
    assert_eq!(sent["contents"][3]["parts"], json!([{ "text": "so" }]));
}

#[tokio::test]
async fn a_mode_of_calls_that_has_no_word_here_is_asked_for_beside_the_tools() {
    let stage = Stage::json(answer(json!([{ "text": "ok" }]), "STOP"));
    let provider = gemini(stage.setup());
    let mode = json!({ "functionCallingConfig": { "mode": "VALIDATED" } });
    let mut request = sum();
    request.config.extras.insert("toolConfig".into(), mode.clone());
    request.config.extras.insert("topK".into(), json!(3));
    stage.ask(&provider, &request).await.expect("an answer");
    assert_eq!((&stage.sent()["toolConfig"], &stage.sent()["generationConfig"]), (&mode, &json!({ "topK": 3 })));
    request.tool_choice = Some(ToolChoice::Auto);
    let refused = stage.ask(&provider, &request).await.expect_err("two modes");
    assert_eq!(refused.category, Category::InvalidRequest);
    assert!(refused.message.contains("`toolConfig`"), "{refused}");
}

#[tokio::test]
async fn the_time_to_wait_is_read_from_the_body() {
    let info = |delay: &str| json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay }]);
    for (delay, wait) in [("34.5s", Some(34_500)), ("0s", Some(0)), ("soon", None), ("-1s", None)] {
        let error = json!({ "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow", "details": info(delay) });
        let stage = Stage::answering(ScriptedAnswer::json(429, &json!({ "error": error })));
        let refused = stage.ask(&gemini(stage.setup()), &hello()).await.expect_err("refused");
        assert_eq!(refused.category, Category::RateLimit);
        assert_eq!(refused.retry_after.map(|wait| wait.as_millis()), wait, "{delay}");
    }
}

#[tokio::test]
async fn signatures_of_another_wire_are_left_out() {
    let stage = Stage::json(answer(json!([{ "text": "ok" }]), "STOP"));
    let mut request = sum();
    let mut call = ToolCall::new("t-1", "add", dormouse_ports::Map::new());
    call.signature = Some("s".into());
    let content = vec![
        Block::Thinking { text: "hm".into(), signature: Some("s".into()) },
        Block::Text { text: "so".into(), signature: Some("s".into()) },
    ];
    let thought =
        AssistantMessage { content: content.into(), tool_calls: vec![call], origin: Some("anthropic".into()) };
    request.messages.extend([Message::Assistant(thought), Message::tool("t-1", "3")]);
    stage.ask(&gemini(stage.setup()), &request).await.expect("an answer");
    let call = json!({ "functionCall": { "id": "t-1", "name": "add", "args": {} } });
    assert_eq!(stage.sent()["contents"][1]["parts"], json!([{ "text": "so" }, call]));
}

#[tokio::test]
async fn calls_without_an_id_get_one_of_their_own() {
    let call = json!({ "functionCall": { "name": "add", "args": { "a": 1, "b": 2 } } });
    let stage = Stage::json(answer(json!([call, call]), "STOP"));
    let mut request = sum();
    let provider = gemini(stage.setup());
    let response = stage.ask(&provider, &request).await.expect("calls");
    let ids = |message: &AssistantMessage| message.tool_calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&response.message), ["call-0", "call-1"]);
    stage.fetch.answer(ScriptedAnswer::json(200, &answer(json!([call]), "STOP")));
    request.messages.extend([Message::Assistant(response.message), Message::tool("call-0", "3")]);
    assert_eq!(ids(&stage.ask(&provider, &request).await.expect("a call").message), ["call-2"]);
}

#[tokio::test]
async fn the_reason_to_end_is_the_callers_word() {
    for (name, finish) in [
        ("STOP", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", FinishReason::ContentFilter),
        ("SPII", FinishReason::ContentFilter),
        ("MALFORMED_FUNCTION_CALL", FinishReason::Error),
        ("IMAGE_SAFETY", FinishReason::Error),
        ("SOMETHING_NEW", FinishReason::Error),
    ] {
        let stage = Stage::json(answer(json!([{ "text": "ok" }]), name));
        let response = stage.ask(&gemini(stage.setup()), &hello()).await.expect("an answer");
        assert_eq!(response.finish_reason, finish, "{name}");
    }
    let blocked = Stage::json(json!({ "promptFeedback": { "blockReason": "SAFETY" } }));
    let response = blocked.ask(&gemini(blocked.setup()), &hello()).await.expect("an answer");
    assert_eq!((response.finish_reason, response.message.content), (FinishReason::ContentFilter, Content::default()));
    let odd = Stage::json(json!({ "candidates": ["ok"] }));
    let refused = odd.ask(&gemini(odd.setup()), &hello()).await.expect_err("no candidate");
    assert_eq!(refused.category, Category::InvalidResponse);
    let silent = Stage::json(json!({ "usageMetadata": { "promptTokenCount": 9 }, "modelVersion": "m-1-001" }));
    let refused = silent.ask(&gemini(silent.setup()), &hello()).await.expect_err("nothing");
    assert_eq!((refused.category, refused.is_transient()), (Category::InvalidResponse, true), "{refused}");
}

#[tokio::test]
async fn output_is_constrained_and_images_are_sent() {
    let stage = Stage::json(answer(json!([{ "text": "{\"value\":42}" }]), "STOP"));
    let mut request = structured();
    request.config.extras.insert("topK".into(), json!(3));
    request.messages = vec![Message::user(vec![
        Block::image_inline("image/webp", "AAAA"),
        Block::image_url("https://example.com/a.JPG?size=2"),
        Block::image_url("gs://bucket/a"),
    ])];
    let response = stage.ask(&gemini(stage.setup()), &request).await.expect("an answer");
    assert_eq!(response.parsed, Some(json!({ "value": 42 })));
    let sent = stage.sent();
    let config = json!({ "responseMimeType": "application/json", "responseJsonSchema": value_schema(), "topK": 3 });
    assert_eq!(sent["generationConfig"], config);
    let parts = json!([
        { "inlineData": { "mimeType": "image/webp", "data": "AAAA" } },
        { "fileData": { "mimeType": "image/jpeg", "fileUri": "https://example.com/a.JPG?size=2" } },
        { "fileData": { "fileUri": "gs://bucket/a" } },
    ]);
    assert_eq!(sent["contents"][0]["parts"], parts);
}

#[tokio::test]
async fn errors_have_their_category() {
    let body = |status: &str, message: &str| json!({ "error": { "code": 0, "message": message, "status": status } });
    let mut wrong_key = body("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.");
    wrong_key["error"]["details"] = json!([{ "reason": "API_KEY_INVALID" }]);
    for (status, body, category) in [
        (400, body("INVALID_ARGUMENT", "contents is missing"), Category::InvalidRequest),
        (400, wrong_key, Category::Authentication),
        (401, body("UNAUTHENTICATED", "no"), Category::Authentication),
        (403, body("PERMISSION_DENIED", "no"), Category::Authentication),
        (404, body("NOT_FOUND", "models/m-1 is not found"), Category::InvalidModel),
        (429, body("RESOURCE_EXHAUSTED", "slow down"), Category::RateLimit),
        (500, body("INTERNAL", "oops"), Category::Unavailable),
        (503, body("UNAVAILABLE", "busy"), Category::Unavailable),
        (504, body("DEADLINE_EXCEEDED", "late"), Category::Unavailable),
    ] {
        let stage = Stage::answering(ScriptedAnswer::json(status, &body));
        let refused = stage.ask(&gemini(stage.setup()), &hello()).await.expect_err("refused");
        assert_eq!(refused.category, category, "{status}: {refused}");
    }
}

#[tokio::test]
async fn a_conversation_of_too_many_tokens_or_bytes_is_too_long() {
    for (words, too_long) in [
        ("The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", true),
        ("Request payload size exceeds the limit: 20971520 bytes.", true),
        ("Function calling with a response mime type: 'application/json' is unsupported", false),
    ] {
        let error = json!({ "error": { "code": 400, "message": words, "status": "INVALID_ARGUMENT" } });
        let stage = Stage::answering(ScriptedAnswer::json(400, &error));
        let refused = stage.ask(&gemini(stage.setup()), &hello()).await.expect_err("refused");
        assert_eq!((refused.category, refused.too_long), (Category::InvalidRequest, too_long), "{refused}");
    }
}

#[tokio::test]
async fn a_stream_is_heard_and_ends_like_an_answer_in_one_piece() {
    let piece = |part: Value| json!({ "candidates": [{ "content": { "role": "model", "parts": [part] } }] });
    let call = json!({ "functionCall": { "id": "f-1", "name": "add", "args": { "a": 1, "b": 2 } } });
    let events = [
        piece(json!({ "text": "add ", "thought": true })),
        piece(json!({ "text": "them", "thought": true })),
        piece(json!({ "text": "I will" })),
        piece(json!({ "text": " add.", "thoughtSignature": "s-1" })),
        piece(call.clone()),
        answer(json!([{ "text": "" , "thoughtSignature": "s-2" }]), "STOP"),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let request = CompletionRequest { stream: true, ..sum() };
    let response = stage.ask(&gemini(stage.streaming()), &request).await.expect("an answer");
    assert_eq!(stage.heard(), ["(add )", "(them)", "I will", " add."]);
    assert!(stage.sent_to().ends_with("/v1beta/models/m-1:streamGenerateContent?alt=sse"));
    let blocks = vec![
        Block::Thinking { text: "add them".into(), signature: None },
        Block::Text { text: "I will add.".into(), signature: Some("s-1".into()) },
        Block::Text { text: String::new(), signature: Some("s-2".into()) },
    ];
    assert_eq!(response.message.content, Content::Blocks(blocks));
    let whole = Stage::json(response.raw.clone());
    let at_once = whole.ask(&gemini(whole.setup()), &sum()).await.expect("an answer");
    assert_eq!(at_once, response);

    // What it signed goes back, even where it is empty.
    stage.fetch.answer(ScriptedAnswer::json(200, &answer(json!([{ "text": "3" }]), "STOP")));
    let mut request = sum();
    request.messages.extend([Message::Assistant(response.message), Message::tool("f-1", "3")]);
    stage.ask(&gemini(stage.setup()), &request).await.expect("an answer");
    let sent = stage.fetch.bodies().remove(1);
    assert_eq!(sent["contents"][1]["parts"][2], json!({ "text": "", "thoughtSignature": "s-2" }));

    let cut = Stage::answering(ScriptedAnswer::events(&events[..3]));
    let request = CompletionRequest { stream: true, ..sum() };
    let refused = cut.ask(&gemini(cut.streaming()), &request).await.expect_err("cut");
    assert_eq!(refused.category, Category::Unavailable);
}

#[tokio::test]
async fn readiness_is_asked_of_the_model_by_name() {
    let stage = Stage::json(json!({ "name": "models/m-1" }));
    gemini(stage.setup()).ready().await.expect("ready");
    assert!(stage.sent_to().ends_with("/v1beta/models/m-1"));
}
