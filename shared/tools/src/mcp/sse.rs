//! Server-sent events, bounded.

use bytes::Bytes;
use dormouse_json::Excess;
use dormouse_ports::{FetchBody, FetchError};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, future, stream};
use rmcp::transport::streamable_http_client::SseError;
use serde::de::IgnoredAny;
use sse_stream::{Sse, SseStream};

use super::messages::messages;

/// Least time, in milliseconds, behind which a stream that has ended is asked for again, where the server says when.
const LEAST_RETRY: u64 = 250;

/// Reason why a stream of events ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BrokenStream {
    #[error("an event is larger than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Excess(Excess),
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// The events of `body`, of which none has more than `most` bytes; one for each message of a batch.
///
/// In the place of one that is larger stands `instead`, and the stream ends behind it: the connection is closed, and
/// the event is not asked for again.
pub(super) fn events(body: FetchBody, most: usize, instead: Option<Sse>) -> BoxStream<'static, Result<Sse, SseError>> {
    let events = SseStream::from_bytes_stream(bounded(body, most));
    let split = events.map(move |event| match event.and_then(split) {
        Ok(events) => events.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(error) if is_too_large(&error) => vec![instead.clone().ok_or(error)],
        Err(error) => vec![Err(error)],
    });
    split.flat_map(stream::iter).boxed()
}

/// An event for each message of `event`. Its id is there once, at the last: what has been read is behind all of them, and a long id
/// that came with many messages would take its length for each.
fn split(mut event: Sse) -> Result<Vec<Sse>, SseError> {
    event.retry = event.retry.map(|retry| retry.max(LEAST_RETRY));
    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
    let Some(data) = event.data.take_if(|_| is_message) else { return Ok(vec![event]) };
    let read = messages(data.into_bytes()).map_err(|excess| SseError::Body(Box::new(BrokenStream::Excess(excess))))?;
    // Of a text only escapes were replaced, or it was written anew: it is one as before.
    let texts = read.into_iter().filter_map(|message| String::from_utf8(message).ok());
    let mut events: Vec<Sse> = texts.map(|data| Sse::default().data(data)).collect();
    let data = events.pop().and_then(|last| last.data);
    events.push(Sse { data, ..event });
    Ok(events)
}

fn is_too_large(error: &SseError) -> bool {
    let SseError::Body(error) = error else { return false };
    matches!(
        error.downcast_ref::<BrokenStream>(),
        Some(BrokenStream::TooLarge(_) | BrokenStream::Excess(_) | BrokenStream::Fetch(FetchError::TooLarge(_)))
    )
}

/// The bytes of `body`, until more than `most` of them come without an empty line among them. A message that the end ends instead of
/// such a line has one behind it.
fn bounded(body: FetchBody, most: usize) -> impl Stream<Item = Result<Bytes, BrokenStream>> + Send {
    let mut event = SseEvent::default();
    let checked = body.map(Some).chain(stream::iter([None])).map(move |piece| {
        let Some(piece) = piece else {
            return Ok(Bytes::from_static(if event.is_whole() { b"\n\n" } else { b"" }));
        };
        let piece = piece?;
        event.add(&piece);
        match event.largest > most {
            true => Err(BrokenStream::TooLarge(most)),
            false => Ok(Bytes::from(piece)),
        }
    });
    // Nothing is read behind the first error.
    checked.scan(false, |is_over, piece| {
        let next = (!*is_over).then_some(piece);
        *is_over = matches!(next, Some(Err(_)));
        future::ready(next)
    })
}

/// The event that is being read.
#[derive(Default)]
struct SseEvent {
    bytes: usize,
    line: usize,
    largest: usize,
    text: Vec<u8>,
}

impl SseEvent {
    fn add(&mut self, piece: &[u8]) {
        for byte in piece {
            match byte {
                b'\r' => (),
                b'\n' if self.line == 0 => {
                    self.bytes = 0;
                    self.text.clear();
                }
                b'\n' => {
                    self.line = 0;
                    self.text.push(b'\n');
                }
                byte => {
                    self.line += 1;
                    self.bytes += 1;
                    self.text.push(*byte);
                }
            }
            self.largest = self.largest.max(self.bytes);
        }
    }

    /// True if its data is JSON: nothing of it was cut off.
    fn is_whole(&self) -> bool {
        let lines = self.text.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
        serde_json::from_slice::<IgnoredAny>(&lines.collect::<Vec<_>>().join(&b'\n')).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    fn read(pieces: &[&str], most: usize, instead: Option<Sse>) -> Vec<Result<Option<String>, String>> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(piece.as_bytes().to_vec())).collect();
        let events = events(stream::iter(pieces).boxed(), most, instead);
        block_on(events.map(|event| event.map(|event| event.data).map_err(|error| error.to_string())).collect())
    }

    #[test]
    fn events_come_whole_over_pieces() {
        let events = read(&["data: a\r\n\r\nda", "ta: b\ndata: c\n", "\n"], 20, None);
        assert_eq!(events, [Ok(Some("a".to_owned())), Ok(Some("b\nc".to_owned()))]);
    }

    #[test]
    fn a_message_that_the_end_of_the_stream_ends_is_read_and_a_part_of_one_is_not() {
        let whole = Some(r#"{"id":1}"#.to_owned());
        for end in ["", "\n", "\r\n", "\n\n"] {
            assert_eq!(read(&["data: {\"id\"", &format!(":1}}{end}")], 50, None), [Ok(whole.clone())], "{end:?}");
        }
        assert!(read(&["data: {\"id\":1"], 50, None).is_empty());
        assert_eq!(read(&["data: {\"id\":1}\n\nid: 7\n"], 50, None), [Ok(whole)]);
    }

    #[test]
    fn what_is_nested_too_deeply_is_replaced() {
        let deep = format!("data: {}\n\ndata: a\n\n", "[".repeat(200));
        let events = read(&[&deep], 1000, Some(Sse::default().data("too deep")));
        assert_eq!(events, [Ok(Some("too deep".to_owned())), Ok(Some("a".to_owned()))]);
    }

    #[test]
    fn the_id_of_a_batch_is_that_of_its_last_message_alone() {
        let batch = b"id: 7\ndata: [{\"id\":1},{\"id\":2}]\n\n".to_vec();
        let events = events(stream::iter([Ok(batch)]).boxed(), 1000, None);
        let read: Vec<Sse> = block_on(events.map(|event| event.expect("an event")).collect());
        let ids: Vec<_> = read.iter().map(|event| event.id.as_deref()).collect();
        assert_eq!(ids, [None, Some("7")]);
    }

    #[test]
    fn a_stream_is_not_asked_for_again_without_a_pause() {
        for (told, pause) in [(0, LEAST_RETRY), (3000, 3000)] {
            let event = format!("retry: {told}\nid: 1\ndata:\n\n").into_bytes();
            let events = events(stream::iter([Ok(event)]).boxed(), 1000, None);
            let read: Vec<Sse> = block_on(events.map(|event| event.expect("an event")).collect());
            assert_eq!(read.iter().map(|event| event.retry).collect::<Vec<_>>(), [Some(pause)]);
        }
    }

    #[test]
    fn many_small_events_are_no_large_one() {
        let many = "data: 0123456789\n\n".repeat(100);
        assert_eq!(read(&[&many], 16, None).len(), 100);
    }

    #[test]
    fn a_large_event_is_replaced_and_ends_the_stream() {
        let instead = Sse::default().data("too large");
        let events = read(&["data: a\n\n", "data: 0123456789", "0123456789\n\n", "data: b\n\n"], 18, Some(instead));
        assert_eq!(events, [Ok(Some("a".to_owned())), Ok(Some("too large".to_owned()))]);
        let events = read(&["data: 0123456789", "0123456789\n\n", "data: b\n\n"], 18, None);
        assert!(matches!(&events[..], [Err(message)] if message.contains("larger than 18 bytes")), "{events:?}");
    }
}
