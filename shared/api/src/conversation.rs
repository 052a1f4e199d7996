//! Between messages of the protocol and those of a graph's conversation, which have the shape of a model's messages:
//! `{"role": "user", "content": "..."}`.

use dormouse_engine::CompiledGraph;
use dormouse_harness::chat::{ChatMessage, MESSAGES, converses};
use dormouse_json::Items;
use dormouse_ports::model::Block;
use dormouse_ports::{Commit, EntryKind, InvocationWrite, JournalEntry, Map, PastEntry, Said};
use dormouse_protocol::id::ArtifactId;
use dormouse_protocol::request::{nearest, read_message};
use dormouse_protocol::resource::{Message, MessageInput, Part, PartVisibility, Role, SubmitInput, ToolResultStatus};
use dormouse_protocol::{Identifier, ProtocolError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::change::is_small;

/// Field of a payload that asks an agent to make its conversation shorter, and to do nothing else.
const COMPACT: &str = "compact";

/// Field of a payload that asks an agent to run one action, and to do nothing else.
const ACTION: &str = "action";

/// Field of a graph with what the user says to one run alone: its session does not keep it.
const CONFIDED: &str = "confided";

/// Field of a graph whose images are kept beside its state.
const KEPT_IMAGES: &str = "image_bytes";

/// Field of the material of what a run has heard with the place of the newest message.
const UPTO: &str = "upto";

/// Field of the same with the number of messages before the first of them.
const BEHIND: &str = "behind";

/// Text that stands in a conversation for a message of which nothing is public.
const NOT_PUBLIC: &str = "(a message that is not public)";

/// The state that `graph` is given for `input`, behind what its agent has not heard yet.
///
/// A message goes to the conversation of the graph. A structured payload is the state itself; where the graph leads a
/// conversation and the payload names none of its fields, it is the user's message. What of a message is not public is
/// given to a graph that takes it apart for this one run; `{"compact": true}` and
/// `{"action": {"name": …}}` say nothing to it. A graph without a conversation
/// takes a message whose parts are JSON objects as a payload.
///
/// # Errors
/// `invalid_request` when the graph cannot begin with it.
pub(crate) fn first_state(
    graph: &CompiledGraph,
    input: &SubmitInput,
    undelivered_from: &[Message],
) -> Result<Map, ProtocolError> {
    if let SubmitInput::Payload(payload) = input
        && !payload.keys().any(|name| graph.schema().declares(name))
    {
        check_no_slip(graph, payload)?;
    }
    Ok(match (input, converses(graph)) {
        (SubmitInput::Payload(payload), true) if payload.is_empty() => {
            return Err(ProtocolError::invalid("input", "expected a message with `role` and `parts`, or a payload"));
        }
        (SubmitInput::Message(message), true) => match message.role {
            Role::User | Role::Tool if graph.schema().declares(CONFIDED) && is_confidential(&message.parts) => {
                let (open, confided): (Vec<&Part>, Vec<&Part>) =
                    message.parts.iter().partition(|part| part.visibility() == PartVisibility::Public);
                let mut message = ChatMessage::text("user", said_of(&open)).into_value();
                if shows_images(graph) {
                    show_images(&mut message, &open);
                }
                let mut state = said(graph, undelivered_from, [message]);
                state.insert(CONFIDED.to_owned(), joined_text(&confided).into());
                state
            }
            Role::User | Role::Tool => {
                let spoken = spoken(message.role, &message.parts, shows_images(graph))?;
                said(graph, undelivered_from, [spoken])
            }
            Role::Assistant | Role::System | Role::Agent => {
                return Err(ProtocolError::invalid("input.role", "a task begins with what somebody says: send `user`"));
            }
        },
        (SubmitInput::Payload(payload), true) if !payload.keys().any(|name| graph.schema().declares(name)) => {
            let text = Value::Object(payload.clone()).to_string();
            said(graph, undelivered_from, [ChatMessage::text("user", text).into_value()])
        }
        (SubmitInput::Payload(payload), true) if asks_for_no_answer(payload) => {
            let mut state = payload.clone();
            state.entry(MESSAGES).or_insert_with(|| Value::Array(Vec::new()));
            if !undelivered_from.is_empty() {
                state.extend(said(graph, undelivered_from, Vec::new()));
            }
            state
        }
        (SubmitInput::Payload(payload), true) => {
            let theirs = payload.get(MESSAGES).and_then(Value::as_array).filter(|messages| !messages.is_empty());
            let theirs = theirs.ok_or_else(|| says_nothing(payload))?;
            let invalid = |reason: String| ProtocolError::invalid("input.messages", reason);
            theirs.iter().try_for_each(|one| ChatMessage::unchecked(one.clone()).validate()).map_err(invalid)?;
            let mut state = payload.clone();
            state.extend(said(graph, undelivered_from, theirs.iter().cloned()));
            state
        }
        (SubmitInput::Payload(payload), false) => payload.clone(),
        (SubmitInput::Message(message), false) => payload_of(message).ok_or_else(|| {
            let message = format!("`{}` takes no text; send its fields as an object", graph.name());
            ProtocolError::invalid("input.parts", message)
        })?,
    })
}

/// Checks that `payload`, which names no field of `graph`, was not meant as a message or as something else that an agent is
/// asked for.
///
/// # Errors
/// `invalid_request` with the field that is wrong, and what may be meant.
fn check_no_slip(graph: &CompiledGraph, payload: &Map) -> Result<(), ProtocolError> {
    if is_like_message(payload) {
        return read_message("input", payload).map(drop);
    }
    for (name, value) in payload {
        let meant = match nearest(name, [COMPACT, ACTION].into_iter().filter(|name| graph.schema().declares(name))) {
            Some(meant) if (meant == ACTION && value.is_object()) || (meant == COMPACT && value.is_boolean()) => meant,
            Some(_) | None => continue,
        };
        let message = format!("there is no such field; did you mean `{meant}`?");
        return Err(ProtocolError::invalid(format!("input.{name}"), message));
    }
    Ok(())
}

/// True if `payload` has a field of a message, or at least half of its fields are like those of one in name and content.
fn is_like_message(payload: &Map) -> bool {
    const ROLES: [&str; 5] = ["user", "assistant", "system", "tool", "agent"];
    let is_like = |(name, value): (&String, &Value)| match (nearest(name, ["role", "parts"]), value) {
        (Some("role"), Value::String(word)) => nearest(word, ROLES).is_some(),
        (Some(_), Value::Array(parts)) => !parts.is_empty() && parts.iter().all(Value::is_object),
        (_, _) => false,
    };
    let alike = payload.iter().filter(|field| is_like(*field)).count();
    ["role", "parts"].iter().any(|name| payload.contains_key(*name)) || (alike > 0 && 2 * alike >= payload.len())
}

/// The refusal of a payload without messages: it names the field by which something else may have been asked for.
fn says_nothing(payload: &Map) -> ProtocolError {
    let wrong = |name: &str, message: &str| ProtocolError::invalid(format!("input.{name}"), message);
    match (payload.get(COMPACT), payload.get(ACTION)) {
        (Some(value), _) if !value.is_null() => {
            wrong(COMPACT, "expected `true`, which makes the conversation shorter, or leave it out and say something")
        }
        (_, Some(value)) if !value.is_null() => wrong(ACTION, "expected an object with the `name` of an action"),
        (_, _) => wrong(MESSAGES, "say something"),
    }
}

/// True if `payload` asks for something else than an answer to a message.
fn asks_for_no_answer(payload: &Map) -> bool {
    payload.get(COMPACT) == Some(&Value::Bool(true)) || payload.get(ACTION).is_some_and(Value::is_object)
}

/// What was `said`, as it joins the conversation of a run; with its images, where that `shows` them.
pub(crate) fn joining(said: &[Message], shows: bool) -> Vec<Value> {
    said.iter().filter_map(|message| spoken(message.role, &message.parts, shows).ok()).collect()
}

/// The kind of the entry of what a run has heard in its midst.
const HEARD: &str = "dormouse.heard";

/// The messages that joined the conversation of a run with what it has `heard`.
pub(crate) fn joined(heard: &[Said]) -> impl Iterator<Item = &Value> {
    heard.iter().filter_map(|said| said.update.get(MESSAGES)?.as_array()).flatten()
}

/// The messages in the outermost state of the run of `commit`, where that writes one.
fn messages_of(commit: &Commit) -> Option<Items<'_>> {
    let (InvocationWrite::Suspend { paused, .. }
    | InvocationWrite::Progress { paused, .. }
    | InvocationWrite::Complete { paused, .. }) = commit.invocation.as_ref()?
    else {
        return None;
    };
    match &commit.invocation {
        Some(InvocationWrite::Complete { state, .. }) => state.get(MESSAGES).and_then(Items::of),
        Some(_) | None => paused.outermost_items(MESSAGES),
    }
}

/// Number of messages that the run of `commit` has in its conversation, without what it has heard there.
fn length_unheard(commit: &Commit) -> Option<usize> {
    let messages = messages_of(commit)?;
    Some(messages.len().saturating_sub(joined(&commit.journal.hearing.heard).count()))
}

/// The entry of what the run of `commit` has heard in its midst, with the messages for replays where they are not too long;
/// `None` where that is nothing.
pub(crate) fn heard_entry(commit: &Commit) -> Option<JournalEntry> {
    let heard = &commit.journal.hearing.heard;
    let last = heard.last()?;
    let ids: Vec<&String> = heard.iter().flat_map(|said| &said.names).collect();
    let entry = JournalEntry::new(EntryKind::vendor(HEARD).ok()?).with("message_ids", json!(ids));
    let messages: Vec<&Value> = joined(heard).collect();
    let mut material = Map::from_iter([(MESSAGES.to_owned(), json!(messages)), (UPTO.to_owned(), last.upto.into())]);
    material.extend(length_unheard(commit).map(|length| (BEHIND.to_owned(), length.into())));
    Some(if is_small(&material) { JournalEntry { material, ..entry } } else { entry })
}

/// True for the recorded entry of what a run has heard in its midst.
pub(crate) fn tells_of_hearing(past: &PastEntry) -> bool {
    past.kind.strip_prefix("vendor.") == Some(HEARD)
}

/// True if the recorded entry `past` of what a run has heard may be of `commit`, by the messages that it had by then. Earlier
/// versions did not record how many.
pub(crate) fn may_hear_at(past: &PastEntry, commit: &Commit) -> bool {
    let behind = past.material.get(BEHIND).and_then(Value::as_u64);
    behind.is_none_or(|behind| length_unheard(commit).is_some_and(|length| length as u64 == behind))
}

/// What the recorded entry `past` of what a run has heard tells of it; `None` where the messages were too long to be kept.
pub(crate) fn heard_then(past: &PastEntry) -> Option<Said> {
    let names = past.payload.get("message_ids").and_then(|ids| Vec::deserialize(ids).ok()).unwrap_or_default();
    let upto = past.material.get(UPTO).and_then(Value::as_u64)?;
    let messages = past.material.get(MESSAGES)?.clone();
    Some(Said { names, upto, update: Map::from_iter([(MESSAGES.to_owned(), messages)]) })
}

fn said(graph: &CompiledGraph, undelivered_from: &[Message], last: impl IntoIterator<Item = Value>) -> Map {
    let before = joining(undelivered_from, shows_images(graph)).into_iter();
    Map::from_iter([(MESSAGES.to_owned(), before.chain(last).collect())])
}

/// The fields of all JSON objects among the parts of `message`, if there are any and no text.
pub(crate) fn payload_of(message: &MessageInput) -> Option<Map> {
    let mut payload = Map::new();
    for part in &message.parts {
        match part {
            Part::Json { value: Value::Object(fields), .. } => payload.extend(fields.clone()),
            Part::Text { text, .. } if text.trim().is_empty() => {}
            Part::Text { .. }
            | Part::Json { .. }
            | Part::ToolCall { .. }
            | Part::ToolResult { .. }
            | Part::ArtifactRef { .. }
            | Part::FileRef { .. }
            | Part::ImageRef { .. } => return None,
        }
    }
    (!payload.is_empty()).then_some(payload)
}

/// A message in the shape of a model's. Content that is not text becomes its JSON; an image stays one where the conversation
/// `shows` images.
///
/// # Errors
/// `invalid_request` when the message is empty.
fn spoken(role: Role, parts: &[Part], shows: bool) -> Result<Value, ProtocolError> {
    let role = match role {
        Role::User | Role::Tool => "user",
        Role::Assistant | Role::Agent => "assistant",
        Role::System => "system",
    };
    let text = parts.iter().map(text_of).collect::<Vec<_>>().join("\n");
    let message = ChatMessage::text(role, text);
    message.validate().map_err(|reason| ProtocolError::invalid("input.parts", reason))?;
    let mut message = message.into_value();
    if shows && role == "user" {
        show_images(&mut message, &parts.iter().collect::<Vec<_>>());
    }
    Ok(message)
}

/// True if what `graph` leads is a conversation whose images are read before its model is asked.
pub(crate) fn shows_images(graph: &CompiledGraph) -> bool {
    graph.schema().declares(KEPT_IMAGES)
}

/// Puts the images of `parts` into `message`, in the place of the words about them.
fn show_images(message: &mut Value, parts: &[&Part]) {
    let is_image = |part: &&Part| matches!(part, Part::ImageRef { .. });
    if !parts.iter().any(is_image) {
        return;
    }
    let mut blocks: Vec<Block> = Vec::new();
    for part in parts {
        match (part, blocks.last_mut()) {
            (Part::ImageRef { artifact_id, mime_type, .. }, _) => {
                blocks.push(Block::image_kept(mime_type.as_str(), artifact_id.as_str()));
            }
            (other, Some(Block::Text { text, .. })) => text.push_str(&format!("\n{}", text_of(other))),
            (other, _) => blocks.push(Block::text(text_of(other))),
        }
    }
    blocks.retain(|block| !matches!(block, Block::Text { text, .. } if text.is_empty()));
    message["content"] = json!(blocks);
}

/// True if a part of `parts` is not public.
pub(crate) fn is_confidential(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.visibility() != PartVisibility::Public)
}

/// The text that stands in a conversation for public parts of a message.
pub(crate) fn said_of(parts: &[&Part]) -> String {
    Some(joined_text(parts)).filter(|text| !text.is_empty()).unwrap_or_else(|| NOT_PUBLIC.to_owned())
}

fn joined_text(parts: &[&Part]) -> String {
    parts.iter().map(|part| text_of(part)).collect::<Vec<_>>().join("\n")
}

fn text_of(part: &Part) -> String {
    match part {
        Part::Text { text, .. } => text.clone(),
        Part::Json { value, .. } => value.to_string(),
        Part::ImageRef { .. } => format!("[an image, which cannot be shown to you: {}]", json!(part)),
        Part::ToolCall { .. } | Part::ToolResult { .. } | Part::ArtifactRef { .. } | Part::FileRef { .. } => {
            json!(part).to_string()
        }
    }
}

/// Content of a message of a graph's conversation that clients are shown: no reasoning, and of its pictures those that are
/// artifacts. `None` if that is nothing.
pub(crate) fn shown(message: &Value) -> Option<(Role, Vec<Part>)> {
    let role = match message.get("role").and_then(Value::as_str)? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "tool" => Role::Tool,
        _ => return None,
    };
    let text = |text: &str| (!text.is_empty()).then(|| Part::text(text));
    let content = message.get("content");
    let mut parts: Vec<Part> = match (role, content) {
        (Role::Tool, Some(output)) => vec![Part::ToolResult {
            tool_call_id: field(message, "tool_call_id"),
            output: output.clone(),
            status: match message.get("is_error") {
                Some(Value::Bool(true)) => ToolResultStatus::Error,
                Some(_) | None => ToolResultStatus::Ok,
            },
            visibility: PartVisibility::Public,
        }],
        (_, Some(Value::String(content))) => text(content).into_iter().collect(),
        (_, Some(Value::Array(blocks))) => {
            let part = |block: &Value| match block.get("type").and_then(Value::as_str)? {
                "text" => text(block.get("text")?.as_str()?),
                "image" => image_of(block),
                _ => None,
            };
            blocks.iter().filter_map(part).collect()
        }
        (_, _) => Vec::new(),
    };
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    parts.extend(calls.map(|call| Part::ToolCall {
        tool_call_id: field(call, "id"),
        name: field(call, "name"),
        input: call.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default(),
        visibility: PartVisibility::Public,
    }));
    (!parts.is_empty()).then_some((role, parts))
}

/// The image in `block`, if that is an artifact.
fn image_of(block: &Value) -> Option<Part> {
    let artifact_id = ArtifactId::from(block.pointer("/source/id")?.as_str()?);
    let mime_type = field(block, "media_type");
    let visibility = PartVisibility::Public;
    artifact_id.is_well_formed().then_some(Part::ImageRef { artifact_id, mime_type, visibility })
}

fn field(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use dormouse_engine::{END, Field, FieldType, GraphBuilder, Reducer, SessionPolicy, State, StateSchema, Update};

    use super::*;

    #[test]
    fn a_payload_that_says_nothing_is_refused_with_the_field_that_may_have_been_meant() {
        let messages = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
        let schema = StateSchema::new()
            .field(MESSAGES, messages)
            .field(COMPACT, Field::new(FieldType::Bool, false))
            .field(ACTION, Field::new(FieldType::Any, Value::Null));
        let graph = GraphBuilder::new("helper", schema)
            .sessions(SessionPolicy::projected([MESSAGES]))
            .entry("answer")
            .function("answer", |_: State| async { Ok(Update::none()) })
            .edge("answer", END);
        let graph = graph.compile().expect("a graph");
        for (payload, param) in [
            (json!({ "compact": "yes" }), "input.compact"),
            (json!({ "compact": false }), "input.compact"),
            (json!({ "action": "deploy" }), "input.action"),
            (json!({ "action": null }), "input.messages"),
            (json!({ "compat": true }), "input.compat"),
        ] {
            let Value::Object(fields) = payload.clone() else { panic!("an object") };
            let refusal = first_state(&graph, &SubmitInput::Payload(fields), &[]).expect_err("it says nothing");
            assert_eq!((refusal.status(), refusal.param()), (400, Some(param)), "{payload}: {refusal}");
        }
    }
}
