//! What a task recorded, read from its events and its invocation.

use dormouse_engine::CompiledGraph;
use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{
    Category, EntryKind, FailureRecord, InvocationId, InvocationRecord, InvocationStatus, Map, PastAnswer, PastEnd,
    PastEntry, ReplayMaterial,
};
use dormouse_protocol::replay::{ReplayMode, ReplayTaskRequest};
use dormouse_protocol::resource::{MessageInput, SubmitInput, Task, TaskInput, TaskStatus};
use dormouse_protocol::{EventKind, ProtocolError};
use serde::Deserialize;
use serde_json::Value;

use super::Replays;
use crate::broken_off::CANCELED;
use crate::change::{ANSWER, MATERIAL, STATE};
use crate::conversation::{first_state, tells_of_hearing};
use crate::documents::{Stored, TranscriptSegment};
use crate::ending::shortfall_of;
use crate::refusal::store;

/// Number of entries of a stream that are read at once.
const PAGE: usize = 200;
/// The role of what is said outside of the conversation: questions to people, and results.
const BESIDE: &str = "agent";

/// A task that has ended, as far as it can be run again.
pub(super) struct Source {
    pub(super) material: ReplayMaterial,
    /// Its invocation, as long as the store has it.
    pub(super) record: Option<InvocationRecord>,
    /// The ids of all of its events, in order.
    pub(super) events: Vec<String>,
    /// The places among its events of the messages that it said.
    pub(super) said: Vec<usize>,
}

impl Source {
    /// The number of the first event behind the checkpoint that is asked for; 0 without one.
    ///
    /// # Errors
    /// `invalid_request` for one that is no event of the task.
    pub(super) fn checkpoint(&self, request: &ReplayTaskRequest) -> Result<usize, ProtocolError> {
        if request.mode != ReplayMode::FromCheckpoint {
            return Ok(0);
        }
        let by_event = request.checkpoint_event_id.as_ref().map(|id| ("checkpoint_event_id", id.as_str()));
        let by_id = request.checkpoint_id.as_deref().map(|id| ("checkpoint_id", id));
        let Some((param, wanted)) = by_event.or(by_id) else { return Ok(0) };
        let at = self.events.iter().position(|id| id == wanted);
        at.map(|at| at + 1).ok_or_else(|| {
            ProtocolError::invalid(param, "it is no event of the task: a replay begins behind one of its events")
        })
    }

    /// The number of the event `id` among those of the task.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.events.iter().position(|event| event == id)
    }
}

impl Replays {
    /// Material that `task` recorded.
    pub(super) async fn source(&self, task: &Stored<Task>) -> Result<Source, ProtocolError> {
        let of = &task.kept.resource;
        let id = InvocationId::from(of.envelope.id.as_str());
        let invocations = &self.harness.engine().ports().store.invocations;
        let record = invocations.load_invocation(&id).await.map_err(store)?;
        let (state, end) = ended(record.as_ref(), of);
        let began = of.started_at.unwrap_or(of.envelope.created_at);
        let mut source =
            Source { material: ReplayMaterial::new(began, state, end), record, events: Vec::new(), said: Vec::new() };
        let TranscriptSegment { stream, first, last } = task.events();
        let mut after = first.saturating_sub(1);
        loop {
            let stretch = self.reads.records().stretch(&stream, after, PAGE).await.map_err(store)?;
            for one in stretch.entries {
                after = one.position;
                if one.entry.get("task_id").and_then(Value::as_str) == Some(of.envelope.id.as_str()) {
                    source.take(one.entry);
                }
            }
            if !stretch.more || last.is_some_and(|last| after >= last) {
                return Ok(source);
            }
        }
    }
}

impl Source {
    fn take(&mut self, mut event: Map) {
        let text = |event: &Map, name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let event_id = text(&event, "id");
        let kind = text(&event, "event");
        self.events.push(event_id.clone());
        let role = event.get("payload").and_then(|payload| payload.get("role")?.as_str());
        let is_said =
            matches!(EventKind::from(kind.as_str()), EventKind::AgentMessage | EventKind::SessionMessageAppended);
        if is_said && role != Some(BESIDE) {
            self.said.push(self.events.len() - 1);
        }
        let mut material = object(event.shift_remove(MATERIAL));
        if let Some(state) = material.shift_remove(STATE)
            && self.material.state.is_empty()
        {
            self.material.state = object(Some(state));
        }
        // That of a hook has the same name, and no payload.
        let answers_pause = material.get(ANSWER).is_some_and(|answer| answer.get("payload").is_some());
        if let Some(answer) = answers_pause.then(|| material.shift_remove(ANSWER)).flatten() {
            let mut answer = object(Some(answer));
            let node = text(&answer, "node");
            let payload = object(answer.shift_remove("payload"));
            let at = text(&event, "created_at").parse().unwrap_or(self.material.began);
            self.material.answers.push(PastAnswer { event_id: event_id.clone(), node, payload, at });
        }
        let is_recorded = EntryKind::NAMED.iter().any(|named| named.as_str() == kind) || kind.starts_with("vendor.");
        if is_recorded {
            let payload = object(event.shift_remove("payload"));
            let is_broken_off = payload.get(CANCELED) == Some(&Value::Bool(true));
            let past = PastEntry { event_id, kind, payload, material };
            if is_broken_off {
                self.material.broken_off.push(past);
                return;
            }
            // What a run heard before all else, it began with.
            if !(self.material.entries.is_empty() && tells_of_hearing(&past)) {
                self.material.entries.push(past);
            }
        }
    }
}

fn object(value: Option<Value>) -> Map {
    match value {
        Some(Value::Object(fields)) => fields,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | None => Map::new(),
    }
}

/// How the task ended for its clients: one that was put aside has failed, even if an operator made its invocation go on
/// since.
fn ended(record: Option<&InvocationRecord>, task: &Task) -> (Map, PastEnd) {
    let status = record.map(|record| &record.status);
    if let (Some(InvocationStatus::Completed { state }), Some(failure)) = (status, &task.failure)
        && shortfall_of(state).is_some_and(|shortfall| shortfall.code == failure.code)
    {
        return (state.clone(), PastEnd::Completed);
    }
    match task.status {
        TaskStatus::Failed => {
            let end = match (status, &task.failure) {
                (Some(InvocationStatus::Errored(failure)), _) => failure.clone(),
                (_, Some(failure)) => {
                    FailureRecord { category: Category::from_name(&failure.code), message: failure.message.clone() }
                }
                (_, None) => FailureRecord { category: Category::OutcomeUnknown, message: String::new() },
            };
            (Map::new(), PastEnd::Failed(end))
        }
        TaskStatus::Canceled => (Map::new(), PastEnd::Canceled),
        TaskStatus::Completed
        | TaskStatus::Submitted
        | TaskStatus::Working
        | TaskStatus::InputRequired
        | TaskStatus::AuthRequired => {
            let state = status.cloned().and_then(InvocationStatus::into_final_state);
            (state.unwrap_or_default(), PastEnd::Completed)
        }
    }
}

impl Source {
    /// The state with which a run of the pure `graph` began; `None` where it may have been given more than is recorded.
    pub(super) fn first_state(&self, graph: &CompiledGraph, task: &Stored<Task>) -> Option<Map> {
        let Some(sessions) = graph.sessions() else { return given(graph, task) };
        let keeps_only_messages = sessions.keeps_only(MESSAGES);
        let messages = self.material.state.get(MESSAGES)?.as_array().filter(|_| keeps_only_messages)?;
        let began_with = messages.get(..messages.len().checked_sub(self.said.len())?)?;
        Some(Map::from_iter([(MESSAGES.to_owned(), began_with.to_vec().into())]))
    }
}

fn given(graph: &CompiledGraph, task: &Stored<Task>) -> Option<Map> {
    let input = match &task.kept.resource.input {
        TaskInput::Payload(said) if task.kept.own.is_unsaid => {
            SubmitInput::Message(MessageInput::deserialize(said).ok()?)
        }
        TaskInput::Payload(payload) => SubmitInput::Payload(payload.clone()),
        TaskInput::Message(message) => SubmitInput::Message(MessageInput {
            role: message.role,
            parts: message.parts.clone(),
            metadata: Map::new(),
        }),
    };
    first_state(graph, &input, &[]).ok()
}
