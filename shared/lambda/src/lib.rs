//! The edge: decode what AWS delivers, let the harness serve it, encode the answer.
//!
//! [`Server`] is everything that the functions share, behind plain values: an [`HttpRequest`] in, a response out. Its
//! [`App`] serves turns, and takes a JSON event in and gives a JSON summary or a [`TriggerError`] out. They know no
//! listener and no runtime, so that local mode serves the very same routes.
//!
//! This crate joins ports and adapters; whatever decides something about turns belongs to `dormouse-harness`.
//!
//! # Invariants
//! - Decoding and encoding are pure. Nothing is loaded or written before a request was read in full and allowed.
//! - Every HTTP answer carries `x-request-id`; every failure names its category or code, and what to do.
//! - No answer is longer than Lambda takes: what was done can be told.
//! - A wrong token and an unknown invocation cannot be told apart.
//! - An event of unknown shape is an error, so that the service which sent it keeps it in a dead-letter queue.
//! - Neither payloads, nor state, nor secrets are logged.

#![warn(missing_docs)]

mod app;
mod body;
mod boot;
mod config;
mod describe;
mod encode;
mod fit;
mod gateway;
mod http;
mod offers;
mod percent;
mod principal;
mod refusal;
mod repeat;
mod routes;
mod said;
mod serve;
mod server;
mod status;
pub mod telemetry;
mod trigger;

pub use app::{App, Limits, Parts};
pub use boot::{BootError, boot, compose};
pub use config::{Config, ConfigError, Quotas, SecretSources, Secrets, SecretsError};
pub use dormouse_api::Request as HttpRequest;
pub use http::HttpResponse;
pub use principal::Authorization;
pub use serve::{Function, serve};
pub use server::{Server, Wire};
pub use trigger::TriggerError;
