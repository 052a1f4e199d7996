use dormouse_ports::model::ModelErrorCategory;
use serde_json::Value;

use crate::failure::{by_status, is_about_images};
use crate::wire::{ErrorAnswer, Refusal};

/// Names an error (§8.1.3).
pub(crate) fn refusal(answer: ErrorAnswer<'_>) -> Refusal {
    let words = words(answer.body);
    let hints = hints(answer.body);
    let category = match answer.status {
        404 if is_about_model(&hints) => ModelErrorCategory::InvalidModel,
        400 if hints.contains("model_not_found") => ModelErrorCategory::InvalidModel,
        // OpenRouter's, of what was said and not of the key.
        403 if answer.body.pointer("/error/metadata/flagged_input").is_some() => ModelErrorCategory::InvalidRequest,
        // Groq's, where it has no room at the moment for what may be put off.
        498 => ModelErrorCategory::Unavailable,
        503 if is_loading(&hints) => ModelErrorCategory::ModelNotLoaded,
        // Routers look for another server that takes images, and find none.
        400 | 404 | 415 | 422 if answer.has_images && is_about_images(&hints) => {
            ModelErrorCategory::UnsupportedContentBlock
        }
        404 if is_about_offer(&hints) => ModelErrorCategory::InvalidModel,
        status => by_status(status),
    };
    Refusal { category, message: words }
}

/// The message of an error: `error.message`, or what some servers have in its place.
fn words(body: &Value) -> Option<String> {
    let places = ["/error/message", "/error", "/message", "/detail"];
    let found = places.iter().filter_map(|place| body.pointer(place)).find_map(Value::as_str);
    found.filter(|words| !words.is_empty()).map(str::to_owned)
}

/// Everything in the body that says what kind of error it is, in lower case.
fn hints(body: &Value) -> String {
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
    let named = ["code", "type"].iter().filter_map(|name| error.get(*name).and_then(Value::as_str));
    let words = words(body).unwrap_or_default();
    named.chain([words.as_str()]).collect::<Vec<_>>().join(" ").to_lowercase()
}

fn is_about_model(hints: &str) -> bool {
    hints.contains("model")
}

/// True where nobody offers the model as it is asked for: Azure calls it a deployment, and routers have endpoints of it.
fn is_about_offer(hints: &str) -> bool {
    hints.contains("deploymentnotfound") || hints.contains("no endpoints found for")
}

fn is_loading(hints: &str) -> bool {
    const SIGNS: [&str; 6] =
        ["not loaded", "loading", "being loaded", "warming up", "model not ready", "model is not ready"];
    let hints = hints.replace('_', " ");
    SIGNS.iter().any(|sign| hints.contains(sign))
}
