//! The port to a model, and what crosses it (llm-provider).
//!
//! Messages, tools, configuration, requests and responses are plain values with the JSON form of the specification:
//! they can be kept in a state, and read back from there. A provider keeps nothing between calls.
//!
//! ```
//! use dormouse_ports::model::{CompletionRequest, Message};
//!
//! let request = CompletionRequest::new([Message::system("Be brief."), Message::user("Hello")]);
//! let kept = serde_json::to_value(&request)?;
//! assert_eq!(kept["messages"][1], serde_json::json!({ "role": "user", "content": "Hello" }));
//! assert_eq!(CompletionRequest::read(&kept).expect("a request"), request);
//! # Ok::<(), serde_json::Error>(())
//! ```

mod background;
mod block;
mod call;
mod config;
mod error;
mod message;
mod provider;
mod request;
mod response;
mod retry;
mod tool;

pub use background::{BackgroundJob, BackgroundProvider, BackgroundStatus, StartedJob};
pub use block::{Block, ImageDetail, ImageSource};
pub use call::{CallEvent, CallObserver, DeltaKind, RetryReason};
pub use config::RuntimeConfig;
pub use error::{ModelError, ModelErrorCategory, StructuredFailure};
pub use message::{AssistantMessage, Content, Message};
pub use provider::{CallOptions, ModelIdentity, ModelProvider};
pub use request::CompletionRequest;
pub use response::{FinishReason, Response, Usage};
pub use retry::{Reask, RetryPolicy};
pub use tool::{Tool, ToolCall, ToolChoice, is_wire_name, wire_name};
