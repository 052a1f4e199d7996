//! The application behind HTTP: routes, bodies, answers and the tokens in addresses, as plain values in and out.
//!
//! [`Server`] is everything that is served over HTTP: a [`Request`] in, a response out. [`StreamServer`] is the streams of
//! events and nothing else, for a process that writes nothing and knows no agents. The server's [`App`] serves turns, and
//! takes an event or a wake-up as JSON and gives a JSON summary or a [`TriggerError`]. They know no listener, no vendor
//! and no runtime: a function on Lambda and local mode serve the very same routes.
//!
//! Decisions about turns belong to `dormouse-harness`, the effects of the protocol's operations to `dormouse-api`.
//!
//! # Invariants
//! - Decoding and encoding are pure. Nothing is loaded or written before a request was read in full and allowed.
//! - Every HTTP answer carries `x-request-id`; every failure names its category or code, and what to do.
//! - No answer is longer than Lambda takes: what was done can be reported.
//! - A wrong token and an unknown invocation cannot be told apart.
//! - An event of unknown shape is an error, so that the service which sent it keeps it in a dead-letter queue.
//! - Neither payloads, nor state, nor secrets are logged.

#![warn(missing_docs)]

mod app;
mod body;
mod conditional;
mod console;
mod deadline;
mod describe;
mod encode;
mod extensions;
mod findings;
mod fit;
mod log;
mod message;
mod notifications;
mod origins;
mod passage;
pub mod percent;
mod principal;
mod protocol;
mod quotas;
mod refusal;
mod repeat;
mod reply;
mod routes;
mod said;
mod server;
mod settings;
mod socket;
mod status;
mod streams;
mod surface;
mod tokens;
mod trigger;
mod turns;

pub use app::{App, Limits, Parts};
pub use findings::{Findings, ProvedCaller};
pub use message::{Content, Request, Response};
pub use notifications::{Notifications, NotificationsError, NotifierParts, NotifyingBus};
pub use origins::Origins;
pub use principal::Authorization;
pub use quotas::Quotas;
pub use server::{ProtocolConfig, Server};
pub use settings::{ConfigError, Variables};
pub use socket::{
    CommandsElsewhere, FOLLOW, FollowCall, Frame, Frames, HeldParts, HeldSockets, LARGEST_FRAME, Socket, SocketReply,
};
pub use streams::{StreamParts, StreamServer};
pub use tokens::{BearerKey, CallbackSecret, CallbackSigner, SignalAddresses, Token};
pub use trigger::TriggerError;
pub use turns::TurnServer;
