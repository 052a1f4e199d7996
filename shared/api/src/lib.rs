//! Serves the Harn Agents Protocol: requests in, answers and event streams out, over the harness and its store.
//!
//! A task is an invocation, the input it waits for is a signal, and every event is written in the transaction of the
//! change that it tells of. The crate knows no transport: who serves HTTP gives it a [`Request`] and sends the
//! [`Answer`].

#![warn(missing_docs)]

mod call;
mod front;
mod http;
pub mod keys;
mod stream;

pub use call::{Actor, Answer, Call};
pub use front::{About, Front, FrontParts, Operations};
pub use http::{Content, Request, Response};
pub use keys::Keys;
pub use stream::{Bell, Ring, StreamLimits, Streams};
