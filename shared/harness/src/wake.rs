//! The wake-ups that a descriptor can ask for in its metadata.
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `wake_at` | an instant, `2027-01-31T09:00:00Z` | resume then |
//! | `wake_after` | an ISO-8601 duration, `PT10M` or `P3D` | resume that much later |
//! | `wake_payload` | a mapping | what a wake-up lays over the state; nothing when absent |
//! | `timeout` | `{"after": duration}` or `{"at": instant}`, and `"then": {"resume": payload}` or `"then": "fail"` | what happens when no signal comes until then |
//! | `deadlines` | a list of at most 10 steps in the order of time, each with `after` or `at` | a ladder of deadlines: steps with `"do": "remind"`, `"reassign"`, `"escalate"` or `"notify"`, and `to` (a name; optional for `remind`), are told on the bus, and those of `notify` over the channel that `to` names; the last step, and only it, has a `then` as of `timeout` |
//! | `expects` | `{"parts": {name: {"signal_id"?: id}}, "until"?, "counts"?, "veto"?, "into"?}` | at most 25 signals instead of one, see below |
//! | `event` | `{"pattern": EventBridge pattern, "correlation": "$.detail.job_id"}` | an event that matches, and whose value at that path equals the `signal_id`, is the signal; its `detail` is the payload. An event of another shape that names the same id is not; what a caller sends under the `signal_id` still is |
//! | `accepts`, `into` | a JSON Schema; the name of a state field | what an answer may say and where it goes: [`AnswerRule`](dormouse_ports::AnswerRule). A pause without them accepts everything |
//!
//! What `resume` holds is laid over the state together with `"dormouse_resolution": "timed_out"`, where the graph declares
//! a field of that name: a default that says no can be told from a person who says no (`"signalled"`). A passed step of
//! the ladder is an event of source `dormouse` and detail-type `Dormouse Deadline`; its detail has `id` (the same
//! however often it is told), `invocation_id`, `graph`, `signal_id`, `generation`, `rung`, `do`, `to` and `due_at`.
//!
//! With `expects` the pause does not wait for its own `signal_id` but for one signal of each part; a part that names none
//! gets `{signal_id}/{name}`, and other keys of a part mean nothing here. It goes on when `until` is reached (`"all"`, which
//! is the default, `"any"` or `{"at_least": k}`), or with the first answer whose payload holds the value `is` in the field
//! `field` of `"veto": {"field", "is"}`. With `"counts": {"field", "is"}` only such answers count towards `until`, and the
//! pause also goes on when they cannot become so many any more. The first answer of a part stands. Their payloads are not laid over the state one
//! by one: the field `into` (`fan_in` when absent), which the state must have, receives
//! `{"answers": {name: payload}, "missing": [name], "decided_by": name or null, "outcome": "enough", "veto", "out_of_reach" or "time"}`.
//! A wake-up, a `timeout` or `deadlines` lay what had come until then over the state, beside their own payload; the detail
//! of a passed step has `missing` too.
//!
//! Instants count from the beginning of the pause. Days count 24 hours; months and years have no fixed length and are refused.

mod expects;
mod ladder;
mod moment;

use dormouse_ports::limits::{ID, METADATA};
use dormouse_ports::{
    Due, DueAction, EventWait, FanIn, Map, Resolution, SignalDescriptor, SignalId, WakePlan, WakePlanner,
};
use jiff::Timestamp;
use moment::{ending, instant, later, moment};
use serde_json::Value;

/// Reads the documented metadata keys of descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub struct DescriptorWakes;

impl WakePlanner for DescriptorWakes {
    fn plan(&self, descriptor: &SignalDescriptor, now: Timestamp) -> Result<WakePlan, String> {
        let empty = Map::new();
        let metadata = descriptor.metadata.as_ref().unwrap_or(&empty);
        within_limits(descriptor.signal_id.as_str(), metadata)?;
        let wake = wake(metadata, now)?;
        let timeout = timeout(metadata, now)?;
        let ladder = ladder::read(metadata, now)?;
        if usize::from(wake.is_some()) + usize::from(timeout.is_some()) + usize::from(!ladder.is_empty()) > 1 {
            return Err("give a wake-up, a `timeout` or `deadlines`, not both".to_owned());
        }
        let mut dues = wake.into_iter().chain(timeout).chain(ladder);
        Ok(WakePlan { due: dues.next(), later: dues.collect(), event: event(metadata)? })
    }

    fn expects(&self, descriptor: &SignalDescriptor) -> Result<Option<FanIn>, String> {
        expects::read(descriptor)
    }
}

fn within_limits(signal_id: &str, metadata: &Map) -> Result<(), String> {
    let length = signal_id.len();
    if !(1..=ID).contains(&length) {
        return Err(format!("the signal id has {length} bytes, and must have 1 to {ID}"));
    }
    if SignalId::from(signal_id).origin().0.is_some() {
        return Err(format!(
            "the signal id {signal_id:?} is one that only an event or a tenant's key brings: choose another one"
        ));
    }
    let size = serde_json::to_vec(metadata).map_err(|error| error.to_string())?.len();
    if size > METADATA {
        let advice = "keep the data in the state, or elsewhere and name it here";
        return Err(format!("the metadata has {size} bytes of JSON; the limit is {METADATA} bytes: {advice}"));
    }
    Ok(())
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
    Ok(Some(Due::first(at, DueAction::Resume(Resolution::Woken.mark(payload)))))
}

fn timeout(metadata: &Map, now: Timestamp) -> Result<Option<Due>, String> {
    let Some(timeout) = metadata.get("timeout") else { return Ok(None) };
    let at = moment("timeout", timeout, now)?;
    Ok(Some(Due::first(at, ending("timeout", timeout.get("then"))?)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_ports::{Announcement, Escalation};
    use serde_json::json;

    fn object(value: Value) -> Map {
        value.as_object().unwrap().clone()
    }

    fn plan(metadata: Value) -> Result<WakePlan, String> {
        let descriptor = SignalDescriptor { signal_id: "s".into(), metadata: Some(object(metadata)) };
        DescriptorWakes.plan(&descriptor, "2026-01-01T00:00:00Z".parse().map_err(|_| "now")?)
    }

    #[test]
    fn a_duration_is_resolved_to_an_instant() {
        let due = plan(json!({ "wake_after": "P1DT30M", "wake_payload": { "awake": true } })).unwrap().due.unwrap();
        assert_eq!(due.at.to_string(), "2026-01-02T00:30:00Z");
        assert_eq!(due.action, DueAction::Resume(Resolution::Woken.mark(object(json!({ "awake": true })))));
    }

    #[test]
    fn a_timeout_says_what_happens_then() {
        let due = plan(json!({ "timeout": { "at": "2026-02-01T00:00:00Z", "then": "fail" } })).unwrap().due.unwrap();
        assert_eq!((due.at.to_string().as_str(), due.action), ("2026-02-01T00:00:00Z", DueAction::Fail));
    }

    #[test]
    fn a_ladder_is_resolved_step_by_step() {
        let plan = plan(json!({ "deadlines": [
            { "after": "P1D", "do": "remind" },
            { "at": "2026-01-03T00:00:00Z", "do": "escalate", "to": "the board" },
            { "after": "P3D", "then": { "resume": { "decision": "denied" } } },
        ] }))
        .unwrap();
        let announce = |step, to: Option<&str>| DueAction::Announce(Announcement { step, to: to.map(str::to_owned) });
        let denied = Resolution::TimedOut.mark(object(json!({ "decision": "denied" })));
        let expected = [
            ("2026-01-02T00:00:00Z", announce(Escalation::Remind, None)),
            ("2026-01-03T00:00:00Z", announce(Escalation::Escalate, Some("the board"))),
            ("2026-01-04T00:00:00Z", DueAction::Resume(denied)),
        ];
        let mut rest = Some(plan);
        for (rung, (at, action)) in (0..).zip(expected) {
            let due = Due { at: at.parse().unwrap(), action, rung };
            assert_eq!(rest.as_ref().and_then(|plan| plan.due.clone()), Some(due));
            rest = rest.and_then(|plan| plan.advanced());
        }
        assert_eq!(rest, None, "nothing comes after the last one");
    }

    #[test]
    fn a_plan_survives_its_record() {
        let plan = plan(json!({ "deadlines": [
            { "after": "P1D", "do": "reassign", "to": "Grace" },
            { "after": "P2D", "then": "fail" },
        ] }))
        .unwrap();
        let written = serde_json::to_value(&plan).unwrap();
        assert_eq!(written["due"]["action"], json!({ "announce": { "do": "reassign", "to": "Grace" } }));
        assert_eq!(serde_json::from_value::<WakePlan>(written).unwrap(), plan);
        let before = json!({ "due": { "at": "2026-01-02T00:00:00Z", "action": "fail" } });
        let before: WakePlan = serde_json::from_value(before).unwrap();
        assert_eq!((before.rung(), before.later), (0, Vec::new()), "records from before there were ladders");
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
            (json!({ "wake_after": "P7304484D" }), "`wake_after` is too far in the future"),
            (json!({ "wake_at": "2026-01-01T00:00:00Z", "wake_after": "PT1S" }), "not both"),
            (json!({ "wake_after": "PT1S", "wake_payload": 1 }), "wake_payload"),
            (json!({ "timeout": { "then": "fail" } }), "timeout"),
            (json!({ "timeout": { "after": "PT1S" } }), "timeout.then"),
            (json!({ "wake_after": "PT1S", "timeout": { "after": "PT1S", "then": "fail" } }), "not both"),
            (json!({ "deadlines": {} }), "`deadlines`"),
            (json!({ "deadlines": [] }), "`deadlines`"),
            (json!({ "deadlines": vec![json!({}); 11] }), "`deadlines`"),
            (json!({ "deadlines": [1] }), "`deadlines[0]`"),
            (json!({ "deadlines": [{ "then": "fail" }] }), "`deadlines[0]`"),
            (json!({ "deadlines": [{ "after": "P1D" }] }), "`deadlines[0].then`"),
            (json!({ "deadlines": [{ "after": "P1D", "then": "resume" }] }), "`deadlines[0].then`"),
            (json!({ "deadlines": [{ "after": "P1D", "do": "remind" }] }), "`deadlines[0].then`"),
            (json!({ "deadlines": [{ "after": "P1D", "do": "remind", "then": "fail" }] }), "`deadlines[0]`"),
            (json!({ "deadlines": [{ "after": "P1D", "then": "fail", "too": 1 }] }), "`deadlines[0].too`"),
            (
                json!({ "deadlines": [{ "after": "P1D", "then": "fail" }, { "after": "P2D", "then": "fail" }] }),
                "`deadlines[0].do`",
            ),
            (
                json!({ "deadlines": [{ "after": "P1D", "do": "ask" }, { "after": "P2D", "then": "fail" }] }),
                "`deadlines[0].do`",
            ),
            (
                json!({ "deadlines": [{ "after": "P1D", "do": "escalate" }, { "after": "P2D", "then": "fail" }] }),
                "`deadlines[0].to`",
            ),
            (
                json!({ "deadlines": [{ "after": "P1D", "do": "remind", "to": 1 }, { "after": "P2D", "then": "fail" }] }),
                "`deadlines[0].to`",
            ),
            (
                json!({ "deadlines": [{ "after": "P2D", "do": "remind" }, { "after": "P2D", "then": "fail" }] }),
                "`deadlines[1]`",
            ),
            (json!({ "wake_after": "PT1S", "deadlines": [{ "after": "P2D", "then": "fail" }] }), "not both"),
            (json!({ "event": { "pattern": {}, "correlation": "$.detail.id" } }), "event.pattern"),
            (json!({ "event": { "pattern": { "source": ["a"] }, "correlation": "detail.id" } }), "event.correlation"),
        ] {
            let reason = plan(metadata.clone()).unwrap_err();
            assert!(reason.contains(key), "{metadata}: {reason}");
        }
    }
}
