//! One form for equal values, and equality of values that are written differently.

use serde_json::{Number, Value};

/// `value` with the keys of all its objects sorted: equal requests become equal bytes (§8).
pub(crate) fn canonical(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

/// True if both mean the same: the order of keys does not count, and numbers are compared by value (§6).
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, value)| other.get(name).is_some_and(|o| same(value, o)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Number(one), Value::Number(other)) => same_number(one, other),
        _ => one == other,
    }
}

fn same_number(one: &Number, other: &Number) -> bool {
    one == other || (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_and_lists_keep_their_order() {
        let value = canonical(json!({ "b": [{ "d": 1, "c": 2 }, 0], "a": null }));
        assert_eq!(value.to_string(), r#"{"a":null,"b":[{"c":2,"d":1},0]}"#);
    }

    #[test]
    fn values_are_the_same_by_what_they_mean() {
        assert!(same(&json!({ "a": 1, "b": [0.5] }), &json!({ "b": [0.5], "a": 1.0 })));
        for (one, other) in [
            (json!({ "a": 1 }), json!({ "a": 1, "b": null })),
            (json!([1, 2]), json!([2, 1])),
            (json!(1), json!("1")),
            (json!(1), json!(true)),
            (json!(u64::MAX), json!(u64::MAX - 1)),
        ] {
            assert!(!same(&one, &other), "{one} {other}");
        }
    }
}
