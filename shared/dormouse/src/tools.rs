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
//! A node of your own that asks a model shows it the [list](ToolSource::list), and makes the [calls](ToolSource::call) for
//! which the model asks:
//!
//! ```
//! use dormouse::Map;
//! use dormouse::tools::{RustTools, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource};
//!
//! async fn answer(tools: &RustTools, id: &str, name: &str, arguments: Map) -> Result<ToolOutput, ToolError> {
//!     match tools.call(&ToolCall::new(id, name, arguments)).await? {
//!         ToolReply::Done(output) => Ok(output), // its `content` is for the model
//!         ToolReply::Pending(_) | ToolReply::InputRequired(_) => Err(ToolError::permanent("it did not answer at once")),
//!     }
//! }
//! ```
//!
//! Arguments that do not fit are an error of the kind [`InvalidArguments`](ToolErrorKind::InvalidArguments), for the model to
//! mend; an `Err` of the function is an output that says that it failed; one that panics is an
//! [uncertain](ToolError::uncertain) error. **All else is the node's work**: asking a person before a call that is
//! [destructive](RustTool::destructive), the [timeout](RustTool::timeout), and not making a call again that may have
//! happened. For that a tool is *manual* until it is said to be [read-only](RustTool::read_only) or
//! [idempotent](RustTool::idempotent) ([`ToolSpec::effect`]). Agents that a folder declares have all of this done for them, and
//! are not offered these tools: theirs are servers of tools, HTTP requests and commands.
//!
//! A function that begins a job and does not wait for it takes the [call](ToolCall) too ([`RustTool::reply`]), begins the
//! job under its `idempotency_key`, hands it the address in `callback`, where the node has given it one, and answers
//! [`Pending`](ToolReply::Pending): the node then waits for the signal that the job sends.

pub use dormouse_ports::tool::{
    Callback, Effect, InputAnswer, InputRequest, Pending, ToolCall, ToolContent, ToolError, ToolErrorKind, ToolOutput,
    ToolReply, ToolSource, ToolSpec,
};
pub use dormouse_tools::{RunnableTool, RustTool, RustTools, RustToolsError};
