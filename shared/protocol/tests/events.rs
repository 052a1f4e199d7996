//! Content of events, and content that they never carry.

use dormouse_protocol::event::{Event, EventKind, EventPlace, redact};
use dormouse_protocol::id::{ArtifactId, EventId, Identifier, MessageId, SessionId, TaskId, WorkspaceId};
use dormouse_protocol::lifecycle::StatusStep;
use dormouse_protocol::resource::{
    Artifact, ArtifactKind, Message, Part, PartVisibility, Role, Task, TaskInput, TaskMessageKind, TaskStatus,
};
use dormouse_protocol::{Draft, Envelope, Map};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn place(position: u64) -> EventPlace<'static> {
    EventPlace { stream: "session_1", position, sequence: position, at: NOW }
}

fn message(role: Role, parts: Vec<Part>) -> Message {
    Message {
        envelope: Envelope::new(MessageId::new("message_1"), NOW),
        session_id: Some(SessionId::new("session_1")),
        task_id: Some(TaskId::new("task_1")),
        role,
        parts,
    }
}

fn task(status: TaskStatus) -> Task {
    let place = (WorkspaceId::new("workspace_1"), SessionId::new("session_1"));
    let input = TaskInput::Payload(Map::new());
    Task { status, ..Task::submitted(TaskId::new("task_1"), place, input, "ada", NOW) }
}

#[test]
fn names_are_their_own_and_none_is_lost() {
    for kind in EventKind::NAMED {
        assert_eq!(EventKind::from(kind.as_str()), *kind);
        let (actor, what) = kind.as_str().split_once('.').expect("a dotted name");
        assert!([actor, what].iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')), "{kind}");
    }
    assert_eq!(EventKind::NAMED.len(), 58);
    let foreign = EventKind::from("vendor.dormouse.nap");
    assert_eq!(foreign, EventKind::Other("vendor.dormouse.nap".to_owned()));
    assert_eq!(serde_json::to_value(foreign).expect("a word"), "vendor.dormouse.nap");
}

#[test]
fn an_event_knows_its_place() {
    let first = Draft::task_submitted(&task(TaskStatus::Submitted)).by("ada", Some("key")).at(place(1));
    assert_eq!(first.envelope.id, EventId::at("session_1", 1));
    assert_eq!((first.sequence, &first.previous_event_id, first.replayed), (1, &None, false));
    assert_eq!((first.actor.as_deref(), first.idempotency_key.as_deref()), (Some("ada"), Some("key")));
    assert_eq!(first.resource, TaskId::new("task_1").pointer());
    assert_eq!((first.session_id, first.task_id), (Some(SessionId::new("session_1")), Some(TaskId::new("task_1"))));
    let second = Draft::cancel_requested(&task(TaskStatus::Working), Some("too slow")).at(place(2));
    assert_eq!(second.previous_event_id, Some(EventId::at("session_1", 1)));
    assert_eq!(second.payload["reason"], "too slow");
}

#[test]
fn a_transition_tells_from_where_to_where() {
    let mut working = task(TaskStatus::Working);
    let StatusStep::Moves(kind) = working.advance(TaskStatus::InputRequired, NOW, None) else {
        panic!("the task moves");
    };
    let more =
        Map::from_iter([("request".to_owned(), json!({"prompt": "Approve?", "callback_token": "t", "token": "t"}))]);
    let event = Draft::task_moved(kind, &working, TaskStatus::Working, more).at(place(3));
    assert_eq!(event.event, EventKind::TaskInputRequired);
    let expected = json!({
        "status": "INPUT_REQUIRED", "previous_status": "WORKING",
        "request": {"prompt": "Approve?", "callback_token": redact::MARK, "token": redact::MARK},
    });
    assert_eq!(Value::Object(event.payload), expected);
}

#[test]
fn messages_tell_who_spoke() {
    for (role, kind) in [
        (Role::User, EventKind::UserMessage),
        (Role::Assistant, EventKind::AgentMessage),
        (Role::Agent, EventKind::AgentMessage),
        (Role::System, EventKind::SessionMessageAppended),
        (Role::Tool, EventKind::SessionMessageAppended),
    ] {
        assert_eq!(*Draft::message_appended(&message(role, vec![])).kind(), kind);
    }
    for (sent, kind) in [
        (TaskMessageKind::Input, EventKind::UserInputSubmitted),
        (TaskMessageKind::ToolConfirmation, EventKind::UserToolConfirmation),
        (TaskMessageKind::Interrupt, EventKind::UserMessage),
    ] {
        assert_eq!(*Draft::task_message(sent, &message(Role::User, vec![])).kind(), kind);
    }
}

#[test]
fn where_an_artifact_is_stays_with_those_who_may_see_it() {
    let artifact = |visibility| Artifact {
        envelope: Envelope::new(ArtifactId::new("artifact_1"), NOW),
        kind: ArtifactKind::Log,
        mime_type: "text/plain".to_owned(),
        uri: Some("https://example.org/log".to_owned()),
        visibility,
        sha256: None,
        workspace_id: Some(WorkspaceId::new("workspace_1")),
        session_id: None,
        task_id: None,
        receipt_id: None,
    };
    let uri = |visibility| Draft::artifact_created(&artifact(visibility)).at(place(1)).payload.get("uri").cloned();
    assert_eq!(uri(PartVisibility::Public), Some(json!("https://example.org/log")));
    assert_eq!((uri(PartVisibility::Internal), uri(PartVisibility::ReceiptOnly)), (None, None));
}

/// A word that stands for something private wherever it turns up.
const CANARY: &str = "canary-7f3a9c51e2b84d06";

fn visibility() -> impl Strategy<Value = PartVisibility> {
    prop_oneof![Just(PartVisibility::Public), Just(PartVisibility::Internal), Just(PartVisibility::ReceiptOnly)]
}

/// JSON of any shape in which the canary stands at private places only.
fn private_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z ]{0,12}".prop_map(Value::from),
        Just(json!(format!("Authorization: Bearer {CANARY}"))),
        Just(json!(format!("see /callback/1?token={CANARY}&x=1"))),
        Just(json!({"type": "thinking", "thinking": CANARY, "signature": CANARY})),
        prop::sample::select(vec!["password", "API-Key", "reasoning_content", "client_secret", "callback_token"])
            .prop_map(|name| json!({name: {"deep": [CANARY]}})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (format!("f_{name}"), value)).collect()),
        ]
    })
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = (visibility(), private_json()).prop_map(|(visibility, value)| match visibility {
        PartVisibility::Public => Part::Json { value, visibility },
        PartVisibility::Internal | PartVisibility::ReceiptOnly => Part::Text { text: CANARY.to_owned(), visibility },
    });
    prop::collection::vec(part, 0..6)
}

fn told(event: &Event) -> String {
    serde_json::to_string(event).expect("JSON")
}

proptest! {
    #[test]
    fn nothing_private_enters_an_event(payload in private_json(), parts in parts()) {
        let resource = TaskId::new("task_1").pointer();
        let event = Draft::new(EventKind::TaskCompleted, resource, payload.clone()).at(place(1));
        prop_assert!(!told(&event).contains(CANARY), "{}", told(&event));
        let message = message(Role::Assistant, parts);
        let event = Draft::message_appended(&message).at(place(1));
        prop_assert!(!told(&event).contains(CANARY), "{}", told(&event));
        prop_assert_eq!(event.payload["parts"].as_array().map(Vec::len), Some(message.parts.len()));
        let more = Map::from_iter([("result".to_owned(), payload)]);
        let event = Draft::task_moved(EventKind::TaskCompleted, &task(TaskStatus::Completed), TaskStatus::Working, more);
        prop_assert!(!told(&event.clone().at(place(1))).contains(CANARY), "{event:?}");
    }
}
