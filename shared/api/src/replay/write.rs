//! Writes a replay: the new task, the events that it repeats, and its end.

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{InvocationId, InvocationWrite, JournalEntry, Map, PausedInvocation};
use dormouse_protocol::event::{Draft, EventKind};
use dormouse_protocol::id::{EventId, TaskId};
use dormouse_protocol::replay::{ReplayEventMetadata, ReplayMode, ReplayTaskRequest};
use dormouse_protocol::resource::{Failure, Part, Role, Session, Task, TaskStatus};
use dormouse_protocol::{Identifier, ProtocolError};
use serde_json::{Value, json};

use super::run::{Ran, RanEnd};
use super::{ReplayNote, Replays};
use crate::api::{Change, by};
use crate::change::SessionChange;
use crate::conversation::shown;
use crate::documents::{Stored, TaskIndex};
use crate::ending::{TaskEnd, end, say};
use crate::receipts::{ReceiptNotes, TaskTally};
use crate::{Call, ids};

/// The most events that a replay repeats one by one, and their bytes of JSON: all are written in one transaction. Of the
/// others the last event says where they are.
const MOST_REPEATED: usize = 250;
const MOST_BYTES: usize = 160 * 1024;

/// Metadata of a task that is a replay.
const REPLAY: &str = "dormouse.replay";
/// Code of a failure for want of something that was not recorded.
const UNAVAILABLE: &str = "replay_material_unavailable";
/// Code of a failure since the same material led elsewhere.
const DIVERGED: &str = "replay_diverged";

impl Replays {
    /// The change that writes the replay `ran` of `source` as a new task.
    pub(super) async fn write(
        &self,
        call: &Call,
        (session, source): (Stored<Session>, &Stored<Task>),
        request: &ReplayTaskRequest,
        (note, ran, checkpoint): (ReplayNote, Ran, usize),
    ) -> Result<Change, ProtocolError> {
        let id: TaskId = ids::fresh(&*self.harness.engine().ports().ids, call.now);
        let mut change = SessionChange::open(session, by(call), call.now).issuing(self.receipts.clone());
        let mut task = new_task(&change, source, id.clone(), call);
        task.kept.own.first = change.next();
        task.kept.own.graph.clone_from(&ran.graph);
        task.kept.own.replay = Some(Box::new(note.clone()));
        let metadata = &mut task.kept.resource.envelope.metadata;
        metadata.clone_from(&request.metadata);
        metadata.insert(REPLAY.to_owned(), json!({ "source_task_id": note.source, "mode": note.mode }));
        let draft = Draft::task_submitted(&task.kept.resource);
        change.emit_for_task(&mut task, draft);
        change.advance(&mut task, TaskStatus::Working, None, Map::new());
        let facts = json!({
            "source_task_id": note.source, "mode": note.mode, "reason": request.reason,
            "override_keys": note.overrides.keys().collect::<Vec<_>>(),
        });
        emit(&mut change, &mut task, EventKind::ReplayStarted, facts);
        let mut repeating = Repeating::new(&ran, note.mode, (&note.source, &id), checkpoint);
        let said = repeating.repeat(&mut change, &mut task)?;
        let tally = tally_of(&ran);
        let invocation = self.close(&mut change, &mut task, (&ran, &repeating), (said, &tally))?;
        change.sign_receipts().await?;
        let change = Change::new(change.close()?.1, 202, &task.kept.resource)?;
        Ok(Change { invocation, ..change })
    }

    /// Ends the task as the replay ended.
    fn close(
        &self,
        change: &mut SessionChange,
        task: &mut Stored<Task>,
        (ran, repeating): (&Ran, &Repeating<'_>),
        (said, tally): (Vec<(Role, Vec<Part>)>, &TaskTally),
    ) -> Result<Option<InvocationWrite>, ProtocolError> {
        let told =
            json!({ "repeated": repeating.count, "left_out": repeating.left_out, "replay_cursor": repeating.cursor });
        let mut kept = None;
        match &ran.end {
            RanEnd::Completed(state) => {
                emit(change, task, EventKind::ReplayCompleted, told);
                change.replay_as(Some(repeating.mark(None)));
                let own = (!ran.converses).then_some(state);
                end(change, task, TaskEnd::Completed { said, state, converses: ran.converses }, tally)?;
                kept = own.map(|state| conclusion(task, ran, state));
            }
            RanEnd::Failed(failure) => {
                emit(change, task, EventKind::ReplayCompleted, told);
                end(change, task, TaskEnd::Failed(failure), tally)?;
            }
            RanEnd::Canceled => {
                let mut tally = tally.clone();
                for past in &ran.material.broken_off {
                    tally.add(&past.kind, &past.payload);
                    emit(change, task, past.kind.as_str().into(), Value::Object(past.payload.clone()));
                }
                emit(change, task, EventKind::ReplayCompleted, told);
                end(change, task, TaskEnd::Canceled { reason: None }, &tally)?;
            }
            RanEnd::Unavailable(missing) => {
                let first = json!({ "kind": missing.kind, "id": missing.id });
                let message = format!("`{}` is not recorded: {}", missing.id, missing.reason);
                fail(change, task, (UNAVAILABLE, message), ("first_unavailable", first), tally)?;
            }
            RanEnd::Diverged(difference) => {
                let first = json!({ "event_id": difference.event_id, "what": difference.what });
                let message = format!("the same material led elsewhere: {}", difference.what);
                fail(change, task, (DIVERGED, message), ("first_difference", first), tally)?;
            }
        }
        change.replay_as(None);
        Ok(kept)
    }
}

fn fail(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    (code, message): (&str, String),
    (name, detail): (&str, Value),
    tally: &TaskTally,
) -> Result<(), ProtocolError> {
    let details = Map::from_iter([(name.to_owned(), detail)]);
    let told = json!({ "code": code, "message": message, name: details[name] });
    emit(change, task, EventKind::ReplayFailed, told);
    let failure = Failure { code: code.to_owned(), message, details };
    end(change, task, TaskEnd::Unrepeatable(failure), tally)
}

fn emit(change: &mut SessionChange, task: &mut Stored<Task>, kind: EventKind, payload: Value) {
    let of = &task.kept.resource;
    let draft = Draft::new(kind, of.envelope.id.pointer(), payload);
    let draft = draft.within(Some(&of.workspace_id), Some(&of.session_id), Some(&of.envelope.id));
    change.emit_for_task(task, draft);
}

/// The task that replays `source`, before anything of it has happened.
fn new_task(change: &SessionChange, source: &Stored<Task>, id: TaskId, call: &Call) -> Stored<Task> {
    let of = &source.kept.resource;
    let place = (change.session().workspace_id.clone(), change.session().envelope.id.clone());
    let task = Task {
        persona_id: of.persona_id.clone(),
        branch_id: of.branch_id.clone(),
        parent_task_id: Some(of.envelope.id.clone()),
        ..Task::submitted(id, place, of.input.clone(), &call.actor.name, call.now)
    };
    let past = &source.kept.own.receipts;
    let receipts = ReceiptNotes {
        off: past.off,
        tier: past.tier,
        approvals: past.approvals.clone(),
        more_approvals: past.more_approvals,
        ..ReceiptNotes::default()
    };
    let (is_confidential, is_unsaid) = (source.kept.own.is_confidential, source.kept.own.is_unsaid);
    let own = TaskIndex { is_confidential, is_unsaid, receipts, ..TaskIndex::default() };
    Stored::new(&source.kept.tenant, Some(task.workspace_id.clone()), task, own)
}

/// The record of the final state, which the artifact of the task gives.
fn conclusion(task: &Stored<Task>, ran: &Ran, state: &Map) -> InvocationWrite {
    let id = InvocationId::from(task.kept.resource.envelope.id.as_str());
    let now = task.kept.resource.envelope.updated_at;
    let paused = PausedInvocation {
        correlation_id: id.to_string(),
        ..PausedInvocation::before_first_pause(id, ran.graph.clone(), now)
    };
    InvocationWrite::Conclude { paused: Box::new(paused), state: state.clone() }
}

fn tally_of(ran: &Ran) -> TaskTally {
    let mut tally = TaskTally::default();
    ran.written.iter().for_each(|written| tally.add_entries(&written.entries));
    tally
}

/// Repeats the events of a run.
struct Repeating<'r> {
    ran: &'r Ran,
    mode: ReplayMode,
    source: &'r TaskId,
    replay: &'r TaskId,
    /// Number of the recorded events that are passed over: they lie before the checkpoint.
    checkpoint: usize,
    /// Number of messages that the run has said.
    said: usize,
    count: usize,
    bytes: usize,
    left_out: usize,
    /// The recorded event of the last one that was repeated.
    cursor: Option<String>,
}

impl<'r> Repeating<'r> {
    fn new(ran: &'r Ran, mode: ReplayMode, (source, replay): (&'r TaskId, &'r TaskId), checkpoint: usize) -> Self {
        Self { ran, mode, source, replay, checkpoint, said: 0, count: 0, bytes: 0, left_out: 0, cursor: None }
    }

    fn mark(&self, original: Option<&str>) -> ReplayEventMetadata {
        ReplayEventMetadata {
            source_task_id: self.source.clone(),
            replay_task_id: self.replay.clone(),
            original_event_id: original.map(EventId::from),
            replay_cursor: None,
            mode: Some(self.mode),
            override_key: None,
            receipt_delta_id: None,
        }
    }

    /// Publishes what the nodes recorded and said, and gives what they said at last.
    fn repeat(
        &mut self,
        change: &mut SessionChange,
        task: &mut Stored<Task>,
    ) -> Result<Vec<(Role, Vec<Part>)>, ProtocolError> {
        let ran = self.ran;
        let mut past = ran.material.entries.iter();
        let mut told = ran.history;
        let last = ran.written.len().saturating_sub(1);
        let completed = matches!(ran.end, RanEnd::Completed(_));
        let mut at_last = Vec::new();
        for (at, written) in ran.written.iter().enumerate() {
            for entry in &written.entries {
                let original = past.next().filter(|past| past.kind == entry.kind.as_str());
                self.repeat_entry((change, task), entry, original.map(|past| past.event_id.as_str()));
            }
            let said = said_since(&mut told, written.state.as_ref().filter(|_| ran.converses), written.heard);
            if at == last && completed {
                at_last = said;
                continue;
            }
            change.replay_as(Some(self.mark(None)));
            for (role, parts) in said {
                let is_passed = ran.said.get(self.said).is_some_and(|place| *place < self.checkpoint);
                self.said += 1;
                if !is_passed {
                    say(change, task, role, parts)?;
                }
            }
            change.replay_as(None);
        }
        Ok(at_last)
    }

    fn repeat_entry(
        &mut self,
        (change, task): (&mut SessionChange, &mut Stored<Task>),
        entry: &JournalEntry,
        original: Option<&str>,
    ) {
        let passed = original.and_then(|id| self.ran.place(id)).is_some_and(|place| place < self.checkpoint);
        let size = dormouse_json::length(&entry.payload).unwrap_or(MOST_BYTES);
        if passed || self.count >= MOST_REPEATED || self.bytes + size > MOST_BYTES {
            self.left_out += usize::from(!passed);
            return;
        }
        self.count += 1;
        self.bytes += size;
        self.cursor = original.map(str::to_owned).or_else(|| self.cursor.take());
        let key = self.ran.override_of(entry);
        let mark = ReplayEventMetadata {
            receipt_delta_id: key.as_deref().map(super::overrides::delta_id),
            override_key: key,
            ..self.mark(original)
        };
        let draft = Draft::task_recorded(entry.kind.as_str().into(), &task.kept.resource, entry.payload.clone());
        change.emit_for_task(task, draft.replayed(mark));
    }
}

/// What was said behind message `told` of the conversation in `state`, but for the last, which it `heard`.
fn said_since(told: &mut usize, state: Option<&Map>, heard: usize) -> Vec<(Role, Vec<Part>)> {
    let messages = state.and_then(|state| state.get(MESSAGES)).and_then(Value::as_array);
    let Some(messages) = messages else { return Vec::new() };
    let new = messages.get(*told..).unwrap_or_default();
    *told = messages.len();
    new.iter().take(new.len().saturating_sub(heard)).filter_map(shown).collect()
}
