//! Reading a fixture so that nothing in it can be overlooked.

use std::collections::HashSet;
use std::time::Duration;

use dormouse_ports::Map;
use serde_json::Value;

use crate::Failure;

/// A mapping of a fixture that remembers which of its keys were read. [`done`](Self::done) fails on the others, so a
/// directive that the runner does not implement cannot pass unseen.
pub(crate) struct Directives<'f> {
    at: String,
    map: &'f Map,
    read: HashSet<&'f str>,
}

impl<'f> Directives<'f> {
    /// Reads `value`, found at `at`; it must be a mapping.
    pub(crate) fn new(at: impl Into<String>, value: &'f Value) -> Result<Self, Failure> {
        let at = at.into();
        match value.as_object() {
            Some(map) => Ok(Self::of(at, map)),
            None => Err(Failure::invalid(format!("{at} must be a mapping, not {value}"))),
        }
    }

    pub(crate) fn of(at: impl Into<String>, map: &'f Map) -> Self {
        Self { at: at.into(), map, read: HashSet::new() }
    }

    /// Where in the fixture the mapping stands.
    pub(crate) fn at(&self) -> &str {
        &self.at
    }

    fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// The value of `key`, also when it is null.
    pub(crate) fn get(&mut self, key: &str) -> Option<&'f Value> {
        let (key, value) = self.map.get_key_value(key)?;
        self.read.insert(key);
        Some(value)
    }

    /// The value of `key` unless it is null.
    pub(crate) fn given(&mut self, key: &str) -> Option<&'f Value> {
        self.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn require(&mut self, key: &str) -> Result<&'f Value, Failure> {
        self.get(key).ok_or_else(|| Failure::invalid(format!("{} is missing", self.path(key))))
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<&'f str>, Failure> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(crate) fn required_text(&mut self, key: &str) -> Result<&'f str, Failure> {
        let path = self.path(key);
        self.text(key)?.ok_or_else(|| Failure::invalid(format!("{path} is missing")))
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<Option<bool>, Failure> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn integer(&mut self, key: &str) -> Result<Option<i64>, Failure> {
        self.typed(key, "an integer", Value::as_i64)
    }

    pub(crate) fn number(&mut self, key: &str) -> Result<Option<f64>, Failure> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(crate) fn seconds(&mut self, key: &str) -> Result<Option<Duration>, Failure> {
        self.typed(key, "a number of seconds", |value| Duration::try_from_secs_f64(value.as_f64()?).ok())
    }

    pub(crate) fn mapping(&mut self, key: &str) -> Result<Option<&'f Map>, Failure> {
        self.typed(key, "a mapping", Value::as_object)
    }

    pub(crate) fn nested(&mut self, key: &str) -> Result<Option<Directives<'f>>, Failure> {
        let at = self.path(key);
        Ok(self.mapping(key)?.map(|map| Self::of(at, map)))
    }

    /// The items of a list, each with its place.
    pub(crate) fn list(&mut self, key: &str) -> Result<Vec<(String, &'f Value)>, Failure> {
        let at = self.path(key);
        let items = self.typed(key, "a list", Value::as_array)?;
        Ok(items.into_iter().flatten().enumerate().map(|(i, item)| (format!("{at}[{i}]"), item)).collect())
    }

    pub(crate) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, Failure> {
        let texts = |value: &Value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        self.typed(key, "a list of strings", texts)
    }

    fn typed<T>(
        &mut self,
        key: &str,
        what: &str,
        convert: impl FnOnce(&'f Value) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let path = self.path(key);
        let Some(value) = self.given(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| Failure::invalid(format!("{path} must be {what}, not {value}")))
    }

    /// The keys that nobody read yet, in order.
    pub(crate) fn unread(&self) -> Vec<&'f str> {
        self.map.keys().map(String::as_str).filter(|key| !self.read.contains(key)).collect()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// `fixture_directive_unknown` when a key was not read.
    pub(crate) fn done(self) -> Result<(), Failure> {
        let unread = self.unread();
        if unread.is_empty() {
            return Ok(());
        }
        let names = unread.iter().map(|key| format!("`{}`", self.path(key))).collect::<Vec<_>>();
        Err(Failure::DirectiveUnknown(names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_that_nobody_read_are_named_with_their_place() {
        let value = json!({"known": 1, "unknown": 2, "other": null});
        let mut directives = Directives::new("cases[0]", &value).expect("a mapping");
        assert_eq!(directives.integer("known"), Ok(Some(1)));
        let text = directives.done().expect_err("two keys are left").to_string();
        assert_eq!(text, "fixture_directive_unknown: `cases[0].unknown`, `cases[0].other`");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_a_broken_fixture() {
        let value = json!({"flag": "yes"});
        let mut directives = Directives::new("", &value).expect("a mapping");
        let text = directives.flag("flag").expect_err("not a flag").to_string();
        assert_eq!(text, "fixture_schema_invalid: flag must be true or false, not \"yes\"");
    }

    #[test]
    fn a_time_that_cannot_be_waited_for_is_a_broken_fixture() {
        let value = json!({"short": 0.25, "negative": -1, "endless": 1e300});
        let mut directives = Directives::new("", &value).expect("a mapping");
        assert_eq!(directives.seconds("short"), Ok(Some(Duration::from_millis(250))));
        for key in ["negative", "endless"] {
            let text = directives.seconds(key).expect_err("no time").to_string();
            assert!(text.starts_with(&format!("fixture_schema_invalid: {key} must be a number of seconds")), "{text}");
        }
    }
}
