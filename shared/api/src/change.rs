//! One change of a session, before it is committed: the events that publish it, and the documents that it writes.
//!
//! Everything that belongs to a session is written together with events in its stream, on the condition that no other
//! writer has appended any since. So positions and sequences have no gaps, and what was read before is still true.

use std::collections::BTreeMap;

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{
    Append, CounterChange, CounterWrite, DocumentKey, EndOfStream, Journal, Map, PausedInvocation, StreamEnd,
};
use dormouse_protocol::event::{Draft, EventPlace, redact};
use dormouse_protocol::id::{MessageId, ReceiptId, TaskId};
use dormouse_protocol::lifecycle::StatusStep;
use dormouse_protocol::replay::ReplayEventMetadata;
use dormouse_protocol::resource::{Failure, Message, Session, SessionState, Task, TaskStatus};
use dormouse_protocol::{Event, ProtocolError};
use dormouse_receipts::Unsigned;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::deletion::Tombstone;
use crate::documents::{OpenTask, Resource, SessionEnd, SessionIndex, Stored, TaskProgress, TaskStanding};
use crate::idempotency::{Keeping, put_note};
use crate::receipts::{RECEIPT, Receipts};
use crate::refusal::{UnsignedError, internal};
use crate::{feed, transcript, webhooks};

/// Time since the last report of a session to the feed of its tenant, from which on a durable step is reported at once, with
/// those before it that were not.
const REPORTED_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// The most events of a session that are not reported, and the most bytes of JSON of those of one step: who reads the feed is
/// given all of them at once.
const MOST_UNREPORTED: u64 = 255;
const MOST_UNREPORTED_BYTES: usize = 64 * 1024;

/// The most open tasks with their progress in the document of their session.
const MOST_IN_SESSION: usize = 16;

/// A change of one session.
pub(crate) struct SessionChange {
    session: Stored<Session>,
    /// The session before the change.
    before: Session,
    /// The queued task that might begin before the change.
    ready: Option<TaskId>,
    /// True if the change deletes the session.
    is_deletion: bool,
    by: By,
    now: Timestamp,
    first: u64,
    events: Vec<Event>,
    /// Material for replays, stored in events and shown to no client: by the position among `events`.
    material: BTreeMap<usize, Map>,
    journal: Journal,
    receipts: Option<Receipts>,
    /// Receipts that are not signed yet, with the positions of their events among `events`.
    unsigned: Vec<(usize, Unsigned)>,
    replay: Option<ReplayEventMetadata>,
    keeping: Keeping,
    /// True if a later change may report this one to the feed.
    later: bool,
}

/// Field of a stored event with what is recorded for replays. It is no field of an event as clients know it.
pub(crate) const MATERIAL: &str = "material";
/// Field of that with the answer to a pause: `node` and `payload`.
pub(crate) const ANSWER: &str = "answer";
/// Field of that with the last state of a run, where the invocation keeps none.
pub(crate) const STATE: &str = "state";
/// Bytes of JSON of an answer, or a state, that are kept for replays.
const MOST_MATERIAL: usize = 64 * 1024;

/// Author of a change, and its idempotent request.
#[derive(Clone, Debug)]
pub(crate) struct By {
    /// The actor or persona.
    pub(crate) actor: String,
    /// The key.
    pub(crate) key: Option<String>,
}

/// A message that is to be published, before it has its id.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    /// The message; its id does not count yet.
    pub(crate) message: Message,
    /// True if the agent has it by another way, or wrote it itself.
    pub(crate) heard: bool,
}

impl SessionChange {
    /// A change of `session` that `by` makes at `now`.
    pub(crate) fn open(session: Stored<Session>, by: By, now: Timestamp) -> Self {
        let first = session.kept.own.position + 1;
        let before = session.kept.resource.clone();
        let ready = session.kept.own.ready().cloned();
        Self {
            session,
            before,
            ready,
            is_deletion: false,
            by,
            now,
            first,
            events: Vec::new(),
            material: BTreeMap::new(),
            journal: Journal::default(),
            receipts: None,
            unsigned: Vec::new(),
            replay: None,
            keeping: Keeping::default(),
            later: false,
        }
    }

    /// The same, with which the key of its request is kept so.
    pub(crate) fn keeping(self, keeping: Keeping) -> Self {
        Self { keeping, ..self }
    }

    /// The same, in which `receipts` issues receipts.
    pub(crate) fn issuing(self, receipts: Option<Receipts>) -> Self {
        Self { receipts, ..self }
    }

    /// Leaves it to a later change of the session to report this one to the feed of the tenant, if at `now` the last report by
    /// this process is not long ago, and not too much would wait for the next one.
    pub(crate) fn report_later(&mut self, now: Timestamp) {
        let age = self.session.reported_at.map(|at| now.duration_since(at));
        self.later = age.is_some_and(|age| !age.is_negative() && age < REPORTED_WITHIN);
    }

    /// Marks messages from now on as repeated by a replay: they join no transcript.
    pub(crate) fn replay_as(&mut self, replay: Option<ReplayEventMetadata>) {
        self.replay = replay;
    }

    /// Stores `material` with the last event, for replays.
    pub(crate) fn note_material(&mut self, material: Map) {
        if let Some(last) = self.events.len().checked_sub(1).filter(|_| !material.is_empty()) {
            self.material.entry(last).or_default().extend(material);
        }
    }

    /// Stores with the last event that `payload` ended the pause of `paused`. What is large is not kept: a replay then
    /// says that it is missing.
    pub(crate) fn note_answer(&mut self, paused: &PausedInvocation, payload: &Map) {
        if is_small(payload) {
            let node = paused.suspended_at_node.first().map_or("", |node| &**node);
            let answer = json!({ "node": node, "payload": payload });
            self.note_material(Map::from_iter([(ANSWER.to_owned(), answer)]));
        }
    }

    /// Stores with the last event the conversation that a run had when it ended without reaching its end.
    pub(crate) fn note_state(&mut self, state: &Map) {
        if state.contains_key(MESSAGES) && is_small(state) {
            self.note_material(Map::from_iter([(STATE.to_owned(), Value::Object(state.clone()))]));
        }
    }

    /// Issuer of receipts.
    pub(crate) fn receipts(&self) -> Option<&Receipts> {
        self.receipts.as_ref()
    }

    /// The session as it will be.
    pub(crate) fn session(&self) -> &Session {
        &self.session.kept.resource
    }

    /// The same, to change it.
    pub(crate) fn session_mut(&mut self) -> &mut Session {
        &mut self.session.kept.resource
    }

    /// Bookkeeping of the server about the session.
    pub(crate) fn thread(&self) -> &SessionIndex {
        &self.session.kept.own
    }

    /// The same, to be changed.
    pub(crate) fn thread_mut(&mut self) -> &mut SessionIndex {
        &mut self.session.kept.own
    }

    /// Tenant that owns the session.
    pub(crate) fn tenant(&self) -> &str {
        &self.session.kept.tenant
    }

    /// The name of its stream.
    pub(crate) fn stream(&self) -> &str {
        self.session.kept.resource.envelope.id.as_str()
    }

    /// Instant of the change.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// The position that the next event gets.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Marks the session as deleted.
    pub(crate) fn delete(&mut self, tombstone: Tombstone) {
        self.session.kept.deleted = Some(tombstone);
        self.is_deletion = true;
    }

    /// Publishes an event about the session itself.
    pub(crate) fn emit_for_session(&mut self, draft: Draft) {
        self.session.kept.own.sequence += 1;
        let sequence = self.session.kept.own.sequence;
        self.emit(draft, sequence);
    }

    /// Publishes the first event about a resource.
    pub(crate) fn emit_new(&mut self, draft: Draft) {
        self.emit(draft, 1);
    }

    /// Publishes the issue of the receipt `id` by what `draft` makes. `payload` gets the receipt when it is
    /// [signed](Self::sign_receipts); of its hash nothing may change any more.
    pub(crate) fn emit_receipt(&mut self, draft: Draft, id: &ReceiptId, payload: Map, unsigned: Unsigned) {
        self.emit(draft, 1);
        if let Some(event) = self.events.last_mut() {
            event.receipt_id = Some(id.clone());
            event.payload = payload;
        }
        self.unsigned.push((self.events.len() - 1, unsigned));
    }

    /// Signs the receipts that were issued. Nothing of the change is written yet: where the process ends here, or the key
    /// does not answer, it is made anew.
    ///
    /// # Errors
    /// [`UnsignedError`] when a receipt cannot be signed.
    pub(crate) fn sign_receipts(&mut self) -> BoxFuture<'_, Result<(), UnsignedError>> {
        // Every commit of a task passes here: what waits for a key is not on its stack.
        Box::pin(async {
            for (at, unsigned) in std::mem::take(&mut self.unsigned) {
                let Some(receipts) = &self.receipts else {
                    return Err(internal(&"a receipt without an issuer").into());
                };
                let signature = receipts.sign(unsigned.hash().as_bytes()).await?;
                let sealed = unsigned.signed(&signature).map_err(|flaw| internal(&flaw))?;
                let receipt = serde_json::from_str(&sealed.text).map_err(|error| internal(&error))?;
                if let Some(event) = self.events.get_mut(at) {
                    event.payload.insert(RECEIPT.to_owned(), receipt);
                }
            }
            Ok(())
        })
    }

    /// Publishes an event about `task`.
    pub(crate) fn emit_for_task(&mut self, task: &mut Stored<Task>, draft: Draft) {
        task.kept.own.sequence += 1;
        self.emit(draft, task.kept.own.sequence);
    }

    /// Appends a message and publishes it by what `draft` makes. The message comes back as clients see it.
    ///
    /// # Errors
    /// `internal_error` when the event could not hold it.
    pub(crate) fn append_message(
        &mut self,
        said: NewMessage,
        draft: impl FnOnce(&Message) -> Draft,
    ) -> Result<Message, ProtocolError> {
        let position = self.next();
        let mut message = said.message;
        message.envelope.id = MessageId::at(self.stream(), position);
        message.session_id = Some(self.session().envelope.id.clone());
        let metadata = redact::object(std::mem::take(&mut message.envelope.metadata));
        let workspace = self.session().workspace_id.clone();
        let draft = draft(&message).within(Some(&workspace), message.session_id.as_ref(), message.task_id.as_ref());
        let draft = self.replay.iter().fold(draft, |draft, replay| draft.replayed(replay.clone()));
        self.emit(draft, 1);
        let is_new = self.replay.is_none();
        let thread = &mut self.session.kept.own;
        thread.messages += u64::from(is_new);
        if !said.heard && is_new {
            thread.not_delivered(position);
        }
        let event = self.events.last_mut().ok_or_else(|| internal(&"an event was just told"))?;
        event.envelope.metadata = metadata;
        transcript::message_of(event).ok_or_else(|| internal(&"the event of a message holds it"))
    }

    /// What `work` does, with `by` as the author of its events.
    pub(crate) fn authored<T>(&mut self, by: By, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.by, by);
        let done = work(self);
        self.by = before;
        done
    }

    fn emit(&mut self, draft: Draft, sequence: u64) {
        let place = EventPlace {
            stream: self.session.kept.resource.envelope.id.as_str(),
            position: self.next(),
            sequence,
            at: self.now,
        };
        let event = draft.by(self.by.actor.clone(), self.by.key.as_deref()).at(place);
        self.events.push(event);
    }

    /// Takes `task` to `to`, if that is a step of its life, and publishes it; `more` joins the event.
    pub(crate) fn advance(&mut self, task: &mut Stored<Task>, to: TaskStatus, failure: Option<Failure>, more: Map) {
        let before = task.kept.resource.status;
        if let StatusStep::Moves(kind) = task.kept.resource.advance(to, self.now, failure) {
            let draft = Draft::task_moved(kind, &task.kept.resource, before, more);
            self.emit_for_task(task, draft);
        }
    }

    /// Writes `task` as it is now, and what that means for its session: its document when it is new or has ended, and the
    /// session in between.
    ///
    /// # Errors
    /// `internal_error` when it cannot be written.
    pub(crate) fn put_task(&mut self, task: &Stored<Task>) -> Result<(), ProtocolError> {
        let id = &task.kept.resource.envelope.id;
        let status = task.kept.resource.status;
        if status != TaskStatus::Submitted {
            self.session.kept.own.queue.retain(|queued| queued != id);
        }
        let open = &mut self.session.kept.own.open;
        if status.is_terminal() {
            open.remove(id);
            return self.put(task);
        }
        let before = open.remove(id);
        let has_room = open.len() < MOST_IN_SESSION;
        let entry = if has_room {
            OpenTask::Progress(TaskProgress::of(&task.kept))
        } else {
            OpenTask::Standing(TaskStanding::of(status))
        };
        open.insert(id.clone(), entry);
        // What the session does not know is in the document, and only its version tells that it was read as it is.
        let is_known = matches!(before, Some(OpenTask::Progress(_)));
        if is_known && has_room { Ok(()) } else { self.put(task) }
    }

    /// Notes that the newest event names `task`, which has ended.
    ///
    /// # Errors
    /// `internal_error` when it cannot be written.
    pub(crate) fn names_ended(&mut self, mut task: Stored<Task>) -> Result<(), ProtocolError> {
        if task.kept.own.last.is_none() {
            return Ok(());
        }
        task.kept.own.last = Some(self.next() - 1);
        self.put(&task)
    }

    /// True if `task` is queued and may begin.
    pub(crate) fn is_ready(&self, task: &TaskId) -> bool {
        self.session.kept.own.ready() == Some(task)
    }

    /// The queued task that may begin because of the change: a worker is to be called for it.
    pub(crate) fn freed(&self) -> Option<TaskId> {
        self.session.kept.own.ready().filter(|ready| self.ready.as_ref() != Some(ready)).cloned()
    }

    /// Changes counters. Two additions to the same ones are one.
    pub(crate) fn count(&mut self, write: CounterWrite) {
        let same = self.journal.counters.iter_mut().find(|known| known.key == write.key);
        match (same, &write.change) {
            (
                Some(CounterWrite { change: CounterChange::Add { amounts }, .. }),
                CounterChange::Add { amounts: more },
            ) => {
                more.iter().for_each(|(name, amount)| *amounts.entry(name.clone()).or_default() += amount);
            }
            (_, _) => self.journal.counters.push(write),
        }
    }

    /// Writes a document of the session.
    ///
    /// # Errors
    /// `internal_error` when it cannot be written.
    pub(crate) fn put<R: Resource>(&mut self, one: &Stored<R>) -> Result<(), ProtocolError> {
        self.journal.documents.push(one.write()?);
        Ok(())
    }

    /// True if the document `key` is to be written.
    pub(crate) fn puts(&self, key: &DocumentKey) -> bool {
        self.journal.documents.iter().any(|write| write.key == *key)
    }

    /// The session as it will be stored, and everything that is to be written. Without an event that is nothing of the
    /// session.
    ///
    /// # Errors
    /// `internal_error` when it cannot be written, holds a receipt that is [not signed](Self::sign_receipts), or has no event
    /// by which its session would know of the [key](Self::keeping) of the request.
    pub(crate) fn close(mut self) -> Result<(Stored<Session>, Journal), ProtocolError> {
        if !self.unsigned.is_empty() {
            return Err(internal(&"a receipt is not signed"));
        }
        let Some(last) = self.events.last() else {
            return match self.keeping {
                Keeping::Untold => Ok((self.session, self.journal)),
                // The request would be done once more when it comes again.
                Keeping::Apart | Keeping::Noted(_) => Err(internal(&"a key of which no event tells its session")),
            };
        };
        self.session.kept.resource.last_event_id = Some(last.envelope.id.clone());
        self.session.kept.own.position = self.first - 1 + self.events.len() as u64;
        let keeping = std::mem::take(&mut self.keeping);
        let note = keeping.note_in(&mut self.session.kept.own, (self.first, self.now))?;
        let state = state_of(&self.session);
        let session = &mut self.session.kept.resource;
        (session.state, session.envelope.updated_at) = (state, self.now);
        let end = SessionEnd { state, updated_at: self.now, own: self.session.kept.own.clone() };
        let known = object(&end)?;
        let mut entries = self.events.iter().map(object).collect::<Result<Vec<_>, _>>()?;
        for (at, material) in std::mem::take(&mut self.material) {
            if let Some(entry) = entries.get_mut(at) {
                entry.insert(MATERIAL.to_owned(), Value::Object(material));
            }
        }
        if let (Some(note), Some(entry)) = (note, entries.first_mut()) {
            put_note(entry, note);
        }
        let (behind, unreported) = (self.session.told_at, self.session.unreported);
        let later = self.later && {
            let bytes = entries.iter().map(dormouse_json::length).sum::<Result<usize, _>>();
            let are_few = unreported + entries.len() as u64 <= MOST_UNREPORTED;
            are_few && bytes.is_ok_and(|bytes| bytes <= MOST_UNREPORTED_BYTES)
        };
        let end = EndOfStream { known, behind, unreported, later };
        let fed = Some(feed::fed(self.tenant(), self.session.kept.workspace.as_ref()));
        let stream = self.stream().to_owned();
        let first = self.first;
        self.journal.accepts.extend(webhooks::deliveries(&self.session, &self.events, self.now));
        let append = Append { stream, end: StreamEnd::Append(end), first, entries, fed };
        self.session.unreported = append.leaves_unreported();
        self.journal.appends.push(append);
        if !self.session.is_split || self.is_deletion || !is_same(&self.before, &self.session.kept.resource) {
            self.journal.documents.push(self.session.write()?);
            self.session = self.session.written();
        }
        Ok((self.session, self.journal))
    }
}

/// True if `content` is no more than is kept for replays.
pub(crate) fn is_small(content: &Map) -> bool {
    dormouse_json::length(content).is_ok_and(|size| size <= MOST_MATERIAL)
}

/// True if the documents of both are the same: they differ at most in what the end of the stream holds.
fn is_same(before: &Session, after: &Session) -> bool {
    let mut before = before.clone();
    before.state = after.state;
    before.envelope.updated_at = after.envelope.updated_at;
    before.last_event_id.clone_from(&after.last_event_id);
    before == *after
}

/// State of a session: it follows from the states of its tasks, until it is closed.
fn state_of(session: &Stored<Session>) -> SessionState {
    let state = session.kept.resource.state;
    if !state.is_open() {
        return state;
    }
    let open = &session.kept.own.open;
    if open.values().any(|task| task.standing() == TaskStanding::Works) {
        SessionState::Active
    } else if open.is_empty() {
        SessionState::Idle
    } else {
        SessionState::Paused
    }
}

/// `value` as it is stored.
pub(crate) fn object(value: &impl Serialize) -> Result<Map, ProtocolError> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(internal(&"what is stored is an object")),
        Err(error) => Err(internal(&error)),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_protocol::Envelope;
    use dormouse_protocol::id::{SessionId, WorkspaceId};
    use dormouse_protocol::resource::Transcript;

    use super::*;

    fn change(keeping: Keeping) -> SessionChange {
        let session = Session {
            envelope: Envelope::new(SessionId::from("session_1"), Timestamp::UNIX_EPOCH),
            workspace_id: WorkspaceId::from("workspace_1"),
            state: SessionState::Idle,
            transcript: Transcript::Link(String::new()),
            persona_id: None,
            root_session_id: None,
            parent_session_id: None,
            branch_id: None,
            last_event_id: None,
            summary: None,
            expires_at: None,
        };
        let session = Stored::new("acme", None, session, SessionIndex::new());
        let by = By { actor: "ada".to_owned(), key: Some("again".to_owned()) };
        SessionChange::open(session, by, Timestamp::UNIX_EPOCH).keeping(keeping)
    }

    #[test]
    fn a_change_is_reported_later_where_the_last_report_was_a_moment_ago_and_little_waits_for_the_next() {
        let sent = |age: Option<i64>, unreported: u64, size: usize| {
            let mut change = change(Keeping::Untold);
            let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(100);
            change.session.reported_at = age.map(|age| now - SignedDuration::from_secs(age));
            (change.session.unreported, change.first) = (unreported, 101);
            change.report_later(now);
            change.emit_for_session(Draft::session_created(change.session()));
            change.note_material(Map::from_iter([(STATE.to_owned(), "x".repeat(size).into())]));
            let (session, journal) = change.close().expect("an event tells of it");
            let session = session.told_by(now);
            let StreamEnd::Append(end) = &journal.appends[0].end else { panic!("it keeps the end") };
            assert_eq!(end.unreported, unreported);
            assert_eq!(session.unreported, if end.later { unreported + 1 } else { 0 });
            assert_eq!(session.reported_at == Some(now), !end.later || age == Some(0));
            end.later
        };
        assert!(sent(Some(0), 0, 0) && sent(Some(29), 254, 60_000));
        assert!(!sent(None, 0, 0), "nobody knows of a report");
        assert!(!sent(Some(30), 5, 0), "it was long ago");
        assert!(!sent(Some(-1), 5, 0), "the clock went back");
        assert!(!sent(Some(1), 255, 0), "many wait");
        assert!(!sent(Some(1), 0, 70_000), "it is large");
        let mut at_once = change(Keeping::Untold);
        at_once.session.reported_at = Some(Timestamp::UNIX_EPOCH);
        at_once.emit_for_session(Draft::session_created(at_once.session()));
        let (_, journal) = at_once.close().expect("an event tells of it");
        assert_eq!(journal.appends[0].leaves_unreported(), 0, "who does not ask for it reports");
    }

    #[test]
    fn no_change_is_written_whose_session_would_not_know_of_its_key() {
        let (session, journal) = change(Keeping::Untold).close().expect("nothing is to be known");
        assert!(journal.is_empty() && session.kept.own.apart_until.is_none());
        assert!(change(Keeping::Apart).close().is_err(), "no event tells of it");
        let mut told = change(Keeping::Apart);
        let draft = Draft::session_created(told.session());
        told.emit_for_session(draft);
        let (session, journal) = told.close().expect("an event tells of it");
        assert!(!journal.is_empty() && session.kept.own.apart_until.is_some());
    }
}
