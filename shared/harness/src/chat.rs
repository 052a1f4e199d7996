//! Chat over the harness: `send()` a message, receive the replies (harness-chat).
//!
//! A chat graph keeps its conversation in the state field `messages` with the `append` reducer (§4), and persists
//! sessions. Only the inbound message is passed to `invoke()`; the history comes from the session.

mod harness;
mod history;
mod listener;
mod message;
mod outcome;

pub use harness::{ChatHarness, SendOptions};
pub(crate) use history::carry_of;
pub use history::{HISTORY_LENGTH, MESSAGES, converses, unfit};
pub(crate) use listener::Listeners;
pub use listener::{Listener, ListenerHandle};
pub use message::ChatMessage;
pub use outcome::ChatTurnOutcome;
