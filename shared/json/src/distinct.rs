use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use crate::{Bounds, Excess, Map, ReadError, TAKEN, scan};

/// Characters of a name that are told.
const LONGEST_NAME: usize = 100;

/// Reads `text` like [`read`](crate::read), and refuses an object that has a name twice: readers differ in which of its values
/// counts. So it does one with a name that could not be read again.
///
/// # Errors
/// [`ReadError`] for the violation. Those of names are the only ones of JSON that [are of data](serde_json::Error::is_data).
pub fn read_distinct(text: &[u8], bounds: Bounds) -> Result<Value, ReadError> {
    scan(text, bounds)?;
    Ok(serde_json::from_slice::<Distinct>(text)?.0)
}

/// A value without an object that has a name twice.
struct Distinct(Value);

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Distinct(value)) = values.next_element()? {
            array.push(value);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name.starts_with(TAKEN) {
                return Err(A::Error::custom(Excess::Name));
            }
            if object.contains_key(&name) {
                let name: String = name.chars().take(LONGEST_NAME).flat_map(char::escape_default).collect();
                return Err(A::Error::custom(format!("the name `{name}` stands twice")));
            }
            let Distinct(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ENTRY, read};

    #[test]
    fn what_has_each_name_once_is_read_as_it_is_elsewhere() {
        let text = r#" {"a": [null, true, -1, 18446744073709551615, 1.5, 1e400, "x\n", {"a": {}, "A": 1}], "": "" } "#;
        for text in
            [text.replace("1e400", "1e300"), "7".to_owned(), "[]".to_owned(), "123456789012345678901".to_owned()]
        {
            let known: Value = read(text.as_bytes(), ENTRY).expect("JSON");
            assert_eq!(read_distinct(text.as_bytes(), ENTRY).expect("JSON"), known);
        }
        for text in [text, "", "{", "[1 2]", r#"{"a" 1}"#] {
            let ReadError::Json(error) = read_distinct(text.as_bytes(), ENTRY).expect_err("no JSON") else {
                panic!("it is no JSON: {text}")
            };
            assert!(!error.is_data(), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_that_stands_twice_is_told_with_its_place() {
        for text in [r#"{"a": {"b": 1}, "c": [{"b": 1, "b": 1}]}"#, r#"{"b": 1, "a": 2, "\u0062": 3}"#] {
            let ReadError::Json(error) = read_distinct(text.as_bytes(), ENTRY).expect_err("twice") else {
                panic!("it is within the bounds: {text}")
            };
            assert!(error.is_data() && error.to_string().starts_with("the name `b` stands twice at line 1"), "{error}");
        }
        let taken = read_distinct(br#"{"a": [{"\u0024serde_json::private::RawValue": "1"}]}"#, ENTRY);
        let Err(ReadError::Json(error)) = taken else { panic!("it is within the bounds") };
        assert!(error.is_data() && error.to_string().starts_with("names of JSON must not begin with"), "{error}");
        let umlauts = read_distinct("{\"ü\": 1, \"ü\": 2}".as_bytes(), ENTRY).map_err(|error| error.to_string());
        assert!(umlauts.is_err_and(|message| message.is_ascii()), "it is told in plain letters");
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(matches!(read_distinct(deep.as_bytes(), ENTRY), Err(ReadError::Excess(_))));
    }
}
