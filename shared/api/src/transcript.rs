//! Transcripts: the messages of a session, in order.
//!
//! A message is its event; nothing is stored twice. A transcript is a list of stretches of streams ([`TranscriptSegment`]). A
//! fork begins with the stretches of its parent, so the messages of its past are those of the parent, with the same
//! ids. A truncation ends the last stretch that stays; what was cut off stays in the stream as events, and shows no
//! more.

use dormouse_ports::{EntryStretch, Map, Records, StreamEntry, limits};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{EventId, MessageId};
use dormouse_protocol::resource::{Message, Part, Role};
use dormouse_protocol::{Envelope, Event, ProtocolError};
use serde::Deserialize;
use serde_json::Value;

use crate::documents::TranscriptSegment;
use crate::refusal::{internal, store};

/// Number of entries of a stream that are read at once.
const PAGE: usize = 200;

/// A place in a transcript: a stream, and a position in it.
pub(crate) type Spot = (String, u64);

/// The message that `event` holds, if it holds one: its public parts, as they are in the event.
pub(crate) fn message_of(event: &Event) -> Option<Message> {
    if event.resource.object != MessageId::OBJECT {
        return None;
    }
    let parts = event.payload.get("parts")?.as_array()?.iter();
    let shown = parts.filter(|part| part.get("redacted").is_none());
    let mut envelope = Envelope::new(MessageId::from(event.resource.id.clone()), event.envelope.created_at);
    envelope.metadata.clone_from(&event.envelope.metadata);
    Some(Message {
        envelope,
        session_id: event.session_id.clone(),
        task_id: event.task_id.clone(),
        role: Role::deserialize(event.payload.get("role")?).ok()?,
        parts: shown.map(Part::deserialize).collect::<Result<_, _>>().ok()?,
    })
}

/// Reads a stored event.
///
/// # Errors
/// `internal_error` when it is none.
pub(crate) fn event_of(entry: Map) -> Result<Event, ProtocolError> {
    serde_json::from_value(Value::Object(entry)).map_err(|error| internal(&error))
}

/// Reads the stored event `id`; who reads many passes over one that cannot be read.
pub(crate) fn readable(id: &EventId, entry: Map) -> Option<Event> {
    match serde_json::from_value(Value::Object(entry)) {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::error!(%id, %error, "an event stream leaves out an event that cannot be read");
            None
        }
    }
}

/// True if the stored event holds a message of a transcript, without reading it. What a replay repeats is none.
fn holds_message(entry: &Map) -> bool {
    let is_replayed = entry.get("replayed") == Some(&Value::Bool(true));
    !is_replayed
        && entry.get("resource").and_then(|resource| resource.get("object")).and_then(Value::as_str)
            == Some(MessageId::OBJECT)
}

/// The stretches of `transcript` up to and with `spot`; `None` if the spot is not on the way.
pub(crate) fn clip(
    transcript: &[TranscriptSegment],
    (stream, position): (&str, u64),
) -> Option<Vec<TranscriptSegment>> {
    let before = |segment: &TranscriptSegment| segment.stream == stream && segment.first <= position;
    let last = transcript.iter().rposition(before)?;
    let mut kept = transcript.get(..=last)?.to_vec();
    let end = kept.last_mut()?;
    end.last = Some(end.last.map_or(position, |last| last.min(position)));
    Some(kept)
}

/// Result of one reading of a transcript.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Messages, in order, with the spots of their events.
    pub(crate) messages: Vec<(Spot, Message)>,
    /// Position up to which it was read; `None` when it was read to its end.
    pub(crate) upto: Option<Spot>,
}

/// The last message of `transcript`, whose last stretch goes up to `end`: read from behind, a page of the stream at a time.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn last(
    records: &dyn Records,
    transcript: &[TranscriptSegment],
    end: u64,
) -> Result<Option<Message>, ProtocolError> {
    for segment in transcript.iter().rev() {
        let mut last = segment.last.unwrap_or(end);
        while last >= segment.first.max(1) {
            let first = segment.first.max(last.saturating_sub(PAGE as u64 - 1)).max(1);
            let page = TranscriptSegment { stream: segment.stream.clone(), first, last: Some(last) };
            let mut found = None;
            walk(records, &[page], &mut |_, message| {
                found = Some(message);
                true
            })
            .await?;
            if found.is_some() {
                return Ok(found);
            }
            last = first - 1;
        }
    }
    Ok(None)
}

/// Reads messages of `transcript` behind `after`, at most `limit`, and no more of them behind those that fill a
/// [page](limits::PAGE), looking at no more than about `budget` events.
///
/// # Errors
/// `cursor_expired` when `after` is not in the transcript any more; when the store does not answer.
pub(crate) async fn read(
    records: &dyn Records,
    transcript: &[TranscriptSegment],
    after: Option<&Spot>,
    (limit, budget): (usize, usize),
) -> Result<Reading, ProtocolError> {
    let mut messages = Vec::new();
    let mut bytes = 0;
    let upto = walk_behind(records, transcript, (after, budget), &mut |spot, message| {
        bytes += dormouse_json::length(&message).unwrap_or_default();
        messages.push((spot, message));
        messages.len() < limit && bytes <= limits::PAGE
    })
    .await?;
    Ok(Reading { messages, upto })
}

/// Gives `take` the messages of `transcript`, one after the other, until that says that it has enough: so of a long transcript no more
/// is held than `take` holds.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn walk(
    records: &dyn Records,
    transcript: &[TranscriptSegment],
    take: &mut (dyn FnMut(Spot, Message) -> bool + Send),
) -> Result<(), ProtocolError> {
    walk_behind(records, transcript, (None, usize::MAX), take).await.map(|_| ())
}

/// Gives `take` the messages of `transcript` behind `after`, one after the other, until that says that it has enough, looking at no
/// more than about `budget` events: so of a long transcript no more is held than `take` holds. The position up to which it was
/// read; `None` when it was read to its end.
///
/// # Errors
/// `cursor_expired` when `after` is not in the transcript any more; when the store does not answer.
async fn walk_behind(
    records: &dyn Records,
    transcript: &[TranscriptSegment],
    (after, budget): (Option<&Spot>, usize),
    take: &mut (dyn FnMut(Spot, Message) -> bool + Send),
) -> Result<Option<Spot>, ProtocolError> {
    let (from, mut position) = match after {
        None => (0, 0),
        Some((stream, position)) => {
            let holds = |segment: &TranscriptSegment| segment.stream == *stream && segment.first <= *position;
            let at = transcript.iter().rposition(holds).ok_or_else(|| ProtocolError::cursor_expired("cursor"))?;
            (at, *position)
        }
    };
    let mut looked_at = 0;
    for segment in transcript.iter().skip(from) {
        position = position.max(segment.first.saturating_sub(1));
        loop {
            // Behind the end of a stretch there may be much that is none of it.
            let left = segment.last.map(|last| usize::try_from(last.saturating_sub(position)).unwrap_or(PAGE));
            let wanted = left.map_or(PAGE, |left| left.min(PAGE));
            if wanted == 0 {
                break;
            }
            let stretch = records.stretch(&segment.stream, position, wanted).await.map_err(store)?;
            let EntryStretch { entries, more } = stretch;
            looked_at += entries.len();
            for StreamEntry { position: at, entry } in entries {
                position = at;
                if segment.last.is_some_and(|last| at > last) {
                    break;
                }
                if !holds_message(&entry) {
                    continue;
                }
                let event = readable(&EventId::at(&segment.stream, at), entry);
                let Some(message) = event.as_ref().and_then(message_of) else { continue };
                let spot = (segment.stream.clone(), at);
                if !take(spot.clone(), message) {
                    return Ok(Some(spot));
                }
            }
            if !more || segment.last.is_some_and(|last| position >= last) {
                break;
            }
            if looked_at >= budget {
                return Ok(Some((segment.stream.clone(), position)));
            }
        }
        position = 0;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(stream: &str, first: u64, last: Option<u64>) -> TranscriptSegment {
        TranscriptSegment { stream: stream.to_owned(), first, last }
    }

    #[test]
    fn a_transcript_is_clipped_where_it_is() {
        let whole = [segment("a", 1, Some(5)), segment("b", 3, Some(9)), segment("b", 12, None)];
        assert_eq!(clip(&whole, ("a", 4)), Some(vec![segment("a", 1, Some(4))]));
        assert_eq!(clip(&whole, ("a", 7)), Some(vec![segment("a", 1, Some(5))]), "what was left out stays out");
        assert_eq!(clip(&whole, ("b", 11)), Some(whole[..2].to_vec()), "between two stretches");
        let end = [whole[0].clone(), whole[1].clone(), segment("b", 12, Some(20))];
        assert_eq!(clip(&whole, ("b", 20)), Some(end.to_vec()));
        assert_eq!(clip(&whole, ("c", 1)), None);
        assert_eq!(clip(&whole, ("b", 2)), None);
    }
}
