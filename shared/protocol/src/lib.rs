//! The Harn Agents Protocol v1 as values: resources, requests, events, errors, routes, and the OpenAPI document that
//! describes them. All four levels (Core, Extended, Receipts, Replay) share these types.
//!
//! The crate imports `dormouse-json` alone of ours, and must not know storage, sockets, clocks or chance: times and random
//! bytes are given to it, bytes go in and out. A server of the protocol reads a request with [`Operation::find`],
//! [`request`] and [`cursor`], and answers with a resource, a [`List`], an [`sse`] block or a [`ProtocolError`].
//!
//! ```
//! use dormouse_protocol::request::Body;
//! use dormouse_protocol::resource::SubmitTaskRequest;
//! use dormouse_protocol::{Operation, ProtocolError};
//!
//! let found = Operation::find("POST", "/v1/sessions/session_1/tasks")?;
//! let body = Body::read(found.operation, Some("application/json"), br#"{"input": {"amount_cents": 12000}}"#)?;
//! let request: SubmitTaskRequest = body.decode()?;
//! assert_eq!((found.operation, found.params.get("session_id")), (Operation::SubmitSessionTask, "session_1"));
//!
//! let refusal = Operation::find("GET", "/v1/nothing").expect_err("there is no such path");
//! assert_eq!((refusal.status(), refusal.code().as_str()), (404, "resource_not_found"));
//! # Ok::<(), ProtocolError>(())
//! ```
//!
//! # Invariants
//! - A type writes what [`openapi::document`] describes, because the document is made from the types.
//! - [`lifecycle`] is the only place that knows which status of a task may follow which.
//! - An [`Event`] made from a [`Draft`] holds no hidden reasoning, no secret and no part that is not public.
//! - A message to a client never repeats a value that a client sent.

#![warn(missing_docs)]

pub mod cursor;
pub mod envelope;
pub mod error;
pub mod event;
pub mod id;
pub mod lifecycle;
pub mod openapi;
pub mod operation;
pub mod receipt;
pub mod replay;
pub mod request;
pub mod resource;
pub mod sse;

pub use envelope::{Envelope, List, Map, PageInfo, ResourcePointer};
pub use error::{ErrorCode, ErrorResponse, ProtocolError};
pub use event::{Draft, Event, EventKind};
pub use id::Identifier;
pub use operation::{Level, Method, Operation, Scope};

/// The one version that is spoken: what clients send in [`request::VERSION_HEADER`].
pub const PROTOCOL_VERSION: &str = "agents-protocol-2026-04-25";

/// Name of the protocol in discovery.
pub const PROTOCOL_FAMILY: &str = "harn_agents_protocol";
