//! Attributes with content (observability §5.5.1, §5.5.5).

use dormouse_ports::Map;
use serde_json::Value;

use super::differs;
use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;
use crate::models::SYNTHETIC;

/// Checks what `wanted` says of the content in `actual`.
pub(super) fn check(wanted: &mut Directives<'_>, actual: &Map) -> Result<(), Failure> {
    let text = |name: &str| actual.get(name).and_then(Value::as_str).ok_or_else(|| differs(name, "no such text"));
    for key in ["attribute_parses_as_messages", "attribute_parses_as_object"] {
        for (name, expected) in wanted.mapping(key)?.into_iter().flatten() {
            let parsed: Value = serde_json::from_str(text(name)?).map_err(|error| differs("JSON", error))?;
            if !equal(expected, &parsed) {
                return Err(differs(expected, parsed).within(name));
            }
        }
    }
    if let Some(mut cut) = wanted.nested("attribute_truncation")? {
        for name in cut.unread() {
            if let Some(expected) = cut.nested(name)? {
                truncation(expected, text(name)?).map_err(|failure| failure.within(name))?;
            }
        }
        cut.done()?;
    }
    if let Some(mut without) = wanted.nested("attribute_does_not_contain")? {
        for name in without.unread() {
            if let Some(expected) = without.nested(name)? {
                absence(expected, text(name)?).map_err(|failure| failure.within(name))?;
            }
        }
        without.done()?;
    }
    Ok(())
}

/// A text that was cut is valid by its type; the mark says how long it was.
fn truncation(mut expected: Directives<'_>, text: &str) -> Result<(), Failure> {
    let most = expected.integer("max_bytes")?.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let mark = "…[truncated, ";
    let marked = text.split_once(mark).and_then(|(prefix, rest)| {
        let bytes = rest.strip_suffix(" bytes total]")?.parse::<usize>().ok()?;
        (bytes > prefix.len()).then_some(prefix)
    });
    let prefix = marked.ok_or_else(|| {
        differs("the mark of a cut", &text[text.floor_char_boundary(text.len().saturating_sub(60))..])
    })?;
    if expected.text("marker_pattern")?.is_some_and(|pattern| !pattern.contains("truncated, [0-9]+ bytes total")) {
        return Err(Failure::missing("another mark of a cut"));
    }
    let holds = [("utf8_valid", true), ("prefix_of_full_serialization", prefix.starts_with("[{\"content\":"))];
    for (name, actual) in holds {
        if expected.flag(name)?.is_some_and(|expected| expected != actual) {
            return Err(differs(name, actual));
        }
    }
    expected.done()?;
    if text.len() <= most { Ok(()) } else { Err(differs(format!("at most {most} bytes"), text.len())) }
}

fn absence(mut expected: Directives<'_>, text: &str) -> Result<(), Failure> {
    match expected.text("forbidden_substring_kind")? {
        Some("synthetic_base64_prefix") => {}
        other => return Err(Failure::missing(format!("a forbidden text of kind {other:?}"))),
    }
    expected.done()?;
    if text.contains(SYNTHETIC) { Err(differs("no bytes of an image", text)) } else { Ok(()) }
}
