//! Images of results of tools, on each wire.

use std::sync::Arc;

use dormouse_ports::Map;
use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Message, ModelErrorCategory, ModelProvider, ToolCall,
};
use dormouse_providers::{ProviderSetup, anthropic, bedrock, gemini, openai, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::stage::{Signer, Stage, sum, with_most};

/// Two calls with their results, of which the first has an image, and a question behind them.
fn drawn(image: Block) -> CompletionRequest {
    let call = |id: &str| ToolCall::new(id, "add", Map::new());
    let mut request = with_most(sum());
    let calls = AssistantMessage { tool_calls: vec![call("t-1"), call("t-2")], ..AssistantMessage::default() };
    let drawn = Message::Tool { content: "a chart".into(), tool_call_id: "t-1".into(), images: vec![image] };
    request.messages.extend([Message::Assistant(calls), drawn, Message::tool("t-2", "3"), Message::user("So?")]);
    request
}

fn image() -> Block {
    Block::image_inline("image/png", "AAAA")
}

async fn sent<P: ModelProvider>(provider: impl FnOnce(ProviderSetup) -> P, request: &CompletionRequest) -> Value {
    // What is answered does not matter here.
    let stage = Stage::json(json!({}));
    let _ = stage.ask(&provider(stage.setup()), request).await;
    stage.sent()
}

#[tokio::test]
async fn an_image_of_a_tool_is_sent_in_the_form_of_each_wire() {
    let request = drawn(image());
    let told = "[images of the result of the call `t-1`]";

    let messages = sent(openai, &request).await["messages"].clone();
    let url = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } });
    let behind = json!({ "role": "user", "content": [{ "type": "text", "text": told }, url] });
    assert_eq!(messages[3], json!({ "role": "tool", "content": "a chart", "tool_call_id": "t-1" }));
    assert_eq!(messages[4]["tool_call_id"], "t-2", "results stand together");
    assert_eq!((&messages[5], &messages[6]["content"]), (&behind, &json!("So?")));

    let messages = sent(anthropic, &request).await["messages"].clone();
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "AAAA" });
    let content = json!([{ "type": "text", "text": "a chart" }, { "type": "image", "source": source }]);
    let result = json!({ "type": "tool_result", "tool_use_id": "t-1", "content": content });
    assert_eq!(messages[2]["content"][0], result);
    assert_eq!(messages[2]["content"][1]["content"], "3", "a result without an image is text as before");

    let contents = sent(gemini, &request).await["contents"].clone();
    let kinds: Vec<&str> = contents[2]["parts"].as_array().expect("parts").iter().map(first_field).collect();
    assert_eq!(kinds, ["functionResponse", "functionResponse", "text", "inlineData"]);
    assert_eq!(contents[2]["parts"][3], json!({ "inlineData": { "mimeType": "image/png", "data": "AAAA" } }));

    let input = sent(responses, &request).await["input"].clone();
    let shown = json!([
        { "type": "input_text", "text": "a chart" },
        { "type": "input_image", "image_url": "data:image/png;base64,AAAA" },
    ]);
    let output = json!({ "type": "function_call_output", "call_id": "t-1", "output": shown });
    assert!(input.as_array().expect("items").contains(&output), "{input}");

    let signed = |setup| bedrock(setup, "eu-central-1", Arc::new(Signer));
    let messages = sent(signed, &request).await["messages"].clone();
    let shown = json!({ "image": { "format": "png", "source": { "bytes": "AAAA" } } });
    let result = json!({ "toolUseId": "t-1", "content": [{ "text": "a chart" }, shown] });
    assert_eq!(messages[2]["content"][0], json!({ "toolResult": result }));
}

#[tokio::test]
async fn an_image_whose_address_is_its_data_is_sent_as_that_data() {
    let (told, meant) = (drawn(Block::image_url("data:image/png;base64,AAAA")), drawn(image()));
    assert_eq!(sent(anthropic, &told).await, sent(anthropic, &meant).await);
    assert_eq!(sent(gemini, &told).await, sent(gemini, &meant).await);
    assert_eq!(sent(openai, &told).await, sent(openai, &meant).await);
    // Where an address may be data it is passed on as it is.
    let named = "data:image/png;name=a.png;base64,AAAA";
    let body = sent(openai, &drawn(Block::image_url(named))).await;
    assert_eq!(body["messages"][5]["content"][1]["image_url"]["url"], named);
    let body = sent(responses, &drawn(Block::image_url(named))).await;
    assert!(body.to_string().contains(named), "{body}");
    let signed = |setup| bedrock(setup, "eu-central-1", Arc::new(Signer));
    assert_eq!(sent(signed, &drawn(Block::image_url(named))).await, sent(signed, &meant).await);
}

#[tokio::test]
async fn a_block_that_a_provider_does_not_take_is_told_from_a_mistake() {
    let unsupported = ModelErrorCategory::UnsupportedContentBlock;
    for (words, category) in [
        ("This model does not support the requested content type.", unsupported),
        ("unsupported source variant: url", unsupported),
        ("Unsupported file_uri scheme: http", unsupported),
        ("Cannot fetch content from the provided URL.", unsupported),
        ("Unable to download the file. Please verify the URL.", unsupported),
        ("tool_use ids were found without tool_result blocks", ModelErrorCategory::InvalidRequest),
        ("text content blocks must be non-empty", ModelErrorCategory::InvalidRequest),
        ("This resource does not support the operation.", ModelErrorCategory::InvalidRequest),
        ("Use provisioned throughput for this revision.", ModelErrorCategory::InvalidRequest),
    ] {
        let answer = || ScriptedAnswer::json(400, &json!({ "error": { "message": words } }));
        let stage = Stage::answering(answer());
        let request = drawn(image());
        let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("refused");
        assert_eq!(refused.category, category, "{refused}");
        stage.fetch.answer(answer());
        let refused = stage.ask(&anthropic(stage.setup()), &request).await.expect_err("refused");
        assert_eq!(refused.category, category, "{refused}");
        stage.fetch.answer(answer());
        let refused = stage.ask(&gemini(stage.setup()), &request).await.expect_err("refused");
        assert_eq!(refused.category, category, "{refused}");
    }
}

/// Responses tell it in an answer of status 200, which else passes for a failure that passes.
#[tokio::test]
async fn a_response_that_failed_for_its_images_is_told_from_one_of_a_provider_that_is_away() {
    let (unsupported, away) = (ModelErrorCategory::UnsupportedContentBlock, ModelErrorCategory::Unavailable);
    for (code, category) in
        [("invalid_image_url", unsupported), ("failed_to_download_image", unsupported), ("server_error", away)]
    {
        let error = json!({ "code": code, "message": "Oops." });
        let failed = json!({ "status": "failed", "output": [], "error": error });
        let event = json!({ "type": "response.failed", "response": failed });
        for (stream, answer) in [(false, ScriptedAnswer::json(200, &failed)), (true, ScriptedAnswer::events([&event]))]
        {
            let stage = Stage::answering(answer);
            let request = CompletionRequest { stream, ..drawn(image()) };
            let refused = stage.ask(&responses(stage.setup()), &request).await.expect_err("it failed");
            assert_eq!((refused.category, refused.is_transient()), (category, category == away), "{code}: {refused}");
        }
    }
}

fn first_field(value: &Value) -> &str {
    value.as_object().and_then(|fields| fields.keys().next()).map_or("", String::as_str)
}

#[tokio::test]
async fn a_router_that_finds_no_server_for_images_refuses_these_and_not_the_request() {
    let told = |words: &str| json!({ "error": { "message": words, "code": 404 } });
    for (words, category) in [
        ("No endpoints found that support image input", ModelErrorCategory::UnsupportedContentBlock),
        ("No endpoints found that support tool use", ModelErrorCategory::InvalidRequest),
        ("The model `image-1` does not exist", ModelErrorCategory::InvalidModel),
    ] {
        let stage = Stage::answering(ScriptedAnswer::json(404, &told(words)));
        let refused = stage.ask(&openai(stage.setup()), &drawn(image())).await.expect_err("refused");
        assert_eq!(refused.category, category, "{refused}");
    }
}

#[tokio::test]
async fn what_is_no_image_that_was_read_is_not_sent() {
    for (block, words) in [(Block::image_kept("image/png", "a"), "was not read"), (Block::text("a"), "images alone")] {
        let stage = Stage::default();
        let refused = stage.ask(&openai(stage.setup()), &drawn(block)).await.expect_err("refused");
        assert_eq!((refused.category, stage.fetch.requests().len()), (ModelErrorCategory::InvalidRequest, 0));
        assert!(refused.message.contains(words), "{refused}");
    }
}
