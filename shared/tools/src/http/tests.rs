use dormouse_ports::tool::{Callback, Effect, Pending, ToolContent, ToolOutput};
use dormouse_ports::{FetchError, FetchRequest, Map, Method, Secret, SignalId, Template};
use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
use futures::executor::block_on;
use serde_json::{Value, json};

use super::*;

fn template(text: &str) -> Template {
    Template::parse(text).expect("a template")
}

fn tool(method: Method, url: &str) -> HttpTool {
    HttpTool::new("orders", method, template(url)).expect("a tool")
}

fn arguments(value: Value) -> Map {
    let Value::Object(map) = value else { panic!("arguments are an object") };
    map
}

fn with_callback(mut call: ToolCall) -> ToolCall {
    let signal_id = SignalId::new("signal-1");
    call.callback = Some(Callback { url: "https://dormouse.example.com/answer?token=hush".to_owned(), signal_id });
    call
}

/// Makes a call of `tool` with `value`, gets `answer`, and gives what came of it and the request.
fn made(
    tool: HttpTool,
    call: &ToolCall,
    answer: Result<ScriptedAnswer, FetchError>,
) -> (Result<ToolReply, ToolError>, Option<FetchRequest>) {
    let fetch = ScriptedFetch::default();
    match answer {
        Ok(answer) => fetch.answer(answer),
        Err(error) => fetch.fail(error),
    };
    let values = Values::new(Arc::new(Secret::new("eu")), Arc::new(Secret::new("s3cret")));
    let source = HttpTools::new([tool], Arc::new(fetch.clone()), values);
    let reply = block_on(source.call(call));
    assert_eq!(fetch.open(), 0, "the connection is closed");
    (reply, fetch.requests().into_iter().next())
}

fn answered(answer: ScriptedAnswer) -> Result<ToolReply, ToolError> {
    made(tool(Method::Post, "http://h/x"), &ToolCall::new("1", "orders", Map::new()), Ok(answer)).0
}

fn header<'r>(request: &'r FetchRequest, name: &str) -> Option<&'r str> {
    request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose())
}

#[test]
fn a_post_carries_arguments_keys_and_secrets() {
    let tool = tool(Method::Post, "https://${env.ZONE}.example.com/v1/{customer}/orders");
    let tool = tool.header("Authorization", template("Bearer ${secrets.token}")).expect("a header");
    let call = ToolCall::new("call-1", "orders", arguments(json!({ "customer": "a/b", "items": [1, { "n": 2 }] })));
    let call = with_callback(ToolCall { idempotency_key: "run/1/0".to_owned(), ..call });
    let (_, request) = made(tool, &call, Ok(ScriptedAnswer::json(200, &json!({}))));
    let request = request.expect("a request");
    assert_eq!(request.url, "https://eu.example.com/v1/a%2Fb/orders");
    assert_eq!(call.effects.noted().hosts, ["eu.example.com"], "nothing else of the address");
    assert_eq!(header(&request, "authorization"), Some("Bearer s3cret"));
    assert_eq!(header(&request, "idempotency-key"), Some("run/1/0"));
    assert_eq!(header(&request, "dormouse-callback-url"), Some("https://dormouse.example.com/answer?token=hush"));
    assert_eq!(serde_json::from_slice::<Value>(&request.body).ok(), Some(json!({ "items": [1, { "n": 2 }] })));
}

#[test]
fn a_get_carries_arguments_in_its_query() {
    let sent = arguments(json!({ "q": "a&b", "tag": ["x", "y z"], "deep": { "n": 1 }, "none": null }));
    let call = ToolCall::new("1", "orders", sent);
    let (_, request) = made(tool(Method::Get, "http://h/x?v=1#f"), &call, Ok(ScriptedAnswer::json(200, &json!(1))));
    let request = request.expect("a request");
    assert_eq!(request.url, "http://h/x?v=1&q=a%26b&tag=x&tag=y%20z&deep=%7B%22n%22%3A1%7D#f");
    assert!(request.body.is_empty());
    assert_eq!(header(&request, "dormouse-callback-url"), None);
}

#[test]
fn a_secret_in_a_query_is_one_value() {
    let fetch = ScriptedFetch::default();
    fetch.answer(ScriptedAnswer::pieces(404, ["no page at /x?key=a%26b%3D1"]));
    let values = Values::new(Arc::new(Secret::new("eu")), Arc::new(Secret::new("a&b=1")));
    let source = HttpTools::new([tool(Method::Get, "http://h/x?key=${secrets.key}")], Arc::new(fetch.clone()), values);
    let reply = block_on(source.call(&ToolCall::new("1", "orders", arguments(json!({ "q": "z" })))));
    assert_eq!(fetch.requests()[0].url, "http://h/x?key=a%26b%3D1&q=z");
    let Ok(ToolReply::Done(output)) = reply else { panic!("shown") };
    assert_eq!(output.content, [ToolContent::text("The tool answered 404. no page at /x?key=[secret]")]);
}

#[test]
fn an_argument_is_never_a_reference() {
    let call = ToolCall::new("1", "orders", arguments(json!({ "id": "${secrets.token}" })));
    let (_, request) = made(tool(Method::Get, "http://h/{id}"), &call, Ok(ScriptedAnswer::json(200, &json!(1))));
    assert_eq!(request.expect("a request").url, "http://h/%24%7Bsecrets.token%7D");
}

#[test]
fn a_secret_that_is_missing_stops_the_call() {
    let fetch = ScriptedFetch::default();
    let tool = tool(Method::Post, "http://h").header("x-key", template("${secrets.key}")).expect("a header");
    let source = HttpTools::new([tool], Arc::new(fetch.clone()), Values::none());
    let error = block_on(source.call(&ToolCall::new("1", "orders", Map::new()))).expect_err("no secret");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Denied, false));
    assert!(error.message.contains("`key`") && fetch.requests().is_empty());
}

#[test]
fn what_it_answers_is_the_outcome() {
    let value = json!({ "id": 7 });
    assert_eq!(
        answered(ScriptedAnswer::json(201, &value).header("content-type", "application/problem+json; a=b")),
        Ok(ToolReply::Done(ToolOutput::value(value)))
    );
    assert_eq!(answered(ScriptedAnswer::pieces(200, ["hel", "lo"])), Ok(ToolReply::Done(ToolOutput::text("hello"))));
    let latin = ScriptedAnswer::pieces(200, [b"caf\xe9".to_vec()]);
    let latin = latin.header("content-type", "text/plain; Charset=\"ISO-8859-1\"");
    assert_eq!(answered(latin), Ok(ToolReply::Done(ToolOutput::text("café"))));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let deep = answered(ScriptedAnswer::pieces(200, [deep]).header("content-type", "application/json"));
    let Ok(ToolReply::Done(output)) = deep else { panic!("an outcome") };
    assert!(output.is_error && format!("{output:?}").contains("nested"));
    let kept = json!({ "id": 7, "lines": [{ "n": 1, "$serde_json::private::RawValue": "no JSON" }] });
    let kept = answered(ScriptedAnswer::json(200, &kept).header("content-type", "application/json"));
    let Ok(ToolReply::Done(output)) = kept else { panic!("an outcome") };
    assert!(output.is_error && format!("{output:?}").contains("names of JSON must not begin with"), "{output:?}");
    let image = answered(ScriptedAnswer::pieces(200, [vec![1, 2, 3]]).header("content-type", "image/png"));
    let Ok(ToolReply::Done(output)) = image else { panic!("an outcome") };
    assert_eq!(output.content, [ToolContent::Image { data: "AQID".to_owned(), media_type: "image/png".to_owned() }]);
    let Ok(ToolReply::Done(output)) = answered(ScriptedAnswer::pieces(204, [""])) else { panic!("an outcome") };
    assert!(!output.is_error && output.structured.is_none());
}

#[test]
fn what_is_taken_for_later_is_pending_where_somebody_can_wait() {
    let accepted = ScriptedAnswer::json(202, &json!({})).header("location", "/jobs/7");
    let call = with_callback(ToolCall::new("1", "orders", Map::new()));
    let (reply, _) = made(tool(Method::Post, "http://h"), &call, Ok(accepted.clone()));
    let pending = Pending { reference: Some("/jobs/7".to_owned()), ..Pending::default() };
    assert_eq!(reply, Ok(ToolReply::Pending(pending)));
    let error = answered(accepted).expect_err("nobody waits");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, true));
}

#[test]
fn what_comes_later_is_without_the_secrets_of_the_call_also_in_another_process() {
    let tool = tool(Method::Post, "http://h?key=${secrets.key}").header("x-key", template("${secrets.key}"));
    let values = Values::new(Arc::new(Secret::new("eu")), Arc::new(Secret::new("s3cret")));
    let source = HttpTools::new([tool.expect("a header")], Arc::new(ScriptedFetch::default()), values);
    let output = || ToolOutput::value(json!({ "you sent": "s3cret" }));
    assert_eq!(source.masked("1", output()), output(), "nothing was looked up");
    block_on(source.recall("another"));
    assert_eq!(source.masked("1", output()), output(), "nor for another tool");
    block_on(source.recall("orders"));
    assert_eq!(source.masked("1", output()), ToolOutput::value(json!({ "you sent": "[secret]" })));
}

#[test]
fn statuses_tell_model_operator_and_retry_apart() {
    for (status, kind, uncertain) in [
        (301, ToolErrorKind::Permanent, false),
        (401, ToolErrorKind::Denied, false),
        (403, ToolErrorKind::Denied, false),
        (408, ToolErrorKind::Transient, true),
        (429, ToolErrorKind::Transient, false),
        (500, ToolErrorKind::Transient, true),
        (503, ToolErrorKind::Transient, true),
    ] {
        let error = answered(ScriptedAnswer::pieces(status, ["why"])).expect_err("no outcome");
        assert_eq!((error.kind, error.uncertain), (kind, uncertain), "{status}");
    }
    let Ok(ToolReply::Done(output)) = answered(ScriptedAnswer::pieces(422, ["`n` is negative"])) else {
        panic!("shown")
    };
    assert!(output.is_error && output.content == [ToolContent::text("The tool answered 422. `n` is negative")]);
}

#[test]
fn a_request_without_an_answer_tells_if_it_may_have_happened() {
    let call = ToolCall::new("1", "orders", Map::new());
    for (error, kind, uncertain) in [
        (FetchError::Dns("h".to_owned()), ToolErrorKind::Transient, false),
        (FetchError::Connect("refused".to_owned()), ToolErrorKind::Transient, false),
        (FetchError::Denied("host".to_owned()), ToolErrorKind::Denied, false),
        (FetchError::Closed("reset".to_owned()), ToolErrorKind::Transient, true),
        (FetchError::Timeout(std::time::Duration::from_secs(1)), ToolErrorKind::TimedOut, true),
    ] {
        let (reply, _) = made(tool(Method::Post, "http://h"), &call, Err(error.clone()));
        let failed = reply.expect_err("no answer");
        assert_eq!((failed.kind, failed.uncertain), (kind, uncertain), "{error}");
    }
    let broken = ScriptedAnswer::pieces(200, ["{"]).broken(FetchError::Closed("reset".to_owned()));
    assert!(answered(broken).expect_err("cut off").uncertain);
}

#[test]
fn an_answer_that_is_too_large_is_told_to_the_model() {
    let call = ToolCall::new("1", "orders", Map::new());
    let large = ScriptedAnswer::pieces(200, ["x"]).broken(FetchError::TooLarge(10));
    let (reply, request) = made(tool(Method::Get, "http://h").most_bytes(10), &call, Ok(large));
    assert_eq!(request.map(|request| request.limits.most_bytes), Some(10));
    let Ok(ToolReply::Done(output)) = reply else { panic!("an outcome") };
    assert!(output.is_error && format!("{output:?}").contains("larger than the 10 bytes"));
}

#[test]
fn declarations_that_make_no_tool_are_refused() {
    assert!(HttpTool::new("two words", Method::Get, template("http://h")).is_err());
    assert!(HttpTool::new("host", Method::Get, template("http://{host}/")).is_err());
    assert!(tool(Method::Get, "http://h").header("Idempotency-Key", template("x")).is_err());
    assert!(tool(Method::Get, "http://h").header("a\nb", template("x")).is_err());
    assert!(tool(Method::Get, "http://h").input_schema(arguments(json!({ "type": "string" }))).is_err());
    assert_eq!(tool(Method::Get, "http://h").spec.effect, Effect::Safe);
    assert_eq!(tool(Method::Put, "http://h").spec.effect, Effect::Manual);
}

#[test]
fn nothing_secret_is_printed() {
    let source = HttpTools::new(
        [tool(Method::Get, "http://h").header("x-key", template("${secrets.key}")).expect("a header")],
        Arc::new(ScriptedFetch::default()),
        Values::new(Arc::new(Secret::new("hush")), Arc::new(Secret::new("hush"))),
    );
    let shown = format!("{source:?}");
    assert!(!shown.contains("hush") && shown.contains("${secrets.key}"), "{shown}");
}
