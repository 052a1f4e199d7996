use dormouse_ports::Map;
use serde_json::Value;

/// A JSON object as a map.
///
/// # Panics
/// When `value` is no object.
pub fn map(value: Value) -> Map {
    let Value::Object(map) = value else { panic!("{value} is not an object") };
    map
}
