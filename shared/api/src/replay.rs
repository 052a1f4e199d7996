//! Replay: a task runs again on what it recorded, and reaches nothing outside.
//!
//! The material is what is stored anyway: the events of the task, with what was recorded in them for replays alone, and
//! the last state of its invocation. The graph runs in memory, on a store of its own; what comes of it is written in one
//! change: the new task with its events, which are marked, its outcome and its receipt. So a replay is there whole or not
//! at all, whenever a process dies.

mod compare;
mod material;
mod overrides;
mod run;
mod store;
mod write;

pub use compare::PASSING_FIELDS;

use std::collections::BTreeMap;

use dormouse_harness::Harness;
use dormouse_ports::PastEnd;
use dormouse_protocol::id::TaskId;
use dormouse_protocol::replay::{ReplayMode, ReplayTaskRequest};
use dormouse_protocol::resource::Task;
use dormouse_protocol::{Operation, ProtocolError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::Change;
use crate::reads::Reads;
use crate::refusal::{conflict, transition};
use crate::{Call, Receipts};

/// What is known of a task that is a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplayNote {
    /// The task that it replays.
    pub(crate) source: TaskId,
    /// The task that recorded what it runs on: another one where it replays a replay.
    pub(crate) origin: TaskId,
    /// Mode: what it was allowed to use.
    pub(crate) mode: ReplayMode,
    /// What stands in the place of what was recorded, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) overrides: BTreeMap<String, Value>,
    /// The same, as its receipt tells of it: hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) deltas: Vec<Value>,
    /// The receipt of the task that it replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<String>,
}

/// Replays tasks.
pub(crate) struct Replays {
    pub(crate) harness: Harness,
    pub(crate) reads: Reads,
    /// Issues the receipts of replays; without it there are none of either.
    pub(crate) receipts: Option<Receipts>,
}

impl Replays {
    /// Replays a task that has ended.
    pub(crate) async fn replay(&self, call: &Call) -> Result<Change, ProtocolError> {
        if self.receipts.is_none() {
            return Err(ProtocolError::not_implemented(Operation::ReplayTask));
        }
        let request: ReplayTaskRequest = call.body.clone().decode()?;
        let task = self.reads.named::<Task>(call, "task_id").await?;
        if !task.kept.resource.status.is_terminal() {
            return Err(transition("the task has not ended yet: replay it when it has"));
        }
        let session = self.reads.session_of(&task, call).await?;
        if !session.kept.resource.state.is_open() {
            return Err(conflict("the session is closed, and takes no replay"));
        }
        let origin = match &task.kept.own.replay {
            Some(note) => self.reads.find::<Task>(&note.origin, call.now).await?,
            None => Some(task.clone()),
        };
        let origin = origin.ok_or_else(|| ProtocolError::not_found("task"))?;
        let mut source = self.source(&origin).await?;
        let checkpoint = source.checkpoint(&request)?;
        let mut note = ReplayNote {
            source: task.kept.resource.envelope.id.clone(),
            origin: origin.kept.resource.envelope.id.clone(),
            mode: request.mode,
            overrides: task.kept.own.replay.as_ref().map(|note| note.overrides.clone()).unwrap_or_default(),
            deltas: task.kept.own.replay.as_ref().map(|note| note.deltas.clone()).unwrap_or_default(),
            receipt: task.kept.resource.receipt_id.as_ref().map(ToString::to_string),
        };
        self.replace(call, &source, &request, (checkpoint, &mut note)).await?;
        source.material.overrides.clone_from(&note.overrides);
        let ran = self.run_again(&origin, source).await?;
        self.write(call, (session, &task), &request, (note, ran, checkpoint)).await
    }
}

/// True if a run that goes beyond what was recorded ends there, as the recorded one did.
fn ends_with_the_record(end: &PastEnd) -> bool {
    match end {
        PastEnd::Completed => false,
        PastEnd::Failed(_) | PastEnd::Canceled => true,
    }
}
