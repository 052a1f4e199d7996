//! What servers do that no text mentions: each is understood as it is meant, or said plainly.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::model::{
    AssistantMessage, CallOptions, CompletionRequest, Content, FinishReason, Message, ModelErrorCategory as Category,
    ModelProvider, Response, RetryPolicy, Tool, ToolCall, ToolChoice,
};
use dormouse_ports::{FetchLimits, Map};
use dormouse_providers::{ProviderSetup, anthropic, bedrock, gemini, openai, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::openai::completion;
use crate::stage::{Signer, Stage, hello, sum, with_most};

pub(crate) fn chunk(delta: Value, finish: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

/// The answer that those chunks make, in the stream and then in one piece.
async fn streamed(request: &CompletionRequest, chunks: &[Value]) -> (Response, Vec<String>) {
    let stage = Stage::answering(ScriptedAnswer::events(chunks.iter().map(Value::to_string)));
    let request = CompletionRequest { stream: true, ..request.clone() };
    let response = stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
    (response, stage.heard())
}

fn made(response: &Response) -> Vec<(String, String)> {
    let arguments = |call: &ToolCall| Value::from(call.arguments.clone().unwrap_or_default()).to_string();
    response.message.tool_calls.iter().map(|call| (call.id.clone(), arguments(call))).collect()
}

fn three() -> Vec<(Value, Value)> {
    let first = json!({ "name": "add", "arguments": "{\"a\":1,\"b\":2}" });
    let second = json!({ "name": "add", "arguments": "{\"a\":3,\"b\":4}" });
    vec![(json!("x"), first), (json!("y"), second)]
}

#[tokio::test]
async fn calls_that_share_an_index_are_told_apart_and_their_arguments_never_mixed() {
    let expected = [r#"{"a":1,"b":2}"#, r#"{"a":3,"b":4}"#];
    for index in [json!(0), Value::Null] {
        let pieces = |with_id: bool| -> Vec<Value> {
            let piece = |(id, function): (Value, Value)| {
                let mut piece = json!({ "function": function });
                if with_id {
                    piece["id"] = id;
                }
                if !index.is_null() {
                    piece["index"] = index.clone();
                }
                piece
            };
            three().into_iter().map(piece).collect()
        };
        for with_id in [true, false] {
            let mut chunks: Vec<_> =
                pieces(with_id).into_iter().map(|call| chunk(json!({ "tool_calls": [call] }), Value::Null)).collect();
            chunks.push(chunk(json!({}), json!("tool_calls")));
            let (response, _) = streamed(&sum(), &chunks).await;
            let made = made(&response);
            let arguments: Vec<_> = made.iter().map(|(_, arguments)| arguments.as_str()).collect();
            assert_eq!(arguments, expected, "{index} {with_id}");
            let ids: Vec<_> = made.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(ids, if with_id { ["x", "y"] } else { ["call-0", "call-1"] });
        }
    }

    // One without arguments, and one whose arguments come in pieces.
    let call = |piece: Value| chunk(json!({ "tool_calls": [piece] }), Value::Null);
    let chunks = [
        call(json!({ "index": 0, "id": "x", "function": { "name": "add", "arguments": "" } })),
        call(json!({ "index": 0, "id": "y", "function": { "name": "add", "arguments": "{\"a\":" } })),
        call(json!({ "index": 0, "function": { "arguments": "3,\"b\":4" } })),
        call(json!({ "index": 0, "id": "y", "function": { "name": "add", "arguments": "}" } })),
        call(json!({ "index": 0, "id": "x", "function": { "arguments": "{\"a\":1,\"b\":2}" } })),
        chunk(json!({}), json!("tool_calls")),
    ];
    let (response, _) = streamed(&sum(), &chunks).await;
    let both = [("x", expected[0]), ("y", expected[1])].map(|(id, arguments)| (id.to_owned(), arguments.to_owned()));
    assert_eq!(made(&response), both);
}

#[tokio::test]
async fn calls_that_a_server_gives_one_id_are_told_apart_and_one_that_is_told_twice_is_one() {
    let call = |piece: Value| chunk(json!({ "tool_calls": [piece] }), Value::Null);
    let told = |arguments: Value| call(json!({ "id": "x", "function": { "name": "add", "arguments": arguments } }));
    let end = || chunk(json!({}), json!("tool_calls"));
    let (first, second) = (r#"{"a":1,"b":2}"#, r#"{"a":3,"b":4}"#);
    let stage = Stage::answering(ScriptedAnswer::events([told(json!(first)), told(json!(second)), end()]));
    let request = CompletionRequest { stream: true, ..sum() };
    let error = stage.ask(&openai(stage.setup()), &request).await.expect_err("which is which is not known");
    assert!(error.message.contains("two calls of tools have the id `x`"), "{error}");
    let twice = [("x", first), ("x", second)].map(|(id, arguments)| (id.to_owned(), arguments.to_owned()));
    assert_eq!(made(&error.rejected.expect("the answer")), twice);

    let once = [("x".to_owned(), first.to_owned())];
    let (response, _) = streamed(&sum(), &[told(json!(first)), told(json!(first)), end()]).await;
    assert_eq!(made(&response), once);
    let (response, _) = streamed(&sum(), &[told(json!("{\"a\":1,")), told(json!("\"b\":2}")), end()]).await;
    assert_eq!(made(&response), once, "in pieces that each say it all");
    let (response, _) = streamed(&sum(), &[told(json!({ "a": 1, "b": 2 })), told(json!("")), end()]).await;
    assert_eq!(made(&response), once);
}

#[tokio::test]
async fn pieces_of_a_call_that_each_have_an_id_of_their_own_are_one_call() {
    let piece = |index: u32, id: &str, function: Value| {
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        chunk(json!({ "tool_calls": [call] }), Value::Null)
    };
    let chunks = [
        piece(0, "r-1", json!({ "name": "add", "arguments": "" })),
        piece(0, "r-2", json!({ "arguments": "{\"a\":1," })),
        piece(0, "r-3", json!({ "name": null, "arguments": "\"b\":2}" })),
        piece(1, "r-4", json!({ "name": "add" })),
        piece(1, "r-5", json!({ "name": "", "arguments": "{\"a\":3,\"b\":4}" })),
        chunk(json!({}), json!("tool_calls")),
    ];
    let (response, _) = streamed(&sum(), &chunks).await;
    let both = [("r-1", r#"{"a":1,"b":2}"#), ("r-4", r#"{"a":3,"b":4}"#)];
    assert_eq!(made(&response), both.map(|(id, arguments)| (id.to_owned(), arguments.to_owned())));
}

#[tokio::test]
async fn a_name_may_come_in_pieces_and_arguments_behind_an_object_of_nothing() {
    let piece = |call: Value| chunk(json!({ "tool_calls": [call] }), Value::Null);
    let (whole, end) = (r#"{"a":1,"b":2}"#, || chunk(json!({}), json!("tool_calls")));
    let named = |name: &str| piece(json!({ "index": 0, "function": { "name": name, "arguments": "" } }));
    let begun = |name: &str, arguments: &Value| {
        let function = json!({ "name": name, "arguments": arguments });
        piece(json!({ "index": 0, "id": "x", "type": "function", "function": function }))
    };
    let then = |arguments: &str| piece(json!({ "index": 0, "function": { "arguments": arguments } }));
    let once = [("x".to_owned(), whole.to_owned())];
    let chunks = [begun("ad", &json!("")), named("d"), named("add"), then("{\"a\":1,"), then("\"b\":2}"), end()];
    let (response, _) = streamed(&sum(), &chunks).await;
    assert_eq!(made(&response), once, "{response:?}");
    assert_eq!(response.message.tool_calls[0].name, "add");

    for nothing in [json!("{}"), json!({})] {
        let first = begun("add", &nothing);
        let (response, _) = streamed(&sum(), &[first, then("{\"a\":1,"), then("\"b\":2}"), end()]).await;
        assert_eq!(made(&response), once, "{nothing}");
    }
}

#[tokio::test]
async fn entries_of_anthropic_that_share_an_index_are_told_apart() {
    let start = |id: &str| {
        let entry = json!({ "type": "tool_use", "id": id, "name": "add", "input": {} });
        json!({ "type": "content_block_start", "index": 0, "content_block": entry })
    };
    let input = |text: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let stage = Stage::answering(ScriptedAnswer::events([
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 1 } } }),
        start("x"),
        input("{\"a\":1,\"b\":2}"),
        start("y"),
        input("{\"a\":3,\"b\":4}"),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 2 } }),
        json!({ "type": "message_stop" }),
    ]));
    let request = CompletionRequest { stream: true, ..with_most(sum()) };
    let response = stage.ask(&anthropic(stage.streaming()), &request).await.expect("calls");
    let made = made(&response);
    assert_eq!(made[0], ("x".to_owned(), r#"{"a":1,"b":2}"#.to_owned()));
    assert_eq!(made[1], ("y".to_owned(), r#"{"a":3,"b":4}"#.to_owned()));
}

/// A conversation that has calls with those ids already.
fn after(ids: &[&str]) -> CompletionRequest {
    let mut request = with_most(sum());
    let arguments = json!({ "a": 1, "b": 2 }).as_object().cloned().expect("an object");
    let tool_calls = ids.iter().map(|id| ToolCall::new(*id, "add", arguments.clone())).collect();
    request.messages.push(Message::Assistant(AssistantMessage { tool_calls, ..AssistantMessage::default() }));
    request.messages.extend(ids.iter().map(|id| Message::tool(*id, "3")));
    request
}

#[tokio::test]
async fn calls_without_an_id_get_one_that_no_other_call_of_the_conversation_has() {
    let input = json!({ "a": 1, "b": 2 });
    let function = json!({ "name": "add", "arguments": input.to_string() });
    for id in [Value::Null, json!("")] {
        let chat = Stage::json(completion(
            json!({ "tool_calls": [{ "id": id, "function": function }, { "id": id, "function": function }] }),
            "tool_calls",
        ));
        let tool_use = json!({ "type": "tool_use", "id": id, "name": "add", "input": input });
        let messages = Stage::json(json!({ "content": [tool_use, tool_use], "stop_reason": "tool_use" }));
        let tool_use = json!({ "toolUse": { "toolUseId": id, "name": "add", "input": input } });
        let message = json!({ "content": [tool_use, tool_use] });
        let converse = Stage::json(json!({ "output": { "message": message }, "stopReason": "tool_use" }));
        let call = json!({ "functionCall": { "id": id, "name": "add", "args": input } });
        let content = json!({ "parts": [call, call] });
        let generate = Stage::json(json!({ "candidates": [{ "content": content, "finishReason": "STOP" }] }));
        let item = json!({ "type": "function_call", "call_id": id, "name": "add", "arguments": input.to_string() });
        let respond = Stage::json(json!({ "status": "completed", "output": [item, item] }));
        let providers: [(&Stage, Box<dyn ModelProvider>); 5] = [
            (&chat, Box::new(openai(chat.setup()))),
            (&messages, Box::new(anthropic(messages.setup()))),
            (&converse, Box::new(bedrock(converse.setup(), "eu-central-1", Arc::new(Signer)))),
            (&generate, Box::new(gemini(generate.setup()))),
            (&respond, Box::new(responses(respond.setup()))),
        ];
        for (stage, provider) in &providers {
            let response = stage.ask(&**provider, &after(&["call-1"])).await.expect("calls");
            let ids: Vec<_> = response.message.tool_calls.iter().map(|call| call.id.as_str()).collect();
            assert_eq!(ids, ["call-2", "call-3"], "{:?} {id}", provider.identity());
        }
    }
}

#[tokio::test]
async fn ids_that_a_wire_does_not_take_have_another_name_for_the_call_and_its_result() {
    let (long, dotted) = ("x".repeat(80), "functions.track:0");
    let request = after(&[dotted, &long, "plain-1", ""]);
    let text = json!([{ "type": "text", "text": "ok" }]);
    let stage = Stage::json(json!({ "content": text, "stop_reason": "end_turn" }));
    stage.ask(&anthropic(stage.setup()), &request).await.expect("an answer");
    let sent = stage.sent();
    let ids = |list: &Value, name: &str| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.filter_map(|entry| entry.pointer(name).and_then(Value::as_str)).map(str::to_owned).collect()
    };
    let called = ids(&sent["messages"][1]["content"], "/id");
    assert_eq!(called, ids(&sent["messages"][2]["content"], "/tool_use_id"));
    assert_eq!((called[1].as_str(), called[2].as_str()), (long.as_str(), "plain-1"), "these are taken");
    assert!(called[0].starts_with("call_") && called[3].starts_with("call_"), "{called:?}");
    let no_tools = CompletionRequest { tools: Vec::new(), ..request.clone() };
    let stage = Stage::json(json!({ "content": text, "stop_reason": "end_turn" }));
    stage.ask(&anthropic(stage.setup()), &no_tools).await.expect("an answer");
    assert_eq!(stage.sent()["tools"][0]["name"], "add", "calls need a tool that they are of");

    let message = json!({ "content": [{ "text": "ok" }] });
    let stage = Stage::json(json!({ "output": { "message": message }, "stopReason": "end_turn" }));
    stage.ask(&bedrock(stage.setup(), "eu-central-1", Arc::new(Signer)), &no_tools).await.expect("an answer");
    let sent = stage.sent();
    let called = ids(&sent["messages"][1]["content"], "/toolUse/toolUseId");
    assert_eq!(called, ids(&sent["messages"][2]["content"], "/toolResult/toolUseId"));
    assert!(called.iter().all(|id| id.len() <= 64 && !id.contains(['.', ':'])), "{called:?}");
    assert_eq!(sent["toolConfig"]["tools"][0]["toolSpec"]["name"], "add", "calls need a tool that they are of");

    for (url, is_kept) in [(None, false), (Some("http://localhost:8000/v1"), true)] {
        let stage = Stage::json(completion(json!({ "content": "ok" }), "stop"));
        let setup = url.into_iter().fold(stage.setup(), ProviderSetup::base_url);
        stage.ask(&openai(setup), &request).await.expect("an answer");
        let sent = stage.sent();
        let calls = &sent["messages"][2]["tool_calls"];
        assert_eq!((&calls[0]["id"], calls[1]["id"] == json!(long)), (&json!(dotted), is_kept));
        assert_eq!(calls[1]["id"], sent["messages"][4]["tool_call_id"]);
    }
}

#[tokio::test]
async fn names_of_tools_that_do_not_exist_go_back_in_a_form_that_providers_take() {
    let long = "x".repeat(80);
    let names = ["functions.search", "web search!", "", &long, "größe", "add"];
    let mut request = with_most(sum());
    let tool_calls = names.iter().enumerate().map(|(at, name)| ToolCall::new(format!("c-{at}"), *name, Map::new()));
    let tool_calls = tool_calls.collect();
    request.messages.push(Message::Assistant(AssistantMessage { tool_calls, ..AssistantMessage::default() }));
    request.messages.extend((0..names.len()).map(|at| Message::tool(format!("c-{at}"), "there is no such tool")));
    let expected = ["functions_search", "web_search_", "unnamed", &long[..64], "gr__e", "add"];

    let chat = Stage::json(completion(json!({ "content": "ok" }), "stop"));
    let messages = Stage::json(json!({ "content": [{ "type": "text", "text": "ok" }], "stop_reason": "end_turn" }));
    let message = json!({ "content": [{ "text": "ok" }] });
    let converse = Stage::json(json!({ "output": { "message": message }, "stopReason": "end_turn" }));
    let content = json!({ "parts": [{ "text": "ok" }] });
    let generate = Stage::json(json!({ "candidates": [{ "content": content, "finishReason": "STOP" }] }));
    let item = json!({ "type": "message", "content": [{ "type": "output_text", "text": "ok" }] });
    let respond = Stage::json(json!({ "status": "completed", "output": [item] }));
    let wires: [(&Stage, Box<dyn ModelProvider>, &str, &str); 5] = [
        (&chat, Box::new(openai(chat.setup())), "/messages/2/tool_calls", "/function/name"),
        (&messages, Box::new(anthropic(messages.setup())), "/messages/1/content", "/name"),
        (
            &converse,
            Box::new(bedrock(converse.setup(), "eu-central-1", Arc::new(Signer))),
            "/messages/1/content",
            "/toolUse/name",
        ),
        (&generate, Box::new(gemini(generate.setup())), "/contents/1/parts", "/functionCall/name"),
        (&respond, Box::new(responses(respond.setup())), "/input", "/name"),
    ];
    for (stage, provider, list, name) in &wires {
        stage.ask(&**provider, &request).await.expect("an answer");
        let sent = stage.sent();
        let list = sent.pointer(list).and_then(Value::as_array).unwrap_or_else(|| panic!("{sent}"));
        let called: Vec<_> = list.iter().filter_map(|entry| entry.pointer(name).and_then(Value::as_str)).collect();
        assert_eq!(called, expected, "{:?}", provider.identity());
    }

    // What an author offers is sent as it is, for servers that take more.
    let stage = Stage::json(completion(json!({ "content": "ok" }), "stop"));
    request.tools[0].name = "functions.search".to_owned();
    stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
    assert_eq!(stage.sent().pointer("/messages/2/tool_calls/0/function/name"), Some(&json!("functions.search")));
}

#[tokio::test]
async fn a_streamed_call_without_a_name_is_one_of_a_tool_that_does_not_exist() {
    let call = json!({ "index": 0, "id": "x", "function": { "name": "", "arguments": "{}" } });
    let chunks = [chunk(json!({ "tool_calls": [call] }), Value::Null), chunk(json!({}), json!("tool_calls"))];
    let stage = Stage::answering(ScriptedAnswer::events(chunks));
    let request = CompletionRequest { stream: true, ..sum() };
    let error = stage.ask(&openai(stage.streaming()), &request).await.expect_err("no such tool");
    assert!(error.message.contains("the tool ``, which does not exist; tools are `add`"), "{error}");
    assert_eq!(error.rejected.expect("the answer").message.tool_calls[0].id, "x");
}

#[tokio::test]
async fn content_that_is_a_list_is_read_in_streams_and_in_one_piece() {
    let thought = json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] });
    let said = |text: &str| json!({ "type": "text", "text": text });
    let chunks = [
        chunk(json!({ "content": [thought] }), Value::Null),
        chunk(json!({ "content": [said("I"), said(" am")] }), Value::Null),
        chunk(json!({ "content": " here" }), json!("stop")),
    ];
    let (response, heard) = streamed(&hello(), &chunks).await;
    assert_eq!(
        (response.message.content.as_text().as_str(), heard.join("|").as_str()),
        ("I am here", "(hm)|I| am| here")
    );
    let stage = Stage::json(completion(json!({ "content": [thought, said("I am here")] }), "stop"));
    let whole = stage.ask(&openai(stage.setup()), &hello()).await.expect("an answer");
    assert_eq!(whole.message.content, response.message.content);
}

#[tokio::test]
async fn the_choice_of_index_0_is_the_answer_and_a_chunk_may_have_none() {
    let choices = json!([
        { "index": 1, "delta": { "content": "the other" }, "finish_reason": "stop" },
        { "index": 0, "delta": { "content": "the one" }, "finish_reason": "stop" },
    ]);
    let counters = json!({ "choices": null, "usage": { "prompt_tokens": 3, "completion_tokens": 2 } });
    let (response, heard) = streamed(&hello(), &[json!({ "choices": choices }), counters]).await;
    assert_eq!((response.message.content, heard), (Content::from("the one"), vec!["the one".to_owned()]));
    assert_eq!(response.usage.prompt_tokens, Some(3));
    let mut body = completion(json!({ "content": "the one" }), "stop");
    body["choices"] =
        json!([{ "index": 1, "message": { "content": "the other" }, "finish_reason": "stop" }, body["choices"][0]]);
    let stage = Stage::json(body);
    let whole = stage.ask(&openai(stage.setup()), &hello()).await.expect("an answer");
    assert_eq!(whole.message.content, Content::from("the one"));
}

#[tokio::test]
async fn a_reason_to_stop_that_nobody_knows_is_told_from_a_failure() {
    for (finish, reason, has_failed) in [
        ("eos", FinishReason::Error, false),
        ("error", FinishReason::Error, true),
        ("insufficient_system_resource", FinishReason::Error, true),
        ("abort", FinishReason::Error, true),
        ("length", FinishReason::Length, false),
        ("model_length", FinishReason::Length, false),
    ] {
        let stage = Stage::json(completion(json!({ "content": "I am" }), finish));
        let response = stage.ask(&openai(stage.setup()), &hello()).await.expect("an answer");
        assert_eq!((response.finish_reason, response.has_failed()), (reason, has_failed), "{finish}");
        assert_eq!(response.stop_word(), Some(finish));
    }
    let text = json!([{ "type": "text", "text": "I am" }]);
    let stage = Stage::json(json!({ "content": text, "stop_reason": "model_context_window_exceeded" }));
    let response = stage.ask(&anthropic(stage.setup()), &with_most(hello())).await.expect("an answer");
    assert_eq!(response.finish_reason, FinishReason::Length);
}

#[tokio::test]
async fn words_of_single_chat_servers_are_understood() {
    let mut request = hello();
    let parameters = json!({ "type": "object" });
    request.tools = vec![Tool { name: "now".into(), description: "Tells the time.".into(), parameters }];
    for arguments in [Value::Null, json!("null"), json!("")] {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "now", "arguments": arguments } });
        let stage = Stage::json(completion(json!({ "tool_calls": [call] }), "tool_calls"));
        let response = stage.ask(&openai(stage.setup()), &request).await.expect("a call");
        assert_eq!(made(&response), [("c".to_owned(), "{}".to_owned())], "{arguments}: no argument");
    }
    let thought = chunk(json!({ "reasoning_content": "", "reasoning": "hm" }), Value::Null);
    let (_, heard) = streamed(&hello(), &[thought, chunk(json!({ "content": "hi" }), json!("stop"))]).await;
    assert_eq!(heard, ["(hm)", "hi"]);
    let mut body = completion(json!({ "content": "hi" }), "stop");
    body["usage"] = json!({ "prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 4 });
    let stage = Stage::json(body);
    let response = stage.ask(&openai(stage.setup()), &hello()).await.expect("an answer");
    assert_eq!(response.usage.cached_tokens, Some(4));
}

#[tokio::test]
async fn what_is_wished_of_calls_is_not_sent_without_tools() {
    let mut request = with_most(hello());
    for choice in [ToolChoice::Auto, ToolChoice::None] {
        request.tool_choice = Some(choice);
        let chat = Stage::json(json!({}));
        let _ = chat.ask(&openai(chat.setup()), &request).await;
        let messages = Stage::json(json!({}));
        let _ = messages.ask(&anthropic(messages.setup()), &request).await;
        let generate = Stage::json(json!({}));
        let _ = generate.ask(&gemini(generate.setup()), &request).await;
        let sent = [chat.sent(), messages.sent(), generate.sent()];
        assert!(sent.iter().all(|body| body["tool_choice"].is_null() && body["toolConfig"].is_null()), "{sent:?}");
    }
}

/// Asks as an agent does, without waiting. Gives the number of requests, and the error if there is one.
async fn persistently(stage: &Stage, provider: &dyn ModelProvider, request: &CompletionRequest) -> (usize, String) {
    let mut policy = RetryPolicy::new(Arc::new(|| 0.0)).heeding_retry_after(Duration::from_secs(10));
    policy.backoff = Arc::new(|_, _| Duration::ZERO);
    let options = CallOptions { retry: Some(policy), ..CallOptions::default() };
    let error = provider.complete(request, &options).await.err().map(|error| error.to_string());
    (stage.fetch.requests().len(), error.unwrap_or_default())
}

#[tokio::test]
async fn conflicts_pass_money_does_not_and_a_garbled_stream_may_also_behind_its_first_words() {
    let quota = json!({ "error": { "message": "You exceeded your quota", "code": "insufficient_quota" } });
    let rate = json!({ "error": { "message": "slow down", "code": "rate_limit_exceeded" } });
    let large = "Request too large for m-1 on tokens per min (TPM): Limit 30000, Requested 41000.";
    let large = json!({ "error": { "message": large, "type": "tokens", "code": "rate_limit_exceeded" } });
    let unread = json!({ "error": { "message": "Failed to call a function.", "code": "tool_use_failed" } });
    for (answer, requests, words) in [
        (ScriptedAnswer::json(409, &json!({})), 3, "409"),
        (ScriptedAnswer::json(400, &unread), 3, "Failed to call a function."),
        (ScriptedAnswer::json(429, &rate), 3, "slow down"),
        (ScriptedAnswer::json(429, &large), 1, "raise the limit"),
        (ScriptedAnswer::json(429, &rate).header("retry-after", "11"), 1, "slow down"),
        (ScriptedAnswer::json(429, &quota), 1, "needs money"),
    ] {
        let stage = Stage::default();
        (0..3).for_each(|_| {
            stage.fetch.answer(answer.clone());
        });
        let (asked, error) = persistently(&stage, &openai(stage.setup()), &hello()).await;
        assert_eq!(asked, requests, "{error}");
        assert!(error.contains(words), "{error}");
    }

    let request = CompletionRequest { stream: true, ..with_most(hello()) };
    let said = chunk(json!({ "content": "I am" }), Value::Null).to_string();
    for events in [vec!["{\"choices\": [".to_owned()], vec![said, "{".to_owned()]] {
        let stage = Stage::default();
        (0..3).for_each(|_| {
            stage.fetch.answer(ScriptedAnswer::events(&events));
        });
        let (asked, error) = persistently(&stage, &openai(stage.setup()), &request).await;
        assert_eq!(asked, 3, "{error}");
        assert!(error.contains("a piece is no JSON"), "{error}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_messages_are_no_cut_stream() {
    let stage = Stage::answering(ScriptedAnswer::pieces(200, [b"\x1f\x8b\x08\x00 and more".to_vec()]));
    let request = CompletionRequest { stream: true, ..hello() };
    let refused = stage.ask(&bedrock(stage.setup(), "eu-central-1", Arc::new(Signer)), &request).await;
    let refused = refused.expect_err("no stream");
    assert_eq!(refused.category, Category::InvalidResponse);
    assert!(refused.message.contains("not made of messages"), "{refused}");
}

#[tokio::test]
async fn answers_are_asked_for_as_they_are_and_a_compressed_one_is_called_so() {
    let zipped = ScriptedAnswer::pieces(200, [b"\x1f\x8b\x08".to_vec()]).header("content-encoding", "gzip");
    let stage = Stage::answering(zipped);
    let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("compressed");
    assert!(refused.message.contains("compressed (`content-encoding: gzip`)"), "{refused}");
    assert_eq!(stage.sent_header("accept-encoding").as_deref(), Some("identity"));
}

#[tokio::test]
async fn the_query_of_an_address_comes_last() {
    let stage = Stage::json(completion(json!({ "content": "ok" }), "stop"));
    let setup = stage.setup().base_url("https://proxy.test/v1/?api-version=x");
    stage.ask(&openai(setup), &hello()).await.expect("an answer");
    assert_eq!(stage.sent_to(), "https://proxy.test/v1/chat/completions?api-version=x");

    let stage = Stage::answering(ScriptedAnswer::events([json!({ "candidates": [{
        "content": { "parts": [{ "text": "ok" }] },
        "finishReason": "STOP",
    }] })]));
    let setup = stage.streaming().base_url("https://proxy.test?key=x").limits(FetchLimits::default());
    let request = CompletionRequest { stream: true, ..hello() };
    stage.ask(&gemini(setup), &request).await.expect("an answer");
    assert_eq!(stage.sent_to(), "https://proxy.test/v1beta/models/m-1:streamGenerateContent?alt=sse&key=x");
}

#[tokio::test]
async fn a_call_in_the_form_before_tool_calls_is_read_where_it_stands_alone() {
    let call = |function: Value| json!({ "content": null, "function_call": function });
    let chunks = [
        chunk(call(json!({ "name": "add", "arguments": "" })), Value::Null),
        chunk(call(json!({ "arguments": "{\"a\":1," })), Value::Null),
        chunk(call(json!({ "arguments": "\"b\":2}" })), Value::Null),
        chunk(json!({}), json!("function_call")),
    ];
    let (in_pieces, _) = streamed(&sum(), &chunks).await;
    let arguments = r#"{"a":1,"b":2}"#;
    let older = json!({ "name": "add", "arguments": arguments });
    let both =
        json!({ "function_call": older, "tool_calls": [{ "id": "t-1", "type": "function", "function": older }] });
    let mut answers = vec![in_pieces];
    for message in [call(older.clone()), both] {
        let stage = Stage::json(completion(message, "function_call"));
        answers.push(stage.ask(&openai(stage.setup()), &sum()).await.expect("an answer"));
    }
    for answer in answers {
        let calls = &answer.message.tool_calls;
        assert_eq!((calls.len(), calls[0].name.as_str(), calls[0].id.is_empty()), (1, "add", false), "{calls:?}");
        assert_eq!(json!(calls[0].arguments), json!({ "a": 1, "b": 2 }));
        assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
    }
    let none = json!({ "content": "Hi.", "function_call": { "name": "", "arguments": "" } });
    let stage = Stage::json(completion(none, "stop"));
    let answer = stage.ask(&openai(stage.setup()), &sum()).await.expect("an answer");
    assert_eq!((answer.message.content.as_text().as_str(), answer.message.tool_calls.len()), ("Hi.", 0));
}

#[tokio::test]
async fn the_most_tokens_of_an_answer_have_another_name_at_openai_itself() {
    for (url, name) in [
        (None, "max_completion_tokens"),
        (Some("https://api.openai.com/v1"), "max_completion_tokens"),
        (Some("https://eu.api.openai.com/v1/"), "max_completion_tokens"),
        (Some("https://mine.openai.azure.com/openai/v1/"), "max_completion_tokens"),
        (Some("https://mine.openai.azure.com/openai/deployments/m-1?api-version=2024-06-01"), "max_tokens"),
        (Some("https://api.openai.com.proxy.test/v1"), "max_tokens"),
        (Some("http://localhost:8000"), "max_tokens"),
    ] {
        let stage = Stage::json(completion(json!({ "content": "ok" }), "stop"));
        let setup = url.into_iter().fold(stage.setup(), ProviderSetup::base_url);
        stage.ask(&openai(setup), &with_most(hello())).await.expect("an answer");
        let names = ["max_tokens", "max_completion_tokens"].map(|name| stage.sent().get(name).cloned());
        let expected = ["max_tokens", "max_completion_tokens"].map(|known| (known == name).then(|| json!(100)));
        assert_eq!(names, expected, "{url:?}");
    }
}

#[tokio::test]
async fn schemas_of_tools_go_to_gemini_in_the_field_that_takes_them() {
    let parts = json!([{ "text": "ok" }]);
    let answer = json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": "STOP" }] });
    let number = json!({ "type": "integer" });
    for (property, field) in [
        (number.clone(), "parameters"),
        (json!({ "anyOf": [number, { "type": "string", "enum": ["one"] }] }), "parameters"),
        (json!({ "type": ["integer", "null"] }), "parametersJsonSchema"),
        (json!({ "const": 1 }), "parametersJsonSchema"),
        (json!({ "type": "array", "items": { "oneOf": [number] } }), "parametersJsonSchema"),
        (json!({ "type": "integer", "exclusiveMinimum": 0 }), "parametersJsonSchema"),
    ] {
        let stage = Stage::json(answer.clone());
        let mut request = sum();
        request.tools[0].parameters["properties"]["a"] = property;
        stage.ask(&gemini(stage.setup()), &request).await.expect("an answer");
        let declared = &stage.sent()["tools"][0]["functionDeclarations"][0];
        let known = ["parameters", "parametersJsonSchema"].map(|name| declared.get(name).is_some());
        assert_eq!(known, [field == "parameters", field != "parameters"], "{declared}");
        assert_eq!(declared[field], request.tools[0].parameters);
    }
}

#[tokio::test]
async fn what_caches_had_is_a_part_of_the_request_that_is_billed() {
    let counters = json!({ "inputTokens": 9, "outputTokens": 3, "totalTokens": 12, "cacheReadInputTokens": 100,
        "cacheWriteInputTokens": 10 });
    let message = json!({ "content": [{ "text": "ok" }] });
    let stage = Stage::json(json!({ "output": { "message": message }, "stopReason": "end_turn", "usage": counters }));
    let provider = bedrock(stage.setup(), "eu-central-1", Arc::new(Signer));
    let usage = stage.ask(&provider, &hello()).await.expect("an answer").billed();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (Some(119), Some(3), Some(122)));

    let counters = json!({ "input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 10 });
    let text = json!([{ "type": "text", "text": "ok" }]);
    let stage = Stage::json(json!({ "content": text, "stop_reason": "end_turn", "usage": counters }));
    let response = stage.ask(&anthropic(stage.setup()), &with_most(hello())).await.expect("an answer");
    assert_eq!((response.usage.prompt_tokens, response.usage.cached_tokens), (Some(9), None), "as §8.2.2 has it");
    let billed = response.billed();
    assert_eq!((billed.prompt_tokens, billed.total_tokens, billed.cached_tokens), (Some(119), Some(122), Some(100)));
}
