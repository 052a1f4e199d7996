use dormouse_ports::model::{ModelError, ModelErrorCategory};
use serde_json::Value;

use crate::failure::{by_status, is_about_images, of_malformed};
use crate::wire::{ErrorAnswer, Malformed, Refusal};

/// Names an error. Its kind is in a header, which proxies may leave out, or in the body.
pub(super) fn refusal(answer: ErrorAnswer<'_>) -> Refusal {
    let text = |place: &str| answer.body.pointer(place).and_then(Value::as_str);
    let words = text("/message").or_else(|| text("/Message")).or_else(|| text("/error/message"));
    let said = words.unwrap_or_default();
    let named = [Some(answer.kind), text("/code"), text("/__type"), text("/error/type")];
    let kind = named.into_iter().flatten().find(|kind| !kind.is_empty()).unwrap_or_default();
    // `ThrottlingException:http://…`, and in a body `com.amazon…#ThrottlingException`.
    let kind = kind.split(':').next().and_then(|kind| kind.rsplit('#').next()).unwrap_or_default();
    let category = match (kind, answer.status) {
        ("ModelNotReadyException", _) => ModelErrorCategory::ModelNotLoaded,
        ("ResourceNotFoundException", _) => ModelErrorCategory::InvalidModel,
        // Gateways answer with a status of their own.
        ("ThrottlingException" | "ServiceQuotaExceededException", _) => ModelErrorCategory::RateLimit,
        (
            "AccessDeniedException"
            | "ExpiredTokenException"
            | "InvalidSignatureException"
            | "UnrecognizedClientException",
            _,
        ) => ModelErrorCategory::Authentication,
        ("ModelErrorException" | "ModelTimeoutException", _) | (_, 424) => ModelErrorCategory::Unavailable,
        (_, 400) if said.contains("model identifier") || said.contains("model ID") => ModelErrorCategory::InvalidModel,
        (_, 400) if answer.has_images && is_about_images(said) => ModelErrorCategory::UnsupportedContentBlock,
        (_, status) => by_status(status),
    };
    Refusal { category, message: words.map(str::to_owned) }
}

/// Where descriptions have the id of what they describe.
const IDS: [&str; 7] = [
    "/modelDetails/modelId",
    "/inferenceProfileId",
    "/provisionedModelArn",
    "/modelArn",
    "/customModelDeploymentArn",
    "/promptRouterArn",
    "/marketplaceModelEndpoint/endpointArn",
];

/// What the description of a model, or of what stands for one, says about it.
pub(super) fn described(body: &Value) -> Result<(), ModelError> {
    if !IDS.iter().any(|place| body.pointer(place).is_some()) {
        return Err(of_malformed(Malformed::new("the description of the model has no id"), Some(body.clone())));
    }
    match body.get("status").and_then(Value::as_str) {
        Some(status @ ("Creating" | "Failed")) => {
            let message = format!("Bedrock has the model, and it cannot be asked: its status there is `{status}`");
            Err(ModelError::new(ModelErrorCategory::ModelNotLoaded, message))
        }
        Some(_) | None => Ok(()),
    }
}
