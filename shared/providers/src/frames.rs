//! Pieces of a streamed answer.

mod events;
mod halves;
mod messages;

pub(crate) use events::{ERROR, EventFrames};
pub(crate) use halves::Halves;
pub(crate) use messages::MessageFrames;

use crate::wire::Malformed;

/// A piece: its name, which may be empty, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamFrame {
    pub(crate) name: String,
    pub(crate) data: String,
}

/// Division of a stream into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// Binary messages of AWS.
    Messages,
}

/// Finds pieces in bytes that arrive in any portions.
#[derive(Debug)]
pub(crate) enum StreamFrames {
    Events(EventFrames),
    Messages(MessageFrames),
}

impl StreamFrames {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Events => Self::Events(EventFrames::default()),
            Framing::Messages => Self::Messages(MessageFrames::default()),
        }
    }

    /// Takes `bytes` in.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Events(frames) => frames.feed(bytes),
            Self::Messages(frames) => frames.feed(bytes),
        }
    }

    /// The next piece that is there whole.
    pub(crate) fn next(&mut self) -> Result<Option<StreamFrame>, Malformed> {
        match self {
            Self::Events(frames) => frames.next(),
            Self::Messages(frames) => frames.next(),
        }
    }

    /// The last piece, where it ends with the stream.
    pub(crate) fn last(&mut self) -> Result<Option<StreamFrame>, Malformed> {
        match self {
            Self::Events(frames) => frames.last(),
            Self::Messages(_) => Ok(None),
        }
    }
}
