use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Map;

/// Sampling and budget of one call (§6). A field that is not set does not appear on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenConfig")]
pub struct RuntimeConfig {
    /// Commonly 0.0 to 2.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most tokens of the completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Probability mass of nucleus sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Best effort at the same output again; no promise (§9).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Commonly -2.0 to 2.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Commonly -2.0 to 2.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Texts that end the generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Fields beyond those, passed on unchanged where the wire puts them. In JSON they may also stand beside the
    /// declared ones.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extras: Map,
}

/// As it may be written: extras beside the declared fields, or under `extras`.
#[derive(Deserialize)]
struct WrittenConfig {
    temperature: Option<f64>,
    max_tokens: Option<u64>,
    top_p: Option<f64>,
    seed: Option<i64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    stop_sequences: Option<Vec<String>>,
    #[serde(flatten)]
    others: Map,
}

impl From<WrittenConfig> for RuntimeConfig {
    fn from(written: WrittenConfig) -> Self {
        let mut extras = written.others;
        match extras.shift_remove("extras") {
            Some(Value::Object(inner)) => extras.extend(inner),
            Some(other) => {
                extras.insert("extras".to_owned(), other);
            }
            None => {}
        }
        Self {
            temperature: written.temperature,
            max_tokens: written.max_tokens,
            top_p: written.top_p,
            seed: written.seed,
            frequency_penalty: written.frequency_penalty,
            presence_penalty: written.presence_penalty,
            stop_sequences: written.stop_sequences,
            extras,
        }
    }
}

impl RuntimeConfig {
    /// This configuration with what `other` sets laid over it, field by field and extra by extra (§7.1).
    #[must_use]
    pub fn overridden_by(&self, other: &Self) -> Self {
        let mut extras = self.extras.clone();
        let set = other.extras.iter().filter(|(_, value)| !value.is_null());
        extras.extend(set.map(|(name, value)| (name.clone(), value.clone())));
        Self {
            temperature: other.temperature.or(self.temperature),
            max_tokens: other.max_tokens.or(self.max_tokens),
            top_p: other.top_p.or(self.top_p),
            seed: other.seed.or(self.seed),
            frequency_penalty: other.frequency_penalty.or(self.frequency_penalty),
            presence_penalty: other.presence_penalty.or(self.presence_penalty),
            stop_sequences: other.stop_sequences.clone().or_else(|| self.stop_sequences.clone()),
            extras,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(form: Value) -> RuntimeConfig {
        serde_json::from_value(form).expect("a configuration")
    }

    #[test]
    fn undeclared_fields_are_kept_wherever_they_stand() {
        let config = read(json!({ "temperature": 0.5, "seed": null, "top_k": 3, "extras": { "min_p": 0.1 } }));
        assert_eq!(config.temperature, Some(0.5));
        assert_eq!(Value::Object(config.extras.clone()), json!({ "top_k": 3, "min_p": 0.1 }));
        let kept = serde_json::to_value(&config).expect("JSON");
        assert_eq!(kept, json!({ "temperature": 0.5, "extras": { "top_k": 3, "min_p": 0.1 } }));
        assert_eq!(read(kept), config);
    }

    #[test]
    fn an_override_replaces_what_it_sets_and_clears_nothing() {
        let base = read(json!({ "temperature": 0.0, "max_tokens": 5, "top_k": 3, "min_p": 1 }));
        let over = read(json!({ "temperature": 0.7, "top_k": 4, "min_p": null }));
        assert_eq!(
            base.overridden_by(&over),
            read(json!({ "temperature": 0.7, "max_tokens": 5, "top_k": 4, "min_p": 1 }))
        );
    }
}
