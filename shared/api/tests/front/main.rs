//! The front, its keys and its streams, over operations and records that the tests write themselves.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod keys;
mod pages;
mod refusals;
mod scopes;
mod streams;
mod tells;
mod world;
