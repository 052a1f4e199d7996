//! The wake-ups that a descriptor can ask for in its metadata.
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `wake_at` | an instant, `2027-01-31T09:00:00Z` | resume then |
//! | `wake_after` | an ISO-8601 duration, `PT10M` or `P3D` | resume that much later |
//! | `wake_payload` | a mapping | what a wake-up lays over the state; nothing when absent |
//! | `timeout` | `{"after": duration}` or `{"at": instant}`, and `"then": {"resume": payload}` or `"then": "fail"` | what happens when no signal comes until then |
//! | `event` | `{"pattern": EventBridge pattern, "correlation": "$.detail.job_id"}` | an event that matches, and whose value at that path equals the `signal_id`, is the signal; its `detail` is the payload |
//!
//! Days count 24 hours; months and years have no fixed length and are refused.

use dormouse_ports::{Due, DueAction, EventWait, Map, SignalDescriptor, WakePlan, WakePlanner};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde_json::Value;

/// Reads the documented metadata keys of descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub struct DescriptorWakes;

impl WakePlanner for DescriptorWakes {
    fn plan(&self, descriptor: &SignalDescriptor, now: Timestamp) -> Result<WakePlan, String> {
        let empty = Map::new();
        let metadata = descriptor.metadata.as_ref().unwrap_or(&empty);
        let due = match (wake(metadata, now)?, timeout(metadata, now)?) {
            (Some(_), Some(_)) => return Err("give a wake-up or a `timeout`, not both".to_owned()),
            (wake, timeout) => wake.or(timeout),
        };
        Ok(WakePlan { due, event: event(metadata)? })
    }
}

fn wake(metadata: &Map, now: Timestamp) -> Result<Option<Due>, String> {
    let at = match (metadata.get("wake_at"), metadata.get("wake_after")) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("give `wake_at` or `wake_after`, not both".to_owned()),
        (Some(at), None) => instant("wake_at", at)?,
        (None, Some(after)) => later("wake_after", after, now)?,
    };
    let payload = match metadata.get("wake_payload") {
        None => Map::new(),
        Some(Value::Object(payload)) => payload.clone(),
        Some(_) => return Err("`wake_payload` must be a mapping".to_owned()),
    };
    Ok(Some(Due { at, action: DueAction::Resume(payload) }))
}

fn timeout(metadata: &Map, now: Timestamp) -> Result<Option<Due>, String> {
    let Some(timeout) = metadata.get("timeout") else { return Ok(None) };
    let at = match (timeout.get("at"), timeout.get("after")) {
        (Some(at), None) => instant("timeout.at", at)?,
        (None, Some(after)) => later("timeout.after", after, now)?,
        (Some(_), Some(_)) | (None, None) => return Err("`timeout` needs either `at` or `after`".to_owned()),
    };
    let then = timeout.get("then").cloned().unwrap_or(Value::Null);
    let action = serde_json::from_value::<DueAction>(then)
        .map_err(|_| "`timeout.then` must be {\"resume\": payload} or \"fail\"".to_owned())?;
    Ok(Some(Due { at, action }))
}

fn event(metadata: &Map) -> Result<Option<EventWait>, String> {
    let Some(event) = metadata.get("event") else { return Ok(None) };
    let pattern = match event.get("pattern") {
        Some(Value::Object(pattern)) if !pattern.is_empty() => pattern.clone(),
        _ => return Err("`event.pattern` must be an EventBridge pattern".to_owned()),
    };
    match event.get("correlation").and_then(Value::as_str) {
        Some(path) if path.starts_with("$.") => Ok(Some(EventWait { pattern, correlation: path.to_owned() })),
        _ => Err("`event.correlation` must be a path such as $.detail.job_id".to_owned()),
    }
}

fn instant(key: &str, value: &Value) -> Result<Timestamp, String> {
    let parsed = value.as_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("`{key}` must be an instant such as 2027-01-31T09:00:00Z, not {value}"))
}

fn later(key: &str, value: &Value, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || format!("`{key}` must be an ISO-8601 duration such as PT10M or P3D, not {value}");
    let span: Span = value.as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let duration: SignedDuration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    if duration.is_negative() {
        return Err(wrong());
    }
    now.checked_add(duration).map_err(|_| format!("`{key}` is too far in the future: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(metadata: Value) -> Result<WakePlan, String> {
        let Value::Object(metadata) = metadata else { return Err("a mapping".to_owned()) };
        let descriptor = SignalDescriptor { signal_id: "s".into(), metadata: Some(metadata) };
        DescriptorWakes.plan(&descriptor, "2026-01-01T00:00:00Z".parse().map_err(|_| "now")?)
    }

    #[test]
    fn a_duration_is_resolved_to_an_instant() {
        let due = plan(json!({ "wake_after": "P1DT30M", "wake_payload": { "awake": true } })).unwrap().due.unwrap();
        assert_eq!(due.at.to_string(), "2026-01-02T00:30:00Z");
        assert_eq!(due.action, DueAction::Resume(json!({ "awake": true }).as_object().unwrap().clone()));
    }

    #[test]
    fn a_timeout_says_what_happens_then() {
        let due = plan(json!({ "timeout": { "at": "2026-02-01T00:00:00Z", "then": "fail" } })).unwrap().due.unwrap();
        assert_eq!((due.at.to_string().as_str(), due.action), ("2026-02-01T00:00:00Z", DueAction::Fail));
    }

    #[test]
    fn foreign_keys_are_nobodys_business() {
        assert_eq!(plan(json!({ "kind": "approval" })).unwrap(), WakePlan::default());
    }

    #[test]
    fn every_mistake_names_its_key() {
        for (metadata, key) in [
            (json!({ "wake_at": "tomorrow" }), "wake_at"),
            (json!({ "wake_after": "P1M" }), "wake_after"),
            (json!({ "wake_after": "-PT1S" }), "wake_after"),
            (json!({ "wake_at": "2026-01-01T00:00:00Z", "wake_after": "PT1S" }), "not both"),
            (json!({ "wake_after": "PT1S", "wake_payload": 1 }), "wake_payload"),
            (json!({ "timeout": { "then": "fail" } }), "timeout"),
            (json!({ "timeout": { "after": "PT1S" } }), "timeout.then"),
            (json!({ "wake_after": "PT1S", "timeout": { "after": "PT1S", "then": "fail" } }), "not both"),
            (json!({ "event": { "pattern": {}, "correlation": "$.detail.id" } }), "event.pattern"),
            (json!({ "event": { "pattern": { "source": ["a"] }, "correlation": "detail.id" } }), "event.correlation"),
        ] {
            let reason = plan(metadata.clone()).unwrap_err();
            assert!(reason.contains(key), "{metadata}: {reason}");
        }
    }
}
