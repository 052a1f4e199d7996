//! Chat over the harness: `send()` a message, receive the replies (harness-chat).
//!
//! A chat graph keeps its conversation in the state field `messages` with the `append` reducer (§4), and persists
//! sessions. Only the inbound message is passed to `invoke()`; the history comes from the session.

mod harness;
mod listener;
mod message;
mod outcome;

pub(crate) use harness::carry_of;
pub use harness::{ChatHarness, SendOptions};
pub(crate) use listener::Listeners;
pub use listener::{Listener, ListenerHandle};
pub use message::ChatMessage;
pub use outcome::ChatTurnOutcome;

/// The state field that holds the conversation (§4).
pub const MESSAGES: &str = "messages";

/// Key under which a chat turn carries along how long its history was when it began, the user's message included.
pub const HISTORY_LENGTH: &str = "history_length";
