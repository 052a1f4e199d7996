use dormouse_ports::model::{ModelError, ModelErrorCategory};
use serde_json::Value;

use crate::failure::of_malformed;
use crate::wire::Malformed;

/// What a list of models says about `model` (§5): that it is there and, where the server tells, that it is loaded.
pub(crate) fn listed(model: &str, body: &Value) -> Result<(), ModelError> {
    let Some(models) = body.get("data").and_then(Value::as_array) else {
        return Err(of_malformed(Malformed::new("the list of models has no `data`"), Some(body.clone())));
    };
    let is_it = |listed: &&Value| listed.get("id").and_then(Value::as_str) == Some(model);
    let Some(found) = models.iter().find(is_it) else {
        return Err(ModelError::new(
            ModelErrorCategory::InvalidModel,
            format!("the provider has no model `{model}`; it has {}", in_words(models)),
        ));
    };
    if is_loaded(found) {
        return Ok(());
    }
    let message = format!("the model `{model}` is not loaded yet; load it, or wait until the server has");
    Err(ModelError::new(ModelErrorCategory::ModelNotLoaded, message))
}

/// Local servers say so in `status` or `state`, some within `status.value`; others say nothing.
fn is_loaded(model: &Value) -> bool {
    let status = ["/status/value", "/status", "/state"].iter().filter_map(|place| model.pointer(place));
    match status.into_iter().find_map(Value::as_str) {
        Some(status) => !matches!(status, "not_loaded" | "not-loaded" | "unloaded" | "loading" | "sleeping" | "failed"),
        None => model.get("loaded") != Some(&Value::Bool(false)),
    }
}

fn in_words(models: &[Value]) -> String {
    const MOST: usize = 10;
    let names: Vec<_> = models.iter().filter_map(|model| model.get("id").and_then(Value::as_str)).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => format!("{} and {} others", names[..MOST].join(", "), count - MOST),
        _ => names.join(", "),
    }
}
