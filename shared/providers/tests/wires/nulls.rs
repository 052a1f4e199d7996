//! Fields that are null or empty instead of missing, as gateways write them that fill in whole forms.

use std::sync::Arc;

use dormouse_ports::model::{
    Block, CompletionRequest, Content, FinishReason, Message, ModelErrorCategory as Category, Response,
};
use dormouse_providers::{anthropic, bedrock, gemini, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::stage::{Signer, Stage, hello, sum, with_most};

fn part(fields: Value) -> Value {
    let mut part = json!({ "text": null, "thought": null, "thoughtSignature": null, "functionCall": null });
    for (name, value) in fields.as_object().expect("an object") {
        part[name] = value.clone();
    }
    part
}

fn candidate(parts: Value, finish: Value) -> Value {
    let content = json!({ "role": "model", "parts": parts });
    let feedback = json!({ "blockReason": null });
    json!({ "candidates": [{ "content": content, "finishReason": finish }], "promptFeedback": feedback, "error": null })
}

#[tokio::test]
async fn what_is_null_at_gemini_is_not_there() {
    let stage = Stage::json(candidate(json!([part(json!({ "text": "I am" }))]), json!("STOP")));
    let response = stage.ask(&gemini(stage.setup()), &hello()).await.expect("an answer");
    assert_eq!((response.message.content, response.finish_reason), (Content::from("I am"), FinishReason::Stop));
    assert!(response.message.tool_calls.is_empty());

    let stage = Stage::json(candidate(Value::Null, json!("SAFETY")));
    let response = stage.ask(&gemini(stage.setup()), &hello()).await.expect("a filtered answer");
    assert_eq!((response.message.content.is_empty(), response.finish_reason), (true, FinishReason::ContentFilter));

    let request = CompletionRequest { stream: true, ..hello() };
    let mut counted = candidate(json!([part(json!({ "text": "I" }))]), Value::Null);
    counted["usageMetadata"] = json!({ "promptTokenCount": 9 });
    let mut end = candidate(json!([part(json!({ "text": " am" }))]), json!("STOP"));
    end["usageMetadata"] = Value::Null;
    let stage = Stage::answering(ScriptedAnswer::events([&counted, &end]));
    let response = stage.ask(&gemini(stage.streaming()), &request).await.expect("an answer");
    assert_eq!((response.message.content, response.usage.prompt_tokens), (Content::from("I am"), Some(9)));

    let stage = Stage::answering(ScriptedAnswer::events([counted]));
    let refused = stage.ask(&gemini(stage.streaming()), &request).await.expect_err("it was cut");
    assert_eq!(refused.category, Category::Unavailable, "{refused}");

    let stage = Stage::json(json!({ "candidates": [], "promptFeedback": { "blockReason": null } }));
    let refused = stage.ask(&gemini(stage.setup()), &hello()).await.expect_err("nothing was blocked");
    assert_eq!(refused.category, Category::InvalidResponse, "{refused}");
}

#[tokio::test]
async fn arguments_and_texts_that_are_null_are_none() {
    let mut request = with_most(sum());
    request.tools[0].parameters = json!({ "type": "object" });
    let arguments = |response: Response| response.message.tool_calls[0].arguments.clone().expect("arguments");
    let mut call = json!({ "type": "tool_use", "id": "t-1", "name": "add" });
    for with_null in [false, true] {
        if with_null {
            call["input"] = Value::Null;
        }
        let stage = Stage::json(json!({ "content": [call], "stop_reason": "tool_use" }));
        assert!(arguments(stage.ask(&anthropic(stage.setup()), &request).await.expect("a call")).is_empty());
    }
    for input in [json!({}), json!({ "input": null })] {
        let mut call = input;
        call["toolUseId"] = json!("t-1");
        call["name"] = json!("add");
        let message = json!({ "content": [{ "toolUse": call }] });
        let stage = Stage::json(json!({ "output": { "message": message }, "stopReason": "tool_use" }));
        let provider = bedrock(stage.setup(), "eu-central-1", Arc::new(Signer));
        assert!(arguments(stage.ask(&provider, &request).await.expect("a call")).is_empty());
    }
    for (sent, count) in [(Value::Null, 0), (json!({ "a": 1 }), 1)] {
        let item = json!({ "type": "function_call", "call_id": "t-1", "name": "add", "arguments": sent });
        let stage = Stage::json(json!({ "status": "completed", "output": [item] }));
        let response = stage.ask(&responses(stage.setup()), &request).await.expect("a call");
        assert_eq!(arguments(response).len(), count);
    }
    let refusal = json!({ "type": "refusal", "text": null, "refusal": "I will not." });
    let stage = Stage::json(json!({ "status": "completed", "output": [{ "type": "message", "content": [refusal] }] }));
    let response = stage.ask(&responses(stage.setup()), &hello()).await.expect("a refusal");
    assert_eq!(response.message.content, Content::from("I will not."));

    let content = json!([{ "text": "ok", "toolUse": null }]);
    let stage = Stage::json(json!({ "output": { "message": { "content": content } }, "stopReason": "end_turn" }));
    let response = stage.ask(&bedrock(stage.setup(), "eu-central-1", Arc::new(Signer)), &hello()).await;
    assert_eq!(response.expect("an answer").message.content, Content::from("ok"));
}

/// A conversation with one would be refused for good: no thought may be empty that nobody signed.
#[tokio::test]
async fn a_thought_of_no_words_that_nobody_signed_is_left_out_and_the_conversation_goes_on() {
    for signature in [Value::Null, json!(""), json!("s-1")] {
        let is_signed = signature == "s-1";
        let thought = json!({ "type": "thinking", "thinking": "", "signature": signature });
        let text = json!({ "type": "text", "text": "I am" });
        let answer = json!({ "content": [thought, text], "stop_reason": "end_turn" });
        let stage = Stage::json(answer.clone());
        stage.fetch.answer(ScriptedAnswer::json(200, &answer));
        let provider = anthropic(stage.setup());
        let mut request = with_most(hello());
        let response = stage.ask(&provider, &request).await.expect("an answer");
        let thoughts =
            response.message.content.blocks().map_or(0, |all| all.iter().filter(|b| b.is_reasoning()).count());
        assert_eq!(thoughts, usize::from(is_signed), "{signature}");
        request.messages.extend([Message::Assistant(response.message), Message::user("And now?")]);
        stage.ask(&provider, &request).await.expect("it goes on");

        let thought = json!({ "reasoningContent": { "reasoningText": { "text": "", "signature": signature } } });
        let message = json!({ "content": [thought, { "text": "I am" }] });
        let answer = json!({ "output": { "message": message }, "stopReason": "end_turn" });
        let stage = Stage::json(answer.clone());
        stage.fetch.answer(ScriptedAnswer::json(200, &answer));
        let provider = bedrock(stage.setup(), "eu-central-1", Arc::new(Signer));
        let mut request = hello();
        let response = stage.ask(&provider, &request).await.expect("an answer");
        assert_eq!(response.message.content.blocks().is_some_and(|all| all.iter().any(Block::is_reasoning)), is_signed);
        request.messages.extend([Message::Assistant(response.message), Message::user("And now?")]);
        stage.ask(&provider, &request).await.expect("it goes on");
    }
}
