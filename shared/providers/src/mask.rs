//! Errors without the secrets that were sent: providers repeat a key that they refuse.

use dormouse_ports::Secret;
use dormouse_ports::model::{BackgroundStatus, ModelError, Response};
use serde_json::Value;

use crate::Provider;

/// What stands in the place of a secret.
const MASK: &str = "(secret)";
/// Bytes below which a text is no secret, but what servers on this machine are given for one, and might be part of any word.
const SHORTEST: usize = 8;

/// `result`, of which an error tells no secret of `provider`.
pub(crate) async fn masked<T>(provider: &Provider, result: Result<T, ModelError>) -> Result<T, ModelError> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(of_error(&provider.secrets().await, error)),
    }
}

/// The same of an answer, which may have failed on the way.
pub(crate) async fn masked_answer(
    provider: &Provider,
    result: Result<Response, ModelError>,
) -> Result<Response, ModelError> {
    let mut response = masked(provider, result).await?;
    if let Some(error) = response.raw.get_mut("error").filter(|error| !error.is_null()) {
        of_value(&provider.secrets().await, error);
    }
    Ok(response)
}

/// The same of a job in the background, which may have failed.
pub(crate) async fn masked_status(
    provider: &Provider,
    result: Result<BackgroundStatus, ModelError>,
) -> Result<BackgroundStatus, ModelError> {
    match masked(provider, result).await? {
        BackgroundStatus::Failed(error) => {
            Ok(BackgroundStatus::Failed(Box::new(of_error(&provider.secrets().await, *error))))
        }
        status @ (BackgroundStatus::Running | BackgroundStatus::Completed(_) | BackgroundStatus::Canceled) => {
            Ok(status)
        }
    }
}

fn of_error(secrets: &[String], mut error: ModelError) -> ModelError {
    error.message = of_text(secrets, &error.message);
    if let Some(raw) = &mut error.raw {
        of_value(secrets, raw);
    }
    error
}

fn of_text(secrets: &[String], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), MASK))
}

fn of_value(secrets: &[String], value: &mut Value) {
    match value {
        Value::String(text) => *text = of_text(secrets, text),
        Value::Array(items) => items.iter_mut().for_each(|item| of_value(secrets, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| of_value(secrets, field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Provider {
    /// The texts that its errors do not tell: its key, the values of the headers that a caller added and what it hides, and the
    /// words of each; long ones first, since one may be part of another.
    async fn secrets(&self) -> Vec<String> {
        let key = match &self.setup.key {
            // Without a key nothing was sent.
            Some(key) => key.resolve().await.ok(),
            None => None,
        };
        let headers = self.setup.headers.iter().map(|(_, value)| value);
        let whole: Vec<&str> = key.iter().chain(headers).chain(&self.setup.hidden).map(Secret::expose).collect();
        let words = whole.iter().flat_map(|secret| secret.split_whitespace());
        let all = whole.iter().copied().chain(words).filter(|secret| secret.len() >= SHORTEST);
        let mut all: Vec<String> = all.map(str::to_owned).collect();
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        all
    }
}
