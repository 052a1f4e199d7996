//! Hooks: what a workspace runs before and after the steps of its agents.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Template;
use crate::model::{ModelIdentity, Usage};

/// Handler of a hook, as a workspace declares it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HookHandlerDefinition {
    /// A command in the root of the workspace. It reads the envelope from its standard input. Status 0 goes on, 2 blocks,
    /// every other one is a failure.
    Command {
        /// Command line.
        command: String,
        /// Variables of its environment.
        environment: Vec<(String, Template)>,
    },
    /// An address that takes the envelope as a POST.
    Http {
        /// The address.
        url: Template,
        /// Headers.
        headers: Vec<(String, Template)>,
    },
    /// A question to the model of the agent.
    Prompt {
        /// The question; the envelope follows it.
        prompt: String,
    },
    /// Another agent of the workspace, asked once and without tools.
    Agent {
        /// Its name.
        agent: String,
        /// Task of the agent; the envelope follows it.
        task: String,
    },
}

impl HookHandlerDefinition {
    /// True for one that asks a model.
    pub fn asks_model(&self) -> bool {
        match self {
            Self::Prompt { .. } | Self::Agent { .. } => true,
            Self::Command { .. } | Self::Http { .. } => false,
        }
    }
}

/// A call of a model that a handler made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookModelCall {
    /// The model.
    pub identity: ModelIdentity,
    /// Tokens.
    pub usage: Usage,
    /// Money, in the currency of the model's prices.
    pub cost: f64,
}

/// Answer of a handler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookAnswer {
    /// A JSON object, or nothing.
    pub text: String,
    /// True if it blocks, no matter what the text says; the text may then be a reason in words.
    pub blocks: bool,
    /// The call of a model that it comes from, if it does.
    pub model_call: Option<Box<HookModelCall>>,
}

/// A handler did not answer, or not as handlers do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookFailure(pub String);

/// Handles a hook. Dropping the future ends what it does.
#[async_trait]
pub trait HookHandler: fmt::Debug + Send + Sync {
    /// Answers `envelope`.
    ///
    /// # Errors
    /// [`HookFailure`] when there is no answer.
    async fn handle(&self, envelope: &Value) -> Result<HookAnswer, HookFailure>;
}
