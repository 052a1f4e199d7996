//! The functions on AWS Lambda: decode what AWS delivers, let the application serve it, encode the answer.
//!
//! This crate joins ports and adapters ([`boot`], and [`compose_streams`] for the function that streams), reads the
//! environment ([`Config`], [`StreamConfig`]) and speaks with the runtime ([`serve`], [`serve_streams`]). Serving requests, from every source, belongs to `dormouse-http`.
//!
//! # Invariants
//! - Decoding and encoding are pure.
//! - Nothing is asked of AWS before the whole environment was read.
//! - Neither payloads, nor state, nor secrets are logged.

#![warn(missing_docs)]

mod allocator;
mod boot;
mod config;
mod gateway;
mod machine;
mod serve;
mod sockets;
mod streaming;
mod streams;
mod tasks;
pub mod telemetry;
mod workers;
mod workspaces;

pub use allocator::{Allocator, allocator};
pub use boot::{BootError, boot, compose, compose_sockets};
pub use config::{Config, SecretSources, Secrets, SecretsError, SocketConfig, StreamConfig, WorkspaceConfig};
pub use machine::{Machine, WorkQueue, machine};
pub use serve::{Function, serve};
pub use streams::{compose_streams, serve_streams};
