//! Comparing what is expected with what is (conformance-adapter §5.10).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dormouse_ports::Map;
use serde_json::Value;

/// Whether two values are the same; numbers by their value, mappings without regard to order.
pub(crate) fn equal(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| equal(value, other)))
        }
        (a, b) => a == b,
    }
}

/// What the tokens of a case stand for: `<name_X>` is bound by its first occurrence, `<from … outcome>` by what
/// happened before.
#[derive(Debug, Default)]
pub(crate) struct Bindings(Mutex<HashMap<String, Value>>);

impl Bindings {
    /// Whether `actual` is what `expected` says, tokens included.
    pub(crate) fn matches(&self, expected: &Value, actual: &Value) -> bool {
        match (expected, actual) {
            (Value::String(token), actual) if is_token(token) => self.token(token, actual),
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.matches(a, b))
            }
            (Value::Object(a), Value::Object(b)) => a.len() == b.len() && self.contains(a, b),
            (Value::Object(assertion), Value::String(text)) if is_any_text(assertion) => !text.is_empty(),
            (a, b) => equal(a, b),
        }
    }

    /// Whether every key of `expected` is in `actual` with a matching value.
    pub(crate) fn contains(&self, expected: &Map, actual: &Map) -> bool {
        expected.iter().all(|(key, value)| actual.get(key).is_some_and(|other| self.matches(value, other)))
    }

    /// Does `work`; what it bound is forgotten when it fails.
    pub(crate) fn attempt<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let before = self.bound().clone();
        let result = work();
        if result.is_err() {
            *self.bound() = before;
        }
        result
    }

    fn bound(&self) -> MutexGuard<'_, HashMap<String, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token(&self, token: &str, actual: &Value) -> bool {
        let Some(text) = actual.as_str() else { return false };
        match token {
            "<uuid>" => is_uuid_v4(text),
            "<any-string>" => !text.is_empty(),
            _ if token.starts_with("<uuid-hex") => text.len() == 32 && text.chars().all(is_lower_hex),
            _ => *self.bound().entry(token.to_owned()).or_insert_with(|| actual.clone()) == *actual,
        }
    }
}

/// `non_empty_string: true`, which says in a mapping what `<any-string>` says.
fn is_any_text(assertion: &Map) -> bool {
    assertion.len() == 1 && assertion.get("non_empty_string") == Some(&Value::Bool(true))
}

/// Whether `text` stands for something else.
pub(crate) fn is_token(text: &str) -> bool {
    text.len() > 2 && text.starts_with('<') && text.ends_with('>')
}

fn is_lower_hex(character: char) -> bool {
    character.is_ascii_digit() || ('a'..='f').contains(&character)
}

fn is_uuid_v4(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths = groups.iter().map(|group| group.len()).collect::<Vec<_>>();
    lengths == [8, 4, 4, 4, 12]
        && groups.iter().all(|group| group.chars().all(is_lower_hex))
        && groups[2].starts_with('4')
        && groups[3].starts_with(['8', '9', 'a', 'b'])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_by_value_and_mappings_without_order() {
        assert!(equal(&json!({"a": 1, "b": [2]}), &json!({"b": [2.0], "a": 1.0})));
        assert!(!equal(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }

    #[test]
    fn tokens_match_formats_and_bind_at_first_sight() {
        let bindings = Bindings::default();
        assert!(bindings.matches(&json!("<uuid>"), &json!("00000000-0000-4000-8000-000000000001")));
        assert!(!bindings.matches(&json!("<uuid>"), &json!("00000000-0000-1000-8000-000000000001")));
        for any in [json!("<any-string>"), json!({"non_empty_string": true})] {
            assert!(bindings.matches(&any, &json!("x")) && !bindings.matches(&any, &json!("")));
            assert!(!bindings.matches(&any, &json!(1)));
        }
        assert!(!bindings.matches(&json!({"non_empty_string": false}), &json!("x")));
        assert!(bindings.matches(&json!({"id": "<run_A>"}), &json!({"id": "x"})));
        assert!(!bindings.matches(&json!("<run_A>"), &json!("y")));
    }
}
