use dormouse_ports::model::ModelErrorCategory;
use serde_json::Value;

use crate::failure::{by_status, is_about_images};
use crate::wire::{ErrorAnswer, Refusal};

/// Names an error (§8.3.3).
pub(super) fn refusal(answer: ErrorAnswer<'_>) -> Refusal {
    let error = answer.body.get("error").unwrap_or(answer.body);
    let words = error.get("message").and_then(Value::as_str);
    let category = match answer.status {
        // Google calls a wrong key an invalid argument.
        400 if has_reason(error, "API_KEY_INVALID") => ModelErrorCategory::Authentication,
        400 | 403 if answer.has_images && words.is_some_and(is_about_images) => {
            ModelErrorCategory::UnsupportedContentBlock
        }
        404 if error.get("status").and_then(Value::as_str) == Some("NOT_FOUND") => ModelErrorCategory::InvalidModel,
        status => by_status(status),
    };
    Refusal { category, message: words.map(str::to_owned) }
}

fn has_reason(error: &Value, reason: &str) -> bool {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    details.filter_map(|detail| detail.get("reason")).any(|known| known == reason)
}
