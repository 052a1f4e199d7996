//! A pause in words.

use dormouse_ports::{DueAction, Map, PausedInvocation, Until};
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
                DueAction::Resume(payload) if *payload == Map::new() => "it goes on by itself",
                DueAction::Resume(_) => "it goes on with a default answer",
                DueAction::Fail => "it ends as timed out",
                DueAction::Announce(told) => {
                    &format!("its deadline passes and `{}` is told on the bus", told.step.as_str())
                }
            };
            sentence.push_str(&format!("; at {} {what}", due.at));
        }
        None => sentence.push_str("; it waits for as long as that takes"),
    }
    sentence
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
