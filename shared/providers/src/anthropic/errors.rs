use dormouse_ports::model::ModelErrorCategory;
use serde_json::Value;

use crate::failure::{by_status, is_about_images};
use crate::wire::{ErrorAnswer, Refusal};

/// Names an error (§8.2.3).
pub(super) fn refusal(answer: ErrorAnswer<'_>) -> Refusal {
    let words = answer.body.pointer("/error/message").and_then(Value::as_str);
    let said = words.unwrap_or_default();
    let category = match answer.status {
        404 if said.to_lowercase().contains("model") => ModelErrorCategory::InvalidModel,
        400 if answer.has_images && is_about_images(said) => ModelErrorCategory::UnsupportedContentBlock,
        status => by_status(status),
    };
    Refusal { category, message: words.map(str::to_owned) }
}
