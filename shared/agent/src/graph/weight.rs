//! How many tokens a conversation is: by its length, and by what its model counted of the last request.

use dormouse_ports::Unmarked;
use dormouse_ports::model::{CompletionRequest, Message, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::images;
use super::parts::AgentParts;
use super::run::AgentRun;

/// Bytes of JSON that count as a token.
pub(super) const BYTES_OF_TOKEN: u64 = 4;
/// Tokens that an image counts as.
const TOKENS_OF_IMAGE: u64 = 1600;

/// How many times more tokens than by its length a request may be: what counts further is no count of it alone.
const MOST_TIMES: u64 = 4;

/// A request, as it was guessed and as its model counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Tokens by its length; 0 in a replay of a run that went by that alone, as earlier versions did.
    pub guessed: u64,
    /// Tokens, as the model told.
    pub counted: u64,
}

impl Measured {
    /// What is never measured.
    pub(super) const NEVER: Self = Self { guessed: 0, counted: 0 };
}

/// What is known behind an answer to `request` that took so much.
pub(super) fn measured(
    parts: &AgentParts,
    run: &AgentRun,
    request: &CompletionRequest,
    usage: &Usage,
) -> Option<Measured> {
    let counted = usage.prompt_tokens.filter(|_| parts.model.context_window.is_some());
    match (run.measured, counted) {
        (Some(Measured::NEVER), _) | (_, None) => run.measured,
        (_, Some(counted)) => Some(Measured { guessed: size(request, image_tokens(parts)), counted }),
    }
}

/// The window of the model of `parts`, in tokens by length: smaller where its last request was more of them than that. Of small
/// requests what stands around them is the most.
pub(super) fn window(parts: &AgentParts, run: &AgentRun) -> Option<u64> {
    let window = parts.model.context_window?;
    let is_own = run.agent == parts.agent.name;
    let told = run.measured.filter(|told| is_own && told.guessed >= window / 10 && told.counted > told.guessed);
    let scaled = told.map(|told| {
        let part = u128::from(window) * u128::from(told.guessed) / u128::from(told.counted);
        u64::try_from(part).unwrap_or(window).max(window / MOST_TIMES)
    });
    Some(scaled.unwrap_or(window))
}

/// Tokens that an image counts as with the model of `parts`: its name alone, where that is told of it in words.
pub(super) fn image_tokens(parts: &AgentParts) -> u64 {
    if parts.shows_images() { TOKENS_OF_IMAGE } else { 0 }
}

/// Tokens of `request`, by its length, where an image is `image` of them.
pub(super) fn size(request: &CompletionRequest, image: u64) -> u64 {
    let images = request.messages.iter().filter(|message| has_blocks(message)).map(|one| images::count(&json!(one)));
    (length(&request.messages) + length(&request.tools)) / BYTES_OF_TOKEN + images.sum::<u64>() * image
}

/// True if `message` may have images.
fn has_blocks(message: &Message) -> bool {
    match message {
        Message::User { content } => content.blocks().is_some(),
        Message::Tool { images, .. } => !images.is_empty(),
        Message::System { .. } | Message::Assistant(_) => false,
    }
}

pub(super) fn tokens(messages: &[Value], image: u64) -> u64 {
    messages.iter().map(|message| length_of(message, image)).sum::<u64>() / BYTES_OF_TOKEN
}

/// Bytes of a message without the mark of its run, which no model is told, and with what its images count for.
pub(super) fn length_of(message: &Value, image: u64) -> u64 {
    length(&Unmarked(message)) + images::count(message) * image * BYTES_OF_TOKEN
}

pub(super) fn length(value: &impl Serialize) -> u64 {
    dormouse_json::length(value).map_or(0, |length| u64::try_from(length).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::run::RunUsage;
    use super::*;

    #[test]
    fn what_a_provider_counts_without_end_uses_up_every_budget() {
        let endless = Usage { prompt_tokens: Some(u64::MAX), completion_tokens: Some(u64::MAX), ..Usage::default() };
        let once = RunUsage::default().and(endless, 0.0, 0);
        assert_eq!((once.tokens(), once.and(endless, 0.0, 0).tokens()), (u64::MAX, u64::MAX));
    }
}
