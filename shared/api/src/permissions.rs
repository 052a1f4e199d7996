//! Requests for permissions: the approvals that tasks wait for, as resources.
//!
//! A task that waits for a permission has one request, called after the task and the number of its pause; it is made
//! when it is asked for, from the task and its invocation, and costs nothing before. An answer is a message to the task
//! like any other, and in the same transaction the request becomes a document that says how it was answered. A request
//! that is answered by another way (a callback, a message to the task, time) is not there any more.
//!
//! Where the task waits for several answers, each names in `metadata.in_reply_to` whose it is, and the request is pending
//! until one of them decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_ports::{
    Document, InvocationId, InvocationRecord, InvocationStatus, Invocations, PausedInvocation, StoreError,
};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::{PermissionRequestId, SessionId, TaskId};
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{
    MessageInput, Part, PermissionRequest, PermissionResponseRequest, PermissionSource, PermissionStatus, Role, Task,
    TaskMessageKind, TaskStatus,
};
use dormouse_protocol::{Envelope, ProtocolError};
use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::{IN_REPLY_TO, PAUSE, TakenAnswer, agreed, request_of, said_in};
use crate::api::{self, Api, Change};
use crate::documents::Stored;
use crate::lists::Lists;
use crate::page::{Narrowed, PageSource};
use crate::refusal::{conflict, store};
use crate::{Call, CallAnswer, ids};

/// Said of an answer with other arguments: the tool, whose schema they have to fit, is known to the run alone.
const UNCHECKED: &str = "other arguments are checked when the run goes on: where they do not fit the tool, it is not called, \
    and a new request asks again and says what is wrong";

/// Pauses that are loaded at once.
const TOGETHER: usize = 50;

impl Api {
    /// Answers a request.
    pub(crate) async fn respond(&self, call: &Call) -> Result<Change, ProtocolError> {
        let response: PermissionResponseRequest = call.body.clone().decode()?;
        let id = PermissionRequestId::from(call.params.get("request_id"));
        let not_found = || ProtocolError::not_found(PermissionRequestId::OBJECT);
        let own = ids::own(id.as_str()).rsplit_once('.').map(|(task, _)| task).ok_or_else(not_found)?;
        let task = self.reads.see::<Task>(call, &TaskId::from(ids::with_word(TaskId::OBJECT, own))).await;
        let task = task.map_err(|error| if error.status() == 404 { not_found() } else { error })?;
        let session = self.reads.session_of(&task, call).await?;
        let pending = match task.known_to(&session) {
            Some(task) => self.requests.pending_request(&task).await?.map(|request| (task, request)),
            None => None,
        };
        let open = pending.as_ref().map(|(_, request)| request.envelope.id.clone());
        let Some((task, mut request)) = pending.filter(|(_, request)| request.envelope.id == id) else {
            return Err(if self.requests.was_asked(call, own, &id).await? { gone(open.as_ref()) } else { not_found() });
        };
        let workspace = task.kept.workspace.clone();
        let said = agreed("answer", said_in(&api::json(&response)?))?;
        let kind = match response.is_approval() {
            Some(_) => TaskMessageKind::ToolConfirmation,
            None => TaskMessageKind::Input,
        };
        let TakenAnswer { mut change, is_yes, is_denied_in_part } =
            self.answer(call, session, task, (kind, message_of(&response))).await?;
        if change.is_repeated {
            return Ok(change);
        }
        if change.work.is_some() {
            // What the question calls a no counts before the words that people use for one.
            let verdict = is_yes.or(said);
            request.status = match verdict {
                Some(true) | None if !is_denied_in_part => PermissionStatus::Approved,
                Some(_) | None => PermissionStatus::Denied,
            };
            request.envelope.updated_at = call.now;
            request.envelope.metadata = redact::object(response.metadata.clone());
            request.response = told(&response, verdict, call);
            let stored = Stored::new(&call.actor.tenant, workspace, request.clone(), ());
            change.journal.documents.push(stored.write()?);
        }
        change.answer = (200, api::json(&request)?);
        Ok(change)
    }
}

/// The requests that there are.
#[derive(Clone)]
pub(crate) struct PermissionRequests {
    pub(crate) lists: Lists,
    pub(crate) invocations: Arc<dyn Invocations>,
}

impl PermissionRequests {
    /// Those that wait, and those that were answered here.
    pub(crate) async fn list(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { session_id, task_id, .. } = Filters::read(&call.query)?;
        let status = call.query.get("status").map(status_of).transpose()?;
        let of_path = Some(call.params.get("task_id")).filter(|id| !id.is_empty()).map(TaskId::from);
        if let Some(task) = &of_path {
            self.lists.reads.see::<Task>(call, task).await?;
        }
        let task_id = of_path.or(task_id);
        let tenant = &call.actor.tenant;
        let parent = task_id.as_ref().map(TaskId::as_str).or(session_id.as_ref().map(SessionId::as_str));
        let narrowed = Narrowed::to(parent, None);
        let waiting = match &task_id {
            Some(task) => PageSource::One(crate::documents::key::<Task>(task.as_str())),
            None => PageSource::list::<Task>(tenant, Narrowed::to(session_id.as_ref().map(SessionId::as_str), None)),
        };
        // Those that wait are made from tasks, and those that were answered are stored.
        let answered = PageSource::list::<PermissionRequest>(tenant, narrowed);
        let sources = match status {
            None => vec![answered, waiting],
            Some(PermissionStatus::Pending) => vec![waiting],
            Some(PermissionStatus::Approved | PermissionStatus::Denied) => vec![answered],
        };
        let is_in = |request: &PermissionRequest| {
            let same_session = session_id.is_none() || request.session_id == session_id;
            let same_status = status.is_none_or(|status| request.status == status);
            same_session && same_status && (task_id.is_none() || request.task_id == task_id)
        };
        let pick = |documents: Vec<Document>| {
            async move {
                let requests = self.requests_of(call, documents).await?;
                Ok(requests.into_iter().map(|request| request.filter(is_in)).collect())
            }
            .boxed()
        };
        self.lists.page_of(call, &sources, pick).await
    }

    /// What each of `documents`, answered requests or tasks, is or asks for.
    async fn requests_of(
        &self,
        call: &Call,
        documents: Vec<Document>,
    ) -> Result<Vec<Option<PermissionRequest>>, ProtocolError> {
        let mut requests = Vec::new();
        let mut tasks = BTreeMap::new();
        for (place, document) in documents.into_iter().enumerate() {
            let is_task = document.key.kind == TaskId::OBJECT;
            if is_task {
                let task = Stored::<Task>::seen(document, &call.actor);
                tasks.extend(task.map(|task| (place, task)));
                requests.push(None);
            } else {
                let answered = Stored::<PermissionRequest>::seen(document, &call.actor);
                requests.push(answered.map(|request| request.kept.resource));
            }
        }
        let (places, tasks): (Vec<usize>, Vec<_>) = tasks.into_iter().unzip();
        let mut waiting: Vec<_> = places.into_iter().zip(self.lists.reads.present(tasks, call).await?).collect();
        waiting.retain(|(_, task)| task.kept.resource.status == TaskStatus::AuthRequired);
        for some in waiting.chunks(TOGETHER) {
            let ids: Vec<InvocationId> = some.iter().map(|(_, task)| invocation_of(task)).collect();
            let loaded = self.invocations.load_pauses(&ids).await.map_err(store)?;
            for ((place, task), record) in some.iter().zip(loaded) {
                let paused = match record {
                    // It hides no request of another run; lists of what sleeps have it.
                    Err(StoreError::Corrupt(reason)) => {
                        let task_id = &task.kept.resource.envelope.id;
                        tracing::error!(%task_id, reason, "a list of requests leaves out a run that cannot be read");
                        None
                    }
                    record => record.map_err(store)?.and_then(pause_in),
                };
                if let (Some(slot), Some(paused)) = (requests.get_mut(*place), paused) {
                    *slot = Some(request_for(&task.kept.resource, &paused));
                }
            }
        }
        Ok(requests)
    }

    /// The request of `task`, as it is at present, if it waits for a permission.
    async fn pending_request(&self, task: &Stored<Task>) -> Result<Option<PermissionRequest>, ProtocolError> {
        if task.kept.resource.status != TaskStatus::AuthRequired {
            return Ok(None);
        }
        Ok(self.pause_of(task).await?.map(|paused| request_for(&task.kept.resource, &paused)))
    }

    /// The pause of `task`, if it sleeps.
    async fn pause_of(&self, task: &Stored<Task>) -> Result<Option<PausedInvocation>, ProtocolError> {
        let record = self.invocations.load_invocation(&invocation_of(task)).await.map_err(store)?;
        Ok(record.and_then(pause_in))
    }

    /// True if the request `id` of the task whose id ends in `task` waited once.
    async fn was_asked(&self, call: &Call, task: &str, id: &PermissionRequestId) -> Result<bool, ProtocolError> {
        if self.lists.reads.find::<PermissionRequest>(id, call.now).await?.is_some() {
            return Ok(true);
        }
        let invocation = InvocationId::from(ids::with_word(TaskId::OBJECT, task));
        let [summary] = self.invocations.glance(&[invocation]).await.map_err(store)?.try_into().unwrap_or([None]);
        let latest = summary.map_or(0, |summary| summary.generation);
        let asked = id.as_str().rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok());
        Ok(asked.is_some_and(|asked| (1..=latest).contains(&asked)))
    }
}

/// The task whose request `request` is, if it is the id of one.
pub(crate) fn task_of(request: &PermissionRequestId) -> Option<TaskId> {
    let (task, _) = ids::own(request.as_str()).rsplit_once('.')?;
    Some(TaskId::from(ids::with_word(TaskId::OBJECT, task)))
}

fn invocation_of(task: &Stored<Task>) -> InvocationId {
    InvocationId::from(task.kept.resource.envelope.id.as_str())
}

/// The pause of an invocation, if it sleeps.
fn pause_in(record: InvocationRecord) -> Option<PausedInvocation> {
    (record.status == InvocationStatus::Suspended).then_some(record.paused)
}

/// The status that a query calls `word`.
fn status_of(word: &str) -> Result<PermissionStatus, ProtocolError> {
    let status = PermissionStatus::deserialize(&json!(word));
    status.map_err(|_| ProtocolError::invalid("status", "expected `pending`, `approved` or `denied`"))
}

/// The refusal of an answer to a request that waits no longer; it names the one that is `open` in the same task.
fn gone(open: Option<&PermissionRequestId>) -> ProtocolError {
    let message = "the request has been answered, or its time is over";
    match open {
        Some(open) => {
            let message = format!("{message}; the task asks by {} now", open.as_str());
            conflict(&message).with_detail("open_request", open.as_str())
        }
        None => conflict(message),
    }
}

/// The request that `task` makes by `paused`.
fn request_for(task: &Task, paused: &PausedInvocation) -> PermissionRequest {
    let own = ids::own(task.envelope.id.as_str());
    let id = PermissionRequestId::new(format!("{}_{own}.{}", PermissionRequestId::OBJECT, paused.generation));
    let request = redact::object(request_of(paused)).remove("request").unwrap_or_default();
    let action = json!({ "kind": request.get("kind"), "description": request.get("description") });
    PermissionRequest {
        envelope: Envelope::new(id, task.envelope.updated_at),
        session_id: Some(task.session_id.clone()),
        task_id: Some(task.envelope.id.clone()),
        status: PermissionStatus::Pending,
        source: PermissionSource::Hitl,
        action,
        request,
        response: Value::Null,
    }
}

/// The answer as a message to the task.
fn message_of(response: &PermissionResponseRequest) -> MessageInput {
    let mut fields = response.answer.as_object().cloned().unwrap_or_default();
    let mut parts = Vec::new();
    match &response.answer {
        Value::String(text) if response.is_approval().is_none() => parts.push(Part::text(text.clone())),
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            fields.insert("answer".to_owned(), response.answer.clone());
        }
        Value::Null | Value::Object(_) => {}
    }
    if let Some(approved) = response.is_approval() {
        fields.insert("approved".to_owned(), approved.into());
    }
    fields.extend(response.reason.as_ref().map(|reason| ("reason".to_owned(), reason.as_str().into())));
    if !fields.is_empty() {
        parts.push(Part::json(Value::Object(fields)));
    }
    let said = |name: &str| Some((name.to_owned(), response.metadata.get(name)?.clone()));
    MessageInput { role: Role::User, parts, metadata: [IN_REPLY_TO, PAUSE].into_iter().filter_map(said).collect() }
}

/// The answer as the request tells it.
fn told(response: &PermissionResponseRequest, verdict: Option<bool>, call: &Call) -> Value {
    let edits = verdict != Some(false) && response.answer.get("arguments").is_some_and(Value::is_object);
    let mut told = json!({
        "approved": verdict,
        "answer": response.answer,
        "reason": response.reason,
        "reviewer": response.reviewer,
        "answered_by": call.actor.name,
        "answered_at": call.now,
    });
    if edits {
        told["note"] = UNCHECKED.into();
    }
    redact::value(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_never_taken_for_a_yes() {
        for (body, expected) in [
            (json!({ "approved": true }), Ok(Some(true))),
            (json!({ "outcome": "denied" }), Ok(Some(false))),
            (json!({ "answer": { "decision": "deny", "reason": "no" } }), Ok(Some(false))),
            (json!({ "answer": { "decision": "Rejected" } }), Ok(Some(false))),
            (json!({ "answer": { "decision": "stop" } }), Ok(Some(false))),
            (json!({ "answer": "No." }), Ok(Some(false))),
            (json!({ "answer": { "outcome": "denied" } }), Ok(Some(false))),
            (json!({ "approved": true, "answer": { "decision": "approve" } }), Ok(Some(true))),
            (json!({ "answer": { "colour": "blue" } }), Ok(None)),
            (json!({ "approved": true, "answer": { "decision": "deny" } }), Err(())),
            (json!({ "approved": true, "outcome": "rejected" }), Err(())),
            (json!({ "outcome": "approved", "answer": { "approved": false } }), Err(())),
            (json!({ "approved": true, "answer": "no" }), Err(())),
            (json!({ "approved": true, "answer": false }), Err(())),
            (json!({ "approved": true, "answer": { "approved": "no" } }), Err(())),
            (json!({ "approved": true, "answer": { "decision": false } }), Err(())),
        ] {
            let response: PermissionResponseRequest = serde_json::from_value(body.clone()).expect("a response");
            assert_eq!(agreed("answer", said_in(&json!(response))).map_err(|_| ()), expected, "{body}");
        }
    }
}
