//! End of a task, for its clients: last words, artifact, outcome and event, in one change.

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::limits::MESSAGE;
use dormouse_ports::{FailureRecord, Map, SHORTFALL, Shortfall};
use dormouse_protocol::event::{Draft, redact};
use dormouse_protocol::id::MessageId;
use dormouse_protocol::resource::{
    Artifact, ArtifactKind, Failure, Message, Outcome, OutcomeStatus, Part, Role, Sha256Hex, Task, TaskStatus,
};
use dormouse_protocol::{Envelope, ProtocolError};
use dormouse_receipts::canonical;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::artifacts::publish;
use crate::change::{NewMessage, SessionChange};
use crate::documents::Stored;
use crate::ids;
use crate::page::fitting;
use crate::quotas;
use crate::receipts::{EndedTask, TaskTally, end_receipt};
use crate::refusal::internal;

/// The field of a final state that describes its outcome in a sentence.
const RESULT: &str = "result";

/// The field of a final state that names the one action that was run, and no model asked.
const ACTION: &str = "action";

/// Bytes of JSON of the largest outcome that is kept in the document of its task.
const SMALL_OUTCOME: usize = 4 * 1024;

/// The longest summary, in characters.
const SUMMARY_CHARS: usize = 200;

/// The longest message of a failure, in characters.
const FAILURE_CHARS: usize = 4_000;

/// End of a task.
pub(crate) enum TaskEnd<'a> {
    /// Its graph reached END.
    Completed {
        /// Messages since the last event, in order.
        said: Vec<(Role, Vec<Part>)>,
        /// The final state.
        state: &'a Map,
        /// True if it is a conversation, of which no artifact is made.
        converses: bool,
    },
    /// Its graph failed.
    Failed(&'a FailureRecord),
    /// It is a replay that could not be made.
    Unrepeatable(Failure),
    /// It was canceled.
    Canceled {
        /// Reason for the cancellation.
        reason: Option<&'a str>,
    },
}

/// Ends `task`: all events about it go into `change`. The caller has seen that it has not ended yet.
///
/// # Errors
/// `internal_error` when something cannot be written.
pub(crate) fn end(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    ending: TaskEnd<'_>,
    tally: &TaskTally,
) -> Result<(), ProtocolError> {
    let mut outcome = Outcome {
        envelope: Envelope::new(ids::of(&task.kept.resource.envelope.id), change.now()),
        task_id: task.kept.resource.envelope.id.clone(),
        status: OutcomeStatus::Canceled,
        summary: String::new(),
        messages: Vec::new(),
        artifacts: Vec::new(),
        handoffs: Vec::new(),
        receipt_id: None,
        failure: None,
        cost: Map::new(),
        metrics: Map::new(),
    };
    let mut content = None;
    let to = match ending {
        TaskEnd::Completed { said, state: reached, converses } => {
            let state = (!converses).then_some(reached);
            // The end of the wait was not published: it came while this turn ran.
            change.advance(task, TaskStatus::Working, None, Map::new());
            let result =
                state.and_then(|state| state.get(RESULT)).and_then(Value::as_str).filter(|text| !text.is_empty());
            let said = said.into_iter().chain(result.map(|text| (Role::Agent, vec![Part::text(text)])));
            for (role, parts) in said.collect::<Vec<_>>() {
                outcome.messages.push(say(change, task, role, parts)?);
            }
            outcome.messages = last_of(outcome.messages)?;
            let summary = outcome.messages.last().and_then(text_of).or_else(|| printed_by_action(reached));
            outcome.summary = summary.unwrap_or_else(|| "The task completed.".to_owned());
            if let Some(state) = state {
                content = hash_of(task, change, state);
                outcome.artifacts.push(final_state(change, task, content.as_deref()));
            }
            match shortfall_of(reached) {
                Some(failure) => {
                    outcome.summary.clone_from(&failure.message);
                    outcome.failure = Some(failure);
                    TaskStatus::Failed
                }
                None => TaskStatus::Completed,
            }
        }
        TaskEnd::Failed(failure) => {
            let failure = failure_of(failure);
            outcome.summary.clone_from(&failure.message);
            outcome.failure = Some(failure);
            TaskStatus::Failed
        }
        TaskEnd::Unrepeatable(failure) => {
            outcome.summary.clone_from(&failure.message);
            outcome.failure = Some(failure);
            TaskStatus::Failed
        }
        TaskEnd::Canceled { reason } => {
            change.thread_mut().not_kept(&task.kept);
            let shown = reason.map(|reason| redact::value(reason.into()));
            let shown = shown.as_ref().and_then(Value::as_str);
            outcome.summary = shown
                .map_or_else(|| "The task was canceled.".to_owned(), |why| format!("The task was canceled: {why}"));
            TaskStatus::Canceled
        }
    };
    if let Some(status) = to.outcome() {
        outcome.status = status;
    }
    outcome.summary = outcome.summary.chars().take(SUMMARY_CHARS).collect();
    task.kept.resource.outcome_id = Some(outcome.envelope.id.clone());
    let ended = EndedTask {
        status: outcome.status,
        failure: outcome.failure.as_ref(),
        artifacts: outcome.artifacts.iter().map(|artifact| (artifact, content.clone())).collect(),
        messages: said_hash(task, change, &outcome.messages)?,
        tally,
    };
    outcome.receipt_id = end_receipt(change, task, &ended)?;
    task.kept.resource.receipt_id.clone_from(&outcome.receipt_id);
    for artifact in &mut outcome.artifacts {
        artifact.receipt_id.clone_from(&outcome.receipt_id);
    }
    if !task.kept.own.is_part {
        quotas::ended(&task.kept.own.quotas).for_each(|write| change.count(write));
    }
    change.advance(task, to, outcome.failure.clone(), Map::new());
    task.kept.own.last = Some(change.next() - 1);
    if dormouse_json::length(&outcome).map_err(|error| internal(&error))? <= SMALL_OUTCOME {
        task.kept.own.outcome = Some(Box::new(outcome));
    } else {
        change.put(&Stored::new(change.tenant(), task.kept.workspace.clone(), outcome, ()))?;
    }
    change.put_task(task)
}

/// The hash of the final state as its artifact gives it, where a receipt may tell of it: a short one could be found from
/// its hash.
fn hash_of(task: &Stored<Task>, change: &SessionChange, state: &Map) -> Option<String> {
    let is_told = change.receipts().is_some() && !task.kept.own.is_confidential;
    is_told.then(|| canonical::sha256(Value::Object(redact::object(state.clone())).to_string().as_bytes()))
}

/// The hash of the parts of the messages of the end, as clients see them.
fn said_hash(
    task: &Stored<Task>,
    change: &SessionChange,
    messages: &[Message],
) -> Result<Option<String>, ProtocolError> {
    if messages.is_empty() || change.receipts().is_none() || task.kept.own.is_confidential {
        return Ok(None);
    }
    let said: Vec<_> = messages.iter().map(|message| json!({ "role": message.role, "parts": message.parts })).collect();
    canonical::digest(&Value::Array(said)).map(Some).map_err(|flaw| internal(&flaw))
}

/// The last of `messages`, as far as one page holds them: the transcript has all.
fn last_of(mut messages: Vec<Message>) -> Result<Vec<Message>, ProtocolError> {
    let count = fitting(messages.iter().rev(), messages.len())?;
    Ok(messages.split_off(messages.len() - count))
}

/// Publishes a message of the agent of `task`, [shortened](shortened) if need be.
///
/// # Errors
/// `internal_error` when it cannot be written.
pub(crate) fn say(
    change: &mut SessionChange,
    task: &Stored<Task>,
    role: Role,
    parts: Vec<Part>,
) -> Result<Message, ProtocolError> {
    let envelope = Envelope::new(MessageId::new(""), change.now());
    let task_id = Some(task.kept.resource.envelope.id.clone());
    let message = Message { envelope, session_id: None, task_id, role, parts: shortened(parts)? };
    change.append_message(NewMessage { message, heard: true }, Draft::message_appended)
}

/// Publishes the final state of `task` as an artifact, with the `hash` that a receipt tells of it. The outcome holds all that is
/// stored of it.
fn final_state(change: &mut SessionChange, task: &Stored<Task>, hash: Option<&str>) -> Artifact {
    let envelope = Envelope::new(ids::of(&task.kept.resource.envelope.id), change.now());
    let sha256 = hash.and_then(|hash| Sha256Hex::parse(hash.strip_prefix("sha256:")?));
    publish(change, task, envelope, (ArtifactKind::Dataset, "application/json"), sha256)
}

/// Failure as clients see it; its code is the category of the harness.
fn failure_of(record: &FailureRecord) -> Failure {
    failure(record.category.as_str(), &record.message)
}

/// What `state` says of a graph that reached END without having come to what it was asked for.
pub(crate) fn shortfall_of(state: &Map) -> Option<Failure> {
    let Shortfall { code, message } = Shortfall::deserialize(state.get(SHORTFALL)?).ok()?;
    Some(failure(&code, &message))
}

/// The output of the one action that a run with the final state `state` was for: its agent says nothing behind it.
fn printed_by_action(state: &Map) -> Option<String> {
    state.get(ACTION).filter(|action| !action.is_null())?;
    let messages = state.get(MESSAGES)?.as_array()?;
    let result = messages.iter().rfind(|message| message["role"] == "tool")?;
    let content = &result["content"];
    let in_blocks = || content.as_array()?.iter().find_map(|block| block["text"].as_str());
    let told = redact::value(content.as_str().or_else(in_blocks)?.trim().into());
    told.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn failure(code: &str, message: &str) -> Failure {
    let message = redact::value(message.into());
    let message = message.as_str().unwrap_or(redact::MARK).chars().take(FAILURE_CHARS).collect();
    Failure { code: code.to_owned(), message, details: Map::new() }
}

/// `parts`, of which those stay that together fit a message. The first that does not is cut, if it is a text; a
/// sentence stands for what is left out.
fn shortened(parts: Vec<Part>) -> Result<Vec<Part>, ProtocolError> {
    let size = |part: &Part| dormouse_json::length(part).map_err(|error| internal(&error));
    let mut kept = Vec::new();
    let mut bytes = 0;
    let mut missing = 0;
    for part in parts {
        let length = size(&part)?;
        let room = MESSAGE.saturating_sub(bytes);
        if missing == 0 && length <= room {
            bytes += length;
            kept.push(part);
            continue;
        }
        if let (0, Part::Text { text, .. }) = (missing, &part) {
            // A character has at most six bytes in JSON.
            let cut = text.chars().take(room / 6).collect::<String>();
            if !cut.is_empty() {
                kept.push(Part::text(cut));
            }
        }
        missing += length;
    }
    if missing > 0 {
        kept.push(Part::text(format!("[shortened: from here on {missing} bytes were too many for one message]")));
    }
    Ok(kept)
}

fn text_of(message: &Message) -> Option<String> {
    message.parts.iter().find_map(|part| match part {
        Part::Text { text, .. } => Some(text.clone()),
        Part::Json { .. }
        | Part::ToolCall { .. }
        | Part::ToolResult { .. }
        | Part::ArtifactRef { .. }
        | Part::FileRef { .. }
        | Part::ImageRef { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_shortened_to_what_can_be_told() {
        let short = vec![Part::text("a"), Part::json(json!([1]))];
        assert_eq!(shortened(short.clone()).expect("parts"), short);
        for large in [Part::text("\u{1}".repeat(MESSAGE)), Part::json(json!("x".repeat(MESSAGE)))] {
            let told = shortened([short.clone(), vec![large.clone(), Part::text("b")]].concat()).expect("parts");
            assert_eq!(told[..2], short);
            assert!(dormouse_json::length(&told).expect("JSON") < MESSAGE + 1000);
            let cut = matches!(large, Part::Text { .. });
            assert_eq!(told.len(), if cut { 4 } else { 3 }, "a text is cut");
            let missing = dormouse_json::length(&[large, Part::text("b")]).expect("JSON") - 3;
            let Some(Part::Text { text, .. }) = told.last() else { panic!("{told:?}") };
            assert!(text.contains(&format!(" {missing} bytes")), "{text}");
        }
    }
}
