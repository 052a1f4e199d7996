use super::*;

fn required(value: Value) -> InputRequiredResult {
    serde_json::from_value(value).expect("a result")
}

fn form(message: &str, field: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": { "type": "object", "properties": { field: { "type": "string" } }, "required": [field] },
    }})
}

fn asked(value: Value) -> InputRequest {
    match next(required(value)) {
        Ok(NextStep::End(request)) => request,
        other => panic!("a question, not {other:?}"),
    }
}

fn along(state: Value, content: Option<Value>) -> Along {
    let content = content.map(|content| content.as_object().cloned().expect("an object"));
    Along::from_answer(Some(&InputAnswer { content, state })).expect("an answer")
}

#[test]
fn one_question_is_asked_and_answered_as_it_is() {
    let request = asked(json!({
        "resultType": "input_required", "requestState": "s1",
        "inputRequests": { "name": form("Who are you?", "name"), "roots": { "method": "roots/list" } },
    }));
    assert_eq!((request.message.as_str(), &request.schema["required"]), ("Who are you?", &json!(["name"])));
    let back = along(request.state.clone(), Some(json!({ "name": "Ada" })));
    assert_eq!(back.request_state.as_deref(), Some("s1"));
    let responses = back.responses.expect("responses");
    assert_eq!(responses["name"], json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(responses["roots"], json!({ "roots": [] }));
    let declined = along(request.state, None).responses.expect("responses");
    assert_eq!(declined["name"], json!({ "action": "decline" }));
}

#[test]
fn several_questions_are_one_with_a_field_each() {
    let visit = json!({ "method": "elicitation/create", "params": {
        "mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "1",
    }});
    let request = asked(json!({
        "resultType": "input_required", "inputRequests": { "a": form("Who?", "name"), "b": visit },
    }));
    assert_eq!(request.message, "Who?\nSign in\nhttps://example.com/in");
    assert_eq!(request.schema["required"], json!(["a", "b"]));
    let responses = along(request.state, Some(json!({ "a": { "name": "Ada" }, "b": {} }))).responses;
    let responses = responses.expect("responses");
    assert_eq!(responses["a"], json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(responses["b"], json!({ "action": "accept" }));
}

#[test]
fn a_state_alone_goes_back_without_a_question() {
    let next = next(required(json!({ "resultType": "input_required", "requestState": "later" })));
    assert_eq!(next, Ok(NextStep::Again(Along { request_state: Some("later".to_owned()), ..Along::default() })));
}

#[test]
fn answers_in_the_midst_of_a_call_add_up() {
    let params = || serde_json::from_value::<ElicitRequestParams>(form("Who?", "name")["params"].clone());
    let who = || question(params().expect("params")).expect("a question");
    let first = in_call(who(), &[]);
    let once = along(first.state, Some(json!({ "name": "Ada" }))).in_call;
    let second = in_call(who(), &once);
    let twice = along(second.state, None).in_call;
    let accepted = json!({ "action": "accept", "content": { "name": "Ada" } });
    assert_eq!(twice, [accepted, json!({ "action": "decline" })]);
}

#[test]
fn fields_that_are_left_out_have_their_defaults() {
    let schema = json!({ "type": "object", "properties": {
        "name": { "type": "string", "default": "John" }, "age": { "type": "integer", "default": 30 },
        "town": { "type": "string" },
    }});
    let form = json!({ "method": "elicitation/create", "params": { "message": "?", "requestedSchema": schema } });
    let request = asked(json!({ "resultType": "input_required", "inputRequests": { "who": form } }));
    let responses = along(request.state, Some(json!({ "name": "Ada" }))).responses.expect("responses");
    assert_eq!(responses["who"]["content"], json!({ "name": "Ada", "age": 30 }));
}

#[test]
fn a_question_that_the_sdk_does_not_read_is_asked_as_it_is() {
    let schema = json!({ "type": "object", "properties": {
        "name": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
        "id": { "type": "string", "format": "uuid" },
    }});
    let params = json!({ "message": "Who?", "requestedSchema": schema });
    assert!(serde_json::from_value::<ElicitRequestParams>(params.clone()).is_err(), "it is asked in the usual way");
    let request = in_call(read(&params).expect("a question"), &[]);
    assert_eq!((request.message.as_str(), &request.schema["properties"]), ("Who?", &schema["properties"]));
    let answered = along(request.state, Some(json!({ "id": "1" }))).in_call;
    assert_eq!(answered, [json!({ "action": "accept", "content": { "id": "1", "name": null } })]);
    let result = json!({ "resultType": "input_required", "requestState": "s1", "inputRequests": {
        "who": { "method": "elicitation/create", "params": params }, "roots": { "method": "roots/list" },
    }});
    let Ok(Some(NextStep::End(request))) = next_read(&result) else { panic!("a question") };
    let back = along(request.state, None);
    assert_eq!(back.request_state.as_deref(), Some("s1"));
    assert_eq!(back.responses.expect("responses")["who"], json!({ "action": "decline" }));
    assert_eq!(next_read(&json!({ "text": "sunny" })), Ok(None));
}

#[test]
fn a_question_that_nobody_can_be_asked_is_refused_with_the_reason() {
    for (params, reason) in [
        (json!({}), "has a text as its `message`"),
        (json!({ "message": "Who?" }), "is an object"),
        (json!({ "message": "Who?", "requestedSchema": { "type": "array" } }), "where only `object` can be"),
        (json!({ "message": "Who?", "mode": "voice" }), "the mode `voice`"),
    ] {
        let error = read(&params).expect_err("no question");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn who_is_to_go_somewhere_first_is_asked_and_the_call_is_made_again_behind_that() {
    let place = json!({ "mode": "url", "elicitationId": "1", "url": "https://example.com/in", "message": "Sign in." });
    let refused = |code: i32, data: Value| ErrorData::new(ErrorCode(code), "More is needed.", Some(data));
    let data = json!({ "elicitations": [place, { "url": "https://example.com/pay" }] });
    let request = before_call(&refused(-32042, data.clone())).expect("a question");
    let told = "Sign in.\nhttps://example.com/in\nMore is needed.\nhttps://example.com/pay";
    assert_eq!((request.message.as_str(), &request.schema), (told, &nothing()));
    assert_eq!(along(request.state.clone(), Some(json!({}))), Along::default());
    let declined = InputAnswer { content: None, state: request.state };
    let error = Along::from_answer(Some(&declined)).expect_err("nobody went");
    assert!(!error.uncertain && error.message.contains("does not go to the address"), "{error}");
    assert_eq!(before_call(&refused(-32603, data)), None);
    assert_eq!(before_call(&refused(-32042, json!({ "elicitations": [] }))), None);
}

#[test]
fn an_answer_to_something_else_is_refused() {
    let answer = InputAnswer { content: None, state: json!([1]) };
    assert!(Along::from_answer(Some(&answer)).is_err());
}
