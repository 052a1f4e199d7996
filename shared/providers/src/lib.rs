//! Models of several vendors behind one port (llm-provider).
//!
//! A [`Provider`] is bound to one model and speaks one wire over the `Fetch` port. Everything that the wires share is
//! here once: requests are checked before anything is sent, answers before they are returned, attempts are repeated
//! where the caller asks for it. A wire only translates.
//!
//! | wire | constructor | streams | beyond the specification |
//! |---|---|---|---|
//! | OpenAI-compatible chat completions (§8.1) | [`openai`] | yes | |
//! | Anthropic Messages (§8.2) | [`anthropic`] | only where [`Capabilities::streaming`] is set | streaming |
//! | Google Gemini (§8.3) | [`gemini`] | only where [`Capabilities::streaming`] is set | streaming |
//! | Amazon Bedrock Converse | [`bedrock`] | yes | the whole wire |
//! | OpenAI Responses | [`responses`] | yes | the whole wire |
//!
//! # Invariants
//! - Nothing is sent that the specification calls malformed, and no answer is returned that is.
//! - The same request makes the same bytes: every object that goes out has its keys sorted (§8).
//! - Calls of tools that come without an id get one that no other call of the conversation has.
//! - Ids of calls that a wire does not take are sent under another name, the same for a call and its result.
//! - A call has at most one request under way; dropping its future closes the connection.
//! - Bodies are bounded in bytes, depth and number of values before anything is made of them.
//! - Keys are resolved when they are used, and appear in no error and no log.
//!
//! The crate knows neither clock nor network nor runtime, and no AWS SDK: requests to Bedrock are signed by a port.

#![warn(missing_docs)]

mod anthropic;
mod attempt;
mod bedrock;
mod body;
mod canonical;
mod check;
mod failure;
mod frames;
mod gemini;
mod ids;
mod judge;
mod mask;
mod openai;
mod provider;
mod ready;
mod reported;
mod responses;
mod retry;
mod schema;
mod setup;
mod structured;
pub mod telemetry;
mod told;
mod wire;

pub use anthropic::anthropic;
pub use bedrock::bedrock;
pub use gemini::gemini;
pub use openai::openai;
pub use provider::Provider;
pub use reported::Reported;
pub use responses::{ResponsesProvider, responses};
pub use setup::{ApiKey, Capabilities, ProviderPorts, ProviderSetup};
