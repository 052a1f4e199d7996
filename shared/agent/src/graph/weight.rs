//! How many tokens a conversation is: by its length, since every model counts otherwise.

use dormouse_ports::Unmarked;
use dormouse_ports::model::{CompletionRequest, Message};
use serde::Serialize;
use serde_json::{Value, json};

use super::images;
use super::parts::AgentParts;

/// Bytes of JSON that count as a token.
pub(super) const BYTES_OF_TOKEN: u64 = 4;
/// Tokens that an image counts as.
const TOKENS_OF_IMAGE: u64 = 1600;

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
