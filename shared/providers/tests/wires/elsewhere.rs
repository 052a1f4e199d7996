//! Streams in which a part of the answer stands elsewhere than others have it.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::model::{Block, CompletionRequest, FinishReason, ModelErrorCategory as Category, ModelProvider};
use dormouse_providers::{anthropic, bedrock, gemini, openai, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::bedrock::frame;
use crate::odd::chunk;
use crate::openai::completion;
use crate::stage::{Signer, Stage, hello, sum, with_most};

fn streaming() -> CompletionRequest {
    CompletionRequest { stream: true, ..with_most(sum()) }
}

#[tokio::test]
async fn an_error_that_is_an_event_or_a_field_of_its_own_is_told_as_what_it_is() {
    let error = json!({ "code": 429, "message": "no slot is free", "type": "unavailable_error" });
    let begun = chunk(json!({ "role": "assistant", "content": null }), Value::Null);
    for piece in [format!("error: {error}\n\n"), format!("event: error\ndata: {error}\n\n")] {
        let stage = Stage::answering(ScriptedAnswer::pieces(200, [format!("data: {begun}\n\n"), piece.clone()]));
        let refused = stage.ask(&openai(stage.setup()), &streaming()).await.expect_err("it failed");
        assert_eq!(refused.category, Category::RateLimit, "{piece}: {refused}");
        assert!(refused.message.contains("no slot is free"), "{piece}: {refused}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_whole_in_one_event_is_heard_and_taken_once() {
    let function = json!({ "name": "add", "arguments": "{\"a\":1,\"b\":2}" });
    let message = json!({ "content": "I add.", "tool_calls": [{ "id": "x", "function": function }] });
    let whole = completion(message, "tool_calls");
    let begun = chunk(json!({ "role": "assistant", "content": "" }), Value::Null);
    let said = chunk(json!({ "content": "I add.", "tool_calls": [{ "id": "x", "function": function }] }), Value::Null);
    for events in [vec![whole.clone()], vec![begun, whole.clone()], vec![said, whole]] {
        let stage = Stage::answering(ScriptedAnswer::events(&events));
        let response = stage.ask(&openai(stage.setup()), &streaming()).await.expect("a call");
        assert_eq!((response.message.content.as_text().as_str(), stage.heard()), ("I add.", vec!["I add.".to_owned()]));
        assert_eq!((response.message.tool_calls.len(), response.finish_reason), (1, FinishReason::ToolCalls));
        assert_eq!(response.usage.prompt_tokens, Some(9));
    }
}

#[tokio::test]
async fn items_of_a_response_that_its_end_does_not_repeat_are_taken_as_they_came() {
    let says = json!({ "type": "message", "content": [{ "type": "output_text", "text": "I add." }] });
    let call = json!({ "type": "function_call", "call_id": "x", "name": "add", "arguments": "{\"a\":1,\"b\":2}" });
    let done =
        |place: u32, item: &Value| json!({ "type": "response.output_item.done", "output_index": place, "item": item });
    for output in [json!([]), Value::Null, json!([says, call])] {
        let response = json!({ "status": "completed", "output": output, "usage": { "input_tokens": 9 } });
        let end = json!({ "type": "response.completed", "response": response });
        let stage = Stage::answering(ScriptedAnswer::events([done(1, &call), done(0, &says), end]));
        let response = stage.ask(&responses(stage.setup()), &streaming()).await.expect("a call");
        assert_eq!(response.message.content.as_text(), "I add.", "{output}");
        assert_eq!((response.message.tool_calls.len(), response.finish_reason), (1, FinishReason::ToolCalls));
    }
}

#[tokio::test]
async fn words_at_the_beginning_are_heard_and_counters_behind_one_without_any_are_counted() {
    let block = json!({ "type": "text", "text": "I am" });
    let stage = Stage::answering(ScriptedAnswer::events([
        json!({ "type": "message_start", "message": { "role": "assistant", "usage": null } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" },
            "usage": { "input_tokens": 9, "output_tokens": 2 } }),
        json!({ "type": "message_stop" }),
    ]));
    let response = stage.ask(&anthropic(stage.streaming()), &streaming()).await.expect("an answer");
    assert_eq!((response.usage.total_tokens, stage.heard()), (Some(11), vec!["I am".to_owned()]));
}

#[tokio::test]
async fn counters_before_the_reason_to_stop_end_no_stream() {
    let usage = json!({ "usage": { "inputTokens": 9, "outputTokens": 2, "totalTokens": 11 } });
    let stage = Stage::answering(ScriptedAnswer::pieces(
        200,
        [
            frame("event", "contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": { "text": "I am" } })),
            frame("event", "metadata", &usage),
            frame("event", "messageStop", &json!({ "stopReason": "end_turn" })),
        ],
    ));
    let provider = bedrock(stage.setup(), "eu-central-1", Arc::new(Signer));
    let response = stage.ask(&provider, &streaming()).await.expect("an answer");
    assert_eq!((response.finish_reason, response.usage.total_tokens), (FinishReason::Stop, Some(11)));
}

#[tokio::test]
async fn blocks_of_bedrock_that_share_an_index_are_told_apart_by_their_kind() {
    let delta = |delta: Value| frame("event", "contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": delta }));
    let begun = json!({ "contentBlockIndex": 0, "start": { "toolUse": { "toolUseId": "t-1", "name": "add" } } });
    let stage = Stage::answering(ScriptedAnswer::pieces(
        200,
        [
            delta(json!({ "reasoningContent": { "text": "add them" } })),
            delta(json!({ "reasoningContent": { "signature": "s-1" } })),
            delta(json!({ "text": "I " })),
            delta(json!({ "text": "add." })),
            frame("event", "contentBlockStart", &begun),
            delta(json!({ "toolUse": { "input": "{\"a\":1," } })),
            delta(json!({ "text": "" })),
            delta(json!({ "toolUse": { "input": "\"b\":2}" } })),
            delta(json!({ "text": " So." })),
            frame("event", "messageStop", &json!({ "stopReason": "tool_use" })),
        ],
    ));
    let provider = bedrock(stage.setup(), "eu-central-1", Arc::new(Signer));
    let response = stage.ask(&provider, &streaming()).await.expect("a call");
    let thought = Block::Thinking { text: "add them".into(), signature: Some("s-1".into()) };
    assert_eq!(response.message.content, vec![thought, Block::text("I add."), Block::text(" So.")].into());
    let arguments = response.message.tool_calls[0].arguments.clone().map(Value::from);
    assert_eq!(arguments, Some(json!({ "a": 1, "b": 2 })));
}

#[tokio::test]
async fn pieces_of_another_candidate_are_no_part_of_the_answer() {
    let piece = |index: u32, text: &str, finish: Value| {
        let content = json!({ "parts": [{ "text": text }] });
        json!({ "candidates": [{ "index": index, "content": content, "finishReason": finish }] })
    };
    let events = [
        piece(0, "I", Value::Null),
        piece(1, "You", Value::Null),
        piece(1, " are", json!("STOP")),
        piece(0, " am", json!("STOP")),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let response = stage.ask(&gemini(stage.streaming()), &streaming()).await.expect("an answer");
    assert_eq!((response.message.content.as_text().as_str(), stage.heard().concat().as_str()), ("I am", "I am"));
}

/// Google writes it as it is behind the events before it.
#[tokio::test]
async fn an_error_that_stands_in_several_lines_of_its_own_is_told_with_its_words() {
    let piece = json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": "I am" }] } }] });
    let error = json!({ "error": { "code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE" } });
    let written = format!("{error:#}");
    let pieces = [format!("data: {piece}\r\n\r\n"), written.clone()];
    let stage = Stage::answering(ScriptedAnswer::pieces(200, pieces));
    let response = stage.ask(&gemini(stage.streaming()), &streaming()).await.expect("as far as it goes");
    assert_eq!((response.message.content.as_text().as_str(), response.finish_reason), ("I am", FinishReason::Error));
    assert_eq!(response.raw["error"], error["error"]);

    let stage = Stage::answering(ScriptedAnswer::pieces(200, [written]));
    let refused = stage.ask(&gemini(stage.streaming()), &streaming()).await.expect_err("nothing came");
    assert_eq!((refused.category, refused.may_be_paid), (Category::Unavailable, false), "{refused}");
    assert!(refused.message.contains("status 503: The model is overloaded."), "{refused}");
}

/// Who looks for the reason finds it.
#[tokio::test]
async fn what_stands_in_the_place_of_an_answer_is_quoted() {
    let moved = ScriptedAnswer::pieces(308, [""]).header("location", "https://elsewhere.example/v1/chat?key=1");
    for (answer, words) in [
        (
            ScriptedAnswer::json(200, &json!({ "detail": "Invalid API key" })),
            "`choices` is no list; it says: Invalid API key",
        ),
        (ScriptedAnswer::pieces(200, ["<html>Sign in</html>"]), "<html>Sign in</html>"),
        (moved, "308: it leads to https://elsewhere.example/v1/chat, which is not followed; check the base URL"),
    ] {
        for stream in [false, true] {
            let request = CompletionRequest { stream, ..hello() };
            let stage = Stage::answering(answer.clone());
            let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("no answer");
            assert!(refused.message.contains(words), "{refused}");
        }
    }
}

/// What an event is called does not make it one.
#[tokio::test]
async fn a_piece_that_is_no_object_is_malformed_whatever_it_is_called() {
    let provider = |stage: &Stage| -> [Box<dyn ModelProvider>; 4] {
        [
            Box::new(openai(stage.setup())),
            Box::new(anthropic(stage.streaming())),
            Box::new(gemini(stage.streaming())),
            Box::new(responses(stage.setup())),
        ]
    };
    for name in
        ["message_start", "content_block_start", "message_delta", "response.completed", "response.output_item.done"]
    {
        for data in ["[]", "5", "\"done\""] {
            let piece = format!("event: {name}\ndata: {data}\n\n");
            let stage = Stage::default();
            for provider in provider(&stage) {
                stage.fetch.answer(ScriptedAnswer::pieces(200, [piece.clone()]));
                let refused = stage.ask(&*provider, &streaming()).await.expect_err("no answer");
                assert_eq!(refused.category, Category::InvalidResponse, "{name} {data}: {refused}");
            }
        }
    }
}

/// Networks for delivery compress pages of errors, whatever was asked for.
#[tokio::test]
async fn the_status_of_an_error_counts_whose_words_are_compressed() {
    for (status, category, words) in [
        (429, Category::RateLimit, "status 429: what it says is compressed (`content-encoding: gzip`)"),
        (401, Category::Authentication, "check the key"),
        (502, Category::Unavailable, "status 502"),
    ] {
        let zipped = ScriptedAnswer::pieces(status, [b"\x1f\x8b\x08".to_vec()]);
        let stage = Stage::answering(zipped.header("content-encoding", "gzip").header("retry-after", "7"));
        let refused = stage.ask(&openai(stage.setup()), &streaming()).await.expect_err("refused");
        assert_eq!((refused.category, refused.status), (category, Some(status)), "{refused}");
        assert!(refused.message.contains(words), "{refused}");
        assert_eq!(refused.retry_after, Some(Duration::from_secs(7)));
    }
}

#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_an_answer() {
    let answer = completion(json!({ "content": "Hi." }), "stop");
    let refusal = json!({ "error": { "message": "slow down" } });
    for stream in [false, true] {
        let request = CompletionRequest { stream, ..hello() };
        let stage = Stage::answering(ScriptedAnswer::pieces(200, [format!("\u{feff}{answer}")]));
        let response = stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
        assert_eq!(response.message.content.as_text(), "Hi.");
        let stage = Stage::answering(ScriptedAnswer::pieces(429, [format!("\u{feff}{refusal}")]));
        let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("refused");
        assert!(refused.message.contains("429: slow down;"), "{refused}");
    }
}

/// Servers that count in UTF-16 cut a letter beyond 16 bits in two.
#[tokio::test]
async fn a_letter_that_is_cut_between_two_pieces_is_whole() {
    let piece = |text: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#);
    let end = chunk(json!({}), json!("stop")).to_string();
    let events = [piece(r"I am \ud83d"), piece(""), piece(r"\ude00, well"), end];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let response = stage.ask(&openai(stage.setup()), &streaming()).await.expect("an answer");
    assert_eq!(response.message.content.as_text(), "I am 😀, well");
    assert_eq!(stage.heard(), ["I am ", "😀, well"]);
}
