use dormouse_ports::Map;
use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, FinishReason, Message, ModelErrorCategory, ModelProvider,
    ToolCall, ToolChoice,
};
use dormouse_providers::{ApiKey, Capabilities, openai};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::stage::{Stage, hello, structured, sum, value_schema};

pub(crate) fn completion(message: Value, finish: &str) -> Value {
    json!({
        "id": "c-1",
        "object": "chat.completion",
        "model": "m-1-0524",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": { "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12,
            "prompt_tokens_details": { "cached_tokens": 0 } },
    })
}

#[tokio::test]
async fn a_text_comes_back_with_usage_and_the_raw_answer() {
    let body = completion(json!({ "role": "assistant", "content": "Hi." }), "stop");
    let stage = Stage::json(body.clone());
    let response = stage.ask(&openai(stage.setup()), &hello()).await.expect("an answer");
    assert_eq!(response.message, AssistantMessage { content: "Hi.".into(), ..AssistantMessage::default() });
    assert_eq!((response.usage.total_tokens, response.usage.cached_tokens), (Some(12), Some(0)));
    assert_eq!(response.raw, body);
    assert_eq!(stage.sent_to(), "https://api.openai.com/v1/chat/completions");
    assert_eq!(stage.sent_header("authorization").as_deref(), Some("Bearer hush"));
}

#[tokio::test]
async fn a_key_goes_in_the_header_that_a_server_wants_in_the_place_of_a_bearer() {
    let stage = Stage::json(completion(json!({ "role": "assistant", "content": "Hi." }), "stop"));
    let setup = stage.setup().key_header("api-key");
    let setup = setup.base_url("https://mine.openai.azure.com/openai/deployments/m-1?api-version=2024-06-01");
    stage.ask(&openai(setup), &hello()).await.expect("an answer");
    let sent = ["api-key", "authorization"].map(|name| stage.sent_header(name));
    assert_eq!(sent, [Some("hush".to_owned()), None]);
    let address = "https://mine.openai.azure.com/openai/deployments/m-1/chat/completions?api-version=2024-06-01";
    assert_eq!(stage.sent_to(), address);

    let refusing =
        Stage::answering(ScriptedAnswer::json(401, &json!({ "error": { "message": "hush-key-1 is wrong" } })));
    let setup = refusing.setup().key(ApiKey::known("hush-key-1".into())).key_header("api-key");
    let refused = refusing.ask(&openai(setup), &hello()).await.expect_err("refused");
    assert!(!format!("{refused:?}").contains("hush"), "{refused:?}");
}

/// §8.1.1 has none sent; models that think between calls are refused by their servers without it.
#[tokio::test]
async fn the_reasoning_of_calls_goes_back_where_the_server_wants_it() {
    let thought = |origin: Option<&str>, tool_calls| AssistantMessage {
        content: Content::Blocks(vec![
            Block::Thinking { text: "Two and two.".into(), signature: None },
            Block::text("Hm."),
        ]),
        tool_calls,
        origin: origin.map(str::to_owned),
    };
    let call = |id: &str| vec![ToolCall::new(id, "add", Map::new())];
    let mut request = hello();
    request.messages.extend([
        Message::Assistant(thought(Some("openai"), call("t-1"))),
        Message::tool("t-1", "4"),
        Message::Assistant(thought(Some("anthropic"), call("t-2"))),
        Message::tool("t-2", "4"),
        Message::Assistant(thought(Some("openai"), Vec::new())),
        Message::user("Thanks"),
    ]);
    let sent = async |returning: bool| {
        let stage = Stage::json(completion(json!({ "role": "assistant", "content": "Hi." }), "stop"));
        let setup = if returning { stage.setup().returning_reasoning() } else { stage.setup() };
        stage.ask(&openai(setup), &request).await.expect("an answer");
        let messages = stage.sent()["messages"].as_array().expect("messages").clone();
        messages.into_iter().filter_map(|message| message.get("reasoning_content").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(sent(false).await, [] as [Value; 0]);
    assert_eq!(sent(true).await, ["Two and two."], "that of the same wire, with its calls");
}

/// Routers show the reasoning of others, which these refuse when it is changed, or is not there.
#[tokio::test]
async fn reasoning_that_comes_in_parts_goes_back_as_it_came_where_the_server_wants_it() {
    let text = json!({ "type": "reasoning.text", "text": "add them", "format": "f", "index": 0, "signature": "s-1" });
    let sealed = json!({ "type": "reasoning.encrypted", "data": "ZA==", "id": "t-1", "format": "f", "index": 1 });
    let function = json!({ "name": "add", "arguments": "{\"a\":1,\"b\":2}" });
    let call = json!({ "index": 0, "id": "t-1", "type": "function", "function": function });
    let chunk =
        |delta: Value, finish: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let piece = |detail: Value| chunk(json!({ "reasoning_details": [detail] }), Value::Null);
    let events = [
        chunk(
            json!({ "reasoning": "add ", "reasoning_details": [{ "type": "reasoning.text", "text": "add ", "format": "f", "index": 0 }] }),
            Value::Null,
        ),
        piece(json!({ "type": "reasoning.text", "text": "them", "format": "f", "index": 0, "signature": null })),
        piece(json!({ "type": "reasoning.text", "format": "f", "index": 0, "signature": "s-1" })),
        piece(sealed.clone()),
        chunk(json!({ "tool_calls": [call] }), json!("tool_calls")),
    ];
    let message = |details: Value| json!({ "content": null, "reasoning": "add ", "reasoning_details": details, "tool_calls": [call] });
    let whole = |details: Value| ScriptedAnswer::json(200, &completion(message(details), "tool_calls"));
    for (stream, returning, answer, expected) in [
        (true, true, ScriptedAnswer::events(&events), json!([text, sealed])),
        (false, true, whole(json!([text, sealed])), json!([text, sealed])),
        (false, true, whole(json!([])), Value::Null),
        (false, false, whole(json!([text, sealed])), Value::Null),
    ] {
        let stage = Stage::answering(answer);
        let setup = if returning { stage.setup().returning_reasoning() } else { stage.setup() };
        let provider = openai(setup);
        let mut request = CompletionRequest { stream, ..sum() };
        let response = stage.ask(&provider, &request).await.expect("a call");
        stage.fetch.answer(ScriptedAnswer::json(200, &completion(json!({ "content": "3" }), "stop")));
        request.messages.extend([Message::Assistant(response.message), Message::tool("t-1", "3")]);
        request.stream = false;
        stage.ask(&provider, &request).await.expect("an answer");
        let sent = stage.fetch.bodies().remove(1)["messages"][2].clone();
        assert_eq!(sent["reasoning_details"], expected, "{stream} {returning}");
        let is_told = returning && expected.is_null();
        assert_eq!(sent["reasoning_content"] == "add ", is_told, "{stream} {returning}");
    }
}

#[tokio::test]
async fn addresses_are_taken_with_and_without_a_version() {
    for (given, asked) in [
        ("http://localhost:8000", "http://localhost:8000/v1/models"),
        ("http://localhost:8000/", "http://localhost:8000/v1/models"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1/models"),
        ("http://localhost:8000/openai/v2", "http://localhost:8000/openai/v2/models"),
    ] {
        let stage = Stage::json(json!({ "data": [{ "id": "m-1" }] }));
        openai(stage.setup().base_url(given)).ready().await.expect("ready");
        assert_eq!(stage.sent_to(), asked);
    }
}

#[tokio::test]
async fn tools_are_called_and_answered() {
    let call =
        json!({ "id": "t-1", "type": "function", "function": { "name": "add", "arguments": "{\"b\":2,\"a\":1}" } });
    let stage =
        Stage::json(completion(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls"));
    let mut request = sum();
    request.tool_choice = Some(ToolChoice::Tool("add".into()));
    let provider = openai(stage.setup());
    let response = stage.ask(&provider, &request).await.expect("a call");
    assert_eq!(response.finish_reason, FinishReason::ToolCalls);
    let arguments = json!({ "a": 1, "b": 2 }).as_object().cloned().expect("an object");
    assert_eq!(response.message.tool_calls, [ToolCall::new("t-1", "add", arguments)]);
    assert_eq!(stage.sent()["tool_choice"], json!({ "type": "function", "function": { "name": "add" } }));

    stage.fetch.answer(ScriptedAnswer::json(200, &completion(json!({ "role": "assistant", "content": "3" }), "stop")));
    request.tool_choice = None;
    request.messages.extend([Message::Assistant(response.message), Message::tool("t-1", "3")]);
    stage.ask(&provider, &request).await.expect("an answer");
    let sent = stage.fetch.bodies().remove(1);
    assert_eq!(sent["messages"][2]["tool_calls"][0]["function"]["arguments"], r#"{"a":1,"b":2}"#);
    assert_eq!(sent["messages"][3], json!({ "role": "tool", "content": "3", "tool_call_id": "t-1" }));
}

#[tokio::test]
async fn reasoning_of_another_wire_is_left_out() {
    let stage = Stage::json(completion(json!({ "content": "ok" }), "stop"));
    let mut request = hello();
    let thought = AssistantMessage {
        content: vec![
            Block::Thinking { text: "hm".into(), signature: Some("s".into()) },
            Block::RedactedThinking { data: "d".into() },
            Block::Text { text: "I think so.".into(), signature: Some("s".into()) },
        ]
        .into(),
        tool_calls: Vec::new(),
        origin: Some("anthropic".into()),
    };
    request.messages.extend([Message::Assistant(thought), Message::user("Sure?")]);
    stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
    assert_eq!(stage.sent()["messages"][1], json!({ "role": "assistant", "content": "I think so." }));
}

#[tokio::test]
async fn a_stream_is_heard_piece_by_piece_and_ends_like_an_answer_in_one_piece() {
    let piece = |delta: Value, finish: Value| json!({ "id": "c-1", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let call = |delta: Value| piece(json!({ "tool_calls": [delta] }), Value::Null);
    let events = [
        piece(json!({ "role": "assistant", "content": "" }), Value::Null),
        piece(json!({ "reasoning": "add " }), Value::Null),
        piece(json!({ "reasoning": "them" }), Value::Null),
        piece(json!({ "content": "I will" }), Value::Null),
        piece(json!({ "content": " add." }), Value::Null),
        call(json!({ "index": 1, "id": "t-2", "function": { "name": "add", "arguments": "{\"a\":3,\"b\":4}" } })),
        call(json!({ "index": 0, "id": "t-1", "function": { "name": "add", "arguments": "" } })),
        call(json!({ "index": 0, "function": { "arguments": "{\"a\":1," } })),
        call(json!({ "index": 0, "id": null, "function": { "name": null, "arguments": "\"b\":2}" } })),
        piece(json!({}), json!("tool_calls")),
        json!({ "id": "c-1", "choices": [], "usage": { "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 } }),
    ];
    let data = events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
    let stage = Stage::answering(ScriptedAnswer::events(data));
    let mut request = sum();
    request.stream = true;
    let response = stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
    assert_eq!(stage.heard(), ["(add )", "(them)", "I will", " add."]);

    let whole = Stage::json(response.raw.clone());
    request.stream = false;
    let at_once = whole.ask(&openai(whole.setup()), &request).await.expect("an answer");
    assert_eq!(at_once, response, "what is put together reads like what comes in one piece");
    let calls: Vec<_> = response.message.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(calls, ["t-1", "t-2"]);
    assert_eq!(response.usage.total_tokens, Some(12));
}

#[tokio::test]
async fn output_is_constrained_natively_or_asked_for() {
    let answer = completion(json!({ "content": " {\"value\": 42}" }), "stop");
    let native = Stage::json(answer.clone());
    let response = native.ask(&openai(native.setup()), &structured()).await.expect("an answer");
    assert_eq!(response.parsed, Some(json!({ "value": 42 })));
    assert_eq!(response.message.content, " {\"value\": 42}".into(), "as the model wrote it");
    let format = &native.sent()["response_format"]["json_schema"];
    assert_eq!((&format["strict"], &format["schema"]), (&json!(true), &value_schema()));

    let asked = Stage::json(answer);
    let capabilities = Capabilities { structured_output: false, ..Capabilities::ALL };
    let response =
        asked.ask(&openai(asked.setup().capabilities(capabilities)), &structured()).await.expect("an answer");
    assert_eq!(response.parsed, Some(json!({ "value": 42 })));
    assert!(asked.sent().get("response_format").is_none());
    assert!(asked.sent()["messages"][0]["content"].as_str().expect("a text").contains("\"required\":[\"value\"]"));

    // What stops for calls is no output, whether it has any or not.
    for words in ["{\"value\": 42}", "Let me look."] {
        let calling = Stage::json(completion(json!({ "content": words }), "tool_calls"));
        let response = calling.ask(&openai(calling.setup()), &structured()).await.expect("an answer");
        assert_eq!((response.parsed, response.finish_reason), (None, FinishReason::ToolCalls), "{words}");
    }

    let output = r#"{"value": 42, "$serde_json::private::Number": 1}"#;
    let odd = Stage::json(completion(json!({ "content": output }), "stop"));
    let refused = odd.ask(&openai(odd.setup()), &structured()).await.expect_err("no state keeps it");
    assert!(refused.message.contains("names of JSON must not begin"), "{refused}");
}

#[tokio::test]
async fn readiness_is_told_without_asking_the_model_anything() {
    for (models, category) in [
        (json!([{ "id": "m-1" }]), None),
        (json!([{ "id": "m-1", "status": { "value": "loaded" } }]), None),
        (json!([{ "id": "m-1", "status": { "value": "unloaded" } }]), Some(ModelErrorCategory::ModelNotLoaded)),
        (json!([{ "id": "m-1", "state": "not-loaded" }]), Some(ModelErrorCategory::ModelNotLoaded)),
        (json!([{ "id": "m-10" }]), Some(ModelErrorCategory::InvalidModel)),
        (json!([]), Some(ModelErrorCategory::InvalidModel)),
        (json!("none"), Some(ModelErrorCategory::InvalidResponse)),
    ] {
        let stage = Stage::json(json!({ "data": models }));
        let ready = openai(stage.setup()).ready().await;
        assert_eq!(ready.err().map(|error| error.category), category, "{models}");
    }
}

#[tokio::test]
async fn a_refusal_is_read_whole_and_in_pieces() {
    let message = json!({ "role": "assistant", "content": null, "refusal": "I will not." });
    let stage = Stage::json(completion(message, "stop"));
    let response = stage.ask(&openai(stage.setup()), &hello()).await.expect("an answer");
    assert_eq!(
        (response.message.content.as_text().as_str(), response.finish_reason),
        ("I will not.", FinishReason::ContentFilter)
    );

    let chunk = |delta: Value, finish: Value| {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }).to_string()
    };
    let events = [
        chunk(json!({ "role": "assistant", "refusal": "I will " }), Value::Null),
        chunk(json!({ "refusal": "not." }), Value::Null),
        chunk(json!({}), json!("stop")),
        "[DONE]".to_owned(),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let mut request = hello();
    request.stream = true;
    let response = stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
    assert_eq!(
        (response.message.content.as_text().as_str(), response.finish_reason),
        ("I will not.", FinishReason::ContentFilter)
    );
    assert_eq!(stage.heard(), ["I will ", "not."]);
}

/// Moonshot has them in the choice that ends.
#[tokio::test]
async fn the_counters_of_a_stream_are_read_where_they_stand() {
    let counters = json!({ "prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32, "cached_tokens": 7 });
    let events = [
        json!({ "choices": [{ "index": 0, "delta": { "content": "Hi." }, "finish_reason": null }] }),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop", "usage": counters }] }),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let request = CompletionRequest { stream: true, ..hello() };
    let usage = stage.ask(&openai(stage.setup()), &request).await.expect("an answer").usage;
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens), (Some(19), Some(13), Some(7)));
}

#[tokio::test]
async fn a_deployment_of_azure_is_asked_with_what_openai_takes() {
    let stage = Stage::json(completion(json!({ "content": "Hi." }), "stop"));
    let mut request = sum();
    request.tools[0].description = "long ".repeat(300);
    let id = "x".repeat(64);
    let call = ToolCall::new(id.as_str(), "add", Map::new());
    let called = AssistantMessage { tool_calls: vec![call], ..AssistantMessage::default() };
    request.messages.extend([Message::Assistant(called), Message::tool(id.as_str(), "3")]);
    let setup = stage.setup().base_url("https://mine.openai.azure.com/openai/deployments/m-1?api-version=2024-10-21");
    stage.ask(&openai(setup), &request).await.expect("an answer");
    let sent = stage.sent();
    let shown = sent["tools"][0]["function"]["description"].as_str().expect("a text");
    assert!(shown.chars().count() <= 1024, "{shown}");
    let id = sent["messages"][2]["tool_calls"][0]["id"].as_str().expect("an id");
    assert!(id.len() <= 40 && sent["messages"][3]["tool_call_id"] == id, "{sent}");
}

#[tokio::test]
async fn a_deployment_of_azure_that_may_reason_is_told_its_limit_as_openai_is() {
    let mut request = hello();
    request.config.max_tokens = Some(7);
    for (host, version, name) in [
        ("mine.openai.azure.com", "2024-10-21", "max_tokens"),
        ("mine.openai.azure.com", "2024-12-01-preview", "max_completion_tokens"),
        ("mine.cognitiveservices.azure.com", "2025-04-01-preview", "max_completion_tokens"),
        ("other.example.com", "2025-04-01-preview", "max_tokens"),
    ] {
        let stage = Stage::json(completion(json!({ "content": "Hi." }), "stop"));
        let url = format!("https://{host}/openai/deployments/m-1?api-version={version}");
        stage.ask(&openai(stage.setup().base_url(url)), &request).await.expect("an answer");
        assert_eq!(stage.sent()[name], 7, "{host} {version}: {}", stage.sent());
    }
}
