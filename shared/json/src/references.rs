use std::collections::BTreeMap;

use serde_json::Value;

/// The most places of a schema with each reference in the place of what it names: more than any that people or programs write.
const MOST: u64 = 200_000;
/// The most objects, arrays and references within one another.
const DEEPEST: usize = 500;

/// Makes sure that the references of a JSON Schema do not multiply: a few lines, each of which names the one before it twice, are
/// more work than any reader ends. One that names itself counts once; how deep it goes is up to the value.
///
/// # Errors
/// A clause that says what is wrong.
pub fn check_references(schema: &Value) -> Result<(), String> {
    let mut walk = Walk { root: schema, known: BTreeMap::new() };
    let places = walk.places(schema, 0).ok_or_else(|| format!("it goes more than {DEEPEST} levels deep"))?;
    match places > MOST {
        true => Err(format!("its references make more than {MOST} places of it")),
        false => Ok(()),
    }
}

struct Walk<'s> {
    root: &'s Value,
    /// Places behind each reference; one while that is not known yet.
    known: BTreeMap<&'s str, u64>,
}

impl<'s> Walk<'s> {
    /// Number of places of `schema`; `None` where it is too deep.
    fn places(&mut self, schema: &'s Value, depth: usize) -> Option<u64> {
        if depth > DEEPEST {
            return None;
        }
        let within: Box<dyn Iterator<Item = &'s Value>> = match schema {
            Value::Object(object) => Box::new(object.values()),
            Value::Array(array) => Box::new(array.iter()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Some(1),
        };
        let mut places = 1_u64;
        for value in within {
            places = places.saturating_add(self.places(value, depth + 1)?);
        }
        let named = ["$ref", "$dynamicRef"].into_iter().filter_map(|name| schema.get(name)?.as_str());
        for name in named {
            places = places.saturating_add(self.behind(name, depth + 1)?);
        }
        Some(places)
    }

    fn behind(&mut self, name: &'s str, depth: usize) -> Option<u64> {
        if let Some(known) = self.known.get(name) {
            return Some(*known);
        }
        let Some(target) = name.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) else {
            return Some(1);
        };
        self.known.insert(name, 1);
        let places = self.places(target, depth)?;
        self.known.insert(name, places);
        Some(places)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn chain(length: usize, of: fn(String) -> Value) -> Value {
        let mut definitions = Map::from_iter([("0".to_owned(), json!({ "type": "string" }))]);
        for number in 1..length {
            definitions.insert(number.to_string(), of(format!("#/$defs/{}", number - 1)));
        }
        json!({ "$defs": definitions, "$ref": format!("#/$defs/{}", length - 1) })
    }

    #[test]
    fn references_that_multiply_are_refused() {
        let twice = |name: String| json!({ "anyOf": [{ "$ref": name }, { "$ref": name }] });
        assert!(check_references(&chain(26, twice)).is_err());
        assert_eq!(check_references(&chain(8, twice)), Ok(()));
        assert!(check_references(&chain(5_000, |name| json!({ "$ref": name }))).is_err(), "too deep");
    }

    #[test]
    fn what_people_write_is_taken() {
        for schema in [
            json!({}),
            json!(true),
            json!({ "$ref": "#" }),
            json!({ "$ref": "https://example.com/schema" }),
            json!({ "properties": { "$ref": { "type": "string" } } }),
            json!({ "$defs": { "tree": { "properties": { "left": { "$ref": "#/$defs/tree" }, "right": { "$ref": "#/$defs/tree" } } } },
                "$ref": "#/$defs/tree" }),
            chain(60, |name| json!({ "items": { "$ref": name } })),
        ] {
            assert_eq!(check_references(&schema), Ok(()), "{schema}");
        }
    }
}
