//! Bodies: what is taken, what is refused, and with which words.

#![expect(clippy::unwrap_used, reason = "what a test expects to succeed")]

use dormouse_protocol::receipt::VerifyReceiptRequest;
use dormouse_protocol::replay::ReplayTaskRequest;
use dormouse_protocol::request::{
    Body, MAX_BODY_BYTES, MAX_FILE_BYTES, MAX_INITIAL_MESSAGES, OperationBody, read_message,
};
use dormouse_protocol::resource::{
    AppendMessageRequest, AppendTaskMessageRequest, CreateSessionRequest, Part, PermissionResponseRequest,
    RegisterArtifactRequest, SubmitInput, SubmitTaskRequest, TruncateSessionRequest, UpdateSessionRequest,
    UpdateWorkspaceRequest, WriteWorkspaceFileRequest,
};
use dormouse_protocol::{ErrorCode, Operation, ProtocolError};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn body(value: &Value) -> Body {
    Body::read(Operation::SubmitTask, Some("application/json"), value.to_string().as_bytes()).unwrap()
}

fn decode<T: OperationBody + DeserializeOwned>(value: Value) -> T {
    body(&value).decode().unwrap()
}

fn refused<T: OperationBody + DeserializeOwned + std::fmt::Debug>(value: Value) -> (String, String) {
    let refusal = body(&value).decode::<T>().expect_err("a refusal");
    assert_eq!((refusal.code(), refusal.status()), (ErrorCode::InvalidRequest, 400));
    (refusal.param().unwrap_or_default().to_owned(), refusal.message().to_owned())
}

#[test]
fn a_task_takes_a_message_or_an_object() {
    let message: SubmitTaskRequest =
        decode(json!({"input": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}}));
    let SubmitInput::Message(message) = message.input else { panic!("a message") };
    assert_eq!(message.parts, [Part::text("hello")], "a part without visibility is public");
    let payload: SubmitTaskRequest = decode(json!({"input": {"amount_cents": 12_000}}));
    assert!(matches!(payload.input, SubmitInput::Payload(fields) if fields["amount_cents"] == 12_000));
}

#[test]
fn refusals_name_the_field() {
    let (param, message) = refused::<SubmitTaskRequest>(json!({"session_id": "s"}));
    assert_eq!((param.as_str(), message.as_str()), ("input", "missing required field"));
    let (param, message) = refused::<SubmitTaskRequest>(json!({"input": 5}));
    assert_eq!((param.as_str(), message.as_str()), ("input", "expected a message or an object"));
    let (param, message) = refused::<AppendMessageRequest>(json!({"message": {"role": "boss", "parts": []}}));
    assert_eq!(param, "message.role");
    assert_eq!(message, "expected one of `user`, `assistant`, `system`, `tool`, `agent`");
    let (param, message) = refused::<VerifyReceiptRequest>(json!({"at_time": "x"}));
    assert_eq!((param.as_str(), message.matches("expected").count()), ("at_time", 1), "{message}");
    let (param, _) = refused::<AppendMessageRequest>(json!({"message": {"role": "user"}}));
    assert_eq!(param, "message.parts");
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text"}]);
    let (param, _) = refused::<AppendMessageRequest>(json!({"message": {"role": "user", "parts": parts}}));
    assert_eq!(param, "message.parts[1].text");
    let message = json!({"role": "user", "parts": []});
    let beside = json!({"kind": "input", "message": message, "metadata": {"pause": 1}});
    let (param, message) = refused::<AppendTaskMessageRequest>(beside);
    assert_eq!(param, "metadata");
    assert_eq!(message, "it belongs into `message`: send it as `message.metadata`");
    let (param, message) = refused::<RegisterArtifactRequest>(
        json!({"kind": "log", "mime_type": "a/b", "visibility": "public", "sha256": "x"}),
    );
    assert_eq!((param.as_str(), message.as_str()), ("sha256", "expected 64 hexadecimal digits"));
}

#[test]
fn refusals_speak_of_json_and_of_no_type_of_the_server() {
    let message = |parts: Value| refused::<AppendMessageRequest>(json!({"message": {"role": "user", "parts": parts}}));
    let whole = refused::<AppendMessageRequest>(json!({"message": "hello"}));
    let overrides = json!({"mode": "with_overrides", "override": {"llm:main:1": "hello"}});
    let row = json!(["user", [{"type": "text", "text": "hello"}], {}]);
    for ((param, told), place, expected) in [
        (whole, "message", "expected an object with `role` and `parts`"),
        (message(json!(["hello"])), "message.parts[0]", "expected an object with a `type`"),
        (message(json!("hello")), "message.parts", "expected an array"),
        (refused::<AppendMessageRequest>(json!({"message": row})), "message", "expected an object"),
        (refused::<SubmitTaskRequest>(json!({"input": row})), "input", "expected an object"),
        (refused::<ReplayTaskRequest>(overrides), "override.llm:main:1", "expected an object"),
        (refused::<ReplayTaskRequest>(json!({"mode": {}})), "mode", "expected a string"),
        (refused::<SubmitTaskRequest>(json!({"input": {"a": 1}, "metadata": []})), "metadata", "expected an object"),
    ] {
        assert_eq!((param.as_str(), told.as_str()), (place, expected));
    }
}

#[test]
fn refusals_do_not_repeat_what_the_client_sent() {
    let secret = "sk-ant-0123456789abcdef, expected nothing";
    for value in [
        json!({"input": secret}),
        json!({"input": {}, "session_id": {secret: secret}}),
        json!({"input": {}, "metadata": secret}),
    ] {
        let (_, message) = refused::<SubmitTaskRequest>(value);
        assert!(!message.contains("sk-ant"), "{message}");
    }
    let (_, message) = refused::<AppendMessageRequest>(json!({"message": {"role": secret, "parts": []}}));
    assert!(!message.contains("sk-ant"), "{message}");
}

#[test]
fn null_is_not_the_same_as_missing() {
    assert_eq!(refused::<SubmitTaskRequest>(json!({"input": {}, "session_id": null})).0, "session_id");
    assert_eq!(refused::<SubmitTaskRequest>(json!({"input": {}, "metadata": null})).0, "metadata");
    assert_eq!(refused::<UpdateWorkspaceRequest>(json!({"name": null})).0, "name");
    decode::<SubmitTaskRequest>(json!({"input": {}, "persona_id": null}));
    assert_eq!(decode::<UpdateSessionRequest>(json!({})).summary, None);
    assert_eq!(decode::<UpdateSessionRequest>(json!({"summary": null})).summary, Some(None));
    assert_eq!(decode::<UpdateSessionRequest>(json!({"summary": "x"})).summary, Some(Some("x".to_owned())));
}

#[test]
fn a_count_is_every_whole_number_from_0() {
    for (written, read) in [("0", 0), ("2", 2), ("2.0", 2), ("1e3", 1_000), ("18446744073709551616", u64::MAX)] {
        let bytes = format!("{{\"keep_first\": {written}}}");
        let body = Body::read(Operation::TruncateSession, None, bytes.as_bytes()).unwrap();
        assert_eq!(body.decode::<TruncateSessionRequest>().unwrap().keep_first, read, "{written}");
    }
    for wrong in [json!(-1), json!(1.5), json!("1"), json!(null)] {
        let (param, message) = refused::<TruncateSessionRequest>(json!({"keep_first": wrong}));
        assert_eq!(param, "keep_first", "{message}");
    }
}

#[test]
fn what_types_cannot_say_is_looked_at() {
    assert_eq!(refused::<ReplayTaskRequest>(json!({"mode": "from_checkpoint"})).0, "checkpoint_id");
    decode::<ReplayTaskRequest>(json!({"mode": "from_checkpoint", "checkpoint_event_id": "event_s_1"}));
    let same = json!({"mode": "from_checkpoint", "checkpoint_event_id": "event_s_1", "checkpoint_id": "event_s_1"});
    decode::<ReplayTaskRequest>(same.clone());
    let mut other = same;
    other["checkpoint_id"] = json!("event_s_2");
    assert_eq!(refused::<ReplayTaskRequest>(other).0, "checkpoint_id");
    for (mode, named) in [("exact", "checkpoint_id"), ("with_overrides", "checkpoint_event_id")] {
        let (param, told) = refused::<ReplayTaskRequest>(json!({"mode": mode, named: "event_s_1"}));
        assert!(param == named && told.contains("from_checkpoint"), "{param}: {told}");
    }
    assert_eq!(refused::<ReplayTaskRequest>(json!({"mode": null})).1, "expected a string");
    let overrides = json!({"time:start": {"kind": "time", "value": 1}});
    assert_eq!(refused::<ReplayTaskRequest>(json!({"override": overrides})).0, "override");
    assert_eq!(refused::<PermissionResponseRequest>(json!({"reason": "hm"})).0, "approved");
    let yes: PermissionResponseRequest = decode(json!({"outcome": "selected"}));
    assert_eq!(yes.is_approval(), Some(true));
    let messages = vec![json!({"role": "user", "parts": []}); MAX_INITIAL_MESSAGES + 1];
    let session = json!({"workspace_id": "w", "initial_messages": messages});
    assert_eq!(refused::<CreateSessionRequest>(session).0, "initial_messages");
}

#[test]
fn a_body_is_a_json_object_where_one_is_asked_for() {
    let read = |operation, content_type, bytes: &[u8]| {
        Body::read(operation, content_type, bytes).map_err(|refusal: ProtocolError| refusal.status())
    };
    let json = Some("application/json; charset=utf-8");
    assert!(read(Operation::SubmitTask, json, b"{}").is_ok());
    assert!(read(Operation::SubmitTask, Some("application/vnd.x+json"), b"{}").is_ok());
    assert_eq!(read(Operation::SubmitTask, Some("text/plain"), b"{}"), Err(415));
    for bad in [&b""[..], b" \n", b"[]", b"null", b"{", b"{\"a\": \xff}", b"{} {}"] {
        assert_eq!(read(Operation::SubmitTask, json, bad), Err(400), "{bad:?}");
    }
    let twice = br#"{"input": {"decision": "rejected", "decision": "approved"}}"#;
    let refusal = Body::read(Operation::SubmitTask, json, twice).unwrap_err();
    assert_eq!(refusal.status(), 400);
    assert!(refusal.message().starts_with("the name `decision` stands twice at line 1"), "{}", refusal.message());
    assert_eq!(read(Operation::SubmitTask, json, "[".repeat(200_000).as_bytes()), Err(400));
    assert_eq!(read(Operation::SubmitTask, json, &vec![b' '; MAX_BODY_BYTES + 1]), Err(413));
    let metadata = |value: &str| format!(r#"{{"metadata": {value}}}"#);
    let nested = |levels: usize| metadata(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert!(read(Operation::SubmitTask, json, nested(63).as_bytes()).is_ok());
    assert_eq!(read(Operation::SubmitTask, json, nested(64).as_bytes()), Err(400), "it could not be read again");
    let zeros = |count: usize| metadata(&format!("[{}0]", "0,".repeat(count - 1)));
    assert!(read(Operation::SubmitTask, json, zeros(49_997).as_bytes()).is_ok());
    assert_eq!(read(Operation::SubmitTask, json, zeros(49_999).as_bytes()), Err(413));
    // A body that may be missing, and one that nobody asked for.
    assert!(read(Operation::CancelTask, None, b"").is_ok());
    assert_eq!(read(Operation::CancelTask, json, b"3"), Err(400));
    assert!(read(Operation::CloseSession, Some("text/plain"), b"bye").is_ok());
}

#[test]
fn bodies_that_mean_the_same_have_the_same_hash() {
    let hash = |text: &str| Body::read(Operation::SubmitTask, None, text.as_bytes()).unwrap().hash();
    let one = hash(r#"{"a": 1, "b": {"c": [1, 2.5], "d": "\u0041"}}"#);
    assert_eq!(one, hash(r#"{"b":{"d":"A","c":[1.0,25e-1]},"a":1}"#));
    for other in [
        r#"{"a": 1, "b": {"c": [2.5, 1], "d": "A"}}"#,
        r#"{"a": "1", "b": {"c": [1, 2.5], "d": "A"}}"#,
        r#"{"a": 1, "b": {"c": [1, 2.5], "d": "A", "e": null}}"#,
        r#"{"a": 1}"#,
        "{}",
    ] {
        assert_ne!(one, hash(other), "{other}");
    }
    let missing = Body::read(Operation::CancelTask, None, b"").unwrap();
    assert_eq!(missing.hash(), hash("{}"), "no body where none is needed means an empty one");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let names = prop_oneof![
            any::<String>(),
            prop::sample::select(vec!["role", "parts", "type", "text", "visibility", "message", "input", "metadata"])
                .prop_map(str::to_owned),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..5).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_comes_is_taken_or_refused_in_plain_words(value in any_json()) {
        let bytes = value.to_string();
        match Body::read(Operation::SubmitTask, None, bytes.as_bytes()).and_then(Body::decode::<SubmitTaskRequest>) {
            Ok(request) => {
                let again: SubmitTaskRequest = serde_json::from_value(serde_json::to_value(&request).unwrap()).unwrap();
                prop_assert_eq!(again, request);
            }
            Err(refusal) => {
                prop_assert_eq!(refusal.status(), 400);
                prop_assert!(refusal.message().is_ascii() && !refusal.message().is_empty());
            }
        }
    }

    #[test]
    fn the_order_of_fields_does_not_change_a_hash(value in any_json()) {
        fn reversed(value: &Value) -> Value {
            match value {
                Value::Object(fields) => fields.iter().rev().map(|(name, value)| (name.clone(), reversed(value))).collect(),
                Value::Array(elements) => elements.iter().map(reversed).collect(),
                other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other.clone(),
            }
        }
        let body = |value: &Value| body(&json!({"value": value}));
        prop_assert_eq!(body(&value).hash(), body(&reversed(&value)).hash());
        prop_assert_ne!(body(&value).hash(), body(&json!([value])).hash());
    }
}

#[test]
fn a_field_that_is_not_there_is_refused_with_the_one_that_is_meant() {
    let message = || json!({ "role": "user", "parts": [{ "type": "text", "text": "hi" }], "metadata": { "any": 1 } });
    let (param, told) = refused::<SubmitTaskRequest>(json!({ "persona_idd": "persona_a", "input": message() }));
    assert!(param == "persona_idd" && told.contains("did you mean `persona_id`?"), "{param}: {told}");
    let mut wrong = message();
    wrong["metdata"] = json!({});
    let (param, told) = refused::<SubmitTaskRequest>(json!({ "input": wrong }));
    assert!(param == "input.metdata" && told.contains("did you mean `metadata`?"), "{param}: {told}");
    let (param, told) = refused::<SubmitTaskRequest>(json!({ "qqqqqq": 1, "input": message() }));
    assert!(param == "qqqqqq" && told.contains("there are `session_id`"), "{param}: {told}");
    let free = json!({ "input": { "anything": { "at": "all" } }, "metadata": { "mine": true } });
    assert!(body(&free).decode::<SubmitTaskRequest>().is_ok(), "payloads and metadata take any");
}

#[test]
fn a_slip_inside_a_message_is_named_with_the_word_that_is_meant() {
    let text = |part: Value| json!({ "role": "user", "parts": [part] });
    for (message, place, meant) in [
        (json!({ "role": "usr", "parts": [] }), "role", "user"),
        (json!({ "role": "user", "prts": [] }), "prts", "parts"),
        (text(json!({ "type": "txt", "text": "hi" })), "parts[0].type", "text"),
        (text(json!({ "type": "text", "text": "hi", "visibility": "publik" })), "parts[0].visibility", "public"),
        (text(json!({ "type": "text", "text": "hi", "visiblity": "internal" })), "parts[0].visiblity", "visibility"),
        (text(json!({ "type": "file_ref", "url": "a:b", "mime_type": "a/b" })), "parts[0].url", "uri"),
    ] {
        let refusal = read_message("input", message.as_object().unwrap()).expect_err("a slip");
        assert_eq!(refusal.param(), Some(format!("input.{place}").as_str()), "{refusal}");
        assert!(refusal.message().contains(&format!("did you mean `{meant}`?")), "{refusal}");
    }
    let private = text(json!({ "type": "text", "text": "hi", "visibility": "private" }));
    let (param, told) = refused::<AppendMessageRequest>(json!({ "message": private }));
    assert_eq!(param, "message.parts[0].visibility");
    assert_eq!(told, "expected one of `public`, `internal`, `receipt_only`");
    for (part, field, expected) in [
        (json!({ "type": "text", "text": 7 }), "text", "expected a string"),
        (json!({ "type": "text", "text": null }), "text", "expected a string"),
        (json!({ "type": "text", "text": "hi", "visibility": null }), "visibility", "expected one of `public`, "),
        (json!({ "type": "tool_call", "tool_call_id": "c", "name": "n", "input": [] }), "input", "expected an object"),
        (json!({ "type": "tool_result", "tool_call_id": "c", "output": 1, "status": true }), "status", "one of `ok`, "),
    ] {
        let (param, told) = refused::<AppendMessageRequest>(json!({ "message": text(part) }));
        assert_eq!(param, format!("message.parts[0].{field}"), "{told}");
        assert!(told.contains(expected), "{told}");
    }
    let missing = text(json!({ "type": "text" }));
    let refusal = read_message("input", missing.as_object().unwrap()).expect_err("no text");
    assert_eq!(refusal.param(), Some("input.parts[0].text"));
}

#[test]
fn the_first_messages_of_a_session_are_looked_at_as_any_other() {
    let session =
        |message: Value| json!({ "workspace_id": "w", "initial_messages": [{ "role": "user", "parts": [] }, message] });
    let text = |part: Value| json!({ "role": "user", "parts": [part] });
    for (message, place, meant) in [
        (json!({ "role": "user", "parts": [], "metdata": {} }), "metdata", "metadata"),
        (text(json!({ "type": "text", "text": "hi", "visiblity": "internal" })), "parts[0].visiblity", "visibility"),
        (text(json!({ "type": "txt", "text": "hi" })), "parts[0].type", "text"),
    ] {
        let (param, told) = refused::<CreateSessionRequest>(session(message));
        assert_eq!(param, format!("initial_messages[1].{place}"), "{told}");
        assert!(told.contains(&format!("did you mean `{meant}`?")), "{told}");
    }
}

#[test]
fn a_file_is_bounded_by_its_content_and_not_by_how_it_is_written() {
    let written = |content: &str| {
        let escaped: String = content.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        let bytes = format!("{{\"content\": \"{escaped}\"}}");
        let body = Body::read(Operation::WriteWorkspaceFile, None, bytes.as_bytes())?;
        body.decode::<WriteWorkspaceFileRequest>().map(|request| request.content.len())
    };
    assert_eq!(written(&"a".repeat(MAX_FILE_BYTES)).unwrap(), MAX_FILE_BYTES);
    assert_eq!(written(&"a".repeat(MAX_FILE_BYTES + 1)).expect_err("too long").status(), 413);
    let metadata = json!({ "content": "a".repeat(MAX_FILE_BYTES), "metadata": { "note": "b".repeat(20_000) } });
    let body = Body::read(Operation::WriteWorkspaceFile, None, metadata.to_string().as_bytes()).unwrap();
    assert_eq!(body.decode::<WriteWorkspaceFileRequest>().expect_err("too long").status(), 413);
}
