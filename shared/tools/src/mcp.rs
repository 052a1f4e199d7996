//! Servers of tools that speak the Model Context Protocol, as clients of the official SDK.
//!
//! [`McpServer`] is one server; [`McpServers`] has one for each configuration, with its conversation and its list of
//! tools. Versions from 2024-11-05 to 2026-07-28 are spoken, over streamable HTTP or as a process.
//!
//! | the server | is answered with |
//! |---|---|
//! | speaks the transport HTTP+SSE, which version 2024-11-05 has over HTTP | an error that says so, and what to do |
//! | lists pages | all of them, 100 at the most; a list holds until the server says that it changed, or is older than it says; for five minutes where it says neither, or nobody listens |
//! | says `readOnlyHint` or `idempotentHint` | [safe](dormouse_ports::tool::Effect::Safe); everything else is manual |
//! | sends progress and log lines | an [`McpNotice`] |
//! | answers with a batch of messages (version 2025-03-26) | each of them is taken |
//! | asks a person (elicitation), version 2026-07-28 | [`InputRequired`](dormouse_ports::tool::ToolReply::InputRequired): the call ends, and is made again with the answer |
//! | asks a person in the midst of a call, older versions | the same where the tool is safe: the call is broken off and made again; where it is not, nothing may sleep inside of a call that must not run twice: the [`Asker`] is asked if there is one, else the server is told `decline` |
//! | makes a task of a call (extension `io.modelcontextprotocol/tasks`) | [`Pending`](dormouse_ports::tool::ToolReply::Pending): it is asked how the task stands from time to time, a person is asked what the task asks, and a call that no run waits for any more is canceled |
//! | asks for a model, or for folders | nothing: neither is offered |
//! | answers 401 or 403 | an error that says what to configure; with [`OAuth`] a new access token first |
//! | is dropped or late | `notifications/cancelled` |
//! | answers more than [`McpConfig::most_bytes`] | a failure that the model is shown; the rest is not read |

mod asker;
mod call;
mod config;
mod connection;
mod failure;
mod handler;
mod heard;
mod http;
mod late;
#[cfg(feature = "stdio")]
mod lines;
mod list;
mod messages;
mod notice;
mod oauth;
mod output;
mod progress;
mod question;
mod server;
mod servers;
mod specs;
mod sse;
#[cfg(feature = "stdio")]
mod stdio;
mod task;

pub use asker::Asker;
pub use config::{ClientAuthentication, McpConfig, McpConfigError, McpTransport, OAuth};
pub use notice::{McpNotice, NoticeListener};
pub use server::McpServer;
pub use servers::McpServers;
