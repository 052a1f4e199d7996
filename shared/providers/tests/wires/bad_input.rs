//! What goes wrong on the way to a model and back, each as a clear error at the right place.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, Block, CallOptions, CompletionRequest, FinishReason, Message,
    ModelErrorCategory as Category, ModelProvider, RetryPolicy,
};
use dormouse_ports::{FetchError, FetchLimits, SecretError, Secrets};
use dormouse_providers::{ApiKey, openai, responses};
use dormouse_testkit::ScriptedAnswer;
use serde_json::{Value, json};

use crate::openai::completion;
use crate::stage::{Stage, hello, structured, sum};

#[tokio::test]
async fn refusals_of_the_provider_have_their_category_and_say_what_to_do() {
    let error = |message: &str, code: &str| json!({ "error": { "message": message, "code": code } });
    for (status, body, category, words) in [
        (401, error("Incorrect API key provided", "invalid_api_key"), Category::Authentication, "check the key"),
        (402, error("Insufficient Balance", ""), Category::Authentication, "needs money"),
        (400, error("Billing hard limit", "billing_hard_limit_reached"), Category::Authentication, "to spend more"),
        (400, error("Not in good standing", "Arrearage"), Category::Authentication, "needs money"),
        (429, error("It is suspended", "exceeded_current_quota_error"), Category::RateLimit, "needs money"),
        (403, error("no access", ""), Category::Authentication, "no access"),
        (
            403,
            json!({ "error": { "message": "Your input was flagged", "metadata": { "reasons": [], "flagged_input": "x" } } }),
            Category::InvalidRequest,
            "Your input was flagged",
        ),
        (404, error("The model `m-1` does not exist", "model_not_found"), Category::InvalidModel, "name of the model"),
        (404, error("It does not exist", "DeploymentNotFound"), Category::InvalidModel, "name of the model"),
        (404, error("No endpoints found for some/thing.", ""), Category::InvalidModel, "check the name of the model"),
        (404, json!("not found"), Category::InvalidRequest, "check the base URL"),
        (301, Value::Null, Category::InvalidRequest, "check the base URL"),
        (400, error("unknown field", "bad_request"), Category::InvalidRequest, "unknown field"),
        (400, error("maximum context length is 8192 tokens", ""), Category::InvalidRequest, "`/compact`"),
        (400, error("Please reduce it.", "context_length_exceeded"), Category::InvalidRequest, "`/compact`"),
        (413, error("Prompt is too long", ""), Category::InvalidRequest, "`metadata.context_window`"),
        (413, error("Request too large for model `m-1`: Limit 6000", ""), Category::InvalidRequest, "`/compact`"),
        (400, error("Your request exceeded model token limit: 8192", ""), Category::InvalidRequest, "`/compact`"),
        (400, error("Range of input length should be [1, 129024]", ""), Category::InvalidRequest, "`/compact`"),
        (400, error("Prompt exceeds max length", "1261"), Category::InvalidRequest, "`/compact`"),
        (
            422,
            json!({ "error": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", "error_type": "validation" }),
            Category::InvalidRequest,
            "`/compact`",
        ),
        (413, error("It exceeds the maximum size", "request_too_large"), Category::InvalidRequest, "`/compact`"),
        (413, json!("<html>Request Entity Too Large</html>"), Category::InvalidRequest, "`/compact`"),
        (400, error("Input Tokens Exceeded: Number of input tokens", ""), Category::InvalidRequest, "`/compact`"),
        (400, error("Too many input tokens. Max input tokens: 8192", ""), Category::InvalidRequest, "`/compact`"),
        (429, error("Request too large for m-1: Limit 30000", ""), Category::RateLimit, "Request too large"),
        (429, error("slow down", "rate_limit_exceeded"), Category::RateLimit, "slow down"),
        (498, error("no capacity", "capacity_exceeded"), Category::Unavailable, "no capacity"),
        (500, error("oops", ""), Category::Unavailable, "oops"),
        (500, error("It exceeds the available context size", ""), Category::InvalidRequest, "`/compact`"),
        (502, Value::Null, Category::Unavailable, "502"),
        (503, error("Loading model", "unavailable_error"), Category::ModelNotLoaded, "Loading model"),
        (503, error("The model is not ready yet", ""), Category::ModelNotLoaded, "not ready"),
        (503, error("try again", "model_not_ready"), Category::ModelNotLoaded, "try again"),
        (503, error("The model is being loaded", ""), Category::ModelNotLoaded, "being loaded"),
        (503, error("overloaded", ""), Category::Unavailable, "overloaded"),
        (408, Value::Null, Category::Unavailable, "408"),
        (425, Value::Null, Category::Unavailable, "425"),
        (499, error("The operation was cancelled.", ""), Category::Unavailable, "cancelled"),
        (418, Value::Null, Category::InvalidRequest, "418"),
    ] {
        let stage = Stage::answering(ScriptedAnswer::json(status, &body));
        let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("refused");
        assert_eq!((refused.category, refused.status), (category, Some(status)), "{status} {body}: {refused}");
        assert!(refused.message.contains(words), "{refused}");
        let of_length = ["`/compact`", "`metadata.context_window`", "Request too large"];
        assert_eq!(refused.too_long, of_length.contains(&words), "{refused}");
        assert!(!format!("{refused:?}").contains("hush"), "a key in an error: {refused:?}");
    }
    let untold = json!({ "error": { "message": "The model is loaded with a context length of only 4096 tokens" } });
    let stage = Stage::answering(ScriptedAnswer::events([untold]));
    let request = CompletionRequest { stream: true, ..hello() };
    let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("refused");
    assert!(refused.too_long && refused.category == Category::InvalidRequest, "{refused}");
}

#[tokio::test]
async fn a_secret_that_a_provider_repeats_is_in_no_error() {
    let error = |words: &str| json!({ "error": { "message": words, "code": "invalid_api_key" } });
    for status in [401, 429, 400, 500] {
        let words = "Incorrect API key provided: hush-key-1 (hidden-in-url, header-value-9)";
        let stage = Stage::answering(ScriptedAnswer::json(status, &error(words)));
        let setup = stage.setup().key(ApiKey::known("hush-key-1".into()));
        let setup = setup.header("x-gate", "Token header-value-9").hiding("hidden-in-url");
        let refused = stage.ask(&openai(setup), &hello()).await.expect_err("refused");
        let told = format!("{refused:?}");
        assert!(
            ["hush-key-1", "hidden-in-url", "header-value-9"].iter().all(|secret| !told.contains(secret)),
            "{told}"
        );
        assert!(refused.message.contains("Incorrect API key provided: (secret) ((secret), (secret))"), "{refused}");
    }
    let page = Stage::answering(ScriptedAnswer::pieces(403, ["<html>no entry with hush-key-1</html>"]));
    let setup = page.setup().key(ApiKey::known("hush-key-1".into()));
    let refused = openai(setup).ready().await.expect_err("refused");
    assert!(refused.message.contains("no entry with (secret)"), "{refused}");
    let mut broken = completion(json!({ "content": "I am" }), "error");
    broken["error"] = json!({ "message": "the upstream refused hush-key-1" });
    let stage = Stage::json(broken);
    let setup = stage.setup().key(ApiKey::known("hush-key-1".into()));
    let answer = stage.ask(&openai(setup), &hello()).await.expect("an answer that failed on the way");
    assert_eq!(answer.raw["error"]["message"], "the upstream refused (secret)");
}

#[tokio::test]
async fn a_secret_that_a_job_repeats_is_in_no_error() {
    let failed =
        json!({ "id": "r", "status": "failed", "error": { "code": "server_error", "message": "with hush-key-1" } });
    let stage = Stage::json(failed);
    let provider = responses(stage.setup().key(ApiKey::known("hush-key-1".into())));
    let job = BackgroundJob { id: "r".to_owned() };
    let told = format!("{:?}", provider.poll(&job, &hello()).await);
    assert!(told.contains("with (secret)") && !told.contains("hush-key-1"), "{told}");
}

#[tokio::test]
async fn an_error_page_that_is_no_json_is_quoted_and_cut() {
    let page = format!("<html>{}</html>", "down ".repeat(1000));
    let stage = Stage::answering(ScriptedAnswer::pieces(503, [page]));
    let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("refused");
    assert_eq!(refused.category, Category::Unavailable);
    assert!(refused.message.contains("<html>down") && refused.message.len() < 700, "{refused}");
    assert_eq!(refused.raw, None);
}

#[tokio::test]
async fn the_time_to_wait_is_exposed_in_whichever_way_it_is_told() {
    for (name, value, wait) in [
        ("retry-after", "7", Some(Duration::from_secs(7))),
        ("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT", Some(Duration::from_secs(30))),
        ("retry-after-ms", "1500", Some(Duration::from_millis(1500))),
        ("retry-after-ms", "1500.5", Some(Duration::from_micros(1_500_500))),
        ("retry-after-ms", "-1", None),
        ("retry-after", "later", None),
        ("x-other", "7", None),
    ] {
        let stage = Stage::answering(ScriptedAnswer::json(429, &json!({})).header(name, value));
        let start = dormouse_ports::Clock::now(&*stage.clock);
        // Dates are told in absolute time.
        let value = value.to_owned();
        let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("refused");
        if value.contains("GMT") {
            let date = jiff::fmt::rfc2822::parse(&value).expect("a date").timestamp();
            let ahead = Duration::try_from(date.duration_since(start)).unwrap_or_default();
            assert_eq!(refused.retry_after, Some(ahead));
        } else {
            assert_eq!(refused.retry_after, wait, "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn answers_that_make_no_sense_are_malformed() {
    for body in [
        "",
        "{\"choices\": [",
        "<html>",
        "[]",
        "{}",
        r#"{"choices": {}}"#,
        r#"{"choices": []}"#,
        r#"{"choices": [{}]}"#,
        r#"{"choices": [{"message": "hi", "finish_reason": "stop"}]}"#,
        r#"{"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]}"#,
        r#"{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}"#,
        r#"{"choices": [{"message": {"tool_calls": {}}, "finish_reason": "stop"}]}"#,
        r#"{"choices": [{"message": {"tool_calls": [{"function": {"name": "add"}}]}, "finish_reason": "tool_calls"}]}"#,
    ] {
        let stage = Stage::answering(ScriptedAnswer::pieces(200, [body]));
        let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("malformed");
        assert_eq!(refused.category, Category::InvalidResponse, "{body}: {refused}");
    }
}

#[tokio::test]
async fn json_that_is_too_deep_or_too_large_is_not_read() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let stage = Stage::answering(ScriptedAnswer::pieces(200, [deep]));
    let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("too deep");
    assert_eq!(refused.category, Category::InvalidResponse);

    let stage = Stage::answering(ScriptedAnswer::pieces(200, vec![vec![b' '; 600]; 2]).silent());
    let limits = FetchLimits { most_bytes: 1000, ..FetchLimits::default() };
    let refused = stage.ask(&openai(stage.setup().limits(limits)), &hello()).await.expect_err("too large");
    assert_eq!(refused.category, Category::InvalidResponse);
    assert!(refused.message.contains("larger than 1000 bytes"), "{refused}");
    assert_eq!(stage.fetch.open(), 0, "the connection is closed");
}

#[tokio::test]
async fn without_a_connection_the_provider_is_unavailable() {
    for error in [
        FetchError::Dns("no such host".into()),
        FetchError::Connect("refused".into()),
        FetchError::Tls("unknown issuer".into()),
        FetchError::Timeout(Duration::from_secs(3)),
        FetchError::Closed("reset".into()),
    ] {
        let stage = Stage::default();
        stage.fetch.fail(error.clone());
        let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("unavailable");
        assert_eq!(refused.category, Category::Unavailable, "{error}");
        assert!(refused.is_transient() && refused.message.contains(&error.to_string()), "{refused}");
        // Who closes the connection in the place of an answer, as a server before the provider may, can have had one made.
        assert_eq!(refused.may_be_paid, matches!(error, FetchError::Timeout(_) | FetchError::Closed(_)), "{error}");
    }
}

#[tokio::test]
async fn the_limit_that_is_used_up_says_how_long_to_wait_where_nothing_else_does() {
    let told = |headers: &[(&str, &str)], status| {
        let answer = ScriptedAnswer::json(status, &json!({}));
        Stage::answering(headers.iter().fold(answer, |answer, (name, value)| answer.header(name, value)))
    };
    let [requests, tokens] = [("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")];
    let no_requests = ("x-ratelimit-remaining-requests", "0");
    let no_tokens = ("x-ratelimit-remaining-tokens", "0");
    for (headers, status, seconds) in [
        (&[requests, tokens, no_tokens][..], 429, Some(360)),
        (&[requests, tokens, no_requests], 429, Some(1)),
        (&[requests, tokens, no_requests, no_tokens], 429, Some(360)),
        (&[requests, tokens], 429, Some(1)),
        (&[tokens], 429, Some(360)),
        (&[tokens, no_tokens, ("retry-after", "7")], 429, Some(7)),
        (&[("x-ratelimit-reset-tokens", "40h"), no_tokens], 429, None),
        (&[tokens, no_tokens], 503, None),
    ] {
        let stage = told(headers, status);
        let refused = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("refused");
        assert_eq!(refused.retry_after, seconds.map(Duration::from_secs), "{headers:?} {status}");
    }
}

struct NoKey(SecretError);

#[async_trait::async_trait]
impl Secrets for NoKey {
    async fn resolve(&self, _: &str) -> Result<dormouse_ports::Secret, SecretError> {
        Err(self.0.clone())
    }
}

#[tokio::test]
async fn without_a_key_nothing_is_sent() {
    for (error, category) in [
        (SecretError::Missing("OPENAI_API_KEY".into()), Category::Authentication),
        (SecretError::Denied("OPENAI_API_KEY".into()), Category::Authentication),
        (SecretError::Unavailable("throttled".into()), Category::Unavailable),
    ] {
        let stage = Stage::default();
        let key = ApiKey::named(Arc::new(NoKey(error)), "OPENAI_API_KEY");
        let refused = stage.ask(&openai(stage.setup().key(key)), &hello()).await.expect_err("no key");
        assert_eq!((refused.category, stage.fetch.requests().len()), (category, 0), "{refused}");
    }
}

#[tokio::test]
async fn a_key_with_a_line_feed_is_told_to_be_one() {
    for key in ["hush\n", " hush", "hu\u{e4}sh", "hu\rsh"] {
        let stage = Stage::default();
        let setup = stage.setup().key(ApiKey::known(key.into()));
        let refused = stage.ask(&openai(setup), &hello()).await.expect_err("no key");
        assert_eq!((refused.category, stage.fetch.requests().len()), (Category::Authentication, 0), "{refused}");
        assert!(refused.message.contains("line feed") && !refused.message.contains("hu"), "{refused}");
    }
}

fn call(name: &str, arguments: &str) -> Value {
    let call = json!({ "id": "t-1", "type": "function", "function": { "name": name, "arguments": arguments } });
    json!({ "role": "assistant", "content": null, "tool_calls": [call] })
}

#[tokio::test]
async fn a_call_that_cannot_be_run_is_rejected_and_comes_with_the_complaint() {
    for (name, arguments, words) in [
        ("add", "{\"a\": 1, ", "cannot be read: they are no JSON"),
        ("add", "[1, 2]", "they are no JSON object"),
        ("add", r#"{"a": 1, "$serde_json::private::RawValue": "1"}"#, "cannot be read: names of JSON must not"),
        ("add", "{\"a\": 1}", "\"b\" is a required property"),
        ("add", "{\"a\": 1, \"b\": \"two\"}", "/b"),
        ("Add", "{\"a\": 1, \"b\": 2}", "called the tool `Add`, which does not exist; tools are `add`"),
        ("subtract", "{}", "`subtract`, which does not exist"),
    ] {
        let stage = Stage::json(completion(call(name, arguments), "tool_calls"));
        let refused = stage.ask(&openai(stage.setup()), &sum()).await.expect_err("rejected");
        assert_eq!(refused.category, Category::InvalidResponse, "{refused}");
        assert!(refused.message.contains(words), "{refused}");
        let rejected = refused.rejected.expect("the answer as far as it goes");
        assert_eq!((rejected.message.tool_calls[0].id.as_str(), rejected.usage.total_tokens), ("t-1", Some(12)));

        let degraded = Stage::json(completion(call(name, arguments), "error"));
        let response = degraded.ask(&openai(degraded.setup()), &sum()).await.expect("as it is");
        assert_eq!(response.finish_reason, FinishReason::Error);
        assert_eq!(response.message.tool_calls[0].name, name);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_answer() {
    let begun = json!({ "choices": [{ "index": 0, "delta": { "content": "I am" }, "finish_reason": null }] });
    let request = CompletionRequest { stream: true, ..hello() };
    let clean = ScriptedAnswer::events([&begun]);
    for cut in [clean.clone(), clean.broken(FetchError::Closed("reset".into()))] {
        let stage = Stage::answering(cut);
        let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("cut");
        assert_eq!(refused.category, Category::Unavailable, "{refused}");
        assert_eq!(stage.heard(), ["I am"], "what came was passed on");
    }
    // Wherever it is cut: between two events, in one, or in a letter.
    let next = json!({ "choices": [{ "index": 0, "delta": { "content": "ä" } }] });
    let whole = format!("data: {begun}\n\ndata: {next}");
    let letter = whole.find('ä').expect("a letter");
    for end in [whole.len() - 1, letter + 1, letter] {
        let stage = Stage::answering(ScriptedAnswer::pieces(200, [whole.as_bytes()[..end].to_vec()]));
        let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("cut");
        assert_eq!((refused.category, stage.heard()), (Category::Unavailable, vec!["I am".to_owned()]), "{refused}");
    }
    let garbage = ScriptedAnswer::events(["{\"choices\": ["]);
    let stage = Stage::answering(garbage);
    let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("garbage");
    assert_eq!(refused.category, Category::InvalidResponse);
}

/// Some servers answer in one piece, whatever they are asked for.
#[tokio::test]
async fn an_answer_that_is_not_streamed_is_read_whole() {
    let request = CompletionRequest { stream: true, ..hello() };
    let whole = completion(json!({ "role": "assistant", "content": "I am here" }), "stop");
    let stage = Stage::answering(ScriptedAnswer::json(200, &whole));
    let response = stage.ask(&openai(stage.setup()), &request).await.expect("an answer");
    assert_eq!((response.message.content, response.usage.prompt_tokens), ("I am here".into(), Some(9)));
    for (body, category) in [
        ("{\"choices\": [", Category::InvalidResponse),
        ("<html>a proxy</html>", Category::InvalidResponse),
        ("", Category::Unavailable),
        (": a comment, and then no more\n\n", Category::Unavailable),
        ("data: [DONE]\n\n", Category::Unavailable),
    ] {
        let stage = Stage::answering(ScriptedAnswer::pieces(200, [body.to_owned()]));
        let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("no answer");
        assert_eq!(refused.category, category, "{body:?}: {refused}");
    }
}

#[tokio::test]
async fn an_error_within_a_stream_ends_a_begun_answer_and_fails_one_that_has_not_begun() {
    let begun = json!({ "choices": [{ "index": 0, "delta": { "content": "I am" }, "finish_reason": null }] });
    let error = json!({ "error": { "message": "slow down", "type": "rate_limit_error" } });
    let request = CompletionRequest { stream: true, ..hello() };
    let stage = Stage::answering(ScriptedAnswer::events([&begun, &error]));
    let response = stage.ask(&openai(stage.setup()), &request).await.expect("as far as it goes");
    assert_eq!((response.finish_reason, response.message.content.as_text().as_str()), (FinishReason::Error, "I am"));
    assert_eq!(response.raw["error"]["message"], "slow down");

    let stage = Stage::answering(ScriptedAnswer::events([&error]));
    let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("nothing came");
    assert_eq!(refused.category, Category::RateLimit, "{refused}");
}

#[tokio::test]
async fn an_error_in_the_place_of_an_answer_is_told_as_what_it_is() {
    let error = |fields: Value| json!({ "error": fields });
    for streams in [false, true] {
        for (body, category, words) in [
            (error(json!({ "code": 502, "message": "no upstream" })), Category::Unavailable, "502: no upstream"),
            (error(json!({ "code": 429, "message": "slow down" })), Category::RateLimit, "slow down"),
            (error(json!({ "code": 400, "message": "bad input" })), Category::InvalidRequest, "bad input"),
            (error(json!("out of memory")), Category::Unavailable, "out of memory"),
            (error(Value::Null), Category::InvalidResponse, "malformed"),
        ] {
            let stage = Stage::json(body.clone());
            let request = CompletionRequest { stream: streams, ..hello() };
            let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("no answer");
            assert_eq!(refused.category, category, "{body}: {refused}");
            assert!(refused.message.contains(words), "{refused}");
            assert_eq!(refused.raw.as_deref(), Some(&body));
        }
    }
}

#[tokio::test]
async fn a_model_may_be_silent_for_as_long_as_an_attempt_may_take() {
    let whole = completion(json!({ "content": "I am here" }), "stop");
    let stage = Stage::json(whole.clone());
    let options = CallOptions { timeout: Some(Duration::from_secs(300)), ..CallOptions::default() };
    openai(stage.setup()).complete(&hello(), &options).await.expect("an answer");
    let asked = stage.fetch.requests().remove(0).limits;
    assert!(asked.total == Duration::from_secs(300) && asked.idle >= asked.total, "{asked:?}");

    let stage = Stage::json(json!({ "data": [{ "id": "m-1" }] }));
    openai(stage.setup()).ready().await.expect("ready");
    assert_eq!(stage.fetch.requests().remove(0).limits, FetchLimits::default(), "no model is asked");

    let short = FetchLimits { idle: Duration::from_secs(5), ..FetchLimits::default() };
    let stage = Stage::json(whole);
    stage.ask(&openai(stage.setup().limits(short)), &hello()).await.expect("an answer");
    assert_eq!(stage.fetch.requests().remove(0).limits, short, "as the caller says");
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let begun = json!({ "choices": [{ "index": 0, "delta": { "content": "I am" }, "finish_reason": null }] });
    let stage = Stage::answering(ScriptedAnswer::events([&begun]).silent());
    let provider = openai(stage.setup());
    let request = CompletionRequest { stream: true, ..hello() };
    let call = stage.ask(&provider, &request);
    tokio::select! {
        biased;
        ended = call => panic!("it cannot end: {ended:?}"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!((stage.heard(), stage.fetch.open()), (vec!["I am".to_owned()], 0));
}

#[tokio::test]
async fn a_request_that_is_malformed_is_not_sent() {
    let image = Block::Image {
        source: dormouse_ports::model::ImageSource::Inline { base64_data: "AAAA".into() },
        media_type: None,
        detail: None,
    };
    let mut no_object = sum();
    no_object.tools[0].parameters = json!({ "type": "array" });
    let mut no_schema = structured();
    no_schema.response_schema = Some(json!({ "type": "object", "properties": [] }));
    let mut not_a_number = hello();
    not_a_number.config.temperature = Some(f64::NAN);
    for (request, words) in [
        (CompletionRequest::new([]), "no message"),
        (CompletionRequest::new([Message::system("a")]), "the last message"),
        (CompletionRequest::new([Message::assistant("a"), Message::user("b")]), "must begin with"),
        (CompletionRequest::new([Message::user(vec![image])]), "media_type"),
        (CompletionRequest::new([Message::user(Vec::<Block>::new())]), "must not be empty"),
        (no_object, "tool `add`"),
        (no_schema, "response schema"),
        (not_a_number, "`temperature`"),
    ] {
        let stage = Stage::default();
        let refused = stage.ask(&openai(stage.setup()), &request).await.expect_err("malformed");
        assert_eq!((refused.category, stage.fetch.requests().len()), (Category::InvalidRequest, 0), "{refused}");
        assert!(refused.message.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn json_that_was_garbled_on_its_way_may_be_whole_the_next_time_and_a_page_is_a_page() {
    let (cut, page) = ("{\"choices\": [{\"mess", "<html>Welcome</html>");
    for streams in [false, true] {
        for (body, may_pass) in [(cut, true), ("{nothing}", true), (page, false)] {
            let pieces = ScriptedAnswer::pieces(200, [body.as_bytes().to_vec()]);
            let stage = Stage::answering(pieces.header("content-type", "application/json"));
            let request = CompletionRequest { stream: streams, ..hello() };
            let failed = stage.ask(&openai(stage.setup()), &request).await.expect_err("it is no answer");
            assert_eq!(failed.category, Category::InvalidResponse, "{body}: {failed}");
            assert_eq!(failed.may_pass.unwrap_or_default(), may_pass, "{body}: {failed}");
        }
    }
    let stage = Stage::answering(ScriptedAnswer::pieces(200, [""]));
    let lost = stage.ask(&openai(stage.setup()), &hello()).await.expect_err("nothing came");
    assert!(lost.is_transient() && lost.may_have_cost() && lost.message.contains("it is empty"), "{lost}");
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_nothing_else_and_one_request_is_under_way() {
    let stage = Stage::default();
    stage.fetch.answer(ScriptedAnswer::json(503, &json!({}))).fail(FetchError::Closed("reset".into()));
    stage.fetch.answer(ScriptedAnswer::json(200, &completion(json!({ "content": "Hi." }), "stop")));
    let provider = openai(stage.setup());
    let mut policy = RetryPolicy::new(Arc::new(|| 0.0));
    policy.backoff = Arc::new(|_, _| Duration::ZERO);
    let options = CallOptions { retry: Some(policy.clone()), ..CallOptions::default() };
    provider.complete(&hello(), &options).await.expect("the third attempt");
    assert_eq!((stage.fetch.requests().len(), stage.fetch.most_open()), (3, 1));

    for (status, attempts) in [(401, 1), (400, 1), (500, 3), (501, 1), (505, 1)] {
        let stage = Stage::default();
        for _ in 0..5 {
            stage.fetch.answer(ScriptedAnswer::json(status, &json!({})));
        }
        let options = CallOptions { retry: Some(policy.clone()), ..CallOptions::default() };
        openai(stage.setup()).complete(&hello(), &options).await.expect_err("it fails");
        assert_eq!(stage.fetch.requests().len(), attempts, "{status}");
    }
}
