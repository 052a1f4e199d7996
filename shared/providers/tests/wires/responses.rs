use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, Block, CompletionRequest, Content, FinishReason, Message,
    ModelErrorCategory as Category, StartedJob,
};
use dormouse_providers::{ApiKey, openai, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::openai::completion;
use crate::stage::{Stage, hello, structured, sum};

fn response(status: &str, output: Value) -> Value {
    json!({
        "id": "resp_1",
        "object": "response",
        "model": "m-1",
        "status": status,
        "output": output,
        "usage": { "input_tokens": 9, "output_tokens": 3, "total_tokens": 12,
            "input_tokens_details": { "cached_tokens": 4 } },
    })
}

fn says(text: &str) -> Value {
    json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] })
}

fn reasoning() -> Value {
    json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "add them" }] })
}

fn call() -> Value {
    json!({ "type": "function_call", "call_id": "t-1", "name": "add", "arguments": "{\"a\":1,\"b\":2}" })
}

#[tokio::test]
async fn reasoning_and_calls_come_back_and_go_back_as_they_came() {
    let stage = Stage::json(response("completed", json!([reasoning(), says("I will add."), call()])));
    let provider = responses(stage.setup());
    let mut request = sum();
    let answer = stage.ask(&provider, &request).await.expect("a call");
    assert_eq!((answer.finish_reason, answer.usage.cached_tokens), (FinishReason::ToolCalls, Some(4)));
    assert_eq!(answer.message.origin.as_deref(), Some("openai.responses"));
    assert_eq!(stage.sent()["instructions"], "Be brief.");
    assert_eq!(stage.sent()["tools"][0]["strict"], false);

    stage.fetch.answer(ScriptedAnswer::json(200, &response("completed", json!([says("3")]))));
    request.messages.extend([Message::Assistant(answer.message.clone()), Message::tool("t-1", "3")]);
    let last = stage.ask(&provider, &request).await.expect("an answer");
    assert_eq!(last.message.content, Content::from("3"));
    let sent = stage.fetch.bodies().remove(1);
    let result = json!({ "type": "function_call_output", "call_id": "t-1", "output": "3" });
    let text = json!({ "role": "assistant", "content": "I will add." });
    assert_eq!(sent["input"].as_array().map(|items| &items[1..]), Some(&[reasoning(), text, call(), result][..]));

    // Chat completions do not understand that reasoning.
    let chat = Stage::json(completion(json!({ "content": "3" }), "stop"));
    chat.ask(&openai(chat.setup()), &request).await.expect("an answer");
    assert_eq!(chat.sent()["messages"][2]["content"], "I will add.");
}

#[tokio::test]
async fn reasoning_goes_back_right_before_the_call_that_it_led_to() {
    let thought = |id: &str| json!({ "type": "reasoning", "id": id, "summary": [] });
    let call =
        |id: &str| json!({ "type": "function_call", "call_id": id, "name": "add", "arguments": "{\"a\":1,\"b\":2}" });
    let said = json!({ "role": "assistant", "content": "I add." });
    for (came, goes) in [
        (
            vec![thought("r1"), call("t-1"), thought("r2"), call("t-2")],
            vec![thought("r1"), call("t-1"), thought("r2"), call("t-2")],
        ),
        (vec![thought("r1"), call("t-1"), says("I add.")], vec![thought("r1"), call("t-1"), said.clone()]),
        (vec![call("t-1"), says("I add.")], vec![said.clone(), call("t-1")]),
    ] {
        let stage = Stage::json(response("completed", Value::from(came)));
        let provider = responses(stage.setup());
        let mut request = sum();
        let answer = stage.ask(&provider, &request).await.expect("calls").message;
        let results = answer.tool_calls.iter().map(|call| Message::tool(call.id.as_str(), "3")).collect::<Vec<_>>();
        let kept = json!(Message::Assistant(answer));
        request.messages.push(serde_json::from_value(kept).expect("as it is kept"));
        request.messages.extend(results);
        stage.fetch.answer(ScriptedAnswer::json(200, &response("completed", json!([says("3")]))));
        stage.ask(&provider, &request).await.expect("an answer");
        let sent = stage.fetch.bodies().remove(1);
        assert_eq!(sent["input"].as_array().map(|items| &items[1..=goes.len()]), Some(&goes[..]));
    }
}

#[tokio::test]
async fn where_the_provider_keeps_nothing_its_reasoning_is_asked_for_sealed() {
    let sealed = json!({ "type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "gAAA" });
    for (extras, thought, include, goes) in [
        (json!({ "store": false, "reasoning": {} }), &sealed, json!(["reasoning.encrypted_content"]), true),
        (
            json!({ "store": false, "include": ["a"], "reasoning": {} }),
            &sealed,
            json!(["reasoning.encrypted_content", "a"]),
            true,
        ),
        (json!({ "store": false }), &reasoning(), Value::Null, false),
        (json!({ "reasoning": {} }), &reasoning(), Value::Null, true),
    ] {
        let stage = Stage::json(response("completed", json!([thought, call()])));
        let provider = responses(stage.setup());
        let mut request = sum();
        request.config.extras = extras.as_object().cloned().expect("an object");
        let answer = stage.ask(&provider, &request).await.expect("a call");
        assert_eq!(stage.sent().get("include").cloned().unwrap_or_default(), include, "{extras}");
        request.messages.extend([Message::Assistant(answer.message), Message::tool("t-1", "3")]);
        stage.fetch.answer(ScriptedAnswer::json(200, &response("completed", json!([says("3")]))));
        stage.ask(&provider, &request).await.expect("an answer");
        let sent = stage.fetch.bodies().remove(1);
        assert_eq!(sent["input"].as_array().is_some_and(|items| items.contains(thought)), goes, "{extras}");
    }
}

/// It would go on, and be paid for, behind an empty answer.
#[tokio::test]
async fn what_is_made_in_the_background_is_not_waited_for() {
    let stage = Stage::json(response("queued", json!([])));
    let mut request = sum();
    request.config.extras.insert("background".to_owned(), json!(true));
    let refused = stage.ask(&responses(stage.setup()), &request).await.expect_err("nobody waits");
    assert_eq!((refused.category, stage.fetch.bodies().len()), (Category::InvalidRequest, 0));
    assert!(refused.message.contains("`start`"), "{refused}");
}

#[tokio::test]
async fn the_reason_to_end_is_the_callers_word() {
    let mut long = response("incomplete", json!([says("so")]));
    long["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let refusal = json!({ "type": "message", "content": [{ "type": "refusal", "refusal": "I will not." }] });
    for (body, finish) in [
        (response("completed", json!([says("so")])), FinishReason::Stop),
        (long, FinishReason::Length),
        (response("completed", json!([refusal])), FinishReason::ContentFilter),
        (response("failed", json!([says("so")])), FinishReason::Error),
    ] {
        let stage = Stage::json(body.clone());
        let answer = stage.ask(&responses(stage.setup()), &hello()).await.expect("an answer");
        assert_eq!(answer.finish_reason, finish, "{body}");
    }
}

#[tokio::test]
async fn a_stream_is_heard_and_ends_with_the_whole() {
    let whole = response("completed", json!([reasoning(), says("Hi there.")]));
    let events = [
        json!({ "type": "response.created", "response": {} }),
        json!({ "type": "response.reasoning_summary_text.delta", "delta": "add them" }),
        json!({ "type": "response.output_text.delta", "delta": "Hi " }),
        json!({ "type": "response.output_text.delta", "delta": "there." }),
        json!({ "type": "response.completed", "response": whole }),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let request = CompletionRequest { stream: true, ..hello() };
    let answer = stage.ask(&responses(stage.setup()), &request).await.expect("an answer");
    assert_eq!(stage.heard(), ["(add them)", "Hi ", "there."]);
    assert_eq!(answer.raw, whole);
    let thought = answer.message.content.blocks().and_then(|blocks| blocks.first()).cloned();
    assert!(matches!(thought, Some(Block::Thinking { text, signature: Some(_) }) if text == "add them"));

    let error = json!({ "type": "error", "code": "server_error", "message": "oops" });
    let stage = Stage::answering(ScriptedAnswer::events(events[..3].iter().chain([&error])));
    let answer = stage.ask(&responses(stage.setup()), &request).await.expect("as far as it goes");
    assert_eq!((answer.finish_reason, answer.message.content.as_text()), (FinishReason::Error, "Hi ".to_owned()));
    let cut = Stage::answering(ScriptedAnswer::events(&events[..3]));
    let refused = cut.ask(&responses(cut.setup()), &request).await.expect_err("cut");
    assert_eq!(refused.category, Category::Unavailable);
}

/// What was begun may be paid: it is no error of a provider that did nothing, which is asked again for a week.
#[tokio::test]
async fn a_stream_that_fails_behind_what_has_come_is_an_answer_as_far_as_it_goes() {
    let added =
        |place: u32, item: Value| json!({ "type": "response.output_item.added", "output_index": place, "item": item });
    let done =
        |place: u32, item: Value| json!({ "type": "response.output_item.done", "output_index": place, "item": item });
    let said = |text: &str| json!({ "type": "response.output_text.delta", "output_index": 1, "delta": text });
    let thought = || json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let begun_call = json!({ "type": "function_call", "call_id": "t-1", "name": "add", "arguments": "" });
    let error = json!({ "code": "server_error", "message": "oops" });
    let failed = json!({ "status": "failed", "output": [], "error": error, "usage": null });
    for end in [
        json!({ "type": "response.failed", "response": failed }),
        json!({ "type": "error", "code": "server_error", "message": "oops" }),
    ] {
        for (events, text, calls) in [
            (vec![added(0, thought())], "", 0),
            (vec![done(0, thought()), added(1, begun_call.clone())], "", 1),
            (vec![said("Hi "), said("th")], "Hi th", 0),
            (vec![said("Hi"), done(1, says("Hi")), said(" th")], "Hi th", 0),
        ] {
            let stage = Stage::answering(ScriptedAnswer::events(events.iter().chain([&end])));
            let request = CompletionRequest { stream: true, ..sum() };
            let answer = stage.ask(&responses(stage.setup()), &request).await.expect("as far as it goes");
            assert!(answer.has_failed() && answer.raw["error"]["message"] == "oops", "{answer:?}");
            assert_eq!(answer.message.content.as_text(), text);
            let made = &answer.message.tool_calls;
            assert_eq!(made.len(), calls);
            assert!(made.iter().all(|call| call.arguments.is_none()), "a call that was only begun has none: {made:?}");
        }
        let stage = Stage::answering(ScriptedAnswer::events([&end]));
        let request = CompletionRequest { stream: true, ..sum() };
        let refused = stage.ask(&responses(stage.setup()), &request).await.expect_err("nothing came");
        assert_eq!((refused.category, refused.may_be_paid), (Category::Unavailable, false), "{refused}");
    }
    // What was not said to be whole is no part of an answer that was completed.
    let bare = json!({ "type": "response.completed", "response": { "status": "completed", "output": [] } });
    let stage = Stage::answering(ScriptedAnswer::events([added(0, begun_call), said("Hi."), bare]));
    let request = CompletionRequest { stream: true, ..sum() };
    let answer = stage.ask(&responses(stage.setup()), &request).await.expect("an answer");
    assert_eq!((answer.message.content, answer.message.tool_calls.len()), (Content::from("Hi."), 0));
}

#[tokio::test]
async fn reasoning_that_a_server_shows_itself_is_in_the_answer_as_it_is_heard() {
    let shown = json!([{ "type": "reasoning_text", "text": "add them" }]);
    let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "content": shown });
    let whole = response("completed", json!([thought, says("3")]));
    let events = [
        json!({ "type": "response.reasoning_text.delta", "delta": "add them" }),
        json!({ "type": "response.output_text.delta", "delta": "3" }),
        json!({ "type": "response.completed", "response": whole }),
    ];
    let stage = Stage::answering(ScriptedAnswer::events(&events));
    let provider = responses(stage.setup());
    let mut request = CompletionRequest { stream: true, ..hello() };
    let answer = stage.ask(&provider, &request).await.expect("an answer");
    assert_eq!(stage.heard(), ["(add them)", "3"]);
    let first = answer.message.content.blocks().and_then(|blocks| blocks.first()).cloned();
    assert!(matches!(first, Some(Block::Thinking { text, .. }) if text == "add them"), "{answer:?}");

    request.messages.extend([Message::Assistant(answer.message), Message::user("And 4?")]);
    stage.fetch.answer(ScriptedAnswer::events(&events));
    stage.ask(&provider, &request).await.expect("an answer");
    assert_eq!(stage.fetch.bodies()[1]["input"][1], thought, "it goes back whole");
}

#[tokio::test]
async fn a_job_is_begun_asked_for_and_ended() {
    let stage = Stage::json(response("queued", json!([])));
    let provider = responses(stage.setup());
    let started = provider.start(&structured(), "run-1/1/model-1").await.expect("a job");
    assert_eq!(started, StartedJob::running("resp_1"));
    let job = started.job;
    let sent = stage.sent();
    assert_eq!((&sent["background"], &sent["store"]), (&json!(true), &json!(true)));

    for (body, status) in [
        (response("queued", json!([])), "running"),
        (response("in_progress", json!([])), "running"),
        (response("completed", json!([says("{\"value\":42}")])), "completed"),
        (response("completed", json!([says("42")])), "structured_output_invalid"),
        (response("cancelled", json!([])), "canceled"),
    ] {
        stage.fetch.answer(ScriptedAnswer::json(200, &body));
        let found = match provider.poll(&job, &structured()).await.expect("a status") {
            BackgroundStatus::Running => "running".to_owned(),
            BackgroundStatus::Completed(answer) => {
                assert_eq!(answer.parsed, Some(json!({ "value": 42 })));
                "completed".to_owned()
            }
            BackgroundStatus::Failed(error) => error.category.category().to_string(),
            BackgroundStatus::Canceled => "canceled".to_owned(),
        };
        assert_eq!(found, status, "{body}");
    }
    stage.fetch.answer(ScriptedAnswer::json(200, &response("cancelled", json!([]))));
    provider.cancel(&job).await.expect("acknowledged");
    let paths: Vec<_> = stage.fetch.requests().iter().map(|request| request.url.clone()).collect();
    assert!(paths[1].ends_with("/v1/responses/resp_1"), "{paths:?}");
    assert!(paths.last().is_some_and(|path| path.ends_with("/responses/resp_1/cancel")), "{paths:?}");
}

#[tokio::test]
async fn a_job_whose_reasoning_the_provider_has_forgotten_is_begun_without_it() {
    let stage = Stage::json(response("completed", json!([reasoning(), says("I will add."), call()])));
    let provider = responses(stage.setup());
    let mut request = sum();
    let answer = stage.ask(&provider, &request).await.expect("a call");
    request.messages.extend([Message::Assistant(answer.message), Message::tool("t-1", "3")]);
    let told = |words: &str| ScriptedAnswer::json(404, &json!({ "error": { "message": words } }));
    stage.fetch.answer(told("Item with id 'rs_1' not found."));
    stage.fetch.answer(ScriptedAnswer::json(200, &response("queued", json!([]))));
    let started = provider.start(&request, "run-1/2/model-1").await.expect("a job");
    assert_eq!(started, StartedJob::running("resp_1"));
    let sent = stage.fetch.bodies();
    let inputs = [&sent[1]["input"], &sent[2]["input"]].map(|items| items.as_array().cloned().unwrap_or_default());
    assert!(inputs[0].contains(&reasoning()) && !inputs[1].contains(&reasoning()), "{inputs:?}");
    assert!(inputs[1].contains(&call()), "{inputs:?}");
    let key = |at: usize| {
        let headers = stage.fetch.requests().remove(at).headers;
        let found = headers.into_iter().find(|(name, _)| name == "idempotency-key");
        found.map(|(_, value)| value.expose().to_owned())
    };
    assert_eq!(key(1).as_deref(), Some("run-1/2/model-1"));
    assert_eq!(key(2).as_deref(), Some("run-1/2/model-1-without-reasoning"), "another request has another key");

    stage.fetch.answer(told("not found"));
    provider.start(&request, "run-1/3/model-1").await.expect_err("refused");
    assert_eq!(stage.fetch.requests().len(), 4, "what is refused for another reason is not sent again");
}

#[tokio::test]
async fn a_conversation_whose_reasoning_the_provider_has_forgotten_goes_on_without_it() {
    for (status, code, words) in [
        (404, Value::Null, "Item with id 'rs_1' not found."),
        (400, json!("invalid_encrypted_content"), "The encrypted content could not be verified."),
    ] {
        let stage = Stage::json(response("completed", json!([reasoning(), says("I will add."), call()])));
        let provider = responses(stage.setup());
        let mut request = sum();
        let answer = stage.ask(&provider, &request).await.expect("a call");
        request.messages.extend([Message::Assistant(answer.message), Message::tool("t-1", "3")]);
        let told = json!({ "error": { "message": words, "code": code } });
        stage.fetch.answer(ScriptedAnswer::json(status, &told));
        stage.fetch.answer(ScriptedAnswer::json(200, &response("completed", json!([says("3")]))));
        let last = stage.ask(&provider, &request).await.expect("an answer");
        assert_eq!(last.message.content, Content::from("3"), "{words}");
        let sent = stage.fetch.bodies();
        let inputs = [&sent[1]["input"], &sent[2]["input"]].map(|items| items.as_array().cloned().unwrap_or_default());
        assert!(inputs[0].contains(&reasoning()) && !inputs[1].contains(&reasoning()), "{inputs:?}");
        assert!(inputs[1].contains(&call()), "{inputs:?}");

        stage.fetch.answer(ScriptedAnswer::json(status, &json!({ "error": { "message": "not found" } })));
        stage.ask(&provider, &request).await.expect_err("refused");
        assert_eq!(stage.fetch.requests().len(), 4, "what is refused for another reason is not sent again");
    }
}

#[tokio::test]
async fn a_job_that_has_ended_when_it_is_handed_over_is_not_asked_for() {
    let mut failed = response("failed", json!([]));
    failed["error"] = json!({ "code": "server_error", "message": "with hush-key-1" });
    for (body, expected) in [
        (response("completed", json!([says("{\"value\":42}")])), "answered"),
        (failed, "failed"),
        (response("cancelled", json!([])), "canceled"),
        (json!({ "id": "resp_1" }), "running"),
    ] {
        let stage = Stage::json(body);
        let provider = responses(stage.setup().key(ApiKey::known("hush-key-1".into())));
        let started = provider.start(&structured(), "run-1/1/model-1").await.expect("a job");
        let status = match started.status {
            BackgroundStatus::Completed(answer) if answer.parsed == Some(json!({ "value": 42 })) => "answered",
            BackgroundStatus::Failed(error) if error.message.contains("with (secret)") => "failed",
            BackgroundStatus::Canceled => "canceled",
            BackgroundStatus::Running => "running",
            other @ (BackgroundStatus::Completed(_) | BackgroundStatus::Failed(_)) => panic!("{other:?}"),
        };
        assert_eq!((status, started.job.id.as_str()), (expected, "resp_1"));
    }
}

#[tokio::test]
async fn a_job_that_failed_says_why() {
    for (code, category, is_transient) in [
        ("server_error", Category::Unavailable, true),
        ("rate_limit_exceeded", Category::RateLimit, true),
        ("insufficient_quota", Category::RateLimit, false),
        ("invalid_prompt", Category::InvalidRequest, false),
        ("context_length_exceeded", Category::InvalidRequest, false),
        ("invalid_image_format", Category::UnsupportedContentBlock, false),
    ] {
        let mut body = response("failed", json!([]));
        body["error"] = json!({ "code": code, "message": "oops" });
        let stage = Stage::json(body);
        let job = BackgroundJob { id: "resp_1".into() };
        let status = responses(stage.setup()).poll(&job, &hello()).await.expect("a status");
        let BackgroundStatus::Failed(error) = status else { panic!("{status:?}") };
        assert_eq!((error.category, error.is_transient()), (category, is_transient), "{code}");
        assert!(error.message.contains("oops"), "{error}");
        assert_eq!(error.message.contains("`/compact`"), code == "context_length_exceeded", "{error}");
        assert_eq!(error.too_long, code == "context_length_exceeded", "{error}");
    }
    let gone = Stage::answering(ScriptedAnswer::json(404, &json!({ "error": { "message": "no such response" } })));
    let refused = responses(gone.setup()).poll(&BackgroundJob { id: "a/b".into() }, &hello()).await.expect_err("gone");
    assert_eq!(refused.category, Category::InvalidRequest);
    assert!(gone.sent_to().ends_with("/responses/a%2Fb"), "an id is one segment");
}
