//! Events: ranges of one session, one task or a whole tenant, and single ones.
//!
//! The stream of a session is called by its id and has all events of what belongs to it. The events of a task are those
//! of its session's stream that name it. An artifact that belongs to no session has a stream of its own.

use dormouse_ports::{Map, Records, limits};
use dormouse_protocol::envelope::{List, Named};
use dormouse_protocol::id::{ArtifactId, EventId, SessionId};
use dormouse_protocol::request::{Filters, RangeQuery};
use dormouse_protocol::resource::{Artifact, Session, Task};
use dormouse_protocol::{Event, ProtocolError};
use jiff::Timestamp;
use serde_json::Value;

use crate::api::found;
use crate::documents::TranscriptSegment;
use crate::feed::FeedReader;
use crate::page::fitting;
use crate::reads::Reads;
use crate::refusal::store;
use crate::transcript::{event_of, readable};
use crate::{Actor, Call, CallAnswer};

/// Number of events that are looked at for one range.
const LOOKED_AT: usize = 2_000;

/// Number of entries that are read at once where most may not be wanted.
const PAGE: usize = 200;

/// Number of reads of a feed without an event that the caller sees, after which its page ends.
const MOST_UNSEEN: usize = 8;

/// Beginning of what stands for the stream in a cursor behind a place of the feed that is sealed. No stream is called so.
const PLACE: &str = "place.";

impl Reads {
    pub(crate) async fn list_session_events(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let session = self.named::<Session>(call, "session_id").await?;
        self.range(call, &whole(&session.kept.resource.envelope.id), |_| true).await
    }

    pub(crate) async fn list_task_events(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let task = self.named::<Task>(call, "task_id").await?;
        let id = task.kept.resource.envelope.id.as_str();
        let of_task = |entry: &Map| entry.get("task_id").and_then(Value::as_str) == Some(id);
        self.range(call, &task.events(), of_task).await
    }

    /// The events of a stretch of a stream that are behind the cursor, and `wanted`.
    async fn range(
        &self,
        call: &Call,
        TranscriptSegment { stream, first, last }: &TranscriptSegment,
        wanted: impl Fn(&Map) -> bool + Send + Sync,
    ) -> Result<CallAnswer, ProtocolError> {
        let query = RangeQuery::read(&call.query)?;
        let from = first.saturating_sub(1);
        let mut position = match &query.after {
            Some(after) => self.behind(stream, after).await?.ok_or_else(|| query.expired())?.max(from),
            None => from,
        };
        let mut events = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        let left = |position: u64| last.map_or(PAGE as u64, |last| last.saturating_sub(position));
        let mut more = left(position) > 0;
        let mut at_once = PAGE.min(query.limit + 1);
        while more && events.len() <= query.limit && bytes <= limits::PAGE && looked_at < LOOKED_AT {
            at_once = at_once.min(usize::try_from(left(position)).unwrap_or(PAGE));
            let stretch = self.records().stretch(stream, position, at_once).await.map_err(store)?;
            more = stretch.more;
            // Where as many as are wanted were not enough, most of them are not.
            at_once = PAGE;
            looked_at += stretch.entries.len();
            for entry in stretch.entries {
                if events.len() > query.limit || bytes > limits::PAGE {
                    more = true;
                    break;
                }
                position = entry.position;
                if entry.entry.is_empty() || wanted(&entry.entry) {
                    bytes += dormouse_json::length(&entry.entry).unwrap_or_default();
                    events.extend(readable(&EventId::at(stream, position), entry.entry));
                }
            }
            more &= left(position) > 0;
        }
        let upto = EventId::at(stream, position);
        found(&page_of(events, query.limit, more.then_some(upto))?)
    }

    /// The position of `after` in `stream`; `None` where it is none of its events.
    async fn behind(&self, stream: &str, after: &EventId) -> Result<Option<u64>, ProtocolError> {
        let place = after.place().filter(|(of, position)| *of == stream && *position > 0);
        let Some((of, position)) = place else { return Ok(None) };
        let exists = !self.records().entries(of, position - 1, 1).await.map_err(store)?.is_empty();
        Ok(exists.then_some(position))
    }

    /// All events that the caller may see; those of one session or task are read from their own stream. A caller that
    /// `waits` is given all that was written before it asked, as soon as nothing can come to stand before it.
    pub(crate) async fn list_events(&self, call: &Call, waits: bool) -> Result<CallAnswer, ProtocolError> {
        let query = RangeQuery::read(&call.query)?;
        let filters = Filters::read(&call.query)?;
        if let Some(stretch) = self.stretch_of(call, &filters).await? {
            let wanted = |entry: &Map| {
                let is = |field: &str, id: Option<&str>| {
                    id.is_none_or(|id| entry.get(field).and_then(Value::as_str) == Some(id))
                };
                is("workspace_id", filters.workspace_id.as_ref().map(AsRef::as_ref))
                    && is("session_id", filters.session_id.as_ref().map(AsRef::as_ref))
                    && is("task_id", filters.task_id.as_ref().map(AsRef::as_ref))
            };
            return self.range(call, &stretch, wanted).await;
        }
        if filters.session_id.is_some() || filters.task_id.is_some() {
            return found(&page_of(Vec::new(), query.limit, None)?);
        }
        let records = self.records();
        let clock = &self.clock;
        let asked_at = clock.now();
        let mut reader = self.reader_behind(call, &query).await?;
        let mut after = query.after.clone();
        let mut events: Vec<Event> = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        let mut unseen = 0;
        let mut more = true;
        let is_full = |events: &[Event], bytes: usize| events.len() > query.limit || bytes > limits::PAGE;
        while more && !is_full(&events, bytes) && looked_at < LOOKED_AT && unseen < MOST_UNSEEN {
            let until = records.settled(clock.now());
            // One more than the page holds shows that there is another.
            let wanted = query.limit + 1 - events.len();
            let stretch = reader.next(records, until, wanted).await.map_err(store)?;
            more = stretch.more;
            let seen_before = looked_at;
            for (id, entry) in stretch.events {
                let length = dormouse_json::length(&entry).unwrap_or_default();
                let event = readable(&id, entry);
                // No cursor names an event that the caller may not see.
                if event.as_ref().is_none_or(|event| call.actor.reaches(event.workspace_id.as_ref())) {
                    (after, looked_at) = (Some(id), looked_at + 1);
                    let passing = event.filter(|event| passes(&filters, event));
                    bytes += passing.as_ref().map_or(0, |_| length);
                    events.extend(passing);
                }
            }
            unseen += usize::from(looked_at == seen_before);
            if stretch.fresh && waits && until < asked_at && !is_full(&events, bytes) {
                let rest = asked_at.duration_since(until);
                clock.sleep(rest.try_into().unwrap_or_default()).await;
                more = true;
            }
        }
        if unseen >= MOST_UNSEEN {
            after = reader.place().map(|place| self.cursor_behind(&call.actor, place)).or(after);
        }
        let upto = after.filter(|_| more);
        found(&page_of(events, query.limit, upto)?)
    }

    /// A reader of the feed of the caller behind the event of `query`.
    ///
    /// # Errors
    /// `cursor_expired` when that is none of its events, and no cursor that it was given.
    async fn reader_behind(&self, call: &Call, query: &RangeQuery) -> Result<FeedReader, ProtocolError> {
        let after = query.after.as_ref();
        let expired = || query.expired();
        let sealed = after.and_then(EventId::place).and_then(|(stream, _)| stream.strip_prefix(PLACE));
        if let Some(sealed) = sealed {
            let opened = self.cursors.open(&scope_of(&call.actor), sealed, call.now).map_err(|_| expired())?;
            let place = opened.into_iter().next().ok_or_else(expired)?;
            return Ok(FeedReader::behind(&call.actor, place));
        }
        if let Some(after) = after
            && self.stream_is_deleted(call, after).await?.is_none()
        {
            return Err(expired());
        }
        let opened = FeedReader::open(self.records(), &call.actor, after).await.map_err(store)?;
        opened.ok_or_else(expired)
    }

    /// The cursor of `actor` behind a place of its feed, at which may be what it may not know of: sealed, and good for as
    /// long as the id of an event.
    fn cursor_behind(&self, actor: &Actor, place: &str) -> EventId {
        let sealed = self.cursors.seal(&scope_of(actor), &[place.to_owned()], Timestamp::MAX);
        EventId::at(&format!("{PLACE}{sealed}"), 0)
    }

    /// The stretch of a stream that holds all that `filters` let through, if it is of a session that the caller sees.
    async fn stretch_of(&self, call: &Call, filters: &Filters) -> Result<Option<TranscriptSegment>, ProtocolError> {
        let task = match &filters.task_id {
            Some(task) => self.find::<Task>(task, call.now).await?.filter(|task| task.is_seen_by(&call.actor)),
            None => None,
        };
        let task = task.as_ref().map(|task| (&task.kept.resource.session_id, task.events()));
        let (session, stretch) = match (&filters.session_id, task) {
            // A branch may name a task of another session.
            (Some(session), Some((of, _))) if of != session => (session, whole(session)),
            (_, Some((of, stretch))) => (of, stretch),
            (Some(session), None) => (session, whole(session)),
            (None, None) => return Ok(None),
        };
        let found = self.find::<Session>(session, call.now).await?;
        Ok(found.filter(|found| found.is_seen_by(&call.actor)).map(|_| stretch))
    }

    pub(crate) async fn get_event(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let id = EventId::from(call.params.get("event_id"));
        let not_found = || ProtocolError::not_found("event");
        let (stream, position) = id.place().filter(|(_, position)| *position > 0).ok_or_else(not_found)?;
        if self.stream_is_deleted(call, &id).await? != Some(false) {
            return Err(not_found());
        }
        let entries = self.records().entries(stream, position - 1, 1).await.map_err(store)?;
        found(&event_of(entries.into_iter().next().ok_or_else(not_found)?.entry)?)
    }

    /// Whether that is deleted to which the stream of `event` belongs; `None` where the caller may not know of it. The feed
    /// tells on of what was deleted, so those who read it go on behind each event of it.
    async fn stream_is_deleted(&self, call: &Call, event: &EventId) -> Result<Option<bool>, ProtocolError> {
        let Some((stream, _)) = event.place() else { return Ok(None) };
        let is = |word: &str| stream.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'));
        Ok(if is(SessionId::OBJECT) {
            self.find::<Session>(&stream.into(), call.now).await?.and_then(|one| one.is_deleted_to(&call.actor))
        } else if is(ArtifactId::OBJECT) {
            self.find::<Artifact>(&stream.into(), call.now).await?.and_then(|one| one.is_deleted_to(&call.actor))
        } else {
            None
        })
    }
}

/// The id of the first event that `actor` sees and that was sent at `since` or later, so that a client can read on behind
/// it; `None` if there is none, or none in a stretch of reasonable length.
///
/// # Errors
/// If the store does not answer.
pub async fn first_event_since(
    records: &dyn Records,
    actor: &Actor,
    since: Timestamp,
    now: Timestamp,
) -> Result<Option<EventId>, ProtocolError> {
    let mut reader = FeedReader::since(actor, since);
    let until = records.settled(now);
    let mut looked_at = 0;
    while looked_at < LOOKED_AT {
        let stretch = reader.next(records, until, 1).await.map_err(store)?;
        looked_at += stretch.events.len().max(1);
        let sees = |event: &Event| actor.reaches(event.workspace_id.as_ref());
        let found =
            stretch.events.into_iter().find(|(id, entry)| readable(id, entry.clone()).as_ref().is_some_and(sees));
        if let Some((id, _)) = found {
            return Ok(Some(id));
        }
        if !stretch.more {
            return Ok(None);
        }
    }
    Ok(None)
}

/// All of the stream of `session`.
fn whole(session: &SessionId) -> TranscriptSegment {
    TranscriptSegment { stream: session.to_string(), first: 1, last: None }
}

/// Scope of the sealed cursors of `actor`.
fn scope_of(actor: &Actor) -> String {
    format!("{}/{} events", actor.tenant, actor.name)
}

/// True if `filters` let `event` through.
pub(crate) fn passes(filters: &Filters, event: &Event) -> bool {
    let Filters { workspace_id, session_id, task_id } = filters;
    (workspace_id.is_none() || *workspace_id == event.workspace_id)
        && (session_id.is_none() || *session_id == event.session_id)
        && (task_id.is_none() || *task_id == event.task_id)
}

/// At most `limit` of `events`, as far as one page holds them; behind them the list goes on, or, where it was not read
/// to its end, behind `upto`.
fn page_of(mut events: Vec<Event>, limit: usize, upto: Option<EventId>) -> Result<List<Event>, ProtocolError> {
    let fitting = fitting(&events, limit)?;
    let next = if events.len() > fitting {
        events.truncate(fitting);
        events.last().map(|last| last.envelope.id.clone())
    } else {
        upto
    };
    Ok(List::page(events, next.map(|id| id.to_string())))
}
