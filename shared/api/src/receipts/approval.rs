//! Receipts of answers to questions for a permission.

use dormouse_ports::{Map, PausedInvocation, Resolution, SignalDescriptor};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::event::redact;
use dormouse_protocol::resource::{OutcomeStatus, Task, TaskStatus};
use dormouse_receipts::canonical;
use serde_json::Value;

use super::body::{Contents, approval_id, body};
use super::issue::issue;
use super::{ApprovalDecision, ApprovalNote, TaskTally};
use crate::answers::{request_of, status_of};
use crate::change::SessionChange;
use crate::documents::Stored;

/// Name in the receipt where an answer came to an address, or by the key of the deployment to the name of a signal; and where
/// a signal of a tenant came early, or its worker died.
const HOLDER: &str = "holder of the callback address or of a key for signals";
/// Name in the receipt where no person answered in time.
const NOBODY: &str = "dormouse";

/// An answer that was accepted.
#[derive(Clone, Copy)]
pub(crate) struct AnsweredApproval<'a> {
    /// The pause that it answers.
    pub(crate) paused: &'a PausedInvocation,
    /// The one of several answers that it is.
    pub(crate) part: Option<&'a str>,
    /// Its fields.
    pub(crate) payload: &'a Map,
    /// Actor who answered, where that is known.
    pub(crate) actor: Option<&'a str>,
}

/// Issues the receipt of `answered`, if that is the answer to a question for a permission, and its yes can be told from
/// its no. True if one was issued.
///
/// # Errors
/// `internal_error` when it cannot be made.
pub(crate) fn note_approval(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    answered: AnsweredApproval<'_>,
) -> Result<bool, ProtocolError> {
    let descriptor = &answered.paused.descriptor;
    if status_of(descriptor) != TaskStatus::AuthRequired {
        return Ok(false);
    }
    let Some(decision) = decision(descriptor, answered.part, answered.payload) else { return Ok(false) };
    let actor = match (decision, answered.actor) {
        (ApprovalDecision::Timeout, _) => NOBODY,
        (ApprovalDecision::Approved | ApprovalDecision::Denied, Some(actor)) => actor,
        (ApprovalDecision::Approved | ApprovalDecision::Denied, None) => HOLDER,
    };
    let shown = shown(descriptor, answered.part);
    let note = ApprovalNote {
        at: change.next(),
        actor: actor.to_owned(),
        action: shown.action,
        decision,
        decided: change.now(),
        evidence: evidence(answered, shown.digest),
    };
    let asked = task.kept.resource.envelope.updated_at.min(change.now());
    let issued = issue(change, task, |id, task| {
        body(Contents {
            id,
            subject: ("approval", approval_id(task.resource.session_id.as_str(), note.at)),
            task,
            span: (asked, note.decided),
            status: OutcomeStatus::Succeeded,
            failure: None,
            tally: &TaskTally::default(),
            approvals: std::slice::from_ref(&note),
            artifacts: Vec::new(),
            metadata: Map::new(),
        })
    })?;
    if issued.is_some() {
        task.kept.own.receipts.note_approval(note);
    }
    Ok(issued.is_some())
}

/// The decision that `payload` is, by what the descriptor says that yes and no are. An answer that is not its yes is a no,
/// and so is the yes to something else than what was asked.
pub(crate) fn decision(descriptor: &SignalDescriptor, part: Option<&str>, payload: &Map) -> Option<ApprovalDecision> {
    match Resolution::of(payload) {
        Resolution::TimedOut => return Some(ApprovalDecision::Timeout),
        Resolution::Woken => return None,
        Resolution::Signalled => {}
    }
    let yes = descriptor.metadata.as_ref()?.get("answers")?.get("approved")?.as_object()?;
    let is_yes = !yes.is_empty() && yes.iter().all(|(name, value)| payload.get(name) == Some(value));
    Some(if is_yes && !is_of_another(descriptor, part, payload) {
        ApprovalDecision::Approved
    } else {
        ApprovalDecision::Denied
    })
}

/// True if `payload` names by its digest another call than `part` of the question is about, or all of it.
pub(crate) fn is_of_another(descriptor: &SignalDescriptor, part: Option<&str>, payload: &Map) -> bool {
    let given = payload.get("digest").and_then(Value::as_str).filter(|digest| !digest.is_empty());
    let shown = shown(descriptor, part).digest;
    given.zip(shown).is_some_and(|(given, shown)| shown != format!("sha256:{given}"))
}

/// Action that a person was asked for.
struct Shown {
    action: String,
    digest: Option<String>,
}

/// The call of a tool that `part` of the question is about, or all of the question.
fn shown(descriptor: &SignalDescriptor, part: Option<&str>) -> Shown {
    let metadata = descriptor.metadata.as_ref();
    let calls = metadata.and_then(|metadata| metadata.get("calls")?.as_object());
    let call = calls.and_then(|calls| match part {
        Some(part) => calls.get(part),
        None => calls.values().next().filter(|_| calls.len() == 1),
    });
    let text = |name: &str| call.and_then(|call| call.get(name)?.as_str());
    let kind = metadata.and_then(|metadata| metadata.get("kind")?.as_str()).unwrap_or("approval");
    Shown {
        action: text("tool").unwrap_or(kind).to_owned(),
        digest: text("digest").filter(|digest| digest.len() == 64).map(|digest| format!("sha256:{digest}")),
    }
}

/// The hash of what was allowed: the arguments in the place of those that were shown, else `shown`, the digest of the call,
/// else all of what was shown.
fn evidence(answered: AnsweredApproval<'_>, shown: Option<String>) -> String {
    allowed(answered.payload).or(shown).unwrap_or_else(|| digest_of(answered.paused))
}

/// The hash of the arguments that were allowed in the place of those that were shown.
fn allowed(payload: &Map) -> Option<String> {
    let mut arguments = payload.get("arguments").filter(|arguments| arguments.is_object())?.clone();
    arguments.sort_all_objects();
    Some(canonical::sha256(arguments.to_string().as_bytes()))
}

/// The hash of the question, as clients see it.
fn digest_of(paused: &PausedInvocation) -> String {
    let shown = Value::Object(redact::object(request_of(paused)));
    // What was stored as JSON has a canonical form.
    canonical::digest(&shown).unwrap_or_else(|_| canonical::sha256(shown.to_string().as_bytes()))
}
