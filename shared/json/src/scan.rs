use crate::{Bounds, Excess};

/// Scans `text` without making anything of it, and stops at the first byte that is beyond `bounds`. Its reader decides
/// if it is JSON at all: in valid JSON, no value and no level is missed.
///
/// # Errors
/// The [`Excess`].
pub fn scan(text: &[u8], bounds: Bounds) -> Result<(), Excess> {
    let mut depth = 0_usize;
    let mut values = 0_usize;
    // The string that ended last may turn out to be the name of a field.
    let mut in_text = false;
    let mut in_word = false;
    let mut escaped = false;
    for &byte in text {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        let word_before = std::mem::take(&mut in_word);
        let began = values;
        match byte {
            b'"' => {
                in_text = true;
                values += 1;
            }
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                if depth > bounds.depth {
                    return Err(Excess::Depth(bounds.depth));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b':' => values = values.saturating_sub(1),
            b',' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                in_word = true;
                values += usize::from(!word_before);
            }
        }
        // One more, for the name that is not known as one before its colon.
        if values > began && values > bounds.values.saturating_add(1) {
            return Err(Excess::Values(bounds.values));
        }
    }
    if values > bounds.values { Err(Excess::Values(bounds.values)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{ENTRY, measure, read};

    const fn bounds(depth: usize, values: usize) -> Bounds {
        Bounds { depth, values }
    }

    #[test]
    fn levels_are_counted_outside_of_texts() {
        let text = r#"{"a[[[\"[[":[{"b":"}]]{{{\\"}]}"#;
        assert_eq!(scan(text.as_bytes(), bounds(3, 10)), Ok(()));
        assert_eq!(scan(text.as_bytes(), bounds(2, 10)), Err(Excess::Depth(2)));
    }

    #[test]
    fn a_text_at_the_limit_is_taken_and_one_beyond_it_is_not() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read::<Value>(nested(ENTRY.depth).as_bytes(), ENTRY).is_ok());
        let beyond = read::<Value>(nested(ENTRY.depth + 1).as_bytes(), ENTRY).expect_err("refused");
        assert!(beyond.to_string().contains("deeper than 64 levels"), "{beyond}");
        let zeros = |count: usize| json!(vec![0; count]).to_string();
        assert!(read::<Value>(zeros(ENTRY.values - 1).as_bytes(), ENTRY).is_ok());
        let beyond = read::<Value>(zeros(ENTRY.values).as_bytes(), ENTRY).expect_err("refused");
        assert!(beyond.to_string().contains("more than 50000 values"), "{beyond}");
    }

    /// The memory that a stranger can make this process hold is bounded by the values taken, not by the bytes sent.
    #[test]
    fn a_body_of_zeros_takes_no_memory_and_one_at_the_limit_little() {
        let zeros = |bytes: usize| format!("[{}0]", "0,".repeat(bytes / 2)).into_bytes();
        let megabyte = zeros(1024 * 1024);
        let refused = allocation_counter::measure(|| assert!(read::<Value>(&megabyte, ENTRY).is_err()));
        assert_eq!(refused.bytes_max, 0);
        let most = zeros(2 * (ENTRY.values - 2));
        let taken = allocation_counter::measure(|| assert!(read::<Value>(&most, ENTRY).is_ok()));
        assert!(taken.bytes_max < 16 * 1024 * 1024, "{} bytes at once", taken.bytes_max);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            ".{0,6}".prop_map(Value::from),
            r#"[\\"\[\]{}:, ]{0,6}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 60, 5, |inner| {
            let name = prop_oneof![".{0,4}", r#"[\\"\[\]{}:, ]{0,4}"#];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn depth_of(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or_default(),
            Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or_default(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    fn count_of(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(count_of).sum::<usize>(),
            Value::Object(fields) => 1 + fields.values().map(count_of).sum::<usize>(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        }
    }

    proptest! {
        /// Both ways to look agree with a plain count, however the text is laid out.
        #[test]
        fn every_level_and_every_value_is_seen(value in values()) {
            let depth = depth_of(&value);
            let count = count_of(&value);
            for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("a text")] {
                prop_assert_eq!(scan(text.as_bytes(), bounds(depth, count)), Ok(()));
                prop_assert_eq!(scan(text.as_bytes(), bounds(depth, count - 1)), Err(Excess::Values(count - 1)));
                if depth > 0 {
                    prop_assert_eq!(scan(text.as_bytes(), bounds(depth - 1, count)), Err(Excess::Depth(depth - 1)));
                }
            }
            prop_assert_eq!(measure(&value, bounds(depth, count)), Ok(()));
            prop_assert_eq!(measure(&value, bounds(depth, count - 1)), Err(Excess::Values(count - 1)));
            if depth > 0 {
                prop_assert_eq!(measure(&value, bounds(depth - 1, count)), Err(Excess::Depth(depth - 1)));
            }
        }

        /// For all bytes it ends, and returns the same as it would without those behind an excess.
        #[test]
        fn nothing_upsets_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = scan(&bytes, bounds(3, 5));
        }
    }
}
