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
//! **Agents that a folder declares** are offered them by the name under which the program registers them: an entry of
//! `.openharness/tools/settings.yaml` says `rust: stock`.
//!
//! ```
//! use dormouse::tools::{RustTools, RustToolsError};
//! use dormouse::{Agents, Map};
//!
//! fn agents() -> Result<Agents, RustToolsError> {
//!     # let stock = dormouse::tools::RustTool::new("stock").run(async |_: Map| Ok::<_, String>(7));
//!     Ok(Agents::new().tools("stock", RustTools::new([stock])?)) // and agents of its own, where it has any
//! }
//! # assert_eq!(agents()?.crate_tools().keys().collect::<Vec<_>>(), ["stock"]);
//! # Ok::<(), RustToolsError>(())
//! ```
//!
//! That holds for the commands `dev`, `chat` and `serve` of its `dormouse::cli`, and for published workspaces that its functions
//! serve; never for agents in files of stored workspaces. All else is done for them, as for tools of servers: arguments are held
//! against the schema, a person is asked as the policy says, a call ends at its [timeout](RustTool::timeout), one in doubt is asked
//! about, and the run sleeps while one is pending. A function must not block its thread: its call could not be ended.
//!
//! **A node of your own** that asks a model shows it the [list](ToolSource::list), and makes the [calls](ToolSource::call) for
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
//! [idempotent](RustTool::idempotent) ([`ToolSpec::effect`]).
//!
//! A function that begins a job and does not wait for it takes the [call](ToolCall) too ([`RustTool::reply`]), begins the
//! job under its `idempotency_key`, hands it the address in `callback`, where the node has given it one, and answers
//! [`Pending`](ToolReply::Pending): the node then waits for the signal that the job sends.

pub use dormouse_ports::tool::{
    Callback, Effect, InputAnswer, InputRequest, Pending, ToolCall, ToolContent, ToolError, ToolErrorKind, ToolOutput,
    ToolReply, ToolSource, ToolSpec,
};
pub use dormouse_tools::{RunnableTool, RustTool, RustTools, RustToolsError};
