//! Functions that a model may call.
//!
//! The schema that the model is shown is made from the type that the function takes; what the model gives is read into
//! that type, and refused with the field that is wrong where it does not fit.
//!
//! ```
//! use dormouse::schemars::JsonSchema;
//! use dormouse::serde::Deserialize;
//! use dormouse::tools::{RustTool, RustTools};
//!
//! /// Where to look.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(crate = "dormouse::serde")]
//! #[schemars(crate = "dormouse::schemars")]
//! struct Shelf {
//!     /// Name of the item.
//!     item: String,
//!     /// The warehouse; all of them where none is named.
//!     warehouse: Option<String>,
//! }
//!
//! let stock = RustTool::new("stock")
//!     .describe("Tells how many pieces of an item are there")
//!     .read_only()
//!     .run(async |shelf: Shelf| match shelf.item.as_str() {
//!         "lamp" => Ok(7),
//!         other => Err(format!("there is no item `{other}`")),
//!     });
//! let tools = RustTools::new([stock])?;
//! # Ok::<(), dormouse::tools::RustToolsError>(())
//! ```
//!
//! A tool is *manual* until it is said to be [read-only](RustTool::read_only) or [idempotent](RustTool::idempotent): a
//! call that was begun by a worker that died is then not made again, but a person is asked whether it happened.
//!
//! A function that begins a job and does not wait for it takes the [call](ToolCall) too ([`RustTool::reply`]), begins
//! the job under its `idempotency_key`, hands it the address in `callback`, and answers
//! [`Pending`](ToolReply::Pending): the run sleeps until the job sends its outcome there.

pub use dormouse_ports::tool::{
    Callback, Effect, InputAnswer, InputRequest, Pending, ToolCall, ToolContent, ToolError, ToolErrorKind, ToolOutput,
    ToolReply, ToolSource, ToolSpec,
};
pub use dormouse_tools::{RunnableTool, RustTool, RustTools, RustToolsError};
