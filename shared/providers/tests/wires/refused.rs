//! What providers would refuse, and is sent otherwise.

use std::sync::Arc;

use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, Message, ModelProvider, Tool, ToolCall,
};
use dormouse_ports::{Map, Secret};
use dormouse_providers::{ApiKey, ProviderPorts, ProviderSetup, anthropic, bedrock, gemini, openai, responses};
use serde_json::{Value, json};

use crate::stage::{Signer, Stage, hello, with_most};

type Made = fn(ProviderSetup) -> Box<dyn ModelProvider>;

/// The body that the wire `made` sends for `request`, whatever becomes of it.
async fn sent(made: Made, request: &CompletionRequest) -> Value {
    let stage = Stage::json(json!({}));
    let _ = stage.ask(&*made(stage.setup()), request).await;
    stage.sent()
}

const ANTHROPIC: Made = |setup| Box::new(anthropic(setup));
const BEDROCK: Made = |setup| Box::new(bedrock(setup, "eu-central-1", Arc::new(Signer)));
const GEMINI: Made = |setup| Box::new(gemini(setup));
const OPENAI: Made = |setup| Box::new(openai(setup));
const RESPONSES: Made = |setup| Box::new(responses(setup));

fn with_schema(schema: Value) -> CompletionRequest {
    let mut request = with_most(hello());
    request.tools = vec![Tool { name: "t".into(), description: "Does.".into(), parameters: schema }];
    request
}

#[tokio::test]
async fn a_thought_that_nothing_follows_is_left_out() {
    for origin in ["anthropic", "aws.bedrock", "openai.responses", "gcp.gemini", "openai"] {
        let thought = Block::Thinking { text: "hm".into(), signature: Some("{\"type\":\"reasoning\"}".into()) };
        let cut = AssistantMessage {
            content: Content::Blocks(vec![thought]),
            origin: Some(origin.into()),
            ..AssistantMessage::default()
        };
        let mut request = with_most(hello());
        request.messages.extend([Message::Assistant(cut), Message::user("Go on")]);
        for (made, place) in [
            (ANTHROPIC, "messages"),
            (OPENAI, "messages"),
            (RESPONSES, "input"),
            (GEMINI, "contents"),
            (BEDROCK, "messages"),
        ] {
            let body = sent(made, &request).await;
            let told = body[place].as_array().expect("messages");
            assert!(told.iter().all(|one| one["role"] == "user"), "{origin}: {body}");
        }
    }
}

#[tokio::test]
async fn blanks_are_not_sent_alone() {
    let call = ToolCall::new("t-1", "add", Map::new());
    let calls = AssistantMessage { content: "\n\n".into(), tool_calls: vec![call], ..AssistantMessage::default() };
    let mut request = with_most(CompletionRequest::new([Message::user(" \n")]));
    request.messages.extend([Message::Assistant(calls), Message::tool("t-1", "3")]);
    let body = sent(ANTHROPIC, &request).await;
    assert_eq!(body["messages"][0]["content"], ".");
    assert_eq!(body["messages"][1]["content"].as_array().map(Vec::len), Some(1), "{body}");
    let body = sent(BEDROCK, &request).await;
    assert_eq!(body["messages"][0]["content"], json!([{ "text": "." }]));
    assert_eq!(body["messages"][1]["content"].as_array().map(Vec::len), Some(1), "{body}");
}

#[tokio::test]
async fn on_bedrock_the_user_begins() {
    let greeting = AssistantMessage { content: "Welcome!".into(), ..AssistantMessage::default() };
    let told = [Message::system("Be kind."), Message::Assistant(greeting), Message::user("Hello")];
    let body = sent(BEDROCK, &CompletionRequest::new(told)).await;
    let roles: Vec<_> = body["messages"].as_array().expect("messages").iter().map(|one| one["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(body["messages"][0]["content"], json!([{ "text": "." }]));
}

#[tokio::test]
async fn names_of_tools_begin_with_a_letter_or_a_low_line_on_gemini() {
    let mut request = CompletionRequest::new([Message::user("Hello")]);
    let called = AssistantMessage { tool_calls: vec![ToolCall::new("t-1", "2fa", Map::new())], ..Default::default() };
    request.messages.extend([Message::Assistant(called), Message::tool("t-1", "done")]);
    request.tools =
        vec![Tool { name: "2fa".into(), description: "Asks.".into(), parameters: json!({ "type": "object" }) }];
    let part = json!({ "functionCall": { "name": "_2fa", "args": {} } });
    let answer = json!({ "candidates": [{ "content": { "parts": [part] }, "finishReason": "STOP" }] });
    let stage = Stage::json(answer);
    let response = stage.ask(&gemini(stage.setup()), &request).await.expect("an answer");
    assert_eq!(response.message.tool_calls[0].name, "2fa");
    let body = stage.sent();
    for place in [
        "/tools/0/functionDeclarations/0/name",
        "/contents/1/parts/0/functionCall/name",
        "/contents/2/parts/0/functionResponse/name",
    ] {
        assert_eq!(body.pointer(place), Some(&json!("_2fa")), "{place}: {body}");
    }
}

#[tokio::test]
async fn mistral_is_sent_what_it_takes() {
    let ids = ["call_0a1b2c3d", "abcDEF123", "call-0"];
    let call = |id: &str| ToolCall::new(id, "add", Map::new());
    let calls = AssistantMessage { tool_calls: ids.map(call).to_vec(), ..AssistantMessage::default() };
    let mut request = CompletionRequest { stream: true, ..hello() };
    request.messages.push(Message::Assistant(calls));
    request.messages.extend(ids.map(|id| Message::tool(id, "3")));
    request.messages.push(Message::user("And now?"));
    request.config.seed = Some(7);
    let of_mistral: Made = |setup| Box::new(openai(setup.base_url("https://api.mistral.ai/v1")));
    let body = sent(of_mistral, &request).await;
    let messages = body["messages"].as_array().expect("messages");
    let roles: Vec<_> = messages.iter().map(|one| one["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "tool", "assistant", "user"], "{body}");
    for (at, id) in ids.iter().enumerate() {
        let named = messages[1]["tool_calls"][at]["id"].as_str().expect("an id");
        assert!(named.len() == 9 && named.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{named}");
        assert_eq!((messages[2 + at]["tool_call_id"].as_str(), named == *id), (Some(named), at == 1), "{body}");
    }
    assert!(body["stream"] == true && body.get("stream_options").is_none(), "{body}");
    assert!(body["random_seed"] == 7 && body.get("seed").is_none(), "{body}");

    let body = sent(OPENAI, &request).await;
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(6), "others take a user behind results");
    assert_eq!((&body["stream_options"], &body["seed"]), (&json!({ "include_usage": true }), &json!(7)));
}

#[tokio::test]
async fn instructions_of_blanks_are_left_out_and_results_of_blanks_say_so() {
    let call = |id: &str| ToolCall::new(id, "add", Map::new());
    let calls = AssistantMessage { tool_calls: vec![call("t-1"), call("t-2")], ..AssistantMessage::default() };
    let image = Block::image_inline("image/png", "aGk=");
    let shown = Message::Tool { content: " ".into(), tool_call_id: "t-2".into(), images: vec![image] };
    let mut request = with_most(CompletionRequest::new([Message::system(" \n"), Message::user("Hello")]));
    request.messages.extend([Message::Assistant(calls), Message::tool("t-1", "\n"), shown]);
    for (made, first, result) in [
        (ANTHROPIC, "/messages/0", "/messages/2/content/0/content"),
        (OPENAI, "/messages/0", "/messages/2/content"),
        (RESPONSES, "/input/0", "/input/3/output"),
        (GEMINI, "/contents/0", "/contents/2/parts/0/functionResponse/response/result"),
        (BEDROCK, "/messages/0", "/messages/2/content/0/toolResult/content/0/text"),
    ] {
        let body = sent(made, &request).await;
        assert!(["system", "instructions", "systemInstruction"].iter().all(|name| body.get(name).is_none()), "{body}");
        assert_eq!(body.pointer(first).map(|first| &first["role"]), Some(&json!("user")), "{body}");
        assert_eq!(body.pointer(result), Some(&json!("(no output)")), "{body}");
        assert!(body.to_string().contains("(images alone)"), "{body}");
    }
}

#[tokio::test]
async fn choices_at_the_top_of_a_schema_are_shown_as_properties() {
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object",
        "properties": { "a": text },
        "anyOf": [{ "properties": { "b": text }, "required": ["b"] }, { "$ref": "#/$defs/c" }],
        "$defs": { "c": { "properties": { "c": text } } },
    });
    let shown = json!({
        "type": "object",
        "properties": { "a": text, "b": text, "c": text },
        "$defs": { "c": { "properties": { "c": text } } },
    });
    let request = with_schema(schema);
    for (made, place) in [
        (ANTHROPIC, "/tools/0/input_schema"),
        (OPENAI, "/tools/0/function/parameters"),
        (RESPONSES, "/tools/0/parameters"),
        (BEDROCK, "/toolConfig/tools/0/toolSpec/inputSchema/json"),
    ] {
        assert_eq!(sent(made, &request).await.pointer(place), Some(&shown));
    }
    let empty = with_schema(json!({ "type": "object" }));
    let properties = |body: Value, place: &str| body.pointer(place).cloned();
    assert_eq!(properties(sent(OPENAI, &empty).await, "/tools/0/function/parameters/properties"), Some(json!({})));
    assert_eq!(properties(sent(RESPONSES, &empty).await, "/tools/0/parameters/properties"), Some(json!({})));
}

#[tokio::test]
async fn a_description_that_is_longer_than_openai_takes_it_stands_in_the_instructions() {
    let whole = "größer ".repeat(200);
    let mut request = with_schema(json!({ "type": "object" }));
    let before = sent(OPENAI, &request).await;
    request.tools[0].description.clone_from(&whole);
    for (made, shown, told) in [
        (OPENAI, "/tools/0/function/description", "/messages/0/content"),
        (RESPONSES, "/tools/0/description", "/instructions"),
    ] {
        let body = sent(made, &request).await;
        let text = |place: &str| body.pointer(place).and_then(Value::as_str).expect("a text");
        let shown = text(shown);
        assert!(shown.starts_with("größer größer ") && shown.chars().count() <= 1024, "{shown}");
        assert!(text(told).contains(&format!("<tool name=\"t\">\n{whole}\n</tool>")), "{body}");
    }
    assert_eq!(sent(ANTHROPIC, &request).await["tools"][0]["description"], whole);
    request.tools[0].description = "ö".repeat(1024);
    let body = sent(OPENAI, &request).await;
    assert_eq!(body["tools"][0]["function"]["description"], request.tools[0].description);
    assert_eq!(body["messages"], before["messages"], "nothing is added to what fits");
}

#[tokio::test]
async fn gemini_is_given_what_its_own_schemas_refuse_as_json_schema() {
    let of = |inner: Value| json!({ "type": "object", "properties": { "a": inner } });
    for (schema, field) in [
        (json!({ "type": "object" }), "parametersJsonSchema"),
        (json!({ "type": "object", "properties": {}, "title": "x" }), "parametersJsonSchema"),
        (of(json!({ "type": "object" })), "parametersJsonSchema"),
        (of(json!({ "type": "string", "format": "uri" })), "parametersJsonSchema"),
        (of(json!({ "type": "string", "enum": ["a", ""] })), "parametersJsonSchema"),
        (of(json!({ "enum": ["a", "b"] })), "parametersJsonSchema"),
        (of(json!({ "type": "array" })), "parametersJsonSchema"),
        (of(json!({ "type": "array", "items": { "type": "string" } })), "parameters"),
        (
            json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["b"] }),
            "parametersJsonSchema",
        ),
        (of(json!({ "type": "string", "format": "date-time" })), "parameters"),
    ] {
        let body = sent(GEMINI, &with_schema(schema.clone())).await;
        assert_eq!(body["tools"][0]["functionDeclarations"][0][field], schema);
    }
}

#[tokio::test]
async fn calls_of_other_models_have_a_signature_that_gemini_takes() {
    for (model, signature) in
        [("gemini-3-pro", json!("skip_thought_signature_validator")), ("gemini-2.5-pro", Value::Null)]
    {
        let calls = ["t-1", "t-2"].map(|id| ToolCall::new(id, "add", Map::new())).to_vec();
        let mut request = hello();
        let calls = AssistantMessage { tool_calls: calls, ..AssistantMessage::default() };
        request.messages.extend([Message::Assistant(calls), Message::tool("t-1", "3"), Message::tool("t-2", "3")]);
        let stage = Stage::json(json!({}));
        let ports = ProviderPorts { fetch: Arc::new(stage.fetch.clone()), clock: stage.clock.clone() };
        let setup = ProviderSetup::new(ports, model).key(ApiKey::known(Secret::new("hush")));
        let _ = stage.ask(&gemini(setup), &request).await;
        let parts = &stage.sent()["contents"][1]["parts"];
        assert_eq!((&parts[0]["thoughtSignature"], &parts[1]["thoughtSignature"]), (&signature, &Value::Null));
    }
}
