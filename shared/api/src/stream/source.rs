use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{EntryStretch, Records, StoreError};
use dormouse_protocol::id::{EventId, Identifier, SessionId, TaskId, WorkspaceId};
use dormouse_protocol::operation::{Operation, Params};
use dormouse_protocol::request::{Body, Filters, Query};
use dormouse_protocol::resource::TaskStatus;
use dormouse_protocol::{ErrorCode, Event, EventKind, List, ProtocolError};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::tail::{TailEnd, TailPlace, Tails};
use crate::deletion::DELETED;
use crate::events::passes;
use crate::transcript::readable;
use crate::{Call, CallAnswer, Operations, feed};

/// Source of the events of a stream, and the position up to which they have been read.
pub(super) enum EventSource {
    /// A session, or what of it is about one task.
    Session {
        records: Arc<dyn Records>,
        session_id: String,
        task_id: Option<TaskId>,
        /// What else its events have to be of.
        filters: Filters,
        /// True if the task had ended when the stream was opened.
        had_ended: bool,
        /// The position of the last event that was looked at.
        seen: u64,
        tails: Option<Arc<Tails>>,
        /// The end that it shares with others, once it has all that came before.
        shared: Option<TailPlace>,
    },
    /// All sessions that the caller sees: ranges of all events, one after the other, and then what comes.
    All(Box<AllEvents>),
}

/// The events of all sessions that a caller sees.
pub(super) struct AllEvents {
    records: Arc<dyn Records>,
    operations: Arc<dyn Operations>,
    call: Call,
    filters: Filters,
    /// The event up to which they have been read.
    after: Option<String>,
    /// The event that its client had when it was opened.
    opened_behind: Option<EventId>,
    tails: Option<Arc<Tails>>,
    /// What its client had told it to begin behind, until a shared end would not tell that again.
    began_behind: Option<BeganBehind>,
    /// True if the last range that it read itself was the last one.
    is_near: bool,
    /// The end that it shares with others, once it has all that came before.
    shared: Option<SharedEnd>,
}

/// The event behind which a stream began.
enum BeganBehind {
    Event(EventId),
    /// The instant at which it was sent.
    SentAt(Timestamp),
}

/// The place of a stream in an end that it shares.
struct SharedEnd {
    place: TailPlace,
    /// Events behind that place that the stream has told already.
    told: HashSet<EventId>,
}

/// Result of a look at the source.
pub(super) struct Batch {
    /// Events that the stream yields.
    pub(super) events: Vec<Event>,
    /// True if there may be more already.
    pub(super) more: bool,
    /// When the read began that shows it, where that is another's; monotonic.
    pub(super) began: Option<Duration>,
}

impl EventSource {
    /// The source that `call` asks for, behind the event `after`. An error within is one of the cursor.
    ///
    /// # Errors
    /// Errors of `operations` about the session or task.
    pub(super) async fn open(
        (records, tails): (&Arc<dyn Records>, Option<&Arc<Tails>>),
        operations: &Arc<dyn Operations>,
        call: Call,
        after: Option<EventId>,
    ) -> Result<Result<Self, ProtocolError>, ProtocolError> {
        let filters = Filters::read(&call.query)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "three operations stream")]
        let (session_id, task_id) = match call.operation {
            Operation::StreamSessionEvents => (Some(SessionId::from(call.params.get("session_id"))), None),
            Operation::StreamTaskEvents => (None, Some(TaskId::from(call.params.get("task_id")))),
            Operation::StreamEvents => (filters.session_id.clone(), filters.task_id.clone()),
            other => return Err(ProtocolError::not_implemented(other)),
        };
        let (session_id, had_ended) = match (&task_id, session_id) {
            (Some(task), _) => {
                let task = read(&**operations, &call, Operation::GetTask, task).await?;
                let status = TaskStatus::deserialize(&task["status"]).map_err(|_| broken())?;
                (text(&task, "session_id")?, status.is_terminal())
            }
            (None, Some(session)) => {
                let session = read(&**operations, &call, Operation::GetSession, &session).await?;
                (text(&session, "id")?, false)
            }
            (None, None) => {
                let all = AllEvents {
                    records: records.clone(),
                    operations: operations.clone(),
                    call,
                    filters,
                    after: after.as_ref().map(|id| id.as_str().to_owned()),
                    opened_behind: after.clone(),
                    tails: tails.cloned(),
                    began_behind: after.map(BeganBehind::Event),
                    is_near: false,
                    shared: None,
                };
                return Ok(Ok(Self::All(Box::new(all))));
            }
        };
        let seen = match (&after, &task_id) {
            (Some(after), _) => position_in(&**records, &session_id, after).await?,
            (None, Some(task)) => Ok(before_the_first(&**operations, &call, task).await?),
            (None, None) => Ok(0),
        };
        // The paths of the others name all that they are about.
        let filters = if call.operation == Operation::StreamEvents { filters } else { Filters::default() };
        let (records, tails) = (records.clone(), tails.cloned());
        let shared = None;
        Ok(seen.map(|seen| Self::Session { records, session_id, task_id, filters, had_ended, seen, tails, shared }))
    }

    /// The stream or feed with the appends that concern it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Session { session_id, .. } => session_id.clone(),
            Self::All(all) => feed::name(&all.call.actor.tenant),
        }
    }

    /// Its session, and the task that it is of if it is of one; `None` for all sessions.
    pub(super) fn place(&self) -> Option<(SessionId, Option<TaskId>)> {
        match self {
            Self::Session { session_id, task_id, .. } => Some((session_id.as_str().into(), task_id.clone())),
            Self::All(_) => None,
        }
    }

    /// True if `event` is the last thing that happens to what the stream is about, but for the ends of the tasks of a session
    /// that is deleted.
    pub(super) fn ends_with(&self, event: &Event) -> bool {
        match self {
            Self::Session { task_id: Some(_), .. } => {
                matches!(event.event, EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCanceled)
            }
            Self::Session { task_id: None, .. } => event.event.as_str() == DELETED,
            Self::All(_) => false,
        }
    }

    /// True if nothing can happen any more to what the stream is about, beside what was yielded already.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Session { had_ended: true, .. })
    }

    /// The next events, at most about `limit`. With `newer` another's read will do only if it shows more than the last look
    /// did.
    pub(super) async fn look(&mut self, limit: usize, newer: bool) -> Result<Batch, ProtocolError> {
        match self {
            Self::Session { records, session_id, task_id, filters, seen, tails, shared, .. } => {
                let concerns = |event: &Event| task_id.as_ref().is_none_or(|task| event.task_id.as_ref() == Some(task));
                let wanted = |event: &Event| concerns(event) && passes(filters, event);
                if let Some(place) = shared {
                    match place.look(limit, newer).await {
                        Ok(found) => {
                            *seen = place.seen();
                            let events =
                                found.events.into_iter().filter_map(|(_, event)| event).filter(wanted).collect();
                            return Ok(Batch { events, more: found.more, began: Some(found.began) });
                        }
                        Err(TailEnd::Store(error)) => return Err(unavailable(&error)),
                        Err(TailEnd::Elsewhere) => *shared = None,
                    }
                }
                let stretch = records.stretch(session_id, *seen, limit).await.map_err(|error| unavailable(&error))?;
                let EntryStretch { entries, more } = stretch;
                *seen = entries.last().map_or(*seen, |entry| entry.position);
                if !more {
                    *shared = tails.as_ref().map(|tails| tails.in_session(records, session_id, *seen));
                }
                let place = |position| EventId::at(session_id, position);
                let events = entries.into_iter().filter_map(|entry| readable(&place(entry.position), entry.entry));
                Ok(Batch { events: events.filter(wanted).collect(), more, began: None })
            }
            Self::All(all) => all.look(limit, newer).await,
        }
    }
}

impl AllEvents {
    async fn look(&mut self, limit: usize, newer: bool) -> Result<Batch, ProtocolError> {
        if let Some(shared) = &mut self.shared {
            match shared.place.look(limit, newer).await {
                Ok(found) => {
                    let (more, began) = (found.more, Some(found.began));
                    return Ok(Batch { events: self.wanted(found.events), more, began });
                }
                Err(TailEnd::Store(error)) => return Err(unavailable(&error)),
                Err(TailEnd::Elsewhere) => (self.shared, self.is_near) = (None, false),
            }
        }
        let tails = match self.tails.clone().filter(|_| self.is_near) {
            Some(tails) => self.is_past_its_cursor(&tails).await?.then_some(tails),
            None => None,
        };
        // What is complete before this range is read stands before that place, and so in no later part of the shared end.
        let joined = match tails {
            Some(tails) => match tails.end_of_feed(&self.records, &self.call.actor).await {
                Ok(place) => Some(place),
                Err(TailEnd::Elsewhere) => None,
                Err(TailEnd::Store(error)) => return Err(unavailable(&error)),
            },
            None => None,
        };
        let call = Call { query: range(&self.filters, self.after.as_deref(), limit)?, ..self.call.clone() };
        let page: List<Event> = decode(self.operations.serve(call).await?)?;
        let last = page.data.last().map(|event| event.envelope.id.as_str().to_owned());
        self.after = page.page.next_cursor.or(last).or_else(|| self.after.take());
        self.is_near = !page.page.has_more;
        self.shared = joined.filter(|_| self.is_near).map(|place| {
            let told = page.data.iter().map(|event| event.envelope.id.clone()).collect();
            SharedEnd { place, told }
        });
        let events = page.data.into_iter().filter(|event| !self.was_given(&event.envelope.id)).collect();
        Ok(Batch { events, more: page.page.has_more, began: None })
    }

    /// True if the client had the event `id` when it opened the stream. What it had of the stream of one session may not have
    /// been reported to the feed by then.
    fn was_given(&self, id: &EventId) -> bool {
        let given = self.opened_behind.as_ref().and_then(EventId::place);
        given.zip(id.place()).is_some_and(|((of, upto), (stream, position))| stream == of && position <= upto)
    }

    /// True if a shared end that is read from now on has what the stream began behind before its place. What came last is not
    /// complete yet, and would be told to a client that has it, with all that came shortly before.
    async fn is_past_its_cursor(&mut self, tails: &Tails) -> Result<bool, ProtocolError> {
        if let Some(BeganBehind::Event(id)) = &self.began_behind {
            // A sealed cursor, which names none, is of a place that was complete.
            let row = match id.place().filter(|(_, position)| *position > 0) {
                Some((stream, position)) => self.records.append_of(stream, position).await,
                None => Ok(None),
            };
            let row = row.map_err(|error| unavailable(&error))?;
            self.began_behind = row.map(|row| BeganBehind::SentAt(row.at));
        }
        let is_past = match &self.began_behind {
            Some(BeganBehind::SentAt(at)) => tails.is_complete(&*self.records, *at),
            Some(BeganBehind::Event(_)) | None => true,
        };
        if is_past {
            self.began_behind = None;
        }
        Ok(is_past)
    }

    /// Those of `found` that the stream has to tell. It goes on behind the last that the caller sees.
    fn wanted(&mut self, found: Vec<(EventId, Option<Event>)>) -> Vec<Event> {
        let mut wanted = Vec::new();
        for (id, event) in found {
            let was_told = self.shared.as_mut().is_some_and(|shared| shared.told.remove(&id));
            // No cursor names an event that the caller may not see.
            let is_known = was_told || self.was_given(&id);
            if is_known || event.as_ref().is_some_and(|event| !self.call.actor.reaches(event.workspace_id.as_ref())) {
                continue;
            }
            self.after = Some(id.as_str().to_owned());
            wanted.extend(event.filter(|event| passes(&self.filters, event)));
        }
        wanted
    }
}

/// Reads the session or task `id` as `call`'s actor.
async fn read<I: Identifier>(
    operations: &dyn Operations,
    call: &Call,
    operation: Operation,
    id: &I,
) -> Result<Value, ProtocolError> {
    let read = about(call, operation, id, Query::default())?;
    decode(operations.serve(read).await?)
}

fn text(resource: &Value, field: &str) -> Result<String, ProtocolError> {
    resource[field].as_str().map(str::to_owned).ok_or_else(broken)
}

/// The same caller asks for `operation` on the resource `id`.
fn about<I: Identifier>(call: &Call, operation: Operation, id: &I, query: Query) -> Result<Call, ProtocolError> {
    if !id.is_well_formed() {
        return Err(ProtocolError::not_found(I::OBJECT));
    }
    let place = format!("{{{}_id}}", I::OBJECT);
    let path = operation.spec().path.replace(&place, id.as_ref());
    let found = Operation::find(operation.spec().method.as_str(), &path)?;
    let params: Params = found.params;
    let target: String = found.target;
    Ok(Call { operation, params, target, query, body: Body::default(), idempotency_key: None, ..call.clone() })
}

/// Position before the beginning of a task in its session.
async fn before_the_first(operations: &dyn Operations, call: &Call, task: &TaskId) -> Result<u64, ProtocolError> {
    let first = about(call, Operation::ListTaskEvents, task, Query::parse("limit=1")?)?;
    let page: List<Event> = decode(operations.serve(first).await?)?;
    let place = page.data.first().and_then(|event| event.envelope.id.place().map(|(_, position)| position));
    Ok(place.map_or(0, |position| position.saturating_sub(1)))
}

/// The position of the event `after`, which must be one of the session's.
async fn position_in(
    records: &dyn Records,
    session_id: &str,
    after: &EventId,
) -> Result<Result<u64, ProtocolError>, ProtocolError> {
    let here = after.place().filter(|(stream, position)| *stream == session_id && *position > 0);
    let Some((_, position)) = here else { return Ok(Err(ProtocolError::cursor_expired("after_event_id"))) };
    let last = records.tip(session_id).await.map_err(|error| unavailable(&error))?.position;
    Ok(if position <= last { Ok(position) } else { Err(ProtocolError::cursor_expired("after_event_id")) })
}

fn range(filters: &Filters, after: Option<&str>, limit: usize) -> Result<Query, ProtocolError> {
    let mut query = format!("limit={limit}");
    if let Some(after) = after {
        query.push_str(&format!("&after_event_id={after}"));
    }
    if let Some(workspace) = &filters.workspace_id {
        if !workspace.is_well_formed() {
            return Err(ProtocolError::not_found(<WorkspaceId as dormouse_protocol::envelope::Named>::OBJECT));
        }
        query.push_str(&format!("&workspace_id={workspace}"));
    }
    Query::parse(&query)
}

fn decode<T: serde::de::DeserializeOwned>(answer: CallAnswer) -> Result<T, ProtocolError> {
    match answer {
        CallAnswer::Json(_, value) | CallAnswer::Repeated(_, value) => {
            serde_json::from_value(value).map_err(|_| broken())
        }
        CallAnswer::Bytes { .. } | CallAnswer::Empty => Err(broken()),
    }
}

fn broken() -> ProtocolError {
    ProtocolError::new(ErrorCode::InternalError, "what is stored cannot be read")
}

pub(super) fn unavailable(error: &StoreError) -> ProtocolError {
    tracing::warn!(%error, "an event stream ends early: it could not read the store");
    ProtocolError::new(ErrorCode::ServiceUnavailable, "the store did not answer").retry_after(1)
}
