//! Tools that a model may call, as ports: what a source of tools offers, a call, and what comes of it.
//!
//! A source (native tools, an MCP server, HTTP tools, tools of an author's crate) only lists and calls. Approval, the
//! check of arguments against the schema, deadlines, cutting of large output and the durable record are the work of the
//! one dispatcher that calls it.

mod action;
mod addresses;
mod call;
mod definition;
mod effects;
mod error;
mod output;
mod sound;
mod source;
mod spec;

use std::time::Duration;

pub use action::{ActionDefinition, ActionEntry, ActionExposure};
pub use addresses::CallbackAddresses;
pub use call::{Callback, InputAnswer, ToolCall};
pub use definition::{
    CrateTools, Exposure, HttpToolDefinition, ToolDefinition, ToolSourceDefinition, ToolSources, no_crate_tools,
};
pub use effects::{FileOperation, NotedEffects, SideEffects, WrittenFile};
pub use error::{ToolError, ToolErrorKind};
pub use output::{InputRequest, MASKED, Pending, ToolContent, ToolOutput, ToolReply, with_texts};
pub use sound::{check_tool_name, is_header_of_http_tool, is_header_of_server, is_variable_of_command};
pub use source::ToolSource;
pub use spec::{Effect, ToolAnnotations, ToolSpec};

/// Time that a command has behind its own to tell what came of it, before nobody waits for its call any more.
pub const TIME_TO_TELL: Duration = Duration::from_secs(2);

/// Bytes of a tool's output that models are shown.
pub const SHOWN_OUTPUT: usize = 32 << 10;

/// Names of the tools that Dormouse brings itself. No other tool may have one of them, in upper or lower case.
pub const NATIVE_TOOLS: [&str; 8] = ["Bash", "Read", "Write", "Edit", "Glob", "Grep", "WebFetch", "TodoWrite"];

/// Names of those that need no place to work in.
pub const PLACELESS_TOOLS: [&str; 2] = ["WebFetch", "TodoWrite"];
