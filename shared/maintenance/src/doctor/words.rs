//! A pause in words.

use dormouse_ports::{Due, DueAction, PausedInvocation, RESOLUTION, Until};
use jiff::{SignedDuration, Timestamp};

/// Describes a healthy pause: its wait, since when and until when.
pub(super) fn waiting(paused: &PausedInvocation, now: Timestamp) -> String {
    let node = paused.suspended_at_node.join("/");
    let slept = in_words(now.duration_since(paused.suspended_at));
    let mut sentence = format!("it has slept for {slept} at node `{node}` and {}", waits_for(paused));
    if let Some(event) = &paused.wake.event {
        let pattern = serde_json::Value::Object(event.pattern.clone());
        sentence.push_str(&format!(", which an event may carry that matches {pattern}"));
    }
    match &paused.wake.due {
        Some(due) => {
            let what = match &due.action {
                DueAction::Resume(_) | DueAction::Fail => format!("it {}", does(paused, due)),
                DueAction::Announce(told) => {
                    format!("its deadline passes and `{}` is told on the bus", told.step.as_str())
                }
            };
            sentence.push_str(&format!("; at {} {what}", due.at));
            if let Some(last) = paused.wake.later.last() {
                sentence.push_str(&format!("; at {}, without an answer, it {}", last.at, does(paused, last)));
            }
        }
        None => sentence.push_str("; it waits for as long as that takes"),
    }
    sentence
}

/// What time does next about `paused`, if anything; where somebody is told first, also what happens at last.
pub fn then(paused: &PausedInvocation) -> Option<String> {
    let first = paused.wake.due.as_ref()?;
    let next = does(paused, first);
    let last = paused.wake.later.last().map(|last| format!(", and {} at {}", does(paused, last), last.at));
    Some(format!("{next}{}", last.unwrap_or_default()))
}

/// What `due`, of the plan of `paused`, does when its time comes.
fn does(paused: &PausedInvocation, due: &Due) -> &'static str {
    let metadata = paused.descriptor.metadata.as_ref();
    let has = |name: &str| metadata.is_some_and(|metadata| metadata.contains_key(name));
    let is = |kind: &str| metadata.is_some_and(|metadata| metadata.get("kind").is_some_and(|given| given == kind));
    // What becomes of the calls of an agent is said by none of the fields that are set.
    let kind_of_calls = ["approval", "uncertain_effect", "job"].into_iter().find(|kind| has("calls") && is(kind));
    match (&due.action, kind_of_calls) {
        (DueAction::Resume(_), Some("approval")) => "is denied",
        (DueAction::Resume(_), Some("uncertain_effect")) => "is left, and is not made again",
        (DueAction::Resume(_), Some(_)) => "asks for the outcome, or goes on without it",
        (DueAction::Resume(_), None) if has("questions") && is("tool_input") => "is declined",
        // How the pause ended is told with every resolution.
        (DueAction::Resume(fields), None) if fields.keys().all(|name| name == RESOLUTION) => "goes on by itself",
        (DueAction::Resume(_), None) => "goes on with a default answer",
        (DueAction::Fail, _) => "ends as timed out",
        (DueAction::Announce(told), _) => told.step.as_str(),
    }
}

/// The wait of a pause; of several signals, the parts that have answered and those that have not.
fn waits_for(paused: &PausedInvocation) -> String {
    let Some(fan_in) = &paused.fan_in else {
        return format!("waits for signal `{}`", paused.descriptor.signal_id);
    };
    let missing: Vec<_> = fan_in.missing().collect();
    let answered: Vec<_> = fan_in.answers.iter().map(|answer| answer.part.as_str()).collect();
    let needed = match fan_in.until {
        Until::All => "all".to_owned(),
        Until::AtLeast(count) => count.to_string(),
    };
    let such = fan_in.counts.as_ref().map(|counts| format!(" with `{}` {}", counts.field, counts.is));
    let such = such.unwrap_or_default();
    let answered = if answered.is_empty() { "nobody".to_owned() } else { answered.join(", ") };
    let of = fan_in.expected.len();
    let missing = missing.join(", ");
    format!("waits for {needed} of {of} answers{such}: {answered} answered, {missing} did not")
}

/// A span of time in words: the two largest units.
pub fn in_words(span: SignedDuration) -> String {
    let seconds = span.as_secs().unsigned_abs();
    let days = seconds / 86_400;
    let hours = seconds / 3600 % 24;
    let minutes = seconds / 60 % 60;
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::{Announcement, Escalation, Map, SignalDescriptor, WakePlan};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_time_does_is_told_of_each_kind() {
        let paused = |descriptor: SignalDescriptor| PausedInvocation {
            descriptor,
            ..PausedInvocation::unreadable("task_1".into(), 1, Timestamp::UNIX_EPOCH)
        };
        let resumed = |payload: serde_json::Value| {
            let payload = payload.as_object().cloned().expect("an object");
            Due::first(Timestamp::UNIX_EPOCH, DueAction::Resume(payload))
        };
        let of = |kind: &str| SignalDescriptor::new("s").with("kind", kind);
        let reply = json!({ "reply": {} });
        for (descriptor, payload, words) in [
            (of("approval").with("calls", json!({})), &reply, "is denied"),
            (of("uncertain_effect").with("calls", json!({})), &reply, "is left, and is not made again"),
            (of("approval"), &reply, "goes on with a default answer"),
            (
                of("job").with("calls", json!({})),
                &json!({ RESOLUTION: "timed_out" }),
                "asks for the outcome, or goes on without it",
            ),
            (of("tool_input").with("questions", json!({})), &reply, "is declined"),
            (of("job"), &reply, "goes on with a default answer"),
            (of("timer"), &json!({}), "goes on by itself"),
            (of("timer"), &json!({ RESOLUTION: "timed_out" }), "goes on by itself"),
        ] {
            assert_eq!(does(&paused(descriptor), &resumed(payload.clone())), words);
        }
        let failing = Due::first(Timestamp::UNIX_EPOCH, DueAction::Fail);
        assert_eq!(does(&paused(of("approval")), &failing), "ends as timed out");
    }

    #[test]
    fn what_happens_at_last_is_told_with_what_is_announced_first() {
        let at = |second| Timestamp::from_second(second).expect("an instant");
        let mut paused = PausedInvocation {
            descriptor: SignalDescriptor::new("s").with("kind", "approval").with("calls", json!({})),
            ..PausedInvocation::unreadable("task_1".into(), 1, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(then(&paused), None);
        let denied = Due::first(at(60), DueAction::Resume(Map::new()));
        paused.wake.due = Some(denied.clone());
        assert_eq!(then(&paused).as_deref(), Some("is denied"));
        let reminder = DueAction::Announce(Announcement { step: Escalation::Remind, to: None });
        let due = Some(Due::first(at(30), reminder));
        paused.wake = WakePlan { due, later: vec![denied], ..WakePlan::default() };
        assert_eq!(then(&paused).as_deref(), Some("remind, and is denied at 1970-01-01T00:01:00Z"));
    }
}
