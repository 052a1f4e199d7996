//! Server-sent events: blocks of a stream as a server writes them, and a reader for clients.
//!
//! Lines end with LF alone. Every block has `id`, `event` and `data`, in this order; one of [what passes](passing) has no
//! `id`. Between blocks, never before the
//! first, comments keep the connection alive. A stream that cannot go on ends with a block of the event [`ERROR`].

mod read;

use serde::Serialize;

pub use read::{EventBlock, Reader};

use crate::error::ErrorResponse;
use crate::event::Event;

/// The media type of a stream.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// The name of the event that gives the reason for the end of a stream. Its data is an [`ErrorResponse`].
pub const ERROR: &str = "error";

/// A comment, which readers skip. Not to be sent before the first event; after it, more often than every 30 seconds.
pub const HEARTBEAT: &str = ": alive\n\n";

/// The block of `event`: its id is the cursor to resume with.
pub fn event(event: &Event) -> String {
    block(event.envelope.id.as_str(), event.event.as_str(), event)
}

/// The last block of a stream that cannot go on. `last_event_id` is the event that the client has, so that its cursor
/// stays where it is; empty if it has none, which makes the client forget its cursor.
pub fn error(last_event_id: &str, error: &ErrorResponse) -> String {
    block(last_event_id, ERROR, error)
}

/// The block of something that is shown and not kept: the cursor of the client stays where it is.
pub fn passing(event: &str, data: &impl Serialize) -> String {
    // JSON without line breaks: in strings they are escaped. The types of this crate always are JSON.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", line(event))
}

fn block(id: &str, event: &str, data: &impl Serialize) -> String {
    format!("id: {}\n{}", line(id), passing(event, data))
}

/// `text` up to what would end its line, or make a reader ignore it.
fn line(text: &str) -> &str {
    text.split(['\n', '\r', '\0']).next().unwrap_or_default()
}
