use serde_json::Value;

use crate::{Bounds, Excess, Map, Part, TAKEN, fields_of};

/// Looks through `value`, and stops where it is beyond `bounds`, or has a name that could not be read again.
///
/// # Errors
/// The [`Excess`].
pub fn measure(value: &Value, bounds: Bounds) -> Result<(), Excess> {
    SizeCount { bounds, values: 0 }.value(value, 0)
}

/// The same for an object.
///
/// # Errors
/// The [`Excess`].
pub fn measure_object(object: &Map, bounds: Bounds) -> Result<(), Excess> {
    measure_fields(fields_of(object), bounds)
}

/// The same for an object of these `fields`.
///
/// # Errors
/// The [`Excess`].
pub fn measure_fields<'f>(
    fields: impl Iterator<Item = (&'f str, Part<'f>)> + Clone,
    bounds: Bounds,
) -> Result<(), Excess> {
    let mut count = SizeCount { bounds, values: 0 };
    count.one()?;
    if fields.clone().any(|(name, _)| name.starts_with(TAKEN)) {
        return Err(Excess::Name);
    }
    count.within(1)?;
    fields.map(|(_, part)| part).try_for_each(|part| count.part(part, 1))
}

/// Bytes that an object of these `fields` has as JSON at most, by the lengths of its texts alone: what they hold is not looked
/// at.
pub fn most_bytes<'f>(fields: impl Iterator<Item = (&'f str, Part<'f>)>) -> usize {
    let part = |part: Part<'_>| match part {
        Part::Value(value) => bytes(value),
        Part::Items(items) => all_bytes(items.iter().map(|item| &**item)),
    };
    object_bytes(fields.map(|(name, value)| (name, part(value))))
}

/// Bytes of a character that is escaped, which may be any.
const ESCAPED: usize = 6;
/// Bytes of the longest number.
const NUMBER: usize = 32;

fn object_bytes<'f>(fields: impl Iterator<Item = (&'f str, usize)>) -> usize {
    let field = |(name, bytes): (&str, usize)| text(name).saturating_add(bytes).saturating_add(2);
    fields.map(field).fold(2, usize::saturating_add)
}

fn all_bytes<'i>(items: impl Iterator<Item = &'i Value>) -> usize {
    items.map(|item| bytes(item).saturating_add(1)).fold(2, usize::saturating_add)
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => NUMBER,
        Value::String(string) => text(string),
        Value::Array(items) => all_bytes(items.iter()),
        Value::Object(object) => object_bytes(object.iter().map(|(name, value)| (name.as_str(), bytes(value)))),
    }
}

fn text(text: &str) -> usize {
    text.len().saturating_mul(ESCAPED).saturating_add(2)
}

struct SizeCount {
    bounds: Bounds,
    values: usize,
}

impl SizeCount {
    fn one(&mut self) -> Result<(), Excess> {
        self.values += 1;
        if self.values > self.bounds.values { Err(Excess::Values(self.bounds.values)) } else { Ok(()) }
    }

    fn part(&mut self, part: Part<'_>, above: usize) -> Result<(), Excess> {
        match part {
            Part::Value(value) => self.value(value, above),
            Part::Items(items) => {
                self.one()?;
                self.all(items.iter().map(|item| &**item), above + 1)
            }
        }
    }

    /// Goes no deeper than the bounds, so that the stack holds.
    fn value(&mut self, value: &Value, above: usize) -> Result<(), Excess> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.one(),
            Value::Array(items) => {
                self.one()?;
                self.all(items.iter(), above + 1)
            }
            Value::Object(fields) => {
                self.one()?;
                self.fields(fields, above + 1)
            }
        }
    }

    fn fields(&mut self, fields: &Map, depth: usize) -> Result<(), Excess> {
        if fields.keys().any(|name| name.starts_with(TAKEN)) {
            return Err(Excess::Name);
        }
        self.all(fields.values(), depth)
    }

    fn within(&self, depth: usize) -> Result<(), Excess> {
        if depth > self.bounds.depth { Err(Excess::Depth(self.bounds.depth)) } else { Ok(()) }
    }

    fn all<'a>(&mut self, values: impl Iterator<Item = &'a Value>, depth: usize) -> Result<(), Excess> {
        self.within(depth)?;
        for value in values {
            self.value(value, depth)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ENTRY;

    #[test]
    fn what_could_not_be_read_again_is_told() {
        let taken = "$serde_json::private::RawValue";
        let values = [json!({ taken: "no JSON" }), json!({ "a": [{ "b": 1, taken: "1" }] })];
        for value in &values {
            assert_eq!(measure(value, ENTRY), Err(Excess::Name), "{value}");
            assert_eq!(measure_object(value.as_object().expect("an object"), ENTRY), Err(Excess::Name), "{value}");
        }
        assert_eq!(measure(&json!({ "$serde_json": taken, "": "$serde_json::private::Number" }), ENTRY), Ok(()));
    }

    #[test]
    fn nothing_is_longer_than_it_can_be() {
        for value in [
            json!({}),
            json!({ "\u{1}\n": "\u{0}\u{1f}\"\\", "b": [f64::MIN, f64::MIN_POSITIVE, u64::MAX, i64::MIN, -1.5e-300] }),
            json!({ "a": [null, true, false, [], {}, { "\u{fc}": "\u{1f600}" }], "": "" }),
        ] {
            let object = value.as_object().expect("an object");
            assert!(crate::length(object).expect("JSON") <= most_bytes(fields_of(object)), "{value}");
        }
    }
}
