//! A client reads everything that a server writes as a stream: in pieces of any size, up to any cut.

use dormouse_protocol::event::EventPlace;
use dormouse_protocol::id::{EventId, Identifier, TaskId};
use dormouse_protocol::sse::{ERROR, EventBlock, HEARTBEAT, Reader, error, event};
use dormouse_protocol::{Draft, Event, EventKind, ProtocolError};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let kinds = prop::sample::select(EventKind::NAMED);
    prop::collection::vec((kinds, any::<String>()), 1..8).prop_map(|drafts| {
        (1..)
            .zip(drafts)
            .map(|(position, (kind, text))| {
                let draft = Draft::new(kind, TaskId::new("task_1").pointer(), json!({"text": text}));
                draft.at(EventPlace { stream: "session_1", position, sequence: position, at: Timestamp::UNIX_EPOCH })
            })
            .collect()
    })
}

fn stream(events: &[Event]) -> String {
    events.iter().map(|one| event(one) + HEARTBEAT).collect()
}

fn read(blocks: &[EventBlock]) -> Vec<Event> {
    blocks.iter().map(|block| serde_json::from_str(&block.data).expect("an event")).collect()
}

proptest! {
    #[test]
    fn every_event_comes_through_whatever_the_pieces(events in events(), size in 1_usize..40) {
        let mut reader = Reader::new();
        let blocks: Vec<EventBlock> =
            stream(&events).as_bytes().chunks(size).flat_map(|piece| reader.push(piece)).collect();
        prop_assert_eq!(&read(&blocks), &events);
        for (block, event) in blocks.iter().zip(&events) {
            prop_assert_eq!((block.id.as_str(), block.event.as_str()), (event.envelope.id.as_str(), event.event.as_str()));
        }
    }

    #[test]
    fn a_stream_that_was_cut_goes_on_without_gap_or_repeat(events in events(), cut in 0.0..1.0_f64) {
        let whole = stream(&events);
        let cut = (whole.len() as f64 * cut) as usize;
        let mut reader = Reader::new();
        let mut seen = read(&reader.push(&whole.as_bytes()[..cut]));
        let last = EventId::new(reader.last_event_id());
        let position = last.place().map_or(0, |(_, position)| position);
        let rest: Vec<Event> = events.iter().filter(|one| one.sequence > position).cloned().collect();
        seen.extend(read(&Reader::new().push(stream(&rest).as_bytes())));
        prop_assert_eq!(seen, events);
    }

    #[test]
    fn no_bytes_break_a_reader(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1_usize..20) {
        let whole = Reader::new().push(&bytes);
        let mut reader = Reader::new();
        let pieces: Vec<EventBlock> = bytes.chunks(size).flat_map(|piece| reader.push(piece)).collect();
        prop_assert_eq!(whole, pieces);
    }
}

#[test]
fn every_block_has_id_event_and_data_in_lines_that_end_with_lf() {
    let draft = Draft::new(EventKind::TaskStarted, TaskId::new("task_1").pointer(), json!({"text": "a\r\nb"}));
    let one = draft.at(EventPlace { stream: "session_1", position: 7, sequence: 2, at: Timestamp::UNIX_EPOCH });
    let written = event(&one);
    let lines: Vec<&str> = written.split('\n').collect();
    assert_eq!(lines.len(), 5, "three lines, and two ends: {written}");
    assert_eq!(lines[0], "id: event_session_1_0000000000000007");
    assert_eq!(lines[1], "event: task.started");
    assert!(lines[2].starts_with("data: {") && lines[3].is_empty() && lines[4].is_empty());
    assert!(!written.contains('\r'));
}

#[test]
fn the_last_block_says_why_and_leaves_the_cursor_where_it_was() {
    let refusal = ProtocolError::cursor_expired("after_event_id").into_response("req_1");
    let mut reader = Reader::new();
    let blocks = reader.push(error("event_session_1_0000000000000007\nevent: task.completed", &refusal).as_bytes());
    assert_eq!(blocks.len(), 1, "what a client sent cannot make lines: {blocks:?}");
    assert_eq!((blocks[0].event.as_str(), reader.last_event_id()), (ERROR, "event_session_1_0000000000000007"));
    let data: serde_json::Value = serde_json::from_str(&blocks[0].data).expect("JSON");
    assert_eq!(data["error"]["code"], "cursor_expired");
}
