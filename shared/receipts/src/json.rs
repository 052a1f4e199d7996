//! JSON that all readers understand alike (I-JSON, RFC 7493): no name twice in one object, no integer that is no double.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use crate::{Flaw, Map, limits};

/// The object that `text` is.
pub(crate) fn object(text: &[u8]) -> Result<Map, Flaw> {
    match value(text)? {
        Value::Object(object) => Ok(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Flaw::Malformed { reason: "it is no JSON object".to_owned() })
        }
    }
}

/// The value that `text` is.
pub(crate) fn value(text: &[u8]) -> Result<Value, Flaw> {
    let malformed = |error: serde_json::Error| Flaw::Malformed { reason: error.to_string() };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Strict.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        within(value.unsigned_abs(), value).map(Into::into)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        within(value, value).map(Into::into)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is too large"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            read.push(element);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self)?;
            if read.contains_key(&name) {
                return Err(A::Error::custom(format!("the field {name:?} comes twice in one object")));
            }
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

fn within<T: fmt::Display, E: Error>(size: u64, value: T) -> Result<T, E> {
    match size <= limits::INTEGER {
        true => Ok(value),
        false => Err(E::custom(format!("the integer {value} is too large: not all readers keep it as it is"))),
    }
}
