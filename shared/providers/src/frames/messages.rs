use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use bytes::BytesMut;
use serde_json::{Value, json};

use super::StreamFrame;
use crate::wire::Malformed;

/// The most bytes of a message.
const LONGEST: u32 = 24 << 20;

/// Binary messages of AWS event streams.
#[derive(Debug, Default)]
pub(crate) struct MessageFrames {
    bytes: BytesMut,
    decoder: MessageFrameDecoder,
    /// The length of the message under way has been looked at.
    is_begun: bool,
    /// A message has come.
    has_come: bool,
}

impl MessageFrames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn next(&mut self) -> Result<Option<StreamFrame>, Malformed> {
        // The decoder would wait for the rest of what is no message at all.
        if let Some(length) = self.bytes.first_chunk().filter(|_| !self.is_begun) {
            if u32::from_be_bytes(*length) > LONGEST {
                // An answer in one piece, or a page: it is read when it is whole.
                if !self.has_come && matches!(length[0], b'{' | b'[' | b'<') {
                    return Ok(None);
                }
                return Err(Malformed::new("the stream is not made of messages"));
            }
            self.is_begun = true;
        }
        match self.decoder.decode_frame(&mut self.bytes) {
            Ok(DecodedFrame::Complete(message)) => {
                self.is_begun = false;
                self.has_come = true;
                frame(&message).map(Some)
            }
            Ok(DecodedFrame::Incomplete) => Ok(None),
            Err(error) => Err(Malformed(format!("a message of the stream is broken: {error}"))),
        }
    }
}

/// A message as a piece: an exception is one with the name `exception`, and says of which type it is.
fn frame(message: &Message) -> Result<StreamFrame, Malformed> {
    let header = |name: &str| {
        let found = message.headers().iter().find(|header| header.name().as_str() == name);
        found.and_then(|header| header.value().as_string().ok()).map_or("", |text| text.as_str())
    };
    let text = std::str::from_utf8(message.payload()).map_err(|_| Malformed::new("a message is no UTF-8"))?;
    let event = header(":event-type");
    let kind = match header(":message-type") {
        "event" if !event.ends_with("Exception") => {
            return Ok(StreamFrame { name: event.to_owned(), data: text.to_owned() });
        }
        // Servers that have one type of message tell what failed as an event.
        "event" => event,
        "exception" => header(":exception-type"),
        _ => header(":error-code"),
    };
    let told: Value = serde_json::from_str(text).unwrap_or_default();
    let words = told.get("message").and_then(Value::as_str).unwrap_or(header(":error-message"));
    let data = json!({ "error": { "type": kind, "message": words } });
    Ok(StreamFrame { name: "exception".to_owned(), data: data.to_string() })
}
