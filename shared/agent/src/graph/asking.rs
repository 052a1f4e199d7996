//! Handlers of hooks that ask a model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookModelCall};
use dormouse_ports::model::{Block, CallOptions, CompletionRequest, Content, Message, ModelProvider, RuntimeConfig};
use serde_json::Value;

use super::model::cost;
use crate::workspace::Prices;

/// Form of the answer, as every handler is told it.
const FORM: &str = "Answer with one JSON object and nothing else. Its fields, all optional: `continue` (false ends the run), \
                    `stopReason`, `decision` (`block` refuses what is about to happen), `reason`, `systemMessage`.";

/// Handles a hook by one question to a model.
pub struct ModelHook {
    /// The model.
    pub provider: Arc<dyn ModelProvider>,
    /// Sampling.
    pub config: RuntimeConfig,
    /// What its calls cost, where that is known.
    pub prices: Option<Prices>,
    /// Instructions of the agent that is asked; empty where only the model is.
    pub instructions: String,
    /// The question; the envelope follows it.
    pub question: String,
}

impl std::fmt::Debug for ModelHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelHook").field("question", &self.question).finish_non_exhaustive()
    }
}

#[async_trait]
impl HookHandler for ModelHook {
    async fn handle(&self, envelope: &Value) -> Result<HookAnswer, HookFailure> {
        let instructions = [self.instructions.as_str(), FORM].join("\n\n");
        let question = format!("{}\n\n{envelope}", self.question);
        let mut request = CompletionRequest::new([Message::system(instructions.trim()), Message::user(question)]);
        request.config = self.config.clone();
        let options = CallOptions { timeout: Some(Duration::from_secs(120)), ..CallOptions::default() };
        let response = self.provider.complete(&request, &options).await;
        let mut response = response.map_err(|error| HookFailure(error.to_string()))?;
        response.usage = response.billed();
        let cost = cost(self.prices, &response);
        let model_call = HookModelCall { identity: self.provider.identity(), usage: response.usage, cost };
        Ok(HookAnswer {
            text: unfenced(&text_of(&response.message.content)).to_owned(),
            blocks: false,
            model_call: Some(Box::new(model_call)),
        })
    }
}

fn text_of(content: &Content) -> String {
    let block = |block: &Block| match block {
        Block::Text { text, .. } => text.clone(),
        Block::Image { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => String::new(),
    };
    match content {
        Content::Text(text) => text.clone(),
        Content::Blocks(blocks) => blocks.iter().map(block).collect(),
    }
}

/// Models put JSON between fences even when they are told not to.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).unwrap_or(text).trim()
}
