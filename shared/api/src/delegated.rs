//! Tasks that agents give to other agents: told of in the commit that accepts them.
//!
//! The task of an agent that was asked names its parent. It is in a session of its own, which names that of its parent,
//! and is seen by each caller who sees that. What one agent says to the other is the first message of that session. What
//! it uses counts against the quotas of its parent, of whose work it is a part.

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{
    Commit, CommitError, DocumentKey, InvocationWrite, Journal, JournalConflict, ParentLink, PausedInvocation,
    StoreError,
};
use dormouse_protocol::Envelope;
use dormouse_protocol::event::Draft;
use dormouse_protocol::id::{MessageId, SessionId, TaskId};
use dormouse_protocol::resource::{Message, Session, SessionState, Task, TaskInput, TaskStatus, Transcript};
use dormouse_protocol::{Map, ProtocolError};
use serde_json::Value;

use crate::change::{By, NewMessage, SessionChange};
use crate::conversation::shown;
use crate::deletion::{KIND as DELETION, place_write};
use crate::documents::{SessionIndex, Stored, TaskIndex, TranscriptSegment};
use crate::receipts::ReceiptNotes;
use crate::recording::{RecordingStore, corrupt, task_called};

/// Number of attempts at a commit that fails because another writer wrote to the session.
const ATTEMPTS: u32 = 16;

/// The task that `commit` accepts for another one.
pub(crate) fn delegated(commit: &Commit) -> Option<(TaskId, ParentLink, &PausedInvocation)> {
    let Some(InvocationWrite::Accept { paused, .. }) = &commit.invocation else { return None };
    let parent = ParentLink::of(&paused.state)?;
    task_called(&parent.invocation_id)?;
    Some((task_called(&paused.invocation_id)?, parent, paused))
}

impl RecordingStore {
    /// Writes `commit`, which accepts the task `id` for `parent`, and tells of it.
    pub(crate) async fn delegate(
        &self,
        commit: &Commit,
        (id, parent, paused): (TaskId, ParentLink, &PausedInvocation),
    ) -> Result<(), CommitError> {
        for attempt in 0..ATTEMPTS {
            let Some(journal) = self.told_of(commit, &id, &parent, paused).await? else {
                return self.write(commit).await;
            };
            let own = commit.journal.clone();
            let told = Commit {
                id: format!("{}-{attempt}", commit.id),
                journal: own.clone().merged_with(journal),
                ..commit.clone()
            };
            match self.write(&told).await {
                Err(CommitError::Journal(conflict)) if !own.is_refused_by(&conflict) => {
                    if let JournalConflict::Document(DocumentKey { kind, id: workspace }) = &conflict
                        && kind == DELETION
                    {
                        let reason = format!("{workspace} is deleted, and the session of {id} cannot be made in it");
                        return Err(CommitError::Store(StoreError::Unavailable(reason)));
                    }
                    // The task is there: an earlier attempt was written.
                    if self.find::<Task>(&id, commit.now).await?.is_some() {
                        return Err(CommitError::InvocationConflict);
                    }
                }
                written => return written,
            }
        }
        Err(CommitError::Store(StoreError::Unavailable(format!("the session of {id} changed in {ATTEMPTS} attempts"))))
    }

    /// What is written of the task `id` beside its invocation; `None` where its parent is no task.
    async fn told_of(
        &self,
        commit: &Commit,
        id: &TaskId,
        parent: &ParentLink,
        paused: &PausedInvocation,
    ) -> Result<Option<Journal>, StoreError> {
        let asker = self.find::<Task>(&TaskId::from(parent.invocation_id.as_str()), commit.now).await?;
        let (Some(asker), Some(session)) = (asker, &paused.session_id) else { return Ok(None) };
        let session = SessionId::from(session.as_str());
        let known = self.find::<Session>(&session, commit.now).await?;
        let opening = Opening { asker: &asker, session: &session, known };
        opening.journal(commit, id, paused).map(Some).map_err(corrupt)
    }
}

/// The session of a task that another task asks for, before that is told of.
struct Opening<'o> {
    asker: &'o Stored<Task>,
    session: &'o SessionId,
    /// The session, where the agent was asked before.
    known: Option<Stored<Session>>,
}

impl Opening<'_> {
    fn journal(self, commit: &Commit, id: &TaskId, paused: &PausedInvocation) -> Result<Journal, ProtocolError> {
        let asker = &self.asker.kept.resource;
        let actor = asker.persona_id.as_ref().map_or_else(|| asker.created_by.clone(), ToString::to_string);
        let by = By { actor: actor.clone(), key: None };
        let is_new = self.known.is_none();
        let session = match self.known {
            Some(known) => known,
            None => fresh(self.asker, self.session, commit),
        };
        let mut change = SessionChange::open(session, by, commit.now);
        if is_new {
            let draft = Draft::session_created(change.session());
            change.emit_for_session(draft);
        }
        let place = (change.session().workspace_id.clone(), self.session.clone());
        let input = TaskInput::Payload(Map::new());
        let task = Task {
            parent_task_id: Some(asker.envelope.id.clone()),
            quota_id: asker.quota_id.clone(),
            ..Task::submitted(id.clone(), place, input, actor, commit.now)
        };
        let notes = &self.asker.kept.own.receipts;
        let receipts = ReceiptNotes { off: notes.off, owed: notes.owed, tier: notes.tier, ..ReceiptNotes::default() };
        let is_confidential = self.asker.kept.own.is_confidential;
        let index = TaskIndex {
            first: change.next(),
            graph: paused.graph.clone(),
            is_confidential,
            receipts,
            quotas: self.asker.kept.own.quotas.clone(),
            is_part: true,
            // Only agents ask others, and only agents.
            hears: true,
            shows: true,
            ..TaskIndex::default()
        };
        let workspace = Some(task.workspace_id.clone());
        let mut task = Stored::new(&self.asker.kept.tenant, workspace, task, index);
        let draft = Draft::task_submitted(&task.kept.resource);
        change.emit_for_task(&mut task, draft);
        if let Some(message) = asked(paused, id, commit) {
            let said = NewMessage { message, heard: true };
            task.kept.resource.input =
                TaskInput::Message(Box::new(change.append_message(said, Draft::message_appended)?));
        }
        change.advance(&mut task, TaskStatus::Working, None, Map::new());
        change.put_task(&task)?;
        let (session, mut journal) = change.close()?;
        // Also where the session is one that a deletion has marked already.
        journal.documents.push(place_write(&session.kept.resource.workspace_id));
        Ok(journal)
    }
}

fn fresh(asker: &Stored<Task>, id: &SessionId, commit: &Commit) -> Stored<Session> {
    let task = &asker.kept.resource;
    let session = Session {
        envelope: Envelope::new(id.clone(), commit.now),
        workspace_id: task.workspace_id.clone(),
        state: SessionState::Idle,
        transcript: Transcript::Link(format!("/v1/sessions/{id}/messages")),
        persona_id: None,
        root_session_id: None,
        parent_session_id: Some(task.session_id.clone()),
        branch_id: None,
        last_event_id: None,
        summary: None,
        expires_at: None,
    };
    let own = TranscriptSegment { stream: id.to_string(), first: 1, last: None };
    let quotas = asker.kept.own.quotas.clone();
    let index = SessionIndex { transcript: vec![own], quotas, ..SessionIndex::new() };
    Stored::new(&asker.kept.tenant, Some(task.workspace_id.clone()), session, index)
}

/// Question to the agent, as a message.
fn asked(paused: &PausedInvocation, id: &TaskId, commit: &Commit) -> Option<Message> {
    let messages = paused.state.get(MESSAGES).and_then(Value::as_array)?;
    let (role, parts) = shown(messages.last()?)?;
    let envelope = Envelope::new(MessageId::new(""), commit.now);
    Some(Message { envelope, session_id: None, task_id: Some(id.clone()), role, parts })
}
