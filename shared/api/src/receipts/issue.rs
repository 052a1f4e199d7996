//! Puts receipts into the chain of their session.

use dormouse_protocol::event::{Draft, EventKind};
use dormouse_protocol::id::ReceiptId;
use dormouse_protocol::resource::{Artifact, Failure, OutcomeStatus, Task};
use dormouse_protocol::{Identifier, Map, ProtocolError};
use serde_json::{Value, json};

use super::body::{Contents, body};
use super::{ChainHead, TaskTally};
use crate::change::SessionChange;
use crate::documents::{Kept, Stored};
use crate::refusal::internal;

/// Field of the payload of `receipt.issued` with the whole receipt.
pub(crate) const RECEIPT: &str = "receipt";
/// Field with the id of the receipt before it in the chain.
pub(super) const PREVIOUS: &str = "previous_receipt_id";

/// End of a task, as its receipt tells of it.
pub(crate) struct EndedTask<'a> {
    /// Status with which it ended.
    pub(crate) status: OutcomeStatus,
    /// Failure, if it ended badly.
    pub(crate) failure: Option<&'a Failure>,
    /// Its artifacts, with the hashes of what they hold where that may be known.
    pub(crate) artifacts: Vec<(&'a Artifact, Option<String>)>,
    /// The hash of the messages with which it ended.
    pub(crate) messages: Option<String>,
    /// Tally of what its nodes have recorded.
    pub(crate) tally: &'a TaskTally,
}

/// Issues the receipt of the end of `task`; `None` where none is issued.
///
/// # Errors
/// `internal_error` when it cannot be made.
pub(crate) fn end_receipt(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    ended: &EndedTask<'_>,
) -> Result<Option<ReceiptId>, ProtocolError> {
    let now = change.now();
    issue(change, task, |id, task| {
        let of = &task.resource;
        let began = of.started_at.unwrap_or(of.envelope.created_at).min(now);
        let mut metadata = Map::from_iter([("graph".to_owned(), task.own.graph.as_str().into())]);
        if let Some(messages) = &ended.messages {
            metadata.insert("messages_sha256".to_owned(), messages.as_str().into());
        }
        if let Some(reason) = &ended.tally.reason {
            metadata.insert("end".to_owned(), reason.as_str().into());
        }
        let more_approvals = Some(task.own.receipts.more_approvals).filter(|count| *count > 0);
        let mut not_listed = ended.tally.left_out.clone();
        not_listed.extend(more_approvals.map(|count| ("approvals", count)));
        if !not_listed.is_empty() {
            metadata.insert("not_listed".to_owned(), json!(not_listed));
        }
        if let Some(replay) = &task.own.replay {
            let source = json!({
                "mode": replay.mode, "source_task_id": replay.source, "source_receipt_id": replay.receipt,
            });
            metadata.insert("replay".to_owned(), source);
        }
        if let Some(source) = &of.parent_task_id {
            metadata.insert("parent_task_id".to_owned(), source.as_str().into());
        }
        body(Contents {
            id,
            subject: ("task", of.envelope.id.to_string()),
            task,
            span: (began, now),
            status: ended.status,
            failure: ended.failure,
            tally: ended.tally,
            approvals: &task.own.receipts.approvals,
            artifacts: ended.artifacts.iter().map(|(artifact, hash)| reference(artifact, hash.as_deref())).collect(),
            metadata,
        })
    })
}

fn reference(artifact: &Artifact, hash: Option<&str>) -> Value {
    let id = artifact.envelope.id.as_str();
    let mut known = json!({ "artifact_id": id, "kind": artifact.kind });
    if let Some(hash) = hash {
        known["uri"] = format!("/v1/artifacts/{id}/content").into();
        known["sha256"] = hash.into();
    }
    known
}

/// Publishes the receipt that `contents` makes of its id, as the next one of the chain of the session.
pub(super) fn issue(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    contents: impl FnOnce(&str, &Kept<Task>) -> Map,
) -> Result<Option<ReceiptId>, ProtocolError> {
    let notes = &task.kept.own.receipts;
    let receipts = match change.receipts() {
        Some(receipts) if !notes.off => receipts.clone(),
        None if notes.owed => {
            return Err(internal(&"the persona demands a receipt, and there is no key to sign it with"));
        }
        Some(_) | None => return Ok(None),
    };
    let position = change.next();
    let id = ReceiptId::at(change.stream(), position);
    let head = change.thread_mut().receipts.take();
    let previous = head.as_ref().map(|head| head.hash.as_str());
    let unsigned = receipts.hashed(contents(id.as_str(), &task.kept), previous).map_err(|flaw| internal(&flaw))?;
    let of = &task.kept.resource;
    let draft = Draft::new(EventKind::ReceiptIssued, id.pointer(), json!({}));
    let draft = draft.within(Some(&of.workspace_id), Some(&of.session_id), Some(&of.envelope.id));
    let mut payload = Map::new();
    if let Some(head) = head {
        payload.insert(PREVIOUS.to_owned(), ReceiptId::at(change.stream(), head.at).as_str().into());
    }
    change.thread_mut().receipts = Some(ChainHead { hash: unsigned.hash().to_owned(), at: position });
    change.emit_receipt(draft, &id, payload, unsigned);
    task.kept.own.receipts.at.push(position);
    Ok(Some(id))
}
