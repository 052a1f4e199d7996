//! Assertions over a turn of a chat.

use dormouse_harness::chat::{ChatMessage, ChatTurnOutcome};
use dormouse_ports::Map;
use serde_json::Value;

use super::error::category_is;
use super::outcome::{contains, descriptor_matches};
use super::{Check, Plain, differs, invocation, outcome, same};
use crate::Failure;
use crate::chat::ChatEvidence;
use crate::directives::Directives;

/// The assertion of that name; what can be said of sessions, nodes and observers can be said of a chat as well.
pub(crate) fn find(key: &str) -> Option<Check<ChatEvidence>> {
    let check: Plain<ChatEvidence> = match key {
        "outcome" => |expected, seen| outcome::kind(expected, &seen.base),
        "dispatch_path" => path,
        "replies" => replies,
        "pending_messages" => pending,
        "final_state" => final_state,
        "signal_descriptor" => descriptor,
        "error_bucket" => bucket,
        "error_category" => category,
        "reply" => reply,
        _ => {
            let check = invocation(key)?;
            return Some(Box::new(move |expected, seen| check(expected, &seen.base)));
        }
    };
    Some(Box::new(check))
}

fn path(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    same(expected, &seen.path.map_or(Value::Null, |path| path.as_str().into()), &seen.base)
}

fn replies(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    match &seen.outcome {
        ChatTurnOutcome::Completed { replies, .. } => messages(expected, replies, seen),
        ChatTurnOutcome::Errored { .. } | ChatTurnOutcome::Suspended { .. } => {
            Err(differs("replies", seen.base.end.tell()))
        }
    }
}

fn pending(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    match &seen.outcome {
        ChatTurnOutcome::Suspended { pending_messages, .. } => messages(expected, pending_messages, seen),
        ChatTurnOutcome::Errored { .. } | ChatTurnOutcome::Completed { .. } => {
            Err(differs("pending messages", seen.base.end.tell()))
        }
    }
}

/// As many messages, and of each what the fixture names.
fn messages(expected: &Value, actual: &[ChatMessage], seen: &ChatEvidence) -> Result<(), Failure> {
    let Value::Array(expected) = expected else {
        return Err(Failure::invalid(format!("messages must be a list, not {expected}")));
    };
    let told = || format!("{:?}", actual.iter().map(ChatMessage::as_map).collect::<Vec<_>>());
    if expected.len() != actual.len() {
        return Err(differs(format!("{} messages", expected.len()), told()));
    }
    expected.iter().zip(actual).try_for_each(|(expected, actual)| message(expected, actual.as_map(), seen))
}

/// The fields that a message of a fixture may name.
const FIELDS: &[&str] = &["role", "content", "tool_calls", "tool_call_id", "name"];

fn message(expected: &Value, actual: &Map, seen: &ChatEvidence) -> Result<(), Failure> {
    let mut expected = Directives::new("message", expected)?;
    for field in FIELDS {
        if let Some(value) = expected.get(field) {
            let actual = actual.get(*field).cloned().unwrap_or_default();
            same(value, &actual, &seen.base).map_err(|failure| failure.within(field))?;
        }
    }
    let text = actual.get("content").and_then(Value::as_str).unwrap_or_default();
    let mut parts = expected.texts("content_includes")?.unwrap_or_default();
    parts.extend(expected.text("content_matches_template")?.map(str::to_owned));
    for part in parts {
        if !text.to_lowercase().contains(&part.to_lowercase()) {
            return Err(differs(format!("a text with {part:?}"), format!("{text:?}")));
        }
    }
    expected.done()
}

/// The state after the turn: of `messages` how many and which, in order; other fields by value.
fn final_state(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    let mut expected = Directives::new("final_state", expected)?;
    let stored = seen.base.saved_session().map(|record| &record.state);
    let state = match &seen.outcome {
        ChatTurnOutcome::Completed { final_state, .. } => Some(final_state),
        ChatTurnOutcome::Errored { .. } | ChatTurnOutcome::Suspended { .. } => stored,
    };
    let state = state.ok_or_else(|| differs("a state", seen.base.end.tell()))?;
    let history = state.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if let Some(count) = expected.given("messages_count") {
        same(count, &history.len().into(), &seen.base)?;
    }
    let mut rest = history.iter();
    for (at, wanted) in expected.list("messages_history_contains")? {
        let is_wanted = |actual: &Value| actual.as_object().is_some_and(|actual| message(wanted, actual, seen).is_ok());
        if !rest.any(is_wanted) {
            return Err(differs(format!("{at}: {wanted}"), Value::from(history)));
        }
    }
    for field in expected.unread() {
        let wanted = expected.require(field)?;
        let some = Map::from_iter([(field.to_owned(), wanted.clone())]);
        contains(&some, state, &seen.base)?;
    }
    expected.done()
}

fn descriptor(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    match &seen.outcome {
        ChatTurnOutcome::Suspended { signal_descriptor, .. } => {
            descriptor_matches(expected, signal_descriptor, &seen.base)
        }
        ChatTurnOutcome::Errored { .. } | ChatTurnOutcome::Completed { .. } => {
            Err(differs("a suspension", seen.base.end.tell()))
        }
    }
}

fn bucket(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    let actual = match &seen.outcome {
        ChatTurnOutcome::Errored { error_bucket, .. } => error_bucket.as_str().into(),
        ChatTurnOutcome::Suspended { .. } | ChatTurnOutcome::Completed { .. } => Value::Null,
    };
    same(expected, &actual, &seen.base)
}

fn category(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    match seen.base.end.error() {
        Some(error) => category_is(expected.as_str().unwrap_or_default(), error),
        None => Err(differs(expected, seen.base.end.tell())),
    }
}

fn reply(expected: &Value, seen: &ChatEvidence) -> Result<(), Failure> {
    match &seen.outcome {
        ChatTurnOutcome::Errored { reply, .. } => message(expected, reply.as_map(), seen),
        ChatTurnOutcome::Suspended { .. } | ChatTurnOutcome::Completed { .. } => {
            Err(differs("an error's reply", seen.base.end.tell()))
        }
    }
}
