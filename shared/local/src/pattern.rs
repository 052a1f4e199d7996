//! Forms of event patterns that are understood here.
//!
//! EventBridge knows more than the matcher behind the local bus, and the matcher knows operators that EventBridge does
//! not. Both are refused, so that what works here works there.

use dormouse_ports::Map;
use serde_json::Value;

const OPERATORS: [&str; 8] =
    ["anything-but", "cidr", "equals-ignore-case", "exists", "numeric", "prefix", "suffix", "wildcard"];

/// Checks that the local bus matches `pattern` as EventBridge does.
///
/// # Errors
/// A sentence that names the defect, and its place.
pub(crate) fn check(pattern: &Map) -> Result<(), String> {
    check_object(pattern, "")
}

fn check_object(object: &Map, path: &str) -> Result<(), String> {
    if object.is_empty() {
        return Err(format!("the event pattern is empty{}: it must name at least one field", within(path)));
    }
    object.iter().try_for_each(|(key, value)| {
        if key.starts_with('$') {
            return Err(format!(
                "the event pattern uses `{key}`{}, which the local bus cannot match: wait with one pattern at a time",
                within(path)
            ));
        }
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Object(inner) => check_object(inner, &path),
            Value::Array(choices) => check_choices(choices, &path),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(format!("the event pattern has {value} at `{path}`: it must be a list of choices, [{value}]"))
            }
        }
    })
}

fn check_choices(choices: &[Value], path: &str) -> Result<(), String> {
    if choices.is_empty() {
        return Err(format!("the event pattern has an empty list at `{path}`: nothing would ever match"));
    }
    choices.iter().try_for_each(|choice| match choice {
        Value::Object(operator) => check_operator(operator, path),
        Value::Array(_) => Err(format!("the event pattern has a list inside the list at `{path}`")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    })
}

fn check_operator(operator: &Map, path: &str) -> Result<(), String> {
    let mut names = operator.iter();
    let (Some((name, operand)), None) = (names.next(), names.next()) else {
        return Err(format!("the event pattern must have one operator in each {{…}} at `{path}`"));
    };
    if !OPERATORS.contains(&name.as_str()) {
        let known = OPERATORS.join(", ");
        return Err(format!("the event pattern uses the operator `{name}` at `{path}`; the local bus knows {known}"));
    }
    // What is inside an operand is the operator's own matter, except that the matcher takes no operator in there.
    if holds_object(operand) {
        return Err(format!(
            "the event pattern has an operator inside `{name}` at `{path}`, which the local bus cannot match"
        ));
    }
    Ok(())
}

fn holds_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().any(holds_object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn within(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at `{path}`") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Map {
        value.as_object().cloned().expect("a mapping")
    }

    #[test]
    fn what_cannot_be_matched_is_refused_with_a_reason() {
        for (pattern, reason) in [
            (json!({}), "is empty"),
            (json!({"detail": {}}), "empty at `detail`"),
            (json!({"$or": [{"source": ["a"]}]}), "`$or`"),
            (json!({"detail": {"$or": [{"a": [1]}]}}), "`$or` at `detail`"),
            (json!({"source": "a"}), "list of choices"),
            (json!({"source": []}), "empty list at `source`"),
            (json!({"source": [["a"]]}), "list inside the list"),
            (json!({"detail": {"a": [{"anything-but": {"prefix": "x"}}]}}), "inside `anything-but` at `detail.a`"),
            (json!({"source": [{"prefix": {"equals-ignore-case": "x"}}]}), "inside `prefix`"),
            (json!({"source": [{"regexp": "a"}]}), "operator `regexp`"),
            (json!({"source": [{"prefix": "a", "suffix": "b"}]}), "one operator"),
        ] {
            let refused = check(&map(&pattern)).expect_err("it is refused");
            assert!(refused.contains(reason), "{pattern}: {refused}");
        }
    }

    #[test]
    fn what_can_be_matched_passes() {
        let pattern = json!({"source": ["a", {"prefix": "b"}], "detail": {"n": [{"numeric": [">", 1]}], "x": [null]}});
        assert_eq!(check(&map(&pattern)), Ok(()));
    }
}
