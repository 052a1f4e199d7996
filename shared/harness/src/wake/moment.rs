//! Instants, spans and endings in the metadata of a descriptor.

use dormouse_ports::{DueAction, Resolution};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde_json::Value;

/// The instant that `at` or `after` of the value under `key` gives.
pub(super) fn moment(key: &str, value: &Value, now: Timestamp) -> Result<Timestamp, String> {
    match (value.get("at"), value.get("after")) {
        (Some(at), None) => instant(&format!("{key}.at"), at),
        (None, Some(after)) => later(&format!("{key}.after"), after, now),
        (Some(_), Some(_)) | (None, None) => Err(format!("`{key}` needs either `at` or `after`")),
    }
}

/// Effect of `then` of the value under `key` when no signal came in time.
pub(super) fn ending(key: &str, then: Option<&Value>) -> Result<DueAction, String> {
    match (then.and_then(|then| then.get("resume")), then.and_then(Value::as_str)) {
        (Some(Value::Object(payload)), None) => Ok(DueAction::Resume(Resolution::TimedOut.mark(payload.clone()))),
        (None, Some("fail")) => Ok(DueAction::Fail),
        _ => Err(format!("`{key}.then` must be {{\"resume\": payload}} or \"fail\"")),
    }
}

pub(super) fn instant(key: &str, value: &Value) -> Result<Timestamp, String> {
    let parsed = value.as_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("`{key}` must be an instant such as 2027-01-31T09:00:00Z, not {value}"))
}

pub(super) fn later(key: &str, value: &Value, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || format!("`{key}` must be an ISO-8601 duration such as PT10M or P3D, not {value}");
    let span: Span = value.as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let duration: SignedDuration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    if duration.is_negative() {
        return Err(wrong());
    }
    now.checked_add(duration).map_err(|_| format!("`{key}` is too far in the future: {value}"))
}
