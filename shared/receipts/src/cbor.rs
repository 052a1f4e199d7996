//! Receipts as deterministic CBOR (RFC 8949 §4.2.1): shortest numbers, lengths known, keys in the order of their bytes. The
//! hash of a receipt is that of its JSON in either form.

use ciborium::value::Integer;
use serde_json::Value;

use crate::{Flaw, Map};

/// The bytes of `receipt`.
///
/// # Errors
/// [`Flaw::Malformed`] when it cannot be written.
pub fn encode(receipt: &Map) -> Result<Vec<u8>, Flaw> {
    written(&object(receipt)?)
}

fn written(value: &ciborium::Value) -> Result<Vec<u8>, Flaw> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).map_err(|error| Flaw::Malformed { reason: error.to_string() })?;
    Ok(bytes)
}

fn object(fields: &Map) -> Result<ciborium::Value, Flaw> {
    let mut entries = Vec::new();
    for (name, value) in fields {
        let name = ciborium::Value::from(name.as_str());
        entries.push((written(&name)?, name, of(value)?));
    }
    entries.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    Ok(ciborium::Value::Map(entries.into_iter().map(|(_, name, value)| (name, value)).collect()))
}

fn of(value: &Value) -> Result<ciborium::Value, Flaw> {
    Ok(match value {
        Value::Null => ciborium::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(parts) => ciborium::Value::Array(parts.iter().map(of).collect::<Result<_, _>>()?),
        Value::Object(fields) => object(fields)?,
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => ciborium::Value::Integer(Integer::from(whole)),
            (_, Some(whole), _) => ciborium::Value::Integer(Integer::from(whole)),
            (_, _, Some(number)) => number.into(),
            (None, None, None) => return Err(Flaw::Malformed { reason: format!("{number} is no number of CBOR") }),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_bytes_and_numbers_as_short_as_they_can_be() {
        let Value::Object(fields) = json!({ "bb": 1, "a": [null, true, 1.5], "c": -1 }) else { panic!("an object") };
        // Shorter keys have smaller heads.
        assert_eq!(hex::encode(encode(&fields).expect("CBOR")), "a3616183f6f5f93e006163206262620".to_owned() + "1");
    }
}
