//! Sources of tools: what an agent's model may call beside the model's own words.
//!
//! | source | offers |
//! |---|---|
//! | [`RustTools`] | functions of an author's crate, their schemas made from the types that they take |
//! | [`HttpTools`] | tools that are one HTTP request each |
//! | `McpServer` (feature `mcp`) | the tools of a server that speaks the Model Context Protocol, over HTTP or, with the feature `stdio`, as a process |
//! | `NativeTools` (feature `native`) | files, commands, the web, a list of things to do, over an execution backend; `LocalBackend` (feature `local`) is a folder of this machine, and `CopyWorker` (feature `copy`) works in a copy for a function of its own, and `StoredBackend` in stored text files |
//! | [`Exposed`] | the tools of another source under a prefix, without those that are left out and those with names that are taken |
//!
//! Each is a [`ToolSource`](dormouse_ports::tool::ToolSource): it lists and calls, and nothing else. Approval, the check
//! of arguments against the schema, deadlines and the durable record belong to the dispatcher that calls it.
//!
//! The crate imports the ports and must not know engine, harness, AWS or an HTTP client: requests go out over
//! [`Fetch`](dormouse_ports::Fetch). Processes are started only with the feature `stdio`, which is for the author's own
//! machine.
//!
//! # Invariants
//! - A call is made at most once. Where it may have happened and no outcome came back, the error is
//!   [uncertain](dormouse_ports::tool::ToolError::uncertain).
//! - What comes back is bounded before anything is made of it.
//! - References to the environment and to secrets are looked up when a request is made; no value of one is kept, shown
//!   or logged, and none is sent where it is not declared.
//! - What comes of a call is without the secrets that were looked up for it, and without the token of its callback, as
//!   far as they stand in it as they are.
//! - What a server says of its tools is believed only where it makes Dormouse more careful, or where only the server
//!   can know it; what contradicts itself is left out and said.

#![warn(missing_docs)]

#[cfg(feature = "copy")]
mod copy;
#[cfg(feature = "mcp")]
mod declared;
mod exposed;
mod failure;
mod http;
#[cfg(feature = "local")]
mod local;
mod mask;
#[cfg(any(feature = "local", feature = "native"))]
mod matching;
#[cfg(feature = "mcp")]
pub mod mcp;
mod names;
#[cfg(feature = "native")]
mod native;
#[cfg(any(feature = "local", feature = "native"))]
mod paths;
mod rust;
#[cfg(feature = "native")]
mod stored;
mod text;
#[cfg(feature = "mcp")]
mod timed;
mod values;

#[cfg(feature = "copy")]
pub use copy::{CopyLimits, CopyWorker, Sandbox, remove_folder};
#[cfg(feature = "mcp")]
pub use declared::DeclaredTools;
pub use exposed::{Exposed, ExposedError};
pub use http::{HttpTool, HttpToolError, HttpTools};
#[cfg(feature = "local")]
pub use local::LocalBackend;
#[cfg(feature = "mcp")]
pub use mcp::{McpConfig, McpServer, McpServers};
#[cfg(feature = "native")]
pub use native::{ActionTools, DeclaredHook, NativeTools};
pub use rust::{RunnableTool, RustTool, RustTools, RustToolsError};
pub use schemars;
#[cfg(feature = "native")]
pub use stored::StoredBackend;
pub use values::Values;
