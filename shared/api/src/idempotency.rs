//! Writes that can be repeated: what a key was answered with is kept together with what it wrote, for 24 hours. Of requests
//! with the same key that come at once, one commit succeeds; the others find what it kept, and give its answer.
//!
//! A key of a request that submits a task to a session, or says something to a task, is noted in the first event of what the
//! request writes, which takes a few bytes of an item that is written anyway. The end of the session's stream tells where
//! the newest note is, and that one tells where those before it are. All of them are in one stream, and a commit is refused
//! where the stream has grown since its end was read: whoever has read the end, and behind that looks through the notes, has
//! seen every key that was used before. The answer is made again of what the request has written.
//!
//! Any other key has a document (kind `idempotency`), which is called by the hash of its scope and holds the answer; so have
//! those of earlier versions, those beyond [`MOST_NOTED`], and those whose answer is in nothing that is written. A commit is
//! refused where the document is there already.
//!
//! The scope's workspace is that of the body, or of the session that the body names; where the path names what is
//! written to, it decides the workspace already, and that part is empty. It is empty, too, where the workspace was chosen for the
//! caller: another one may be chosen when the request comes again, and its answer is the first one all the same.

use dormouse_ports::{DocumentKey, DocumentWrite, Journal, Map};
use dormouse_protocol::id::{EventId, PermissionRequestId, SessionId, TaskId};
use dormouse_protocol::request::IdempotencyScope;
use dormouse_protocol::resource::{
    CreateSessionRequest, PermissionRequest, RegisterArtifactRequest, Session, SubmitTaskRequest, Task, TaskStatus,
};
use dormouse_protocol::{Envelope, Event, Operation, ProtocolError};
use futures::future::{BoxFuture, try_join};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::json as shown;
use crate::documents::{SessionIndex, Stored};
use crate::permissions::task_of;
use crate::reads::Reads;
use crate::refusal::{internal, store};
use crate::transcript::{message_of, readable};
use crate::{Call, CallAnswer};

/// The kind of the documents.
pub(crate) const KIND: &str = "idempotency";

/// Field of a stored event with the [`KeyNote`] of the request that wrote it. It is no field of an event as clients know it.
const NOTE: &str = "noted";

/// Time for which an answer is kept.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Time for which what is over is known yet, where clocks differ or a request took long.
const MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// Seconds in which notes tell how old they are.
const SLOT: i64 = 600;

/// Age in slots at which no note leads to another one any more: 24 hours and the margin.
const FORGOTTEN: u64 = 25 * 6;

/// Number of notes that the newest one leads to, each of which takes five bytes of it.
const MOST_NOTED: usize = 48;

/// Characters that a note keeps of a hash: 128 bits.
const HALF: usize = 32;

/// Knows the requests that come again.
#[derive(Clone)]
pub(crate) struct Repetitions {
    pub(crate) reads: Reads,
}

/// What is known of the key of a request before it is written.
pub(crate) enum Sighting {
    /// It was used: the status and the body of the answer.
    Again(u16, Value),
    /// It was not, and is to be kept so.
    New(Keeping),
}

/// How the key of a request is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Keeping {
    /// There is none, or its session need not know.
    #[default]
    Elsewhere,
    /// In a document, which its session tells of.
    Apart,
    /// In the first event of what it writes.
    Noted(KeyNote),
}

/// The key of a request, in the first event of what the request wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyNote {
    /// Half of the hash of its scope.
    scope: String,
    /// Half of the hash of the request's body.
    body: String,
    /// The notes before it, the newest first: three numbers for each, those of an [`EarlierNote`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<u64>,
}

/// What a note tells of one before it.
struct EarlierNote {
    /// The first 16 bits of its scope.
    scope: u64,
    /// By how many positions it stands before the one behind it.
    back: u64,
    /// By how many slots of time it is older than that.
    older: u64,
}

/// A note where it stands.
struct Noted {
    position: u64,
    note: KeyNote,
    event: Event,
}

impl Keeping {
    /// The same where no answer can be made of what is written.
    pub(crate) fn apart(self) -> Self {
        match self {
            Self::Elsewhere => Self::Elsewhere,
            Self::Apart | Self::Noted(_) => Self::Apart,
        }
    }

    /// Has `own`, the session of a request of `now`, know of the key; the note that belongs in its first event, which is at
    /// `position`.
    ///
    /// # Errors
    /// `internal_error` when it cannot be written.
    pub(crate) fn note_in(
        self,
        own: &mut SessionIndex,
        (position, now): (u64, Timestamp),
    ) -> Result<Option<Value>, ProtocolError> {
        if self == Self::Elsewhere {
            return Ok(None);
        }
        // Of what an earlier version has written there are documents alone.
        let is_apart = self == Self::Apart || own.keyed.is_none();
        own.apart_until = own.apart_until.filter(|until| now.duration_since(*until) < MARGIN);
        if is_apart {
            let until = now.checked_add(KEPT_FOR).map_err(|error| internal(&error))?;
            own.apart_until = own.apart_until.max(Some(until));
        }
        let before = own.keyed.unwrap_or_default();
        match self {
            Self::Noted(note) => {
                own.keyed = Some(position);
                shown(&note).map(Some)
            }
            Self::Elsewhere | Self::Apart => {
                own.keyed = Some(before);
                Ok(None)
            }
        }
    }
}

impl KeyNote {
    fn of(call: &Call, key: &DocumentKey) -> Self {
        Self { scope: half(&key.id), body: half(&hash_of(call)), before: Vec::new() }
    }

    /// The notes before it, the newest first.
    fn earlier(&self) -> impl Iterator<Item = EarlierNote> {
        self.before.chunks_exact(3).filter_map(|numbers| match numbers {
            [scope, back, older] => Some(EarlierNote { scope: *scope, back: *back, older: *older }),
            _ => None,
        })
    }

    /// The same at `position` and `now`, behind `newest`; `None` where that leads to enough others.
    fn behind(self, newest: &Noted, (position, now): (u64, Timestamp)) -> Option<Self> {
        let scope = beginning(&newest.note.scope);
        let back = position.checked_sub(newest.position)?;
        let older = u64::try_from(slot(now) - slot(newest.event.envelope.created_at)).unwrap_or_default();
        let mut age = 0;
        let is_known = |note: &EarlierNote| {
            age += note.older;
            age < FORGOTTEN
        };
        let earlier = std::iter::once(EarlierNote { scope, back, older }).chain(newest.note.earlier());
        let known = earlier.take_while(is_known).flat_map(|note| [note.scope, note.back, note.older]);
        let before: Vec<u64> = known.collect();
        (before.len() <= 3 * MOST_NOTED).then_some(Self { before, ..self })
    }
}

/// True if `journal` notes the key of its request.
pub(crate) fn notes_key(journal: &Journal) -> bool {
    journal.appends.iter().any(|append| append.entries.first().is_some_and(|entry| entry.contains_key(NOTE)))
}

/// Puts `note` into `entry`.
pub(crate) fn put_note(entry: &mut Map, note: Value) {
    entry.insert(NOTE.to_owned(), note);
}

impl Repetitions {
    /// The document that remembers the answer to `call`; none without a key.
    pub(crate) async fn record(
        &self,
        call: &Call,
        status: u16,
        answer: &Value,
    ) -> Result<Option<DocumentWrite>, ProtocolError> {
        let Some(key) = self.key_of(call).await? else { return Ok(None) };
        let tenant = &call.actor.tenant;
        let body = json!({"hash": hash_of(call), "status": status, "answer": answer, "tenant": tenant});
        let Value::Object(body) = body else { return Err(internal(&"an object is an object")) };
        let expires_at = Some(call.now.checked_add(KEPT_FOR).map_err(|error| internal(&error))?);
        Ok(Some(DocumentWrite { key, expect: 0, body: Some(body), listed: Vec::new(), expires_at }))
    }

    /// The answer that the first request with the same key got, if there was one.
    ///
    /// # Errors
    /// `idempotency_key_reused` when that one had another body.
    pub(crate) async fn repeated(&self, call: &Call) -> Result<Option<CallAnswer>, ProtocolError> {
        let again = match self.session_of(call).await? {
            Some(session) => match self.sight(call, &session).await? {
                Sighting::Again(status, answer) => Some((status, answer)),
                Sighting::New(_) => None,
            },
            None => match self.key_of(call).await? {
                Some(key) => self.kept_apart(call, &key).await?,
                None => None,
            },
        };
        Ok(again.map(|(status, answer)| CallAnswer::Repeated(status, answer)))
    }

    /// What is known of the key of `call`, which writes to `session` on the condition that its stream has not grown since
    /// that was read: what is read here is read behind that, so that nothing can come in between.
    ///
    /// # Errors
    /// `idempotency_key_reused` when it was used with another body.
    pub(crate) fn sight<'a>(
        &'a self,
        call: &'a Call,
        session: &'a Stored<Session>,
    ) -> BoxFuture<'a, Result<Sighting, ProtocolError>> {
        // Most that is written has no key: what is read for one is on no stack.
        Box::pin(async move {
            let key = if is_noted(call.operation) { self.key_of(call).await? } else { None };
            let Some(key) = key else { return Ok(Sighting::New(Keeping::Elsewhere)) };
            let own = &session.kept.own;
            let stream = session.kept.resource.envelope.id.as_str();
            let may_be_apart = own.keyed.is_none() || own.apart_until.is_some_and(|until| until > call.now);
            let apart = async { if may_be_apart { self.kept_apart(call, &key).await } else { Ok(None) } };
            let (apart, newest) = try_join(apart, self.note_at(stream, own.keyed.unwrap_or_default())).await?;
            if let Some((status, answer)) = apart {
                return Ok(Sighting::Again(status, answer));
            }
            let note = KeyNote::of(call, &key);
            let Some(newest) = newest else { return Ok(Sighting::New(Keeping::Noted(note))) };
            let older;
            let first = if newest.note.scope == note.scope {
                Some(&newest)
            } else {
                older = self.older(stream, &newest, &note.scope).await?;
                older.as_ref()
            };
            if let Some(first) = first.filter(|first| first.age(call.now) < KEPT_FOR) {
                if first.note.body != note.body {
                    return Err(ProtocolError::idempotency_key_reused());
                }
                let answer = self.answer_of(call, &first.event).await?;
                return Ok(Sighting::Again(call.operation.spec().output.status(), answer));
            }
            let note = note.behind(&newest, (own.position + 1, call.now));
            Ok(Sighting::New(note.map_or(Keeping::Apart, Keeping::Noted)))
        })
    }

    /// The answer in the document called `key`, if it is there.
    async fn kept_apart(&self, call: &Call, key: &DocumentKey) -> Result<Option<(u16, Value)>, ProtocolError> {
        let Some(document) = self.reads.records().document(key, call.now).await.map_err(store)? else {
            return Ok(None);
        };
        let field = |name: &str| document.body.get(name).cloned().unwrap_or_default();
        if field("hash") != hash_of(call) {
            return Err(ProtocolError::idempotency_key_reused());
        }
        let status = field("status").as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.ok_or_else(|| internal(&"an idempotency document without a status"))?;
        Ok(Some((status, field("answer"))))
    }

    /// The note in the event of `stream` at `position`; none at 0, and where it cannot be read.
    async fn note_at(&self, stream: &str, position: u64) -> Result<Option<Noted>, ProtocolError> {
        if position == 0 {
            return Ok(None);
        }
        let entry = self.reads.records().entry(stream, position).await.map_err(store)?;
        let Some(mut entry) = entry.map(|entry| entry.entry) else { return Ok(None) };
        let damaged = |error: &serde_json::Error| {
            tracing::error!(stream, position, %error, "a key cannot be read: its request, and those before it, may be done again");
        };
        let note = entry.shift_remove(NOTE).and_then(|note| KeyNote::deserialize(note).inspect_err(damaged).ok());
        let event = readable(&EventId::at(stream, position), entry);
        Ok(note.zip(event).map(|(note, event)| Noted { position, note, event }))
    }

    /// The newest note of `scope` before `newest`.
    async fn older(&self, stream: &str, newest: &Noted, scope: &str) -> Result<Option<Noted>, ProtocolError> {
        let mut position = newest.position;
        for earlier in newest.note.earlier() {
            position = position.saturating_sub(earlier.back);
            if earlier.scope == beginning(scope)
                && let Some(found) = self.note_at(stream, position).await?
                && found.note.scope == scope
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// What the request was answered with that wrote `event`, the first of its events.
    ///
    /// # Errors
    /// `resource_not_found` where what it is made of is not there any more: its session is being erased.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other one is noted")]
    async fn answer_of(&self, call: &Call, event: &Event) -> Result<Value, ProtocolError> {
        match call.operation {
            Operation::SubmitSessionTask => {
                let not_found = || ProtocolError::not_found("task");
                let id = event.task_id.as_ref().ok_or_else(not_found)?;
                let task = self.reads.find::<Task>(id, call.now).await?.ok_or_else(not_found)?;
                shown(&as_accepted(task.kept.resource))
            }
            Operation::AppendTaskMessage => {
                let message = message_of(event).ok_or_else(|| internal(&"the event of a message holds it"))?;
                shown(&message)
            }
            Operation::RespondPermissionRequest => {
                let id = PermissionRequestId::from(call.params.get("request_id"));
                let request = self.reads.find::<PermissionRequest>(&id, call.now).await?;
                let request = request.ok_or_else(|| ProtocolError::not_found("permission_request"))?;
                shown(&request.kept.resource)
            }
            _ => Err(internal(&"a note of what is not noted")),
        }
    }

    /// The session whose stream notes the key of `call`, also where it was deleted since.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other one is noted")]
    async fn session_of(&self, call: &Call) -> Result<Option<Stored<Session>>, ProtocolError> {
        if call.idempotency_key.is_none() {
            return Ok(None);
        }
        let task = match call.operation {
            Operation::SubmitSessionTask => {
                return self.noting(call, &SessionId::from(call.params.get("session_id"))).await;
            }
            Operation::AppendTaskMessage => Some(TaskId::from(call.params.get("task_id"))),
            Operation::RespondPermissionRequest => task_of(&PermissionRequestId::from(call.params.get("request_id"))),
            _ => None,
        };
        let Some(task) = task else { return Ok(None) };
        match self.reads.find::<Task>(&task, call.now).await? {
            Some(task) => self.noting(call, &task.kept.resource.session_id).await,
            None => Ok(None),
        }
    }

    async fn noting(&self, call: &Call, session: &SessionId) -> Result<Option<Stored<Session>>, ProtocolError> {
        let session = self.reads.find::<Session>(session, call.now).await?;
        Ok(session.filter(|session| session.is_deleted_to(&call.actor).is_some()))
    }

    async fn key_of(&self, call: &Call) -> Result<Option<DocumentKey>, ProtocolError> {
        let Some(key) = &call.idempotency_key else { return Ok(None) };
        let workspace = self.workspace_of(call).await?;
        let scope = IdempotencyScope {
            actor: &format!("{}/{}", call.actor.tenant, call.actor.name),
            workspace_id: &workspace,
            method: call.operation.spec().method,
            target: &call.target,
            key,
        };
        Ok(Some(DocumentKey::new(KIND, scope.id())))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others name what they write to in their path")]
    async fn workspace_of(&self, call: &Call) -> Result<String, ProtocolError> {
        let body = call.body.clone();
        Ok(match call.operation {
            _ if call.is_placed_for_caller => String::new(),
            Operation::CreateSession => body.decode::<CreateSessionRequest>()?.workspace_id.to_string(),
            Operation::RegisterArtifact => {
                let workspace = body.decode::<RegisterArtifactRequest>()?.workspace_id;
                workspace.map(|workspace| workspace.to_string()).unwrap_or_default()
            }
            Operation::SubmitTask => match body.decode::<SubmitTaskRequest>()?.session_id {
                Some(session) => self.workspace_of_session(call, &session).await?,
                None => String::new(),
            },
            _ => String::new(),
        })
    }

    async fn workspace_of_session(&self, call: &Call, session: &SessionId) -> Result<String, ProtocolError> {
        let found = self.reads.find::<Session>(session, call.now).await?.filter(|found| found.is_seen_by(&call.actor));
        Ok(found.map(|found| found.kept.resource.workspace_id.to_string()).unwrap_or_default())
    }
}

impl Noted {
    /// How long ago it was written.
    fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.event.envelope.created_at)
    }
}

/// True for what writes to one session alone, which its path names or leads to, and is answered with what it writes there.
fn is_noted(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::SubmitSessionTask | Operation::AppendTaskMessage | Operation::RespondPermissionRequest
    )
}

/// `task`, which was not queued, as it was when it was submitted: its input, and all that the request said of it, stay.
fn as_accepted(task: Task) -> Task {
    let at = task.envelope.created_at;
    Task {
        envelope: Envelope { updated_at: at, ..task.envelope },
        status: TaskStatus::Working,
        started_at: Some(at),
        receipt_id: None,
        outcome_id: None,
        completed_at: None,
        canceled_at: None,
        failure: None,
        ..task
    }
}

fn hash_of(call: &Call) -> String {
    let hash = match call.is_placed_for_caller {
        true => call.body.clone().without("workspace_id").hash(),
        false => call.body.hash(),
    };
    hex::encode(hash)
}

/// The first half of a hash.
fn half(hash: &str) -> String {
    hash.chars().take(HALF).collect()
}

/// The slot of time in which `at` is.
fn slot(at: Timestamp) -> i64 {
    at.as_second().div_euclid(SLOT)
}

/// The first 16 bits of a hash.
fn beginning(hash: &str) -> u64 {
    hash.get(..4).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use dormouse_protocol::event::{Draft, EventPlace};
    use dormouse_protocol::{EventKind, ResourcePointer};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn note(scope: &str) -> KeyNote {
        KeyNote { scope: half(&scope.repeat(64)), body: "b".to_owned(), before: Vec::new() }
    }

    fn noted(position: u64, note: KeyNote, second: i64) -> Noted {
        let task = ResourcePointer { object: "task".to_owned(), id: "t".to_owned() };
        let event = Draft::new(EventKind::TaskSubmitted, task, json!({}));
        Noted { position, note, event: event.at(EventPlace { stream: "s", position, sequence: 1, at: at(second) }) }
    }

    #[test]
    fn a_note_leads_to_those_before_it_until_they_are_enough() {
        let first = noted(7, note("1"), 0);
        let second = noted(12, note("2").behind(&first, (12, at(1_199))).expect("few"), 1_199);
        assert_eq!(second.note.before, [0x1111, 5, 1]);
        let third = note("3").behind(&second, (13, at(1_200))).expect("few");
        assert_eq!(third.before, [0x2222, 1, 1, 0x1111, 5, 1]);
        let behind = note("3").behind(&second, (13, at(0))).expect("few");
        assert_eq!(behind.before, [0x2222, 1, 0, 0x1111, 5, 1], "a clock that is behind");
        let mut newest = first;
        let mut count = 0;
        while let Some(next) = note("4").behind(&newest, (newest.position + 1, at(0))) {
            newest = noted(newest.position + 1, next, 0);
            count += 1;
        }
        assert_eq!(count, MOST_NOTED);
    }

    #[test]
    fn a_note_leads_to_none_that_is_forgotten() {
        let mut newest = noted(1, note("1"), 0);
        for hour in 1..100 {
            let now = hour * 3_600;
            let next = note("1").behind(&newest, (newest.position + 1, at(now))).expect("few");
            assert_eq!(i64::try_from(next.earlier().count()), Ok(hour.min(24)), "after {hour} hours");
            newest = noted(newest.position + 1, next, now);
        }
        let late = note("1").behind(&newest, (200, at(99 * 3_600 + 25 * 3_600))).expect("few");
        assert_eq!(late.before, [0_u64; 0]);
    }

    #[test]
    fn a_session_knows_of_the_newest_note_and_until_when_documents_are_there() {
        let day = |second: i64| Some(at(second + 24 * 3_600));
        let mut own = SessionIndex::new();
        let keep = |keeping: Keeping, own: &mut SessionIndex, position, second| {
            let note = keeping.note_in(own, (position, at(second))).expect("a note");
            (note.is_some(), own.keyed, own.apart_until)
        };
        assert_eq!(keep(Keeping::Elsewhere, &mut own, 2, 0), (false, Some(0), None));
        assert_eq!(keep(Keeping::Noted(note("1")), &mut own, 3, 1), (true, Some(3), None));
        assert_eq!(keep(Keeping::Apart, &mut own, 5, 2), (false, Some(3), day(2)));
        assert_eq!(keep(Keeping::Apart, &mut own, 6, 1), (false, Some(3), day(2)), "a clock that is behind");
        assert_eq!(keep(Keeping::Noted(note("2")), &mut own, 7, 3), (true, Some(7), day(2)));
        assert_eq!(keep(Keeping::Noted(note("2")), &mut own, 9, 25 * 3_600 + 1), (true, Some(9), day(2)));
        assert_eq!(keep(Keeping::Noted(note("2")), &mut own, 11, 25 * 3_600 + 2), (true, Some(11), None));
        let mut earlier = SessionIndex::default();
        assert_eq!(keep(Keeping::Noted(note("1")), &mut earlier, 4, 0), (true, Some(4), day(0)));
    }
}
