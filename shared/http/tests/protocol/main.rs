//! The protocol over HTTP, its keys and its streams, over operations and records that the tests write themselves; and what
//! all responses have in common.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod a2a;
mod alike;
mod held;
mod keys;
mod pages;
mod refusals;
mod scopes;
mod sockets;
mod streams;
mod tells;
mod world;
