//! What earlier invocations of a case left behind, and how later ones refer to it.

use dormouse_ports::Map;
use serde_json::Value;

use crate::Failure;
use crate::matching::is_token;

/// How an invocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndKind {
    Completed,
    Suspended,
    Errored,
    /// The process ended.
    Crashed,
    /// Nothing ran.
    Idle,
}

impl EndKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Suspended => "suspended",
            Self::Errored => "errored",
            Self::Crashed => "crashed",
            Self::Idle => "idle",
        }
    }
}

/// The named outcomes of a case so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past(Vec<Remembered>);

#[derive(Clone, Debug)]
struct Remembered {
    name: String,
    kind: EndKind,
    invocation_id: String,
}

impl Past {
    pub(crate) fn remember(&mut self, name: &str, kind: EndKind, invocation_id: &str) {
        self.0.push(Remembered { name: name.to_owned(), kind, invocation_id: invocation_id.to_owned() });
    }

    /// `value` with every placeholder that points into the past replaced by what it points to. Other tokens stay.
    ///
    /// # Errors
    /// When a placeholder points to nothing that happened.
    pub(crate) fn resolve(&self, value: &Value) -> Result<Value, Failure> {
        match value {
            Value::String(text) => self.resolve_text(text).map(Value::String),
            Value::Array(items) => items.iter().map(|item| self.resolve(item)).collect::<Result<_, _>>(),
            Value::Object(map) => self.resolve_map(map).map(Value::Object),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
        }
    }

    pub(crate) fn resolve_map(&self, map: &Map) -> Result<Map, Failure> {
        map.iter().map(|(key, value)| Ok((key.clone(), self.resolve(value)?))).collect()
    }

    /// Understands `<from previous suspended outcome>`, `<from NAME suspended outcome>` and
    /// `<invocation_id from NAME …>`, where NAME is an invocation, a transmission or a turn.
    pub(crate) fn resolve_text(&self, text: &str) -> Result<String, Failure> {
        let words: Vec<&str> = text.trim_matches(['<', '>']).split_whitespace().collect();
        if !is_token(text) || !words.contains(&"from") {
            return Ok(text.to_owned());
        }
        let wanted = [EndKind::Completed, EndKind::Suspended, EndKind::Errored]
            .into_iter()
            .find(|kind| words.contains(&kind.as_str()));
        let named: Vec<_> = self.0.iter().filter(|past| words.contains(&past.name.as_str())).collect();
        let among = if named.is_empty() { self.0.iter().collect() } else { named };
        let found = among.iter().rev().find(|past| wanted.is_none_or(|kind| past.kind == kind)).or(among.last());
        found
            .map(|past| past.invocation_id.clone())
            .ok_or_else(|| Failure::mismatch(format!("`{text}` points to nothing that happened")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_find_the_outcome_that_they_name() {
        let mut past = Past::default();
        past.remember("tx_one", EndKind::Suspended, "id-1");
        past.remember("tx_two", EndKind::Suspended, "id-2");
        past.remember("tx_three", EndKind::Completed, "id-3");
        let resolve = |text: &str| past.resolve_text(text).expect("it happened");
        assert_eq!(resolve("<from previous suspended outcome>"), "id-2");
        assert_eq!(resolve("<from tx_one suspended outcome>"), "id-1");
        assert_eq!(resolve("<invocation_id from initial completed invoke>"), "id-3");
        assert_eq!(resolve("plain"), "plain");
        assert_eq!(resolve("<uuid>"), "<uuid>");
    }
}
